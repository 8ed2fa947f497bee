"""The channel: what it keeps, what it hides, and its noise."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import kstest, norm

from mute.budget.channel import FAMILIES, Axes, Bits, noise_of, secret_bytes
from mute.errors import MuteError

KEY = bytes(range(32))


def rows(n: int = 4000, d: int = 6, seed: int = 0) -> tuple[NDArray, NDArray]:
    """Original rows with unequal variances, and an invertible linear map of them as erased rows."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * np.arange(d, 0, -1)
    return X @ rng.normal(size=(d, d)) + 3, X


def test_noise_is_standard_and_independent_between_rows_and_columns() -> None:
    noise = noise_of(np.random.default_rng(0).normal(size=(5000, 3)), KEY, 8)
    # 40,000 draws: the statistic exceeds 0.01 once in a thousand times.
    assert kstest(noise.ravel(), norm.cdf).statistic < 0.01
    # Correlations of 5,000 rows have a standard error of 0.014.
    assert np.abs(np.corrcoef(noise.T) - np.eye(8)).max() < 0.07
    assert np.abs(np.corrcoef(noise[:-1, 0], noise[1:, 0])[0, 1]) < 0.07


def test_a_row_has_one_noise_whatever_its_neighbours_precision_and_time() -> None:
    X = np.random.default_rng(0).normal(size=(9000, 5)).astype(np.float32)
    noise = noise_of(X, KEY, 7)
    assert (noise_of(X[4321:4322], KEY, 7) == noise[4321]).all()
    assert (noise_of(X.astype(np.float64), KEY, 7) == noise).all()
    assert (noise_of(np.zeros((1, 5)), KEY, 7) == noise_of(-np.zeros((1, 5)), KEY, 7)).all()
    assert not np.isclose(noise_of(X, KEY[::-1], 7), noise).any()


def test_axes_are_uncorrelated_and_worth_what_a_linear_reader_reads() -> None:
    Q, X = rows()
    Q, X = Q[:, :4], X  # two columns of the erased rows are lost
    axes = Axes.of(Q, X)
    y = (Q - axes.mean) @ axes.read
    assert np.allclose(y.T @ y / len(y), np.eye(4), atol=1e-8)
    assert np.allclose(axes.write @ axes.read, np.eye(4), atol=1e-8)
    assert (np.diff(axes.worth) <= 1e-12).all()
    centred = X - X.mean(axis=0)
    left = centred - y @ np.linalg.lstsq(y, centred, rcond=None)[0]
    assert axes.worth.sum() == pytest.approx(1 - (left**2).sum() / (centred**2).sum(), abs=1e-8)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("share", [0.05, 0.3, 0.8, 1.0])
def test_families_keep_the_share_they_are_asked_for(family: str, share: float) -> None:
    axes = Axes.of(*rows())
    kept = axes.kept(family, share)
    assert (kept >= 0).all()
    assert (kept <= 1).all()
    if family == "components":
        assert set(kept) <= {0.0, 1.0}
        assert kept @ axes.worth >= share * axes.worth.sum() - 1e-9
        # One axis fewer would keep less than the share.
        assert (kept @ axes.worth) - axes.worth[int(kept.sum()) - 1] < share * axes.worth.sum()
    else:
        assert kept @ axes.worth == pytest.approx(share * axes.worth.sum(), rel=1e-6)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_reader_loses_the_rest_and_noise_hides_nothing_behind_its_size(share: float) -> None:
    """The channel's theorem: y is read back with R² = a, and the published coordinate has variance a."""
    Q, X = rows(20_000)
    axes = Axes.of(Q, X)
    channel = axes.channel("noise", share)
    published = (channel(Q, X, KEY) - axes.mean) @ axes.read
    y = (Q - axes.mean) @ axes.read
    # 20,000 rows: a correlation has a standard error below 0.01.
    r2 = np.array([np.corrcoef(y[:, i], published[:, i])[0, 1] ** 2 for i in range(y.shape[1])])
    assert np.abs(r2 - share).max() < 0.03
    assert np.abs(published.var(axis=0) / share - 1).max() < 0.05
    # The published row is the best guess of the erased row: its error is uncorrelated with it.
    assert np.abs([(published[:, i] * (y - published)[:, i]).mean() for i in range(y.shape[1])]).max() < 0.02


def test_without_noise_the_channel_is_a_projection() -> None:
    Q, X = rows()
    channel = Axes.of(Q, X).channel("components", 0.5)
    assert not channel.noisy
    once = channel(Q, X, KEY)
    assert np.allclose(channel(once, X, KEY), once, atol=1e-9)


def test_short_secrets_are_refused() -> None:
    with pytest.raises(MuteError, match="at least 16 bytes"):
        secret_bytes("secret")
    assert secret_bytes("0123456789abcdef") == b"0123456789abcdef"


def test_one_bit_keeps_two_over_pi_of_a_gaussian_and_hides_what_is_symmetric() -> None:
    """Classes with one median and other shapes: signs tell nothing of them, and the row can still be read back."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50_000, 3)) * [1, 5, 0.1] + [0, 3, -1]
    published = Bits.of(X)(X.astype(np.float32), X, b"")
    assert published.dtype == np.float32
    assert all(len(np.unique(column)) == 2 for column in published.T)
    kept = 1 - ((published - X) ** 2).sum(axis=0) / ((X - X.mean(axis=0)) ** 2).sum(axis=0)
    assert np.allclose(kept, 2 / np.pi, atol=0.01)  # four standard errors
    constant = np.full((10, 2), 7.0)
    assert (Bits.of(constant)(constant, constant, b"") == 7.0).all()
