"""TaCo: drop the principal components that a network uses to read the concept."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError, warn_weak_result
from mute.estimators.base import WithTask
from mute.estimators.moments import Moments
from mute.estimators.settings import BETWEEN_0_AND_1, COUNT, COUNT_OR_NONE, FLAG, WHOLE, at_least, one_of
from mute.estimators.training import hold_out
from mute.flow.network import Network
from mute.flow.routing import MAX_ROWS, NetworkRouter, fit_network, stratified_sample
from mute.rows.interrupts import interruptible
from mute.typing import Array, Constraints, Json, Seed

__all__ = ["TaCo"]

_HIDDEN = 128
_PAPER: Json = {"n_components": 100, "n_samples": 2000, "epochs": 50, "response": "margin", "keep_mean": False}
# With fewer held-out rows of a class, a leak could not be distinguished from chance.
_FEWEST_FOR_AUTO = 20
# Numbers in the largest array of the index computation: small enough for the processor's cache.
_BLOCK = 2**18


@dataclass(eq=False, repr=False)
class TaCo(WithTask):
    r"""Targeted concept erasure: drop the principal components that reveal the concept.

    Rows are written in r principal components, :math:`x - \mu = u W + \text{rest}`, and a network learns to read the
    concept from x. It then sees :math:`x - (u \circ m) W`, components masked by amounts :math:`m \in [0, 1)^r`. The
    total Sobol index of component i is the share of :math:`m_i`, alone or with others, in the variance of the network's
    response s:

    .. math:: S_i = \frac{1}{2 q \operatorname{Var}(s(A))} \sum_{j=1}^{q} \left(s(A_j) - s(C^{(i)}_j)\right)^2,

    where A and B are q masks each (Sobol points) and :math:`C^{(i)}` is A with column i from B, averaged over rows. The
    components with the largest index are dropped, and so is the rest: :math:`f(x) = \mu + \sum_{kept} u_c W_c`. With
    the labels of a task, those with the smallest :math:`\arctan(S_i^Y / S_i^Z)` are dropped first: components that say
    much of the concept and little of the task.

    Parameters
    ----------
    n_components, n_masks : int, default=20 and 50
        r, at most the rank of the rows, and q.
    n_drop : int or "auto", default="auto"
        How many components are dropped, at most r - 1. The authors try 1 to r - 1 and let the reader choose. "auto"
        drops the least number with which a fresh network, trained on the other rows, comes within two standard errors
        of chance on held-out rows, or else r - 1; bisection finds that number.
    n_samples : int, default=10000
        Rows to average the indices over, at most.
    response : {"logit", "margin"}, default="logit"
        The network's response: the centred logit of the row's true class, or (the authors) the lead of the largest
        logit over the second, which does not say which class leads.
    epochs : int, optional
        Epochs of training the networks. With None, until the loss on held-out rows no longer falls.
    keep_mean : bool, default=True
        Put the mean back into the outputs. The authors leave it out.
    validation_fraction, random_state : float, default=0.2, and int, RandomState or None
        Share of the rows that "auto" holds out; two fits with the same int give the same eraser.

    Attributes
    ----------
    mean_, components_ : arrays of shape (D,) and (r, D)
        The mean, and W: orthonormal rows, by falling variance.
    indices_, task_indices_ : list of float
        Total index of each component for the concept, and for the task (None without).
    kept_, n_drop_ : array of shape (r,) and int
        1 for the components that are kept, 0 for the others; how many are dropped.
    leaks_ : list
        What "auto" measured: for each number of drops tried, that number, the leak to the fresh network, and its
        standard error.
    classes_, n_features_in_, feature_names_in_
        As in `MUtE`.

    See Also
    --------
    LEOPARD : A projection that makes the laws of the classes equal.
    INLP : A projection off the weights of linear classifiers.

    Notes
    -----
    *Guarantees.* The map is an orthogonal projection of rank r - n_drop about the mean, the same for all classes.

    *Limits.* No law is made equal: what the kept components say of the concept stays, and after a fixed number of
    drops that may be much. The network serves for the ranking only. Variance beyond the r components is lost, which is
    most of the damage on wide embeddings. Columns should be of like scale, as for any use of principal components.

    *Labels.* Not needed to transform. *Cost.* One network for the concept and one for the task, and
    n_samples · n_masks · (r + 1) passes through each; "auto" adds about log2 r networks.

    *Differences from the authors' code.* Their network has dropout and batches of 2048; this one has batches of 200 and
    no dropout, and is stopped early unless `epochs` are given. Their principal components also see the rows for
    validation and test; these see only the rows to learn from.

    References
    ----------
    F. Jourdan, L. Béthune, A. Picard, L. Risser and N. Asher, "TaCo: Targeted Concept Erasure Prevents Non-Linear
    Classifiers From Detecting Protected Attributes", 2023.

    Examples
    --------
    The second of four independent columns tells the concept, and its component goes.

    >>> import numpy as np
    >>> from mute.rivals.taco import TaCo
    >>> z = np.repeat([0, 1], 300)
    >>> X = np.random.default_rng(0).normal(size=(600, 4)) * [8, 4, 2, 1]
    >>> X[:, 1] += 6 * z
    >>> eraser = TaCo(n_drop=1, n_samples=100, epochs=20, random_state=0).fit(X, z)
    >>> eraser.kept_
    array([1., 0., 1., 1.])
    """

    _parameter_constraints: ClassVar[Constraints] = {
        "n_components": COUNT,
        "n_drop": [*WHOLE, *one_of("auto")],
        "n_masks": at_least(2),
        "n_samples": COUNT,
        "response": one_of("logit", "margin"),
        "epochs": COUNT_OR_NONE,
        "keep_mean": FLAG,
        "validation_fraction": BETWEEN_0_AND_1,
    }
    PRESETS: ClassVar[dict[str, Json]] = {
        # The paper tries 5, 10, ..., 95 drops; its repository's configuration has 1.
        "paper": _PAPER,
        "paper-repository": {**_PAPER, "n_drop": 1},
        "authors": {"n_components": 20, "n_samples": 10_000, "epochs": 100, "response": "margin", "keep_mean": False},
    }
    _STORED: ClassVar[dict[str, str]] = {
        "mean_": "D",
        "components_": "r D",
        "kept_": "r",
        **dict.fromkeys(("indices_", "task_indices_", "leaks_"), "plain"),
    }

    _: KW_ONLY
    n_components: int = 20
    n_drop: int | str = "auto"
    n_masks: int = 50
    n_samples: int = 10_000
    response: str = "logit"
    epochs: int | None = None
    keep_mean: bool = True
    validation_fraction: float = 0.2
    random_state: Seed = None

    def _learn(self, X: Array, z: Array, task: Array | None = None) -> None:
        rng = self._generator()
        learn, held = self._set_aside(z, rng)
        self.mean_, self.components_, scale = principal_components(X[learn], self.n_components)
        # Coded anew: all rows of a rare class of the task may be held out.
        targets = [np.unique(labels[learn], return_inverse=True)[1] for labels in (z, task) if labels is not None]
        indices = self._measure(X[learn], targets, scale, rng)
        self.indices_ = indices[0].tolist()
        self.task_indices_ = None if task is None else indices[1].tolist()
        order = drop_order(*indices)
        self.leaks_: list[list[float]] = []
        drop = len(order) - 1
        if self.n_drop != "auto":
            drop = min(int(self.n_drop), drop)
        elif len(held):
            drop = self._least_drop(X, z, learn, held, order, rng)
        self.kept_ = np.ones(len(order))
        self.kept_[order[:drop]] = 0

    @property
    def n_drop_(self) -> int:
        return int((self.kept_ == 0).sum())

    def _set_aside(self, z: Array, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows to learn from, and rows for "auto" to measure on, if any."""
        fewest = int(self.validation_fraction * np.bincount(z).min())
        if self.n_drop == "auto" and fewest >= _FEWEST_FOR_AUTO:
            return hold_out(z, self.validation_fraction, rng)
        if self.n_drop == "auto":
            warn_weak_result(
                f'n_drop="auto" has {fewest} rows of the smallest class to measure on, too few to tell anything '
                f"(at least {_FEWEST_FOR_AUTO}); dropping all components but one"
            )
        return np.arange(len(z)), np.empty(0, np.int64)

    def _measure(
        self, X: Array, targets: list[Array], scale: float, rng: np.random.Generator
    ) -> list[NDArray[np.float64]]:
        """Mean total indices of the components for each of the labels."""
        X = (X - self.mean_.astype(X.dtype)) / X.dtype.type(scale)
        W = self.components_.astype(X.dtype)
        sample = rng.permutation(stratified_sample(targets[0], self.n_samples, rng))
        if not len(sample):
            raise MuteError(f"n_samples={self.n_samples} is too few for one row of each class; raise it")
        probes = [Probe.of(fit_probe(X, labels, self.epochs, rng), X[sample], W, labels[sample]) for labels in targets]
        masks = sobol_masks(len(W), self.n_masks).astype(X.dtype)
        size = max(1, _BLOCK // (self.n_masks * _HIDDEN))
        found = []
        for i in self._steps(-(-len(sample) // size), "rows"):
            part = slice(i * size, (i + 1) * size)
            found.append([total_indices(probe, part, masks, self.response) for probe in probes])
        return [np.concatenate(rows).mean(axis=0) for rows in zip(*found, strict=True)]

    def _least_drop(self, X: Array, z: Array, learn: Array, held: Array, order: Array, rng: np.random.Generator) -> int:
        """The least number of drops with which a fresh network is at chance on held-out rows, or else all but one."""
        U = (X - self.mean_.astype(X.dtype)) @ self.components_[order].T.astype(X.dtype)
        low, high = 0, len(order) - 1
        while low < high:
            middle = (low + high) // 2
            leak, error = leak_of(U[:, middle:], z, learn, held, rng)
            self.leaks_.append([middle, leak, error])
            low, high = (low, middle) if leak <= 2 * error else (middle + 1, high)
        return low

    def _erase(self, X: Array) -> NDArray[np.floating]:
        W, mean = (a.astype(X.dtype, copy=False) for a in (self.components_[self.kept_ == 1], self.mean_))
        out = ((X - mean) @ W.T) @ W
        return out + mean if self.keep_mean else out

    def _check_restored(self) -> None:
        W = self.components_
        if not np.allclose(W @ W.T, np.eye(len(W)), rtol=0, atol=1e-8):
            raise MuteError("its components are not orthonormal")
        if not np.isin(self.kept_, (0, 1)).all():
            raise MuteError("its kept components are not marked by 0 and 1")


def principal_components(X: Array, most: int) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Mean, principal components (orthonormal rows, at least one) and the root mean variance of the columns."""
    moments = Moments(1, X.shape[1], "pooled")
    moments.add(X)
    values, vectors = np.linalg.eigh(moments.covariance)
    rank = int((values > max(values[-1], 0) * len(values) * np.finfo(X.dtype).eps).sum())
    scale = float(np.sqrt(max(values.mean(), 0)))
    return moments.mean, vectors[:, ::-1].T[: max(1, min(most, rank))].copy(), scale if rank else 1.0


def fit_probe(X: Array, labels: Array, epochs: int | None, rng: np.random.Generator) -> Network:
    """A network with one hidden layer that reads the labels, its logits centred."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier

    rows = stratified_sample(labels, MAX_ROWS, rng)
    network = MLPClassifier((_HIDDEN,), random_state=int(rng.integers(2**31 - 1)))
    with warnings.catch_warnings(), interruptible():
        warnings.simplefilter("ignore", ConvergenceWarning)
        if epochs is None:
            fit_network(network, X[rows], labels[rows])
        else:
            network.set_params(max_iter=epochs, n_iter_no_change=epochs).fit(X[rows], labels[rows])
    probe = cast("NetworkRouter", NetworkRouter.from_classifier(network))
    # Logits are known up to a number for each row: scikit-learn's of two classes, for one, are (0, s).
    probe.weights[-1] = probe.weights[-1] - probe.weights[-1].mean(axis=1, keepdims=True)
    probe.biases[-1] = probe.biases[-1] - probe.biases[-1].mean()
    return probe


def leak_of(U: Array, z: Array, learn: Array, held: Array, rng: np.random.Generator) -> tuple[float, float]:
    """Balanced accuracy above chance, on held-out rows, of a network that learns on the others; its standard error."""
    from sklearn.metrics import balanced_accuracy_score

    U = U / np.maximum(U[learn].std(axis=0), np.finfo(U.dtype).tiny)
    found = fit_probe(U[learn], z[learn], None, rng)(U[held]).argmax(axis=1)
    accuracy = float(balanced_accuracy_score(z[held], found))
    counts = np.bincount(z[held])
    # Variance of a mean of recalls, each a share of its class.
    return accuracy - 1 / len(counts), float(np.sqrt(accuracy * (1 - accuracy) * (1 / counts).sum()) / len(counts))


class Probe(NamedTuple):
    """A network with one hidden layer and the rows it looks at, ready to be masked.

    Its hidden layer is linear before the ReLU: masking component i by m moves it by ``-m * u[:, i] * moves[i]``.
    """

    hidden: Array
    u: Array
    moves: Array
    output: Array
    bias: Array
    labels: Array

    @classmethod
    def of(cls, network: Network, X: Array, W: Array, labels: Array) -> Probe:
        first, output = (w.astype(X.dtype) for w in network.weights)
        hidden = X @ first + network.biases[0].astype(X.dtype)
        return cls(hidden, X @ W.T, W @ first, output, network.biases[1].astype(X.dtype), labels)


def sobol_masks(r: int, q: int) -> NDArray[np.float64]:
    """The masks A and B, shape (2, q, r): halves of the first q points of an unscrambled Sobol sequence."""
    from scipy.stats.qmc import Sobol

    points = Sobol(2 * r, scramble=False).random_base2((q - 1).bit_length())[:q]
    return np.stack([points[:, :r], points[:, r:]])


def total_indices(probe: Probe, part: slice, masks: Array, response: str) -> NDArray[np.float64]:
    """Total index of each component for each row of a part, shape (n, r); 0 where masks do not matter."""
    A, B = masks
    u, labels = probe.u[part], probe.labels[part]
    base = probe.hidden[part, None] - (u[:, None] * A) @ probe.moves

    def responses(hidden: Array) -> NDArray[np.float64]:
        logits = (np.maximum(hidden, 0) @ probe.output + probe.bias).astype(np.float64)
        if response == "logit":
            return np.take_along_axis(logits, labels[:, None, None], axis=2)[:, :, 0]
        top = np.partition(logits, -2, axis=2)
        return top[:, :, -1] - top[:, :, -2]

    at_base = responses(base)
    losses = np.empty(u.shape)
    for i, move in enumerate(probe.moves):
        steps = u[:, i, None] * (A[:, i] - B[:, i])
        losses[:, i] = ((at_base - responses(base + steps[:, :, None] * move)) ** 2).mean(axis=1)
    spread = 2 * at_base.var(axis=1, keepdims=True)
    return np.divide(losses, spread, out=np.zeros_like(losses), where=spread > 0)


def drop_order(concept: Array, task: Array | None = None) -> NDArray[np.int64]:
    """Components in the order in which they are dropped."""
    if task is None:
        return np.argsort(-concept, kind="stable")
    # What tells nothing of the concept goes last, also where it tells nothing of the task.
    angle = np.where(concept > 0, np.arctan2(task, concept), np.pi / 2)
    return np.argsort(angle, kind="stable")
