"""Matrices whose rows are read block by block: from files (`mute.tables`), from another matrix, from an iterator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.rows.validation import concept_of
from mute.typing import Array, RowsLike

__all__ = ["BlockStream", "MappedMatrix", "Matrix", "NoRowsError", "Stamp", "StreamedMatrix", "float_dtype"]

_BLOCK_BYTES = 1 << 23


class NoRowsError(MuteError):
    """A valid file without rows, which may stand among other files."""


@dataclass(frozen=True)
class Stamp:
    """What tells whether a file is still the one that was opened; take it before the first byte is read."""

    path: Path
    device: int
    inode: int
    size: int
    modified: int

    @classmethod
    def of(cls, path: Path) -> Stamp:
        """The stamp of a file as it is now."""
        try:
            found = path.stat()
        except OSError as error:
            raise MuteError(f"{path} cannot be read: {error.strerror or error}; check the name") from error
        return cls(path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)

    def check(self) -> None:
        """Refuse a file that has changed, was replaced or is gone."""
        try:
            same = Stamp.of(self.path) == self
        except MuteError:
            same = False
        if not same:
            raise MuteError(f"{self.path} has changed while it was read; run it again when nothing writes to it")


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
    stamps : tuple of Stamp
        The files as they were opened; none for rows that are not in files.
    """

    def __init__(
        self, path: Path, shape: tuple[int, int], dtype: np.dtype, columns: list[str] | None = None,
        stamps: tuple[Stamp, ...] = (),
    ) -> None:  # fmt: skip
        if 0 in shape:
            kind = NoRowsError if shape[0] == 0 else MuteError
            raise kind(f"{path} has a matrix of shape {shape}; give at least one row and one column")
        self.path, self.shape, self.dtype, self.columns, self.stamps = path, shape, dtype, columns, stamps

    def __getstate__(self) -> dict[str, object]:
        # Another machine may know the same files by other numbers; the process that opened them checks them.
        return self.__dict__ | {"stamps": ()}

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
        self.check_unchanged()

    def check_unchanged(self) -> None:
        """Refuse files that have changed since they were opened.

        Each pass over the rows ends with this check. Call it after the use of `to_numpy`, which may map a file.
        """
        for stamp in self.stamps:
            stamp.check()

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


def float_dtype(stored: np.dtype) -> np.dtype:
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

    def __init__(self, blocks: Iterator[RowsLike], name: str) -> None:
        first = next(blocks, None)
        if first is None:
            raise MuteError(f"{name} is an iterator that gives no block; give blocks of rows")
        self._blocks, self._name = chain([first], blocks), name
        block = np.asarray(first[0] if isinstance(first, tuple) and first else first)
        self.width = block.shape[1] if block.ndim == 2 else 0
        self.dtype = float_dtype(block.dtype)
        self.n_rows = 0
        self.labels: list[NDArray[np.object_]] = []

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

    def __init__(self, blocks: Iterator[RowsLike], n_rows: int, name: str) -> None:
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
