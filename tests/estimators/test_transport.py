"""Affine transport between Gaussians."""

import numpy as np
import pytest

from mute.rivals import QLEACE
from mute.steering import LinearOT


@pytest.mark.parametrize(
    "method", [QLEACE(router=None), LinearOT(router=None, reg=1e-2), LinearOT(router=None, reg=0.0)]
)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_constant_column_stays_constant_to_the_bit(method: QLEACE | LinearOT, n_classes: int) -> None:
    """Sentence encoders have dead columns. Rounding errors of a map would tell the classes apart there."""
    rng = np.random.default_rng(0)
    z = rng.integers(n_classes, size=3000)
    mixing = rng.normal(size=(n_classes, 12, 12)) + 3 * np.eye(12)
    X = np.einsum("nd,nde->ne", rng.normal(size=(3000, 12)), mixing[z])
    X[:, 3], X[:, 8] = 0.0, 1e-17 * rng.normal(size=3000)
    Q = method.fit(X, z).transform(X, concept=z)
    assert (Q[:, 3] == 0).all()
    # A column of noise at the size of rounding errors is only shifted: its class means become equal.
    assert max(np.ptp((Q - X)[z == k, 8]) for k in range(n_classes)) < 1e-30
    # The other columns are erased as they were, up to the ridge of 1e-2 of their mean variance.
    rest = np.delete(Q, [3, 8], axis=1)
    covariances = [np.cov(rest[z == k].T) for k in range(n_classes)]
    assert np.abs(covariances[0] - covariances[1]).max() < 0.05 * np.abs(covariances[0]).max()
    moved = method.counterfactual(X, 1, concept=z)
    assert (moved[:, 3] == 0).all()
