"""Count, mean and scatter of each class, gathered block by block: all that the methods of moments need."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Moments", "inverse_root", "least_squares", "root", "shrink"]

_BLOCK = 8192
# Variances below this share of the largest are what rounding leaves of none at all.
_NO_VARIANCE = 1e-12


class Moments:
    """Running moments of K classes, in double precision.

    Parameters
    ----------
    n_classes, n_features : int
    scatter : {None, "pooled", "class"}
        Which scatter matrices about the class means to gather: none, their sum, or each.

    Attributes
    ----------
    counts : array of shape (K,)
    means : array of shape (K, D)
    scatter : None or array of shape (1, D, D) or (K, D, D)
        Sums of squares about the class means.

    Examples
    --------
    >>> import numpy as np
    >>> X, z = np.random.default_rng(0).normal(size=(90, 2)), np.arange(90) % 3
    >>> whole, parts = Moments(3, 2, "pooled"), Moments(3, 2, "pooled")
    >>> whole.add(X, z)
    >>> for part in (slice(0, 10), slice(10, 90)):
    ...     parts.add(X[part], z[part])
    >>> bool(np.allclose(parts.covariance, np.cov(X.T, bias=True)) and np.allclose(parts.scatter, whole.scatter))
    True
    """

    def __init__(self, n_classes: int, n_features: int, scatter: str | None = None) -> None:
        self.counts = np.zeros(n_classes)
        self.means = np.zeros((n_classes, n_features))
        matrices = {None: 0, "pooled": 1, "class": n_classes}[scatter]
        self.kind = scatter
        self.scatter = np.zeros((matrices, n_features, n_features)) if matrices else None

    def add(self, X: NDArray, z: NDArray[np.int64]) -> None:
        """Take in rows of classes `z`."""
        for start in range(0, len(X), _BLOCK):
            self._add(X[start : start + _BLOCK], z[start : start + _BLOCK])

    def _add(self, X: NDArray, z: NDArray[np.int64]) -> None:
        counts = np.bincount(z, minlength=len(self.counts)).astype(float)
        members = np.zeros((len(counts), len(X)), X.dtype)
        members[z, np.arange(len(X))] = 1 / counts[z]
        # Means in the precision of the rows bring these near the origin; what they lack is then seen in full.
        near = members @ X
        centred = X - near[z]
        lack = (members @ centred).astype(float)
        # Before the rows come in: their means shift those that the scatter is about.
        self._combine(counts, near + lack)
        if self.scatter is None:
            return
        if self.kind == "pooled":
            self.scatter[0] += centred.T @ centred - (lack * counts[:, None]).T @ lack
            return
        for k in np.flatnonzero(counts):
            mine = centred[z == k]
            self.scatter[k] += mine.T @ mine - counts[k] * np.outer(lack[k], lack[k])

    def _combine(self, counts: NDArray, means: NDArray) -> None:
        """Counts and means of both, and what the distance of the means adds to the scatter."""
        total = np.maximum(self.counts + counts, 1)
        gap = means - self.means
        weight = self.counts * counts / total
        if self.kind == "pooled" and self.scatter is not None:
            self.scatter[0] += (gap * weight[:, None]).T @ gap
        elif self.scatter is not None:
            for k in np.flatnonzero(weight):
                self.scatter[k] += weight[k] * np.outer(gap[k], gap[k])
        self.means = self.means + gap * (counts / total)[:, None]
        self.counts = self.counts + counts

    def merged(self, other: Moments) -> Moments:
        """The moments of the rows of both; neither is changed."""
        out = self.spread(np.arange(len(self.counts)), len(self.counts))
        out._combine(other.counts, other.means)
        if out.scatter is not None and other.scatter is not None:
            out.scatter += other.scatter
        return out

    def spread(self, places: NDArray[np.int64], n_classes: int) -> Moments:
        """The same moments where class k has become `places[k]` among `n_classes`."""
        out = Moments(n_classes, self.means.shape[1], self.kind)
        out.counts[places], out.means[places] = self.counts, self.means
        if self.kind == "pooled" and self.scatter is not None:
            out.scatter = self.scatter.copy()
        elif self.scatter is not None and out.scatter is not None:
            out.scatter[places] = self.scatter
        return out

    @property
    def n(self) -> float:
        return self.counts.sum()

    @property
    def mean(self) -> NDArray[np.float64]:
        """Mean of all rows."""
        return self.counts @ self.means / self.n

    @property
    def covariance(self) -> NDArray[np.float64]:
        """Covariance of all rows, whatever their class (divided by n)."""
        assert self.scatter is not None
        gap = self.means - self.mean
        return (self.scatter.sum(axis=0) + (gap * self.counts[:, None]).T @ gap) / self.n

    @property
    def class_covariances(self) -> NDArray[np.float64]:
        """Covariance of each class (divided by its count)."""
        assert self.kind == "class" and self.scatter is not None
        return self.scatter / self.counts[:, None, None]

    @property
    def cross_covariance(self) -> NDArray[np.float64]:
        """Covariance of the rows with the one-hot labels, shape (D, K)."""
        return ((self.means - self.mean) * (self.counts / self.n)[:, None]).T


def shrink(S: NDArray[np.float64], n: float) -> NDArray[np.float64]:
    """The covariance S of n rows, shrunk towards a multiple of the identity by as much as its noise asks.

    The weight of S is 1 - (tr S)² / n / (|S|² - (tr S)² / D), kept between 0 and 1 [1]_.

    References
    ----------
    .. [1] T. Bodnar, A. K. Gupta and N. Parolya, "On the strong convergence of the optimal linear shrinkage estimator
       for large dimensional covariance matrix", J. Multivariate Analysis, 2014.
    """
    d = len(S)
    trace = np.trace(S)
    spread = (S**2).sum() - trace**2 / d
    weight = 1 - trace**2 / n / spread if spread > 0 else 0.0
    weight = min(max(weight, 0.0), 1.0)
    return weight * S + (1 - weight) * trace / d * np.eye(d)


def root(S: NDArray[np.float64]) -> NDArray[np.float64]:
    """Square root of a symmetric positive semi-definite matrix."""
    values, vectors = np.linalg.eigh(S)
    return (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T


def inverse_root(S: NDArray[np.float64]) -> NDArray[np.float64]:
    """Inverse square root of a symmetric positive semi-definite matrix; what it annihilates stays annihilated."""
    values, vectors = np.linalg.eigh(S)
    kept = values > max(values[-1], 0) * len(S) * np.finfo(float).eps
    return (vectors[:, kept] / np.sqrt(values[kept])) @ vectors[:, kept].T


def least_squares(S: NDArray[np.float64], cross: NDArray[np.float64], ridge: float) -> NDArray[np.float64]:
    """Slopes that best give y from x, shape (D, m), from Cov(x) = S and Cov(x, y) = cross.

    The penalty is `ridge` times the mean variance of x. Directions in which x does not vary have no slope.
    """
    values, vectors = np.linalg.eigh(S)
    varies = values > max(values[-1], 0) * _NO_VARIANCE
    vectors = vectors[:, varies]
    return (vectors / (values[varies] + ridge * np.trace(S) / len(S))) @ (vectors.T @ cross)
