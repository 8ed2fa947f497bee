"""What the methods that take a subspace out share."""

from __future__ import annotations

import warnings
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.estimators.base import ConceptEstimator
from mute.flow.ops import in_blocks
from mute.typing import Array, Classifier

__all__ = ["Projector", "class_accuracy", "fit_quietly"]


class Projector(ConceptEstimator):
    """A method that takes a subspace out, x' = x - (x B) Bᵀ, with an orthonormal basis B of shape (D, r)."""

    _STORED: ClassVar[dict[str, str]] = {"basis_": "D r", "history_": "plain"}

    basis_: NDArray[np.float64]

    def _erase(self, X: Array) -> NDArray[np.floating]:
        basis = self.basis_.astype(X.dtype, copy=False)
        return in_blocks(lambda rows: rows - (rows @ basis) @ basis.T, X)

    def _check_restored(self) -> None:
        gap = self.basis_.T @ self.basis_ - np.eye(self.basis_.shape[1])
        if np.abs(gap).max(initial=0.0) > 1e-8:
            raise MuteError("the columns of basis_ are not orthonormal")


def fit_quietly(classifier: Classifier, X: Array, z: Array) -> Classifier:
    """Fit a classifier, converged or not: its accuracy on held-out rows counts."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return classifier.fit(X, z)


def class_accuracy(z: Array, predicted: Array) -> float:
    """Share of rows named rightly, as a mean over the classes that occur in `z`."""
    return float(np.mean([(predicted[z == k] == k).mean() for k in np.unique(z)]))
