import numpy as np
import pytest

from mute.evaluation.adversaries import attack, panel_of


def test_the_quadratic_adversary_takes_a_class_without_spread_in_a_direction():
    from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis

    rng = np.random.default_rng(0)
    z = rng.integers(2, size=4000)
    X = rng.normal(size=(4000, 2)) * np.where(z == 0, 1.0, 3.0)[:, None] * [1.0, 1e-3]
    with pytest.raises(np.linalg.LinAlgError):  # what it is about
        QuadraticDiscriminantAnalysis(solver="eigen", shrinkage="auto").fit(X, z)
    chances = attack(panel_of("quadratic")[0], X[:2000], z[:2000], X[2000:], 2, 0)
    # Told by one column alone, the best answer, a cut at |x| = 1.57, is right for 0.74 of the rows.
    assert np.mean(chances.argmax(axis=1) == z[2000:]) > 0.7
