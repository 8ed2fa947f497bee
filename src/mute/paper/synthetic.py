"""The paper's synthetic study: two Gaussian mixtures in the plane, almost separable and overlapping."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mute.paper.measures import FIRST_SEED, trained
from mute.typing import Classifier, Foreign, Json, Method

__all__ = ["SHIFTS", "draw_synthetic", "mixtures", "synthetic"]

_COLOURS = ("#2f7fbf", "#d9622b")

# How far the second mixture is pushed along a fixed direction; found so that a probe is at 94 % and 81 %.
SHIFTS = {"separable": 2.5, "overlapping": 0.92}

_CENTRES = np.array([[0.0, 0.0], [1.6, 0.6], [0.4, 1.8]])
_SPREADS = np.array([[0.5, 0.35], [0.3, 0.5], [0.45, 0.3]])


def mixtures(shift: float, n: int, rng: np.random.Generator) -> tuple[NDArray, NDArray]:
    """Two mixtures of three Gaussians, `n` rows each, the second sheared and pushed by `shift`."""
    parts = []
    for k, weights in enumerate(((0.4, 0.35, 0.25), (0.3, 0.3, 0.4))):
        which = rng.choice(3, n, p=weights)
        tilt = np.array([[1.0, 0.25], [0.0, 1.0]]) if k else np.eye(2)
        parts.append((_CENTRES[which] + _SPREADS[which] * rng.normal(size=(n, 2))) @ tilt)
    x, z = np.concatenate(parts), np.repeat([0, 1], n)
    x[z == 1] += shift * np.array([0.8, -0.6])
    return x, z


def synthetic(regime: str, seed: int, n: int = 2000) -> Json:
    """Probes before and after erasure with the paper's settings: `n` rows of each class, 20 layers."""
    found = _study(regime, seed, n)
    return {name: found[name] for name in ("before", "after_paper", "after_fresh", "misrouted")}


def _study(regime: str, seed: int, n: int) -> Json:
    from mute import MUtE

    rng = np.random.default_rng(seed)
    (x, z), (x_new, z_new), (x_test, z_test) = (mixtures(SHIFTS[regime], n, rng) for _ in range(3))
    eraser = MUtE.from_preset("paper-synthetic", diagnostics=False, random_state=seed).fit(x, z)
    erased, erased_test = eraser.transform(x), eraser.transform(x_test)
    adversary = _probe(seed, erased, z)
    fresh = _probe(seed, eraser.transform(x_new), z_new)
    return {
        "eraser": eraser,
        "adversary": adversary,
        "x": x_test,
        "z": z_test,
        "erased": erased_test,
        "before": float(_probe(seed, x, z).score(x_test, z_test)),
        "after_paper": float(adversary.score(erased_test, z_test)),
        "after_fresh": float(fresh.score(erased_test, z_test)),
        "misrouted": float(np.mean(eraser.route(x_test) != z_test)),
    }


def _probe(seed: int, x: NDArray, z: NDArray) -> Classifier:
    """A network that learns to the end: stopped early, it may not have begun to on rows this few."""
    from sklearn.neural_network import MLPClassifier

    return trained(MLPClassifier(max_iter=300, random_state=FIRST_SEED + seed), x, z)


def draw_synthetic(path: Path, n: int = 2000) -> None:
    """The paper's figure, for the first seed: data, erased data, moves of misrouted rows, moves of one class."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 7), layout="constrained")
    for row, regime in zip(figure.subplots(2, 4), SHIFTS, strict=True):
        found = _study(regime, 0, n)
        x, z, eraser = found["x"], found["z"], found["eraser"]
        colours = np.array(_COLOURS)[z]
        _shade(row[0], eraser.route, x)
        row[0].scatter(*x.T, s=3, c=colours, lw=0)
        row[0].set_title(f"{regime}: probe {found['before']:.1%}", fontsize=10)
        _shade(row[1], found["adversary"].predict, found["erased"])
        row[1].scatter(*found["erased"].T, s=3, c=colours, lw=0)
        row[1].set_title(f"erased: probe {found['after_paper']:.1%}", fontsize=10)
        misrouted = np.flatnonzero(eraser.route(x) != z)[:60]
        first = np.flatnonzero(z == 0)[:90]
        # Misrouted rows go to the class that they belong to; the others to the second class.
        _moves(row[2], eraser, x, colours, misrouted, z[misrouted], "counterfactuals of misrouted rows")
        _moves(row[3], eraser, x, colours, first, np.ones(len(first), int), "counterfactuals 0 → 1, routed")
    for axes in figure.axes:
        axes.set(xticks=[], yticks=[])
    figure.savefig(path, dpi=110)


def _moves(
    axes: Foreign, eraser: Method, x: NDArray, colours: NDArray, rows: NDArray, target: NDArray, title: str
) -> None:
    _shade(axes, eraser.route, x)
    axes.scatter(*x.T, s=2, c=colours, lw=0, alpha=0.25)
    step = eraser.counterfactual(x[rows], target.tolist()) - x[rows]
    axes.quiver(*x[rows].T, *step.T, angles="xy", scale_units="xy", scale=1, width=0.003, color="#222222")
    axes.set_title(title, fontsize=10)


def _shade(axes: Foreign, predict: Callable[[NDArray], NDArray], x: NDArray) -> None:
    from matplotlib.colors import ListedColormap

    # A few rows that were misrouted lie far out; the picture is of the others.
    low, high = np.quantile(x, 0.003, axis=0) - 0.6, np.quantile(x, 0.997, axis=0) + 0.6
    gx, gy = np.meshgrid(np.linspace(low[0], high[0], 250), np.linspace(low[1], high[1], 250))
    regions = predict(np.column_stack([gx.ravel(), gy.ravel()])).reshape(gx.shape)
    axes.pcolormesh(gx, gy, regions, cmap=ListedColormap(_COLOURS), alpha=0.15, shading="auto", rasterized=True)
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
