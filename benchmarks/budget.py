"""Is a leak budget kept on unseen rows, and what does it cost? One line for each data set and seed.

    mute data prepare bug word2vec bug-occupations          once
    python benchmarks/budget.py -o budget.json              about five minutes a line on two quiet cores
    python benchmarks/budget.py --data words --seeds 1      one line

Each eraser is fitted on training rows, which alone choose the noise. The audit then judges it on unseen rows, with the
whole panel. The file keeps finished lines, so that an interrupted run continues.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import mute
from mute.datasets import load_glove_gender
from mute.paper.budgets import spent_on
from mute.paper.fresh import rows_to_fit, split_problem
from mute.paper.problems import problem

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from comparison_data import shapes

Parts = tuple[NDArray, NDArray, NDArray, NDArray]

# Data to the budget, and the R² that must be kept within it.
TARGETS = {
    "words": (0.05, 0.40),
    "sentences": (0.03, 0.80),
    "occupations": (0.03, 0.65),
    "word2vec": (0.03, 0.55),
    "shapes": (0.03, 0.50),
}
PROBLEMS = {"sentences": "bios", "occupations": "jigsaw", "word2vec": "word2vec"}


def parts_of(name: str, seed: int) -> Parts:
    """Training rows and their classes, unseen rows and theirs."""
    if name == "words":
        data = load_glove_gender()
        seen = data.split == "fit"
        if seed:  # another split of the same sizes
            seen = np.random.default_rng(seed).permutation(seen)
        return data.X[seen], data.z[seen], data.X[~seen], data.z[~seen]
    if name == "shapes":
        X, z, _ = shapes()
        seen = np.random.default_rng(seed).permutation(len(X)) < len(X) // 2
        return X[seen], z[seen], X[~seen], z[~seen]
    data = problem(PROBLEMS[name])
    return split_problem(data, rows_to_fit(data, False), seed)


def run(name: str, seed: int) -> dict[str, object]:
    return spent_on(*parts_of(name, seed), TARGETS[name][0], seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=",".join(TARGETS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("-o", "--output", type=Path, default=Path("budget.json"))
    given = parser.parse_args()
    found = json.loads(given.output.read_text()) if given.output.exists() else {}
    warnings.simplefilter("ignore", mute.WeakResultWarning)
    for seed in range(given.seeds):
        for name in given.data.split(","):
            key = f"{name} {seed}"
            if key not in found:
                found[key] = {"data": name, "seed": seed, **run(name, seed)}
                given.output.write_text(json.dumps(found, indent=1))
                print(key, {k: round(v, 3) if isinstance(v, float) else v for k, v in found[key].items()}, flush=True)
    table = Table(title="A leak budget on unseen rows")
    heads = ("data", "seed", "budget", "verdict", "leak", "interval", "strongest", "R²", "R² aimed at", "promised")
    for head in heads:
        table.add_column(head, justify="right")
    kept = []
    for line in found.values():
        budget, least = TARGETS[line["data"]]
        if "leak" in line:
            kept.append(line["low"] <= budget)
            cells = [
                f"{line['leak']:.3f}", f"{line['low']:.3f} to {line['high']:.3f}", line["adversary"],
                f"{line['r2']:.2f}", f"{least:.2f}", f"{line['promised']:.3f}",
            ]  # fmt: skip
        else:
            cells = ["–", "–", "–", "–", f"{least:.2f}", "–"]
        table.add_row(line["data"], str(line["seed"]), str(budget), line["verdict"], *cells)
    Console(width=140).print(table)
    print(f"measured leak within the budget and its interval in {sum(kept)} of {len(kept)} runs")


if __name__ == "__main__":
    main()
