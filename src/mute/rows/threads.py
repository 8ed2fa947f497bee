"""Threads over blocks of rows, each with single-threaded linear algebra.

Two levels of threads would compete for the cores, so BLAS uses one thread while blocks run in parallel. This setting
belongs to the process, so overlapping calls are counted and the last one restores it.

Limits: OpenBLAS obeys only the thread that made the first request. Called from other threads, results are the same, but
two levels of threads share the cores.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from mute.typing import Foreign

__all__ = ["for_each", "resolve_threads", "single_threaded_blas"]

_P = TypeVar("_P")
_R = TypeVar("_R")
_lock = threading.Lock()
_users = 0
_limiter: Foreign = None
_controller: tuple[int, Foreign] = (0, None)


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Limit BLAS and OpenMP to one thread: for blocks that run in parallel, and for many small products.

    Both are faster so. OpenMP's threads wait for each other in a loop, so that boosted trees on a busy machine would
    take many times as long.
    """
    global _users, _limiter
    with _lock:
        if _users == 0:
            _limiter = _libraries().limit(limits=1)
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _limiter.restore_original_limits()


def _libraries() -> Foreign:
    """The loaded libraries. The search takes milliseconds, so it is repeated only after new imports."""
    global _controller
    from threadpoolctl import ThreadpoolController

    if _controller[0] != len(sys.modules):
        controller = ThreadpoolController()  # may import, so the modules are counted after it
        _controller = (len(sys.modules), controller)
    return _controller[1]


def resolve_threads(n_threads: int | None) -> int:
    """Number of threads to use; with None, all cores that this process may run on."""
    if n_threads is not None:
        return n_threads
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS or Windows
        return os.cpu_count() or 1


def for_each(work: Callable[[_P], _R], parts: Iterable[_P], n_threads: int) -> list[_R]:
    """What `work` makes of every part, on up to `n_threads` threads; raises the first error."""
    parts = list(parts)
    if n_threads == 1 or len(parts) <= 1:
        return [work(part) for part in parts]
    with single_threaded_blas(), ThreadPoolExecutor(min(n_threads, len(parts))) as pool:
        return list(pool.map(work, parts))  # after an error, parts that have not begun are cancelled
