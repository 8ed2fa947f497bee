import numpy as np
import pytest

from mute.paper.measures import judge_task, kept, near, probe, strongest, wordsim
from mute.paper.problems import Words


def two_classes(n, rng, shift=0.0, spread=1.0):
    z = rng.integers(2, size=n)
    X = rng.normal(size=(n, 4))
    X[:, 0] = X[:, 0] * np.where(z, spread, 1.0) + shift * z
    return X.astype(np.float32), np.array(["a", "b"])[z]


def test_a_probe_reads_what_is_there_and_nothing_else():
    rng = np.random.default_rng(0)
    learn, test = two_classes(2000, rng, shift=5.0), two_classes(1000, rng, shift=5.0)
    assert probe(*learn, *test, 0) > 0.97
    learn, test = two_classes(2000, rng), two_classes(1000, rng)
    # A guess is right half of the time; three standard errors of 1,000 rows are 0.047.
    assert abs(probe(*learn, *test, 0) - 0.5) < 0.05


def test_the_strongest_sees_what_the_means_do_not_tell():
    rng = np.random.default_rng(0)
    learn, test = two_classes(3000, rng, spread=4.0), two_classes(1000, rng, spread=4.0)
    # Best possible for spreads of 1 and 4 on one axis: 0.5 + (Φ-difference) = 0.79 (cut at |x| = 1.72).
    assert 0.74 < strongest(*learn, *test, 0) < 0.82


def test_rare_classes_count_as_much_as_others():
    rng = np.random.default_rng(0)
    z = np.array(["a"] * 1900 + ["b"] * 100)
    X = rng.normal(size=(2000, 3)).astype(np.float32)
    assert abs(strongest(X, z, X[::-1].copy(), z[::-1], 0) - 0.5) > 0.1  # the rows of the fit can be known by heart
    fresh = rng.normal(size=(2000, 3)).astype(np.float32)
    # Accuracy would be 0.95 for the answer "a"; the standard error of a class of 100 rows is 0.05.
    assert abs(strongest(X, z, fresh, z, 0) - 0.5) < 0.1


def test_what_is_kept_of_a_projection_is_its_share_of_the_variance():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 4)) * [2.0, 1.0, 1.0, 0.0]
    Q = X[:, :1] * 7 + 3
    assert kept(Q[:2000], X[:2000], Q[2000:], X[2000:]) == pytest.approx(4 / 6, abs=0.03)
    assert kept(X[:2000], X[:2000], X[2000:], X[2000:]) == pytest.approx(1.0, abs=1e-5)


def test_neighbourhoods_as_the_paper_counts_them():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 5))
    assert near(X, 3 * X + 1) == 1.0
    # Independent rows share only themselves and what chance gives: 1/k + (k - 1)/n with k = 10.
    assert near(X, rng.normal(size=(1000, 5))) == pytest.approx(0.1 + 0.009, abs=0.01)


def test_correlation_with_human_judgements_is_that_of_ranks():
    vectors = np.array([[1.0, 0.0], [1.0, 0.1], [1.0, 1.0], [0.0, 1.0], [-1.0, 0.2]], np.float32)
    names = list("abcde")
    pairs = [("a", "b", 9.0), ("a", "c", 6.0), ("a", "d", 2.0), ("a", "e", 1.0), ("c", "d", 5.9)]
    words = Words(names, vectors, {"mine": pairs, "upside down": [(a, b, -s) for a, b, s in pairs]})
    found = wordsim(vectors, words)
    cosines = [vectors[names.index(a)] @ vectors[names.index(b)] / np.linalg.norm(vectors[names.index(a)])
               / np.linalg.norm(vectors[names.index(b)]) for a, b, _ in pairs]  # fmt: skip
    from scipy.stats import spearmanr

    assert found["mine"] == pytest.approx(spearmanr(cosines, [s for *_, s in pairs]).statistic)
    assert found["upside down"] == pytest.approx(-found["mine"])


def test_a_task_that_depends_on_the_class_shows_its_gap():
    rng = np.random.default_rng(0)
    n = 3000
    z, y = rng.integers(2, size=n), rng.integers(2, size=n)
    X = np.column_stack([y + rng.normal(0, np.where(z, 1.5, 0.1)), z, rng.normal(size=n)]).astype(np.float32)
    found = judge_task(X[:2000], y[:2000], X[2000:], y[2000:], z[2000:], 0)
    # One class can be told almost surely, the other at Φ(1/3) = 0.63.
    assert found["tpr_rms"] == pytest.approx(0.37, abs=0.06)
    assert found["accuracy"] == pytest.approx((1 + 0.63) / 2, abs=0.04)
    assert found["dp"] < 0.15
