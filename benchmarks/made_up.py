"""Made-up embeddings of two classes that overlap a little, drawn in blocks."""

import numpy as np
from numpy.typing import NDArray

_RANK = 32


class Mixture:
    """Four standard deviations from class to class, two clusters in each, low-rank covariances that differ a little.

    `draw` continues the sequence.

    Parameters
    ----------
    n_features : int
    seed : int
    """

    def __init__(self, n_features: int, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        apart = self._normal(n_features)
        apart *= 2 / np.linalg.norm(apart)
        self.means = self._normal(1, 2, n_features) * np.float32(0.3) + np.stack([[-apart], [apart]])
        self.loadings = (self._normal(1, _RANK, n_features) + self._normal(2, _RANK, n_features) / 8) / _RANK**0.5

    def draw(self, n: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The next `n` rows, and the class of each."""
        x, z = self._normal(n, self.means.shape[2]), self.rng.integers(0, 2, n)
        for k in range(2):
            mine = np.flatnonzero(z == k)
            x[mine] += self.means[k, self.rng.integers(0, 2, len(mine))]
            x[mine] += self._normal(len(mine), _RANK) @ self.loadings[k]
        return x, z

    def _normal(self, *shape: int) -> NDArray[np.float32]:
        return self.rng.standard_normal(shape, np.float32)
