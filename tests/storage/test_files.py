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
from mute.storage.hidden import temporary_folder

posix = pytest.mark.skipif(os.name != "posix", reason="permissions and links of POSIX")


@pytest.fixture(params=["no name", "hidden name"], autouse=True)
def without_a_name(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run each test with files that have no name while they are written, and as on systems without such files."""
    if request.param == "hidden name":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    elif not hasattr(os, "O_TMPFILE"):
        pytest.skip("no files without a name")
    return bool(request.param == "no name")


@pytest.mark.parametrize("existing", [True, False])
def test_a_file_appears_at_the_end_only(tmp_path: Path, existing: bool, without_a_name: bool) -> None:
    target = tmp_path / "model.bin"
    if existing:
        target.write_bytes(b"old")
    with write_atomically(target) as file:
        file.write(b"abc")
        temporary = [path.name for path in tmp_path.iterdir() if path != target]
        assert len(temporary) == (not without_a_name)
        assert all(name.startswith(".model.bin.") for name in temporary)
    assert target.read_bytes() == b"abc"
    assert list(tmp_path.iterdir()) == [target]


@posix
def test_a_killed_process_leaves_nothing_for_long(tmp_path: Path, without_a_name: bool) -> None:
    """A file without a name is gone at once; a hidden file is removed by the next one that writes there."""
    import subprocess
    import sys

    target = tmp_path / "model.bin"
    target.write_bytes(b"old")
    script = (
        "import os, signal, sys; from mute.storage.files import write_atomically\n"
        "if sys.argv[2] == 'False': vars(os).pop('O_TMPFILE', None)\n"
        "with write_atomically(sys.argv[1]) as file:\n"
        "    file.write(b'half' * 10_000); file.flush(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", script, str(target), str(without_a_name)], check=False)
    assert target.read_bytes() == b"old" and len(list(tmp_path.iterdir())) == 1 + (not without_a_name)
    with write_atomically(target) as file:
        file.write(b"new")
    assert target.read_bytes() == b"new" and list(tmp_path.iterdir()) == [target]


def test_two_writers_of_one_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    target = tmp_path / "model.bin"
    with write_atomically(target) as first, write_atomically(target) as second:
        first.write(b"first")
        second.write(b"second")
    assert target.read_bytes() == b"first", "the one that ends last"
    assert list(tmp_path.iterdir()) == [target]


@posix
def test_only_folders_that_nobody_fills_are_stale(tmp_path: Path) -> None:
    target = tmp_path / "model"
    (tmp_path / ".model.1234.tmp").mkdir()
    (tmp_path / ".model.1234.tmp" / "half").touch()
    (tmp_path / ".other.1234.tmp").mkdir()
    with temporary_folder(target) as first, temporary_folder(target) as second:
        assert first.is_dir() and second.is_dir() and first != second
        assert not (tmp_path / ".model.1234.tmp").exists()
    assert [path.name for path in tmp_path.iterdir()] == [".other.1234.tmp"]


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


def test_long_names(tmp_path: Path) -> None:
    for _ in range(2):
        with write_atomically(tmp_path / ("x" * 255)) as file:
            file.write(b"new")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"new"]
    with pytest.raises(MuteError, match=r"cannot write .*: File name too long"):
        check_target(tmp_path / ("x" * 256))


def test_creation_that_fails_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: True)
    real = os.open

    def refuse(path: str | Path, *more: int) -> int:
        if more[0] & (getattr(os, "O_TMPFILE", 0) | os.O_CREAT):
            raise OSError(errno.EROFS, "Read-only file system")
        return real(path, *more)

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr("builtins.open", lambda path, *_: refuse(path, os.O_CREAT))
    with pytest.raises(MuteError, match=r"cannot write .*: Read-only"), write_atomically(tmp_path / "x"):
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
