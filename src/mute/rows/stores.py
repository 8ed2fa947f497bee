"""Where the chunks of a fit are kept: in memory, or in a temporary file.

A store can do two things with its chunks, *map* and *reduce* (see `mute.rows.chunks`). Maps wait until the next
reduction, so that each pass over the rows does all that it can.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.rows.chunks import CHUNK_ROWS, Chunk, Map, RawChunk, Reduction
from mute.rows.memory import is_mapped, release_pages, suggest_scratch
from mute.rows.threads import single_threaded_blas

__all__ = [
    "ChunkStore",
    "FileStore",
    "MemoryStore",
    "SpooledRows",
    "open_store",
    "scratch_file",
]

_T = TypeVar("_T", bound=Reduction)
_log = logging.getLogger("mute")

# Chunks of a mapped file that are read before its pages are let go.
_CHUNKS_AT_ONCE = 64


class ChunkStore(ABC):
    """Keeps the chunks of a fit.

    Attributes
    ----------
    n_rows, n_features : int
    dtype : numpy.dtype
    """

    n_rows: int
    n_features: int
    dtype: np.dtype[Any]

    def __init__(self) -> None:
        self._waiting: list[Map] = []

    @property
    def shape(self) -> tuple[int, int]:
        return self.n_rows, self.n_features

    def map(self, step: Map) -> None:
        """Map every chunk to another, at the next reduction."""
        self._waiting.append(step)

    def reduce(self, reduction: _T) -> _T:
        """Reduce all chunks, after the maps that wait for it."""
        maps, self._waiting = self._waiting, []
        return self._run(maps, reduction)

    @abstractmethod
    def close(self) -> None:
        """Let go of what the chunks take."""

    @abstractmethod
    def _run(self, maps: Sequence[Map], reduction: _T) -> _T: ...


class MemoryStore(ChunkStore):
    """Keeps chunks in memory; threads work on several at a time.

    Parameters
    ----------
    x : array of shape (n, D), float32 or float64
        Read chunk by chunk, never changed: in memory, mapped from a file, or `SpooledRows`.
    z : integer array of shape (n,)
        True class of each row, encoded.
    n_threads : int
    """

    def __init__(self, x: Any, z: NDArray[np.integer], n_threads: int) -> None:
        super().__init__()
        self._x, self._z, self._threads = x, z, n_threads
        self.n_rows, self.n_features = x.shape
        self.dtype = x.dtype
        self._chunks: dict[int, Chunk] = {}

    def _run(self, maps: Sequence[Map], reduction: _T) -> _T:
        chunks = -(-self.n_rows // CHUNK_ROWS)
        numbers, lock = iter(range(chunks)), threading.Lock()

        def work(own: _T) -> None:
            while True:
                with lock:
                    number = next(numbers, None)
                if number is None:
                    break
                chunk = self._get(number)
                for step in maps:
                    chunk = step(chunk)
                if maps and isinstance(chunk, Chunk):
                    self._put(number, chunk)
                own.add(chunk)

        threads = min(self._threads, chunks)
        # Each chunk is multiplied by one thread, so that the number of threads does not change the answer.
        with single_threaded_blas():
            if threads == 1:
                work(reduction)
                return reduction
            shares = [reduction.empty_copy() for _ in range(threads)]
            with ThreadPoolExecutor(threads) as pool:
                futures = [pool.submit(work, own) for own in shares]
                try:
                    for future in futures:
                        future.result()
                except BaseException:
                    numbers = iter(())  # the others end with the chunk they have
                    raise
        for own in shares:
            reduction.merge(own)
        return reduction

    def _get(self, number: int) -> RawChunk | Chunk:
        if number in self._chunks:
            return self._chunks[number]
        start = number * CHUNK_ROWS
        if number % _CHUNKS_AT_ONCE == 0:
            release_pages(self._x)
        return RawChunk(start, self._x[start : start + CHUNK_ROWS], self._z[start : start + CHUNK_ROWS])

    def _put(self, number: int, chunk: Chunk) -> None:
        self._chunks[number] = chunk

    def close(self) -> None:
        self._chunks.clear()
        release_pages(self._x)


class FileStore(MemoryStore):
    """Keeps chunks in a temporary file, which has no name and is gone with the process, however that ends.

    Parameters
    ----------
    x, z, n_threads
        As for `MemoryStore`.
    file : binary file
        As `scratch_file` gives it. Where `x` is spooled to this very file, chunks replace the rows they are made of.
    """

    def __init__(self, x: Any, z: NDArray[np.integer], n_threads: int, file: BinaryIO) -> None:
        super().__init__(x, z, n_threads)
        self._file = file

    def _get(self, number: int) -> RawChunk | Chunk:
        chunk = super()._get(number)
        if isinstance(chunk, RawChunk):
            return chunk
        block = np.empty((self.n_features, len(chunk.rows)), self.dtype)
        _read(self._file, block, self._place(number))
        return replace(chunk, block=block)

    def _put(self, number: int, chunk: Chunk) -> None:
        _write(self._file, np.ascontiguousarray(chunk.block), self._place(number))
        super()._put(number, replace(chunk, block=chunk.block[:, :0].copy()))

    def _place(self, number: int) -> int:
        return number * CHUNK_ROWS * self.n_features * self.dtype.itemsize

    def close(self) -> None:
        super().close()
        self._file.close()


class SpooledRows:
    """Rows that came block by block, kept in a file; slices of them can be read like those of an array.

    Parameters
    ----------
    blocks : iterable of arrays of shape (m, D)
        All of one width; of the precision `dtype`.
    file : binary file
    """

    def __init__(self, blocks: Iterable[NDArray], n_features: int, dtype: np.dtype[Any], file: BinaryIO) -> None:
        self.file, self.dtype = file, dtype
        rows, width = 0, n_features * dtype.itemsize
        for block in blocks:
            _write(file, np.ascontiguousarray(block, dtype), rows * width)
            rows += len(block)
        self.shape = rows, n_features

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, part: slice) -> NDArray[np.floating]:
        start, stop, _ = part.indices(len(self))
        out = np.empty((max(stop - start, 0), self.shape[1]), self.dtype)
        _read(self.file, out, start * self.shape[1] * self.dtype.itemsize)
        return out


def scratch_file(folder: str | os.PathLike[str] | None, size: int | None) -> BinaryIO:
    """A temporary file without a name, in a folder that has room for so many bytes (None: nobody knows).

    With None for the folder, that of the system's temporary files.
    """
    if not isinstance(folder, str | os.PathLike | None):
        raise MuteError(f'scratch must be "auto", a folder or None, not {folder!r}')
    place = Path(tempfile.gettempdir() if folder is None else folder)
    if not place.is_dir():
        raise MuteError(f"the folder for the working copy, {place}, does not exist; create it first or choose another")
    free = shutil.disk_usage(place).free
    if size is not None and size > free:
        raise MuteError(
            f"the working copy takes {size / 1e9:.1f} GB of disk, but {place} has only {free / 1e9:.1f} GB free; "
            "make room or choose another folder (scratch= in Python, --scratch on the command line)"
        )
    needed = f"{size / 1e9:.2f} GB" if size is not None else "as many bytes as the rows have"
    _log.info("a working copy of %s goes to a temporary file in %s (%.1f GB free)", needed, place, free / 1e9)
    try:
        return tempfile.TemporaryFile(dir=place, prefix="mute-", buffering=0)
    except OSError as error:
        raise MuteError(f"cannot write to {place}: {error.strerror or error}; choose another folder") from error


def open_store(X: NDArray, z: NDArray[np.integer], scratch: Any, n_threads: int) -> MemoryStore:
    """Keep the chunks of an array as the setting `scratch` of an estimator asks for."""
    if scratch is None or (
        isinstance(scratch, str) and scratch == "auto" and not (is_mapped(X) and suggest_scratch(X.nbytes))
    ):
        return MemoryStore(X, z, n_threads)
    return FileStore(X, z, n_threads, scratch_file(None if scratch == "auto" else scratch, X.nbytes))


def _read(file: BinaryIO, out: NDArray, place: int) -> None:
    left = memoryview(out.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
    while left:
        n = os.preadv(file.fileno(), [left], place)
        if n == 0:
            raise MuteError("the temporary file of the working copy is shorter than what was written to it")
        left, place = left[n:], place + n


def _write(file: BinaryIO, array: NDArray, place: int) -> None:
    left = memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
    try:
        while left:
            n = os.pwrite(file.fileno(), left, place)
            left, place = left[n:], place + n
    except OSError as error:
        raise MuteError(
            f"cannot write the working copy: {error.strerror or error}; make room there or choose another folder "
            "(scratch= in Python, --scratch on the command line)"
        ) from error
