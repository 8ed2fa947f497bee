"""Whether predictions treat the classes of the concept alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mute.adversaries.estimates import Estimate, bootstrap
from mute.errors import MuteError
from mute.evaluation.blocks import labels_of
from mute.rows.validation import LabelEncoder, check_whole_number, label_array
from mute.typing import Label, LabelsLike

__all__ = ["Fairness", "fairness", "paired_p_value", "trivial"]

Figure = Callable[[NDArray[np.int64]], float]
# Shares that differ by less are equal but for rounding.
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Fairness:
    r"""Fairness of predictions; each figure has a bootstrap interval over the test rows.

    With :math:`TPR_{z,y} = P(\hat Y = y | Z = z, Y = y)`, the gap of classes a < b at label y is
    :math:`TPR_{a,y} - TPR_{b,y}`. For two classes the figures are the paper's; for more classes, each figure is that of
    the pair where it is largest.

    Attributes
    ----------
    accuracy : Estimate
    tpr_rms : Estimate
        Root mean square of the gaps over labels.
    demographic_parity : Estimate
        Sum over labels of :math:`|P(\hat Y = y | Z = a) - P(\hat Y = y | Z = b)|`, between 0 and 2.
    gap_correlation : Estimate
        Pearson's correlation over labels between :math:`P(Z = a | Y = y, Z \in \{a, b\})` and the gap, for the pair
        with the largest `tpr_rms`. With two labels it can only be -1 or 1; NaN where either side does not vary.
    equalised_odds : Estimate
        The largest difference between two classes in a true or false positive rate of any label against the rest.
    worst_group : Estimate
        The lowest accuracy of a class.
    labels, classes : tuples of lengths Y and K
        All labels, true or predicted, and the classes of the concept, sorted.
    tpr, counts : arrays of shape (K, Y)
        True positive rates, NaN where a class has no row of a label, and the number of rows behind each.

    Notes
    -----
    *Limits.* A cell (class, label) without rows is left out of every figure. Cells with few rows make `tpr_rms`,
    `demographic_parity` and `equalised_odds` too large: chance alone opens gaps, and the interval, drawn from the same
    rows, shows their spread but not this excess. Look at `counts`.
    """

    accuracy: Estimate
    tpr_rms: Estimate
    demographic_parity: Estimate
    gap_correlation: Estimate
    equalised_odds: Estimate
    worst_group: Estimate
    labels: tuple[Label, ...]
    classes: tuple[Label, ...]
    tpr: NDArray[np.float64]
    counts: NDArray[np.int64]


def fairness(
    y: LabelsLike, predicted: LabelsLike, z: LabelsLike, *, rng: np.random.Generator, draws: int = 200
) -> Fairness:
    """Measure the fairness of predictions towards the classes of a concept.

    Parameters
    ----------
    y, predicted, z : array-like of shape (n,)
        True label, predicted label and class of the concept of each test row.
    rng : numpy Generator
        Draws the rows of each bootstrap.
    draws : int
        Bootstrap draws for each interval; 0 for none.

    Examples
    --------
    >>> import numpy as np
    >>> y, predicted, z = [0, 0, 1, 1, 0, 0, 1, 1], [0, 0, 1, 1, 0, 1, 1, 1], list("ffffmmmm")
    >>> found = fairness(y, predicted, z, rng=np.random.default_rng(0), draws=0)
    >>> found.tpr
    array([[1. , 1. ],
           [0.5, 1. ]])
    >>> found.demographic_parity.value, found.worst_group.value
    (0.5, 0.75)
    """
    _check_draws(rng, draws)
    labels, classes, (cells,) = _cells(y, z, predicted)
    shape = (len(classes), len(labels), len(labels))

    def estimate(figure: Figure) -> Estimate:
        return bootstrap(lambda rows: figure(_table(cells[rows], shape)), len(cells), rng, draws=draws)

    table = _table(cells, shape)
    figures = {name: estimate(figure) for name, figure in _FIGURES.items()}
    return Fairness(**figures, labels=labels, classes=classes, tpr=_tpr(table), counts=table.sum(axis=2))


def trivial(
    y_learn: LabelsLike, y: LabelsLike, z: LabelsLike, *, rng: np.random.Generator, draws: int = 200
) -> Fairness:
    """The fairness of always predicting the commonest label of `y_learn` (the first of equals).

    This predictor has no gaps at all and is useless: read any fair predictor against it.

    Examples
    --------
    >>> import numpy as np
    >>> found = trivial([0, 1, 1], [0, 1, 1, 0], list("ffmm"), rng=np.random.default_rng(0), draws=0)
    >>> found.accuracy.value, found.tpr_rms.value
    (0.5, 0.0)
    """
    encoder, codes = LabelEncoder.fit(label_array(y_learn, "y_learn"))
    if not len(codes):
        raise MuteError("y_learn has no labels; give those of the training rows")
    commonest = encoder.classes[np.bincount(codes).argmax()]
    return fairness(y, [commonest] * len(label_array(y, "y")), z, rng=rng, draws=draws)


def paired_p_value(
    y: LabelsLike,
    first: LabelsLike,
    second: LabelsLike,
    z: LabelsLike,
    *,
    rng: np.random.Generator,
    figure: str = "accuracy",
    draws: int = 1000,
) -> float:
    """Two-sided p-value of the difference of two predictors, `first` and `second`, on the same test rows.

    Test rows are drawn with replacement, the same for both. The p-value is the share of draws, the observed one
    included, in which the difference strays from its observed value by at least that value. It is NaN where the
    `figure` of `Fairness` is undefined.

    Notes
    -----
    *Limits.* It says nothing about another fit of the same models: repeat the fits for that.

    Examples
    --------
    >>> import numpy as np
    >>> y, z = np.repeat([0, 1], 50), np.tile([0, 1], 50)
    >>> paired_p_value(y, y, y, z, rng=np.random.default_rng(0))
    1.0
    >>> paired_p_value(y, y, 1 - y, z, rng=np.random.default_rng(0)) < 0.01
    True
    """
    _check_draws(rng, draws)
    if figure not in _FIGURES:
        raise MuteError(f"figure must be one of {', '.join(_FIGURES)}, not {figure!r}")
    labels, classes, cells = _cells(y, z, first, second)
    shape = (len(classes), len(labels), len(labels))

    def difference(rows: NDArray[np.intp]) -> float:
        one, other = (_FIGURES[figure](_table(c[rows], shape)) for c in cells)
        return one - other

    n = len(cells[0])
    observed = difference(np.arange(n))
    drawn = np.array([difference(rng.integers(n, size=n)) for _ in range(draws)])
    if np.isnan(observed):
        return float("nan")
    as_far = np.abs(drawn - observed) >= abs(observed) - _ROUNDING  # never true of NaN
    return float((1 + as_far.sum()) / (1 + (~np.isnan(drawn)).sum()))


def _check_draws(rng: np.random.Generator, draws: int) -> None:
    if not isinstance(rng, np.random.Generator):
        raise MuteError(f"rng must be a numpy Generator such as np.random.default_rng(0), not {rng!r}")
    check_whole_number("draws", draws, 0)


def _cells(y: LabelsLike, z: LabelsLike, *predictions: LabelsLike) -> tuple[tuple, tuple, list[NDArray[np.int64]]]:
    """Labels, classes and, for each prediction, the cell of the table (K, Y, Y) that every row falls into."""
    true = label_array(y, "y")
    n = len(true)
    if not n:
        raise MuteError("y has no labels; give at least one test row")
    groups, guesses = labels_of(z, n, "z"), [labels_of(p, n, "predicted") for p in predictions]
    classes, k = LabelEncoder.fit(groups)
    labels, codes = LabelEncoder.fit(np.concatenate([true, *guesses]))
    own, *others = codes.reshape(-1, n)
    return labels.classes, classes.classes, [(k * len(labels) + own) * len(labels) + other for other in others]


def _table(cells: NDArray[np.int64], shape: tuple[int, int, int]) -> NDArray[np.int64]:
    """Rows of each class, true label and predicted label: all that the figures need."""
    return np.bincount(cells, minlength=np.prod(shape)).reshape(shape)


def _demographic_parity(table: NDArray[np.int64]) -> float:
    chosen = table.sum(axis=1)
    shares = _share(chosen, chosen.sum(axis=1, keepdims=True))
    return _largest(np.abs(_gaps(shares)).sum(axis=1))


def _gap_correlation(table: NDArray[np.int64]) -> float:
    gaps = _gaps(_tpr(table))
    rms = _pair_rms(gaps)
    if np.isnan(rms).all():
        return float("nan")
    pair = int(np.nanargmax(rms))
    one, other = (table.sum(axis=2)[side[pair]] for side in np.triu_indices(len(table), 1))
    known = ~np.isnan(gaps[pair])
    share, gap = (one / np.maximum(one + other, 1))[known], gaps[pair][known]
    if np.ptp(share) < _ROUNDING or np.ptp(gap) < _ROUNDING:
        return float("nan")
    return float(np.corrcoef(share, gap)[0, 1])


def _equalised_odds(table: NDArray[np.int64]) -> float:
    counts = table.sum(axis=2)
    false = table.sum(axis=1) - _hits(table)
    fpr = _share(false, counts.sum(axis=1, keepdims=True) - counts)
    return _largest(np.abs(np.concatenate([_gaps(_tpr(table)), _gaps(fpr)])))


_FIGURES: dict[str, Figure] = {
    "accuracy": lambda table: float(_hits(table).sum() / table.sum()),
    "tpr_rms": lambda table: _largest(_pair_rms(_gaps(_tpr(table)))),
    "demographic_parity": _demographic_parity,
    "gap_correlation": _gap_correlation,
    "equalised_odds": _equalised_odds,
    "worst_group": lambda table: -_largest(-_share(_hits(table).sum(axis=1), table.sum(axis=(1, 2)))),
}


def _hits(table: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.diagonal(table, axis1=1, axis2=2)


def _tpr(table: NDArray[np.int64]) -> NDArray[np.float64]:
    return _share(_hits(table), table.sum(axis=2))


def _share(part: NDArray, whole: NDArray) -> NDArray[np.float64]:
    """`part` / `whole`, NaN where there is no whole."""
    whole = np.broadcast_to(whole, part.shape)
    return np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole > 0)


def _gaps(rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """Differences of the rates (K, Y) for every pair of classes, shape (pairs, Y)."""
    first, second = np.triu_indices(len(rates), 1)
    return rates[first] - rates[second]


def _pair_rms(gaps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Root mean square over the labels that both classes of a pair have; NaN where there are none."""
    known = ~np.isnan(gaps)
    return np.sqrt(_share((np.where(known, gaps, 0.0) ** 2).sum(axis=1), known.sum(axis=1)))


def _largest(values: NDArray[np.float64]) -> float:
    known = values[~np.isnan(values)]
    return float(known.max()) if known.size else float("nan")
