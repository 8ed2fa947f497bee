"""A matrix whose rows are read block by block, wherever they are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError

__all__ = ["Matrix", "NoRowsError"]

_BLOCK_BYTES = 1 << 23


class NoRowsError(MuteError):
    """A file that is right but for having no rows, which is no fault where there are other files."""


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
    path : pathlib.Path
        Where it is: a file, a folder, or the pattern of many files.
    """

    def __init__(
        self, path: Path, shape: tuple[int, int], dtype: np.dtype[Any], columns: list[str] | None = None
    ) -> None:
        if 0 in shape:
            kind = NoRowsError if shape[0] == 0 else MuteError
            raise kind(f"{path} holds a matrix of shape {shape}: at least one row and one column are needed")
        self.path = path
        self.shape = shape
        self.dtype = dtype
        self.columns = columns

    def row_blocks(self, size: int) -> Iterator[NDArray[Any]]:
        """Go once through the rows, in order.

        Parameters
        ----------
        size : int
            Rows in one block, at least 1; the last one may have fewer.

        Returns
        -------
        iterator of ndarray of shape (size, n_columns)
            C-contiguous, writable and of `dtype`; no more than a few blocks are held at a time.
        """
        if size < 1:
            raise MuteError(f"a block of {size} rows is impossible: give a size of at least 1")
        return _even(self._complete(self._blocks(size)), size)

    def to_numpy(self) -> NDArray[Any]:
        """Read the whole matrix."""
        whole = np.empty(self.shape, dtype=self.dtype)
        start = 0
        for block in self.row_blocks(max(1, _BLOCK_BYTES // (self.shape[1] * self.dtype.itemsize))):
            whole[start : start + len(block)] = block
            start += len(block)
        return whole

    def parts(self, size: int) -> list[tuple[int, Callable[[], NDArray[Any]]]]:
        """The matrix as parts that can be read apart from each other: rows of each, and a function that reads them.

        Of about `size` rows where the file allows it.
        """
        return [(self.shape[0], self.to_numpy)]

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


def _even(blocks: Iterator[NDArray[Any]], size: int) -> Iterator[NDArray[Any]]:
    """The same rows in blocks of `size`, made from blocks of any; the last one may have fewer."""
    pending: list[NDArray[Any]] = []
    held = 0
    for block in blocks:
        if not held and len(block) == size:
            yield block
            continue
        pending.append(block)
        held += len(block)
        if held >= size:
            whole = np.concatenate(pending)
            full, held = held - held % size, held % size
            # A copy, since a view of the rest would keep all of it.
            pending = [whole[full:].copy()] if held else []
            for start in range(0, full, size):
                yield whole[start : start + size]
    if held:
        yield np.concatenate(pending)
