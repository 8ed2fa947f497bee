"""Gaussian CFR: counterfactual representations under a linear-Gaussian structural model."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import gen_batches

from mute.errors import MuteError
from mute.estimators.base import ConceptEstimator
from mute.estimators.moments import Moments, inverse_root, least_squares, root
from mute.estimators.settings import FROM_0_BELOW_1, NOT_NEGATIVE, WHOLE, one_of
from mute.typing import Array, Constraints, Json, LabelsLike, Ops, RowsLike, Seed, Value

__all__ = ["GaussianCFR"]

_BLOCK = 8192


@dataclass(eq=False, repr=False)
class GaussianCFR(ConceptEstimator):
    r"""Counterfactuals that predict the coordinates of the concept from the rest of a row.

    A row is split into coordinates c along the subspace that the labels are linearly correlated with, the span of
    :math:`\Sigma_{xz}`, and the rest: :math:`x = Px + E^\top c`, where P erases linearly and the rows of E are an
    orthonormal basis. Within class j the coordinates follow :math:`c = \nu_j(Px) + \varepsilon_j`, with
    :math:`\nu_j` affine and :math:`\varepsilon_j` Gaussian. What x would be under class j keeps the rest:
    :math:`x_{\leftarrow j} = Px + E^\top \nu_j(Px)`.

    Parameters
    ----------
    variant : {"orthogonal", "leace"}, default="orthogonal"
        P is the orthogonal projector off the span, or LEACE's (without shrinkage), which moves rows less.
    ridge : float, default=1e-4
        Penalty on the slopes of :math:`\nu_j`, as a share of the mean variance of a column of Px. (The authors regress
        by gradient descent with a weight decay of 1e-4, whose strength depends on the units of the rows.)
    tolerance : float, default=1e-5
        Directions whose singular value in :math:`\Sigma_{xz}` is below this share of the largest do not count.
    n_draws : int, default=0
        With 0 counterfactuals have no noise. Else they get the mean of so many draws of :math:`\varepsilon_j`, which
        vanishes with many draws; 1 gives counterfactuals the spread of the target class.
    random_state : int, RandomState or None
        For the draws. A draw depends on `random_state` and the row alone; equal rows have equal draws.

    Attributes
    ----------
    mean_, basis_, coordinates_ : arrays of shape (D,), (r, D) and (r, D)
        Mean of all rows; E, with r the smaller of K - 1 and D, whose row is zero where the class means span fewer
        directions; c is ``coordinates_ @ (x - mean_)``. The last two are the same for the orthogonal variant.
    slopes_, intercepts_ : arrays of shape (K, r, D) and (K, r)
        :math:`\nu_j` is ``slopes_[j] @ (x - mean_) + intercepts_[j]``, which sees nothing of x but Px.
    noise_ : array of shape (K, r, r)
        Covariance of :math:`\varepsilon_j`, from the training rows (divided by their number).
    projection_, seed_ : array of shape (D, D) and int
        The projector P = I - ``basis_.T @ coordinates_``, and where the draws begin.
    classes_, n_features_in_, feature_names_in_
        As in `MUtE`.

    See Also
    --------
    LinearOT : Moves a whole row, by its class.
    LEACE : The erasure of ``variant="leace"``, with shrinkage.

    Notes
    -----
    *Guarantees.* Erased rows keep the mean of all rows and, on the training rows, have no covariance with the labels
    beyond what `tolerance` leaves in: no linear classifier beats a constant there. Counterfactuals differ from the row
    along the span only, in at most K - 1 coordinates; without noise, the second of two replaces the first. On the rows
    of class j they err by zero on average; if the model is true they are the expected counterfactual.

    *Limits.* Only what is linear is erased or moved: covariances and shapes elsewhere still reveal the class. Without
    noise counterfactuals vary less than the target class, and a row moved to its own class is not itself. The
    regressions have D inputs: in a class of fewer than some 20 D rows they fit noise, and `noise_` is too small.

    *Labels.* Neither erasure nor counterfactuals need labels. *Cost.* O(nD² + KD³) to fit, O(nDK) to transform. Draws
    take some 30 µs a row. *Presets.* "authors" is without noise, "authors-stochastic" takes the mean of 20 draws.

    References
    ----------
    P. Lemberger and A. Saillenfest, "Explaining Text Classifiers with Counterfactual Representations", ECAI 2024.

    Examples
    --------
    The first column is the concept's, and follows the second, with another slope in each class:

    >>> import numpy as np
    >>> from mute.steering import GaussianCFR
    >>> z = np.repeat(["a", "b"], 4)
    >>> rest = np.tile([-3.0, -1.0, 1.0, 3.0], 2)
    >>> X = np.column_stack([np.where(z == "a", 2 * rest, 10 - rest), rest])
    >>> cfr = GaussianCFR(ridge=0.0).fit(X, z)
    >>> cfr.counterfactual(X[:2], "b").round(6)
    array([[13., -3.],
           [11., -1.]])
    >>> cfr.transform(X[:2]).round(6)
    array([[ 5., -3.],
           [ 5., -1.]])
    """

    _parameter_constraints: ClassVar[Constraints] = {
        "variant": one_of("orthogonal", "leace"),
        "ridge": NOT_NEGATIVE,
        "tolerance": FROM_0_BELOW_1,
        "n_draws": WHOLE,
    }
    PRESETS: ClassVar[dict[str, Json]] = {"authors": {}, "authors-stochastic": {"n_draws": 20}}
    _STORED: ClassVar[dict[str, str]] = {
        "mean_": "D",
        **dict.fromkeys(("basis_", "coordinates_"), "r D"),
        "slopes_": "K r D",
        "intercepts_": "K r",
        "noise_": "K r r",
        "seed_": "plain",
    }

    _: KW_ONLY
    variant: str = "orthogonal"
    ridge: float = 1e-4
    tolerance: float = 1e-5
    n_draws: int = 0
    random_state: Seed = None

    def _learn(self, X: Array, z: Array) -> None:
        moments = Moments(len(self._encoder), X.shape[1], "class")
        for part in gen_batches(len(X), _BLOCK):
            # In double precision: a regression divides by the smallest variances.
            moments.add(X[part].astype(np.float64), z[part])
        self.seed_ = int(self._generator().integers(2**31 - 1))
        self.mean_ = moments.mean
        self.basis_ = self.coordinates_ = _span(moments, self.tolerance)
        if self.variant == "leace":
            # C = (E Σ⁺ Eᵀ)⁻¹ E Σ⁺: LEACE's I - P is EᵀC, as its W⁺U has the same span as Eᵀ.
            W = inverse_root(moments.covariance)
            self.coordinates_ = np.linalg.pinv(W @ self.basis_.T) @ W
        P, C, S = self.projection_, self.coordinates_, moments.class_covariances
        self.slopes_ = np.stack([least_squares(P @ s @ P.T, P @ s @ C.T, self.ridge).T @ P for s in S])
        rest = C - self.slopes_  # from a row to its residual
        self.intercepts_ = np.einsum("krd,kd->kr", rest, moments.means - moments.mean)
        self.noise_ = rest @ S @ rest.transpose(0, 2, 1)

    @property
    def projection_(self) -> NDArray[np.float64]:
        return np.eye(len(self.mean_)) - self.basis_.T @ self.coordinates_

    def _erase(self, X: Array) -> NDArray[np.floating]:
        return self._shift(X, -self.coordinates_, np.zeros(len(self.basis_)))

    def counterfactual(self, X: RowsLike, target: LabelsLike, *, concept: LabelsLike = None) -> NDArray[np.floating]:
        """What the rows would be under another value of the concept.

        Parameters
        ----------
        X : array-like of shape (n, D)
            Rows to move.
        target : label or array-like of shape (n,)
            One label for all rows, or one for each.
        concept : optional
            Not used: this method needs no labels.
        """
        return self._apply("counterfactual", X, target=target, concept=concept)

    def _counterfactual(self, X: Array, target: LabelsLike, concept: LabelsLike) -> NDArray[np.floating]:
        goal = self._encode_targets(target, len(X))
        out = np.empty_like(X)
        for j in np.unique(goal):
            rows = goal == j
            offset = self.intercepts_[j]
            if self.n_draws:
                # The mean of n draws is a draw with an n-th of the covariance.
                noise = root(self.noise_[j] / self.n_draws)
                offset = offset + np.einsum("nr,rs->ns", self._draws(X[rows]), noise)
            out[rows] = self._shift(X[rows], self.slopes_[j] - self.coordinates_, offset)
        return out

    def move_with(self, ops: Ops, x: Value, target: Value) -> Value:
        """`counterfactual` as arithmetic on values of `ops` (see `mute.flow.ops`), to run without this package."""

        def work(rows: Value, j: int) -> Value:
            return self._affine_with(ops, rows, lambda X: self.counterfactual(X, self.classes_[j]), f"move{j}")

        return ops.by_class(work, x, target, len(self.classes_))

    def _counterfactual_with(self, ops: Ops, x: Value, target: Value, concept: LabelsLike) -> Value:
        return self.move_with(ops, x, ops.codes(self._encode_targets(target, len(x))))

    def _shift(self, X: Array, slopes: NDArray[np.float64], offset: NDArray[np.float64]) -> NDArray[np.floating]:
        """Rows moved along the basis, by coordinates that are affine in the row."""
        change = (X - self.mean_.astype(X.dtype)) @ slopes.T.astype(X.dtype) + offset.astype(X.dtype)
        return X + change @ self.basis_.astype(X.dtype)

    def _draws(self, X: Array) -> NDArray[np.float64]:
        """Standard normal numbers, shape (n, r), each row's from its own bytes."""
        keys = (int.from_bytes(hashlib.sha256(row.tobytes()).digest()) for row in X)
        return np.array([np.random.default_rng([self.seed_, key]).normal(size=len(self.basis_)) for key in keys])

    def _trial_outputs(self, X: Array) -> Iterator[Array]:
        yield from super()._trial_outputs(X)
        for label in self._encoder.classes:
            yield self._counterfactual(X, label, None)

    def _check_restored(self) -> None:
        E, C = self.basis_, self.coordinates_
        there = np.diag((E**2).sum(axis=1).round())
        if not (np.allclose(E @ E.T, there, atol=1e-6) and np.allclose(C @ E.T, there, atol=1e-6)):
            raise MuteError("its map is not a projection")
        if not np.allclose(self.slopes_ @ E.T, 0, atol=1e-6 * max(np.abs(self.slopes_).max(), 1)):
            raise MuteError("its regressions see the concept")
        if np.linalg.eigvalsh(self.noise_).min() < -1e-6 * np.abs(self.noise_).max():
            raise MuteError("its noise has a negative variance")
        if type(self.seed_) is not int or self.seed_ < 0:
            raise MuteError(f"its seed cannot be {self.seed_!r}")


def _span(moments: Moments, tolerance: float) -> NDArray[np.float64]:
    """Orthonormal rows, at most K - 1, that span the cross-covariance; zeros for directions that it does not have."""
    cross = moments.cross_covariance
    vectors, sizes, _ = np.linalg.svd(cross, full_matrices=False)
    r = min(cross.shape[1] - 1, len(cross))
    # Means of the same rows may differ by rounding.
    rounding = len(cross) * np.finfo(float).eps * np.abs(moments.means).max()
    return np.where(sizes > max(tolerance * sizes[0], rounding), vectors, 0.0).T[:r]
