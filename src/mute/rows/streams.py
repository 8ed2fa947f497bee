"""Matrices that are not in a file: computed from another matrix, or given block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.rows.matrix import Matrix, float_dtype
from mute.rows.validation import concept_of
from mute.typing import Array

__all__ = ["BlockStream", "MappedMatrix", "StreamedMatrix"]


class MappedMatrix(Matrix):
    """The blocks of another matrix after a function, computed each time that the rows are read.

    The function takes a block and the number of its first row. It returns rows of the same shape and precision.
    """

    def __init__(self, source: Matrix, work: Callable[[Array, int], Array]) -> None:
        super().__init__(source.path, source.shape, source.dtype, source.columns)
        self._source, self._work = source, work

    def _blocks(self, size: int) -> Iterator[Array]:
        start = 0
        for block in self._source.row_blocks(size):
            yield self._work(block, start)
            start += len(block)


class BlockStream:
    """The blocks of an iterator, checked to fit together; can be read once.

    Blocks are arrays of shape (m, D), or pairs of such an array and the labels of its rows, which are kept in `labels`.
    """

    def __init__(self, blocks: Iterator[Any], name: str) -> None:
        first = next(blocks, None)
        if first is None:
            raise MuteError(f"{name} is an iterator that gives no block; give blocks of rows")
        self._blocks, self._name = chain([first], blocks), name
        block = np.asarray(first[0] if isinstance(first, tuple) and first else first)
        self.width = block.shape[1] if block.ndim == 2 else 0
        self.dtype = float_dtype(block.dtype)
        self.n_rows = 0
        self.labels: list[Any] = []

    def __iter__(self) -> Iterator[NDArray[np.floating]]:
        for i, given in enumerate(self._blocks):
            of = f"block {i} of {self._name}"
            if isinstance(given, tuple) and len(given) != 2:
                raise MuteError(f"{of} is a tuple of {len(given)}; give arrays, or pairs (array, labels)")
            block, labels = given if isinstance(given, tuple) else (given, None)
            block = np.asarray(block)
            if block.ndim != 2 or block.dtype.kind not in "fiub":
                raise MuteError(f"{of} has shape {block.shape} and dtype {block.dtype}; give a matrix of numbers")
            if block.shape[1] != self.width:
                raise MuteError(
                    f"{of} (from row {self.n_rows} on) has {block.shape[1]} columns and the first {self.width}; "
                    "give blocks of one width"
                )
            if float_dtype(block.dtype).itemsize > self.dtype.itemsize:
                raise MuteError(f"{of} is {block.dtype} and the first float32; give blocks of one precision")
            if labels is not None:
                self.labels.append(concept_of(len(block), labels, None))
            self.n_rows += len(block)
            yield block.astype(self.dtype, copy=False)


class StreamedMatrix(Matrix):
    """The blocks of an iterator, `n_rows` rows together, as a matrix that can be read once."""

    def __init__(self, blocks: Iterator[Any], n_rows: int, name: str) -> None:
        self._given: BlockStream | None = BlockStream(blocks, name)
        super().__init__(Path(name), (n_rows, self._given.width), self._given.dtype)

    def _blocks(self, size: int) -> Iterator[Array]:
        if self._given is None:
            raise MuteError(f"{self.path} is an iterator that was read already; give a matrix or an array")
        given, self._given = self._given, None
        for block in given:
            if given.labels:
                raise MuteError(f"{self.path} gives pairs with labels; give blocks of rows alone")
            yield np.ascontiguousarray(block)
