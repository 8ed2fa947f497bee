"""A table written again with its embedding replaced: other columns, order, types and number of rows stay."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np

from mute.errors import MuteError, listed
from mute.storage.files import check_target, write_atomically
from mute.tables.parquet import import_arrow
from mute.tables.table import TableMatrix
from mute.typing import Array, Foreign

__all__ = ["TABLES", "rewrite_table"]

TABLES = (".parquet", ".csv", ".tsv")

_GROUP_BYTES = 1 << 24
_Write = Callable[[Array, Mapping[str, Foreign]], None]


def rewrite_table(
    matrix: TableMatrix,
    path: str | os.PathLike[str],
    work: Callable[[Array, int], Array],
    *,
    drop: Collection[str] = (),
    size: int = 16_384,
) -> None:
    """Write a table again, with new rows in place of its embedding.

    Parameters
    ----------
    matrix : TableMatrix
        What `mute.open_matrix` gives for a table.
    path : str or path-like
        A .parquet, .csv or .tsv file. It appears whole or not at all.
    work : function (rows, start)
        Makes the new rows from a block of rows; `start` is the number of its first row.
    drop : collection of str
        Columns to leave out.
    size : int
        Rows of a block.
    """
    path = Path(path)
    keep = [name for name in matrix.kinds if name not in drop]
    others = [name for name in matrix.embedding.left_out if name in keep]
    if path.suffix.lower() not in TABLES:
        raise MuteError(
            f"{path} cannot hold the other columns of the table ({listed(others, 5)}); write a .parquet, .csv or .tsv "
            "file, or the embedding alone (--only-embedding)"
        )
    check_target(path)
    sink = _parquet if path.suffix.lower() == ".parquet" else _delimited
    start = 0
    with write_atomically(path) as file, sink(file, path, matrix, keep) as write:
        for rows, cells in matrix.with_others(size, others):
            write(work(rows, start), cells)
            start += len(rows)
        matrix.check_complete(start)


@contextmanager
def _parquet(file: IO[bytes], path: Path, matrix: TableMatrix, keep: list[str]) -> Iterator[_Write]:
    pa = import_arrow("writing a .parquet file")
    schema = pa.schema(
        [pa.field(name, _arrow_type(matrix, name)) for name in keep],
        metadata=None if matrix.types is None else matrix.types.metadata,
    )
    group = max(1, _GROUP_BYTES // (matrix.shape[1] * matrix.dtype.itemsize))

    def column(name: str, rows: Array, cells: Mapping[str, Foreign]) -> Foreign:
        kind = schema.field(name).type
        if name in cells:
            return cells[name] if matrix.types is not None else _typed(cells[name], kind)
        if not matrix.embedding.is_list:
            return pa.array(rows[:, places[name]]).cast(kind)
        values, width = pa.array(rows.ravel()).cast(kind.value_type), rows.shape[1]
        if pa.types.is_fixed_size_list(kind):
            return pa.FixedSizeListArray.from_arrays(values, type=kind)
        ends = np.arange(0, len(values) + 1, width)
        large = pa.types.is_large_list(kind)
        ends_array = pa.array(ends, pa.int64() if large else pa.int32())
        return (pa.LargeListArray if large else pa.ListArray).from_arrays(ends_array, values, type=kind)

    places = {name: at for at, name in enumerate(matrix.embedding.names)}
    # Embeddings hardly ever repeat a number, so a dictionary would cost time for nothing.
    repeats = [name for name in keep if name not in places]
    with pa.parquet.ParquetWriter(file, schema, use_dictionary=repeats) as writer:

        def write(rows: Array, cells: Mapping[str, Foreign]) -> None:
            table = pa.Table.from_arrays([column(name, rows, cells) for name in keep], schema=schema)
            writer.write_table(table, row_group_size=group)

        yield write


def _arrow_type(matrix: TableMatrix, name: str) -> Foreign:
    """The type that a column of the table has; an embedding of whole numbers gets one of the floats."""
    pa = import_arrow()
    if matrix.types is None:
        kind = {"integer": pa.int64(), "float": pa.float64()}.get(matrix.kinds[name], pa.string())
    else:
        kind = matrix.types.field(name).type
    if name not in matrix.embedding.names or pa.types.is_floating(getattr(kind, "value_type", kind)):
        return kind
    number = pa.from_numpy_dtype(matrix.dtype)
    return pa.list_(number, matrix.shape[1]) if matrix.embedding.is_list else number


def _typed(cells: list[str], kind: Foreign) -> Foreign:
    """Cells of a text file in the type of their column; empty cells are missing."""
    pa = import_arrow()
    if pa.types.is_string(kind):
        return pa.array(cells, kind)
    read = int if pa.types.is_integer(kind) else float
    return pa.array([read(cell) if cell.strip() else None for cell in cells], kind)


@contextmanager
def _delimited(file: IO[bytes], path: Path, matrix: TableMatrix, keep: list[str]) -> Iterator[_Write]:
    list_name = matrix.embedding.names[0] if matrix.embedding.is_list else None
    header: list[str] = []
    for name in keep:
        if matrix.types is not None and name not in matrix.embedding.names and matrix.types.field(name).type.num_fields:
            raise MuteError(f"{path} cannot hold the column {name!r} ({matrix.types.field(name).type}); write .parquet")
        header += [f"{name}_{at}" for at in range(matrix.shape[1])] if name == list_name else [name]
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    places = {name: at for at, name in enumerate(matrix.embedding.names)}

    def put(lines: list[list[str]]) -> None:
        text = io.StringIO()
        csv.writer(text, delimiter=delimiter, lineterminator="\n").writerows(lines)
        file.write(text.getvalue().encode())

    def write(rows: Array, cells: Mapping[str, Foreign]) -> None:
        # numpy writes the shortest text that gives the number back in its own precision; Python knows doubles only.
        numbers = rows.astype(str)
        texts = {name: column if isinstance(column, list) else _texts(column) for name, column in cells.items()}
        lines = []
        for at, row in enumerate(numbers.tolist()):
            line: list[str] = []
            for name in keep:
                line += row if name == list_name else [row[places[name]] if name in places else texts[name][at]]
            lines.append(line)
        put(lines)

    put([header])
    yield write


def _texts(column: Foreign) -> list[str]:
    return ["" if value is None else str(value) for value in column.to_pylist()]
