"""What a fit on a cluster would cost: a model of three terms, with constants measured here.

    python benchmarks/cluster_cost.py                                      1 billion x 768 on 64 machines, a minute
    python benchmarks/cluster_cost.py --rows 1e8 --machines 8 --threads 32

A layer is three rounds. Each row costs a product with the rotation and, where its class is the one whose axes are
taken, one for the covariance (2 D² operations each), and a time for each number that passes the tables. Each round
costs the time to send its tasks and to hear of them. What travels is one step to every machine and the totals of each
bundle back. The constants are those of one core and of the loopback device of this machine; the network's is given.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
from made_up import Mixture
from rich.console import Console
from rich.table import Table

ROUNDS = 3
KNOTS, BINS = 131, 2050  # entries of a table, counts of a coordinate


def rate_of_products(d: int) -> float:
    """Operations of one core in a second, in products of a rotation with a piece."""
    from mute.rows.chunks import CHUNK_ROWS
    from mute.rows.threads import single_threaded_blas

    a, b = np.random.default_rng(0).normal(size=(2, d, d)).astype(np.float32)
    x = np.resize(b, (d, CHUNK_ROWS)).copy()
    out = np.empty_like(x)
    best = np.inf
    with single_threaded_blas():
        for _ in range(20):
            start = time.perf_counter()
            np.matmul(a.T, x, out=out)
            best = min(best, time.perf_counter() - start)
    return 2 * d * d * CHUNK_ROWS / best


def seconds_per_number(d: int, rate: float) -> float:
    """What a layer takes for each number, beyond its products, on one core."""
    from mute.flow.fitting import FlowFitter
    from mute.flow.marginals import Quantile
    from mute.flow.rotations import make_rotation

    n = max(500_000_000 // d // d, 40_960)
    times = []
    for rows in (n, 2 * n):  # what does not grow with the rows, as the eigendecomposition, falls out
        x, z = Mixture(d).draw(rows)
        fitter = FlowFitter.of(
            x, z, max_layers=6, rotation=make_rotation("alternate"), marginal=Quantile(),
            rng=np.random.default_rng(0), n_threads=1,
        )  # fmt: skip
        fitter.add_layer()
        best = np.inf
        for _ in range(5):
            start = time.perf_counter()
            fitter.add_layer()
            best = min(best, time.perf_counter() - start)
        times.append(best)
    return max((times[1] - times[0]) / n - 3 * d * d / rate, 0.0) / d


def latency() -> tuple[float, float]:
    """Seconds of a round, and of each bundle more in it."""
    import dask.array as da
    from distributed import Client, LocalCluster

    from mute import MUtE

    found = {}
    for threads in (1, 32):
        x, z = Mixture(4).draw(2048 * 2 * threads)
        with (
            LocalCluster(n_workers=1, threads_per_worker=threads, dashboard_address=None) as cluster,
            Client(cluster),
        ):
            rows = da.from_array(x, chunks=(2048, -1)).persist()
            seconds = []
            for layers in (4, 4, 24):
                start = time.perf_counter()
                MUtE(layers, router=None, diagnostics=False, random_state=0).fit(rows, z)
                seconds.append(time.perf_counter() - start)
        found[2 * threads] = (seconds[2] - seconds[1]) / 20 / ROUNDS
    few, many = found
    each = (found[many] - found[few]) / (many - few)
    return found[few] - few * each, each


def main() -> None:
    parser = argparse.ArgumentParser(description="What a fit on a cluster would cost.")
    parser.add_argument("--rows", type=float, default=1e9)
    parser.add_argument("--columns", type=int, default=768)
    parser.add_argument("--classes", type=int, default=2)
    parser.add_argument("--machines", type=int, default=64)
    parser.add_argument("--threads", type=int, default=16, help="cores of each machine")
    parser.add_argument("--network", type=float, default=10.0, help="gigabits per second of each machine")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    d, k = options.columns, options.classes
    rate = rate_of_products(d)
    number = seconds_per_number(d, rate)
    once, each = latency()
    Console().print(report(options, costs(options, rate, number, once, each), (rate, number, once, each), d, k))


def costs(options: argparse.Namespace, rate: float, number: float, once: float, each: float) -> dict[str, Any]:
    from mute.rows.dask import BUNDLES_PER_THREAD

    d, k = options.columns, options.classes
    cores = options.machines * options.threads
    bundles = BUNDLES_PER_THREAD * cores
    share = options.rows / cores
    down = 4 * (d * d + k * d * (KNOTS + 2))
    up = 8 * 3 * (d * d + k * d) + 8 * 8 * k * d + 4 * k * d * BINS
    wire = (down * options.machines + up * bundles) / options.machines  # of each machine
    return {
        "products": share * 2 * d * d * (1 + 1 / k) / rate,
        "tables and counts": share * d * number,
        "rounds": ROUNDS * (once + each * bundles),
        "network": wire * 8 / (options.network * 1e9),
        "sent by each machine": wire,
        "memory of each machine": 4 * d * options.rows / options.machines * (1 + 1 / BUNDLES_PER_THREAD),
    }


def report(options: argparse.Namespace, cost: dict[str, Any], constants: tuple, d: int, k: int) -> Table:
    rate, number, once, each = constants
    title = (
        f"{options.rows:.3g} x {d}, {k} classes, {options.machines} machines of {options.threads} cores, "
        f"{options.network:g} Gbit/s"
    )
    table = Table("", "", title=title, show_header=False)
    table.add_row("products on one core", f"{rate / 1e9:.0f} GFLOP/s")
    table.add_row("tables and counts, each number", f"{number * 1e9:.1f} ns")
    table.add_row("a round; each bundle more", f"{once * 1e3:.0f} ms; {each * 1e3:.2f} ms", end_section=True)
    parts = ("products", "tables and counts", "rounds", "network")
    for name in parts:
        table.add_row(f"a layer: {name}", f"{cost[name]:.1f} s")
    whole = sum(cost[name] for name in parts)
    table.add_row("a layer", f"{whole:.1f} s", end_section=True)
    table.add_row("20 layers", f"{20 * whole / 60:.0f} min")
    table.add_row("sent by each machine and layer", f"{cost['sent by each machine'] / 1e6:,.0f} MB")
    table.add_row("rows in the memory of each machine", f"{cost['memory of each machine'] / 1e9:.0f} GB")
    return table


if __name__ == "__main__":
    main()
