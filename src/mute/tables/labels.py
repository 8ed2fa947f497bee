"""One label for each row, from files of any kind."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError, listed
from mute.tables.delimited import delimited_column
from mute.tables.parquet import import_arrow, parquet_column
from mute.tables.raw import npy_layout, safetensors_layout
from mute.tables.readers import npz_array, pick, readable
from mute.tables.specs import LABELS, Found, Spec, find
from mute.typing import Array

__all__ = ["read_labels"]

_INT64 = np.iinfo(np.int64)
# The name that a partition's folder has in place of a missing value.
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


def read_labels(spec: Spec) -> Array:
    r"""Read one label for each row.

    Parameters
    ----------
    spec : str, path-like or list of them
        ``PATH.npy``, ``PATH.npz:KEY``, ``PATH.safetensors:KEY``, ``PATH.parquet:COLUMN``, ``PATH.csv:COLUMN``,
        ``PATH.tsv:COLUMN``, or ``PATH.txt`` with one label a line. The selector may be left out if there is only one
        choice. Folders, patterns and lists stand for many files as in `open_matrix`. If a column is in none of the
        files but folders are named for it (``gender=f/0.parquet``), it is read from the names of the folders.

    Returns
    -------
    ndarray of shape (n_rows,)
        Integers, booleans, floats or strings as stored. Labels in text files are integers if all of them are, else
        strings.

    Raises
    ------
    MuteError
        If a file is missing, damaged, of an unknown kind or unlike the others, or a label is missing (null, NaN or
        empty).

    See Also
    --------
    mute.open_matrix : The rows, from the same files.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "people.csv")
    ...     _ = path.write_text("name,group\nAda,2\nAlan,1\n")
    ...     print(read_labels(f"{path}:group"))
    [2 1]
    """
    found = find(spec, LABELS)
    labels = _read_one(found.files[0], found.selector) if found.root is None else _read_many(found)
    return _checked(found, labels)


def _read_one(path: Path, selector: str | None) -> Array:
    readers: dict[str, Callable[[Path, str | None], Array]] = {
        ".npy": lambda path, _: npy_layout(path).map(path),
        ".npz": npz_array,
        ".safetensors": _safetensors_labels,
        ".parquet": _parquet_labels,
        ".txt": lambda path, _: _line_labels(path),
    }
    return readers.get(path.suffix.lower(), _delimited_labels)(path, selector)


def _read_many(found: Found) -> Array:
    """The labels of one file after the other; files without rows have no labels."""
    first, selector = found.files[0], found.selector
    if first.suffix.lower() == ".parquet":
        columns, _ = _parquet_columns(first)
        folders = [name for name in found.partition(first) if name not in columns]
        selector = pick(found.path, selector, [*columns, *folders], "column")
        if selector in folders:
            return _folder_labels(found, selector)
    parts: list[tuple[Path, Array]] = []
    for file in found.files:
        labels = _read_one(file, selector)
        if labels.size == 0:
            continue
        parts.append((file, labels))
        like, expected = parts[0]
        if (labels.dtype.kind, labels.ndim) != (expected.dtype.kind, expected.ndim):
            kinds = [f"{array.dtype} labels of shape {array.shape}" for array in (labels, expected)]
            raise MuteError(f"{file} has {kinds[0]} and {like} {kinds[1]}; make all files alike")
    return np.concatenate([labels for _, labels in parts]) if parts else np.empty(0)


def _folder_labels(found: Found, name: str) -> Array:
    values, counts = [], []
    for file in found.files:
        value = found.partition(file).get(name)
        if value is None:
            raise MuteError(f"{file} is in no folder {name}=..., unlike {found.files[0]}; move it into one")
        values.append("" if value == _NO_VALUE else value)
        counts.append(_parquet_columns(file)[1])
    return np.repeat(_text_labels(values), counts)


def _parquet_columns(path: Path) -> tuple[list[str], int]:
    """Names of the columns, and the number of rows."""
    with readable(path), import_arrow().parquet.ParquetFile(path) as file:
        return file.schema_arrow.names, file.metadata.num_rows


def _safetensors_labels(path: Path, key: str | None) -> Array:
    layout = safetensors_layout(path, key)
    if layout.bfloat16:
        raise MuteError(f"{path} has BF16 labels; save them as integers")
    return layout.map(path)


def _parquet_labels(path: Path, column: str | None) -> Array:
    types, values = import_arrow().types, parquet_column(path, column)
    if types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind = values.type
    text = types.is_string(kind) or types.is_large_string(kind)
    if not (text or types.is_integer(kind) or types.is_boolean(kind) or types.is_floating(kind)):
        raise MuteError(f"{path}: column {column or 'of labels'} is {kind}; give integers, strings or booleans")
    _check_gaps(f"{path}:{column}", values.is_null().to_numpy(False))
    return np.asarray(values.to_numpy(zero_copy_only=False))


def _delimited_labels(path: Path, column: str | None) -> Array:
    return _text_labels(delimited_column(path, column))


def _line_labels(path: Path) -> Array:
    with readable(path):
        lines = path.read_text(encoding="utf-8-sig").rstrip().split("\n")
    return _text_labels([line.strip() for line in lines])


def _text_labels(values: list[str]) -> Array:
    # int() alone would also accept 1_2, which in a table is an identifier.
    if values and all(re.fullmatch(r"\s*[+-]?[0-9]+\s*", value) for value in values):
        numbers = [int(value) for value in values]
        if min(numbers) >= _INT64.min and max(numbers) <= _INT64.max:
            return np.array(numbers, dtype=np.int64)
    return np.array(values, dtype=object)


def _checked(found: Found, labels: Array) -> Array:
    spec = f"{found.path}:{found.selector}" if found.selector else str(found.path)
    if labels.ndim != 1:
        raise MuteError(f"{spec} has an array of shape {labels.shape}; give 1 dimension, one label a row")
    if labels.size == 0:
        raise MuteError(f"{spec} has no labels; give one for each row")
    if labels.dtype.kind == "S":
        with readable(found.path):
            labels = np.char.decode(labels, "utf-8")
    if labels.dtype.kind not in "biufUO":
        raise MuteError(f"{spec} has {labels.dtype} values; give integers, strings or booleans")
    if labels.dtype.kind == "f":
        _check_gaps(spec, np.isnan(labels))
    elif labels.dtype.kind in "UO":
        _check_gaps(spec, np.array([not str(value).strip() for value in labels]))
    return np.array(labels, subok=False)


def _check_gaps(spec: str, gaps: NDArray[np.bool_]) -> None:
    rows = np.flatnonzero(gaps).tolist()
    if rows:
        raise MuteError(
            f"{spec}: {len(rows)} of {len(gaps)} labels are missing (rows {listed(rows, 5)}, counting from 0); "
            "fill them in or drop these rows"
        )
