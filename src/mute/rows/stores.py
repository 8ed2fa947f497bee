"""Stores keep the chunks of a fit (`mute.rows.chunks`): in memory, or in a temporary file."""

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
from typing import BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.rows.chunks import CHUNK_ROWS, Chunk, Map, RawChunk, Reduction
from mute.rows.memory import file_map, release_pages, suggest_scratch
from mute.rows.threads import single_threaded_blas
from mute.typing import Setting

__all__ = ["ChunkStore", "FileStore", "MemoryStore", "SpooledRows", "open_store", "scratch_file"]

_T = TypeVar("_T", bound=Reduction)
_log = logging.getLogger("mute")

# Chunks of a mapped file that are read before the pages are released.
_CHUNKS_AT_ONCE = 64
_ADVICE = "make room or give another folder (scratch= in Python, --scratch on the command line)"


class ChunkStore(ABC):
    """Keeps the chunks of a fit; maps wait until the next reduction, so that each pass does as much as possible."""

    def __init__(self, shape: tuple[int, int], dtype: np.dtype) -> None:
        self.shape, self.dtype = shape, dtype
        self.n_rows, self.n_features = shape
        self._waiting: list[Map] = []

    def map(self, step: Map) -> None:
        """Map every chunk to another when the next reduction runs."""
        self._waiting.append(step)

    def reduce(self, reduction: _T) -> _T:
        """Reduce all chunks, after the maps that wait."""
        maps, self._waiting = self._waiting, []
        return self._run(maps, reduction)

    @abstractmethod
    def close(self) -> None:
        """Release the memory and the files of the chunks."""

    @abstractmethod
    def _run(self, maps: Sequence[Map], reduction: _T) -> _T: ...


class MemoryStore(ChunkStore):
    """Keeps chunks in memory; threads work on several chunks at a time.

    `x`, of shape (n, D), is read chunk by chunk and never changed: in memory, mapped from a file, or `SpooledRows`. `z`
    has the encoded true class of each row.
    """

    def __init__(self, x: "NDArray | SpooledRows", z: NDArray[np.integer], n_threads: int) -> None:
        super().__init__(x.shape, x.dtype)
        self._x, self._z, self._threads = x, z, n_threads
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
        # One thread multiplies each chunk, so that the number of threads does not change the result.
        with single_threaded_blas():
            if threads == 1:
                work(reduction)
                return reduction
            shares = [reduction.empty_copy() for _ in range(threads)]
            with ThreadPoolExecutor(threads) as pool:
                try:
                    list(pool.map(work, shares))
                finally:
                    numbers = iter(())  # after an error, the other threads end after their present chunk
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
    """Keeps chunks in a temporary file without a name, which disappears with the process, however the process ends.

    If `x` is spooled to the same `file` (of `scratch_file`), each chunk replaces the rows that it was made of.
    """

    def __init__(self, x: "NDArray | SpooledRows", z: NDArray[np.integer], n_threads: int, file: BinaryIO) -> None:
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
    """Rows that came in blocks of shape (m, D), kept in a file; slices can be read like those of an array."""

    def __init__(self, blocks: Iterable[NDArray], n_features: int, dtype: np.dtype, file: BinaryIO) -> None:
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
    """A temporary file without a name, in a folder (None: the system's) with room for `size` bytes (None: unknown)."""
    if not isinstance(folder, str | os.PathLike | None):
        raise MuteError(f'scratch must be "auto", a folder or None, not {folder!r}')
    place = Path(tempfile.gettempdir() if folder is None else folder)
    if not place.is_dir():
        raise MuteError(f"the folder for the working copy, {place}, does not exist; create it first or give another")
    free = shutil.disk_usage(place).free
    if size is not None and size > free:
        raise MuteError(
            f"the working copy takes {size / 1e9:.1f} GB of disk, but {place} has only {free / 1e9:.1f} GB free; "
            + _ADVICE
        )
    needed = f"{size / 1e9:.2f} GB" if size is not None else "as many bytes as the rows have"
    _log.info("a working copy of %s goes to a temporary file in %s (%.1f GB free)", needed, place, free / 1e9)
    try:
        return tempfile.TemporaryFile(dir=place, prefix="mute-", buffering=0)
    except OSError as error:
        raise MuteError(f"{place} cannot be written ({error.strerror or error}); give another folder") from error


def open_store(X: NDArray, z: NDArray[np.integer], scratch: Setting, n_threads: int) -> MemoryStore:
    """The store that the setting `scratch` of an estimator asks for."""
    auto = isinstance(scratch, str) and scratch == "auto"
    if scratch is None or (auto and (file_map(X) is None or not suggest_scratch(X.nbytes))):
        return MemoryStore(X, z, n_threads)
    return FileStore(X, z, n_threads, scratch_file(None if auto else scratch, X.nbytes))


def _read(file: BinaryIO, out: NDArray, place: int) -> None:
    left = memoryview(out.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
    while left:
        n = os.preadv(file.fileno(), [left], place)
        if n == 0:
            raise MuteError("the temporary file of the working copy is shorter than what was written; fit again")
        left, place = left[n:], place + n


def _write(file: BinaryIO, array: NDArray, place: int) -> None:
    left = memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
    try:
        while left:
            n = os.pwrite(file.fileno(), left, place)
            left, place = left[n:], place + n
    except OSError as error:
        raise MuteError(f"the working copy cannot be written ({error.strerror or error}); {_ADVICE}") from error
