"""Texts that the command line reads: ``PATH`` or ``PATH:COLUMN``."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mute.datasets import read_pickle
from mute.errors import MuteError
from mute.rows.validation import listed
from mute.tables.columns import check_unique, delimited_rows, import_arrow
from mute.tables.readers import pick, readable
from mute.tables.specs import locate

__all__ = ["read_texts"]


def read_texts(spec: str) -> list[str]:
    r"""Read one text for each row.

    Parameters
    ----------
    spec : str
        ``PATH.txt`` with one text a line, ``PATH.csv:COLUMN``, ``PATH.tsv:COLUMN``, ``PATH.parquet:COLUMN``,
        ``PATH.jsonl:KEY``, or ``PATH.pickle:KEY`` (``.pkl`` as well), a pickled list of dicts, of which only plain data
        is read. The name may be left out when there is only one thing to choose.

    Returns
    -------
    list of str
        Empty lines and cells are empty texts.

    Raises
    ------
    MuteError
        If the file is missing, damaged or of an unknown kind, has no such column, or holds something else than texts.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "x.csv")
    >>> with open(path, "w") as file:
    ...     _ = file.write('id,text\n1,"Yes, she did."\n2,\n')
    >>> read_texts(f"{path}:text")
    ['Yes, she did.', '']
    """
    path, selector = locate(spec, _READERS)
    texts = _READERS[path.suffix.lower()](path, selector)
    if not texts:
        raise MuteError(f"{spec} holds no texts: at least one is needed")
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise MuteError(f"{spec}: row {row} (counting from 0) is {text!r:.80}, not a text: fill it or drop the row")
    return list(texts)


def _lines(path: Path, _: str | None) -> list[str]:
    with readable(path), open(path, encoding="utf-8-sig") as file:
        return [line.removesuffix("\n") for line in file]


def _delimited(path: Path, column: str | None) -> list[str]:
    rows = delimited_rows(path)
    _, header = next(rows, (0, []))
    column = pick(path, column, header, "column")
    check_unique(path, [column], header)
    at = header.index(column)
    return [fields[at] for _, fields in rows]


def _parquet(path: Path, column: str | None) -> list[Any]:
    with readable(path), import_arrow().parquet.ParquetFile(path) as file:
        names = file.schema_arrow.names
        column = pick(path, column, names, "column")
        check_unique(path, [column], names)
        values: list[Any] = file.read(columns=[column]).column(column).to_pylist()
        return values


def _json_lines(path: Path, key: str | None) -> list[Any]:
    with readable(path), open(path, encoding="utf-8-sig") as file:
        rows = [json.loads(line) for line in file if line.strip()]
    return _values(path, rows, key)


def _pickle(path: Path, key: str | None) -> list[Any]:
    rows = read_pickle(path)
    if not isinstance(rows, list | tuple):
        raise MuteError(f"{path} holds a {type(rows).__name__}: a list of dicts, or of texts, is needed")
    return _values(path, rows, key)


def _values(path: Path, rows: Sequence[Any], key: str | None) -> list[Any]:
    """What the rows hold under a key; rows that are texts themselves have none."""
    if key is None and all(isinstance(row, str) for row in rows):
        return list(rows)
    out = []
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise MuteError(f"{path}: row {number} (counting from 0) is {row!r:.80}, not a dict with texts in it")
        key = pick(path, key, [str(name) for name in row], "key") if number == 0 else key
        if key not in row:
            raise MuteError(
                f"{path}: row {number} (counting from 0) has no {key!r}: it has {listed(list(map(str, row)))}"
            )
        out.append(row[key])
    return out


_READERS: dict[str, Callable[[Path, str | None], list[Any]]] = {
    ".txt": _lines,
    ".csv": _delimited,
    ".tsv": _delimited,
    ".parquet": _parquet,
    ".jsonl": _json_lines,
    ".pickle": _pickle,
    ".pkl": _pickle,
}
