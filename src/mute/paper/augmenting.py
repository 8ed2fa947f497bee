"""Fairness of a classifier that learned on rows and their counterfactuals."""

from __future__ import annotations

import numpy as np
from sklearn.frozen import FrozenEstimator

from mute.datasets import Dataset
from mute.evaluation.augmentation import CounterfactualAugmentation
from mute.paper.as_paper import fit_method
from mute.paper.measures import network, task_figures, trained
from mute.paper.problems import Problem, part_of, rows_for, task_of
from mute.typing import Json, Method

__all__ = ["TWINS", "augmented"]

# Label to (method, settings, where labels of the concept are known). "oracle": for the rows of the task. "disjoint":
# only for other rows, on which the eraser and its router are fitted.
TWINS: dict[str, tuple[str, Json, str]] = {
    "original": ("none", {}, ""),
    "duplicate": ("none", {}, ""),
    "mean-difference": ("mean-difference", {"router": None}, "oracle"),
    "linear-ot-paper": ("linear-ot:paper", {"router": None}, "oracle"),
    "linear-ot": ("linear-ot", {"router": None}, "oracle"),
    "mute-oracle": ("as-paper", {"router": None}, "oracle"),
    "mute-disjoint": ("as-paper", {}, "disjoint"),
}


def augmented(data: Problem, label: str, seed: int) -> Json:
    """Train on half of the training rows and their counterfactuals, test on original test rows.

    The paper takes the first and the last 50,000 rows of its file; here the halves are drawn at random.
    """
    method, settings, labelled = TWINS[label]
    half = np.zeros(len(data.fit), bool)
    half[np.random.default_rng(seed).permutation(len(half))[: len(half) // 2]] = True
    mine, others = part_of(data.fit, half), part_of(data.fit, ~half)
    control = label if method == "none" else None
    eraser = fit_method(data, mine if labelled == "oracle" else others, method, settings, seed)
    model = CounterfactualAugmentation(
        network(seed, 100), FrozenEstimator(eraser), control=control, oracle=labelled == "oracle" or None,
        random_state=seed,
    )  # fmt: skip
    model.fit(rows_for(method, mine.X), task_of(mine), concept=mine.z)
    found: Json = {"task": task_figures(model, data.test.X, task_of(data.test), data.test.z)}
    if method != "none":
        found["reached_paper"] = _reached(eraser, method, mine, mine, labelled, seed)
        found["reached_fresh"] = _reached(eraser, method, data.fresh, data.test, labelled, seed)
    return found


def _reached(eraser: Method, method: str, learn: Dataset, moved: Dataset, labelled: str, seed: int) -> float:
    """Share of counterfactuals that the paper's probe, which learned on real rows, takes for their target."""
    judge = trained(network(seed, 20), learn.X, learn.z)
    classes = np.unique(learn.z)
    target = classes[(np.searchsorted(classes, moved.z) + 1) % len(classes)]
    labels = {"concept": moved.z} if labelled == "oracle" else {}
    twins = eraser.counterfactual(rows_for(method, moved.X), target, **labels)
    return float(np.mean(judge.predict(twins) == target))
