"""Tables in Parquet files."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from mute.errors import MuteError, missing_extra
from mute.rows.frames import kind_of_arrow
from mute.rows.matrix import NoRowsError, Stamp
from mute.tables.readers import pick, readable
from mute.tables.table import Chooser, TableMatrix, check_unique
from mute.typing import Array, Foreign

__all__ = ["ParquetMatrix", "import_arrow", "parquet_column"]


def import_arrow(purpose: str = "reading a .parquet file") -> Foreign:
    """Import ``pyarrow`` with its ``parquet``, or raise an error that names its extra."""
    try:
        # By name, because pyarrow has no types, and may be absent where types are checked.
        importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise missing_extra("pyarrow", "datasets", purpose) from None
    return importlib.import_module("pyarrow")


class ParquetMatrix(TableMatrix):
    """A list column, or several numeric columns, of a .parquet file."""

    def __init__(self, path: Path, choose: Chooser) -> None:
        stamp = Stamp.of(path)
        with readable(path), import_arrow().parquet.ParquetFile(path) as file:
            schema, n_rows = file.schema_arrow, file.metadata.num_rows
        if n_rows == 0:
            raise NoRowsError(f"{path} has columns but no rows; give at least one row")
        check_unique(path, schema.names)
        kinds = {field.name: kind_of_arrow(field.name, field.type) for field in schema}
        embedding = choose(str(path), kinds)
        types = [schema.field(name).type for name in embedding.names]
        numbers = [kind.value_type if embedding.is_list else kind for kind in types]
        single = all(str(kind) in ("float", "halffloat") for kind in numbers)
        self.path, self._list = path, embedding.names[0] if embedding.is_list else None
        width = len(types) if self._list is None else self._list_width(self._list, types[0])
        super().__init__(
            path, (n_rows, width), np.dtype(np.float32 if single else np.float64), embedding, kinds, stamp, schema
        )

    def _reopened(self, choose: Chooser) -> ParquetMatrix:
        return ParquetMatrix(self.path, choose)

    def _list_width(self, name: str, kind: Foreign) -> int:
        if import_arrow().types.is_fixed_size_list(kind):
            return int(kind.list_size)
        for batch in self._batches(1, [name]):
            row = batch.column(name)[0].as_py()
            if row is None:
                raise self._null(0, name)
            return len(row)
        return 0

    def _batches(self, size: int, names: Sequence[str]) -> Iterator[Foreign]:
        parquet = import_arrow().parquet
        # Pages are read when they are needed; with pyarrow's defaults the whole file would end up in memory. The buffer
        # is small, since each column has one.
        with readable(self.path), parquet.ParquetFile(self.path, pre_buffer=False, buffer_size=1 << 16) as file:
            yield from file.iter_batches(batch_size=size, columns=list(names))

    def _blocks(self, size: int) -> Iterator[Array]:
        return (rows for rows, _ in self.with_others(size, ()))

    def with_others(self, size: int, others: Sequence[str]) -> Iterator[tuple[Array, dict[str, Foreign]]]:
        start = 0
        for batch in self._batches(size, [*self.embedding.names, *others]):
            yield self._numbers(start, batch), {name: batch.column(name) for name in others}
            start += batch.num_rows

    def _numbers(self, start: int, batch: Foreign) -> Array:
        columns = [batch.column(name) for name in self.embedding.names]
        for name, column in zip(self.embedding.names, columns, strict=True):
            if column.null_count:
                raise self._null(start + column.is_null().to_numpy(False).argmax(), name)
        if self._list is not None:
            return self._list_block(self._list, start, columns[0])
        block = np.empty((batch.num_rows, self.shape[1]), dtype=self.dtype)
        for at, column in enumerate(columns):
            block[:, at] = column.to_numpy(zero_copy_only=False)
        return block

    def _list_block(self, name: str, start: int, column: Foreign) -> Array:
        width = self.shape[1]
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


def parquet_column(path: Path, column: str | None) -> Foreign:
    """One column of a .parquet file, as an Arrow array."""
    with readable(path), import_arrow().parquet.ParquetFile(path) as file:
        names = file.schema_arrow.names
        column = pick(path, column, names, "column")
        check_unique(path, names)
        return file.read(columns=[column]).column(column).combine_chunks()
