"""Fitting on rows that are spread over the workers of a cluster.

The chunks of a fit (`mute.rows.chunks`) lie on the workers in bundles, a few for each thread. A round sends the last
layer to all bundles, maps and reduces them there, merges the reductions from worker to worker, and brings home one
result. What travels depends on the columns, classes and bundles, not on the rows. Dask makes a bundle that is lost with
its worker again from what it was made of.
"""

from __future__ import annotations

import copy
import logging
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError, missing_extra
from mute.rows.chunks import CHUNK_ROWS, Map, RawChunk, Reduction, fill
from mute.rows.dask_arrays import checked_array, import_dask, label_chunks
from mute.rows.detect import is_dask
from mute.rows.interrupts import Stop
from mute.rows.matrix import Matrix
from mute.rows.stores import ChunkStore
from mute.rows.threads import resolve_threads, single_threaded_blas
from mute.rows.validation import LabelEncoder, check_length, concept_of, label_array

__all__ = ["DaskStore", "active_client", "cluster", "open_dask_store", "to_dask"]

_T = TypeVar("_T", bound=Reduction)

# Bundles for each thread: while one is changed, the old and the new are in memory.
_BUNDLES_PER_THREAD = 2
# Totals that one task adds up.
_ADDED = 16
# Of a file that is read in parts.
_PART_BYTES = 1 << 26
# Seconds to wait for a scheduler, and between two looks for an answer.
_PATIENCE, _LOOK_UP = 10, 0.002


class DaskStore(ChunkStore):
    """Keeps chunks on the workers of a cluster.

    Parameters
    ----------
    client : distributed.Client
    bundles : list of Future
        Each a bundle of raw chunks.
    shape : (rows, columns)
    dtype : numpy.dtype
    """

    def __init__(self, client: Any, bundles: list[Any], shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
        super().__init__()
        self._client, self._bundles = client, bundles
        self.n_rows, self.n_features = shape
        self.dtype = dtype

    def _run(self, maps: Sequence[Map], reduction: _T) -> _T:
        # Futures tell the scheduler when they are deleted, and there Python would drop a Ctrl-C: it is held back until
        # the round waits for its answer.
        with Stop() as stop:
            total = self._round(maps, reduction, stop)
            if stop.asked:
                stop.leave()
        return total

    def _round(self, maps: Sequence[Map], reduction: _T, stop: Stop) -> _T:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sending large graph", category=UserWarning)
            # A task of its own: it reaches a worker once, and can be made again if that worker is lost.
            step = self._client.submit(_given, (list(maps), reduction), pure=False)
            if maps:
                self._bundles = self._map(_mapped, self._bundles, step)
                sums = self._map(_reduction_of, self._bundles)
            else:
                sums = self._map(_reduced, self._bundles, step)
            while len(sums) > 1:
                sums = self._map(_merge, [sums[i : i + _ADDED] for i in range(0, len(sums), _ADDED)])
        # Looked at again and again: a wait with a limit ends in an exception, which holds on to the future.
        while not sums[0].done():
            time.sleep(_LOOK_UP)
            if stop.asked:
                stop.leave()
        return sums[0].result()

    def _map(self, work: Any, each: list[Any], step: Any = None) -> list[Any]:
        return self._client.map(work, each, pure=False, **({} if step is None else {"step": step}))

    def close(self) -> None:
        self._bundles = []


def _given(value: Any) -> Any:
    return value


class _Bundle(list[Any]):
    """Chunks that stay together, and what was measured when they were made.

    Dask asks for the size to decide what to move, and should rather move nothing.
    """

    reduction: Any = None

    def __sizeof__(self) -> int:
        return super().__sizeof__() + sum(chunk.array.nbytes for chunk in self)


def _mapped(bundle: _Bundle, step: tuple[list[Map], Reduction]) -> _Bundle:
    """Change and measure chunks.

    What a task is given belongs to dask, which may hand it to another: the new chunks have memory of their own. It is
    taken all at once, since workers give back to the system what they free, and would have to ask for it again.
    """
    maps, reduction = step
    memory = np.empty(sum(chunk.array.size for chunk in bundle), bundle[0].array.dtype)
    out, place = _Bundle(), 0
    out.reduction = reduction.empty_copy()
    with single_threaded_blas():
        for given in bundle:
            room = memory[place : place + given.array.size]
            place += room.size
            chunk = maps[0](given, room)
            for step_map in maps[1:]:
                chunk = step_map(chunk)
            if len(maps) > 1:
                chunk = replace(chunk, block=fill(room, chunk.block))
            out.reduction.add(chunk)
            out.append(chunk)
    return out


def _reduction_of(bundle: _Bundle) -> Any:
    return bundle.reduction


def _reduced(bundle: _Bundle, step: tuple[list[Map], _T]) -> _T:
    own = step[1].empty_copy()
    with single_threaded_blas():
        for chunk in bundle:
            own.add(chunk)
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


def open_dask_store(client: Any, X: Any, y: Any, concept: Any) -> tuple[DaskStore, LabelEncoder]:
    """Keep the rows of a dask array or data frame on the workers as chunks, with their labels encoded."""
    X = checked_array(X)
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
    return DaskStore(client, bundles, X.shape, X.dtype), encoder


def _bundle_sizes(n: int, n_threads: int) -> list[int]:
    """Rows of each bundle: whole chunks, all about the same."""
    chunks = -(-n // CHUNK_ROWS)
    bundles = min(_BUNDLES_PER_THREAD * n_threads, chunks)
    ends = [min(chunks * i // bundles * CHUNK_ROWS, n) for i in range(bundles + 1)]
    return np.diff(ends).tolist()


def _labels(given: Any, X: Any, sizes: list[int], name: str) -> list[Any]:
    """The labels of each bundle."""
    given = label_chunks(given, True)
    if given.ndim == 2 and given.shape[1] == 1:
        given = given[:, 0]
    if given.ndim != 1:
        raise MuteError(f"{name} must be one-dimensional, not of shape {given.shape}")
    if any(np.isnan(n) for n in given.chunks[0]):
        given = given.compute_chunk_sizes()
    check_length(given, X.shape[0], name)
    given = given.map_blocks(_as_announced, of=name, dtype=given.dtype, meta=np.empty(0, given.dtype))
    return list(given.rechunk((tuple(sizes),)).to_delayed().ravel())


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
    parts = [slice(s, s + CHUNK_ROWS) for s in range(0, len(block), CHUNK_ROWS)]
    return _Bundle(RawChunk(start + part.start, np.ascontiguousarray(block[part]), z[part]) for part in parts)


def to_dask(matrix: Matrix) -> Any:
    """A matrix in files as a dask array: many files one by one, .npy and .safetensors in parts, which the workers read.

    They must see the files under the same paths.
    """
    dask = import_dask()
    size = max(_PART_BYTES // (matrix.shape[1] * matrix.dtype.itemsize) // CHUNK_ROWS, 1) * CHUNK_ROWS
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
