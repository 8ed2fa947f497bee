"""GloVe word vectors in three gender classes: the set that ships with the package, and the authors' own."""

import json
import os
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mute.datasets.dataset import Dataset
from mute.datasets.reading import file_in, fingerprints, folder_at, stack_parts
from mute.datasets.unpickle import read_pickle
from mute.errors import MuteError
from mute.storage.container import read_arrays

__all__ = ["load_glove_gender", "paper_split"]

_FILE = "glove_gender.safetensors"
_PICKLES = {"male": "male_words.pkl", "female": "fem_words.pkl", "neutral": "neut_words.pkl"}
_PUBLISHED = "Ravfogel et al. (2020) publish it with the data of their GloVe experiments"


def load_glove_gender(path: str | os.PathLike[str] | None = None) -> Dataset:
    r"""Load GloVe word vectors labelled female, male or neutral: 12,000 that ship with the package, or the authors'.

    Parameters
    ----------
    path : str or path-like, optional
        Folder with the authors' ``male_words.pkl``, ``fem_words.pkl`` and ``neut_words.pkl``, each a pickled dict of
        word -> vector. Without it the set that ships with the package is loaded.

    Returns
    -------
    Dataset
        `X` holds the vectors as GloVe gives them (not normalised); `z` is ``"female"``, ``"male"`` or ``"neutral"``;
        `names` are the words. There is no task: `y` is None. The set of the package has `X` (12000, 100), with fit
        (6,000), validate (2,400) and test (3,600) in the same shares for each class. The authors' set has `X`
        (21996, 300), male words first, then female, then neutral, each in the order of its file, and the paper's split:
        10,777, 4,620 and 6,599 rows. Each call reads the files again, so the arrays are the caller's own.

    Raises
    ------
    MuteError
        If a file in `path` is missing, damaged, or no dict of vectors that all have one length and finite values.

    Notes
    -----
    *The set of the package.* The classes follow a gender direction in the space of the vectors: with unit vectors
    :math:`u_w` and pairs such as (she, he) or (queen, king), the direction :math:`g` is the first principal component
    of the pairs, each centred at its midpoint. The 4,000 words with the largest :math:`u_w \cdot g` are female, the
    4,000 with the smallest are male, and the 4,000 with the smallest :math:`|u_w \cdot g|` are neutral. The words of
    the pairs have the class that they define.

    *Limits.* The classes are cut from a projection of `X` itself, so a linear probe reads them almost perfectly: the
    set shows what an eraser does, it does not measure how well gender can be read from text. Few words outside of the
    pairs are gendered by meaning; most are there because of the texts they occur in, and they carry the stereotypes of
    those texts. Male words are also more frequent than female words. The 20 pair words that the projection alone
    would have left out of their class (``husband``, ``boy``, ``wives``) are listed in
    ``provenance["by_definition"]``.

    The vectors are stored in float16, that is to about three significant digits.

    *The authors' split* is scikit-learn's ``train_test_split(test_size=0.3, random_state=0)`` over the rows, and the
    same again over what it leaves to fit and validate. It depends on the number and the order of the rows alone.
    `split` says which part a row is in; the order into which the authors' rows were shuffled within a part is not
    kept, as nothing here depends on it.

    References
    ----------
    Pennington, J., Socher, R. and Manning, C. D. (2014). GloVe: Global Vectors for Word Representation. EMNLP.

    Ravfogel, S. et al. (2020). Null It Out: Guarding Protected Attributes by Iterative Nullspace Projection. ACL.

    Examples
    --------
    >>> from mute.datasets import load_glove_gender
    >>> words = load_glove_gender()
    >>> words
    Dataset(12000 x 100; z: female 4000, male 4000, neutral 4000; split: fit 6000, test 3600, validate 2400)
    >>> words.z[words.names == "queen"].item()
    'female'
    >>> words.rows("test").X.shape
    (3600, 100)
    """
    return _shipped() if path is None else _authors(path)


def _shipped() -> Dataset:
    with as_file(files("mute.datasets") / _FILE) as path:
        metadata, stored = read_arrays(path, "the words of this package")
    provenance = json.loads(metadata["provenance"])
    return Dataset(
        X=stored["vectors"].astype(np.float32),
        z=np.array(provenance["labels"])[stored["label"]],
        names=np.array(stored["words"].tobytes().decode("utf-8").split("\n")),
        split=np.array(provenance["splits"])[stored["split"]],
        provenance=provenance,
    )


def _authors(path: str | os.PathLike[str]) -> Dataset:
    folder = folder_at(path, ", ".join(_PICKLES.values()))
    parts = []
    words: list[str] = []
    z: list[str] = []
    for label, name in _PICKLES.items():
        file = file_in(folder, name, _PUBLISHED)
        found, vectors = _vectors(file)
        parts.append((file, vectors))
        words += found
        z += [label] * len(found)
    return Dataset(
        X=stack_parts(parts),
        z=np.array(z),
        names=np.array(words),
        split=paper_split(len(words)),
        provenance={
            "source": "GloVe words in three gender classes, Ravfogel et al. (2020)",
            "citation": "Pennington, Socher and Manning (2014), GloVe, EMNLP; Ravfogel et al. (2020), Null It Out, ACL",
            "licence": "of the vectors: PDDL 1.0 (public domain); of the selection: not stated by the authors",
            "files": fingerprints(folder, [file for file, _ in parts]),
        },
    )


def _vectors(path: Path) -> tuple[list[str], NDArray[Any]]:
    """Read a pickled dict of word -> vector."""
    content = read_pickle(path)
    if not isinstance(content, dict) or not content or not all(isinstance(word, str) for word in content):
        raise MuteError(f"{path} holds no dict of word -> vector: {_PUBLISHED}")
    try:
        vectors = np.array(list(content.values()), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise MuteError(f"{path} must hold vectors of numbers that all have one length: {error}") from error
    if vectors.ndim != 2:
        raise MuteError(f"{path} must hold one vector for each word, got an array of shape {vectors.shape}")
    return list(content), vectors


def paper_split(n: int) -> NDArray[np.str_]:
    """The paper's parts of `n` words: 49 % to fit, 21 % to validate, 30 % to test."""
    from sklearn.model_selection import train_test_split

    kept, test = train_test_split(np.arange(n), test_size=0.3, random_state=0)
    _, validate = train_test_split(kept, test_size=0.3, random_state=0)
    split = np.full(n, "fit", dtype="<U8")
    split[test] = "test"
    split[validate] = "validate"
    return split
