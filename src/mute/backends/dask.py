"""Fitting and mapping rows that are spread over the workers of a cluster.

The pieces of a fit (see `mute.pieces`) lie on the workers in bundles, a few for each thread. A round sends the last
layer to all bundles, changes and measures them there, adds up what was measured from worker to worker, and brings home
one total. What travels depends on the columns, classes and bundles, not on the rows. A bundle that is lost with its
worker is made again by dask from what it was made of.
"""

from __future__ import annotations

import copy
import logging
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mute.blocks import is_dask, per_row
from mute.errors import MuteError, missing_extra
from mute.holders import Holder
from mute.interrupts import Stop
from mute.pieces import PIECE_ROWS, Change, Raw, Totals
from mute.tables.readers import Matrix, listed
from mute.threads import resolve_threads, single_threaded_blas
from mute.validation import LabelEncoder, check_length, concept_of, label_array

__all__ = ["DaskHolder", "DaskMatrix", "active_client", "cluster", "hold_dask", "map_dask", "to_dask"]

_T = TypeVar("_T", bound=Totals)

# Bundles for each thread: while one is changed, the old and the new are in memory.
_BUNDLES_PER_THREAD = 2
# Totals that one task adds up.
_ADDED = 16
# Of a file that is read in parts.
_PART_BYTES = 1 << 26
# Seconds to wait for a scheduler, and between two looks whether to go on waiting for an answer.
_PATIENCE, _LOOK_UP = 10, 0.2


def _dask() -> Any:
    try:
        import dask
        import dask.array
    except ImportError:
        raise missing_extra("dask", "dask", "rows in dask's collections") from None
    return dask


class DaskHolder(Holder):
    """Keeps pieces on the workers of a cluster.

    Parameters
    ----------
    client : distributed.Client
    bundles : list of Future
        Each a bundle of raw pieces.
    shape : (rows, columns)
    dtype : numpy.dtype
    """

    def __init__(self, client: Any, bundles: list[Any], shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
        super().__init__()
        self._client, self._bundles = client, bundles
        self.n_rows, self.n_features = shape
        self.dtype = dtype

    def _run(self, changes: Sequence[Change], totals: _T) -> _T:
        # Futures tell the scheduler when they are deleted, and there Python would drop a Ctrl-C: it is held back until
        # the round waits for its answer.
        with Stop() as stop:
            total = self._round(changes, totals, stop)
            if stop.asked:
                stop.leave()
        return total

    def _round(self, changes: Sequence[Change], totals: _T, stop: Stop) -> _T:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sending large graph", category=UserWarning)
            # A task of its own: it reaches a worker once, and can be made again if that worker is lost.
            step = self._client.submit(_given, (list(changes), totals), pure=False)
            if changes:
                self._bundles = self._map(_change, self._bundles, step)
                sums = self._map(_measured, self._bundles)
            else:
                sums = self._map(_measure, self._bundles, step)
            while len(sums) > 1:
                sums = self._map(_merge, [sums[i : i + _ADDED] for i in range(0, len(sums), _ADDED)])
        while True:
            try:
                return sums[0].result(timeout=_LOOK_UP)
            except TimeoutError:
                if sums[0].done():
                    raise
                if stop.asked:
                    stop.leave()

    def _map(self, work: Any, each: list[Any], step: Any = None) -> list[Any]:
        return self._client.map(work, each, pure=False, **({} if step is None else {"step": step}))

    def close(self) -> None:
        self._bundles = []


def _given(value: Any) -> Any:
    return value


class _Bundle(list[Any]):
    """Pieces that stay together, and what was measured when they were made.

    Dask asks for the size to decide what to move, and should rather move nothing.
    """

    totals: Any = None

    def __sizeof__(self) -> int:
        return super().__sizeof__() + sum(p.x.nbytes if isinstance(p, Raw) else p.block.nbytes for p in self)


def _change(bundle: _Bundle, step: tuple[list[Change], Totals]) -> _Bundle:
    """Change and measure pieces.

    What a task is given belongs to dask, which may hand it to another: the new pieces have memory of their own. It is
    taken all at once, since workers give back to the system what they free, and would have to ask for it again.
    """
    changes, totals = step
    sizes = [p.x.size if isinstance(p, Raw) else p.block.size for p in bundle]
    first = bundle[0]
    memory = np.empty(sum(sizes), (first.x if isinstance(first, Raw) else first.block).dtype)
    out, place = _Bundle(), 0
    out.totals = totals.fresh()
    with single_threaded_blas():
        for given, size in zip(bundle, sizes, strict=True):
            shape = given.x.shape[::-1] if isinstance(given, Raw) else given.block.shape
            piece = changes[0](given, memory[place : place + size].reshape(shape))
            for change in changes[1:]:
                piece = change(piece)
            if len(changes) > 1:
                room = memory[place : place + piece.block.size].reshape(piece.block.shape)
                room[:] = piece.block
                piece = replace(piece, block=room)
            place += size
            out.totals.add(piece)
            out.append(piece)
    return out


def _measured(bundle: _Bundle) -> Any:
    return bundle.totals


def _measure(bundle: _Bundle, step: tuple[list[Change], _T]) -> _T:
    own = step[1].fresh()
    with single_threaded_blas():
        for piece in bundle:
            own.add(piece)
    return own


def _merge(sums: list[_T]) -> _T:
    total = copy.deepcopy(sums[0])  # what a task is given belongs to dask
    for other in sums[1:]:
        total.merge(other)
    return total


def active_client() -> Any:
    """The client whose cluster dask works on now, or None."""
    distributed = sys.modules.get("distributed")  # who has a client has imported it
    if distributed is None:
        return None
    try:
        return distributed.default_client()
    except ValueError:
        return None


def hold_dask(client: Any, X: Any, y: Any, concept: Any) -> tuple[DaskHolder, LabelEncoder]:
    """Keep the rows of a dask array or data frame on the workers as pieces, with their labels encoded."""
    X = _array(X)
    sizes = _bundle_sizes(X.shape[0], max(sum(client.nthreads().values()), 1))
    starts = np.append(0, np.cumsum(sizes))[:-1].tolist()
    blocks = client.compute(list(X.rechunk((tuple(sizes), X.shape[1])).to_delayed().ravel()))
    given, name = (y, "y") if concept is None else (concept, "concept")
    if is_dask(given):
        labels = client.compute(_labels(given, X, sizes, name))
        parts = [client.submit(_distinct, part, start, name) for part, start in zip(labels, starts, strict=True)]
        distinct = list(set().union(*client.gather(parts)))
        every = np.empty(len(distinct), object)
        every[:] = distinct
        encoder, _ = LabelEncoder.fit(every)
        codes = [client.submit(_encode, part, encoder, name) for part in labels]
    else:
        encoder, z = LabelEncoder.fit(concept_of(X.shape[0], y, concept))
        small = z.astype(np.min_scalar_type(len(encoder)))
        codes = [small[start : start + n] for start, n in zip(starts, sizes, strict=True)]
    bundles = [client.submit(_cut, *parts, pure=False) for parts in zip(blocks, codes, starts, strict=True)]
    return DaskHolder(client, bundles, X.shape, X.dtype), encoder


def _array(X: Any) -> Any:
    """A dask array of single or double precision, with one chunk of columns and chunks of known sizes."""
    da = _dask().array
    if hasattr(X, "to_dask_array"):
        X = X.to_dask_array(lengths=True)
    if X.ndim != 2:
        raise MuteError(f"X must be a matrix, not a dask array of shape {X.shape}")
    if X.dtype.kind not in "fiub":
        raise MuteError(f"X must hold numbers, not {X.dtype}")
    dtype = np.dtype(np.float32 if X.dtype in (np.float16, np.float32) else np.float64)
    if np.isnan(X.shape[1]):
        raise MuteError("X is a dask array of unknown width; give one whose columns are known")
    X = X.rechunk({1: -1})
    if any(np.isnan(n) for n in X.chunks[0]):
        X = X.compute_chunk_sizes()
    if X.shape[0] == 0 or X.shape[1] == 0:
        raise MuteError(f"X has shape {X.shape}; at least one row and one column are needed")
    return da.map_blocks(_checked, X, width=X.shape[1], kind=dtype.name, dtype=dtype, meta=np.empty((0, 0), dtype))


def _checked(block: NDArray, width: int, kind: str, block_info: Any = None) -> NDArray:
    if not block_info:
        return block.astype(kind)
    (start, stop), _ = block_info[0]["array-location"]
    if block.shape != (stop - start, width):
        announced = stop - start, width
        raise MuteError(f"the block of rows {start} to {stop - 1} has shape {block.shape}; announced was {announced}")
    return block.astype(kind, copy=False)


def _bundle_sizes(n: int, n_threads: int) -> list[int]:
    """Rows of each bundle: whole pieces, all about the same."""
    pieces = -(-n // PIECE_ROWS)
    bundles = min(_BUNDLES_PER_THREAD * n_threads, pieces)
    ends = [min(pieces * i // bundles * PIECE_ROWS, n) for i in range(bundles + 1)]
    return np.diff(ends).tolist()


def _labels(given: Any, X: Any, sizes: list[int], name: str) -> list[Any]:
    """The labels of each bundle."""
    given = _label_chunks(given, True)
    if given.ndim == 2 and given.shape[1] == 1:
        given = given[:, 0]
    if given.ndim != 1:
        raise MuteError(f"{name} must be one-dimensional, not of shape {given.shape}")
    if any(np.isnan(n) for n in given.chunks[0]):
        given = given.compute_chunk_sizes()
    check_length(given, X.shape[0], name)
    given = given.map_blocks(_as_announced, of=name, dtype=given.dtype, meta=np.empty(0, given.dtype))
    return list(given.rechunk((tuple(sizes),)).to_delayed().ravel())


def _label_chunks(given: Any, lengths: bool) -> Any:
    """Labels as a dask array, of chunks of known lengths if asked for."""
    if not hasattr(given, "to_dask_array"):
        return given
    with warnings.catch_warnings():
        # Text becomes Python's own, as labels are.
        warnings.filterwarnings("ignore", message="Dask currently has limited support", category=UserWarning)
        return given.to_dask_array(lengths=lengths or None)


def _as_announced(labels: NDArray, of: str, block_info: Any = None) -> NDArray:
    ((start, stop),) = block_info[0]["array-location"]
    if len(labels) != stop - start:
        raise MuteError(f"the block of {of} for rows {start} to {stop - 1} has {len(labels)} labels")
    return labels


def _distinct(labels: NDArray, start: int, name: str) -> set[Any]:
    try:
        return set(label_array(labels, name).tolist())
    except MuteError as error:
        raise MuteError(f"rows {start} to {start + len(labels) - 1}: {error}") from error
    except TypeError as error:
        raise MuteError(f"labels must be hashable (text, numbers, tuples): {error}") from error


def _encode(labels: NDArray, encoder: LabelEncoder, name: str) -> NDArray[np.integer]:
    return encoder.encode(label_array(labels, name), name).astype(np.min_scalar_type(len(encoder)))


def _cut(block: NDArray, z: NDArray[np.integer], start: int) -> _Bundle:
    parts = [slice(s, s + PIECE_ROWS) for s in range(0, len(block), PIECE_ROWS)]
    return _Bundle(Raw(start + part.start, np.ascontiguousarray(block[part]), z[part]) for part in parts)


def map_dask(estimator: Any, method: str, X: Any, labels: dict[str, Any]) -> Any:
    """A method of a fitted estimator on every block: a lazy dask array."""
    dask = _dask()
    da = dask.array
    if hasattr(X, "to_dask_array"):
        names = getattr(estimator, "feature_names_in_", X.columns)
        if method != "inverse_transform" and list(names) != list(X.columns):
            raise MuteError(
                f"the columns of X are {listed(list(map(str, X.columns)))}; those of the fit were "
                f"{listed(list(map(str, names)))}: give the same, in the same order"
            )
        X = X.to_dask_array()
    if X.ndim != 2:
        raise MuteError(f"X must be a matrix, not a dask array of shape {X.shape}")
    if not np.isnan(X.shape[1]) and X.shape[1] != estimator.n_features_in_:
        raise MuteError(
            f"X has {X.shape[1]} features, but {type(estimator).__name__} is expecting {estimator.n_features_in_} "
            "features as input"
        )
    X = X.rechunk({1: -1})
    dtype = np.dtype(np.float32 if X.dtype in (np.float16, np.float32) else np.float64)
    beside, same = {}, {}
    for name, given in labels.items():
        if hasattr(given, "__dask_graph__"):
            known = not any(map(np.isnan, X.chunks[0]))
            given = _label_chunks(given, known)
            if known and not any(map(np.isnan, given.chunks[0])):
                check_length(given, X.shape[0], name)
                given = given.rechunk((X.chunks[0],))
            beside[name] = given
        elif per_row(estimator, given):
            if any(map(np.isnan, X.chunks[0])):
                X = X.compute_chunk_sizes()
            array = label_array(given, name)
            check_length(array, X.shape[0], name)
            beside[name] = da.from_array(array, chunks=(X.chunks[0],))
        else:
            same[name] = given
    bare = copy.copy(estimator)
    bare.set_callbacks()  # they watch a fit, and may hold what cannot travel
    bare.__dict__.pop("feature_names_in_", None)  # blocks have no names
    model = dask.delayed(bare, pure=False, traverse=False)
    columns = [array[:, None] for array in beside.values()]
    return da.map_blocks(
        _apply, X, *columns, model=model, method=method, names=tuple(beside), same=same, dtype=dtype,
        chunks=X.chunks, meta=np.empty((0, 0), dtype),
    )  # fmt: skip


def _apply(
    block: NDArray, *columns: NDArray, model: Any, method: str, names: tuple, same: dict, block_info: Any = None
) -> Any:
    told = {name: column[:, 0] for name, column in zip(names, columns, strict=True)}
    try:
        return getattr(model, method)(block, **told, **same)
    except MuteError as error:
        start, stop = block_info[0]["array-location"][0] if block_info else (0, len(block))
        raise MuteError(f"rows {start} to {stop - 1}: {error}") from error


class DaskMatrix(Matrix):
    """A dask array as a matrix that is read block by block, one chunk at a time in this process."""

    def __init__(self, X: Any, name: str) -> None:
        self._array = _array(X)
        super().__init__(Path(name), self._array.shape, self._array.dtype)

    def _blocks(self, size: int) -> Iterator[NDArray[Any]]:
        for i in range(self._array.numblocks[0]):
            yield np.ascontiguousarray(self._array.blocks[i].compute())


def to_dask(matrix: Matrix) -> Any:
    """A matrix in files as a dask array: many files one by one, .npy and .safetensors in parts, which the workers read.

    They must see the files under the same paths.
    """
    dask = _dask()
    size = max(_PART_BYTES // (matrix.shape[1] * matrix.dtype.itemsize) // PIECE_ROWS, 1) * PIECE_ROWS
    blocks = [
        dask.array.from_delayed(dask.delayed(read, pure=False, traverse=False)(), (rows, matrix.shape[1]), matrix.dtype)
        for rows, read in matrix.parts(size)
    ]
    return dask.array.concatenate(blocks)


@contextmanager
def cluster(address: str) -> Iterator[Any]:
    """A client of the scheduler at `address`, or with "local" of worker processes started here for the time."""
    try:
        from distributed import Client, LocalCluster, WorkerPlugin
    except ImportError:
        raise missing_extra("distributed", "dask", "a cluster") from None
    if address == "local":
        settings: dict[str, Any] = {"n_workers": resolve_threads(None), "threads_per_worker": 1}
        # No dashboard; what the scheduler serves all the same takes any free port, not one that others may have.
        settings |= {"dashboard_address": None, "scheduler_kwargs": {"dashboard_address": ":0"}}
        settings["silence_logs"] = logging.ERROR  # of tasks that are cancelled by an interrupt
        with (
            LocalCluster(**settings) as own,
            Client(own) as client,
        ):
            client.register_plugin(_deaf(WorkerPlugin))
            yield client
        return
    try:
        client = Client(address, timeout=_PATIENCE)
    except (OSError, ValueError) as error:
        raise MuteError(f"no dask scheduler answers at {address!r} ({error}); give host:port, or local") from error
    with client:
        if not client.nthreads():
            raise MuteError(f"the dask scheduler at {address} has no workers; start some first")
        yield client


def _deaf(base: Any) -> Any:
    """Lets workers not hear Ctrl-C, which a terminal sends to all: who started them ends them."""

    class Deaf(base):
        def setup(self, worker: Any) -> None:
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    return Deaf()
