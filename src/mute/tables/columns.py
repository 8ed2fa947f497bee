"""Tables with named columns (.csv, .tsv, .parquet): matrices that are read block by block, and single columns."""

from __future__ import annotations

import csv
import importlib
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from mute.errors import MuteError, missing_extra
from mute.rows.matrix import Matrix, NoRowsError
from mute.rows.validation import listed
from mute.tables.readers import pick, readable
from mute.typing import Array, Foreign, Json

__all__ = ["DelimitedMatrix", "ParquetMatrix", "check_unique", "delimited_rows", "import_arrow"]


class DelimitedMatrix(Matrix):
    """Numeric columns of a .csv or .tsv file with a header line.

    Opening reads the file once, for the number of rows and the kind of each column, which its first non-empty value
    decides. Numbers are parsed when blocks are read.
    """

    def __init__(self, path: Path, selector: str | None, exclude: Collection[str]) -> None:
        header, samples, n_rows = _scan(path)
        numeric = [name for name, sample in zip(header, samples, strict=True) if _is_number(sample)]
        if selector is None:
            _check_header(path, header)
            names = [name for name in numeric if name not in exclude]
            _check_found(path, names, header)
        else:
            names = _pick_many(path, selector, header)
            for name in names:
                if name not in numeric:
                    raise _not_numeric(path, name, repr(samples[header.index(name)]))
        check_unique(path, names, header)
        super().__init__(path, (n_rows, len(names)), np.dtype(np.float64), names)
        self._places = {name: header.index(name) for name in names}

    def _blocks(self, size: int) -> Iterator[Array]:
        rows = delimited_rows(self.path)
        next(rows)
        for start in range(0, self.shape[0], size):
            block = np.empty((min(size, self.shape[0] - start), self.shape[1]))
            filled = 0
            for line, fields in islice(rows, len(block)):
                block[filled] = self._numbers(line, fields)
                filled += 1
            yield block[:filled]

    def _numbers(self, line: int, fields: list[str]) -> list[float]:
        try:
            return [float(fields[at]) for at in self._places.values()]
        except ValueError:
            name = next(name for name, at in self._places.items() if not _is_number(fields[at]))
            raise MuteError(
                f"{self.path}, line {line}: {fields[self._places[name]]!r} in column {name!r} is not a number; correct "
                "it or leave the column out"
            ) from None


class ParquetMatrix(Matrix):
    """A list column, or several numeric columns, of a .parquet file."""

    def __init__(self, path: Path, selector: str | None, exclude: Collection[str]) -> None:
        with readable(path), import_arrow().parquet.ParquetFile(path) as file:
            schema, n_rows = file.schema_arrow, file.metadata.num_rows
        if n_rows == 0:
            raise NoRowsError(f"{path} has columns but no rows; give at least one row")
        types = dict(zip(schema.names, schema.types, strict=True))
        names = _parquet_names(path, types, exclude) if selector is None else _pick_many(path, selector, schema.names)
        check_unique(path, names, schema.names)
        self._list = len(names) == 1 and _is_list(types[names[0]])
        kinds = [types[name].value_type if self._list else types[name] for name in names]
        for name, kind in zip(names, kinds, strict=True):
            if not _is_numeric(kind):
                raise _not_numeric(path, name, types[name])
        self.path, self._names = path, names
        width = self._list_width(types[names[0]]) if self._list else len(names)
        single = all(str(kind) in ("float", "halffloat") for kind in kinds)
        dtype = np.dtype(np.float32 if single else np.float64)
        super().__init__(path, (n_rows, width), dtype, None if self._list else names)

    def _list_width(self, kind: Foreign) -> int:
        if import_arrow().types.is_fixed_size_list(kind):
            return int(kind.list_size)
        for _, batch in self._batches(1):
            row = batch.column(self._names[0])[0].as_py()
            if row is None:
                raise self._null(0, self._names[0])
            return len(row)
        return 0

    def _batches(self, size: int) -> Iterator[tuple[int, Any]]:
        start = 0
        parquet = import_arrow().parquet
        # Pages are read when they are needed; with pyarrow's defaults the whole file would end up in memory. The buffer
        # is small, since each column has one.
        with readable(self.path), parquet.ParquetFile(self.path, pre_buffer=False, buffer_size=1 << 16) as file:
            for batch in file.iter_batches(batch_size=size, columns=self._names):
                yield start, batch
                start += batch.num_rows

    def _blocks(self, size: int) -> Iterator[Array]:
        for start, batch in self._batches(size):
            columns = [batch.column(name) for name in self._names]
            for name, column in zip(self._names, columns, strict=True):
                if column.null_count:
                    raise self._null(start + column.is_null().to_numpy(False).argmax(), name)
            if self._list:
                yield self._list_block(start, columns[0])
                continue
            block = np.empty((batch.num_rows, self.shape[1]), dtype=self.dtype)
            for at, column in enumerate(columns):
                block[:, at] = column.to_numpy(zero_copy_only=False)
            yield block

    def _list_block(self, start: int, column: Foreign) -> Array:
        name, width = self._names[0], self.shape[1]
        lengths = column.value_lengths().to_numpy(zero_copy_only=False)
        ragged = np.flatnonzero(lengths != width)
        if len(ragged):
            raise MuteError(
                f"{self.path}: column {name!r} has {lengths[ragged[0]]} values in row {start + ragged[0]} but {width} "
                "in row 0 (counting from 0); make all rows equally long"
            )
        values = column.flatten()
        if values.null_count:
            raise self._null(start + values.is_null().to_numpy(False).argmax() // width, name)
        return np.array(values.to_numpy(zero_copy_only=False), dtype=self.dtype).reshape(len(column), width)

    def _null(self, row: int, name: str) -> MuteError:
        return MuteError(
            f"{self.path}: column {name!r} is missing (null) in row {row} (counting from 0); fill it or drop the row"
        )


def delimited_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
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


def import_arrow(purpose: str = "reading a .parquet file") -> Foreign:
    """Import ``pyarrow`` with its ``parquet``, or raise an error that names its extra."""
    try:
        # By name, because pyarrow has no types, and may be absent where types are checked.
        importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise missing_extra("pyarrow", "datasets", purpose) from None
    return importlib.import_module("pyarrow")


def check_unique(path: Path, names: Sequence[str], available: Sequence[str]) -> None:
    """Refuse names of several columns of the file, and names that are selected several times."""
    for where, counts in (("the file", Counter(available)), ("the selection", Counter(names))):
        for name in names:
            if counts[name] > 1:
                raise MuteError(f"{path}: column {name!r} appears {counts[name]} times in {where}; keep one")


def _pick_many(path: Path, selector: str, available: Sequence[str]) -> list[str]:
    if selector in available:
        return [selector]
    return [pick(path, name.strip(), available, "column") for name in selector.split(",")]


def _check_found(path: Path, names: Sequence[str], available: Sequence[str]) -> None:
    if not names:
        raise MuteError(f"{path} has no numeric columns to use (columns: {listed(available)}); give another file")


def _check_header(path: Path, header: Sequence[str]) -> None:
    # Plain integers are allowed: pandas writes 0,1,2,... as the header of unnamed columns.
    if all(map(_is_number, header)) and not all(name.isdecimal() for name in header):
        raise MuteError(f"{path} starts with numbers ({listed(header, 3)}); add a header line with column names")
    if "" in header:
        raise MuteError(
            f"{path}: column {header.index('') + 1} has no name, like an index column; name it, write the file without "
            f"it or select columns as {path}:a,b,c"
        )


def _scan(path: Path) -> tuple[list[str], list[str], int]:
    """The header, the first non-empty value of each column, and the number of rows."""
    rows = delimited_rows(path)
    _, header = next(rows, (0, None))
    if header is None:
        raise MuteError(f"{path} is empty; give a header line and at least one row")
    samples = [""] * len(header)
    unknown = set(range(len(header)))
    n_rows = 0
    for _, fields in rows:
        n_rows += 1
        for at in [at for at in unknown if fields[at].strip()]:
            samples[at] = fields[at]
            unknown.remove(at)
    if n_rows == 0:
        raise MuteError(f"{path} has a header but no rows; give at least one row")
    return header, samples, n_rows


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    # Python reads 2020_01 as 202001; in a table it is an identifier.
    return "_" not in text


def _not_numeric(path: Path, name: str, found: object) -> MuteError:
    return MuteError(f"{path}: column {name!r} is {found}, which is not numeric; select numeric columns")


def _is_list(kind: Foreign) -> bool:
    types = import_arrow().types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_numeric(kind: Foreign) -> bool:
    types = import_arrow().types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _parquet_names(path: Path, types: Json, exclude: Collection[str]) -> list[str]:
    allowed = {name: kind for name, kind in types.items() if name not in exclude}
    lists = [name for name, kind in allowed.items() if _is_list(kind) and _is_numeric(kind.value_type)]
    if lists:
        return [pick(path, None, lists, "list column")]
    # pandas stores the index of a frame as one more column of such a name.
    names = [n for n, kind in allowed.items() if _is_numeric(kind) and not re.fullmatch(r"__index_level_\d+__", n)]
    _check_found(path, names, list(types))
    return names
