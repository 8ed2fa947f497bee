"""The shared rotations: one orthogonal matrix for all classes in each layer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.threads import for_each

__all__ = ["ROTATIONS", "alternate_pca", "global_pca", "make_rotation", "orthogonal_ica", "random_rotation"]

_CHUNK = 4096
# FastICA works on at most this many rows: its cost is linear in them and its directions settle long before.
_ICA_ROWS = 10_000

Rotation = Callable[[int, NDArray, NDArray, np.random.Generator, int], NDArray[np.float64]]


def alternate_pca(
    t: int, work: NDArray, bounds: NDArray, rng: np.random.Generator, n_threads: int
) -> NDArray[np.float64]:
    """Principal axes of class ``t mod K``, the paper's schedule.

    Parameters
    ----------
    t : int
        Number of the layer.
    work : array of shape (D, n)
        Rows so far, feature-major, grouped by true class.
    bounds : array of shape (K + 1,)
        Where each class begins and ends.
    rng : numpy Generator
        Unused by the rotations that need no chance.

    Returns
    -------
    array of shape (D, D)
        Orthogonal, axes as columns, from the largest spread to the least; the largest entry of each is positive.
    """
    k = t % (len(bounds) - 1)
    return _principal_axes(covariance(work, bounds[k], bounds[k + 1], n_threads))


def global_pca(t: int, work: NDArray, bounds: NDArray, rng: np.random.Generator, n_threads: int) -> NDArray[np.float64]:
    """Principal axes of all rows together."""
    return _principal_axes(covariance(work, 0, work.shape[1], n_threads))


def random_rotation(
    t: int, work: NDArray, bounds: NDArray, rng: np.random.Generator, n_threads: int
) -> NDArray[np.float64]:
    """A rotation drawn from the Haar measure."""
    q, r = np.linalg.qr(rng.standard_normal((len(work), len(work))))
    # QR alone is not uniform: its signs follow a convention.
    return q * np.sign(np.diag(r))


def orthogonal_ica(
    t: int, work: NDArray, bounds: NDArray, rng: np.random.Generator, n_threads: int
) -> NDArray[np.float64]:
    """Orthogonal independent components of class ``t mod K``: principal axes, then FastICA among the whitened ones.

    Limits: the whitening is left out of the rotation, so that for a class far from white its axes are only near
    those of the least dependence. Slow beyond a few hundred columns.
    """
    import warnings

    from scipy.linalg import polar
    from sklearn.decomposition import fastica
    from sklearn.exceptions import ConvergenceWarning

    k = t % (len(bounds) - 1)
    axes = alternate_pca(t, work, bounds, rng, n_threads)
    n = bounds[k + 1] - bounds[k]
    rows = bounds[k] + np.sort(rng.choice(n, min(n, _ICA_ROWS), replace=False))
    components = work[:, rows].T.astype(np.float64) @ axes
    components -= components.mean(axis=0)
    spread = components.std(axis=0)
    inside = spread > 1e-8 * spread.max()
    if len(rows) < 2 * inside.sum() or inside.sum() < 2:
        return axes
    white = components[:, inside] / spread[inside]
    with warnings.catch_warnings():
        # Any orthogonal matrix is a valid rotation: one that FastICA has not polished to the end is still better
        # than the axes it began with.
        warnings.simplefilter("ignore", ConvergenceWarning)
        seed = int(rng.integers(2**31 - 1))
        _, unmixing, _ = fastica(white, whiten=False, fun="logcosh", max_iter=50, tol=1e-3, random_state=seed)
    turn = np.eye(len(work))
    # FastICA stops at 1e-3 of an orthogonal matrix; the inverse is the transpose, so take the nearest one.
    turn[np.ix_(inside, inside)] = polar(unmixing.T)[0]
    return _fix_signs(axes @ turn)


ROTATIONS: dict[str, Rotation] = {
    "alternate": alternate_pca,
    "global": global_pca,
    "random": random_rotation,
    "ica": orthogonal_ica,
}


def make_rotation(name: str) -> Rotation:
    """Resolve the name of a rotation schedule."""
    if not isinstance(name, str) or name not in ROTATIONS:
        raise MuteError(f"rotation must be one of {sorted(ROTATIONS)}, not {name!r}")
    return ROTATIONS[name]


def covariance(work: NDArray, start: int, stop: int, n_threads: int) -> NDArray[np.float64]:
    """Covariance of the rows `start` to `stop`, summed in float64 over chunks."""
    n, d = stop - start, len(work)
    chunks = [slice(s, min(s + _CHUNK, stop)) for s in range(start, stop, _CHUNK)]
    total, square = np.zeros(d), np.zeros((d, d))
    products: list = [None] * min(n_threads, len(chunks))

    # Sums are added in the order of the chunks whatever the number of threads, so that the result does not depend
    # on it.
    for first in range(0, len(chunks), len(products)):
        group = chunks[first : first + len(products)]

        def multiply(part: slice, group: list[slice] = group) -> None:
            chunk = work[:, part]
            products[group.index(part)] = chunk @ chunk.T, chunk.sum(axis=1, dtype=np.float64)

        for_each(multiply, group, n_threads)
        for product, sums in products[: len(group)]:
            square += product
            total += sums
    mean = total / n
    return (square / n - np.outer(mean, mean)) * (n / max(n - 1, 1))


def _principal_axes(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    from scipy.linalg import eigh

    _, axes = eigh(matrix)
    return _fix_signs(axes[:, ::-1])


def _fix_signs(axes: NDArray[np.float64]) -> NDArray[np.float64]:
    sizes = np.abs(axes)
    # The first of the largest entries: where several are equal, rounding must not choose.
    largest = np.argmax(sizes > (1 - 1e-6) * sizes.max(axis=0), axis=0)
    signs = np.sign(axes[largest, np.arange(len(axes))])
    return np.ascontiguousarray(axes * signs)
