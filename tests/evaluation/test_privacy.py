"""Figures of privacy against laws whose answer is known."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from mute.adversaries.estimates import bootstrap
from mute.adversaries.panel import PANEL, Features, attack, panel_of
from mute.adversaries.scoring import null_of_the_strongest, score
from mute.errors import MuteError
from mute.evaluation.privacy import (
    information_bound,
    leak_by_rows,
    mmd,
    online_code,
)


def gaussians(n: int, gap: float, d: int = 4, k: int = 2, seed: int = 0) -> tuple[NDArray, NDArray]:
    """Classes N(j * gap * e_1, I), equally likely."""
    rng = np.random.default_rng(seed)
    z = rng.integers(k, size=n)
    X = rng.normal(size=(n, d))
    X[:, 0] += gap * z
    return X, z


def probe(name: str, X: NDArray, z: NDArray, k: int = 2, seed: int = 0):
    half = len(X) // 2
    features = Features(X[:half], scale_features=True)
    chances = attack(PANEL[name], features(X[:half]), z[:half], features(X[half:]), k, seed)
    prior = np.bincount(z[:half], minlength=k) / half
    return score(name, "fresh", chances, z[half:], prior, np.random.default_rng(seed)), z[half:]


@pytest.mark.parametrize("name", PANEL)
def test_every_adversary_reads_what_there_is(name: str) -> None:
    X, z = gaussians(6000, 2.0)
    found, _ = probe(name, X, z)
    # The best rule is right in Phi(1) = 0.841; 3,000 rows have a standard error of 0.7 points, and nobody is perfect.
    assert norm.cdf(1) - 0.06 < found.balanced_accuracy.value < norm.cdf(1) + 0.03
    assert found.balanced_accuracy.low < found.balanced_accuracy.value < found.balanced_accuracy.high


@pytest.mark.parametrize("name", ["quadratic", "kernel", "boosting", "network", "wide network"])
def test_strong_adversaries_read_what_no_line_can(name: str) -> None:
    rng = np.random.default_rng(0)
    z = rng.integers(2, size=6000)
    X = rng.normal(size=(6000, 4)) * np.where(z == 1, 2.0, 1.0)[:, None]
    assert probe("logistic", X[:, :], z)[0].auc.value > 0.8, "the norm is given as a column"
    plain = Features(X[:3000], scale_features=False)
    seen, asked = plain(X[:3000]), plain(X[3000:])

    def balanced(which: str) -> float:
        chances = attack(PANEL[which], seen, z[:3000], asked, 2, 0)
        return score(which, "fresh", chances, z[3000:], np.array([0.5, 0.5]), rng).balanced_accuracy.value

    assert balanced("logistic") < 0.55
    assert balanced(name) > 0.75


def test_area_under_the_curve_is_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    z = rng.integers(3, size=500)
    chances = rng.random((500, 3)).round(1) + 0.1 + 0.3 * np.eye(3)[z]  # with ties
    chances /= chances.sum(axis=1, keepdims=True)
    found = score("guess", "fresh", chances, z, np.full(3, 1 / 3), rng).auc.value
    assert found == pytest.approx(roc_auc_score(z, chances, multi_class="ovr", average="macro"), abs=1e-12)


def test_balanced_accuracy_does_not_hide_behind_the_majority() -> None:
    rng = np.random.default_rng(0)
    z = (rng.random(8000) < 0.05).astype(int)
    X = rng.normal(size=(8000, 3))
    X[:, 0] += 2.0 * z
    found, _ = probe("quadratic", X, z)
    # 200 rows of the rare class: three standard errors of its recall are 0.08, half of that for the mean of two.
    assert found.balanced_accuracy.value == pytest.approx(norm.cdf(1), abs=0.05)
    assert found.accuracy.value > 0.94


def test_information_is_a_lower_bound() -> None:
    X, z = gaussians(8000, 1.5)
    found, _ = probe("logistic", X, z)
    grid = np.linspace(-10, 12, 20_001)
    p0, p1 = norm.pdf(grid), norm.pdf(grid - 1.5)
    mix = (p0 + p1) / 2
    exact = np.trapezoid((p0 * np.log2(p0 / mix) + p1 * np.log2(p1 / mix)) / 2, grid)
    bound = information_bound([found])
    # The interval is of 95 %: allow three standard errors above, and what a finite fit loses below.
    spread = (bound.high - bound.low) / 3.92
    assert exact - 0.05 < bound.value < exact + 3 * spread


def test_information_of_nothing_is_nothing_and_never_above_the_entropy() -> None:
    rng = np.random.default_rng(0)
    for k in (2, 4):
        X, z = rng.normal(size=(4000, 10)), rng.integers(k, size=4000)
        found = [probe(name, X, z, k)[0] for name in ("logistic", "quadratic", "boosting")]
        assert information_bound(found).value < 0.02
        separate, _ = probe("logistic", X + 50 * z[:, None], z, k)
        assert np.log2(k) - 0.05 < information_bound([separate]).value <= np.log2(k)


@pytest.mark.parametrize("k", [2, 3])
def test_labels_that_tell_nothing_cost_log_k_bits(k: int) -> None:
    rng = np.random.default_rng(0)
    X, z = rng.normal(size=(3000, 20)), rng.integers(k, size=3000)
    code = online_code(X, z, k, rng)
    assert code.uniform_bits == pytest.approx(3000 * np.log2(k))
    # Models of a few rows are wrong and a little sure of it.
    assert code.bits == pytest.approx(code.uniform_bits, rel=0.05)
    told = online_code(X + 10 * z[:, None], z, k, rng)
    assert told.bits < 0.1 * told.uniform_bits


def test_no_row_is_coded_twice() -> None:
    """A coder that always says one half pays one bit a row."""

    class Coin:
        def predict_proba(self, X: NDArray) -> NDArray:
            return np.full((len(X), 2), 0.5)

    from mute.adversaries.panel import Adversary

    rng = np.random.default_rng(0)
    X, z = rng.normal(size=(1000, 2)), rng.integers(2, size=1000)
    code = online_code(X, z, 2, rng, Adversary("coin", lambda X, z, seed: Coin()))
    assert code.bits == pytest.approx(1000)


def test_the_null_takes_account_of_many_tries() -> None:
    rng = np.random.default_rng(0)
    z = rng.integers(2, size=1000)

    def guesser(seed: int):
        chances = np.random.default_rng(seed).random((1000, 2))
        return score("guess", "fresh", chances / chances.sum(axis=1, keepdims=True), z, np.array([0.5, 0.5]), rng)

    many = [guesser(seed) for seed in range(30)]
    one, _ = null_of_the_strongest(many[:1], z, rng, draws=500)
    null, p_value = null_of_the_strongest(many, z, rng, draws=500)
    assert one.mean() == pytest.approx(0.5, abs=0.003)
    # The largest of 30 normal values lies about two standard deviations out, and one is 1.6 points here.
    assert null.mean() == pytest.approx(0.5 + 2.04 * 0.0158, abs=0.005)
    assert p_value > 0.01
    assert max(a.balanced_accuracy.value for a in many) > one.mean() + 0.015, "luck alone looks good"


def test_p_values_are_uniform_under_the_null() -> None:
    values = []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        z = rng.integers(2, size=200)
        chances = rng.random((200, 2))
        found = score("guess", "fresh", chances / chances.sum(axis=1, keepdims=True), z, np.array([0.5, 0.5]), rng)
        values.append(null_of_the_strongest([found], z, rng, draws=99)[1])
    # Ties of a discrete score make it cautious, never bold: 100 draws below 0.2 number 20 +- 12 at three errors.
    assert np.mean(np.array(values) <= 0.2) < 0.32
    assert np.mean(values) > 0.4


def test_mmd() -> None:
    X, z = gaussians(1500, 0.0, k=3)
    assert mmd(X, z, np.random.default_rng(0)).p_value > 0.01
    X, z = gaussians(1500, 1.0, k=3)
    assert mmd(X, z, np.random.default_rng(0)).p_value < 0.01
    rng = np.random.default_rng(0)
    z = rng.integers(2, size=1500)
    spread = rng.normal(size=(1500, 4)) * np.where(z == 1, 1.5, 1.0)[:, None]
    assert mmd(spread, z, rng).p_value < 0.01, "equal means, other spread"


def test_more_rows_leak_more() -> None:
    rng = np.random.default_rng(0)
    z = rng.integers(2, size=6000)
    X = rng.normal(size=(6000, 40))
    X[:, :10] += 0.35 * z[:, None]
    curve = leak_by_rows(PANEL["quadratic"], (X[:4000], z[:4000], X[4000:], z[4000:]), 2, rng)
    sizes = [n for n, _ in curve]
    assert sizes == [125, 250, 500, 1000, 2000, 4000]
    assert curve[-1][1].value > curve[0][1].value + 0.05


def test_a_class_that_nobody_taught_is_no_error() -> None:
    X, z = gaussians(400, 3.0)
    chances = attack(PANEL["logistic"], X[z == 0].astype("f4"), z[z == 0], X.astype("f4"), 2, 0)
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    assert (chances[:, 1] < 0.01).all() and (chances[:, 1] > 0).all()


def test_unknown_adversary() -> None:
    with pytest.raises(MuteError, match="'psychic'"):
        panel_of(["logistic", "psychic"])
    assert [a.name for a in panel_of("all")] == list(PANEL)


def test_intervals_cover() -> None:
    """Of 200 intervals of 95 %, between 90 and 99 % hold the truth (three standard errors are 4.6 points)."""
    held = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=150)
        mean = bootstrap(lambda rows, x=x: float(x[rows].mean()), 150, rng)
        held += mean.low <= 0 <= mean.high
    assert 0.90 <= held / 200 <= 0.99
