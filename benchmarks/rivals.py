"""LEACE beside the public library: both fitted on the same rows, in turns, in one run.

    python benchmarks/rivals.py              a minute on a quiet machine
    python benchmarks/rivals.py --quick      a few seconds, rougher

The library (concept-erasure) is given what it wants best: a tensor of the rows and one-hot labels as numbers, made
beforehand. Ours is given rows and labels as a user has them, and its time includes the checks and the hash of the rows
that goes into the file. Each contender has its shortest time of several rounds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from concept_erasure import LeaceEraser
from made_up import Mixture
from rich.console import Console
from rich.table import Table

from mute.rivals import LEACE

# Their fit takes at least as long as ours.
TARGET = 1.0


def shortest(contenders: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return {name: min(taken) for name, taken in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    table = Table(title="LEACE against concept-erasure, shortest times")
    for name in (
        "rows",
        "columns",
        "precision",
        "fit",
        "theirs",
        "theirs / ours",
        "transform",
        "theirs",
        "theirs / ours",
    ):
        table.add_column(name, justify="right")
    missed = []
    for n, d in [(20_000, 300)] if quick else [(20_000, 300), (50_000, 768)]:
        for dtype in (np.float32, np.float64):
            X, z = Mixture(d).draw(n)
            X = X.astype(dtype)
            rows, labels = torch.from_numpy(X), torch.nn.functional.one_hot(torch.from_numpy(z)).to(rows_dtype(dtype))
            ours, theirs = LEACE().fit(X, z), LeaceEraser.fit(rows, labels)
            gap = np.abs(ours.transform(X) - theirs(rows).numpy()).max()
            assert gap < 1e-3, f"they disagree by {gap}: nothing to compare"
            times = shortest(
                {
                    "fit": lambda X=X, z=z: LEACE().fit(X, z),
                    "their fit": lambda rows=rows, labels=labels: LeaceEraser.fit(rows, labels),
                    "transform": lambda ours=ours, X=X: ours.transform(X),
                    "their transform": lambda theirs=theirs, rows=rows: theirs(rows),
                },
                3 if quick else 7,
            )
            cells = [f"{n:,}", str(d), np.dtype(dtype).name]
            for name in ("fit", "transform"):
                ratio = times[f"their {name}"] / times[name]
                cells += [f"{times[name]:.3f} s", f"{times[f'their {name}']:.3f} s", f"{ratio:.2f}"]
                if name == "fit" and ratio < TARGET:
                    missed.append(f"{n} x {d} {np.dtype(dtype).name}: {ratio:.2f}")
            table.add_row(*cells)
    Console(width=120).print(table)
    print("target, fit at least as fast as theirs:", "missed at " + ", ".join(missed) if missed else "met")


def rows_dtype(dtype: type) -> torch.dtype:
    return torch.float32 if dtype == np.float32 else torch.float64


if __name__ == "__main__":
    main()
