"""Fitting a flow, one layer at a time. The fitter accumulates; the `Flow` it gives is immutable."""

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

__all__ = ["FlowFitter"]

# Up to so many columns the algebra of a layer takes one thread: waking those of BLAS between two passes over the rows
# takes longer than they save.
_ONE_THREAD = 1024

# Columns whose spreads differ by more than this are brought to one scale first: rotated together in float32, the
# small ones would drown in the rounding of the large.
_SCALE_RATIO = 1e3
# Rows whose spread is further from one than this are scaled, by a power of two, which rounds nothing.
_SIZE_RATIO = 2.0**8


class FlowFitter:
    """Carries rows through the layers, fitting each on what the ones before it have left.

    Parameters
    ----------
    rows : ChunkStore
        Raw rows.
    scan : FirstScan
        The first scan of them.
    routes : Routes
        The class whose map moves each row, and the rows that are left out.
    max_layers : int
    rotation, marginal
        As `make_rotation` and `make_marginal` give them.
    shrinkage : bool
        Let the classes share what does not differ beyond chance. The first layer is the same for all classes but for
        their means; one layer for each class then brings its covariance to the identity
        (`mute.flow.covariances`); only after that does `rotation` begin, with shrunk marginals (`mute.flow.shrinkage`).

    Attributes
    ----------
    support : array of shape (2, K, D)
        The least and the largest value of each class and coordinate in the first layer.
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
        self.counts = scan.class_counts().sum(axis=0)
        held = routes.held_out_classes
        self.counts = self.counts - np.bincount(held, minlength=len(self.counts))
        n_classes = len(self.counts)
        rows.map(Enter(self.center.astype(dtype), self.scale.astype(dtype), n_classes, routes))
        self.n_layers = 0
        # Room for all layers, so that the flow is made of views; what no layer fills takes no memory.
        self._rotations = np.empty((max_layers, d, d), dtype)
        self._origin, self._step = np.empty((2, max_layers, n_classes, d), dtype)
        self._values = np.empty((max_layers, n_classes, d, marginal.n_values), dtype)
        self.support = np.empty((2, n_classes, d))
        # Coordinates, the first ones, that have any spread; the others are left alone after the first layer.
        self._alive = d

    @classmethod
    def of(cls, x: NDArray, z: NDArray[np.integer], *, n_threads: int, **settings: Any) -> FlowFitter:
        """For rows in memory, each moved by the map of its own class."""
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
        """Fit layer after layer, after those that a checkpoint has kept, until the rule or `after_layer` says stop.

        Parameters
        ----------
        n_layers : int
            At most so many.
        rule : StoppingRule, optional
        held_out : HeldOut, optional
            Rows that the rule watches; they are carried along.
        checkpoint : Checkpoint, optional
        after_layer : function of the number of the layer, default: never stop
            Called after each layer, restored ones too; a true answer stops the fit.

        Returns
        -------
        StoppingRule or None
            The rule with its record, that of the checkpoint included.
        """
        held_out = held_out or HeldOut()
        rule = self._restore(checkpoint, n_layers, rule, held_out)
        for t in range(n_layers):
            new = t >= self.n_layers
            shrunk = self.add_layer() if new else None
            stop = after_layer(t)
            if new and rule is not None:
                rule.observe(self.layer(t), shrunk, held_out, self._rng, last=stop)
            if rule is not None and t + 1 == self.n_layers and rule.done():
                stop = True
            if new and checkpoint is not None:
                checkpoint.write(t, self.layer(t), self.support, self._rng, rule)
            if stop:
                break
        return rule

    def add_layer(self) -> Shrunk | None:
        """Fit one more layer and carry the rows through it; shrunk marginals, where it has any, are told."""
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
        rows, first, d = self._rows, self._shrinkage and t == 0, self._alive
        classes = tuple(range(self.n_classes)) if first else self._rotation.classes(t, self.n_classes)
        scatter = rows.reduce(Scatter(classes, self.counts, rows.n_features))
        self._turn(t, principal_axes(scatter.within) if first else self._rotation.axes(t, scatter, rows, d, self._rng))
        spread = rows.reduce(Spread(scatter.means @ self._rotations[t], self.counts))
        if t == 0:
            self.support[:] = spread.low, spread.high
        shrunk = None
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
        """Turn the leading coordinates of the rows."""
        self._rotations[t] = np.eye(self._rows.n_features)
        self._rotations[t][: len(axes), : len(axes)] = axes
        self._rows.map(Rotate(self._rotations[t]))

    def _whiten_class(self, k: int) -> None:
        """Bring mean and covariance of class `k` to zero and the identity; the others are only turned."""
        if k == 0:
            moments = class_covariances(self._rows, self.n_classes, self._alive, self._threads)
            self._whitening = whitening_flow(*moments, self._values.shape[-1])
        layer = self._whitening.layers(k, k + 1)
        self._turn(k + 1, layer.rotations[0])
        self._fill(k + 1, layer.origin[0], layer.step[0], layer.values[0])

    def _fill(self, t: int, *tables: NDArray[np.float64]) -> None:
        """The marginals of layer `t`, of the leading coordinates; the others stay as they are."""
        grid = np.linspace(-1, 1, self._values.shape[-1])
        self._origin[t], self._step[t], self._values[t] = -1, grid[1] - grid[0], grid
        for ours, theirs in zip((self._origin[t], self._step[t], self._values[t]), tables, strict=True):
            ours[:, : theirs.shape[1]] = theirs

    def _restore(
        self, checkpoint: Checkpoint | None, n_layers: int, rule: StoppingRule | None, held_out: HeldOut
    ) -> StoppingRule | None:
        """Begin with the layers that a checkpoint has kept; the rule as it was after them."""
        kept = None if checkpoint is None else checkpoint.read(n_layers)
        if kept is None or checkpoint is None:
            return rule
        if self._shrinkage and 1 < kept[0].n_layers <= self.n_classes:  # the layers of the classes are made together
            kept = checkpoint.read(1) or kept
        flow, support, state = kept
        self._take(flow, support)
        self._rng.bit_generator.state = state["random"]
        if state["stopping"] is None:
            return rule
        if len(held_out.x):
            held_out.x = flow.push(held_out.x, held_out.route, n_threads=held_out.n_threads)
        return stopping_from_json(state["stopping"])

    def _take(self, flow: Flow, support: NDArray[np.float64]) -> None:
        """Begin with layers that were fitted on the same rows before."""
        n = flow.n_layers
        for ours, theirs in ((self._rotations, flow.rotations), (self._origin, flow.origin)):
            ours[:n] = theirs
        self._step[:n], self._values[:n], self.support[:] = flow.step, flow.values, support
        for t in range(n):
            self._rows.map(Rotate(self._rotations[t]))
            if t == 0 and self._shrinkage:
                means = np.zeros((self.n_classes, self._rows.n_features))
                self._alive = _n_alive(self._rows.reduce(Spread(means, self.counts)), self._rows.dtype)
            self._rows.map(ApplyMarginals(self._origin[t], self._step[t], self._values[t]))
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


def _n_alive(spread: Spread, dtype: np.dtype[Any]) -> int:
    return max(int((~flat_coordinates(spread, dtype)[0]).sum()), 1)


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
