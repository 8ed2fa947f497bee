"""Mean Difference: move rows by the difference of the class means."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mute.estimators.conditional import Invertible
from mute.estimators.moments import Streaming
from mute.estimators.settings import FINITE
from mute.typing import Array, Classifier, Constraints, Seed

__all__ = ["MeanDifference"]


@dataclass(eq=False, repr=False)
class MeanDifference(Streaming, Invertible):
    r"""Translation between class means.

    A row of class i becomes :math:`x + s(\mu_j - \mu_i)` under class j; erased, every class gets the mean of all rows,
    :math:`x + s(\mu - \mu_i)`.

    Parameters
    ----------
    strength : float, default=1.0
        The factor s. At 1 the means are met; beyond, rows overshoot.
    router : {"mlp", "logistic"}, classifier or None, default="mlp"
        Chooses the class of a row without a label; with None, transforming requires labels.
    random_state : int, RandomState or None
        For the router.

    Attributes
    ----------
    means_, mean_ : arrays of shape (K, D) and (D,)
        Class means, and the mean of all rows.
    moments_ : Moments
        What was gathered so far; not kept in files.
    classes_, router_, routing_, n_features_in_, feature_names_in_
        As in `MUtE`.

    See Also
    --------
    LinearOT : Matches covariances too.
    OracleLEACE : The erasure at strength 1.

    Notes
    -----
    *Guarantees.* At strength 1 moved training rows have exactly the mean of the target class, by the smallest
    displacement that does so; erased, all classes have one mean, so no linear classifier beats a constant there.
    From i to j and back is the identity.

    *Limits.* Covariances and shapes stay: a quadratic adversary still sees the class. A routed row of the wrong class
    moves the wrong way.

    *Labels.* Without a router, transforming requires labels. *Cost.* O(nD). Can be fitted by `partial_fit`.

    Examples
    --------
    >>> import numpy as np
    >>> from mute.steering import MeanDifference
    >>> X, z = np.array([[0.0, 0.0], [2.0, 0.0], [5.0, 4.0], [7.0, 4.0]]), ["a", "a", "b", "b"]
    >>> MeanDifference(router=None).fit(X, z).counterfactual(X[:1], "b", concept=["a"])
    array([[5., 4.]])
    """

    _parameter_constraints: ClassVar[Constraints] = {"strength": FINITE}
    _STORED: ClassVar[dict[str, str]] = {"means_": "K D", "mean_": "D"}

    strength: float = 1.0
    _: KW_ONLY
    router: Classifier = "mlp"
    random_state: Seed = None

    def _learn(self, X: Array, z: Array) -> None:
        super()._learn(X, z)
        self._learn_router(X, z)

    def _solve(self) -> None:
        self.means_, self.mean_ = self.moments_.means, self.moments_.mean

    def _push(self, X: Array, k: NDArray[np.int64]) -> NDArray[np.floating]:
        return self._shift(X, self.mean_ - self.means_, k)

    def _pull(self, Q: Array, k: NDArray[np.int64]) -> NDArray[np.floating]:
        return self._shift(Q, self.means_ - self.mean_, k)

    def _move(self, X: Array, source: NDArray[np.int64], target: NDArray[np.int64]) -> NDArray[np.floating]:
        gaps = self.means_[None] - self.means_[:, None]
        k = len(self.means_)
        return self._shift(X, gaps.reshape(k * k, -1), source * k + target)

    def _shift(self, X: Array, shifts: NDArray[np.float64], which: NDArray[np.int64]) -> NDArray[np.floating]:
        return X + (self.strength * shifts).astype(X.dtype)[which]
