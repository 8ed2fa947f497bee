"""Read pickle and .npy files without running anything that they say."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np

from mute.datasets.papers.frames import frame_columns
from mute.datasets.papers.opcodes import Noted, follow
from mute.errors import MuteError
from mute.typing import Array

__all__ = ["read_npy", "read_pickle"]

_LEAVES = frozenset({type(None), bool, int, float, complex, str, bytes})
_DTYPE = re.compile(r"(b1|[iu][1248]|f[248]|c8|c16|S[1-9]\d*|U[1-9]\d*|O[48]?)")
_TEXTS = frozenset({str, bytes, np.str_, np.bytes_})
_UNDER_WAY = object()

# Values and bytes for each byte of the file: data of which nothing is shared have up to two.
_MOST_PER_BYTE, _MOST_AT_LEAST = 5, 1_000_000
_DEEPEST = 64
_MOST_ODD_KEYS = 10_000


def read_pickle(path: str | os.PathLike[str]) -> Any:  # Any: whatever the file has
    """Read plain data out of a pickle file; a file that asks for anything else is refused.

    Parameters
    ----------
    path : str or path-like
        A pickle of any protocol, written by Python 2 or 3, numpy 1 or 2, pandas 1 to 3.

    Returns
    -------
    object
        None, bool, int, float, complex, str, bytes, list, tuple, dict, set, numpy arrays and scalars, nested as in the
        file. An ``OrderedDict`` becomes a dict, a ``bytearray`` bytes, and a DataFrame a dict of column name -> array
        of shape (n_rows,).

    Raises
    ------
    MuteError
        If the file is not a whole pickle, asks for other names, or has arrays whose shape and content do not fit.

    Notes
    -----
    A small stack machine follows the opcodes of the file and calls nothing: names must be on an allow-list, and are
    noted with the arguments of their calls. Arrays are made afterwards, from checked shapes and bytes. So a hostile
    file can run nothing, and takes time and memory in proportion to its size only.

    *Limits.* Refused are data that are nested more than 64 levels deep, that have more than 10,000 keys and members of
    sets other than text, or that come to more than a million values and bytes, and to more than five for each byte of
    the file, when what is shared is written out wherever it stands. The index of a DataFrame is not read, and columns
    of dates, categories or nullable numbers are left out. Strings of Python 2 are read as Latin-1.

    Examples
    --------
    >>> import pickle, tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "words.pkl").write_bytes(pickle.dumps({"queen": np.array([0.5, 1.5])}))
    ...     read_pickle(Path(folder, "words.pkl"))
    {'queen': array([0.5, 1.5])}
    """
    with _opened(path) as file:
        return _unpickled(file, path)


def read_npy(path: str | os.PathLike[str], mmap: bool = True) -> Array:
    """Read the array of a .npy file; nothing that the file says is run.

    Parameters
    ----------
    path : str or path-like
        An array of records (a structured dtype) is refused.
    mmap : bool
        Whether numbers are mapped into memory (read-only, read when used) in place of being loaded.

    Returns
    -------
    ndarray
        Of numbers, booleans or strings as stored; an array of objects comes out of the pickle inside the file, as
        `read_pickle` reads it.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(folder + "/z.npy", np.array(["f", "m"], dtype=object), allow_pickle=True)
    ...     read_npy(folder + "/z.npy")
    array(['f', 'm'], dtype=object)
    """
    with _opened(path) as file:
        try:
            shape, dtype = _npy_header(file)
            if dtype.hasobject:
                array = _unpickled(file, path)
                if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != shape:
                    raise MuteError(f"{path} contains something else than its header says: save or fetch it again")
                return array
            array = np.lib.format.open_memmap(path, mode="r")
        except MuteError:
            raise
        except Exception as error:
            raise MuteError(f"{path} is not a whole .npy file ({_reason(error)}): save or fetch it again") from error
    return array if mmap else np.array(array)


def _npy_header(file: BinaryIO) -> tuple[tuple[int, ...], np.dtype[Any]]:
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    version = np.lib.format.read_magic(file)
    if version not in readers:
        raise MuteError(f"{file.name} has version {version} of the .npy format: only plain arrays are read")
    shape, _, dtype = readers[version](file)
    if dtype != np.dtype(object) and _DTYPE.fullmatch(dtype.str[1:]) is None:
        raise MuteError(f"{file.name} has {dtype} values: only numbers, strings and plain objects are read")
    if any(size < 0 for size in shape):
        raise MuteError(f"{file.name} claims to have shape {shape}: save or fetch it again")
    return shape, dtype


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    try:
        with open(path, "rb") as file:
            yield file
    except FileNotFoundError:
        raise MuteError(f"there is no file {path}") from None
    except OSError as error:
        raise MuteError(f"cannot read {path}: {error.strerror or error}") from error


def _unpickled(file: BinaryIO, path: str | os.PathLike[str]) -> Any:  # Any: whatever the file has
    content = file.read()
    try:
        return Plain(most=_MOST_PER_BYTE * len(content) + _MOST_AT_LEAST)(follow(content))
    except MuteError as error:
        raise MuteError(f"{path} {error}") from error
    # Nothing of the file was run, so whatever went wrong (and a broken pickle can raise anything) is its own fault.
    except Exception as error:
        raise MuteError(f"{path} is not a whole pickle file ({_reason(error)}): fetch it again") from error


def _reason(error: Exception) -> str:
    text = "".join(letter for letter in " ".join(str(error)[:1000].split()) if letter.isprintable())
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__


class Plain:
    """Turn what was noted into data, through all levels; what is shared in the file stays shared.

    Every value, and every byte of an array, is charged where it stands, also when it stands there a second time. So
    data that are small in the file, but large when written out in full, are refused.
    """

    def __init__(self, most: int) -> None:
        self._spent, self._most = 0, most
        self._depth = self._odd_keys = 0
        # By identity: the thing, what was made of it, and its charge. The thing is kept, for an id is free again as
        # soon as its object is gone.
        self._made: dict[int, tuple[object, Any, int]] = {}

    def __call__(self, thing: Any) -> Any:  # Any: whatever the file has
        """Give the data for what `follow` has read."""
        if type(thing) in _LEAVES:
            self.spend(1)
            return thing
        if id(thing) in self._made:
            _, made, charge = self._made[id(thing)]
            if made is _UNDER_WAY:
                raise MuteError("has something that contains itself: only plain data is read")
            self.spend(charge)
            return made
        if self._depth == _DEEPEST:
            raise MuteError(f"is nested more than {_DEEPEST} levels deep: only plain data is read")
        before = self._spent
        self.spend(1)
        self._depth += 1
        self._made[id(thing)] = (thing, _UNDER_WAY, 0)
        made = self._make(thing)
        self._made[id(thing)] = (thing, made, self._spent - before)
        self._depth -= 1
        return made

    def spend(self, amount: int) -> None:
        """Charge values or bytes; refuse the file when there are too many."""
        self._spent += amount
        if self._spent > self._most:
            raise MuteError(f"has more than {self._most} values and bytes when written out in full: fetch it again")

    def keys(self, keys: list[Any]) -> list[Any]:
        """Check what is about to be hashed: a file can choose numbers, but not text, so that all of them collide."""
        if not _TEXTS.issuperset(map(type, keys)):
            odd = [key for key in keys if type(key) not in _TEXTS]
            self._odd_keys += len(odd)
            if self._odd_keys > _MOST_ODD_KEYS:
                raise MuteError(f"has more than {_MOST_ODD_KEYS} keys and members of sets that are not text")
            for key in odd:
                parts = key if isinstance(key, tuple | frozenset) else (key,)
                if len(parts) > 16 or not all(type(part) in _LEAVES or isinstance(part, np.generic) for part in parts):
                    raise MuteError("has a key that is neither text, nor a number, nor a short tuple of them")
        return keys

    def _make(self, thing: Any) -> Any:  # Any: whatever the file has
        if isinstance(thing, Noted):
            return self._of_noted(thing)
        if _LEAVES.issuperset(map(type, thing)):  # runs in C: lists of millions of numbers are the common case
            self.spend(len(thing))
            return thing
        made: list[Any] = []
        made += [made if part is thing else self(part) for part in thing]
        return made if isinstance(thing, list) else tuple(made)

    def _of_noted(self, noted: Noted) -> Any:  # Any: whatever the file has
        if noted.args is None:
            if noted.source.startswith("pandas") and noted.source.endswith(".NA"):
                return None
            raise MuteError(f"contains {noted.source} itself: only plain data is read")
        args = noted.args
        match noted.source:
            case "dict":
                return self._dict(noted.items)
            case "collections.OrderedDict":
                pairs = [part for key, value in (args[0] if args else ()) for part in (key, value)]
                return self._dict(pairs + noted.items)
            case "builtins.set":
                return set(self.keys(self([*args[0], *noted.items] if args else noted.items)))
            case "builtins.frozenset":
                return frozenset(self.keys(self(args[0] if args else [])))
            case "numpy._core.multiarray._reconstruct":
                *_, shape, dtype, fortran, data = noted.state
                return self._array(self(data), self(dtype), self(shape), "F" if fortran else "C")
            case "numpy._core.numeric._frombuffer":
                data, dtype, shape, order, *axes = map(self, args)
                if order != "K":
                    return self._array(data, dtype, shape, order)
                return self._array(data, dtype, shape, "C").transpose(*axes)
            case "numpy._core.multiarray.scalar":
                dtype, data = map(self, args)
                return self._array(data, dtype, (), "C")[()]
            case "numpy.dtype":
                return _dtype(self(args[0]), *((None,) * 3 if noted.state is None else map(self, noted.state[1:4])))
            case "builtins.bytes" | "builtins.bytearray" | "_codecs.encode":
                return self._bytes(*map(self, args))
            case "builtins.complex":
                return complex(*map(self, args))
            case "pandas.DataFrame" | "pandas.core.frame.DataFrame":
                return frame_columns(noted, self)
        raise MuteError(f"contains a {noted.source}: only plain data, numpy arrays and DataFrames are read")

    def _dict(self, items: list[Any]) -> dict[Any, Any]:
        made = self(items)
        return dict(zip(self.keys(made[::2]), made[1::2], strict=True))

    def _bytes(self, content: object = b"", encoding: object = "latin1") -> bytes:
        # Protocols before 3 have no bytes: they go as text, with the name of an encoding.
        if isinstance(content, str) and encoding in ("latin1", "latin-1", "ascii", "utf-8"):
            content = content.encode(str(encoding))
        if not isinstance(content, bytes):
            raise MuteError("has bytes of an unknown kind: only plain data is read")
        self.spend(len(content))
        return content

    def _array(self, data: object, dtype: object, shape: object, order: object) -> Array:
        """Make an array out of checked parts; numpy itself would believe them."""
        if not isinstance(dtype, np.dtype) or order not in ("C", "F"):
            raise MuteError("has an array without a proper dtype or order: fetch it again")
        sizes = shape if isinstance(shape, tuple) and len(shape) <= 64 else (None,)
        if not all(type(size) is int and 0 <= size < 2**63 for size in sizes):
            raise MuteError(f"has an array of shape {ascii(shape)[:60]}: fetch it again")
        count = math.prod(sizes)
        content: list[Any] | bytes
        if dtype.kind == "O":
            content, needed, unit = data if isinstance(data, list) else [], count, "objects"
        else:
            content, needed, unit = self._bytes(data), count * dtype.itemsize, "bytes"
        if len(content) != needed:
            raise MuteError(
                f"has an array of shape {shape} with {len(content)} {unit} in place of {needed}: fetch it again"
            )
        if count == 0:
            empty = np.empty(sizes, dtype=dtype, order=order)
            self.spend(max(sizes))  # it takes no memory, but a list of its rows would
            return empty
        if isinstance(content, list):
            # Whatever the order of the array, numpy lists its objects row by row.
            return np.fromiter(content, dtype=object, count=count).reshape(sizes)
        array = np.frombuffer(content, dtype=dtype)
        if dtype.kind == "U" and array.view(dtype.byteorder + "u4").max() > 0x10FFFF:
            raise MuteError("has text of impossible characters: fetch it again")
        return array.reshape(sizes, order=order).copy(order=order)


def _dtype(code: object, order: object, subarray: object, names: object) -> np.dtype[Any]:
    if not isinstance(code, str) or subarray is not None or names is not None or _DTYPE.fullmatch(code) is None:
        raise MuteError(f"has an array of dtype {ascii(code)[:40]}: only numbers, strings and plain objects are read")
    if code.startswith("O"):
        return np.dtype(object)
    if order not in (None, "<", ">", "|", "="):
        raise MuteError(f"has an array of byte order {ascii(order)[:40]}: fetch it again")
    return np.dtype(f"{order or '|'}{code}")
