"""Texts to embeddings: `encode(texts, load_encoder("minilm"))`."""

from mute.text.encoders import Encoder, load_encoder
from mute.text.encoding import encode

__all__ = ["Encoder", "encode", "load_encoder"]
