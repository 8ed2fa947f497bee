"""Affine transport between Gaussians, and the base class of methods that use it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.estimators.conditional import Invertible
from mute.estimators.moments import Moments, Streaming, root

__all__ = ["GaussianTransport", "barycentre", "by_group", "frechet_distance", "transport"]

_MOST_STEPS = 100
# A column whose spread is below this share of the largest, in every class, is constant up to rounding. It stays as it
# is: the rounding errors that a map of all columns would put there differ between classes, and adversaries read them.
_FLAT = 1e-13


class GaussianTransport(Streaming, Invertible):
    """Transports each class, as if it were Gaussian, to the barycentre of all classes or to another class.

    A subclass defines ``_estimate(moments)``, the covariances of the classes.
    """

    _STORED: ClassVar[dict[str, str]] = {"means_": "K D", "mean_": "D", "covariances_": "K D D", "pushes_": "K D D"}
    _SCATTER: ClassVar[str | None] = "class"

    means_: NDArray[np.float64]
    mean_: NDArray[np.float64]
    covariances_: NDArray[np.float64]
    pushes_: NDArray[np.float64]

    def _learn(self, X: NDArray, z: NDArray) -> None:
        super()._learn(X, z)
        self._learn_router(X, z)

    def _estimate(self, moments: Moments) -> NDArray[np.float64]:
        raise NotImplementedError

    def _solve(self) -> None:
        self.means_, self.mean_ = self.moments_.means, self.moments_.mean
        self.covariances_ = self._estimate(self.moments_)
        variances = np.diagonal(self.moments_.class_covariances, axis1=1, axis2=2)
        spread = np.sqrt(variances.max(axis=0).clip(0))
        flat = spread <= _FLAT * spread.max()
        self.covariances_[:, flat] = self.covariances_[:, :, flat] = 0.0
        middle = barycentre(self.covariances_, self.moments_.counts / self.moments_.n)
        self.pushes_ = np.array([transport(C, middle) for C in self.covariances_])
        self._transports = Transports(self.covariances_, self.pushes_)

    def _check_restored(self) -> None:
        if not all(np.allclose(A, A.transpose(0, 2, 1)) for A in (self.covariances_, self.pushes_)):
            raise MuteError("its maps are not symmetric")
        variances = np.linalg.eigvalsh(self.covariances_)
        if (variances[:, 0] < -1e-9 * np.abs(variances).max(axis=1)).any():
            raise MuteError("a covariance of its classes has a negative variance")
        self._transports = Transports(self.covariances_, self.pushes_)

    def _trial_outputs(self, X: NDArray) -> Iterator[NDArray]:
        k = np.arange(len(X)) % len(self._encoder)
        # Not the maps between classes: there are K(K - 1), each with two eigendecompositions.
        yield from (self._push(X, k), self._pull(X, k))
        if self.router_ is not None:
            yield self.router_.predict_proba(X)

    def _push(self, X: NDArray, k: NDArray[np.int64]) -> NDArray[np.floating]:
        return by_group(X, k, lambda i: (self.pushes_[i], self.means_[i], self.mean_))

    def _pull(self, Q: NDArray, k: NDArray[np.int64]) -> NDArray[np.floating]:
        return by_group(Q, k, lambda i: (self._transports.pulls[i], self.mean_, self.means_[i]))

    def _move(self, X: NDArray, source: NDArray[np.int64], target: NDArray[np.int64]) -> NDArray[np.floating]:
        def pair(p: int) -> tuple[NDArray, NDArray, NDArray]:
            i, j = divmod(p, len(self.means_))
            return self._transports.between(i, j), self.means_[i], self.means_[j]

        return by_group(X, source * len(self.means_) + target, pair)


class Transports:
    """The K(K - 1) maps between classes, each computed on first use."""

    def __init__(self, covariances: NDArray[np.float64], pushes: NDArray[np.float64]) -> None:
        _check_bijections(pushes)
        self._covariances, self._pushes = covariances, pushes
        self._pairs: dict[tuple[int, int], NDArray[np.floating]] = {}

    @cached_property
    def pulls(self) -> NDArray[np.floating]:
        """From the barycentre to each class."""
        return np.linalg.inv(self._pushes)

    def between(self, i: int, j: int) -> NDArray[np.floating]:
        """From class i to class j."""
        if i == j:
            return np.eye(self._covariances.shape[1])
        if (i, j) not in self._pairs:
            way = transport(self._covariances[i], self._covariances[j])
            _check_bijections(way[None])  # before it is kept: a second use must fail as the first did
            self._pairs[i, j], self._pairs[j, i] = way, np.linalg.inv(way)
        return self._pairs[i, j]


def _check_bijections(maps: NDArray[np.floating]) -> None:
    """Refuse symmetric maps, shape (k, D, D), that are singular."""
    values = np.linalg.eigvalsh(maps)
    # Maps are roots of covariances; up to rounding, a variance of zero is this share of the largest.
    if (values[:, 0] <= np.sqrt(maps.shape[1] * np.finfo(float).eps) * values[:, -1]).any():
        raise MuteError(
            "the classes do not vary in the same directions (perhaps a column is constant in one of them only), so no "
            "affine bijection takes one to the other; use a ridge (reg above 0 in LinearOT) or shrinkage=True (QLEACE)"
        )


def by_group(
    X: NDArray, groups: NDArray[np.int64], affine: Callable[[int], tuple[NDArray, NDArray, NDArray]]
) -> NDArray[np.floating]:
    """Apply x -> A(x - a) + b to the rows of each group, where ``affine(group)`` gives (A, a, b)."""
    out = np.empty_like(X)
    for group in np.unique(groups):
        A, a, b = (part.astype(X.dtype, copy=False) for part in affine(int(group)))
        mine = groups == group
        out[mine] = (X[mine] - a) @ A.T + b
    return out


def transport(source: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    """The symmetric A with A `source` A = `target`; the identity in directions where `source` has no variance.

    In columns that are zero in both it is the identity to the bit.
    """
    seen = source.any(axis=0) | target.any(axis=0)
    if not seen.all():
        A, inside = np.eye(len(source)), np.ix_(seen, seen)
        A[inside] = transport(source[inside], target[inside])
        return A
    values, vectors = np.linalg.eigh(source)
    kept = values > max(values[-1], 0) * len(values) * np.finfo(float).eps
    V, size = vectors[:, kept], np.sqrt(values[kept])
    inner = root((V * size).T @ target @ (V * size))
    A = (V / size) @ inner @ (V / size).T
    rest = vectors[:, ~kept]
    return (A + A.T) / 2 + rest @ rest.T


def barycentre(covariances: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Covariance of the Wasserstein barycentre of centred Gaussians.

    For two Gaussians the barycentre is on their geodesic. For more, the fixed point of P. C. Álvarez-Esteban, E. del
    Barrio, J. Cuesta-Albertos and C. Matrán, "A fixed-point approach to barycenters in Wasserstein space", 2016.
    """
    eye = np.eye(covariances.shape[1])
    if len(covariances) == 2:
        mid = weights[0] * eye + weights[1] * transport(covariances[0], covariances[1])
        return mid @ covariances[0] @ mid
    S = np.tensordot(weights, covariances, 1)
    for _ in range(_MOST_STEPS):
        mean_map = np.tensordot(weights, np.array([transport(S, C) for C in covariances]), 1)
        S = mean_map @ S @ mean_map
        S = (S + S.T) / 2
        if np.abs(mean_map - eye).max() < 1e-12:
            break
    return S


def frechet_distance(
    mean: NDArray[np.float64], S: NDArray[np.float64], other_mean: NDArray[np.float64], T: NDArray[np.float64]
) -> float:
    """Squared Wasserstein distance between two Gaussians."""
    half = root(S)
    overlap = np.sqrt(np.maximum(np.linalg.eigvalsh(half @ T @ half), 0)).sum()
    return float(((mean - other_mean) ** 2).sum() + np.trace(S) + np.trace(T) - 2 * overlap)
