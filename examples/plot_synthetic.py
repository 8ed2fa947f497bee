"""The paper's synthetic study: two Gaussian mixtures in the plane, far apart and overlapping.

Four panels for each: the data with the router's regions; the erased data with the regions of an adversary that learned
on them; counterfactual moves of rows by routed class; and the same moves drawn from the true classes' point of view,
where misrouted rows go the wrong way. Run: ``python examples/plot_synthetic.py docs/images/synthetic.png``.
"""

from __future__ import annotations

import sys

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from sklearn.neural_network import MLPClassifier

from mute import MUtE

COLOURS = ("#2f7fbf", "#d9622b")
# How far the second mixture is pushed along a fixed direction; found so that a probe is at 94 % and 81 %.
SHIFTS = {"almost separable": 2.5, "overlapping": 0.92}


def mixtures(shift: float, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two mixtures of three Gaussians, `n` rows each, the second pushed by `shift`."""
    centres = np.array([[0.0, 0.0], [1.6, 0.6], [0.4, 1.8]])
    spreads = np.array([[0.5, 0.35], [0.3, 0.5], [0.45, 0.3]])
    parts = []
    for k in range(2):
        which = rng.choice(3, n, p=[0.4, 0.35, 0.25] if k == 0 else [0.3, 0.3, 0.4])
        tilt = np.array([[1.0, 0.25], [0.0, 1.0]]) if k else np.eye(2)
        parts.append((centres[which] + spreads[which] * rng.normal(size=(n, 2))) @ tilt)
    x = np.concatenate(parts)
    z = np.repeat([0, 1], n)
    x[z == 1] += shift * np.array([0.8, -0.6])
    return x, z


def probe(x: np.ndarray, z: np.ndarray) -> MLPClassifier:
    return MLPClassifier(max_iter=300, early_stopping=True, random_state=0).fit(x, z)


def shade(axes, predict, x: np.ndarray) -> None:
    low, high = x.min(axis=0) - 0.4, x.max(axis=0) + 0.4
    gx, gy = np.meshgrid(np.linspace(low[0], high[0], 250), np.linspace(low[1], high[1], 250))
    regions = predict(np.column_stack([gx.ravel(), gy.ravel()])).reshape(gx.shape)
    axes.pcolormesh(gx, gy, regions, cmap=ListedColormap(COLOURS), alpha=0.15, shading="auto", rasterized=True)
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))


def study(shift: float, seed: int = 0) -> dict:
    """Fit on one sample, measure on another."""
    rng = np.random.default_rng(seed)
    x, z = mixtures(shift, 2000, rng)
    x_test, z_test = mixtures(shift, 2000, rng)
    eraser = MUtE(n_iterations=20, random_state=0).fit(x, z)
    erased, erased_test = eraser.transform(x), eraser.transform(x_test)
    adversary = probe(erased, z)
    return {
        "eraser": eraser,
        "x": x_test,
        "z": z_test,
        "erased": erased_test,
        "adversary": adversary,
        "before": probe(x, z).score(x_test, z_test),
        "after": adversary.score(erased_test, z_test),
    }


def main(path: str) -> None:
    figure = Figure(figsize=(14, 7), layout="constrained")
    for row, (name, shift) in zip(figure.subplots(2, 4), SHIFTS.items(), strict=True):
        found = study(shift)
        x, z, eraser = found["x"], found["z"], found["eraser"]
        colours = np.array(COLOURS)[z]
        print(f"{name}: probe {found['before']:.3f} before, {found['after']:.3f} after")
        shade(row[0], eraser.route, x)
        row[0].scatter(*x.T, s=3, c=colours, lw=0)
        row[0].set_title(f"{name}: probe {found['before']:.1%}", fontsize=10)
        shade(row[1], found["adversary"].predict, found["erased"])
        row[1].scatter(*found["erased"].T, s=3, c=colours, lw=0)
        row[1].set_title(f"erased: probe {found['after']:.1%}", fontsize=10)
        for axes, rows, title in (
            (row[2], np.flatnonzero(eraser.route(x) != z)[:60], "counterfactuals of misrouted rows"),
            (row[3], np.flatnonzero(z == 0)[:90], "counterfactuals 0 → 1, routed"),
        ):
            # Misrouted rows go to the class they belong to; the others to the second class.
            target = z[rows] if axes is row[2] else np.ones(len(rows), int)
            moved = eraser.counterfactual(x[rows], target.tolist())
            shade(axes, eraser.route, x)
            axes.scatter(*x.T, s=2, c=colours, lw=0, alpha=0.25)
            axes.quiver(
                *x[rows].T, *(moved - x[rows]).T, angles="xy", scale_units="xy", scale=1, width=0.003, color="#222222"
            )
            axes.set_title(title, fontsize=10)
    for axes in figure.axes:
        axes.set(xticks=[], yticks=[])
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "synthetic.png")
