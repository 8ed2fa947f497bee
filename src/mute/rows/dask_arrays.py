"""Dask's collections as rows: checked, read block by block, and mapped lazily."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError, missing_extra
from mute.rows.detect import is_dask
from mute.rows.embedding import match_names
from mute.rows.matrix import Matrix, float_dtype
from mute.rows.validation import check_length, check_width, label_array, one_per_row
from mute.typing import Array, Classifier, Json, Method, RowsLike

__all__ = ["DaskMatrix", "checked_array", "import_dask", "label_chunks", "map_dask"]


def import_dask() -> Any:
    """Dask with its arrays, or an error that names its extra."""
    try:
        import dask
        import dask.array
    except ImportError:
        raise missing_extra("dask", "dask", "rows in dask's collections") from None
    return dask


def checked_array(X: RowsLike) -> Any:
    """A dask array of single or double precision, with one chunk of columns and chunks of known sizes."""
    da = import_dask().array
    if hasattr(X, "to_dask_array"):
        X = X.to_dask_array(lengths=True)
    _check_matrix(X)
    if X.dtype.kind not in "fiub":
        raise MuteError(f"X must hold numbers, not {X.dtype}")
    dtype = float_dtype(X.dtype)
    if np.isnan(X.shape[1]):
        raise MuteError("X is a dask array of unknown width; give one whose columns are known")
    X = X.rechunk({1: -1})
    if _unknown_sizes(X):
        X = X.compute_chunk_sizes()
    if 0 in X.shape:
        raise MuteError(f"X has shape {X.shape}; give at least one row and one column")
    return da.map_blocks(_checked, X, width=X.shape[1], kind=dtype.name, dtype=dtype, meta=np.empty((0, 0), dtype))


def _check_matrix(X: RowsLike) -> None:
    if X.ndim != 2:
        raise MuteError(f"X must be a matrix, not a dask array of shape {X.shape}")


def _unknown_sizes(X: RowsLike) -> bool:
    return any(map(np.isnan, X.chunks[0]))


def _checked(block: NDArray, width: int, kind: str, block_info: Any = None) -> NDArray:
    if not block_info:
        return block.astype(kind)
    (start, stop), _ = block_info[0]["array-location"]
    if block.shape != (stop - start, width):
        raise MuteError(
            f"the block of rows {start} to {stop - 1} has shape {block.shape} where {(stop - start, width)} was "
            "announced; correct the task that makes it"
        )
    return block.astype(kind, copy=False)


def label_chunks(given: Any, lengths: bool) -> Any:
    """Labels as a dask array; with `lengths`, its chunks have known lengths."""
    if not hasattr(given, "to_dask_array"):
        return given
    with warnings.catch_warnings():
        # Text becomes Python's own, like all labels.
        warnings.filterwarnings("ignore", message="Dask currently has limited support", category=UserWarning)
        return given.to_dask_array(lengths=lengths or None)


def map_dask(estimator: Method, method: str, X: RowsLike, labels: Json) -> Any:
    """A lazy dask array: a method of a fitted estimator on every block."""
    dask = import_dask()
    da = dask.array
    if hasattr(X, "to_dask_array"):
        names = getattr(estimator, "feature_names_in_", None)
        if method != "inverse_transform" and names is not None:
            found = match_names("X", dict.fromkeys(X.columns, "float"), list(names))
            X = X if found is None else X[list(found.names)]
        X = X.to_dask_array()
    _check_matrix(X)
    if not np.isnan(X.shape[1]):
        check_width(X.shape[1], estimator, "X")
    X = X.rechunk({1: -1})
    dtype = float_dtype(X.dtype)
    beside, same = {}, {}
    for name, given in labels.items():
        if is_dask(given):
            known = not _unknown_sizes(X)
            given = label_chunks(given, known)
            if known and not _unknown_sizes(given):
                check_length(given, X.shape[0], name)
                given = given.rechunk((X.chunks[0],))
            beside[name] = given
        elif one_per_row(given, estimator):
            if _unknown_sizes(X):
                X = X.compute_chunk_sizes()
            array = label_array(given, name)
            check_length(array, X.shape[0], name)
            beside[name] = da.from_array(array, chunks=(X.chunks[0],))
        else:
            same[name] = given
    bare = estimator.nameless().set_callbacks()  # callbacks watch a fit, and may have parts that cannot be sent
    model = dask.delayed(bare, pure=False, traverse=False)
    columns = [array[:, None] for array in beside.values()]
    return da.map_blocks(
        _apply, X, *columns, model=model, method=method, names=tuple(beside), same=same, dtype=dtype,
        chunks=X.chunks, meta=np.empty((0, 0), dtype),
    )  # fmt: skip


def _apply(
    block: NDArray, *columns: NDArray, model: Classifier, method: str, names: tuple, same: dict, block_info: Any = None
) -> Any:
    labels = {name: column[:, 0] for name, column in zip(names, columns, strict=True)}
    try:
        return getattr(model, method)(block, **labels, **same)
    except MuteError as error:
        start, stop = block_info[0]["array-location"][0] if block_info else (0, len(block))
        raise MuteError(f"rows {start} to {stop - 1}: {error}") from error


class DaskMatrix(Matrix):
    """A dask array as a matrix; this process computes one block at a time."""

    def __init__(self, X: RowsLike, name: str) -> None:
        self._array = checked_array(X)
        super().__init__(Path(name), self._array.shape, self._array.dtype)

    def _blocks(self, size: int) -> Iterator[Array]:
        for i in range(self._array.numblocks[0]):
            yield np.ascontiguousarray(self._array.blocks[i].compute())
