"""What the report draws: a map of the rows, and the leak after each layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mute.adversaries.panel import PANEL, Features, attack, standardiser
from mute.adversaries.scoring import score
from mute.typing import Json

if TYPE_CHECKING:
    from mute.evaluation.rows import Rows

__all__ = ["leak_by_layer", "map_of"]

_POINTS, _TRAJECTORIES = 800, 40
_MOST_LAYERS, _LAYER_ROWS = 8, 4000


def map_of(rows: Rows, rng: np.random.Generator) -> Json:
    """Test rows in two dimensions: before, after, and as counterfactuals.

    Two classes differ most in the mean along the first axis, measured in the spread within classes. The second axis
    has the largest spread at right angles to the first. Erased rows have axes of their own, so that whatever the
    classes still differ in shows.
    """
    shown = np.sort(rng.permutation(len(rows.z_test))[:_POINTS])
    z = rows.z_test[shown]
    before, after = _axes(rows.X_learn, rows.z_learn), _axes(rows.Q_learn, rows.z_learn)
    out: Json = {
        "classes": z.tolist(),
        "before": before(rows.X_test[shown]).tolist(),
        "after": after(rows.Q_test[shown]).tolist(),
        "counterfactual": None,
    }
    if rows.subject.can("counterfactual"):
        target = (z + 1) % rows.n_classes
        out["counterfactual"] = before(rows.subject.counterfactual(rows.X_test[shown], target, z)).tolist()
        out["targets"] = target.tolist()
        out["trajectories"] = min(_TRAJECTORIES, len(shown))
    return out


def _axes(X: NDArray, z: NDArray) -> Callable[[NDArray], NDArray]:
    """A projection to two dimensions."""
    standardised = standardiser(X)
    rows = standardised(X)
    classes, codes = np.unique(z, return_inverse=True)
    means = np.stack([rows[z == k].mean(axis=0) for k in classes])
    within = rows - means[codes]
    covariance = within.T @ within / len(rows) + 1e-3 * np.eye(X.shape[1])
    gaps = [means[i] - means[j] for i in range(len(means)) for j in range(i)]
    first = np.linalg.solve(covariance, max(gaps, key=lambda gap: float(np.linalg.norm(gap))))
    first /= max(float(np.linalg.norm(first)), 1e-12)
    rest = rows - np.outer(rows @ first, first)
    plane = np.stack([first, np.linalg.eigh(rest.T @ rest)[1][:, -1]], axis=1)
    return lambda x: (standardised(x) @ plane).round(4)


def leak_by_layer(rows: Rows, rng: np.random.Generator) -> list[tuple[int, float]] | None:
    """Balanced accuracy of the quadratic adversary on unseen rows after some of the layers; None without layers."""
    flow = getattr(rows.subject.eraser, "flow_", None)
    if flow is None or not hasattr(flow, "layers"):
        return None
    learn = rng.permutation(len(rows.z_learn))[:_LAYER_ROWS]
    test = rng.permutation(len(rows.z_test))[:_LAYER_ROWS]
    parts = [(rows.X_learn[learn], rows.z_learn[learn]), (rows.X_test[test], rows.z_test[test])]
    routes = [rows.subject.erased_as(x, z) for x, z in parts]
    prior = np.bincount(parts[0][1], minlength=rows.n_classes) / len(learn)
    stops = np.unique(np.linspace(0, flow.n_layers, min(_MOST_LAYERS, flow.n_layers) + 1).round().astype(int))
    found, now, at = [], [x for x, _ in parts], 0
    for stop in stops.tolist():
        if stop > at:
            now = [flow.layers(at, stop).push(x, k) for x, k in zip(now, routes, strict=True)]
            at = stop
        features = Features(now[0], scale_features=True)
        chances = attack(PANEL["quadratic"], features(now[0]), parts[0][1], features(now[1]), rows.n_classes, 0)
        judged = score("quadratic", "fresh", chances, parts[1][1], prior, rng)
        found.append((stop, judged.balanced_accuracy.value))
    return found
