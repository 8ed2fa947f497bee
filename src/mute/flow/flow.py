r"""The flow: layers of one shared rotation and class-conditional marginals.

.. math:: f_k = \psi_k^{(T-1)} \circ R^{(T-1)} \circ \dots \circ \psi_k^{(0)} \circ R^{(0)}
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mute.rows.detect import require_torch
from mute.rows.threads import for_each, resolve_threads
from mute.typing import Ops, Value

if TYPE_CHECKING:
    import torch

    from mute.flow.module import FlowModule

__all__ = ["BLOCK_ROWS", "TABLES", "Flow", "separate_knots"]

# The arrays of a flow that have one entry for each layer.
TABLES = ("rotations", "origin", "step", "values")

# Rows of a block. Larger blocks do not fit twice into the second- and third-level caches. With smaller blocks the
# matrix products are slower and each layer's tables are read more often.
BLOCK_ROWS = 2048

# Blocks are padded to a multiple of this many rows, so that BLAS takes the same path for few rows as for many.
_ROW_MULTIPLE = 16


@dataclass(frozen=True, eq=False)
class Flow:
    r"""Class-conditional bijections of :math:`R^D` that carry each class to one shared law.

    A row enters as ``(x - center) / scale``. Layer ``t`` multiplies it by ``rotations[t]`` and applies the
    piecewise-linear marginal of its class to each coordinate. All arrays are read-only and of one dtype.

    Parameters
    ----------
    center, scale : array of shape (D,)
        Shared by all classes.
    rotations : array of shape (T, D, D)
        Orthogonal matrices, which multiply a row from the right.
    origin, step : array of shape (T, K, D)
        The uniform grid of each marginal.
    values : array of shape (T, K, D, M)
        Values at the grid's knots, strictly increasing along the last axis.

    See Also
    --------
    MUtE, RBIG : Fit a flow (`flow_`).
    mute.flow.module.FlowModule : The same maps as a torch module.

    Notes
    -----
    *Limits.* Outside its grid a marginal is a straight line, so far rows are never clipped. ``pull`` undoes ``push`` up
    to rounding, which grows with the inverse of the smallest slope of each layer.

    Examples
    --------
    `pull` undoes `push`:

    >>> import numpy as np
    >>> from mute.flow import Flow
    >>> flow = Flow(center=np.zeros(2), scale=np.ones(2), rotations=np.eye(2)[None], origin=np.zeros((1, 1, 2)),
    ...             step=np.ones((1, 1, 2)), values=np.array([[[[0.0, 1.0, 3.0], [0.0, 2.0, 3.0]]]]))
    >>> q = flow.push(np.array([[1.5, 0.5], [-4.0, 9.0]]), 0)
    >>> q
    array([[ 2.,  1.],
           [-4., 10.]])
    >>> flow.pull(q, 0)
    array([[ 1.5,  0.5],
           [-4. ,  9. ]])
    """

    center: NDArray[np.floating]
    scale: NDArray[np.floating]
    rotations: NDArray[np.floating]
    origin: NDArray[np.floating]
    step: NDArray[np.floating]
    values: NDArray[np.floating]

    def __post_init__(self) -> None:
        for name in self.arrays():
            array = getattr(self, name).view()
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    @staticmethod
    def arrays() -> tuple[str, ...]:
        """Names of the arrays that make up a flow."""
        return ("center", "scale", *TABLES)

    @property
    def n_layers(self) -> int:
        return self.values.shape[0]

    @property
    def n_classes(self) -> int:
        return self.values.shape[1]

    @property
    def n_features(self) -> int:
        return self.values.shape[2]

    @property
    def dtype(self) -> np.dtype:
        return self.values.dtype

    def __repr__(self) -> str:
        return (
            f"Flow(n_layers={self.n_layers}, n_classes={self.n_classes}, n_features={self.n_features}, "
            f"knots={self.values.shape[3]}, dtype={self.dtype.name})"
        )

    def layers(self, start: int, stop: int) -> Flow:
        """The layers from `start` to `stop` as a new flow (views, no copy)."""
        tables = {name: getattr(self, name)[start:stop] for name in TABLES}
        if start > 0:
            tables |= {"center": np.zeros_like(self.center), "scale": np.ones_like(self.scale)}
        return replace(self, **tables)

    def then(self, other: Flow) -> Flow:
        """This flow followed by the layers of `other`, which must have neither center nor scale."""
        if other.center.any() or (other.scale != 1).any():
            raise ValueError("the second flow must have center 0 and scale 1")
        return replace(self, **{name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in TABLES})

    def astype(self, dtype: np.typing.DTypeLike) -> Flow:
        """The same flow for rows of another precision."""
        return self if np.dtype(dtype) == self.dtype else self._other_precision

    @cached_property
    def _other_precision(self) -> Flow:
        dtype = np.dtype(np.float32 if self.dtype == np.float64 else np.float64)
        arrays = {name: getattr(self, name).astype(dtype) for name in self.arrays()}
        if dtype == np.float64:
            # The inverse of a rotation is taken to be its transpose, but float32 rotations are orthogonal to 1e-7
            # only. One Newton step of the polar decomposition makes them orthogonal to 1e-14.
            for v in arrays["rotations"]:
                v[...] = 1.5 * v - 0.5 * v @ (v.T @ v)
        else:
            # Rounding may make two neighbouring knots equal, but the map must increase strictly.
            separate_knots(arrays["values"])
        return replace(self, **arrays)

    def push(
        self, x: NDArray, k: int | NDArray, *, n_threads: int | None = None, out: NDArray | None = None
    ) -> NDArray[np.floating]:
        """Map rows of class `k` to the shared law: ``f_k(x)``.

        Parameters
        ----------
        x : array of shape (n, D), float32 or float64
        k : int or integer array of shape (n,)
            Encoded class of all rows, or of each row.
        n_threads : int, optional
            All cores when None.
        out : array of shape (n, D), optional
            Array for the result; it may be `x`.
        """
        return self.astype(x.dtype)._run(x, k, _push_block, n_threads, out)

    def pull(
        self, q: NDArray, k: int | NDArray, *, n_threads: int | None = None, out: NDArray | None = None
    ) -> NDArray[np.floating]:
        """Undo `push` for class `k`: ``f_k^{-1}(q)``. The parameters are those of `push`."""
        return self.astype(q.dtype)._run(q, k, _pull_block, n_threads, out)

    def push_with_logdet(
        self, x: NDArray, k: int | NDArray, *, n_threads: int | None = None
    ) -> tuple[NDArray[np.floating], NDArray[np.float64]]:
        """`push`, and the log-determinant of its Jacobian at each row."""
        logdet = np.empty(len(x), np.float64)

        def work(flow: Flow, buffers: _Buffers, rows: NDArray, bounds: NDArray, labels: NDArray) -> None:
            sums = np.full(len(rows), -np.log(flow.scale.astype(np.float64)).sum())
            _push_block(flow, buffers, rows, bounds, labels, sums)
            logdet[rows] = sums

        return self.astype(x.dtype)._run(x, k, work, n_threads, None), logdet

    def to_torch(self, *, dtype: str | None = None, device: torch.device | str | None = None) -> FlowModule:
        """The flow as a `mute.flow.module.FlowModule`, a torch module with `push` and `pull` of tensors."""
        require_torch("a flow as a module")
        from mute.flow.module import FlowModule

        return FlowModule(self, dtype=dtype, device=device)

    def push_with(self, ops: Ops, x: Value, k: Value) -> Value:
        """`push` in the operations of `ops` (see `mute.flow.ops`), for exports."""
        if hasattr(ops, "flow_module"):  # these operations run now; they do not build a graph
            return ops.flow_module(self).push(x, k)
        flow = self.astype(ops.precision)
        x = (x - ops.array("center", flow.center)) / ops.array("scale", flow.scale)
        start = flow._table_starts(ops, k)
        for t in range(flow.n_layers):
            table, origin, step, rotation = flow._layer_with(ops, t, k)
            place = (ops.linear(x, rotation) - origin) / step
            j = ops.integer(ops.clip(place, 0, self.values.shape[3] - 2))
            low, high = ops.take(table, start + j), ops.take(table, start + j + 1)
            x = low + (place - ops.real(j)) * (high - low)
        return x

    def pull_with(self, ops: Ops, q: Value, k: Value) -> Value:
        """`pull` in the operations of `ops`."""
        if hasattr(ops, "flow_module"):
            return ops.flow_module(self).pull(q, k)
        flow = self.astype(ops.precision)
        start = flow._table_starts(ops, k)
        last = flow.values.shape[3] - 2
        for t in reversed(range(flow.n_layers)):
            table, origin, step, rotation = flow._layer_with(ops, t, k)
            j = start - start  # the segment that contains q, by bisection
            for bit in reversed(range(last.bit_length())):
                ahead = ops.least(j + (1 << bit), last)
                j = ops.where(ops.take(table, start + ahead) <= q, ahead, j)
            low, high = ops.take(table, start + j), ops.take(table, start + j + 1)
            q = ops.linear(origin + step * (ops.real(j) + (q - low) / (high - low)), ops.transpose(rotation))
        return q * ops.array("scale", flow.scale) + ops.array("center", flow.center)

    def _table_starts(self, ops: Ops, k: Value) -> Value:
        """Start of the table of each row's class and each column in the flattened values of a layer."""
        _, n_classes, d, m = self.values.shape
        return ops.take(ops.array("starts", np.arange(n_classes * d).reshape(n_classes, d) * m), k)

    def _layer_with(self, ops: Ops, t: int, k: Value) -> tuple[Value, Value, Value, Value]:
        """Flattened values of a layer, origin and step of each row, and the rotation."""
        table = ops.array(f"layer{t}_values", self.values[t].reshape(-1))
        origin, step = (ops.take(ops.array(f"layer{t}_{n}", getattr(self, n)[t]), k) for n in ("origin", "step"))
        return table, origin, step, ops.array(f"layer{t}_rotation", self.rotations[t])

    def _run(
        self, x: NDArray, k: int | NDArray, work: Callable, n_threads: int | None, out: NDArray | None
    ) -> NDArray[np.floating]:
        n = len(x)
        k = np.broadcast_to(np.asarray(k), (n,))
        result = np.empty((n, self.n_features), self.dtype) if out is None else out
        threads = resolve_threads(n_threads)
        size = min(BLOCK_ROWS, max(_ROW_MULTIPLE, -(-n // threads)))

        def run(part: slice) -> None:
            # A stable sort groups the rows by class and keeps their order, so the result does not depend on the blocks.
            order = np.argsort(k[part], kind="stable")
            labels, counts = np.unique(k[part], return_counts=True)
            rows = part.start + order
            buffers = _Buffers(x[rows].astype(self.dtype, copy=False))
            work(self, buffers, rows, np.append(0, np.cumsum(counts)), labels)
            result[rows] = buffers.now[:, : len(rows)].T

        for_each(run, [slice(start, min(start + size, n)) for start in range(0, n, size)], threads)
        return result


class _Buffers:
    """Two feature-major blocks, used in turn, so that no layer allocates memory."""

    def __init__(self, x: NDArray) -> None:
        n, d = x.shape
        self.now = np.zeros((d, n + -n % _ROW_MULTIPLE), x.dtype)
        self.now[:, :n] = x.T
        self.other = np.empty_like(self.now)

    def multiply(self, matrix: NDArray) -> None:
        np.matmul(matrix, self.now, out=self.other)
        self.now, self.other = self.other, self.now


def _push_block(
    flow: Flow, buffers: _Buffers, rows: NDArray, bounds: NDArray, labels: NDArray, logdet: NDArray | None = None
) -> None:
    from mute.rows import kernels

    buffers.now -= flow.center[:, None]
    buffers.now /= flow.scale[:, None]
    for t in range(flow.n_layers):
        buffers.multiply(flow.rotations[t].T)
        kernels.push(buffers.now, bounds, labels, flow.origin[t], flow.step[t], flow.values[t], logdet)


def _pull_block(flow: Flow, buffers: _Buffers, rows: NDArray, bounds: NDArray, labels: NDArray) -> None:
    from mute.rows import kernels

    for t in reversed(range(flow.n_layers)):
        kernels.pull(buffers.now, bounds, labels, flow.origin[t], flow.step[t], flow.values[t])
        buffers.multiply(flow.rotations[t])
    buffers.now *= flow.scale[:, None]
    buffers.now += flow.center[:, None]


def separate_knots(values: NDArray[np.floating]) -> None:
    """Separate equal neighbours along the last axis by one unit in the last place; `values` is changed."""
    for j in range(1, values.shape[-1]):
        np.maximum(values[..., j], np.nextafter(values[..., j - 1], np.inf), out=values[..., j])
