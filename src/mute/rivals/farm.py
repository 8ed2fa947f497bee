"""FaRM: a network that spreads the rows of each class, and of all, over the sphere until the classes overlap."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.estimators.base import ConceptEstimator, WithTask
from mute.estimators.training import center_and_scale, device_of, hold_out, require_torch, seeded, standardise, train
from mute.flow.network import Network
from mute.rows.validation import check_number, check_whole_number

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = ["FaRM", "RateEraser", "half_logdet", "in_double", "rate", "rate_within"]

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
        factor = torch.linalg.cholesky(eye + A)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        raise MuteError(
            "training diverged: a rate of the rows cannot be computed; lower the learning rate or raise the distortion"
        ) from None
    return factor.diagonal().log().sum()


def rate(Y: Tensor, distortion: float = 0.5, count: int | None = None) -> Tensor:
    """Nats that code the rows up to the distortion ε²: ½ log det(I + D/(n ε²) YᵀY).

    Parameters
    ----------
    Y : tensor of shape (n, D)
    distortion : float, default=0.5
        ε².
    count : int, optional
        In place of n.
    """
    n, d = Y.shape
    Y = in_double(Y)
    gram = Y.T @ Y if n > d else Y @ Y.T  # the determinant is the same
    return half_logdet(gram * (d / ((count or n) * distortion)))


def rate_within(Y: Tensor, z: Tensor, distortion: float = 0.5) -> Tensor:
    """Rates of the classes, each weighed by its share of the rows: Σ_k n_k/n R(Y_k), never more than R(Y)."""
    classes = [Y[z == k] for k in z.unique()]
    total: Any = sum(len(rows) * rate(rows, distortion) for rows in classes)
    return total / len(Y)


class RateEraser(ConceptEstimator):
    """What FaRM and KRaM share: a network, its training, and rows that are normalised."""

    n_layers: int
    normalization: str
    output: str
    distortion: float
    standardize: bool
    epochs: int
    batch_size: int
    optimizer: str
    learning_rate: float
    momentum: float
    weight_decay: float
    decay_every: int | None
    patience: int | None
    validation_fraction: float
    device: str

    _STORED: ClassVar[dict[str, str]] = {
        "center_": "D",
        "scale_": "plain",
        "network_": "network D",
        "history_": "plain",
    }

    def _check_settings(self) -> None:
        for name in ("n_layers", "epochs", "batch_size"):
            check_whole_number(name, getattr(self, name))
        for name in ("decay_every", "patience"):
            check_whole_number(name, getattr(self, name), or_none=True)
        choices = {"optimizer": ("sgd", "adam"), "normalization": ("layer", "sphere"), "output": ("normalized", "raw")}
        for name, (one, other) in choices.items():
            if getattr(self, name) not in (one, other):
                raise MuteError(f'{name} must be "{one}" or "{other}", not {getattr(self, name)!r}')
        if not isinstance(self.standardize, bool):
            raise MuteError(f"standardize must be True or False, not {self.standardize!r}")
        for name in ("distortion", "learning_rate"):
            check_number(name, getattr(self, name), "above 0", lambda v: v > 0)
        for name in ("momentum", "validation_fraction"):
            check_number(name, getattr(self, name), "from 0 to below 1", lambda v: 0 <= v < 1)
        check_number("weight_decay", self.weight_decay, "of at least 0", lambda v: v >= 0)

    def _minimise(
        self,
        loss: Callable[..., Tensor],
        X: NDArray,
        labels: Sequence[NDArray],
        rng: np.random.Generator,
        more: Sequence[torch.nn.Module] = (),
    ) -> None:
        """Train the network to the least `loss`, a function of the rows, outputs and labels of a batch."""
        import torch

        d, device = X.shape[1], device_of(self.device)
        learn, watch = hold_out(labels[0], self.validation_fraction, rng)
        self.center_, self.scale_ = center_and_scale(X[learn]) if self.standardize else (np.zeros(d), 1.0)
        arrays = (standardise(X, self.center_, self.scale_).astype(np.float32), *labels)
        watch = rng.permutation(watch)[: _MOST_WATCHED * self.batch_size]
        learned, held = ([torch.as_tensor(a[part]).to(device) for a in arrays] for part in (learn, watch))
        watched = list(zip(*(t.split(self.batch_size) for t in held), strict=True))

        layers = [layer for _ in range(self.n_layers) for layer in (torch.nn.Linear(d, d), torch.nn.ReLU())][:-1]
        network = torch.nn.Sequential(*layers).to(device)
        modules = [network, *(module.to(device) for module in more)]
        optimizer = self._make_optimizer([p for module in modules for p in module.parameters()])
        steps_per_epoch = max(len(learn) // self.batch_size, 1)
        decay = torch.optim.lr_scheduler.StepLR(optimizer, (self.decay_every or self.epochs) * steps_per_epoch, 0.1)

        def batch_loss(x: Tensor, *labels: Tensor) -> Tensor:
            return loss(x, self._normalised_tensor(network(x)), *labels)

        def step(*batch: Tensor) -> None:
            optimizer.zero_grad()
            batch_loss(*batch).backward()
            optimizer.step()
            decay.step()

        self.history_ = train(
            step,
            lambda: float(np.mean([float(batch_loss(*batch)) for batch in watched])),
            modules,
            learned,
            epochs=self._steps(self.epochs, "epoch"),
            batch_size=self.batch_size,
            patience=self.patience,
        )
        self.network_ = Network.from_torch(network)

    def _make_optimizer(self, weights: list[Any]) -> Any:
        import torch

        settings: dict[str, Any] = {"lr": self.learning_rate, "weight_decay": self.weight_decay}
        if self.optimizer == "adam":
            return torch.optim.Adam(weights, betas=(self.momentum, 0.999), **settings)
        return torch.optim.SGD(weights, momentum=self.momentum, **settings)

    def _radius(self, d: int) -> float:
        """Norm of the normalised rows over √D."""
        return 1.0 if self.normalization == "layer" else 1 / math.sqrt(d)

    def _normalised_tensor(self, Y: Tensor) -> Tensor:
        from torch.nn.functional import layer_norm

        return layer_norm(Y, Y.shape[1:], eps=_SMALL) * self._radius(Y.shape[1])

    def _normalised(self, Y: NDArray) -> NDArray:
        Y = Y - Y.mean(axis=1, keepdims=True)
        return Y * (self._radius(Y.shape[1]) / np.sqrt((Y**2).mean(axis=1, keepdims=True) + _SMALL))

    def _erase(self, X: NDArray) -> NDArray[np.floating]:
        Y = self.network_(standardise(X, self.center_, self.scale_))
        return Y if self.output == "raw" else self._normalised(Y)

    def _check_restored(self) -> None:
        if self.network_.n_outputs != self.n_features_in_:
            raise MuteError("its network does not give as many columns as it takes")
        check_number("scale_", self.scale_, "above 0", lambda v: v > 0)


_PAPER: dict[str, Any] = {
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
_AUTHORS: dict[str, Any] = {"standardize": False, "patience": None, "validation_fraction": 0.0}


def paper_presets(**settings: Any) -> dict[str, dict[str, Any]]:
    """The MUtE paper's settings of FaRM and KRaM, the same but for `settings`.

    The paper says 50 epochs everywhere; its repository takes 500 on GloVe, as "paper-glove" does. The paper does not
    name the optimiser, the normalisation or the output: these are the repository's.
    """
    paper = {**_PAPER, **settings}
    return {
        "paper": paper,
        "paper-glove": {**paper, "epochs": 500},
        "paper-bios": paper,
        "paper-dial": {**paper, "n_layers": 7},
        "paper-jigsaw": paper,
    }


class FaRM(WithTask, RateEraser):
    r"""Fairness-aware rate maximisation: make the classes fill the same space until nothing tells them apart.

    A network :math:`g` of linear layers with ReLU between them gives :math:`Y`, whose rows are normalised (centred, and
    scaled to one norm). With the rate :math:`R(Y) = \frac12 \log\det(I + \frac{D}{n ε^2} Y^T Y)` and the mean rate of
    the classes :math:`R(Y \mid Z) = \sum_k \frac{n_k}{n} R(Y_k) \le R(Y)`, it maximises

    .. math:: R(Y) + R(Y \mid Z),

    or, with the labels of a task, minimises the cross-entropy of a linear classifier of the task on :math:`Y` plus
    :math:`λ (R(Y) - R(Y \mid Z))`.

    Parameters
    ----------
    n_layers : int, default=4
        Linear layers, each as wide as the rows.
    normalization : {"layer", "sphere"}, default="layer"
        Norm of the normalised rows: √D (the authors) or 1 (the MUtE paper's code).
    output : {"normalized", "raw"}, default="normalized"
        What `transform` gives: normalised rows (the authors), or what the network says before that (the MUtE paper's
        code). The objective does not see the mean and the norm of a raw row, which may tell the concept.
    distortion : float, default=0.5
        ε².
    reduction_weight : float, default=0.01
        λ, used with a task only.
    standardize : bool, default=True
        Centre the rows and divide them by one number, their root mean square, before the network. The authors do not;
        without it the network learns nothing where rows are far from the origin, or in very small units.
    epochs : int, default=500
        The most passes over the rows.
    batch_size : int, default=1024
    optimizer : {"sgd", "adam"}, default="sgd"
    learning_rate : float, default=1e-3
    momentum : float, default=0.9
        With Adam, the decay of its first moment.
    weight_decay : float, default=5e-4
    decay_every : int or None, default=200
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
        The labels.
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
    *Guarantees.* None for the concept: the objective is highest where all classes have the same second moments on the
    sphere, but nothing says that a network gets there, nor that equal second moments are equal laws.

    *Limits.* Outputs live in a space of their own, without the mean and the norm of each row: downstream models must
    be trained on them. Only what serves the rate is kept, which may be little of the rows (``mute compare``). The
    class-conditional rate rises slowly for long, so early stopping leaves a little more to be read than all epochs.
    A continuous concept must be binned first (or see `KRaM`). Logarithms are natural; to another base, as in the MUtE
    paper's code, the loss has another unit, which changes the best network only where a task stands against it.

    *Labels.* Not needed to transform.

    *Cost.* K + 1 determinants of at most D × D and n_layers products of (batch, D) with (D, D) for each batch.

    References
    ----------
    S. B. R. Chowdhury and S. Chaturvedi, "Learning Fair Representations via Rate-Distortion Maximization",
    TACL, 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from mute.rivals import FaRM
    >>> rng = np.random.default_rng(0)
    >>> z = np.arange(1000) % 2
    >>> X = rng.normal(size=(1000, 8)) + 2 * z[:, None] * np.eye(8)[0]
    >>> farm = FaRM(epochs=60, batch_size=100, random_state=0).fit(X[:500], z[:500])
    >>> def read(rows):
    ...     return LogisticRegression().fit(rows[:500], z[:500]).score(rows[500:], z[500:])
    >>> read(X) > 0.8, read(farm.transform(X)) < 0.6
    (True, True)
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        **paper_presets(),
        # The authors give 100 to 500 epochs for GloVe and 15 to 20 for Bias in Bios: the most of each.
        "authors-glove": {**_AUTHORS, "epochs": 500},
        "authors-bios": {**_AUTHORS, "epochs": 20},
        "authors-dial": {**_AUTHORS, "epochs": 100, "n_layers": 7, "decay_every": 50},
    }

    def __init__(
        self,
        *,
        n_layers: int = 4,
        normalization: str = "layer",
        output: str = "normalized",
        distortion: float = 0.5,
        reduction_weight: float = 0.01,
        standardize: bool = True,
        epochs: int = 500,
        batch_size: int = 1024,
        optimizer: str = "sgd",
        learning_rate: float = 1e-3,
        momentum: float = 0.9,
        weight_decay: float = 5e-4,
        decay_every: int | None = 200,
        patience: int | None = 50,
        validation_fraction: float = 0.1,
        device: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.n_layers = n_layers
        self.normalization = normalization
        self.output = output
        self.distortion = distortion
        self.reduction_weight = reduction_weight
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
        check_number("reduction_weight", self.reduction_weight, "of at least 0", lambda v: v >= 0)

    def _learn(self, X: NDArray, z: NDArray, task: NDArray | None = None) -> None:
        torch = require_torch("FaRM")
        rng = self._generator()

        def overlap(x: Tensor, Y: Tensor, z: Tensor) -> Tensor:
            return -rate(Y, self.distortion) - rate_within(Y, z, self.distortion)

        def task_and_reduction(x: Tensor, Y: Tensor, z: Tensor, y: Tensor) -> Tensor:
            reduction = rate(Y, self.distortion) - rate_within(Y, z, self.distortion)
            return torch.nn.functional.cross_entropy(head(Y), y) + self.reduction_weight * reduction

        with seeded(int(rng.integers(2**31 - 1))):
            if task is None:
                self._minimise(overlap, X, [z], rng)
            else:
                head = torch.nn.Linear(X.shape[1], int(task.max()) + 1)
                self._minimise(task_and_reduction, X, [z, task], rng, [head])
