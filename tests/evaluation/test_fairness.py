"""Fairness: hand-computed cases, the figures of fairlearn, and what the intervals promise."""

from typing import Any

import numpy as np
import pytest
from fairlearn.metrics import (
    MetricFrame,
    demographic_parity_difference,
    equalized_odds_difference,
    true_positive_rate,
)
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score

from mute.adversaries.estimates import Estimate
from mute.errors import MuteError
from mute.evaluation.fairness import Fairness, fairness, paired_p_value, trivial

FIGURES = ("accuracy", "tpr_rms", "demographic_parity", "gap_correlation", "equalised_odds", "worst_group")


def measure(y: Any, predicted: Any, z: Any, draws: int = 0) -> Fairness:
    return fairness(y, predicted, z, rng=np.random.default_rng(0), draws=draws)


def values(found: Fairness) -> NDArray:
    return np.array([getattr(found, name).value for name in FIGURES])


def spell_out(cells: dict[tuple, int]) -> tuple[NDArray, NDArray, NDArray]:
    """y, predicted and z of so many rows for each (z, y, predicted)."""
    z, y, predicted = (np.repeat(column, list(cells.values())) for column in zip(*cells, strict=True))
    return y, predicted, z


def draw(n: int, n_classes: int, n_labels: int, seed: int) -> tuple[NDArray, NDArray, NDArray]:
    """Labels that depend on the class, and predictions that are right more often for some classes than for others."""
    rng = np.random.default_rng(seed)
    z = rng.integers(n_classes, size=n)
    y = np.where(rng.random(n) < 0.4, z % n_labels, rng.integers(n_labels, size=n))
    predicted = np.where(rng.random(n) < 0.5 + 0.15 * z, y, rng.integers(n_labels, size=n))
    return y, predicted, z


# Class a: 3 of 4 right for label 0, 1 of 2 for label 1; class b: 1 of 2 and 4 of 4.
BY_HAND = {
    ("a", 0, 0): 3,
    ("a", 0, 1): 1,
    ("a", 1, 1): 1,
    ("a", 1, 0): 1,
    ("b", 0, 0): 1,
    ("b", 0, 1): 1,
    ("b", 1, 1): 4,
}


def test_a_case_by_hand() -> None:
    found = measure(*spell_out(BY_HAND))
    np.testing.assert_allclose(found.tpr, [[0.75, 0.5], [0.5, 1]])
    np.testing.assert_array_equal(found.counts, [[4, 2], [2, 4]])
    assert (found.labels, found.classes) == ((0, 1), ("a", "b"))
    # Gaps 1/4 and -1/2. Label 0 is predicted for 4 of 6 rows of a and 1 of 6 of b. Label 0, where a is the majority,
    # has the larger gap: two points, correlation 1. False positive rates of label 1: 1/4 and 1/2.
    np.testing.assert_allclose(
        values(found), [9 / 12, np.sqrt((1 / 16 + 1 / 4) / 2), 2 * (4 / 6 - 1 / 6), 1, 0.5, 4 / 6]
    )


def test_gap_correlation_by_hand() -> None:
    # Shares of a: 1/4, 2/4, 3/4; gaps: -1/2, 1/2, 1/2. Deviations (-1, 0, 1)/4 and (-2, 1, 1)/3 give √3/2.
    cells = {("a", 0, 1): 2, ("b", 0, 0): 3, ("b", 0, 1): 3}
    cells |= {("a", 1, 1): 4, ("b", 1, 1): 2, ("b", 1, 0): 2}
    cells |= {("a", 2, 2): 6, ("b", 2, 2): 1, ("b", 2, 0): 1}
    found = measure(*spell_out(cells))
    np.testing.assert_allclose(found.gap_correlation.value, np.sqrt(3) / 2)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_binary_labels_as_fairlearn(n_classes: int) -> None:
    y, predicted, z = draw(500, n_classes, 2, seed=1)
    found = measure(y, predicted, z)
    given = {"y_true": y, "y_pred": predicted, "sensitive_features": z}
    # fairlearn takes one label, we sum over both: the shares of the other differ by as much.
    np.testing.assert_allclose(found.demographic_parity.value, 2 * demographic_parity_difference(**given))
    np.testing.assert_allclose(found.equalised_odds.value, equalized_odds_difference(**given))
    frame = MetricFrame(metrics={"tpr": true_positive_rate, "accuracy": accuracy_score}, **given)
    np.testing.assert_allclose(found.tpr[:, 1], frame.by_group["tpr"])
    np.testing.assert_allclose(found.worst_group.value, frame.group_min()["accuracy"])
    np.testing.assert_allclose(found.accuracy.value, frame.overall["accuracy"])


def test_three_labels_as_fairlearn_against_the_rest() -> None:
    y, predicted, z = draw(500, 2, 3, seed=2)
    found = measure(y, predicted, z)
    each = [{"y_true": y == k, "y_pred": predicted == k, "sensitive_features": z} for k in range(3)]
    np.testing.assert_allclose(found.equalised_odds.value, max(equalized_odds_difference(**given) for given in each))
    np.testing.assert_allclose(
        found.demographic_parity.value, sum(demographic_parity_difference(**given) for given in each)
    )
    for k, given in enumerate(each):
        np.testing.assert_allclose(found.tpr[:, k], MetricFrame(metrics=true_positive_rate, **given).by_group)


def test_three_classes_show_their_worst_pair() -> None:
    y, predicted, z = draw(600, 3, 4, seed=3)
    found = measure(y, predicted, z)
    pairs = [measure(y[z != k], predicted[z != k], z[z != k]) for k in range(3)]
    for name in ("tpr_rms", "demographic_parity", "equalised_odds"):
        assert getattr(found, name).value == max(getattr(pair, name).value for pair in pairs)
    worst = max(pairs, key=lambda pair: pair.tpr_rms.value)
    np.testing.assert_allclose(found.gap_correlation.value, worst.gap_correlation.value)


def test_empty_cells_are_left_out_and_counted() -> None:
    y, predicted, z = spell_out(BY_HAND | {("a", 2, 2): 5})  # class b has no row of label 2
    found = measure(y, predicted, z, draws=50)
    assert np.isnan(found.tpr[1, 2]) and found.counts[1, 2] == 0
    np.testing.assert_allclose(found.tpr_rms.value, np.sqrt((1 / 16 + 1 / 4) / 2))
    assert not any(np.isnan(getattr(found, name).low) for name in FIGURES)


def test_classes_without_a_common_label_have_no_gap() -> None:
    found = measure([0, 0, 1, 1], [0, 1, 1, 1], list("aabb"), draws=20)
    assert np.isnan([found.tpr_rms.value, found.gap_correlation.value, found.tpr_rms.low]).all()
    # What remains defined is still given: labels 0 and 1 are predicted in 1/2 and 1/2 of a, in 0 and 1 of b.
    assert (found.demographic_parity.value, found.accuracy.value, found.worst_group.value) == (1.0, 0.75, 0.5)


def test_a_label_that_is_only_predicted_has_no_rate_but_counts_for_parity() -> None:
    found = measure([0, 0, 0, 0], [0, 1, 0, 0], list("aabb"))
    assert found.labels == (0, 1)
    np.testing.assert_array_equal(found.counts, [[2, 0], [2, 0]])
    assert (found.tpr_rms.value, found.demographic_parity.value) == (0.5, 1.0)


def test_one_class_alone_has_accuracy_but_no_gaps() -> None:
    found = measure([0, 1, 1, 1], [0, 1, 1, 0], ["a"] * 4, draws=20)
    assert found.accuracy.value == found.worst_group.value == 0.75
    assert np.isnan(values(found)[1:5]).all()


def test_one_label_alone() -> None:
    found = measure([7] * 6, [7] * 6, list("aaabbb"), draws=20)
    np.testing.assert_array_equal(values(found), [1, 0, 0, np.nan, 0, 1])


def test_a_perfect_predictor_is_fair_but_for_parity() -> None:
    y, _, z = draw(400, 2, 3, seed=4)
    found = measure(y, y, z, draws=20)
    assert found.accuracy == found.worst_group == Estimate(1, 1, 1)
    assert found.tpr_rms == found.equalised_odds == Estimate(0, 0, 0)
    shares = [np.bincount(y[z == k], minlength=3) / (z == k).sum() for k in (0, 1)]
    np.testing.assert_allclose(found.demographic_parity.value, np.abs(shares[0] - shares[1]).sum())


def test_names_and_order_do_not_matter() -> None:
    y, predicted, z = draw(400, 3, 4, seed=5)
    plain = values(measure(y, predicted, z))
    labels, classes = np.array(["teacher", "nurse", "judge", "poet"]), np.array(["y", "n", "x"])
    order = np.random.default_rng(0).permutation(400)
    renamed = measure(labels[y][order], labels[predicted][order], list(classes[z][order]))
    assert renamed.labels == ("judge", "nurse", "poet", "teacher") and renamed.classes == ("n", "x", "y")
    np.testing.assert_allclose(values(renamed), plain)


def test_the_gap_is_that_of_the_first_class_over_the_second() -> None:
    # Class a is better served at label 0, where it is the majority, whatever the classes are called.
    y, predicted, z = spell_out(BY_HAND)
    found = measure(y, predicted, np.where(z == "a", "second", "first"))
    np.testing.assert_allclose(found.tpr[0] - found.tpr[1], [-0.25, 0.5])
    np.testing.assert_allclose(found.gap_correlation.value, 1)


def test_intervals_cover_the_truth() -> None:
    # The shares of classes, labels within a class and hits; a miss takes either other label alike.
    share, given = np.array([0.4, 0.6]), np.array([[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]])
    tpr = np.array([[0.9, 0.6, 0.5], [0.6, 0.7, 0.9]])
    chosen = np.where(np.eye(3), tpr[..., None], (1 - tpr[..., None]) / 2)
    table = share[:, None, None] * given[..., None] * chosen
    truth = values(measure(*spell_out({cell: round(1e5 * p) for cell, p in np.ndenumerate(table)})))
    np.testing.assert_allclose(truth[1], np.sqrt((0.09 + 0.01 + 0.16) / 3), rtol=1e-3)

    rng, covered = np.random.default_rng(6), np.zeros(6)
    for _ in range(50):
        cells = rng.multinomial(1000, table.ravel())
        y, predicted, z = spell_out(dict(zip(np.ndindex(2, 3, 3), cells, strict=True)))
        found = fairness(y, predicted, z, rng=rng, draws=100)
        intervals = [getattr(found, name) for name in FIGURES]
        covered += [i.low <= t <= i.high for i, t in zip(intervals, truth, strict=True)]
    # A hundred draws give about 93 % in place of 95; of 50 that is 46.5, three standard deviations less is 41.
    assert (covered >= 41).all(), covered


def test_intervals_are_reproducible_and_narrow_with_rows() -> None:
    y, predicted, z = draw(4000, 2, 3, seed=7)
    many, again = (measure(y, predicted, z, draws=100) for _ in range(2))
    few = measure(y[:400], predicted[:400], z[:400], draws=100)
    for name in ("accuracy", "tpr_rms", "demographic_parity", "worst_group"):
        wide, narrow = getattr(few, name), getattr(many, name)
        assert narrow == getattr(again, name)
        # A tenth of the rows: √10 times as wide, up to the 10 % by which 100 draws miss a quantile, on either side.
        assert 2 < (wide.high - wide.low) / (narrow.high - narrow.low) < 5


def test_the_trivial_predictor_has_no_gaps() -> None:
    y, _, z = draw(300, 2, 3, seed=8)
    found = trivial([2, 2, 2, 0, 1], y, z, rng=np.random.default_rng(0), draws=20)
    np.testing.assert_allclose(found.accuracy.value, (y == 2).mean())
    assert found.tpr_rms == found.demographic_parity == found.equalised_odds == Estimate(0, 0, 0)
    assert np.isnan(found.gap_correlation.value)


def test_the_trivial_predictor_takes_the_first_of_equals_even_if_unseen() -> None:
    found = trivial(["b", "c", "c", "b"], ["a", "c"], [0, 1], rng=np.random.default_rng(0), draws=0)
    assert found.labels == ("a", "b", "c") and found.accuracy.value == 0


def test_p_value_of_equal_and_of_different_predictions() -> None:
    y, predicted, z = draw(400, 2, 3, seed=9)
    rng = np.random.default_rng(0)
    for figure in FIGURES:
        assert paired_p_value(y, predicted, predicted, z, rng=rng, figure=figure, draws=99) == 1
    unfair = np.where(z == 0, y, predicted)  # always right for one class, in some two thirds of rows for the other
    for figure in ("accuracy", "tpr_rms", "equalised_odds", "worst_group"):
        assert paired_p_value(y, unfair, y, z, rng=rng, figure=figure, draws=99) == 0.01
    assert np.isnan(paired_p_value(y, predicted, y, np.zeros(400), rng=rng, figure="tpr_rms", draws=9))


def test_p_value_is_calibrated() -> None:
    # Two predictors, right in four of five rows each, by independent chances: at 5 %, 5 of 100 are expected to look
    # different, and 12 would be three standard deviations more.
    rng, found = np.random.default_rng(10), 0
    for _ in range(100):
        y, z = rng.integers(2, size=(2, 200))
        first, second = (np.where(rng.random(200) < 0.8, y, 1 - y) for _ in range(2))
        found += paired_p_value(y, first, second, z, rng=rng, draws=100) < 0.05
    assert found < 12


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": []}, "y has no labels; give at least one test row"),
        ({"y": None}, "y is missing"),
        ({"y": "abc"}, "y must hold one label for each row"),
        ({"predicted": [0, 1]}, "predicted has 2 labels for 3 rows"),
        ({"predicted": [0, 1, None]}, "predicted contains missing"),
        ({"z": [0, 1, 1, 1]}, "z has 4 labels for 3 rows"),
        ({"z": [0, float("nan"), 1]}, "z contains missing"),
        ({"rng": 0}, "rng must be a numpy Generator such as .* not 0"),
        ({"draws": -1}, "draws must be a whole number of at least 0, not -1"),
    ],
)
def test_bad_input(change: dict, message: str) -> None:
    given = {"y": [0, 1, 1], "predicted": [0, 1, 0], "z": [0, 1, 1], "rng": np.random.default_rng(0)} | change
    with pytest.raises(MuteError, match=message):
        fairness(**given)


def test_bad_input_of_the_others() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(MuteError, match="y_learn has no labels; give those of the training rows"):
        trivial([], [0, 1], [0, 1], rng=rng)
    with pytest.raises(MuteError, match=r"figure must be one of accuracy, tpr_rms, .* not 'recall'"):
        paired_p_value([0, 1], [0, 1], [0, 1], [0, 1], rng=rng, figure="recall")
    with pytest.raises(MuteError, match="predicted has 1 labels for 2 rows"):
        paired_p_value([0, 1], [0, 1], [0], [0, 1], rng=rng)
