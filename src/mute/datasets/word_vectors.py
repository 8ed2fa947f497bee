"""Word vectors in gender classes, and pairs of words with a similarity that people gave them."""

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mute.datasets.dataset import Dataset
from mute.datasets.gender_words import PAIRS, frequent_words, gender_classes
from mute.errors import MuteError

__all__ = ["gender_dataset", "read_glove", "read_pairs", "read_word2vec"]

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


def read_word2vec(path: Path) -> tuple[list[str], NDArray[np.float32]]:
    """Read a binary word2vec file: a line ``n d``, then n times a word, a blank and d float32 numbers.

    Returns
    -------
    words : list of n str
    vectors : array of shape (n, d)
    """
    content = path.read_bytes()
    try:
        at = content.index(b"\n") + 1
        n, d = map(int, content[:at].split())
        words: list[str] = []
        vectors = np.empty((n, d), dtype=np.float32)
        for i in range(n):
            blank = content.index(b" ", at)
            # Some writers end each vector with a line break.
            words.append(content[at:blank].lstrip(b"\n").decode())
            vectors[i] = np.frombuffer(content, dtype="<f4", count=d, offset=blank + 1)
            at = blank + 1 + 4 * d
    except ValueError as error:
        raise MuteError(f"{path} is not a binary word2vec file, or it is cut short: {error}") from error
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
    from sklearn.model_selection import train_test_split

    chosen = frequent_words(words, most_frequent)
    row = {word: i for i, word in enumerate(words)}
    space = vectors[[row[word] for word in chosen]].astype(np.float64)
    rows, labels = gender_classes(chosen, space, _PER_CLASS)
    seen, test = train_test_split(np.arange(len(rows)), test_size=0.3, random_state=0)
    _, validate = train_test_split(seen, test_size=0.3, random_state=0)
    split = np.full(len(rows), "fit", dtype="<U8")
    split[validate], split[test] = "validate", "test"
    present = set(chosen)
    return Dataset(
        X=space[rows].astype(np.float32),
        z=labels,
        names=np.array(chosen)[rows],
        split=split,
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


def read_pairs(path: Path) -> list[tuple[str, str, float]]:
    """Read lines of two words and a number, separated by tabs; lines that start with # are comments."""
    pairs = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            try:
                first, second, score = line.split("\t")[:3]
                pairs.append((first, second, float(score)))
            except ValueError as error:
                raise MuteError(f"{path} has the line {line!r}, which is not two words and a number") from error
    return pairs
