"""`adapt`, for the rows that will be published, and training rows without labels (`unlabelled`)."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from sklearn.linear_model import LogisticRegression

import mute
from mute import MUtE
from mute.adversaries.panel import ShrunkQuadratic
from mute.errors import MuteError

pytestmark = pytest.mark.filterwarnings("ignore::mute.WeakResultWarning")

D = 30
QUICK = {"diagnostics": False, "random_state": 0}


def rows(n: int, seed: int, apart: float = 6.0) -> tuple[NDArray, NDArray]:
    """Two classes that a router separates, with covariances of their own."""
    roots = np.eye(D) + np.random.default_rng(50).normal(size=(2, D, D)) / np.sqrt(D)
    rng, z = np.random.default_rng(seed), np.arange(2 * n) % 2
    X = rng.normal(size=(2 * n, D))
    for k in (0, 1):
        X[z == k] = X[z == k] @ roots[k]
    X[:, 0] += apart * z
    return X, z


def score(adversary: Any, q: NDArray, z: NDArray) -> float:
    half = len(z) // 2
    return adversary.fit(q[:half], z[:half]).score(q[half:], z[half:])


ADVERSARIES = [ShrunkQuadratic(0.05), LogisticRegression()]


def published(whose: str, seed: int, n: int = 500) -> tuple[NDArray, NDArray]:
    """The rows that will be published, in random order: the training rows of `rows(n, 0)`, or unseen rows."""
    X, z = rows(n, 0 if whose == "training" else seed + 1)
    order = np.random.default_rng(seed).permutation(len(z))
    return X[order], z[order]


def law_of_moments(q: NDArray) -> list[float]:
    """Two p-values: of the mean, and of the covariance, of rows as those of a standard Gaussian sample.

    The mean of n such rows, times sqrt(n), has D independent standard normal coordinates. The covariance, times n - 1,
    has a Wishart law with n - 1 degrees of freedom. By Bartlett, the entries of its Cholesky factor are independent:
    standard normal below the diagonal, and the square of the i-th on it (from 0) is chi-squared with n - 1 - i degrees.
    """
    n, d = q.shape
    factor = np.linalg.cholesky((n - 1) * np.cov(q, rowvar=False))
    on_diagonal = stats.chi2(n - 1 - np.arange(d)).cdf(np.diag(factor) ** 2)
    below = stats.norm.cdf(factor[np.tril_indices(d, -1)])
    of_mean = stats.kstest(np.sqrt(n) * q.mean(axis=0), "norm")
    return [of_mean.pvalue, stats.kstest(np.concatenate([on_diagonal, below]), "uniform").pvalue]


@pytest.mark.parametrize("whose", ["training", "unseen"])
def test_moments_of_each_class_have_the_law_of_a_gaussian_sample(whose: str) -> None:
    """After one `adapt`, the mean and the covariance of each class are those of an independent Gaussian sample."""
    X, z = rows(500, 0)
    eraser = MUtE(10, router=None, **QUICK).fit(X, z)
    plain, adapted = [], []
    for seed in range(20):
        here, k = published(whose, seed)
        one = eraser.set_params(random_state=seed).adapt(here, concept=k)
        for erase, found in ((eraser, plain), (one, adapted)):
            q = erase.transform(here, concept=k)
            found.append([law_of_moments(q[k == c]) for c in (0, 1)])
    # Under the theorem the p-values are uniform. 20 seeds give 40 for the mean and 40 for the covariance. A test of
    # either forty at level 0.001 fails for one choice of seeds in 500 only.
    for p in np.reshape(adapted, (-1, 2)).T:
        assert stats.kstest(p, "uniform").pvalue > 0.001
    # Without `adapt` the covariances are far from that law: training rows vary too little, unseen rows too much.
    assert np.median(np.reshape(plain, (-1, 2))[:, 1]) < 0.001


@pytest.mark.parametrize("whose", ["training", "unseen"])
@pytest.mark.parametrize("adversary", ADVERSARIES, ids=["quadratic", "logistic"])
def test_an_adversary_trained_on_half_of_the_rows_is_at_chance_on_the_others(adversary: Any, whose: str) -> None:
    """What an adversary learns on one half of the published rows is neither right nor wrong on the other half."""
    X, z = rows(500, 0)
    eraser = MUtE(10, router=None, **QUICK).fit(X, z)
    plain, adapted = [], []
    for seed in range(12):
        here, k = published(whose, seed)
        plain.append(score(adversary, eraser.transform(here, concept=k), k))
        one = eraser.set_params(random_state=seed).adapt(here, concept=k)
        adapted.append(score(adversary, one.transform(here, concept=k), k))
    # Twelve accuracies on 500 rows each: a standard error of 0.0065.
    assert abs(np.mean(adapted) - 0.5) < 0.025
    if adversary is ADVERSARIES[0]:
        leak = np.mean(plain) - 0.5
        assert leak < -0.1 if whose == "training" else leak > 0.1


def test_two_classes_differ_as_two_gaussian_samples_do() -> None:
    X, z = rows(1000, 0)
    eraser = MUtE(10, router=None, **QUICK).fit(X, z)
    apart, wider = [], []
    for seed in range(5):
        q = eraser.set_params(random_state=seed).adapt(X, concept=z).transform(X, concept=z)
        own = [q[z == k] for k in (0, 1)]
        apart.append(((own[0].mean(axis=0) - own[1].mean(axis=0)) ** 2).sum())
        wider.append(((np.cov(own[0], rowvar=False) - np.cov(own[1], rowvar=False)) ** 2).sum())
    # The means differ by D numbers of variance 2/n. Covariances of variance 2/n stand off the diagonal, D (D - 1) of
    # them, and D variances of variance 4/n on it: 2 D (D + 1) / n in all. Five runs of chi-squared 30 vary by 12 %,
    # of 465 independent covariances by 3 %: 0.3 and 0.1 are 2.5 and 3 standard errors.
    assert np.mean(apart) == pytest.approx(2 * D / 1000, rel=0.3)
    assert np.mean(wider) == pytest.approx(2 * D * (D + 1) / 1000, rel=0.1)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_an_adapted_eraser_is_an_eraser(dtype: type, tmp_path: Any) -> None:
    X, z = rows(300, 0)
    X = X.astype(dtype)
    eraser = MUtE(5, router="logistic", **QUICK).fit(X, z)
    before = eraser.transform(X)
    adapted = eraser.adapt(X)
    assert eraser.n_iterations_ == 5 and adapted.n_iterations_ == 8
    np.testing.assert_array_equal(eraser.transform(X), before)
    q = adapted.transform(X)
    assert q.dtype == dtype
    exact = 1e-8 if dtype == np.float64 else 1e-2
    route = adapted.route(X)
    np.testing.assert_allclose(adapted.inverse_transform(q, concept=route), X, atol=exact)
    np.testing.assert_allclose(adapted.counterfactual(X, route, concept=route), X, atol=exact)
    adapted.save(tmp_path / "adapted.safetensors")
    np.testing.assert_array_equal(mute.load(tmp_path / "adapted.safetensors").transform(X), q)
    np.testing.assert_array_equal(eraser.adapt(X).transform(X), q)


def test_adapt_needs_more_rows_than_columns() -> None:
    X, z = rows(300, 0)
    eraser = MUtE(5, router=None, **QUICK).fit(X, z)
    with pytest.raises(MuteError, match=r"more rows of each class than there are columns \(30\), but class 0 has 20"):
        eraser.adapt(X[:40], concept=z[:40])


def test_unlabelled_rows_reduce_the_leak() -> None:
    (X, z), (more, z_more), (new, z_new) = (rows(n, seed, apart=12) for seed, n in enumerate((200, 5000, 5000)))
    few = MUtE(10, router="logistic", **QUICK).fit(X, z)
    many = MUtE(10, router="logistic", **QUICK).fit(X, z, unlabelled=more)
    labelled = MUtE(10, router="logistic", **QUICK).fit(np.concatenate([X, more]), np.concatenate([z, z_more]))
    leaks = [score(ADVERSARIES[0], eraser.transform(new), z_new) for eraser in (few, many, labelled)]
    assert leaks[0] > 0.7, "there is a leak to reduce"
    assert leaks[1] < leaks[0] - 0.1
    # The classes are so far apart that the router does not err: true labels are not better.
    assert leaks[1] < leaks[2] + 0.03


def test_the_router_learns_from_labelled_rows_alone() -> None:
    X, z = rows(200, 0)
    odd = np.random.default_rng(0).normal(size=(500, D)) * 100  # would spoil any router that learned from them
    eraser = MUtE(5, router="logistic", **QUICK).fit(X, z, unlabelled=odd)
    other = MUtE(5, router="logistic", **QUICK).fit(X, z, unlabelled=X[:100])
    np.testing.assert_array_equal(eraser.router_.weights[0], other.router_.weights[0])
    assert eraser.routing_.error == other.routing_.error
    assert eraser.fitted_on_["rows"] == 900 and eraser.fitted_on_["unlabelled"] == 500


@pytest.mark.parametrize(
    ("settings", "more", "message"),
    [
        ({"router": None}, np.zeros((5, D)), "unlabelled requires a router, but router=None"),
        ({}, np.zeros((5, D + 1)), f"unlabelled cannot be used: X has {D + 1} features"),
        ({}, np.full((5, D), np.nan), "unlabelled"),
        ({}, iter([np.zeros((5, D))]), "a fit with unlabelled takes arrays only, not rows in blocks"),
    ],
)
def test_rows_without_labels_that_cannot_be_used(settings: dict, more: Any, message: str) -> None:
    X, z = rows(100, 0)
    eraser = MUtE(4, **{"router": "logistic", **QUICK, **settings})
    with pytest.raises(MuteError, match=message):
        eraser.fit(X, z, unlabelled=more)
    assert not hasattr(eraser, "flow_")
