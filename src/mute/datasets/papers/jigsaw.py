"""Jigsaw: comments with the religion they speak of and whether they are toxic."""

from __future__ import annotations

import codecs
import csv
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mute.datasets.dataset import Dataset
from mute.datasets.papers.reading import Gathered, as_vectors, file_in, folder_at, read_matrix, shortened
from mute.datasets.papers.unpickle import read_pickle
from mute.errors import MuteError
from mute.storage.files import write_atomically
from mute.typing import Array

__all__ = ["extract_jigsaw_religion", "load_jigsaw", "read_jigsaw_texts"]

_RELIGIONS = ("buddhist", "christian", "hindu", "jewish", "muslim", "other_religion")
_PICKLES = {"jigsaw_train.pkl": "fit", "jigsaw_test.pkl": "test"}
_SPLITS = {"train": "fit", "test": "test"}
_COLUMNS = ("split", "comment_text", "toxicity", *_RELIGIONS)
_PUBLISHED = "all_data.csv is part of the Jigsaw Unintended Bias in Toxicity Classification challenge on Kaggle"


def load_jigsaw(path: str | os.PathLike[str], *, margin: tuple[float, float] | None = None) -> Dataset:
    """Load embeddings of comments with religion as the concept and toxicity as the task.

    Parameters
    ----------
    path : str or path-like
        Folder with the authors' ``jigsaw_train.pkl`` and ``jigsaw_test.pkl``, DataFrames with the columns ``buddhist``,
        ``christian``, ``hindu``, ``jewish``, ``muslim``, ``other_religion`` (shares of annotators), ``toxicity``,
        ``embedded`` (a list of numbers) and ``comment_text``. Or folder with ``all_data.csv`` of the challenge (or
        ``religion.csv``, which `extract_jigsaw_religion` makes of it) and ``embedded.npy`` of shape (n, D): one row for
        each row of the table with any of the six shares above 0, in the order of the table.
    margin : (float, float), optional
        Keep only rows that annotators agree on: whose largest share is at least the first number and leads the next of
        the six by at least the second; ``(0.5, 0.3)`` is a fair choice.

    Returns
    -------
    Dataset
        `X` (n, D), for the authors (n, 512); `z` is the religion with the largest share, the first of them in the order
        above if they tie; rows where that is ``other_religion`` are left out. `y` is ``"toxic"`` for a toxicity of at
        least 0.5, else ``"non-toxic"``. `names` are the beginnings of the comments. Train is fit (87,434 rows), test is
        test (9,058); nothing is there to validate.

    Notes
    -----
    *Limits.* Any share above 0 admits a row, so without `margin` one annotator in ten can set its label, and what a
    probe misses is partly noise of the labels.

    References
    ----------
    Borkan, D. et al. (2019). Nuanced Metrics for Measuring Unintended Bias with Real Data for Text Classification. WWW.
    """
    folder = folder_at(path, "jigsaw_train.pkl and jigsaw_test.pkl, or all_data.csv and embedded.npy")
    if margin is not None and (len(margin) != 2 or not all(0 <= part <= 1 for part in margin)):
        raise MuteError(f"margin must be two numbers between 0 and 1, such as (0.5, 0.3); got {margin!r}")
    pickled = any((folder / name).is_file() for name in _PICKLES) or not _tables(folder)
    rows, shares, toxicity = _from_pickles(folder) if pickled else _from_table(folder)
    chosen = shares.argmax(axis=1)
    kept = chosen != _RELIGIONS.index("other_religion")
    if margin is not None:
        second, first = np.sort(shares, axis=1)[:, -2:].T
        # Shares are ratios of small numbers: 0.7 - 0.4 must count as 0.3.
        kept &= (first >= margin[0] - 1e-9) & (first - second >= margin[1] - 1e-9)
    if not kept.any():
        raise MuteError(f"{folder} has no rows left of {len(kept)}: ask for a smaller margin, got {margin}")
    rows.z = np.array(_RELIGIONS)[chosen].tolist()
    rows.y = np.where(toxicity >= 0.5, "toxic", "non-toxic").tolist()
    counts = {"read": len(kept), "kept": int(kept.sum())}
    return rows.dataset("jigsaw", folder, kept, margin=None if margin is None else list(margin), rows=counts)


def read_jigsaw_texts(path: str | os.PathLike[str]) -> dict[str, list[Any]]:
    """Read the comments that speak of a religion, with their labels.

    Parameters
    ----------
    path : str or path-like
        Folder with ``all_data.csv`` or ``religion.csv``.

    Returns
    -------
    dict of str -> list
        Columns of one length: ``"text"``, ``"split"`` (``"fit"``, ``"test"``), ``"toxicity"`` and the shares of the six
        religions. They have every row with any share above 0, in the order of the table and of ``embedded.npy``.
    """
    folder = folder_at(path, "all_data.csv")
    tables = _tables(folder)
    if not tables:
        raise MuteError(f"{folder / 'all_data.csv'} is missing: {_PUBLISHED}")
    columns: dict[str, list[Any]] = {name: [] for name in ("text", "split", "toxicity", *_RELIGIONS)}
    for line, row in _religious_rows(tables[0]):
        if row["split"] not in _SPLITS:
            raise MuteError(f"{tables[0]}, line {line}: split must be 'train' or 'test', got {row['split']!r}")
        columns["text"].append(row["comment_text"])
        columns["split"].append(_SPLITS[row["split"]])
        for name in ("toxicity", *_RELIGIONS):
            columns[name].append(_share(row[name], name, tables[0], line))
    return columns


def extract_jigsaw_religion(path: str | os.PathLike[str]) -> Path:
    """Write the rows of ``all_data.csv`` that speak of a religion to ``religion.csv`` beside it, to be encoded.

    Parameters
    ----------
    path : str or path-like
        Folder with ``all_data.csv``.

    Returns
    -------
    pathlib.Path
        The file that was written: the columns ``split``, ``comment_text``, ``toxicity`` and the six religions.
    """
    folder = folder_at(path, "all_data.csv")
    source = file_in(folder, "all_data.csv", _PUBLISHED)
    target = folder / "religion.csv"
    with write_atomically(target) as file:
        lines = csv.writer(codecs.getwriter("utf-8")(file))
        lines.writerow(_COLUMNS)
        lines.writerows([row[name] for name in _COLUMNS] for _, row in _religious_rows(source))
    return target


def _tables(folder: Path) -> list[Path]:
    return [path for name in ("religion.csv", "all_data.csv") if (path := folder / name).is_file()]


def _religious_rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows with any share above 0, with their lines; most of the table has none."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file)
            missing = [name for name in _COLUMNS if name not in (rows.fieldnames or ())]
            if missing:
                raise MuteError(f"{path} has no column {missing[0]!r}: {_PUBLISHED}")
            for row in rows:
                if None in row or None in row.values():
                    raise MuteError(f"{path} has too few or too many cells in line {rows.line_num}: fetch it again")
                shares = (row[name] for name in _RELIGIONS if row[name])
                if any(_share(share, "a religion", path, rows.line_num) > 0 for share in shares):
                    # A row with one share has them all; a cell left empty counts as nobody.
                    yield rows.line_num, row | {name: row[name] or "0" for name in _RELIGIONS}
    except (csv.Error, UnicodeDecodeError) as error:
        raise MuteError(f"{path} is not a CSV file in UTF-8 ({error}): fetch it again") from error


def _share(cell: str, name: str, path: Path, line: int) -> float:
    try:
        share = float(cell)
    except ValueError:
        share = np.nan
    if not 0 <= share <= 1:
        raise MuteError(f"{path}, line {line}: {name} must be a share between 0 and 1, got {cell[:40]!r}")
    return share


def _from_table(folder: Path) -> tuple[Gathered, NDArray[np.float64], NDArray[np.float64]]:
    columns = read_jigsaw_texts(folder)
    table = _tables(folder)[0]
    how = (
        "make it with mute.datasets.extract_jigsaw_religion(folder), then `mute data encode "
        f"{folder}/religion.csv:comment_text -o {folder}/embedded.npy --encoder FOLDER_OF_THE_MODEL`"
    )
    source = file_in(folder, "embedded.npy", how)
    matrix = read_matrix(source)
    if len(matrix) != len(columns["text"]):
        raise MuteError(
            f"{source} has {len(matrix)} rows where {table} has {len(columns['text'])} that speak of a religion: {how}"
        )
    rows = Gathered(files=[table])
    rows.add(source, matrix, names=shortened(columns["text"]), split=columns["split"])
    return rows, np.array([columns[name] for name in _RELIGIONS]).T, np.array(columns["toxicity"])


def _from_pickles(folder: Path) -> tuple[Gathered, NDArray[np.float64], NDArray[np.float64]]:
    rows, numbers = Gathered(), []
    needed = (*_RELIGIONS, "toxicity", "embedded")
    for name, ours in _PICKLES.items():
        how = f"give both files of the authors, or all_data.csv with embedded.npy ({_PUBLISHED})"
        file = file_in(folder, name, how)
        frame = read_pickle(file)
        columns = frame if isinstance(frame, dict) else {}
        missing = [column for column in needed if not isinstance(columns.get(column), np.ndarray)]
        if missing:
            raise MuteError(f"{file} has no column {missing[0]!r}: a DataFrame with {', '.join(needed)} is expected")
        if len({frame[column].shape for column in needed}) != 1:
            raise MuteError(f"{file}: its columns differ in length, so fetch it again")
        numbers.append(np.stack([_shares(frame[column], column, file) for column in needed[:-1]], axis=1))
        n = len(numbers[-1])
        names = shortened(frame["comment_text"]) if "comment_text" in frame else [f"{ours} {row}" for row in range(n)]
        vectors = as_vectors(frame["embedded"].tolist(), f"{file}: 'embedded'", np.float32)
        rows.add(file, vectors, names=names, split=[ours] * n)
    whole = np.concatenate(numbers)
    return rows, whole[:, :-1], whole[:, -1]


def _shares(column: Array, name: str, path: Path) -> NDArray[np.float64]:
    try:
        numbers = np.asarray(column, dtype=np.float64)
    except (OverflowError, TypeError, ValueError):
        numbers = np.full(1, np.nan)
    if numbers.ndim != 1 or not ((numbers >= 0) & (numbers <= 1)).all():
        raise MuteError(f"{path}: the column {name!r} must have shares between 0 and 1, none of them missing")
    return numbers
