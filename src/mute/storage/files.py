"""Files: written whole or not at all, and read without keeping them in memory."""

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from mute.errors import MuteError

__all__ = ["check_target", "sha256_of_file", "write_atomically"]

_FULL = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}


def check_target(path: str | os.PathLike[str]) -> Path:
    """Check that a file can be written at `path`, before any work is spent on its content.

    Parameters
    ----------
    path : str or path-like
        Where the file shall be. A symbolic link stands for the file it points to.

    Returns
    -------
    pathlib.Path
        The file that would be replaced or created, links resolved.

    Raises
    ------
    MuteError
        If the directory is missing or not writable, or `path` is a directory, a device or write-protected.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise MuteError(f"cannot write {path}: it is a directory, so give the name of a file in it")
    if target.exists() and not target.is_file():
        # Replacing a device such as /dev/null by a file would break the machine, not write to the device.
        raise MuteError(f"cannot write {path}: it is not a regular file, so give another name")
    if not target.parent.is_dir():
        raise MuteError(f"cannot write {path}: the directory {target.parent} does not exist, so create it first")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise MuteError(f"cannot write {path}: the directory {target.parent} is not writable, so choose another one")
    if target.exists() and not os.access(target, os.W_OK):
        raise MuteError(f"cannot write {path}: the file there is write-protected, so remove it or choose another name")
    return target


@contextmanager
def write_atomically(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a binary file that appears at `path` only when the block ends without an exception.

    The bytes go to a hidden temporary file beside the target, which is synced to disk and renamed over the target
    on a clean exit. After any exception (``KeyboardInterrupt`` included) the temporary is removed and a file that
    was at `path` before is untouched. A replaced file hands its permissions on; a new one gets the umask's.

    Parameters
    ----------
    path : str or path-like
        Where the file shall be.

    Yields
    ------
    binary file
        Seekable, open for writing.

    Raises
    ------
    MuteError
        If the place cannot be written or the disk is full.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with write_atomically(f"{folder}/model.bin") as file:
    ...         _ = file.write(b"weights")
    ...     Path(folder, "model.bin").read_bytes()
    b'weights'

    Notes
    -----
    Limits: a process killed outright (``SIGKILL``, power) leaves its temporary behind, never a half-written target.
    """
    target = check_target(path)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with _create(temporary, path) as file:
            try:
                yield file
            except OSError as error:
                if error.errno in _FULL:
                    raise _failed(path, error) from error
                raise
            with _explained(path):
                file.flush()
                os.fsync(file.fileno())
        with _explained(path):
            _copy_mode(target, temporary)
            os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    _sync_directory(target.parent)


def sha256_of_file(path: str | os.PathLike[str]) -> str:
    """The SHA-256 of all bytes of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _create(temporary: Path, path: str | os.PathLike[str]) -> BinaryIO:
    with _explained(path):
        # Not tempfile: its files are 0600 whatever the umask says, and the rename would keep that.
        return open(temporary, "xb")


@contextmanager
def _explained(path: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _failed(path, error) from error


def _failed(path: str | os.PathLike[str], error: OSError) -> MuteError:
    return MuteError(f"cannot write {path}: {error.strerror or error}, so make room there or choose another place")


def _copy_mode(target: Path, temporary: Path) -> None:
    with suppress(FileNotFoundError):
        os.chmod(temporary, stat.S_IMODE(target.stat().st_mode))


def _sync_directory(directory: Path) -> None:
    # Best effort: Windows cannot open a directory, and some network file systems refuse to sync one.
    with suppress(OSError):
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
