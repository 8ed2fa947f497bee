"""Parts of a file that several estimators share: labels, settings, a flow, a router. All are checked when read."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.flow.flow import Flow
from mute.flow.marginals import Histogram, Quantile
from mute.flow.routing import NetworkRouter, Router, RoutingReport
from mute.rows.threads import for_each, resolve_threads
from mute.rows.validation import LabelEncoder, check_whole_number, label_array
from mute.typing import Json, JsonValue, Label, Method, Setting

__all__ = [
    "check_all_finite",
    "flow_from",
    "labels_from_json",
    "labels_to_json",
    "parameters_from",
    "plain_parameters",
    "router_from",
    "router_state",
]


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
    settings = {n: v for n, v in estimator.get_params(deep=False).items() if n not in ("scratch", "resume")}
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
    """The settings of a file as arguments of the constructor, with a `marginal` for a flow."""
    settings = dict(settings)
    check_whole_number("n_threads", settings.get("n_threads"), or_none=True)
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
    if layers != 0 or type(layers) is not int:
        router = NetworkRouter.from_arrays(tensors, "router", layers, d)
        if router.n_outputs != k:
            raise MuteError("its router does not fit its labels")
    return router, None if report is None else RoutingReport.from_json(report, k)


def check_all_finite(arrays: dict[str, NDArray]) -> None:
    """Refuse arrays with NaN or infinity."""
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise MuteError(f"{name} has values that are not finite")


def flow_from(tensors: dict[str, NDArray]) -> Flow:
    """The flow of a file; its rotations must be orthogonal and its marginals strictly increasing."""
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
    check_all_finite({name: arrays[name] for name in ("center", "scale", "origin", "step")})
    if (arrays["scale"] <= 0).any() or (arrays["step"] <= 0).any():
        raise MuteError("scale and step must be positive")
    threads = resolve_threads(None) if rotations.nbytes + values.nbytes > 1 << 20 else 1
    for_each(lambda part: _check_layers(rotations[part], values[part]), [slice(i, i + 1) for i in range(t)], threads)
    return Flow(**arrays)


def _check_layers(rotations: NDArray, values: NDArray) -> None:
    # Comparisons with NaN are false, and an increasing row between finite ends is finite.
    if not np.isfinite(values[..., [0, -1]]).all() or not (values[..., 1:] > values[..., :-1]).all():
        raise MuteError("a marginal is not strictly increasing")
    # Checks R Rᵀ v = v for a random v: it reads the matrix once, and a wrong matrix passes with probability zero.
    v = np.random.default_rng(0).standard_normal(rotations.shape[1:2]).astype(rotations.dtype)
    tolerance = 1e-3 if rotations.dtype == np.float32 else 1e-9
    with np.errstate(all="ignore"):
        if not np.abs(rotations @ (v @ rotations)[..., None] - v[:, None]).max() < tolerance:
            raise MuteError("a rotation is not orthogonal")
