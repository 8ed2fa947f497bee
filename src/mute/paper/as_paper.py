"""MUtE as the paper's own code runs it, and its rule for the number of layers."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone

from mute.datasets import Dataset
from mute.estimators.registry import make, method_of
from mute.flow.flow import Flow
from mute.paper.measures import probe
from mute.paper.problems import Problem, rows_for
from mute.typing import Json, LabelsLike, Method, RowsLike, Setting

__all__ = ["AsPaper", "fit_as_paper", "fit_method"]

# The probit of 1 - 1e-5.
_CLIP = 4.26489


class AsPaper(BaseEstimator):
    """A fitted MUtE whose rows are clipped after every layer, as in the paper's code.

    The rows are clipped to 4.26 standard deviations, and on the way back to the histograms.
    Rows unlike any training row would otherwise follow the straight tails of steep maps far out, layer by layer. The
    way back of a clipped row does not lead to where the row came from. The package itself keeps the tails, and with
    them the exact inverse.
    """

    def __init__(self, eraser: Method) -> None:
        self.eraser = eraser

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def fit(self, X: RowsLike, y: LabelsLike = None) -> Self:
        return self

    @property
    def needs_concept(self) -> bool:
        return self.eraser.needs_concept

    @property
    def classes_(self) -> NDArray:
        return self.eraser.classes_

    @property
    def n_iterations_(self) -> int:
        return self.eraser.n_iterations_

    def route(self, X: NDArray) -> NDArray:
        return self.eraser.route(X)

    def transform(self, X: NDArray, concept: LabelsLike = None) -> NDArray:
        labels = self.route(X) if concept is None else np.asarray(concept)
        own = np.searchsorted(self.classes_, labels)
        for t in range(self.n_iterations_):
            X = np.clip(self.eraser.flow_.layers(t, t + 1).push(X, own), -_CLIP, _CLIP)
        return X

    def counterfactual(self, X: NDArray, target: LabelsLike, concept: LabelsLike = None) -> NDArray:
        goal = np.searchsorted(self.classes_, np.broadcast_to(np.asarray(target), (len(X),)))
        rows = self.transform(X, concept)
        for t in reversed(range(self.n_iterations_)):
            layer = self.eraser.flow_.layers(t, t + 1)
            rows = _within(layer, layer.pull(rows, goal), goal)
        return rows


def _within(layer: Flow, x: NDArray, k: NDArray) -> NDArray:
    """Rows whose rotated coordinates lie within the bins of the histograms of class `k`."""
    low = layer.origin[0][k]
    high = low + layer.step[0][k] * (layer.values.shape[3] - 1)
    rotation = layer.rotations[0]
    turned = np.clip((x - layer.center) / layer.scale @ rotation, low, high)
    return turned @ rotation.T * layer.scale + layer.center


def fit_as_paper(
    name: str, X: NDArray, z: NDArray, X_watch: NDArray, z_watch: NDArray, seed: int, its_layers: bool, **more: Setting
) -> AsPaper:
    """MUtE with the paper's histograms and its rule for the number of layers, on one of the paper's data sets.

    The paper stops where its probe, which learned on erased training rows, is at the majority rate on validation rows.
    Here that is tried after 1, 2, 4, ... layers, up to the paper's own number, and "at" means within 0.01. With
    `its_layers` the paper's number is taken at once: for its own data, or data with as many rows for each column.
    """
    eraser = make(f"mute:paper-{name}", random_state=seed, diagnostics=False, **more)
    if its_layers or "n_iterations" in more:
        return AsPaper(eraser.fit(X, z))
    most = eraser.n_iterations
    majority = np.unique(z_watch, return_counts=True)[1].max() / len(z_watch)
    oracle = eraser.router is None
    for tried in (32, most):  # the rule is often met early
        eraser = clone(eraser).set_params(n_iterations=min(tried, most)).fit(X, z)
        for layers in (1, 2, 4, 8, 16, 32, 64, 128):
            if layers > eraser.n_iterations_ or (layers <= 32 and tried == most > 32):
                continue
            short = AsPaper(eraser.first_layers(layers))
            Q, Q_watch = (
                short.transform(rows, labels if oracle else None).astype(np.float32)
                for rows, labels in ((X, z), (X_watch, z_watch))
            )
            if probe(Q, z, Q_watch, z_watch, seed) <= majority + 0.01:
                return short
    return AsPaper(eraser)


def fit_method(data: Problem, part: Dataset, method: str, settings: Json, seed: int) -> Method:
    """A method of the package, or "as-paper", fitted on a part of the training rows of a data set."""
    if method == "as-paper":
        watch = rows_for(method, data.fresh.X), data.fresh.z
        X = rows_for(method, part.X)
        return fit_as_paper(data.name, X, part.z, *watch, seed, its_layers=data.its_layers, **settings)
    task = {"task": part.y} if method_of(method).task else {}
    return make(method, **settings, random_state=seed).fit(part.X, part.z, **task)
