"""Chunks of rows: what a store keeps, and the two things that can be done with it.

The rows of a fit are cut, in their order, into chunks of 2048. A store (`mute.rows.stores`: memory, a file;
`mute.rows.dask`: the workers of a cluster) can do two things with them: *map* each chunk to another and *reduce* all of
them to one result. The cuts are always the same and the sums have no order, so a fit gives the same bits wherever the
chunks are, however they arrived and however many threads work on them.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "CHUNK_ROWS",
    "Chunk",
    "Map",
    "RawChunk",
    "Reduction",
    "belongs_to_sample",
    "fill",
    "find_rows",
    "scrambled",
    "shaped",
]

# Enough rows to multiply as fast as the whole matrix, few enough to stay in the caches.
CHUNK_ROWS = 2048


@dataclass(frozen=True, eq=False)
class RawChunk:
    """A chunk as it came.

    Attributes
    ----------
    start : int
        Number of its first row.
    x : array of shape (m, D)
    z : integer array of shape (m,)
        True classes, encoded.
    """

    start: int
    x: NDArray[np.floating]
    z: NDArray[np.integer]

    @property
    def array(self) -> NDArray[np.floating]:
        """The numbers, as they lie."""
        return self.x


@dataclass(frozen=True, eq=False)
class Chunk:
    """A chunk on its way through the layers.

    Attributes
    ----------
    rows : integer array of shape (m,)
        The numbers of its rows.
    block : array of shape (D, m)
        The rows, feature-major, grouped by true class and, within it, by route.
    bounds : array of shape (K + 1,)
        Where each class begins and ends.
    runs, routes : arrays of shape (S + 1,), (S,)
        Where each run of rows with one route begins and ends, and the route.
    """

    rows: NDArray[np.int64]
    block: NDArray[np.floating]
    bounds: NDArray[np.int64]
    runs: NDArray[np.int64]
    routes: NDArray[np.int64]

    @property
    def array(self) -> NDArray[np.floating]:
        """The numbers, as they lie."""
        return self.block


class Map(Protocol):
    """Makes one chunk into another.

    `out` is room for its numbers, of whatever shape; with None, the chunk given is needed no longer and may be
    overwritten.
    """

    def __call__(self, chunk: Any, out: NDArray | None = None) -> Chunk: ...


def fill(room: NDArray, values: NDArray) -> NDArray:
    """Copy an array to the beginning of some room; gives it as it lies there."""
    out = shaped(room, values.shape)
    out[:] = values
    return out


def shaped(room: NDArray, shape: tuple[int, ...]) -> NDArray:
    return room.reshape(-1)[: np.prod(shape)].reshape(shape)


def find_rows(known: NDArray[np.int64], rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Where the rows are among the known ones, and which are there at all."""
    place = np.searchsorted(known, rows)
    found = np.zeros(len(rows), bool)
    inside = place < len(known)
    found[inside] = known[place[inside]] == rows[inside]
    return place, found


class Reduction(ABC):
    """What is learned from chunks: `add` takes one in, `merge` the totals of others; the order does not matter."""

    @abstractmethod
    def add(self, chunk: Any) -> None: ...

    @abstractmethod
    def merge(self, other: Self) -> None: ...

    def empty_copy(self) -> Self:
        """Totals of no chunk, to be filled and merged into these."""
        return copy.deepcopy(self)


def belongs_to_sample(rows: NDArray[np.int64], share: float, seed: int) -> NDArray[np.bool_]:
    """Whether each row belongs to a sample of this share of all: its number, scrambled, decides."""
    if share >= 1:
        return np.ones(len(rows), bool)
    return scrambled(rows, seed) < np.uint64(share * 2**63) * np.uint64(2)


def scrambled(rows: NDArray[np.int64], seed: int = 0) -> NDArray[np.uint64]:
    """Numbers of rows as if drawn at random."""
    h = (rows + seed * 0x9E3779B9).astype(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        h = (h ^ (h >> np.uint64(shift))) * np.uint64(factor)
    return h
