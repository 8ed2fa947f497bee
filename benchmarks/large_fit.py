"""A fit at the size of Bias-in-Bios, through the public interface: time, its parts, and peak memory.

    python benchmarks/large_fit.py                                full size, several minutes, 1 GB on disk
    python benchmarks/large_fit.py --rows 40000 --layers 10       a small one

Made-up float32 rows are written to a temporary file, block by block, and ``MUtE(n_iterations=T).fit`` runs on them in
a process of its own, once on the memory-mapped file and once on the array in memory. Peak memory is the largest
resident size of that process up to the end of the fit, everything included: the input (also those pages of the file
that happen to be in memory), the rows on their way through the layers, the maps, and the libraries themselves, whose
share is also given. Its target is 2.5 times the input's size.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from made_up import Mixture
from rich.console import Console
from rich.table import Table

MEMORY_TARGET = 2.5
_BLOCK = 8192


def write(folder: Path, rows: int, columns: int) -> None:
    """Rows and labels as ``x.npy`` and ``z.npy``."""
    mixture, labels = Mixture(columns), []
    with open(folder / "x.npy", "wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (rows, columns)}
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, rows, _BLOCK):
            x, z = mixture.draw(min(_BLOCK, rows - start))
            x.tofile(file)
            labels.append(z)
    np.save(folder / "z.npy", np.concatenate(labels))


class Clock:
    """A scikit-learn callback that adds up the seconds of each kind of task."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    def setup(self, estimator: Any, context: Any) -> None:
        pass

    def teardown(self, estimator: Any, context: Any) -> None:
        pass

    def on_fit_task_begin(self, estimator: Any, context: Any, **kwargs: Any) -> None:
        self.seconds[context.task_name] -= time.perf_counter()

    def on_fit_task_end(self, estimator: Any, context: Any, **kwargs: Any) -> None:
        self.seconds[context.task_name] += time.perf_counter()


def peak() -> int:
    """Largest resident size so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def fit(folder: Path, layers: int, mapped: bool) -> dict[str, float]:
    """Runs in a process of its own."""
    from mute import MUtE

    warnings.simplefilter("ignore")
    libraries = peak()
    x, z = np.load(folder / "x.npy", mmap_mode="r" if mapped else None), np.load(folder / "z.npy")
    eraser, clock = MUtE(n_iterations=layers, random_state=0), Clock()
    eraser.set_callbacks(clock)
    start = time.perf_counter()
    eraser.fit(x, z)
    end = time.perf_counter()
    after_fit = peak()
    eraser.transform(x)
    return {
        "fit": end - start,
        "router": clock.seconds["router"],
        "layers": clock.seconds["layer"],
        "checks, diagnostics": end - start - clock.seconds["router"] - clock.seconds["layer"],
        "transform": time.perf_counter() - end,
        "libraries": libraries,
        "peak": after_fit,
        "input": x.nbytes,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="A fit at the size of Bias-in-Bios: time and peak memory.")
    parser.add_argument("--rows", type=int, default=255_710)
    parser.add_argument("--columns", type=int, default=768)
    parser.add_argument("--layers", type=int, default=70)
    parser.add_argument("--child", nargs=2, metavar=("FOLDER", "KIND"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        folder, kind = options.child
        print(json.dumps(fit(Path(folder), options.layers, kind == "mapped file")))
        return

    from mute.rows.threads import resolve_threads

    results = {}
    with tempfile.TemporaryDirectory(prefix="mute-large-fit-") as name:
        write(Path(name), options.rows, options.columns)
        for kind in ("mapped file", "in memory"):
            command = [sys.executable, __file__, "--layers", str(options.layers), "--child", name, kind]
            answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            results[kind] = json.loads(answer)

    size = f"{options.rows:,} x {options.columns}, {options.layers} layers, {resolve_threads(None)} threads"
    Console().print(report(size, results, options.rows))


def report(size: str, results: dict[str, dict[str, float]], rows: int) -> Table:
    table = Table("", *results, title=f"fit of {size}")
    for column in table.columns[1:]:
        column.justify = "right"

    def line(name: str, cell: Callable[[dict[str, float]], str]) -> None:
        table.add_row(name, *map(cell, results.values()))

    def ratio(value: float) -> str:
        return f"{value:.2f} " + ("[green]met[/]" if value <= MEMORY_TARGET else "[red]missed[/]")

    line("fit", lambda r: f"{r['fit']:.1f} s")
    for part in ("router", "layers", "checks, diagnostics"):
        line(f"  {part}", lambda r, part=part: f"{r[part]:.1f} s")
    line("transform", lambda r: f"{r['transform']:.1f} s")
    line("  rows/s", lambda r: f"{rows / r['transform']:,.0f}")
    for part in ("input", "libraries", "peak"):
        line(part, lambda r, part=part: f"{r[part] / 1e6:,.0f} MB")
    line(f"peak / input (<= {MEMORY_TARGET})", lambda r: ratio(r["peak"] / r["input"]))
    line("  without the libraries", lambda r: ratio((r["peak"] - r["libraries"]) / r["input"]))
    return table


if __name__ == "__main__":
    main()
