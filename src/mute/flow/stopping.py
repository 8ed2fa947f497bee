"""When to stop adding layers: when they no longer separate the classes, or when unseen rows leak the least.

Each layer removes what is left of the concept and adds the estimation noise of its own class-conditional maps. Rows the
flow was fitted on show only the former; on new rows there is a number of layers beyond which the leak grows again.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.flow.flow import Flow
from mute.rows.interrupts import interruptible

if TYPE_CHECKING:
    from mute.flow.shrinkage import Shrunk

__all__ = ["EarlyStopping", "HeldOut", "StopOnNoGain", "StoppingRule", "fresh_leak", "stopping_from_json"]

# Rows set aside of each class, at the most: a standard error of half a point for two classes.
MAX_ROWS = 5000
# A difference counts from so many standard errors, and from so many nats: independent coordinates that tell less than a
# thousandth give away at most two points of accuracy (Pinsker's inequality). Other directions may hold more.
_SURE, _WORTH = 3.0, 1e-3


@dataclass(eq=False)
class HeldOut:
    """Rows set aside within a fit, on their way through its layers.

    Attributes
    ----------
    x : array of shape (m, D)
    z, route : integer arrays of shape (m,)
        True class of each row, and the class whose map moves it.
    """

    x: NDArray[np.floating] = field(default_factory=lambda: np.empty((0, 0)))
    z: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    route: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    n_threads: int | None = None

    def advance(self, layer: Flow) -> float:
        """Carry the rows through one layer; its mean gain in log-density over rows routed to their class."""
        y, logdet = layer.push_with_logdet(self.x, self.route, n_threads=self.n_threads)
        entered = (self.x - layer.center).astype(np.float64) / layer.scale
        gains = logdet + np.log(layer.scale).sum() + 0.5 * ((entered**2).sum(axis=1) - (y**2).sum(axis=1))
        right = self.z == self.route
        self.x = y
        return float(gains[right].mean()) if right.any() else 0.0


class StoppingRule(Protocol):
    """Decides after which layer a fit ends, and how many layers are kept. Its fields are its record."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def observe(
        self, layer: Flow, shrunk: Shrunk | None, held_out: HeldOut, rng: np.random.Generator, *, last: bool
    ) -> None:
        """Take note of a new layer; `last` if the fit ends with it whatever the rule says."""

    def done(self) -> bool:
        """Whether to stop."""

    def best(self) -> int:
        """The number of layers to keep."""


def fresh_leak(x: NDArray, z: NDArray, n_classes: int, rng: np.random.Generator) -> tuple[float, float]:
    """Balanced accuracy above chance of the better of two adversaries on erased rows, and its standard error.

    The rows are cut in two; an adversary learns on one half and is tested on the other, both ways round. A small
    network sees shifts and correlations, boosted trees the shape of single coordinates and of the squared norm,
    where noisy marginals show first.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.metrics import balanced_accuracy_score
    from sklearn.neural_network import MLPClassifier

    seed = int(rng.integers(2**31 - 1))
    features = _with_norm(x)
    half = _halves(z, rng)
    network = MLPClassifier(max_iter=20, early_stopping=int(half.sum()) >= 300, random_state=seed)
    # A third of the columns at each split keeps the trees cheap on wide embeddings and costs them little.
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
    # Variance of a mean of per-class recalls, each a share of its class.
    error = np.sqrt((best * (1 - best) / np.bincount(z, minlength=n_classes)).sum()) / n_classes
    return best - 1 / n_classes, float(error)


def _halves(z: NDArray, rng: np.random.Generator) -> NDArray[np.bool_]:
    """One half of the rows of every class."""
    half = np.zeros(len(z), bool)
    for k in np.unique(z):
        mine = np.flatnonzero(z == k)
        half[rng.permutation(mine)[: len(mine) // 2]] = True
    return half


def _with_norm(x: NDArray) -> NDArray[np.float32]:
    return np.column_stack([x, (x**2).mean(axis=1)]).astype(np.float32)


@dataclass
class StopOnNoGain:
    """Stops when new layers no longer separate the classes. No rows are set aside for that.

    Shrinkage knows by how much the classes would differ by chance. A layer whose classes differ by no more than that
    has nothing to do.

    Parameters
    ----------
    first : int
        Layers that are always kept.
    patience : int
        Stop after this many consecutive layers without gain, or after half as many as are kept (at least two).

    Attributes
    ----------
    nats : list of float
        For each layer, the mean difference of a class from what all classes share, over all coordinates.
    scores : list of float
        The same in standard errors of a difference that is due to chance.
    """

    first: int
    patience: int = 8
    nats: list[float] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)

    def observe(
        self, layer: Flow, shrunk: Shrunk | None, held_out: HeldOut, rng: np.random.Generator, *, last: bool
    ) -> None:
        self.record(*(0.0, 0.0) if shrunk is None else (shrunk.nats, shrunk.score))

    def record(self, nats: float, score: float) -> None:
        """Note by how much the classes differed at a layer."""
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
    """Watches the held-out rows layer by layer and decides.

    Two signals count. The *leak*, measured now and then with `fresh_leak`, is what matters but is noisy. The *gain* of
    a layer, by how much it raises the log-density of held-out rows, is cheap and precise: below zero, the layer
    fitted noise.

    Parameters
    ----------
    n_classes : int
    max_layers : int
    patience : int
        Checks without a new best, or in a row at chance, after which to stop.

    Attributes
    ----------
    gains : list of float
        One for each layer, in nats.
    layers, leaks, errors : lists
        Checked numbers of layers, the leak after them and its standard error.
    """

    n_classes: int
    max_layers: int
    patience: int = 3
    gains: list[float] = field(default_factory=list)
    layers: list[int] = field(default_factory=list)
    leaks: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)

    def exhausted(self) -> bool:
        """Whether no class has gained from its last two turns."""
        turns = 2 * self.n_classes
        return len(self.gains) >= turns and max(self.gains[-turns:]) <= 0

    def due(self) -> bool:
        """Whether to measure the leak now: after every turn of all classes at first, then ever more seldom."""
        now, last = len(self.gains), self.layers[-1] if self.layers else 0
        return now == self.max_layers or self.exhausted() or now - last >= max(self.n_classes, int(0.25 * last))

    def observe(
        self, layer: Flow, shrunk: Shrunk | None, held_out: HeldOut, rng: np.random.Generator, *, last: bool
    ) -> None:
        self.gains.append(held_out.advance(layer))
        if self.due() or last:
            self.record(*fresh_leak(held_out.x, held_out.z, self.n_classes, rng))

    def record(self, leak: float, error: float) -> None:
        """Note the leak after the layers so far."""
        self.layers.append(len(self.gains))
        self.leaks.append(leak)
        self.errors.append(error)

    def done(self) -> bool:
        """Whether to stop: nothing gained any more, or the last checks all at chance, or none of them a new best."""
        if self.exhausted():
            return True
        recent = list(zip(self.leaks, self.errors, strict=True))[-self.patience :]
        if len(recent) < self.patience:
            return False
        at_chance = all(leak <= 2 * error for leak, error in recent)
        return at_chance or int(np.argmin(self.leaks)) < len(self.leaks) - self.patience

    def best(self) -> int:
        """The number of layers with the least leak; the fewest of equals."""
        return self.layers[int(np.argmin(self.leaks))]


def stopping_from_json(values: dict[str, Any]) -> EarlyStopping | StopOnNoGain:
    """The record of a file."""
    stopping = StopOnNoGain(**values) if "nats" in values else EarlyStopping(**values)
    lists = {name: v for name, v in vars(stopping).items() if not isinstance(v, int)}
    numbers = all(isinstance(v, list) and all(type(n) in (int, float) for n in v) for v in lists.values())
    if not numbers or len({len(v) for name, v in lists.items() if name != "gains"}) != 1:
        raise MuteError("its record of early stopping does not fit together")
    return stopping
