"""GloVe word vectors in three gender classes: the set that ships with the package, or the authors' own."""

import json
import os
from importlib.resources import as_file, files

import numpy as np

from mute.datasets.dataset import Dataset
from mute.datasets.papers.glove import read_glove_pickles
from mute.storage.container import read_arrays

__all__ = ["load_glove_gender"]


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
        `X` are the vectors as GloVe gives them (not normalised); `z` is ``"female"``, ``"male"`` or ``"neutral"``;
        `names` are the words. There is no task: `y` is None. The set of the package has `X` (12000, 100), with fit
        (6,000), validate (2,400) and test (3,600) in the same shares for each class. The authors' set has `X`
        (21996, 300), male words first, then female, then neutral, each in the order of its file, and the paper's split:
        10,777, 4,620 and 6,599 rows. Each call reads the files again, so the arrays are the caller's own.

    See Also
    --------
    load : Larger sets, which ``mute data prepare`` makes ready.

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
    ``provenance["by_definition"]``. The vectors are stored in float16, that is to about three significant digits.

    *The authors' split* is scikit-learn's ``train_test_split(test_size=0.3, random_state=0)`` over the rows, and the
    same again over what it leaves to fit and validate. It depends on the number and the order of the rows alone. Rows
    stay in the order of the files; the order into which the authors shuffled them within a part is not kept.

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
    if path is not None:
        return read_glove_pickles(path)
    with as_file(files("mute.datasets") / "glove_gender.safetensors") as shipped:
        metadata, stored = read_arrays(shipped, "the words of this package")
    provenance = json.loads(metadata["provenance"])
    return Dataset(
        X=stored["vectors"].astype(np.float32),
        z=np.array(provenance["labels"])[stored["label"]],
        names=np.array(stored["words"].tobytes().decode("utf-8").split("\n")),
        split=np.array(provenance["splits"])[stored["split"]],
        provenance=provenance,
    )
