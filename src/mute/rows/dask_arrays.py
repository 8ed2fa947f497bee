"""Dask's collections as rows: checked, read block by block, and mapped lazily."""

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.rows.detect import is_dask
from mute.rows.embedding import match_names
from mute.rows.matrix import Matrix, float_dtype
from mute.rows.validation import check_length, check_width, label_array, one_per_row
from mute.typing import Array, Foreign, LabelsLike, Method, RowsLike

__all__ = ["DaskMatrix", "as_announced", "checked_array", "label_chunks", "map_dask", "unknown_sizes"]

# What dask tells a task about its block: at 0, the ends of the block along each axis.
_BlockInfo = dict[int, dict[str, list[tuple[int, int]]]]


def checked_array(X: RowsLike) -> Foreign:
    """A dask array of single or double precision, with one chunk of columns and chunks of known sizes."""
    if hasattr(X, "to_dask_array"):
        X = X.to_dask_array(lengths=True)
    _check_matrix(X)
    if X.dtype.kind not in "fiub":
        raise MuteError(f"X must hold numbers, not {X.dtype}")
    if np.isnan(X.shape[1]):
        raise MuteError("X is a dask array of unknown width; give one whose columns are known")
    X = X.rechunk({1: -1})
    if unknown_sizes(X):
        X = X.compute_chunk_sizes()
    if 0 in X.shape:
        raise MuteError(f"X has shape {X.shape}; give at least one row and one column")
    return as_announced(X, "X", float_dtype(X.dtype))


def _check_matrix(X: RowsLike) -> None:
    if X.ndim != 2:
        raise MuteError(f"X must be a matrix, not a dask array of shape {X.shape}")


def unknown_sizes(array: Foreign) -> bool:
    """Whether a dask array does not know how many rows each chunk has."""
    return any(map(np.isnan, array.chunks[0]))


def as_announced(array: Foreign, name: str, dtype: np.dtype | None = None) -> Foreign:
    """A dask array whose blocks are checked to have their announced shapes and converted to `dtype`, if it is given."""
    meta = np.empty((0,) * array.ndim, dtype or array.dtype)
    return array.map_blocks(_checked, of=name, kind=dtype, dtype=meta.dtype, meta=meta)


def _checked(block: NDArray, of: str, kind: np.dtype | None, block_info: _BlockInfo) -> NDArray:
    places = block_info[0]["array-location"]
    announced = tuple(stop - start for start, stop in places)
    if block.shape != announced:
        start, stop = places[0]
        raise MuteError(
            f"{of}: the block of rows {start} to {stop - 1} has shape {block.shape} where {announced} was announced; "
            "correct the task that makes it"
        )
    return block if kind is None else block.astype(kind, copy=False)


def label_chunks(given: LabelsLike, lengths: bool) -> LabelsLike:
    """Labels as a dask array; with `lengths`, its chunks have known lengths."""
    if not hasattr(given, "to_dask_array"):
        return given
    with warnings.catch_warnings():
        # Text becomes Python's own, like all labels.
        warnings.filterwarnings("ignore", message="Dask currently has limited support", category=UserWarning)
        return given.to_dask_array(lengths=lengths or None)


def map_dask(estimator: Method, method: str, X: RowsLike, labels: dict[str, LabelsLike]) -> Foreign:
    """A lazy dask array: a method of a fitted estimator on every block."""
    from dask.array import from_array
    from dask.delayed import delayed

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
    beside, same = {}, {}
    for name, given in labels.items():
        if is_dask(given):
            known = not unknown_sizes(X)
            given = label_chunks(given, known)
            if known and not unknown_sizes(given):
                check_length(given, X.shape[0], name)
                given = given.rechunk((X.chunks[0],))
            beside[name] = given
        elif one_per_row(given, estimator):
            if unknown_sizes(X):
                X = X.compute_chunk_sizes()
            array = label_array(given, name)
            check_length(array, X.shape[0], name)
            beside[name] = from_array(array, chunks=(X.chunks[0],))
        else:
            same[name] = given
    bare = estimator.nameless().set_callbacks()  # callbacks watch a fit, and may have parts that cannot be sent
    model = delayed(bare, pure=False, traverse=False)
    call = {"model": model, "method": method, "names": tuple(beside), "same": same}
    columns = [array[:, None] for array in beside.values()]
    meta = np.empty((0, 0), float_dtype(X.dtype))
    return X.map_blocks(_apply, *columns, **call, dtype=meta.dtype, chunks=X.chunks, meta=meta)


def _apply(
    block: NDArray, *columns: NDArray, model: Method, method: str, names: tuple[str, ...], same: dict[str, LabelsLike],
    block_info: _BlockInfo,
) -> Array:  # fmt: skip
    labels = {name: column[:, 0] for name, column in zip(names, columns, strict=True)}
    try:
        return getattr(model, method)(block, **labels, **same)
    except MuteError as error:
        start, stop = block_info[0]["array-location"][0]
        raise MuteError(f"rows {start} to {stop - 1}: {error}") from error


class DaskMatrix(Matrix):
    """A dask array as a matrix; this process computes one block at a time."""

    def __init__(self, X: RowsLike, name: str) -> None:
        self._array = checked_array(X)
        super().__init__(Path(name), self._array.shape, self._array.dtype)

    def _blocks(self, size: int) -> Iterator[Array]:
        for i in range(self._array.numblocks[0]):
            yield np.ascontiguousarray(self._array.blocks[i].compute())
