"""Texts to embeddings: `encode(texts, load_encoder("minilm"))`; swaps of gender; scores of texts."""

from mute.text.encoders import Encoder, load_encoder
from mute.text.encoding import encode
from mute.text.metrics import bertscore, bleu, edit_distance, rouge, substitution_rate
from mute.text.swaps import paper_swap, swap_gender

__all__ = [
    "Encoder",
    "bertscore",
    "bleu",
    "edit_distance",
    "encode",
    "load_encoder",
    "paper_swap",
    "rouge",
    "substitution_rate",
    "swap_gender",
]
