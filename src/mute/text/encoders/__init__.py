"""Texts to embeddings: encoders, and the cache of what they have encoded."""
