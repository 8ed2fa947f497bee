"""What the loaders of the papers' files share: finding them, checking them, and noting down which they were."""

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mute.datasets.unpickle import read_npy
from mute.errors import MuteError

__all__ = ["file_in", "fingerprints", "folder_at", "read_matrix", "read_strings", "shortened", "stack_parts"]

_NAME_WIDTH = 80


def folder_at(path: str | os.PathLike[str], expected: str) -> Path:
    """Give the folder at `path`; if there is none, `expected` says what should be in it."""
    folder = Path(path)
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise MuteError(f"{folder} {what}: give the folder that holds {expected}")
    return folder


def file_in(folder: Path, name: str, how: str) -> Path:
    """Give a file of a folder; if it is missing, `how` says where it can be had."""
    path = folder / name
    if not path.is_file():
        raise MuteError(f"{path} is missing: {how}")
    return path


def fingerprints(folder: Path, paths: Iterable[Path]) -> dict[str, dict[str, Any]]:
    """Note size and SHA-256 of files, by their names inside of `folder`."""
    noted = {}
    for path in paths:
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        noted[path.relative_to(folder).as_posix()] = {"bytes": path.stat().st_size, "sha256": digest}
    return noted


def read_matrix(path: Path) -> NDArray[Any]:
    """Map a .npy file of shape (n, D) into memory, and check that it holds numbers."""
    matrix = read_npy(path)
    if matrix.ndim != 2 or matrix.dtype.kind not in "iuf" or 0 in matrix.shape:
        raise MuteError(f"{path} holds {matrix.dtype} values of shape {matrix.shape}: numbers of shape (n, D) needed")
    return matrix


def read_strings(path: Path) -> NDArray[np.str_]:
    """Read a .npy file of shape (n,) with one string for each row."""
    labels = read_npy(path)
    if labels.ndim != 1 or not all(isinstance(label, str) for label in labels.tolist()):
        raise MuteError(f"{path} holds {labels.dtype} values of shape {labels.shape}: text of shape (n,) is needed")
    return labels.astype(np.str_)


def stack_parts(parts: Sequence[tuple[Path, NDArray[Any]]]) -> NDArray[np.float32]:
    """Put matrices with the files they come from under one another, as float32.

    Parameters
    ----------
    parts : sequence of (path, array of shape (n_i, D))
        Row blocks; they may be memory-mapped.

    Returns
    -------
    array of shape (sum of n_i, D)
        A copy.

    Raises
    ------
    MuteError
        If the parts differ in D, or hold values that are not finite in float32.
    """
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
            raise MuteError(f"{path} holds NaN or infinite values, first in row {row} (counted from 0): fetch it again")
        start += len(part)
    return whole


def shortened(texts: Iterable[object]) -> list[str]:
    """Cut texts to names of one line, for every name takes as much memory as the longest."""
    lines = (" ".join(str(text).split()) for text in texts)
    return [line if len(line) <= _NAME_WIDTH else f"{line[: _NAME_WIDTH - 1]}…" for line in lines]
