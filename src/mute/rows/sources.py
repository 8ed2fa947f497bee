"""Rows that come in blocks (a matrix on disk, an iterator, dask's collections): fitted on and mapped, never whole."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.rows.chunks import CHUNK_ROWS
from mute.rows.detect import come_in_blocks, is_dask
from mute.rows.matrix import BlockStream, MappedMatrix
from mute.rows.memory import suggest_scratch
from mute.rows.stores import ChunkStore, FileStore, MemoryStore, SpooledRows, scratch_file
from mute.rows.validation import LabelEncoder, check_length, concept_of, one_per_row
from mute.typing import LabelsLike, Method, RowsLike, Setting

__all__ = ["fits_in_memory", "in_memory", "join_blocks", "open_block_store", "over_blocks", "refuse_iterator"]

_BLOCK = 8 * CHUNK_ROWS


def refuse_iterator(X: RowsLike) -> None:
    """Raise for an iterator where rows are read twice."""
    if isinstance(X, Iterator):
        raise MuteError("X is an iterator, which can be read once; call fit, then transform with a new iterator")


def fits_in_memory(X: RowsLike, scratch: Setting) -> bool:
    """Whether a matrix on disk is to be read whole."""
    if not hasattr(X, "row_blocks"):
        return False
    return scratch is None or (isinstance(scratch, str) and scratch == "auto" and not suggest_scratch(_size(X)))


def _size(X: RowsLike) -> int:
    return X.shape[0] * X.shape[1] * X.dtype.itemsize


def open_block_store(
    X: RowsLike, y: LabelsLike, concept: LabelsLike, scratch: Setting, n_threads: int
) -> tuple[ChunkStore, LabelEncoder]:
    """A store of rows that come in blocks, with their labels encoded; `y`, `concept` and `scratch` are those of `fit`.

    `X` is a matrix of `mute.open_matrix`, a dask array or data frame, or an iterator of arrays of shape (m, D) or of
    pairs of such an array and the labels of its rows.
    """
    if is_dask(X):
        from mute.rows.dask import active_client, open_dask_store
        from mute.rows.dask_arrays import DaskMatrix

        client = active_client()
        if client is not None:
            return open_dask_store(client, X, y, concept)
        X = DaskMatrix(X, "X")  # without a cluster, this process computes the blocks, one after the other
    folder = None if scratch in (None, "auto") else scratch
    with ExitStack() as stack:
        if hasattr(X, "row_blocks"):
            encoder, z = LabelEncoder.fit(concept_of(X.shape[0], y, concept))
            if fits_in_memory(X, scratch):
                return MemoryStore(X.to_numpy(), z, n_threads), encoder
            file = stack.enter_context(scratch_file(folder, _size(X)))
            rows = SpooledRows(X.row_blocks(_BLOCK), X.shape[1], X.dtype, file)
        else:
            stream = BlockStream(X, "X")
            if scratch is None:
                whole = np.concatenate(list(stream))
                encoder, z = _labels(stream, y, concept)
                return MemoryStore(whole, z, n_threads), encoder
            file = stack.enter_context(scratch_file(folder, None))
            rows = SpooledRows(stream, stream.width, stream.dtype, file)
            encoder, z = _labels(stream, y, concept)
        stack.pop_all()  # from here on the store closes the file
    return FileStore(rows, z, n_threads, file), encoder


def _labels(stream: BlockStream, y: LabelsLike, concept: LabelsLike) -> tuple[LabelEncoder, NDArray[np.int64]]:
    """The labels that came with the blocks, or those given beside them; for a stream that was read."""
    if 0 in (stream.n_rows, stream.width):
        raise MuteError(f"X's blocks have {stream.n_rows} rows and {stream.width} columns; give at least one of each")
    if not stream.labels:
        return LabelEncoder.fit(concept_of(stream.n_rows, y, concept))
    if y is not None or concept is not None:
        raise MuteError("labels came with the blocks of X and beside X; give them once")
    labels = np.concatenate(stream.labels)
    check_length(labels, stream.n_rows, "X")
    return LabelEncoder.fit(labels)


def join_blocks(X: RowsLike, work: Callable[[NDArray], NDArray]) -> NDArray:
    """What `work` makes of each block of rows, as one array."""
    if is_dask(X):
        from mute.rows.dask_arrays import DaskMatrix

        X = DaskMatrix(X, "X")
    parts = [work(block) for block in (X.row_blocks(_BLOCK) if hasattr(X, "row_blocks") else X)]
    if not parts:
        raise MuteError("X gives no blocks of rows; give at least one block")
    return np.concatenate(parts)


def in_memory(X: RowsLike) -> RowsLike:
    """Rows that come in blocks as one array; others as they are."""
    return join_blocks(X, np.asarray) if come_in_blocks(X) else X


def over_blocks(estimator: Method, method: str, X: RowsLike, **labels: LabelsLike) -> RowsLike:
    """Call a method of a fitted estimator on every block of X; `labels` are one for each row, or one for all rows.

    A matrix gives a matrix that is computed when it is read, an iterator an iterator, dask's collections a dask array.
    """
    if is_dask(X):
        from mute.rows.dask_arrays import map_dask

        return map_dask(estimator, method, X, labels)
    per_row = {name: given for name, given in labels.items() if one_per_row(given, estimator)}
    plain = estimator.nameless()

    def work(block: NDArray, start: int) -> NDArray[np.floating]:
        part = slice(start, start + len(block))
        of_block = {name: given[part] if name in per_row else given for name, given in labels.items()}
        try:
            return getattr(plain, method)(block, **of_block)
        except MuteError as error:
            raise MuteError(f"rows {part.start} to {part.stop - 1}: {error}") from error

    if hasattr(X, "row_blocks"):
        for name, given in per_row.items():
            check_length(given, X.shape[0], name)
        return MappedMatrix(X, work)
    return _mapped(X, work, per_row)


def _mapped(
    blocks: Iterator[RowsLike], work: Callable[[NDArray, int], NDArray], per_row: dict[str, LabelsLike]
) -> Iterator[NDArray[np.floating]]:
    start = 0
    for block in blocks:
        if isinstance(block, tuple):
            raise MuteError("X gives pairs with labels; give blocks of rows alone, and labels beside X")
        yield work(block, start)
        start += len(block)
    for name, given in per_row.items():
        check_length(given, start, name)
