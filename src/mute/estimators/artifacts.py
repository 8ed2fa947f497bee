"""What of an estimator built on a flow goes into a file, and how it comes back: everything is checked on the way in.

After the container has vouched for the bytes, this module asks what the mathematics needs: rotations that
are orthogonal, marginals that increase strictly, a router and labels that fit the maps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.estimators.state import (
    check_all_finite,
    feature_names,
    labels_from_json,
    labels_to_json,
    parameters_from,
    plain_parameters,
    restore_features,
    restore_router,
    router_state,
)
from mute.flow.diagnostics import Diagnostics
from mute.flow.flow import Flow
from mute.flow.marginals import Histogram, Quantile
from mute.flow.stopping import stopping_from_json
from mute.rows.threads import for_each, resolve_threads

if TYPE_CHECKING:
    from mute.eraser import MUtE

__all__ = ["eraser_from_artifact", "eraser_to_artifact", "flow_from", "flow_parameters", "flow_tensors"]


def eraser_to_artifact(eraser: MUtE) -> tuple[dict[str, NDArray], dict[str, Any]]:
    """Arrays and plain state of a fitted `MUtE`."""
    routing, about_routing = router_state(eraser)
    tensors = {**flow_tensors(eraser.flow_), "support": eraser._support, **routing}
    if eraser.diagnostics_ is not None:
        tensors["diagnostics"] = eraser.diagnostics_.figures
    return tensors, {
        "classes": labels_to_json(eraser._encoder.classes),
        "parameters": plain_parameters(eraser),
        "feature_names": feature_names(eraser),
        **about_routing,
        "diagnostics": None if eraser.diagnostics_ is None else list(eraser.diagnostics_.sets),
        "stopping": None if eraser.stopping_ is None else asdict(eraser.stopping_),
        "fitted_on": eraser.fitted_on_,
    }


def eraser_from_artifact(cls: type[MUtE], tensors: dict[str, NDArray], state: dict[str, Any]) -> MUtE:
    """The `MUtE` that a file holds."""
    eraser = cls(**flow_parameters(state["parameters"]))
    eraser.flow_ = flow_from(tensors)
    k, d = eraser.flow_.n_classes, eraser.flow_.n_features
    eraser._encoder = labels_from_json(state["classes"])
    eraser._support = tensors["support"]
    if len(eraser._encoder) != k or eraser._support.shape != (2, k, d):
        raise MuteError("the number of its labels does not fit its maps")
    check_all_finite(support=eraser._support)
    eraser.classes_ = eraser._encoder.as_array()
    restore_router(eraser, tensors, state, d, k)
    eraser.diagnostics_ = None
    if state["diagnostics"] is not None:
        sets = tuple(map(str, state["diagnostics"]))
        eraser.diagnostics_ = Diagnostics.from_arrays(
            tensors["diagnostics"], sets, eraser._encoder.classes, eraser.flow_.n_layers
        )
    eraser.stopping_ = None if state["stopping"] is None else stopping_from_json(state["stopping"])
    eraser.n_iterations_ = eraser.flow_.n_layers
    restore_features(eraser, d, state["feature_names"])
    eraser.fitted_on_ = dict(state["fitted_on"])
    return eraser


def flow_tensors(flow: Flow) -> dict[str, NDArray]:
    """The arrays of a flow under their names in a file."""
    return {f"flow.{name}": getattr(flow, name) for name in Flow.arrays()}


def flow_parameters(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a file, as the constructor takes them, with its marginal."""
    settings = parameters_from(settings)
    if isinstance(settings["marginal"], dict):
        ((name, options),) = settings["marginal"].items()
        settings["marginal"] = {"Histogram": Histogram, "Quantile": Quantile}[name](**options)
    return settings


def flow_from(tensors: dict[str, NDArray]) -> Flow:
    """The flow of a file, after checking everything that a `Flow` takes for granted."""
    arrays = {name: tensors[f"flow.{name}"] for name in Flow.arrays()}
    rotations, values = arrays["rotations"], arrays["values"]
    if rotations.ndim != 3 or values.ndim != 4 or values.shape[3] < 2 or 0 in rotations.shape + values.shape:
        raise MuteError("its tables have the wrong number of axes")
    t, d, _ = rotations.shape
    k = values.shape[1]
    shapes = {"center": (d,), "scale": (d,), "rotations": (t, d, d), "origin": (t, k, d), "step": (t, k, d)}
    shapes["values"] = (t, k, d, values.shape[3])
    wrong = [name for name, shape in shapes.items() if arrays[name].shape != shape]
    if wrong or len({a.dtype for a in arrays.values()}) != 1:
        raise MuteError(f"the shapes or precisions of its arrays do not fit together: {', '.join(wrong) or 'dtype'}")
    for name in ("center", "scale", "origin", "step"):
        if not np.isfinite(arrays[name]).all():
            raise MuteError(f"{name} has values that are not finite")
    if (arrays["scale"] <= 0).any() or (arrays["step"] <= 0).any():
        raise MuteError("scale and step must be positive")
    _each_layer(_check_increasing, values)
    _each_layer(_check_orthogonal, rotations)
    return Flow(**arrays)


def _each_layer(check: Callable[[NDArray], None], layers: NDArray) -> None:
    threads = resolve_threads(None) if layers.nbytes > 1 << 20 else 1
    for_each(lambda part: check(layers[part]), [slice(t, t + 1) for t in range(len(layers))], threads)


def _check_increasing(values: NDArray) -> None:
    # Comparisons with NaN are false; between finite ends an increasing row is finite.
    ends = np.isfinite(values[..., 0]).all() and np.isfinite(values[..., -1]).all()
    if not ends or not (values[..., 1:] > values[..., :-1]).all():
        raise MuteError("a marginal is not strictly increasing")


def _check_orthogonal(rotation: NDArray) -> None:
    # R Rᵀ v = v for a random v: a wrong matrix passes with probability zero, at the price of reading it once.
    v = np.random.default_rng(0).standard_normal(rotation.shape[1:2]).astype(rotation.dtype)
    tolerance = 1e-3 if rotation.dtype == np.float32 else 1e-9
    with np.errstate(all="ignore"):
        if not np.abs(rotation[0] @ (v @ rotation[0]) - v).max() < tolerance:
            raise MuteError("a rotation is not orthogonal")
