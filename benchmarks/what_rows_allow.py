"""How small a leak do so many rows allow? What the best share of an estimate leaves, and MUtE.

    mute data prepare bug                       once
    python benchmarks/what_rows_allow.py        two minutes

The covariances of two classes differ by Δ, of energy s = ‖Δ‖², in columns that are white within classes. An estimate of
Δ from n rows has noise of energy ν. Whatever share of the estimate an eraser takes off, at least s ν / (s + ν) is left
(James and Stein). A quadratic adversary with m rows has noise of energy ν_m. It reads what is left, r, with accuracy
Φ(√(r / 8) √(r / (r + ν_m))). Columns are dropped from the axes of least variance on.

s is measured without bias, as the product of two estimates from two halves of the rows. Energies are means over pairs
of classes. The rows are the training rows of `benchmarks/budget.py`, seed 0. The adversary has two thirds as many rows
as the audit there.
"""

from __future__ import annotations

import warnings
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import mute
from budget import parts_of
from mute.adversaries.expected import accuracy_at
from mute.adversaries.scoring import folds_of

DATA = {"words": (10, 20, 40, 70, 100), "sentences": (20, 40, 80, 130, 200, 381)}
_DRAWS = 5


def energies(Y: NDArray, z: NDArray[np.int64]) -> tuple[float, float]:
    """Energy of the true differences of covariances, and of the noise of their estimates from all rows."""
    rng, found = np.random.default_rng(0), []
    for _ in range(_DRAWS):
        half = folds_of(z, rng, None, 2) == 0
        first, second = ([np.cov(Y[part & (z == k)].T) for k in range(z.max() + 1)] for part in (half, ~half))
        for i, j in combinations(range(len(first)), 2):
            true = ((first[i] - first[j]) * (second[i] - second[j])).sum()
            found.append((true, (((first[i] - first[j]) ** 2).sum() - true) / 2))
    true, noise = np.mean(found, axis=0)
    return float(max(true, 0.0)), float(noise)


def white(X: NDArray, z: NDArray[np.int64]) -> tuple[NDArray, NDArray]:
    """The principal axes within classes, as columns of unit variance, largest first, and their variances."""
    centred = X - np.array([X[z == k].mean(axis=0) for k in range(z.max() + 1)])[z]
    sizes, axes = np.linalg.eigh(centred.T @ centred / len(X))
    sizes, axes = sizes[::-1], axes[:, ::-1]
    seen = sizes > 1e-9 * sizes[0]
    return centred @ (axes[:, seen] / np.sqrt(sizes[seen])), sizes[seen]


def main() -> None:
    warnings.simplefilter("ignore", mute.WeakResultWarning)
    table = Table(title="What is left of the differences of covariances, and the leak that it makes")
    heads = ("data", "columns", "variance", "true s", "noise ν", "best left", "leak at best")
    for head in heads:
        table.add_column(head, justify="right")
    said = []
    for name, widths in DATA.items():
        X, labels, X_new, _ = parts_of(name, 0)
        z = np.unique(labels, return_inverse=True)[1]
        Y, sizes = white(X.astype(np.float64), z)
        held_out = folds_of(z, np.random.default_rng(0)) == 0
        eraser = mute.MUtE(random_state=0, diagnostics=False).fit(X[~held_out], labels[~held_out])
        erased = eraser.transform(X[held_out], concept=labels[held_out]).astype(np.float64)
        left, _ = energies(white(erased, z[held_out])[0], z[held_out])
        for width in widths:
            true, noise = energies(Y[:, :width], z)
            best = true * noise / (true + noise)
            theirs = noise * len(X) / (len(X_new) * 2 / 3)
            leak = accuracy_at(np.sqrt(best / 2 * best / (best + theirs)), z.max() + 1) - 1 / (z.max() + 1)
            held = sizes[:width].sum() / sizes.sum()
            cells = (f"{held:.2f}", f"{true:.1f}", f"{noise:.1f}", f"{best:.1f}", f"{leak:.3f}")
            table.add_row(name, str(width), *cells)
        best = true * 1.5 * noise / (true + 1.5 * noise)
        said.append(
            f"{name}: MUtE, fitted on two thirds of these rows, leaves {left:.1f} on the last third; "
            f"the best share of an estimate from two thirds leaves {best:.1f}"
        )
    Console(width=120).print(table)
    print("\n".join(said))


if __name__ == "__main__":
    main()
