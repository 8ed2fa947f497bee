"""Threads over parts of the work, with linear algebra held to one thread meanwhile."""

import os
import threading

import pytest
from threadpoolctl import threadpool_info

from mute.threads import for_each, resolve_threads

PARTS = [slice(i, i + 1) for i in range(20)]


def blas_threads() -> list[int]:
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_all_cores_unless_told() -> None:
    assert resolve_threads(3) == 3
    assert 1 <= resolve_threads(None) <= (os.cpu_count() or 1)


@pytest.mark.parametrize("n_threads", [1, 2, 7])
def test_every_part_once(n_threads: int) -> None:
    done: list[int] = []
    for_each(lambda part: done.append(part.start), PARTS, n_threads)
    assert sorted(done) == list(range(20))


@pytest.mark.parametrize("n_threads", [1, 4])
def test_nothing_to_do(n_threads: int) -> None:
    for_each(lambda part: pytest.fail("called"), [], n_threads)


@pytest.mark.parametrize("n_threads", [1, 4])
def test_the_first_error_is_raised(n_threads: int) -> None:
    def work(part: slice) -> None:
        if part.start >= 3:
            raise RuntimeError(f"part {part.start}")

    with pytest.raises(RuntimeError, match="part 3"):
        for_each(work, PARTS, n_threads)


def test_blas_is_held_to_one_thread_and_released() -> None:
    before, seen = blas_threads(), []
    for_each(lambda part: seen.append(blas_threads()), PARTS, 2)
    assert all(set(counts) == {1} for counts in seen)
    assert blas_threads() == before


def test_blas_is_released_after_an_error() -> None:
    before = blas_threads()
    with pytest.raises(ZeroDivisionError):
        for_each(lambda part: 1 / 0, PARTS, 2)  # type: ignore[arg-type, return-value]
    assert blas_threads() == before


def test_overlapping_calls_release_blas_when_the_last_one_ends() -> None:
    before = blas_threads()
    first_in, second_done = threading.Event(), threading.Event()
    seen: list[list[int]] = []

    def slow(part: slice) -> None:
        first_in.set()
        assert second_done.wait(10)
        seen.append(blas_threads())

    outer = threading.Thread(target=for_each, args=(slow, PARTS[:2], 2))
    outer.start()
    assert first_in.wait(10)
    for_each(lambda part: None, PARTS, 2)
    second_done.set()
    outer.join()
    assert all(set(counts) == {1} for counts in seen), "the call that ended must not free BLAS under the other"
    assert blas_threads() == before
