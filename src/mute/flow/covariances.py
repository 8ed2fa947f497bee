"""Covariances of the classes, shrunk towards the pooled covariance by cross-validation.

A class covariance from n rows has an error of D/n in every direction. An eraser that whitens each class with its own
covariance leaks this error in every unseen row. But the classes differ in few directions only, or by little. So the
size of each difference from the pooled covariance is measured on rows that were not used to choose its axis.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mute.rows.chunks import Chunk, Reduction, scrambled
from mute.rows.exact_sums import ExactSum
from mute.rows.stores import ChunkStore
from mute.rows.threads import for_each

__all__ = ["LEAST", "class_covariances"]

_Floats = NDArray[np.float64]

N_FOLDS = 3
# Rows longer than this many typical lengths are shortened to it, so that one far row does not dominate a covariance.
_FAR = 4.0
# Bytes for the sums of the classes that are processed together.
_SUM_BYTES = 1 << 28
# Below this share of the pooled spread, a direction counts as flat.
LEAST = 1e-6


class FoldScatter(Reduction):
    """Counts (F, K), sums (F, K, d) and products (F lists of K matrices (d, d)) of the first d coordinates."""

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


class _Moments:
    """Counts (F, K), sums (F, K, d) and products (F, K, d, d) of every fold and class."""

    def __init__(self, rows: ChunkStore, n_classes: int, d: int) -> None:
        self.counts = np.empty((N_FOLDS, n_classes), np.int64)
        self.first, self.second = np.empty((N_FOLDS, n_classes, d)), np.empty((N_FOLDS, n_classes, d, d))
        group = max(_SUM_BYTES // (24 * N_FOLDS * d * d), 1)
        for start in range(0, n_classes, group):
            part = slice(start, min(start + group, n_classes))
            sums = rows.reduce(FoldScatter(range(part.start, part.stop), d))
            self.counts[:, part], self.first[:, part] = sums.counts, sums.first.value
            self.second[:, part] = [[total.value for total in fold] for fold in sums.second]

    def covariance(self, k: int, folds: list[int]) -> _Floats:
        n, total = self.counts[folds, k].sum(), self.first[folds, k].sum(axis=0)
        return (self.second[folds, k].sum(axis=0) - np.outer(total, total) / n) / (n - 1)

    def pooled(self, folds: list[int]) -> _Floats:
        """The mean of the class covariances, weighted by their rows."""
        n = self.counts[folds].sum(axis=0)
        total = np.zeros(self.second.shape[2:])
        for k in np.flatnonzero(n > 1).tolist():
            total += n[k] * self.covariance(k, folds)
        return total / max(int(n[n > 1].sum()), 1)


def class_covariances(rows: ChunkStore, n_classes: int, d: int, n_threads: int = 1) -> tuple[_Floats, _Floats]:
    r"""Mean (K, d) and shrunk covariance (K, d, d) of every class.

    With the pooled covariance P, a class covariance C has axes v with :math:`C v = \mu P v`. The shrunk covariance
    keeps the axes, and the share of each :math:`\log \mu` that is signal (see `_signal`).
    """
    moments, everything = _Moments(rows, n_classes, d), list(range(N_FOLDS))
    pooled = moments.pooled(everything)
    cuts = [[g for g in everything if g != f] for f in everything]
    elsewhere, here = [_whitener(moments.pooled(others)) for others in cuts], [moments.pooled([f]) for f in everything]
    classes = np.flatnonzero(moments.counts.min(axis=0) > 1).tolist()
    at_home, away = np.zeros((2, n_classes, N_FOLDS, d))

    def compare(part: slice) -> None:
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

    for work, n in ((compare, N_FOLDS * len(classes)), (estimate, len(classes))):
        for_each(work, [slice(i, i + 1) for i in range(n)], n_threads)
    return moments.first.sum(axis=0) / moments.counts.sum(axis=0)[:, None], covariances


def _whitener(pooled: _Floats) -> _Floats:
    """The matrix R for which R P R' is the identity."""
    from scipy.linalg import solve_triangular

    # With fewer rows than columns P is singular; its flat directions are flat in every class.
    least = 1e-3 * LEAST * max(float(np.diag(pooled).max()), LEAST)
    eye = np.eye(len(pooled))
    return solve_triangular(np.linalg.cholesky(pooled + least * eye), eye, lower=True)


def _ratios(covariance: _Floats, whitener: _Floats) -> tuple[_Floats, _Floats]:
    """Ascending eigenvalues, and eigenvectors, of one covariance relative to another."""
    ratios, axes = np.linalg.eigh(whitener @ covariance @ whitener.T)
    return np.maximum(ratios, LEAST), whitener.T @ axes


def _signal(at_home: _Floats, away: _Floats) -> _Floats:
    r"""The share of each number, in ascending order, that is signal.

    It is the number `away`, on the fold that did not choose the axes, divided by the number `at_home`, on the others.
    The order of the numbers is the same on both, up to noise. The signal-to-noise ratio grows with the rows, and the
    axes come from :math:`1 - 1/F` of all rows.
    """
    from scipy.optimize import isotonic_regression

    away = isotonic_regression(away).x
    share = np.clip(np.divide(away, at_home, out=np.zeros_like(away), where=at_home != 0), 0, 1)
    return share / (share + (1 - 1 / N_FOLDS) * (1 - share))
