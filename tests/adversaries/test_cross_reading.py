"""Cross-fitting: every row is tested once, by a model that knows neither the row nor its group."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.neighbors import KNeighborsClassifier

from mute.adversaries.panel import PANEL, Adversary
from mute.adversaries.scoring import cross_read, folds_of, read, score
from mute.errors import MuteError


class Memory:
    """Knows the rows it has learned from, and nothing else."""

    def __init__(self, X: NDArray, z: NDArray) -> None:
        self.seen, self.shares = {row.tobytes(): int(k) for row, k in zip(X, z, strict=True)}, np.bincount(z) / len(z)

    def predict_proba(self, X: NDArray) -> NDArray:
        out = np.tile(self.shares, (len(X), 1))
        for i, row in enumerate(X):
            if row.tobytes() in self.seen:
                out[i] = np.eye(len(self.shares))[self.seen[row.tobytes()]]
        return out


@pytest.mark.parametrize("groups", [None, "each its own"])
def test_folds_share_out_every_class(groups: str | None) -> None:
    rng = np.random.default_rng(0)
    z = np.repeat([0, 1, 2], [700, 100, 22])
    folds = folds_of(z, rng, None if groups is None else np.arange(len(z)))
    counts = np.array([np.bincount(folds[z == k], minlength=3) for k in range(3)])
    assert (np.ptp(counts, axis=1) <= 1).all()


def test_groups_are_never_parted() -> None:
    rng = np.random.default_rng(0)
    groups = rng.integers(60, size=3000)
    z = (rng.random(3000) < np.where(groups < 20, 0.8, 0.1)).astype(int)
    folds = folds_of(z, rng, groups)
    assert all(len(set(folds[groups == g])) == 1 for g in range(60))
    for k in range(2):
        assert np.bincount(folds[z == k]) == pytest.approx((z == k).sum() / 3, rel=0.1)


def test_a_class_of_too_few_groups_is_refused() -> None:
    z = np.tile([0, 1], 50)
    groups = np.where(z == 1, np.arange(100) % 4 // 2, 10 + np.arange(100))
    with pytest.raises(MuteError, match="class number 1 has rows in 2 group"):
        folds_of(z, np.random.default_rng(0), groups)


def test_no_row_is_tested_by_a_model_that_knows_it() -> None:
    """Rows are numbers that tell nothing of the class, so that only one who knows a row can name it."""
    rng = np.random.default_rng(0)
    z = rng.integers(2, size=900)
    tested: list[NDArray] = []

    class Spy(Memory):
        def predict_proba(self, X: NDArray) -> NDArray:
            assert not {row.tobytes() for row in X} & self.seen.keys()
            tested.append(X)
            return super().predict_proba(X)

    cross_read(Adversary("spy", lambda X, z, seed: Spy(X, z)), "fresh", rng.normal(size=(900, 3)), z, 2, rng)
    assert sum(map(len, tested)) == 900 and len(tested) == 3


def test_groups_keep_copies_from_being_known() -> None:
    """Each row stands three times: one who knows rows reads nearly all of them, unless copies stay together."""
    rng = np.random.default_rng(0)
    z = np.repeat(rng.integers(2, size=300), 3)
    X = np.repeat(rng.normal(size=(300, 5)), 3, axis=0)
    sources = np.repeat(np.arange(300), 3)
    nearest = Adversary("nearest", lambda X, z, seed: KNeighborsClassifier(1).fit(X, z))
    apart = cross_read(nearest, "fresh", X, z, 2, rng)
    together = cross_read(nearest, "fresh", X, z, 2, rng, groups=sources)
    assert apart.balanced_accuracy.value > 0.85
    # 300 independent rows: two standard errors are 6 points.
    assert together.balanced_accuracy.value == pytest.approx(0.5, abs=0.08)


def test_the_interval_rests_on_all_rows() -> None:
    rng = np.random.default_rng(0)
    z = rng.integers(2, size=6000)
    X = rng.normal(size=(6000, 3)) + 2 * np.eye(3)[0] * z[:, None]
    found = cross_read(PANEL["logistic"], "fresh", X, z, 2, rng)
    cut = read(PANEL["logistic"], "fresh", (X[2000:], z[2000:], X[:2000], z[:2000]), 2, rng)
    assert len(found.guesses) == 6000 and np.mean(found.guesses == z) == pytest.approx(norm.cdf(1), abs=0.015)
    widths = [a.balanced_accuracy.high - a.balanced_accuracy.low for a in (found, cut)]
    # One over the root of three, 0.58, from 200 draws of each.
    assert 0.45 < widths[0] / widths[1] < 0.72
    assert found.auc.value == pytest.approx(norm.cdf(2 / np.sqrt(2)), abs=0.015)


def test_each_fold_has_the_prior_it_learned_with() -> None:
    """Folds of very different class shares: answers that are mere priors are chance, not a leak."""
    rng = np.random.default_rng(0)
    z = rng.integers(2, size=3000)
    folds = np.where(z == 0, rng.choice(3, 3000, p=[0.6, 0.3, 0.1]), rng.choice(3, 3000, p=[0.1, 0.3, 0.6]))

    class Shares(Memory):
        def predict_proba(self, X: NDArray) -> NDArray:
            return np.tile(self.shares, (len(X), 1))

    mere = Adversary("shares", lambda X, z, seed: Shares(X, z))
    found = cross_read(mere, "fresh", rng.normal(size=(3000, 2)), z, 2, rng, folds=folds)
    assert found.balanced_accuracy.value == pytest.approx(0.5) and found.auc.value == pytest.approx(0.5)


def test_the_worst_pair_is_what_the_mean_hides() -> None:
    """Of five classes two can be told apart and the others cannot: the mean of five recalls says little."""
    rng = np.random.default_rng(0)
    z = rng.integers(5, size=5000)
    X = rng.normal(size=(5000, 3))
    X[:, 0] += np.array([0, -2, 0, 2, 0])[z]
    found = cross_read(PANEL["logistic"], "fresh", X, z, 5, rng)
    pair = found.worst_pair
    assert pair is not None and (pair.first, pair.second) == (1, 3)
    # Phi(2) = 0.977 for means four apart; 2,000 rows have a standard error of 0.3 points.
    assert pair.accuracy.value == pytest.approx(norm.cdf(2), abs=0.012)
    assert pair.accuracy.low < norm.cdf(2) < pair.accuracy.high
    assert found.balanced_accuracy.value < 0.5


@pytest.mark.parametrize("rows", [200, 4000])
def test_the_worst_pair_of_noise_is_at_chance(rows: int) -> None:
    """Of 190 pairs the luckiest reads far above chance; its interval, for all pairs at once, holds chance."""
    rng = np.random.default_rng(1)
    chances = rng.dirichlet(np.ones(20), size=rows)
    z = np.arange(rows) % 20
    pair = score("guess", "fresh", chances, z, np.full(20, 1 / 20), rng).worst_pair
    assert pair is not None and pair.accuracy.low < 0.5 < pair.accuracy.value


def test_two_classes_have_no_worst_pair() -> None:
    rng = np.random.default_rng(0)
    chances, z = rng.dirichlet(np.ones(2), size=100), np.arange(100) % 2
    assert score("guess", "fresh", chances, z, np.full(2, 0.5), rng).worst_pair is None


def test_groups_widen_the_interval() -> None:
    """Four copies of each answer are no more evidence than one: the interval is wider by the root of four."""
    rng = np.random.default_rng(0)
    z, chances = np.repeat(rng.integers(2, size=500), 4), np.repeat(rng.dirichlet(np.ones(2), size=500), 4, axis=0)
    widths = []
    for groups in (None, np.repeat(np.arange(500), 4)):
        found = score("guess", "fresh", chances, z, np.full(2, 0.5), rng, groups=groups).balanced_accuracy
        widths.append(found.high - found.low)
    # Each width comes from 200 draws: a standard error of about 7 %.
    assert widths[1] / widths[0] == pytest.approx(2, rel=0.25)
