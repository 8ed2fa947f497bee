"""Data sets in files: safetensors with JSON metadata, checked when they are read, never any code in them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.storage.container import read_arrays, reading, write_arrays
from mute.typing import Array, Json

if TYPE_CHECKING:
    from mute.datasets.dataset import Dataset

__all__ = ["read_dataset", "read_words", "write_dataset", "write_words"]

_VERSION = 1


def write_dataset(data: Dataset, path: str | os.PathLike[str]) -> None:
    """Write a data set; see `Dataset.save`."""
    tensors: dict[str, Array] = {"X": data.X, **_pack(data.names.tolist())}
    labels = {}
    for name in ("z", "y", "split"):
        column = getattr(data, name)
        if column is not None:
            labels[name], tensors[name] = _codes(name, column)
    _write(path, "dataset", tensors, {"labels": labels, "provenance": data.provenance})


def read_dataset(path: str | os.PathLike[str]) -> Dataset:
    """Read a data set; see `Dataset.open`."""
    from mute.datasets.dataset import Dataset

    with _opened(path, "dataset") as (tensors, about):
        labels = about["labels"]
        if not np.isfinite(tensors["X"]).all():
            raise MuteError("X has values that are not finite")
        return Dataset(
            X=tensors["X"],
            names=np.array(_unpack(tensors), dtype=np.str_),
            provenance=dict(about["provenance"]),
            **{name: np.array(values)[_checked(name, tensors[name], len(values))] for name, values in labels.items()},
        )


def write_words(words: list[str], vectors: NDArray[np.float32], path: str | os.PathLike[str]) -> None:
    """Write words, most frequent first, and their vectors of shape (n, D)."""
    _write(path, "words", {"vectors": vectors, **_pack(words)}, {})


def read_words(path: str | os.PathLike[str]) -> tuple[list[str], NDArray[np.float32]]:
    """Read what `write_words` wrote."""
    with _opened(path, "words") as (tensors, _):
        words, vectors = _unpack(tensors), tensors["vectors"]
        if vectors.ndim != 2 or len(vectors) != len(words):
            raise MuteError(f"{len(words)} words have vectors of shape {vectors.shape}")
        return words, vectors


def _codes(name: str, column: Array) -> tuple[list[Any], NDArray[np.int32]]:
    """Distinct values, and for each row which one it has."""
    if column.dtype.kind not in "biufU":
        raise MuteError(f"{name} holds {column.dtype} values; only text, numbers and booleans can be written to a file")
    values, codes = np.unique(column, return_inverse=True)
    return values.tolist(), codes.astype(np.int32)


def _checked(name: str, codes: Array, size: int) -> Array:
    if codes.dtype.kind not in "iu" or codes.min(initial=0) < 0 or codes.max(initial=0) >= max(size, 1):
        raise MuteError(f"{name} has codes beyond its {size} labels")
    return codes


def _pack(texts: list[str]) -> dict[str, Array]:
    """Texts as one run of UTF-8 bytes with the length of each: they may hold line breaks."""
    try:
        parts = [text.encode() for text in texts]
    except UnicodeEncodeError as error:
        raise MuteError(f"a name cannot be written as UTF-8: {error}; replace its lone surrogates") from error
    return {
        "text": np.frombuffer(b"".join(parts), dtype=np.uint8),
        "lengths": np.array([len(part) for part in parts], dtype=np.int64),
    }


def _unpack(tensors: dict[str, Array]) -> list[str]:
    content, lengths = tensors["text"].tobytes(), tensors["lengths"]
    if lengths.ndim != 1 or lengths.min(initial=0) < 0 or lengths.sum() != len(content):
        raise MuteError("the lengths of its texts do not fit its text")
    ends = np.cumsum(lengths).tolist()
    return [content[begin:end].decode() for begin, end in zip([0, *ends], ends, strict=False)]


def _write(path: str | os.PathLike[str], kind: str, tensors: dict[str, Array], about: Json) -> None:
    try:
        text = json.dumps({"format": kind, "version": _VERSION, **about})
    except (TypeError, ValueError) as error:
        raise MuteError(f"the provenance cannot be written as JSON: {error}") from error
    write_arrays(path, tensors, {"mute": text})


@contextmanager
def _opened(path: str | os.PathLike[str], kind: str) -> Iterator[tuple[dict[str, Array], Json]]:
    """Arrays and description of a file of this kind; what is wrong with them is said of the file."""
    with reading(path, f"a {kind} file of mute"):
        metadata, tensors = read_arrays(path, f"a {kind} file of mute")
        about = json.loads(metadata["mute"])
        if about["format"] != kind:
            raise MuteError(f"it is a {about['format']}, not a {kind}")
        if about["version"] != _VERSION:
            raise MuteError(f"{path} has version {about['version']}, this mute reads {_VERSION}; update mute")
        yield tensors, about
