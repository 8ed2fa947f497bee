"""LEACE and its kin: least-squares concept erasure."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar, cast

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from sklearn.utils import gen_batches

from mute.errors import MuteError
from mute.estimators.base import ConceptEstimator
from mute.estimators.moments import Moments, Streaming, shrink
from mute.estimators.settings import FLAG, FROM_0_BELOW_1, one_of
from mute.estimators.transport import GaussianTransport
from mute.flow.ops import in_blocks
from mute.flow.routing import MAX_ROWS, NetworkRouter, fit_router, stratified_sample
from mute.steering.mean_difference import MeanDifference
from mute.typing import Array, Classifier, Constraints, Json, Seed

__all__ = ["LEACE", "QLEACE", "FreeFormLEACE", "OracleLEACE"]

_BLOCK = 8192


@dataclass(eq=False, repr=False)
class LEACE(Streaming):
    r"""Least-squares concept erasure: the smallest affine edit after which no linear classifier beats a constant.

    :math:`x' = x - W^+ U U^\top W (x - \mu)`, where :math:`W = (\Sigma^{1/2})^+` whitens and U is an orthonormal basis
    of the columns of :math:`W \Sigma_{xz}`; :math:`\Sigma_{xz}` is the covariance of the rows with the one-hot labels.

    Parameters
    ----------
    method : {"leace", "orth"}, default="leace"
        "orth" takes W = I: the orthogonal projection, which edits more.
    shrinkage : bool, default=True
        Estimate the covariance with linear shrinkage. It changes how small the edit is, not what is erased.
    tolerance : float, default=1e-6
        Directions whose singular value in :math:`W \Sigma_{xz}` is below this share of the largest are left in. (The
        public implementation leaves in what is below 0.01 in absolute terms, and with it classes of few rows.)
    concept_type : {"categorical", "continuous"}, default="categorical"
        A continuous concept is one number or one vector for each row.

    Attributes
    ----------
    mean_, read_, remove_ : arrays of shape (D,), (D, r) and (D, r)
        An erased row is ``x - (x - mean_) @ read_ @ remove_.T``; r is at most K - 1.
    projection_ : array of shape (D, D)
        The projector P = I - remove_ read_ᵀ.
    moments_, classes_, n_features_in_, feature_names_in_
        As in `MeanDifference`.

    See Also
    --------
    OracleLEACE : A smaller edit, for rows whose class is known.
    QLEACE : Makes covariances equal too.
    INLP : Takes out more directions than needed, by classifiers.

    Notes
    -----
    *Guarantees.* On the training rows the covariance of erased rows with the labels is zero, so no linear predictor of
    the concept, under any convex loss, beats a constant. The mean is kept. Without shrinkage no other affine map with
    this property moves the rows less, in any quadratic norm.

    *Limits.* LEACE guards against linear predictors only: covariances and shapes still reveal the class. On unseen rows
    the covariance is zero up to the sampling error of the class means.

    *Labels.* Not needed to transform. *Cost.* O(nD² + D³) to fit, O(nDK) to transform. Can be fitted block by block
    with `partial_fit`.

    References
    ----------
    N. Belrose, D. Schneider-Joseph, S. Ravfogel, R. Cotterell, E. Raff and S. Biderman, "LEACE: Perfect linear concept
    erasure in closed form", NeurIPS 2023.

    Examples
    --------
    >>> import numpy as np
    >>> from mute.rivals import LEACE
    >>> z = np.repeat([0, 1, 2], 500)
    >>> X = np.random.default_rng(0).normal(size=(1500, 4)) + 3 * np.eye(4)[z]
    >>> Q = LEACE().fit_transform(X, z)
    >>> bool(np.allclose([Q[z == k].mean(axis=0) for k in range(3)], X.mean(axis=0)))
    True
    """

    _parameter_constraints: ClassVar[Constraints] = {
        "method": one_of("leace", "orth"),
        "shrinkage": FLAG,
        "tolerance": FROM_0_BELOW_1,
        "concept_type": one_of("categorical", "continuous"),
    }
    PRESETS: ClassVar[dict[str, Json]] = {"paper": {}}
    _STORED: ClassVar[dict[str, str]] = {"mean_": "D", "read_": "D r", "remove_": "D r"}
    _SCATTER: ClassVar[str | None] = "pooled"

    _: KW_ONLY
    method: str = "leace"
    shrinkage: bool = True
    tolerance: float = 1e-6
    concept_type: str = "categorical"

    def _gather(self, X: Array, z: Array) -> Moments:
        if z.ndim == 1:
            return super()._gather(X, z)
        # One class of rows that have the concept beside them: the covariance contains that of both.
        moments = Moments(1, X.shape[1] + z.shape[1], "pooled")
        moments.add(np.concatenate([X.astype(float), z], axis=1))
        return moments

    def _solve(self) -> None:
        d = self.n_features_in_
        mean, S = self.moments_.mean, self.moments_.covariance
        cross = S[:d, d:] if self.concept_type == "continuous" else self.moments_.cross_covariance
        self.mean_, S = mean[:d], S[:d, :d]
        if self.method == "orth":
            self.read_ = self.remove_ = _column_basis(cross, self.tolerance)
        else:
            S = shrink(S, self.moments_.n) if self.shrinkage else S
            self.read_, self.remove_ = _oblique(S, cross, self.tolerance)

    @property
    def projection_(self) -> NDArray[np.float64]:
        return np.eye(len(self.mean_)) - self.remove_ @ self.read_.T

    def _erase(self, X: Array) -> NDArray[np.floating]:
        mean, read, remove = (a.astype(X.dtype, copy=False) for a in (self.mean_, self.read_, self.remove_))
        return in_blocks(lambda rows: rows - ((rows - mean) @ read) @ remove.T, X)

    def _check_restored(self) -> None:
        if not np.allclose(self.read_.T @ self.remove_, np.eye(self.read_.shape[1]), atol=1e-6):
            raise MuteError("its map is not a projection")


def _column_basis(M: NDArray[np.float64], tolerance: float) -> NDArray[np.float64]:
    """Orthonormal basis of the columns of M, without directions below `tolerance` of the largest."""
    U, size, _ = np.linalg.svd(M, full_matrices=False)
    floor = max(M.shape) * np.finfo(float).eps
    return U[:, size > size.max(initial=0.0) * max(tolerance, floor)]


def _oblique(
    S: NDArray[np.float64], cross: NDArray[np.float64], tolerance: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What reads and what removes the concept, for rows with covariance S."""
    # Any factor F with S = F Fᵀ whitens as well as the square root: the projection is the same.
    least = np.sqrt(len(S) * np.finfo(float).eps * S.diagonal().max())
    try:
        L = np.linalg.cholesky(S)
        if L.diagonal().min() <= least:
            raise np.linalg.LinAlgError
    except np.linalg.LinAlgError:
        # Not of full rank: only where there is variance.
        values, V = np.linalg.eigh(S)
        kept = values > max(values[-1], 0) * len(S) * np.finfo(float).eps
        V, size = V[:, kept], np.sqrt(values[kept])
        U = _column_basis((V / size).T @ cross, tolerance)
        return (V / size) @ U, (V * size) @ U
    U = _column_basis(solve_triangular(L, cross, lower=True), tolerance)
    return solve_triangular(L, U, lower=True, trans="T"), L @ U


@dataclass(eq=False, repr=False)
class OracleLEACE(MeanDifference):
    r"""LEACE for rows whose class is known: every class gets the mean of all rows, :math:`x' = x - \mu_z + \mu`.

    Parameters
    ----------
    router, random_state
        As in `MeanDifference`, which it is at strength 1.

    Attributes
    ----------
    means_, mean_, moments_, classes_, router_, routing_, n_features_in_, feature_names_in_
        As in `MeanDifference`.

    See Also
    --------
    LEACE : One map for all rows, which needs no classes.
    MeanDifference : The same with a strength.

    Notes
    -----
    *Guarantees.* With true labels, all classes have one mean on the training rows, by the smallest edit of all
    functions of row and label: smaller than LEACE's. Given the class it can be undone.

    *Limits.* An edit that depends on the label can add what a nonlinear adversary reads: two clouds laid onto each
    other still differ in their covariances. A routed row of the wrong class moves the wrong way.

    *Labels.* Without a router, transforming requires labels. *Cost.* O(nD). Can be fitted by `partial_fit`.

    References
    ----------
    N. Belrose et al., "LEACE: Perfect linear concept erasure in closed form", NeurIPS 2023.

    Examples
    --------
    >>> import numpy as np
    >>> from mute.rivals import OracleLEACE
    >>> X, z = np.array([[0.0, 0.0], [2.0, 0.0], [5.0, 4.0], [7.0, 4.0]]), ["a", "a", "b", "b"]
    >>> OracleLEACE(router=None).fit(X, z).transform(X, concept=z)
    array([[2.5, 2. ],
           [4.5, 2. ],
           [2.5, 2. ],
           [4.5, 2. ]])
    """

    strength: float = field(default=1.0, init=False)


@dataclass(eq=False, repr=False)
class QLEACE(GaussianTransport):
    r"""Quadratic LEACE: every class gets the mean and the covariance of the classes' Wasserstein barycentre.

    :math:`x' = A_k(x - \mu_k) + \mu` with
    :math:`A_k = \Sigma_k^{-1/2}(\Sigma_k^{1/2} \bar S \Sigma_k^{1/2})^{1/2} \Sigma_k^{-1/2}`.

    Parameters
    ----------
    shrinkage : bool, default=True
        Estimate the class covariances with linear shrinkage.
    router, random_state
        As in `MeanDifference`.

    Attributes
    ----------
    means_, mean_, covariances_, pushes_, moments_, classes_, router_, routing_, n_features_in_, feature_names_in_
        As in `LinearOT`.

    See Also
    --------
    LEACE : Makes means equal only.
    LinearOT : The same map with a ridge in place of the shrinkage.

    Notes
    -----
    *Guarantees.* With true labels and without shrinkage, all classes have one mean and one covariance on the training
    rows, by the least displacement, so no quadratic adversary beats a constant there. Given the class it can be undone.
    The shared mean is that of all rows, the one of least displacement (the authors take the mean of class means).

    *Limits.* Two moments only: shapes still reveal the class. On unseen rows the noise of K covariances shows, as in
    any class-conditional whitening.

    *Labels.* Without a router, transforming requires labels. *Cost.* O(nD² + K D³) to fit, O(nD²) to transform. Can be
    fitted by `partial_fit`.

    References
    ----------
    N. Belrose et al., "LEACE: Perfect linear concept erasure in closed form", NeurIPS 2023; the quadratic form is in
    their library.

    Examples
    --------
    >>> import numpy as np
    >>> from mute.rivals import QLEACE
    >>> z = np.repeat(["a", "b"], 1000)
    >>> X = np.random.default_rng(0).normal(size=(2000, 2)) * np.where(z == "a", 1.0, 3.0)[:, None]
    >>> Q = QLEACE(shrinkage=False, router=None).fit(X, z).transform(X, concept=z)
    >>> bool(np.allclose(np.cov(Q[z == "a"].T), np.cov(Q[z == "b"].T)))
    True
    """

    _parameter_constraints: ClassVar[Constraints] = {"shrinkage": FLAG}
    _: KW_ONLY
    shrinkage: bool = True
    router: Classifier = "mlp"
    random_state: Seed = None

    def _estimate(self, moments: Moments) -> NDArray[np.float64]:
        S = moments.class_covariances
        return np.array(list(map(shrink, S, moments.counts))) if self.shrinkage else S


@dataclass(eq=False, repr=False)
class FreeFormLEACE(ConceptEstimator):
    r"""LEACE by any function of the row: erase what a classifier says of the concept.

    :math:`x' = x - \Sigma_{xg} \Sigma_{gg}^+ (g(x) - E g)`, where g(x) are the class probabilities of a classifier.
    With exact probabilities, :math:`g(x) = E[Z | x]`, this is the smallest edit of all functions of x after which no
    linear classifier beats a constant.

    Parameters
    ----------
    classifier : {"mlp", "logistic"}, default="mlp"
    random_state : int, RandomState or None
        Two fits with the same int give the same eraser.

    Attributes
    ----------
    classifier_, routing_ : NetworkRouter and RoutingReport
        The classifier g, and how it does on held-out rows.
    chance_, slope_ : arrays of shape (K,) and (K, D)
        The mean of g, and what erases: ``x - (g(x) - chance_) @ slope_``.
    classes_, n_features_in_, feature_names_in_
        As in `MUtE`.

    See Also
    --------
    LEACE : The same with an affine map.

    Notes
    -----
    *Guarantees.* On the training rows the covariance of erased rows with g is zero.

    *Limits.* The covariance with the labels themselves is zero only as far as g is calibrated. A nonlinear adversary
    may read g(x) from the erased row, since the edit is a function of it.

    *Labels.* Not needed to transform. *Cost.* Training the classifier, and O(nDK).

    References
    ----------
    N. Belrose et al., "LEACE: Perfect linear concept erasure in closed form", NeurIPS 2023.

    Examples
    --------
    >>> import numpy as np
    >>> from mute.rivals import FreeFormLEACE
    >>> z = np.repeat([0, 1], 500)
    >>> X = np.random.default_rng(0).normal(size=(1000, 4)) + 2 * z[:, None]
    >>> eraser = FreeFormLEACE(classifier="logistic", random_state=0).fit(X, z)
    >>> g = eraser.classifier_.predict_proba(X)
    >>> bool(abs(np.cov(eraser.transform(X).T, g.T)[:4, 4:]).max() < 1e-10)
    True
    """

    _parameter_constraints: ClassVar[Constraints] = {"classifier": one_of("mlp", "logistic")}
    _STORED: ClassVar[dict[str, str]] = {"classifier_": "network D", "chance_": "K", "slope_": "K D"}

    _: KW_ONLY
    classifier: str = "mlp"
    random_state: Seed = None

    def _learn(self, X: Array, z: Array) -> None:
        rng = self._generator()
        drawn = stratified_sample(z, MAX_ROWS, rng)
        router, _, self.routing_ = fit_router(self.classifier, X[drawn], z[drawn], self._encoder, rng)
        self.classifier_ = cast("NetworkRouter", router)
        beside = Moments(1, X.shape[1] + len(self._encoder), "pooled")
        for part in gen_batches(len(X), _BLOCK):
            g = self.classifier_.predict_proba(X[part])
            beside.add(np.concatenate([X[part], g], axis=1).astype(float))
        d, S = X.shape[1], beside.covariance
        self.chance_ = beside.mean[d:]
        # The probabilities sum to one: K - 1 directions count.
        self.slope_ = np.linalg.pinv(S[d:, d:], rcond=1e-10, hermitian=True) @ S[d:, :d]

    def _erase(self, X: Array) -> NDArray[np.floating]:
        g = self.classifier_.predict_proba(X) - self.chance_.astype(X.dtype)
        return X - g @ self.slope_.astype(X.dtype)

    def _check_restored(self) -> None:
        if self.classifier_.n_outputs != len(self.chance_):
            raise MuteError("its classifier does not fit its labels")
        self.classifier_ = NetworkRouter(self.classifier_.weights, self.classifier_.biases)
