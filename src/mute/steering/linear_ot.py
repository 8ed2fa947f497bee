"""Linear optimal transport (MiMiC): the affine map that matches mean and covariance with least displacement."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mute.estimators.moments import Moments
from mute.estimators.settings import FLAG, NOT_NEGATIVE, one_of
from mute.estimators.training import hold_out
from mute.estimators.transport import GaussianTransport, frechet_distance, transport
from mute.flow.routing import stratified_sizes
from mute.rows.reductions import FirstScan
from mute.rows.sampling import Samples, sample_ranks
from mute.rows.stores import ChunkStore, MemoryStore
from mute.typing import Array, Classifier, Constraints, Json, Seed

__all__ = ["LinearOT"]

# Candidates for "auto", and what it takes if no rows can be held out, as in `partial_fit`.
_CANDIDATES = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
_WITHOUT_CHOICE = 1e-2
_MOST_ROWS = 20_000


@dataclass(eq=False, repr=False)
class LinearOT(GaussianTransport):
    r"""Affine transport between the laws of the classes, as if they were Gaussian.

    A row of class i becomes :math:`A(x - \mu_i) + \mu_j` under class j, with
    :math:`A = C_i^{-1/2}(C_i^{1/2} C_j C_i^{1/2})^{1/2} C_i^{-1/2}` and :math:`C_k = \Sigma_k + \lambda I`. Erased,
    every class goes to the Wasserstein barycentre of all.

    Parameters
    ----------
    reg : float or "auto", default="auto"
        The ridge :math:`\lambda`, as a multiple of the mean eigenvalue of the class covariances. "auto" takes the one
        of 1e-7, 1e-6, ... 1 whose map brings each class nearest to the next in mean and covariance (Fréchet distance),
        on a held-out fifth of the rows; block by block, without held-out rows, it takes 1e-2.
    relative : bool, default=True
        With False a number given as `reg` is the ridge itself, as in public implementations.
    router, random_state
        As in `MeanDifference`; the seed is also for the held-out rows.

    Attributes
    ----------
    reg_ : float
        What was used.
    covariances_, pushes_ : arrays of shape (K, D, D)
        The :math:`C_k`, and the maps to the barycentre.
    means_, mean_, moments_, classes_, router_, routing_, n_features_in_, feature_names_in_
        As in `MeanDifference`.

    See Also
    --------
    MeanDifference : The limit of a large ridge.
    QLEACE : The same erasure with shrinkage in place of the ridge.
    MUtE : Transport between laws of any shape.

    Notes
    -----
    *Guarantees.* The maps are symmetric and positive definite, :math:`A C_i A = C_j`, and the way back undoes the way
    there. Without ridge, moved training rows have exactly the mean and covariance of the target class, by the
    least displacement that does so; with it, :math:`\Sigma_j + \lambda(I - A^2)`.

    *Limits.* Without ridge the match is exact only if the classes vary in the same directions, which takes more rows
    than columns; classes that no bijection can take to each other are refused. Only two moments are matched: if the
    laws differ in shape a nonlinear adversary still sees the class. With few rows for the columns the covariances are
    noise, and so is the map; that is what the ridge is for. A ridge that is not relative depends on the variance of the
    rows: the paper's 1e-2 on rows of unit length leaves little more than `MeanDifference`.

    *Labels.* Without a router, transforming requires labels. *Cost.* O(nD² + K D³) to fit, O(D³) once for each pair of
    classes, O(nD²) to move. Can be fitted by `partial_fit`.

    References
    ----------
    S. Singh et al., "Representation Surgery: Theory and Practice of Affine Steering", ICML 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from mute.steering import LinearOT
    >>> z = np.repeat(["a", "b"], 1000)
    >>> X = np.random.default_rng(0).normal(size=(2000, 2)) * np.where(z == "a", 1.0, 3.0)[:, None]
    >>> moved = LinearOT(reg=0.0, router=None).fit(X, z).counterfactual(X[:1000], "b", concept=z[:1000])
    >>> bool(np.allclose(np.cov(moved.T), np.cov(X[1000:].T)))
    True
    """

    _parameter_constraints: ClassVar[Constraints] = {"reg": [*NOT_NEGATIVE, *one_of("auto")], "relative": FLAG}
    PRESETS: ClassVar[dict[str, Json]] = {
        "paper": {"reg": 1e-2, "relative": False},
        "authors": {"reg": 1e-5, "relative": False},
    }
    _STORED: ClassVar[dict[str, str]] = {**GaussianTransport._STORED, "reg_": "plain"}

    reg: float | str = "auto"
    _: KW_ONLY
    relative: bool = True
    router: Classifier = "mlp"
    random_state: Seed = None

    def _learn(self, X: Array, z: Array) -> None:
        rows = MemoryStore(X, z, 1)
        self.reg_ = self._choose_reg(rows, rows.reduce(FirstScan(X.shape[1], len(self._encoder))))
        super()._learn(X, z)

    def _learn_from(self, rows: ChunkStore, scan: FirstScan) -> None:
        self.reg_ = self._choose_reg(rows, scan)
        super()._learn_from(rows, scan)

    def _choose_reg(self, rows: ChunkStore, scan: FirstScan) -> float:
        if self.reg != "auto":
            return float(self.reg)
        rng, counts = self._generator(), scan.class_counts().sum(axis=0)
        some = Samples.fetch(rows, scan, sample_ranks(counts, stratified_sizes(counts, _MOST_ROWS), rng))
        seen, fresh = (self._gather(some.x[part], some.z[part]) for part in hold_out(some.z, 0.2, rng))
        if min(seen.counts.min(), fresh.counts.min()) < 2:
            return _WITHOUT_CHOICE
        scores = [self._misfit(reg, seen, fresh) for reg in _CANDIDATES]
        return _CANDIDATES[int(np.argmin(scores))]

    def _misfit(self, reg: float, seen: Moments, fresh: Moments) -> float:
        """Mean Fréchet distance of fresh rows, moved by maps of seen ones, to fresh rows of the class they go to."""
        C, S = _ridged(seen.class_covariances, reg), fresh.class_covariances
        total = 0.0
        for i in range(len(C)):
            j = (i + 1) % len(C)
            A = transport(C[i], C[j])
            moved = A @ (fresh.means[i] - seen.means[i]) + seen.means[j]
            total += frechet_distance(moved, A @ S[i] @ A, fresh.means[j], S[j])
        return total / len(C)

    def _estimate(self, moments: Moments) -> NDArray[np.float64]:
        if "reg_" not in vars(self):  # `fit` has not chosen
            self.reg_ = _WITHOUT_CHOICE if self.reg == "auto" else float(self.reg)
        covariances = moments.class_covariances
        if self.reg == "auto" or self.relative:
            return _ridged(covariances, self.reg_)
        return covariances + self.reg_ * np.eye(covariances.shape[1])


def _ridged(covariances: NDArray[np.float64], reg: float) -> NDArray[np.float64]:
    """The covariances with `reg` times their mean eigenvalue on the diagonal."""
    d = covariances.shape[1]
    level = np.trace(covariances, axis1=1, axis2=2).mean() / d
    return covariances + reg * level * np.eye(d)
