"""Count, mean and scatter of each class, updated block by block, and the methods that need only these."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.estimators.base import ConceptEstimator
from mute.estimators.conditional import Conditional
from mute.rows.chunks import RawChunk, Reduction
from mute.rows.reductions import FirstScan
from mute.rows.stores import ChunkStore
from mute.rows.validation import LabelEncoder, check_rows, concept_of, concept_values
from mute.typing import LabelsLike, RowsLike

__all__ = ["Moments", "Streaming", "inverse_root", "least_squares", "root", "shrink"]

_BLOCK = 8192
# Variances below this share of the largest are rounding errors.
_NO_VARIANCE = 1e-12


class Moments:
    """Running moments of K classes, in double precision.

    Parameters
    ----------
    n_classes, n_features : int
    scatter : {None, "pooled", "class"}
        Scatter matrices about the class means to compute: none, their sum, or one for each class.

    Attributes
    ----------
    counts, means : arrays of shape (K,) and (K, D)
    scatter : array of shape (0, D, D), (1, D, D) or (K, D, D)
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
        self.kind = scatter
        matrices = {None: 0, "pooled": 1, "class": n_classes}[scatter]
        self.scatter = np.zeros((matrices, n_features, n_features))

    def add(self, X: NDArray, z: NDArray[np.int64] | None = None) -> None:
        """Add rows of classes `z`, or of class 0 without `z`."""
        z = np.zeros(len(X), np.int64) if z is None else z
        for start in range(0, len(X), _BLOCK):
            self._add(X[start : start + _BLOCK], z[start : start + _BLOCK])

    def _add(self, X: NDArray, z: NDArray[np.int64]) -> None:
        counts = np.bincount(z, minlength=len(self.counts)).astype(float)
        members = np.zeros((len(counts), len(X)), X.dtype)
        members[z, np.arange(len(X))] = 1 / counts[z]
        # The rows are first centred in their own precision; the remainder is then computed exactly enough.
        near = members @ X
        centred = X - near[z]
        lack = (members @ centred).astype(float)
        # First, because the new means shift the means that the scatter is about.
        self._combine(counts, near + lack)
        if self.kind == "pooled":
            self.scatter[0] += centred.T @ centred - (lack * counts[:, None]).T @ lack
        elif self.kind == "class":
            for k in np.flatnonzero(counts):
                mine = centred[z == k]
                self.scatter[k] += mine.T @ mine - counts[k] * np.outer(lack[k], lack[k])

    def _combine(self, counts: NDArray, means: NDArray) -> None:
        """Merge counts and means, and add the distance of the means to the scatter."""
        total = np.maximum(self.counts + counts, 1)
        gap = means - self.means
        weight = self.counts * counts / total
        if self.kind == "pooled":
            self.scatter[0] += (gap * weight[:, None]).T @ gap
        elif self.kind == "class":
            for k in np.flatnonzero(weight):
                self.scatter[k] += weight[k] * np.outer(gap[k], gap[k])
        self.means = self.means + gap * (counts / total)[:, None]
        self.counts = self.counts + counts

    def merged(self, other: Moments) -> Moments:
        """The moments of the rows of both; neither changes."""
        out = self.spread(np.arange(len(self.counts)), len(self.counts))
        out._combine(other.counts, other.means)
        out.scatter += other.scatter
        return out

    def spread(self, places: NDArray[np.int64], n_classes: int) -> Moments:
        """The same moments, with class k renumbered to `places[k]` among `n_classes`."""
        out = Moments(n_classes, self.means.shape[1], self.kind)
        out.counts[places], out.means[places] = self.counts, self.means
        out.scatter[places if self.kind == "class" else slice(None)] = self.scatter
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
        """Covariance of all rows (divided by n)."""
        gap = self.means - self.mean
        return (self.scatter.sum(axis=0) + (gap * self.counts[:, None]).T @ gap) / self.n

    @property
    def class_covariances(self) -> NDArray[np.float64]:
        """Covariance of each class (divided by its count)."""
        return self.scatter / self.counts[:, None, None]

    @property
    def cross_covariance(self) -> NDArray[np.float64]:
        """Covariance of the rows with the one-hot labels, shape (D, K)."""
        return ((self.means - self.mean) * (self.counts / self.n)[:, None]).T


def shrink(S: NDArray[np.float64], n: float) -> NDArray[np.float64]:
    """The covariance S of n rows, shrunk towards a multiple of the identity.

    The weight of S is 1 - (tr S)² / n / (|S|² - (tr S)² / D), kept between 0 and 1 [1]_.

    References
    ----------
    .. [1] T. Bodnar, A. K. Gupta and N. Parolya, "On the strong convergence of the optimal linear shrinkage estimator
       for large dimensional covariance matrix", J. Multivariate Analysis, 2014.
    """
    d = len(S)
    trace = np.trace(S)
    spread = (S**2).sum() - trace**2 / d
    weight = min(max(1 - trace**2 / n / spread, 0.0), 1.0) if spread > 0 else 0.0
    return weight * S + (1 - weight) * trace / d * np.eye(d)


def root(S: NDArray[np.float64]) -> NDArray[np.float64]:
    """Square root of a symmetric positive semi-definite matrix."""
    values, vectors = np.linalg.eigh(S)
    return (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T


def inverse_root(S: NDArray[np.float64]) -> NDArray[np.float64]:
    """Inverse square root of a symmetric positive semi-definite matrix, with the same null space."""
    values, vectors = np.linalg.eigh(S)
    kept = values > max(values[-1], 0) * len(S) * np.finfo(float).eps
    return (vectors[:, kept] / np.sqrt(values[kept])) @ vectors[:, kept].T


def least_squares(S: NDArray[np.float64], cross: NDArray[np.float64], ridge: float) -> NDArray[np.float64]:
    """Slopes that best predict y from x, shape (D, m), from Cov(x) = S and Cov(x, y) = cross.

    The penalty is `ridge` times the mean variance of x. The slope is zero in directions in which x does not vary.
    """
    values, vectors = np.linalg.eigh(S)
    varies = values > max(values[-1], 0) * _NO_VARIANCE
    vectors = vectors[:, varies]
    return (vectors / (values[varies] + ridge * np.trace(S) / len(S))) @ (vectors.T @ cross)


class MomentSums(Reduction):
    def __init__(self, moments: Moments) -> None:
        self.moments = moments

    def add(self, chunk: RawChunk) -> None:
        self.moments.add(chunk.x, chunk.z.astype(np.int64))

    def merge(self, other: MomentSums) -> None:
        self.moments = self.moments.merged(other.moments)


class Streaming(ConceptEstimator):
    """A method whose map follows from moments; ``_solve`` of a subclass sets the attributes in `_STORED`.

    After `partial_fit`, the map is computed on its first use, not after every block.
    """

    fits_on_blocks = True
    _SCATTER: ClassVar[str | None] = None  # the scatter matrices of `Moments`

    moments_: Moments

    def _solve(self) -> None:
        raise NotImplementedError

    def _learn(self, X: NDArray, z: NDArray) -> None:
        self.moments_ = self._gather(X, z)
        self._solve()

    def _learn_from(self, rows: ChunkStore, scan: FirstScan) -> None:
        totals = MomentSums(Moments(len(self._encoder), rows.n_features, self._SCATTER))
        self.moments_ = rows.reduce(totals).moments
        self._solve()
        if isinstance(self, Conditional):
            self._learn_router_from(rows, scan)

    def _gather(self, X: NDArray, z: NDArray) -> Moments:
        moments = Moments(len(self._encoder), X.shape[1], self._SCATTER)
        moments.add(X, z)
        return moments

    def partial_fit(self, X: RowsLike, y: LabelsLike = None, *, concept: LabelsLike = None) -> Self:
        """Learn from another block of rows; after the last block the map is that of one `fit` on all rows.

        `partial_fit` does not train a router. Without a router from an earlier `fit`, `transform` requires labels.

        Parameters
        ----------
        X : array-like of shape (n, D)
        y : array-like of shape (n,), optional
            The concept's labels, here or as `concept`. Any block may have new classes.
        concept : array-like of shape (n,), optional
            The concept's labels if `y` has other labels.
        """
        with self._all_or_nothing():
            self._check_settings()
            first = not hasattr(self, "n_features_in_")
            if not first and "moments_" not in vars(self):
                raise MuteError("this model was loaded from a file, which does not contain its moments; fit it again")
            X = check_rows(self, X, reset=first)
            self._take_in(X, y, concept, first)
            for name in self._STORED:
                self.__dict__.pop(name, None)
            if first and isinstance(self, Conditional):
                self.router_, self.routing_ = None, None
            self._n_features_out = X.shape[1]
            counts = self.moments_.counts.astype(int).tolist()
            self.fitted_on_ = {"rows": sum(counts), "columns": X.shape[1], "dtype": X.dtype.name}
            if hasattr(self, "classes_"):
                self.fitted_on_["class_rows"] = counts
        return self

    def _take_in(self, X: NDArray, y: LabelsLike, concept: LabelsLike, first: bool) -> None:
        if self._continuous():
            z: NDArray = concept_values(len(X), y, concept)
            places = np.zeros(1, np.int64)
        else:
            known = [] if first else self._encoder.classes
            labels = np.append(concept_of(len(X), y, concept), np.fromiter(known, object))
            self._encoder, codes = LabelEncoder.fit(labels)
            self.classes_ = self._encoder.as_array()
            z, places = codes[: len(X)], codes[len(X) :]
        new = self._gather(X, z)
        self.moments_ = new if first else self.moments_.spread(places, len(new.counts)).merged(new)

    def __getattr__(self, name: str) -> NDArray[np.float64]:
        # Python calls this for missing attributes only: after `partial_fit`, the map.
        if name not in type(self)._STORED or "moments_" not in vars(self):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if "classes_" in vars(self) and len(self.classes_) < 2:
            raise MuteError(f"only one class was seen, {self._encoder.classes[0]!r}; go on with rows of another class")
        self._solve()
        return vars(self)[name]
