"""Cells: a fixed partition of rows by their nearest centre."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.rows.threads import for_each, resolve_threads, single_threaded_blas

__all__ = ["Cells", "learn_cells", "rows_for_cells"]

# Every product has this many rows, the last one too, so that BLAS takes the same path for one row as for a million.
_BLOCK = 256
# k-means learns from so many rows: more of them hardly move a centre.
_ROWS_A_CELL, _FEWEST_ROWS = 64, 10_000
_MOST_ROUNDS = 50


@dataclass(frozen=True, eq=False)
class Cells:
    """A partition of all rows of width D: the cell of a row is its nearest centre.

    Attributes
    ----------
    centres : array of shape (k, D), float32 or float64

    Examples
    --------
    >>> import numpy as np
    >>> cells = Cells(np.array([[0.0, 0.0], [4.0, 4.0]]))
    >>> cells.of(np.array([[1.0, 0.5], [3.0, 9.0], [0.0, 1.0]]))
    array([0, 1, 0])
    """

    centres: NDArray[np.floating]

    def __len__(self) -> int:
        return len(self.centres)

    def of(self, Q: NDArray, n_threads: int | None = None) -> NDArray[np.int64]:
        """The cell of each row of `Q` (n, D); of equally near centres the first counts.

        The answer for a row does not depend on the rows beside it, on the number of threads, or on whether its numbers
        come in float32 or float64.
        """
        if Q.ndim != 2 or Q.shape[1] != self.centres.shape[1]:
            raise MuteError(f"the cells are of rows of {self.centres.shape[1]} columns, not of shape {Q.shape}")
        # Distances are taken near the middle of the centres: far from zero their difference would drown in rounding.
        middle = self.centres.mean(axis=0, dtype=np.float64)
        centres = self.centres - middle
        sizes = np.einsum("kd,kd->k", centres, centres)
        codes = np.empty(len(Q), np.int64)

        def run(start: int) -> None:
            block = Q[start : start + _BLOCK]
            rows = np.zeros((_BLOCK, Q.shape[1]))
            rows[: len(block)] = block - middle
            # |q - c|² without |q|², which all centres share.
            codes[start : start + _BLOCK] = (sizes - 2 * (rows @ centres.T)).argmin(axis=1)[: len(block)]

        with single_threaded_blas():
            for_each(run, range(0, len(Q), _BLOCK), resolve_threads(n_threads))
        return codes


def rows_for_cells(n_cells: int) -> int:
    """The number of rows that `learn_cells` learns from at most."""
    return max(_FEWEST_ROWS, _ROWS_A_CELL * n_cells)


def learn_cells(Q: NDArray[np.floating], n_cells: int, random_state: int = 0) -> Cells:
    """Cells of rows (n, D) by k-means on a random sample; the same seed gives the same cells.

    Rows of fewer than `n_cells` different values have as many cells as values. The centres have the precision of `Q`.

    Examples
    --------
    >>> import numpy as np
    >>> Q = np.random.default_rng(0).normal(size=(200, 3))
    >>> len(learn_cells(Q, 8))
    8
    """
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    from mute.adversaries.panel import training

    if len(Q) < n_cells:
        raise MuteError(f"{len(Q)} row(s) cannot make {n_cells} cells; give more rows or ask for fewer cells")
    rng = np.random.default_rng(random_state)
    if len(Q) > rows_for_cells(n_cells):
        Q = Q[np.sort(rng.choice(len(Q), rows_for_cells(n_cells), replace=False))]
    means = KMeans(n_cells, n_init=1, max_iter=_MOST_ROUNDS, random_state=int(rng.integers(2**31 - 1)))
    # Threads would add rows up in an order of their own, and the centres would differ in their last bits.
    with threadpool_limits(1), training():
        means.fit(Q)
    return Cells(np.unique(means.cluster_centers_, axis=0))
