"""How much memory is available, and which arrays are mapped from a file."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["available_memory", "is_mapped", "release_pages", "suggest_scratch"]

# A working copy that takes more than this share of the available memory goes to a file.
_MOST_OF_MEMORY = 0.5


def suggest_scratch(size: int) -> bool:
    """Whether a working copy of `size` bytes should go to a file."""
    memory = available_memory()
    return memory is not None and size > _MOST_OF_MEMORY * memory


def available_memory() -> int | None:
    """Bytes that the system and the limits of this process still allow it to take; None if unknown."""
    found = [limit for limit in (_free_memory(), _free_in_group(), _free_address_space()) if limit is not None]
    return max(min(found), 0) if found else None


def _free_memory() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        try:
            return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
        except (AttributeError, ValueError, OSError):
            return None


def _free_in_group() -> int | None:
    """What the control group of the process (that of a container, for example) leaves; cached files do not count."""
    try:
        group = next(line for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
        folder = Path("/sys/fs/cgroup") / group[3:].strip().lstrip("/")
        limit = (folder / "memory.max").read_text().strip()
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return None if limit == "max" else int(limit) - int(stat["anon"])
    except (OSError, StopIteration, ValueError, KeyError):
        return None


def _free_address_space() -> int | None:
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (ImportError, OSError, ValueError):
        return None
    return None if limit == resource.RLIM_INFINITY else limit - pages * resource.getpagesize()


def release_pages(x: Any) -> None:
    """Release the memory that reading a mapped file has taken; does nothing to other arrays.

    The pages stay in the system's file cache. Files that are mapped for writing keep their pages, which may be changed.
    """
    source = _map_of(x)
    if source is not None and source.mode == "r" and hasattr(mmap, "MADV_DONTNEED"):
        pages: Any = source.base
        pages.madvise(mmap.MADV_DONTNEED)


def is_mapped(x: Any) -> bool:
    """Whether an array is mapped from a file."""
    return _map_of(x) is not None


def _map_of(x: Any) -> np.memmap | None:
    source = x
    while isinstance(source, np.ndarray) and not isinstance(source.base, mmap.mmap):
        source = source.base
    return source if isinstance(source, np.memmap) else None
