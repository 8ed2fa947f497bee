"""Chunks of rows, and the two things that a store can do with its chunks.

A fit cuts its rows, in their order, into chunks of 2048. A store (`mute.rows.stores`: memory or a file;
`mute.rows.dask`: the workers of a cluster) can *map* each chunk to another and *reduce* all chunks to one result. The
cuts are always the same and the sums have no order. So a fit gives the same bits wherever the chunks are, however they
arrived and however many threads work on them.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["CHUNK_ROWS", "Chunk", "Map", "RawChunk", "Reduction", "belongs_to_sample", "find_rows", "scrambled"]

# Enough rows to multiply as fast as the whole matrix, few enough to stay in the caches.
CHUNK_ROWS = 2048


@dataclass(frozen=True, eq=False)
class RawChunk:
    """Rows as they were given: `x` of shape (m, D), their encoded true classes `z`, and the number of the first row."""

    start: int
    x: NDArray[np.floating]
    z: NDArray[np.integer]


@dataclass(frozen=True, eq=False)
class Chunk:
    """Rows on their way through the layers.

    `rows` are the numbers of the rows, `block`, of shape (D, m), the rows feature-major, grouped by true class and,
    within a class, by route. `bounds` (K + 1,) are the ends of the classes; `runs` (S + 1,) are the ends of the runs of
    rows with one route, and `routes` (S,) their routes.
    """

    rows: NDArray[np.int64]
    block: NDArray[np.floating]
    bounds: NDArray[np.int64]
    runs: NDArray[np.int64]
    routes: NDArray[np.int64]


# A function (chunk, out=None) that makes one chunk into another, in the memory `out`. With None, the given chunk may be
# overwritten.
Map = Callable[..., Chunk]


class Reduction(ABC):
    """What is learned from all chunks: `add` takes in a chunk, `merge` another reduction; the order does not matter."""

    @abstractmethod
    def add(self, chunk: Any) -> None: ...  # Any: a RawChunk or a Chunk, as the subclass says

    @abstractmethod
    def merge(self, other: Self) -> None: ...

    def empty_copy(self) -> Self:
        """A reduction of no chunk, to be filled and merged into this one."""
        return copy.deepcopy(self)


def find_rows(known: NDArray[np.int64], rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The places of rows among the known ones, which ascend, and which rows are known at all."""
    place = np.searchsorted(known, rows)
    return place, np.append(known, -1)[place] == rows


def belongs_to_sample(rows: NDArray[np.int64], share: float, seed: int) -> NDArray[np.bool_]:
    """Whether each row belongs to a sample of this share of all rows; the scrambled number of the row decides."""
    if share >= 1:
        return np.ones(len(rows), bool)
    return scrambled(rows, seed) < np.uint64(share * 2**63) * np.uint64(2)


def scrambled(rows: NDArray[np.int64], seed: int = 0) -> NDArray[np.uint64]:
    """Numbers of rows as if drawn at random."""
    h = (rows + seed * 0x9E3779B9).astype(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        h = (h ^ (h >> np.uint64(shift))) * np.uint64(factor)
    return h
