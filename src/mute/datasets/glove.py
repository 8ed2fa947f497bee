"""GloVe word vectors in three gender classes: the data set that ships with the package."""

import json
from importlib.resources import as_file, files

import numpy as np

from mute.datasets.dataset import Dataset

__all__ = ["load_glove_gender"]

_FILE = "glove_gender.safetensors"


def load_glove_gender() -> Dataset:
    r"""Load 12,000 GloVe word vectors labelled female, male or neutral.

    The classes follow a gender direction in the space of the vectors: with unit vectors :math:`u_w` and pairs such as
    (she, he) or (queen, king), the direction :math:`g` is the first principal component of the pairs, each centred at
    its midpoint. The 4,000 words with the largest :math:`u_w \cdot g` are female, the 4,000 with the smallest are male,
    and the 4,000 with the smallest :math:`|u_w \cdot g|` are neutral. The words of the pairs have the class that they
    define.

    Returns
    -------
    Dataset
        `X` holds the vectors, (12000, 100), as GloVe gives them (not normalised); `z` is ``"female"``, ``"male"`` or
        ``"neutral"``; `names` are the words; `split` is fit (6,000), validate (2,400) or test (3,600), in the same
        shares for each class. There is no task: `y` is None. Each call reads the file again, so the arrays are the
        caller's own.

    Notes
    -----
    *Limits.* The classes are cut from a projection of `X` itself, so a linear probe reads them almost perfectly: the
    set shows what an eraser does, it does not measure how well gender can be read from text. Few words outside of the
    pairs are gendered by meaning; most are there because of the texts they occur in, and they carry the stereotypes of
    those texts. Male words are also more frequent than female words. The 20 pair words that the projection alone
    would have left out of their class (``husband``, ``boy``, ``wives``) are listed in
    ``provenance["by_definition"]``.

    The vectors are stored in float16, that is to about three significant digits.

    References
    ----------
    Pennington, J., Socher, R. and Manning, C. D. (2014). GloVe: Global Vectors for Word Representation. EMNLP.

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
    from safetensors import safe_open

    with as_file(files("mute.datasets") / _FILE) as path, safe_open(path, framework="numpy") as stored:
        provenance = json.loads(stored.metadata()["provenance"])
        text = stored.get_tensor("words").tobytes().decode("utf-8")
        return Dataset(
            X=stored.get_tensor("vectors").astype(np.float32),
            z=np.array(provenance["labels"])[stored.get_tensor("label")],
            names=np.array(text.split("\n")),
            split=np.array(provenance["splits"])[stored.get_tensor("split")],
            provenance=provenance,
        )
