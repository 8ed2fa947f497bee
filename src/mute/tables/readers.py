"""What all readers share: choosing an array, errors on damaged files, and arrays as matrices."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from mute.errors import MuteError, listed
from mute.rows.matrix import Matrix, Stamp, float_dtype
from mute.rows.memory import release_pages
from mute.typing import Array

__all__ = ["ArrayMatrix", "matrix_shape", "npz_array", "objects_refused", "pick", "readable"]


class ArrayMatrix(Matrix):
    """An array of numbers of any kind, in memory (.npz) or in a memory map, of the file with this stamp."""

    def __init__(self, stamp: Stamp, array: Array) -> None:
        path, shape = stamp.path, matrix_shape(stamp.path, array.shape, array.dtype)
        super().__init__(path, shape, float_dtype(array.dtype), stamps=(stamp,))
        self._array = array

    def to_numpy(self) -> Array:
        """The whole matrix: the array itself, perhaps a read-only memory map, if its numbers are of `dtype`."""
        return self._array if self._array.dtype == self.dtype else super().to_numpy()

    def _blocks(self, size: int) -> Iterator[Array]:
        for start in range(0, self.shape[0], size):
            rows = np.array(self._array[start : start + size], order="C", subok=False)
            release_pages(self._array)
            yield rows.astype(self.dtype, copy=False)


def npz_array(path: Path, key: str | None) -> Array:
    """Load one array of a .npz file."""
    # Opened here, because np.load leaves a file open that is not an archive.
    with readable(path), open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
        key = pick(path, key, archive.files, "array")
        try:
            array: Array = np.asanyarray(archive[key])
        except ValueError as error:
            if "allow_pickle" in str(error):
                raise objects_refused(path) from error
            raise
        return array


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn all that a parser raises on a damaged file into a `MuteError`."""
    try:
        yield
    except MuteError:
        raise
    except Exception as error:
        # Broad on purpose: on damaged bytes each library raises its own types, and numpy any of a dozen.
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise MuteError(
            f"{path} cannot be read as {path.suffix.lower()} ({reason}), perhaps cut short or damaged; write it again"
        ) from error


def pick(path: Path, selector: str | None, available: Sequence[str], what: str) -> str:
    """The one array, tensor or column that a selector names; without selector, the only one."""
    if selector is None:
        if len(available) == 1:
            return available[0]
        raise MuteError(
            f"{path} holds {len(available)} {what}s; choose one as {path}:NAME, NAME being one of {listed(available)}"
        )
    if selector not in available:
        close = difflib.get_close_matches(selector, available, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise MuteError(f"{path} has no {what} {selector!r}; {hint}it has {listed(available)}")
    return selector


def objects_refused(path: Path) -> MuteError:
    """The error for arrays of Python objects."""
    # They are pickled, and unpickling a file runs its code.
    return MuteError(f"{path} has Python objects, which are never loaded; save plain numbers or strings")


def matrix_shape(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[int, int]:
    """The shape of an array, which must be a matrix of real numbers."""
    if dtype.kind not in "biuf":
        raise MuteError(f"{path} has {dtype} values, which are not numbers; save real numbers")
    if len(shape) != 2:
        raise MuteError(f"{path} has an array of shape {shape}; save a matrix of 2 dimensions, rows and columns")
    return shape
