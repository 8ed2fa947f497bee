"""Augmentation: what is stacked, what the classifier sees, and whether counterfactuals make it fairer."""

from typing import Any, Self

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from mute import MUtE
from mute.errors import MuteError
from mute.evaluation.augmentation import CounterfactualAugmentation, augment, compare_augmentation
from mute.evaluation.fairness import fairness, paired_p_value


class Stamp(BaseEstimator):
    """An eraser that writes the target's code into the second column, and remembers what it was told."""

    def fit(self, X: NDArray, y: NDArray) -> Self:
        self.classes_, self.fitted_on_ = np.unique(y), y
        return self

    def counterfactual(self, X: NDArray, target: NDArray, *, concept: Any = None) -> NDArray:
        self.told_ = concept
        return np.stack([X[:, 0], np.searchsorted(self.classes_, target)], axis=1)


class RoutedStamp(Stamp):
    """The same with a router, which takes every row for the last class."""

    def route(self, X: NDArray) -> NDArray:
        return np.repeat(self.classes_[-1:], len(X))


class Spy(ClassifierMixin, BaseEstimator):
    """A classifier with early stopping that notes the rows it sees; its scores are given in advance."""

    def __init__(
        self, early_stopping: bool = True, max_iter: int = 20, scores: tuple = (0.5, 0.9, 0.8, 0.7, 0.6)
    ) -> None:
        self.early_stopping, self.max_iter, self.scores = early_stopping, max_iter, scores
        self.validation_fraction, self.n_iter_no_change, self.tol = 0.25, 2, 1e-4

    def partial_fit(self, X: NDArray, y: NDArray, classes: NDArray) -> None:
        assert not self.early_stopping  # scikit-learn's own refuse it here
        self.orders_ = [*getattr(self, "orders_", []), X[:, 0].tolist()]
        self.learned_, self.classes_, self.epochs_ = X, classes, len(self.orders_)

    def score(self, X: NDArray, y: NDArray) -> float:
        self.watched_ = X
        return self.scores[self.epochs_ - 1]


def biased(n: int, seed: int) -> tuple[NDArray, NDArray, NDArray]:
    """Two Gaussian classes of the concept, in which one label of the task is four times as common as the other."""
    rng = np.random.default_rng(seed)
    z = rng.integers(2, size=n)
    y = np.where(rng.random(n) < 0.8, z, 1 - z)
    X = rng.normal(size=(n, 4))
    X[:, 0] += 1.5 * y
    X[:, 1] += 3 * z
    return X, z, y


def eraser() -> MUtE:
    return MUtE(n_iterations=10, router=None, random_state=0)


def numbered(n: int) -> NDArray:
    """Rows that carry their own number, with -1 where `Stamp` writes."""
    return np.stack([np.arange(n, dtype=float), np.full(n, -1.0)], axis=1)


def test_every_row_goes_to_every_other_class() -> None:
    z, y = np.array(["c", "a", "b", "c"]), [True, False, True, True]
    X, z2, y2, origin = augment(Stamp().fit(numbered(4), z), numbered(4), z, y)
    np.testing.assert_array_equal(X[:4], numbered(4))
    np.testing.assert_array_equal(X[:, 0], origin)  # a twin carries the number of its source
    np.testing.assert_array_equal(X[4:, 1], np.searchsorted(["a", "b", "c"], z2[4:]))
    np.testing.assert_array_equal(y2, np.array(y)[origin])
    for row in range(4):
        assert sorted(z2[origin == row]) == ["a", "b", "c"]
    assert y2.dtype == bool and z2.dtype == z.dtype


@pytest.mark.parametrize(
    ("needs_concept", "oracle", "told"), [(False, None, False), (True, None, True), (False, True, True)]
)
def test_only_an_eraser_that_needs_it_is_told_the_class(needs_concept: bool, oracle: bool | None, told: bool) -> None:
    stamp = Stamp().fit(numbered(3), np.array([0, 1, 1]))
    stamp.needs_concept = needs_concept
    augment(stamp, numbered(3), [0, 1, 1], [0, 0, 1], oracle=oracle)
    assert (stamp.told_ is not None) == told


def test_a_routed_row_starts_from_where_the_router_sends_it() -> None:
    z = np.array([0, 1, 0])
    stamp = RoutedStamp().fit(numbered(3), z)
    _, z2, _, _ = augment(stamp, numbered(3), z, z)
    np.testing.assert_array_equal(z2, [0, 1, 0, 0, 0, 0])
    _, z2, _, _ = augment(stamp, numbered(3), z, z, oracle=True)
    np.testing.assert_array_equal(z2, [0, 1, 0, 1, 0, 1])


def test_twins_are_the_erasers_counterfactuals() -> None:
    X, z, y = biased(500, seed=0)
    for fitted, told in ((eraser(), True), (MUtE(n_iterations=2, router=LogisticRegression(), random_state=0), False)):
        fitted.fit(X, z)
        rows, z2, _, _ = augment(fitted, X.astype(np.float32), z, y, oracle=told)
        start = z if told else fitted.route(X.astype(np.float32))
        expected = fitted.counterfactual(X.astype(np.float32), 1 - start, concept=z if told else None)
        np.testing.assert_array_equal(rows[500:], expected)
        np.testing.assert_array_equal(z2[500:], 1 - start)
        assert rows.dtype == np.float32


def test_twins_have_the_law_of_their_target() -> None:
    X, z, y = biased(4000, seed=1)
    rows, z2, _, _ = augment(eraser().fit(X, z), X, z, y, oracle=True)
    twin = np.arange(8000) >= 4000
    for k in (0, 1):
        mine, theirs = rows[~twin & (z2 == k)], rows[twin & (z2 == k)]
        # On the rows of the fit the marginals agree up to the grid they are kept on, far below the sampling error of
        # a mean of 2,000 rows, 0.02.
        np.testing.assert_allclose(mine.mean(axis=0), theirs.mean(axis=0), atol=0.02)
        np.testing.assert_allclose(mine.std(axis=0), theirs.std(axis=0), atol=0.05)


def fit_spy(control: str | None, **settings: Any) -> CounterfactualAugmentation:
    z = np.arange(40) % 2
    return CounterfactualAugmentation(Spy(**settings), Stamp(), control=control, random_state=0).fit(
        numbered(40), z, concept=z
    )


@pytest.mark.parametrize(("control", "copies"), [(None, 2), ("shuffled", 2), ("duplicate", 2), ("original", 1)])
def test_watched_rows_are_originals_without_twins_in_training(control: str | None, copies: int) -> None:
    spy = fit_spy(control).estimator_
    sources, counts = np.unique(spy.learned_[:, 0], return_counts=True)
    assert len(sources) == 30 and (counts == copies).all()
    assert set(spy.watched_[:, 0]) == set(range(40)) - set(sources)
    assert (spy.watched_[:, 1] == -1).all()
    twins = int((spy.learned_[:, 1] >= 0).sum())
    assert twins == (30 if control in (None, "shuffled") else 0)


def test_training_stops_after_the_best_epoch_and_keeps_it() -> None:
    model = fit_spy(None)
    assert model.estimator_.epochs_ == 2  # of five: three in a row were no better
    first, second = model.estimator_.orders_
    assert first != second and sorted(first) == sorted(second)
    assert fit_spy(None, max_iter=1).estimator_.epochs_ == 1
    assert model.estimator.early_stopping  # what the user gave stays as it was


@pytest.mark.parametrize(
    "network",
    [
        MLPClassifier(early_stopping=True, max_iter=15, random_state=0),
        # Without averaging, the weights swing with the last rows of an epoch.
        SGDClassifier(early_stopping=True, average=True, random_state=0),
    ],
)
def test_scikit_learns_own_early_stoppers(network: Any) -> None:
    X, z, y = biased(600, seed=2)
    model = CounterfactualAugmentation(network, eraser(), oracle=True, random_state=0).fit(X, y, concept=z)
    assert model.score(X, y) > 0.65  # the task's own column alone gives Φ(0.75) = 0.77


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (
            HistGradientBoostingClassifier(),
            "early_stopping='auto', and would hold out counterfactuals .* set early_stopping=False",
        ),
        (make_pipeline(MLPClassifier(early_stopping=True)), "set mlpclassifier__early_stopping=False"),
        (GaussianNB, "estimator must be a scikit-learn classifier"),
        ("logistic", "estimator must be a scikit-learn classifier, not 'logistic'"),
    ],
)
def test_estimators_that_cannot_be_used(estimator: Any, message: str) -> None:
    X, z, y = biased(100, seed=3)
    with pytest.raises(MuteError, match=message):
        CounterfactualAugmentation(estimator, Stamp()).fit(X, y, concept=z)


def test_copies_teach_nothing_that_the_rows_do_not() -> None:
    # Naive Bayes knows means, variances and shares only, which copies leave as they are.
    X, z, y = biased(300, seed=4)
    model = CounterfactualAugmentation(GaussianNB(), Stamp(), control="duplicate").fit(X, y, concept=z)
    np.testing.assert_allclose(model.predict_proba(X), GaussianNB().fit(X, y).predict_proba(X), atol=1e-9)
    assert model.eraser_ is None


def test_shuffled_control_fits_the_eraser_on_permuted_labels() -> None:
    z = np.repeat([0, 1], [60, 40])
    model = CounterfactualAugmentation(GaussianNB(), Stamp(), control="shuffled", oracle=True, random_state=0)
    fitted = model.fit(numbered(100), z, concept=z).eraser_
    np.testing.assert_array_equal(np.bincount(fitted.fitted_on_), [60, 40])
    assert 30 < (fitted.fitted_on_ == z).sum() < 70  # 52 expected, with a standard deviation of 5
    np.testing.assert_array_equal(fitted.told_.astype(int), fitted.fitted_on_)


def test_a_frozen_eraser_is_used_as_it_is() -> None:
    X, z, y = biased(1000, seed=5)
    frozen = FrozenEstimator(eraser().fit(*biased(1000, seed=6)[:2]))
    model = CounterfactualAugmentation(GaussianNB(), frozen, oracle=True).fit(X, y, concept=z)
    assert model.eraser_ is frozen
    with pytest.raises(MuteError, match="a FrozenEstimator forbids; give the eraser itself"):
        clone(model).set_params(control="shuffled").fit(X, y, concept=z)
    with pytest.raises(NotFittedError):
        CounterfactualAugmentation(GaussianNB(), FrozenEstimator(eraser())).fit(X, y, concept=z)


def test_it_is_a_scikit_learn_classifier() -> None:
    X, z, y = biased(300, seed=7)
    names = np.array(["no", "yes"])[y]
    model = CounterfactualAugmentation(MLPClassifier(max_iter=5, early_stopping=True), Stamp(), random_state=0)
    model.set_params(estimator__random_state=0)
    stamped = X[:, :2]
    first, second = (clone(model).fit(stamped, names, concept=z.astype(str)) for _ in range(2))
    np.testing.assert_array_equal(first.predict_proba(stamped), second.predict_proba(stamped))
    assert list(first.classes_) == ["no", "yes"] and first.n_features_in_ == 2
    assert first.score(stamped, names) == (first.predict(stamped) == names).mean()
    assert not hasattr(clone(model).set_params(estimator=LinearSVC()), "predict_proba")
    with pytest.raises(NotFittedError):
        model.predict(stamped)
    with pytest.raises(MuteError, match="X has 4 features, but CounterfactualAugmentation is expecting 2"):
        first.predict(X)


def test_counterfactuals_close_the_gap_that_copies_leave() -> None:
    X, z, y = biased(3000, seed=8)
    X_test, z_test, y_test = biased(4000, seed=9)
    found, predicted = {}, {}
    for control in ("duplicate", None):
        model = CounterfactualAugmentation(
            LogisticRegression(), eraser(), control=control, oracle=True, random_state=0
        ).fit(X, y, concept=z)
        predicted[control] = model.predict(X_test)
        found[control] = fairness(y_test, predicted[control], z_test, rng=np.random.default_rng(0))
    # Over eight other pairs of seeds it falls from 0.33-0.40 to 0.17-0.20, by 0.18 with a standard deviation of 0.03;
    # three of these less is 0.09. It does not reach 0, as the twins also take on the label's share in the other class:
    # the gaps turn round, and accuracy falls from 0.83 to 0.70.
    assert found["duplicate"].tpr_rms.value - found[None].tpr_rms.value > 0.09
    assert found[None].tpr[0, 0] < found[None].tpr[1, 0] and found["duplicate"].tpr[0, 0] > found["duplicate"].tpr[1, 0]
    assert found[None].tpr_rms.high < found["duplicate"].tpr_rms.low
    p = paired_p_value(y_test, *predicted.values(), z_test, rng=np.random.default_rng(0), figure="tpr_rms", draws=199)
    assert p == 1 / 200


def test_comparison_shows_all_controls_and_varies_the_seeds() -> None:
    train, (X_test, z_test, y_test) = biased(1500, seed=10), biased(2000, seed=11)
    network = MLPClassifier((8,), early_stopping=True, max_iter=10)
    given = (network, MUtE(n_iterations=5, router=None), *train, X_test, z_test, y_test)
    found = compare_augmentation(*given, random_state=0, repeats=2, oracle=True)
    assert list(found) == ["original", "duplicate", "shuffled", "counterfactual"]
    assert all(len(runs) == 2 for runs in found.values())
    gap = {name: np.mean([run.tpr_rms.value for run in runs]) for name, runs in found.items()}
    assert gap["counterfactual"] < min(gap["original"], gap["duplicate"], gap["shuffled"]) - 0.1
    first, second = found["counterfactual"]
    assert first.accuracy != second.accuracy
    again = compare_augmentation(*given, random_state=0, repeats=1, oracle=True)
    assert again["counterfactual"][0].tpr_rms == first.tpr_rms


def test_comparison_leaves_out_what_a_frozen_eraser_cannot_do() -> None:
    X, z, y = biased(200, seed=12)
    frozen = FrozenEstimator(Stamp().fit(X[:, :2], z))
    found = compare_augmentation(GaussianNB(), frozen, X[:, :2], z, y, X[:, :2], z, y, random_state=0, repeats=1)
    assert list(found) == ["original", "duplicate", "counterfactual"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"eraser": GaussianNB()}, "GaussianNB has no method counterfactual; give an eraser with one, such as MUtE"),
        ({"X": [1.0, 2.0]}, r"X must be of shape \(n, D\), not \(2,\)"),
        ({"z": [0]}, "z has 1 labels for 2 rows"),
        ({"z": [0, 7]}, "z has the label 7, which was not seen in fit"),
        ({"y": [0, 1, 1]}, "y has 3 labels for 2 rows"),
        ({"y": None}, "y is missing"),
    ],
)
def test_bad_input_to_augment(change: dict, message: str) -> None:
    given = {"eraser": Stamp().fit(numbered(2), np.array([0, 1])), "X": numbered(2), "z": [0, 1], "y": [0, 1]}
    with pytest.raises(MuteError, match=message):
        augment(**(given | change))


def test_a_single_class_has_no_other_to_go_to() -> None:
    with pytest.raises(MuteError, match="z has only the class 'f'; give rows of two classes or more"):
        augment(Stamp().fit(numbered(2), np.array(["f", "f"])), numbered(2), ["f", "f"], [0, 1])


@pytest.mark.parametrize(
    ("settings", "change", "message"),
    [
        ({}, {"concept": None}, "concept is missing"),
        ({}, {"concept": [0, 1]}, "concept has 2 labels for 4 rows"),
        ({}, {"y": [0, 1]}, "y has 2 labels for 4 rows"),
        ({"control": "copies"}, {}, "control must be one of None, 'original', .* not 'copies'"),
        ({"eraser": GaussianNB()}, {}, "GaussianNB has no method counterfactual"),
        ({"random_state": "x"}, {}, "random_state must be"),
    ],
)
def test_bad_input_to_the_classifier(settings: dict, change: dict, message: str) -> None:
    model = CounterfactualAugmentation(**({"estimator": GaussianNB(), "eraser": Stamp()} | settings))
    given = {"X": numbered(4), "y": [0, 1, 0, 1], "concept": [0, 0, 1, 1]} | change
    with pytest.raises(MuteError, match=message):
        model.fit(**given)


def test_bad_number_of_repeats() -> None:
    X, z, y = biased(10, seed=13)
    with pytest.raises(MuteError, match="repeats must be a whole number of at least 1, not 0"):
        compare_augmentation(GaussianNB(), Stamp(), X, z, y, X, z, y, random_state=0, repeats=0)
