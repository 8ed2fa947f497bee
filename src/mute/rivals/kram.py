"""KRaM: a network that drives rows with like values of the concept apart and holds the rate of all rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.estimators.training import require_torch, seeded
from mute.rivals.farm import RateEraser, half_logdet, in_double, paper_presets, rate
from mute.rows.validation import check_number

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

    Parameters
    ----------
    Y : tensor of shape (n, D)
    z : tensor of shape (n,) or (n, m)
        Classes, of which K_ij = 1[z_i = z_j]; or values, see `likeness`.
    distortion : float, default=0.5
        ε².
    bandwidth : float, default=0.01
        σ.
    """
    n, d = Y.shape
    if z.ndim == 1:  # the matrix is block diagonal: one small determinant for each class
        total: Any = sum(rate(Y[z == k], distortion, count=n) for k in z.unique())
        return total
    Y = in_double(Y)
    return half_logdet(Y @ Y.T * likeness(z, bandwidth) * (d / (n * distortion)))


class KRaM(RateEraser):
    r"""Kernelised rate maximisation: rows of like concept are driven apart, and the rate of all rows is held.

    A network :math:`g` of linear layers with ReLU between them gives :math:`Y`, whose rows are normalised (centred, and
    scaled to one norm). With the rate :math:`R(Y) = \frac12 \log\det(I + \frac{D}{n ε^2} Y Y^T)` and that of the rows
    as far as a kernel :math:`K` of the concept ties them,

    .. math:: R(Y \mid K) = \frac12 \log\det(I + \frac{D}{n ε^2} Y Y^T \circ K) \ge R(Y),

    it maximises :math:`R(Y \mid K) - λ |R(Y) - R(X)|`, all on one batch. For classes :math:`K_{ij}` is 1 where the
    labels agree and else 0; for numbers, scaled to [0, 1], it is :math:`\exp(-|z_i - z_j|/σ)`; for vectors
    :math:`\exp(-(1 - \cos(z_i, z_j))/σ)`.

    Parameters
    ----------
    concept_type : {"categorical", "continuous"}, default="categorical"
        Labels, or numbers of shape (n,) or vectors of shape (n, m).
    bandwidth : float, default=0.01
        σ, for a continuous concept: values further apart than a few σ count as unlike, and what is common to them
        is not touched. Wider kernels erase more of a concept that varies smoothly.
    budget : {"normalized", "raw"}, default="normalized"
        Rows of which the rate is held: X normalised as Y is (the MUtE paper's code), or as it is (the authors), where
        the rate depends on the units of X.
    budget_weight : float, default=1.0
        λ.
    n_layers : int, default=4
        Linear layers, each as wide as the rows.
    normalization : {"layer", "sphere"}, default="sphere"
        Norm of the normalised rows: √D or 1.
    output : {"normalized", "raw"}, default="normalized"
        What `transform` gives: normalised rows, or what the network says before that (the authors, and the MUtE paper's
        code). The objective does not see the mean and the norm of a raw row, which may tell the concept.
    distortion : float, default=0.5
        ε².
    standardize : bool, default=True
        Centre the rows and divide them by one number, their root mean square, before the network. The authors do not;
        without it the network learns nothing where rows are far from the origin, or in very small units.
    epochs : int, default=200
        The most passes over the rows. The authors take 10, which are few steps where there are few rows.
    batch_size : int, default=200
    optimizer : {"sgd", "adam"}, default="sgd"
    learning_rate : float, default=1e-3
    momentum : float, default=0.9
        With Adam, the decay of its first moment.
    weight_decay : float, default=5e-4
    decay_every : int or None, default=None
        Epochs after which the learning rate falls to a tenth, again and again.
    patience : int or None, default=50
        Epochs without gain on rows set aside before the training ends with the best weights. With None it runs through,
        as the authors'.
    validation_fraction : float, default=0.1
        Share of the rows set aside. With 0 the training learns from all rows, and watches them.
    device : str, default="auto"
        Where torch trains; "auto" takes an accelerator where there is one.
    random_state : int, RandomState or None
        Two fits with the same int give the same eraser.

    Attributes
    ----------
    classes_ : array of shape (K,)
        The labels of a categorical concept.
    center_ : array of shape (D,)
    scale_ : float
        The network takes ``(X - center_) / scale_``.
    network_ : Network
    history_ : list of float
        Loss on the watched rows after each epoch, in nats.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    *Guarantees.* None for the concept. The rate of all rows is held on average, not exactly; it measures how many
    directions the rows fill, not which.

    *Limits.* Outputs live in a space of their own, without the mean and the norm of each row: downstream models must
    be trained on them. The formula is the paper's; the authors' code has n/D in place of D/n in
    :math:`R(Y \mid K)`, under which a constant kernel no longer gives :math:`R(Y)`. A vector-valued concept is
    compared by direction alone. The authors' ten epochs leave more to be read than early stopping does.

    *Labels.* Not needed to transform.

    *Cost.* For each batch one determinant of at most D × D for each class and two for all rows, or, for a continuous
    concept, one of batch × batch; and n_layers products of (batch, D) with (D, D).

    References
    ----------
    S. B. R. Chowdhury, N. Monath, A. Dubey, A. Ahmed and S. Chaturvedi, "Robust Concept Erasure via Kernelized
    Rate-Distortion Maximization", NeurIPS, 2023.

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

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        **paper_presets(budget_weight=0.7),
        "authors": {
            "budget": "raw",
            "output": "raw",
            "standardize": False,
            "epochs": 10,
            "patience": None,
            "validation_fraction": 0.0,
        },
    }

    def __init__(
        self,
        *,
        concept_type: str = "categorical",
        bandwidth: float = 0.01,
        budget: str = "normalized",
        budget_weight: float = 1.0,
        n_layers: int = 4,
        normalization: str = "sphere",
        output: str = "normalized",
        distortion: float = 0.5,
        standardize: bool = True,
        epochs: int = 200,
        batch_size: int = 200,
        optimizer: str = "sgd",
        learning_rate: float = 1e-3,
        momentum: float = 0.9,
        weight_decay: float = 5e-4,
        decay_every: int | None = None,
        patience: int | None = 50,
        validation_fraction: float = 0.1,
        device: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.concept_type = concept_type
        self.bandwidth = bandwidth
        self.budget = budget
        self.budget_weight = budget_weight
        self.n_layers = n_layers
        self.normalization = normalization
        self.output = output
        self.distortion = distortion
        self.standardize = standardize
        self.epochs = epochs
        self.batch_size = batch_size
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.decay_every = decay_every
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.device = device
        self.random_state = random_state

    def _check_settings(self) -> None:
        super()._check_settings()
        check_number("bandwidth", self.bandwidth, "above 0", lambda v: v > 0)
        check_number("budget_weight", self.budget_weight, "of at least 0", lambda v: v >= 0)
        if self.budget not in ("normalized", "raw"):
            raise MuteError(f'budget must be "normalized" or "raw", not {self.budget!r}')

    def _learn(self, X: NDArray, z: NDArray) -> None:
        require_torch("KRaM")
        rng = self._generator()

        def loss(x: Tensor, Y: Tensor, z: Tensor) -> Tensor:
            held = rate(self._normalised_tensor(x) if self.budget == "normalized" else x, self.distortion)
            gap = (rate(Y, self.distortion) - held).abs()
            return self.budget_weight * gap - kernel_rate(Y, z, self.distortion, self.bandwidth)

        with seeded(int(rng.integers(2**31 - 1))):
            self._minimise(loss, X, [z if z.ndim == 1 else _comparable(z)], rng)


def _comparable(z: NDArray) -> NDArray[np.float32]:
    """Numbers scaled to [0, 1], so that σ means the same for all; vectors must have a direction."""
    if z.shape[1] == 1:
        z = (z - z.min()) / np.ptp(z)
    elif not z.any(axis=1).all():
        raise MuteError("a vector-valued concept is compared by direction, but some of its vectors are zero")
    return z.astype(np.float32)
