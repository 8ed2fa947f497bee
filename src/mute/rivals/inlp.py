"""INLP: the null spaces of linear classifiers, one after the other."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.estimators.base import WithTask
from mute.estimators.settings import BETWEEN_0_AND_1, COUNT, FLAG, FROM_0_TO_1, POSITIVE, one_of
from mute.estimators.training import hold_out
from mute.rivals.projection import Projector, class_accuracy, fit_quietly
from mute.typing import Array, Constraints, Json, Seed

__all__ = ["INLP"]

# Rows of which less than this share is left have no direction to take any more, only rounding errors.
_NOTHING_LEFT = 1e-10
# C times the variance of the rows: far beyond these, liblinear never ends, whatever its max_iter.
_STRENGTHS = (1e-60, 1e60)


Part = tuple[NDArray[np.int64], NDArray[np.int64]]


@dataclass(eq=False, repr=False)
class INLP(WithTask, Projector):
    r"""Iterative null-space projection.

    A linear classifier of the concept is fitted, the span of its weights is taken out of the rows, and the next one
    is fitted on what is left: :math:`x' = x - B B^\top x`, where B is an orthonormal basis of the weights of all
    classifiers. These are linear support vector machines without intercept, as the authors' are.

    Parameters
    ----------
    n_iterations : int, default=35
        The most classifiers.
    C, class_weight : float and {None, "balanced"}, default=1.0 and None
        Inverse strength of their regularisation, and weights of the classes in their loss.
    min_accuracy : float, default=0.0
        A classifier below this accuracy is skipped.
    stop_at_majority : bool, default=True
        Stop once a new classifier is at chance on held-out rows, within one standard error. The authors fix the number
        of classifiers instead, and most of these take out noise.
    validation_fraction : float, default=0.1
        Share of held-out rows, on which accuracies are measured.
    random_state : int, RandomState or None
        Chooses the held-out rows and the order of the task's classes.

    Attributes
    ----------
    basis_ : array of shape (D, r)
        Orthonormal basis of what is taken out; r may be 0.
    history_ : list of float
        Accuracy of each classifier on held-out rows.
    classes_, n_features_in_, feature_names_in_
        As in `MUtE`.

    See Also
    --------
    LEACE : Linear erasure in closed form, with the least change of the rows.
    RLACE : One projection, found by a game.

    Notes
    -----
    *Guarantees.* The map is an orthogonal projector; every classifier gives one answer to all erased rows. If the fit
    stopped before `n_iterations`, one more classifier reads nothing from unseen rows beyond the sampling error of the
    held-out rows.

    *Limits.* INLP takes out far more than is needed: the K - 1 directions between the class means are enough for all
    linear classifiers, and each iteration takes out up to K (one for two classes). Nothing is promised against other
    classifiers, and the change of the rows is not the least.

    *Task.* With ``task=`` in `fit`, each classifier sees the rows of one class of the task only, in random order ("by
    class" in the authors' code), so that it cannot read the concept by way of the task.

    *Differences from the authors' code.* Each classifier sees its rows centred at the mean of the class means, as its
    boundary goes through the origin. Accuracies are means over the classes, so that chance is 1 / K. On centred rows
    with classes of one size, neither makes a difference.

    *Labels.* Not needed to transform. *Cost.* One linear fit for each iteration; two products of (n, D) with (D, r) to
    transform.

    References
    ----------
    S. Ravfogel et al., "Null It Out: Guarding Protected Attributes by Iterative Nullspace Projection", ACL 2020.

    Examples
    --------
    >>> import numpy as np
    >>> from mute.rivals import INLP
    >>> z = np.repeat([0, 1], 1000)
    >>> X = np.random.default_rng(0).normal(size=(2000, 5)) + 3 * z[:, None] * [1, 0, 0, 0, 0]
    >>> Q = INLP(random_state=0).fit_transform(X, z)
    >>> bool(abs(Q[z == 0].mean(axis=0) - Q[z == 1].mean(axis=0)).max() < 0.2)
    True
    """

    _parameter_constraints: ClassVar[Constraints] = {
        "n_iterations": COUNT,
        "C": POSITIVE,
        "class_weight": [*one_of("balanced"), None],
        "min_accuracy": FROM_0_TO_1,
        "stop_at_majority": FLAG,
        "validation_fraction": BETWEEN_0_AND_1,
    }
    PRESETS: ClassVar[dict[str, Json]] = {
        "authors-glove": {"n_iterations": 35, "stop_at_majority": False},
        "authors-bios": {"n_iterations": 300, "C": 0.01, "stop_at_majority": False},
        "authors-dial": {
            "n_iterations": 300,
            "C": 0.1,
            "class_weight": "balanced",
            "min_accuracy": 0.51,
            "stop_at_majority": False,
        },
    }

    n_iterations: int = 35
    _: KW_ONLY
    C: float = 1.0
    class_weight: str | None = None
    min_accuracy: float = 0.0
    stop_at_majority: bool = True
    validation_fraction: float = 0.1
    random_state: Seed = None

    def _learn(self, X: Array, z: Array, task: Array | None = None) -> None:
        rng = self._generator()
        parts = _parts(z, task, self.validation_fraction, rng)
        rows = X - X.mean(axis=0, dtype=np.float64)
        self._check_strength(rows)
        self.basis_, self.history_ = np.zeros((X.shape[1], 0)), []
        left, found, quiet = rows, [], 0
        for i in self._steps(self.n_iterations, "classifier"):
            if i % len(parts) == 0:
                turn = rng.permutation(len(parts))
            learn, watch = parts[turn[i % len(parts)]]
            weights, accuracy = self._read(left, z, learn, watch)
            self.history_.append(accuracy)
            at_chance = self.stop_at_majority and accuracy <= _majority(z[watch])
            quiet = quiet + 1 if at_chance else 0
            if quiet == len(parts):
                break
            if at_chance or accuracy < self.min_accuracy:
                continue
            # A basis of all weights, not a product of projectors, which would drift.
            found.append(weights)
            self.basis_ = _orthonormal(np.concatenate(found))
            left = rows - (rows @ self.basis_) @ self.basis_.T
            if np.linalg.norm(left) <= _NOTHING_LEFT * np.linalg.norm(rows):
                break

    def _check_strength(self, rows: Array) -> None:
        """Refuse a C that makes the solver's numbers overflow or vanish: it would not end."""
        with np.errstate(over="ignore"):
            variance = float(np.mean(rows**2))
            strength = self.C * variance
        least, most = _STRENGTHS
        if variance > 0 and not least <= strength <= most:
            raise MuteError(
                f"C times the variance of the rows must lie between {least:.0e} and {most:.0e}, not be {strength:.0e}; "
                "choose C nearer to 1, or rescale the rows"
            )

    def _read(self, X: Array, z: Array, learn: Array, watch: Array) -> tuple[NDArray[np.float64], float]:
        """Weights of a new classifier, one row for each, and its accuracy on the watched rows."""
        from sklearn.svm import LinearSVC

        centre = np.mean([X[learn[z[learn] == k]].mean(axis=0) for k in np.unique(z[learn])], axis=0)
        classifier = LinearSVC(dual=False, fit_intercept=False, C=self.C, class_weight=self.class_weight)
        fit_quietly(classifier, X[learn] - centre, z[learn])
        return classifier.coef_, class_accuracy(z[watch], classifier.predict(X[watch] - centre))


def _parts(z: Array, task: Array | None, share: float, rng: np.random.Generator) -> list[Part]:
    """Rows to learn from and rows to watch: of all, or of each class of the task that has at least two concepts."""
    if task is None:
        return [hold_out(z, share, rng)]
    learn, watch = hold_out(z * (task.max() + 1) + task, share, rng)
    parts = [(learn[task[learn] == t], watch[task[watch] == t]) for t in range(task.max() + 1)]
    parts = [part for part in parts if all(len(np.unique(z[rows])) > 1 for rows in part)]
    if not parts:
        raise MuteError(
            "no class of the task has enough rows of two classes of the concept, to learn from and to hold out; "
            "fit without a task"
        )
    return parts


def _orthonormal(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Orthonormal basis, in columns, of the span of the rows, each taken at length 1."""
    from scipy.linalg import orth

    lengths = np.linalg.norm(weights, axis=1)
    kept = lengths > 0
    return orth((weights[kept] / lengths[kept, None]).T) if kept.any() else np.zeros((weights.shape[1], 0))


def _majority(z: Array) -> float:
    """What `class_accuracy` gives at chance, plus its standard error."""
    counts = np.unique(z, return_counts=True)[1]
    chance = 1 / len(counts)
    return chance + math.sqrt(chance * (1 - chance) * (1 / counts).sum()) / len(counts)
