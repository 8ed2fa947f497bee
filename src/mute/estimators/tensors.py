"""The estimators on torch tensors: a tensor gives a tensor, on the same device and with gradients.

This module checks tensors, as `mute.rows.validation` checks arrays. Labels are encoded on the host. Maps run in the
operations of `mute.flow.ops`, as they do in exports.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.flow.flow import Flow
from mute.flow.ops import TorchOps, check_kind, full_precision
from mute.flow.routing import NetworkRouter
from mute.rows.validation import check_finite, check_width
from mute.typing import Json, Method, Value

if TYPE_CHECKING:
    import torch

    from mute.flow.module import FlowModule

__all__ = ["TensorOps", "check_router", "check_tensor", "run_on"]


class TensorOps(TorchOps):
    """Operations on tensors of one device and precision. Each constant is uploaded once."""

    # The end of the message of an estimator whose map is not affine.
    refusal = "does not run on tensors; give X.cpu().numpy(), or copy it by MLPSurrogate and give tensors to the copy"

    def __init__(self, precision: str, device: torch.device) -> None:
        super().__init__(precision)
        self.device = device
        self.known_maps: dict[str, tuple[NDArray, NDArray]] = {}  # coefficients of affine maps
        self._constants: dict[str, torch.Tensor] = {}
        self._modules: dict[int, FlowModule] = {}

    def array(self, name: str, values: NDArray) -> torch.Tensor:
        if name not in self._constants:
            # Converted on the host, because not every device has float64.
            with self.torch.inference_mode(False):
                self._constants[name] = super().array(name, values).to(self.device)
        return self._constants[name]

    def codes(self, codes: NDArray[np.int64]) -> torch.Tensor:
        return self.torch.from_numpy(codes).to(self.device)

    def flow_module(self, flow: Flow) -> FlowModule:
        """The flow as a module on this device, which is faster than single operations."""
        from mute.flow.module import FlowModule

        if id(flow) not in self._modules:
            self._modules[id(flow)] = FlowModule(flow, dtype=self.precision.name, device=self.device)
        return self._modules[id(flow)]

    def by_class(self, work: Callable[[Value, int], Value], x: Value, k: Value, n_classes: int) -> Value:
        met = self.torch.unique(k).tolist() if n_classes > 1 else [0]
        if len(met) < 2:
            return work(x, met[0] if met else 0)
        mine = [self.torch.nonzero(k == c).flatten() for c in met]
        parts = [work(x[rows], c) for c, rows in zip(met, mine, strict=True)]
        return self.torch.cat(parts)[self.torch.argsort(self.torch.cat(mine))]


# The constants of each estimator on their devices, and the attributes they were made from. They are not attributes of
# the estimator, so that copies, clones, pickles and files do not contain them.
_uploaded: WeakKeyDictionary[Method, tuple[Json, dict[tuple[str, str], TensorOps]]] = WeakKeyDictionary()


def _ops_for(estimator: Method, x: torch.Tensor) -> TensorOps:
    """The operations of this estimator for the device and precision of `x`."""
    state, by_place = _uploaded.get(estimator, ({}, {}))
    now = vars(estimator)
    if not state or any(now.get(name) is not value for name, value in state.items()):  # fitted or changed since
        _, by_place = _uploaded[estimator] = (dict(now), {})
    precision = str(x.dtype).removeprefix("torch.")
    place = (str(x.device), precision)
    if place not in by_place:
        by_place[place] = TensorOps(precision, x.device)
    return by_place[place]


def run_on(estimator: Method, x: torch.Tensor, work: Callable[[TensorOps, torch.Tensor], Value]) -> Value:
    """``work(ops, rows)`` in the precision of `x`; half precision is computed in float32 and converted back."""
    import torch

    rows = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    with full_precision(x.device.type):
        out = work(_ops_for(estimator, rows), rows)
        return out.to(x.dtype) if isinstance(out, torch.Tensor) else out


def check_router(estimator: Method) -> None:
    """Refuse a router that does not run on tensors."""
    if estimator.router_ is not None and not isinstance(estimator.router_, NetworkRouter):
        kind = type(estimator.router_.classifier).__name__
        raise MuteError(
            f"a router of type {kind} does not run on tensors; give concept=eraser.route(X.cpu().numpy()), or fit with "
            'router="mlp" or "logistic"'
        )


def check_tensor(estimator: Method, x: torch.Tensor, name: str) -> None:
    """Refuse tensors that are not finite rows of a floating type, of the width of the training rows."""
    import torch

    if x.layout != torch.strided or x.is_nested:
        raise MuteError(f"{name} is a sparse or nested tensor; give a dense one, for example X.to_dense()")
    check_kind(x, name)
    if x.ndim != 2:
        raise MuteError(
            f"{name} must have two dimensions, rows and columns, not shape {tuple(x.shape)}; use "
            "X.reshape(-1, X.shape[-1]), or mute.torch.intervention.Intervention for hidden states of any shape"
        )
    check_width(x.shape[1], estimator, name)
    if len(x) == 0:
        raise MuteError(f"{name} cannot be used: it has no rows (shape {tuple(x.shape)})")
    rows = x.detach()
    rows = rows.float() if rows.dtype.itemsize < 4 else rows
    flat = rows.reshape(-1)
    # A sum of squares is finite only if all its terms are; rows are checked one by one only if it is not.
    if not torch.isfinite(flat @ flat):
        check_finite(rows.abs().amax(dim=1, keepdim=True).cpu().numpy(), name)
