"""Embeddings to texts: every decoder follows the protocol of `decoder.py`."""
