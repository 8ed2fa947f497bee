"""DIAL: tweets with the dialect of their author and their sentiment."""

import os
from itertools import product

from mute.datasets.dataset import Dataset
from mute.datasets.papers.reading import Gathered, file_in, folder_at, read_matrix

__all__ = ["load_dial"]

_SPLITS = {"train": "fit", "dev": "validate", "test": "test"}
_ROWS = {"train": 40_000, "dev": 2_000, "test": 1_999}
_SENTIMENTS = {"neg": "sad", "pos": "happy"}
_DIALECTS = {"neg": "SAE", "pos": "AAE"}
_INNER = "emoji_sent_race_0.5"
_PUBLISHED = (
    f"it belongs to {_INNER}, the DeepMoji encodings of Ravfogel et al. (2020) in the version that Chowdhury et al. "
    "(2024) publish with their code"
)


def load_dial(path: str | os.PathLike[str]) -> Dataset:
    """Load DeepMoji encodings of tweets with dialect as the concept and sentiment as the task.

    Parameters
    ----------
    path : str or path-like
        Folder with ``train``, ``dev`` and ``test``, each with ``neg_neg.npy``, ``neg_pos.npy``, ``pos_neg.npy`` and
        ``pos_pos.npy``; or the folder above it, with the name ``emoji_sent_race_0.5``.

    Returns
    -------
    Dataset
        `X` (n, 300); `z` is ``"AAE"`` (African-American English) or ``"SAE"`` (standard American English), after the
        second word of a file's name; `y` is ``"happy"`` or ``"sad"``, after the first. `names` say file and row. The
        first 40,000, 2,000 and 1,999 rows of each file are taken, so all four have as many: 160,000 rows to fit, 8,000
        to validate, 7,996 to test. Where a file has fewer, the smallest of its folder counts for all four, and
        ``provenance["rows_per_file"]`` says so.

    Notes
    -----
    *Limits.* Rows are in the order of the files, not shuffled: never take the first rows for a sample. Dialect was
    assigned by a model of the words of a tweet and the place of its author, not by the authors themselves.

    References
    ----------
    Blodgett, S. L., Green, L. and O'Connor, B. (2016). Demographic Dialectal Variation in Social Media. EMNLP.

    Elazar, Y. and Goldberg, Y. (2018). Adversarial Removal of Demographic Attributes from Text Data. EMNLP.
    """
    folder = folder_at(path, "train, dev and test, each with neg_neg.npy, neg_pos.npy, pos_neg.npy and pos_pos.npy")
    if (folder / _INNER).is_dir():
        folder = folder / _INNER
    rows, rows_per_file = Gathered(), {}
    cells = list(product(_SENTIMENTS, _DIALECTS))
    for part, ours in _SPLITS.items():
        paths = [file_in(folder, f"{part}/{first}_{second}.npy", _PUBLISHED) for first, second in cells]
        matrices = [read_matrix(file) for file in paths]
        count = min(_ROWS[part], *map(len, matrices))
        rows_per_file[part] = {"taken": count, "paper": _ROWS[part]}
        for (first, second), file, matrix in zip(cells, paths, matrices, strict=True):
            rows.add(
                file,
                matrix[:count],
                z=[_DIALECTS[second]] * count,
                y=[_SENTIMENTS[first]] * count,
                names=[f"{part} {file.stem} {row}" for row in range(count)],
                split=[ours] * count,
            )
    return rows.dataset("dial", folder, rows_per_file=rows_per_file)
