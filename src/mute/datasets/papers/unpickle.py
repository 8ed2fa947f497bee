"""Read pickle and .npy files without running anything that they say."""

from __future__ import annotations

import copyreg
import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np

from mute.datasets.papers.frames import frame_columns
from mute.datasets.papers.standins import StandIn, StandInUnpickler
from mute.errors import MuteError
from mute.typing import Array

__all__ = ["read_npy", "read_pickle"]

_LEAVES = frozenset({type(None), bool, int, float, complex, str, bytes})
_DTYPE = re.compile(r"(b1|[iu][1248]|f[248]|c8|c16|S[1-9]\d*|U[1-9]\d*|O[48]?)")
_UNDER_WAY = object()


def read_pickle(path: str | os.PathLike[str]) -> Any:
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
    Names in the file must be on an allow-list, and each is bound to an inert stand-in, never to the real class. Arrays
    are made afterwards, from checked shapes and bytes. So a hostile file can run nothing.

    *Limits.* A hostile file can still ask for much memory. The index of a DataFrame is not read, and columns of dates,
    categories or nullable numbers are left out. Strings of Python 2 are read as Latin-1.

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


def _unpickled(file: BinaryIO, path: str | os.PathLike[str]) -> Any:
    # Objects of the program's own extension codes would be taken from this cache without asking `find_class`.
    copyreg.clear_extension_cache()
    try:
        return _Plain()(StandInUnpickler(file, encoding="latin1").load())
    except MuteError as error:
        raise MuteError(f"{path} {error}") from error
    # Only stand-ins ran, so whatever went wrong (and a broken pickle can raise anything) is the fault of the file.
    except Exception as error:
        raise MuteError(f"{path} is not a whole pickle file ({_reason(error)}): fetch it again") from error


def _reason(error: Exception) -> str:
    text = "".join(letter for letter in " ".join(str(error).split()) if letter.isprintable())
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__


class _Plain:
    """Turn stand-ins into data, through all levels; what is shared in the file stays shared."""

    def __init__(self) -> None:
        # By identity. The original is kept as well, for an id is free again as soon as its object is gone.
        self._made: dict[int, tuple[Any, Any]] = {}

    def __call__(self, thing: Any) -> Any:
        if type(thing) in _LEAVES:
            return thing
        if id(thing) not in self._made:
            # These are changed in place, so they may contain themselves.
            self._made[id(thing)] = (thing, thing if isinstance(thing, list | dict | set) else _UNDER_WAY)
            self._made[id(thing)] = (thing, self._make(thing))
        made = self._made[id(thing)][1]
        if made is _UNDER_WAY:
            raise MuteError("has something that contains itself: only plain data is read")
        return made

    def _make(self, thing: Any) -> Any:
        if isinstance(thing, StandIn):
            return self._stood_for(thing)
        if isinstance(thing, bytearray):
            return bytes(thing)
        if isinstance(thing, dict):
            if not (_all_leaves(thing) and _all_leaves(thing.values())):
                items = [(self(key), self(value)) for key, value in thing.items()]
                thing.clear()
                thing.update(items)
            return thing
        if isinstance(thing, list | tuple | set | frozenset):
            if _all_leaves(thing):
                return thing
            made = type(thing)(self(part) for part in thing)
            if isinstance(thing, tuple | frozenset):
                return made
            thing.clear()
            (thing.extend if isinstance(thing, list) else thing.update)(made)
            return thing
        if isinstance(thing, type) and issubclass(thing, StandIn):
            if thing.source.startswith("pandas") and thing.source.endswith(".NA"):
                return None
            raise MuteError(f"contains {thing.source} itself: only plain data is read")
        raise MuteError(f"contains a {type(thing).__name__}: only plain data is read")

    def _stood_for(self, noted: StandIn) -> Any:
        args = noted.args
        match noted.source:
            case "numpy._core.multiarray._reconstruct":
                *_, shape, dtype, fortran, data = noted.state
                return _array(self(data), self(dtype), self(shape), "F" if fortran else "C")
            case "numpy._core.numeric._frombuffer":
                data, dtype, shape, order, *axes = map(self, args)
                if order != "K":
                    return _array(data, dtype, shape, order)
                return _array(data, dtype, shape, "C").transpose(*axes)
            case "numpy._core.multiarray.scalar":
                dtype, data = map(self, args)
                return _array(data, dtype, (), "C")[()]
            case "numpy.dtype":
                return _dtype(args[0], noted.state)
            case "builtins.bytes" | "builtins.bytearray" | "_codecs.encode":
                return _bytes(*map(self, args))
            case "builtins.complex":
                return complex(*args)
            case "builtins.set" | "builtins.frozenset":
                return (set if noted.source == "builtins.set" else frozenset)(self(list(*args)))
            case "collections.OrderedDict":
                return self(dict([*(args[0] if args else ()), *noted.items]))
            case "pandas.DataFrame" | "pandas.core.frame.DataFrame":
                return frame_columns(noted, self)
        raise MuteError(f"contains a {noted.source}: only plain data, numpy arrays and DataFrames are read")


def _all_leaves(parts: Any) -> bool:
    # Runs in C: lists of millions of numbers are the common case.
    return _LEAVES.issuperset(map(type, parts))


def _bytes(content: Any = b"", encoding: Any = "latin1") -> bytes:
    # Protocols before 3 have no bytes: they go as text, with the name of an encoding.
    if isinstance(content, str) and encoding in ("latin1", "latin-1", "ascii", "utf-8"):
        return content.encode(encoding)
    if not isinstance(content, bytes):
        raise MuteError("has bytes of an unknown kind: only plain data is read")
    return content


def _dtype(code: Any, state: Any) -> np.dtype[Any]:
    order: Any
    order, subarray, names = ("|", None, None) if state is None else state[1:4]
    if not isinstance(code, str) or subarray is not None or names is not None or _DTYPE.fullmatch(code) is None:
        raise MuteError(f"has an array of dtype {ascii(code)[:40]}: only numbers, strings and plain objects are read")
    if code.startswith("O"):
        return np.dtype(object)
    if order not in ("<", ">", "|", "="):
        raise MuteError(f"has an array of byte order {ascii(order)[:40]}: fetch it again")
    return np.dtype(code).newbyteorder(order)


def _array(data: Any, dtype: Any, shape: Any, order: Any) -> Array:
    """Make an array out of checked parts; numpy itself would believe them."""
    if not isinstance(dtype, np.dtype) or order not in ("C", "F"):
        raise MuteError("has an array without a proper dtype or order: fetch it again")
    if not isinstance(shape, tuple) or not all(type(size) is int and size >= 0 for size in shape):
        raise MuteError(f"has an array of shape {ascii(shape)[:60]}: fetch it again")
    objects = dtype.kind == "O"
    content = (data if isinstance(data, list) else []) if objects else _bytes(data)
    count, unit = math.prod(shape), "objects" if objects else "bytes"
    needed = count if objects else count * dtype.itemsize
    if len(content) != needed:
        raise MuteError(
            f"has an array of shape {shape} with {len(content)} {unit} in place of {needed}: fetch it again"
        )
    if objects:
        # Whatever the order of the array, numpy lists its objects row by row.
        return np.fromiter(content, dtype=object, count=count).reshape(shape)
    if count == 0:
        return np.empty(shape, dtype=dtype, order=order)
    array = np.frombuffer(content, dtype=dtype)  # type: ignore[arg-type]
    if dtype.kind == "U" and array.view(dtype.byteorder + "u4").max() > 0x10FFFF:
        raise MuteError("has text of impossible characters: fetch it again")
    return array.reshape(shape, order=order).copy(order=order)
