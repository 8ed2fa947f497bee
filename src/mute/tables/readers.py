"""Arrays on disk as matrices that are read block by block."""

import difflib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.files import release_pages

__all__ = ["ArrayMatrix", "Matrix", "listed", "npy_array", "npz_array", "pick", "readable", "safetensors_array"]

_BLOCK_BYTES = 1 << 23
_SAFETENSORS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "BOOL": "?"} | {
    f"{sign}{8 * size}": f"<{sign.lower()}{size}" for sign in "IU" for size in (1, 2, 4, 8)
}


class Matrix(ABC):
    """A matrix of floats on disk.

    Attributes
    ----------
    shape : tuple of int
        Rows and columns; neither is 0.
    dtype : numpy.dtype
        float32 or float64 as stored; float16 and bfloat16 become float32, everything else float64.
    columns : list of str or None
        Names of the columns, where the file has them.
    """

    def __init__(
        self, path: Path, shape: tuple[int, int], dtype: np.dtype[Any], columns: list[str] | None = None
    ) -> None:
        if 0 in shape:
            raise MuteError(f"{path} holds a matrix of shape {shape}: at least one row and one column are needed")
        self.path = path
        self.shape = shape
        self.dtype = dtype
        self.columns = columns

    def row_blocks(self, size: int) -> Iterator[NDArray[Any]]:
        """Go once through the rows, in order.

        Parameters
        ----------
        size : int
            Most rows in one block, at least 1.

        Returns
        -------
        iterator of ndarray of shape (<= size, n_columns)
            C-contiguous, writable and of `dtype`; only the current block is held.
        """
        if size < 1:
            raise MuteError(f"a block of {size} rows is impossible: give a size of at least 1")
        return self._complete(self._blocks(size))

    def to_numpy(self) -> NDArray[Any]:
        """Read the whole matrix."""
        whole = np.empty(self.shape, dtype=self.dtype)
        start = 0
        for block in self.row_blocks(max(1, _BLOCK_BYTES // (self.shape[1] * self.dtype.itemsize))):
            whole[start : start + len(block)] = block
            start += len(block)
        return whole

    def _complete(self, blocks: Iterator[NDArray[Any]]) -> Iterator[NDArray[Any]]:
        # A file that changes while it is read, or lies in its header, must not end as rows nobody filled.
        read = 0
        for block in blocks:
            read += len(block)
            if read <= self.shape[0]:
                yield block
        if read != self.shape[0]:
            raise MuteError(f"{self.path} has {read} rows where {self.shape[0]} were announced: write it again")

    @abstractmethod
    def _blocks(self, size: int) -> Iterator[NDArray[Any]]: ...


class ArrayMatrix(Matrix):
    """An array in memory or in a memory map (.npy, .npz, .safetensors).

    Parameters
    ----------
    path : pathlib.Path
        For messages only.
    array : ndarray of shape (n_rows, n_columns)
        Numbers of any kind, or the raw bits (uint16) of bfloat16 numbers.
    bfloat16 : bool
        Whether `array` holds such bits.
    """

    def __init__(self, path: Path, array: NDArray[Any], *, bfloat16: bool = False) -> None:
        if array.dtype.kind not in "biuf":
            raise MuteError(f"{path} holds {array.dtype} values, which are not numbers: save real numbers instead")
        if array.ndim != 2:
            raise MuteError(
                f"{path} holds an array of shape {array.shape}: a matrix has 2 dimensions, rows and columns"
            )
        super().__init__(path, array.shape, np.dtype(np.float32) if bfloat16 else _float_dtype(array.dtype))
        self._array = array
        self._bfloat16 = bfloat16

    def to_numpy(self) -> NDArray[Any]:
        """Read the whole matrix; no copy, but the (read-only) memory map, where the file holds it as it is."""
        if self._array.dtype == self.dtype and self._array.flags.aligned:
            return self._array
        return super().to_numpy()

    def _blocks(self, size: int) -> Iterator[NDArray[Any]]:
        for start in range(0, self.shape[0], size):
            rows = np.array(self._array[start : start + size], order="C", subok=False)
            # Dropped, the process stays as small as one block.
            release_pages(self._array)
            if self._bfloat16:
                # A bfloat16 is the upper half of a float32.
                yield (rows.astype(np.uint32) << 16).view(np.float32)
            else:
                yield rows.astype(self.dtype, copy=False)


def npy_array(path: Path) -> NDArray[Any]:
    """Map the array of a .npy file into memory, read-only."""
    with readable(path):
        try:
            return np.lib.format.open_memmap(path, mode="r")
        except ValueError as error:
            with open(path, "rb") as file:
                # How the header spells an object dtype.
                if b"'|O" in file.read(4096):
                    raise _objects(path) from error
            raise


def npz_array(path: Path, key: str | None) -> NDArray[Any]:
    """Load one array of a .npz file."""
    # Opened here, because np.load leaves a file open that turns out not to be an archive.
    with readable(path), open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
        key = pick(path, key, archive.files, "array")
        try:
            array: NDArray[Any] = np.asanyarray(archive[key])
        except ValueError as error:
            if "allow_pickle" in str(error):
                raise _objects(path) from error
            raise
        return array


def safetensors_array(path: Path, key: str | None) -> tuple[NDArray[Any], str]:
    """Map one tensor of a .safetensors file into memory.

    Returns
    -------
    array : ndarray
        Read-only; bfloat16 numbers as their uint16 bits.
    kind : str
        The format's name of the element type, such as ``"F32"`` or ``"BF16"``.
    """
    from safetensors import safe_open

    with readable(path):
        with safe_open(path, framework="np") as file:
            # safetensors validates the header and all offsets here. Its own slices need ml_dtypes for bfloat16,
            # so the bytes themselves are mapped by numpy.
            key = pick(path, key, list(file.keys()), "tensor")
        with open(path, "rb") as raw:
            length = int.from_bytes(raw.read(8), "little")
            entry = json.loads(raw.read(length))[key]
        if entry["dtype"] not in _SAFETENSORS:
            raise MuteError(f"{path}: tensor {key!r} is {entry['dtype']}, which cannot be read: save it as F32 instead")
        shape, dtype = tuple(entry["shape"]), np.dtype(_SAFETENSORS[entry["dtype"]])
        if 0 in shape:
            return np.empty(shape, dtype), entry["dtype"]
        offset = 8 + length + entry["data_offsets"][0]
        return np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=shape), entry["dtype"]


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


def _objects(path: Path) -> MuteError:
    # They are pickled, and to unpickle a file is to run it.
    return MuteError(f"{path} holds Python objects, which are never loaded: save plain numbers or strings instead")


def _float_dtype(stored: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.float32) if stored.kind == "f" and stored.itemsize <= 4 else np.dtype(np.float64)
