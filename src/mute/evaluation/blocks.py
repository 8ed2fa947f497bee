"""Rows for an audit, gathered in one pass over an array, a memory map or a matrix on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.rows.detect import is_dask
from mute.rows.frames import FrameRows, is_frame
from mute.rows.matrix import StreamedMatrix
from mute.rows.memory import release_pages
from mute.rows.validation import BadRows, check_finite, check_length, label_array
from mute.typing import LabelsLike, RowsLike

__all__ = ["as_rows", "blocks_of", "check_matrix", "gather", "labels_of", "on_disk"]

# The parts in which `mute.estimators.base.digest_of_rows` hashes rows; another size would give another hash.
_BLOCK = 2048


def on_disk(X: RowsLike) -> bool:
    """Whether the rows come in blocks, such as `mute.open_matrix` gives."""
    return hasattr(X, "row_blocks") and not isinstance(X, np.ndarray)


def as_rows(
    X: RowsLike,
    name: str,
    n_rows: int | None = None,
    *,
    columns: Sequence[str] | None = None,
    fits: bool = False,
) -> RowsLike:
    """`X` as an array of numbers of shape (n, D), still mapped, or as a matrix in blocks (an iterator: of `n_rows`).

    Frames and tables are matched by name to `columns`, those that an eraser was fitted on; without them the embedding
    is recognised (`fits`: for a fit, see `FrameRows`).
    """
    if is_frame(X):
        X = np.asarray(FrameRows(X, columns, name, fits=fits).rows)
    elif columns is not None and hasattr(X, "matching"):
        X = X.matching(list(columns))
    if on_disk(X):
        return X
    if is_dask(X):
        from mute.rows.dask_arrays import DaskMatrix

        return DaskMatrix(X, name)
    if isinstance(X, Iterator) and n_rows is not None:
        return StreamedMatrix(X, n_rows, name)
    array = X if isinstance(X, np.ndarray) else np.asarray(X)
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise MuteError(f"{name} must be a matrix of numbers, not of shape {array.shape} and dtype {array.dtype}")
    return array


def check_matrix(X: RowsLike, name: str, *, columns: Sequence[str] | None = None, fits: bool = False) -> NDArray:
    """`X` as an array of finite numbers, still mapped; a matrix on disk is read whole. Columns as in `as_rows`."""
    rows = as_rows(X, name, columns=columns, fits=fits)
    array: NDArray = rows.to_numpy() if on_disk(rows) else rows
    if array.dtype.kind == "f":
        check_finite(array, name)
    return array


def labels_of(labels: LabelsLike, n_rows: int, name: str) -> NDArray[np.object_]:
    """One label for each row, of any hashable kind."""
    array = label_array(labels, name)
    check_length(array, n_rows, name)
    return array


def blocks_of(X: RowsLike, size: int = _BLOCK) -> Iterator[tuple[int, NDArray]]:
    """Every block with the number of its first row; no more than one block of a mapped file stays in memory."""
    start = 0
    blocks = X.row_blocks(size) if on_disk(X) else (X[i : i + size] for i in range(0, len(X), size))
    for block in blocks:
        yield start, block
        start += len(block)
        if not on_disk(X):
            release_pages(X)


def gather(
    X: RowsLike, name: str, places: Sequence[NDArray[np.int64]], *, digest: bool = False
) -> tuple[list[NDArray], str | None]:
    """Go once through all rows, check that they are finite, and take those at `places`, each in ascending order.

    With `digest` also hash the rows, as `mute.estimators.base.digest_of_rows` does.
    """
    bad = BadRows()
    taken = [np.empty((len(rows), X.shape[1]), X.dtype) for rows in places]
    hashes = []
    for start, block in blocks_of(X):
        if block.dtype.kind == "f":
            bad.look_at(block, start)
        if digest:
            hashes.append(hashlib.sha256(np.ascontiguousarray(block).data).digest())
        for rows, out in zip(places, taken, strict=True):
            first, stop = np.searchsorted(rows, [start, start + len(block)])
            out[first:stop] = block[rows[first:stop] - start]
    bad.refuse(X.dtype if X.dtype.kind == "f" else np.dtype(float), name)
    return taken, hashlib.sha256(b"".join(hashes)).hexdigest() if digest else None
