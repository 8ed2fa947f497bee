"""Gradient reversal: an encoder learns against an adversary that tries to read the concept from its outputs."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from mute.estimators.base import WithTask
from mute.estimators.settings import COUNT, COUNT_OR_NONE, FROM_0_BELOW_1, NOT_NEGATIVE, WHOLE
from mute.estimators.training import TRAINING, StandardisedNetwork, mlp, require_torch, seeded, standardise
from mute.flow.network import Network
from mute.typing import Array, Constraints, Json, Seed

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = ["GradientReversal", "learning_rate_at", "reverse", "strength_at"]

# The fresh adversary that judges an epoch: its steps, the rows of each, its learning rate. It may overfit its rows, so
# its loss is measured every ten steps, on so many watched rows, and the best one counts.
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
        def forward(ctx: torch.autograd.function.FunctionCtx, U: Tensor) -> Tensor:
            return U.view_as(U)

        @staticmethod
        def backward(ctx: torch.autograd.function.FunctionCtx, gradient: Tensor) -> Tensor:
            return -strength * gradient

    return Reversal.apply(U)  # type: ignore[no-untyped-call]


@dataclass(eq=False, repr=False)
class GradientReversal(WithTask, StandardisedNetwork):
    r"""An encoder trained against an adversary whose gradient it receives reversed.

    The encoder :math:`g(x) = x + \mathrm{MLP}(x)` starts as the identity. It plays against an adversary :math:`h` that
    reads the concept, together with a network that keeps its outputs useful:

    .. math:: \min_g \max_h \; L(g) - λ\, \mathrm{CE}(h(g(x)), z).

    :math:`L` is the reconstruction error :math:`\|x - \mathrm{dec}(g(x))\|^2/D`, in units of the variance of the rows,
    or, with the labels of a task, the cross-entropy of a classifier of the task. A reversal layer leaves values as they
    are and multiplies gradients by :math:`-λ`, so that one backward pass serves both players. At the share :math:`p` of
    the training, :math:`λ` has grown as :math:`2/(1 + e^{-10p}) - 1` and the learning rate has fallen as
    :math:`(1 + 10p)^{-3/4}`.

    Parameters
    ----------
    strength : float, default=1.0
        The λ that the training ends with: what a nat of the concept is worth in units of L. Without a task the encoder
        gives up directions with a small share of the variance; with few columns, it takes a larger strength.
    adversary_width, adversary_layers : int, default=256 and 2
        Hidden layers of the adversary; with 0 it is linear.
    adversary_steps : int, default=3
        Steps of the adversary alone before each step of both.
    adversary_decay : float, default=0.01
        Weight decay of the adversary. An adversary that is sure of every row has no gradient to reverse.
    reset_every : int or None, default=10
        Epochs after which a new adversary takes over, which the encoder has not learned to deceive.
    epochs, batch_size : int, default=50 and 128
        Passes over the rows, over all of which the two schedules run, and the rows of a step.
    learning_rate, momentum : float, default=0.01 and 0.9
        The learning rate is that of the start.
    patience : int or None, default=50
        As in `FaRM`. By default as many as there are epochs: the game moves little at first, and its schedules are made
        for its whole length. With None the last encoder is kept.
    validation_fraction, device, random_state
        As in `FaRM`, with the same defaults.

    Attributes
    ----------
    center_, scale_, network_, classes_, n_features_in_, feature_names_in_
        As in `FaRM`; the network is the MLP of the encoder.
    history_ : list of float
        After each epoch, on watched rows: L plus `strength` times the nats of the concept that a fresh adversary reads.
        The adversary of the game would be no measure, since the encoder has learned to deceive it.

    See Also
    --------
    FaRM : A network with a closed objective in place of an adversary.
    RLACE : The same game between a linear classifier and a projection.

    Notes
    -----
    *Guarantees.* None. The game need not converge, and its adversary says little about others: judge the eraser by
    fresh adversaries on unseen rows.

    *Limits.* The game takes some thousand steps, so many epochs if there are few rows. It often stops halfway: fresh
    adversaries still read much of the concept (``mute compare``). With a task, all that does not serve it may go. The
    authors' setting (preset "authors") has no further adversary steps, resets or weight decay; it was made for deep
    networks that learn their features with the game.

    *Labels.* Not needed to transform. *Cost.* For each epoch, ``adversary_steps + 1`` passes of the adversary over the
    rows, and 100 steps of a fresh one.

    References
    ----------
    Y. Ganin et al., "Domain-Adversarial Training of Neural Networks", JMLR, 2016.
    A. Feder et al., "CausaLM: Causal Model Explanation Through Counterfactual Language Models", Comput. Linguist. 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from mute.rivals import GradientReversal
    >>> z = np.arange(1000) % 2
    >>> X = np.random.default_rng(0).normal(size=(1000, 8)) + 2 * z[:, None] * np.eye(8)[0]
    >>> eraser = GradientReversal(strength=5, adversary_steps=1, epochs=12, batch_size=10, random_state=0)
    >>> Q = eraser.fit(X[:500], z[:500]).transform(X)
    >>> def read(rows):
    ...     return LogisticRegression().fit(rows[:500], z[:500]).score(rows[500:], z[500:])
    >>> read(X) > 0.8, read(Q) < 0.7
    (True, True)
    """

    _parameter_constraints: ClassVar[Constraints] = {
        **TRAINING,
        **dict.fromkeys(("strength", "adversary_decay"), NOT_NEGATIVE),
        **dict.fromkeys(("adversary_layers", "adversary_steps"), WHOLE),
        "adversary_width": COUNT,
        "reset_every": COUNT_OR_NONE,
        "momentum": FROM_0_BELOW_1,
    }
    PRESETS: ClassVar[dict[str, Json]] = {
        "authors": {
            "adversary_steps": 0,
            "adversary_decay": 0.0,
            "reset_every": None,
            "patience": None,
            "validation_fraction": 0.0,
        },
    }

    _: KW_ONLY
    strength: float = 1.0
    adversary_width: int = 256
    adversary_layers: int = 2
    adversary_steps: int = 3
    adversary_decay: float = 0.01
    reset_every: int | None = 10
    epochs: int = 50
    batch_size: int = 128
    learning_rate: float = 0.01
    momentum: float = 0.9
    patience: int | None = 50
    validation_fraction: float = 0.1
    device: str = "auto"
    random_state: Seed = None

    def _learn(self, X: Array, z: Array, task: Array | None = None) -> None:
        require_torch("GradientReversal")
        rng, labels = self._generator(), [z] if task is None else [z, task]
        learned, watched = self._tensors(X, labels, _MOST_WATCHED, rng)
        with seeded(rng):
            game = _Game(self, learned, [1 + int(codes.max()) for codes in labels])
            self._train(game.step, lambda: game.value(*watched), [game.encoder], learned)
        self.network_ = Network.from_torch(game.encoder)

    def _erase(self, X: Array) -> NDArray[np.floating]:
        return X + X.dtype.type(self.scale_) * self.network_(standardise(X, self.center_, self.scale_))


class _Game:
    """The players and their steps."""

    def __init__(self, settings: GradientReversal, rows: list[Tensor], n_classes: list[int]) -> None:
        self.settings, self.n_classes = settings, n_classes[0]
        self.x, self.z = rows[:2]
        d, device = self.x.shape[1], self.x.device
        self.encoder = mlp(d, d, d, zero=True).to(device)
        # Without a task the decoder is residual like the encoder: both start as the identity.
        self.reader = mlp(d, d, *(n_classes[1:] or [d]), zero=len(n_classes) == 1).to(device)
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

        entropy = float(torch.special.entr(torch.bincount(z) / len(z)).sum())
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
        return (x - u - self.reader(u)).square().mean() if y is None else self._read(self.reader, u, y)

    def _new_adversary(self) -> torch.nn.Module:
        hidden = [self.settings.adversary_width] * self.settings.adversary_layers
        return mlp(self.x.shape[1], *hidden, self.n_classes).to(self.x.device)

    def _sgd(self, *modules: torch.nn.Module, decay: float = 0.0) -> torch.optim.SGD:
        import torch

        weights = [p for module in modules for p in module.parameters()]
        return torch.optim.SGD(weights, self.settings.learning_rate, self.settings.momentum, weight_decay=decay)
