"""Real data to try the erasers on: one small set that ships with the package, and the papers' files, in one shape."""

from mute.datasets.bios import load_bias_in_bios, read_bios_texts
from mute.datasets.dataset import Dataset
from mute.datasets.dial import load_dial
from mute.datasets.glove import load_glove_gender
from mute.datasets.jigsaw import extract_jigsaw_religion, load_jigsaw, read_jigsaw_texts
from mute.datasets.unpickle import read_npy, read_pickle
from mute.datasets.words import load_word_pairs, load_word_vectors

__all__ = [
    "Dataset",
    "extract_jigsaw_religion",
    "load_bias_in_bios",
    "load_dial",
    "load_glove_gender",
    "load_jigsaw",
    "load_word_pairs",
    "load_word_vectors",
    "read_bios_texts",
    "read_jigsaw_texts",
    "read_npy",
    "read_pickle",
]
