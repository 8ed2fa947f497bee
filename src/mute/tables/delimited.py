"""Tables in text files (.csv, .tsv) with a header line."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from mute.errors import MuteError, listed
from mute.rows.embedding import Kind
from mute.rows.matrix import Stamp
from mute.tables.readers import pick, readable
from mute.tables.table import Chooser, TableMatrix, check_unique
from mute.typing import Array

__all__ = ["DelimitedMatrix", "delimited_column"]

_INT64 = 2**63


class DelimitedMatrix(TableMatrix):
    """Numeric columns of a .csv or .tsv file.

    Opening reads the file once, for the number of rows and the kind of each column. Numbers are parsed when blocks are
    read.
    """

    def __init__(self, path: Path, choose: Chooser) -> None:
        stamp = Stamp.of(path)
        header, kinds, n_rows = _scan(path)
        embedding = choose(str(path), kinds)
        super().__init__(path, (n_rows, len(embedding.names)), np.dtype(np.float64), embedding, kinds, stamp)
        self._places = {name: header.index(name) for name in header}

    def _reopened(self, choose: Chooser) -> DelimitedMatrix:
        return DelimitedMatrix(self.path, choose)

    def _blocks(self, size: int) -> Iterator[Array]:
        return (rows for rows, _ in self.with_others(size, ()))

    def with_others(self, size: int, others: Sequence[str]) -> Iterator[tuple[Array, dict[str, list[str]]]]:
        rows = _rows(self.path)
        next(rows)
        while block := list(islice(rows, size)):
            numbers = np.empty((len(block), self.shape[1]))
            for at, (line, fields) in enumerate(block):
                numbers[at] = self._numbers(line, fields)
            yield numbers, {name: [fields[self._places[name]] for _, fields in block] for name in others}

    def _numbers(self, line: int, fields: list[str]) -> list[float]:
        names = self.embedding.names
        try:
            return [float(fields[self._places[name]]) for name in names]
        except ValueError:
            name = next(name for name in names if not _is_number(fields[self._places[name]]))
            raise MuteError(
                f"{self.path}, line {line}: {fields[self._places[name]]!r} in column {name!r} is not a number; correct "
                "it or leave the column out"
            ) from None


def delimited_column(path: Path, column: str | None) -> list[str]:
    """The cells of one column of a .csv or .tsv file."""
    rows = _rows(path)
    _, header = next(rows, (0, []))
    column = pick(path, column, header, "column")
    check_unique(path, header)
    at = header.index(column)
    return [fields[at] for _, fields in rows]


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Iterate over line number and fields of a .csv or .tsv file, header first; all rows have the header's length."""
    with readable(path), open(path, newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",", strict=True)
        width = blank = 0
        for fields in reader:
            if not fields:
                blank = blank or reader.line_num
                continue
            if blank:
                # Without the blank line, the rows would no longer match those of a label file.
                raise MuteError(f"{path}, line {blank} is blank; fill it or delete it")
            width = width or len(fields)
            if len(fields) != width:
                raise MuteError(
                    f"{path}, line {reader.line_num} has {len(fields)} fields where the header has {width}; correct it"
                )
            yield reader.line_num, fields


def _scan(path: Path) -> tuple[list[str], dict[str, Kind], int]:
    """The header, the kind of each column, and the number of rows."""
    rows = _rows(path)
    _, header = next(rows, (0, None))
    if header is None:
        raise MuteError(f"{path} is empty; give a header line and at least one row")
    # Plain integers are allowed: pandas writes 0,1,2,... as the header of unnamed columns.
    if all(map(_is_number, header)) and not all(name.isdecimal() for name in header):
        raise MuteError(f"{path} starts with numbers ({listed(header, 3)}); add a header line with column names")
    check_unique(path, header)
    kinds: list[Kind | None] = [None] * len(header)
    # Whole numbers may be followed by others. A float decides: what follows it is checked when it is read.
    open_columns = set(range(len(header)))
    n_rows = 0
    for _, fields in rows:
        n_rows += 1
        for at in [at for at in open_columns if fields[at].strip()]:
            kinds[at] = _kind(fields[at])
            if kinds[at] != "integer":
                open_columns.remove(at)
    if n_rows == 0:
        raise MuteError(f"{path} has a header but no rows; give at least one row")
    return header, {name: kind or "other" for name, kind in zip(header, kinds, strict=True)}, n_rows


def _kind(text: str) -> Kind:
    # Leading zeros and numbers beyond 64 bits belong to identifiers.
    if re.fullmatch(r"\s*[+-]?(0|[1-9][0-9]*)\s*", text) and abs(int(text)) < _INT64:
        return "integer"
    return "float" if _is_number(text) and not re.fullmatch(r"\s*[+-]?[0-9]+\s*", text) else "other"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    # Python reads 2020_01 as 202001; in a table it is an identifier.
    return "_" not in text
