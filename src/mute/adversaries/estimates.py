"""A figure with its confidence interval."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Estimate", "bootstrap", "bootstrap_mean", "cosines"]


@dataclass(frozen=True)
class Estimate:
    """A figure and its 95 % interval (NaN where there is none)."""

    value: float
    low: float = float("nan")
    high: float = float("nan")

    def __str__(self) -> str:
        return f"{self.value:.3f}" if np.isnan(self.low) else f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"


def bootstrap(
    statistic: Callable[[NDArray[np.intp]], float],
    n: int,
    rng: np.random.Generator,
    *,
    draws: int = 200,
    groups: NDArray | None = None,
    units: NDArray | None = None,
) -> Estimate:
    """The statistic of all `n` rows, and the middle 95 % of its values on rows drawn with replacement.

    `statistic` takes the numbers of the rows to use, and may be NaN. Each group of `groups` keeps its size in a draw.
    Rows that share a value of `units`, such as a document, depend on each other: whole units are drawn in their place.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(100.0)
    >>> mean = bootstrap(lambda rows: x[rows].mean(), 100, np.random.default_rng(0))
    >>> mean.value, mean.low < 49.5 < mean.high
    (49.5, True)
    """
    members = [np.arange(n)] if groups is None else [np.flatnonzero(groups == g) for g in np.unique(groups)]
    if units is None:
        drawn = (np.concatenate([rng.choice(rows, len(rows)) for rows in members]) for _ in range(draws))
    else:
        order = np.argsort(units, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(units[order])) + 1)
        drawn = (
            np.concatenate([parts[unit] for unit in rng.integers(len(parts), size=len(parts))]) for _ in range(draws)
        )
    found = np.array([statistic(rows) for rows in drawn], float)
    found = found[~np.isnan(found)]
    value = float(statistic(np.arange(n)))
    if not len(found):
        return Estimate(value)
    low, high = np.quantile(found, [0.025, 0.975])
    return Estimate(value, float(low), float(high))


def bootstrap_mean(values: NDArray, rng: np.random.Generator, groups: NDArray | None = None) -> Estimate:
    """The mean of values, one for each row."""
    return bootstrap(lambda rows: float(values[rows].mean()), len(values), rng, groups=groups)


def cosines(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cosine of each row of `a` and the same row of `b`; 0 where either is zero."""
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return (a * b).sum(axis=1) / np.maximum(norms, np.finfo(float).tiny)
