"""Low-rank surrogate: the cheapest copy of an eraser, one affine map."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mute.distill.teaching import Pairs, Surrogate, erased_by, fidelity, set_aside
from mute.errors import MuteError
from mute.estimators.settings import COUNT, COUNT_OR_NONE, NOT_NEGATIVE
from mute.flow.ops import NumpyOps, in_blocks
from mute.typing import Array, Constraints, Method, Ops, Seed, Value

__all__ = ["LowRankSurrogate"]


@dataclass(eq=False, repr=False)
class LowRankSurrogate(Surrogate):
    r"""One affine map that copies an eraser as well as one can: least squares, of full or of low rank.

    :math:`x \mapsto x L R + b`, where the product of L (D, r) and R (r, D) is the matrix of rank r that predicts the
    teacher's erased rows best: the regression of full rank, cut to the r principal directions of its answers.

    Parameters
    ----------
    teacher : eraser or None
        The method to copy, as in `MLPSurrogate`.
    rank : int, optional
        Of the matrix; that of all columns when None. From D / 2 on, one full product is cheaper than two thin ones.
    ridge : float, default=1e-6
        Penalty on the matrix, as a share of the mean variance of a column.
    validation_rows : int, default=2000
        The most held-out rows to judge the copy, at most a fifth.
    random_state : int, RandomState or None
        For the held-out rows, and for a teacher without a seed.

    Attributes
    ----------
    weights_ : dict of arrays
        "slopes" (D, D) or "left" (D, r) and "right" (r, D); "offset" (D,).
    fidelity_, classes_, n_features_in_, feature_names_in_
        As in `MLPSurrogate`.

    See Also
    --------
    MLPSurrogate : A network that copies more closely.
    LinearSurrogate : One affine map for each pair of classes.

    Notes
    -----
    *Guarantees.* No affine map (of this rank, in the regression's own metric) is nearer to the teacher on the rows it
    learned from.

    *Limits.* **It is a copy, not an eraser**: one affine map cannot send the classes along different ways, so most of
    the difference between them stays. It shows what a better copy must beat, and can be enough for a teacher that is
    affine itself. Audit its outputs.

    *Labels.* Not needed to transform. *Cost.* One product with a (D, D) matrix, or two with (D, r) ones.

    References
    ----------
    A. J. Izenman, "Reduced-rank regression for the multivariate linear model", J. Multivariate Analysis, 1975.

    Examples
    --------
    >>> import numpy as np
    >>> from mute.distill import LowRankSurrogate
    >>> from mute.rivals import LEACE
    >>> X, z = np.random.default_rng(0).normal(size=(500, 3)), np.arange(500) % 2
    >>> teacher = LEACE().fit(X, z)
    >>> copy = LowRankSurrogate(teacher, ridge=0.0).fit(X)
    >>> bool(np.allclose(copy.transform(X), teacher.transform(X)))
    True
    """

    _parameter_constraints: ClassVar[Constraints] = {
        "rank": COUNT_OR_NONE,
        "ridge": NOT_NEGATIVE,
        "validation_rows": COUNT,
    }
    _STORED: ClassVar[dict[str, str]] = {"weights_": "arrays", "fidelity_": "plain"}

    teacher: Method = None
    _: KW_ONLY
    rank: int | None = None
    ridge: float = 1e-6
    validation_rows: int = 2000
    random_state: Seed = None

    def _learn(self, X: Array, z: Array) -> None:
        d = X.shape[1]
        if self.rank is not None and self.rank > d:
            raise MuteError(f"rank is {self.rank}, but X has only {d} columns")
        rng = self._generator()
        teacher = self._fitted_teacher(X, z, rng)
        learn, watch = set_aside(len(X), self.validation_rows, rng)
        Q = erased_by(teacher, X, z)
        learned, held = (Pairs.of(X, Q, rows) for rows in (learn, watch))
        A, b = learned.regression(self.ridge)
        self.weights_ = {"slopes": A.T}
        if self.rank is not None:
            # The answers' covariance, whose leading directions are kept.
            directions = np.linalg.eigh(A @ learned.covariance[:d, :d] @ A.T)[1][:, ::-1][:, : self.rank]
            b = learned.mean[d:] - directions @ (directions.T @ (A @ learned.mean[:d]))
            self.weights_ = {"left": A.T @ directions, "right": directions.T.copy()}
            A = directions @ (directions.T @ A)
            if 2 * self.rank >= d:
                self.weights_ = {"slopes": A.T}
        self.weights_ = {name: np.ascontiguousarray(w) for name, w in self.weights_.items()} | {"offset": b}
        self.fidelity_ = fidelity(held.error(A, b) / d, learned, held, len(watch))

    def _erase(self, X: Array) -> NDArray[np.floating]:
        return in_blocks(lambda rows: self.erase_with(NumpyOps(X.dtype), rows), X)

    def erase_with(self, ops: Ops, x: Value) -> Value:
        weights = {name: ops.array(name, w) for name, w in self.weights_.items()}
        if "slopes" in weights:
            return ops.linear(x, weights["slopes"], weights["offset"])
        return ops.linear(ops.linear(x, weights["left"]), weights["right"], weights["offset"])

    def _check_restored(self) -> None:
        d = self.n_features_in_
        if "slopes" in self.weights_:
            self._check_shapes({"slopes": (d, d), "offset": (d,)})
        else:
            r = self.weights_["left"].shape[-1]
            self._check_shapes({"left": (d, r), "right": (r, d), "offset": (d,)})
