"""RBIG against laws whose entropy and density are known in closed form."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.stats import multivariate_normal, norm

from mute import RBIG, Histogram, MuteError, Quantile

N = 100_000
COVARIANCE = np.array([[2.0, 1.2], [1.2, 1.0]])
MEAN = np.array([1.0, -1.0])
LOG_2PI = np.log(2 * np.pi)
MARGINALS = ["quantile", "histogram"]


def divergence(entropy: float, square: float) -> float:
    """KL to N(0, 1) of a law with this entropy and second moment."""
    return -entropy + 0.5 * LOG_2PI + 0.5 * square


def gauss(rng: np.random.Generator) -> tuple[NDArray, float, float]:
    x = rng.multivariate_normal(MEAN, COVARIANCE, size=N)
    total = 0.5 * (np.trace(COVARIANCE) - np.log(np.linalg.det(COVARIANCE)) - 2 + MEAN @ MEAN)
    return x, total, total


def bumps(rng: np.random.Generator) -> tuple[NDArray, float, float]:
    """Independent coordinates of different spread: two bumps, and one."""

    def density(v: float) -> float:
        return 0.5 * (norm.pdf(v, -3) + norm.pdf(v, 3))

    entropy = -quad(lambda v: density(v) * np.log(density(v)), -12, 12)[0]
    x = np.column_stack([rng.choice([-3, 3], N) + rng.normal(size=N), rng.normal(size=N) * 0.5])
    total = divergence(entropy, 10) + divergence(0.5 * (LOG_2PI + 1) + np.log(0.5), 0.25)
    return x, total, total


def scales(rng: np.random.Generator) -> tuple[NDArray, float, float]:
    """A Gaussian of random width: the same marginals along any axes, coordinates uncorrelated but dependent."""
    widths = np.array([0.5, 1.5])
    x = rng.choice(widths, N)[:, None] * rng.normal(size=(N, 2))

    def density(v: float) -> float:
        return float(norm.pdf(v, scale=widths).mean())

    one = -quad(lambda v: density(v) * np.log(density(v)), -12, 12, limit=200)[0]
    radial = lambda r: np.mean(np.exp(-0.5 * (r / widths) ** 2) / (2 * np.pi * widths**2))  # noqa: E731
    both = -quad(lambda r: 2 * np.pi * r * radial(r) * np.log(radial(r)), 0, 12, limit=200)[0]
    square = float((widths**2).mean())
    return x, 2 * divergence(one, square), -both + LOG_2PI + square


def lognormal(rng: np.random.Generator) -> tuple[NDArray, float, float]:
    roots = np.array([[0.5, 0.3], [0.0, 0.4]])
    g = rng.normal(size=(N, 2)) @ roots
    covariance = roots.T @ roots
    entropy = 0.5 * np.log(np.linalg.det(2 * np.pi * np.e * covariance))  # E sum(log x) = 0
    return np.exp(g), np.nan, -entropy + LOG_2PI + 0.5 * np.exp(2 * np.diag(covariance)).sum()


def disk(rng: np.random.Generator) -> tuple[NDArray, float, float]:
    r, a = np.sqrt(rng.uniform(size=N)), rng.uniform(0, 2 * np.pi, N)
    semicircle = divergence(np.log(np.pi) - 0.5, 0.25)
    return np.column_stack([r * np.cos(a), r * np.sin(a)]), 2 * semicircle, LOG_2PI - np.log(np.pi) + 0.25


def uniform(rng: np.random.Generator) -> tuple[NDArray, float, float]:
    total = divergence(np.log(4), 16 / 3) + divergence(np.log(1), 1 / 3)
    return rng.uniform(size=(N, 2)) * [4, 1], total, total


# In the mean over 100,000 rows the log-ratio of densities, of standard deviation about one, is known to 0.3 %.
@pytest.mark.parametrize("marginal", MARGINALS)
@pytest.mark.parametrize("law", [gauss, bumps, scales])
def test_a_layer_takes_away_the_marginal_negentropies(law: object, marginal: str) -> None:
    x, first, _ = law(np.random.default_rng(0))  # type: ignore[operator]
    model = RBIG(1, marginal=marginal, random_state=0).fit(x)
    assert model.reductions_[0] == pytest.approx(first, rel=0.02)


# Where the density ends at a wall, the straight tails beyond the outermost knots miss a little of it: with more knots
# and cells, less.
@pytest.mark.parametrize("law", [disk, uniform])
def test_a_layer_of_fine_marginals_is_exact_up_to_the_wall(law: object) -> None:
    x, first, _ = law(np.random.default_rng(0))  # type: ignore[operator]
    error = [
        abs(RBIG(1, marginal=m).fit(x).reductions_[0] / first - 1)
        for m in (Quantile(), Quantile(knots=1000, cells=1000))
    ]
    assert error[0] < 0.03
    assert error[1] < 0.02


@pytest.mark.parametrize("marginal", MARGINALS)
@pytest.mark.parametrize("law", [gauss, bumps, lognormal, disk, uniform])
def test_negentropy(law: object, marginal: str) -> None:
    x, _, total = law(np.random.default_rng(0))  # type: ignore[operator]
    model = RBIG(30, marginal=marginal, rotation="random", random_state=0).fit(x)
    # Thirty layers fit a little noise (upwards), thirty random turns leave a little of the law (downwards).
    assert model.negentropy_ == pytest.approx(total, rel=0.03)
    assert model.negentropy_ == pytest.approx(model.reductions_.sum())


def test_reductions_are_the_rise_of_the_score() -> None:
    x, _, _ = lognormal(np.random.default_rng(0))
    x = x[:5000]
    model = RBIG(6, random_state=0).fit(x)
    standard = norm.logpdf(x).sum(axis=1).mean()
    assert model.score(x) - standard == pytest.approx(model.negentropy_, abs=1e-9)
    shorter = RBIG(4, random_state=0).fit(x)
    np.testing.assert_allclose(shorter.reductions_, model.reductions_[:4], atol=1e-9)


@pytest.mark.parametrize("marginal", MARGINALS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_density_integrates_to_one(marginal: str, dtype: type) -> None:
    x = lognormal(np.random.default_rng(0))[0][:5000].astype(dtype)
    model = RBIG(8, marginal=marginal, random_state=0).fit(x)
    # Cells of 0.01 over the square [-3, 9]^2; the rest of the law is below 1e-4. The density jumps at the edges of its
    # pieces, the narrowest of which are a few cells wide: what the sum misses there has either sign.
    side = np.linspace(-3, 9, 1201)[:-1] + 0.005
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2).astype(dtype)
    assert np.exp(model.score_samples(grid)).sum() * 0.01**2 == pytest.approx(1, abs=3e-3)


@pytest.mark.parametrize("marginal", MARGINALS)
def test_density_of_a_gaussian(marginal: str) -> None:
    rng = np.random.default_rng(0)
    model = RBIG(5, marginal=marginal, random_state=0).fit(gauss(rng)[0])
    new = rng.multivariate_normal(MEAN, COVARIANCE, size=20_000)
    error = model.score_samples(new) - multivariate_normal(MEAN, COVARIANCE).logpdf(new)
    # The map has about 250 pieces for 100,000 rows, each slope known to 1/sqrt(400) = 5 %, in two coordinates and
    # with lines over 0.4 % of the mass in the tails; on average the loss is the square of that.
    assert np.sqrt((error**2).mean()) < 0.12
    assert -0.01 < error.mean() < 0
    assert model.score(new) == pytest.approx(model.score_samples(new).mean())


@pytest.mark.parametrize("marginal", MARGINALS)
@pytest.mark.parametrize("law", [gauss, lognormal, scales])
def test_samples_have_the_mean_and_covariance_of_the_law(law: object, marginal: str) -> None:
    x = law(np.random.default_rng(0))[0][:20_000]  # type: ignore[operator]
    new = RBIG(15, marginal=marginal, random_state=0).fit(x).sample(50_000, random_state=1)
    spread = x.std(axis=0)
    # Standard errors: 0.005 of a spread for the mean, 1 to 2 % for covariances of laws with fourth moments like these.
    # The straight tails are lighter than those of the log-normal law, which hold a tenth of its variance.
    np.testing.assert_allclose((new.mean(axis=0) - x.mean(axis=0)) / spread, 0, atol=0.03)
    found = np.cov(new, rowvar=False) / np.outer(spread, spread)
    np.testing.assert_allclose(found, np.corrcoef(x, rowvar=False), atol=0.1 if law is lognormal else 0.04)


def test_sampling_repeats_with_its_seed() -> None:
    model = RBIG(3, random_state=0).fit(gauss(np.random.default_rng(0))[0][:1000])
    np.testing.assert_array_equal(model.sample(10, random_state=3), model.sample(10, random_state=3))
    assert model.sample(1).shape == (1, 2)
    with pytest.raises(MuteError, match="n_samples"):
        model.sample(0)


@pytest.mark.parametrize("rotation", ["alternate", "global", "random", "ica"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_gaussian_out_and_back_again(rotation: str, dtype: type) -> None:
    x = lognormal(np.random.default_rng(0))[0][:10_000].astype(dtype)
    model = RBIG(50, rotation=rotation, random_state=0).fit(x)
    q = model.transform(x)
    assert q.dtype == dtype
    # The log-normal's longer tail is what takes fifty layers.
    np.testing.assert_allclose(q.mean(axis=0), 0, atol=0.01)
    np.testing.assert_allclose(np.cov(q, rowvar=False), np.eye(2), atol=0.02)
    np.testing.assert_allclose(model.inverse_transform(q), x, atol=1e-9 if dtype == np.float64 else 1e-4)


def test_alternate_and_global_are_the_same_with_one_class() -> None:
    x = lognormal(np.random.default_rng(0))[0][:2000]
    one, other = (RBIG(5, rotation=r).fit(x).transform(x) for r in ("alternate", "global"))
    np.testing.assert_array_equal(one, other)


def test_paper_histogram_is_available() -> None:
    x = gauss(np.random.default_rng(0))[0][:5000]
    q = RBIG(1, marginal=Histogram(alpha=1e-10, floor="add")).fit(x).transform(x)
    np.testing.assert_allclose(q.std(axis=0), 1, atol=0.02)


def test_one_row_is_no_law() -> None:
    with pytest.raises(MuteError, match="n_samples = 1"):
        RBIG(2).fit(np.zeros((1, 3)))
