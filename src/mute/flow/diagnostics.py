r"""The effect of each layer on each class: negentropy, its ideal reduction, and the penalty of wrong routes.

With :math:`\tilde p_{i,d}` the rotated marginals of class *i* and :math:`\eta` the router,

.. math:: \Delta J^*_i = \sum_d KL(\tilde p_{i,d} \| \varphi), \qquad
          E_i = \mathbb{E}_i \sum_d \log \frac{\tilde p_{i,d}}{\tilde p_{\eta,d}}.

The paper takes :math:`E_i` as the penalty of misrouting. Its derivation assumes that the images of the routed regions
are disjoint. They overlap, and the exact penalty is :math:`E_i + H(\eta \mid X_i^{(t+1)})`. Both are reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError, missing_extra
from mute.flow.flow import Flow
from mute.flow.marginals import probit
from mute.typing import Json, Label

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["COLUMNS", "Diagnostics", "diagnose", "routing_penalty_1d", "rows_followed"]

COLUMNS = (
    "negentropy",
    "negentropy_after",
    "ideal_reduction",
    "routing_error",
    "penalty_printed",
    "routing_entropy",
    "penalty_corrected",
    "penalty_bound",
)

# Most rows of each class to follow through the layers, unless there are many columns: the fit takes much longer.
_ROWS = 2000


@dataclass(frozen=True, eq=False)
class Diagnostics:
    """Figures in nats for every set of rows, layer, class and column.

    Attributes
    ----------
    figures : array of shape (S, T, K, len(COLUMNS))
    sets : tuple of str
        The S sets of rows: "train", and "held-out" if there are held-out rows.
    classes : tuple
        The K labels.

    See Also
    --------
    MUtE.diagnose : The same figures for unseen rows.
    RoutingReport : Errors of the router.

    Notes
    -----
    ``negentropy`` (before the layer) and ``negentropy_after`` are the sum of the marginal negentropies and of the
    dependence of a Gaussian copula. On held-out rows they are corrected for the number of rows. ``ideal_reduction`` is
    the gain in log-density under the fitted marginals; on held-out rows it is negative if a layer fits noise.
    ``routing_entropy`` is the cross-entropy of a classifier that predicts the route from the layer's output, at most
    the entropy of the routes. ``penalty_bound`` replaces the mean over misrouted rows by the worst.

    *Limits.* The negentropies are NaN for a class with fewer than twice as many rows as columns, and never below zero.
    ``penalty_corrected`` is an upper estimate, because the classifier is not perfect.

    Examples
    --------
    >>> import numpy as np
    >>> from mute import MUtE
    >>> z = np.repeat(["a", "b"], 1000)
    >>> X = np.random.default_rng(0).normal(size=(2000, 2)) + np.where(z == "b", 3, -3)[:, None]
    >>> diagnostics = MUtE(n_iterations=4, random_state=0).fit(X, z).diagnostics_
    >>> bool((diagnostics.column("negentropy_after")[-1] < diagnostics.column("negentropy")[0]).all())
    True
    """

    figures: NDArray[np.float64]
    sets: tuple[str, ...]
    classes: tuple[Label, ...]

    @classmethod
    def from_arrays(
        cls, figures: NDArray[np.float64], sets: tuple[str, ...], classes: tuple[Label, ...], n_layers: int
    ) -> Diagnostics:
        """The diagnostics of a file, checked."""
        if figures.shape != (len(sets), n_layers, len(classes), len(COLUMNS)):
            raise MuteError("its diagnostics do not fit its maps")
        return cls(figures, sets, classes)

    @property
    def n_layers(self) -> int:
        return self.figures.shape[1]

    def column(self, name: str, rows: str = "train") -> NDArray[np.float64]:
        """One column for one set of rows, shape (T, K)."""
        if name not in COLUMNS or rows not in self.sets:
            raise MuteError(f"no column {name!r} for rows {rows!r}; columns: {COLUMNS}; sets of rows: {self.sets}")
        return self.figures[self.sets.index(rows), :, :, COLUMNS.index(name)]

    def records(self) -> list[Json]:
        """One dict for every set of rows, layer and class."""
        return [
            {"rows": rows, "layer": t, "class": label, **dict(zip(COLUMNS, map(float, figures), strict=True))}
            for rows, layers in zip(self.sets, self.figures, strict=True)
            for t, classes in enumerate(layers)
            for label, figures in zip(self.classes, classes, strict=True)
        ]

    def to_pandas(self) -> pd.DataFrame:
        """The records as a pandas data frame."""
        try:
            import pandas as pd
        except ImportError:
            raise missing_extra("pandas", "report", "a data frame of the diagnostics") from None
        return pd.DataFrame(self.records())

    def __str__(self) -> str:
        heads = ("J before", "J after", "ideal", "error", "printed", "entropy", "corrected", "bound")
        width = max(5, *(len(str(label)) for label in self.classes))
        lines = [f"{'rows':<9}{'layer':>5}  {'class':<{width}}" + "".join(f"{h:>11}" for h in heads)]
        for r in self.records():
            figures = "".join(f"{r[c]:>11.4f}" for c in COLUMNS)
            lines.append(f"{r['rows']:<9}{r['layer']:>5}  {r['class']!s:<{width}}{figures}")
        return "\n".join(lines)

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draw negentropy and routing penalty by layer as a matplotlib figure; save it to `path` if given."""
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise missing_extra("matplotlib", "report", "a plot of the diagnostics") from None
        figure = Figure(figsize=(9, 3.4), layout="constrained")
        left, right = figure.subplots(1, 2)
        layers = np.arange(self.n_layers + 1)
        for s, rows in enumerate(self.sets):
            style = "-" if rows == "train" else "--"
            for k, label in enumerate(self.classes):
                before, after, printed, corrected = (
                    self.column(name, rows)[:, k]
                    for name in ("negentropy", "negentropy_after", "penalty_printed", "penalty_corrected")
                )
                look = {"color": f"C{k}", "lw": 1.8 - 0.4 * s}
                left.plot(layers, np.append(before, after[-1:]), style, label=f"{label}, {rows}", **look)
                right.plot(layers[1:], corrected, style, **look)
                if rows == "train":
                    right.plot(layers[1:], printed, ":", color=f"C{k}", lw=1.2)
        left.set(xlabel="layers", ylabel="negentropy (nats)", title="distance from the shared law")
        left.set_yscale("symlog", linthresh=0.1)
        right.set(xlabel="layer", ylabel="nats", title="penalty of wrong routes (dotted: as printed)")
        right.axhline(0, color="0.7", lw=0.8, zorder=0)
        left.legend(frameon=False, fontsize=8)
        for axes in (left, right):
            axes.spines[["top", "right"]].set_visible(False)
        if path is not None:
            figure.savefig(path, dpi=150)
        return figure


def diagnose(
    flow: Flow,
    rows: dict[str, tuple[NDArray, NDArray, NDArray, NDArray]],
    classes: Sequence[Label],
    rng: np.random.Generator,
    n_threads: int | None = None,
) -> Diagnostics:
    """Follow rows through the layers.

    `rows` maps the name of each set to (x, z, routed, seen): rows, their true and routed classes, encoded, and the
    share of each class's training rows that they are (0 if they are not training rows).
    """
    figures = np.full((len(rows), flow.n_layers, flow.n_classes, len(COLUMNS)), np.nan)
    most = rows_followed(flow.n_features)
    for s, (x, z, routed, seen) in enumerate(rows.values()):
        for k in range(flow.n_classes):
            mine, share = np.flatnonzero(z == k), seen[k]
            if len(mine) > most:
                share *= most / len(mine)
                mine = np.sort(rng.choice(mine, most, replace=False))
            if len(mine) >= 2:
                figures[s, :, k] = _follow(flow, x[mine].astype(np.float64), k, routed[mine], 1 - share, n_threads)
    return Diagnostics(figures, tuple(rows), tuple(classes))


def rows_followed(n_features: int) -> int:
    """The most rows of a class to follow."""
    return max(_ROWS, 2 * n_features)


def _follow(
    flow: Flow, x: NDArray, k: int, routed: NDArray, chance: float, n_threads: int | None
) -> NDArray[np.float64]:
    """Figures (T, len(COLUMNS)) of the rows of class `k`; for `chance` see `_negentropy`."""
    out, wrong = np.empty((flow.n_layers, len(COLUMNS))), routed != k
    error = float(wrong.mean())
    route_entropy = _entropy(np.bincount(routed, minlength=flow.n_classes) / len(routed))
    ceiling = _entropy(np.array([error, 1 - error])) + error * np.log(max(flow.n_classes - 1, 1))
    now, before = x, _negentropy(x, chance)
    for t in range(flow.n_layers):
        layer = flow.layers(t, t + 1)
        own, own_density = _with_log_density(layer, now, k, n_threads)
        ideal = float(np.mean(own_density + 0.5 * (now**2).sum(axis=1)))
        moved, printed, worst, entropy = own, 0.0, 0.0, 0.0
        if wrong.any():
            moved = own.copy()
            moved[wrong], other = _with_log_density(layer, now[wrong], routed[wrong], n_threads)
            ratio = own_density[wrong] - other
            printed, worst = float(ratio.sum() / len(x)), float(error * max(ratio.max(), 0.0))
            entropy = _routing_entropy(layer, moved, k, routed, route_entropy, n_threads)
        after = _negentropy(moved, chance)
        out[t] = before, after, ideal, error, printed, entropy, printed + entropy, worst + ceiling
        now, before = moved, after
    return out


def _with_log_density(
    layer: Flow, x: NDArray, k: int | NDArray, n_threads: int | None
) -> tuple[NDArray, NDArray[np.float64]]:
    """Output of one layer, and the log-density of the rows under its marginals, up to a constant."""
    y, logdet = layer.push_with_logdet(x, k, n_threads=n_threads)
    return y, logdet - 0.5 * (y**2).sum(axis=1)


def _routing_entropy(layer: Flow, y: NDArray, k: int, routed: NDArray, ceiling: float, n_threads: int | None) -> float:
    """Estimate H(route | output) within class `k`, at most `ceiling`."""
    from sklearn.linear_model import LogisticRegression

    counts = np.bincount(routed, minlength=layer.n_classes)
    if np.sort(counts)[-2] < 20:  # too few wrong routes to learn from
        return ceiling
    # The likelihood that a row of class k came here along each route, by the layer's own densities.
    clues = []
    for route in np.flatnonzero(counts):
        source = layer.pull(y, int(route), n_threads=n_threads)
        _, density = _with_log_density(layer, source, k, n_threads)
        _, spread = _with_log_density(layer, source, int(route), n_threads)
        clues.append(density - spread)
    clue = np.stack(clues[1:], axis=1) - clues[0][:, None]
    clue = np.clip((clue - np.median(clue, axis=0)) / (clue.std(axis=0) + 1e-12), -5, 5)
    features = np.concatenate([clue, clue**2, clue**3], axis=1)
    half = np.arange(len(y)) % 2 == 0
    loss, seen = 0.0, 0
    for learn in (half, ~half):
        if len(np.unique(routed[learn])) < 2:
            return ceiling
        model = LogisticRegression(max_iter=200).fit(features[learn], routed[learn])
        column = {c: i for i, c in enumerate(model.classes_)}
        known = np.array([r in column for r in routed[~learn]])
        chance = model.predict_proba(features[~learn][known])
        picked = chance[np.arange(len(chance)), [column[r] for r in routed[~learn][known]]]
        loss -= float(np.log(np.maximum(picked, 1e-12)).sum())
        seen += len(picked)
    return min(loss / max(seen, 1), ceiling)


def _negentropy(x: NDArray[np.float64], chance: float) -> float:
    """KL to N(0, I): marginal negentropies and the dependence of a Gaussian copula.

    Few rows seem dependent by chance. The rotations remove this dependence from the training rows. `chance` is the
    share that remains: 1 for unseen rows and 1 - m / n for m of n training rows.
    """
    from scipy.special import digamma
    from scipy.stats import differential_entropy

    n, d = x.shape
    if n < 2 * d or n < 8 or (x.std(axis=0) <= 1e-9 * np.abs(x).max()).any():
        return float("nan")
    with np.errstate(divide="ignore"):  # an atom has infinite negentropy
        entropy = differential_entropy(x, axis=0, method="ebrahimi")
    marginal = 0.5 * np.log(2 * np.pi) + 0.5 * (x**2).mean(axis=0) - entropy
    _, logdet = np.linalg.slogdet(np.corrcoef(x, rowvar=False).reshape(d, d))
    # Expected log-determinant of the correlations of n independent Gaussian rows.
    bias = chance * (digamma((n - np.arange(1, d + 1)) / 2).sum() - d * digamma((n - 1) / 2))
    # A divergence is never negative, so an estimate below zero is noise.
    return max(float(marginal.sum() - 0.5 * (logdet - bias)), 0.0)


def _entropy(p: NDArray) -> float:
    p = p[p > 0]
    return float(-(p * np.log(p)).sum())


def routing_penalty_1d(
    densities: Sequence[Callable[[NDArray], NDArray]], route: Callable[[NDArray], NDArray], k: int, grid: NDArray
) -> dict[str, float]:
    """The exact penalty of misrouting class `k` for one layer in one dimension, by quadrature.

    `densities` are those of the K classes, ``route(x)`` is the class whose map x takes, and `grid` is fine, uniform and
    covers all classes. The result has the keys ``error``, ``printed`` (the paper's formula), ``entropy`` (H(route |
    output)), ``corrected`` (their sum) and ``true``: the negentropy of the routed output, computed from its density.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.stats import norm
    >>> parts = routing_penalty_1d([norm(-1, 1).pdf, norm(1, 1).pdf], lambda x: (x > 0).astype(int), 0,
    ...                            np.linspace(-12, 12, 200_000))
    >>> {name: round(value, 4) for name, value in parts.items()}
    {'error': 0.1587, 'printed': -0.1666, 'entropy': 0.3488, 'corrected': 0.1822, 'true': 0.1822}
    """
    from scipy.stats import norm

    step, p, routes = grid[1] - grid[0], [density(grid) for density in densities], route(grid)
    printed = float(sum((p[k] * np.log(p[k] / p[j]))[routes == j].sum() for j in range(len(p))) * step)
    y = np.linspace(-6, 6, len(grid))
    joint = np.zeros((len(p), len(y)))
    with np.errstate(invalid="ignore", divide="ignore"):
        for j, density in enumerate(p):
            below = np.cumsum(density) * step - 0.5 * density * step
            above = np.cumsum(density[::-1])[::-1] * step - 0.5 * density * step
            image = probit(below, above)
            inside = np.isfinite(image)
            source = np.interp(y, image[inside], grid[inside])
            # Change of variables: the density of the output along route j.
            slope = np.interp(source, grid, density) / norm.pdf(y)
            joint[j] = np.where(route(source) == j, np.interp(source, grid, p[k]) / slope, 0.0)
        total, dy = joint.sum(axis=0), y[1] - y[0]
        entropy = float(-np.where(joint > 0, joint * np.log(joint / total), 0.0).sum() * dy)
        true = float(np.where(total > 0, total * (np.log(total) - norm.logpdf(y)), 0.0).sum() * dy)
    error = float(p[k][routes != k].sum() * step)
    return {"error": error, "printed": printed, "entropy": entropy, "corrected": printed + entropy, "true": true}
