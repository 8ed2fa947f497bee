"""Rows that come in blocks (a matrix on disk, an iterator, dask's collections): fitted on and mapped, never whole.

`ConceptEstimator` asks here first; arrays never come this way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.rows.chunks import CHUNK_ROWS
from mute.rows.detect import come_in_blocks, is_dask
from mute.rows.memory import suggest_scratch
from mute.rows.stores import ChunkStore, FileStore, MemoryStore, SpooledRows, scratch_file
from mute.rows.streams import BlockStream, MappedMatrix
from mute.rows.validation import LabelEncoder, check_length, concept_of

__all__ = [
    "fits_in_memory",
    "in_memory",
    "open_block_store",
    "over_blocks",
    "per_row",
    "read_blocks",
    "refuse_iterator",
]

_BLOCK = 8 * CHUNK_ROWS


def refuse_iterator(X: Any) -> None:
    """An error where rows are read twice."""
    if isinstance(X, Iterator):
        raise MuteError("X is an iterator, which can be read once; call fit, then transform with a new iterator")


def fits_in_memory(X: Any, scratch: Any) -> bool:
    """Whether a matrix on disk is to be read as a whole."""
    if not hasattr(X, "row_blocks"):
        return False
    size = X.shape[0] * X.shape[1] * X.dtype.itemsize
    return scratch is None or (isinstance(scratch, str) and scratch == "auto" and not suggest_scratch(size))


def open_block_store(X: Any, y: Any, concept: Any, scratch: Any, n_threads: int) -> tuple[ChunkStore, LabelEncoder]:
    """Keep rows that come in blocks as chunks, with their labels encoded.

    Parameters
    ----------
    X : matrix of `mute.open_matrix`, iterator of blocks, dask array or data frame
        The iterator gives arrays of shape (m, D) or pairs of such an array and the labels of its rows.
    y, concept
        As `fit` takes them.
    scratch
        The setting of the estimator.
    """
    if is_dask(X):
        from mute.rows.dask import active_client, open_dask_store
        from mute.rows.dask_arrays import DaskMatrix

        client = active_client()
        if client is not None:
            return open_dask_store(client, X, y, concept)
        # Without a cluster all work is done here: chunks are computed one after the other, and kept as rows of a file.
        X = DaskMatrix(X, "X")
        if fits_in_memory(X, scratch):
            encoder, z = LabelEncoder.fit(concept_of(X.shape[0], y, concept))
            return MemoryStore(X.to_numpy(), z, n_threads), encoder
    folder = None if scratch in (None, "auto") else scratch
    if hasattr(X, "row_blocks"):
        encoder, z = LabelEncoder.fit(concept_of(X.shape[0], y, concept))
        file = scratch_file(folder, X.shape[0] * X.shape[1] * X.dtype.itemsize)
        try:
            rows = SpooledRows(X.row_blocks(_BLOCK), X.shape[1], X.dtype, file)
        except BaseException:
            file.close()
            raise
        return FileStore(rows, z, n_threads, file), encoder
    blocks = BlockStream(X, "X")
    if scratch is None:
        whole = np.concatenate(list(blocks))
        encoder, z = _labels(blocks, y, concept)
        return MemoryStore(whole, z, n_threads), encoder
    file = scratch_file(folder, None)
    try:
        rows = SpooledRows(blocks, blocks.width, blocks.dtype, file)
        encoder, z = _labels(blocks, y, concept)
    except BaseException:
        file.close()
        raise
    return FileStore(rows, z, n_threads, file), encoder


def _labels(blocks: BlockStream, y: Any, concept: Any) -> tuple[LabelEncoder, NDArray[np.int64]]:
    """The labels that came with the blocks, or those given beside them; after all blocks have come."""
    if 0 in (blocks.n_rows, blocks.width):
        raise MuteError(
            f"X is an iterator whose blocks have {blocks.n_rows} rows and {blocks.width} columns together; at least "
            "one row and one column are needed"
        )
    if not blocks.labels:
        return LabelEncoder.fit(concept_of(blocks.n_rows, y, concept))
    if y is not None or concept is not None:
        raise MuteError("labels came with the blocks of X and beside it; give them once")
    labels = np.concatenate(blocks.labels)
    check_length(labels, blocks.n_rows, "X")
    return LabelEncoder.fit(labels)


def read_blocks(X: Any) -> Iterator[NDArray]:
    """The blocks of rows, one after the other."""
    if is_dask(X):
        from mute.rows.dask_arrays import DaskMatrix

        X = DaskMatrix(X, "X")
    return X.row_blocks(_BLOCK) if hasattr(X, "row_blocks") else iter(X)


def in_memory(X: Any) -> Any:
    """Rows that come in blocks as one array; others as they are."""
    return np.concatenate(list(read_blocks(X))) if come_in_blocks(X) else X


def over_blocks(estimator: Any, method: str, X: Any, **labels: Any) -> Any:
    """Call a method of a fitted estimator on every block of X; `labels` hold one label for each row, or one for all.

    A matrix gives a matrix, whose rows are computed when they are read; an iterator gives an iterator; dask's
    collections give a dask array, which is lazy.
    """
    if is_dask(X):
        from mute.rows.dask_arrays import map_dask

        return map_dask(estimator, method, X, labels)
    if hasattr(X, "row_blocks"):
        return MappedMatrix(X, _call(estimator, method, labels, X.shape[0]))
    return _mapped(X, _call(estimator, method, labels, None), _given_per_row(estimator, labels))


def _mapped(blocks: Iterator[Any], work: Any, per_row: dict[str, Any]) -> Iterator[NDArray[np.floating]]:
    start = 0
    for block in blocks:
        if isinstance(block, tuple):
            raise MuteError("X gives pairs, but here it must give blocks of rows alone; give labels beside it")
        yield work(block, start)
        start += len(block)
    _check_lengths(per_row, start)


def _given_per_row(estimator: Any, labels: dict[str, Any]) -> dict[str, Any]:
    return {name: given for name, given in labels.items() if per_row(estimator, given)}


def _check_lengths(labels: dict[str, Any], n_rows: int) -> None:
    for name, given in labels.items():
        check_length(given, n_rows, name)


def _call(estimator: Any, method: str, labels: dict[str, Any], n_rows: int | None) -> Any:
    each = _given_per_row(estimator, labels)
    if n_rows is not None:
        _check_lengths(each, n_rows)

    def work(block: NDArray, start: int) -> NDArray[np.floating]:
        part = slice(start, start + len(block))
        told = {name: given[part] if name in each else given for name, given in labels.items()}
        try:
            return getattr(estimator, method)(block, **told)
        except MuteError as error:
            raise MuteError(f"rows {part.start} to {part.stop - 1}: {error}") from error

    return work


def per_row(estimator: Any, given: Any) -> bool:
    """Whether labels are one for each row, not one for all."""
    if given is None or isinstance(given, str | bytes) or not hasattr(given, "__len__"):
        return False
    return not estimator._encoder.holds(given)
