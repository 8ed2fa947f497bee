"""How near the engine is to the bare matrix product, and how far from a per-dimension loop.

    python benchmarks/speed.py               all cores; three minutes on a quiet machine
    python benchmarks/speed.py --quick       half a minute, rougher
    python benchmarks/speed.py --one-core    for a machine that others use at the same time

Seconds say little on a shared machine, and whatever disturbs a measurement only ever makes it longer. So the contenders
of one table take turns, round after round; each is given its shortest time, and what counts is the ratio of two such
times of the same run. Threads that wait for one another suffer most from company, first of all the product's and the
loop's: with ``--one-core`` everything runs on one thread and the time is that of the processor, not of the clock, which
others hardly change. Times are per element and layer: seconds / (rows x columns x layers).

The contenders, in float32 with two classes and true labels:

- *product*: ``np.matmul`` of the rows with one D x D matrix for each layer, two buffers in turn. No flow of full
  rotations can be faster.
- *transform*, *inverse*: `Flow.push` and `Flow.pull`, from rows to rows.
- *fit*: `FlowFitter.add_layer`. Its eigendecomposition costs D³ whatever the number of rows, so that the cost of an
  element falls as rows are added: 40,000 rows, a sixth of Bias-in-Bios, are still few next to D = 768.
- *loop*: ``per_dimension.py``, against *transform* or *fit* on the same rows. Its calls into torch cost the same
  whatever the number of rows, so that it does worst on few: hence two sizes.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import per_dimension
import scipy.linalg  # noqa: F401  (its BLAS is another than numpy's, and must be there when threads are limited)
import torch
from made_up import Mixture
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

from mute.flow.fitting import FlowFitter
from mute.flow.flow import Flow
from mute.flow.marginals import Histogram, Quantile
from mute.flow.rotations import make_rotation
from mute.rows.threads import resolve_threads

# Targets: transform / product by columns; the others for all columns, but that of the loop for 768.
TRANSFORM = {300: 2.0, 768: 1.4}
INVERSE, FIT, LOOP = 2.0, 3.0, 25.0

LAYERS, ROWS, FIT_ROWS, LOOP_ROWS = 8, 20_000, 40_000, (1_000, 10_000)

Contenders = dict[str, tuple[Callable[[], object], int]]  # what to run, and its number of elements times layers


@dataclass(frozen=True)
class Bench:
    rounds: int
    threads: int
    clock: Callable[[], float]

    def race(self, contenders: Contenders) -> dict[str, float]:
        """Shortest time of each contender, in ns per element and layer; they take turns."""
        best = dict.fromkeys(contenders, np.inf)
        for _ in range(self.rounds):
            for name, (run, size) in contenders.items():
                start = self.clock()
                run()
                best[name] = min(best[name], (self.clock() - start) / size * 1e9)
        return best

    def fitter(self, x: NDArray, z: NDArray, marginal: Histogram | Quantile, layers: int) -> FlowFitter:
        return FlowFitter.of(
            x, z, max_layers=layers, rotation=make_rotation("alternate"), marginal=marginal,
            rng=np.random.default_rng(0), n_threads=self.threads,
        )  # fmt: skip

    def fit(self, x: NDArray, z: NDArray, layers: int, marginal: Histogram | Quantile | None = None) -> Flow:
        fitter = self.fitter(x, z, marginal or Quantile(), layers)
        for _ in range(layers):
            fitter.add_layer()
        return fitter.flow()

    def engine(self, d: int, marginal: Histogram | Quantile) -> dict[str, float]:
        x, z = Mixture(d).draw(FIT_ROWS)
        fitter = self.fitter(x, z, marginal, self.rounds)
        x, z = x[:ROWS].copy(), z[:ROWS]
        flow = self.fit(x, z, LAYERS, marginal)
        q, out = flow.push(x, z), np.empty_like(x)
        contenders: Contenders = {
            "product": (products(flow, x), ROWS * d * LAYERS),
            "transform": (lambda: flow.push(x, z, out=out, n_threads=self.threads), ROWS * d * LAYERS),
            "inverse": (lambda: flow.pull(q, z, out=out, n_threads=self.threads), ROWS * d * LAYERS),
            "fit": (fitter.add_layer, FIT_ROWS * d),
        }
        return self.race(contenders)

    def loop(self, d: int, n: int) -> dict[str, float]:
        x, z = Mixture(d).draw(n)
        rows, labels = torch.from_numpy(x), torch.from_numpy(z)
        layers, _ = per_dimension.fit(rows, labels, 1)
        flow = self.fit(x, z, 2)
        contenders: Contenders = {
            "transform": (lambda: flow.push(x, z, n_threads=self.threads), n * d * 2),
            "fit": (lambda: self.fit(x, z, 2), n * d * 2),
            "loop transform": (lambda: per_dimension.transform(rows, labels, layers), n * d),
            "loop fit": (lambda: per_dimension.fit(rows, labels, 1), n * d),
        }
        return self.race(contenders)

    def growth(self, n: int, d: int) -> dict[str, dict[int, float]]:
        """Milliseconds for once, twice and four times as many rows or layers."""
        x, z = Mixture(d).draw(4 * n)
        flow = self.fit(x[:n], z[:n], 4 * LAYERS)

        def push(rows: int, layers: int) -> NDArray:
            return flow.layers(0, layers).push(x[:rows], z[:rows], n_threads=self.threads)

        lines: dict[str, Callable[[int], object]] = {
            f"transform, {n:,} rows": lambda m: push(n * m, LAYERS),
            f"transform, {LAYERS} layers": lambda m: push(n, LAYERS * m),
            f"fit, {n:,} rows": lambda m: self.fit(x[: n * m], z[: n * m], LAYERS),
            f"fit, {LAYERS} layers": lambda m: self.fit(x[:n], z[:n], LAYERS * m),
        }
        found = {}
        for name, run in lines.items():
            times = self.race({str(m): (lambda run=run, m=m: run(m), 10**6) for m in (1, 2, 4)})
            found[name] = {int(m): ms for m, ms in times.items()}
        return found


def products(flow: Flow, x: NDArray) -> Callable[[], None]:
    buffers = [x.copy(), np.empty_like(x)]

    def run() -> None:
        for t in range(flow.n_layers):
            np.matmul(buffers[t % 2], flow.rotations[t], out=buffers[1 - t % 2])

    return run


def speed_table(bench: Bench) -> Table:
    table = Table(title="ns per element and layer")
    for name in ("D", "marginal", "rows", "", "ns", "ratio", "target", ""):
        table.add_column(name, justify="right" if name in ("D", "rows", "ns") else "left", no_wrap=True)
    for d, most in TRANSFORM.items():
        for marginal in (Quantile(), Histogram()):
            ns, head = bench.engine(d, marginal), (str(d), type(marginal).__name__.lower())
            table.add_row(*head, f"{ROWS:,}", "product", f"{ns['product']:.2f}")
            aims = {"transform": ("product", most), "inverse": ("transform", INVERSE), "fit": ("transform", FIT)}
            for name, (base, limit) in aims.items():
                ratio = ns[name] / ns[base]
                figures = (f"{ns[name]:.2f}", f"{ratio:.2f} x {base}", f"<= {limit}", met(ratio <= limit))
                table.add_row(*head, f"{FIT_ROWS if name == 'fit' else ROWS:,}", name, *figures)
            table.add_section()
        for n in LOOP_ROWS:
            ns = bench.loop(d, n)
            for name in ("transform", "fit"):
                ratio = ns[f"loop {name}"] / ns[name]
                figures = (f"{ns[f'loop {name}']:.0f}", f"{ratio:.1f} x {name}, {ns[name]:.1f} ns")
                aim = (f">= {LOOP:.0f}", met(ratio >= LOOP)) if d == 768 else ()
                table.add_row(str(d), "quantile", f"{n:,}", f"loop {name}", *figures, *aim)
        table.add_section()
    return table


def growth_table(bench: Bench, n: int = 10_000, d: int = 128) -> Table:
    table = Table(title=f"growth at D = {d}, in ms", caption="1.00 is linear; parts of a fit do not grow with rows")
    for name in ("", "once", "twice", "4 times", "2 / linear", "4 / linear"):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    for name, ms in bench.growth(n, d).items():
        ratios = (f"{ms[m] / ms[1] / m:.2f}" for m in (2, 4))
        table.add_row(name, *(f"{t:,.0f}" for t in ms.values()), *ratios)
    return table


def met(yes: bool) -> str:
    return "[green]met[/]" if yes else "[red]missed[/]"


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of the engine, as ratios within one run.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--one-core", action="store_true", help="one thread, and the time of the processor")
    options = parser.parse_args()
    rounds, threads = 2 if options.quick else 8, 1 if options.one_core else resolve_threads(None)
    bench = Bench(rounds, threads, time.process_time if options.one_core else time.perf_counter)
    torch.set_num_threads(threads)
    console = Console(width=max(100, Console().width))
    console.print(f"{threads} of {os.cpu_count()} cores; load average at the start {os.getloadavg()[0]:.1f}")
    with threadpool_limits(threads):
        console.print(speed_table(bench))
        console.print(growth_table(bench))


if __name__ == "__main__":
    main()
