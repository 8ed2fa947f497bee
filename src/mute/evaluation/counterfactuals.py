"""Whether counterfactuals look like rows of the class that they were moved to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import pairwise_distances_argmin_min
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mute.adversaries.estimates import Estimate, bootstrap, bootstrap_mean, cosines
from mute.adversaries.panel import training
from mute.typing import Classifier, Label, Method

__all__ = ["Move", "can_judge", "counterfactual_quality"]

# Rows of each class in one move: 600 of each test the classifier that separates them, a standard error of 0.014.
_MOST_ROWS = 2000
_FEWEST_ROWS = 40
_MOST_MOVES = 12
# The share that the classifiers learn from, and the share that chooses among them; the rest tests the chosen one.
_LEARN, _CHOOSE = 0.5, 0.2
# A covariance from fewer rows than two a column says more about the rows than about their law.
_ROWS_PER_COLUMN = 2
_NEAR_ENOUGH = 0.95


@dataclass(frozen=True)
class Move:
    """Counterfactuals of `n_rows` unseen rows from one class to another.

    `routed` and `own` are the shares of the counterfactuals, and of the target's real rows, that the router takes for
    the target; None without a router. `two_sample` is the balanced accuracy, on held-out rows, of a classifier that
    separates counterfactuals from real rows of the target: 0.5 is chance. `displacement` is the median length of the
    move, in mean distances of two random rows. `translational` is the share of the move that is the same for all rows,
    |mean move|² / mean |move|²; NaN where nothing moves. `plausibility` is the share of the counterfactuals that have a
    real row of the target as near as 95 % of the target's real rows have: 0.95 is as near as real rows. `norm_ratio` is
    the median norm of the counterfactuals over that of the target's real rows. `truth_cosine` and `truth_distance` are
    the mean cosine and Euclidean distance to true counterfactuals; None where there are none.
    """

    source: Label
    target: Label
    n_rows: int
    routed: Estimate | None
    own: float | None
    two_sample: Estimate
    displacement: Estimate
    translational: float
    plausibility: Estimate
    norm_ratio: float
    truth_cosine: Estimate | None
    truth_distance: Estimate | None


def counterfactual_quality(
    eraser: Method,
    X: NDArray,
    z: NDArray,
    classes: Sequence[Label],
    rng: np.random.Generator,
    *,
    oracle: bool = False,
    truth: tuple[NDArray, NDArray, NDArray] | None = None,
) -> tuple[Move, ...]:
    """Judge the counterfactuals between the largest classes: at most twelve pairs, of classes with 40 rows or more.

    `X` (n, D) and `z` (n,) are unseen rows and the codes of their classes, of which two are large enough (`can_judge`);
    `classes` has the user's labels in the order of the codes. With `oracle` the rows are moved with true labels.
    `truth` has the m rows of `X` with a true counterfactual, the codes of their targets, and the embeddings (m, D).

    Notes
    -----
    *Limits.* All figures but the true counterfactuals compare laws: the moved rows look like rows of the target. They
    do not say that each row kept what is its own. A map that swaps rows at random would pass; `displacement` and the
    reconstruction of erased rows detect it.
    """
    unit = _typical_distance(X, rng)

    def moved(rows: NDArray, source: int, target: int) -> NDArray[np.float64]:
        labels = {"concept": [classes[source]] * len(rows)} if oracle else {}
        return np.asarray(eraser.counterfactual(X[rows], classes[target], **labels)).astype(np.float64)

    def compared(source: int, target: int) -> tuple[Estimate | None, Estimate | None]:
        """Mean cosine and distance between what the eraser makes and the truth."""
        if truth is None:
            return None, None
        rows, targets, embeddings = truth
        mine = np.flatnonzero((z[rows] == source) & (targets == target))[:_MOST_ROWS]
        if not len(mine):
            return None, None
        made, true = moved(rows[mine], source, target), embeddings[mine].astype(np.float64)
        return bootstrap_mean(cosines(made, true), rng), bootstrap_mean(np.linalg.norm(made - true, axis=1), rng)

    def judged(source: int, target: int) -> Move:
        rows, goals = (rng.permutation(np.flatnonzero(z == k))[:_MOST_ROWS] for k in (source, target))
        made, real = moved(rows, source, target), X[goals].astype(np.float64)
        move = made - X[rows]
        lengths = np.linalg.norm(move, axis=1)
        travelled = (lengths**2).mean()
        routed, own = None, None
        if getattr(eraser, "router_", None) is not None:
            routed = bootstrap_mean(_routed_to(eraser, made, classes[target]), rng)
            own = float(_routed_to(eraser, real, classes[target]).mean())
        cosine, distance = compared(source, target)
        return Move(
            source=classes[source],
            target=classes[target],
            n_rows=len(rows),
            routed=routed,
            own=own,
            two_sample=_tell_apart(made, real, rng),
            displacement=bootstrap(lambda drawn: float(np.median(lengths[drawn]) / unit), len(rows), rng),
            translational=float((move.mean(axis=0) ** 2).sum() / travelled) if travelled > 0 else float("nan"),
            plausibility=_plausibility(made, real, rng),
            norm_ratio=float(np.median(np.linalg.norm(made, axis=1)) / np.median(np.linalg.norm(real, axis=1))),
            truth_cosine=cosine,
            truth_distance=distance,
        )

    return tuple(judged(*pair) for pair in _pairs(np.bincount(z, minlength=len(classes))))


def can_judge(z: NDArray) -> bool:
    """Whether two classes have enough rows."""
    return bool((np.bincount(z) >= _FEWEST_ROWS).sum() >= 2)


def _pairs(counts: NDArray) -> list[tuple[int, int]]:
    """The moves to judge: those with most rows in the smaller of their classes, in the order of the classes."""
    enough = np.flatnonzero(counts >= _FEWEST_ROWS).tolist()
    pairs = [(i, j) for i in enough for j in enough if i != j]
    return sorted(sorted(pairs, key=lambda pair: -min(counts[list(pair)]))[:_MOST_MOVES])


def _routed_to(eraser: Method, rows: NDArray, label: Label) -> NDArray[np.bool_]:
    # Compared one by one: a label may be a tuple, which an array would take for a row of labels.
    return np.array([found == label for found in eraser.route(rows).tolist()])


def _tell_apart(made: NDArray, real: NDArray, rng: np.random.Generator) -> Estimate:
    """Accuracy on held-out rows, half of them made, of the best of three classifiers.

    A logistic model sees shifts, a quadratic one covariances, boosted trees the shape of single columns and of the
    squared norm. Other rows choose among them: the best of three on the test rows would lie above one half by chance.
    """
    n = min(len(made), len(real))
    ends = [0, int(_LEARN * n), int((_LEARN + _CHOOSE) * n), n]
    parts = []
    for start, end in pairwise(ends):
        rows = np.concatenate([made[start:end], real[start:end]])
        parts.append((np.column_stack([rows, (rows**2).mean(axis=1)]), np.repeat([1, 0], end - start)))
    learn, choose, test = parts
    boosting = HistGradientBoostingClassifier(
        max_iter=40, max_leaf_nodes=8, learning_rate=0.15, max_features=0.3, early_stopping=False,
        random_state=int(rng.integers(2**31 - 1)),
    )  # fmt: skip
    classifiers: list[Classifier] = [make_pipeline(StandardScaler(), LogisticRegression(C=0.1)), boosting]
    if ends[1] >= _ROWS_PER_COLUMN * learn[0].shape[1]:
        # A hundredth of each column's variance keeps directions that no row varies in from deciding alone.
        classifiers.append(make_pipeline(StandardScaler(), QuadraticDiscriminantAnalysis(reg_param=0.01)))
    with training():
        best = max((c.fit(*learn) for c in classifiers), key=lambda c: c.score(*choose))
    right = best.predict(test[0]) == test[1]
    return bootstrap_mean(right, rng, groups=test[1])


def _plausibility(made: NDArray, real: NDArray, rng: np.random.Generator) -> Estimate:
    reference, held_back = np.array_split(real, 2)
    _, usual = pairwise_distances_argmin_min(held_back, reference)
    _, found = pairwise_distances_argmin_min(made, reference)
    return bootstrap_mean(found <= np.quantile(usual, _NEAR_ENOUGH), rng)


def _typical_distance(X: NDArray, rng: np.random.Generator) -> float:
    """Mean distance of two random rows; the median would fall into the gap between two classes far apart."""
    first, second = (rng.integers(len(X), size=_MOST_ROWS) for _ in range(2))
    apart = first != second
    return float(np.linalg.norm(X[first[apart]].astype(np.float64) - X[second[apart]], axis=1).mean())
