"""How near the engine is to the bare matrix product, and how far from a per-dimension loop.

    python benchmarks/speed.py            two minutes
    python benchmarks/speed.py --quick    half a minute, rougher

Seconds say little on a machine that others use too, and whatever disturbs a measurement only ever makes it longer. So
the contenders of one table take turns, round after round; each is given its shortest time, and what counts is the
ratio of two such times of the same run. The turns are short, so that some fall into a quiet moment; on a busy machine
(see the load average under the table) run it again. Times are per element and layer: seconds / (rows x columns x
layers).

The contenders, in float32 with two classes and true labels:

- *product*: ``np.matmul`` of the rows with one D x D matrix for each layer, two buffers in turn, all cores. No flow of
  full rotations can be faster.
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

import numpy as np
import per_dimension
import torch
from made_up import Mixture
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from mute.fitting import FlowFitter
from mute.flow import Flow
from mute.marginals import Histogram, Quantile
from mute.rotations import make_rotation
from mute.threads import resolve_threads

# Targets: transform / product by columns; the others for all columns, but that of the loop for 768.
TRANSFORM = {300: 2.0, 768: 1.4}
INVERSE, FIT, LOOP = 2.0, 3.0, 25.0

LAYERS, ROWS, FIT_ROWS, LOOP_ROWS = 8, 8_192, 40_000, (1_000, 10_000)

Contenders = dict[str, tuple[Callable[[], object], int]]  # what to run, and its number of elements times layers


def race(contenders: Contenders, rounds: int) -> dict[str, float]:
    """Shortest time of each contender, in ns per element and layer; they take turns."""
    best = dict.fromkeys(contenders, np.inf)
    for _ in range(rounds):
        for name, (run, size) in contenders.items():
            start = time.perf_counter()
            run()
            best[name] = min(best[name], (time.perf_counter() - start) / size * 1e9)
    return best


def fitter(x: NDArray, z: NDArray, marginal: Histogram | Quantile, layers: int) -> FlowFitter:
    return FlowFitter(
        x, z, z, max_layers=layers, rotation=make_rotation("alternate"), marginal=marginal,
        rng=np.random.default_rng(0), n_threads=resolve_threads(None),
    )  # fmt: skip


def add_layers(fit: FlowFitter, n: int) -> FlowFitter:
    for _ in range(n):
        fit.add_layer()
    return fit


def products(flow: Flow, x: NDArray) -> Callable[[], None]:
    buffers = [x.copy(), np.empty_like(x)]

    def run() -> None:
        for t in range(flow.n_layers):
            np.matmul(buffers[t % 2], flow.rotations[t], out=buffers[1 - t % 2])

    return run


def engine(d: int, marginal: Histogram | Quantile, rounds: int) -> dict[str, float]:
    x, z = Mixture(d).draw(FIT_ROWS)
    fit = add_layers(fitter(x, z, marginal, rounds + 1), 1)
    x, z = x[:ROWS].copy(), z[:ROWS]
    flow = add_layers(fitter(x, z, marginal, LAYERS), LAYERS).flow()
    q, out = flow.push(x, z), np.empty_like(x)
    contenders: Contenders = {
        "product": (products(flow, x), ROWS * d * LAYERS),
        "transform": (lambda: flow.push(x, z, out=out), ROWS * d * LAYERS),
        "inverse": (lambda: flow.pull(q, z, out=out), ROWS * d * LAYERS),
        "fit": (fit.add_layer, FIT_ROWS * d),
    }
    return race(contenders, rounds)


def loop(d: int, n: int, rounds: int) -> dict[str, float]:
    x, z = Mixture(d).draw(n)
    rows, labels = torch.from_numpy(x), torch.from_numpy(z)
    layers, _ = per_dimension.fit(rows, labels, 1)
    flow = add_layers(fitter(x, z, Quantile(), 2), 2).flow()
    contenders: Contenders = {
        "transform": (lambda: flow.push(x, z), n * d * 2),
        "fit": (lambda: add_layers(fitter(x, z, Quantile(), 2), 2), n * d * 2),
        "loop transform": (lambda: per_dimension.transform(rows, labels, layers), n * d),
        "loop fit": (lambda: per_dimension.fit(rows, labels, 1), n * d),
    }
    return race(contenders, rounds)


def speed(table: Table, d: int, rounds: int) -> None:
    for marginal in (Quantile(), Histogram()):
        ns = engine(d, marginal, rounds)
        head = (str(d), type(marginal).__name__.lower())
        table.add_row(*head, f"{ROWS:,}", "product", f"{ns['product']:.2f}")
        for name, base, most in (
            ("transform", "product", TRANSFORM[d]), ("inverse", "transform", INVERSE), ("fit", "transform", FIT)
        ):  # fmt: skip
            ratio = ns[name] / ns[base]
            figures = (f"{ns[name]:.2f}", f"{ratio:.2f} x {base}", f"<= {most}", met(ratio <= most))
            table.add_row(*head, f"{FIT_ROWS if name == 'fit' else ROWS:,}", name, *figures)
        table.add_section()
    for rows in LOOP_ROWS:
        ns = loop(d, rows, max(2, rounds // 3))
        for name in ("transform", "fit"):
            ratio = ns[f"loop {name}"] / ns[name]
            figures = (f"{ns[f'loop {name}']:.0f}", f"{ratio:.1f} x {name}, {ns[name]:.1f} ns")
            aim = (f">= {LOOP:.0f}", met(ratio >= LOOP)) if d == 768 else ()
            table.add_row(str(d), "quantile", f"{rows:,}", f"loop {name}", *figures, *aim)
    table.add_section()


def growth(table: Table, rounds: int, n: int = 10_000, d: int = 128) -> None:
    x, z = Mixture(d).draw(4 * n)
    flow = add_layers(fitter(x[:n], z[:n], Quantile(), 4 * LAYERS), 4 * LAYERS).flow()

    def transform(rows: int, layers: int) -> NDArray:
        return flow.layers(0, layers).push(x[:rows], z[:rows])

    def fit(rows: int, layers: int) -> FlowFitter:
        return add_layers(fitter(x[:rows], z[:rows], Quantile(), layers), layers)

    lines: dict[str, Callable[[int], object]] = {
        f"transform, {n:,} rows": lambda m: transform(n * m, LAYERS),
        f"transform, {LAYERS} layers": lambda m: transform(n, LAYERS * m),
        f"fit, {n:,} rows": lambda m: fit(n * m, LAYERS),
        f"fit, {LAYERS} layers": lambda m: fit(n, LAYERS * m),
    }
    for name, run in lines.items():
        best = race({str(m): (lambda run=run, m=m: run(m), 10**6) for m in (1, 2, 4)}, rounds)
        one, two, four = (best[m] for m in "124")
        table.add_row(name, *(f"{s:,.0f}" for s in (one, two, four)), f"{two / one / 2:.2f}", f"{four / one / 4:.2f}")


def met(yes: bool) -> str:
    return "[green]met[/]" if yes else "[red]missed[/]"


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of the engine, as ratios within one run.")
    parser.add_argument("--quick", action="store_true", help="half a minute instead of two, rougher")
    quick = parser.parse_args().quick
    rounds = 3 if quick else 12
    console = Console(width=max(100, Console().width))
    cores, load = resolve_threads(None), os.getloadavg()[0]

    table = Table(title="ns per element and layer", caption=f"{cores} threads; load average at the start {load:.1f}")
    for name in ("D", "marginal", "rows", "", "ns", "ratio", "target", ""):
        table.add_column(name, justify="right" if name in ("D", "rows", "ns") else "left", no_wrap=True)
    for d in TRANSFORM:
        speed(table, d, rounds)
    console.print(table)

    table = Table(title="growth at D = 128, in ms", caption="1.00 is linear; a fit has parts that rows do not add to")
    for name in ("", "once", "twice", "4 times", "2 / linear", "4 / linear"):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    growth(table, rounds)
    console.print(table)


if __name__ == "__main__":
    main()
