r"""Fitting the marginals: strictly increasing maps of one coordinate to N(0, 1).

Both kinds give a table of values in probit space on a uniform grid, with straight tails. Such a table is a bijection of
the whole real line; a CDF that is clipped near 0 and 1 is not, as it maps all far values to one point. Everything is
computed in float64 from counts on a fine grid, which are sums over blocks of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.rows.reductions import Histograms, Spread
from mute.rows.stores import ChunkStore
from mute.rows.threads import for_each
from mute.rows.validation import check_whole_number

__all__ = [
    "TAIL_EXCESS",
    "THIN",
    "Histogram",
    "Quantile",
    "Summary",
    "borrowed_spreads",
    "fit_marginals",
    "gaussian_of",
    "make_marginal",
    "over_columns",
    "probit",
]

_Floats = NDArray[np.float64]

# Below this share of the typical spread, a coordinate's spread is rounding noise and must not be scaled up to one.
_DEGENERATE = {4: 1e-5, 8: 1e-9}

# The slope of the tails is the inverse of the standard deviation, so that the image has unit variance. But a few far
# rows must not flatten the tails in layer after layer, until the inverse loses all precision. So the standard deviation
# counts only up to this multiple of the spread of the middle.
TAIL_EXCESS = 1.2
# Outermost quantiles closer than this share of the standard deviation count as one value.
THIN = 1e-6

# Least number of rows in a merged bin; the error of its slope is then about one seventh.
_FEWEST_IN_BIN = 50

# The counting grid is narrowed until the middle of the data covers this share of it. Otherwise one outlier could put
# all other rows into one bin.
_MIDDLE_SHARE = 1 / 16
_NARROWINGS = 8

# Bytes for the counts of the columns that are processed together.
_COUNT_BYTES = 1 << 26


@dataclass(frozen=True)
class Summary:
    """Range and moments of each class and coordinate, of shape (K, D); `n` has shape (K, 1)."""

    n: NDArray[np.int64]
    low: _Floats
    high: _Floats
    mean: _Floats
    std: _Floats
    flat: NDArray[np.bool_]

    def part(self, columns: slice) -> Summary:
        tables = {name: table[:, columns] for name, table in vars(self).items() if name != "n"}
        return Summary(self.n, **tables)


@dataclass(frozen=True)
class Histogram:
    r"""The paper's marginal: a histogram of equal bins between the least and the largest value.

    Parameters
    ----------
    bins : int, default=1000
    alpha : float, default=0.004
        The least mass of a bin. It keeps the map invertible where there are few rows.
    floor : {"merge", "add"}, default="merge"
        "merge" joins bins until each has at least 50 rows and a share `alpha` of all rows; the map is straight outside
        the last bins. "add" adds `alpha` to the share of every bin, and the bins reach a tenth of the range past either
        end. ``Histogram(alpha=1e-10, floor="add")`` is the paper's.

    See Also
    --------
    Quantile : The default marginal, which is smooth and robust to outliers.
    MUtE, RBIG : Take either as `marginal`.

    Notes
    -----
    *Limits.* The paper's floor leaves empty bins almost flat, with slopes down to 1e-8. The inverse multiplies rounding
    errors by the inverse of these slopes. After fifty layers nothing is left of the row, in float32 and in float64
    (``benchmarks/round_trip.py`` prints the figures). Merged bins keep all slopes near one.

    The bins are equal between the extremes. One row that is a thousand standard deviations away puts all other rows
    into one bin of its coordinate; use `Quantile` for such rows.

    Examples
    --------
    >>> import numpy as np
    >>> from mute import RBIG, Histogram
    >>> X = np.random.default_rng(0).exponential(size=(5000, 1))
    >>> RBIG(1, marginal=Histogram(bins=200)).fit_transform(X).std().round(1)
    np.float64(1.0)
    """

    bins: int = 1000
    alpha: float = 0.004
    floor: str = "merge"

    def __post_init__(self) -> None:
        check_whole_number("bins", self.bins, 2)
        if self.floor not in ("merge", "add"):
            raise MuteError(f'floor must be "merge" or "add", not {self.floor!r}')
        limit = 0.5 if self.floor == "merge" else 1.0 / self.bins
        if not isinstance(self.alpha, float | int) or not 0 < self.alpha < limit:
            raise MuteError(
                f'alpha must lie between 0 and {limit:g} for floor="{self.floor}" and {self.bins} bins, '
                f"not {self.alpha!r}"
            )

    def grid(self, summary: Summary) -> tuple[_Floats, _Floats, int]:
        reach = 0.1 * (summary.high - summary.low) if self.floor == "add" else 0.0
        low = summary.low - reach
        return low, (summary.high + reach - low) / self.bins, self.bins

    @property
    def n_values(self) -> int:
        """Entries of a table."""
        return self.bins + 1

    def table(self, counts: NDArray[np.int64], low: _Floats, width: _Floats, summary: Summary) -> tuple:
        """Origin (K, D), step (K, D) and values (K, D, n_values)."""
        from mute.rows import kernels

        # The grid ends at the extremes, so rounding may put them just outside.
        first, last, counts = counts[..., 0], counts[..., -1], counts[..., 1:-1].copy()
        counts[..., 0] += first
        counts[..., -1] += last
        mass = counts / summary.n[..., None]
        if self.floor == "add":
            mass = mass * (1 - self.bins * self.alpha) + self.alpha
        below, above = np.cumsum(mass, axis=-1), np.cumsum(mass[..., ::-1], axis=-1)[..., ::-1]
        values = np.empty((*mass.shape[:-1], self.n_values))
        values[..., 1:-1] = probit(below[..., :-1], above[..., 1:])
        # The spread of the middle, from -1.5 to 1.5 standard deviations of a Gaussian.
        middle = ((below < 0.9332).sum(axis=-1) - (below < 0.0668).sum(axis=-1) + 1) * width / 3
        tail = width / np.where(summary.flat, summary.std, np.minimum(summary.std, TAIL_EXCESS * middle))
        if self.floor == "add":
            values[..., 0] = values[..., 1] - tail
            values[..., -1] = values[..., -2] + tail
        else:
            least = np.maximum(self.alpha * summary.n[:, 0], _FEWEST_IN_BIN)
            kernels.merge_bins(values, counts, least, tail, (summary.mean - low) / width)
        flat = summary.flat
        knots = low[flat, None] + width[flat, None] * np.arange(self.bins + 1)
        values[flat] = (knots - summary.mean[flat, None]) / summary.std[flat, None]
        return low, width, values


@dataclass(frozen=True)
class Quantile:
    r"""A smoothed marginal: the quantiles of a class, blended with a Gaussian if it has few rows.

    The map interpolates `knots` quantiles :math:`q_p` at equal steps of probability,

    .. math:: x \mapsto (1 - \beta) \frac{x - \mu}{\sigma} + \beta\, \Phi^{-1}(\hat F(x)),
              \qquad \beta = \frac{n_k}{n_k + 20 \cdot knots},

    on a uniform grid of `cells` cells between the outermost quantiles. The Gaussian with :math:`\mu` and
    :math:`\sigma` is the least-squares fit to the quantiles, so a few far rows do not change it. Beyond the outermost
    quantiles the map is straight, and its slope is the inverse of the standard deviation.

    Parameters
    ----------
    knots : int or "auto", default="auto"
        "auto" takes one knot for every 50 rows of the class, between 8 and 256.
    cells : int, default=128
        Resolution of the stored map.

    See Also
    --------
    Histogram : The paper's marginal.
    MUtE, RBIG : Take either as `marginal`.

    Notes
    -----
    *Limits.* A law with details finer than a cell (very heavy tails, tight clusters far apart) needs several layers to
    become Gaussian.

    Examples
    --------
    >>> import numpy as np
    >>> from mute import RBIG, Quantile
    >>> X = np.random.default_rng(0).exponential(size=(5000, 1))
    >>> RBIG(1, marginal=Quantile(knots=64)).fit_transform(X).std().round(1)
    np.float64(1.0)
    """

    knots: int | str = "auto"
    cells: int = 128

    def __post_init__(self) -> None:
        if self.knots != "auto":
            check_whole_number("knots", self.knots, 2, also='"auto" or ')
        check_whole_number("cells", self.cells, 2)

    def grid(self, summary: Summary) -> tuple[_Floats, _Floats, int]:
        bins = 16 * self.cells
        return summary.low, (summary.high - summary.low) / bins, bins

    def n_knots(self, n: int) -> int:
        return int(np.clip(n // 50, 8, 256)) if self.knots == "auto" else int(self.knots)

    @property
    def n_values(self) -> int:
        """Entries of a table."""
        return self.cells + 3

    def table(self, counts: NDArray[np.int64], low: _Floats, width: _Floats, summary: Summary) -> tuple:
        """Origin (K, D), step (K, D) and values (K, D, n_values)."""
        from mute.rows import kernels

        k, d, _ = counts.shape
        origin, step, values = np.empty((k, d)), np.empty((k, d)), np.empty((k, d, self.n_values))
        for c, n in enumerate(summary.n[:, 0]):
            m, one = self.n_knots(int(n)), slice(c, c + 1)
            q, probits = np.empty((1, d, m)), self.probits(m)
            kernels.quantiles(counts[one], low[one], width[one], q)
            (mean, spread), std = gaussian_of(q, probits), summary.std[one]
            # If all quantiles coincide, they do not determine the spread.
            straight = summary.flat[one] | ~(q[..., -1] - q[..., 0] > THIN * std)
            mean, spread = np.where(straight, summary.mean[one], mean), np.where(straight, std, spread)
            tail = np.minimum(std, np.where(straight, 1, TAIL_EXCESS) * spread)
            kernels.quantile_tables(
                q, mean, spread, tail, straight, probits, np.array([n / (n + 20 * m)]),
                origin[one], step[one], values[one],
            )  # fmt: skip
        return origin, step, values

    @staticmethod
    def probits(knots: int) -> _Floats:
        """The normal quantiles at equal steps of probability."""
        levels = (np.arange(knots) + 0.5) / knots
        return probit(levels, 1 - levels)


def gaussian_of(q: _Floats, probits: _Floats) -> tuple[_Floats, _Floats]:
    """Centre and spread of the Gaussian that fits the quantiles (last axis) best; unlike moments, it is robust."""
    return q.mean(axis=-1), q @ (probits / (probits**2).sum())


def make_marginal(marginal: str | Histogram | Quantile) -> Histogram | Quantile:
    """Resolve the name of a marginal."""
    if isinstance(marginal, Histogram | Quantile):
        return marginal
    named = {"histogram": Histogram, "quantile": Quantile}
    if not isinstance(marginal, str) or marginal not in named:
        raise MuteError(f"marginal must be one of {[*named]}, a Histogram or a Quantile, not {marginal!r}")
    return named[marginal]()


def fit_marginals(
    rows: ChunkStore, spread: Spread, marginal: Histogram | Quantile, n_threads: int
) -> tuple[_Floats, _Floats, _Floats]:
    """Origin (K, D), step (K, D) and values (K, D, M) of the marginals of one layer, from rotated rows."""
    low, high, mean = spread.low.copy(), spread.high.copy(), spread.mean
    flat, std = borrowed_spreads(spread.std, spread.counts, spread.typical_length, rows.dtype)
    low[flat], high[flat] = (mean - std)[flat], (mean + std)[flat]
    summary = Summary(spread.counts[:, None], low, high, mean, std, flat)
    origin, step, values = np.empty(std.shape), np.empty(std.shape), np.empty((*std.shape, marginal.n_values))

    def tabulate(part: slice, low: _Floats, width: _Floats, counts: NDArray[np.int64]) -> None:
        origin[:, part], step[:, part], values[:, part] = marginal.table(counts, low, width, summary.part(part))

    knots = None if isinstance(marginal, Histogram) else [marginal.n_knots(int(n)) for n in spread.counts]
    over_columns(tabulate, rows, summary, marginal, knots, n_threads)
    return origin, step, values


def over_columns(
    work: Callable[[slice, _Floats, _Floats, NDArray[np.int64]], None],
    rows: ChunkStore,
    summary: Summary,
    marginal: Histogram | Quantile,
    knots: Sequence[int] | None,
    n_threads: int,
) -> None:
    """Count the rows of every class and coordinate, and call ``work(part, low, width, counts)``.

    With `knots`, the number of quantiles of each class, the grid is narrowed until it resolves them.
    """
    n_classes, n_columns = summary.std.shape
    group = max(_COUNT_BYTES // (8 * n_classes * (marginal.grid(summary)[2] + 2)), 1)
    for first in range(0, n_columns, group):
        chosen = np.arange(first, min(first + group, n_columns))
        low, width, bins = marginal.grid(summary.part(slice(first, first + group)))
        counts = rows.reduce(Histograms(chosen, low, width, bins, rows.n_rows)).counts.astype(np.int64)
        if knots is not None:
            low, width = _narrow(rows, chosen, low, width, counts, 0.5 / np.array(knots))

        def of_part(part: slice, start: int = first, tables: tuple[NDArray, ...] = (low, width, counts)) -> None:
            work(slice(start + part.start, start + part.stop), *(table[:, part] for table in tables))

        for_each(of_part, [slice(s, min(s + 32, len(chosen))) for s in range(0, len(chosen), 32)], n_threads)


def _narrow(
    rows: ChunkStore, columns: NDArray[np.int64], low: _Floats, width: _Floats, counts: NDArray, share: _Floats
) -> tuple[_Floats, _Floats]:
    """Recount, on a narrower grid, the columns whose middle fell into a few bins; `counts` changes in place."""
    from mute.rows import kernels

    bins = counts.shape[-1] - 2
    for _ in range(_NARROWINGS):
        first, last = (np.empty(low.shape, np.int64) for _ in range(2))
        kernels.locate(counts, share, first, last)
        first, last = np.clip(first, 1, bins), np.clip(last, 1, bins)
        # A bin that cannot be split further is an atom of the law, not the effect of an outlier.
        narrow = (last - first + 1 < bins * _MIDDLE_SHARE) & (width > 1e-12 * np.abs(low))
        if not narrow.any():
            break
        low = np.where(narrow, low + width * (first - 1), low)
        width = np.where(narrow, width * (last - first + 1) / bins, width)
        again = np.flatnonzero(narrow.any(axis=0))
        recount = Histograms(columns[again], low[:, again], width[:, again], bins, rows.n_rows)
        counts[:, again] = rows.reduce(recount).counts
    return low, width


def borrowed_spreads(
    std: _Floats, counts: NDArray[np.int64], typical_length: float, dtype: np.dtype[Any]
) -> tuple[NDArray[np.bool_], _Floats]:
    """Which coordinates (K, D) are flat, and all spreads; a flat coordinate gets the spread of the others.

    A class may not vary in a direction (a constant column, fewer rows than columns). If that direction were scaled to
    unit variance, rounding noise would dominate every unseen row. With a borrowed spread it is only shifted.
    """
    # From the length of a typical row, not from a typical coordinate, so that an outlier or a dominant direction does
    # not make all others seem flat.
    n_features = std.shape[1]
    typical = typical_length / np.sqrt(n_features) or 1.0
    flat = std < _DEGENERATE[dtype.itemsize] * typical
    borrowed = np.broadcast_to(typical if flat.all() else float(np.median(std[~flat])), std.shape)
    # With fewer than two rows a column, some directions have little spread by chance. They are not stretched beyond the
    # main directions of their class, or unseen rows would grow from layer to layer.
    crowding = np.clip(n_features / counts - 0.5, 0, 1)[:, None]
    main = np.sqrt((std**4).sum(axis=1, keepdims=True) / np.maximum((std**2).sum(axis=1, keepdims=True), 1e-300))
    crowded = std < crowding * main
    flat |= crowded
    return flat, np.where(flat, np.where(crowded, main, borrowed), std)


def probit(below: _Floats, above: _Floats) -> _Floats:
    """The normal quantile, from the smaller tail, so that both ends have the same resolution."""
    from scipy.special import ndtri

    return np.where(below < above, ndtri(below), -ndtri(above))
