"""Threads over parts of the work, with linear algebra held to one thread meanwhile."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

from mute.rows import threads
from mute.rows.threads import for_each, resolve_threads

PARTS = [slice(i, i + 1) for i in range(20)]


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


# A process of its own, because the rest of the suite holds BLAS to one thread from the start.
HEAD = """
import json, threading
import numpy, scipy.linalg
from threadpoolctl import threadpool_info
from mute.rows.threads import for_each

def blas():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]

def pair(leaves_first):
    "Two overlapping calls from two threads that live on, as those of a server do; what BLAS had meanwhile."
    seen = []
    entered, leave, left = ([threading.Event(), threading.Event()] for _ in range(3))

    def call(i):
        def work(part):
            entered[i].set()
            leave[i].wait(10)
            seen.append(blas())
        for_each(work, [slice(0, 1), slice(1, 2)], 2)
        left[i].set()
        threading.Event().wait()

    for i in (0, 1):
        threading.Thread(target=call, args=(i,), daemon=True).start()
        entered[i].wait(10)
    for i in (leaves_first, 1 - leaves_first):
        leave[i].set()
        left[i].wait(10)
    return seen

parts, seen = [slice(i, i + 1) for i in range(20)], []
before = blas()
"""
# Only from one thread: OpenBLAS ignores a limit that another thread than the first to set one asks for.
CASES = {
    "one call": "for_each(lambda part: seen.append(blas()), parts, 2)",
    "an error": """
        try:
            for_each(lambda part: seen.append(blas()) or 1 / 0, parts, 2)
        except ZeroDivisionError:
            pass
        """,
    "the second inside the first": "seen += pair(1)",
}


def test_libraries_are_searched_again_only_after_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    first = threads._libraries()
    assert threads._libraries() is first
    monkeypatch.setitem(sys.modules, "a module that was not there", sys)
    assert threads._libraries() is not first


@pytest.mark.parametrize("case", CASES)
def test_blas_is_held_to_one_thread_and_released(case: str) -> None:
    code = HEAD + textwrap.dedent(CASES[case]) + "\nprint(json.dumps([before, seen, blas()]))"
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    before, seen, after = json.loads(done.stdout)
    if set(before) != {2}:
        pytest.skip("this BLAS does not do two threads")
    assert seen and all(set(counts) == {1} for counts in seen), "two levels of threads fight over the cores"
    assert after == before, "others get BLAS back as it was"
