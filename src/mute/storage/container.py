"""The one container of this package: arrays and a few texts in a safetensors file.

A file is eight bytes with the length of its header, the header in JSON, and the bytes of the arrays. A reader trusts
none of them: what does not fit is refused with one `MuteError`, and reading never runs code.
"""

import hashlib
import json
import math
import mmap
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.rows.threads import for_each, resolve_threads
from mute.storage.files import write_atomically
from mute.typing import Array, Json, JsonValue

__all__ = [
    "Header", "checksums", "from_bfloat16", "header_bytes", "plain_json", "read_arrays", "reading", "text_checksum",
    "write_arrays",
]  # fmt: skip

# In the order of the format's library, which stores the last ones first. Numbers that numpy lacks are kept as their
# bits (BF16) or as plain bytes (F8).
_KINDS = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "F8_E5M2": "V1", "F8_E4M3": "V1", "F8_E8M0": "V1", "I16": "<i2", "U16": "<u2",
    "F16": "<f2", "BF16": "<u2", "I32": "<i4", "U32": "<u4", "F32": "<f4", "C64": "<c8", "F64": "<f8", "I64": "<i8",
    "U64": "<u8",
}  # fmt: skip
_DTYPES = {code: np.dtype(kind) for code, kind in _KINDS.items()}
_RANK = {code: rank for rank, code in enumerate(_DTYPES)}
_CODES = {dtype: code for code, dtype in _DTYPES.items() if code != "BF16" and dtype.kind != "V"}
# The format's own limit.
_LONGEST_HEADER = 100_000_000
_CHUNK = 4 << 20
_DAMAGE = (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError)


@dataclass(frozen=True)
class _Entry:
    """Where an array lies in a file: code of its dtype, dtype, shape, and the offset of its first byte."""

    code: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int

    @property
    def end(self) -> int:
        return self.offset + math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Header:
    """The header of a safetensors file: its texts, what it says of each array, and where the arrays begin and end."""

    metadata: Json
    tensors: Json
    start: int
    size: int

    @classmethod
    def read(cls, file: IO[bytes]) -> Self:
        """Read the header of an open file; a ValueError says what is wrong with it."""
        size = os.fstat(file.fileno()).st_size
        if size < 8:
            raise ValueError(f"it has only {size} bytes")
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(_LONGEST_HEADER, size - 8):
            raise ValueError("it is not a safetensors file, or it is cut short")
        try:
            tensors = plain_json(file.read(length))
            metadata = tensors.pop("__metadata__", {})
            readable = isinstance(tensors, dict) and isinstance(metadata, dict)
        except _DAMAGE:
            readable = False
        if not readable:
            raise ValueError("it is not a safetensors file: its header cannot be read")
        return cls(metadata, tensors, 8 + length, size)

    def entry(self, name: str) -> _Entry:
        """Where one array lies, checked against the size of the file."""
        try:
            code, shape, (begin, end) = (self.tensors[name][key] for key in ("dtype", "shape", "data_offsets"))
            entry = _Entry(code, _DTYPES[code], tuple(shape), self.start + begin)
            whole = all(type(number) is int and number >= 0 for number in (*shape, begin, end))
        except _DAMAGE:
            whole = False
        if not whole or not entry.end == self.start + end <= self.size:
            raise ValueError(f"its header does not fit its content: {str(name)[:80]!r} cannot be read, or is cut short")
        return entry

    def entries(self) -> dict[str, _Entry]:
        """Where all arrays lie; they must fill the file exactly, with nothing shared and nothing hidden."""
        entries = {name: self.entry(name) for name in self.tensors}
        spans = sorted((entry.offset, entry.end) for entry in entries.values())
        if [self.start, *(end for _, end in spans)] != [*(begin for begin, _ in spans), self.size]:
            raise ValueError("it is cut short, or has bytes that belong to no array, or to two")
        return entries


def plain_json(text: str | bytes) -> JsonValue:
    """The value of a JSON text; a ValueError if an object names a key twice, because readers differ in which they take.

    Examples
    --------
    >>> plain_json('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ...
    ValueError: it names the key 'a' twice
    """
    return json.loads(text, object_pairs_hook=_without_doubles)


def _without_doubles(pairs: list[tuple[str, JsonValue]]) -> Json:
    found: Json = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"it names the key {key[:80]!r} twice")
        found[key] = value
    return found


@contextmanager
def reading(path: str | os.PathLike[str], what: str) -> Iterator[None]:
    """Turn whatever goes wrong while `path` is read into one `MuteError`; one that names the path passes as it is.

    `what` says what the file should be, with its article.
    """
    try:
        yield
    except FileNotFoundError as error:
        missing = error.filename if os.path.exists(path) else path
        raise MuteError(f"{missing} does not exist; give the path of {what}") from None
    except (IsADirectoryError, NotADirectoryError):
        found = "directory" if os.path.isdir(path) else "file"
        raise MuteError(f"{path} is a {found}, not {what}; give the path of one") from None
    except OSError as error:
        raise MuteError(f"{path} cannot be read: {error.strerror or error}; give the path of {what}") from error
    except _DAMAGE as error:
        if isinstance(error, MuteError) and str(path) in str(error):
            raise
        reason = str(error) if type(error) in (MuteError, ValueError) else f"{type(error).__name__}: {error}"
        raise MuteError(f"{path} is damaged or not {what}: {reason}; restore it from a copy") from error


def read_arrays(path: str | os.PathLike[str], what: str, *, mapped: bool = False) -> tuple[Json, dict[str, Array]]:
    """Read the texts and the arrays of a file, which should be `what` (with its article).

    The arrays are in the order of the header; BF16 numbers become float32. With `mapped`, the arrays stay in the file
    and are mapped, read-only.
    """
    with reading(path, what), open(path, "rb") as file:
        header = Header.read(file)
        entries = header.entries()
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if mapped else None
        arrays = {}
        for name, entry in entries.items():
            count = math.prod(entry.shape)
            if content is None:
                file.seek(entry.offset)
                array = np.fromfile(file, entry.dtype, count)
            else:
                array = np.frombuffer(content, entry.dtype, count, entry.offset)
            arrays[name] = (from_bfloat16(array) if entry.code == "BF16" else array).reshape(entry.shape)
        return header.metadata, arrays


def write_arrays(
    path: str | os.PathLike[str], arrays: Mapping[str, Array], metadata: Mapping[str, str] | None = None
) -> None:
    """Write arrays and texts to a file, whole or not at all; the same content gives the same bytes.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_arrays(f"{folder}/x", {"x": np.arange(3)}, {"about": "three numbers"})
    ...     read_arrays(f"{folder}/x", "a file of numbers")
    ({'about': 'three numbers'}, {'x': array([0, 1, 2])})
    """
    arrays = {name: np.asarray(array, array.dtype.newbyteorder("<"), order="C") for name, array in arrays.items()}
    names = sorted(arrays, key=lambda name: (-_RANK[_code(name, arrays[name].dtype)], name))
    with write_atomically(path) as file:
        file.write(header_bytes({name: (arrays[name].dtype, arrays[name].shape) for name in names}, metadata))
        for name in names:
            file.write(_bytes(arrays[name]))


def header_bytes(
    layouts: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]], metadata: Mapping[str, str] | None = None
) -> bytes:
    """The beginning of a file whose arrays, of these dtypes and shapes, follow in this order."""
    header: Json = {"__metadata__": dict(metadata)} if metadata else {}
    offset = 0
    for name, (dtype, shape) in layouts.items():
        end = offset + math.prod(shape) * dtype.itemsize
        header[name] = {"dtype": _code(name, dtype), "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    # Spaces up to a multiple of 8, so that a reader's memory map is aligned.
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def checksums(arrays: Mapping[str, Array]) -> dict[str, str]:
    """For each array the SHA-256 of the SHA-256s of its chunks, so that all cores hash (it releases Python's lock)."""
    chunks = []
    for name, array in arrays.items():
        content = _bytes(array)
        chunks += [(name, content[start : start + _CHUNK]) for start in range(0, max(len(content), 1), _CHUNK)]
    threads = resolve_threads(None) if sum(array.nbytes for array in arrays.values()) > _CHUNK else 1
    digests = for_each(lambda chunk: hashlib.sha256(chunk[1]).digest(), chunks, threads)
    sums = {name: hashlib.sha256() for name in arrays}
    for (name, _), digest in zip(chunks, digests, strict=True):
        sums[name].update(digest)
    return {name: total.hexdigest() for name, total in sums.items()}


def text_checksum(text: str) -> str:
    """The SHA-256 of a text, lone surrogates included."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def from_bfloat16(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """The numbers of bfloat16 bits: each is the upper half of a float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _code(name: str, dtype: np.dtype[Any]) -> str:
    if dtype not in _CODES:
        raise MuteError(f"{name} holds {dtype} values, which a safetensors file cannot hold; give plain numbers")
    return _CODES[dtype]


def _bytes(array: Array) -> memoryview:
    return memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8))  # type: ignore[arg-type]
