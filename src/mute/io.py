"""Artefacts: one safetensors file holding arrays and JSON. Reading one never runs code.

The file is checked as a stranger's would be: header, shapes, dtypes, a checksum of every array, and then what the
mathematics needs, orthogonal rotations and strictly increasing marginals. Arrays stay in the file and are mapped into
memory.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
import platform
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.files import write_atomically
from mute.flow import Flow
from mute.marginals import Histogram, Quantile
from mute.threads import for_each, resolve_threads

__all__ = ["FORMAT_VERSION", "describe", "load", "save"]

FORMAT_VERSION = 1

# Estimators that can be stored: their name in the file, and where their class lives.
_KINDS = {"MUtE": "mute.eraser", "RBIG": "mute.gaussianize"}

_DTYPES: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F64": np.dtype("<f8")}
_MAX_HEADER = 100_000_000
_CHUNK = 4 << 20


def save(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to `path`, whole or not at all."""
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(estimator)
    tensors, state = estimator._to_artifact()
    tensors = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    meta = {
        "format": "mute",
        "version": FORMAT_VERSION,
        "kind": type(estimator).__name__,
        "state": state,
        "provenance": _provenance(estimator),
        "sha256": _checksums(tensors),
    }
    header: dict[str, Any] = {"__metadata__": {"mute": json.dumps(meta, allow_nan=True)}}
    offset = 0
    names = sorted(tensors, key=lambda name: (-tensors[name].itemsize, name))
    for name in names:
        array = tensors[name]
        dtype = next(code for code, known in _DTYPES.items() if known == array.dtype)
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with write_atomically(path) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in names:
            file.write(memoryview(tensors[name]).cast("B"))


def load(path: str | os.PathLike[str], *, router: Any = None) -> Any:
    """Read an estimator that `save` wrote.

    Parameters
    ----------
    path : str or path-like
    router : fitted classifier, optional
        In place of the stored router, for an eraser whose own could not be stored.

    Returns
    -------
    MUtE, RBIG, ...
        Gives the same outputs, to the bit, as the one that was saved. Its arrays are mapped from the file, so do not
        change the file in place while it is in use; writing a new one over it with `save` is safe.

    Raises
    ------
    MuteError
        If the file is missing, cut short, altered, or not ours.

    Examples
    --------
    >>> import tempfile, numpy as np, mute
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> model = mute.RBIG(n_iterations=3).fit(X)
    >>> path = tempfile.mkdtemp() + "/model.safetensors"
    >>> model.save(path)
    >>> bool((mute.load(path).transform(X) == model.transform(X)).all())
    True
    """
    meta, tensors = _read(path)
    kind = meta["kind"]
    if kind not in _KINDS:
        raise MuteError(f"{path} holds a {kind!r}, which this version of mute does not know")
    cls = getattr(import_module(_KINDS[kind]), kind)
    try:
        estimator = cls._from_artifact(tensors, meta["state"])
    except MuteError as error:
        raise MuteError(f"{path} is damaged or was not written by mute: {error}") from error
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        raise MuteError(f"{path} is damaged or was not written by mute: {type(error).__name__}: {error}") from error
    if router is not None:
        estimator._set_router(router)
    return estimator


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What an artefact says of itself, without its arrays: kind, state, provenance, and the shape of each array."""
    meta, tensors = _read(path)
    shapes = {name: {"shape": list(a.shape), "dtype": a.dtype.name} for name, a in sorted(tensors.items())}
    return {**{k: v for k, v in meta.items() if k != "sha256"}, "arrays": shapes, "bytes": Path(path).stat().st_size}


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Metadata and arrays of the file, checked for integrity."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < 8:
                raise MuteError(f"{path} is not a model: it has only {size} bytes")
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except IsADirectoryError:
        raise MuteError(f"{path} is a directory, not a model") from None
    except FileNotFoundError:
        raise MuteError(f"{path} does not exist; give the path of a model written by `save` or `mute fit`") from None
    except OSError as error:
        raise MuteError(f"{path} cannot be read: {error.strerror or error}") from error
    header, start = _header(content, size, path)
    try:
        meta = json.loads(header.pop("__metadata__")["mute"])
        version, kind, sums = meta["version"], meta["kind"], meta["sha256"]
        if meta["format"] != "mute" or not isinstance(kind, str) or not isinstance(sums, dict) or "state" not in meta:
            raise ValueError
    except (KeyError, TypeError, ValueError, RecursionError):
        raise MuteError(f"{path} is a safetensors file, but not one that mute wrote") from None
    if version != FORMAT_VERSION:
        raise MuteError(
            f"{path} has format version {version!r}, this mute reads version {FORMAT_VERSION}; "
            "load it with the release that wrote it, or update mute"
        )
    tensors = _tensors(header, content, start, path)
    if sums != _checksums(tensors):
        raise MuteError(f"{path} is damaged: an array does not match its checksum; restore the file from a copy")
    return meta, tensors


def _header(content: mmap.mmap, size: int, path: Any) -> tuple[dict[str, Any], int]:
    length = struct.unpack("<Q", content[:8])[0]
    if not 2 <= length <= min(_MAX_HEADER, size - 8):
        raise MuteError(f"{path} is not a safetensors file, or it is cut short")
    try:
        header = json.loads(content[8 : 8 + length])
        if not isinstance(header, dict):
            raise ValueError
    except (ValueError, RecursionError):
        raise MuteError(f"{path} is not a safetensors file: its header cannot be read") from None
    return header, 8 + length


def _tensors(header: dict[str, Any], content: mmap.mmap, start: int, path: Any) -> dict[str, NDArray]:
    tensors: dict[str, NDArray] = {}
    spans = []
    try:
        for name, entry in header.items():
            dtype, shape, (begin, end) = _DTYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
            whole = all(type(v) is int and v >= 0 for v in (*shape, begin, end))
            if not whole or end - begin != math.prod(shape) * dtype.itemsize or start + end > len(content):
                raise ValueError
            spans.append((begin, end))
            tensors[name] = np.frombuffer(content, dtype, math.prod(shape), start + begin).reshape(shape)
    except (KeyError, TypeError, ValueError):
        raise MuteError(f"{path} is damaged: its header does not fit its content") from None
    # The arrays must fill the file exactly: nothing shared, nothing hidden.
    spans.sort()
    ends = [0, *(end for _, end in spans)]
    if any(begin != end for (begin, _), end in zip(spans, ends, strict=False)) or start + ends[-1] != len(content):
        raise MuteError(f"{path} is damaged: it is cut short, or has bytes that belong to no array")
    return tensors


def _checksums(tensors: dict[str, NDArray]) -> dict[str, str]:
    """For each array the SHA-256 of the SHA-256s of its chunks, so that all cores hash (it releases Python's lock)."""
    chunks = []
    for name, array in tensors.items():
        content = memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
        chunks += [(name, content[s : s + _CHUNK]) for s in range(0, max(len(content), 1), _CHUNK)]
    sums = {name: hashlib.sha256() for name in tensors}
    with ThreadPoolExecutor() as pool:
        digests = pool.map(lambda chunk: hashlib.sha256(chunk[1]).digest(), chunks)
        for (name, _), digest in zip(chunks, digests, strict=True):
            sums[name].update(digest)
    return {name: total.hexdigest() for name, total in sums.items()}


def _provenance(estimator: Any) -> dict[str, Any]:
    import sklearn

    import mute

    return {
        "mute": mute.__version__,
        "numpy": np.__version__,
        "scikit-learn": sklearn.__version__,
        "python": platform.python_version(),
        **estimator._fitted_on,
    }


def label_to_json(label: Any) -> Any:
    """A label as JSON that keeps its type."""
    if isinstance(label, tuple):
        return {"tuple": [label_to_json(part) for part in label]}
    if label is None or isinstance(label, str | bool | int | float):
        return label
    raise MuteError(
        f"the label {label!r} is a {type(label).__name__}, which the file format cannot hold; "
        "use text, numbers, booleans or tuples of them as labels"
    )


def label_from_json(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(label_from_json(part) for part in value["tuple"])
    if isinstance(value, list):
        raise MuteError(f"{value!r} is no label")
    return value


def plain_parameters(estimator: Any) -> dict[str, Any]:
    """The settings that JSON can hold; a classifier given as router, or a random generator, is left out."""
    settings = estimator.get_params(deep=False)
    if isinstance(settings["marginal"], Histogram | Quantile):
        settings["marginal"] = {type(settings["marginal"]).__name__: asdict(settings["marginal"])}
    if not isinstance(settings.get("router"), str | None):
        settings["router"] = "mlp"
    if not isinstance(settings["random_state"], int | np.integer | None):
        settings["random_state"] = None
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in settings.items()}


def parameters_from(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a file, as the constructor takes them."""
    settings = dict(settings)
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
    if len(names) != n_features or not all(isinstance(name, str) for name in names):
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
    for_each(lambda part: check(layers[part]), [slice(t, t + 1) for t in range(len(layers))], resolve_threads(None))


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
