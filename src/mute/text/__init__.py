"""Texts to embeddings, `encode(texts, "minilm")`, and to other texts, `TextCounterfactual().fit(texts, concept)`."""

from mute.text.counterfactual import Counterfactuals, TextCounterfactual
from mute.text.decoding import Decoded, Decoder
from mute.text.edit_search import EditSearch
from mute.text.encoders import Encoder, load_encoder
from mute.text.encoding import encode
from mute.text.gallery import Example, write_gallery
from mute.text.inverter import Inverter, train_inverter
from mute.text.metrics import bertscore, bleu, edit_distance, rouge, substitution_rate
from mute.text.retrieval import Retrieval
from mute.text.swaps import paper_swap, swap_gender
from mute.text.vec2text import Vec2Text

__all__ = [
    "Counterfactuals",
    "Decoded",
    "Decoder",
    "EditSearch",
    "Encoder",
    "Example",
    "Inverter",
    "Retrieval",
    "TextCounterfactual",
    "Vec2Text",
    "bertscore",
    "bleu",
    "edit_distance",
    "encode",
    "load_encoder",
    "paper_swap",
    "rouge",
    "substitution_rate",
    "swap_gender",
    "train_inverter",
    "write_gallery",
]
