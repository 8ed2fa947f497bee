"""How much memory is available, and which arrays are mapped from a file."""

import mmap
import os
from contextlib import suppress
from pathlib import Path

import numpy as np

from mute.typing import RowsLike

__all__ = ["available_memory", "file_map", "release_pages", "suggest_scratch"]

# A working copy that takes more than this share of the available memory goes to a file.
_MOST_OF_MEMORY = 0.5


def suggest_scratch(size: int) -> bool:
    """Whether a working copy of `size` bytes should go to a file."""
    memory = available_memory()
    return memory is not None and size > _MOST_OF_MEMORY * memory


def available_memory() -> int | None:
    """Bytes that the system and the limits of this process still allow it to take; None if unknown."""
    found = []
    for free in (_free_memory, _free_in_group, _free_address_space):
        # Other systems lack some of the files and calls.
        with suppress(ImportError, AttributeError, OSError, KeyError, ValueError):
            found.append(free())
    known = [limit for limit in found if limit is not None]
    return max(min(known), 0) if known else None


def _free_memory() -> int | None:
    with suppress(OSError, KeyError):
        return int(_table("/proc/meminfo")["MemAvailable:"].split()[0]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


def _free_in_group() -> int | None:
    """What the control group of the process (that of a container, for example) leaves; cached files do not count."""
    groups = dict(line.split("::", 1) for line in Path("/proc/self/cgroup").read_text().splitlines() if "::" in line)
    folder = Path("/sys/fs/cgroup") / groups["0"].lstrip("/")
    limit = (folder / "memory.max").read_text().strip()
    return None if limit == "max" else int(limit) - int(_table(folder / "memory.stat")["anon"])


def _table(path: str | Path) -> dict[str, str]:
    return dict(line.split(maxsplit=1) for line in Path(path).read_text().splitlines())


def _free_address_space() -> int | None:
    import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return None if limit == resource.RLIM_INFINITY else limit - pages * resource.getpagesize()


def release_pages(x: RowsLike) -> None:
    """Release the memory that reading a mapped file has taken; does nothing to other arrays.

    The pages stay in the system's file cache. Files that are mapped for writing keep their pages, which may be changed.
    """
    source = file_map(x)
    if source is not None and source.mode == "r" and hasattr(mmap, "MADV_DONTNEED"):
        source.base.madvise(mmap.MADV_DONTNEED)  # type: ignore[union-attr]


def file_map(x: RowsLike) -> np.memmap | None:
    """The memory map of a file in which the numbers of an array lie, if they do."""
    while isinstance(x, np.ndarray) and not isinstance(x.base, mmap.mmap):
        x = x.base
    return x if isinstance(x, np.memmap) else None
