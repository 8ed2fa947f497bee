"""Operations for maps that are written once and run by numpy, torch or an ONNX runtime.

A map is a function of ``ops`` and its rows. `NumpyOps` and `TorchOps` compute the result. `mute.export` builds a torch
module or an ONNX graph from the same function. Python's operators add, multiply and compare values; every other
operation is a method of ``ops``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.rows.threads import for_each, resolve_threads
from mute.typing import Value

__all__ = ["NumpyOps", "TorchOps", "check_kind", "full_precision", "in_blocks"]

# Rows of a block: enough for the products of a wide network to be as fast as for the whole matrix.
_BLOCK = 1024

# Blocks are padded to a multiple of this many rows, so that BLAS takes the same path for few rows as for many.
_ROW_MULTIPLE = 16


def in_blocks(
    work: Callable[..., NDArray], X: NDArray, *more: NDArray, n_threads: int | None = None
) -> NDArray[np.floating]:
    """Run `work` on blocks of the rows of `X` and of `more`; the result has the shape of `X`."""
    out = np.empty_like(X)
    threads = resolve_threads(n_threads)
    size = min(_BLOCK, max(_ROW_MULTIPLE, -(-len(X) // threads)))

    def run(part: slice) -> None:
        rows = [array[part] for array in (X, *more)]
        n = len(rows[0])
        if n % _ROW_MULTIPLE:
            rows = [np.concatenate([a, np.repeat(a[-1:], -n % _ROW_MULTIPLE, axis=0)]) for a in rows]
        out[part] = work(*rows)[:n]

    for_each(run, [slice(start, start + size) for start in range(0, len(X), size)], threads)
    return out


class NumpyOps:
    """The operations of the maps that run by numpy, in float32 or float64. Some overwrite their argument."""

    exp, where = staticmethod(np.exp), staticmethod(np.where)

    def __init__(self, precision: np.typing.DTypeLike) -> None:
        self.precision: np.dtype[Any] = np.dtype(precision)

    def array(self, name: str, values: NDArray) -> Value:
        """A constant; one name always has the same values."""
        return values.astype(self.precision, copy=False) if values.dtype.kind == "f" else values

    def linear(self, x: Value, weight: Value, bias: Value = None) -> Value:
        """``x @ weight + bias``"""
        out = x @ weight
        if bias is not None:
            out += bias
        return out

    def layer_norm(self, x: Value, gain: Value, offset: Value) -> Value:
        x -= x.mean(axis=1, keepdims=True)
        x /= np.sqrt(np.einsum("nd,nd->n", x, x)[:, None] / self.precision.type(x.shape[1]) + self.precision.type(1e-5))
        x *= gain
        x += offset
        return x

    def tanh(self, x: Value) -> Value:
        return np.tanh(x, out=x)

    def relu(self, x: Value) -> Value:
        return np.maximum(x, 0, out=x)

    def take(self, table: Value, index: Value) -> Value:
        return table[index]

    def column(self, k: Value) -> Value:
        """A vector as a column."""
        return k[:, None]

    def columns(self, x: Value, order: Value) -> Value:
        return x[:, order]

    def split(self, x: Value, at: int) -> tuple[Value, Value]:
        """The first `at` columns, and the others."""
        return x[:, :at], x[:, at:]

    def concat(self, parts: Sequence[Value]) -> Value:
        return np.concatenate(parts, axis=1)

    def sum_columns(self, x: Value) -> Value:
        return x.sum(axis=1)

    def argmax(self, x: Value) -> Value:
        return x.argmax(axis=1)

    def by_class(self, work: Callable[[Value, int], Value], x: Value, k: Value, n_classes: int) -> Value:
        """``work(rows, c)`` for the rows of each class c, in the order of x."""
        if n_classes == 1:
            return work(x, 0)
        out: Value = None
        for c in range(n_classes):
            mine = np.flatnonzero(k == c)
            if len(mine):
                part = work(x[mine], c)
                out = np.empty((len(x), part.shape[1]), part.dtype) if out is None else out
                out[mine] = part
        return out


class TorchOps:
    """All operations, computed with torch's tensors and gradients."""

    def __init__(self, precision: np.typing.DTypeLike) -> None:
        import torch

        self.torch = torch
        self.precision = np.dtype(precision)
        self.dtype = getattr(torch, self.precision.name)
        self.tanh, self.exp, self.relu = torch.tanh, torch.exp, torch.relu
        self.where, self.transpose = torch.where, torch.t

    def array(self, name: str, values: NDArray) -> Value:
        tensor = self.torch.from_numpy(np.array(values))  # a copy, because arrays from a file are read-only
        return tensor.to(self.dtype) if values.dtype.kind == "f" else tensor

    def linear(self, x: Value, weight: Value, bias: Value = None) -> Value:
        return x @ weight if bias is None else self.torch.addmm(bias, x, weight)

    def layer_norm(self, x: Value, gain: Value, offset: Value) -> Value:
        variance, mean = self.torch.var_mean(x, dim=1, correction=0, keepdim=True)
        return (x - mean) * self.torch.rsqrt(variance + 1e-5) * gain + offset

    def norm(self, x: Value) -> Value:
        """Norms of the rows, as a column."""
        return self.torch.linalg.vector_norm(x, dim=1, keepdim=True)

    def clip(self, x: Value, low: float, high: float) -> Value:
        return self.torch.clamp(x, low, high)

    def least(self, i: Value, limit: int) -> Value:
        """Whole numbers, at most `limit`."""
        return self.torch.clamp(i, max=limit)

    def integer(self, x: Value) -> Value:
        """Whole numbers, rounded towards zero."""
        return x.to(self.torch.int64)

    def real(self, i: Value) -> Value:
        return i.to(self.dtype)

    def take(self, table: Value, index: Value) -> Value:
        return self.torch.take(table, index) if table.ndim == 1 else self.torch.nn.functional.embedding(index, table)

    def column(self, k: Value) -> Value:
        return self.torch.unsqueeze(k, 1)

    def columns(self, x: Value, order: Value) -> Value:
        return self.torch.index_select(x, 1, order)

    def split(self, x: Value, at: int) -> tuple[Value, Value]:
        return x[:, :at], x[:, at:]

    def concat(self, parts: Sequence[Value]) -> Value:
        return self.torch.cat(list(parts), dim=1)

    def sum_columns(self, x: Value) -> Value:
        return self.torch.sum(x, dim=1)

    def argmax(self, x: Value) -> Value:
        return self.torch.argmax(x, dim=1)

    def by_class(self, work: Callable[[Value, int], Value], x: Value, k: Value, n_classes: int) -> Value:
        # Every class's map runs on every row, because exporters need shapes that do not depend on the data.
        out = work(x, 0)
        for c in range(1, n_classes):
            out = self.torch.where(self.column(k == c), work(x, c), out)
        return out


def full_precision(device_type: str) -> Value:
    """A context in which autocast does not round products to half precision."""
    import torch

    known = torch.amp.is_autocast_available(device_type)
    return torch.autocast(device_type, enabled=False) if known else nullcontext()


def check_kind(x: Value, name: str) -> None:
    """Refuse tensors that are not of a floating type."""
    kinds = ("float16", "bfloat16", "float32", "float64")
    kind = str(x.dtype).removeprefix("torch.")
    if kind not in kinds:
        raise MuteError(f"{name} is a tensor of {kind}; give one of {', '.join(kinds)}, for example X.float()")
