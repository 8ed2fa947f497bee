"""Arrays that a .npy or .safetensors file stores as plain bytes."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from mute.errors import MuteError
from mute.rows.matrix import Matrix, Stamp, float_dtype
from mute.storage.container import Header, from_bfloat16
from mute.tables.readers import matrix_shape, objects_refused, pick, readable
from mute.typing import Array

__all__ = ["Layout", "RawMatrix", "npy_layout", "safetensors_layout"]


@dataclass(frozen=True)
class Layout:
    """An array in a file, from the byte `offset` on.

    The dtype is as stored; `bfloat16` numbers are stored as their bits (uint16). With `columns_first`, the array is
    stored column by column (Fortran order).
    """

    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    bfloat16: bool = False
    columns_first: bool = False

    def map(self, path: Path) -> Array:
        """The array as a read-only memory map."""
        if 0 in self.shape:
            return np.empty(self.shape, self.dtype)
        with readable(path):
            return np.memmap(path, self.dtype, "r", self.offset, self.shape, "F" if self.columns_first else "C")

    def check_length(self, file: IO[bytes]) -> None:
        """Refuse a file that ends before the array does, or after it."""
        needed, length = self.offset + math.prod(self.shape) * self.dtype.itemsize, os.fstat(file.fileno()).st_size
        if length != needed:
            raise ValueError(f"it has {length} bytes and should have {needed}")


class RawMatrix(Matrix):
    """Rows that follow each other in a file (.npy, .safetensors).

    Blocks are read without a memory map, which takes as much address space as the file is long. `layout_of` reads the
    header; it is called again before each pass, so that a file that was replaced is noticed.
    """

    def __init__(self, path: Path, layout_of: Callable[[Path], Layout]) -> None:
        stamp = Stamp.of(path)
        self._layout = layout = layout_of(path)
        dtype = np.dtype(np.float32) if layout.bfloat16 else float_dtype(layout.dtype)
        super().__init__(path, matrix_shape(path, layout.shape, layout.dtype), dtype, stamps=(stamp,))
        self._layout_of = layout_of

    def to_numpy(self) -> Array:
        """The whole matrix: a read-only memory map, if the file stores aligned numbers of `dtype`."""
        self._check_layout()
        mapped = self._layout.map(self.path)
        return mapped if mapped.dtype == self.dtype and mapped.flags.aligned else super().to_numpy()

    def parts(self, size: int) -> list[tuple[int, Callable[[], Array]]]:
        starts = range(0, self.shape[0], size)
        return [(min(size, self.shape[0] - start), partial(self._part, start, start + size)) for start in starts]

    def _part(self, start: int, stop: int) -> Array:
        return np.array(self.to_numpy()[start:stop])

    def _check_layout(self) -> None:
        if self._layout_of(self.path) != self._layout:
            raise MuteError(f"{self.path} has changed since it was opened; open it again")

    def _blocks(self, size: int) -> Iterator[Array]:
        self._check_layout()
        layout = self._layout
        with readable(self.path), open(self.path, "rb") as file:
            file.seek(layout.offset)
            for start in range(0, self.shape[0], size):
                rows = np.empty((min(size, self.shape[0] - start), self.shape[1]), layout.dtype)
                if file.readinto(rows.data) != rows.nbytes:
                    raise MuteError(f"{self.path} became shorter while it was read; write it again")
                yield from_bfloat16(rows) if layout.bfloat16 else rows.astype(self.dtype, copy=False)


def npy_layout(path: Path) -> Layout:
    """The array of a .npy file.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(Path(folder, "x.npy"), np.zeros((3, 2), np.float32))
    ...     npy_layout(Path(folder, "x.npy"))
    Layout(offset=128, shape=(3, 2), dtype=dtype('float32'), bfloat16=False, columns_first=False)
    """
    with readable(path), open(path, "rb") as file:
        version = np.lib.format.read_magic(file)
        # Versions 2 and 3 differ in the names of fields only, which numbers do not have.
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, columns_first, dtype = read(file)
        if dtype.hasobject:
            raise objects_refused(path)
        if any(size < 0 for size in shape):
            raise ValueError(f"a shape of {shape}")
        # One row or one column is stored the same way in both orders.
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
