"""What of an estimator goes into a file whatever its method: settings, labels, columns, router, declared arrays.

After the container (`mute.estimators.persistence`) has vouched for the bytes, everything is checked here on the way in.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.flow.network import Network
from mute.flow.routing import NetworkRouter, RoutingReport
from mute.rows.validation import LabelEncoder, check_whole_number, label_array

__all__ = [
    "check_all_finite",
    "concept_state",
    "feature_names",
    "labels_from_json",
    "labels_to_json",
    "parameters_from",
    "plain_parameters",
    "restore_concept",
    "restore_features",
    "restore_router",
    "router_state",
]


def concept_state(estimator: Any) -> tuple[dict[str, NDArray], dict[str, Any]]:
    """Arrays and plain state of a fitted method, as its ``_STORED`` lists them."""
    tensors: dict[str, NDArray] = {}
    state: dict[str, Any] = {
        "classes": labels_to_json(estimator._encoder.classes) if hasattr(estimator, "classes_") else None,
        "parameters": plain_parameters(estimator),
        "feature_names": feature_names(estimator),
        "fitted_on": estimator.fitted_on_,
    }
    for name, axes in estimator._STORED.items():
        value = getattr(estimator, name)
        if axes == "plain":
            state[name] = value
        elif axes.startswith("network"):
            tensors |= value.arrays(name)
            state[name] = len(value)
        elif axes == "arrays":
            tensors |= {f"{name}.{key}": array for key, array in value.items()}
            state[name] = list(value)
        else:
            tensors[name] = value
    if hasattr(estimator, "router_"):
        arrays, more = router_state(estimator)
        tensors, state = tensors | arrays, state | more
    return tensors, state


def restore_concept(cls: type, tensors: dict[str, NDArray], state: dict[str, Any]) -> Any:
    """The estimator that a file holds, its arrays checked against the axes of ``_STORED``."""
    estimator: Any = cls(**parameters_from(state["parameters"]))
    sizes: dict[str, int] = {"D": len(state["feature_names"]) or state["fitted_on"]["columns"]}
    if state["classes"] is not None:
        estimator._encoder = labels_from_json(state["classes"])
        estimator.classes_ = estimator._encoder.as_array()
        sizes["K"] = len(estimator._encoder)
    stored = {name: axes.split() for name, axes in estimator._STORED.items()}
    for name, axes in stored.items():
        if axes == ["plain"]:
            setattr(estimator, name, state[name])
        elif axes == ["arrays"]:
            arrays = {str(key): tensors[f"{name}.{key}"] for key in state[name]}
            check_all_finite(**arrays)
            setattr(estimator, name, arrays)
        elif axes[0] != "network":
            array = tensors[name]
            if array.ndim != len(axes):
                raise MuteError(f"{name} has the wrong number of axes")
            if any(sizes.setdefault(axis, size) != size for axis, size in zip(axes, array.shape, strict=True)):
                raise MuteError(f"the shape of {name} does not fit the others")
            check_all_finite(**{name: array})
            setattr(estimator, name, array)
    for name, axes in stored.items():
        if axes[0] == "network":
            setattr(estimator, name, Network.from_arrays(tensors, name, state[name], sizes[axes[1]]))
    if "router_layers" in state:
        restore_router(estimator, tensors, state, sizes["D"], sizes["K"])
    restore_features(estimator, sizes["D"], state["feature_names"])
    estimator.fitted_on_ = dict(state["fitted_on"])
    estimator._check_restored()
    return estimator


def router_state(estimator: Any) -> tuple[dict[str, NDArray], dict[str, Any]]:
    """Arrays and plain state of the router of an estimator."""
    router = estimator.router_
    if router is not None and not isinstance(router, NetworkRouter):
        raise MuteError(
            f"a router of type {type(router.classifier).__name__} cannot be stored without running code on "
            "load; store the oracle part with `eraser.without_router().save(path)` and give the router back with "
            '`mute.load(path, router=classifier)`, or fit with router="mlp" or "logistic"'
        )
    return {} if router is None else router.arrays("router"), {
        "router_layers": 0 if router is None else len(router),
        "routing": None if estimator.routing_ is None else estimator.routing_.to_json(),
    }


def restore_router(estimator: Any, tensors: dict[str, NDArray], state: dict[str, Any], d: int, k: int) -> None:
    """Give a loaded estimator its router."""
    layers, estimator.router_ = state["router_layers"], None
    if layers != 0 or type(layers) is not int:
        estimator.router_ = NetworkRouter.from_arrays(tensors, "router", layers, d)
        if estimator.router_.n_outputs != k:
            raise MuteError("its router does not fit its labels")
    estimator.routing_ = None if state["routing"] is None else RoutingReport.from_json(state["routing"], k)


def labels_to_json(labels: tuple[Any, ...]) -> list[Any]:
    """Labels as JSON that keeps their types."""
    return [_label_to_json(label) for label in labels]


def _label_to_json(label: Any) -> Any:
    if isinstance(label, tuple):
        return {"tuple": labels_to_json(label)}
    if label is None or isinstance(label, str | bool | int | float):
        return label
    raise MuteError(
        f"the label {label!r} is a {type(label).__name__}, which the file format cannot hold; "
        "use text, numbers, booleans or tuples of them as labels"
    )


def labels_from_json(values: list[Any]) -> LabelEncoder:
    """The labels of a file, checked to be at least two and distinct."""
    encoder = LabelEncoder([_label_from_json(value) for value in values])
    if len(encoder) < 2 or len(set(encoder.classes)) != len(encoder):
        raise MuteError("its labels are fewer than two, or not distinct")
    label_array(encoder.classes, "its labels")
    return encoder


def _label_from_json(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(_label_from_json(part) for part in value["tuple"])
    if isinstance(value, list):
        raise MuteError(f"{value!r} is no label")
    return value


def plain_parameters(estimator: Any) -> dict[str, Any]:
    """The settings that JSON can hold; a classifier given as router, or a random generator, is left out.

    So are folders, which are those of the machine that it was fitted on.
    """
    settings = {n: v for n, v in estimator.get_params(deep=False).items() if n not in ("scratch", "resume")}
    for name, value in settings.items():
        if hasattr(value, "__dataclass_fields__"):  # a marginal
            options = {option: _plain(v) for option, v in asdict(value).items()}
            settings[name] = {type(value).__name__: options}
    if not isinstance(settings.get("router"), str | None):
        settings["router"] = "mlp"
    if not isinstance(settings.get("random_state"), int | np.integer | None):
        settings["random_state"] = None
    return {name: _plain(value) for name, value in settings.items()}


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def parameters_from(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a file, as the constructor takes them."""
    settings = dict(settings)
    check_whole_number("n_threads", settings.get("n_threads"), or_none=True)
    return settings


def check_all_finite(**arrays: NDArray) -> None:
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise MuteError(f"{name} has values that are not finite")


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
