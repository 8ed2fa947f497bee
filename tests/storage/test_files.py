"""A file is written whole or not at all."""

import errno
import os
import stat
from pathlib import Path

import numpy as np
import pytest

from mute.errors import MuteError
from mute.rows.memory import release_pages
from mute.storage.files import check_target, write_atomically

posix = pytest.mark.skipif(os.name != "posix", reason="permissions and links of POSIX")


def test_new_file_appears_at_the_end_only(tmp_path: Path) -> None:
    target = tmp_path / "model.bin"
    with write_atomically(target) as file:
        file.write(b"abc")
        (temporary,) = tmp_path.iterdir()
        assert temporary.name.startswith(".") and "model.bin" in temporary.name
    assert target.read_bytes() == b"abc"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit, OSError])
@pytest.mark.parametrize("existing", [True, False])
def test_interruption_leaves_everything_as_it_was(tmp_path: Path, error: type[BaseException], existing: bool) -> None:
    target = tmp_path / "model.bin"
    if existing:
        target.write_bytes(b"old")
    with pytest.raises(error), write_atomically(target) as file:
        file.write(b"half")
        raise error
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"] * existing


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_failing_disk_leaves_everything_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "model.bin").write_bytes(b"old")
    monkeypatch.setattr(os, call, fail)
    message = r"cannot write .*model\.bin: No space left on device"
    with pytest.raises(MuteError, match=message), write_atomically(tmp_path / "model.bin") as file:
        file.write(b"new")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]


def test_full_disk_while_writing_is_explained(tmp_path: Path) -> None:
    with pytest.raises(MuteError, match="No space left"), write_atomically(tmp_path / "model.bin"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert not list(tmp_path.iterdir())


@posix
def test_permissions(tmp_path: Path) -> None:
    new, old = tmp_path / "new", tmp_path / "old"
    old.write_bytes(b"old")
    old.chmod(0o640)
    before = os.umask(0o027)
    try:
        for path in (new, old):
            with write_atomically(path) as file:
                file.write(b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE(new.stat().st_mode) == 0o640, "0666 less the umask"
    assert stat.S_IMODE(old.stat().st_mode) == 0o640, "that of the replaced file"
    old.chmod(0o604)
    with write_atomically(old) as file:
        file.write(b"y")
    assert stat.S_IMODE(old.stat().st_mode) == 0o604


@posix
def test_link_stands_for_its_file(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "there" / "file")
    with write_atomically(link) as file:
        file.write(b"x")
    assert link.is_symlink() and (tmp_path / "there" / "file").read_bytes() == b"x"


def test_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(MuteError, match=r"the directory .*nowhere does not exist"):
        check_target(tmp_path / "nowhere" / "x")
    with pytest.raises(MuteError, match="does not exist"), write_atomically(tmp_path / "nowhere" / "x"):
        pass


def test_directory_is_no_target(tmp_path: Path) -> None:
    with pytest.raises(MuteError, match="it is a directory"):
        check_target(tmp_path)


@posix
def test_device_is_no_target() -> None:
    with pytest.raises(MuteError, match="not a regular file"):
        check_target(os.devnull)


@pytest.mark.parametrize(("protected", "message"), [("", "is not writable"), ("x", "write-protected")])
def test_protected_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protected: str, message: str) -> None:
    # By hand, because the superuser may write anywhere.
    (tmp_path / "x").touch()
    real = os.path.realpath(tmp_path / protected)
    monkeypatch.setattr(os, "access", lambda path, mode: os.path.realpath(path) != real)
    with pytest.raises(MuteError, match=message):
        check_target(tmp_path / "x")


def test_creation_that_fails_is_explained(tmp_path: Path) -> None:
    with pytest.raises(MuteError, match="cannot write"), write_atomically(tmp_path / ("x" * 250)):
        pass


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_released_pages_lose_nothing(tmp_path: Path, mode: str) -> None:
    np.save(tmp_path / "x.npy", np.arange(50_000.0).reshape(-1, 5))
    x = np.load(tmp_path / "x.npy", mmap_mode=mode)
    expected = np.array(x)
    if mode != "r":
        x[7] = expected[7] = -1
    release_pages(np.asarray(x)[3:])
    np.testing.assert_array_equal(x, expected)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the resident size from /proc")
def test_released_pages_leave_memory(tmp_path: Path) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    np.save(tmp_path / "x.npy", np.zeros(5_000_000))
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    x.sum()
    before = resident()
    release_pages(x[10:])
    assert before - resident() > 0.8 * x.nbytes
