"""RLACE: the Fantope, the game on it and the value of that game."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.utils.estimator_checks import parametrize_with_checks

import mute
from laws import draw
from mute import MuteError
from mute.rivals.rlace import RLACE, FantopePoint, project_onto_fantope

QUICK: dict[str, Any] = {"n_iterations": 4000, "evaluate_every": 500, "random_state": 0}


@parametrize_with_checks([RLACE(n_iterations=40, evaluate_every=20), RLACE(1, n_iterations=20, evaluate_every=20)])
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def by_bisection(values: NDArray, rank: int) -> NDArray:
    low, high = values.min() - 1, values.max()
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if np.clip(values - middle, 0, 1).sum() > rank else (low, middle)
    return np.clip(values - low, 0, 1)


@pytest.mark.parametrize("rank", [1, 3, 8])
@pytest.mark.parametrize("spread", [0.01, 1.0, 100.0])
def test_projection_onto_the_fantope(rank: int, spread: float) -> None:
    values = spread * np.random.default_rng(rank).normal(size=8)
    found = project_onto_fantope(values, rank)
    # To rounding, relative to the eigenvalues.
    limit = 1e-13 * max(spread, 1)
    assert found.min() >= 0 and found.max() <= 1 and abs(found.sum() - rank) < limit
    np.testing.assert_allclose(project_onto_fantope(found, rank), found, atol=limit)
    np.testing.assert_allclose(found, by_bisection(values, rank), atol=limit)


def test_projection_counts_repeated_eigenvalues() -> None:
    values, counts = np.array([1.4, 0.3, -0.2]), np.array([1, 2, 5])
    found = project_onto_fantope(values, 3, counts)
    np.testing.assert_allclose(np.repeat(found, counts), project_onto_fantope(np.repeat(values, counts), 3), atol=1e-14)


def dense(point: FantopePoint) -> NDArray:
    U = point.vectors
    return (U * point.values) @ U.T + point.rest * (np.eye(len(U)) - U @ U.T)


def nearest(A: NDArray, rank: int) -> NDArray:
    values, vectors = np.linalg.eigh(A)
    return (vectors * project_onto_fantope(values, rank)) @ vectors.T


@pytest.mark.parametrize("size", [0.02, 0.5])
@pytest.mark.parametrize("rank", [1, 3])
def test_few_eigenvectors_take_the_same_steps_as_the_whole_matrix(rank: int, size: float) -> None:
    rng = np.random.default_rng(0)
    point = FantopePoint.random(rank, 20, rng)
    P = dense(point)
    for _ in range(60):
        A, W = size * rng.normal(size=(2, 20, 2))
        point = point.moved(A, W, 0.999)
        P = nearest(0.999 * P - (A @ W.T + W @ A.T) / 2, rank)
        # Each step may take eigenvalues for equal that differ by 1e-9, in 20 directions.
        np.testing.assert_allclose(dense(point), P, atol=60 * 20e-9)
        X = rng.normal(size=(3, 20))
        np.testing.assert_allclose(point.take_out(X), X - X @ dense(point), atol=1e-12)
    assert abs(np.trace(dense(point)) - rank) < 1e-6
    assert np.linalg.eigvalsh(dense(point)).min() > -1e-9 and np.linalg.eigvalsh(dense(point)).max() < 1 + 1e-9


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_game_ends_near_its_value(n_classes: int) -> None:
    """That is the entropy of the labels, reached just where the differences of the class means are taken out."""
    X, z = draw("gauss", 2000, 8, seed=0, n_classes=n_classes)
    eraser = RLACE(**QUICK).fit(X, z)
    V = eraser.basis_
    assert V.shape == (8, n_classes - 1)
    np.testing.assert_allclose(V.T @ V, np.eye(n_classes - 1), atol=1e-12)
    Q = eraser.transform(X)
    np.testing.assert_allclose(Q, X - X @ V @ V.T, atol=1e-12)
    means, left = (np.array([rows[z == k].mean(axis=0) for k in range(n_classes)]) for rows in (X, Q))
    # Steps of 0.005 on batches of 128 rows wander about the span by a few per cent (measured: 1 to 3).
    assert np.linalg.norm(left - left.mean(axis=0)) < 0.06 * np.linalg.norm(means - means.mean(axis=0))
    probe = LogisticRegression(C=1e6, max_iter=1000).fit(Q, z)
    loss = log_loss(z, probe.predict_proba(Q))
    # The part of a mean difference d that is left is worth about its square in nats: 0.06² of the whole.
    assert np.log(n_classes) - 0.01 < loss <= np.log(n_classes) + 1e-6
    # The kept round is the one with the highest loss, and the game stopped by itself.
    assert len(eraser.history_) <= 8


def test_it_moves_rows_along_its_directions_only() -> None:
    X, z = draw("gauss", 500, 6, seed=0)
    eraser = RLACE(2, **QUICK).fit(X, z)
    moved = X - eraser.transform(X)
    assert np.linalg.matrix_rank(moved, tol=1e-9 * np.linalg.norm(moved)) == 2
    assert np.linalg.matrix_rank(eraser.transform(X), tol=1e-9 * np.linalg.norm(X)) == 4


def test_a_rare_class_is_erased_too() -> None:
    rng = np.random.default_rng(0)
    z = (rng.random(6000) < 0.05).astype(int)
    X = 100 * (rng.normal(size=(6000, 5)) + 2.0 * np.outer(z, np.eye(5)[0]) + 50)
    eraser = RLACE(**{**QUICK, "n_iterations": 12_000}).fit(X, z)
    # 270 rows of the rare class fix its mean to sqrt(5 / 270) = 0.14, against a difference of 2: a cosine of 0.997.
    assert abs(eraser.basis_[0, 0]) > 0.97


def test_patience() -> None:
    # With one direction for three classes the concept stays readable, so that only patience ends the game.
    z = np.arange(600) % 3
    X = np.random.default_rng(0).normal(size=(600, 4)) + 4 * np.eye(4)[z]
    settings: dict[str, Any] = {"n_iterations": 6000, "evaluate_every": 200, "random_state": 0}
    endless = RLACE(1, **settings).fit(X, z).history_
    patient = RLACE(1, patience=2, **settings).fit(X, z).history_
    assert len(endless) == 30
    assert len(patient) < 30 and np.argmax(patient) == len(patient) - 3
    assert patient == endless[: len(patient)]


def test_constant_and_repeated_columns() -> None:
    X, z = draw("gauss", 300, 3, seed=0)
    X = np.column_stack([X, X, np.full(len(X), 7.0)])
    for rows in (X, np.ones_like(X)):
        eraser = RLACE(n_iterations=40, evaluate_every=20, random_state=0).fit(rows, z)
        assert eraser.basis_.shape == (7, 1)
        assert np.isfinite(eraser.transform(rows)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_files_and_seeds(dtype: type, tmp_path: Path) -> None:
    X, z = draw("gauss", 300, 6, seed=0, n_classes=3)
    X = X.astype(dtype)
    settings = {"n_iterations": 200, "evaluate_every": 100, "random_state": 0}
    eraser = RLACE(**settings).fit(X, z)
    Q = eraser.transform(X)
    assert Q.dtype == dtype
    np.testing.assert_array_equal(RLACE(**settings).fit(X, z).transform(X), Q)
    eraser.save(tmp_path / "rlace")
    loaded = mute.load(tmp_path / "rlace")
    np.testing.assert_array_equal(loaded.transform(X), Q)
    assert loaded.history_ == eraser.history_
    tensors, state = eraser._to_artifact()
    with pytest.raises(MuteError, match="not orthonormal"):
        RLACE._from_artifact({"basis_": 2 * tensors["basis_"]}, state)


@pytest.mark.parametrize(
    "settings",
    [
        {"rank": 0},
        {"rank": 4},
        {"n_iterations": 0},
        {"batch_size": 0},
        {"learning_rate": 0.0},
        {"weight_decay": -1.0},
        {"momentum": 1.0},
        {"tolerance": float("nan")},
        {"evaluate_every": 1.5},
        {"patience": 0},
        {"validation_fraction": 0.0},
    ],
)
def test_bad_settings(settings: dict[str, Any]) -> None:
    X, z = draw("gauss", 20, 3, seed=0)
    with pytest.raises(MuteError, match=next(iter(settings))):
        RLACE(**settings).fit(X, z)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("learning_rate", [1e30, 1e300])
def test_training_that_diverges(learning_rate: float, n_classes: int) -> None:
    X, z = draw("gauss", 100, 5, seed=0, n_classes=n_classes)
    with pytest.raises(MuteError, match=r"training diverged: .*lower the learning rate"):
        RLACE(learning_rate=learning_rate, **QUICK).fit(X, z)


@pytest.mark.parametrize("name", RLACE.PRESETS)
def test_presets(name: str) -> None:
    RLACE.from_preset(name)._check_settings()
