"""Counterfactuals: what their figures must be where the true map is known."""

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from mute import MUtE
from mute.evaluation import counterfactuals
from mute.evaluation.counterfactuals import Move, counterfactual_quality

D, N = 5, 3000
CLASSES = ("a", "b")


class Affine:
    """Classes of known means and spreads: from one to the other by the map between them."""

    def __init__(self, means: NDArray, spreads: NDArray) -> None:
        self.means, self.spreads = means, spreads

    def counterfactual(self, X: NDArray, target: str, *, concept: Sequence[str]) -> NDArray:
        i, j = (CLASSES.index(label) for label in (concept[0], target))
        return (X - self.means[i]) / self.spreads[i] * self.spreads[j] + self.means[j]


class Still:
    """Leaves every row where it is, and has a router that says what it sees in the first column."""

    router_ = "the sign of the first column"

    def counterfactual(self, X: NDArray, target: object, *, concept: object = None) -> NDArray:
        return X.copy()

    def route(self, X: NDArray) -> NDArray:
        return np.where(X[:, 0] > 0, "b", "a")


def sample(means: NDArray, spreads: NDArray, n: int = N, seed: int = 0) -> tuple[NDArray, NDArray]:
    z = np.repeat([0, 1], n)
    return np.random.default_rng(seed).normal(size=(2 * n, D)) * spreads[z] + means[z], z


def judge(eraser: object, X: NDArray, z: NDArray, oracle: bool = True, **more: object) -> tuple[Move, ...]:
    return counterfactual_quality(eraser, X, z, CLASSES, np.random.default_rng(0), oracle=oracle, **more)  # type: ignore[arg-type]


MEANS = np.array([np.full(D, -2.0), np.full(D, 2.0)])
EVEN = np.ones((2, D))


def test_a_translation_is_all_translation() -> None:
    X, z = sample(MEANS, EVEN)
    forth, back = judge(Affine(MEANS, EVEN), X, z)
    assert (forth.source, forth.target, back.source, back.target) == ("a", "b", "b", "a")
    for move in (forth, back):
        assert move.n_rows == 2000
        assert move.translational == pytest.approx(1)
        assert move.routed is None and move.own is None and move.truth_cosine is None
        # Cannot tell: 1,200 test rows give a standard error of 0.014, and three of them.
        assert move.two_sample.value == pytest.approx(0.5, abs=0.045)
        # The 95 % threshold is itself estimated from 1,000 rows: a standard error of 0.007, twice.
        assert move.plausibility.value == pytest.approx(0.95, abs=0.03)
        assert move.norm_ratio == pytest.approx(1, abs=0.03)
    # Every row moves by the distance of the means, 4 sqrt(5).
    # The unit is a mean over 2,000 pairs with a standard deviation of half of it.
    unit = np.linalg.norm(X - np.random.default_rng(1).permutation(X), axis=1).mean()
    assert forth.displacement.value == pytest.approx(4 * np.sqrt(D) / unit, rel=0.05)


def test_equal_means_and_other_spreads_are_no_translation() -> None:
    means, spreads = np.zeros((2, D)), np.array([np.full(D, 1.0), np.full(D, 3.0)])
    X, z = sample(means, spreads)
    forth, back = judge(Affine(means, spreads), X, z)
    for move in (forth, back):
        # The mean of 2,000 moves about zero has a squared length of 1/2000 of theirs.
        assert move.translational < 0.005
        assert move.two_sample.value == pytest.approx(0.5, abs=0.045)
    still_forth, still_back = judge(Still(), X, z)
    # Equal means hide nothing from the quadratic classifier; rows of the narrow class lie inside the wide one.
    assert min(still_forth.two_sample.value, still_back.two_sample.value) > 0.9
    assert still_forth.norm_ratio == pytest.approx(1 / 3, rel=0.1)
    assert still_back.plausibility.value < 0.5 < still_forth.plausibility.value


def test_rows_that_stay_are_found_out() -> None:
    X, z = sample(MEANS, EVEN)
    for move in judge(Still(), X, z, oracle=False):
        # The means lie 9 spreads apart: a mistake is a row in 100,000.
        assert move.two_sample.value > 0.995
        assert move.plausibility.value < 0.01
        assert move.displacement.value == 0
        assert np.isnan(move.translational)
        # The router sees the first column only: two spreads from the border, it errs on 2.3 %.
        assert move.routed is not None
        assert move.routed.value == pytest.approx(0.023, abs=0.015)
        assert move.own == pytest.approx(0.977, abs=0.015)


def test_mute_makes_rows_of_the_target() -> None:
    means, spreads = MEANS / 2, np.array([np.full(D, 1.0), np.full(D, 2.0)])
    X, z = sample(means, spreads)
    eraser = MUtE(n_iterations=6, router=None, diagnostics=False, random_state=0).fit(X, np.array(CLASSES)[z])
    for move in judge(eraser, *sample(means, spreads, seed=1)):
        # Three standard errors, and a point for the noise of maps fitted to 3,000 rows.
        assert move.two_sample.value == pytest.approx(0.5, abs=0.055)
        assert move.plausibility.value == pytest.approx(0.95, abs=0.04)
        assert move.norm_ratio == pytest.approx(1, abs=0.05)
        assert move.routed is None


def test_mute_sends_rows_where_its_router_finds_them() -> None:
    X, z = sample(MEANS, EVEN, n=1000)
    eraser = MUtE(n_iterations=4, router="logistic", diagnostics=False, random_state=0).fit(X, np.array(CLASSES)[z])
    for move in judge(eraser, *sample(MEANS, EVEN, n=300, seed=1), oracle=False):
        assert move.routed is not None and move.own is not None
        assert move.n_rows == 300
        # The means lie 9 spreads apart: the router errs on none of 300.
        assert move.routed.value > 0.99 and move.own > 0.99


def test_true_counterfactuals_are_compared_row_by_row() -> None:
    X, z = sample(MEANS, EVEN, n=200)
    true = X[:50] + 4.0
    off = true.copy()
    off[:, 0] += 3.0
    eraser = Affine(MEANS, EVEN)
    forth, back = judge(eraser, X, z, truth=(np.arange(50), np.ones(50, int), true))
    assert forth.truth_cosine is not None and forth.truth_distance is not None
    assert forth.truth_cosine.value == pytest.approx(1)
    assert forth.truth_distance.value == pytest.approx(0, abs=1e-12)
    assert back.truth_cosine is None and back.truth_distance is None
    forth, _ = judge(eraser, X, z, truth=(np.arange(50), np.ones(50, int), off))
    assert forth.truth_distance is not None and forth.truth_cosine is not None
    assert forth.truth_distance.value == pytest.approx(3)
    assert forth.truth_cosine.value < 0.95


def test_of_many_classes_the_largest_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    monkeypatch.setattr(counterfactuals, "_MOST_ROWS", 60)  # which pairs, not how well
    sizes = [60, 30, 70, 80, 90, 50]
    z = np.repeat(np.arange(6), sizes)
    labels = [("class", k) for k in range(6)]  # tuples are labels too
    moves = counterfactual_quality(Still(), rng.normal(size=(len(z), 3)), z, labels, rng)
    largest = [labels[k] for k in (0, 2, 3, 4)]  # 1 has too few rows, 5 fewest of the rest
    assert [(m.source, m.target) for m in moves] == [(a, b) for a in largest for b in largest if a != b]
