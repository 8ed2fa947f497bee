"""Gradient reversal: an encoder learns against an adversary that tries to read the concept from its outputs."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.estimators.base import WithTask
from mute.estimators.training import center_and_scale, device_of, hold_out, require_torch, seeded, standardise, train
from mute.flow.network import Network
from mute.rows.validation import check_number, check_whole_number

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = ["GradientReversal", "learning_rate_at", "reverse", "strength_at"]

# The fresh adversary that judges an epoch: its steps, the rows of each, its learning rate. It may learn its rows by
# heart, so it is looked at every ten steps, on so many watched rows, and taken at its best.
_FRESH_STEPS, _FRESH_BATCH, _FRESH_RATE, _LOOK_EVERY, _MOST_WATCHED = 100, 256, 5e-3, 10, 5000

# The loss of the adversary has no upper bound: without this, an encoder that deceives it may run away.
_LONGEST_GRADIENT = 1.0


def strength_at(p: float) -> float:
    """λ_p = 2/(1 + exp(-10 p)) - 1: from 0 at the start of the training, p = 0, to nearly 1 at its end, p = 1."""
    return math.tanh(5 * p)


def learning_rate_at(p: float) -> float:
    """μ_p/μ_0 = (1 + 10 p)^(-3/4)."""
    return (1 + 10 * p) ** -0.75


def reverse(U: Tensor, strength: float) -> Tensor:
    """The same values, whose gradient goes back multiplied by minus `strength`."""
    import torch

    class Reversal(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, U: Tensor) -> Tensor:
            return U.view_as(U)

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return -strength * gradient

    return Reversal.apply(U)


class GradientReversal(WithTask):
    r"""An encoder trained against an adversary whose gradient it receives reversed.

    The encoder :math:`g(x) = x + \mathrm{MLP}(x)` starts as the identity and plays, with an adversary :math:`h` that
    reads the concept and a network that keeps its outputs useful,

    .. math:: \min_g \max_h \; L(g) - λ\, \mathrm{CE}(h(g(x)), z).

    :math:`L` is the reconstruction error :math:`\|x - \mathrm{dec}(g(x))\|^2/D`, in units of the variance of the rows,
    or, with the labels of a task, the cross-entropy of a classifier of the task. Between the two, a reversal layer
    leaves values as they are and multiplies gradients by :math:`-λ`, so that one backward pass serves both players.
    Over the training, of which the share :math:`p` is done, :math:`λ` grows as :math:`2/(1 + e^{-10p}) - 1` and the
    learning rate falls as :math:`(1 + 10p)^{-3/4}`.

    Parameters
    ----------
    strength : float, default=1.0
        The λ that the training ends with: what a nat of the concept is worth in units of L. Without a task the encoder
        gives up directions that hold a small share of the variance; where there are few columns, it takes more.
    adversary_width : int, default=256
    adversary_layers : int, default=2
        Hidden layers of the adversary; with 0 it is linear.
    adversary_steps : int, default=3
        Steps of the adversary alone before each step of both.
    adversary_decay : float, default=0.01
        Its weight decay. An adversary that is sure of every row has no gradient to reverse.
    reset_every : int or None, default=10
        Epochs after which a new adversary takes over, which the encoder has not learned to deceive.
    epochs : int, default=50
        Passes over the rows; the two schedules run over all of them.
    batch_size : int, default=128
    learning_rate : float, default=0.01
        At the start.
    momentum : float, default=0.9
    patience : int or None, default=50
        Epochs without gain on rows set aside before the training ends with the best encoder. By default as many as
        there are epochs: the game moves little at first, and its schedules are made for its whole length. With None the
        last encoder is kept.
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
        Mean of the rows and the root mean square about it: the MLP takes ``(X - center_) / scale_``.
    network_ : Network
        The MLP of the encoder.
    history_ : list of float
        After each epoch, on watched rows: L plus `strength` times the nats of the concept that a fresh adversary reads.
        The loss of the adversary in the game would be no measure, since the encoder has learned to deceive that one.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    *Guarantees.* None. The game need not converge, and its adversary says little about others: judge it by fresh
    probes, on rows not used in fit.

    *Limits.* It takes some thousand steps, so many epochs where there are few rows, and often stops halfway: fresh
    probes read much of the concept still (``mute compare``). With a task, all that does not serve it may go. The
    authors' setting (preset "authors") has no further adversary steps, resets or weight decay; it was made for deep
    networks that learn their features with the game.

    *Labels.* Not needed to transform.

    *Cost.* ``adversary_steps + 1`` passes of the adversary over the rows for each epoch, and 100 steps of a fresh one.

    References
    ----------
    Y. Ganin et al., "Domain-Adversarial Training of Neural Networks", JMLR, 2016.
    A. Feder et al., "CausaLM: Causal Model Explanation Through Counterfactual Language Models", Computational
    Linguistics, 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from mute.rivals import GradientReversal
    >>> rng = np.random.default_rng(0)
    >>> z = np.arange(1000) % 2
    >>> X = rng.normal(size=(1000, 8)) + 2 * z[:, None] * np.eye(8)[0]
    >>> eraser = GradientReversal(
    ...     strength=5, adversary_width=16, adversary_steps=1, epochs=12, batch_size=10, random_state=0
    ... )
    >>> Q = eraser.fit(X[:500], z[:500]).transform(X)
    >>> def read(rows):
    ...     return LogisticRegression().fit(rows[:500], z[:500]).score(rows[500:], z[500:])
    >>> read(X) > 0.8, read(Q) < 0.7
    (True, True)
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "authors": {
            "adversary_steps": 0,
            "adversary_decay": 0.0,
            "reset_every": None,
            "patience": None,
            "validation_fraction": 0.0,
        },
    }
    _STORED: ClassVar[dict[str, str]] = {
        "center_": "D",
        "scale_": "plain",
        "network_": "network D",
        "history_": "plain",
    }

    def __init__(
        self,
        *,
        strength: float = 1.0,
        adversary_width: int = 256,
        adversary_layers: int = 2,
        adversary_steps: int = 3,
        adversary_decay: float = 0.01,
        reset_every: int | None = 10,
        epochs: int = 50,
        batch_size: int = 128,
        learning_rate: float = 0.01,
        momentum: float = 0.9,
        patience: int | None = 50,
        validation_fraction: float = 0.1,
        device: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.strength = strength
        self.adversary_width = adversary_width
        self.adversary_layers = adversary_layers
        self.adversary_steps = adversary_steps
        self.adversary_decay = adversary_decay
        self.reset_every = reset_every
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.device = device
        self.random_state = random_state

    def _check_settings(self) -> None:
        for name in ("adversary_width", "epochs", "batch_size"):
            check_whole_number(name, getattr(self, name))
        for name in ("adversary_layers", "adversary_steps"):
            check_whole_number(name, getattr(self, name), 0)
        for name in ("reset_every", "patience"):
            check_whole_number(name, getattr(self, name), or_none=True)
        for name in ("strength", "adversary_decay"):
            check_number(name, getattr(self, name), "of at least 0", lambda v: v >= 0)
        check_number("learning_rate", self.learning_rate, "above 0", lambda v: v > 0)
        for name in ("momentum", "validation_fraction"):
            check_number(name, getattr(self, name), "from 0 to below 1", lambda v: 0 <= v < 1)

    def _learn(self, X: NDArray, z: NDArray, task: NDArray | None = None) -> None:
        torch = require_torch("GradientReversal")
        device, rng = device_of(self.device), self._generator()
        learn, watch = hold_out(z, self.validation_fraction, rng)
        self.center_, self.scale_ = center_and_scale(X[learn])
        rows = standardise(X, self.center_, self.scale_).astype(np.float32)
        arrays = (rows, z) if task is None else (rows, z, task)
        learned, watched = (
            [torch.as_tensor(a[part]).to(device) for a in arrays]
            for part in (learn, rng.permutation(watch)[:_MOST_WATCHED])
        )
        with seeded(int(rng.integers(2**31 - 1))):
            game = _Game(self, learned, [1 + int(codes.max()) for codes in arrays[1:]])
            self.history_ = train(
                game.step,
                lambda: game.value(*watched),
                [game.encoder],
                learned,
                epochs=self._steps(self.epochs, "epoch"),
                batch_size=self.batch_size,
                patience=self.patience,
            )
        self.network_ = Network.from_torch(game.encoder)

    def _erase(self, X: NDArray) -> NDArray[np.floating]:
        return X + X.dtype.type(self.scale_) * self.network_(standardise(X, self.center_, self.scale_))

    def _check_restored(self) -> None:
        if self.network_.n_outputs != self.n_features_in_:
            raise MuteError("its network does not give as many columns as it takes")
        check_number("scale_", self.scale_, "above 0", lambda v: v > 0)


class _Game:
    """The players and their steps."""

    def __init__(self, settings: GradientReversal, rows: list[Tensor], n_classes: list[int]) -> None:
        self.settings = settings
        self.x, self.z = rows[:2]
        self.n_classes = n_classes
        d = self.x.shape[1]
        self.encoder = self._network(d, d, d, zero=True)
        # Without a task the decoder is residual like the encoder: both start as the identity.
        with_task = len(n_classes) == 2
        self.reader = self._network(d, d, n_classes[1] if with_task else d, zero=not with_task)
        self.optimizer = self._sgd(self.encoder, self.reader)
        self.steps_done = 0
        self.steps_per_epoch = max(len(self.x) // settings.batch_size, 1)

    def step(self, x: Tensor, z: Tensor, y: Tensor | None = None) -> None:
        """Steps of the adversary alone, on rows of its own, then one of all players."""
        import torch

        settings, per_epoch = self.settings, self.steps_per_epoch
        if self.steps_done % ((settings.reset_every or settings.epochs) * per_epoch) == 0:
            self.adversary = self._new_adversary()
            self.adversary_optimizer = self._sgd(self.adversary, decay=settings.adversary_decay)
        progress = self.steps_done / (settings.epochs * per_epoch)
        self.steps_done += 1
        for optimizer in (self.optimizer, self.adversary_optimizer):
            optimizer.param_groups[0]["lr"] = settings.learning_rate * learning_rate_at(progress)
        for _ in range(settings.adversary_steps):
            self._teach(self.adversary, self.adversary_optimizer, len(x))
        self.optimizer.zero_grad()
        self.adversary_optimizer.zero_grad()
        u = self._encode(x)
        reversed_ = reverse(u, settings.strength * strength_at(progress))
        (self._utility(u, x, y) + self._read(self.adversary, reversed_, z)).backward()
        torch.nn.utils.clip_grad_norm_(self.encoder.parameters(), _LONGEST_GRADIENT)
        self.optimizer.step()
        self.adversary_optimizer.step()

    def value(self, x: Tensor, z: Tensor, y: Tensor | None = None) -> float:
        """The objective under the best answer of an adversary that has not played."""
        u = self._encode(x)
        return float(self._utility(u, x, y)) + self.settings.strength * self._leak(u, z)

    def _leak(self, u: Tensor, z: Tensor) -> float:
        """Nats of the concept that a fresh adversary, trained on the rows of the game, reads in these."""
        import torch

        shares = torch.bincount(z) / len(z)
        entropy = float(torch.special.entr(shares).sum())
        least, adversary = entropy, self._new_adversary()
        optimizer = torch.optim.Adam(adversary.parameters(), _FRESH_RATE)
        for i in range(_FRESH_STEPS):
            with torch.enable_grad():
                self._teach(adversary, optimizer, _FRESH_BATCH)
            if i % _LOOK_EVERY == _LOOK_EVERY - 1:
                least = min(least, float(self._read(adversary, u, z)))
        return entropy - least

    def _teach(self, adversary: torch.nn.Module, optimizer: torch.optim.Optimizer, n_rows: int) -> None:
        """One step of an adversary alone, on random rows."""
        import torch

        drawn = torch.randint(len(self.x), (n_rows,)).to(self.x.device)
        optimizer.zero_grad()
        self._read(adversary, self._encode(self.x[drawn]).detach(), self.z[drawn]).backward()
        optimizer.step()

    def _encode(self, x: Tensor) -> Tensor:
        return x + self.encoder(x)

    def _read(self, adversary: torch.nn.Module, u: Tensor, z: Tensor) -> Tensor:
        from torch.nn.functional import cross_entropy

        return cross_entropy(adversary(u), z)

    def _utility(self, u: Tensor, x: Tensor, y: Tensor | None) -> Tensor:
        if y is None:
            return (x - u - self.reader(u)).square().mean()
        return self._read(self.reader, u, y)

    def _new_adversary(self) -> torch.nn.Module:
        hidden = [self.settings.adversary_width] * self.settings.adversary_layers
        return self._network(self.x.shape[1], *hidden, self.n_classes[0])

    def _network(self, *widths: int, zero: bool = False) -> torch.nn.Sequential:
        """Linear layers with ReLU between them; with `zero`, the last one starts at zero."""
        from torch import nn

        linear = [nn.Linear(a, b) for a, b in pairwise(widths)]
        if zero:
            nn.init.zeros_(linear[-1].weight)
            nn.init.zeros_(linear[-1].bias)
        layers = [layer for each in linear for layer in (each, nn.ReLU())][:-1]
        return nn.Sequential(*layers).to(self.x.device)

    def _sgd(self, *modules: torch.nn.Module, decay: float = 0.0) -> torch.optim.SGD:
        import torch

        weights = [p for module in modules for p in module.parameters()]
        settings = self.settings
        return torch.optim.SGD(weights, settings.learning_rate, momentum=settings.momentum, weight_decay=decay)
