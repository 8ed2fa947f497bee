"""Erase or steer the hidden states of a torch model while it runs."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from functools import partial
from typing import TYPE_CHECKING

from mute.errors import MuteError
from mute.rows.detect import is_tensor, require_torch
from mute.typing import Array, LabelsLike, Method, Value

if TYPE_CHECKING:
    from torch.nn import Module

    from mute.torch.intervention import Intervention

__all__ = ["intervene"]

# Where a module says how many numbers it gives for each state.
_WIDTHS = ("out_features", "embedding_dim", "embed_dim", "normalized_shape")


@contextmanager
def intervene(
    model: Module,
    layer: str | Sequence[str],
    eraser: Method,
    *,
    target: LabelsLike = None,
    concept: LabelsLike = None,
    positions: str | slice | Array = "all",
    strength: float = 1.0,
) -> Iterator[Intervention]:
    """Inside the ``with``, the hidden states that a layer gives are erased, or moved to another class.

    Later layers see the changed states; gradients pass through them. Afterwards the model is as it was, also after an
    error. Contexts can be nested: the inner one sees the states that the outer one has changed.

    Parameters
    ----------
    model : torch.nn.Module
        The network whose states change.
    layer : str or sequence of str
        Names of modules inside, as in ``model.named_modules()``: "encoder.layers.6". A layer gives a tensor (..., D), a
        tuple or list that begins with one, or an object or dict with ``last_hidden_state`` or a first tensor.
    eraser : fitted eraser or steering method
        Fitted on states of this layer, D numbers each.
    target : label, or labels, optional
        Move the states to this class; None erases them.
    concept : label, or labels, optional
        The class of the states, in place of the router. Labels, here and in `target`, have the shape of the first axes
        of the states: one for each of a batch, or one for each token.
    positions : {"all", "last"}, slice or bool array of shape (batch, tokens), default="all"
        Tokens to change.
    strength : float from 0 to 1, default=1.0
        How far to go from the state to the erased or moved one, on a straight line.

    Yields
    ------
    mute.torch.intervention.Intervention
        What is applied.

    See Also
    --------
    mute.export.to_torch : An eraser as a module of its own, without this package.

    Notes
    -----
    *Limits.* A layer is not changed if the model's forward pass goes around it (a fused kernel, a graph compiled
    before). Later layers can still read the concept from tokens that were not changed.

    Examples
    --------
    >>> import numpy as np, torch, mute
    >>> from mute.steering import MeanDifference
    >>> X, z = np.array([[0.0, 0.0], [2.0, 0.0], [5.0, 4.0], [7.0, 4.0]]), ["a", "a", "b", "b"]
    >>> steer = MeanDifference(router=None).fit(X, z)
    >>> model = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Flatten(0))
    >>> with mute.intervene(model, "0", steer, target="b", concept="a"):
    ...     model(torch.zeros(1, 2))
    tensor([5., 4.])
    >>> model(torch.zeros(1, 2))
    tensor([0., 0.])
    """
    torch = require_torch("intervening in a model")
    from mute.torch.intervention import Intervention

    if not isinstance(model, torch.nn.Module):
        raise MuteError(f"model must be a torch.nn.Module, not a {type(model).__name__}")
    change = Intervention(eraser, target=target, concept=concept, positions=positions, strength=strength)
    layers = _layers(model, [layer] if isinstance(layer, str) else list(layer))
    for name, module in layers.items():
        width, expected = _width(module), eraser.n_features_in_
        if width not in (None, expected):
            raise MuteError(f"layer {name!r} gives states of {width} numbers, but the eraser was fitted on {expected}")
    first = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    change.try_on(first.device, first.dtype)
    with ExitStack() as hooks:
        for name, module in layers.items():
            hooks.callback(module.register_forward_hook(partial(_hook, change, name)).remove)
        yield change


def _layers(model: Module, names: list[str]) -> dict[str, Module]:
    known = dict(model.named_modules())
    for name in names:
        if name not in known:
            ends = [k for k in known if k.endswith(f".{name}")]
            close = (ends or difflib.get_close_matches(str(name), known, n=3, cutoff=0.4))[:3]
            hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
            raise MuteError(f"the model has no layer {name!r}{hint or '; see model.named_modules() for the names'}")
    if not names:
        raise MuteError("no layer was given; give the name of one, or of several")
    return {name: known[name] for name in names}


def _width(module: Module) -> int | None:
    """How many numbers a state has that the module gives, if it says so."""
    for name in _WIDTHS:
        value = getattr(module, name, None)
        value = value[-1] if isinstance(value, tuple) and value else value
        if isinstance(value, int):
            return value
    return None


def _hook(change: Intervention, name: str, module: Module, inputs: tuple[Value, ...], output: Value) -> Value:
    try:
        return _replaced(output, change)
    except MuteError as error:
        raise MuteError(f"layer {name!r}: {error}") from error


def _replaced(output: Value, change: Intervention) -> Value:
    """The output of a layer with its hidden states changed."""
    if is_tensor(output):
        return change(output)
    if isinstance(output, tuple | list) and output and is_tensor(output[0]):
        parts = [change(output[0]), *output[1:]]
        return type(output)(*parts) if hasattr(output, "_fields") else type(output)(parts)
    fields = output if isinstance(output, Mapping) else getattr(output, "__dict__", {})
    states = [key for key in ("last_hidden_state", *fields) if is_tensor(fields.get(key))]
    if not states:
        raise MuteError(
            f"it gives a {type(output).__name__}; hidden states are looked for in a tensor, a tuple that begins with "
            "one, or an object with last_hidden_state"
        )
    changed, key = copy(output), states[0]
    if isinstance(output, Mapping):
        changed[key] = change(output[key])
    else:
        setattr(changed, key, change(getattr(output, key)))
    return changed
