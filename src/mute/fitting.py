"""Fitting a flow, one layer at a time. The fitter accumulates; the `Flow` it gives is immutable."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mute.files import release_pages
from mute.flow import BLOCK_ROWS, Flow, _separate
from mute.marginals import Histogram, Quantile, fit_marginals
from mute.rotations import Rotation
from mute.threads import for_each

__all__ = ["FlowFitter"]

# Columns whose spreads differ by more than this are brought to one scale first: rotated together in float32, the
# small ones would drown in the rounding of the large.
_SCALE_RATIO = 1e3
# Blocks of a mapped file that are in memory at one time.
_BLOCKS_AT_ONCE = 16


class FlowFitter:
    """Holds the rows as they are carried through the layers.

    Parameters
    ----------
    x : array of shape (n, D), float32 or float64
    z : integer array of shape (n,)
        True class, 0 to K - 1: densities are fitted on it.
    routed : integer array of shape (n,)
        The class whose map moves the row.
    rows : integer array, optional
        The rows to fit on; all when None.
    max_layers : int
    rotation, marginal
        As `make_rotation` and `make_marginal` give them.
    """

    def __init__(
        self,
        x: NDArray[np.floating],
        z: NDArray[np.integer],
        routed: NDArray[np.integer],
        *,
        rows: NDArray[np.integer] | None = None,
        max_layers: int,
        rotation: Rotation,
        marginal: Histogram | Quantile,
        rng: np.random.Generator,
        n_threads: int,
    ) -> None:
        rows = np.arange(len(x)) if rows is None else rows
        n, d = len(rows), x.shape[1]
        n_classes = int(z.max()) + 1
        # Grouped by true class and, within it, by route: both the fit and the movement work on contiguous runs.
        order = np.lexsort((routed[rows], z[rows]))
        self._bounds = np.append(0, np.cumsum(np.bincount(z[rows], minlength=n_classes)))
        pairs, counts = np.unique(np.stack([z[rows], routed[rows]]), axis=1, return_counts=True)
        self._routes = pairs[1].astype(np.int64)
        self._route_bounds = np.append(0, np.cumsum(counts))
        self._rotation, self._marginal, self._rng, self._threads = rotation, marginal, rng, n_threads
        self.n_layers = 0
        self._work = np.empty((d, n), x.dtype)
        # Room for all layers, so that the flow is made of views; what no layer fills takes no memory.
        self._rotations = np.empty((max_layers, d, d), x.dtype)
        self._origin, self._step = np.empty((2, max_layers, n_classes, d), x.dtype)
        self._values = np.empty((max_layers, n_classes, d, marginal.n_values), x.dtype)
        self.support = np.empty((2, n_classes, d))

        place = np.empty(n, np.int64)
        place[order] = np.arange(n)

        # In the order of the rows, so that a mapped file is read from end to end.
        def fetch(part: slice) -> None:
            self._work[:, place[part]] = x[rows[part]].T

        blocks = self._row_blocks()
        for first in range(0, len(blocks), _BLOCKS_AT_ONCE):
            release_pages(x)
            for_each(fetch, blocks[first : first + _BLOCKS_AT_ONCE], n_threads)
        release_pages(x)
        self.center = self._work.mean(axis=1, dtype=np.float64)
        self.scale = np.empty(d)

        def center(part: slice) -> None:
            self._work[part] -= self.center[part, None].astype(x.dtype)
            # One column at a time: numpy makes a copy in float64.
            self.scale[part] = [column.std(dtype=np.float64) for column in self._work[part]]

        for_each(center, self._column_blocks(), n_threads)
        self.scale = _entrance_scale(self.scale, self.center)
        if (self.scale != 1).any():
            self._work /= self.scale[:, None].astype(x.dtype)

    def _column_blocks(self) -> list[slice]:
        d = len(self._work)
        return [slice(s, min(s + 32, d)) for s in range(0, d, 32)]

    def _row_blocks(self) -> list[slice]:
        n = self._work.shape[1]
        return [slice(s, min(s + BLOCK_ROWS, n)) for s in range(0, n, BLOCK_ROWS)]

    @property
    def n_classes(self) -> int:
        return len(self._bounds) - 1

    def add_layer(self) -> None:
        """Fit one more layer and carry the rows through it."""
        from mute import kernels

        t = self.n_layers
        self._rotations[t] = self._rotation(t, self._work, self._bounds, self._rng, self._threads)
        turn = self._rotations[t].T

        def rotate(part: slice) -> None:
            self._work[:, part] = turn @ self._work[:, part]

        for_each(rotate, self._row_blocks(), self._threads)
        origin, step, values, support = fit_marginals(self._work, self._bounds, self._marginal, self._threads)
        if t == 0:
            self.support[:] = support
        self._origin[t], self._step[t], self._values[t] = origin, step, values
        _separate(self._values[t])
        tables = self._origin[t], self._step[t], self._values[t]

        def move(part: slice) -> None:
            kernels.push(self._work[part], self._route_bounds, self._routes, *(table[:, part] for table in tables))

        for_each(move, self._column_blocks(), self._threads)
        self.n_layers += 1

    def layer(self, t: int) -> Flow:
        """Layer `t` as a flow of its own."""
        return self._flow(t, t + 1)

    def flow(self) -> Flow:
        """The layers so far."""
        return self._flow(0, self.n_layers)

    def _flow(self, start: int, stop: int) -> Flow:
        dtype = self._work.dtype
        return Flow(
            center=self.center.astype(dtype) if start == 0 else np.zeros(len(self._work), dtype),
            scale=self.scale.astype(dtype) if start == 0 else np.ones(len(self._work), dtype),
            rotations=self._rotations[start:stop],
            origin=self._origin[start:stop],
            step=self._step[start:stop],
            values=self._values[start:stop],
        )


def _entrance_scale(spread: NDArray[np.float64], center: NDArray[np.float64]) -> NDArray[np.float64]:
    # What is left of a constant column after centring is rounding: no spread at all.
    varies = spread > 1e-12 * np.abs(center)
    if not varies.any() or spread[varies].max() <= _SCALE_RATIO * spread[varies].min():
        return np.ones_like(spread)
    return np.where(varies, spread, 1.0)
