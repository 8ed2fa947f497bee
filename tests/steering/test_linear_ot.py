"""Mean Difference and Linear OT: push-forwards, inverses, limits, and agreement with POT."""

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import mute
from laws import draw
from mute import MuteError
from mute.estimators.transport import barycentre, frechet_distance, transport
from mute.rivals import QLEACE
from mute.steering import LinearOT, MeanDifference

D = 6


@pytest.fixture(scope="module", params=[2, 3])
def rows(request: pytest.FixtureRequest) -> tuple[NDArray, NDArray]:
    return draw("skew", 400, D, seed=0, n_classes=request.param)


def spd(seed: int, d: int = D) -> NDArray:
    M = np.random.default_rng(seed).normal(size=(d, d + 3))
    return M @ M.T / d


@parametrize_with_checks([MeanDifference(router="logistic"), LinearOT(), LinearOT(reg=0.0, router="logistic")])
def test_scikit_learns_checks(estimator, check) -> None:
    check(estimator)


def test_mean_difference(rows: tuple[NDArray, NDArray]) -> None:
    X, z = rows
    model = MeanDifference(router=None).fit(X, z)
    moved = model.counterfactual(X[z == 0], 1, concept=z[z == 0])
    np.testing.assert_allclose(moved.mean(axis=0), X[z == 1].mean(axis=0), atol=1e-12)
    back = model.counterfactual(moved, 0, concept=np.ones(len(moved), int))
    np.testing.assert_allclose(back, X[z == 0], atol=1e-12)
    np.testing.assert_array_equal(model.counterfactual(X, z, concept=z), X)
    # The covariance is that of the source still.
    np.testing.assert_allclose(np.cov(moved.T), np.cov(X[z == 0].T), atol=1e-10)


def test_strength(rows: tuple[NDArray, NDArray]) -> None:
    X, z = rows
    whole, half = (MeanDifference(s, router=None).fit(X, z).counterfactual(X, 1, concept=z) for s in (1.0, 0.5))
    np.testing.assert_allclose(half - X, (whole - X) / 2, atol=1e-12)
    Q = MeanDifference(0.5, router=None).fit(X, z).transform(X, concept=z)
    np.testing.assert_allclose(
        MeanDifference(0.5, router=None).fit(X, z).inverse_transform(Q, concept=z), X, atol=1e-12
    )


def test_transport_maps() -> None:
    S, T = spd(0), spd(1)
    A, B = transport(S, T), transport(T, S)
    np.testing.assert_allclose(A, A.T, atol=1e-14)
    assert np.linalg.eigvalsh(A)[0] > 0
    np.testing.assert_allclose(A @ S @ A, T, atol=1e-8)
    np.testing.assert_allclose(A @ B, np.eye(D), atol=1e-8)


def test_transport_where_there_is_no_variance() -> None:
    S, T = spd(0), spd(1)
    S[-1], S[:, -1], T[-1], T[:, -1] = 0, 0, 0, 0
    A = transport(S, T)
    np.testing.assert_allclose(A @ S @ A, T, atol=1e-8)
    np.testing.assert_allclose(A[-1], np.eye(D)[-1], atol=1e-8)


def test_equal_to_pot(rows: tuple[NDArray, NDArray]) -> None:
    ot = pytest.importorskip("ot")
    X, z = rows
    reg = 1e-3
    model = LinearOT(reg, relative=False, router=None).fit(X, z)
    A, b = ot.gaussian.empirical_bures_wasserstein_mapping(X[z == 0], X[z == 1], reg=reg)
    moved = model.counterfactual(X[z == 0], 1, concept=z[z == 0])
    np.testing.assert_allclose(moved, X[z == 0] @ A + b, atol=1e-8)


def test_barycentre_equals_pots() -> None:
    ot = pytest.importorskip("ot")
    C, w = np.array([spd(0), spd(1), spd(2)]), np.array([0.5, 0.3, 0.2])
    theirs = ot.gaussian.bures_wasserstein_barycenter(np.zeros((3, D)), C, weights=w, num_iter=1000, eps=1e-14)[1]
    np.testing.assert_allclose(barycentre(C, w), theirs, atol=1e-7)


def test_two_classes_meet_on_the_geodesic() -> None:
    """The closed form for two is the fixed point that more are met by."""
    C, w = np.array([spd(0), spd(1)]), np.array([0.7, 0.3])
    three = barycentre(np.array([C[0], C[1], C[1]]), np.array([0.7, 0.2, 0.1]))
    np.testing.assert_allclose(barycentre(C, w), three, atol=1e-9)


def test_the_barycentre_is_nearest() -> None:
    C, w = np.array([spd(0), spd(1), spd(2)]), np.array([0.5, 0.3, 0.2])
    mean = np.zeros(D)

    def cost(S: NDArray) -> float:
        return sum(w[k] * frechet_distance(mean, S, mean, C[k]) for k in range(3))

    S = barycentre(C, w)
    for seed in range(20):
        noise = 0.05 * np.random.default_rng(seed).normal(size=(D, D))
        assert cost((np.eye(D) + noise) @ S @ (np.eye(D) + noise).T) > cost(S)


def test_frechet_distance_of_a_known_case() -> None:
    # Along shared axes it is the sum of squared differences of means and of standard deviations.
    S, T = np.diag([1.0, 4.0]), np.diag([9.0, 4.0])
    assert frechet_distance(np.zeros(2), S, np.array([3.0, 0.0]), T) == pytest.approx(9 + 4)


def test_moved_rows_have_the_moments_of_the_target(rows: tuple[NDArray, NDArray]) -> None:
    X, z = rows
    model = LinearOT(0.0, router=None).fit(X, z)
    for i in np.unique(z):
        for j in np.unique(z):
            moved = model.counterfactual(X[z == i], j, concept=z[z == i])
            np.testing.assert_allclose(moved.mean(axis=0), X[z == j].mean(axis=0), atol=1e-9)
            np.testing.assert_allclose(np.cov(moved.T), np.cov(X[z == j].T), atol=1e-8)


def test_what_the_ridge_does_to_the_covariance(rows: tuple[NDArray, NDArray]) -> None:
    X, z = rows
    ridge = 0.3
    model = LinearOT(ridge, relative=False, router=None).fit(X, z)
    moved = model.counterfactual(X[z == 0], 1, concept=z[z == 0])
    A = model._transports.between(0, 1)
    expected = np.cov(X[z == 1].T, bias=True) + ridge * (np.eye(D) - A @ A)
    np.testing.assert_allclose(np.cov(moved.T, bias=True), expected, atol=1e-9)


def test_there_and_back(rows: tuple[NDArray, NDArray]) -> None:
    X, z = rows
    model = LinearOT(1e-3, router=None).fit(X, z)
    new, _ = draw("skew", 50, D, seed=7)
    ones, zeros = np.ones(len(new), int), np.zeros(len(new), int)
    moved = model.counterfactual(new, 1, concept=zeros)
    np.testing.assert_allclose(model.counterfactual(moved, 0, concept=ones), new, atol=1e-9)
    np.testing.assert_allclose(model.counterfactual(new, 0, concept=zeros), new, atol=1e-12)
    Q = model.transform(new, concept=ones)
    np.testing.assert_allclose(model.inverse_transform(Q, concept=ones), new, atol=1e-9)


def test_a_large_ridge_is_mean_difference(rows: tuple[NDArray, NDArray]) -> None:
    X, z = rows
    ridged = LinearOT(1e9, router=None).fit(X, z).counterfactual(X, 1, concept=z)
    plain = MeanDifference(router=None).fit(X, z).counterfactual(X, 1, concept=z)
    np.testing.assert_allclose(ridged, plain, atol=1e-6)


def test_least_displacement(rows: tuple[NDArray, NDArray]) -> None:
    """Any other affine map to the same moments, the same with a rotation that keeps the target's, moves rows more."""
    X, z = rows
    mine = X[z == 0]
    moved = LinearOT(0.0, router=None).fit(X, z).counterfactual(mine, 1, concept=z[z == 0])
    T, mean = np.cov(X[z == 1].T), X[z == 1].mean(axis=0)
    half = np.linalg.cholesky(T)
    for seed in range(20):
        R = np.linalg.qr(np.random.default_rng(seed).normal(size=(D, D)))[0]
        other = (moved - mean) @ np.linalg.inv(half).T @ R @ half.T + mean
        np.testing.assert_allclose(np.cov(other.T), T, atol=1e-8)
        assert ((moved - mine) ** 2).sum() < ((other - mine) ** 2).sum()


def test_the_ridge_is_relative(rows: tuple[NDArray, NDArray]) -> None:
    """In other units the map is the same map."""
    X, z = rows
    plain = LinearOT(0.1, router=None).fit(X, z).counterfactual(X, 1, concept=z)
    small = LinearOT(0.1, router=None).fit(1e-3 * X, z).counterfactual(1e-3 * X, 1, concept=z)
    np.testing.assert_allclose(small, 1e-3 * plain, atol=1e-10)


@pytest.mark.parametrize(("n", "least", "most"), [(20_000, 0.0, 1e-3), (12, 1e-2, 1.0)])
def test_the_ridge_that_is_chosen(n: int, least: float, most: float) -> None:
    """Many rows need none; with fewer rows than columns the covariances alone would not do."""
    X, z = draw("gauss", n, 20, seed=0)
    assert least <= LinearOT(router=None, random_state=0).fit(X, z).reg_ <= most


@pytest.mark.parametrize("model", [LinearOT(0.0, router=None), QLEACE(shrinkage=False, router=None)], ids=repr)
def test_classes_that_vary_in_other_directions(model) -> None:
    """One class is flat where the other is not: the way back would lose a column, so there is no way there."""
    X, z = draw("gauss", 50, 4, seed=0)
    X[z == 0, 3] = 1.0
    with pytest.raises(MuteError, match="do not vary in the same directions"):
        clone(model).fit(X, z)
    ridged = LinearOT(1e-3, router=None).fit(X, z)
    Q = ridged.transform(X, concept=z)
    np.testing.assert_allclose(ridged.inverse_transform(Q, concept=z), X, atol=1e-9)
    # Where all classes are flat there is nothing to lose.
    X[:, 3] = 1.0
    flat = clone(model).fit(X, z)
    np.testing.assert_allclose(flat.inverse_transform(flat.transform(X, concept=z), concept=z), X, atol=1e-9)


def test_many_classes_do_not_make_every_pair() -> None:
    X, z = draw("gauss", 30, 4, seed=0, n_classes=12)
    model = LinearOT(1e-2, router=None).fit(X, z)
    model.counterfactual(X, 3, concept=z)
    assert len(model._transports._pairs) <= 22


@pytest.mark.parametrize("make", [MeanDifference, LinearOT])
def test_save_and_load(tmp_path, make, rows: tuple[NDArray, NDArray]) -> None:
    X, z = rows
    model = make(router="logistic", random_state=0).fit(X, z)
    model.save(tmp_path / "model.safetensors")
    again = mute.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.counterfactual(X, 0), model.counterfactual(X, 0))
    np.testing.assert_array_equal(again.transform(X), model.transform(X))
    np.testing.assert_array_equal(again.route(X), model.route(X))
    with pytest.raises(MuteError, match="loaded from a file"):
        again.partial_fit(X, z)


@pytest.mark.parametrize("model", [LinearOT("high"), LinearOT(-1.0), LinearOT(True), MeanDifference(np.inf)])
def test_bad_settings(model) -> None:
    X, z = draw("gauss", 20, 3, seed=0)
    with pytest.raises(MuteError, match="must be"):
        model.fit(X, z)


def test_presets() -> None:
    assert LinearOT.from_preset("paper", router=None).reg == 1e-2
    with pytest.raises(MuteError, match="no preset 'papre'; known presets: paper, authors"):
        LinearOT.from_preset("papre")
