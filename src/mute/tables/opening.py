"""How matrices and labels in files are named: ``PATH`` or ``PATH:SELECTOR``."""

import os
import re
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.tables.columns import DelimitedMatrix, ParquetMatrix, check_unique, delimited_rows, import_arrow
from mute.tables.readers import ArrayMatrix, Matrix, npy_array, npz_array, pick, readable, safetensors_array

__all__ = ["open_matrix", "read_labels", "split_spec"]

_MATRICES = (".npy", ".npz", ".safetensors", ".parquet", ".csv", ".tsv")
_LABELS = (*_MATRICES, ".txt")
_INT64 = np.iinfo(np.int64)


def open_matrix(spec: str, *, exclude: Collection[str] = ()) -> Matrix:
    """Open a matrix for reading; rows are read later, block by block.

    Parameters
    ----------
    spec : str
        ``PATH`` or ``PATH:SELECTOR``. The kind follows from the suffix:

        - ``.npy``: the array;
        - ``.npz:KEY``, ``.safetensors:KEY``: one array; ``KEY`` may be left out when there is only one;
        - ``.parquet:COLUMN``: a list column, or ``.parquet:a,b,c``: numeric columns; with neither, the list column
          if there is one, else all numeric columns;
        - ``.csv:a,b,c``, ``.tsv:a,b,c``: numeric columns; without selector all of them. A header line is required.
    exclude : collection of str
        Names of columns that are not taken when `spec` selects none, such as that of the labels.

    Returns
    -------
    Matrix
        With `shape`, `dtype`, `columns`, ``row_blocks(size)`` and ``to_numpy()``.

    Raises
    ------
    MuteError
        If the file is missing, damaged, of an unknown kind, or holds no such matrix.

    Notes
    -----
    Limits: a .npz array is loaded whole; the others are read in blocks. What only reading can show (rows of unequal
    length in a list column, nulls, text among numbers) is raised by ``row_blocks``, not here.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "x.csv")
    >>> with open(path, "w") as file:
    ...     _ = file.write("label,a,b\\n1,0.5,2\\n0,1.5,3\\n")
    >>> matrix = open_matrix(path, exclude=["label"])
    >>> matrix.shape, matrix.columns
    ((2, 2), ['a', 'b'])
    >>> [block.tolist() for block in matrix.row_blocks(1)]
    [[[0.5, 2.0]], [[1.5, 3.0]]]
    """
    path, selector = _locate(spec, _MATRICES)
    match path.suffix.lower():
        case ".npy":
            return ArrayMatrix(path, npy_array(path))
        case ".npz":
            return ArrayMatrix(path, npz_array(path, selector))
        case ".safetensors":
            array, kind = safetensors_array(path, selector)
            return ArrayMatrix(path, array, bfloat16=kind == "BF16")
        case ".parquet":
            return ParquetMatrix(path, selector, exclude)
        case _:
            return DelimitedMatrix(path, selector, exclude)


def read_labels(spec: str) -> NDArray[Any]:
    """Read one label for each row.

    Parameters
    ----------
    spec : str
        ``PATH.npy``, ``PATH.npz:KEY``, ``PATH.safetensors:KEY``, ``PATH.parquet:COLUMN``, ``PATH.csv:COLUMN``,
        ``PATH.tsv:COLUMN``, or ``PATH.txt`` with one label a line. The selector may be left out when there is only
        one thing to choose.

    Returns
    -------
    ndarray of shape (n_rows,)
        Integers, booleans, floats or strings as stored. Labels in text files are integers if every one of them is,
        else strings.

    Raises
    ------
    MuteError
        If the file is missing, damaged or of an unknown kind, or a label is missing (null, NaN or empty).
    """
    path, selector = _locate(spec, _LABELS)
    readers: dict[str, Callable[[Path, str | None], NDArray[Any]]] = {
        ".npy": lambda path, _: npy_array(path),
        ".npz": npz_array,
        ".safetensors": _safetensors_labels,
        ".parquet": _parquet_labels,
        ".txt": lambda path, _: _line_labels(path),
    }
    return _checked(spec, readers.get(path.suffix.lower(), _delimited_labels)(path, selector))


def split_spec(spec: str) -> tuple[Path, str | None]:
    """Split ``PATH:SELECTOR``, where both may contain colons.

    What exists as a file is the path, the longest such one first; if nothing does, what ends in a known suffix.
    """
    if os.path.isfile(spec):
        return Path(spec), None
    # The colon of a Windows drive (C:\\data) separates nothing.
    drive = re.match(r"[A-Za-z]:[\\/]", spec) is not None
    colons = [at for at, letter in enumerate(spec) if letter == ":" and at > drive]
    splits = [(Path(spec[:at]), spec[at + 1 :]) for at in reversed(colons) if at > 0]
    for path, selector in splits:
        if os.path.isfile(path):
            return path, selector
    if Path(spec).suffix.lower() not in _LABELS:
        for path, selector in splits:
            if path.suffix.lower() in _LABELS:
                return path, selector
    return Path(spec), None


def _locate(spec: str, suffixes: Iterable[str]) -> tuple[Path, str | None]:
    path, selector = split_spec(spec)
    suffix = path.suffix.lower()
    # os.path and not pathlib: a selector of many names, taken for a path, is too long for the system, not absent.
    if os.path.isdir(path):
        raise MuteError(f"{path} is a directory: give a file in it")
    if not os.path.exists(path):
        raise MuteError(f"{path} does not exist: check the path")
    if suffix not in suffixes:
        raise MuteError(f"{path} is of an unknown kind: give a file ending in {', '.join(suffixes)}")
    if not os.path.isfile(path):
        raise MuteError(f"{path} is not a regular file: give one, since it may be read more than once")
    if not os.access(path, os.R_OK):
        raise MuteError(f"{path} may not be read: change its permissions")
    if path.stat().st_size == 0:
        raise MuteError(f"{path} is empty (0 bytes): write it again or give another file")
    if selector == "":
        raise MuteError(f"{spec} ends in a colon: name what to read after it or leave it out")
    if selector is not None and suffix in (".npy", ".txt"):
        raise MuteError(f"{path} holds one thing only: leave out {':' + selector!r}")
    return path, selector


def _safetensors_labels(path: Path, key: str | None) -> NDArray[Any]:
    array, kind = safetensors_array(path, key)
    if kind == "BF16":
        raise MuteError(f"{path} holds BF16 labels: save them as integers instead")
    return array


def _parquet_labels(path: Path, column: str | None) -> NDArray[Any]:
    with readable(path), import_arrow().parquet.ParquetFile(path) as file:
        names = file.schema_arrow.names
        column = pick(path, column, names, "column")
        check_unique(path, [column], names)
        values = file.read(columns=[column]).column(column).combine_chunks()
        return _arrow_labels(path, column, values)


def _arrow_labels(path: Path, column: str, values: Any) -> NDArray[Any]:
    types = import_arrow().types
    if types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind = values.type
    text = types.is_string(kind) or types.is_large_string(kind)
    if not (text or types.is_integer(kind) or types.is_boolean(kind) or types.is_floating(kind)):
        raise MuteError(f"{path}: column {column!r} is {kind}: labels are integers, strings or booleans")
    if values.null_count:
        raise _missing(str(path), values.is_null().to_numpy(False))
    return np.asarray(values.to_numpy(zero_copy_only=False))


def _delimited_labels(path: Path, column: str | None) -> NDArray[Any]:
    rows = delimited_rows(path)
    _, header = next(rows, (0, []))
    column = pick(path, column, header, "column")
    check_unique(path, [column], header)
    at = header.index(column)
    return _text_labels([fields[at] for _, fields in rows])


def _line_labels(path: Path) -> NDArray[Any]:
    with readable(path):
        lines = path.read_text(encoding="utf-8-sig").rstrip().split("\n")
    return _text_labels([line.strip() for line in lines])


def _text_labels(values: list[str]) -> NDArray[Any]:
    # Not int() alone: it would also take 1_2, which in a table is an identifier.
    if values and all(re.fullmatch(r"\s*[+-]?[0-9]+\s*", value) for value in values):
        numbers = [int(value) for value in values]
        if min(numbers) >= _INT64.min and max(numbers) <= _INT64.max:
            return np.array(numbers, dtype=np.int64)
    return np.array(values, dtype=object)


def _checked(spec: str, labels: NDArray[Any]) -> NDArray[Any]:
    if labels.ndim != 1:
        raise MuteError(f"{spec} holds an array of shape {labels.shape}: labels have 1 dimension, one label a row")
    if labels.size == 0:
        raise MuteError(f"{spec} holds no labels: one for each row is needed")
    if labels.dtype.kind == "S":
        with readable(split_spec(spec)[0]):
            labels = np.char.decode(labels, "utf-8")
    if labels.dtype.kind not in "biufUO":
        raise MuteError(f"{spec} holds {labels.dtype} values: labels are integers, strings or booleans")
    if labels.dtype.kind == "f":
        gaps = np.isnan(labels)
    elif labels.dtype.kind in "UO":
        gaps = np.array([not str(value).strip() for value in labels])
    else:
        gaps = np.zeros(len(labels), dtype=bool)
    if gaps.any():
        raise _missing(spec, gaps)
    return np.array(labels, subok=False)


def _missing(spec: str, gaps: NDArray[np.bool_]) -> MuteError:
    rows = np.flatnonzero(gaps)
    first = ", ".join(map(str, rows[:5])) + (", ..." if len(rows) > 5 else "")
    return MuteError(
        f"{spec}: {len(rows)} of {len(gaps)} labels are missing (rows {first}, counting from 0), so fill them in or "
        "drop these rows"
    )
