"""Hidden temporary files and folders: locked by the process that fills them, removed by the next one if it was killed.

A lock (``flock``) ends with its process, also on SIGKILL, and works between containers, where the numbers of processes
do not. Where there are no such locks (Windows), nothing that another process made is ever removed.
"""

import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mute.errors import MuteError

if sys.platform != "win32":
    import fcntl

__all__ = ["exchange", "hidden_name", "hold", "lock", "one_at_a_time", "remove_stale", "temporary_folder"]

_EXCHANGE, _HERE = 2, -100  # RENAME_EXCHANGE and AT_FDCWD of Linux


def hidden_name(target: Path) -> Path:
    """A new name beside `target`."""
    return target.with_name(f"{_beginning(target)}{secrets.token_hex(4)}.tmp")


def _beginning(target: Path) -> str:
    # Cut, so that a target with the longest possible name has a hidden name too.
    return f".{target.name[:40]}."


def hold(target: Path, make: Callable[[Path], object]) -> tuple[Path, int | None]:
    """Make a hidden file or folder beside `target`, and lock it; close the descriptor to release it."""
    while True:
        path = hidden_name(target)
        make(path)
        if sys.platform == "win32":
            return path, None
        descriptor = os.open(path, os.O_RDONLY)
        lock(descriptor)
        # Before it was locked, another process may have taken it for stale.
        if path.exists():
            return path, descriptor
        os.close(descriptor)


def lock(descriptor: int) -> None:
    """Say to others that an open file or folder is in use, until it is closed."""
    if sys.platform != "win32":
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)


def remove_stale(target: Path) -> None:
    """Remove what killed processes left beside `target`: hidden files and folders that nobody holds."""
    if sys.platform == "win32":
        return
    with suppress(OSError):
        for name in os.listdir(target.parent):
            if name.startswith(_beginning(target)) and name.endswith(".tmp"):
                _remove_unless_held(target.with_name(name))


def _remove_unless_held(path: Path) -> None:
    if sys.platform == "win32" or path.is_symlink():
        return
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()
        finally:
            os.close(descriptor)


@contextmanager
def temporary_folder(target: Path) -> Iterator[Path]:
    """A hidden folder beside `target`, removed at the end unless it was moved; stale ones of `target` are removed."""
    remove_stale(target)
    try:
        folder, descriptor = hold(target, Path.mkdir)
    except OSError as error:
        raise MuteError(f"cannot write {target}: {error.strerror or error}, so choose another place") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if descriptor is not None:
            os.close(descriptor)


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Wait until no other process works in a folder in such a block."""
    if sys.platform == "win32":
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def exchange(one: Path, other: Path) -> bool:
    """Let two names change places at one blow; False where the system cannot (only Linux can)."""
    if sys.platform != "linux":
        return False
    import ctypes

    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    return rename is not None and rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0
