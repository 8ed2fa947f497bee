"""A store on the workers of a dask cluster.

The chunks of a fit (`mute.rows.chunks`) lie on the workers in bundles, a few for each thread. A reduction sends the
waiting maps to all bundles, maps and reduces the chunks there, merges the reductions from worker to worker and fetches
one result. The bytes sent depend on the columns, classes and bundles, not on the rows. If a worker is lost, dask
computes its bundles again from their sources.
"""

import asyncio
import copy
import logging
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError, missing_extra
from mute.rows.chunks import CHUNK_ROWS, Chunk, Map, RawChunk, Reduction
from mute.rows.dask_arrays import as_announced, checked_array, label_chunks, unknown_sizes
from mute.rows.detect import is_dask
from mute.rows.interrupts import Stop
from mute.rows.maps import fill
from mute.rows.matrix import Matrix
from mute.rows.stores import ChunkStore
from mute.rows.threads import resolve_threads, single_threaded_blas
from mute.rows.validation import LabelEncoder, check_length, concept_of, label_array
from mute.typing import Foreign, Label, LabelsLike, RowsLike

__all__ = ["BUNDLES_PER_THREAD", "DaskStore", "active_client", "cluster", "open_dask_store", "to_dask"]

_T = TypeVar("_T", bound=Reduction)

# While a bundle is mapped, the old and the new one are in memory.
BUNDLES_PER_THREAD = 2
# Reductions that one task merges.
_MERGED = 16
# Size of the parts in which the workers read a file.
_PART_BYTES = 1 << 26
# Seconds between two questions whether a result is there.
_PAUSE = 0.002


class DaskStore(ChunkStore):
    """Keeps chunks on the workers of a cluster; `bundles` are futures of bundles of raw chunks."""

    def __init__(self, client: Foreign, bundles: list[Any], shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
        super().__init__(shape, dtype)
        self._client, self._bundles = client, bundles

    def _run(self, maps: Sequence[Map], reduction: _T) -> _T:
        # A future informs the scheduler when it is deleted, and there Python would lose a Ctrl-C. So the block below
        # deletes its futures before it ends, and acts on a Ctrl-C only at `leave`.
        with Stop() as stop:
            result = self._submit(maps, reduction)
            # Asked again and again: a wait with a limit ends in an exception, which keeps the future alive.
            while not (result.done() or stop.asked):
                time.sleep(_PAUSE)
            reduced: Foreign = None if stop.asked else result.result()
            del result
            if stop.asked:
                stop.leave()
        return reduced

    def _submit(self, maps: Sequence[Map], reduction: Reduction) -> Foreign:
        """The future of the reduction of all chunks."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sending large graph", category=UserWarning)
            # A task of its own: it reaches each worker once, and can be computed again if that worker is lost.
            step = self._client.submit(_given, (list(maps), reduction), pure=False)
            if maps:
                self._bundles = self._client.map(_mapped, self._bundles, step=step, pure=False)
                reductions = self._client.map(attrgetter("reduction"), self._bundles, pure=False)
            else:
                reductions = self._client.map(_reduced, self._bundles, step=step, pure=False)
            while len(reductions) > 1:
                groups = [reductions[i : i + _MERGED] for i in range(0, len(reductions), _MERGED)]
                reductions = self._client.map(_merge, groups, pure=False)
        return reductions[0]

    def close(self) -> None:
        self._bundles = []


def _given(value: object) -> object:
    return value


class _Bundle(list[RawChunk | Chunk]):
    """Chunks that stay together, and the reduction that was computed with them.

    Dask asks for the size to decide what to move; the true size keeps it from moving bundles.
    """

    reduction: Reduction

    def __sizeof__(self) -> int:
        return super().__sizeof__() + sum(_numbers(chunk).nbytes for chunk in self)


def _numbers(chunk: RawChunk | Chunk) -> NDArray[np.floating]:
    return chunk.x if isinstance(chunk, RawChunk) else chunk.block


def _mapped(bundle: _Bundle, step: tuple[list[Map], Reduction]) -> _Bundle:
    """Map and reduce the chunks of a bundle.

    Dask may pass the given bundle to another task, so the new chunks have memory of their own. The memory is allocated
    at once, since workers return freed memory to the system and would have to request it again for each chunk.
    """
    maps, reduction = step
    memory = np.empty(sum(_numbers(chunk).size for chunk in bundle), _numbers(bundle[0]).dtype)
    out, place = _Bundle(), 0
    out.reduction = reduction.empty_copy()
    with single_threaded_blas():
        for given in bundle:
            own = memory[place : place + _numbers(given).size]
            place += own.size
            chunk = maps[0](given, own)
            for later in maps[1:]:
                chunk = later(chunk)
            if len(maps) > 1:
                chunk = replace(chunk, block=fill(own, chunk.block))
            out.reduction.add(chunk)
            out.append(chunk)
    return out


def _reduced(bundle: _Bundle, step: tuple[list[Map], _T]) -> _T:
    own = step[1].empty_copy()
    with single_threaded_blas():
        for chunk in bundle:
            own.add(chunk)
    return own


def _merge(reductions: list[_T]) -> _T:
    merged = copy.deepcopy(reductions[0])  # dask may pass the given reductions to another task
    for other in reductions[1:]:
        merged.merge(other)
    return merged


def active_client() -> Foreign | None:
    """The client of the cluster that dask uses now, or None."""
    with suppress(KeyError, ValueError):  # if there is a client, distributed is imported by now
        return sys.modules["distributed"].default_client()
    return None


def open_dask_store(client: Foreign, X: RowsLike, y: LabelsLike, concept: LabelsLike) -> tuple[DaskStore, LabelEncoder]:
    """A store of the rows of a dask array or data frame, with their labels encoded."""
    X = checked_array(X)
    sizes = _bundle_sizes(X.shape[0], max(sum(client.nthreads().values()), 1))
    starts = np.append(0, np.cumsum(sizes))[:-1].tolist()
    blocks = client.compute(list(X.rechunk((tuple(sizes), X.shape[1])).to_delayed().ravel()))
    given, name = (y, "y") if concept is None else (concept, "concept")
    if is_dask(given):
        labels = client.compute(_labels(given, X, sizes, name))
        parts = [client.submit(_distinct, part, start, name) for part, start in zip(labels, starts, strict=True)]
        encoder, _ = LabelEncoder.fit(np.fromiter(set().union(*client.gather(parts)), object))
        codes = [client.submit(_encode, part, encoder, name) for part in labels]
    else:
        encoder, z = LabelEncoder.fit(concept_of(X.shape[0], y, concept))
        small = z.astype(np.min_scalar_type(len(encoder)))
        codes = [small[start : start + n] for start, n in zip(starts, sizes, strict=True)]
    bundles = [client.submit(_cut, *parts, pure=False) for parts in zip(blocks, codes, starts, strict=True)]
    return DaskStore(client, bundles, X.shape, X.dtype), encoder


def _bundle_sizes(n: int, n_threads: int) -> list[int]:
    """Rows of each bundle: whole chunks, about the same number in each bundle."""
    chunks = -(-n // CHUNK_ROWS)
    bundles = min(BUNDLES_PER_THREAD * n_threads, chunks)
    ends = [min(chunks * i // bundles * CHUNK_ROWS, n) for i in range(bundles + 1)]
    return np.diff(ends).tolist()


def _labels(given: Foreign, X: RowsLike, sizes: list[int], name: str) -> list[Foreign]:
    """The labels of each bundle."""
    given = label_chunks(given, True)
    if given.ndim == 2 and given.shape[1] == 1:
        given = given[:, 0]
    if given.ndim != 1:
        raise MuteError(f"{name} must be one-dimensional, not of shape {given.shape}")
    if unknown_sizes(given):
        given = given.compute_chunk_sizes()
    check_length(given, X.shape[0], name)
    given = as_announced(given, f"the labels {name}")
    return list(given.rechunk((tuple(sizes),)).to_delayed().ravel())


def _distinct(labels: NDArray, start: int, name: str) -> tuple[Label, ...]:
    try:
        return LabelEncoder.fit(label_array(labels, name))[0].classes
    except MuteError as error:
        raise MuteError(f"rows {start} to {start + len(labels) - 1}: {error}") from error


def _encode(labels: NDArray, encoder: LabelEncoder, name: str) -> NDArray[np.integer]:
    return encoder.encode(label_array(labels, name), name).astype(np.min_scalar_type(len(encoder)))


def _cut(block: NDArray, z: NDArray[np.integer], start: int) -> _Bundle:
    parts = [slice(s, s + CHUNK_ROWS) for s in range(0, len(block), CHUNK_ROWS)]
    return _Bundle(RawChunk(start + part.start, np.ascontiguousarray(block[part]), z[part]) for part in parts)


def to_dask(matrix: Matrix) -> Foreign:
    """A matrix in files as a dask array: many files one by one, .npy and .safetensors in parts.

    The workers read the files, so they must see them under the same paths.
    """
    from dask.array import concatenate, from_delayed
    from dask.delayed import delayed

    size = max(_PART_BYTES // (matrix.shape[1] * matrix.dtype.itemsize) // CHUNK_ROWS, 1) * CHUNK_ROWS
    blocks = [
        from_delayed(delayed(read, pure=False, traverse=False)(), (rows, matrix.shape[1]), matrix.dtype)
        for rows, read in matrix.parts(size)
    ]
    return concatenate(blocks)


@contextmanager
def cluster(address: str, timeout: float = 30) -> Iterator[Foreign]:
    """A client of the scheduler at `address`, or, with "local", of worker processes that end with the block.

    A scheduler that does not answer within `timeout` seconds is an error.
    """
    try:
        from distributed import Client, LocalCluster, WorkerPlugin
    except ImportError:
        raise missing_extra("distributed", "dask", "a cluster") from None
    if address == "local":
        # No dashboard, for which the scheduler opens any free port all the same; no log of tasks that are cancelled.
        no_page = {"dashboard_address": None, "scheduler_kwargs": {"dashboard_address": ":0"}}
        workers = LocalCluster(resolve_threads(None), threads_per_worker=1, silence_logs=logging.ERROR, **no_page)

        class IgnoreInterrupts(WorkerPlugin):
            """Workers ignore the Ctrl-C that a terminal sends to all processes; this process ends them."""

            def setup(self, worker: Foreign) -> None:
                signal.signal(signal.SIGINT, signal.SIG_IGN)

        with workers, Client(workers) as client:
            client.register_plugin(IgnoreInterrupts())
            yield client
        return
    try:
        asyncio.run(_greet(address, timeout))
        client = Client(address, timeout=timeout)
    except TimeoutError as error:
        raise MuteError(
            f"no dask scheduler answers at {address!r} within {timeout:g} s; check that one runs there, or wait longer "
            "(--timeout)"
        ) from error
    except (OSError, ValueError) as error:
        raise MuteError(f"no dask scheduler answers at {address!r} ({error}); give host:port, or local") from error
    with client:
        if not client.nthreads():
            raise MuteError(f"the dask scheduler at {address} has no workers; start some first")
        yield client


async def _greet(address: str, timeout: float) -> None:
    """Exchange greetings with a scheduler. A client waits for them for ever where an address accepts and is silent."""
    from distributed import Security
    from distributed.comm.core import connect
    from distributed.core import coerce_to_address

    place, security = coerce_to_address(address), Security().get_connection_args("client")
    async with asyncio.timeout(timeout):
        comm = await connect(place, timeout=timeout, **security)
    await comm.close()
