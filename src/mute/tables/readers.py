"""Arrays on disk as matrices that are read block by block."""

import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.rows.matrix import Matrix
from mute.rows.memory import release_pages

__all__ = [
    "ArrayMatrix",
    "float_dtype",
    "listed",
    "matrix_shape",
    "npz_array",
    "objects_refused",
    "pick",
    "readable",
]


class ArrayMatrix(Matrix):
    """An array in memory (.npz) or in a memory map.

    Parameters
    ----------
    path : pathlib.Path
        For messages only.
    array : ndarray of shape (n_rows, n_columns)
        Numbers of any kind.
    """

    def __init__(self, path: Path, array: NDArray[Any]) -> None:
        super().__init__(path, matrix_shape(path, array.shape, array.dtype), float_dtype(array.dtype))
        self._array = array

    def to_numpy(self) -> NDArray[Any]:
        """Read the whole matrix; no copy, but the (read-only) memory map, where the file holds it as it is."""
        return self._array if self._array.dtype == self.dtype else super().to_numpy()

    def _blocks(self, size: int) -> Iterator[NDArray[Any]]:
        for start in range(0, self.shape[0], size):
            rows = np.array(self._array[start : start + size], order="C", subok=False)
            # Dropped, the process stays as small as one block.
            release_pages(self._array)
            yield rows.astype(self.dtype, copy=False)


def npz_array(path: Path, key: str | None) -> NDArray[Any]:
    """Load one array of a .npz file."""
    # Opened here, because np.load leaves a file open that turns out not to be an archive.
    with readable(path), open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
        key = pick(path, key, archive.files, "array")
        try:
            array: NDArray[Any] = np.asanyarray(archive[key])
        except ValueError as error:
            if "allow_pickle" in str(error):
                raise objects_refused(path) from error
            raise
        return array


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn whatever a parser raises on a damaged file into one `MuteError`."""
    try:
        yield
    except MuteError:
        raise
    except Exception as error:
        # Broad on purpose: on damaged bytes each library raises its own types, and numpy any of a dozen.
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise MuteError(
            f"{path} cannot be read as {path.suffix.lower()} ({reason}): it may be cut short or damaged, so write it "
            "again"
        ) from error


def pick(path: Path, selector: str | None, available: Sequence[str], what: str) -> str:
    """Find the one array, tensor or column that is meant."""
    if selector is None:
        if len(available) == 1:
            return available[0]
        raise MuteError(
            f"{path} holds {len(available)} {what}s, so choose one as {path}:NAME, where NAME is one of "
            f"{listed(available)}"
        )
    if selector not in available:
        close = difflib.get_close_matches(selector, available, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise MuteError(f"{path} has no {what} {selector!r}: {hint}it has {listed(available)}")
    return selector


def listed(names: Sequence[str], most: int = 20) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return (", ".join(names[:most]) or "nothing") + more


def objects_refused(path: Path) -> MuteError:
    """The error for arrays of Python objects."""
    # They are pickled, and to unpickle a file is to run it.
    return MuteError(f"{path} holds Python objects, which are never loaded: save plain numbers or strings instead")


def float_dtype(stored: np.dtype[Any]) -> np.dtype[Any]:
    """The precision in which numbers of this kind are read."""
    return np.dtype(np.float32) if stored.kind == "f" and stored.itemsize <= 4 else np.dtype(np.float64)


def matrix_shape(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[int, int]:
    """The shape of what is a matrix of numbers."""
    if dtype.kind not in "biuf":
        raise MuteError(f"{path} holds {dtype} values, which are not numbers: save real numbers instead")
    if len(shape) != 2:
        raise MuteError(f"{path} holds an array of shape {shape}: a matrix has 2 dimensions, rows and columns")
    return shape
