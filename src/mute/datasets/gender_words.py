"""Words in gender classes: the pairs that define a gender direction, and the classes that follow from it."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mute.datasets.dataset import Dataset
from mute.datasets.papers.glove import paper_split
from mute.errors import MuteError
from mute.typing import Json

__all__ = ["PAIRS", "frequent_words", "gender_classes", "gender_dataset", "gender_direction", "read_glove"]

# (female, male). The direction comes from these pairs.
PAIRS = [
    (female, male)
    for female, male in csv.reader((files("mute.datasets") / "gender_pairs.csv").read_text("ascii").splitlines()[1:])
]

# A direction from a handful of pairs is the direction of those pairs, not of gender.
_FEWEST_PAIRS = 10

# As many words as the paper has for each class.
_PER_CLASS = 7_332

_GLOVE_COLUMNS = 100

Floats = NDArray[np.float64]


def read_glove(path: Path) -> tuple[list[str], Floats]:
    """Read words, most frequent first, and their vectors (n, 100) from the JSON file of the npm package.

    The file is ``{..., "words": ["the", ...], "vectors": {"the": [...], ...}, ...}`` without blanks between the parts.
    """
    # One vector at a time: the whole file as Python lists would take 1.5 GB.
    text = path.read_text(encoding="utf-8")
    decode = json.JSONDecoder().raw_decode
    try:
        words: list[str] = decode(text, text.index('"words":') + len('"words":'))[0]
        row = {word: i for i, word in enumerate(words)}
        vectors = np.full((len(words), _GLOVE_COLUMNS), np.nan)
        at = text.index('"vectors":{') + len('"vectors":')
        while text[at] != "}":
            word, at = decode(text, at + 1)
            vector, at = decode(text, at + 1)
            if word in row:
                # The file appends the norm and the rank of the word to each vector.
                vectors[row[word]] = vector[:_GLOVE_COLUMNS]
    except (ValueError, IndexError, TypeError) as error:
        raise MuteError(f"{path} does not contain word vectors in the form expected: {error}") from error
    if not np.isfinite(vectors).all():
        raise MuteError(f"{path} does not contain a vector of {_GLOVE_COLUMNS} numbers for each of its words")
    return words, vectors


def frequent_words(words: Sequence[str], most: int) -> list[str]:
    """The first `most` words that are written in the letters a to z only; `words` come most frequent first.

    Examples
    --------
    >>> frequent_words(["the", ",", "café", "queen", "mp3", "king"], 2)
    ['the', 'queen']
    """
    return [word for word in words if word.isascii() and word.isalpha()][:most]


def gender_direction(words: Sequence[str], unit: Floats) -> Floats:
    """The first principal component of the pairs, each centred at its own midpoint: a unit vector, female is positive.

    `unit` are the vectors of the words, of shape (n, D), each of length 1. Pairs of which a word is missing are left
    out; fewer than ten pairs are refused.
    """
    row = {word: i for i, word in enumerate(words)}
    pairs = [pair for pair in PAIRS if pair[0] in row and pair[1] in row]
    if len(pairs) < _FEWEST_PAIRS:
        raise MuteError(
            f"only {len(pairs)} gendered pairs (she/he, woman/man, ...) are among the {len(words)} words, and a gender "
            f"direction needs {_FEWEST_PAIRS}: give more words"
        )
    female = unit[[row[f] for f, _ in pairs]]
    male = unit[[row[m] for _, m in pairs]]
    half = (female - male) / 2
    _, _, components = np.linalg.svd(np.concatenate([half, -half]), full_matrices=False)
    direction: Floats = components[0]
    # A principal component has no sign of its own.
    return direction if (half @ direction).mean() > 0 else -direction


def gender_classes(words: Sequence[str], vectors: Floats, most: int) -> tuple[NDArray[np.intp], NDArray[np.str_]]:
    r"""Choose the m most male, the m most female and the m most neutral words.

    With unit vectors :math:`u_w` and the gender direction :math:`g`, a word is scored by :math:`u_w \cdot g`. The words
    with the smallest score are male, those with the largest are female, and those with the smallest :math:`|u_w \cdot
    g|` are neutral. m is `most`, or a third of the words if there are fewer.

    Returns
    -------
    rows, labels : arrays of shape (3 m,)
        Which words: male, then female, then neutral ones, the most typical of each first; and their class.

    Notes
    -----
    *Limits.* No word is in two classes as long as the m smallest sizes lie between the m smallest and the m largest
    scores; where they do not (scores all of one sign), the words nearest to zero among those left are neutral.
    """
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    score = unit @ gender_direction(words, unit)
    m = min(most, len(words) // 3)
    order = np.argsort(score, kind="stable")
    male, between, female = order[:m], order[m : len(order) - m], order[::-1][:m]
    neutral = between[np.argsort(np.abs(score[between]), kind="stable")][:m]
    return np.concatenate([male, female, neutral]), np.repeat(["male", "female", "neutral"], m)


def gender_dataset(words: list[str], vectors: Floats, most_frequent: int, provenance: Json) -> Dataset:
    """Words in three gender classes of 7,332 each (or a third of the words), split as the paper splits its words.

    The classes are drawn from the `most_frequent` first alphabetic words; `words` come most frequent first.
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
        provenance=provenance
        | {
            "method": provenance["method"].format(words=len(chosen)),
            "pairs": [list(pair) for pair in PAIRS if present.issuperset(pair)],
        },
    )
