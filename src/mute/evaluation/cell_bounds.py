r"""Upper confidence bounds on what any adversary reads from cells, for any numbers of rows.

Classes k = 1 ... K have the laws :math:`p_k` over m cells. An adversary that sees the cell of a row has at most the
balanced accuracy

.. math:: V(p) = \frac1K \sum_c \max_k p_k(c),

which the rule "the class whose law gives the cell most" reaches. The rows of class k are :math:`n_k` independent draws,
:math:`\hat p_k` are their shares in the cells. Every function here gives a bound U of the counts with
:math:`P(V \le U) \ge 1 - \delta`, whatever the laws are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

__all__ = ["Bound", "best_bound", "by_differences", "by_frequencies", "by_l1", "plug_in"]

# The part of the error that the bound by frequencies may use. It wins only where few cells have nearly all rows.
_SHARE_OF_FREQUENCIES = 0.1
_WEIGHTS = np.linspace(0.0, 1.0, 21)


@dataclass(frozen=True)
class Bound:
    """An upper bound of V, the `method` that gave it, and the `estimate` V(p̂), which is too high on average."""

    value: float
    method: str
    estimate: float


def plug_in(counts: NDArray) -> float:
    """V of the observed shares; `counts` has shape (K, m)."""
    return float((counts / _sizes(counts)[:, None]).max(axis=0).sum() / len(counts))


def by_frequencies(counts: NDArray, delta: float) -> float:
    """The bound from Clopper–Pearson intervals of all shares at once.

    Each of the K m shares has a lower limit l and an upper limit u, each of which fails with probability
    delta / (2 K m); so all hold with probability 1 - delta. The adversary's best rule gives each cell c to one class.
    The cells of class k then have at most the share min(sum of u over them, 1 - sum of l over the others), because
    shares add up to 1. The minimum is at most the mean of the two with any weights w and 1 - w, and under this mean the
    best rule is found cell by cell:

        K V <= (1 - w) sum_k (1 - sum_c l_k(c)) + sum_c max_k (w u_k(c) + (1 - w) l_k(c))

    This holds for all w together wherever the intervals hold, so that the least over w may be taken.
    """
    n_classes, n_cells = counts.shape
    level, sizes = delta / (2 * n_classes * n_cells), _sizes(counts)[:, None]
    low, high = np.zeros(counts.shape), np.ones(counts.shape)
    some, room = counts > 0, counts < sizes
    n = np.broadcast_to(sizes, counts.shape)
    low[some] = betaincinv(counts[some], n[some] - counts[some] + 1, level)
    high[room] = betaincinv(counts[room] + 1, n[room] - counts[room], 1 - level)
    rest = n_classes - low.sum()
    found = [(1 - w) * rest + (w * high + (1 - w) * low).max(axis=0).sum() for w in _WEIGHTS]
    return min(1.0, float(min(found)) / n_classes)


def by_l1(counts: NDArray, delta: float) -> float:
    """The bound from the distance of each class's shares to its law (Weissman et al. 2003).

    By Hoeffding's inequality for each of the 2^m - 2 sets of cells that are neither empty nor all, no set of cells has
    a share in the law of class k that is more than t = sqrt(ln((2^m - 2) K / delta) / (2 n_k)) above the observed one,
    with probability 1 - delta / K. The adversary's best rule gives each class one set of cells.
    """
    return _capped(plug_in(counts) + _l1_width(counts, delta))


def by_differences(counts: NDArray, delta: float) -> float:
    """The bound from bounded differences (McDiarmid 1989).

    V is convex in p, so the mean of V(p̂) is at least V(p) (Jensen). Another cell for one row of class k changes V(p̂)
    by at most 1 / (K n_k). So V(p) <= V(p̂) + sqrt(ln(1 / delta) / 2 · sum_k 1 / (K² n_k)) with probability 1 - delta.
    """
    return _capped(plug_in(counts) + _difference_width(counts, delta))


def best_bound(counts: NDArray, delta: float) -> Bound:
    """The least of the three bounds, for counts of shape (K, m); all together fail with probability `delta` at most.

    The widths of `by_l1` and `by_differences` follow from the numbers of rows and cells alone. The narrower one is
    therefore chosen before the cells of the rows are looked at, and only its error counts. `by_frequencies` has an
    error of its own, and the two errors add up to `delta`.
    """
    share = _SHARE_OF_FREQUENCIES * delta
    widths = {"L1": _l1_width(counts, delta - share), "bounded differences": _difference_width(counts, delta - share)}
    method = min(widths, key=widths.__getitem__)
    estimate = plug_in(counts)
    value, frequencies = _capped(estimate + widths[method]), by_frequencies(counts, share)
    if frequencies < value:
        value, method = frequencies, "Clopper-Pearson"
    return Bound(value, method, min(estimate, value))


def _sizes(counts: NDArray) -> NDArray[np.float64]:
    return counts.sum(axis=1).astype(np.float64)


def _l1_width(counts: NDArray, delta: float) -> float:
    n_classes, n_cells = counts.shape
    if n_cells == 1:  # every row is in the only cell: its share is known
        return 0.0
    # ln(2^m - 2) without the overflow of 2^m.
    sets = n_cells * np.log(2) + np.log1p(-(2.0 ** (1 - n_cells)))
    return float(np.sqrt((sets + np.log(n_classes / delta)) / (2 * _sizes(counts))).sum() / n_classes)


def _difference_width(counts: NDArray, delta: float) -> float:
    return float(np.sqrt(np.log(1 / delta) / 2 * (1 / _sizes(counts)).sum()) / len(counts))


def _capped(value: float) -> float:
    return min(1.0, value)
