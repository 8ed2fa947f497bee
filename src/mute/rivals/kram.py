"""KRaM: a network that drives rows with like values of the concept apart and keeps the rate of all rows."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.estimators.settings import NOT_NEGATIVE, POSITIVE, one_of
from mute.estimators.training import require_torch, seeded
from mute.rivals.farm import AUTHORS, RateEraser, half_logdet, in_double, paper_presets, rate
from mute.typing import Array, Constraints, Json

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["KRaM", "kernel_rate", "likeness"]


def likeness(z: Tensor, bandwidth: float) -> Tensor:
    """Kernel of concept values, positive semi-definite with ones on the diagonal.

    exp(-abs(z_i - z_j)/σ) for numbers, shape (n, 1); exp(-(1 - cos(z_i, z_j))/σ) for vectors, shape (n, m).
    """
    from torch.nn.functional import normalize

    z = in_double(z)
    if z.shape[1] == 1:
        distance = (z - z.T).abs()
    else:
        unit = normalize(z)
        distance = (1 - unit @ unit.T).fill_diagonal_(0)
    return (-distance / bandwidth).exp()


def kernel_rate(Y: Tensor, z: Tensor, distortion: float = 0.5, bandwidth: float = 0.01) -> Tensor:
    """Rate of the rows as far as the concept ties them: ½ log det(I + D/(n ε²) YYᵀ∘K), never less than R(Y).

    `z` has classes, shape (n,), of which K_ij = 1[z_i = z_j]; or values, shape (n, m), see `likeness`. `distortion` is
    ε², `bandwidth` is σ.
    """
    n, d = Y.shape
    if z.ndim == 1:  # the matrix is block diagonal: one small determinant for each class
        return cast("Tensor", sum(rate(Y[z == k], distortion, count=n) for k in z.unique()))
    Y = in_double(Y)
    return half_logdet(Y @ Y.T * likeness(z, bandwidth) * (d / (n * distortion)))


@dataclass(eq=False, repr=False)
class KRaM(RateEraser):
    r"""Kernelised rate maximisation: drive rows of like concept apart, and keep the rate of all rows.

    As in `FaRM`, a network gives :math:`Y`, normalised, with the rate
    :math:`R(Y) = \frac12 \log\det(I + \frac{D}{n ε^2} Y Y^T)`. A kernel :math:`K` of the concept says which rows belong
    together, and

    .. math:: R(Y \mid K) = \frac12 \log\det(I + \frac{D}{n ε^2} Y Y^T \circ K) \ge R(Y).

    KRaM maximises :math:`R(Y \mid K) - λ |R(Y) - R(X)|`, all on one batch. For classes :math:`K_{ij}` is 1 if the
    labels agree and else 0; for numbers, scaled to [0, 1], it is :math:`\exp(-|z_i - z_j|/σ)`; for vectors
    :math:`\exp(-(1 - \cos(z_i, z_j))/σ)`.

    Parameters
    ----------
    concept_type : {"categorical", "continuous"}, default="categorical"
        Labels, or numbers of shape (n,) or vectors of shape (n, m).
    bandwidth : float, default=0.01
        σ, for a continuous concept. Values further apart than a few σ count as unlike, and what they have in common
        stays. Wider kernels erase more of a concept that varies smoothly.
    budget : {"normalized", "raw"}, default="normalized"
        Rows whose rate is kept: X normalised as Y is (the MUtE paper's code), or X as it is (the authors). The rate of
        raw rows depends on the units of X.
    budget_weight : float, default=1.0
        λ.
    normalization, epochs, batch_size, decay_every : default="sphere", 200, 200 and None
        As in `FaRM`. The authors take 10 epochs, which are few steps if there are few rows.
    n_layers, output, distortion, standardize, optimizer, learning_rate, momentum, weight_decay, patience, \
validation_fraction, device, random_state
        As in `FaRM`, with the same defaults. The authors and the MUtE paper's code have ``output="raw"``.

    Attributes
    ----------
    center_, scale_, network_, history_, classes_, n_features_in_, feature_names_in_
        As in `FaRM`; a continuous concept has no `classes_`.

    See Also
    --------
    FaRM : The same idea for classes; it also keeps rows useful for a task.
    LEACE : Erases a continuous concept linearly, in closed form.

    Notes
    -----
    *Guarantees.* None for the concept. The rate of all rows is kept on average, not exactly; it measures how many
    directions the rows fill, not which.

    *Limits.* Outputs live in a space of their own, as those of `FaRM` do. The formula is the paper's; the authors' code
    has n/D in place of D/n in :math:`R(Y \mid K)`, so that a constant kernel no longer gives :math:`R(Y)`. Vectors are
    compared by direction alone. The authors' ten epochs leave more leak than early stopping does.

    *Labels.* Not needed to transform. *Cost.* For each batch one determinant of at most D × D for each class and two
    for all rows, or, for a continuous concept, one of batch × batch; and n_layers products of (batch, D) with (D, D).

    References
    ----------
    S. B. R. Chowdhury et al., "Robust Concept Erasure via Kernelized Rate-Distortion Maximization", NeurIPS 2023.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LinearRegression
    >>> from mute.rivals import KRaM
    >>> X = np.random.default_rng(0).normal(size=(1000, 8))
    >>> z = X[:, 0]
    >>> kram = KRaM(concept_type="continuous", bandwidth=0.1, epochs=30, random_state=0).fit(X[:500], z[:500])
    >>> def read(rows):
    ...     return LinearRegression().fit(rows[:500], z[:500]).score(rows[500:], z[500:])
    >>> read(X) > 0.99, read(kram.transform(X)) < 0.2
    (True, True)
    """

    _parameter_constraints: ClassVar[Constraints] = {
        **RateEraser._parameter_constraints,
        "concept_type": one_of("categorical", "continuous"),
        "bandwidth": POSITIVE,
        "budget": one_of("normalized", "raw"),
        "budget_weight": NOT_NEGATIVE,
    }
    PRESETS: ClassVar[dict[str, Json]] = {
        **paper_presets(budget_weight=0.7),
        "authors": {**AUTHORS, "budget": "raw", "output": "raw", "epochs": 10},
    }

    _: KW_ONLY
    concept_type: str = "categorical"
    bandwidth: float = 0.01
    budget: str = "normalized"
    budget_weight: float = 1.0
    normalization: str = "sphere"
    epochs: int = 200
    batch_size: int = 200
    decay_every: int | None = None

    def _learn(self, X: Array, z: Array) -> None:
        require_torch("KRaM")
        rng = self._generator()

        def loss(x: Tensor, Y: Tensor, z: Tensor) -> Tensor:
            before = rate(self._normalised_tensor(x) if self.budget == "normalized" else x, self.distortion)
            gap = (rate(Y, self.distortion) - before).abs()
            return self.budget_weight * gap - kernel_rate(Y, z, self.distortion, self.bandwidth)

        with seeded(rng):
            self._minimise(loss, X, [z if z.ndim == 1 else _comparable(z)], rng)


def _comparable(z: Array) -> NDArray[np.float32]:
    """Numbers scaled to [0, 1], so that σ means the same for all; vectors must have a direction."""
    if z.shape[1] == 1:
        z = (z - z.min()) / np.ptp(z)
    elif not z.any(axis=1).all():
        raise MuteError("the concept has zero vectors, which have no direction to compare; drop these rows")
    return z.astype(np.float32)
