"""The bounds hold for at least the promised share of all draws, and tend to the truth where it is known."""

from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import beta

from mute.evaluation.cell_bounds import best_bound, by_differences, by_frequencies, by_l1, plug_in

DRAWS = 1000
BOUNDS = {
    "best": lambda counts, delta: best_bound(counts, delta).value,
    "frequencies": by_frequencies,
    "L1": by_l1,
    "differences": by_differences,
}


def _random_laws(n_classes: int, n_cells: int, seed: int) -> NDArray:
    return np.random.default_rng(seed).dirichlet(np.ones(n_cells), n_classes)


# Laws of the classes over the cells, and rows of each class.
SHAPES = {
    "equal": (np.full((2, 8), 1 / 8), (200, 200)),
    "disjoint": (np.array([[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]]), (50, 50)),
    # No ties: the counted figure is right on average, so the width alone has to cover.
    "clear": (np.array([[0.6, 0.4], [0.4, 0.6]]), (400, 400)),
    "one rare cell": (np.array([[0.99, 0.01], [1.0, 0.0]]), (100, 100)),
    "few rows": (np.array([[0.3, 0.3, 0.4], [0.1, 0.1, 0.8]]), (1, 4)),
    "many cells": (_random_laws(2, 100, 0), (300, 300)),
    "unequal sizes": (np.array([[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.2, 0.1, 0.7]]), (2000, 200, 20)),
    "five classes": (_random_laws(5, 10, 1), (100, 200, 300, 400, 500)),
}


def truth(laws: NDArray) -> float:
    return float(laws.max(axis=0).sum() / len(laws))


def draw(laws: NDArray, sizes: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.int64]:
    return np.stack([rng.multinomial(n, p) for n, p in zip(sizes, laws, strict=True)])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("delta", [0.05, 0.5])
def test_coverage(shape: str, bound: str, delta: float) -> None:
    """Each bound alone, and the least of them, is at least the truth in 1 - delta of 1,000 draws.

    Three standard errors of 1,000 draws are tolerated. Every bound here has room, so that none is needed.
    """
    laws, sizes = SHAPES[shape]
    rng = np.random.default_rng(0)
    found = np.array([BOUNDS[bound](draw(laws, sizes, rng), delta) for _ in range(DRAWS)])
    assert np.isfinite(found).all() and (found <= 1).all()
    covered = (found >= truth(laws) - 1e-12).mean()
    assert covered >= 1 - delta - 3 * np.sqrt(delta * (1 - delta) / DRAWS)


def test_the_width_is_needed() -> None:
    """The counted figure alone covers about half of the draws, and a width of a third is not enough: coverage can fail.

    With 400 rows a class the figure has the standard error sqrt(0.24 / 800) = 0.017, a third of the width is 0.014.
    """
    laws, sizes = SHAPES["clear"]
    rng = np.random.default_rng(1)
    counts = [draw(laws, sizes, rng) for _ in range(DRAWS)]
    estimates = np.array([plug_in(c) for c in counts])
    width = by_differences(counts[0], 0.05) - estimates[0]
    assert 0.4 < (estimates >= truth(laws)).mean() < 0.6
    assert (estimates + width / 3 >= truth(laws)).mean() < 0.85
    assert (estimates + width >= truth(laws)).mean() > 0.95


@pytest.mark.parametrize("shape", ["equal", "clear", "many cells", "five classes"])
@pytest.mark.parametrize("bound", BOUNDS)
def test_many_rows_give_the_truth(shape: str, bound: str) -> None:
    laws, _ = SHAPES[shape]
    counts = np.round(laws * 1e11).astype(np.int64)
    assert BOUNDS[bound](counts, 0.05) == pytest.approx(truth(laws), abs=1e-3)
    assert BOUNDS[bound](counts, 0.05) >= truth(laws) - 1e-9


def test_closed_forms() -> None:
    counts = np.array([[60, 40], [40, 60]])
    assert plug_in(counts) == pytest.approx(0.6)
    # sqrt(ln 20 / 2 · 2 / (4 · 100)), and for two cells sqrt(ln(2 · 2 / 0.05) / (2 · 100)).
    assert by_differences(counts, 0.05) == pytest.approx(0.6 + np.sqrt(np.log(20) / 400))
    assert by_l1(counts, 0.05) == pytest.approx(0.6 + np.sqrt(np.log(80) / 200))
    # All n rows in one cell: the upper limit of the other is 1 - level^(1/n), the lower limit of the one level^(1/n).
    sure = np.array([[100, 0], [100, 0]])
    low = (0.05 / 8) ** (1 / 100)
    assert by_frequencies(sure, 0.05) == pytest.approx((2 - low) / 2)


@pytest.mark.parametrize("bound", BOUNDS)
def test_disjoint_laws_give_one(bound: str) -> None:
    assert BOUNDS[bound](np.array([[5, 5, 0], [0, 0, 7]]), 0.05) == 1.0


@pytest.mark.parametrize("bound", ["best", "frequencies", "L1"])
def test_one_cell_shows_nothing(bound: str) -> None:
    assert BOUNDS[bound](np.array([[3], [9], [1]]), 0.05) == pytest.approx(1 / 3)


@pytest.mark.parametrize("bound", BOUNDS)
def test_few_rows_and_absent_cells_are_wide(bound: str) -> None:
    for counts in ([[1, 0, 0], [0, 1, 0]], [[1, 0, 0], [1, 0, 0]], [[2, 0, 0, 0], [1, 1, 0, 0]]):
        assert BOUNDS[bound](np.array(counts), 0.05) > 0.9
    # A hundred rows in one of two cells rule out a large leak, but never all of it.
    assert 0.51 < BOUNDS[bound](np.array([[100, 0], [100, 0]]), 0.05) < 0.7


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bound", BOUNDS)
def test_more_confidence_is_a_higher_bound(shape: str, bound: str) -> None:
    laws, sizes = SHAPES[shape]
    counts = draw(laws, sizes, np.random.default_rng(2))
    found = [BOUNDS[bound](counts, delta) for delta in (0.5, 0.1, 0.05, 0.01, 1e-6)]
    # Sums of many limits are rounded in their last digits.
    assert np.diff(found).min() >= -1e-12 and found[0] >= plug_in(counts) - 1e-12


@pytest.mark.parametrize("shape", SHAPES)
def test_merged_cells_never_raise_the_estimate(shape: str) -> None:
    """A push-forward contracts; so do the two bounds whose width does not grow with the cells."""
    laws, sizes = SHAPES[shape]
    counts = draw(laws, sizes, np.random.default_rng(3))
    for first, second in list(combinations(range(counts.shape[1]), 2))[:100]:
        merged = np.delete(counts, second, axis=1)
        merged[:, first] += counts[:, second]
        for figure in (plug_in, lambda c: by_differences(c, 0.05), lambda c: by_l1(c, 0.05)):
            assert figure(merged) <= figure(counts) + 1e-12


def test_the_least_bound_names_its_method_and_pays_for_the_choice() -> None:
    plain, rare = np.array([[600, 400], [400, 600]]), np.array([[1000, 0], [1000, 0]])
    found = best_bound(plain, 0.05)
    assert found.method == "bounded differences"
    assert found.value == pytest.approx(by_differences(plain, 0.045))
    found = best_bound(rare, 0.05)
    assert found.method == "Clopper-Pearson" and found.value == by_frequencies(rare, 0.005)


def test_weights_between_the_ends_help() -> None:
    """The limits of the shares of all cells together beat upper limits alone, whose sum exceeds one."""
    counts = np.array([[480, 10, 10], [470, 15, 15]])
    high = beta.ppf(1 - 0.05 / 12, counts + 1, 500 - counts)
    assert by_frequencies(counts, 0.05) < high.max(axis=0).sum() / 2
