"""How long a user waits: for the import, the first fit of a machine, a large model, the differences of long texts.

    python benchmarks/waiting.py

Each line is the shortest of three runs, in seconds of the clock; compiled code counts seconds of the processor, which
other processes on the machine do not lengthen. The limits are those that the project sets itself on a quiet machine.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from os import environ
from pathlib import Path

from made_up import Mixture
from rich.console import Console
from rich.table import Table

import mute
from mute.text.differences import differences

ROUNDS = 3
IMPORT = """
import time
start = time.perf_counter()
import mute
print(time.perf_counter() - start)
"""
# All compiled loops in both precisions.
COMPILED = """
import time
start = time.process_time()
import numpy as np
from mute import MUtE, RBIG
z = np.repeat([0, 1], 200)
X = np.random.default_rng(0).normal(size=(400, 3)) + z[:, None]
for dtype in (np.float64, np.float32):
    for marginal in ("quantile", "histogram"):
        eraser = MUtE(2, router=None, marginal=marginal).fit(X.astype(dtype), z)
        eraser.inverse_transform(eraser.transform(X.astype(dtype), concept=z), concept=z)
        RBIG(2, marginal=marginal).fit(X.astype(dtype)).score(X.astype(dtype))
print(time.process_time() - start)
"""


def in_a_process(code: str, **settings: str) -> float:
    """The figure that some code prints last, in a fresh process."""
    command = [sys.executable, "-W", "ignore", "-c", code]
    return float(subprocess.check_output(command, env={**environ, **settings}, text=True).splitlines()[-1])


def clock(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def large_model(path: Path) -> str:
    """Save an eraser of 768 columns and 70 layers; returns the size of its file."""
    x, z = Mixture(768).draw(2000)
    warnings.simplefilter("ignore", mute.WeakResultWarning)  # the erasure does not matter here
    eraser = mute.MUtE(70, router=None, rotation="random", diagnostics=False, random_state=0).fit(x, z)
    eraser.save(path)
    return f"{path.stat().st_size / 1e6:.0f} MB"


def main() -> None:
    words = [f"w{i % 700}" for i in range(3000)]
    changed = ["x" if i % 100 == 0 else word for i, word in enumerate(words)]
    table = Table("what", "seconds", "limit", title="waiting")

    def add(what: str, seconds: float, limit: float) -> None:
        table.add_row(what, f"{seconds:.2f}", f"{limit:.3g}")

    add("import mute", min(in_a_process(IMPORT) for _ in range(ROUNDS)), 0.5)
    with tempfile.TemporaryDirectory() as folder:
        first = in_a_process(COMPILED, NUMBA_CACHE_DIR=folder)
        add("first fits of a machine, compiling (processor)", first, 15)
        later = min(in_a_process(COMPILED, NUMBA_CACHE_DIR=folder) for _ in range(ROUNDS))
        add("the same fits in a later process (processor)", later, first)
        path = Path(folder, "model")
        size = large_model(path)
        add(f"load a model of {size}", min(clock(lambda: mute.load(path)) for _ in range(ROUNDS)), 0.2)
    texts = " ".join(words), " ".join(changed)
    add("differences of texts of 3,000 words", min(clock(lambda: differences(*texts)) for _ in range(ROUNDS)), 10)
    Console().print(table)


if __name__ == "__main__":
    main()
