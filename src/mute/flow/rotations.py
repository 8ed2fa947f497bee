"""The shared rotations: one orthogonal matrix for all classes in each layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.rows.reductions import ClassSample, Scatter
from mute.rows.stores import ChunkStore

__all__ = ["ROTATIONS", "Rotation", "make_rotation", "principal_axes"]

# FastICA uses about this many rows: its cost is linear in them, and its directions converge with fewer.
_ICA_ROWS = 10_000
# A class counts as white up to this ratio of its largest spread to its least.
_NEARLY_WHITE = 1.25


@dataclass(frozen=True)
class Rotation:
    """A schedule of rotations.

    ``classes(t, K)`` names the classes whose joint covariance layer `t` needs. ``axes(t, scatter, rows, d, rng)`` gives
    an orthogonal matrix (d, d) for the first d coordinates, with axes as columns. `scatter` has the sums over these
    classes.
    """

    classes: Callable[[int, int], tuple[int, ...]]
    axes: Callable[[int, Scatter, ChunkStore, int, np.random.Generator], NDArray[np.float64]]


def _one_after_the_other(t: int, n_classes: int) -> tuple[int, ...]:
    return (t % n_classes,)


def _pca(t: int, scatter: Scatter, rows: ChunkStore, d: int, rng: np.random.Generator) -> NDArray[np.float64]:
    return principal_axes(scatter.covariance[:d, :d])


def _haar(t: int, scatter: Scatter, rows: ChunkStore, d: int, rng: np.random.Generator) -> NDArray[np.float64]:
    q, r = np.linalg.qr(rng.standard_normal((d, d)))
    # QR alone is not uniform: its signs follow a convention.
    return q * np.sign(np.diag(r))


def _ica(t: int, scatter: Scatter, rows: ChunkStore, d: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Orthogonal independent components of class ``t mod K`` by FastICA, or principal axes if it is far from white.

    Whitening is not a rotation. Without it, independent components are correlated, and the layers would repeat
    themselves. So a class that is far from white gets principal axes first. FastICA is slow beyond a few hundred
    columns.
    """
    import warnings

    from scipy.linalg import polar
    from sklearn.decomposition import fastica
    from sklearn.exceptions import ConvergenceWarning

    axes = principal_axes(scatter.covariance[:d, :d])
    (k,) = scatter.classes
    sample = ClassSample(k, _ICA_ROWS / scatter.counts[k], int(rng.integers(2**31 - 1)))
    components = rows.reduce(sample).rows()[:, :d].astype(np.float64) @ axes
    components -= components.mean(axis=0)
    spread = components.std(axis=0)
    inside = spread > 1e-8 * spread.max()
    if len(components) < 2 * inside.sum() or inside.sum() < 2 or spread.max() > _NEARLY_WHITE * spread[inside].min():
        return axes
    white = components[:, inside] / spread[inside]
    with warnings.catch_warnings():
        # Any orthogonal matrix is a valid rotation, so FastICA need not converge.
        warnings.simplefilter("ignore", ConvergenceWarning)
        seed = int(rng.integers(2**31 - 1))
        _, unmixing, _ = fastica(white, whiten=False, fun="logcosh", max_iter=50, tol=1e-3, random_state=seed)
    turn = np.eye(len(axes))
    # FastICA stops at 1e-3 from an orthogonal matrix, but the inverse must be the transpose: take the nearest one.
    turn[np.ix_(inside, inside)] = polar(unmixing.T)[0]
    return _fix_signs(axes @ turn)


ROTATIONS: dict[str, Rotation] = {
    "alternate": Rotation(_one_after_the_other, _pca),
    "global": Rotation(lambda t, n_classes: tuple(range(n_classes)), _pca),
    "random": Rotation(lambda t, n_classes: (), _haar),
    "ica": Rotation(_one_after_the_other, _ica),
}


def make_rotation(name: str) -> Rotation:
    """Rotation schedule of this name."""
    if not isinstance(name, str) or name not in ROTATIONS:
        raise MuteError(f"rotation must be one of {sorted(ROTATIONS)}, not {name!r}")
    return ROTATIONS[name]


def principal_axes(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Eigenvectors as columns, by decreasing eigenvalue; the largest entry of each is positive."""
    from scipy.linalg import eigh

    _, axes = eigh(matrix)
    return _fix_signs(axes[:, ::-1])


def _fix_signs(axes: NDArray[np.float64]) -> NDArray[np.float64]:
    sizes = np.abs(axes)
    # The first of the largest entries, so that rounding does not choose among equal ones.
    largest = np.argmax(sizes > (1 - 1e-6) * sizes.max(axis=0), axis=0)
    signs = np.sign(axes[largest, np.arange(len(axes))])
    return np.ascontiguousarray(axes * signs)
