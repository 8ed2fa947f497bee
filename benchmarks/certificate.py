"""How wide the certificate is where the classes are exactly alike, and what it says of the words of the package.

The first table has the mean bound of the leak, in points above chance, over 200 draws.

    python benchmarks/certificate.py
"""

from __future__ import annotations

import numpy as np

from mute import MUtE, certify
from mute.datasets import load_glove_gender
from mute.evaluation.cell_bounds import best_bound

ROWS = (300, 1000, 3000, 10_000, 30_000, 100_000)
CELLS = (2, 8, 32, 128)
DRAWS = 200


def mean_leak(n_rows: int, n_cells: int, rng: np.random.Generator, n_classes: int = 2, delta: float = 0.05) -> float:
    """Mean of the bound above chance, in points, for classes with the same law over cells of equal size."""
    draws = rng.multinomial(n_rows, np.full(n_cells, 1 / n_cells), size=(DRAWS, n_classes))
    return 100 * float(np.mean([best_bound(counts, delta).value for counts in draws]) - 1 / n_classes)


def main() -> None:
    rng = np.random.default_rng(0)
    print("| rows a class | " + " | ".join(f"{m} cells" for m in CELLS) + " |")
    print("|---:|" + "---:|" * len(CELLS))
    for n in ROWS:
        print(f"| {n:,} | " + " | ".join(f"{mean_leak(n, m, rng):.1f}" for m in CELLS) + " |")
    words()


def words() -> None:
    """The bounds of the shipped words, half of which fit the eraser: as they are, and erased."""
    data = load_glove_gender()
    fit = np.random.default_rng(0).permutation(len(data.X)) < len(data.X) // 2
    eraser = MUtE(random_state=0).fit(data.X[fit], data.z[fit])
    X, z = data.X[~fit], data.z[~fit]
    print("\n| words | " + " | ".join(f"{m} cells" for m in CELLS) + " |")
    print("|---|" + "---:|" * len(CELLS))
    for name, subject in (("before erasure", X), ("after erasure", eraser)):
        print(f"| {name} | " + " | ".join(f"{certify(subject, X, z, cells=m).bound:.3f}" for m in CELLS) + " |")


if __name__ == "__main__":
    main()
