"""Fitting a flow, one layer at a time. The fitter accumulates; the `Flow` it gives is immutable."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mute.flow import Flow, _separate
from mute.holders import Holder, MemoryHolder
from mute.marginals import Histogram, Quantile, fit_marginals
from mute.pieces import Columns, Enter, Look, Move, Routes, Scatter, Spread, Turn
from mute.rotations import Rotation

__all__ = ["FlowFitter"]

# Columns whose spreads differ by more than this are brought to one scale first: rotated together in float32, the
# small ones would drown in the rounding of the large.
_SCALE_RATIO = 1e3
# Rows whose spread is further from one than this are scaled, by a power of two, which rounds nothing.
_SIZE_RATIO = 2.0**8


class FlowFitter:
    """Carries rows through the layers, fitting each on what the ones before it have left.

    Parameters
    ----------
    rows : Holder
        Raw rows.
    look : Look
        The first look at them.
    routes : Routes
        The class whose map moves each row, and the rows that are left out.
    max_layers : int
    rotation, marginal
        As `make_rotation` and `make_marginal` give them.

    Attributes
    ----------
    support : array of shape (2, K, D)
        The least and the largest value of each class and coordinate in the first layer.
    """

    def __init__(
        self,
        rows: Holder,
        look: Look,
        routes: Routes,
        *,
        max_layers: int,
        rotation: Rotation,
        marginal: Histogram | Quantile,
        rng: np.random.Generator,
        n_threads: int,
    ) -> None:
        self._rows, self._rotation, self._marginal, self._rng = rows, rotation, marginal, rng
        self._threads = n_threads
        d, dtype = rows.n_features, rows.dtype
        columns = rows.measure(Columns(look.low, look.high, routes.held))
        self.center = columns.center
        self.scale = _entrance_scale(columns.spread, self.center)
        self.counts = look.class_counts().sum(axis=0)
        held = routes.held_classes
        self.counts = self.counts - np.bincount(held, minlength=len(self.counts))
        n_classes = len(self.counts)
        rows.change(Enter(self.center.astype(dtype), self.scale.astype(dtype), n_classes, routes))
        self.n_layers = 0
        # Room for all layers, so that the flow is made of views; what no layer fills takes no memory.
        self._rotations = np.empty((max_layers, d, d), dtype)
        self._origin, self._step = np.empty((2, max_layers, n_classes, d), dtype)
        self._values = np.empty((max_layers, n_classes, d, marginal.n_values), dtype)
        self.support = np.empty((2, n_classes, d))

    @classmethod
    def of(cls, x: NDArray, z: NDArray[np.integer], *, n_threads: int, **settings: Any) -> FlowFitter:
        """For rows in memory, each moved by the map of its own class."""
        rows = MemoryHolder(x, z, n_threads)
        look = rows.measure(Look(x.shape[1], int(z.max()) + 1))
        return cls(rows, look, Routes(), n_threads=n_threads, **settings)

    @property
    def n_classes(self) -> int:
        return len(self.counts)

    def add_layer(self) -> None:
        """Fit one more layer and carry the rows through it."""
        t, rows = self.n_layers, self._rows
        scatter = rows.measure(Scatter(self._rotation.classes(t, self.n_classes), self.counts, rows.n_features))
        axes = self._rotation.axes(t, scatter, rows, self._rng)
        self._rotations[t] = axes
        rows.change(Turn(self._rotations[t]))
        spread = rows.measure(Spread(scatter.means @ axes, self.counts))
        if t == 0:
            self.support[:] = spread.low, spread.high
        self._origin[t], self._step[t], self._values[t] = fit_marginals(rows, spread, self._marginal, self._threads)
        _separate(self._values[t])
        rows.change(Move(self._origin[t], self._step[t], self._values[t]))
        self.n_layers += 1

    def restore(self, flow: Flow, support: NDArray[np.float64]) -> None:
        """Begin with layers that were fitted on the same rows before."""
        n = flow.n_layers
        for ours, theirs in ((self._rotations, flow.rotations), (self._origin, flow.origin)):
            ours[:n] = theirs
        self._step[:n], self._values[:n], self.support[:] = flow.step, flow.values, support
        for t in range(n):
            self._rows.change(Turn(self._rotations[t]))
            self._rows.change(Move(self._origin[t], self._step[t], self._values[t]))
        self.n_layers = n

    def layer(self, t: int) -> Flow:
        """Layer `t` as a flow of its own."""
        return self._flow(t, t + 1)

    def flow(self) -> Flow:
        """The layers so far."""
        return self._flow(0, self.n_layers)

    def _flow(self, start: int, stop: int) -> Flow:
        dtype, d = self._rows.dtype, self._rows.n_features
        return Flow(
            center=self.center.astype(dtype) if start == 0 else np.zeros(d, dtype),
            scale=self.scale.astype(dtype) if start == 0 else np.ones(d, dtype),
            rotations=self._rotations[start:stop],
            origin=self._origin[start:stop],
            step=self._step[start:stop],
            values=self._values[start:stop],
        )


def _entrance_scale(spread: NDArray[np.float64], center: NDArray[np.float64]) -> NDArray[np.float64]:
    # What is left of a constant column after centring is rounding: no spread at all.
    varies = spread > 1e-12 * np.abs(center)
    if not varies.any():
        return np.ones_like(spread)
    if spread[varies].max() > _SCALE_RATIO * spread[varies].min():
        return np.where(varies, spread, 1.0)
    size = np.median(spread[varies])
    if 1 / _SIZE_RATIO <= size <= _SIZE_RATIO:
        return np.ones_like(spread)
    return np.full_like(spread, np.exp2(np.round(np.log2(size))))
