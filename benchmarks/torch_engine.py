"""How near the flow on torch tensors is to the compiled engine, on the CPU.

    python benchmarks/torch_engine.py                      all cores
    OMP_NUM_THREADS=1 python benchmarks/torch_engine.py    one core and the time of the processor, for a machine that
                                                           others use at the same time
    python benchmarks/torch_engine.py --quick              fewer rounds

`FlowModule.push` and `pull` against `Flow.push` and `pull`: the same rows, the same number of threads, float32, two
classes with true labels. They take turns, round after round; each is given its shortest time, and what counts is their
ratio. *with gradients*: a forward and a backward pass, on a tenth of the rows, and on one core only: in a backward pass
torch's threads wait for one another after every operation, so that its time is that of whoever else is at work.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from made_up import Mixture
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

from mute.flow.fitting import FlowFitter
from mute.flow.marginals import Histogram, Quantile
from mute.flow.rotations import make_rotation

TARGET, LAYERS, ROWS = 2.0, 20, 20_000


def race(contenders: dict[str, Callable[[], object]], rounds: int, clock: Callable[[], float]) -> dict[str, float]:
    """Shortest time of each contender; they take turns."""
    best = dict.fromkeys(contenders, np.inf)
    for _ in range(rounds):
        for name, run in contenders.items():
            start = clock()
            run()
            best[name] = min(best[name], clock() - start)
    return best


def times(
    d: int, marginal: Histogram | Quantile, rounds: int, threads: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds of each contender, and the largest differences between the answers."""
    x, z = Mixture(d).draw(ROWS)
    fitter = FlowFitter(
        x, z, z, max_layers=LAYERS, rotation=make_rotation("alternate"), marginal=marginal,
        rng=np.random.default_rng(0), n_threads=threads,
    )  # fmt: skip
    for _ in range(LAYERS):
        fitter.add_layer()
    flow = fitter.flow().astype(np.float32)
    module = flow.to_torch()
    q = flow.push(x, z, n_threads=threads)
    rows, erased, k = torch.from_numpy(x), torch.from_numpy(q), torch.from_numpy(z)
    few = rows[: ROWS // 10]

    def no_grad(run: Callable[..., torch.Tensor], given: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return run(given, k)

    def gradients() -> None:
        module.push(few.clone().requires_grad_(), k[: len(few)]).sum().backward()

    gaps = {
        "push": np.abs(no_grad(module.push, rows).numpy() - q).max(),
        "pull": np.abs(no_grad(module.pull, erased).numpy() - flow.pull(q, z, n_threads=threads)).max(),
    }
    contenders = {
        "push": lambda: flow.push(x, z, n_threads=threads),
        "torch push": lambda: no_grad(module.push, rows),
        "pull": lambda: flow.pull(q, z, n_threads=threads),
        "torch pull": lambda: no_grad(module.pull, erased),
    }
    if threads == 1:
        contenders["torch push with gradients"] = gradients
    seconds = race(contenders, rounds, time.process_time if threads == 1 else time.perf_counter)
    if threads == 1:
        seconds["torch push with gradients"] *= ROWS / len(few)
    return seconds, gaps


def main() -> None:
    parser = argparse.ArgumentParser(description="The flow on torch tensors against the compiled engine.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    rounds = 2 if parser.parse_args().quick else 6
    threads = torch.get_num_threads()
    table = Table(title=f"{ROWS:,} rows, {LAYERS} layers, {threads} threads; ns per element and layer")
    for name in ("D", "marginal", "", "engine", "torch", "ratio", "target", "", "largest difference"):
        table.add_column(name, justify="left" if name in ("", "marginal") else "right", no_wrap=True)
    with threadpool_limits(threads):
        for d in (128, 768):
            for marginal in (Quantile(), Histogram()):
                seconds, gaps = times(d, marginal, rounds, threads)
                ns = {name: s / (ROWS * d * LAYERS) * 1e9 for name, s in seconds.items()}
                for name in ("push", "pull", *(["push with gradients"] if threads == 1 else [])):
                    base, own = ns[name.split()[0]], ns[f"torch {name}"]
                    figures = [f"{base:.2f}", f"{own:.2f}", f"{own / base:.2f}"]
                    if name in gaps:
                        met = "[green]met[/]" if own <= TARGET * base else "[red]missed[/]"
                        figures += [f"<= {TARGET}", met, f"{gaps[name]:.1e}"]
                    table.add_row(str(d), type(marginal).__name__.lower(), name, *figures)
                table.add_section()
    Console(width=max(110, Console().width)).print(table)


if __name__ == "__main__":
    main()
