"""The authors' GloVe words in three gender classes."""

import os

import numpy as np
from numpy.typing import NDArray

from mute.datasets.dataset import Dataset
from mute.datasets.papers.reading import Gathered, as_vectors, file_in, folder_at
from mute.datasets.papers.unpickle import read_pickle
from mute.errors import MuteError

__all__ = ["paper_split", "read_glove_pickles"]

_PICKLES = {"male": "male_words.pkl", "female": "fem_words.pkl", "neutral": "neut_words.pkl"}
_PUBLISHED = "Ravfogel et al. (2020) publish it with the data of their GloVe experiments"


def read_glove_pickles(path: str | os.PathLike[str]) -> Dataset:
    """Read the three pickled dicts of word -> vector; see `mute.datasets.load_glove_gender`."""
    folder = folder_at(path, ", ".join(_PICKLES.values()))
    rows = Gathered()
    for label, name in _PICKLES.items():
        file = file_in(folder, name, _PUBLISHED)
        content = read_pickle(file)
        if not isinstance(content, dict) or not content or not all(isinstance(word, str) for word in content):
            raise MuteError(f"{file} contains no dict of word -> vector: {_PUBLISHED}")
        vectors = as_vectors(list(content.values()), str(file), np.float64)
        rows.add(file, vectors, z=[label] * len(content), names=content)
    rows.split = paper_split(len(rows.names)).tolist()
    return rows.dataset("glove", folder)


def paper_split(n: int) -> NDArray[np.str_]:
    """The paper's parts of `n` words: 49 % to fit, 21 % to validate, 30 % to test."""
    from sklearn.model_selection import train_test_split

    kept, test = train_test_split(np.arange(n), test_size=0.3, random_state=0)
    _, validate = train_test_split(kept, test_size=0.3, random_state=0)
    split = np.full(n, "fit", dtype="<U8")
    split[test], split[validate] = "test", "validate"
    return split
