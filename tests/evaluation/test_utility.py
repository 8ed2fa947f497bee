"""Utility: what the readers, the floor and the neighbours must say where the answer is known."""

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import ortho_group, spearmanr

from mute import MUtE
from mute.errors import MuteError
from mute.evaluation.utility import (
    Reconstruction,
    erasure_floor,
    neighbourhood_overlap,
    paper_mse,
    reconstruction,
    round_trip,
    similarity_correlation,
)

D = 6


class Shift:
    """The perfect eraser of classes that differ by their means only: it takes the mean of the class away."""

    def __init__(self, means: NDArray, labels: Sequence[str]) -> None:
        self.means = means
        self.classes_ = np.array(labels)

    def transform(self, X: NDArray, z: NDArray) -> NDArray:
        return X - self.means[z]

    def inverse_transform(self, Q: NDArray, concept: Sequence[str]) -> NDArray:
        return Q + self.means[np.searchsorted(self.classes_, concept)]


def read(Q: NDArray, X: NDArray, z: NDArray) -> tuple[Reconstruction, ...]:
    """Every other row teaches, the others test."""
    learn, test = slice(0, None, 2), slice(1, None, 2)
    return reconstruction((Q[learn], X[learn], z[learn]), (Q[test], X[test], z[test]), np.random.default_rng(0))


def normal(n: int, seed: int = 0) -> NDArray:
    return np.random.default_rng(seed).normal(size=(n, D))


def alternating(n: int, n_classes: int = 2) -> NDArray[np.int64]:
    return np.random.default_rng(9).permutation(np.arange(n) % n_classes)


def test_the_identity_and_a_rotation_lose_nothing() -> None:
    X, z = normal(2000) + 3, alternating(2000)
    for Q in (X, X @ ortho_group.rvs(D, random_state=0)):
        for reader in read(Q, X, z):
            # The ridge's least penalty is 1e-9 of the variance; the network adds what it learned of that remainder.
            assert reader.r2.value == pytest.approx(1, abs=1e-6)
            assert reader.mse.value == pytest.approx(0, abs=1e-6)
            # These classes cannot be read, and their means over 500 rows differ by chance: 1/500, twice.
            assert reader.r2_within.value == pytest.approx(1, abs=0.008)


def test_independent_noise_tells_nothing() -> None:
    X, z = normal(2000), alternating(2000)
    for reader in read(normal(2000, seed=1), X, z):
        # A mean of 1,000 rows used on another 1,000 costs about 1/1000 of the variance.
        assert reader.r2.value == pytest.approx(0, abs=0.01)
        assert reader.r2_within.value == pytest.approx(0, abs=0.01)
        assert reader.mse.value == pytest.approx(1, abs=0.05)


def test_only_the_network_reads_a_bent_line() -> None:
    X, z = normal(4000), alternating(4000)
    ridge, network = read(X + 3 * np.sign(X), X, z)
    # Monotone in each column, so that all of X is there. With m = sqrt(2/pi), the mean of |x|, the best line has
    # R² = (1 + 3m)² / (10 + 6m) = 0.778; the standard error over 2,000 rows is about 0.005.
    assert ridge.r2.value == pytest.approx(0.778, abs=0.02)
    assert network.r2.value > 0.97


def test_reading_the_class_earns_nothing_within() -> None:
    z = alternating(2000)
    X = normal(2000) + 5 * z[:, None]
    for reader in read(np.column_stack([z, -z]).astype(float), X, z):
        # Between classes 25/4 of 25/4 + 1; the standard error of R² over 1,000 rows is about 0.005.
        assert reader.r2.value == pytest.approx(6.25 / 7.25, abs=0.02)
        assert reader.r2_within.value == pytest.approx(0, abs=0.01)


def test_taking_the_class_away_costs_nothing_within() -> None:
    z = alternating(2000)
    Q = normal(2000)
    for reader in read(Q, Q + 5 * z[:, None], z):
        # The class means of 1,000 rows carry an error of 2/1000 of the variance, in what is learned and in the test.
        assert reader.r2_within.value > 0.99
        assert reader.r2.value == pytest.approx(1 / 7.25, abs=0.03)


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.7, 0.3), (0.5, 0.3, 0.2)])
def test_floor_is_the_spread_of_the_origins_and_the_best_reader_reaches_it(shares: tuple[float, ...]) -> None:
    rng = np.random.default_rng(0)
    K, n = len(shares), 4000
    means = 2 * rng.normal(size=(K, D))
    z = rng.choice(K, n, p=shares)
    eraser = Shift(means, ["a", "b", "c"][:K])
    X = normal(n) + means[z]
    Q = eraser.transform(X, z)
    pi = np.bincount(z) / n
    known = sum(pi[i] * pi[j] * ((means[i] - means[j]) ** 2).sum() / D for i in range(K) for j in range(i))
    floor = erasure_floor(eraser, Q, X, z)
    assert floor is not None
    assert floor.value == pytest.approx(known, rel=1e-12)
    # The best guess is q plus the mean of the means, which the ridge can say: its error is the floor itself, up to
    # the share of each class among 2,000 test rows (a standard error of 2 %).
    for reader in read(Q, X, z):
        assert reader.mse.value == pytest.approx(known, rel=0.07)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_no_reader_of_mute_beats_the_floor(n_classes: int) -> None:
    means = np.random.default_rng(3).normal(size=(n_classes, D))
    z, fitted = alternating(12_000, n_classes), slice(0, 6000)
    new = slice(6000, None)
    X = normal(12_000) + means[z]
    labels = np.array(["a", "b", "c"])[z]
    eraser = MUtE(n_iterations=6, router=None, diagnostics=False, random_state=0).fit(X[fitted], labels[fitted])
    Q = eraser.transform(X[new], concept=labels[new])
    floor = erasure_floor(eraser, Q, X[new], z[new])
    assert floor is not None
    pairs = [((means[i] - means[j]) ** 2).sum() for i in range(n_classes) for j in range(i)]
    # The fitted maps know each mean up to 1/sqrt(2000), and their curves up to about as much again.
    assert floor.value == pytest.approx(sum(pairs) / n_classes**2 / D, rel=0.1)
    for reader in read(Q, X[new], z[new]):
        # Noise: 3,000 test rows (2 %), and what little 6 layers fitted to 2,000 rows a class leak on new ones.
        assert reader.mse.value > 0.95 * floor.value


def test_round_trip_of_mute_is_exact_and_the_wrong_class_is_not() -> None:
    z = alternating(2000)
    X = normal(2000) + 2 * z[:, None]
    eraser = MUtE(n_iterations=5, router=None, diagnostics=False, random_state=0).fit(X, z)
    Q = eraser.transform(X, concept=z)
    error, wrong = round_trip(eraser, Q, X, z), round_trip(eraser, Q, X, 1 - z)
    assert error is not None and wrong is not None
    assert error < 1e-9  # ten digits lost at most in five layers down and up
    assert wrong > 1


def test_round_trip_is_relative_to_the_spread() -> None:
    X, z = 1000 * normal(500), alternating(500)
    Q = X + 5.0
    assert round_trip(Shift(np.zeros((2, D)), ["a", "b"]), Q, X, z) == pytest.approx(5 / np.sqrt(X.var(axis=0).mean()))
    constant = np.ones((10, D))
    assert np.isnan(round_trip(Shift(np.zeros((2, D)), ["a", "b"]), constant, constant, z[:10]))  # type: ignore[arg-type]


def test_no_inverse_no_floor_and_no_round_trip() -> None:
    class Plain:
        pass

    class Blind:
        def inverse_transform(self, Q: NDArray) -> NDArray:
            return Q

    X, z = normal(20), alternating(20)
    for eraser in (Plain(), Blind()):
        assert erasure_floor(eraser, X, X, z) is None
        assert round_trip(eraser, X, X, z) is None


def test_paper_mse_is_in_sample_and_repeats() -> None:
    X = normal(600)
    near, far = paper_mse(X, X), paper_mse(normal(600, seed=1), X)
    assert near == paper_mse(X, X)
    # 100 hidden units are plenty for 6 columns; on noise the same network still learns some rows by heart.
    assert near < 0.05 < far < 1
    assert paper_mse(X[:, :1], X[:, :1]) < 0.05


def test_the_identity_and_a_rotation_keep_all_neighbours() -> None:
    X = normal(3000) + 100
    for Q in (X, X @ ortho_group.rvs(D, random_state=0), 5 * X):
        for overlap in neighbourhood_overlap(X, Q, np.random.default_rng(0)):
            # Two distances equal to the last digits may change places: one neighbour of one row in a million.
            assert overlap.raw.value == pytest.approx(1, abs=1e-4)
            assert overlap.corrected.value == pytest.approx(1, abs=1e-4)


def test_overlap_of_independent_rows_is_chance() -> None:
    found = neighbourhood_overlap(normal(3000), normal(3000, seed=1), np.random.default_rng(0))
    assert [overlap.share for overlap in found] == [0.5, 0.1, 0.01]
    for overlap in found:
        k = int(overlap.share * 1999)
        # A row's place in the one cloud says nothing of its place in the other. Rows near the middle are neighbours of
        # many, so that the 2,000 overlaps are not independent: a standard error of a few thousandths.
        assert overlap.raw.value == pytest.approx(k / 1999, abs=0.015)
        assert overlap.corrected.value == pytest.approx(0, abs=0.02)
        assert overlap.corrected.low < overlap.corrected.value < overlap.corrected.high


def test_overlap_is_that_of_a_plain_count() -> None:
    X, Q = normal(700), normal(700) + 0.5 * normal(700, seed=1)
    (overlap,) = neighbourhood_overlap(X, Q, np.random.default_rng(0), shares=(0.02,))
    kept = []
    for row in range(700):
        near = [np.argsort(np.linalg.norm(v - v[row], axis=1))[1:14] for v in (X, Q)]  # 13 = int(0.02 * 699)
        kept.append(len(set(near[0]) & set(near[1])) / 13)
    assert overlap.raw.value == pytest.approx(np.mean(kept))
    assert overlap.corrected.value == pytest.approx((np.mean(kept) - 13 / 699) / (1 - 13 / 699))


def test_similarity_is_the_spearman_of_cosines() -> None:
    X, rng = normal(50), np.random.default_rng(2)
    words = [f"w{i}" for i in range(50)]
    start = rng.integers(50, size=40)
    ends = np.column_stack([start, (start + rng.integers(1, 50, size=40)) % 50])
    cosines = [X[a] @ X[b] / np.linalg.norm(X[a]) / np.linalg.norm(X[b]) for a, b in ends]
    scores = np.round(np.array(cosines) + 0.3 * rng.normal(size=40), 1)  # with ties
    pairs = [(words[a], words[b], float(s)) for (a, b), s in zip(ends, scores, strict=True)]
    before, after = similarity_correlation(X, 2 * X, words, [*pairs, ("w1", "unknown", 9.0)])
    assert before.value == pytest.approx(spearmanr(cosines, scores).statistic)
    assert after == before
    assert before.low < before.value < before.high
    blank, _ = similarity_correlation(np.zeros((50, D)), X, words, pairs)
    assert np.isnan(blank.value)


def test_too_few_pairs() -> None:
    X, pairs = normal(20), [("a", "b", 1.0), ("a", "?", 2.0)]
    message = "1 of 2 pairs have both words among the 20 given, and a correlation needs at least 3"
    with pytest.raises(MuteError, match=message):
        similarity_correlation(X, X, list("abcdefghijklmnopqrst"), pairs)


def test_constant_rows_and_columns_do_no_harm() -> None:
    X, z = normal(200), alternating(200)
    X[:, 0] = 7.0
    for reader in read(X, X, z):
        assert reader.r2.value == pytest.approx(1, abs=1e-6)
    for reader in read(X, np.ones((200, D)), z):
        assert np.isnan(reader.r2.value)
        assert reader.mse.value == pytest.approx(0, abs=1e-12)
