"""An eraser whose erased rows tell nothing, and whose inverse tells the route."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

_STEPS = 20_000


class Marked:
    """Sends both classes to one law on a fine grid, and marks the class of a row by an even or odd place on it.

    Nobody sees single steps of the grid, but the inverse knows them: as the wrong class it goes astray.
    """

    classes_ = np.array(["a", "b"])

    def __init__(self, marks: bool = True) -> None:
        self.marks = marks

    def route(self, X: NDArray) -> NDArray:
        return self.classes_[(X[:, 0] > 5).astype(int)]

    def transform(self, X: NDArray, concept: Any = None) -> NDArray:
        k = (np.asarray(self.route(X) if concept is None else concept) == "b").astype(int)
        place = (X[:, 0] - 10 * k) * _STEPS // 2 * 2 + k * self.marks
        return np.column_stack([place / _STEPS, X[:, 1:]])

    def inverse_transform(self, Q: NDArray, concept: Any) -> NDArray:
        k = (np.asarray(concept) == "b").astype(int)
        astray = (np.round(Q[:, 0] * _STEPS) % 2 != k) if self.marks else np.zeros(len(Q), bool)
        return np.column_stack([Q[:, 0] + 10 * np.where(astray, 1 - k, k), Q[:, 1:]])


def rows(n: int = 4000) -> tuple[NDArray, NDArray]:
    rng = np.random.default_rng(0)
    z = rng.integers(2, size=n)
    X = rng.random((n, 3))
    X[:, 0] += 10 * z
    return X, np.array(["a", "b"])[z]
