"""Rows in pieces: what can be done to one piece, and what can be learned from all.

The rows of a fit are cut, in their order, into pieces of 2048. Whatever holds the pieces (`mute.holders`: memory, a
file; `mute.backends.dask`: the workers of a cluster) can do two things with them: *change* each into another and
*measure* all of them, where measuring adds up `Totals`. As the cuts are always the same and the sums have no order, a
fit comes out the same to the bit wherever the pieces are, however they came and however many work on them.
"""

from __future__ import annotations

import copy
import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from mute.sums import ExactSum
from mute.validation import BadRows

__all__ = [
    "PIECE_ROWS",
    "Change",
    "Columns",
    "Counts",
    "Enter",
    "Look",
    "Move",
    "Piece",
    "Raw",
    "Routes",
    "Sample",
    "Scatter",
    "Spread",
    "Taken",
    "Totals",
    "Turn",
    "fill",
    "scrambled",
]

# Enough rows to multiply as fast as the whole matrix, few enough to stay in the caches.
PIECE_ROWS = 2048

_Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Raw:
    """A piece as it came.

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
class Piece:
    """A piece on its way through the layers.

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


class Change(Protocol):
    """Makes one piece into another.

    `out` is room for its numbers, of whatever shape; with None, the piece given is needed no longer and may be
    overwritten.
    """

    def __call__(self, piece: Any, out: NDArray | None = None) -> Piece: ...


def fill(room: NDArray, values: NDArray) -> NDArray:
    """Copy an array to the beginning of some room; gives it as it lies there."""
    out = _view(room, values.shape)
    out[:] = values
    return out


def _view(room: NDArray, shape: tuple[int, ...]) -> NDArray:
    return room.reshape(-1)[: np.prod(shape)].reshape(shape)


@dataclass(frozen=True, eq=False)
class Routes:
    """The class whose map moves each row.

    Attributes
    ----------
    router : object or None
        Gives encoded classes; with None, rows take the map of their own class.
    known, routes : integer arrays
        Numbers of rows, in ascending order, whose route is known, and the route.
    held, held_classes : integer arrays
        Numbers of the rows that are left out, in ascending order, and their classes.
    """

    router: Any = None
    known: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    routes: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    held: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    held_classes: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    def of(self, rows: NDArray[np.int64], x: NDArray, z: NDArray) -> NDArray[np.int64]:
        """The routes of rows with these numbers, ascending."""
        place, found = _find(self.known, rows)
        told = self.router is None or found.all()
        out = np.array(z, np.int64) if told else self.router.predict(x)
        out[found] = self.routes[place[found]]
        return out


def _find(known: NDArray[np.int64], rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Where the rows are among the known ones, and which are there at all."""
    place = np.searchsorted(known, rows)
    found = np.zeros(len(rows), bool)
    inside = place < len(known)
    found[inside] = known[place[inside]] == rows[inside]
    return place, found


@dataclass(frozen=True, eq=False)
class Enter:
    """Raw rows set out: without those held back, centred, scaled, grouped and turned feature-major."""

    center: NDArray[np.floating]
    scale: NDArray[np.floating]
    n_classes: int
    routes: Routes

    def __call__(self, piece: Raw, out: NDArray | None = None) -> Piece:
        rows = piece.start + np.arange(len(piece.z))
        routed = self.routes.of(rows, piece.x, piece.z)
        kept = np.flatnonzero(~_find(self.routes.held, rows)[1])
        order = kept[np.lexsort((routed[kept], piece.z[kept]))]
        z, routed = piece.z[order].astype(np.int64), routed[order]
        turned = piece.x[order].T
        block = fill(np.empty(turned.size, turned.dtype) if out is None else out, turned)
        block -= self.center[:, None]
        if (self.scale != 1).any():
            block /= self.scale[:, None]
        starts = np.flatnonzero(np.diff(z * self.n_classes + routed, prepend=-1))
        bounds = np.searchsorted(z, np.arange(self.n_classes + 1))
        return Piece(rows[order], block, bounds, np.append(starts, len(order)), routed[starts])


@dataclass(frozen=True, eq=False)
class Turn:
    """Rows multiplied by a rotation from the right."""

    rotation: NDArray[np.floating]

    def __call__(self, piece: Piece, out: NDArray | None = None) -> Piece:
        room = None if out is None else _view(out, piece.block.shape)
        return replace(piece, block=np.matmul(self.rotation.T, piece.block, out=room))


@dataclass(frozen=True, eq=False)
class Move:
    """The marginals of a layer, each row by its route."""

    origin: NDArray[np.floating]
    step: NDArray[np.floating]
    values: NDArray[np.floating]

    def __call__(self, piece: Piece, out: NDArray | None = None) -> Piece:
        from mute import kernels

        block = piece.block if out is None else fill(out, piece.block)
        kernels.push(block, piece.runs, piece.routes, self.origin, self.step, self.values)
        return replace(piece, block=block)


class Totals(ABC):
    """What is learned from pieces: `add` takes one in, `merge` the totals of others; the order does not matter."""

    @abstractmethod
    def add(self, piece: Any) -> None: ...

    @abstractmethod
    def merge(self, other: Self) -> None: ...

    def fresh(self) -> Self:
        """Totals of no piece, to be filled and merged into these."""
        return copy.deepcopy(self)


class Look(Totals):
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
        Rows of each class in every piece.
    bad : BadRows
    """

    def __init__(self, n_features: int, n_classes: int, *, check: bool = False, digest: bool = False) -> None:
        self.low, self.high = np.full(n_features, np.inf), np.full(n_features, -np.inf)
        self.n_classes, self.check, self.digest = n_classes, check, digest
        self.counts: dict[int, NDArray[np.int64]] = {}
        self.digests: dict[int, bytes] = {}
        self.label_digests: dict[int, bytes] = {}
        self.bad = BadRows()

    def add(self, raw: Raw) -> None:
        self.counts[raw.start] = np.bincount(raw.z, minlength=self.n_classes)
        if self.check and not self.bad.look_at(raw.x, raw.start):
            return
        if self.digest:
            self.digests[raw.start] = hashlib.sha256(np.ascontiguousarray(raw.x).data).digest()
            self.label_digests[raw.start] = hashlib.sha256(np.ascontiguousarray(raw.z, np.int64).data).digest()
        np.minimum(self.low, raw.x.min(axis=0), out=self.low)
        np.maximum(self.high, raw.x.max(axis=0), out=self.high)

    def merge(self, other: Look) -> None:
        np.minimum(self.low, other.low, out=self.low)
        np.maximum(self.high, other.high, out=self.high)
        self.counts |= other.counts
        self.digests |= other.digests
        self.label_digests |= other.label_digests
        self.bad.merge(other.bad)

    @property
    def sha256(self) -> str:
        """The hash of all rows, that of `mute.base.digest_of_rows`."""
        return _joined(self.digests)

    @property
    def sha256_of_labels(self) -> str:
        return _joined(self.label_digests)

    def class_counts(self) -> NDArray[np.int64]:
        """Rows of each class in the pieces, in their order: shape (pieces, K)."""
        return np.array([self.counts[start] for start in sorted(self.counts)])


def _joined(digests: dict[int, bytes]) -> str:
    return hashlib.sha256(b"".join(digests[start] for start in sorted(digests))).hexdigest()


class Columns(Totals):
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

    def add(self, raw: Raw) -> None:
        from mute import kernels

        kept = np.flatnonzero(~_find(self.held, raw.start + np.arange(len(raw.x)))[1])
        first, second = np.zeros((2, len(self.low)))
        kernels.column_sums(raw.x, kept, self.low, 1 / self.unit, first, second)
        self.n += len(kept)
        self.first.add(first)
        self.second.add(second)

    def merge(self, other: Columns) -> None:
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


class Taken(Totals):
    """Some of the raw rows, by their place in their class.

    Parameters
    ----------
    places : list of K ascending integer arrays
        The row ``places[k][i]`` of class k, in the order of the rows.
    counts : array of shape (pieces, K)
        Rows of each class in every piece.
    """

    def __init__(self, places: list[NDArray[np.int64]], counts: NDArray[np.int64]) -> None:
        before = np.cumsum(counts, axis=0) - counts
        self.wanted: dict[int, list[tuple[int, NDArray[np.int64], NDArray[np.int64]]]] = {}
        for k, mine in enumerate(places):
            piece = np.searchsorted(before[:, k], mine, side="right") - 1
            for p in np.unique(piece):
                chosen = mine[piece == p]
                self.wanted.setdefault(int(p) * PIECE_ROWS, []).append((k, chosen - before[p, k], chosen))
        self.found: list[tuple[NDArray, NDArray, NDArray, NDArray]] = []

    def add(self, raw: Raw) -> None:
        for k, ranks, places in self.wanted.get(raw.start, ()):
            at = np.flatnonzero(raw.z == k)[ranks]
            self.found.append((raw.start + at, np.array(raw.x[at]), np.full(len(at), k), places))

    def merge(self, other: Taken) -> None:
        self.found += other.found

    def fresh(self) -> Taken:
        new = copy.copy(self)
        new.found = []
        return new

    def rows(self) -> tuple[NDArray[np.int64], NDArray[np.floating], NDArray[np.int64], NDArray[np.int64]]:
        """Numbers, rows, classes and places in the class of what was taken, in the order of the rows."""
        number, x, z, place = (np.concatenate(arrays) for arrays in zip(*self.found, strict=True))
        order = np.argsort(number)
        return number[order], x[order], z[order], place[order]


class Scatter(Totals):
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

    def add(self, piece: Piece) -> None:
        from mute import kernels

        sums = np.empty((len(self.counts), len(piece.block)))
        kernels.class_sums(piece.block, piece.bounds, sums)
        self.sums.add(sums)
        if len(self.classes) == len(self.counts):
            self.square.add(piece.block @ piece.block.T)
            return
        for k in self.classes:
            mine = piece.block[:, piece.bounds[k] : piece.bounds[k + 1]]
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


class Spread(Totals):
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

    def add(self, piece: Piece) -> None:
        from mute import kernels

        first, second = np.empty((2, *self.reference.shape))
        kernels.summarise(piece.block, piece.bounds, self.reference, self.low, self.high, first, second)
        self.first.add(first)
        self.second.add(second)
        some = np.flatnonzero(_drawn(piece.rows, self._LENGTHS / self.counts.sum(), 0))
        if len(some):
            self.lengths[int(piece.rows[some[0]])] = np.linalg.norm(piece.block[:, some].astype(np.float64), axis=0)

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


class Counts(Totals):
    """Histograms of some columns, for every class.

    Parameters
    ----------
    columns : integer array of shape (C,)
    low, width : arrays of shape (K, C)
        The grid of each class and column.
    bins : int
    n_rows : int
        Of all pieces.

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

    def add(self, piece: Piece) -> None:
        from mute import kernels

        kernels.count(piece.block, piece.bounds, self.columns, self.low, self.width, self.counts)

    def merge(self, other: Counts) -> None:
        if other._counted is not None:
            np.add(self.counts, other._counted, out=self._counted)


class Sample(Totals):
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

    def add(self, piece: Piece) -> None:
        mine = np.arange(piece.bounds[self.k], piece.bounds[self.k + 1])
        some = mine[_drawn(piece.rows[mine], self.share, self.seed)]
        self.found.append((piece.rows[some], piece.block[:, some].T))

    def merge(self, other: Sample) -> None:
        self.found += other.found

    def rows(self) -> NDArray[np.floating]:
        """The rows that were drawn, in the order of their numbers."""
        number, x = (np.concatenate(arrays) for arrays in zip(*self.found, strict=True))
        return x[np.argsort(number)]


def _drawn(rows: NDArray[np.int64], share: float, seed: int) -> NDArray[np.bool_]:
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
