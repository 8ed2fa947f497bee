"""What sharing costs: a fit with default settings against one as in the paper, with as many layers as it chooses.

Both are told the labels and follow no diagnostics. They take turns; the figures are the least times.

    python benchmarks/shrinkage.py
"""

from __future__ import annotations

import time

import numpy as np

from mute import MUtE

# Rows, columns and classes.
SHAPES = ((15_000, 100, 3), (10_000, 384, 2), (50_000, 384, 2), (20_000, 768, 2), (50_000, 100, 10))
ROUNDS = 3


def made_up(n: int, d: int, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Skewed rows whose classes differ in place and in some directions."""
    rng = np.random.default_rng(0)
    z = np.arange(n) % n_classes
    X = rng.gamma(4, 0.5, size=(n, d)) @ (np.eye(d) + rng.normal(size=(d, d)) / np.sqrt(d))
    for k in range(n_classes):
        X[z == k] += rng.normal(size=d)
        X[z == k, : d // 10] *= 1 + k / n_classes
    return X.astype(np.float32), z


def seconds(eraser: MUtE, X: np.ndarray, z: np.ndarray) -> float:
    start = time.perf_counter()
    eraser.fit(X, z)
    return time.perf_counter() - start


def main() -> None:
    settings = {"router": None, "diagnostics": False, "random_state": 0}
    small = made_up(600, 8, 2)
    for warm in (MUtE(4, **settings), MUtE.from_preset("paper-text", **settings)):  # compile
        warm.fit(*small)
    print(
        f"{'rows':>8} {'columns':>8} {'classes':>8} {'layers':>7} {'default':>9} {'paper':>9} {'ratio':>6}   target 1.5"
    )
    for n, d, n_classes in SHAPES:
        X, z = made_up(n, d, n_classes)
        ours, theirs = [], []
        for _ in range(ROUNDS):
            eraser = MUtE(**settings)
            ours.append(seconds(eraser, X, z))
            layers = eraser.n_iterations_
            theirs.append(seconds(MUtE.from_preset("paper-text", **settings, n_iterations=layers), X, z))
        ratio = min(ours) / min(theirs)
        print(f"{n:8,} {d:8} {n_classes:8} {layers:7} {min(ours):8.2f}s {min(theirs):8.2f}s {ratio:5.2f}x")


if __name__ == "__main__":
    main()
