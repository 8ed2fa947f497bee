"""RLACE: a game between a projection and a linear classifier, played over a convex set of projections."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.estimators.settings import BETWEEN_0_AND_1, COUNT, COUNT_OR_NONE, FROM_0_BELOW_1, NOT_NEGATIVE, POSITIVE
from mute.estimators.training import hold_out
from mute.flow.routing import stratified_sample
from mute.rivals.projection import Projector, class_accuracy, fit_quietly
from mute.rows.threads import single_threaded_blas
from mute.typing import Array, Constraints, Json, Seed

__all__ = ["GAME", "RLACE", "FantopePoint", "play", "project_onto_fantope"]

# Rows are scaled to this mean squared length, so that a step means the same on all data. At 1 a weak concept takes
# tens of thousands of steps to be found, at the number of columns the steps are noisy (300 columns).
_SQUARED_LENGTH = 10.0
# The fresh classifiers learn from at most this many rows.
_MOST_ROWS = 20_000
# Eigenvalues this near to the common one are taken for it.
_EQUAL = 1e-9


def project_onto_fantope(values: Array, rank: int, counts: Array | None = None) -> NDArray[np.float64]:
    r"""Eigenvalues of the point of the Fantope that is nearest to a symmetric matrix with these eigenvalues.

    The Fantope is the convex hull of the orthogonal projectors of one rank k: all symmetric P with eigenvalues in
    [0, 1] and trace k. The nearest point keeps the eigenvectors and has the eigenvalues
    :math:`\min(\max(\lambda_i - \tau, 0), 1)`, with the :math:`\tau` that gives them the sum k. That sum is piecewise
    linear in :math:`\tau`, with corners at :math:`\lambda_i` and :math:`\lambda_i - 1`, so no search is needed.
    `counts` says how often each eigenvalue occurs; once when None. There are at least `rank` of them.

    Examples
    --------
    >>> import numpy as np
    >>> project_onto_fantope(np.array([2.0, 0.75, 0.5, 0.0]), rank=2)
    array([1.   , 0.625, 0.375, 0.   ])
    """
    counts = np.ones(len(values)) if counts is None else counts
    corners = np.sort(np.concatenate([values, values - 1]))
    sums = np.clip(values - corners[:, None], 0, 1) @ counts
    return np.clip(values - np.interp(-rank, -sums, corners), 0, 1)


@dataclass(frozen=True)
class FantopePoint:
    """P = U diag(values) Uᵀ + rest (I - U Uᵀ), in the Fantope of `rank`.

    The game's points have few eigenvalues apart from one that all others share (mostly 0), and its gradients have rank
    2 K at most. In this form a step costs D r² instead of the D³ of a full eigendecomposition, and gives the same.
    `vectors` U (D, r) are orthonormal, `values` (r,) ascend, and r is at least `rank`.
    """

    rank: int
    vectors: NDArray[np.float64]
    values: NDArray[np.float64]
    rest: float

    @classmethod
    def nearest(cls, rank: int, vectors: Array, values: Array, rest: float) -> FantopePoint:
        """The point nearest to the matrix of this form, whose values ascend and are at least `rank`."""
        counts = np.append(np.ones(len(values)), vectors.shape[0] - vectors.shape[1])
        projected = project_onto_fantope(np.append(values, rest), rank, counts)
        values, rest = projected[:-1], float(projected[-1])
        kept = np.abs(values - rest) > _EQUAL
        kept[-rank:] = True
        return cls(rank, vectors[:, kept], values[kept], rest)

    @classmethod
    def random(cls, rank: int, n_features: int, rng: np.random.Generator) -> FantopePoint:
        """The point nearest to a symmetric Gaussian matrix, with entries of standard deviation 0.1 before that."""
        noise = 0.1 * rng.normal(size=(n_features, n_features))
        values, vectors = np.linalg.eigh((noise + noise.T) / 2)
        return cls.nearest(rank, vectors, values, 0.0)

    def take_out(self, X: Array) -> NDArray[np.float64]:
        """X (I - P)."""
        return (1 - self.rest) * X - ((X @ self.vectors) * (self.values - self.rest)) @ self.vectors.T

    def moved(self, A: Array, W: Array, shrink: float) -> FantopePoint:
        """The point nearest to shrink P - (A Wᵀ + W Aᵀ) / 2."""
        r, m = len(self.values), A.shape[1]
        Q, R = np.linalg.qr(np.concatenate([self.vectors, A, W], axis=1))
        U, A, W = R[:, :r], R[:, r : r + m], R[:, r + m :]
        rest = shrink * self.rest
        small = (U * (shrink * self.values - rest)) @ U.T - (A @ W.T + W @ A.T) / 2
        if not np.isfinite(small).all():
            raise MuteError("training diverged: the projection is not finite; lower the learning rate")
        values, vectors = np.linalg.eigh(small)
        return self.nearest(self.rank, Q @ vectors, values + rest, rest)

    def rounded(self) -> NDArray[np.float64]:
        """Orthonormal basis, in columns, of the projector of this rank that is nearest."""
        return self.vectors[:, -self.rank :]


# What the settings of the game may be.
GAME: Constraints = {
    "batch_size": COUNT,
    "learning_rate": POSITIVE,
    "weight_decay": NOT_NEGATIVE,
    "tolerance": NOT_NEGATIVE,
    "evaluate_every": COUNT,
    "patience": COUNT_OR_NONE,
    "validation_fraction": BETWEEN_0_AND_1,
}


def play(
    X: Array, z: NDArray[np.int64], rank: int, rules: RLACE, rounds: Iterable[int], rng: np.random.Generator
) -> tuple[NDArray[np.float64], list[float]]:
    """Play the game on rows and codes 0 .. K - 1, by the settings of `rules`.

    Returns the rounded projection with the highest loss of fresh classifiers, as a basis (D, rank), and all losses.
    """
    X = X - X.mean(axis=0)
    squares = float((X**2).sum(dtype=np.float64))
    X *= math.sqrt(_SQUARED_LENGTH * len(X) / squares) if squares > 0 else 1.0
    learn, watch = hold_out(z, rules.validation_fraction, rng)
    judged = learn[stratified_sample(z[learn], _MOST_ROWS, rng)]
    players = _Players(X[learn], z[learn], rank, rules, rng)
    chance = 1 / len(np.unique(z[watch]))
    best, since, basis, history = -math.inf, 0, players.point.rounded(), []
    for _ in rounds:
        # The products of one step are small; what overflows is found out in the next.
        with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore"):
            for _ in range(rules.evaluate_every):
                players.step()
        now = players.point.rounded()
        loss, accuracy = _judge(X - (X @ now) @ now.T, z, judged, watch)
        history.append(loss)
        since += 1
        if loss > best:
            best, basis, since = loss, now, 0
        if accuracy - chance < rules.tolerance or (rules.patience is not None and since >= rules.patience):
            break
    return basis, history


class _Players:
    """The projection, which ascends the loss, and the linear classifier, which descends it."""

    def __init__(self, X: Array, z: Array, rank: int, rules: RLACE, rng: np.random.Generator) -> None:
        K = int(z.max()) + 1
        self.X, self.rules, self.rng = X, rules, rng
        # One logit for two classes, else one for each.
        self.Y = np.eye(K)[z][:, 1:] if K == 2 else np.eye(K)[z]
        self.point = FantopePoint.random(rank, X.shape[1], rng)
        # The bias is the weight of a column of ones, which the projection leaves alone.
        self.W = np.zeros((X.shape[1] + 1, self.Y.shape[1]))
        self.velocity = np.zeros_like(self.W)

    def step(self) -> None:
        rate, decay = self.rules.learning_rate, 1 - self.rules.learning_rate * self.rules.weight_decay
        X, _, residual = self._batch()
        # The loss falls with P along X'(residual) W'.
        self.point = self.point.moved(rate * X.T @ residual, self.W[:-1], decay)
        _, erased, residual = self._batch()
        gradient = np.vstack([erased.T @ residual, residual.sum(axis=0)])
        self.velocity = self.rules.momentum * self.velocity + gradient + self.rules.weight_decay * self.W
        self.W = self.W - rate * self.velocity

    def _batch(self) -> tuple[Array, Array, Array]:
        """Rows drawn at random, the same erased, and the gradient of their mean loss in the logits."""
        from scipy.special import expit, softmax

        rows = self.rng.integers(len(self.X), size=self.rules.batch_size)
        X, Y = self.X[rows], self.Y[rows]
        erased = self.point.take_out(X)
        logits = erased @ self.W[:-1] + self.W[-1]
        chances = expit(logits) if Y.shape[1] == 1 else softmax(logits, axis=1)
        return X, erased, (chances - Y) / len(Y)


def _judge(X: Array, z: Array, learn: Array, watch: Array) -> tuple[float, float]:
    """Loss and accuracy of a fresh classifier on the watched rows, all classes of equal weight."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss

    classifier = fit_quietly(LogisticRegression(class_weight="balanced", max_iter=200), X[learn], z[learn])
    chances = classifier.predict_proba(X[watch]).astype(np.float64)
    weights = 1 / np.bincount(z[watch], minlength=len(classifier.classes_))[z[watch]]
    loss = log_loss(z[watch], chances, sample_weight=weights, labels=classifier.classes_)
    return float(loss), class_accuracy(z[watch], classifier.classes_[chances.argmax(axis=1)])


@dataclass(eq=False, repr=False)
class RLACE(Projector):
    r"""Relaxed linear adversarial concept erasure.

    A projection of rank k plays against a linear classifier,

    .. math:: \min_\theta \max_{P \in \mathcal F_k} \; E \, \ell(\theta; (I - P) x, z),

    where :math:`\ell` is the logistic loss and the projectors are relaxed to their convex hull, the Fantope
    :math:`\mathcal F_k`. At the end P is rounded to its leading k eigenvectors V, and :math:`x' = x - V V^\top x`.

    Parameters
    ----------
    rank : int, optional
        Number of directions to take out. K - 1 when None, which is enough for any linear classifier: 1 for two classes.
    n_iterations, batch_size : int, default=75_000 and 128
        The most steps of both players, in rounds of `evaluate_every`, and the rows of a step.
    learning_rate, weight_decay, momentum : float, default=0.005, 0.0001 and 0.0
        Of both players' gradient steps; the momentum is the classifier's.
    tolerance : float, default=0.0015
        Stop once the balanced accuracy of fresh classifiers is less than this above chance.
    evaluate_every : int, default=1000
        Steps between two evaluations, in which a fresh logistic regression learns on erased rows.
    patience : int, optional
        Stop after so many evaluations without a new best. None (the authors) never stops early.
    validation_fraction : float, default=0.1
        Share of held-out rows, on which the fresh classifiers are measured.
    random_state : int, RandomState or None
        Two fits with the same int give the same eraser.

    Attributes
    ----------
    basis_ : array of shape (D, k)
        V, orthonormal.
    history_ : list of float
        Loss of the fresh classifier after each round, on held-out rows. The highest was kept.
    classes_, n_features_in_, feature_names_in_
        As in `MUtE`.

    See Also
    --------
    LEACE : Linear erasure in closed form, with the least change of the rows.
    KernelErasure : The same game on kernel features.

    Notes
    -----
    *Guarantees.* The map is an orthogonal projector of rank D - k. The value of the game is known: no projection makes
    the loss higher than that of the best constant answer, and a projection reaches it exactly if its span contains all
    differences of the class means. With k = K - 1 the game therefore seeks the span of those differences.

    *Limits.* Noisy steps approach that span and do not reach it, least of all in directions in which the rows hardly
    vary. A classifier with very large weights, which the game and its evaluation do not have, can read what is left
    there. Nothing is promised against classifiers that are not linear. With fewer directions than the class means span,
    some of the concept stays; with more, the rest is arbitrary.

    *Labels.* Not needed to transform. *Cost.* About a millisecond a step, for hundreds of columns, and a logistic
    regression each round; two products of (n, D) with (D, k) to transform.

    *Differences from the authors' code.* Fresh classifiers are judged on held-out rows, with equal weight for each
    class, so that a rare class counts. They are one converged logistic regression instead of three runs by stochastic
    gradient. Rows are centred and divided by one number for the game, so that a learning rate means the same on all
    data. P is kept as a few eigenvectors: the same steps at a cost of D r² instead of D³, without torch.

    References
    ----------
    S. Ravfogel, M. Twiton, Y. Goldberg and R. Cotterell, "Linear Adversarial Concept Erasure", ICML 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from mute.rivals import RLACE
    >>> z = np.repeat([0, 1], 1000)
    >>> X = np.random.default_rng(0).normal(size=(2000, 5)) + 3 * z[:, None] * [1, 0, 0, 0, 0]
    >>> eraser = RLACE(n_iterations=1000, evaluate_every=200, random_state=0).fit(X, z)
    >>> bool(abs(eraser.basis_[0, 0]) > 0.99)
    True
    """

    _parameter_constraints: ClassVar[Constraints] = {
        **GAME,
        "n_iterations": COUNT,
        "rank": COUNT_OR_NONE,
        "momentum": FROM_0_BELOW_1,
    }
    PRESETS: ClassVar[dict[str, Json]] = {
        "authors-glove": {"n_iterations": 50_000, "weight_decay": 1e-5, "tolerance": 0.002},
        "authors-bios": {"n_iterations": 60_000, "batch_size": 256, "momentum": 0.9},
    }

    rank: int | None = None
    _: KW_ONLY
    n_iterations: int = 75_000
    batch_size: int = 128
    learning_rate: float = 0.005
    weight_decay: float = 1e-4
    momentum: float = 0.0
    tolerance: float = 0.0015
    evaluate_every: int = 1000
    patience: int | None = None
    validation_fraction: float = 0.1
    random_state: Seed = None

    def _learn(self, X: Array, z: Array) -> None:
        rank = min(int(z.max()), X.shape[1]) if self.rank is None else self.rank
        if rank > X.shape[1]:
            raise MuteError(f"rank must be at most the number of columns, {X.shape[1]}, not {rank}")
        rounds = self._steps(math.ceil(self.n_iterations / self.evaluate_every), "round")
        self.basis_, self.history_ = play(X, z, rank, self, rounds, self._generator())
