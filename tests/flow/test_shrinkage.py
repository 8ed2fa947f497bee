"""What the classes share: noise that is known, differences that are kept, and erasure that holds on new rows."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import kstest

from laws import draw
from mute import MUtE
from mute.adversaries.panel import ShrunkQuadratic
from mute.flow.covariances import class_covariances
from mute.flow.fitting import FlowFitter
from mute.flow.marginals import Quantile, gaussian_of
from mute.flow.rotations import make_rotation
from mute.flow.shrinkage import Noise
from mute.flow.whitening import whitening_flow
from storing import store_of

QUICK = {"router": None, "diagnostics": False, "random_state": 0}

SAMPLERS: dict[str, Callable[[np.random.Generator, tuple[int, int]], NDArray]] = {
    "gauss": lambda rng, size: rng.normal(size=size),
    "skew": lambda rng, size: rng.gamma(6, size=size),
    "flat": lambda rng, size: rng.uniform(size=size),
}


@pytest.mark.parametrize("law", SAMPLERS)
def test_the_noise_of_quantiles_is_what_samples_show(law: str) -> None:
    rng, noise, n = np.random.default_rng(0), Noise(40), 2000
    levels = (np.arange(40) + 0.5) / 40
    truth = np.quantile(SAMPLERS[law](rng, (1, 4_000_000))[0], levels)
    centre, spread = gaussian_of(truth, noise.probits)
    q = np.quantile(SAMPLERS[law](rng, (3000, n)), levels, axis=1).T
    sizes = gaussian_of(q, noise.probits)[1]
    shapes = (q - gaussian_of(q, noise.probits)[0][:, None]) / sizes[:, None] - (truth - centre) / spread
    slopes = noise.slopes((truth - centre) / spread)
    # Three thousand samples tell a variance to 3 %; to the second order in 1/n, and at the edges of a uniform, whose
    # density ends there, the formula is off by a little more.
    assert sizes.var() / spread**2 * n == pytest.approx(noise.of_spread(slopes), rel=0.15)
    energy = (shapes**2).mean(axis=1)
    if law == "gauss":
        assert energy.mean() * n == pytest.approx(noise.of_shape(slopes), rel=0.1)
        assert energy.var() / energy.mean() ** 2 == pytest.approx(noise.shape_variance, rel=0.2)


def layers(X: NDArray, z: NDArray, n: int) -> tuple[FlowFitter, list]:
    fitter = FlowFitter.of(
        X, z, max_layers=n, rotation=make_rotation("random"), marginal=Quantile(), shrinkage=True,
        rng=np.random.default_rng(0), n_threads=2,
    )  # fmt: skip
    return fitter, [fitter.add_layer() for _ in range(n)]


@pytest.mark.parametrize("law", ["gauss", "student", "uniform"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_classes_of_one_law_differ_by_chance_alone(law: str, n_classes: int) -> None:
    rng = np.random.default_rng(1)
    size = (3000 * n_classes, 30)
    match law:
        case "gauss":
            X = rng.normal(size=size)
        case "student":
            X = rng.standard_t(5, size=size)
        case "uniform":
            X = rng.uniform(size=size)
    z = np.repeat(np.arange(n_classes), 3000)
    fitter, found = layers(X, z, 8)
    scores = [layer.score for layer in found if layer is not None]
    # The larger of two scores with a standard error of one each, six to eight times.
    assert max(scores) < 4
    assert abs(np.mean(scores)) < 2
    # In all thirty coordinates; a difference of a hundredth of a spread would be 30 * 1e-4 / 2.
    assert max(layer.nats for layer in found if layer is not None) < 30 * 1e-4 / 2
    # So all classes take almost the same map: what is left of two samples' noise is their means. On their own, maps of
    # 3,000 rows differ by 1/sqrt(3000) = 0.018 spreads in place and in scale, in each of eight layers.
    new = rng.permutation(X)[:500]
    first, second = (fitter.flow().push(new, k) for k in (0, 1))
    off = (first - second) - (first - second).mean(axis=0)
    own = MUtE(8, shrinkage=False, rotation="random", **QUICK).fit(X, z).flow_
    off_alone = own.push(new, 0) - own.push(new, 1)
    assert np.sqrt((off**2).mean()) < 0.6 * np.sqrt(((off_alone - off_alone.mean(axis=0)) ** 2).mean())


def test_real_differences_are_kept() -> None:
    """One class Gaussian, one uniform, one skewed: with rows enough each is brought to the Gaussian by its own map."""
    rng, n = np.random.default_rng(0), 20_000
    X = np.concatenate([rng.normal(size=(n, 3)), rng.uniform(-3, 3, size=(n, 3)), 2 * rng.gamma(3, size=(n, 3))])
    z = np.repeat([0, 1, 2], n)
    fitter, found = layers(X, z, 12)
    assert found[0].score > 50
    for k in range(3):
        q = fitter.flow().push(X[z == k], k)
        assert max(kstest(column, "norm").statistic for column in q.T) < 0.015


def covariances_of(strength: float, n: int, seed: int) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """Rows of three Gaussian classes, their labels, their true covariances, and what makes the pooled one one."""
    rng, d = np.random.default_rng(seed), 20
    roots = np.eye(d) + strength * rng.normal(size=(3, d, d)) / np.sqrt(d)
    X = np.concatenate([rng.normal(size=(n, d)) @ root for root in roots])
    truth = roots.transpose(0, 2, 1) @ roots
    return X, np.repeat(np.arange(3), n), truth, np.linalg.inv(np.linalg.cholesky(truth.mean(axis=0)))


@pytest.mark.parametrize("n", [100, 300, 3000])
@pytest.mark.parametrize("strength", [0.0, 0.1, 0.3, 1.0])
def test_covariances_are_nearer_to_the_truth_than_those_of_the_rows(strength: float, n: int) -> None:
    shrunk, own = 0.0, 0.0
    for seed in range(4):
        X, z, truth, white = covariances_of(strength, n, seed)
        found = class_covariances(store_of(X, z), 3, 20)[1]
        for k in range(3):
            shrunk += np.linalg.norm(white @ (found[k] - truth[k]) @ white.T)
            own += np.linalg.norm(white @ (np.cov(X[z == k], rowvar=False) - truth[k]) @ white.T)
    # Where there is no difference at all, three classes' rows serve each: an error of 1 / sqrt(3).
    assert shrunk < (0.65 if strength == 0 else 1.01) * own


@pytest.mark.parametrize("strength", [0.1, 1.0])
def test_covariances_do_not_hang_on_coordinates(strength: float) -> None:
    X, z, *_ = covariances_of(strength, 500, 0)
    change = np.random.default_rng(1).normal(size=(20, 20)) / 6  # small: rows beyond four spreads would be drawn in
    there = class_covariances(store_of(X / 2, z), 3, 20)
    here = class_covariances(store_of(X / 2 @ change, z), 3, 20)
    np.testing.assert_allclose(here[0], there[0] @ change, atol=1e-9)
    # What keeps the pooled covariance from being singular, a billionth of it, is not invariant.
    np.testing.assert_allclose(here[1], change.T @ there[1] @ change, atol=1e-5)


def test_a_far_row_does_not_make_a_covariance() -> None:
    X, z, *_ = covariances_of(0.3, 1000, 0)
    before = class_covariances(store_of(X, z), 3, 20)[1]
    X[5] *= 1e6
    after = class_covariances(store_of(X, z), 3, 20)[1]
    # Drawn in to four typical lengths it weighs as 16 rows of 1,000.
    assert np.abs(after - before).max() < 0.2


def test_covariances_of_classes_with_hardly_any_rows() -> None:
    X, z, *_ = covariances_of(1.0, 400, 0)
    few = np.r_[0:402, 800:1200]
    _, found = class_covariances(store_of(X[few], z[few]), 3, 20)
    assert np.isfinite(found).all()
    sizes = np.linalg.eigvalsh(found)
    assert sizes.min() > 1e-6
    pooled = np.cov(np.concatenate([X[:400], X[800:] - X[800:].mean(axis=0) + X[:400].mean(axis=0)]), rowvar=False)
    np.testing.assert_allclose(found[1], pooled, atol=0.05 * np.abs(pooled).max())


def test_whitening_is_exact() -> None:
    X, z, *_ = covariances_of(1.0, 300, 0)
    means = np.stack([X[z == k].mean(axis=0) for k in range(3)])
    flow = whitening_flow(means, np.stack([np.cov(X[z == k], rowvar=False) for k in range(3)]), 131)
    q = flow.push(X, z)
    for k in range(3):
        np.testing.assert_allclose(q[z == k].mean(axis=0), 0, atol=1e-10)
        np.testing.assert_allclose(np.cov(q[z == k], rowvar=False), np.eye(20), atol=1e-9)
    np.testing.assert_allclose(flow.pull(q, z), X, atol=1e-10)


def quadratic(q: NDArray, z: NDArray) -> float:
    """Accuracy of an adversary that learns on one half of the rows, in the other."""
    half = np.random.default_rng(0).permutation(len(z)) < len(z) // 2
    adversary = ShrunkQuadratic(0.1).fit(q[half], z[half])
    return adversary.score(q[~half], z[~half])


@pytest.mark.filterwarnings("ignore::mute.WeakResultWarning")
@pytest.mark.parametrize("law", ["gauss", "skew", "heavy"])
@pytest.mark.parametrize("n", [300, 1500])
def test_new_rows_show_less(law: str, n: int) -> None:
    X, z = draw(law, n, 30, seed=0)
    new, z_new = draw(law, 6000, 30, seed=1)
    shared = MUtE(10, **QUICK).fit(X, z).transform(new, concept=z_new)
    alone = MUtE(10, shrinkage=False, **QUICK).fit(X, z).transform(new, concept=z_new)
    # Classes that differ in every direction: the hardest case, in which little can be shared. An accuracy on 6,000
    # rows has a standard error of 0.006.
    assert quadratic(shared, z_new) < quadratic(alone, z_new) + 0.012


@pytest.mark.filterwarnings("ignore::mute.WeakResultWarning")
def test_new_rows_show_far_less_where_classes_have_much_in_common() -> None:
    rng = np.random.default_rng(0)

    def rows(n: int) -> tuple[NDArray, NDArray]:
        z = np.repeat([0, 1], n)
        X = rng.normal(size=(2 * n, 40)) @ np.diag(np.linspace(1, 3, 40))
        X[z == 1, 0] = 2 * X[z == 1, 0] + 3
        return X, z

    (X, z), (new, z_new) = rows(400), rows(5000)
    alone = quadratic(MUtE(10, shrinkage=False, **QUICK).fit(X, z).transform(new, concept=z_new), z_new)
    shared = quadratic(MUtE(10, **QUICK).fit(X, z).transform(new, concept=z_new), z_new)
    assert alone > 0.65, "there is something to win"
    # Means of 400 rows are off by 1/20 of a spread in each of 40 directions, and nothing can be done about them: the
    # best adversary then gets 0.5 + 0.09.
    assert shared < 0.6


# A direction in which one class does not vary, a class with fewer rows than columns, columns without any spread -------


def test_odd_rows_stay_finite_and_come_back() -> None:
    rng = np.random.default_rng(0)
    z = np.repeat([0, 1, 2], [2000, 2000, 12])
    X = rng.normal(size=(len(z), 20))
    X[:, 3] = 7.0  # constant
    X[:, 4] = z  # the label itself
    X[z == 1, 5] = 1.0  # constant in one class
    X[:, 6] = X[:, 7]  # twice the same
    X[0, 8] = 1e5  # far out
    with pytest.warns(UserWarning, match="rows"):
        eraser = MUtE(12, **QUICK).fit(X, z)
    new = X[::7] + 0.1 * rng.normal(size=X[::7].shape)
    for rows, k in ((X, z), (new, z[::7])):
        q = eraser.transform(rows, concept=k)
        assert np.isfinite(q).all()
        # The far row is 1e5 spreads out and stays so.
        assert np.abs(np.delete(q, 0, axis=0)).max() < 1e3
        np.testing.assert_allclose(eraser.inverse_transform(q, concept=k), rows, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fewer_rows_than_columns(dtype: type) -> None:
    X, z = draw("gauss", 30, 100, seed=0)
    new, z_new = draw("gauss", 500, 100, seed=1)
    with pytest.warns(UserWarning, match="rows"):
        eraser = MUtE(20, **QUICK).fit(X.astype(dtype), z)
    q = eraser.transform(new.astype(dtype), concept=z_new)
    # Directions that no row showed are not blown up.
    assert np.abs(q).max() < 100
    np.testing.assert_allclose(
        eraser.inverse_transform(q, concept=z_new), new, atol=1e-2 if dtype == np.float32 else 1e-9
    )
