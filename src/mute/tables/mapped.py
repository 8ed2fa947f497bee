"""Matrices that are not in a file: made of another one, or given block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.tables.readers import Matrix

__all__ = ["MappedMatrix", "StreamedMatrix"]


class MappedMatrix(Matrix):
    """What a function makes of every block of another matrix, computed each time that the rows are read.

    Parameters
    ----------
    source : Matrix
    work : function (block, number of its first row) to rows of the same shape and precision
    """

    def __init__(self, source: Matrix, work: Callable[[NDArray[Any], int], NDArray[Any]]) -> None:
        super().__init__(source.path, source.shape, source.dtype, source.columns)
        self._source, self._work = source, work

    def _blocks(self, size: int) -> Iterator[NDArray[Any]]:
        start = 0
        for block in self._source.row_blocks(size):
            yield self._work(block, start)
            start += len(block)


class StreamedMatrix(Matrix):
    """Blocks of an iterator as a matrix that can be read once.

    Parameters
    ----------
    blocks : iterator of arrays of shape (m, D)
    n_rows : int
        How many rows they have together.
    name : str
        For messages.
    """

    def __init__(self, blocks: Iterator[Any], n_rows: int, name: str) -> None:
        first = next(blocks, None)
        if first is None:
            raise MuteError(f"{name} is an iterator that gives no block; give blocks of rows")
        first = np.asarray(first)
        if first.ndim != 2 or first.dtype.kind not in "fiub":
            raise MuteError(f"{name} must give matrices of numbers, not shape {first.shape} and dtype {first.dtype}")
        dtype = np.dtype(np.float32 if first.dtype in (np.float16, np.float32) else np.float64)
        super().__init__(Path(name), (n_rows, first.shape[1]), dtype)
        self._given: Iterator[Any] | None = chain([first], blocks)

    def _blocks(self, size: int) -> Iterator[NDArray[Any]]:
        if self._given is None:
            raise MuteError(f"{self.path} is an iterator, which has been read already; give a matrix or an array")
        given, self._given = self._given, None
        for block in map(np.asarray, given):
            if block.ndim != 2 or block.shape[1] != self.shape[1]:
                raise MuteError(
                    f"a block of {self.path} has shape {block.shape}, where {self.shape[1]} columns were expected"
                )
            yield np.ascontiguousarray(block, self.dtype)
