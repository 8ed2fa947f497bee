"""Where the pieces of a fit are kept: in memory, or in a temporary file.

A holder can do two things with its pieces, *change* and *measure* (see `mute.pieces`). Changes wait until something is
measured, so that each pass over the rows does all that it can.
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
from mute.files import is_mapped, release_pages
from mute.pieces import PIECE_ROWS, Change, Piece, Raw, Totals
from mute.threads import single_threaded_blas

__all__ = [
    "FileHolder",
    "Holder",
    "MemoryHolder",
    "SpooledRows",
    "available_memory",
    "hold",
    "scratch_file",
    "suggest_scratch",
]

_T = TypeVar("_T", bound=Totals)
_log = logging.getLogger("mute")

# Pieces of a mapped file that are read before its pages are let go.
_PIECES_AT_ONCE = 64
# A working copy that takes more than this share of the memory at hand goes to a file.
_MOST_OF_MEMORY = 0.5


class Holder(ABC):
    """Keeps the pieces of a fit.

    Attributes
    ----------
    n_rows, n_features : int
    dtype : numpy.dtype
    """

    n_rows: int
    n_features: int
    dtype: np.dtype[Any]

    def __init__(self) -> None:
        self._waiting: list[Change] = []

    @property
    def shape(self) -> tuple[int, int]:
        return self.n_rows, self.n_features

    def change(self, change: Change) -> None:
        """Make every piece into another, when something is next measured."""
        self._waiting.append(change)

    def measure(self, totals: _T) -> _T:
        """Add up all pieces, changed as asked for before."""
        changes, self._waiting = self._waiting, []
        return self._run(changes, totals)

    @abstractmethod
    def close(self) -> None:
        """Let go of what the pieces take."""

    @abstractmethod
    def _run(self, changes: Sequence[Change], totals: _T) -> _T: ...


class MemoryHolder(Holder):
    """Keeps pieces in memory; threads work on several at a time.

    Parameters
    ----------
    x : array of shape (n, D), float32 or float64
        Read piece by piece, never changed: in memory, mapped from a file, or `SpooledRows`.
    z : integer array of shape (n,)
        True class of each row, encoded.
    n_threads : int
    """

    def __init__(self, x: Any, z: NDArray[np.integer], n_threads: int) -> None:
        super().__init__()
        self._x, self._z, self._threads = x, z, n_threads
        self.n_rows, self.n_features = x.shape
        self.dtype = x.dtype
        self._pieces: dict[int, Piece] = {}

    def _run(self, changes: Sequence[Change], totals: _T) -> _T:
        pieces = -(-self.n_rows // PIECE_ROWS)
        numbers, lock = iter(range(pieces)), threading.Lock()

        def work(own: _T) -> None:
            while True:
                with lock:
                    number = next(numbers, None)
                if number is None:
                    break
                piece = self._get(number)
                for change in changes:
                    piece = change(piece)
                if changes and isinstance(piece, Piece):
                    self._put(number, piece)
                own.add(piece)

        threads = min(self._threads, pieces)
        # Each piece is multiplied by one thread, so that the number of threads does not change the answer.
        with single_threaded_blas():
            if threads == 1:
                work(totals)
                return totals
            shares = [totals.fresh() for _ in range(threads)]
            with ThreadPoolExecutor(threads) as pool:
                futures = [pool.submit(work, own) for own in shares]
                try:
                    for future in futures:
                        future.result()
                except BaseException:
                    numbers = iter(())  # the others end with the piece they have
                    raise
        for own in shares:
            totals.merge(own)
        return totals

    def _get(self, number: int) -> Raw | Piece:
        if number in self._pieces:
            return self._pieces[number]
        start = number * PIECE_ROWS
        if number % _PIECES_AT_ONCE == 0:
            release_pages(self._x)
        return Raw(start, self._x[start : start + PIECE_ROWS], self._z[start : start + PIECE_ROWS])

    def _put(self, number: int, piece: Piece) -> None:
        self._pieces[number] = piece

    def close(self) -> None:
        self._pieces.clear()
        release_pages(self._x)


class FileHolder(MemoryHolder):
    """Keeps pieces in a temporary file, which has no name and is gone with the process, however that ends.

    Parameters
    ----------
    x, z, n_threads
        As for `MemoryHolder`.
    file : binary file
        As `scratch_file` gives it. Where `x` is spooled to this very file, pieces replace the rows they are made of.
    """

    def __init__(self, x: Any, z: NDArray[np.integer], n_threads: int, file: BinaryIO) -> None:
        super().__init__(x, z, n_threads)
        self._file = file

    def _get(self, number: int) -> Raw | Piece:
        piece = super()._get(number)
        if isinstance(piece, Raw):
            return piece
        block = np.empty((self.n_features, len(piece.rows)), self.dtype)
        _read(self._file, block, self._place(number))
        return replace(piece, block=block)

    def _put(self, number: int, piece: Piece) -> None:
        _write(self._file, np.ascontiguousarray(piece.block), self._place(number))
        super()._put(number, replace(piece, block=piece.block[:, :0].copy()))

    def _place(self, number: int) -> int:
        return number * PIECE_ROWS * self.n_features * self.dtype.itemsize

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


def hold(X: NDArray, z: NDArray[np.integer], scratch: Any, n_threads: int) -> MemoryHolder:
    """Keep the pieces of an array as the setting `scratch` of an estimator asks for."""
    if scratch is None or (
        isinstance(scratch, str) and scratch == "auto" and not (is_mapped(X) and suggest_scratch(X.nbytes))
    ):
        return MemoryHolder(X, z, n_threads)
    return FileHolder(X, z, n_threads, scratch_file(None if scratch == "auto" else scratch, X.nbytes))


def suggest_scratch(size: int) -> bool:
    """Whether a working copy of so many bytes should go to a file."""
    memory = available_memory()
    return memory is not None and size > _MOST_OF_MEMORY * memory


def available_memory() -> int | None:
    """Bytes that this process can still take, by what the system and the limits set for it say; None if unknown."""
    found = [limit for limit in (_free_memory(), _free_in_group(), _free_address_space()) if limit is not None]
    return max(min(found), 0) if found else None


def _free_memory() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        try:
            return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
        except (AttributeError, ValueError, OSError):
            return None


def _free_in_group() -> int | None:
    """What the control group of the process (a container's, say) leaves; files in the cache can be dropped."""
    try:
        group = next(line for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
        folder = Path("/sys/fs/cgroup") / group[3:].strip().lstrip("/")
        limit = (folder / "memory.max").read_text().strip()
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return None if limit == "max" else int(limit) - int(stat["anon"])
    except (OSError, StopIteration, ValueError, KeyError):
        return None


def _free_address_space() -> int | None:
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (ImportError, OSError, ValueError):
        return None
    return None if limit == resource.RLIM_INFINITY else limit - pages * resource.getpagesize()


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
