"""What the readers of the papers' files share: locating files, checking them, and gathering their rows."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mute.datasets.dataset import Dataset
from mute.datasets.papers.unpickle import read_npy
from mute.errors import MuteError
from mute.storage.files import sha256_of_file
from mute.typing import Array, Setting

__all__ = ["Gathered", "as_vectors", "file_in", "folder_at", "read_matrix", "read_strings", "shortened"]

_NAME_WIDTH = 80


def folder_at(path: str | os.PathLike[str], expected: str) -> Path:
    """The folder at `path`; if there is none, `expected` says what should be in it."""
    folder = Path(path)
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise MuteError(f"{folder} {what}: give the folder that has {expected}")
    return folder


def file_in(folder: Path, name: str, how: str) -> Path:
    """A file of a folder; if it is missing, `how` says where to get it."""
    path = folder / name
    if not path.is_file():
        raise MuteError(f"{path} is missing: {how}")
    return path


def read_matrix(path: Path) -> Array:
    """Map a .npy file of shape (n, D) into memory, and check that it contains numbers."""
    matrix = read_npy(path)
    if matrix.ndim != 2 or matrix.dtype.kind not in "iuf" or 0 in matrix.shape:
        raise MuteError(f"{path} has {matrix.dtype} values of shape {matrix.shape}: numbers of shape (n, D) needed")
    return matrix


def read_strings(path: Path) -> NDArray[np.str_]:
    """Read a .npy file of shape (n,) with one string for each row."""
    labels = read_npy(path)
    if labels.ndim != 1 or not all(isinstance(label, str) for label in labels.tolist()):
        raise MuteError(f"{path} has {labels.dtype} values of shape {labels.shape}: text of shape (n,) is needed")
    return labels.astype(np.str_)


def as_vectors(values: object, what: str, dtype: type[np.floating[Any]]) -> Array:
    """Make a matrix (n, D) of n lists of numbers; `what` names them in messages."""
    try:
        if isinstance(values, list | tuple):
            # Not by numpy at once, which would follow a list that contains itself 64 levels deep.
            values = [np.fromiter(row, dtype) if isinstance(row, list | tuple) else row for row in values]
        vectors = np.array(values, dtype=dtype)
    except (OverflowError, TypeError, ValueError) as error:
        raise MuteError(f"{what} must contain vectors of numbers that all have one length: {error}") from error
    if vectors.ndim != 2 or 0 in vectors.shape:
        raise MuteError(f"{what} must contain one vector of numbers for each row, got shape {vectors.shape}")
    return vectors


@dataclass
class Gathered:
    """Rows of several files, put under one another."""

    parts: list[tuple[Path, Array]] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    z: list[str] = field(default_factory=list)
    y: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    split: list[str] = field(default_factory=list)

    def add(self, path: Path, matrix: Array, *others: Path, **columns: Iterable[str]) -> None:
        """Add the rows of a file, which may be mapped, and their columns, which come from `others` as well."""
        self.parts.append((path, matrix))
        self.files += [path, *others]
        for name, values in columns.items():
            getattr(self, name).extend(values)

    def dataset(self, name: str, folder: Path, kept: Array | slice = slice(None), **more: Setting) -> Dataset:
        """Make a data set of the rows in `kept`; its provenance lists size and SHA-256 of the files in `folder`."""
        provenance = json.loads((files(__package__) / "provenance.json").read_text(encoding="utf-8"))[name] | more
        provenance["files"] = {
            file.relative_to(folder).as_posix(): {"bytes": file.stat().st_size, "sha256": sha256_of_file(file)}
            for file in self.files
        }
        columns = {column: np.array(getattr(self, column))[kept] for column in ("z", "names", "split")}
        if self.y:
            columns["y"] = np.array(self.y)[kept]
        return Dataset(X=_stacked(self.parts)[kept], **columns, provenance=provenance)


def _stacked(parts: list[tuple[Path, Array]]) -> NDArray[np.float32]:
    """Copy matrices (n_i, D) under one another, as float32; a part with another D or values not finite is refused."""
    first, matrix = parts[0]
    whole = np.empty((sum(len(part) for _, part in parts), matrix.shape[1]), dtype=np.float32)
    start = 0
    for path, part in parts:
        if part.shape[1] != whole.shape[1]:
            raise MuteError(f"{path} has {part.shape[1]} columns where {first} has {whole.shape[1]}: they must agree")
        block = whole[start : start + len(part)]
        with np.errstate(over="ignore", invalid="ignore"):
            block[:] = part
            # The sum is not finite if any of its terms is not, and needs no mask of the size of the block.
            bad = ~np.isfinite(block.sum(axis=1, dtype=np.float64))
        if bad.any():
            row = bad.argmax()
            raise MuteError(f"{path} has NaN or infinite values, first in row {row} (counted from 0): fetch it again")
        start += len(part)
    return whole


def shortened(texts: Iterable[object]) -> list[str]:
    """Cut texts to names of one line, for every name takes as much memory as the longest."""
    lines = (" ".join(str(text).split()) for text in texts)
    return [line if len(line) <= _NAME_WIDTH else f"{line[: _NAME_WIDTH - 1]}…" for line in lines]
