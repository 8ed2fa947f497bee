"""Texts to embeddings, `encode(texts, "minilm")`, and to other texts, `TextCounterfactual().fit(texts, concept)`."""

from mute.text.counterfactual import Counterfactuals, TextCounterfactual
from mute.text.decoders.decoder import Decoded, Decoder
from mute.text.decoders.edit_search import EditSearch
from mute.text.decoders.inverter import Inverter
from mute.text.decoders.inverter_training import train_inverter
from mute.text.decoders.retrieval import Retrieval
from mute.text.decoders.vec2text import Vec2Text
from mute.text.encoders.encoder import Encoder, load_encoder
from mute.text.encoders.encoding import encode
from mute.text.evaluation.metrics import bertscore, bleu, edit_distance, rouge, substitution_rate
from mute.text.gallery import Example, write_gallery
from mute.text.swaps import paper_swap, swap_gender

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
