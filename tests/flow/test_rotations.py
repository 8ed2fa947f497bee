"""The shared rotations: orthogonal always, and each what its name says."""

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import kstest

from mute.errors import MuteError
from mute.flow.rotations import ROTATIONS, make_rotation
from mute.rows.reductions import Scatter
from storing import store_of

BOUNDS = np.array([0, 700, 1500, 2000])


def rows(d: int, dtype: type = np.float64) -> NDArray:
    """Three classes, feature-major, each with a covariance of its own."""
    rng = np.random.default_rng(0)
    parts = [
        rng.normal(size=(d, d)) @ rng.laplace(size=(d, stop - start)) for start, stop in itertools.pairwise(BOUNDS)
    ]
    return np.concatenate(parts, axis=1).astype(dtype)


def turn(name: str, t: int, work: NDArray, seed: int = 0, bounds: NDArray = BOUNDS) -> NDArray:
    n_classes, counts = len(bounds) - 1, np.diff(bounds)
    rotation, held = make_rotation(name), store_of(work.T, np.repeat(np.arange(n_classes), counts))
    scatter = held.reduce(Scatter(rotation.classes(t, n_classes), counts, len(work)))
    return rotation.axes(t, scatter, held, len(work), np.random.default_rng(seed))


@pytest.mark.parametrize("name", ROTATIONS)
@pytest.mark.parametrize("d", [1, 2, 7])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_orthogonal(name: str, d: int, dtype: type) -> None:
    v = turn(name, 1, rows(d, dtype))
    assert v.shape == (d, d)
    assert v.dtype == np.float64
    np.testing.assert_allclose(v.T @ v, np.eye(d), atol=1e-10)


@pytest.mark.parametrize("name", ["alternate", "global", "ica"])
def test_orthogonal_without_full_rank(name: str) -> None:
    work = rows(7)
    work[3], work[4] = 0.0, work[2]
    v = turn(name, 0, work)
    np.testing.assert_allclose(v.T @ v, np.eye(7), atol=1e-10)
    v = turn(name, 0, work[:, :4], bounds=np.array([0, 2, 4]))
    np.testing.assert_allclose(v.T @ v, np.eye(7), atol=1e-10)


@pytest.mark.parametrize("t", range(7))
def test_alternate_takes_the_axes_of_one_class_after_the_other(t: int) -> None:
    work, k = rows(4), t % 3
    v = turn("alternate", t, work)
    turned = np.cov(v.T @ work[:, BOUNDS[k] : BOUNDS[k + 1]])
    np.testing.assert_allclose(turned, np.diag(np.diag(turned)), atol=1e-10 * turned.max())
    assert (np.diff(np.diag(turned)) < 0).all(), "largest spread first"


def test_global_takes_the_axes_of_all_rows() -> None:
    work = rows(4)
    turned = np.cov(turn("global", 5, work).T @ work)
    np.testing.assert_allclose(turned, np.diag(np.diag(turned)), atol=1e-10 * turned.max())
    assert (np.diff(np.diag(turned)) < 0).all()


@pytest.mark.parametrize("name", ["alternate", "global", "ica"])
def test_signs_are_fixed(name: str) -> None:
    v = turn(name, 0, rows(6))
    assert (v[np.abs(v).argmax(axis=0), np.arange(6)] > 0).all()
    np.testing.assert_allclose(turn(name, 0, -rows(6)), v, atol=1e-3 if name == "ica" else 1e-10)


@pytest.mark.parametrize("correlation", [0.5, -0.5])
def test_signs_do_not_hang_on_rounding(correlation: float) -> None:
    """After a layer both columns have unit variance, and then the axes of two are always (1, 1) and (1, -1)."""
    rng = np.random.default_rng(0)
    work = np.linalg.cholesky([[1, correlation], [correlation, 1]]) @ rng.normal(size=(2, 1000))
    work -= work.mean(axis=1, keepdims=True)
    work /= work.std(axis=1, keepdims=True)
    bounds = np.array([0, 1000])
    first = turn("alternate", 0, work, bounds=bounds)
    for _ in range(20):  # another order of the rows changes the last digits of the covariance, and nothing else
        again = turn("alternate", 0, work[:, rng.permutation(1000)], bounds=bounds)
        np.testing.assert_allclose(again, first, atol=1e-9)


def test_random_is_uniform() -> None:
    draws = np.stack([turn("random", 0, np.zeros((3, 2)), seed, np.array([0, 2])) for seed in range(2000)])
    # In three dimensions every entry of a Haar-uniform matrix is uniform on [-1, 1] (Archimedes). 1.6 / sqrt(n) is
    # the 1 % level of the Kolmogorov-Smirnov statistic, for each of nine entries that fixed seeds keep from flaking.
    for i in range(3):
        for j in range(3):
            assert kstest(draws[:, i, j], "uniform", args=(-1, 2)).statistic < 1.6 / np.sqrt(2000)
    assert abs(np.linalg.det(draws).mean()) < 0.07, "as many reflections as rotations: three standard errors"


def test_random_follows_its_generator() -> None:
    work = rows(5)
    np.testing.assert_array_equal(turn("random", 0, work, seed=4), turn("random", 9, work, seed=4))
    assert not np.allclose(turn("random", 0, work, seed=4), turn("random", 0, work, seed=5))


def test_ica_finds_independent_sources() -> None:
    rng = np.random.default_rng(0)
    sources = rng.laplace(size=(3, 4000))  # white already, so that the sources are orthogonal directions
    mixing = turn("random", 0, rows(3))
    found = turn("ica", 0, mixing @ sources, bounds=np.array([0, 4000])).T @ mixing
    # A signed permutation, up to the error of FastICA on 4,000 rows, about 1/sqrt(n).
    np.testing.assert_allclose(np.sort(np.abs(found), axis=1), np.tile([0, 0, 1], (3, 1)), atol=0.1)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_covariance(dtype: type, n_threads: int) -> None:
    x, z = np.random.default_rng(0).normal(size=(20_000, 6)).astype(dtype) + 1, np.repeat([0, 1], [5000, 15_000])

    def covariance(threads: int) -> NDArray:
        return store_of(x, z, threads).reduce(Scatter((1,), np.bincount(z), 6)).covariance

    # Products of 2,048 rows are summed in the rows' own precision.
    np.testing.assert_allclose(
        covariance(n_threads), np.cov(x[5000:].astype(float), rowvar=False), atol=1e-12 if dtype is np.float64 else 1e-4
    )
    np.testing.assert_array_equal(covariance(n_threads), covariance(1))


@pytest.mark.parametrize("name", ["pca", None, 3, ["random"]])
def test_unknown_name(name: object) -> None:
    with pytest.raises(MuteError, match=r"rotation must be one of \['alternate', 'global', 'ica', 'random'\], not "):
        make_rotation(name)  # type: ignore[arg-type]
