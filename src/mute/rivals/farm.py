"""FaRM: a network that spreads the rows of each class over the sphere until the classes overlap."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.estimators.base import WithTask
from mute.estimators.settings import COUNT, COUNT_OR_NONE, FLAG, FROM_0_BELOW_1, NOT_NEGATIVE, POSITIVE, one_of
from mute.estimators.training import TRAINING, StandardisedNetwork, descent, mlp, require_torch, seeded, standardise
from mute.flow.network import Network
from mute.typing import Array, Constraints, Json, Seed, Setting

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = ["AUTHORS", "FaRM", "RateEraser", "half_logdet", "in_double", "paper_presets", "rate", "rate_within"]

# What layer normalisation adds to the variance of a row.
_SMALL = 1e-5
# Batches of held-out rows that early stopping looks at, at the most.
_MOST_WATCHED = 10


def in_double(Y: Tensor) -> Tensor:
    """In double precision, which determinants need; on the CPU where the device has none."""
    return Y.cpu().double() if Y.device.type == "mps" else Y.double()


def half_logdet(A: Tensor) -> Tensor:
    """½ log det(I + A) of a positive semi-definite matrix."""
    import torch

    eye = torch.eye(len(A), dtype=A.dtype, device=A.device)
    try:
        factor: Tensor = torch.linalg.cholesky(eye + A)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        raise MuteError(
            "training diverged: a rate of the rows cannot be computed; lower the learning rate or raise the distortion"
        ) from None
    return factor.diagonal().log().sum()


def rate(Y: Tensor, distortion: float = 0.5, count: int | None = None) -> Tensor:
    """Nats that code the rows up to the distortion ε²: ½ log det(I + D/(n ε²) YᵀY).

    `distortion` is ε²; `count` stands in for n.
    """
    n, d = Y.shape
    Y = in_double(Y)
    gram = Y.T @ Y if n > d else Y @ Y.T  # the determinant is the same
    return half_logdet(gram * (d / ((count or n) * distortion)))


def rate_within(Y: Tensor, z: Tensor, distortion: float = 0.5) -> Tensor:
    """Rates of the classes, each weighed by its share of the rows: Σ_k n_k/n R(Y_k), never more than R(Y)."""
    classes = (Y[z == k] for k in z.unique())
    return cast("Tensor", sum(len(rows) * rate(rows, distortion) for rows in classes)) / len(Y)


@dataclass(eq=False, repr=False)
class RateEraser(StandardisedNetwork):
    """What FaRM and KRaM share: a network, its training, and the normalisation of its outputs."""

    _parameter_constraints: ClassVar[Constraints] = {
        **TRAINING,
        "n_layers": COUNT,
        "normalization": one_of("layer", "sphere"),
        "output": one_of("normalized", "raw"),
        "distortion": POSITIVE,
        "standardize": FLAG,
        "optimizer": one_of("sgd", "adam"),
        "momentum": FROM_0_BELOW_1,
        "weight_decay": NOT_NEGATIVE,
        "decay_every": COUNT_OR_NONE,
    }

    _: KW_ONLY
    n_layers: int = 4
    normalization: str = "layer"
    output: str = "normalized"
    distortion: float = 0.5
    standardize: bool = True
    epochs: int = 500
    batch_size: int = 1024
    optimizer: str = "sgd"
    learning_rate: float = 1e-3
    momentum: float = 0.9
    weight_decay: float = 5e-4
    decay_every: int | None = 200
    patience: int | None = 50
    validation_fraction: float = 0.1
    device: str = "auto"
    random_state: Seed = None

    def _minimise(
        self,
        loss: Callable[..., Tensor],
        X: Array,
        labels: Sequence[Array],
        rng: np.random.Generator,
        more: Sequence[torch.nn.Module] = (),
    ) -> None:
        """Train the network to the least `loss`, a function of the rows, outputs and labels of a batch."""
        import torch

        learned, held = self._tensors(X, labels, _MOST_WATCHED * self.batch_size, rng)
        watched = list(zip(*(t.split(self.batch_size) for t in held), strict=True))
        modules = [module.to(held[0].device) for module in (mlp(*[X.shape[1]] * (self.n_layers + 1)), *more)]
        optimizer = self._make_optimizer([p for module in modules for p in module.parameters()])
        steps_per_epoch = max(len(learned[0]) // self.batch_size, 1)
        decay = torch.optim.lr_scheduler.StepLR(optimizer, (self.decay_every or self.epochs) * steps_per_epoch, 0.1)

        def batch_loss(x: Tensor, *labels: Tensor) -> Tensor:
            return loss(x, self._normalised_tensor(modules[0](x)), *labels)

        def watch() -> float:
            return float(np.mean([float(batch_loss(*batch)) for batch in watched]))

        self._train(descent(batch_loss, optimizer, schedule=decay), watch, modules, learned)
        self.network_ = Network.from_torch(modules[0])

    def _make_optimizer(self, weights: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        import torch

        if self.optimizer == "adam":
            return torch.optim.Adam(weights, self.learning_rate, (self.momentum, 0.999), weight_decay=self.weight_decay)
        return torch.optim.SGD(weights, self.learning_rate, self.momentum, weight_decay=self.weight_decay)

    def _radius(self, d: int) -> float:
        """Norm of the normalised rows over √D."""
        return 1.0 if self.normalization == "layer" else 1 / math.sqrt(d)

    def _normalised_tensor(self, Y: Tensor) -> Tensor:
        from torch.nn.functional import layer_norm

        return layer_norm(Y, Y.shape[1:], eps=_SMALL) * self._radius(Y.shape[1])

    def _normalised(self, Y: NDArray[np.floating]) -> NDArray[np.floating]:
        Y = Y - Y.mean(axis=1, keepdims=True)
        return Y * (self._radius(Y.shape[1]) / np.sqrt((Y**2).mean(axis=1, keepdims=True) + _SMALL))

    def _erase(self, X: Array) -> NDArray[np.floating]:
        Y = self.network_(standardise(X, self.center_, self.scale_))
        return Y if self.output == "raw" else self._normalised(Y)


_PAPER: Json = {
    "normalization": "sphere",
    "output": "raw",
    "standardize": False,
    "epochs": 50,
    "batch_size": 512,
    "optimizer": "adam",
    "weight_decay": 1e-5,
    "decay_every": None,
    "patience": None,
    "validation_fraction": 0.0,
}
AUTHORS: Json = {"standardize": False, "patience": None, "validation_fraction": 0.0}


def paper_presets(**settings: Setting) -> dict[str, Json]:
    """The MUtE paper's settings of FaRM and KRaM, the same but for `settings`.

    The paper says 50 epochs everywhere; its repository takes 500 on GloVe, as "paper-glove" does. The optimiser, the
    normalisation and the output are the repository's: the paper does not name them.
    """
    paper = {**_PAPER, **settings}
    names = ("paper", "paper-glove", "paper-bios", "paper-dial", "paper-jigsaw")
    own = {"paper-glove": {"epochs": 500}, "paper-dial": {"n_layers": 7}}
    return {name: {**paper, **own.get(name, {})} for name in names}


@dataclass(eq=False, repr=False)
class FaRM(WithTask, RateEraser):
    r"""Fairness-aware rate maximisation: make the classes fill the same space until nothing tells them apart.

    A network of linear layers with ReLU between them gives :math:`Y`, whose rows are normalised: centred, and scaled to
    one norm. FaRM maximises :math:`R(Y) + R(Y \mid Z)`, with the rate
    :math:`R(Y) = \frac12 \log\det(I + \frac{D}{n ε^2} Y^T Y)` and the mean rate of the classes
    :math:`R(Y \mid Z) = \sum_k \frac{n_k}{n} R(Y_k) \le R(Y)`. With the labels of a task it minimises the cross-entropy
    of a linear classifier of the task on :math:`Y` plus :math:`λ (R(Y) - R(Y \mid Z))`.

    Parameters
    ----------
    n_layers : int, default=4
        Linear layers, each as wide as the rows.
    normalization : {"layer", "sphere"}, default="layer"
        Norm of the normalised rows: √D (the authors) or 1 (the MUtE paper's code).
    output : {"normalized", "raw"}, default="normalized"
        What `transform` gives: normalised rows (the authors), or the network's output before that (the MUtE paper's
        code). The objective ignores the mean and norm of a raw row, and both may reveal the concept.
    distortion, reduction_weight : float, default=0.5 and 0.01
        ε² and λ, which is used with a task only.
    standardize : bool, default=True
        Centre the rows and divide them by their root mean square before the network. The authors do not; without it
        the network learns nothing from rows far from the origin, or in very small units.
    epochs, batch_size : int, default=500 and 1024
        The most passes over the rows, and the rows of a step.
    optimizer : {"sgd", "adam"}, default="sgd"
    learning_rate, momentum, weight_decay : float, default=1e-3, 0.9 and 5e-4
        With Adam, the momentum is the decay of its first moment.
    decay_every : int or None, default=200
        The learning rate falls to a tenth after every so many epochs.
    patience : int or None, default=50
        Stop after so many epochs without gain on held-out rows, and keep the best weights. None (the authors) never
        stops early.
    validation_fraction : float, default=0.1
        Share of held-out rows. With 0 the training learns from all rows and watches the same rows.
    device : str, default="auto"
        Where torch trains; "auto" takes an accelerator if there is one.
    random_state : int, RandomState or None
        Two fits with the same int give the same eraser.

    Attributes
    ----------
    network_, center_, scale_ : Network, array of shape (D,) and float
        The network takes ``(X - center_) / scale_``.
    history_ : list of float
        Loss on the watched rows after each epoch, in nats.
    classes_, n_features_in_, feature_names_in_
        As in `MUtE`.

    See Also
    --------
    KRaM : The same idea for continuous concepts too; it keeps the rate of all rows.
    GradientReversal : A network that learns against an adversary.

    Notes
    -----
    *Guarantees.* None for the concept. The objective is highest if all classes have the same second moments on the
    sphere, but a network need not get there, and equal second moments are not equal laws.

    *Limits.* Outputs live in a space of their own, without the mean and norm of each row: downstream models must be
    trained on them. They keep what serves the rate, which may be little of the rows (``mute compare``). The rate of the
    classes rises slowly, so early stopping leaves a little more leak than all epochs do. A continuous concept must be
    binned first. The MUtE paper's code has another base of logarithms, which matters only with a task.

    *Labels.* Not needed to transform. *Cost.* For each batch, K + 1 determinants of at most D × D and n_layers
    products of (batch, D) with (D, D).

    References
    ----------
    S. B. R. Chowdhury and S. Chaturvedi, "Learning Fair Representations via Rate-Distortion Maximization", TACL 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from mute.rivals import FaRM
    >>> z = np.arange(1000) % 2
    >>> X = np.random.default_rng(0).normal(size=(1000, 8)) + 2 * z[:, None] * np.eye(8)[0]
    >>> farm = FaRM(epochs=60, batch_size=100, random_state=0).fit(X[:500], z[:500])
    >>> def read(rows):
    ...     return LogisticRegression().fit(rows[:500], z[:500]).score(rows[500:], z[500:])
    >>> read(X) > 0.8, read(farm.transform(X)) < 0.6
    (True, True)
    """

    _parameter_constraints: ClassVar[Constraints] = {
        **RateEraser._parameter_constraints,
        "reduction_weight": NOT_NEGATIVE,
    }
    PRESETS: ClassVar[dict[str, Json]] = {
        **paper_presets(),
        # The authors give 100 to 500 epochs for GloVe and 15 to 20 for Bias in Bios: the most of each.
        "authors-glove": {**AUTHORS, "epochs": 500},
        "authors-bios": {**AUTHORS, "epochs": 20},
        "authors-dial": {**AUTHORS, "epochs": 100, "n_layers": 7, "decay_every": 50},
    }

    _: KW_ONLY
    reduction_weight: float = 0.01

    def _learn(self, X: Array, z: Array, task: Array | None = None) -> None:
        torch = require_torch("FaRM")
        rng = self._generator()

        def loss(x: Tensor, Y: Tensor, z: Tensor, y: Tensor | None = None) -> Tensor:
            whole, within = rate(Y, self.distortion), rate_within(Y, z, self.distortion)
            if y is None:
                return -whole - within
            return self.reduction_weight * (whole - within) + torch.nn.functional.cross_entropy(head(Y), y)

        with seeded(rng):
            if task is None:
                self._minimise(loss, X, [z], rng)
            else:
                head = torch.nn.Linear(X.shape[1], int(task.max()) + 1)
                self._minimise(loss, X, [z, task], rng, [head])
