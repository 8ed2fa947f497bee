"""Rows of each class, drawn when only their numbers are known and fetched from any store."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from mute.rows.reductions import FirstScan, TakeRows
from mute.rows.stores import ChunkStore

__all__ = ["Samples", "sample_ranks"]

# For each class, the ascending ranks of rows within the class.
Ranks = list[NDArray[np.int64]]


def sample_ranks(
    counts: NDArray[np.int64], sizes: NDArray[np.int64], rng: np.random.Generator, without: Ranks | None = None
) -> Ranks:
    """Ranks of ``sizes[k]`` rows of each class, drawn at random from those that are not in `without`.

    Examples
    --------
    >>> import numpy as np
    >>> first = sample_ranks(np.array([5, 3]), np.array([2, 1]), np.random.default_rng(0))
    >>> others = sample_ranks(np.array([5, 3]), np.array([3, 2]), np.random.default_rng(0), first)
    >>> [sorted([*a.tolist(), *b.tolist()]) for a, b in zip(first, others)]
    [[0, 1, 2, 3, 4], [0, 1, 2]]
    """
    out = []
    for k, (n, size) in enumerate(zip(counts, sizes, strict=True)):
        gone = np.empty(0, np.int64) if without is None else without[k]
        ranks = np.sort(rng.choice(n - len(gone), size, replace=False, shuffle=False))
        # The i-th remaining row comes after all excluded rows that are no further than it.
        out.append(ranks + np.searchsorted(gone - np.arange(len(gone)), ranks, side="right"))
    return out


@dataclass(frozen=True, eq=False)
class Samples:
    """Drawn rows `x` of shape (m, D) in the order of their numbers, with their classes `z` and ranks in the class."""

    number: NDArray[np.int64]
    x: NDArray[np.floating]
    z: NDArray[np.int64]
    rank: NDArray[np.int64]

    @classmethod
    def fetch(cls, store: ChunkStore, scan: FirstScan, *drawn: Ranks) -> Self:
        """The rows of these ranks, each once."""
        if not any(len(ranks) for each in drawn for ranks in each):
            none = np.empty(0, np.int64)
            return cls(none, np.empty((0, store.n_features), store.dtype), none, none)
        union = [np.unique(np.concatenate(ranks)) for ranks in zip(*drawn, strict=True)]
        return cls(*store.reduce(TakeRows(union, scan.class_counts())).in_order())

    def among(self, ranks: Ranks) -> NDArray[np.int64]:
        """Which of the samples have these ranks."""
        chosen = np.zeros(len(self.z), bool)
        for k, wanted in enumerate(ranks):
            of_class = self.z == k
            chosen[of_class] = np.isin(self.rank[of_class], wanted)
        return np.flatnonzero(chosen)
