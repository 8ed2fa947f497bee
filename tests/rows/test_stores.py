"""Chunks in memory and in a file: the same answers, and nothing left behind."""

import errno
import gc
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mute import MUtE, MuteError
from mute.rows import memory as memory_of
from mute.rows.chunks import CHUNK_ROWS, Chunk, Reduction
from mute.rows.maps import ApplyMarginals, Enter, Rotate, Routes
from mute.rows.memory import available_memory
from mute.rows.reductions import FirstScan, Scatter, Spread
from mute.rows.stores import FileStore, MemoryStore, SpooledRows, open_store, scratch_file

N, D, K = 5 * CHUNK_ROWS + 321, 4, 2
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D)).astype(np.float32)
Z = RNG.integers(0, K, N)
ROTATION = np.linalg.qr(RNG.normal(size=(D, D)))[0].astype(np.float32)
COUNTS = np.bincount(Z)


class Whole(Reduction):
    """All chunks as they are."""

    def __init__(self) -> None:
        self.chunks: dict[int, Any] = {}

    def add(self, chunk: Chunk) -> None:
        self.chunks[int(chunk.rows.min())] = np.array(chunk.block), chunk.rows

    def merge(self, other: "Whole") -> None:
        self.chunks |= other.chunks


def some_layers(rows: MemoryStore) -> tuple[Any, ...]:
    """Carry chunks through a layer, measuring on the way, as a fit does."""
    scan = rows.reduce(FirstScan(D, K, digest=True))
    held = np.array([3, 4000, N - 1])
    rows.map(Enter(np.full(D, 0.5, np.float32), np.ones(D, np.float32), K, Routes(held_out=held)))
    scatter = rows.reduce(Scatter((0, 1), COUNTS, D))
    rows.map(Rotate(ROTATION))
    spread = rows.reduce(Spread(np.zeros((K, D)), COUNTS))
    again = rows.reduce(Scatter((1,), COUNTS, D))
    values = np.sort(np.random.default_rng(1).normal(size=(K, D, 12)), axis=2).astype(np.float32)
    rows.map(ApplyMarginals(spread.low.astype(np.float32), np.full((K, D), 0.7, np.float32), values))
    rows.map(Rotate(ROTATION))
    whole = rows.reduce(Whole()).chunks
    blocks = [a for start in sorted(whole) for a in whole[start]]
    return scan.sha256, scatter.covariance, spread.mean, spread.std, spread.typical_length, again.covariance, *blocks


EXPECTED = some_layers(MemoryStore(X, Z, 1))


def open_files() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("threads", [1, 2, 5, 40])
@pytest.mark.parametrize("kind", ["memory", "file", "spooled", "mapped"])
def test_everywhere_the_same_to_the_bit(kind: str, threads: int, tmp_path: Path) -> None:
    before = X.copy()
    file = scratch_file(tmp_path, X.nbytes)
    if kind == "memory":
        rows = MemoryStore(X, Z, threads)
    elif kind == "file":
        rows = FileStore(X, Z, threads, file)
    elif kind == "mapped":
        np.save(tmp_path / "x.npy", X)
        rows = FileStore(np.load(tmp_path / "x.npy", mmap_mode="r"), Z, threads, file)
    else:
        rows = FileStore(SpooledRows(np.array_split(X, 7), D, X.dtype, file), Z, threads, file)
    found = some_layers(rows)
    assert len(found) == len(EXPECTED)
    for a, b in zip(found, EXPECTED, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(X, before)
    assert [p.name for p in tmp_path.iterdir()] == (["x.npy"] if kind == "mapped" else [])
    rows.close()
    file.close()


def test_spooled_rows_read_like_an_array(tmp_path: Path) -> None:
    with scratch_file(tmp_path, None) as file:
        rows = SpooledRows(np.array_split(X, [0, 1, 1, 5000]), D, X.dtype, file)
        assert rows.shape == X.shape and len(rows) == N
        for part in (slice(0, 10), slice(4990, 5010), slice(N - 3, N + 100), slice(N, N + 1), slice(None)):
            np.testing.assert_array_equal(rows[part], X[part])


class Failing(Reduction):
    """Fails at one chunk."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def add(self, chunk: Any) -> None:
        if chunk.start == 2 * CHUNK_ROWS:
            raise self.error

    def merge(self, other: "Failing") -> None:
        pass


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("error", [ValueError("in the middle"), KeyboardInterrupt()])
def test_an_error_in_the_middle_is_raised_and_threads_end(error: BaseException, threads: int, tmp_path: Path) -> None:
    alive = threading.active_count()
    rows = FileStore(X, Z, threads, scratch_file(tmp_path, X.nbytes))
    with pytest.raises(type(error)):
        rows.reduce(Failing(error))
    assert threading.active_count() == alive
    assert rows.reduce(FirstScan(D, K, digest=True)).sha256 == EXPECTED[0]
    rows.close()
    assert rows._file.closed


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts open files in /proc")
@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("error", [RuntimeError("no memory"), KeyboardInterrupt()])
def test_a_fit_that_fails_leaves_no_file(
    error: BaseException, blocks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        # On disk, but without a name.
        assert list(tmp_path.iterdir()) == []
        assert open_files() > before
        raise error

    monkeypatch.setattr("mute.flow.fitting.fit_shrunk_marginals", fail)
    eraser = MUtE(2, router=None, scratch=tmp_path, random_state=0)
    before = open_files()
    with pytest.raises(type(error)):
        eraser.fit(iter(np.array_split(X, 3)) if blocks else X, Z)
    assert list(tmp_path.iterdir()) == []
    assert open_files() == before
    assert not hasattr(eraser, "classes_")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts open files in /proc")
def test_a_source_that_fails_leaves_no_file(tmp_path: Path) -> None:
    def blocks() -> Any:
        yield X[:5000]
        raise OSError("the network is down")

    before = open_files()
    with pytest.raises(OSError, match="network"):
        MUtE(2, scratch=tmp_path).fit(blocks(), Z)
    assert open_files() == before and list(tmp_path.iterdir()) == []


def test_a_disk_that_is_too_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9, X.nbytes - 1))
    with pytest.raises(MuteError, match=r"takes 0\.0 GB of disk, but .* has only 0\.0 GB free.*--scratch"):
        MUtE(2, scratch=tmp_path).fit(X, Z)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9, X.nbytes))
    open_store(X, Z, tmp_path, 1).close()


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MuteError, match="does not exist; create it first"):
        MUtE(2, scratch=tmp_path / "missing").fit(X, Z)
    (tmp_path / "file").touch()
    with pytest.raises(MuteError, match="does not exist"):
        MUtE(2, scratch=tmp_path / "file").fit(iter([X]), Z)
    for wrong in (3, True):
        with pytest.raises(MuteError, match="scratch must be"):
            MUtE(2, scratch=wrong).fit(X, Z)


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(MuteError, match=r"cannot be written \(Permission denied\); give another folder"):
        scratch_file(tmp_path, 1)


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("after", [0, 3])
def test_a_disk_that_fills_up(after: int, blocks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, written = os.pwrite, []

    def pwrite(*given: Any) -> int:
        written.append(given)
        if len(written) > after:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*given)

    monkeypatch.setattr(os, "pwrite", pwrite)
    eraser = MUtE(2, router=None, scratch=tmp_path, n_threads=2)
    with pytest.raises(MuteError, match=r"the working copy cannot be written \(No space left on device\); make room"):
        eraser.fit(iter(np.array_split(X, 5)) if blocks else X, Z)
    assert not hasattr(eraser, "classes_")


def test_bytes_that_are_written_and_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, read = os.pwrite, os.preadv
    monkeypatch.setattr(os, "pwrite", lambda file, data, place: write(file, data[:1000], place))
    monkeypatch.setattr(os, "preadv", lambda file, parts, place: read(file, [parts[0][:777]], place))
    with scratch_file(tmp_path, X.nbytes) as file:
        rows = FileStore(SpooledRows([X], D, X.dtype, file), Z, 2, file)
        for a, b in zip(some_layers(rows), EXPECTED, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_file_cut_short_is_noticed(tmp_path: Path) -> None:
    with scratch_file(tmp_path, None) as file:
        rows = SpooledRows([X], D, X.dtype, file)
        file.truncate(1000)
        with pytest.raises(MuteError, match="shorter than what was written"):
            rows[:100]


def mapped(tmp_path: Path) -> NDArray:
    np.save(tmp_path / "x.npy", X)
    return np.load(tmp_path / "x.npy", mmap_mode="r")


def test_auto_takes_a_file_for_mapped_rows_that_are_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = mapped(tmp_path)
    for memory, to_file in ((4 * X.nbytes, False), (2 * X.nbytes, False), (2 * X.nbytes - 2, True), (None, False)):
        monkeypatch.setattr(memory_of, "available_memory", lambda memory=memory: memory)
        for rows, expected in ((x, to_file), (X, False)):
            store = open_store(rows, Z, "auto", 1)
            assert isinstance(store, FileStore) == expected
            assert not isinstance(open_store(rows, Z, None, 1), FileStore)
            store.close()


_ASK = """
import resource, sys
from mute.rows.memory import available_memory, suggest_scratch
pages = int(open("/proc/self/statm").read().split()[0])
room = 300 * 2**20
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + room,) * 2)
found = available_memory()
assert 0 < found <= room, found
assert suggest_scratch(200 * 2**20) and not suggest_scratch(2**20)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits the address space")
def test_available_memory_honours_the_limit_of_the_process() -> None:
    subprocess.run([sys.executable, "-c", _ASK], check=True, timeout=120)


def test_available_memory_is_the_least_of_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def known(**found: int | None) -> int | None:
        for name, value in found.items():
            monkeypatch.setattr(memory_of, f"_free_{name}", lambda value=value: value)
        return available_memory()

    assert known(memory=100, in_group=50, address_space=None) == 50
    assert known(memory=100, in_group=None, address_space=-5) == 0
    assert known(memory=None, in_group=None, address_space=None) is None
