"""Kernelised concept erasure: the game of RLACE on kernel features, and a network that brings the result back."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.estimators.base import ConceptEstimator
from mute.estimators.training import device_of, hold_out, require_torch, seeded, train
from mute.flow.network import Network
from mute.flow.routing import stratified_sample
from mute.rivals.rlace import Rules, play
from mute.rows.validation import check_number, check_whole_number

if TYPE_CHECKING:
    import torch

__all__ = ["KernelErasure", "Nystroem"]

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
_BLOCK = 4096


@dataclass(frozen=True)
class Nystroem:
    """Features whose inner products are the kernel, exactly between landmarks, nearly between other rows.

    Attributes
    ----------
    kernel : str
    gamma, degree, coef0 : float
    landmarks : tensor of shape (m, D)
    whitening : tensor of shape (m, r)
        From kernel values with the landmarks to features.
    """

    kernel: str
    gamma: float
    degree: float
    coef0: float
    landmarks: torch.Tensor
    whitening: torch.Tensor

    @classmethod
    def on(cls, landmarks: torch.Tensor, kernel: str, gamma: float, degree: float, coef0: float) -> Nystroem:
        """With the whitening that these landmarks ask for."""
        import torch

        bare = cls(kernel, gamma, degree, coef0, landmarks, torch.empty(0))
        values, vectors = torch.linalg.eigh(bare.similarity(landmarks))
        kept = values > _FLOOR * values.abs().max()
        if not kept.any():
            raise MuteError(f"the {kernel} kernel with gamma={gamma} and coef0={coef0} is not positive on these rows")
        return cls(kernel, gamma, degree, coef0, landmarks, vectors[:, kept] / values[kept].sqrt())

    def to(self, device: torch.device) -> Nystroem:
        """The same on a device, in single precision."""
        import torch

        arrays = [tensor.to(device, torch.float32) for tensor in (self.landmarks, self.whitening)]
        return Nystroem(self.kernel, self.gamma, self.degree, self.coef0, *arrays)

    def of(self, X: NDArray) -> NDArray[np.float32]:
        """Features of rows in numpy, computed in the precision of the landmarks."""
        import torch

        blocks = (X[start : start + _BLOCK] for start in range(0, len(X), _BLOCK))
        return np.concatenate([self(torch.tensor(block).to(self.landmarks)).float().numpy() for block in blocks])

    def similarity(self, X: torch.Tensor) -> torch.Tensor:
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

    def __call__(self, X: torch.Tensor) -> torch.Tensor:
        """Features, shape (n, r)."""
        return self.similarity(X) @ self.whitening


class KernelErasure(ConceptEstimator):
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
    gamma, coef0 : float, optional
        :math:`\gamma` and c. When None, from the middle of the authors' ranges: 0.15 for "rbf" and "laplacian", 0.1
        and 1 for "poly", 0.005 and 0 for "sigmoid".
    degree : int, default=2
        d.
    n_landmarks : int, default=1024
        Rows that the features are built on, at most as many as there are.
    rank : int, optional
        Number of directions to take out of the features; K - 1 when None.
    normalize : bool, default=True
        Scale the rows to length 1 first, as the authors do. The length of a row is then forgotten, as it may tell the
        concept: all erased rows are scaled by one number, the mean length of the rows of the fit.
    n_iterations : int, default=35_000
        The most steps of the game.
    learning_rate, weight_decay, tolerance : float, default=0.01, 0.00001, 0.025
        Of the game, as in `RLACE`.
    hidden : tuple of int, default=(512, 512)
        Widths of the hidden layers of the network, which has batch normalisation.
    dropout : float, default=0.1
    preimage_steps : int, default=20_000
        The most steps that the network is trained for, with Adam.
    preimage_learning_rate : float, default=0.001
    batch_size : int, default=128
        In the game and in training.
    evaluate_every : int, default=500
        Steps between two looks at the rows set aside, in the game and in training. (The authors' 1000 makes a fit
        longer than it need be.)
    patience : int, optional, default=3
        Looks without gain before the game or the training ends. With None neither does, and the last network is kept
        instead of the best.
    validation_fraction : float, default=0.1
        Share of the rows set aside.
    device : str, default="auto"
        Where torch trains the network.
    random_state : int, RandomState or None
        Two fits with the same int on the same machine give the same eraser.

    Attributes
    ----------
    classes_ : array of shape (K,)
        The labels.
    network_ : Network
        h, with batch normalisation folded into its layers.
    scale_ : float
        What erased rows are multiplied with.
    game_history_ : list of float
        Loss of fresh linear classifiers on erased features after each round of the game, on rows set aside.
    history_ : list of float
        Loss of the network after each look at the rows set aside.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    Not taken over from the authors: averages of several kernels; principal components and a constant column before
    the features (put a PCA in a pipeline). The last layer of the network starts at 0, so that :math:`g` starts as the
    identity.

    *Guarantees.* None for the rows that `transform` gives. Before the way back, linear classifiers of the features
    :math:`(I - V V^\top) \varphi(x)` are at the `tolerance` on rows set aside if the game ended before its last step.

    *Limits.* Rows with just these features need not exist, and the network finds them but nearly, so that something
    is left of each direction; however small, a classifier that scales its columns can read it. Measure it on new rows.
    The authors found that what one kernel cannot read any more, other kernels and networks still can.

    *Labels.* Not needed to transform.

    *Cost.* Features of all rows are held in memory, n by `n_landmarks`, as is one eigendecomposition of `n_landmarks`
    columns. A step of training takes a batch through the features and back. To transform: one small network.

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

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        # A patience of the number of looks never ends anything, but keeps the best.
        "authors": {"evaluate_every": 1000, "patience": 35},
        "authors-poly": {"kernel": "poly", "evaluate_every": 1000, "patience": 35},
        "authors-laplacian": {"kernel": "laplacian", "evaluate_every": 1000, "patience": 35},
        "authors-sigmoid": {"kernel": "sigmoid", "evaluate_every": 1000, "patience": 35},
    }
    _STORED: ClassVar[dict[str, str]] = {
        "network_": "network D",
        "scale_": "plain",
        "game_history_": "plain",
        "history_": "plain",
    }

    def __init__(
        self,
        kernel: str = "rbf",
        *,
        gamma: float | None = None,
        degree: int = 2,
        coef0: float | None = None,
        n_landmarks: int = 1024,
        rank: int | None = None,
        normalize: bool = True,
        n_iterations: int = 35_000,
        learning_rate: float = 0.01,
        weight_decay: float = 1e-5,
        tolerance: float = 0.025,
        hidden: tuple[int, ...] = (512, 512),
        dropout: float = 0.1,
        preimage_steps: int = 20_000,
        preimage_learning_rate: float = 0.001,
        batch_size: int = 128,
        evaluate_every: int = 500,
        patience: int | None = 3,
        validation_fraction: float = 0.1,
        device: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.n_landmarks = n_landmarks
        self.rank = rank
        self.normalize = normalize
        self.n_iterations = n_iterations
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.tolerance = tolerance
        self.hidden = hidden
        self.dropout = dropout
        self.preimage_steps = preimage_steps
        self.preimage_learning_rate = preimage_learning_rate
        self.batch_size = batch_size
        self.evaluate_every = evaluate_every
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.device = device
        self.random_state = random_state

    def _check_settings(self) -> None:
        Rules.of(self).check()
        if not isinstance(self.kernel, str) or self.kernel not in _DEFAULTS:
            raise MuteError(f"kernel must be one of {', '.join(_DEFAULTS)}, not {self.kernel!r}")
        check_whole_number("rank", self.rank, or_none=True)
        for name in ("degree", "n_landmarks", "n_iterations", "preimage_steps"):
            check_whole_number(name, getattr(self, name))
        if self.gamma is not None:
            check_number("gamma", self.gamma, "above 0", lambda v: v > 0)
        if self.coef0 is not None:
            check_number("coef0", self.coef0, "of at least 0", lambda v: v >= 0)
        check_number("dropout", self.dropout, "from 0 to below 1", lambda v: 0 <= v < 1)
        check_number("preimage_learning_rate", self.preimage_learning_rate, "above 0", lambda v: v > 0)
        check_whole_number("batch_size", self.batch_size, 2)  # batch normalisation needs two rows
        if not isinstance(self.hidden, tuple | list) or not self.hidden:
            raise MuteError(f"hidden must be a tuple of layer widths, such as (512, 512), not {self.hidden!r}")
        for width in self.hidden:
            check_whole_number("each width in hidden", width)
        if not isinstance(self.normalize, bool):
            raise MuteError(f"normalize must be True or False, not {self.normalize!r}")

    def _learn(self, X: NDArray, z: NDArray) -> None:
        require_torch("KernelErasure")
        device, rng = device_of(self.device), self._generator()
        self.scale_ = (float(np.linalg.norm(X, axis=1).mean()) or 1.0) if self.normalize else 1.0
        rows = self._scaled(X)
        landmarks = rows[stratified_sample(z, self.n_landmarks, rng)]
        if not len(landmarks):
            raise MuteError(f"n_landmarks={self.n_landmarks} is too few for one row of each class; raise it")
        features = self._features(landmarks)
        phi = features.of(rows)
        rank = min(int(z.max()), phi.shape[1]) if self.rank is None else self.rank
        if rank > phi.shape[1]:
            raise MuteError(f"rank must be at most the number of features of these rows, {phi.shape[1]}, not {rank}")
        # Rows are taken several times over, so that an epoch of training has `evaluate_every` steps if it can.
        again = max(1, round(self.evaluate_every * self.batch_size / len(X)))
        rounds = math.ceil(self.n_iterations / self.evaluate_every)
        epochs = math.ceil(self.preimage_steps * self.batch_size / (again * len(X)))
        steps: Any = self._steps(rounds + epochs, "round")
        basis, self.game_history_ = play(phi, z, rank, Rules.of(self), islice(steps, rounds), rng)
        basis = basis.astype(np.float32)
        phi -= (phi @ basis) @ basis.T
        learn, watch = hold_out(z, self.validation_fraction, rng)
        watch = watch[stratified_sample(z[watch], _BLOCK, rng)]
        with seeded(int(rng.integers(2**31 - 1))):
            self._train_network(
                features.to(device), rows, phi, basis, np.tile(learn, again), watch, islice(steps, epochs)
            )
        steps.close()

    def _features(self, landmarks: NDArray) -> Nystroem:
        import torch

        gamma, coef0 = _DEFAULTS[self.kernel]
        gamma = gamma if self.gamma is None else self.gamma
        coef0 = coef0 if self.coef0 is None else self.coef0
        return Nystroem.on(torch.tensor(landmarks).double(), self.kernel, gamma, self.degree, coef0)

    def _train_network(
        self,
        features: Nystroem,
        rows: NDArray,
        targets: NDArray,
        basis: NDArray,
        learn: NDArray[np.int64],
        watch: NDArray[np.int64],
        epochs: Iterable[int],
    ) -> None:
        import torch

        device = features.landmarks.device
        X, phi, V = (torch.tensor(a, dtype=torch.float32, device=device) for a in (rows, targets, basis))
        network = _network(X.shape[1], self.hidden, self.dropout).to(device)
        optimizer = torch.optim.Adam(network.parameters(), lr=self.preimage_learning_rate)

        def loss(at: torch.Tensor) -> torch.Tensor:
            found = features(X[at] + network(X[at]))
            return (((found - phi[at]) ** 2).sum(1) + ((found @ V) ** 2).sum(1)).mean() / 2

        def step(at: torch.Tensor) -> None:
            optimizer.zero_grad()
            loss(at).backward()
            optimizer.step()

        watched = torch.as_tensor(watch, device=device)
        self.history_ = train(
            step,
            lambda: loss(watched).item(),
            [network],
            [torch.as_tensor(learn, device=device)],
            epochs=epochs,
            batch_size=self.batch_size,
            patience=self.patience,
        )
        self.network_ = _fold(network)

    def _scaled(self, X: NDArray) -> NDArray[np.floating]:
        if not self.normalize:
            return X
        lengths = np.linalg.norm(X, axis=1, keepdims=True)
        return X / np.where(lengths > 0, lengths, 1)

    def _erase(self, X: NDArray) -> NDArray[np.floating]:
        rows = self._scaled(X)
        return (rows + self.network_(rows)) * self.scale_

    def _check_restored(self) -> None:
        if self.network_.n_outputs != self.n_features_in_:
            raise MuteError("its network_ does not give rows of the width it takes")
        if not isinstance(self.scale_, float) or not 0 < self.scale_ < math.inf:
            raise MuteError(f"its scale_ cannot be {self.scale_!r}")


def _network(n_features: int, hidden: Iterable[int], dropout: float) -> torch.nn.Sequential:
    from torch import nn

    layers: list[nn.Module] = []
    width = n_features
    for size in hidden:
        layers += [nn.Linear(width, size), nn.BatchNorm1d(size), nn.ReLU(), nn.Dropout(dropout)]
        width = size
    last = nn.Linear(width, n_features)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(*layers, last)


def _fold(module: torch.nn.Sequential) -> Network:
    """The trained network as plain layers: batch normalisation scales and shifts what the layer before it gives."""
    from torch import nn

    folded: list[nn.Linear] = []
    for layer in module:
        if isinstance(layer, nn.Linear):
            folded.append(layer)
        elif isinstance(layer, nn.BatchNorm1d):
            folded[-1] = nn.utils.fuse_linear_bn_eval(folded[-1].eval(), layer.eval())
    return Network.from_torch(folded)
