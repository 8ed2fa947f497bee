"""Reductions of all chunks to one result: counts, sums, products, ranges, histograms, samples of rows."""

from __future__ import annotations

import copy
import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mute.rows.chunks import CHUNK_ROWS, Chunk, RawChunk, Reduction, belongs_to_sample, find_rows
from mute.rows.exact_sums import ExactSum
from mute.rows.validation import BadRows

__all__ = ["ClassSample", "ColumnMoments", "FirstScan", "Histograms", "Scatter", "Spread", "TakeRows"]

_Floats = NDArray[np.float64]


class FirstScan(Reduction):
    """The first look at raw rows.

    Parameters
    ----------
    n_features, n_classes : int
    check : bool
        Look for NaN, infinity and numbers whose squares overflow.
    digest : bool
        Hash rows and labels.

    Attributes
    ----------
    low, high : arrays of shape (D,)
    counts : dict of start to array of shape (K,)
        Rows of each class in every chunk.
    bad : BadRows
    """

    def __init__(self, n_features: int, n_classes: int, *, check: bool = False, digest: bool = False) -> None:
        self.low, self.high = np.full(n_features, np.inf), np.full(n_features, -np.inf)
        self.n_classes, self.check, self.digest = n_classes, check, digest
        self.counts: dict[int, NDArray[np.int64]] = {}
        self.digests: dict[int, bytes] = {}
        self.label_digests: dict[int, bytes] = {}
        self.bad = BadRows()

    def add(self, raw: RawChunk) -> None:
        self.counts[raw.start] = np.bincount(raw.z, minlength=self.n_classes)
        if self.check and not self.bad.look_at(raw.x, raw.start):
            return
        if self.digest:
            self.digests[raw.start] = hashlib.sha256(np.ascontiguousarray(raw.x).data).digest()
            self.label_digests[raw.start] = hashlib.sha256(np.ascontiguousarray(raw.z, np.int64).data).digest()
        np.minimum(self.low, raw.x.min(axis=0), out=self.low)
        np.maximum(self.high, raw.x.max(axis=0), out=self.high)

    def merge(self, other: FirstScan) -> None:
        np.minimum(self.low, other.low, out=self.low)
        np.maximum(self.high, other.high, out=self.high)
        self.counts |= other.counts
        self.digests |= other.digests
        self.label_digests |= other.label_digests
        self.bad.merge(other.bad)

    @property
    def sha256(self) -> str:
        """The hash of all rows, that of `mute.estimators.base.digest_of_rows`."""
        return _joined(self.digests)

    @property
    def sha256_of_labels(self) -> str:
        return _joined(self.label_digests)

    def class_counts(self) -> NDArray[np.int64]:
        """Rows of each class in the chunks, in their order: shape (chunks, K)."""
        return np.array([self.counts[start] for start in sorted(self.counts)])


def _joined(digests: dict[int, bytes]) -> str:
    return hashlib.sha256(b"".join(digests[start] for start in sorted(digests))).hexdigest()


class ColumnMoments(Reduction):
    """Mean and spread of raw columns.

    Parameters
    ----------
    low, high : arrays of shape (D,)
        Their ranges: distances from `low` in powers of two of the range are summed, so that columns of any size and
        place keep their precision.
    held : integer array
        Numbers of rows that are left out.
    """

    def __init__(self, low: _Floats, high: _Floats, held: NDArray[np.int64]) -> None:
        self.low, self.held = low, held
        # Not below 2**-1000, whose inverse can still be told from infinity.
        self.unit = np.exp2(np.ceil(np.log2(np.maximum(np.where(high > low, high - low, 1.0), 2.0**-1000))))
        self.n = 0
        self.first, self.second = ExactSum(low.shape), ExactSum(low.shape)

    def add(self, raw: RawChunk) -> None:
        from mute.rows import kernels

        kept = np.flatnonzero(~find_rows(self.held, raw.start + np.arange(len(raw.x)))[1])
        first, second = np.zeros((2, len(self.low)))
        kernels.column_sums(raw.x, kept, self.low, 1 / self.unit, first, second)
        self.n += len(kept)
        self.first.add(first)
        self.second.add(second)

    def merge(self, other: ColumnMoments) -> None:
        self.n += other.n
        self.first.merge(other.first)
        self.second.merge(other.second)

    @property
    def center(self) -> _Floats:
        return self.low + self.unit * self.first.value / self.n

    @property
    def spread(self) -> _Floats:
        """Standard deviations."""
        mean = self.first.value / self.n
        return self.unit * np.sqrt(np.maximum(self.second.value / self.n - mean**2, 0))


class TakeRows(Reduction):
    """Some of the raw rows, by their place in their class.

    Parameters
    ----------
    places : list of K ascending integer arrays
        The row ``places[k][i]`` of class k, in the order of the rows.
    counts : array of shape (chunks, K)
        Rows of each class in every chunk.
    """

    def __init__(self, places: list[NDArray[np.int64]], counts: NDArray[np.int64]) -> None:
        before = np.cumsum(counts, axis=0) - counts
        self.wanted: dict[int, list[tuple[int, NDArray[np.int64], NDArray[np.int64]]]] = {}
        for k, mine in enumerate(places):
            chunk = np.searchsorted(before[:, k], mine, side="right") - 1
            for p in np.unique(chunk):
                chosen = mine[chunk == p]
                self.wanted.setdefault(int(p) * CHUNK_ROWS, []).append((k, chosen - before[p, k], chosen))
        self.found: list[tuple[NDArray, NDArray, NDArray, NDArray]] = []

    def add(self, raw: RawChunk) -> None:
        for k, ranks, places in self.wanted.get(raw.start, ()):
            at = np.flatnonzero(raw.z == k)[ranks]
            self.found.append((raw.start + at, np.array(raw.x[at]), np.full(len(at), k), places))

    def merge(self, other: TakeRows) -> None:
        self.found += other.found

    def empty_copy(self) -> TakeRows:
        new = copy.copy(self)
        new.found = []
        return new

    def rows(self) -> tuple[NDArray[np.int64], NDArray[np.floating], NDArray[np.int64], NDArray[np.int64]]:
        """Numbers, rows, classes and places in the class of what was taken, in the order of the rows."""
        number, x, z, place = (np.concatenate(arrays) for arrays in zip(*self.found, strict=True))
        order = np.argsort(number)
        return number[order], x[order], z[order], place[order]


class Scatter(Reduction):
    """Sums of every class, and of products of the columns over some of them.

    Parameters
    ----------
    classes : sequence of int
        The classes whose products are summed, all together.
    counts : array of shape (K,)
        Rows of each class.
    """

    def __init__(self, classes: tuple[int, ...], counts: NDArray[np.int64], n_features: int) -> None:
        self.classes, self.counts = classes, counts
        self.sums = ExactSum((len(counts), n_features))
        self.square = ExactSum((n_features, n_features) if classes else (0, 0))

    def add(self, chunk: Chunk) -> None:
        from mute.rows import kernels

        sums = np.empty((len(self.counts), len(chunk.block)))
        kernels.class_sums(chunk.block, chunk.bounds, sums)
        self.sums.add(sums)
        if len(self.classes) == len(self.counts):
            self.square.add(chunk.block @ chunk.block.T)
            return
        for k in self.classes:
            mine = chunk.block[:, chunk.bounds[k] : chunk.bounds[k + 1]]
            if mine.shape[1]:
                self.square.add(mine @ mine.T)

    def merge(self, other: Scatter) -> None:
        self.sums.merge(other.sums)
        self.square.merge(other.square)

    @property
    def means(self) -> _Floats:
        """Mean of each class, shape (K, D)."""
        return self.sums.value / np.maximum(self.counts, 1)[:, None]

    @property
    def covariance(self) -> _Floats:
        """Covariance of the rows of the classes whose products were summed."""
        classes = list(self.classes)
        n = self.counts[classes].sum()
        mean = self.sums.value[classes].sum(axis=0) / n
        return (self.square.value / n - np.outer(mean, mean)) * (n / max(n - 1, 1))

    @property
    def within(self) -> _Floats:
        """Covariance of the rows of all classes, whose products were summed, about the means of their own."""
        sums, n = self.sums.value, np.maximum(self.counts, 1)
        return (self.square.value - (sums / n[:, None]).T @ sums) / max(int(n.sum()) - len(n), 1)


class Spread(Reduction):
    """Range, mean and standard deviation of every class and coordinate.

    Parameters
    ----------
    reference : array of shape (K, D)
        Near the means: what is squared is the distance from it.
    counts : array of shape (K,)
        Rows of each class.
    """

    # Rows whose length is looked at.
    _LENGTHS = 1000

    def __init__(self, reference: _Floats, counts: NDArray[np.int64]) -> None:
        self.reference, self.counts = np.ascontiguousarray(reference), counts
        self.low, self.high = np.full(reference.shape, np.inf), np.full(reference.shape, -np.inf)
        self.first, self.second = ExactSum(reference.shape), ExactSum(reference.shape)
        self.lengths: dict[int, NDArray[np.float64]] = {}

    def add(self, chunk: Chunk) -> None:
        from mute.rows import kernels

        first, second = np.empty((2, *self.reference.shape))
        kernels.summarise(chunk.block, chunk.bounds, self.reference, self.low, self.high, first, second)
        self.first.add(first)
        self.second.add(second)
        some = np.flatnonzero(belongs_to_sample(chunk.rows, self._LENGTHS / self.counts.sum(), 0))
        if len(some):
            self.lengths[int(chunk.rows[some[0]])] = np.linalg.norm(chunk.block[:, some].astype(np.float64), axis=0)

    def merge(self, other: Spread) -> None:
        np.minimum(self.low, other.low, out=self.low)
        np.maximum(self.high, other.high, out=self.high)
        self.first.merge(other.first)
        self.second.merge(other.second)
        self.lengths |= other.lengths

    @property
    def mean(self) -> _Floats:
        return self.reference + self.first.value / self.counts[:, None]

    @property
    def std(self) -> _Floats:
        off = self.first.value / self.counts[:, None]
        return np.sqrt(np.maximum(self.second.value / self.counts[:, None] - off**2, 0))

    @property
    def typical_length(self) -> float:
        """The median length of some of the rows."""
        return float(np.median(np.concatenate(list(self.lengths.values())))) if self.lengths else 0.0


class Histograms(Reduction):
    """Histograms of some columns, for every class.

    Parameters
    ----------
    columns : integer array of shape (C,)
    low, width : arrays of shape (K, C)
        The grid of each class and column.
    bins : int
    n_rows : int
        Of all chunks.

    Attributes
    ----------
    counts : integer array of shape (K, C, bins + 2)
        The ends are for what lies below and above the grid.
    """

    def __init__(self, columns: NDArray[np.int64], low: _Floats, width: _Floats, bins: int, n_rows: int) -> None:
        self.columns, self.low, self.width = columns, np.ascontiguousarray(low), np.ascontiguousarray(width)
        self.bins = bins
        # Half the size leaves more of them in the caches, and less to send.
        self.dtype = np.dtype(np.int32 if n_rows < 2**31 else np.int64)
        self._counted: NDArray[Any] | None = None

    @property
    def counts(self) -> NDArray[Any]:
        if self._counted is None:
            self._counted = np.zeros((*self.low.shape, self.bins + 2), self.dtype)
        return self._counted

    def add(self, chunk: Chunk) -> None:
        from mute.rows import kernels

        kernels.count(chunk.block, chunk.bounds, self.columns, self.low, self.width, self.counts)

    def merge(self, other: Histograms) -> None:
        if other._counted is not None:
            np.add(self.counts, other._counted, out=self._counted)


class ClassSample(Reduction):
    """Rows of one class, drawn by their numbers.

    Parameters
    ----------
    k : int
    share : float
    seed : int
    """

    def __init__(self, k: int, share: float, seed: int) -> None:
        self.k, self.share, self.seed = k, share, seed
        self.found: list[tuple[NDArray, NDArray]] = []

    def add(self, chunk: Chunk) -> None:
        mine = np.arange(chunk.bounds[self.k], chunk.bounds[self.k + 1])
        some = mine[belongs_to_sample(chunk.rows[mine], self.share, self.seed)]
        self.found.append((chunk.rows[some], chunk.block[:, some].T))

    def merge(self, other: ClassSample) -> None:
        self.found += other.found

    def rows(self) -> NDArray[np.floating]:
        """The rows that were drawn, in the order of their numbers."""
        number, x = (np.concatenate(arrays) for arrays in zip(*self.found, strict=True))
        return x[np.argsort(number)]
