"""The closed form of the leak of few rows, against a simulation and against its own table."""

import numpy as np
import pytest
from numpy.typing import NDArray

from mute.adversaries.expected import columns_needed, expected_accuracy, harmonic_mean, rows_needed


def simulated(d: int, n: int, m: int, k: int, rng: np.random.Generator) -> float:
    """Whiten each class by n rows; a quadratic adversary learns from m rows a class and reads 2,000 others."""
    maps = []
    for _ in range(k):
        rows = rng.normal(size=(n, d))
        values, axes = np.linalg.eigh(np.cov(rows.T))
        maps.append((rows.mean(axis=0), axes / np.sqrt(values) @ axes.T))

    def erased(c: int, size: int) -> NDArray:
        mean, matrix = maps[c]
        return (rng.normal(size=(size, d)) - mean) @ matrix

    learned = [erased(c, m) for c in range(k)]
    spreads = np.array([rows.T @ rows / m for rows in learned])
    spreads -= spreads.mean(axis=0)
    hits = []
    for c in range(k):
        rows = erased(c, 2000)
        # The log-likelihoods of nearly equal covariances, to second order.
        scores = [((rows @ s) * rows).sum(axis=1) / 2 - np.trace(s) / 2 - (s**2).sum() / 4 for s in spreads]
        hits.append(np.mean(np.argmax(scores, axis=0) == c))
    return float(np.mean(hits))


@pytest.mark.parametrize(("d", "n", "m", "k"), [(40, 1000, 1000, 2), (40, 2000, 4000, 2), (30, 1000, 2000, 3)])
def test_the_formula_is_what_a_simulation_gives(d: int, n: int, m: int, k: int) -> None:
    rng = np.random.default_rng(0)
    found = np.mean([simulated(d, n, m, k, rng) for _ in range(4)])
    # 2,000 k rows four times: a standard error below half a point; terms of higher order in D / n add about one.
    assert found == pytest.approx(expected_accuracy(d, n, m, k), abs=0.02)


@pytest.mark.parametrize(("columns", "rows"), [(100, 31_100), (384, 121_000), (768, 242_000)])
def test_rows_for_two_points(columns: int, rows: int) -> None:
    assert rows_needed(columns, 1000, 0.02) == rows
    assert expected_accuracy(columns, rows, 1000) <= 0.52
    assert columns_needed(rows, 1000, 0.02) == pytest.approx(columns, rel=0.01)


def test_edges() -> None:
    assert rows_needed(100, 1000, 0.0) is None
    assert columns_needed(1000, 1000, 0.0) == 0
    assert rows_needed(1, 10, 0.4) <= 10
    assert expected_accuracy(0, 1000, 1000, 5) == pytest.approx(0.2)
    assert harmonic_mean([1000, 1000]) == pytest.approx(1000)
    assert harmonic_mean([100, 10_000]) < 200
