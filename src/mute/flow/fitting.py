"""Fitting a flow layer by layer. The fitter accumulates layers; the `Flow` it returns is immutable."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mute.flow.checkpoints import Checkpoint
from mute.flow.covariances import class_covariances
from mute.flow.flow import Flow, separate_knots
from mute.flow.marginals import Histogram, Quantile, fit_marginals
from mute.flow.rotations import Rotation, principal_axes
from mute.flow.shrinkage import Shrunk, fit_shrunk_marginals, flat_coordinates
from mute.flow.stopping import HeldOut, StoppingRule, stopping_from_json
from mute.flow.whitening import whitening_flow
from mute.rows.maps import ApplyMarginals, Enter, Rotate, Routes
from mute.rows.reductions import ColumnMoments, FirstScan, Scatter, Spread
from mute.rows.stores import ChunkStore, MemoryStore
from mute.rows.threads import single_threaded_blas
from mute.typing import Setting

__all__ = ["FlowFitter"]

# Up to this many columns, the algebra of a layer uses one thread: waking BLAS threads would take longer than they save.
_ONE_THREAD = 1024

# Columns whose spreads differ by more than this factor are standardised first. Otherwise a float32 rotation would lose
# the small columns in the rounding of the large ones.
_SCALE_RATIO = 1e3
# Rows whose spread differs from one by more than this factor are scaled by a power of two, which is exact.
_SIZE_RATIO = 2.0**8


class FlowFitter:
    """Fits each layer on the output of the layers before it.

    With `shrinkage`, the first layer is the same for all classes except for their means. One layer for each class then
    whitens its covariance (`mute.flow.covariances`). The layers after that use `rotation` and shrunk marginals
    (`mute.flow.shrinkage`). `support`, of shape (2, K, D), is the range of each class and coordinate in the first
    layer.
    """

    def __init__(
        self,
        rows: ChunkStore,
        scan: FirstScan,
        routes: Routes,
        *,
        max_layers: int,
        rotation: Rotation,
        marginal: Histogram | Quantile,
        shrinkage: bool = False,
        rng: np.random.Generator,
        n_threads: int,
    ) -> None:
        self._rows, self._rotation, self._marginal, self._rng = rows, rotation, marginal, rng
        self._threads, self._shrinkage = n_threads, shrinkage
        d, dtype = rows.n_features, rows.dtype
        columns = rows.reduce(ColumnMoments(scan.low, scan.high, routes.held_out))
        self.center = columns.center
        self.scale = _entrance_scale(columns.spread, self.center)
        counts = scan.class_counts().sum(axis=0)
        n_classes = len(counts)
        self.counts = counts - np.bincount(routes.held_out_classes, minlength=n_classes)
        rows.map(Enter(self.center.astype(dtype), self.scale.astype(dtype), n_classes, routes))
        self.n_layers = 0
        # One array for all layers, so that the flow consists of views; pages that are never written take no memory.
        self._rotations = np.empty((max_layers, d, d), dtype)
        self._origin, self._step = np.empty((2, max_layers, n_classes, d), dtype)
        self._values = np.empty((max_layers, n_classes, d, marginal.n_values), dtype)
        self.support = np.empty((2, n_classes, d))
        # Number of leading coordinates with any spread; the others do not change after the first layer.
        self._alive = d

    @classmethod
    def of(cls, x: NDArray, z: NDArray[np.integer], *, n_threads: int, **settings: Setting) -> FlowFitter:
        """A fitter for rows in memory, where each row takes the map of its own class."""
        rows = MemoryStore(x, z, n_threads)
        scan = rows.reduce(FirstScan(x.shape[1], int(z.max()) + 1))
        return cls(rows, scan, Routes(), n_threads=n_threads, **settings)

    @property
    def n_classes(self) -> int:
        return len(self.counts)

    def fit(
        self,
        n_layers: int,
        rule: StoppingRule | None = None,
        held_out: HeldOut | None = None,
        checkpoint: Checkpoint | None = None,
        after_layer: Callable[[int], bool] = lambda t: False,
    ) -> StoppingRule | None:
        """Fit at most `n_layers` layers, after those of a checkpoint, and return the rule with its record.

        The rule watches `held_out`. The fit ends when the rule is done or when ``after_layer(t)`` is true.
        """
        held_out = held_out or HeldOut()
        rule = self._restore(checkpoint, n_layers, rule, held_out)
        for t in range(n_layers):
            new = t >= self.n_layers
            shrunk = self.add_layer() if new else None
            stop = after_layer(t)
            if new and rule is not None:
                rule.observe(self.layer(t), shrunk, held_out, self._rng, last=stop)
            stop |= rule is not None and t + 1 == self.n_layers and rule.done()
            if new and checkpoint is not None:
                checkpoint.write(t, self.layer(t), self.support, self._rng, rule)
            if stop:
                break
        return rule

    def add_layer(self) -> Shrunk | None:
        """Fit one more layer and apply it to the rows; return its shrunk marginals, if it has any."""
        t, shrunk = self.n_layers, None
        with single_threaded_blas() if self._rows.n_features <= _ONE_THREAD else nullcontext():
            if self._shrinkage and 1 <= t <= self.n_classes:
                self._whiten_class(t - 1)
            else:
                shrunk = self._gaussianize(t)
        self._rows.map(ApplyMarginals(self._origin[t], self._step[t], self._values[t]))
        self.n_layers += 1
        return shrunk

    def _gaussianize(self, t: int) -> Shrunk | None:
        rows, first, d, shrunk = self._rows, self._shrinkage and t == 0, self._alive, None
        classes = tuple(range(self.n_classes)) if first else self._rotation.classes(t, self.n_classes)
        scatter = rows.reduce(Scatter(classes, self.counts, rows.n_features))
        self._turn(t, principal_axes(scatter.within) if first else self._rotation.axes(t, scatter, rows, d, self._rng))
        spread = rows.reduce(Spread(scatter.means @ self._rotations[t], self.counts))
        if t == 0:
            self.support[:] = spread.low, spread.high
        if self._shrinkage and isinstance(self._marginal, Quantile):
            shrunk = fit_shrunk_marginals(rows, spread, self._marginal, d, share_spreads=first, n_threads=self._threads)
            self._fill(t, shrunk.origin, shrunk.step, shrunk.values)
        else:
            self._fill(t, *fit_marginals(rows, spread, self._marginal, self._threads))
        separate_knots(self._values[t])
        if first:
            self._alive = _n_alive(spread, rows.dtype)
        return shrunk

    def _turn(self, t: int, axes: NDArray[np.float64]) -> None:
        """Rotate the leading coordinates of the rows."""
        self._rotations[t] = np.eye(self._rows.n_features)
        self._rotations[t][: len(axes), : len(axes)] = axes
        self._rows.map(Rotate(self._rotations[t]))

    def _whiten_class(self, k: int) -> None:
        """Whiten class `k`; the other classes are only rotated."""
        if k == 0:
            moments = class_covariances(self._rows, self.n_classes, self._alive, self._threads)
            self._whitening = whitening_flow(*moments, self._values.shape[-1])
        layer = self._whitening.layers(k, k + 1)
        self._turn(k + 1, layer.rotations[0])
        self._fill(k + 1, layer.origin[0], layer.step[0], layer.values[0])

    def _fill(self, t: int, *tables: NDArray[np.float64]) -> None:
        """Set the marginals of layer `t`: `tables` for the leading coordinates, the identity for the others."""
        grid = np.linspace(-1, 1, self._values.shape[-1])
        self._origin[t], self._step[t], self._values[t] = -1, grid[1] - grid[0], grid
        for ours, theirs in zip((self._origin[t], self._step[t], self._values[t]), tables, strict=True):
            ours[:, : theirs.shape[1]] = theirs

    def _restore(
        self, checkpoint: Checkpoint | None, n_layers: int, rule: StoppingRule | None, held_out: HeldOut
    ) -> StoppingRule | None:
        """Start from the layers of a checkpoint, and return the rule as it was after them."""
        kept = None if checkpoint is None else checkpoint.read(n_layers)
        if kept is None or checkpoint is None:
            return rule
        if self._shrinkage and 1 < kept[0].n_layers <= self.n_classes:  # the whitening layers are made together
            kept = checkpoint.read(1) or kept
        flow, self.support[:], state = kept
        self.n_layers = n = flow.n_layers
        self._rotations[:n], self._origin[:n] = flow.rotations, flow.origin
        self._step[:n], self._values[:n] = flow.step, flow.values
        for t in range(n):
            self._rows.map(Rotate(self._rotations[t]))
            if t == 0 and self._shrinkage:
                means = np.zeros((self.n_classes, self._rows.n_features))
                self._alive = _n_alive(self._rows.reduce(Spread(means, self.counts)), self._rows.dtype)
            self._rows.map(ApplyMarginals(self._origin[t], self._step[t], self._values[t]))
        self._rng.bit_generator.state = state["random"]
        if state["stopping"] is None:
            return rule
        if len(held_out.x):
            held_out.x = flow.push(held_out.x, held_out.route, n_threads=held_out.n_threads)
        return stopping_from_json(state["stopping"])

    def layer(self, t: int) -> Flow:
        """Layer `t` as a flow."""
        return self.flow().layers(t, t + 1)

    def flow(self) -> Flow:
        """The layers so far."""
        dtype, n = self._rows.dtype, self.n_layers
        tables = self._rotations[:n], self._origin[:n], self._step[:n], self._values[:n]
        return Flow(self.center.astype(dtype), self.scale.astype(dtype), *tables)


def _n_alive(spread: Spread, dtype: np.dtype[Any]) -> int:
    return max(int((~flat_coordinates(spread, dtype)[0]).sum()), 1)


def _entrance_scale(spread: NDArray[np.float64], center: NDArray[np.float64]) -> NDArray[np.float64]:
    # After centring, a constant column consists of rounding errors: it has no spread.
    varies = spread > 1e-12 * np.abs(center)
    if not varies.any():
        return np.ones_like(spread)
    if spread[varies].max() > _SCALE_RATIO * spread[varies].min():
        return np.where(varies, spread, 1.0)
    size = np.median(spread[varies])
    if 1 / _SIZE_RATIO <= size <= _SIZE_RATIO:
        return np.ones_like(spread)
    return np.full_like(spread, np.exp2(np.round(np.log2(size))))
