"""The shared rotations: one orthogonal matrix for all classes in each layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.rows.reductions import ClassSample, Scatter
from mute.rows.stores import ChunkStore

__all__ = [
    "ROTATIONS",
    "Rotation",
    "alternate_pca",
    "global_pca",
    "make_rotation",
    "orthogonal_ica",
    "principal_axes",
    "random_rotation",
]

# FastICA works on about this many rows: its cost is linear in them and its directions settle long before.
_ICA_ROWS = 10_000
# The largest spread over the least up to which a class passes for white.
_NEARLY_WHITE = 1.25


@dataclass(frozen=True)
class Rotation:
    """A schedule of rotations.

    Attributes
    ----------
    classes : function (t, K) to tuple of int
        The classes whose covariance layer `t` asks for, taken together.
    axes : function (t, scatter, rows, d, rng) to array of shape (d, d)
        Orthogonal, axes as columns, of the first d coordinates. `scatter` holds the sums over these classes, `rows` all
        chunks.
    """

    classes: Callable[[int, int], tuple[int, ...]]
    axes: Callable[[int, Scatter, ChunkStore, int, np.random.Generator], NDArray[np.float64]]


def _one_after_the_other(t: int, n_classes: int) -> tuple[int, ...]:
    return (t % n_classes,)


def alternate_pca(t: int, scatter: Scatter, rows: ChunkStore, d: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Principal axes of class ``t mod K``, the paper's schedule."""
    return principal_axes(scatter.covariance[:d, :d])


def global_pca(t: int, scatter: Scatter, rows: ChunkStore, d: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Principal axes of all rows together."""
    return principal_axes(scatter.covariance[:d, :d])


def random_rotation(
    t: int, scatter: Scatter, rows: ChunkStore, d: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """A rotation drawn from the Haar measure."""
    q, r = np.linalg.qr(rng.standard_normal((d, d)))
    # QR alone is not uniform: its signs follow a convention.
    return q * np.sign(np.diag(r))


def orthogonal_ica(t: int, scatter: Scatter, rows: ChunkStore, d: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Orthogonal independent components of class ``t mod K``, found by FastICA; principal axes if it is far from white.

    Whitening is not a rotation. Left out, it turns independent components into correlated ones, and where the class is
    far from white the layers would go round in a circle; so these layers whiten it first.

    Limits: slow beyond a few hundred columns.
    """
    import warnings

    from scipy.linalg import polar
    from sklearn.decomposition import fastica
    from sklearn.exceptions import ConvergenceWarning

    axes = principal_axes(scatter.covariance[:d, :d])
    (k,) = scatter.classes
    share = _ICA_ROWS / scatter.counts[k]
    components = (
        rows.reduce(ClassSample(k, share, int(rng.integers(2**31 - 1)))).rows()[:, :d].astype(np.float64) @ axes
    )
    components -= components.mean(axis=0)
    spread = components.std(axis=0)
    inside = spread > 1e-8 * spread.max()
    if len(components) < 2 * inside.sum() or inside.sum() < 2 or spread.max() > _NEARLY_WHITE * spread[inside].min():
        return axes
    white = components[:, inside] / spread[inside]
    with warnings.catch_warnings():
        # Any orthogonal matrix is a valid rotation: one that FastICA has not polished to the end is still better
        # than the axes it began with.
        warnings.simplefilter("ignore", ConvergenceWarning)
        seed = int(rng.integers(2**31 - 1))
        _, unmixing, _ = fastica(white, whiten=False, fun="logcosh", max_iter=50, tol=1e-3, random_state=seed)
    turn = np.eye(len(axes))
    # FastICA stops at 1e-3 of an orthogonal matrix; the inverse is the transpose, so take the nearest one.
    turn[np.ix_(inside, inside)] = polar(unmixing.T)[0]
    return _fix_signs(axes @ turn)


ROTATIONS: dict[str, Rotation] = {
    "alternate": Rotation(_one_after_the_other, alternate_pca),
    "global": Rotation(lambda t, n_classes: tuple(range(n_classes)), global_pca),
    "random": Rotation(lambda t, n_classes: (), random_rotation),
    "ica": Rotation(_one_after_the_other, orthogonal_ica),
}


def make_rotation(name: str, also: str = "") -> Rotation:
    """Resolve the name of a rotation schedule; `also` is what else the caller takes."""
    if not isinstance(name, str) or name not in ROTATIONS:
        raise MuteError(f"rotation must be {also}one of {sorted(ROTATIONS)}, not {name!r}")
    return ROTATIONS[name]


def principal_axes(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Eigenvectors as columns, from the largest value to the least; the largest entry of each is positive."""
    from scipy.linalg import eigh

    _, axes = eigh(matrix)
    return _fix_signs(axes[:, ::-1])


def _fix_signs(axes: NDArray[np.float64]) -> NDArray[np.float64]:
    sizes = np.abs(axes)
    # The first of the largest entries: where several are equal, rounding must not choose.
    largest = np.argmax(sizes > (1 - 1e-6) * sizes.max(axis=0), axis=0)
    signs = np.sign(axes[largest, np.arange(len(axes))])
    return np.ascontiguousarray(axes * signs)
