"""Arrays that lie as they are in a .npy or .safetensors file."""

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.rows.matrix import Matrix
from mute.storage.container import Header, from_bfloat16
from mute.tables.readers import float_dtype, matrix_shape, objects_refused, pick, readable

__all__ = ["Layout", "RawMatrix", "npy_layout", "safetensors_layout"]


@dataclass(frozen=True)
class Layout:
    """An array in a file.

    Attributes
    ----------
    offset : int
        Where its first byte is.
    shape : tuple of int
    dtype : numpy.dtype
        As stored; bfloat16 numbers as their bits (uint16).
    bfloat16 : bool
        Whether they are such numbers.
    columns_first : bool
        Whether it is stored column by column (Fortran's order).
    """

    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    bfloat16: bool = False
    columns_first: bool = False

    def map(self, path: Path) -> NDArray[Any]:
        """The array as a memory map, read-only."""
        if 0 in self.shape:
            return np.empty(self.shape, self.dtype)
        with readable(path):
            return np.memmap(path, self.dtype, "r", self.offset, self.shape, "F" if self.columns_first else "C")

    def check_length(self, file: IO[bytes]) -> None:
        """Refuse a file that ends before the array does."""
        needed, length = self.offset + math.prod(self.shape) * self.dtype.itemsize, os.fstat(file.fileno()).st_size
        if length < needed:
            raise ValueError(f"it has {length} bytes and should have {needed}")


class RawMatrix(Matrix):
    """Rows that lie one after the other in a file (.npy, .safetensors), read where they are.

    The file is not mapped to be read in blocks: a map takes as much address space as the file is long, which a process
    may not have.

    Parameters
    ----------
    path : pathlib.Path
    find : function (path) -> Layout
        Reads the header. It is asked again before each pass, lest a file that was replaced be read as what it was.
    """

    def __init__(self, path: Path, find: Callable[[Path], Layout]) -> None:
        self._layout = layout = find(path)
        dtype = np.dtype(np.float32) if layout.bfloat16 else float_dtype(layout.dtype)
        super().__init__(path, matrix_shape(path, layout.shape, layout.dtype), dtype)
        self._find = find

    def to_numpy(self) -> NDArray[Any]:
        """Read the whole matrix; no copy, but the (read-only) memory map, where the file holds it as it is."""
        self._check_unchanged()
        mapped = self._layout.map(self.path)
        as_it_is = mapped.dtype == self.dtype and mapped.flags.aligned
        return mapped if as_it_is else super().to_numpy()

    def parts(self, size: int) -> list[tuple[int, Callable[[], NDArray[Any]]]]:
        starts = range(0, self.shape[0], size)
        return [(min(size, self.shape[0] - start), partial(self._part, start, start + size)) for start in starts]

    def _part(self, start: int, stop: int) -> NDArray[Any]:
        return np.array(self.to_numpy()[start:stop])

    def _check_unchanged(self) -> None:
        if self._find(self.path) != self._layout:
            raise MuteError(f"{self.path} has changed since it was opened: open it again")

    def _blocks(self, size: int) -> Iterator[NDArray[Any]]:
        self._check_unchanged()
        layout = self._layout
        with readable(self.path), open(self.path, "rb") as file:
            file.seek(layout.offset)
            for start in range(0, self.shape[0], size):
                rows = np.empty((min(size, self.shape[0] - start), self.shape[1]), layout.dtype)
                if file.readinto(rows.data) != rows.nbytes:
                    raise MuteError(f"{self.path} became shorter while it was read: write it again")
                yield from_bfloat16(rows) if layout.bfloat16 else rows.astype(self.dtype, copy=False)


def npy_layout(path: Path) -> Layout:
    """The array of a .npy file.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "x.npy"
    >>> np.save(path, np.zeros((3, 2), np.float32))
    >>> npy_layout(path)
    Layout(offset=128, shape=(3, 2), dtype=dtype('float32'), bfloat16=False, columns_first=False)
    """
    with readable(path), open(path, "rb") as file:
        version = np.lib.format.read_magic(file)
        # Versions 2 and 3 differ in how they spell names of fields, which numbers do not have.
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, columns_first, dtype = read(file)
        if dtype.hasobject:
            raise objects_refused(path)
        if any(size < 0 for size in shape):
            raise ValueError(f"a shape of {shape}")
        # What has one row or column lies the same way in both orders.
        layout = Layout(file.tell(), shape, dtype, columns_first=columns_first and min(shape, default=1) > 1)
        layout.check_length(file)
        return layout


def safetensors_layout(path: Path, key: str | None) -> Layout:
    """One tensor of a .safetensors file, found by its header: the file is not mapped."""
    with readable(path), open(path, "rb") as file:
        header = Header.read(file)
        key = pick(path, key, list(header.tensors), "tensor")
        entry = header.entry(key)
        if entry.dtype.kind not in "biuf":
            raise MuteError(f"{path}: tensor {key!r} is {entry.code}, which cannot be read: save it as F32 instead")
        return Layout(entry.offset, entry.shape, entry.dtype, bfloat16=entry.code == "BF16")
