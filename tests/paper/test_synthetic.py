"""The paper's synthetic study: two 2-D Gaussian mixtures, twenty layers, an MLP probe before and after."""

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.neural_network import MLPClassifier

from mute import MUtE

# Distance of the second mixture along the diagonal: probe accuracy before erasure.
SHIFTS = {2.8: 0.94, 1.98: 0.81}
# Five data sets: on 4,000 test rows a probe is known to 0.8 points, but what twenty layers leave of a mixture, and the
# rows that a router gets wrong, differ by two points from one data set to the next, once in ten by six.
SEEDS = (0, 10, 20, 30, 40)
CENTRES = np.array([[(-1, 0), (1, 0), (0, 1.2)], [(-0.8, -0.4), (0.9, 0.5), (0.2, -1)]])


def mixtures(shift: float, seed: int, n: int = 2000) -> tuple[NDArray, NDArray]:
    rng = np.random.default_rng(seed)
    z = np.repeat([0, 1], n)
    X = CENTRES[z, rng.integers(3, size=2 * n)] + 0.5 * rng.normal(size=(2 * n, 2))
    X[z == 1] += shift * np.array([1, 1]) / np.sqrt(2)
    return X, z


def probe(x: NDArray, z: NDArray, x_test: NDArray, z_test: NDArray) -> float:
    """The paper's protocol: trained on erased training rows, tested on erased test rows."""
    return MLPClassifier(max_iter=500, early_stopping=True, random_state=0).fit(x, z).score(x_test, z_test)


def study(shift: float, settings: dict, *, labels: bool) -> float:
    """Mean accuracy of the probe after erasure."""
    scores = []
    for seed in SEEDS:
        (x, z), (x_test, z_test) = mixtures(shift, seed), mixtures(shift, seed + 1)
        eraser = MUtE(20, diagnostics=False, random_state=0, **settings).fit(x, z)
        given = (z, z_test) if labels else (None, None)
        scores.append(
            probe(eraser.transform(x, concept=given[0]), z, eraser.transform(x_test, concept=given[1]), z_test)
        )
    return float(np.mean(scores))


@pytest.mark.parametrize("shift", SHIFTS)
def test_before(shift: float) -> None:
    scores = [probe(*mixtures(shift, seed), *mixtures(shift, seed + 1)) for seed in SEEDS]
    assert np.mean(scores) == pytest.approx(SHIFTS[shift], abs=0.02)


# The mean of five is known to one point: three points are the paper's claim with room for two standard errors.
@pytest.mark.parametrize("marginal", ["quantile", "histogram"])
@pytest.mark.parametrize("shift", SHIFTS)
def test_oracle(shift: float, marginal: str) -> None:
    assert study(shift, {"router": None, "marginal": marginal}, labels=True) == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("marginal", ["quantile", "histogram"])
@pytest.mark.parametrize("shift", SHIFTS)
def test_routed(shift: float, marginal: str) -> None:
    assert study(shift, {"router": "mlp", "marginal": marginal}, labels=False) == pytest.approx(0.5, abs=0.03)


def test_labels_given_to_a_routed_eraser_are_not_the_oracle() -> None:
    """A limit: maps fitted on rows that moved by a router that often errs do not fit rows that move by their labels."""
    assert study(1.98, {"router": "mlp"}, labels=True) > 0.53
