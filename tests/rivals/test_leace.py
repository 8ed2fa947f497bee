"""LEACE and its kin: what they erase, how little they move, and that they agree with the public library."""

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.utils.estimator_checks import parametrize_with_checks

import mute
from laws import draw
from mute import MuteError
from mute.rivals import LEACE, QLEACE, FreeFormLEACE, OracleLEACE


def one_hot(z: NDArray) -> NDArray[np.float64]:
    return (z[:, None] == np.unique(z)).astype(float)


def cross(Q: NDArray, z: NDArray) -> NDArray[np.float64]:
    """Covariance of rows and one-hot labels."""
    Q = Q.astype(float)
    return (Q - Q.mean(axis=0)).T @ (one_hot(z) - one_hot(z).mean(axis=0)) / len(Q)


def displacement(Q: NDArray, X: NDArray) -> float:
    return float(((Q - X) ** 2).sum(axis=1).mean())


@pytest.fixture(scope="module", params=[2, 3, 5])
def rows(request: pytest.FixtureRequest) -> tuple[NDArray, NDArray]:
    X, z = draw("skew", 600, 8, seed=0, n_classes=request.param)
    # Classes of unequal size.
    keep = np.random.default_rng(1).random(len(X)) < 1 / (1 + z)
    return X[keep], z[keep]


@parametrize_with_checks(
    [LEACE(), LEACE(method="orth", shrinkage=False), LEACE(concept_type="continuous"),
     OracleLEACE(router="logistic"), QLEACE(router="logistic"), QLEACE(shrinkage=False, router="logistic"),
     FreeFormLEACE(classifier="logistic")]
)  # fmt: skip
def test_scikit_learns_checks(estimator, check) -> None:
    check(estimator)


@pytest.mark.parametrize("settings", [{}, {"shrinkage": False}, {"method": "orth"}])
def test_leace_leaves_no_covariance(rows: tuple[NDArray, NDArray], settings: dict) -> None:
    X, z = rows
    eraser = LEACE(**settings).fit(X, z)
    Q = eraser.transform(X)
    assert np.linalg.norm(cross(Q, z)) < 1e-8 * np.linalg.norm(cross(X, z))
    P = eraser.projection_
    np.testing.assert_allclose(P @ P, P, atol=1e-10)
    assert eraser.read_.shape[1] == np.linalg.matrix_rank(cross(X, z)) == len(np.unique(z)) - 1
    np.testing.assert_allclose(Q.mean(axis=0), X.mean(axis=0), atol=1e-10)
    S = np.cov(X.T)
    if settings != {}:  # with shrinkage it is the shrunk covariance whose trace cannot grow
        assert np.trace(P @ S @ P.T) <= np.trace(S) * (1 + 1e-12)


def test_no_linear_classifier_beats_a_constant(rows: tuple[NDArray, NDArray]) -> None:
    X, z = rows
    Q = LEACE().fit(X, z).transform(X)
    constant = log_loss(z, np.tile(np.bincount(z) / len(z), (len(z), 1)))
    probe = LogisticRegression(C=1e6, max_iter=2000)
    assert log_loss(z, probe.fit(X, z).predict_proba(X)) < 0.8 * constant
    assert log_loss(z, probe.fit(Q, z).predict_proba(Q)) > constant - 1e-6


def test_leace_moves_rows_least(rows: tuple[NDArray, NDArray]) -> None:
    """Among affine maps that leave no covariance: the orthogonal projection, and fifty random oblique ones."""
    X, z = rows
    C = cross(X, z)
    U = np.linalg.svd(C)[0][:, : np.linalg.matrix_rank(C)]
    centred = X - X.mean(axis=0)
    best = displacement(LEACE(shrinkage=False).fit(X, z).transform(X), X)
    assert best <= displacement(LEACE(method="orth").fit(X, z).transform(X), X) * (1 + 1e-12)
    rng = np.random.default_rng(0)
    for _ in range(50):
        # Q = X - (X - mean) B Uᵀ with Uᵀ-preimage B: BᵀU = I makes the covariance zero.
        B = U + 0.5 * (np.eye(len(U)) - U @ U.T) @ rng.normal(size=U.shape)
        Q = X - centred @ B @ U.T
        assert np.linalg.norm(cross(Q, z)) < 1e-8
        assert best < displacement(Q, X)


def test_any_quadratic_norm(rows: tuple[NDArray, NDArray]) -> None:
    """The same solution is least in every norm: stretch the space, erase, go back."""
    X, z = rows
    M = np.eye(8) + np.random.default_rng(0).normal(size=(8, 8)) / 4
    plain = LEACE(shrinkage=False).fit(X, z).transform(X)
    stretched = LEACE(shrinkage=False).fit(X @ M, z).transform(X @ M) @ np.linalg.inv(M)
    np.testing.assert_allclose(stretched, plain, atol=1e-8)


def test_labels_that_are_numbers_are_not_a_scale() -> None:
    """The public library, given the integers 0, 1, 2 as they are, removes one direction of two."""
    leace = pytest.importorskip("concept_erasure")
    import torch

    X, z = draw("gauss", 500, 6, seed=0, n_classes=3)
    X[:, :3] += 4 * np.eye(3)[z]
    wrong = leace.LeaceEraser.fit(torch.tensor(X), torch.tensor(z))(torch.tensor(X)).numpy()
    assert np.linalg.norm(cross(wrong, z)) > 0.1 * np.linalg.norm(cross(X, z))
    right = LEACE().fit(X, z).transform(X)
    assert np.linalg.norm(cross(right, z)) < 1e-8 * np.linalg.norm(cross(X, z))
    probe = LogisticRegression(max_iter=1000)
    assert probe.fit(wrong, z).score(wrong, z) > 0.5
    assert probe.fit(right, z).score(right, z) < 0.38  # a third, and what 18 weights fit of 1,500 labels by chance


@pytest.mark.parametrize("shrinkage", [False, True])
@pytest.mark.parametrize("method", ["leace", "orth"])
def test_equal_to_the_public_library(rows: tuple[NDArray, NDArray], shrinkage: bool, method: str) -> None:
    leace = pytest.importorskip("concept_erasure")
    import torch

    X, z = rows
    # Its tolerance is absolute; its guard of the trace should never act.
    theirs = leace.LeaceEraser.fit(
        torch.tensor(X), torch.tensor(one_hot(z)), method=method, shrinkage=shrinkage, svd_tol=1e-8,
        constrain_cov_trace=False,
    )  # fmt: skip
    ours = LEACE(method=method, shrinkage=shrinkage).fit(X, z)
    np.testing.assert_allclose(ours.projection_, theirs.P.numpy(), atol=1e-6)
    np.testing.assert_allclose(ours.transform(X), theirs(torch.tensor(X)).numpy(), atol=1e-6)


def test_a_rare_class_is_erased() -> None:
    """With 0.5 % of the rows its singular value lies below the public library's absolute tolerance."""
    rng = np.random.default_rng(0)
    z = np.repeat([0, 1, 2], [3000, 2970, 30])
    X = rng.normal(size=(6000, 5)) + 2 * np.eye(5)[z]
    for eraser in (LEACE().fit(X, z), OracleLEACE(router=None).fit(X, z)):
        Q = eraser.transform(X, concept=z)
        means = np.array([Q[z == k].mean(axis=0) for k in range(3)])
        np.testing.assert_allclose(means, means[:1].repeat(3, 0), atol=1e-9)


def test_continuous_concept() -> None:
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(1000, 2))
    X = rng.normal(size=(1000, 6)) + Z @ rng.normal(size=(2, 6))
    Q = LEACE(concept_type="continuous").fit(X, Z).transform(X)
    before, after = ((A - A.mean(axis=0)).T @ (Z - Z.mean(axis=0)) for A in (X, Q))
    assert np.abs(after).max() < 1e-9 * np.abs(before).max()
    # The same estimator, fitted anew on labels and back.
    eraser = LEACE().fit(X, Z[:, 0] > 0)
    eraser.set_params(concept_type="continuous").fit(X, Z)
    assert not hasattr(eraser, "classes_")
    np.testing.assert_array_equal(eraser.transform(X), Q)
    # One-hot labels as numbers are the categorical case.
    z = rng.integers(3, size=1000)
    as_numbers = LEACE(concept_type="continuous").fit(X, one_hot(z)).transform(X)
    np.testing.assert_allclose(as_numbers, LEACE().fit(X, z).transform(X), atol=1e-8)


def test_more_knowledge_moves_less(rows: tuple[NDArray, NDArray]) -> None:
    X, z = rows
    oracle = displacement(OracleLEACE(router=None).fit(X, z).transform(X, concept=z), X)
    leace = displacement(LEACE(shrinkage=False).fit(X, z).transform(X), X)
    orth = displacement(LEACE(method="orth").fit(X, z).transform(X), X)
    assert oracle <= leace <= orth


def test_oracle_makes_the_means_equal(rows: tuple[NDArray, NDArray]) -> None:
    X, z = rows
    eraser = OracleLEACE(router=None).fit(X, z)
    Q = eraser.transform(X, concept=z)
    assert np.abs(cross(Q, z)).max() < 1e-10
    np.testing.assert_allclose(eraser.inverse_transform(Q, concept=z), X, atol=1e-12)


def test_quadratic_makes_means_and_covariances_equal(rows: tuple[NDArray, NDArray]) -> None:
    X, z = rows
    eraser = QLEACE(shrinkage=False, router=None).fit(X, z)
    Q = eraser.transform(X, concept=z)
    for k in np.unique(z):
        np.testing.assert_allclose(Q[z == k].mean(axis=0), X.mean(axis=0), atol=1e-9)
        # The fixed point for more than two classes is met to 1e-12 in its maps.
        np.testing.assert_allclose(np.cov(Q[z == k].T, bias=True), np.cov(Q[z == 0].T, bias=True), atol=1e-8)
        assert np.linalg.eigvalsh(eraser.pushes_[k])[0] > 0
        np.testing.assert_allclose(eraser.pushes_[k], eraser.pushes_[k].T, atol=1e-12)
    # Quadratic features tell nothing.
    i, j = np.triu_indices(X.shape[1])
    squares = np.column_stack([Q, Q[:, i] * Q[:, j]])
    assert np.abs(cross(squares, z)).max() < 1e-7
    np.testing.assert_allclose(eraser.inverse_transform(Q, concept=z), X, atol=1e-8)


def test_free_form_leaves_nothing_of_the_classifier(rows: tuple[NDArray, NDArray]) -> None:
    X, z = rows
    eraser = FreeFormLEACE(classifier="mlp" if len(np.unique(z)) == 2 else "logistic", random_state=0).fit(X, z)
    g = eraser.classifier_.predict_proba(X)
    Q = eraser.transform(X)
    left = (Q - Q.mean(axis=0)).T @ (g - g.mean(axis=0)) / len(X)
    assert np.abs(left).max() < 1e-9
    # A function of x may use more than a linear one, and so need less (the classifier is not exact: a tenth).
    assert displacement(Q, X) < 1.1 * displacement(LEACE(shrinkage=False).fit(X, z).transform(X), X)


@pytest.mark.parametrize(
    "eraser",
    [LEACE(), OracleLEACE(router="logistic"), QLEACE(router="logistic"), FreeFormLEACE(classifier="logistic")],
    ids=repr,
)
def test_save_and_load(tmp_path, eraser, rows: tuple[NDArray, NDArray]) -> None:
    X, z = rows
    eraser = clone(eraser).fit(X.astype(np.float32), np.array(["a", "b", "c", "d", "e"])[z])
    eraser.save(tmp_path / "model.safetensors")
    again = mute.load(tmp_path / "model.safetensors")
    assert type(again) is type(eraser)
    np.testing.assert_array_equal(again.transform(X), eraser.transform(X))
    assert again.transform(X.astype(np.float32)).dtype == np.float32


def test_nothing_to_erase(tmp_path) -> None:
    """Classes with one mean: no direction is removed, and the model of no directions can be stored."""
    X = np.random.default_rng(0).normal(size=(50, 3)).repeat(2, axis=0)
    eraser = LEACE(tolerance=0.0).fit(X, np.arange(100) % 2)
    assert eraser.read_.shape[1] == 0 or np.abs(eraser.projection_ - np.eye(3)).max() < 1
    eraser.read_ = eraser.remove_ = np.empty((3, 0))
    eraser.save(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(mute.load(tmp_path / "model.safetensors").transform(X), X)


@pytest.mark.parametrize(
    ("eraser", "message"),
    [
        (LEACE(method="lace"), "method"),
        (LEACE(tolerance=-1), "tolerance"),
        (LEACE(concept_type="ordinal"), "concept_type"),
        (FreeFormLEACE(classifier="svm"), "classifier"),
    ],
)
def test_bad_settings(eraser, message: str) -> None:
    X, z = draw("gauss", 20, 3, seed=0)
    with pytest.raises(MuteError, match=message):
        eraser.fit(X, z)


def test_continuous_concept_that_is_no_number() -> None:
    X, z = draw("gauss", 20, 3, seed=0)
    with pytest.raises(MuteError, match="must hold numbers"):
        LEACE(concept_type="continuous").fit(X, np.array(["a", "b"])[z])
