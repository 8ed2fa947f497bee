"""INLP: the projector, what it takes out, and when it stops."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import mute
from laws import draw
from mute import MuteError
from mute.rivals.inlp import INLP


@parametrize_with_checks([INLP(), INLP(stop_at_majority=False)])
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def shifted(n: int, d: int, by: float, seed: int) -> tuple[NDArray, NDArray]:
    """Two classes that differ in their mean along the first axis and in nothing else."""
    rng = np.random.default_rng(seed)
    z = rng.integers(2, size=n)
    return rng.normal(size=(n, d)) + by * np.outer(z, np.eye(d)[0]), z


class Recording(INLP):
    def _read(self, *rows: Any) -> Any:
        weights, accuracy = super()._read(*rows)
        self.seen = [*getattr(self, "seen", []), weights]
        return weights, accuracy


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_map_is_a_projector_that_annihilates_all_weights(n_classes: int) -> None:
    X, z = draw("skew", 400, 12, seed=0, n_classes=n_classes)
    eraser = Recording(4, stop_at_majority=False, random_state=0).fit(X, z)
    B, W = eraser.basis_, np.concatenate(eraser.seen)
    P = np.eye(12) - B @ B.T
    np.testing.assert_allclose(P @ P, P, atol=1e-14)
    assert B.shape[1] == np.linalg.matrix_rank(W)
    np.testing.assert_allclose(eraser.transform(X), X @ P, atol=1e-12)
    # The basis spans the weights to rounding, relative to their length.
    assert np.linalg.norm(W @ P, axis=1).max() < 1e-12 * np.linalg.norm(W)


def test_it_finds_the_one_direction_there_is_and_spares_the_others() -> None:
    X, z = shifted(8000, 6, 3.0, seed=0)
    eraser = INLP(random_state=0).fit(X, z)
    # 7,200 rows fix a direction to about sqrt(6 / 7200) = 3 %, and further directions that are taken out after it stand
    # for what that error leaves readable.
    assert np.linalg.norm(eraser.basis_[0]) > 0.99
    new, labels = shifted(4000, 6, 3.0, seed=1)
    probe = LogisticRegression().fit(eraser.transform(X), z)
    # 4,000 rows: a standard error of 0.8 points.
    assert LogisticRegression().fit(X, z).score(new, labels) > 0.9
    assert abs(probe.score(eraser.transform(new), labels) - 0.5) < 0.04


def test_it_takes_out_nothing_where_nothing_can_be_read() -> None:
    """Labels drawn by lot stay within one standard error in 84 % of the cases; fewer than 10 of 20 is one in 10,000."""
    sizes = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        eraser = INLP(random_state=seed).fit(rng.normal(size=(600, 3)), rng.integers(2, size=600))
        sizes.append(eraser.basis_.shape[1])
    assert sizes.count(0) >= 10


def test_a_rare_class_far_from_the_origin_is_erased_too() -> None:
    """There, naming the common class is right more often than any classifier through the origin."""
    rng = np.random.default_rng(0)
    z = (rng.random(8000) < 0.1).astype(int)
    X = rng.normal(size=(8000, 4)) + 2.0 * np.outer(z, [1, 0, 0, 0]) + 50
    Q = INLP(random_state=0).fit(X[:5000], z[:5000]).transform(X)
    before, after = (LogisticRegression().fit(R[:5000], z[:5000]).decision_function(R[5000:]) for R in (X - 50, Q))
    assert roc_auc_score(z[5000:], before) > 0.9
    # About 300 rows of the rare class: a standard error of 0.29 / sqrt(300) = 0.017.
    assert abs(roc_auc_score(z[5000:], after) - 0.5) < 0.06


def test_with_a_task_what_tells_the_concept_by_way_of_it_stays() -> None:
    rng = np.random.default_rng(0)
    task = rng.integers(2, size=8000)
    z = np.where(rng.random(8000) < 0.8, task, 1 - task)
    X = rng.normal(size=(8000, 5)) + 3 * np.outer(z, np.eye(5)[0]) + 3 * np.outer(task, np.eye(5)[1])
    # One classifier each: those that follow also take out directions by lot, which may be any.
    blind = INLP(1, random_state=0).fit(X, z).basis_[:, 0]
    by_class = INLP(1, random_state=0).fit(X, concept=z, task=task).basis_[:, 0]
    # A class of the task, 3,600 rows, fixes each coordinate to about 1 / (3 · 0.4 · sqrt(3600)) = 1.4 %, four times
    # which is allowed. Over all rows the linear discriminant has (3, 3 · 0.6 / 2.44), at length 1 (0.97, 0.24).
    assert abs(by_class[1]) < 0.056
    assert abs(blind[1]) > 0.18


def test_with_a_task_every_class_of_it_is_at_the_majority() -> None:
    """The concept is another direction in each class of the task."""
    rng = np.random.default_rng(0)
    task, z = rng.integers(3, size=(9000)), rng.integers(2, size=9000)
    X = rng.normal(size=(9000, 6)) + 3 * z[:, None] * np.eye(6)[task]
    eraser = INLP(random_state=0).fit(X, z, task=task)
    assert np.linalg.norm(eraser.basis_[:3], axis=1).min() > 0.97
    assert len(eraser.history_) < 35


def test_a_task_that_is_the_concept_is_refused() -> None:
    X, z = draw("gauss", 50, 3, seed=0)
    with pytest.raises(MuteError, match="no class of the task"):
        INLP().fit(X, z, task=z)


def test_a_fixed_number_of_classifiers() -> None:
    X, z = draw("gauss", 300, 10, seed=0)
    assert INLP(7, stop_at_majority=False, random_state=0).fit(X, z).basis_.shape == (10, 7)
    assert INLP(35, stop_at_majority=False, random_state=0).fit(X, z).basis_.shape == (10, 10)
    skipped = INLP(7, stop_at_majority=False, min_accuracy=1.0, random_state=0).fit(X[:, :1], z)
    assert skipped.basis_.shape == (1, 0) and len(skipped.history_) == 7


def test_constant_and_repeated_columns() -> None:
    X, z = draw("gauss", 300, 3, seed=0)
    X = np.column_stack([X, X, np.full(len(X), 7.0)])
    eraser = INLP(stop_at_majority=False, random_state=0).fit(X, z)
    assert eraser.basis_.shape[1] <= 3
    assert np.isfinite(eraser.transform(X)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_files_and_seeds(dtype: type, tmp_path: Path) -> None:
    X, z = draw("gauss", 300, 6, seed=0, n_classes=3)
    X = X.astype(dtype)
    eraser = INLP(random_state=0).fit(X, z)
    Q = eraser.transform(X)
    assert Q.dtype == dtype
    np.testing.assert_array_equal(INLP(random_state=0).fit(X, z).transform(X), Q)
    eraser.save(tmp_path / "inlp")
    loaded = mute.load(tmp_path / "inlp")
    np.testing.assert_array_equal(loaded.transform(X), Q)
    assert loaded.history_ == eraser.history_


def test_a_map_that_takes_out_nothing_can_be_stored(tmp_path: Path) -> None:
    X, z = draw("gauss", 300, 6, seed=0)
    eraser = INLP(1, min_accuracy=1.0, random_state=0).fit(X[:, :1], z)
    eraser.save(tmp_path / "inlp")
    np.testing.assert_array_equal(mute.load(tmp_path / "inlp").transform(X[:, :1]), X[:, :1])


def test_a_file_whose_basis_is_none_is_refused() -> None:
    X, z = draw("gauss", 300, 6, seed=0)
    tensors, state = INLP(random_state=0).fit(X, z)._to_artifact()
    with pytest.raises(MuteError, match="not orthonormal"):
        INLP._from_artifact({"basis_": 2 * tensors["basis_"]}, state)


@pytest.mark.parametrize(
    "settings",
    [
        {"n_iterations": 0},
        {"C": 0},
        {"C": "1"},
        {"class_weight": {0: 1}},
        {"min_accuracy": 51},
        {"stop_at_majority": "yes"},
        {"validation_fraction": 1.0},
        {"random_state": "a"},
    ],
)
def test_bad_settings(settings: dict[str, Any]) -> None:
    X, z = draw("gauss", 20, 3, seed=0)
    with pytest.raises(MuteError, match=next(iter(settings))):
        INLP(**settings).fit(X, z)


@pytest.mark.parametrize(("C", "unit"), [(1e300, 1.0), (1e-300, 1.0), (1.0, 1e100), (1.0, 1e150)])
def test_what_the_solver_would_not_end_on_is_refused(C: float, unit: float) -> None:
    X, z = draw("gauss", 50, 3, seed=0)
    with pytest.raises(MuteError, match="C times the variance of the rows must lie between 1e-60 and 1e"):
        INLP(C=C, random_state=0).fit(unit * X, z)


@pytest.mark.parametrize(("C", "unit"), [(1e58, 1.0), (1e-58, 1.0), (1.0, 1e28), (1.0, 1e-28)])
def test_extreme_settings_end(C: float, unit: float) -> None:
    X, z = draw("gauss", 50, 3, seed=0)
    eraser = INLP(C=C, random_state=0).fit(unit * X, z)
    B, erased = eraser.basis_, eraser.transform(unit * X) / unit
    assert np.isfinite(erased).all() and np.isfinite(B).all()
    np.testing.assert_allclose(B.T @ B, np.eye(B.shape[1]), atol=1e-14)
    np.testing.assert_allclose(erased, X - X @ B @ B.T, atol=1e-12)
    np.testing.assert_allclose(eraser.transform(unit * erased) / unit, erased, atol=1e-12)
    assert eraser.history_[-1] == 0.5, "the fit ends when a classifier is at chance on the held-out rows"
    if C * unit < 1:  # the penalty outweighs all rows: the first classifier is zero, and nothing is taken out
        assert len(eraser.history_) == 1 and B.shape[1] == 0
        np.testing.assert_array_equal(erased, unit * X / unit)
    else:  # rows without a penalty: what C = 1 takes out as well, to the tolerance of the solver
        usual = INLP(random_state=0).fit(X, z)
        assert eraser.history_ == usual.history_ and B.shape == usual.basis_.shape
        np.testing.assert_allclose(B @ B.T, usual.basis_ @ usual.basis_.T, atol=0.01)


@pytest.mark.parametrize("name", INLP.PRESETS)
def test_presets(name: str) -> None:
    INLP.from_preset(name)._check_settings()
