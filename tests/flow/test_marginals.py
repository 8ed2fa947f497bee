"""The one-dimensional maps: what they converge to, and that nothing makes them less than a bijection."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import expon, gamma, logistic, uniform

from mute.errors import MuteError
from mute.flow.fitting import FlowFitter
from mute.flow.flow import Flow
from mute.flow.marginals import Histogram, Quantile, fit_marginals, make_marginal
from mute.flow.rotations import Rotation
from mute.rows.reductions import Spread
from storing import store_of

PAPER = Histogram(alpha=1e-10, floor="add")
MARGINALS = [Quantile(), Histogram(), PAPER]
DEFAULTS = [Quantile(), Histogram()]


def fit(*classes: NDArray, marginal: Quantile | Histogram) -> Flow:
    """The map of one column as a flow of one layer."""
    z = np.repeat(np.arange(len(classes)), [len(c) for c in classes])
    return fit_layer(np.concatenate(classes)[:, None].astype(np.float64), z, marginal)


def fit_layer(x: NDArray, z: NDArray, marginal: Quantile | Histogram, n_threads: int = 1) -> Flow:
    """One layer that does not turn its rows."""
    fitter = FlowFitter.of(
        x, z, max_layers=1, rotation=Rotation(lambda t, n_classes: (), lambda *_: np.eye(x.shape[1])),
        marginal=marginal, rng=np.random.default_rng(0), n_threads=n_threads,
    )  # fmt: skip
    fitter.add_layer()
    return fitter.flow()


def push(flow: Flow, x: NDArray, k: int = 0) -> NDArray:
    return flow.push(np.asarray(x, float)[:, None], k)[:, 0]


@pytest.mark.parametrize("marginal", [*MARGINALS, Quantile(cells=512)], ids=repr)
@pytest.mark.parametrize("law", [uniform, expon, logistic, gamma(2)], ids=["uniform", "expon", "logistic", "gamma"])
def test_converges_to_the_probit_of_the_distribution(marginal: Quantile | Histogram, law: object) -> None:
    if law is expon and marginal == Quantile():
        pytest.skip("a density that jumps from 0 to its peak is finer than a cell, as the docstring says")
    n = 200_000
    x = law.rvs(size=n, random_state=0)  # type: ignore[attr-defined]
    p = np.linspace(0.02, 0.98, 97)
    # At the 2nd percentile the probit of the empirical distribution has a standard error of 0.007; the Quantile
    # leans by 1 - beta = 0.025 towards a straight line, the Histogram draws lines over at least 0.4 % of the mass.
    error = push(fit(x, marginal=marginal), law.ppf(p)) - ndtri(p)  # type: ignore[attr-defined]
    assert np.abs(error).max() < 0.05


def test_quantile_map_is_its_formula() -> None:
    n = 1000
    x = np.random.default_rng(0).gamma(2, size=n)
    m = n // 50
    levels = (np.arange(m) + 0.5) / m
    q, beta = np.quantile(x, levels), n / (n + 20 * m)
    g = ndtri(levels)
    mean, std = q.mean(), (q * g).sum() / (g**2).sum()
    expected = (1 - beta) * (q - mean) / std + beta * g
    # Laid on 128 cells and read off counts on 2048 bins: within a few hundredths between neighbouring quantiles.
    np.testing.assert_allclose(push(fit(x, marginal=Quantile()), q), expected, atol=0.04)
    fine = push(fit(x, marginal=Quantile(cells=4096)), q)
    np.testing.assert_allclose(fine, expected, atol=0.015)


def test_papers_histogram_is_its_formula() -> None:
    x = np.random.default_rng(0).gamma(2, size=5000)
    bins, alpha = 50, 1e-6
    reach = 0.1 * (x.max() - x.min())
    counts, edges = np.histogram(x, bins=bins, range=(x.min() - reach, x.max() + reach))
    below = np.cumsum(counts / len(x) * (1 - bins * alpha) + alpha)
    mapped = push(fit(x, marginal=Histogram(bins=bins, alpha=alpha, floor="add")), edges[1:-1])
    np.testing.assert_allclose(mapped, ndtri(below[:-1]), atol=1e-6)


def test_merged_bins_hold_their_share() -> None:
    x = np.random.default_rng(0).standard_t(3, size=20_000)
    alpha = 0.01
    flow = fit(x, marginal=Histogram(alpha=alpha))
    slopes = np.diff(flow.values[0, 0, 0])
    bends = 1 + np.flatnonzero(np.abs(np.diff(slopes)) > 1e-9 * np.abs(slopes[1:]))
    edges = flow.center[0] + flow.scale[0] * (flow.origin[0, 0, 0] + flow.step[0, 0, 0] * bends)
    counts, _ = np.histogram(x, bins=np.concatenate([[-np.inf], edges, [np.inf]]))
    assert len(bends) > 30
    assert counts.min() >= alpha * len(x)
    np.testing.assert_allclose(flow.values[0, 0, 0][bends], ndtri(np.cumsum(counts)[:-1] / len(x)), atol=1e-9)


rng = np.random.default_rng(3)
AWKWARD: dict[str, NDArray] = {
    "two rows": np.array([0.0, 1.0]),
    "two equal rows": np.zeros(2),
    "constant": np.full(500, 7.0),
    "coin": rng.integers(2, size=500).astype(float),
    "counts": rng.poisson(3, size=2000).astype(float),
    "mostly zero": np.where(rng.uniform(size=2000) < 0.97, 0.0, rng.normal(size=2000)),
    "one outlier": np.append(rng.normal(size=1999), 1e9),
    "two islands": np.concatenate([rng.normal(-1e4, 1, 1000), rng.normal(1e4, 1, 1000)]),
    "cauchy": rng.standard_cauchy(5000),
    "tiny": 1e-30 * rng.normal(size=1000),
    "huge": 1e30 * rng.normal(size=1000),
    "far off": 1e8 + rng.normal(size=1000),
}


@pytest.mark.parametrize("marginal", MARGINALS, ids=repr)
@pytest.mark.parametrize("name", AWKWARD)
def test_strictly_increasing_whatever_the_sample(marginal: Quantile | Histogram, name: str) -> None:
    flow = fit(AWKWARD[name], marginal=marginal)
    assert (flow.step > 0).all()
    assert np.isfinite(flow.values).all()
    assert (np.diff(flow.values, axis=-1) > 0).all()


@pytest.mark.parametrize("marginal", DEFAULTS, ids=repr)
@pytest.mark.parametrize("name", AWKWARD)
def test_invertible_whatever_the_sample(marginal: Quantile | Histogram, name: str) -> None:
    x = AWKWARD[name]
    flow = fit(x, marginal=marginal)
    reach = np.concatenate([x, x.mean() + (10 * x.std() or 1) * np.linspace(-1, 1, 41)])[:, None]
    back = flow.pull(flow.push(reach, 0), 0)
    # The flattest segment has a slope above 1e-5 of the typical one: 1e-16 becomes at most 1e-10 of the range.
    np.testing.assert_allclose(back, reach, rtol=0, atol=1e-10 * np.abs(reach).max())


@pytest.mark.parametrize("marginal", DEFAULTS, ids=repr)
def test_tails_go_on_straight(marginal: Quantile | Histogram) -> None:
    x = np.random.default_rng(0).gamma(2, size=5000)
    flow = fit(x, marginal=marginal)
    for side, outward in ((x.min(), -1), (x.max(), 1)):
        y = push(flow, side + outward * np.array([0.0, 0.1, 1.0, 1e3]))
        slopes = np.diff(y) / np.diff(outward * np.array([0.0, 0.1, 1.0, 1e3]))
        np.testing.assert_allclose(slopes, slopes[0], rtol=1e-9)
        # One over the spread, however measured: for this law, estimates that mind the tails less are 7 % smaller.
        assert 1 / x.std() <= slopes[0] * (1 + 1e-9) and slopes[0] < 1.1 / x.std()


@pytest.mark.parametrize("marginal", [Quantile(), PAPER], ids=repr)
def test_both_tails_are_alike(marginal: Quantile | Histogram) -> None:
    # The public reference keeps the lower tail's resolution and loses that of the upper. (Merged bins are
    # filled from the left, so that they mirror only up to one bin. 5001: no quantile falls between two rows.)
    x = np.random.default_rng(0).gamma(2, size=5001)
    points = np.quantile(x, np.linspace(0, 1, 501)) + 1e-7
    mirrored = -push(fit(-x, marginal=marginal), -points)
    np.testing.assert_allclose(mirrored, push(fit(x, marginal=marginal), points), atol=1e-6)


def test_an_outlier_does_not_hide_the_rest() -> None:
    # One more row moves a quantile by no more than to the next row, and those are up to 0.04 apart at
    # the 99th percentile.
    x = np.random.default_rng(0).gamma(2, size=5000)
    points = np.quantile(x, np.linspace(0.01, 0.99, 99))
    y = push(fit(np.append(x, 1e6), marginal=Quantile()), points)
    np.testing.assert_allclose(y, push(fit(x, marginal=Quantile()), points), atol=0.05)


@pytest.mark.parametrize("marginal", DEFAULTS, ids=repr)
def test_small_classes_do_not_memorise(marginal: Quantile | Histogram) -> None:
    # Whatever the rows are, 40 of them leave a nearly straight map, as steep as 1 / spread.
    x = np.random.default_rng(0).normal(size=40)
    slopes = np.diff(push(fit(x, marginal=marginal), np.linspace(-4, 4, 81))) / 0.1 * x.std()
    assert slopes.min() > 0.5
    assert slopes.max() < 2


@pytest.mark.parametrize("marginal", DEFAULTS, ids=repr)
@pytest.mark.parametrize("n", [20, 60, 99])
def test_small_classes_are_centred(marginal: Quantile | Histogram, n: int) -> None:
    # The least that can be said of a class is where it lies: its mean, known to 1/sqrt(n), goes near zero, as that of
    # the other classes does. (0.25: the probit at the mean of this law is 0.15.)
    x = np.random.default_rng(0).gamma(2, size=n)
    assert abs(push(fit(x, marginal=marginal), [x.mean()])[0]) < 0.25


@pytest.mark.parametrize("marginal", DEFAULTS, ids=repr)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rounding_noise_is_no_law(marginal: Quantile | Histogram, dtype: type) -> None:
    """A constant column, rotated, is constant up to rounding: every class must map it to the same point."""
    rng = np.random.default_rng(0)
    work = np.stack([rng.normal(size=2000), 1e-17 * rng.gamma(0.5, size=2000), rng.normal(size=2000)]).astype(dtype)
    z = np.repeat([0, 1], [300, 1700])
    rows = store_of(work.T, z)
    spread = rows.reduce(Spread(np.zeros((2, 3)), np.bincount(z)))
    origin, step, values = fit_marginals(rows, spread, marginal, 1)
    flow = Flow(np.zeros(3), np.ones(3), np.eye(3)[None], origin[None], step[None], values[None])
    images = [flow.push(np.zeros((1, 3)), k)[0, 1] for k in (0, 1)]
    np.testing.assert_allclose(images, 0, atol=1e-9)


@pytest.mark.parametrize("marginal", DEFAULTS, ids=repr)
def test_a_class_without_spread_borrows_that_of_the_others(marginal: Quantile | Histogram) -> None:
    rng = np.random.default_rng(0)
    flow = fit(np.full(1000, 5.0), rng.normal(0, 2, 20_000), rng.normal(9, 2, 20_000), marginal=marginal)
    y = push(flow, np.array([3.0, 5.0, 7.0]))
    assert y[1] == pytest.approx(0, abs=1e-6)
    # A spread of 2, known to 1/sqrt(2 * 40,000) = 0.4 %.
    np.testing.assert_allclose(np.diff(y), 1.0, rtol=0.02)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("marginal", DEFAULTS, ids=repr)
def test_units_do_not_matter(marginal: Quantile | Histogram, scale: float) -> None:
    x = np.random.default_rng(0).gamma(2, size=5000)
    np.testing.assert_allclose(
        push(fit(scale * x, marginal=marginal), scale * x), push(fit(x, marginal=marginal), x), atol=1e-6
    )


def test_default_floor_keeps_slopes_that_the_papers_loses() -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(-3, 1, 10_000), rng.normal(3, 1, 10_000)])

    def flattest(marginal: Histogram) -> float:
        flow = fit(x, marginal=marginal)
        return float((np.diff(flow.values) / flow.step[..., None] / flow.scale).min() * x.std())

    assert flattest(PAPER) < 1e-6
    assert flattest(Histogram()) > 1e-2


@pytest.mark.parametrize("n_threads", [2, 3])
@pytest.mark.parametrize("marginal", DEFAULTS, ids=repr)
def test_threads_change_nothing(marginal: Quantile | Histogram, n_threads: int) -> None:
    x, z = np.random.default_rng(0).gamma(2, size=(9000, 70)), np.repeat([0, 1], [3000, 6000])
    one, many = fit_layer(x, z, marginal), fit_layer(x, z, marginal, n_threads)
    for name in Flow.arrays():
        np.testing.assert_array_equal(getattr(one, name), getattr(many, name))


@pytest.mark.parametrize(("n", "knots"), [(10, 8), (400, 8), (1000, 20), (12_800, 256), (10**6, 256)])
def test_knots_grow_with_the_class(n: int, knots: int) -> None:
    assert Quantile().n_knots(n) == knots
    assert Quantile(knots=31).n_knots(n) == 31


def test_names() -> None:
    assert make_marginal("quantile") == Quantile()
    assert make_marginal("histogram") == Histogram()
    assert make_marginal(PAPER) is PAPER
    with pytest.raises(MuteError, match=r"marginal must be one of .*'kde'"):
        make_marginal("kde")


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (Histogram, {"bins": 1}, "bins must be a whole number of at least 2, not 1"),
        (Histogram, {"bins": 2.5}, "bins must be a whole number"),
        (Histogram, {"alpha": 0.0}, "alpha must lie between 0 and 0.5"),
        (Histogram, {"alpha": 0.7}, "not 0.7"),
        (Histogram, {"alpha": 0.002, "floor": "add"}, "alpha must lie between 0 and 0.001"),
        (Histogram, {"floor": "mass"}, 'floor must be "merge" or "add", not \'mass\''),
        (Quantile, {"knots": 1}, 'knots must be "auto" or a whole number of at least 2'),
        (Quantile, {"cells": 0}, "cells must be a whole number"),
    ],
)
def test_bad_settings(kind: type, settings: dict, message: str) -> None:
    with pytest.raises(MuteError, match=message):
        kind(**settings)
