"""Artefacts: one safetensors file holding arrays and JSON. Reading one never runs code.

The file is checked as a stranger's would be: header, shapes, dtypes, a checksum of every array, and then, in
`mute.estimators.artifacts`, what the mathematics needs. Arrays stay in the file and are mapped into memory.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
import platform
import struct
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.estimators.registry import HOMES, class_of
from mute.rows.threads import for_each, resolve_threads
from mute.storage.files import write_atomically

__all__ = ["FORMAT_VERSION", "describe", "load", "save"]

FORMAT_VERSION = 1

_DTYPES: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F64": np.dtype("<f8")}
_MAX_HEADER = 100_000_000
_CHUNK = 4 << 20


def save(estimator: Any, path: str | os.PathLike[str], *, about: Mapping[str, str] = MappingProxyType({})) -> None:
    """Write a fitted estimator to `path`, whole or not at all; `about` goes to what the file says of its origin."""
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(estimator)
    tensors, state = estimator._to_artifact()
    tensors = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    meta = {
        "format": "mute",
        "version": FORMAT_VERSION,
        "kind": type(estimator).__name__,
        "state": state,
        "provenance": _provenance(estimator) | dict(about),
        "sha256": _checksums(tensors),
    }
    described = json.dumps(meta, allow_nan=True)
    header: dict[str, Any] = {"__metadata__": {"mute": described, "sha256": _text_checksum(described)}}
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
            if tensors[name].size:  # an empty array has no bytes to view
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
    if kind not in HOMES:
        raise MuteError(f"{path} holds a {kind!r}, which this version of mute does not know")
    cls = class_of(kind)
    try:
        estimator = cls._from_artifact(tensors, meta["state"])
    except MuteError as error:
        raise MuteError(f"{path} is damaged or was not written by mute: {error}") from error
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        raise MuteError(f"{path} is damaged or was not written by mute: {type(error).__name__}: {error}") from error
    if router is not None:
        if not hasattr(estimator, "_set_router"):
            raise MuteError(f"{path} holds a {kind}, which has no router; load it without router=")
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
        own = header.pop("__metadata__")
        meta = json.loads(own["mute"])
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
    if own.get("sha256") != _text_checksum(own["mute"]):
        raise MuteError(f"{path} is damaged: its metadata does not match its checksum; restore the file from a copy")
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


def _text_checksum(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _checksums(tensors: dict[str, NDArray]) -> dict[str, str]:
    """For each array the SHA-256 of the SHA-256s of its chunks, so that all cores hash (it releases Python's lock)."""
    chunks = []
    for name, array in tensors.items():
        content = memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
        chunks += [(name, content[s : s + _CHUNK]) for s in range(0, max(len(content), 1), _CHUNK)]
    digests: list[bytes] = [b""] * len(chunks)

    def hash_chunk(part: slice) -> None:
        digests[part.start] = hashlib.sha256(chunks[part.start][1]).digest()

    threads = resolve_threads(None) if sum(a.nbytes for a in tensors.values()) > _CHUNK else 1
    for_each(hash_chunk, [slice(i, i + 1) for i in range(len(chunks))], threads)
    sums = {name: hashlib.sha256() for name in tensors}
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
        **estimator.fitted_on_,
    }
