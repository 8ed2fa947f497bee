"""A matrix whose rows are read block by block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mute.errors import MuteError
from mute.typing import Array

__all__ = ["Matrix", "NoRowsError", "float_dtype"]

_BLOCK_BYTES = 1 << 23


class NoRowsError(MuteError):
    """A valid file without rows, which may stand among other files."""


class Matrix(ABC):
    """A matrix of floats on disk.

    Attributes
    ----------
    shape : tuple of int
        At least one row and one column.
    dtype : numpy.dtype
        float32 or float64 as stored; float16 and bfloat16 become float32, all other kinds float64.
    columns : list of str or None
        Names of the columns, if the file has names.
    path : pathlib.Path
        A file, a folder, or the pattern of many files.
    """

    def __init__(
        self, path: Path, shape: tuple[int, int], dtype: np.dtype[Any], columns: list[str] | None = None
    ) -> None:
        if 0 in shape:
            kind = NoRowsError if shape[0] == 0 else MuteError
            raise kind(f"{path} has a matrix of shape {shape}; give at least one row and one column")
        self.path = path
        self.shape = shape
        self.dtype = dtype
        self.columns = columns

    def __str__(self) -> str:
        return f"{self.shape[1]} columns of {self.path}"

    def matching(self, names: Sequence[str]) -> Matrix:
        """The columns that a model calls `names`; a matrix without names is taken as it is."""
        return self

    def row_blocks(self, size: int) -> Iterator[Array]:
        """Iterate once over the rows, in order, in blocks of `size` rows; the last block may have fewer.

        Blocks are C-contiguous, writable and of `dtype`. No more than a few blocks are in memory at a time.
        """
        if size < 1:
            raise MuteError(f"a block of {size} rows is impossible; give a size of at least 1")
        return _even(self._complete(self._blocks(size)), size)

    def to_numpy(self) -> Array:
        """Read the whole matrix."""
        whole = np.empty(self.shape, dtype=self.dtype)
        start = 0
        for block in self.row_blocks(max(1, _BLOCK_BYTES // (self.shape[1] * self.dtype.itemsize))):
            whole[start : start + len(block)] = block
            start += len(block)
        return whole

    def parts(self, size: int) -> list[tuple[int, Callable[[], Array]]]:
        """Parts that can be read independently: the number of rows of each, and the function that reads it.

        Parts have about `size` rows if the kind of file allows it.
        """
        return [(self.shape[0], self.to_numpy)]

    def check_complete(self, n_rows: int) -> None:
        """Refuse a pass that has read another number of rows than were announced, or a file that has changed since."""
        if n_rows != self.shape[0]:
            raise MuteError(f"{self.path} has {n_rows} rows where {self.shape[0]} were announced; write it again")

    def _complete(self, blocks: Iterator[Array]) -> Iterator[Array]:
        # A file that changes while it is read, or has a wrong header, must not leave rows of the result unfilled.
        read = 0
        for block in blocks:
            read += len(block)
            if read <= self.shape[0]:
                yield block
        self.check_complete(read)

    @abstractmethod
    def _blocks(self, size: int) -> Iterator[Array]: ...


def float_dtype(stored: np.dtype[Any]) -> np.dtype[Any]:
    """The precision in which stored numbers of this kind are read."""
    return np.dtype(np.float32) if stored.kind == "f" and stored.itemsize <= 4 else np.dtype(np.float64)


def _even(blocks: Iterator[Array], size: int) -> Iterator[Array]:
    """The same rows in blocks of `size`, made from blocks of any size."""
    pending: list[Array] = []
    n = 0
    for block in blocks:
        if not n and len(block) == size:
            yield block
            continue
        pending.append(block)
        n += len(block)
        if n >= size:
            whole = np.concatenate(pending)
            full, n = n - n % size, n % size
            # A copy, since a view of the rest would keep all of `whole`.
            pending = [whole[full:].copy()] if n else []
            for start in range(0, full, size):
                yield whole[start : start + size]
    if n:
        yield np.concatenate(pending)
