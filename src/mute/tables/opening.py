"""Matrices in files, by name."""

from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

from mute.rows.matrix import Matrix
from mute.tables.columns import DelimitedMatrix, ParquetMatrix
from mute.tables.joined import JoinedMatrix
from mute.tables.raw import Layout, RawMatrix, npy_layout, safetensors_layout
from mute.tables.readers import ArrayMatrix, npz_array
from mute.tables.specs import MATRICES, Spec, find

__all__ = ["open_matrix"]


def open_matrix(spec: Spec, *, exclude: Collection[str] = ()) -> Matrix:
    """Open a matrix in one file or in many; rows are read later, block by block.

    Parameters
    ----------
    spec : str, path-like or list of them
        ``PATH`` or ``PATH:SELECTOR``. The kind follows from the suffix:

        - ``.npy``: the array;
        - ``.npz:KEY``, ``.safetensors:KEY``: one array; ``KEY`` may be left out when there is only one;
        - ``.parquet:COLUMN``: a list column, or ``.parquet:a,b,c``: numeric columns; with neither, the list column
          if there is one, else all numeric columns;
        - ``.csv:a,b,c``, ``.tsv:a,b,c``: numeric columns; without selector all of them. A header line is required.

        Many files, whose rows follow each other (.parquet, .npy, .npz or .safetensors, all of one kind, with the same
        columns and precision):

        - a folder: all .parquet files in it and below, in the order of their paths;
        - a pattern (``data/part-*.parquet``, ``**`` for folders of any depth), in the order of the paths; here and in
          folders, names that begin with ``.`` or ``_`` are left out;
        - a list of paths, in its own order, each with the same selector or none.
    exclude : collection of str
        Names of columns that are not taken when `spec` selects none, such as that of the labels.

    Returns
    -------
    Matrix
        With `shape`, `dtype`, `columns`, ``row_blocks(size)`` and ``to_numpy()``.

    Raises
    ------
    MuteError
        If a file is missing, damaged, of an unknown kind, holds no such matrix, or is not like the others.

    Notes
    -----
    Limits: a .npz array is loaded whole. Of all others ``row_blocks`` holds a few blocks only; a .npy file in Fortran's
    order is mapped for it, which takes as much address space as the file is long. What only reading can show (rows of
    unequal length in a list column, nulls, text among numbers) is raised by ``row_blocks``, not here. Paths are ordered
    as text: ``part-10`` comes before ``part-2``.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> path = os.path.join(tempfile.mkdtemp(), "x.csv")
    >>> with open(path, "w") as file:
    ...     _ = file.write("label,a,b\\n1,0.5,2\\n0,1.5,3\\n")
    >>> matrix = open_matrix(path, exclude=["label"])
    >>> matrix.shape, matrix.columns
    ((2, 2), ['a', 'b'])
    >>> [block.tolist() for block in matrix.row_blocks(1)]
    [[[0.5, 2.0]], [[1.5, 3.0]]]

    Many files are one matrix:

    >>> folder = tempfile.mkdtemp()
    >>> for part in (0, 1):
    ...     np.save(os.path.join(folder, f"part-{part}.npy"), np.full((2, 3), part, np.float32))
    >>> matrix = open_matrix(os.path.join(folder, "part-*.npy"))
    >>> matrix.shape, [block[:, 0].tolist() for block in matrix.row_blocks(3)]
    ((4, 3), [[0.0, 0.0, 1.0], [1.0]])
    """
    found = find(spec, MATRICES)
    open_one = partial(_open_one, selector=found.selector, exclude=exclude)
    return open_one(found.files[0]) if found.root is None else JoinedMatrix(found.path, found.files, open_one)


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
    # Rows that are scattered over the file are gathered from a map of it.
    layout = layout_of(path)
    return ArrayMatrix(path, layout.map(path)) if layout.columns_first else RawMatrix(path, layout_of)
