"""Kernelised concept erasure: the game of RLACE on kernel features, and a network that brings the result back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from itertools import islice, pairwise
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import gen_batches

from mute.errors import MuteError
from mute.estimators.settings import (
    COUNT,
    COUNT_OR_NONE,
    FLAG,
    FROM_0_BELOW_1,
    NOT_NEGATIVE,
    POSITIVE,
    at_least,
    one_of,
)
from mute.estimators.training import GradientTrained, check_network, descent, device_of, hold_out, require_torch, seeded
from mute.flow.network import Network
from mute.flow.routing import stratified_sample
from mute.rivals.rlace import GAME, RLACE, play
from mute.typing import Array, Constraints, Json, Seed

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = ["KernelErasure", "Nystroem", "folded", "way_back"]

# gamma and coef0 of each kernel, from the middle of the ranges that the authors tried.
_DEFAULTS = {
    "rbf": (0.15, 0.0),
    "laplacian": (0.15, 0.0),
    "poly": (0.1, 1.0),
    "sigmoid": (0.005, 0.0),
    "linear": (1.0, 0.0),
}
# Directions of the landmarks' kernel matrix below this share of the largest eigenvalue are left out. The authors set
# such eigenvalues to 1e-10 instead, which blows up what is negative (the sigmoid kernel is indefinite) or rounding.
_FLOOR = 1e-6
# With a patience of as many looks as there are, nothing ends early, but the best is kept.
_AUTHORS: Json = {"evaluate_every": 1000, "patience": 35}
_BLOCK = 4096


@dataclass(frozen=True)
class Nystroem:
    """Features whose inner products are the kernel, exactly between landmarks, nearly between other rows.

    `landmarks` have shape (m, D); `whitening`, shape (m, r), takes kernel values with the landmarks to features.
    """

    kernel: str
    gamma: float
    degree: float
    coef0: float
    landmarks: Tensor
    whitening: Tensor

    @classmethod
    def on(cls, landmarks: Tensor, kernel: str, gamma: float, degree: float, coef0: float) -> Nystroem:
        """With the whitening that these landmarks ask for."""
        import torch

        bare = cls(kernel, gamma, degree, coef0, landmarks, torch.empty(0))
        values, vectors = torch.linalg.eigh(bare.similarity(landmarks))
        kept = values > _FLOOR * values.abs().max()
        if not kept.any():
            raise MuteError(f"the {kernel} kernel with gamma={gamma} and coef0={coef0} is not positive on these rows")
        return replace(bare, whitening=vectors[:, kept] / values[kept].sqrt())

    def to(self, device: torch.device) -> Nystroem:
        """The same on a device, in single precision."""
        landmarks, whitening = (tensor.to(device).float() for tensor in (self.landmarks, self.whitening))
        return replace(self, landmarks=landmarks, whitening=whitening)

    def of(self, X: Array) -> NDArray[np.float32]:
        """Features of rows in numpy, computed in the precision of the landmarks."""
        import torch

        blocks = (torch.tensor(X[part]).to(self.landmarks) for part in gen_batches(len(X), _BLOCK))
        return np.concatenate([self(block).float().numpy() for block in blocks])

    def similarity(self, X: Tensor) -> Tensor:
        """Kernel of rows and landmarks, shape (n, m)."""
        import torch

        L = self.landmarks
        match self.kernel:
            case "linear":
                return X @ L.T
            case "poly":
                return (self.gamma * X @ L.T + self.coef0) ** self.degree
            case "sigmoid":
                return torch.tanh(self.gamma * X @ L.T + self.coef0)
            case "rbf":
                squares = (X**2).sum(1)[:, None] + (L**2).sum(1) - 2 * X @ L.T
                return torch.exp(-self.gamma * squares.clamp(min=0))
            case _:
                return torch.exp(-self.gamma * torch.cdist(X, L, p=1))

    def __call__(self, X: Tensor) -> Tensor:
        """Features, shape (n, r)."""
        return self.similarity(X) @ self.whitening


@dataclass(eq=False, repr=False)
class KernelErasure(GradientTrained):
    r"""Kernelised concept erasure.

    The rows are mapped to features :math:`\varphi(x)` whose inner products are a kernel, the game of `RLACE` takes
    directions V out of these, and a network :math:`g(x) = x + h(x)` seeks rows whose own features are the erased ones:

    .. math:: \min_h E \, \tfrac12 \left( |\varphi(g(x)) - (I - V V^\top) \varphi(x)|^2
              + |V^\top \varphi(g(x))|^2 \right).

    Parameters
    ----------
    kernel : {"rbf", "laplacian", "poly", "sigmoid", "linear"}, default="rbf"
        :math:`e^{-\gamma |x - y|_2^2}`, :math:`e^{-\gamma |x - y|_1}`, :math:`(\gamma x^\top y + c)^d`,
        :math:`\tanh(\gamma x^\top y + c)` or :math:`x^\top y`.
    gamma, coef0, degree : float, float and int, default=None, None and 2
        :math:`\gamma`, c and d. None is from the middle of the authors' ranges: 0.15 for "rbf" and "laplacian", 0.1 and
        1 for "poly", 0.005 and 0 for "sigmoid".
    n_landmarks : int, default=1024
        Rows that the features are built on, at most as many as there are.
    rank : int, optional
        Number of directions to take out of the features; K - 1 when None.
    normalize : bool, default=True
        Scale the rows to length 1 first, as the authors do. The length of a row, which may reveal the concept, is then
        lost: all erased rows are scaled by one number, the mean length of the training rows.
    n_iterations, learning_rate, weight_decay, tolerance : default=35_000, 0.01, 0.00001 and 0.025
        Of the game, as in `RLACE`.
    hidden, dropout : tuple of int and float, default=(512, 512) and 0.1
        Widths of the hidden layers of the network, which has batch normalisation, and its dropout.
    preimage_steps, preimage_learning_rate : int and float, default=20_000 and 0.001
        The most steps that the network is trained for, with Adam.
    batch_size, evaluate_every : int, default=128 and 500
        Rows of a step, and steps between two measurements on held-out rows, in the game and in training. (The authors'
        1000 steps make a fit longer than it need be.)
    patience : int, optional, default=3
        Stop the game or the training after so many measurements without gain. With None neither stops early, and the
        last network is kept instead of the best.
    validation_fraction : float, default=0.1
        Share of held-out rows.
    device, random_state
        As in `FaRM`; the same eraser on the same machine only.

    Attributes
    ----------
    network_, scale_ : Network and float
        h, with batch normalisation folded into its layers; the factor that erased rows are multiplied with.
    game_history_, history_ : list of float
        Loss, on held-out rows, of fresh linear classifiers of erased features after each round of the game; loss of the
        network after each measurement.
    classes_, n_features_in_, feature_names_in_
        As in `MUtE`.

    See Also
    --------
    RLACE : The same game on the rows themselves.
    LEOPARD : A projection that a kernel cannot tell the classes apart under.

    Notes
    -----
    *Guarantees.* None for the rows that `transform` gives. Before the way back, linear classifiers of the features
    :math:`(I - V V^\top) \varphi(x)` are at the `tolerance` on held-out rows if the game ended before its last step.

    *Limits.* Rows with exactly these features need not exist, and the network comes only near, so something is left of
    each direction. However small it is, a classifier that scales its columns can read it: measure the leak on unseen
    rows. The authors found that other kernels and networks still read what one kernel no longer reads. Not taken over
    from the authors: averages of several kernels; principal components and a constant column before the features (put a
    PCA in a pipeline). The last layer of the network starts at 0, and :math:`g` as the identity.

    *Labels.* Not needed to transform. *Cost.* Memory for the features of all rows, n by `n_landmarks`, one
    eigendecomposition of `n_landmarks` columns; in training, features of each batch. To transform: one small network.

    References
    ----------
    S. Ravfogel, F. Vargas, Y. Goldberg and R. Cotterell, "Adversarial Concept Erasure in Kernel Space", EMNLP 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from mute.rivals import KernelErasure
    >>> z = np.repeat([0, 1], 200)
    >>> X = np.random.default_rng(0).normal(size=(400, 5)) + 3 * z[:, None] * [1, 0, 0, 0, 0]
    >>> eraser = KernelErasure(n_landmarks=50, hidden=(32,), n_iterations=500, preimage_steps=200,
    ...                        evaluate_every=50, random_state=0).fit(X, z)
    >>> gap = lambda rows: abs(rows[z == 0].mean(axis=0) - rows[z == 1].mean(axis=0)).max()
    >>> bool(gap(eraser.transform(X)) < gap(X) / 3)
    True
    """

    _parameter_constraints: ClassVar[Constraints] = {
        **GAME,
        **dict.fromkeys(("degree", "n_landmarks", "n_iterations", "preimage_steps"), COUNT),
        "kernel": one_of(*_DEFAULTS),
        "gamma": [*POSITIVE, None],
        "coef0": [*NOT_NEGATIVE, None],
        "rank": COUNT_OR_NONE,
        "normalize": FLAG,
        "hidden": [tuple, list],
        "dropout": FROM_0_BELOW_1,
        "preimage_learning_rate": POSITIVE,
        "batch_size": at_least(2),  # batch normalisation needs two rows
    }
    PRESETS: ClassVar[dict[str, Json]] = {
        "authors": _AUTHORS,
        "authors-poly": {**_AUTHORS, "kernel": "poly"},
        "authors-laplacian": {**_AUTHORS, "kernel": "laplacian"},
        "authors-sigmoid": {**_AUTHORS, "kernel": "sigmoid"},
    }
    _STORED: ClassVar[dict[str, str]] = {
        "network_": "network D",
        **dict.fromkeys(("scale_", "game_history_", "history_"), "plain"),
    }

    kernel: str = "rbf"
    _: KW_ONLY
    gamma: float | None = None
    degree: int = 2
    coef0: float | None = None
    n_landmarks: int = 1024
    rank: int | None = None
    normalize: bool = True
    n_iterations: int = 35_000
    learning_rate: float = 0.01
    weight_decay: float = 1e-5
    tolerance: float = 0.025
    hidden: tuple[int, ...] = (512, 512)
    dropout: float = 0.1
    preimage_steps: int = 20_000
    preimage_learning_rate: float = 0.001
    batch_size: int = 128
    evaluate_every: int = 500
    patience: int | None = 3
    validation_fraction: float = 0.1
    device: str = "auto"
    random_state: Seed = None

    def _check_settings(self) -> None:
        super()._check_settings()
        if not self.hidden or not all(COUNT[0].is_satisfied_by(width) for width in self.hidden):
            raise MuteError(f"hidden must be a tuple of layer widths, such as (512, 512), not {self.hidden!r}")

    def _learn(self, X: Array, z: Array) -> None:
        require_torch("KernelErasure")
        device, rng = device_of(self.device), self._generator()
        self.scale_ = (float(np.linalg.norm(X, axis=1).mean()) or 1.0) if self.normalize else 1.0
        rows = self._scaled(X)
        features = self._features(rows[stratified_sample(z, self.n_landmarks, rng)])
        phi = features.of(rows)
        rank = min(int(z.max()), phi.shape[1]) if self.rank is None else self.rank
        if rank > phi.shape[1]:
            raise MuteError(f"rank must be at most the number of features of these rows, {phi.shape[1]}, not {rank}")
        # Rows are taken several times over, so that an epoch of training has `evaluate_every` steps if it can.
        again = max(1, round(self.evaluate_every * self.batch_size / len(X)))
        rounds = math.ceil(self.n_iterations / self.evaluate_every)
        epochs = math.ceil(self.preimage_steps * self.batch_size / (again * len(X)))
        rules = RLACE(**{name: getattr(self, name) for name in GAME})
        steps = self._steps(rounds + epochs, "round")
        basis, self.game_history_ = play(phi, z, rank, rules, islice(steps, rounds), rng)
        basis = basis.astype(np.float32)
        phi -= (phi @ basis) @ basis.T
        learn, watch = hold_out(z, self.validation_fraction, rng)
        watch = watch[stratified_sample(z[watch], _BLOCK, rng)]
        with seeded(rng):
            learn = np.tile(learn, again)
            self._learn_way_back(features.to(device), (rows, phi, basis), learn, watch, islice(steps, epochs))
        steps.close()

    def _features(self, landmarks: Array) -> Nystroem:
        import torch

        if not len(landmarks):
            raise MuteError(f"n_landmarks={self.n_landmarks} is too few for one row of each class; raise it")
        gamma, coef0 = _DEFAULTS[self.kernel]
        gamma = gamma if self.gamma is None else self.gamma
        coef0 = coef0 if self.coef0 is None else self.coef0
        return Nystroem.on(torch.tensor(landmarks).double(), self.kernel, gamma, self.degree, coef0)

    def _learn_way_back(
        self,
        features: Nystroem,
        arrays: tuple[Array, Array, Array],
        learn: NDArray[np.int64],
        watch: NDArray[np.int64],
        epochs: Iterable[int],
    ) -> None:
        """Train the network from rows to rows with the erased features; `arrays` are both, and the erased span."""
        import torch

        device = features.landmarks.device
        X, phi, V = (torch.tensor(a, dtype=torch.float32, device=device) for a in arrays)
        network = way_back(X.shape[1], self.hidden, self.dropout).to(device)
        optimizer = torch.optim.Adam(network.parameters(), lr=self.preimage_learning_rate)

        def loss(at: Tensor) -> Tensor:
            found = features(X[at] + network(X[at]))
            return (((found - phi[at]) ** 2).sum(1) + ((found @ V) ** 2).sum(1)).mean() / 2

        learned, watched = (torch.as_tensor(rows, device=device) for rows in (learn, watch))
        self._train(descent(loss, optimizer), lambda: loss(watched).item(), [network], [learned], epochs=epochs)
        self.network_ = folded(network)

    def _scaled(self, X: Array) -> NDArray[np.floating]:
        if not self.normalize:
            return X
        lengths = np.linalg.norm(X, axis=1, keepdims=True)
        return X / np.where(lengths > 0, lengths, 1)

    def _erase(self, X: Array) -> NDArray[np.floating]:
        rows = self._scaled(X)
        return (rows + self.network_(rows)) * self.scale_

    def _check_restored(self) -> None:
        check_network(self.network_, self.scale_, self.n_features_in_)


def way_back(n_features: int, hidden: Sequence[int], dropout: float) -> torch.nn.Sequential:
    """The network h, with batch normalisation and dropout; its last layer starts at zero."""
    from torch import nn

    layers: list[nn.Module] = []
    for a, b in pairwise([n_features, *hidden]):
        layers += [nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU(), nn.Dropout(dropout)]
    last = nn.Linear(hidden[-1], n_features)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(*layers, last)


def folded(module: torch.nn.Sequential) -> Network:
    """The trained network as plain layers: each batch normalisation becomes part of the layer before it."""
    from torch import nn

    layers: list[nn.Linear] = []
    for layer in module:
        if isinstance(layer, nn.Linear):
            layers.append(layer)
        elif isinstance(layer, nn.BatchNorm1d):
            layers[-1] = nn.utils.fuse_linear_bn_eval(layers[-1].eval(), layer.eval())
    return Network.from_torch(layers)
