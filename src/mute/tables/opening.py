"""Matrices in one file or in many, opened by name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path

from mute.errors import MuteError
from mute.rows.matrix import Matrix, NoRowsError
from mute.rows.validation import listed
from mute.tables.columns import DelimitedMatrix, ParquetMatrix
from mute.tables.raw import Layout, RawMatrix, npy_layout, safetensors_layout
from mute.tables.readers import ArrayMatrix, npz_array
from mute.tables.specs import MATRICES, Spec, find
from mute.typing import Array

__all__ = ["open_matrix"]


def open_matrix(spec: Spec, *, exclude: Collection[str] = ()) -> Matrix:
    r"""Open a matrix in one file or in many; rows are read later, block by block.

    Parameters
    ----------
    spec : str, path-like or list of them
        ``PATH`` or ``PATH:SELECTOR``. The suffix decides the kind:

        - ``.npy``: the array;
        - ``.npz:KEY``, ``.safetensors:KEY``: one array; ``KEY`` may be left out if there is only one;
        - ``.parquet:COLUMN``: a list column, or ``.parquet:a,b,c``: numeric columns; without selector, the list column
          if there is one, else all numeric columns;
        - ``.csv:a,b,c``, ``.tsv:a,b,c``: numeric columns; without selector all of them. A header line is required.

        Many files follow each other (.parquet, .npy, .npz or .safetensors, all of one kind, with the same columns and
        precision):

        - a folder: all .parquet files in it and below, in the order of their paths;
        - a pattern (``data/part-*.parquet``, ``**`` for folders of any depth), in the order of the paths; here and in
          folders, names that begin with ``.`` or ``_`` are left out;
        - a list of paths, in its own order, each with the same selector or none.
    exclude : collection of str
        Names of columns to leave out if `spec` has no selector, such as that of the labels.

    Returns
    -------
    Matrix
        With `shape`, `dtype`, `columns`, ``row_blocks(size)`` and ``to_numpy()``.

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
    ...     _ = path.write_text("label,a,b\n1,0.5,2\n0,1.5,3\n")
    ...     matrix = open_matrix(path, exclude=["label"])
    ...     print(matrix.shape, matrix.columns, [block.tolist() for block in matrix.row_blocks(1)])
    (2, 2) ['a', 'b'] [[[0.5, 2.0]], [[1.5, 3.0]]]

    Many files are one matrix:

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for part in (0, 1):
    ...         np.save(Path(folder, f"part-{part}.npy"), np.full((2, 3), part, np.float32))
    ...     matrix = open_matrix(f"{folder}/part-*.npy")
    ...     print(matrix.shape, [block[:, 0].tolist() for block in matrix.row_blocks(3)])
    (4, 3) [[0.0, 0.0, 1.0], [1.0]]
    """
    found = find(spec, MATRICES)
    open_one = partial(_open_one, selector=found.selector, exclude=exclude)
    return open_one(found.files[0]) if found.root is None else _JoinedMatrix(found.path, found.files, open_one)


def _open_one(path: Path, selector: str | None, exclude: Collection[str]) -> Matrix:
    match path.suffix.lower():
        case ".npy":
            return _stored(path, npy_layout)
        case ".npz":
            return ArrayMatrix(path, npz_array(path, selector))
        case ".safetensors":
            return _stored(path, partial(safetensors_layout, key=selector))
        case ".parquet":
            return ParquetMatrix(path, selector, exclude)
        case _:
            return DelimitedMatrix(path, selector, exclude)


def _stored(path: Path, layout_of: Callable[[Path], Layout]) -> Matrix:
    # The numbers of one row are scattered over a file in Fortran order; a memory map gathers them.
    layout = layout_of(path)
    return ArrayMatrix(path, layout.map(path)) if layout.columns_first else RawMatrix(path, layout_of)


class _JoinedMatrix(Matrix):
    """The rows of many files, one file after the other; files without rows are left out.

    Opening reads the header of each file and keeps its name and number of rows. One file is open at a time. So memory
    does not grow with the number of files.

    Parquet files are joined here and not by ``pyarrow.dataset``. That decodes whole row groups (400 MB where pages take
    28 MB), fills columns that a file lacks with nulls, and silently converts text to numbers.
    """

    def __init__(self, path: Path, files: Sequence[Path], open_one: Callable[[Path], Matrix]) -> None:
        self._open_one = open_one
        self._files: list[tuple[Path, int]] = []
        first: Matrix | None = None
        for file in files:
            try:
                part = open_one(file)
            except NoRowsError:
                continue
            first = first or part
            _check_alike(first, part)
            self._files.append((file, part.shape[0]))
        if first is None:
            raise NoRowsError(f"{path} has files but no rows; give at least one row")
        self._first = first
        super().__init__(path, (sum(rows for _, rows in self._files), first.shape[1]), first.dtype, first.columns)

    def parts(self, size: int) -> list[tuple[int, Callable[[], Array]]]:
        return [(rows, partial(self._read, file, rows)) for file, rows in self._files]

    def _read(self, file: Path, rows: int) -> Array:
        return self._open(file, rows).to_numpy()

    def _open(self, file: Path, rows: int) -> Matrix:
        part = self._open_one(file)
        _check_alike(self._first, part)
        if part.shape[0] != rows:
            raise MuteError(f"{file} has {part.shape[0]} rows, but {rows} when it was opened; open it again")
        return part

    def _blocks(self, size: int) -> Iterator[Array]:
        for file, rows in self._files:
            yield from self._open(file, rows).row_blocks(size)


def _check_alike(first: Matrix, part: Matrix) -> None:
    if part.columns != first.columns:
        here, there = part.columns or [], first.columns or []
        lacking, new = [n for n in there if n not in here], [n for n in here if n not in there]
        differences = [f"lacks {listed(lacking, 5)}"] * bool(lacking) + [f"also has {listed(new, 5)}"] * bool(new)
        what = " and ".join(differences) or "has its columns in another order"
        raise MuteError(f"{part.path} {what}, unlike {first.path}; select numeric columns that all files share")
    for name, mine, expected in (("columns", part.shape[1], first.shape[1]), ("numbers", part.dtype, first.dtype)):
        if mine != expected:
            raise MuteError(f"{part.path} has {mine} {name} and {first.path} {expected}; make all files alike")
