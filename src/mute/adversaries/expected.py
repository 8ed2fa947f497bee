"""The leak to expect from class-wise maps that are estimated from few rows, in closed form."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import norm

__all__ = ["accuracy_at", "columns_needed", "expected_accuracy", "harmonic_mean", "rounded_up", "rows_needed"]

# No table has more rows: a search that ends here has found no answer.
_MOST_ROWS = 1e15


def expected_accuracy(n_columns: float, training: float, learning: float, n_classes: int = 2) -> float:
    r"""Balanced accuracy of a quadratic adversary after whitening each class by its estimated mean and covariance.

    With D columns, n training rows a class and m unseen rows a class that the adversary learns from, two classes are

    .. math:: d = \frac{D}{\sqrt n} \sqrt{\frac{m}{m + n}}

    standard deviations apart, and the accuracy is :math:`\Phi(d / 2)`. For K classes, all equally far apart, it is
    :math:`\int \varphi(x - d / \sqrt 2)\, \Phi(x)^{K - 1} dx`.

    Parameters
    ----------
    n_columns : float
        D.
    training, learning : float
        Rows a class; for classes of different sizes their harmonic mean (`harmonic_mean`).
    n_classes : int
        K.

    Notes
    -----
    *Limits.* D and n are large, and the estimates share nothing between classes. An eraser that shares what it can
    (``MUtE(shrinkage=True)``) leaks less where the classes are alike.

    Examples
    --------
    >>> round(expected_accuracy(100, 31_100, 1000), 3)
    0.52
    """
    distance = n_columns / math.sqrt(training) * math.sqrt(learning / (learning + training))
    return accuracy_at(distance, n_classes)


def accuracy_at(distance: float, n_classes: int = 2) -> float:
    """Best balanced accuracy for Gaussian classes, every two of which are `distance` standard deviations apart."""
    if n_classes == 2:
        return float(norm.cdf(distance / 2))
    shift = distance / math.sqrt(2)
    # Beyond nine standard deviations the integrand is zero to machine precision.
    found, _ = quad(lambda x: norm.pdf(x - shift) * norm.cdf(x) ** (n_classes - 1), shift - 9, shift + 9)
    return float(found)


def rows_needed(n_columns: float, learning: float, max_leak: float, n_classes: int = 2) -> int | None:
    """Training rows a class for a leak of `max_leak`, rounded up to three digits; None where no number is enough.

    Examples
    --------
    >>> [rows_needed(columns, 1000, 0.02) for columns in (100, 384, 768)]
    [31100, 121000, 242000]
    """

    def excess(log_rows: float) -> float:
        return expected_accuracy(n_columns, math.exp(log_rows), learning, n_classes) - 1 / n_classes - max_leak

    most = math.log(_MOST_ROWS)
    if excess(most) > 0:
        return None
    if excess(0.0) <= 0:
        return 1
    return rounded_up(math.exp(brentq(excess, 0.0, most)))


def rounded_up(rows: float) -> int:
    """A number of rows, rounded up to three digits."""
    whole = math.ceil(rows)
    unit = 10 ** max(len(str(whole)) - 3, 0)
    return math.ceil(whole / unit) * unit


def columns_needed(training: float, learning: float, max_leak: float, n_classes: int = 2) -> int:
    """The largest number of columns whose expected leak is `max_leak` with these rows; 0 where there is none."""

    def excess(columns: float) -> float:
        return expected_accuracy(columns, training, learning, n_classes) - 1 / n_classes - max_leak

    high = 1.0
    while excess(high) <= 0 and high < _MOST_ROWS:
        high *= 2
    return int(brentq(excess, 0.0, high)) if excess(high) > 0 > excess(0.0) else 0


def harmonic_mean(counts: Sequence[float]) -> float:
    """The size of equal classes whose estimates are as noisy as those of classes of these sizes."""
    return float(1 / np.mean(1 / np.maximum(np.asarray(counts, float), 1e-9)))
