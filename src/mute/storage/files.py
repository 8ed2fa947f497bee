"""Files: written whole or not at all, and read without keeping them in memory."""

import errno
import hashlib
import json
import os
import stat
from collections.abc import Container, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from mute.errors import MuteError
from mute.storage.hidden import hidden_name, hold, lock, remove_stale
from mute.typing import JsonValue

__all__ = ["check_target", "sha256_of_file", "write_atomically", "write_json"]

# Through these links a file without a name gets one.
_OPEN_FILES = "/proc/self/fd"
_FULL = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}


def check_target(path: str | os.PathLike[str]) -> Path:
    """The file at `path`, with links resolved; refused if it cannot be written, before work is spent on its content."""
    target = Path(os.path.realpath(path))
    with _explained(path), suppress(FileNotFoundError, NotADirectoryError):
        target.stat()  # fails on a name that is too long
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

    The bytes go to a file without a name in the folder of the target (Linux), or to a hidden one beside the target. It
    is synced to disk and takes the place of the target on a clean exit. After any exception (``KeyboardInterrupt``
    included) nothing of it remains, and a file that was at `path` before is untouched. A replaced file hands its
    permissions on; a new one gets the umask's.

    Limits: where files without a name are impossible, a process killed outright (``SIGKILL``, power) leaves a hidden
    file behind, never a half-written target; the next one that writes to `path` removes it.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with write_atomically(f"{folder}/model.bin") as file:
    ...         _ = file.write(b"weights")
    ...     Path(folder, "model.bin").read_bytes()
    b'weights'
    """
    target = check_target(path)
    remove_stale(target)
    with ExitStack() as stack:
        with _explained(path):
            file, hidden = _opened_beside(target, stack)
        with _explained(path, _FULL):
            yield file
        with _explained(path):
            file.flush()
            with suppress(FileNotFoundError):
                os.chmod(file.fileno() if hidden is None else hidden, stat.S_IMODE(target.stat().st_mode))
            os.fsync(file.fileno())
            if hidden is not None:
                file.close()  # Windows renames no open file
                os.replace(hidden, target)
            else:
                _name(file, target, stack)
    # Best effort: Windows cannot open a directory, and some network file systems refuse to sync one.
    with suppress(OSError):
        directory = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _opened_beside(target: Path, stack: ExitStack) -> tuple[BinaryIO, Path | None]:
    """A new file in the folder of the target, and its hidden name if it has one; `stack` closes and removes it."""
    if hasattr(os, "O_TMPFILE") and os.path.isdir(_OPEN_FILES):
        # Not every file system has files without a name.
        with suppress(OSError):
            descriptor = os.open(target.parent, os.O_TMPFILE | os.O_RDWR, 0o666)
            return _closed_by(stack, open(descriptor, "w+b")), None
    hidden, held = hold(target, lambda path: open(path, "xb").close())
    stack.callback(_unlink, hidden)
    if held is not None:
        stack.callback(os.close, held)
    return _closed_by(stack, open(hidden, "r+b")), hidden


def _closed_by(stack: ExitStack, file: BinaryIO) -> BinaryIO:
    def close() -> None:
        # To close a file is to write what is left in its buffer, which fails again on a full disk.
        with suppress(OSError):
            file.close()

    stack.callback(close)
    return file


def _name(file: BinaryIO, target: Path, stack: ExitStack) -> None:
    """Give a file without a name the name of the target."""
    # Named from a folder, the link is followed to the file; by its whole path, Python would link the link.
    folder = os.open(_OPEN_FILES, os.O_RDONLY)
    stack.callback(os.close, folder)
    try:
        os.link(str(file.fileno()), target, src_dir_fd=folder)
    except FileExistsError:
        # Only a rename replaces a file, and only what has a name can be renamed.
        lock(file.fileno())
        hidden = hidden_name(target)
        stack.callback(_unlink, hidden)
        os.link(str(file.fileno()), hidden, src_dir_fd=folder)
        os.replace(hidden, target)


def _unlink(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


@contextmanager
def _explained(path: str | os.PathLike[str], only: Container[int | None] | None = None) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if only is not None and error.errno not in only:
            raise
        reason = error.strerror or error
        raise MuteError(f"cannot write {path}: {reason}, so make room there or choose another place") from error


def write_json(path: str | os.PathLike[str], content: JsonValue) -> None:
    """Write a small JSON file, whole or not at all."""
    with write_atomically(path) as file:
        file.write(json.dumps(content, indent=1).encode())


def sha256_of_file(path: str | os.PathLike[str]) -> str:
    """The SHA-256 of all bytes of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
