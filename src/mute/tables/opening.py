"""Matrices in one file or in many, opened by name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from mute.errors import MuteError, listed
from mute.rows.embedding import Embedding, Kind, choose_embedding, match_names
from mute.rows.matrix import Matrix, NoRowsError, Stamp
from mute.tables.delimited import DelimitedMatrix
from mute.tables.parquet import ParquetMatrix, import_arrow
from mute.tables.raw import Layout, RawMatrix, npy_layout, safetensors_layout
from mute.tables.readers import ArrayMatrix, npz_array
from mute.tables.specs import MATRICES, Found, Spec, find
from mute.tables.table import Chooser, TableMatrix
from mute.typing import Array, Foreign

__all__ = ["open_matrix"]


def open_matrix(spec: Spec, *, exclude: Collection[str] = (), names: Sequence[str] | None = None) -> Matrix:
    r"""Open a matrix in one file or in many; rows are read later, block by block.

    Parameters
    ----------
    spec : str, path-like or list of them
        ``PATH`` or ``PATH:SELECTOR``. The suffix decides the kind:

        - ``.npy``: the array;
        - ``.npz:KEY``, ``.safetensors:KEY``: one array; ``KEY`` may be left out if there is only one;
        - ``.parquet:COLUMN``: a list column; ``.parquet:a,b,c``, ``.csv:a,b,c``, ``.tsv:a,b,c``: numeric columns, which
          may be patterns (``emb_*``); without selector, the one list column, else the largest group of float columns
          with a common stem and running numbers (``e0 … e383``), else an error that lists the candidates. Text files
          need a header line.

        Many files follow each other (.parquet, .npy, .npz or .safetensors, all of one kind, with the same columns and
        precision):

        - a folder: all .parquet files in it and below, in the order of their paths;
        - a pattern (``data/part-*.parquet``, ``**`` for folders of any depth), in the order of the paths; here and in
          folders, names that begin with ``.`` or ``_`` are left out;
        - a list of paths, in its own order, each with the same selector or none.
    exclude : collection of str
        Columns that are never part of the embedding, such as those of the labels.
    names : sequence of str, optional
        Columns of the embedding in their order, such as the ``feature_names_in_`` of a model. They are found by name,
        in any order of the table; an array or a list column, which has no names, is taken as it is.

    Returns
    -------
    Matrix
        With `shape`, `dtype`, `columns`, ``row_blocks(size)`` and ``to_numpy()``. ``print(matrix)`` says what was taken
        as the embedding.

    Raises
    ------
    MuteError
        If a file is missing, damaged, of an unknown kind, has no such matrix, or differs from the others.

    See Also
    --------
    mute.tables.read_labels : One label for each row, from the same files.

    Notes
    -----
    *Limits.* A .npz array is loaded whole. ``row_blocks`` keeps a few blocks of all other kinds in memory; a .npy file
    in Fortran order is mapped, which takes as much address space as the file is long. Some errors show only when rows
    are read, and ``row_blocks`` raises them: rows of unequal length in a list column, nulls, text among numbers. Paths
    are ordered as text: ``part-10`` comes before ``part-2``.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "x.csv")
    ...     _ = path.write_text("id,e0,e1\n7,0.5,2.0\n8,1.5,3.0\n")
    ...     matrix = open_matrix(path)
    ...     print(matrix.shape, matrix.columns, [block.tolist() for block in matrix.row_blocks(1)])
    (2, 2) ['e0', 'e1'] [[[0.5, 2.0]], [[1.5, 3.0]]]

    Many files are one matrix:

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for part in (0, 1):
    ...         np.save(Path(folder, f"part-{part}.npy"), np.full((2, 3), part, np.float32))
    ...     matrix = open_matrix(f"{folder}/part-*.npy")
    ...     print(matrix.shape, [block[:, 0].tolist() for block in matrix.row_blocks(3)])
    (4, 3) [[0.0, 0.0, 1.0], [1.0]]
    """
    found = find(spec, MATRICES)

    def choose(table: str, kinds: Mapping[str, Kind]) -> Embedding:
        if names is not None:
            matched = match_names(table, kinds, names)
            if matched is not None:
                return matched
        return choose_embedding(table, kinds, found.selector, exclude)

    return _opened(found, choose)


def _opened(found: Found, choose: Chooser) -> Matrix:
    open_one = partial(_open_one, selector=found.selector, choose=choose)
    if found.root is None:
        return open_one(found.files[0])
    joined = _JoinedTable if found.files[0].suffix.lower() == ".parquet" else _JoinedMatrix
    return joined(found, open_one)


def _open_one(path: Path, selector: str | None, choose: Chooser) -> Matrix:
    match path.suffix.lower():
        case ".npy":
            return _stored(path, npy_layout)
        case ".npz":
            return ArrayMatrix(Stamp.of(path), npz_array(path, selector))
        case ".safetensors":
            return _stored(path, partial(safetensors_layout, key=selector))
        case ".parquet":
            return ParquetMatrix(path, choose)
        case _:
            return DelimitedMatrix(path, choose)


def _stored(path: Path, layout_of: Callable[[Path], Layout]) -> Matrix:
    # The numbers of one row are scattered over a file in Fortran order; a memory map gathers them.
    stamp, layout = Stamp.of(path), layout_of(path)
    return ArrayMatrix(stamp, layout.map(path)) if layout.columns_first else RawMatrix(path, layout_of)


class _JoinedMatrix(Matrix):
    """The rows of many files, one file after the other; files without rows are left out.

    Opening reads the header of each file and keeps its name and number of rows. One file is open at a time. So memory
    does not grow with the number of files.

    Parquet files are joined here and not by ``pyarrow.dataset``. That decodes whole row groups (400 MB where pages take
    28 MB), fills columns that a file lacks with nulls, and silently converts text to numbers.
    """

    def __init__(self, found: Found, open_one: Callable[[Path], Matrix]) -> None:
        self._found, self._open_one = found, open_one
        self._files: list[tuple[Path, int]] = []
        first: Matrix | None = None
        stamps: list[Stamp] = []
        for file in found.files:
            try:
                part = open_one(file)
            except NoRowsError:
                continue
            first = first or part
            self._files.append((file, _alike(first, part).shape[0]))
            stamps += part.stamps
        if first is None:
            raise NoRowsError(f"{found.path} has files but no rows; give at least one row")
        self._first = first
        shape = (sum(rows for _, rows in self._files), first.shape[1])
        Matrix.__init__(self, found.path, shape, first.dtype, first.columns, tuple(stamps))

    def parts(self, size: int) -> list[tuple[int, Callable[[], Array]]]:
        return [(rows, partial(self._read, file, rows)) for file, rows in self._files]

    def _read(self, file: Path, rows: int) -> Array:
        part: Matrix = self._open(file, rows)
        return part.to_numpy()

    def _open(self, file: Path, rows: int) -> Any:  # Any: a table where the first file is one
        part = _alike(self._first, self._open_one(file))
        if part.shape[0] != rows:
            raise MuteError(f"{file} has {part.shape[0]} rows, but {rows} when it was opened; open it again")
        return part

    def _blocks(self, size: int) -> Iterator[Array]:
        for file, rows in self._files:
            yield from self._open(file, rows).row_blocks(size)


class _JoinedTable(_JoinedMatrix, TableMatrix):
    """The rows of many tables; folders named like ``city=Rome`` give one more column."""

    _first: TableMatrix

    def __init__(self, found: Found, open_one: Callable[[Path], Matrix]) -> None:
        super().__init__(found, open_one)
        first, arrow = self._first, import_arrow()
        self.kinds, self.types, folders = dict(first.kinds), first.types, found.partition(self._files[0][0])
        for name in folders:
            if name not in self.kinds:
                self.kinds[name], self.types = "other", self.types.append(arrow.field(name, arrow.string()))
        chosen = first.embedding
        left_out = tuple(name for name in self.kinds if name not in chosen.names)
        self.embedding = Embedding(chosen.names, chosen.is_list, left_out)

    def _reopened(self, choose: Chooser) -> _JoinedTable:
        return _JoinedTable(self._found, partial(_open_one, selector=None, choose=choose))

    def with_others(self, size: int, others: Sequence[str]) -> Iterator[tuple[Array, dict[str, Foreign]]]:
        arrow = import_arrow()
        for file, rows in self._files:
            part, folders = self._open(file, rows), self._found.partition(file)
            inside = [name for name in others if name in part.kinds]
            for name in others:
                kind = part.types.field(name).type if name in inside else arrow.string() if name in folders else None
                if kind != self.types.field(name).type:
                    raise MuteError(
                        f"{file} has {kind or 'nothing'} in column {name!r}, unlike {self._first.path}; make all files "
                        "alike"
                    )
            for numbers, cells in part.with_others(size, inside):
                for name in others:
                    if name not in cells:
                        cells[name] = arrow.array([folders[name]] * len(numbers), arrow.string())
                yield numbers, cells


def _alike(first: Matrix, part: Matrix) -> Matrix:
    """The part, if it has the same columns as the first, in the order of the first."""
    if part.columns != first.columns:
        here, there = part.columns or [], first.columns or []
        lacking, new = [n for n in there if n not in here], [n for n in here if n not in there]
        differences = [f"lacks {listed(lacking, 5)}"] * bool(lacking) + [f"also has {listed(new, 5)}"] * bool(new)
        if differences:
            raise MuteError(
                f"{part.path} {' and '.join(differences)}, unlike {first.path}; select numeric columns that all files "
                "share"
            )
        part = part.matching(there)
    for name, mine, expected in (("columns", part.shape[1], first.shape[1]), ("numbers", part.dtype, first.dtype)):
        if mine != expected:
            raise MuteError(f"{part.path} has {mine} {name} and {first.path} {expected}; make all files alike")
    return part
