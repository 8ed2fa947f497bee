r"""Marginals that shrink towards a common shape and spread.

Every class-conditional map has its own estimation error. On unseen rows, an adversary reads the class from the
difference between these errors. Common parameters are estimated from all rows. So each class keeps its own mean, but
its spread and shape differ from the common ones only by what exceeds the estimation noise (positive-part James-Stein).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mute.flow.marginals import TAIL_EXCESS, THIN, Quantile, Summary, borrowed_spreads, gaussian_of, over_columns
from mute.rows.reductions import Spread
from mute.rows.stores import ChunkStore
from mute.rows.threads import for_each

__all__ = ["Shrunk", "fit_shrunk_marginals", "flat_coordinates"]

_Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Shrunk:
    """The marginals of one layer, origin (K, d), step (K, d) and values (K, d, M), and how much the classes differ.

    `nats` is the mean difference of a class from the common law, summed over the coordinates, without its noise.
    `score` is the same in standard errors of a difference by chance.
    """

    origin: _Floats
    step: _Floats
    values: _Floats
    nats: float
    score: float


class Noise:
    r"""Estimation noise of `knots` quantiles.

    The quantile process of n rows has the covariance :math:`g_i g_j (\min(p_i, p_j) - p_i p_j) / n`, where g is the
    derivative of the quantile function. The errors of the fitted spread and of the shape (the quantiles without their
    centre and spread) are linear in this process.
    """

    def __init__(self, knots: int) -> None:
        self.knots, self.probits = knots, Quantile.probits(knots)
        levels = (np.arange(knots) + 0.5) / knots
        self._process = np.minimum.outer(levels, levels) - np.outer(levels, levels)

    @cached_property
    def _residual(self) -> _Floats:
        """The projection that removes centre and spread from quantiles."""
        line = np.stack([np.full(self.knots, self.knots**-0.5), self.probits / np.linalg.norm(self.probits)])
        return np.eye(self.knots) - line.T @ line

    def slopes(self, quantiles: _Floats) -> _Floats:
        """Derivatives of quantile functions with respect to the probability (last axis); exact for a Gaussian."""
        return np.gradient(quantiles, self.probits, axis=-1) * np.sqrt(2 * np.pi) * np.exp(0.5 * self.probits**2)

    def of_spread(self, slopes: _Floats) -> _Floats:
        """n times the variance of the fitted spread, for slopes (..., knots)."""
        weights = slopes * (self.probits / (self.probits**2).sum())
        return ((weights @ self._process) * weights).sum(axis=-1)

    def of_shape(self, slopes: _Floats) -> _Floats:
        """n times the mean square of a shape that is pure noise."""
        return ((slopes @ (self._process * self._residual)) * slopes).sum(axis=-1) / self.knots

    @cached_property
    def shape_variance(self) -> float:
        """Variance of this mean square divided by its squared mean, for a Gaussian."""
        slopes = self.slopes(self.probits)
        form = self._residual @ (self._process * np.outer(slopes, slopes)) @ self._residual
        return float(2 * (form**2).sum() / np.trace(form) ** 2)


def flat_coordinates(spread: Spread, dtype: np.dtype) -> tuple[NDArray[np.bool_], _Floats]:
    """Which coordinates (D,) are flat within the classes, and all pooled spreads (see `borrowed_spreads`)."""
    n = spread.counts.sum()
    pooled = np.sqrt((spread.counts[:, None] * spread.std**2).sum(axis=0) / n)
    flat, std = borrowed_spreads(pooled[None], np.array([n]), spread.typical_length, dtype)
    return flat[0], std[0]


def fit_shrunk_marginals(
    rows: ChunkStore, spread: Spread, marginal: Quantile, d: int, *, share_spreads: bool, n_threads: int
) -> Shrunk:
    """Fit the marginals of the first `d` coordinates of rotated rows; `share_spreads` gives all classes one spread."""
    from mute.rows import kernels

    weights = spread.counts / spread.counts.sum()
    flat, pooled = flat_coordinates(spread, rows.dtype)
    mean, std, pooled = spread.mean[:, :d], spread.std[:, :d], pooled[:d]
    # A coordinate in which a class does not vary has no shape.
    straight = flat[:d] | (std <= THIN * pooled)
    low, high = (np.where(straight, mean + side * pooled, a[:, :d]) for side, a in ((-1, spread.low), (1, spread.high)))
    summary = Summary(spread.counts[:, None], low, high, mean, std, straight)
    noise = Noise(marginal.n_knots(int(spread.counts.min())))
    q = np.empty((*std.shape, noise.knots))

    def read(part: slice, low: _Floats, width: _Floats, counts: NDArray[np.int64]) -> None:
        kernels.quantiles(counts, low, width, q[:, part])

    over_columns(read, rows, summary, marginal, [noise.knots] * len(weights), n_threads)
    straight |= ~(q[..., -1] - q[..., 0] > THIN * pooled)
    laws, nats, score = _shrink(q, straight, mean, pooled, spread.counts, noise, share_spreads)
    beta = np.full(len(weights), spread.counts.sum() / (spread.counts.sum() + 20 * noise.knots))
    origin, step, values = np.empty(std.shape), np.empty(std.shape), np.empty((*std.shape, marginal.n_values))

    def tabulate(part: slice) -> None:
        arrays = (a[:, part] for a in (*laws, straight))
        tables = (a[:, part] for a in (origin, step, values))
        kernels.quantile_tables(*arrays, noise.probits, beta, *tables)

    for_each(tabulate, [slice(s, min(s + 32, d)) for s in range(0, d, 32)], n_threads)
    return Shrunk(origin, step, values, nats, score)


def _shrink(
    q: _Floats,
    straight: NDArray[np.bool_],
    mean: _Floats,
    pooled: _Floats,
    counts: NDArray[np.int64],
    noise: Noise,
    share_spreads: bool,
) -> tuple[tuple[_Floats, _Floats, _Floats, _Floats], float, float]:
    """Shrink the classes' quantiles `q`; `straight` coordinates have their mean and the pooled spread only.

    Returns the quantiles (K, d, knots), centre, spread and tail (K, d) of every law, and `nats` and `score`.
    """
    own, share = ~straight, (counts / counts.sum())[:, None]
    weights = share * own / np.maximum((share * own).sum(axis=0), 1e-300)
    known = np.asarray(own.any(axis=0))
    centre, size = gaussian_of(q, noise.probits)
    centre, size = np.where(own, centre, mean), np.where(own, size, pooled)
    shape = (q - centre[..., None]) / size[..., None]
    common = np.where(known[:, None], np.einsum("kd,kdm->dm", weights, shape), noise.probits)
    slopes = noise.slopes(common)
    # A class is a part of the rows it is compared with.
    few = 1 / counts[:, None] - 1 / counts.sum()

    shape -= common
    energy, chance = (shape**2).mean(axis=-1), few * noise.of_shape(slopes)
    shape *= np.where(own, np.maximum(1 - chance / np.maximum(energy, 1e-300), 0), 0)[..., None]

    base = np.where(known, (weights * np.log(size)).sum(axis=0), np.log(pooled))
    off = np.where(own, np.log(size) - base, 0)
    # The mean excess over all coordinates of a class is known much better than that of a single coordinate.
    alike = off.sum(axis=1, keepdims=True) / np.maximum(own.sum(axis=1, keepdims=True), 1)
    off = np.where(own, off - alike, 0)
    off_by_chance = few * noise.of_spread(slopes)
    kept = np.maximum(1 - (off_by_chance * own).sum(axis=1) / np.maximum((off**2).sum(axis=1), 1e-300), 0)
    spread = np.exp(base + (0 if share_spreads else alike + kept[:, None] * off))
    spread = np.where(own, spread, pooled)

    # K classes have K - 1 differences in each coordinate.
    parts = (1 - share) * own
    freedom = max((len(counts) - 1) * int(known.sum()), 1)
    by_shape = (parts * (energy / chance - 1)).sum() / np.sqrt(noise.shape_variance * freedom)
    by_spread = (parts * (off**2 / off_by_chance - 1)).sum() / np.sqrt(2 * freedom)
    # Earlier layers shrank the covariances, so the spreads may differ by less than chance; shapes count separately.
    in_shape = float((share * own * (energy - chance)).sum() / 2)
    in_spread = float((share * own * (off**2 - off_by_chance + alike**2)).sum())
    quantiles = centre[..., None] + spread[..., None] * (common + shape)
    tail = np.where(own, spread * np.minimum(pooled / np.exp(base), TAIL_EXCESS), spread)
    nats, score = max(in_shape, 0.0) + max(in_spread, 0.0), float(max(by_shape, by_spread))
    return (quantiles, centre, spread, tail), nats, score
