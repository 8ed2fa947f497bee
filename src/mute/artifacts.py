"""What of an estimator goes into a file, and how it comes back: everything is checked on the way in.

After the container (`mute.io`) has vouched for the bytes, this module asks what the mathematics needs: rotations that
are orthogonal, marginals that increase strictly, a router and labels that fit the maps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mute.diagnostics import Diagnostics
from mute.errors import MuteError
from mute.flow import Flow
from mute.marginals import Histogram, Quantile
from mute.routing import NetworkRouter, RoutingReport
from mute.stopping import EarlyStopping
from mute.threads import for_each, resolve_threads
from mute.validation import LabelEncoder, check_whole_number, label_array

if TYPE_CHECKING:
    from mute.eraser import MUtE

__all__ = [
    "eraser_from_artifact",
    "eraser_to_artifact",
    "feature_names",
    "flow_from",
    "flow_tensors",
    "parameters_from",
    "plain_parameters",
    "restore_features",
]


def eraser_to_artifact(eraser: MUtE) -> tuple[dict[str, NDArray], dict[str, Any]]:
    """Arrays and plain state of a fitted `MUtE`."""
    router = eraser.router_
    if router is not None and not isinstance(router, NetworkRouter):
        raise MuteError(
            f"a router of type {type(router.classifier).__name__} cannot be stored without running code on "
            "load; store the oracle part with `eraser.without_router().save(path)` and give the router back with "
            '`mute.load(path, router=classifier)`, or fit with router="mlp" or "logistic"'
        )
    tensors = {**flow_tensors(eraser.flow_), "support": eraser._support}
    if router is not None:
        for i, (weight, bias) in enumerate(zip(router.weights, router.biases, strict=True)):
            tensors |= {f"router.{i}.weight": weight, f"router.{i}.bias": bias}
    if eraser.diagnostics_ is not None:
        tensors["diagnostics"] = eraser.diagnostics_.figures
    return tensors, {
        "classes": [_label_to_json(label) for label in eraser._encoder.classes],
        "parameters": plain_parameters(eraser),
        "feature_names": feature_names(eraser),
        "router_layers": 0 if router is None else len(router.weights),
        "routing": None if eraser.routing_ is None else eraser.routing_.to_json(),
        "diagnostics": None if eraser.diagnostics_ is None else list(eraser.diagnostics_.sets),
        "stopping": None if eraser.stopping_ is None else asdict(eraser.stopping_),
        "fitted_on": eraser._fitted_on,
    }


def eraser_from_artifact(cls: type[MUtE], tensors: dict[str, NDArray], state: dict[str, Any]) -> MUtE:
    """The `MUtE` that a file holds."""
    eraser = cls(**parameters_from(state["parameters"]))
    eraser.flow_ = flow_from(tensors)
    k, d = eraser.flow_.n_classes, eraser.flow_.n_features
    eraser._encoder = LabelEncoder([_label_from_json(label) for label in state["classes"]])
    eraser._support = tensors["support"]
    distinct = len(set(eraser._encoder.classes)) == len(eraser._encoder)
    if not distinct or len(eraser._encoder) != k or k < 2 or eraser._support.shape != (2, k, d):
        raise MuteError("the number of its labels does not fit its maps")
    label_array(eraser._encoder.classes, "its labels")
    _check_finite(support=eraser._support)
    eraser.classes_ = eraser._encoder.as_array()
    eraser.router_ = NetworkRouter.from_arrays(tensors, state["router_layers"], d, k)
    eraser.routing_ = None if state["routing"] is None else RoutingReport.from_json(state["routing"], k)
    eraser.diagnostics_ = None
    if state["diagnostics"] is not None:
        sets = tuple(map(str, state["diagnostics"]))
        eraser.diagnostics_ = Diagnostics.from_arrays(
            tensors["diagnostics"], sets, eraser._encoder.classes, eraser.flow_.n_layers
        )
    eraser.stopping_ = None if state["stopping"] is None else EarlyStopping.from_json(state["stopping"])
    eraser.n_iterations_ = eraser.flow_.n_layers
    restore_features(eraser, d, state["feature_names"])
    eraser._fitted_on = dict(state["fitted_on"])
    return eraser


def flow_tensors(flow: Flow) -> dict[str, NDArray]:
    """The arrays of a flow under their names in a file."""
    return {f"flow.{name}": getattr(flow, name) for name in Flow.arrays()}


def _label_to_json(label: Any) -> Any:
    """A label as JSON that keeps its type."""
    if isinstance(label, tuple):
        return {"tuple": [_label_to_json(part) for part in label]}
    if label is None or isinstance(label, str | bool | int | float):
        return label
    raise MuteError(
        f"the label {label!r} is a {type(label).__name__}, which the file format cannot hold; "
        "use text, numbers, booleans or tuples of them as labels"
    )


def _label_from_json(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(_label_from_json(part) for part in value["tuple"])
    if isinstance(value, list):
        raise MuteError(f"{value!r} is no label")
    return value


def plain_parameters(estimator: Any) -> dict[str, Any]:
    """The settings that JSON can hold; a classifier given as router, or a random generator, is left out."""
    settings = estimator.get_params(deep=False)
    if isinstance(settings["marginal"], Histogram | Quantile):
        options = {name: _plain(value) for name, value in asdict(settings["marginal"]).items()}
        settings["marginal"] = {type(settings["marginal"]).__name__: options}
    if not isinstance(settings.get("router"), str | None):
        settings["router"] = "mlp"
    if not isinstance(settings["random_state"], int | np.integer | None):
        settings["random_state"] = None
    return {name: _plain(value) for name, value in settings.items()}


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _check_finite(**arrays: NDArray) -> None:
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise MuteError(f"{name} has values that are not finite")


def parameters_from(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a file, as the constructor takes them."""
    settings = dict(settings)
    check_whole_number("n_threads", settings["n_threads"], or_none=True)
    if isinstance(settings["marginal"], dict):
        ((name, options),) = settings["marginal"].items()
        settings["marginal"] = {"Histogram": Histogram, "Quantile": Quantile}[name](**options)
    return settings


def feature_names(estimator: Any) -> list[str]:
    """Names of the columns the estimator was fitted on, if they had any."""
    return list(getattr(estimator, "feature_names_in_", ()))


def restore_features(estimator: Any, n_features: int, names: Any) -> None:
    """Give a loaded estimator the width and the column names it was fitted on."""
    estimator.n_features_in_ = estimator._n_features_out = n_features
    if not names:
        return
    if not isinstance(names, list) or len(names) != n_features or not all(isinstance(name, str) for name in names):
        raise MuteError("its feature names do not fit its maps")
    estimator.feature_names_in_ = np.array(names, object)


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
