"""Drawing rows of each class when only their numbers are known, and fetching them from wherever they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mute.rows.reductions import FirstScan, TakeRows
from mute.rows.stores import ChunkStore

__all__ = ["Samples", "sample_ranks"]

# Places of rows in their class, ascending, for each class.
Ranks = list[NDArray[np.int64]]


def sample_ranks(
    counts: NDArray[np.int64], sizes: NDArray[np.int64], rng: np.random.Generator, without: Ranks | None = None
) -> Ranks:
    """Places of so many rows of each class, drawn at random; none of those in `without`.

    Examples
    --------
    >>> import numpy as np
    >>> first = draw(np.array([5, 3]), np.array([2, 1]), np.random.default_rng(0))
    >>> others = draw(np.array([5, 3]), np.array([3, 2]), np.random.default_rng(0), first)
    >>> [sorted([*a.tolist(), *b.tolist()]) for a, b in zip(first, others)]
    [[0, 1, 2, 3, 4], [0, 1, 2]]
    """
    out = []
    for k, (n, size) in enumerate(zip(counts, sizes, strict=True)):
        gone = np.empty(0, np.int64) if without is None else without[k]
        places = np.sort(rng.choice(n - len(gone), size, replace=False, shuffle=False))
        # The i-th of those that are left stands behind all the gone ones that are no further than it.
        out.append(places + np.searchsorted(gone - np.arange(len(gone)), places, side="right"))
    return out


@dataclass(frozen=True, eq=False)
class Samples:
    """Rows that were drawn, in the order of their numbers.

    Attributes
    ----------
    number : array of shape (m,)
    x : array of shape (m, D)
    z, place : arrays of shape (m,)
        Class, and place in the class.
    """

    number: NDArray[np.int64]
    x: NDArray[np.floating]
    z: NDArray[np.int64]
    place: NDArray[np.int64]

    @classmethod
    def fetch(cls, rows: ChunkStore, scan: FirstScan, *drawn: Ranks) -> Samples:
        """The rows at these places, each once."""
        counts = scan.class_counts()
        if not any(len(places) for places in (p for each in drawn for p in each)):
            none = np.empty(0, np.int64)
            return cls(none, np.empty((0, rows.n_features), rows.dtype), none, none)
        union = [np.unique(np.concatenate(places)) for places in zip(*drawn, strict=True)]
        return cls(*rows.reduce(TakeRows(union, counts)).rows())

    def among(self, places: Ranks) -> NDArray[np.int64]:
        """Which of them are at these places."""
        chosen = np.zeros(len(self.z), bool)
        for k, mine in enumerate(places):
            of_class = self.z == k
            chosen[of_class] = np.isin(self.place[of_class], mine)
        return np.flatnonzero(chosen)
