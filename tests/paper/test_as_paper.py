import numpy as np
import pytest

from mute.estimators.registry import make
from mute.paper.as_paper import AsPaper

pytestmark = pytest.mark.filterwarnings("ignore::mute.errors.WeakResultWarning")


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    z = np.repeat(["a", "b"], 1000)
    X = rng.normal(size=(2000, 3)) * np.where(z == "a", 1.0, 2.0)[:, None] + 3.0 * (z == "b")[:, None]
    eraser = make("mute:paper-text", router="logistic", diagnostics=False, random_state=0).fit(X, z)
    return eraser, AsPaper(eraser), X, z


def test_no_value_lies_beyond_the_probit_of_one_in_a_hundred_thousand(fitted):
    eraser, held, X, _ = fitted
    far = 50 * X
    assert np.abs(held.transform(far)).max() <= 4.265
    assert np.abs(eraser.transform(far)).max() > 10  # the package itself keeps its straight tails


def test_within_the_bulk_it_is_the_same_map(fitted):
    eraser, held, X, z = fitted
    bulk = np.abs(eraser.transform(X)).max(axis=1) < 3
    assert bulk.mean() > 0.9
    assert np.mean(np.abs(held.transform(X) - eraser.transform(X))[bulk].max(axis=1) < 1e-9) > 0.99
    np.testing.assert_array_equal(held.route(X), eraser.route(X))
    told = eraser.transform(X, concept=z)
    bulk = np.abs(told).max(axis=1) < 3
    assert np.mean(np.abs(held.transform(X, concept=z) - told)[bulk].max(axis=1) < 1e-9) > 0.99


def test_counterfactuals_stay_within_the_histograms(fitted):
    _, held, X, z = fitted
    other = np.where(z == "a", "b", "a")
    twins = held.counterfactual(50 * X, other, concept=z)
    # Each class spans at most about 8 standard deviations of 2, and a tenth more at either end.
    assert np.abs(twins - 3.0).max() < 30
    one = held.counterfactual(X, "b", concept=z)
    assert one.shape == X.shape
    own = held.counterfactual(X, z, concept=z)
    assert np.mean(np.abs(own - X).max(axis=1) < 1e-6) > 0.9
