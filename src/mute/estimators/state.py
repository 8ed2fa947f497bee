"""Parts of a file that several estimators share: labels, settings, a flow, a router. All are checked when read."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.flow.flow import TABLES, Flow
from mute.flow.marginals import Histogram, Quantile
from mute.flow.routing import NetworkRouter, Router, RoutingReport
from mute.rows.threads import for_each, resolve_threads
from mute.rows.validation import LabelEncoder, check_whole_number, label_array
from mute.typing import Json, JsonValue, Label, Method, Setting

__all__ = [
    "LARGEST_ROW",
    "TRIAL_ROWS",
    "check_array",
    "check_sizes",
    "flow_from",
    "labels_from_json",
    "labels_to_json",
    "parameters_from",
    "plain_parameters",
    "router_from",
    "router_state",
]


# Settings that are paths on the machine of the fit.
_FOLDERS = ("scratch", "resume")

# Bounds of the numbers in a file; docs/format.md states them. Numbers stay finite in float32 (LARGEST), and so do the
# squares of rows (LARGEST_ROW). A flow works on standardised rows, which are far below LARGEST_PLACE.
# Trained networks of standardised rows have weights below LARGEST_WEIGHT.
LARGEST, LARGEST_ROW, LARGEST_WEIGHT, LEAST_SCALE = 1e36, 1e18, 1e6, 1e-36
LARGEST_PLACE, LEAST_STEP, STEEPEST = 1e12, 1e-15, 1e15
_LARGEST_OF = {
    **dict.fromkeys(("flow.center", "flow.scale", "center_", "mean_", "means_", "cells.centres"), LARGEST_ROW),
    **dict.fromkeys(("flow.rotations", "flow.origin", "flow.step", "flow.values"), LARGEST_PLACE),
}
_LEAST_OF = {"flow.scale": LEAST_SCALE, "flow.step": LEAST_STEP}
TRIAL_ROWS = 32


def labels_to_json(labels: tuple[Label, ...]) -> list[JsonValue]:
    """Labels as JSON that keeps their types."""
    for label in labels:
        if not isinstance(label, str | bool | int | float | tuple | None):
            raise MuteError(
                f"the label {label!r} is a {type(label).__name__}, which the file format cannot store; "
                "use text, numbers, booleans or tuples of them as labels"
            )
    return [{"tuple": labels_to_json(label)} if isinstance(label, tuple) else label for label in labels]


def labels_from_json(values: list[JsonValue]) -> LabelEncoder:
    """The labels of a file; at least two, all distinct."""
    encoder = LabelEncoder([_label_from_json(value) for value in values])
    if len(encoder) < 2 or len(set(encoder.classes)) != len(encoder):
        raise MuteError("its labels are fewer than two, or not distinct")
    label_array(encoder.classes, "its labels")
    return encoder


def _label_from_json(value: JsonValue) -> Label:
    if isinstance(value, dict):
        return tuple(_label_from_json(part) for part in value["tuple"])
    if isinstance(value, list):
        raise MuteError(f"{value!r} is not a label")
    return value


def plain_parameters(estimator: Method) -> Json:
    """The settings that JSON can express, without classifiers, random generators and folders."""
    settings = {n: v for n, v in estimator.get_params(deep=False).items() if n not in _FOLDERS}
    for name, value in settings.items():
        if hasattr(value, "__dataclass_fields__"):  # a marginal
            settings[name] = {type(value).__name__: {option: _plain(v) for option, v in asdict(value).items()}}
    if not isinstance(settings.get("router"), str | None):
        settings["router"] = "mlp"
    if not isinstance(settings.get("random_state"), int | np.integer | None):
        settings["random_state"] = None
    return {name: _plain(value) for name, value in settings.items()}


def _plain(value: Setting) -> Setting:
    return value.item() if isinstance(value, np.generic) else value


def parameters_from(settings: Json, *, marginal: bool) -> Json:
    """The settings of a file as arguments of the constructor, with a `marginal` for a flow.

    The settings that have no constraints of their own are checked here. A file never names a folder.
    """
    settings = dict(settings)
    if folders := [name for name in _FOLDERS if name in settings]:
        raise MuteError(f"its settings name a folder ({', '.join(folders)}), which no file may")
    check_whole_number("random_state", settings.get("random_state"), 0, or_none=True)
    if settings.get("router") not in (None, "mlp", "logistic", "teacher"):
        raise MuteError(f"its router cannot be {settings['router']!r}")
    if not isinstance(settings.get("device", ""), str):
        raise MuteError(f"its device cannot be {settings['device']!r}")
    if marginal and isinstance(settings["marginal"], dict):
        ((name, options),) = settings["marginal"].items()
        settings["marginal"] = {"Histogram": Histogram, "Quantile": Quantile}[name](**options)
    return settings


def router_state(router: Router | None, report: RoutingReport | None) -> tuple[dict[str, NDArray], Json]:
    """Arrays and plain state of a router and its report."""
    if router is not None and not isinstance(router, NetworkRouter):
        raise MuteError(
            f"a router of type {type(router.classifier).__name__} cannot be stored, because loading it would run code; "
            "save the maps alone with `eraser.without_router().save(path)` and add the router with "
            '`mute.load(path, router=classifier)`, or fit with router="mlp" or "logistic"'
        )
    return {} if router is None else router.arrays("router"), {
        "router_layers": 0 if router is None else len(router),
        "routing": None if report is None else report.to_json(),
    }


def router_from(
    tensors: dict[str, NDArray], state: Json, d: int, k: int
) -> tuple[NetworkRouter | None, RoutingReport | None]:
    """The router and the report of a file, for `d` columns and `k` classes."""
    layers, report, router = state["router_layers"], state["routing"], None
    stored = sum(name.startswith("router.") for name in tensors)
    if type(layers) is int and stored != 2 * layers:
        raise MuteError(f"its router cannot have {layers} layers and {stored} arrays")
    if layers != 0 or type(layers) is not int:
        router = NetworkRouter.from_arrays(tensors, "router", layers, d)
        if router.n_outputs != k:
            raise MuteError("its router does not fit its labels")
    return router, None if report is None else RoutingReport.from_json(report, k)


def check_array(name: str, array: NDArray, largest: float = LARGEST) -> None:
    """Refuse an array with NaN or with numbers beyond `largest`."""
    # A comparison with NaN is false.
    if array.size and not max(-array.min(), array.max()) <= largest:
        raise MuteError(f"{name} has numbers that are not finite or beyond {largest:.0e}")


def check_sizes(tensors: dict[str, NDArray]) -> None:
    """Refuse arrays of a file whose numbers are beyond the bounds."""
    for name, array in tensors.items():
        if name != "diagnostics":  # NaN stands for figures that were not measured
            weight = name.startswith(("network_.", "weights_.net"))
            check_array(name, array, LARGEST_WEIGHT if weight else _LARGEST_OF.get(name, LARGEST))
    for name, least in _LEAST_OF.items():
        if name in tensors and (tensors[name] < least).any():
            raise MuteError(f"{name} has numbers below {least:.0e}")


def flow_from(tensors: dict[str, NDArray]) -> Flow:
    """The flow of a file after `check_sizes`: rotations must be orthogonal and marginals strictly increasing."""
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
    threads = resolve_threads(None) if rotations.nbytes + values.nbytes > 1 << 20 else 1
    for_each(lambda i: _check_layer(rotations[i], values[i], arrays["step"][i]), range(t), threads)
    _check_outputs(arrays)
    return Flow(**arrays)


def _check_layer(rotation: NDArray, values: NDArray, step: NDArray) -> None:
    rises = values[..., 1:] - values[..., :-1]
    if not (rises > 0).all():
        raise MuteError("a marginal is not strictly increasing")
    if (rises.max(axis=-1).astype(np.float64) > STEEPEST * step).any():
        raise MuteError(f"a marginal is steeper than {STEEPEST:.0e}")
    # Checks R Rᵀ v = v for a random v: it reads the matrix once, and a wrong matrix passes with probability zero. The
    # vector is drawn afresh from the system's entropy, because a matrix can be made that is right for a known one.
    v = np.random.default_rng().standard_normal(len(rotation)).astype(rotation.dtype)
    tolerance = 1e-3 if rotation.dtype == np.float32 else 1e-9
    if not np.abs(rotation @ (v @ rotation) - v).max() < tolerance:
        raise MuteError("a rotation is not orthogonal")


def _check_outputs(arrays: dict[str, NDArray]) -> None:
    """Refuse a flow that takes ordinary rows, drawn afresh and spread over the classes, beyond the bounds.

    The slope of a marginal outside its grid acts in every layer, so bounds on single numbers are not enough. This is
    `Flow.push`, and `Flow.pull` under the next class, in numpy: the compiled loops take longer to load than a few rows
    to run.
    """
    rotations, origin, step, values = (arrays[name] for name in TABLES)
    n_layers, n_classes, d, m = values.shape
    k = np.arange(max(n_classes, TRIAL_ROWS)) % n_classes
    y = np.random.default_rng().standard_normal((len(k), d)).astype(values.dtype)
    columns = np.arange(d)
    with np.errstate(all="ignore"):
        for t in range(n_layers):
            place = (y @ rotations[t] - origin[t, k]) / step[t, k]
            check_array("what its flow gives", place)
            j = np.clip(place, 0, m - 2).astype(np.int64)
            low, high = values[t, k[:, None], columns, j], values[t, k[:, None], columns, j + 1]
            y = low + (place - j.astype(place.dtype)) * (high - low)
        check_array("what its flow gives", y, LARGEST_ROW)
        k = (k + 1) % n_classes
        for t in reversed(range(n_layers)):
            j = _last_below(values[t], k, y)
            low, high = values[t, k[:, None], columns, j], values[t, k[:, None], columns, j + 1]
            place = j.astype(y.dtype) + (y - low) / (high - low)
            y = (origin[t, k] + place * step[t, k]) @ rotations[t].T
            check_array("what its flow gives backwards", y)
    check_array("what its flow gives backwards", y * arrays["scale"] + arrays["center"], LARGEST_ROW)


def _last_below(values: NDArray, k: NDArray[np.int64], y: NDArray) -> NDArray[np.int64]:
    """The last knot but one that is not above each number, found by bisection."""
    columns = np.arange(y.shape[1])
    first, last = np.zeros(y.shape, np.int64), np.full(y.shape, values.shape[2] - 2)
    while (first < last).any():
        middle = (first + last + 1) // 2
        below = values[k[:, None], columns, middle] <= y
        first, last = np.where(below, middle, first), np.where(below, last, middle - 1)
    return first
