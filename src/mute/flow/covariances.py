"""Covariances of the classes that hold on new rows: measured where their axes were not found.

A class covariance from n rows is off by D/n in every direction, and an eraser that whitens each class with its own
shows that error in every new row. The differences between the classes, though, lie in few directions or are small. So
each difference from the pooled covariance is taken for as large as it is on rows that had no part in finding its axis.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mute.rows.chunks import Chunk, Reduction, scrambled
from mute.rows.exact_sums import ExactSum
from mute.rows.stores import ChunkStore
from mute.rows.threads import for_each

__all__ = ["LEAST", "FoldScatter", "class_covariances"]

_Floats = NDArray[np.float64]

N_FOLDS = 3
# Rows further out than so many typical lengths are drawn in to there: one far row must not make a covariance.
_FAR = 4.0
# Sums of so many classes at a time as take these bytes.
_SUM_BYTES = 1 << 28
# Below this share of the pooled spread a direction has none.
LEAST = 1e-6


class FoldScatter(Reduction):
    """Sums and products of the leading coordinates, by fold and class.

    Parameters
    ----------
    classes : range
        The classes that are looked at.
    d : int
        Number of coordinates.

    Attributes
    ----------
    counts : array of shape (F, K)
    first : ExactSum of shape (F, K, d)
    second : nested lists, F by K, of ExactSum of shape (d, d)
    """

    def __init__(self, classes: range, d: int) -> None:
        self.classes, self.d = classes, d
        self.counts = np.zeros((N_FOLDS, len(classes)), np.int64)
        self.first = ExactSum((N_FOLDS, len(classes), d))
        self.second = [[ExactSum((d, d)) for _ in classes] for _ in range(N_FOLDS)]

    def add(self, chunk: Chunk) -> None:
        fold = scrambled(chunk.rows) % np.uint64(N_FOLDS)
        first = np.zeros((N_FOLDS, len(self.classes), self.d))
        for i, k in enumerate(self.classes):
            mine = np.arange(chunk.bounds[k], chunk.bounds[k + 1])
            for f in range(N_FOLDS):
                x = chunk.block[: self.d, mine[fold[mine] == f]]
                if not x.shape[1]:
                    continue
                length = np.sqrt(np.einsum("dn,dn->n", x, x, dtype=np.float64) / self.d)
                x = x * np.minimum(1, _FAR / np.maximum(length, _FAR)).astype(x.dtype)
                self.counts[f, i] += x.shape[1]
                first[f, i] = x.sum(axis=1, dtype=np.float64)
                self.second[f][i].add(x @ x.T)
        self.first.add(first)

    def merge(self, other: FoldScatter) -> None:
        self.counts += other.counts
        self.first.merge(other.first)
        for own, theirs in zip(self.second, other.second, strict=True):
            for a, b in zip(own, theirs, strict=True):
                a.merge(b)


@dataclass(frozen=True, eq=False)
class _Moments:
    """Rows (F, K), sums (F, K, d) and products (F, K, d, d) of every fold and class."""

    counts: NDArray[np.int64]
    first: _Floats
    second: _Floats

    @classmethod
    def measure(cls, rows: ChunkStore, n_classes: int, d: int) -> _Moments:
        counts = np.empty((N_FOLDS, n_classes), np.int64)
        first, second = np.empty((N_FOLDS, n_classes, d)), np.empty((N_FOLDS, n_classes, d, d))
        group = max(_SUM_BYTES // (24 * N_FOLDS * d * d), 1)
        for start in range(0, n_classes, group):
            some = range(start, min(start + group, n_classes))
            sums = rows.reduce(FoldScatter(some, d))
            part = slice(some.start, some.stop)
            counts[:, part], first[:, part] = sums.counts, sums.first.value
            second[:, part] = [[total.value for total in fold] for fold in sums.second]
        return cls(counts, first, second)

    def covariance(self, k: int, folds: list[int]) -> _Floats:
        """That of a class on some folds."""
        n, total = self.counts[folds, k].sum(), self.first[folds, k].sum(axis=0)
        return (self.second[folds, k].sum(axis=0) - np.outer(total, total) / n) / (n - 1)

    def pooled(self, folds: list[int]) -> _Floats:
        """The mean of the classes' covariances on some folds, each weighted by its rows."""
        n = self.counts[folds].sum(axis=0)
        total = np.zeros(self.second.shape[2:])
        for k in np.flatnonzero(n > 1).tolist():
            total += n[k] * self.covariance(k, folds)
        return total / max(int(n[n > 1].sum()), 1)


def class_covariances(rows: ChunkStore, n_classes: int, d: int, n_threads: int = 1) -> tuple[_Floats, _Floats]:
    r"""Mean and covariance of every class, the latter drawn towards the pooled one as far as new rows ask for.

    Of the ratios of a class covariance C to the pooled one P, :math:`C v = \mu P v`, the axes v are kept, and of each
    :math:`\log \mu` the share that is signal (see `_signal`).

    Returns
    -------
    means : array of shape (K, d)
    covariances : array of shape (K, d, d)
    """
    moments, everything = _Moments.measure(rows, n_classes, d), list(range(N_FOLDS))
    pooled = moments.pooled(everything)
    cuts = [[g for g in everything if g != f] for f in everything]
    elsewhere, here = [_whitener(moments.pooled(others)) for others in cuts], [moments.pooled([f]) for f in everything]
    classes = np.flatnonzero(moments.counts.min(axis=0) > 1).tolist()
    at_home, away = np.zeros((2, n_classes, N_FOLDS, d))

    def look(part: slice) -> None:
        k, f = divmod(part.start, N_FOLDS)
        found, axes = _ratios(moments.covariance(classes[k], cuts[f]), elsewhere[f])
        own, all_here = ((axes * (c @ axes)).sum(axis=0) for c in (moments.covariance(classes[k], [f]), here[f]))
        at_home[classes[k], f] = np.log(found)
        away[classes[k], f] = np.log(np.maximum(own, LEAST) / np.maximum(all_here, LEAST))

    covariances, whole = np.tile(pooled, (n_classes, 1, 1)), _whitener(pooled)

    def estimate(part: slice) -> None:
        k = classes[part.start]
        ratios, axes = _ratios(moments.covariance(k, everything), whole)
        half = pooled @ axes
        covariances[k] = half * ratios ** _signal(at_home[k].mean(axis=0), away[k].mean(axis=0)) @ half.T

    for work, n in ((look, N_FOLDS * len(classes)), (estimate, len(classes))):
        for_each(work, [slice(i, i + 1) for i in range(n)], n_threads)
    return moments.first.sum(axis=0) / moments.counts.sum(axis=0)[:, None], covariances


def _whitener(pooled: _Floats) -> _Floats:
    """R with R P R' the identity."""
    from scipy.linalg import solve_triangular

    # Directions that the rows do not show (fewer rows than columns) have no spread in a class either.
    least = 1e-3 * LEAST * max(float(np.diag(pooled).max()), LEAST)
    eye = np.eye(len(pooled))
    return solve_triangular(np.linalg.cholesky(pooled + least * eye), eye, lower=True)


def _ratios(covariance: _Floats, whitener: _Floats) -> tuple[_Floats, _Floats]:
    """Eigenvalues, ascending, and eigenvectors of one covariance as seen from another."""
    ratios, axes = np.linalg.eigh(whitener @ covariance @ whitener.T)
    return np.maximum(ratios, LEAST), whitener.T @ axes


def _signal(at_home: _Floats, away: _Floats) -> _Floats:
    r"""The share of each number, in ascending order, that is signal.

    What the axes showed `away`, on the fold that had no part in finding them, over what they showed `at_home`. New
    rows keep the order of the numbers, but for noise. Signal to noise grows with the rows; the axes were found on
    :math:`1 - 1/F` of those that all of them have.
    """
    from scipy.optimize import isotonic_regression

    away = isotonic_regression(away).x
    share = np.clip(np.divide(away, at_home, out=np.zeros_like(away), where=at_home != 0), 0, 1)
    return share / (share + (1 - 1 / N_FOLDS) * (1 - share))
