"""What each marginal keeps of a row on the way there and back: the figures behind the default floor.

    python benchmarks/round_trip.py                  half a minute
    python benchmarks/round_trip.py --rows 200000    where alpha, not the least of 50 rows, sets the floor

Two classes of unit variance, neither of them Gaussian (one in clusters, one skewed), 20,000 rows in 32 columns, 50
layers, true labels. Held-out rows go through `Flow.push` and `Flow.pull` twice over: as they are, and blown up to ten
standard deviations in every column. The error of a row is the largest difference in its columns.

What a higher floor costs is how well the rows of the fit are Gaussianised: the distance of Kolmogorov and Smirnov to
N(0, 1) behind the last layer, times the root of the class's rows, in the mean and in the worst class and column. Rows
drawn from N(0, 1) itself come to 0.87 in the mean. With fewer than 50 / alpha rows in a class it is not alpha that
acts in a merging histogram but its least of 50 rows in a bin: below that all floors give one and the same map.
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.special import ndtr

from mute.flow.fitting import FlowFitter
from mute.flow.flow import Flow
from mute.flow.marginals import Histogram, Quantile
from mute.flow.rotations import make_rotation
from mute.rows.threads import resolve_threads

NEW_ROWS, COLUMNS, LAYERS, FAR = 5_000, 32, 50, 10.0
LIMIT = {np.float32: 1e-3, np.float64: 1e-9}
MARGINALS: dict[str, Quantile | Histogram] = {
    "quantile (default)": Quantile(),
    "histogram (default)": Histogram(),
    **{f"merge below {alpha}": Histogram(alpha=alpha) for alpha in (0.001, 0.002, 0.004, 0.01)},
    **{f"add {alpha}": Histogram(alpha=alpha, floor="add") for alpha in (1e-4, 1e-6)},
    "add 1e-10 (the paper)": Histogram(alpha=1e-10, floor="add"),
}


def draw(n: int, rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Independent columns of variance 1 and mean 0 or 1, then turned, each class its own way."""
    z = np.arange(n) % 2
    clusters = 0.8 * rng.choice([-1.0, 1.0], (n, COLUMNS)) + 0.6 * rng.standard_normal((n, COLUMNS))
    skewed = rng.gamma(4.0, 0.5, (n, COLUMNS)) - 1.0
    fixed = np.random.default_rng(0)
    turns = [np.linalg.qr(fixed.standard_normal((COLUMNS, COLUMNS)))[0] for _ in range(2)]
    return np.where(z[:, None] == 0, clusters @ turns[0], skewed @ turns[1]), z


def fit(x: NDArray, z: NDArray, marginal: Quantile | Histogram) -> Flow:
    fitter = FlowFitter.of(
        x, z, max_layers=LAYERS, rotation=make_rotation("alternate"), marginal=marginal,
        rng=np.random.default_rng(0), n_threads=resolve_threads(None),
    )  # fmt: skip
    for _ in range(LAYERS):
        fitter.add_layer()
    return fitter.flow()


def errors(flow: Flow, x: NDArray, z: NDArray) -> NDArray[np.floating]:
    """Largest difference of each row to what comes back; infinite where it is no number any more."""
    return np.nan_to_num(np.abs(flow.pull(flow.push(x, z), z) - x).max(axis=1), nan=np.inf)


def distances(flow: Flow, x: NDArray, z: NDArray) -> NDArray[np.float64]:
    """Kolmogorov-Smirnov distance of every class and column to N(0, 1), times the root of the rows."""
    found = []
    for k in range(2):
        p = ndtr(np.sort(flow.push(x[z == k], k).astype(np.float64), axis=0))
        n = len(p)
        steps = np.arange(n)[:, None] / n
        found.append(np.maximum(p - steps, steps + 1 / n - p).max(axis=0) * np.sqrt(n))
    return np.stack(found)


def main() -> None:
    parser = argparse.ArgumentParser(description="Round trip of held-out rows, and what it costs in fit.")
    parser.add_argument("--rows", type=int, default=20_000)
    rows, rng = parser.parse_args().rows, np.random.default_rng(1)
    (x, z), (new, z_new) = draw(rows, rng), draw(NEW_ROWS, rng)

    table = Table(title=f"round trip, {rows:,} x {COLUMNS}, {LAYERS} layers, {NEW_ROWS:,} held-out rows")
    for name in ("marginal", "dtype"):
        table.add_column(name)
    for name in ("max error", f"{FAR:.0f} sd out", "off > 0.1", "target", "", "KS mean", "KS worst"):
        table.add_column(name, justify="right")
    for name, marginal in MARGINALS.items():
        for dtype, limit in LIMIT.items():
            flow = fit(x.astype(dtype), z, marginal)
            near, far = (errors(flow, (new * out).astype(dtype), z_new) for out in (1.0, FAR))
            both, ks = np.concatenate([near, far]), distances(flow, x.astype(dtype), z)
            table.add_row(
                name, dtype.__name__, f"{near.max():.1e}", f"{far.max():.1e}", f"{(both > 0.1).mean():.1%}",
                f"<= {limit:.0e}", "[green]met[/]" if both.max() <= limit else "[red]missed[/]",
                f"{ks.mean():.2f}", f"{ks.max():.2f}",
            )  # fmt: skip
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
