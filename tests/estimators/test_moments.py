"""Moments gathered block by block are those of all rows, and so are the maps."""

import numpy as np
import pytest
from sklearn.base import clone

import mute
from laws import draw
from mute import MuteError
from mute.estimators.moments import Moments, shrink
from mute.rivals import LEACE, QLEACE, OracleLEACE
from mute.steering import LinearOT, MeanDifference

METHODS = [
    LEACE(),
    OracleLEACE(router=None),
    QLEACE(router=None),
    MeanDifference(router=None),
    LinearOT(1e-2, router=None),
]


@pytest.mark.parametrize("scatter", [None, "pooled", "class"])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_moments(scatter: str | None, offset: float) -> None:
    X, z = draw("skew", 300, 3, seed=0, n_classes=3)
    X = X + offset
    order = np.random.default_rng(0).permutation(len(X))
    X, z = X[order], z[order]
    blocks = Moments(3, 3, scatter)
    for part in np.array_split(np.arange(len(X)), [1, 10, 400]):
        blocks.add(X[part], z[part])
    np.testing.assert_array_equal(blocks.counts, 300)
    means = np.array([X[z == k].mean(axis=0) for k in range(3)])
    np.testing.assert_allclose(blocks.means, means, rtol=1e-13)
    # About a mean of a million, numbers of size one keep ten digits.
    if scatter is not None:
        np.testing.assert_allclose(blocks.covariance, np.cov(X.T, bias=True), atol=1e-8 if offset else 1e-12)
    if scatter == "class":
        expected = [np.cov(X[z == k].T, bias=True) for k in range(3)]
        np.testing.assert_allclose(blocks.class_covariances, expected, atol=1e-8 if offset else 1e-12)


def test_merging_changes_neither() -> None:
    X, z = draw("skew", 100, 3, seed=0)
    a, b = Moments(2, 3, "class"), Moments(2, 3, "class")
    a.add(X[:50], z[:50])
    b.add(X[50:], z[50:])
    before = [a.counts.copy(), a.means.copy(), a.scatter.copy(), b.scatter.copy()]
    both = a.merged(b)
    for x, y in zip(before, [a.counts, a.means, a.scatter, b.scatter], strict=True):
        np.testing.assert_array_equal(x, y)
    np.testing.assert_allclose(both.covariance, np.cov(X.T, bias=True), atol=1e-12)


def test_shrinkage() -> None:
    """Of noise alone nothing but the trace is kept; with many rows the covariance is left as it is."""
    rng = np.random.default_rng(0)
    noise = np.cov(rng.normal(size=(100, 50)).T, bias=True)
    np.testing.assert_allclose(shrink(noise, 100), np.trace(noise) / 50 * np.eye(50), atol=0.05)
    S = np.cov((rng.normal(size=(100_000, 5)) * [1, 2, 3, 4, 5]).T, bias=True)
    np.testing.assert_allclose(shrink(S, 100_000), S, atol=0.01)


@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
def test_blocks_give_the_map_of_all_rows(method) -> None:
    X, z = draw("skew", 400, 5, seed=0, n_classes=3)
    labels = np.array(["b", "c", "a"])[z]  # classes appear one by one, and not in the order of their names
    whole, parts = clone(method).fit(X, labels), clone(method)
    for part in np.array_split(np.arange(len(X)), 7):
        parts.partial_fit(X[part], labels[part])
    assert parts.classes_.tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(parts.transform(X, concept=labels), whole.transform(X, concept=labels), atol=1e-9)


def test_fit_begins_anew_and_partial_fit_goes_on() -> None:
    X, z = draw("skew", 400, 5, seed=0)
    eraser = LEACE().fit(X[:600], z[:600])
    eraser.partial_fit(X[600:], z[600:])
    np.testing.assert_allclose(eraser.transform(X), LEACE().fit(X, z).transform(X), atol=1e-9)
    eraser.fit(X[:600], z[:600])
    np.testing.assert_array_equal(eraser.transform(X), LEACE().fit(X[:600], z[:600]).transform(X))


def test_continuous_blocks() -> None:
    rng = np.random.default_rng(0)
    X, Z = rng.normal(size=(500, 4)), rng.normal(size=(500, 2))
    whole, parts = LEACE(concept_type="continuous").fit(X, Z), LEACE(concept_type="continuous")
    for part in np.array_split(np.arange(500), 5):
        parts.partial_fit(X[part], Z[part])
    np.testing.assert_allclose(parts.transform(X), whole.transform(X), atol=1e-9)


@pytest.mark.parametrize("method", [*METHODS, LEACE(concept_type="continuous")], ids=repr)
def test_what_blocks_gave_can_be_stored(method, tmp_path) -> None:
    X, z = draw("skew", 50, 4, seed=0)
    model = clone(method).partial_fit(X[::2], z[::2]).partial_fit(X[1::2], z[1::2])
    model.save(tmp_path / "model.safetensors")
    loaded = mute.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded.transform(X, concept=z), model.transform(X, concept=z))
    with pytest.raises(MuteError, match="loaded from a file"):
        loaded.partial_fit(X, z)


def test_one_class_so_far() -> None:
    X, z = draw("skew", 50, 3, seed=0)
    eraser = LEACE().partial_fit(X[:50], z[:50])
    with pytest.raises(MuteError, match="only one class was seen, 0; go on"):
        eraser.transform(X)
    eraser.partial_fit(X[50:], z[50:])
    assert eraser.transform(X).shape == X.shape


def test_a_bad_block_changes_nothing() -> None:
    X, z = draw("skew", 50, 3, seed=0)
    eraser = LEACE().partial_fit(X, z)
    before = eraser.transform(X)
    with pytest.raises(MuteError, match="labels for"):
        eraser.partial_fit(X, z[:-1])
    with pytest.raises(MuteError, match="features"):
        eraser.partial_fit(X[:, :2], z)
    np.testing.assert_array_equal(eraser.transform(X), before)


def test_a_router_stays_and_is_not_made_from_blocks(tmp_path) -> None:
    X, z = draw("gauss", 300, 4, seed=0)
    model = MeanDifference(router="logistic", random_state=0).fit(X, z)
    routed = model.route(X)
    np.testing.assert_array_equal(model.partial_fit(X, z).route(X), routed)
    with pytest.raises(MuteError, match="no router"):
        MeanDifference().partial_fit(X, z).transform(X)
