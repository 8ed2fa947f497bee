"""Rows without labels in the fit, and erasers for the rows at hand."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression

import mute
from mute import MUtE
from mute.errors import MuteError

pytestmark = pytest.mark.filterwarnings("ignore::mute.WeakResultWarning")

D = 30
QUICK = {"diagnostics": False, "random_state": 0}


def rows(n: int, seed: int, apart: float = 6.0) -> tuple[NDArray, NDArray]:
    """Two classes that a router tells apart, with covariances of their own."""
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


ADVERSARIES = [QuadraticDiscriminantAnalysis(solver="eigen", shrinkage=0.05), LogisticRegression()]


@pytest.mark.parametrize("whose", ["of the fit", "new"])
@pytest.mark.parametrize("adversary", ADVERSARIES, ids=["quadratic", "logistic"])
def test_halves_tell_nothing_of_each_other(adversary: Any, whose: str) -> None:
    """What an adversary learns on one half of the rows is neither right nor wrong in the other."""
    X, z = rows(500, 0)
    eraser = MUtE(10, router=None, **QUICK).fit(X, z)
    plain, adapted = [], []
    for seed in range(12):
        here, k = (X, z) if whose == "of the fit" else rows(500, seed + 1)
        order = np.random.default_rng(seed).permutation(len(k))
        here, k = here[order], k[order]
        plain.append(score(adversary, eraser.transform(here, concept=k), k))
        own = eraser.adapt(here, concept=k).set_params(random_state=seed)
        adapted.append(score(adversary, own.adapt(here, concept=k).transform(here, concept=k), k))
    # Twelve accuracies on 500 rows each: a standard error of 0.0065.
    assert abs(np.mean(adapted) - 0.5) < 0.025
    if adversary is ADVERSARIES[0]:
        off = np.mean(plain) - 0.5
        assert off < -0.1 if whose == "of the fit" else off > 0.1


def test_classes_differ_as_two_samples_do() -> None:
    X, z = rows(1000, 0)
    eraser = MUtE(10, router=None, **QUICK).fit(X, z)
    apart, wider = [], []
    for seed in range(5):
        q = eraser.set_params(random_state=seed).adapt(X, concept=z).transform(X, concept=z)
        own = [q[z == k] for k in (0, 1)]
        apart.append(((own[0].mean(axis=0) - own[1].mean(axis=0)) ** 2).sum())
        wider.append(((np.cov(own[0], rowvar=False) - np.cov(own[1], rowvar=False)) ** 2).sum())
    # D numbers of variance 2/n; D (D + 1) / 2 covariances, each twice or on the diagonal, of the same: D (D + 1) 2/n.
    assert np.mean(apart) == pytest.approx(2 * D / 1000, rel=0.3)
    assert np.mean(wider) == pytest.approx(2 * D * (D + 1) / 1000, rel=0.1)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_adapted_maps_are_maps_like_others(dtype: type, tmp_path: Any) -> None:
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


def test_rows_without_labels_lessen_the_noise() -> None:
    (X, z), (more, z_more), (new, z_new) = (rows(n, seed, apart=12) for seed, n in enumerate((200, 5000, 5000)))
    few = MUtE(10, router="logistic", **QUICK).fit(X, z)
    many = MUtE(10, router="logistic", **QUICK).fit(X, z, unlabelled=more)
    told = MUtE(10, router="logistic", **QUICK).fit(np.concatenate([X, more]), np.concatenate([z, z_more]))
    leaks = [score(ADVERSARIES[0], eraser.transform(new), z_new) for eraser in (few, many, told)]
    assert leaks[0] > 0.7, "there is something to win"
    assert leaks[1] < leaks[0] - 0.1
    # Classes so far apart that the router does not err: labels would not be better.
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
