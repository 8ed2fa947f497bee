"""Matrices written block by block; each file appears whole or not at all."""

from __future__ import annotations

import csv
import io
import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from mute.errors import MuteError
from mute.storage.container import header_bytes
from mute.storage.files import check_target, write_atomically
from mute.tables.parquet import import_arrow
from mute.typing import Array

__all__ = ["MatrixWriter", "open_writer"]

_GROUP_BYTES = 1 << 24

_Append = Callable[[Array], object]


@dataclass(frozen=True)
class _Layout:
    """The content of a file, known before its first row; the dtype is little-endian."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    columns: tuple[str, ...] | None


class MatrixWriter:
    """A matrix file in the making; use it as a context manager and `write` all promised rows.

    The file appears on a clean exit only. After an exception, a file that was there before is unchanged.
    """

    def __init__(self, path: Path, layout: _Layout) -> None:
        self.path = path
        self._layout = layout
        self._stack = ExitStack()
        self._append: _Append | None = None
        self._written = 0

    def __enter__(self) -> MatrixWriter:
        with ExitStack() as stack:
            file = stack.enter_context(write_atomically(self.path))
            self._append = stack.enter_context(_SINKS[self.path.suffix.lower()](file, self._layout))
            self._stack = stack.pop_all()
        return self

    def write(self, block: ArrayLike) -> None:
        """Append rows of shape (n, n_columns), cast to the dtype of the file."""
        if self._append is None:
            raise MuteError(f"the writer of {self.path} is not open; write inside its with block")
        rows = np.ascontiguousarray(block, dtype=self._layout.dtype)
        n_rows, n_columns = self._layout.shape
        if rows.ndim != 2 or rows.shape[1] != n_columns:
            raise MuteError(f"a block of shape {rows.shape} does not fit {self.path}; give rows of {n_columns} columns")
        if self._written + len(rows) > n_rows:
            raise MuteError(f"{self.path} was promised {n_rows} rows and got {self._written + len(rows)}; write fewer")
        if len(rows):
            self._append(rows)
            self._written += len(rows)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._append = None
        with self._stack:
            # Raised inside the stack, which removes the temporary file.
            if error is not None:
                raise error
            if self._written != self._layout.shape[0]:
                raise MuteError(
                    f"{self.path} was promised {self._layout.shape[0]} rows and got {self._written}; write all of them"
                )


def open_writer(
    path: str | os.PathLike[str],
    n_rows: int,
    n_columns: int,
    dtype: DTypeLike,
    *,
    columns: list[str] | None = None,
) -> MatrixWriter:
    """Prepare to write a matrix in blocks of rows; the matrix is never in memory whole.

    Parameters
    ----------
    path : str or path-like
        The suffix decides the kind: ``.npy``; ``.npz`` (one array ``X``, uncompressed); ``.safetensors`` (one tensor
        ``X``); ``.parquet`` (named columns, or one list column ``embedding``); ``.csv`` or ``.tsv`` (header with the
        names, or ``x0``, ``x1``, ...).
    n_rows, n_columns : int
        Size of the matrix. Any other number of rows is an error on exit.
    dtype : dtype-like
        float32 or float64.
    columns : list of str, optional
        Names of the columns, for the kinds that have names.

    Returns
    -------
    MatrixWriter
        To be used in a ``with`` statement.

    Raises
    ------
    MuteError
        Before any work, if the file cannot be written there or the kind is unknown.

    See Also
    --------
    mute.open_matrix : Read the matrix again.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "x.csv")
    ...     with open_writer(path, 2, 2, "float32", columns=["a", "b"]) as writer:
    ...         writer.write([[0.1, 1.0]])
    ...         writer.write([[0.2, 2.0]])
    ...     print(path.read_text(), end="")
    a,b
    0.1,1.0
    0.2,2.0
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in _SINKS:
        raise MuteError(f"{path} is of an unknown kind; give a name ending in {', '.join(_SINKS)}")
    check_target(path)
    stored = np.dtype(dtype)
    if stored not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise MuteError(f"{path} cannot be written as {stored}; choose float32 or float64")
    if n_rows < 0 or n_columns < 1:
        raise MuteError(f"{path} cannot have the shape {(n_rows, n_columns)}; give at least one column")
    if columns is not None and (len(columns) != n_columns or len(set(columns)) != n_columns):
        raise MuteError(
            f"{path} has {len(columns)} column names, {len(set(columns))} of them distinct, for {n_columns} columns; "
            "give a distinct name for each"
        )
    if suffix == ".parquet":
        import_arrow("writing a .parquet file")
    names = None if columns is None else tuple(columns)
    return MatrixWriter(path, _Layout((n_rows, n_columns), stored.newbyteorder("<"), names))


@contextmanager
def _npy(file: IO[bytes], layout: _Layout) -> Iterator[_Append]:
    header = {"descr": layout.dtype.str, "fortran_order": False, "shape": layout.shape}
    np.lib.format.write_array_header_1_0(file, header)
    yield lambda rows: file.write(rows.data)


@contextmanager
def _npz(file: IO[bytes], layout: _Layout) -> Iterator[_Append]:
    with (
        zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive,
        # zipfile does not know the size when it opens the member; without force_zip64 it would stop at 2 GiB.
        archive.open("X.npy", "w", force_zip64=True) as member,
        _npy(member, layout) as append,
    ):
        yield append


@contextmanager
def _safetensors(file: IO[bytes], layout: _Layout) -> Iterator[_Append]:
    file.write(header_bytes({"X": (layout.dtype, layout.shape)}))
    yield lambda rows: file.write(rows.data)


@contextmanager
def _parquet(file: IO[bytes], layout: _Layout) -> Iterator[_Append]:
    pa = import_arrow("writing a .parquet file")
    number = pa.from_numpy_dtype(layout.dtype)
    if layout.columns is None:
        schema = pa.schema([("embedding", pa.list_(number, layout.shape[1]))])
    else:
        schema = pa.schema([(name, number) for name in layout.columns])
    # Small blocks are collected: the headers of many small row groups would take more room than the numbers.
    pending: list[Array] = []
    group = max(1, _GROUP_BYTES // (layout.shape[1] * layout.dtype.itemsize))

    def flush() -> None:
        rows = np.concatenate(pending)
        pending.clear()
        if layout.columns is None:
            arrays = [pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), layout.shape[1])]
        else:
            arrays = [pa.array(column) for column in rows.T]
        writer.write_table(pa.Table.from_arrays(arrays, schema=schema), row_group_size=group)

    def append(rows: Array) -> None:
        # A copy, since the caller may fill the same block again.
        pending.append(rows.copy())
        if sum(map(len, pending)) >= group:
            flush()

    # Embeddings hardly ever repeat a number, so a dictionary would cost time for nothing.
    with pa.parquet.ParquetWriter(file, schema, use_dictionary=False) as writer:
        yield append
        if pending:
            flush()


@contextmanager
def _delimited(file: IO[bytes], layout: _Layout, delimiter: str) -> Iterator[_Append]:
    header = io.StringIO()
    names = layout.columns or [f"x{at}" for at in range(layout.shape[1])]
    csv.writer(header, delimiter=delimiter, lineterminator="\n").writerow(names)
    file.write(header.getvalue().encode())

    def append(rows: Array) -> None:
        # numpy writes the shortest text that gives the number back in its own precision; Python knows doubles only.
        for row in rows:
            file.write((delimiter.join(row.astype(str).tolist()) + "\n").encode())

    yield append


_SINKS: dict[str, Callable[[IO[bytes], _Layout], AbstractContextManager[_Append]]] = {
    ".npy": _npy,
    ".npz": _npz,
    ".safetensors": _safetensors,
    ".parquet": _parquet,
    ".csv": lambda file, layout: _delimited(file, layout, ","),
    ".tsv": lambda file, layout: _delimited(file, layout, "\t"),
}
