"""When to stop adding layers: when they no longer separate the classes, or when held-out rows leak the least.

Each layer removes a part of the concept and adds the estimation noise of its class-conditional maps. Training rows show
only the first effect. On unseen rows, the leak grows again beyond some number of layers.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.flow.flow import Flow
from mute.rows.interrupts import interruptible
from mute.typing import Json

if TYPE_CHECKING:
    from mute.flow.shrinkage import Shrunk

__all__ = ["EarlyStopping", "HeldOut", "StopOnNoGain", "StoppingRule", "fresh_leak", "stopping_from_json"]

# Most held-out rows of a class: the standard error is then half a point for two classes.
MAX_HELD_OUT = 5000
# A difference counts from this many standard errors and this many nats. By Pinsker's inequality, a thousandth of a nat
# is worth at most two points of accuracy to an adversary that reads coordinates independently. Other directions may
# leak more.
_SURE, _WORTH = 3.0, 1e-3


@dataclass(eq=False)
class HeldOut:
    """Held-out rows (m, D) after the layers so far, their true classes `z` and the classes `route` of their maps."""

    x: NDArray[np.floating] = field(default_factory=lambda: np.empty((0, 0)))
    z: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    route: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    n_threads: int | None = None

    def advance(self, layer: Flow) -> float:
        """Apply one layer; return its mean gain in log-density over the rows that are routed to their true class."""
        y, logdet = layer.push_with_logdet(self.x, self.route, n_threads=self.n_threads)
        entered = (self.x - layer.center).astype(np.float64) / layer.scale
        gains = logdet + np.log(layer.scale).sum() + 0.5 * ((entered**2).sum(axis=1) - (y**2).sum(axis=1))
        self.x, right = y, self.z == self.route
        return float(gains[right].mean()) if right.any() else 0.0


def fresh_leak(x: NDArray, z: NDArray, n_classes: int, rng: np.random.Generator) -> tuple[float, float]:
    """Leak of erased rows to the better of two adversaries, and its standard error.

    Each adversary learns on one half of the rows and is tested on the other, and vice versa. A small network detects
    shifts and correlations. Boosted trees detect the shapes of single coordinates and of the squared norm, where the
    noise of marginals is largest.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.metrics import balanced_accuracy_score
    from sklearn.neural_network import MLPClassifier

    seed = int(rng.integers(2**31 - 1))
    features = np.column_stack([x, (x**2).mean(axis=1)]).astype(np.float32)
    half = _halves(z, rng)
    network = MLPClassifier(max_iter=20, early_stopping=int(half.sum()) >= 300, random_state=seed)
    # A third of the columns at each split makes the trees much faster on wide embeddings and hardly weaker.
    trees = HistGradientBoostingClassifier(
        max_iter=40, max_leaf_nodes=8, learning_rate=0.15, max_features=0.3, early_stopping=False, random_state=seed
    )
    scores = []
    with warnings.catch_warnings(), interruptible():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for adversary in (network, trees):
            found = np.empty_like(z)
            for learn in (half, ~half):
                found[~learn] = adversary.fit(features[learn], z[learn]).predict(features[~learn])
            scores.append(balanced_accuracy_score(z, found))
    best = max(scores)
    # The variance of a mean of recalls, one for each class.
    error = np.sqrt((best * (1 - best) / np.bincount(z, minlength=n_classes)).sum()) / n_classes
    return best - 1 / n_classes, float(error)


def _halves(z: NDArray, rng: np.random.Generator) -> NDArray[np.bool_]:
    """One half of the rows of every class."""
    half = np.zeros(len(z), bool)
    for k in np.unique(z):
        mine = np.flatnonzero(z == k)
        half[rng.permutation(mine)[: len(mine) // 2]] = True
    return half


@dataclass
class StopOnNoGain:
    """Stops when new layers no longer separate the classes. It needs no held-out rows.

    Shrinkage knows how much the classes would differ by chance. A layer gains nothing if they differ by no more.

    Attributes
    ----------
    first : int
        Layers that are always kept.
    patience : int
        Stop after this many consecutive layers without gain, or after half as many as are kept (at least two).
    nats, scores : lists of float
        For each layer, the mean difference of a class from the common law, summed over the coordinates; the same in
        standard errors of a difference by chance.
    """

    first: int
    patience: int = 8
    nats: list[float] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)

    def observe(
        self, layer: Flow, shrunk: Shrunk | None, held_out: HeldOut, rng: np.random.Generator, *, last: bool
    ) -> None:
        """Record a new layer; `last` if the fit ends with it in any case."""
        self.record(*(0.0, 0.0) if shrunk is None else (shrunk.nats, shrunk.score))

    def record(self, nats: float, score: float) -> None:
        """Record the difference between the classes at a layer."""
        self.nats.append(nats)
        self.scores.append(score)

    def done(self) -> bool:
        best = self.best()
        return len(self.nats) - best >= min(self.patience, max(2, best // 2))

    def best(self) -> int:
        """The number of layers up to the last one with gain."""
        gains = (nats > _WORTH and score > _SURE for nats, score in zip(self.nats, self.scores, strict=True))
        return max([self.first, *(t + 1 for t, gain in enumerate(gains) if gain)])


@dataclass
class EarlyStopping:
    """Keeps the number of layers with the least leak on held-out rows.

    The rule uses two signals. The *leak* is what matters, but it is noisy and measured after some layers only
    (`fresh_leak`). The *gain* of a layer in the log-density of held-out rows is cheap and precise. If it is below zero,
    the layer fitted noise.

    Attributes
    ----------
    n_classes, max_layers : int
    patience : int
        Stop after this many consecutive checks without a new best, or at chance.
    gains : list of float
        One for each layer, in nats.
    layers, leaks, errors : lists
        Numbers of layers after which the leak was measured, the leak and its standard error.
    """

    n_classes: int
    max_layers: int
    patience: int = 3
    gains: list[float] = field(default_factory=list)
    layers: list[int] = field(default_factory=list)
    leaks: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)

    def exhausted(self) -> bool:
        """Whether no class has gained in its last two turns."""
        turns = 2 * self.n_classes
        return len(self.gains) >= turns and max(self.gains[-turns:]) <= 0

    def due(self) -> bool:
        """Whether to measure the leak now: at first after every turn of all classes, later less often."""
        now, last = len(self.gains), self.layers[-1] if self.layers else 0
        return now == self.max_layers or self.exhausted() or now - last >= max(self.n_classes, int(0.25 * last))

    def observe(
        self, layer: Flow, shrunk: Shrunk | None, held_out: HeldOut, rng: np.random.Generator, *, last: bool
    ) -> None:
        self.gains.append(held_out.advance(layer))
        if self.due() or last:
            self.record(*fresh_leak(held_out.x, held_out.z, self.n_classes, rng))

    def record(self, leak: float, error: float) -> None:
        """Record the leak after the layers so far."""
        self.layers.append(len(self.gains))
        self.leaks.append(leak)
        self.errors.append(error)

    def done(self) -> bool:
        """Whether the layers gain nothing, or the last checks are all at chance or without a new best."""
        if self.exhausted():
            return True
        recent = list(zip(self.leaks, self.errors, strict=True))[-self.patience :]
        if len(recent) < self.patience:
            return False
        at_chance = all(leak <= 2 * error for leak, error in recent)
        return at_chance or int(np.argmin(self.leaks)) < len(self.leaks) - self.patience

    def best(self) -> int:
        """The least number of layers with the least leak."""
        return self.layers[int(np.argmin(self.leaks))]


# Decides when a fit ends and how many layers it keeps. Its fields are its record.
StoppingRule = StopOnNoGain | EarlyStopping


def stopping_from_json(values: Json) -> StoppingRule:
    """The rule that a file describes."""
    stopping = StopOnNoGain(**values) if "nats" in values else EarlyStopping(**values)
    lists = {name: v for name, v in vars(stopping).items() if not isinstance(v, int)}
    numbers = all(isinstance(v, list) and all(type(n) in (int, float) for n in v) for v in lists.values())
    if not numbers or len({len(v) for name, v in lists.items() if name != "gains"}) != 1:
        raise MuteError("its record of early stopping does not fit together")
    return stopping
