"""A fitted estimator as one safetensors file. Reading a file never runs code.

A class declares its fitted attributes in `_STORED`; `Stored.save` and `load` write and read them. No file is trusted:
`load` checks header, checksums, shapes and dtypes, and then the conditions of the method.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.estimators.registry import HOMES, class_of
from mute.estimators.state import (
    LARGEST_ROW,
    TRIAL_ROWS,
    check_array,
    check_sizes,
    flow_from,
    labels_from_json,
    labels_to_json,
    parameters_from,
    plain_parameters,
    router_from,
    router_state,
)
from mute.flow.diagnostics import Diagnostics
from mute.flow.flow import Flow
from mute.flow.network import Network
from mute.flow.routing import RoutingReport
from mute.flow.stopping import stopping_from_json
from mute.rows.validation import LabelEncoder, check_parameters, check_whole_number
from mute.storage.container import checksums, plain_json, read_arrays, reading, text_checksum, write_arrays
from mute.typing import Classifier, Json, Method

__all__ = ["FORMAT_VERSION", "Stored", "describe", "load"]

FORMAT_VERSION = 1

_WHAT = "a model written by `save` or `mute fit`"
_KINDS = ("plain", "arrays", "network", "flow", "router", "diagnostics", "stopping")


class Stored:
    """An estimator with a file format, which its class declares.

    `_STORED` maps each fitted attribute of the method to its axes or to its kind. The axis "D" is the number of
    columns, "K" the number of classes, a digit is a fixed size, and any other name has one size throughout. The kinds
    are

    - "network D", a `Network` and the axis of its input;
    - "flow T K D", a `Flow` and its layers, classes and columns;
    - "arrays", a dict of arrays, whose shapes ``_check_restored`` checks;
    - "plain", a value that JSON can express;
    - "router", "diagnostics" and "stopping".

    The name in the file is that of the attribute, unless ``as`` gives another. Every estimator stores `fitted_on_`, and
    its router if it has one. Both are listed only where their order in the file matters.
    """

    _STORED: ClassVar[dict[str, str]] = {}
    # Whether a file has labels; they are null for a continuous concept.
    _LABELLED: ClassVar[bool] = False
    _encoder: LabelEncoder
    n_features_in_: int
    fitted_on_: Json
    router_: Classifier
    routing_: RoutingReport | None

    def save(self, path: str | os.PathLike[str], *, about: Mapping[str, str] | None = None) -> None:
        """Write the fitted estimator to one safetensors file; `mute.load` reads it back.

        Parameters
        ----------
        path : str or path-like
        about : mapping of str to str, optional
            More provenance for the file, such as the name of the training table.
        """
        import sklearn
        from sklearn.utils.validation import check_is_fitted

        import mute

        check_is_fitted(self)
        tensors, state = self._to_artifact()
        try:
            check_sizes(tensors)
        except MuteError as error:
            raise MuteError(f"{error}, which a file cannot hold; rescale the rows and fit again") from None
        versions = {"mute": mute.__version__, "numpy": np.__version__, "scikit-learn": sklearn.__version__}
        provenance = {**versions, "python": platform.python_version(), **self.fitted_on_, **(about or {})}
        meta = {"format": "mute", "version": FORMAT_VERSION, "kind": type(self).__name__, "state": state}
        described = json.dumps({**meta, "provenance": provenance, "sha256": checksums(tensors)})
        write_arrays(path, tensors, {"mute": described, "sha256": text_checksum(described)})

    @classmethod
    def _declared(cls) -> Iterator[tuple[str, str, str, list[str]]]:
        """Attribute, name in the file, kind and axes of everything that is stored."""
        stored = cls._STORED if "fitted_on_" in cls._STORED else {"fitted_on_": "plain as fitted_on", **cls._STORED}
        for attribute, said in {**stored, **({"router_": "router"} if hasattr(cls, "route") else {})}.items():
            said, _, name = said.partition(" as ")
            kind, *axes = said.split()
            yield attribute, name or attribute, *((kind, axes) if kind in _KINDS else ("array", said.split()))

    def _to_artifact(self) -> tuple[dict[str, NDArray], Json]:
        """Arrays and plain state."""
        tensors, state = dict[str, NDArray](), Json()
        if self._LABELLED:
            state["classes"] = labels_to_json(self._encoder.classes) if hasattr(self, "classes_") else None
        state |= {"parameters": plain_parameters(self), "feature_names": [*getattr(self, "feature_names_in_", ())]}
        for attribute, name, kind, _ in self._declared():
            value = getattr(self, attribute)
            match kind:
                case "plain":
                    state[name] = value
                case "arrays":
                    state[name] = list(value)
                    tensors |= {f"{name}.{key}": array for key, array in value.items()}
                case "network":
                    state[name] = len(value)
                    tensors |= value.arrays(name)
                case "flow":
                    tensors |= {f"flow.{array}": getattr(value, array) for array in Flow.arrays()}
                case "router":
                    arrays, about = router_state(value, self.routing_)
                    tensors, state = tensors | arrays, state | about
                case "diagnostics":
                    state["diagnostics"] = None if value is None else list(value.sets)
                    tensors |= {} if value is None else {"diagnostics": value.figures}
                case "stopping":
                    state["stopping"] = None if value is None else asdict(value)
                case _:
                    tensors[name] = value
        return tensors, state

    @classmethod
    def _from_artifact(cls, tensors: dict[str, NDArray], state: Json) -> Self:
        """The estimator of a file, whose arrays must fit the axes that the class declares."""
        check_sizes(tensors)
        settings = parameters_from(state["parameters"], marginal="flow_" in cls._STORED)
        new: Any = cls(**settings)  # Any: the attributes of every estimator are set here
        new._check_settings()
        names, sizes = state["feature_names"], dict[str, int]()
        state = {**state, "fitted_on": dict(state["fitted_on"])}
        if (columns := len(names) or state["fitted_on"].get("columns")) is not None:
            check_whole_number("its number of columns", columns)
            sizes["D"] = columns
        if cls._LABELLED and not new._continuous():
            new._encoder = labels_from_json(state["classes"])
            new.classes_ = new._encoder.as_array()
            sizes["K"] = len(new._encoder)

        def check_shape(name: str, axes: list[str], shape: tuple[int, ...]) -> None:
            if len(shape) != len(axes):
                raise MuteError(f"{name} has the wrong number of axes")
            for axis, size in zip(axes, shape, strict=True):
                if (int(axis) if axis.isdecimal() else sizes.setdefault(axis, size)) != size:
                    raise MuteError(f"the shape of {name} does not fit the others")

        # Networks and routers are last, because their checks need the sizes of the other arrays.
        for attribute, name, kind, axes in sorted(cls._declared(), key=lambda one: one[2] in ("network", "router")):
            value: Any  # Any: its type depends on the kind
            match kind:
                case "plain":
                    value = state[name]
                case "arrays":
                    value = {str(key): tensors[f"{name}.{key}"] for key in state[name]}
                case "network":
                    value = Network.from_arrays(tensors, name, state[name], sizes[axes[0]])
                case "flow":
                    value = flow_from(tensors)
                    check_shape("its flow", axes, value.values.shape[:3])
                case "router":
                    value, new.routing_ = router_from(tensors, state, sizes["D"], sizes["K"])
                case "diagnostics" | "stopping" if state[kind] is None:
                    value = None
                case "diagnostics":
                    sets = tuple(map(str, state["diagnostics"]))
                    value = Diagnostics.from_arrays(tensors[kind], sets, new._encoder.classes, sizes["T"])
                case "stopping":
                    value = stopping_from_json(state["stopping"])
                case _:
                    value = tensors[name]
                    check_shape(name, axes, value.shape)
            setattr(new, attribute, value)
        new.n_features_in_ = new._n_features_out = d = sizes["D"]
        if names:
            if not isinstance(names, list) or len(names) != d or not all(isinstance(name, str) for name in names):
                raise MuteError("its feature names do not fit its maps")
            new.feature_names_in_ = np.array(names, object)
        new._check_restored()
        new._check_trial()
        restored: Self = new
        return restored

    def _check_restored(self) -> None:
        """Refuse arrays that violate a condition of the method, and set the attributes that follow from them."""

    def _check_trial(self) -> None:
        """Refuse a map that takes ordinary rows, drawn afresh, beyond the bounds."""
        rows = np.random.default_rng().standard_normal(
            (max(TRIAL_ROWS, len(getattr(self, "classes_", ()))), self.n_features_in_)
        )
        rows = rows * getattr(self, "scale_", 1.0) + getattr(self, "center_", 0.0)
        with np.errstate(all="ignore"):
            for outputs in self._trial_outputs(rows.astype(np.float32)):
                check_array("what its map gives", outputs, LARGEST_ROW)

    def _trial_outputs(self, X: NDArray) -> Iterator[NDArray]:
        """Outputs of the method's maps, and the router's, for a few rows; a flow is tried when it is read."""
        yield from ()

    def _check_settings(self) -> None:
        """Refuse bad settings; a subclass adds checks that ``_parameter_constraints`` cannot express.

        What depends on the machine is checked by the fit: a model can be loaded where it cannot be fitted.
        """
        check_parameters(self)

    def set_secret(self, secret: bytes | str) -> None:
        raise MuteError(f"{type(self).__name__} has no leak budget and no secret; load it without secret=")

    def _set_router(self, classifier: Classifier) -> None:
        raise MuteError(f"{type(self).__name__} does not use a router; load it without router=")


def load(path: str | os.PathLike[str], *, router: Classifier = None, secret: bytes | str | None = None) -> Method:
    """Read an estimator that `save` wrote.

    Parameters
    ----------
    path : str or path-like
    router : fitted classifier, optional
        A router to use in place of the stored one.
    secret : bytes or str, optional
        The secret of a fit with a leak budget, if its file does not contain it.

    Returns
    -------
    MUtE, RBIG, ...
        An estimator with the same outputs, to the bit, as the saved one.

    Raises
    ------
    MuteError
        If the file is missing, incomplete, altered, or not a file of `save`.

    See Also
    --------
    MUtE.save : Writes the file.

    Notes
    -----
    *Limits.* The arrays are mapped from the file, so do not change the file in place while it is in use. Overwriting it
    with `save` is safe.

    Examples
    --------
    >>> import tempfile, numpy as np, mute
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> model = mute.RBIG(n_iterations=3).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(f"{folder}/model.safetensors")
    ...     again = mute.load(f"{folder}/model.safetensors")
    >>> bool((again.transform(X) == model.transform(X)).all())
    True
    """
    meta, tensors = _read(path)
    kind = meta["kind"]
    if kind not in HOMES:
        raise MuteError(f"{path} contains a {kind!r}, which this version of mute does not know; update mute")
    with reading(path, _WHAT):
        estimator: Stored = class_of(kind)._from_artifact(tensors, meta["state"])
    if router is not None:
        estimator._set_router(router)
    if secret is not None:
        estimator.set_secret(secret)
    return estimator


def describe(path: str | os.PathLike[str]) -> Json:
    """The metadata of a file: kind, state, provenance, and the shape of each array."""
    meta, tensors = _read(path)
    budget = meta["state"].get("budget")
    if budget and budget.get("secret"):
        budget["secret"] = "in the file"  # what is shown may be passed on
    shapes = {name: {"shape": list(a.shape), "dtype": a.dtype.name} for name, a in sorted(tensors.items())}
    return {**{k: v for k, v in meta.items() if k != "sha256"}, "arrays": shapes, "bytes": Path(path).stat().st_size}


def _read(path: str | os.PathLike[str]) -> tuple[Json, dict[str, NDArray]]:
    """Metadata and arrays of the file, checked for integrity."""
    metadata, tensors = read_arrays(path, _WHAT, mapped=True)
    try:
        meta = plain_json(metadata["mute"])
        version, kind, sums = meta["version"], meta["kind"], meta["sha256"]
        if meta["format"] != "mute" or not isinstance(kind, str) or not isinstance(sums, dict) or "state" not in meta:
            raise ValueError
    except (KeyError, TypeError, ValueError, RecursionError):
        raise MuteError(f"{path} is a safetensors file, but not one that mute wrote; give {_WHAT}") from None
    if type(version) is not int or version != FORMAT_VERSION:
        raise MuteError(
            f"{path} has format version {version!r}, this mute reads version {FORMAT_VERSION}; "
            "load it with the release that wrote it, or update mute"
        )
    with reading(path, _WHAT):
        if metadata.get("sha256") != text_checksum(metadata["mute"]):
            raise MuteError("its metadata does not match its checksum")
        if any(array.dtype not in (np.float32, np.float64) for array in tensors.values()):
            raise MuteError("it has arrays that are neither float32 nor float64")
        if sums != checksums(tensors):
            raise MuteError("an array does not match its checksum")
    return meta, tensors
