"""Files: written whole or not at all, and read without keeping them in memory."""

import errno
import hashlib
import json
import os
import secrets
import stat
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from mute.errors import MuteError
from mute.typing import JsonValue

__all__ = ["check_target", "sha256_of_file", "write_atomically", "write_json"]

_FULL = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}


def check_target(path: str | os.PathLike[str]) -> Path:
    """The file at `path`, with links resolved; refused if it cannot be written, before work is spent on its content."""
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

    Limits: a process killed outright (``SIGKILL``, power) leaves its temporary behind, never a half-written target.

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
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with _explained(path):
            # Not tempfile: its files are 0600 whatever the umask says, and the rename would keep that.
            file = open(temporary, "xb")  # noqa: SIM115
        with file:
            with _explained(path, _FULL):
                yield file
            with _explained(path):
                file.flush()
                os.fsync(file.fileno())
        with _explained(path):
            with suppress(FileNotFoundError):
                os.chmod(temporary, stat.S_IMODE(target.stat().st_mode))
            os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    # Best effort: Windows cannot open a directory, and some network file systems refuse to sync one.
    with suppress(OSError):
        directory = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


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
