"""Bias in Bios: short biographies with the gender and the occupation of the person."""

import os
from pathlib import Path

from mute.datasets.dataset import Dataset
from mute.datasets.papers.reading import Gathered, file_in, folder_at, read_matrix, read_strings, shortened
from mute.datasets.papers.unpickle import read_pickle
from mute.errors import MuteError

__all__ = ["load_bias_in_bios", "read_bios_texts"]

_SPLITS = {"train": "fit", "dev": "validate", "test": "test"}
_GENDERS = {"f": "female", "m": "male"}
_POOLINGS = ("cls", "meanpool")
_PUBLISHED = "the authors (Ravfogel et al. 2020) publish it in the folder nullspace/biasbios of their storage bucket"


def load_bias_in_bios(path: str | os.PathLike[str], *, encoding: str = "bert") -> Dataset:
    """Load the embeddings of Bias in Bios with gender as the concept and occupation as the task.

    Parameters
    ----------
    path : str or path-like
        Folder with a sub-folder `encoding`, which has ``train_cls.npy``, ``train_z.npy`` and ``train_y.npy``, and the
        same for ``dev`` and ``test``; ``train_meanpool.npy`` serves where there is no ``train_cls.npy``. Labels that
        are missing there come from ``train.pickle`` (``dev``, ``test``) in `path` itself, and so do the texts.
    encoding : str
        The sub-folder: ``"bert"`` or ``"T5"`` of the authors, or one that you have made.

    Returns
    -------
    Dataset
        `X` (n, D), for BERT (n, 768); `z` is ``"female"`` or ``"male"``; `y` is one of the 28 occupations; `names` are
        the beginnings of the texts (`read_bios_texts` has all of them), or ``"train 17"`` where there are none. The
        authors' train, dev and test are fit, validate and test: 255,710, 39,369 and 98,344 rows.

    References
    ----------
    De-Arteaga, M. et al. (2019). Bias in Bios: A Case Study of Semantic Representation Bias in a High-Stakes Setting.
    FAT*.

    Ravfogel, S. et al. (2020). Null It Out: Guarding Protected Attributes by Iterative Nullspace Projection. ACL.
    """
    folder = folder_at(path, f"{encoding}/train_cls.npy, {encoding}/train_z.npy, ... and, with the texts, train.pickle")
    rows = Gathered()
    for part, ours in _SPLITS.items():
        source = _embeddings(folder, encoding, part)
        matrix = read_matrix(source)
        pickled = folder / f"{part}.pickle"
        stored = {column: folder / encoding / f"{part}_{column}.npy" for column in "zy"}
        labels = {column: read_strings(file).tolist() for column, file in stored.items() if file.is_file()}
        read = {stored[column]: values for column, values in labels.items()}
        names = [f"{part} {row}" for row in range(len(matrix))]
        if pickled.is_file() or len(labels) < 2:
            people = _people(folder, part)
            read[pickled] = people["g"]
            names = shortened(people["hard_text_untokenized"])
        for file, values in read.items():
            if len(values) != len(matrix):
                raise MuteError(
                    f"{file} has {len(values)} rows where {source} has {len(matrix)}: they must belong together"
                )
        if pickled in read:
            with_texts = {"z": people["g"], "y": people["p"]}
            for column, values in labels.items():
                _check_same(stored[column], values, pickled, with_texts[column])
            labels = with_texts | labels
        z = _genders(labels["z"], stored["z"] if stored["z"] in read else pickled)
        rows.add(source, matrix, *read, z=z, y=labels["y"], names=names, split=[ours] * len(matrix))
    return rows.dataset("bios", folder, encoding=encoding)


def read_bios_texts(path: str | os.PathLike[str]) -> dict[str, list[str]]:
    """Read the biographies themselves.

    Parameters
    ----------
    path : str or path-like
        Folder with ``train.pickle``, ``dev.pickle`` and ``test.pickle``.

    Returns
    -------
    dict of str -> list of str
        Columns of one length, in the order of `load_bias_in_bios`: ``"text"`` (the biography without its first
        sentence, which names the occupation), ``"without_gender"`` (the same without names and pronouns), ``"z"``
        (``"female"``, ``"male"``), ``"y"`` (occupation) and ``"split"`` (``"fit"``, ``"validate"``, ``"test"``).
    """
    folder = folder_at(path, "train.pickle, dev.pickle and test.pickle")
    columns: dict[str, list[str]] = {name: [] for name in ("text", "without_gender", "z", "y", "split")}
    for part, ours in _SPLITS.items():
        people = _people(folder, part)
        columns["text"] += people["hard_text_untokenized"]
        columns["without_gender"] += people["text_without_gender"]
        columns["z"] += _genders(people["g"], folder / f"{part}.pickle")
        columns["y"] += people["p"]
        columns["split"] += [ours] * len(people["p"])
    return columns


def _embeddings(folder: Path, encoding: str, part: str) -> Path:
    for pooling in _POOLINGS:
        path = folder / encoding / f"{part}_{pooling}.npy"
        if path.is_file():
            return path
    target = f"{folder}/{encoding}/{part}_cls.npy"
    raise MuteError(
        f"{target} is missing: {_PUBLISHED}; or make it with `mute data encode "
        f"{folder}/{part}.pickle:hard_text_untokenized -o {target} --encoder BERT_FOLDER --pooling cls`"
    )


def _people(folder: Path, part: str) -> dict[str, list[str]]:
    """Read a list of dicts, one for each person, as columns."""
    path = file_in(folder, f"{part}.pickle", _PUBLISHED)
    people = read_pickle(path)
    keys = ("g", "p", "hard_text_untokenized", "text_without_gender")
    if not isinstance(people, list) or not all(isinstance(person, dict) for person in people):
        raise MuteError(f"{path} contains no list of dicts: each person must be a dict with the keys {', '.join(keys)}")
    for row, person in enumerate(people):
        for key in keys:
            if not isinstance(person.get(key), str):
                raise MuteError(f"{path} has no text under {key!r} in entry {row} (counted from 0): fetch it again")
    return {key: [person[key] for person in people] for key in keys}


def _check_same(path: Path, labels: list[str], pickled: Path, others: list[str]) -> None:
    # Else the texts would stand beside the embeddings of other people.
    for row, (label, other) in enumerate(zip(labels, others, strict=True)):
        if label != other:
            raise MuteError(
                f"{path} and {pickled} differ in row {row} (counted from 0), {label!r} and {other!r}: they must belong "
                "together, so move the pickle away if it is another version"
            )


def _genders(labels: list[str], path: Path) -> list[str]:
    unknown = sorted(set(labels) - set(_GENDERS))
    if unknown:
        raise MuteError(f"{path} has the gender {unknown[0]!r}: only 'f' and 'm' are known")
    return [_GENDERS[label] for label in labels]
