"""A fitted eraser as a torch module that changes hidden states."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from mute.errors import MuteError
from mute.estimators.base import ConceptEstimator
from mute.estimators.conditional import Conditional
from mute.estimators.tensors import check_router, run_on
from mute.flow.ops import check_kind
from mute.rows.detect import to_host
from mute.rows.validation import LabelEncoder, check_number
from mute.typing import Array, LabelsLike, Method, Ops

__all__ = ["Intervention"]


class Intervention(nn.Module):
    """A fitted eraser over the last axis of hidden states of any shape, as ``(batch, tokens, D)``.

    The module has no parameters and no buffers: it uploads constants once to each device that states come from. It
    computes in float32, or in float64 for float64 states, and gives states of the same precision; gradients pass
    through it.

    Parameters
    ----------
    eraser, target, concept, positions, strength
        As in `mute.intervene`.

    See Also
    --------
    mute.intervene : Apply it to layers of a model, inside a ``with``.

    Notes
    -----
    *Limits.* States with NaN stay NaN: a check would wait for the device at each call.

    Examples
    --------
    >>> import numpy as np, torch
    >>> from mute.steering import MeanDifference
    >>> X, z = np.array([[0.0, 0.0], [2.0, 0.0], [5.0, 4.0], [7.0, 4.0]]), ["a", "a", "b", "b"]
    >>> steer = Intervention(MeanDifference(router=None).fit(X, z), target="b", concept="a", positions="last")
    >>> steer(torch.zeros(1, 2, 2))
    tensor([[[0., 0.],
             [5., 4.]]])
    """

    def __init__(
        self,
        eraser: Method,
        *,
        target: LabelsLike = None,
        concept: LabelsLike = None,
        positions: str | slice | Array = "all",
        strength: float = 1.0,
    ) -> None:
        super().__init__()
        if not isinstance(eraser, ConceptEstimator):
            raise MuteError(f"a {type(eraser).__name__} cannot intervene; give a fitted eraser or steering method")
        if not hasattr(eraser, "n_features_in_"):
            raise MuteError(f"this {type(eraser).__name__} is not fitted; call fit first")
        if target is not None and not hasattr(eraser, "move_with"):
            raise MuteError(f"{type(eraser).__name__} makes no counterfactuals; leave target out to erase")
        check_number("strength", strength, "from 0 to 1", lambda v: 0 <= v <= 1)
        if isinstance(eraser, Conditional) and concept is None:
            if eraser.router_ is None:
                raise MuteError("this eraser has no router; give concept=, the class of the states")
            check_router(eraser)
        self.eraser = eraser
        self.strength = strength
        self.positions = _checked_positions(positions)
        self.target = None if target is None else self._encoded(target, "target")
        used = isinstance(eraser, Conditional) and concept is not None
        self.concept = self._encoded(concept, "concept") if used else None

    def forward(self, h: Tensor) -> Tensor:
        """The states changed, shape (..., D)."""
        check_kind(h, "the hidden state")
        d = self.eraser.n_features_in_
        if h.is_nested or h.ndim < 2 or h.shape[-1] != d:
            shape = "a nested tensor" if h.is_nested else f"of shape {tuple(h.shape)}"
            raise MuteError(f"the hidden states are {shape}, but the eraser was fitted on rows of {d} numbers")
        chosen = self._chosen(h)
        states = h if chosen is None else h[chosen]
        source, target = (_spread(labels, h, chosen) for labels in (self.concept, self.target))
        changed = self._changed(states.reshape(-1, d), source, target).reshape(states.shape)
        if self.strength != 1:
            changed = torch.lerp(states, changed, self.strength)
        if chosen is None:
            return changed
        out = h.clone()
        out[chosen] = changed
        return out

    def extra_repr(self) -> str:
        return f"{type(self.eraser).__name__}, {'erase' if self.target is None else 'move'}, strength={self.strength}"

    def try_on(self, device: torch.device, dtype: torch.dtype) -> None:
        """Run once, so that what cannot run says so now and constants are on the device when states come."""
        with torch.no_grad():
            row = torch.zeros(1, self.eraser.n_features_in_, dtype=dtype, device=device)
            first = (None if c is None else torch.from_numpy(c.reshape(-1)[:1]) for c in (self.concept, self.target))
            self._changed(row, *first)

    def _changed(self, rows: Tensor, source: Tensor | None, target: Tensor | None) -> Tensor:
        """Rows (n, D) erased or moved, from their classes and to their targets, codes of shape (n,)."""
        if len(rows) == 0:
            return rows

        def work(ops: Ops, x: Tensor) -> Tensor:
            goal = () if target is None else (target.to(x.device),)
            if not isinstance(self.eraser, Conditional):
                return self.eraser.move_with(ops, x, *goal) if goal else self.eraser.erase_with(ops, x)
            k = self.eraser.class_with(ops, x, None) if source is None else source.to(x.device)
            return self.eraser.move_with(ops, x, k, *goal) if goal else self.eraser.push_with(ops, x, k)

        return run_on(self.eraser, rows, work)

    def _chosen(self, h: Tensor) -> tuple[slice | Tensor, ...] | None:
        """The positions as an index of `h`; None for all."""
        where, shape = self.positions, tuple(h.shape[:-1])
        if isinstance(where, np.ndarray):
            if where.shape != shape:
                raise MuteError(
                    f"positions has shape {where.shape}, but the hidden states have {shape}: give one for each"
                )
            return (torch.from_numpy(where).to(h.device),)
        if where == "all":
            return None
        if h.ndim < 3:
            raise MuteError(f"positions needs hidden states (batch, tokens, D), not shape {tuple(h.shape)}")
        return (*[slice(None)] * (h.ndim - 2), slice(-1, None) if isinstance(where, str) else where)

    def _encoded(self, labels: LabelsLike, name: str) -> Array:
        """Codes in the shape of the labels, () for one of all states."""
        encoder = LabelEncoder(self.eraser.classes_.tolist())
        labels = to_host(labels)
        if encoder.holds(labels) or isinstance(labels, str) or not hasattr(labels, "__len__"):
            return np.array(encoder.encode_one(labels, name))
        array = labels if isinstance(labels, np.ndarray) else np.array(labels)
        flat = np.empty(array.size, object)
        flat[:] = array.reshape(-1).tolist()
        return encoder.encode(flat, name).reshape(array.shape)


def _spread(labels: Array | None, h: Tensor, chosen: tuple[slice | Tensor, ...] | None) -> Tensor | None:
    """Labels of the first axes of `h` for each of its states that is chosen."""
    if labels is None:
        return None
    shape = h.shape[:-1]
    if labels.shape != tuple(shape[: labels.ndim]):
        raise MuteError(f"labels of shape {labels.shape} do not fit hidden states of shape {tuple(h.shape)}")
    whole = torch.from_numpy(labels).reshape(labels.shape + (1,) * (len(shape) - labels.ndim)).expand(shape)
    return (whole if chosen is None else whole.to(h.device)[chosen]).reshape(-1)


def _checked_positions(positions: str | slice | Array) -> str | slice | Array:
    positions = to_host(positions)
    if isinstance(positions, slice) or (isinstance(positions, str) and positions in ("all", "last")):
        return positions
    mask = None if positions is None or isinstance(positions, str) else np.asarray(positions)
    if mask is None or mask.dtype != bool:
        raise MuteError(f'positions must be "all", "last", a slice or an array of True and False, not {positions!r}')
    return mask
