"""Readers of the files that authors publish with their papers: embeddings, texts, word vectors and word pairs."""
