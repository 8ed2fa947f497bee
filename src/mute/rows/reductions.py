"""Reductions of all chunks to one result: counts, sums, products, ranges, histograms, samples of rows."""

import copy
import hashlib
from typing import Self

import numpy as np
from numpy.typing import NDArray

from mute.rows.chunks import CHUNK_ROWS, Chunk, RawChunk, Reduction, belongs_to_sample, find_rows
from mute.rows.exact_sums import ExactSum
from mute.rows.validation import BadRows
from mute.typing import Array

__all__ = ["ClassSample", "ColumnMoments", "FirstScan", "Histograms", "Scatter", "Spread", "TakeRows"]

_Floats = NDArray[np.float64]


class _Ranged(Reduction):
    """Keeps the least and the greatest value of each coordinate."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.low, self.high = np.full(shape, np.inf), np.full(shape, -np.inf)

    def _widen(self, low: NDArray, high: NDArray) -> None:
        np.minimum(self.low, low, out=self.low)
        np.maximum(self.high, high, out=self.high)


class _Moments(ExactSum):
    """Sums of values and of their squares, an array of two of each."""

    def mean(self, n: int | NDArray[np.int64]) -> _Floats:
        return self.value[0] / n

    def std(self, n: int | NDArray[np.int64]) -> _Floats:
        return np.sqrt(np.maximum(self.value[1] / n - self.mean(n) ** 2, 0))


class _Taken(Reduction):
    """Rows taken from chunks: tuples of arrays, the numbers of the rows first."""

    def __init__(self) -> None:
        self._taken: list[tuple[NDArray, ...]] = []

    def merge(self, other: Self) -> None:
        self._taken += other._taken

    def empty_copy(self) -> Self:
        new = copy.copy(self)
        new._taken = []
        return new

    def in_order(self) -> list[NDArray]:
        """The arrays, in the order of the numbers of the rows."""
        arrays = [np.concatenate(arrays) for arrays in zip(*self._taken, strict=True)]
        order = np.argsort(arrays[0])
        return [array[order] for array in arrays]


class FirstScan(_Ranged):
    """Ranges of the raw columns and counts of the classes.

    With `check`, `bad` collects the rows that cannot be used. With `digest`, rows and labels are hashed.
    """

    def __init__(self, n_features: int, n_classes: int, *, check: bool = False, digest: bool = False) -> None:
        super().__init__((n_features,))
        self.n_classes, self.check, self.digest = n_classes, check, digest
        self.bad = BadRows()
        # Of each chunk, by the number of its first row: rows of each class, hash of the rows, hash of the labels.
        self._chunks: dict[int, tuple[NDArray[np.int64], bytes, bytes]] = {}

    def add(self, chunk: RawChunk) -> None:
        hashes = b"", b""
        if not self.check or self.bad.look_at(chunk.x, chunk.start):
            self._widen(chunk.x.min(axis=0), chunk.x.max(axis=0))
            if self.digest:
                hashes = _sha256(chunk.x), _sha256(np.asarray(chunk.z, np.int64))
        self._chunks[chunk.start] = np.bincount(chunk.z, minlength=self.n_classes), *hashes

    def merge(self, other: Self) -> None:
        self._widen(other.low, other.high)
        self._chunks |= other._chunks
        self.bad.merge(other.bad)

    def _in_order(self) -> list[tuple[NDArray[np.int64], bytes, bytes]]:
        return [self._chunks[start] for start in sorted(self._chunks)]

    @property
    def sha256(self) -> str:
        """The hash of all rows, equal to that of `mute.estimators.base.digest_of_rows`."""
        return hashlib.sha256(b"".join(rows for _, rows, _ in self._in_order())).hexdigest()

    @property
    def sha256_of_labels(self) -> str:
        return hashlib.sha256(b"".join(labels for _, _, labels in self._in_order())).hexdigest()

    def class_counts(self) -> NDArray[np.int64]:
        """Rows of each class in every chunk, in the order of the chunks: shape (chunks, K)."""
        return np.array([counts for counts, _, _ in self._in_order()])


def _sha256(array: NDArray) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(array).data).digest()


class ColumnMoments(Reduction):
    """Mean and standard deviation of the raw columns, without the rows whose numbers are in `held_out`.

    Distances from `low`, in units of a power of two near the range, keep the precision of columns of any size.
    """

    def __init__(self, low: _Floats, high: _Floats, held_out: NDArray[np.int64]) -> None:
        self.low, self.held_out = low, held_out
        # At least 2**-1000, whose inverse is still finite.
        self.unit = np.exp2(np.ceil(np.log2(np.maximum(np.where(high > low, high - low, 1.0), 2.0**-1000))))
        self.n = 0
        self._moments = _Moments((2, *low.shape))

    def add(self, chunk: RawChunk) -> None:
        from mute.rows import kernels

        kept = np.flatnonzero(~find_rows(self.held_out, chunk.start + np.arange(len(chunk.x)))[1])
        sums = np.zeros((2, len(self.low)))
        kernels.column_sums(chunk.x, kept, self.low, 1 / self.unit, *sums)
        self.n += len(kept)
        self._moments.add(sums)

    def merge(self, other: Self) -> None:
        self.n += other.n
        self._moments.merge(other._moments)

    @property
    def center(self) -> _Floats:
        return self.low + self.unit * self._moments.value[0] / self.n

    @property
    def spread(self) -> _Floats:
        """Standard deviations."""
        return self.unit * self._moments.std(self.n)


class TakeRows(_Taken):
    """Raw rows with their classes and ranks: for each class, those of the ascending `ranks` within the class.

    `counts`, of shape (chunks, K), are the rows of each class in every chunk.
    """

    def __init__(self, ranks: list[NDArray[np.int64]], counts: NDArray[np.int64]) -> None:
        super().__init__()
        before = np.cumsum(counts, axis=0) - counts
        self.wanted: dict[int, list[tuple[int, NDArray[np.int64], NDArray[np.int64]]]] = {}
        for k, of_class in enumerate(ranks):
            chunk = np.searchsorted(before[:, k], of_class, side="right") - 1
            for p in np.unique(chunk):
                chosen = of_class[chunk == p]
                self.wanted.setdefault(int(p) * CHUNK_ROWS, []).append((k, chosen - before[p, k], chosen))

    def add(self, chunk: RawChunk) -> None:
        for k, ranks_in_chunk, ranks in self.wanted.get(chunk.start, ()):
            at = np.flatnonzero(chunk.z == k)[ranks_in_chunk]
            self._taken.append((chunk.start + at, np.array(chunk.x[at]), np.full(len(at), k), ranks))


class Scatter(Reduction):
    """Sums of every class, and sums of products of columns over `classes` together; `counts` are rows of each class."""

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
            of_class = chunk.block[:, chunk.bounds[k] : chunk.bounds[k + 1]]
            if of_class.shape[1]:
                self.square.add(of_class @ of_class.T)

    def merge(self, other: Self) -> None:
        self.sums.merge(other.sums)
        self.square.merge(other.square)

    @property
    def means(self) -> _Floats:
        """Mean of each class, shape (K, D)."""
        return self.sums.value / np.maximum(self.counts, 1)[:, None]

    @property
    def covariance(self) -> _Floats:
        """Covariance of the rows of `classes`."""
        classes = list(self.classes)
        n = self.counts[classes].sum()
        mean = self.sums.value[classes].sum(axis=0) / n
        return (self.square.value / n - np.outer(mean, mean)) * (n / max(n - 1, 1))

    @property
    def within(self) -> _Floats:
        """Covariance of the rows of all classes about the means of their classes; `classes` must be all of them."""
        sums, n = self.sums.value, np.maximum(self.counts, 1)
        return (self.square.value - (sums / n[:, None]).T @ sums) / max(int(n.sum()) - len(n), 1)


class Spread(_Ranged):
    """Range, mean and standard deviation of every class and coordinate, arrays of shape (K, D).

    Distances from `reference`, which is near the means, are squared; `counts` are the rows of each class.
    """

    # Rows whose length is measured.
    _LENGTHS = 1000

    def __init__(self, reference: _Floats, counts: NDArray[np.int64]) -> None:
        super().__init__(reference.shape)
        self.reference, self.counts = np.ascontiguousarray(reference), counts
        self._moments = _Moments((2, *reference.shape))
        self.lengths: dict[int, NDArray[np.float64]] = {}

    def add(self, chunk: Chunk) -> None:
        from mute.rows import kernels

        sums = np.empty((2, *self.reference.shape))
        kernels.summarise(chunk.block, chunk.bounds, self.reference, self.low, self.high, *sums)
        self._moments.add(sums)
        some = np.flatnonzero(belongs_to_sample(chunk.rows, self._LENGTHS / self.counts.sum(), 0))
        if len(some):
            self.lengths[int(chunk.rows[some[0]])] = np.linalg.norm(chunk.block[:, some].astype(np.float64), axis=0)

    def merge(self, other: Self) -> None:
        self._widen(other.low, other.high)
        self._moments.merge(other._moments)
        self.lengths |= other.lengths

    @property
    def mean(self) -> _Floats:
        return self.reference + self._moments.mean(self.counts[:, None])

    @property
    def std(self) -> _Floats:
        return self._moments.std(self.counts[:, None])

    @property
    def typical_length(self) -> float:
        """The median length of some of the rows."""
        return float(np.median(np.concatenate(list(self.lengths.values())))) if self.lengths else 0.0


class Histograms(Reduction):
    """Histograms of some columns for every class, on grids of `bins` bins that `low` and `width` (K, C) describe."""

    def __init__(self, columns: NDArray[np.int64], low: _Floats, width: _Floats, bins: int, n_rows: int) -> None:
        self.columns, self.low, self.width = columns, np.ascontiguousarray(low), np.ascontiguousarray(width)
        self.bins = bins
        # Half the size leaves more of the counts in the caches, and less to send.
        self.dtype = np.dtype(np.int32 if n_rows < 2**31 else np.int64)
        self._counted: NDArray | None = None

    @property
    def counts(self) -> Array:
        """Rows of every class, column and bin, shape (K, C, bins + 2); the ends count what lies beyond the grid."""
        if self._counted is None:
            self._counted = np.zeros((*self.low.shape, self.bins + 2), self.dtype)
        return self._counted

    def add(self, chunk: Chunk) -> None:
        from mute.rows import kernels

        kernels.count(chunk.block, chunk.bounds, self.columns, self.low, self.width, self.counts)

    def merge(self, other: Self) -> None:
        if other._counted is not None:
            np.add(self.counts, other._counted, out=self._counted)


class ClassSample(_Taken):
    """A share of the rows of class `k`, drawn by their numbers."""

    def __init__(self, k: int, share: float, seed: int) -> None:
        super().__init__()
        self.k, self.share, self.seed = k, share, seed

    def add(self, chunk: Chunk) -> None:
        of_class = np.arange(chunk.bounds[self.k], chunk.bounds[self.k + 1])
        some = of_class[belongs_to_sample(chunk.rows[of_class], self.share, self.seed)]
        self._taken.append((chunk.rows[some], chunk.block[:, some].T))

    def rows(self) -> NDArray[np.floating]:
        """The sampled rows, in the order of their numbers."""
        return self.in_order()[1]
