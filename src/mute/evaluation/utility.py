"""What erasure costs: how much of the rows can still be read from their erased versions, and who stays near whom."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.evaluation.estimates import Estimate, bootstrap
from mute.rows.interrupts import interruptible

__all__ = [
    "Overlap",
    "Reconstruction",
    "Utility",
    "erasure_floor",
    "neighbourhood_overlap",
    "paper_mse",
    "reconstruction",
    "round_trip",
    "similarity_correlation",
]

Reader = Callable[[NDArray], NDArray]

# Rows that the readers learn from and are tested on: beyond these, R² of 300 columns moves in the third digit.
_LEARN_ROWS, _TEST_ROWS = 8000, 4000
_FEWEST_TO_LEARN = 20
_HIDDEN = 512
# Rows that pass through the network in training, in all (few rows, more epochs; 2,000 steps of scikit-learn's), and
# rows x columns: at D = 300 both are reached together, after 15 s of one core; with more columns the second.
_PASSES, _WORK = 400_000, 120_000_000
# The paper's network: rows, epochs, and rows x columns x epochs, at most; 8 s of one core at D = 300.
_PAPER_ROWS, _PAPER_EPOCHS, _PAPER_WORK = 5000, 500, 200_000_000
# The floor maps its rows back once for each class; its standard error at 2,000 rows is about a hundredth of it.
_FLOOR_ROWS = 2000
_ROUND_TRIP_ROWS = 5000
# The standard error of an overlap at 2,000 rows is below 0.005; all distances of 2,000 rows take 32 MB.
_NEIGHBOUR_ROWS, _BLOCK = 2000, 500
_FEWEST_PAIRS = 3


@dataclass(frozen=True)
class Reconstruction:
    """How well the rows can be read back from their erased versions, on rows the reader has not learned from.

    Attributes
    ----------
    reader : {"ridge", "network"}
    r2 : Estimate
        1 − SSE / SST over all entries: 1 is everything, 0 no more than the mean row.
    r2_within : Estimate
        The same for what is left of a row after removing the mean of its class, so that reading the class earns
        nothing and losing it costs nothing.
    mse : Estimate
        Mean squared error over all entries.
    """

    reader: str
    r2: Estimate
    r2_within: Estimate
    mse: Estimate


@dataclass(frozen=True)
class Overlap:
    """Which part of a row's nearest neighbours erasure keeps.

    Attributes
    ----------
    share : float
        The neighbourhood's size, as a share of the other rows.
    raw : Estimate
        Mean share of the neighbours that are neighbours before and after.
    corrected : Estimate
        (raw − chance) / (1 − chance): 0 for a random shuffle, 1 for the same neighbours.
    """

    share: float
    raw: Estimate
    corrected: Estimate


@dataclass(frozen=True)
class Utility:
    """What is left after erasure.

    Attributes
    ----------
    reconstruction : tuple of Reconstruction
        One for each reader.
    paper_mse : float or None
        The paper's figure, in-sample; None where it was not asked for.
    floor : Estimate or None
        The mean squared error that no reader can beat after perfect erasure; None without an inverse.
    round_trip : float or None
        Largest error of the way there and back with the class known; None without an inverse.
    neighbours : tuple of Overlap
    similarity : tuple of two Estimates or None
        Spearman correlation with human judgements before and after; None without judgements.
    """

    reconstruction: tuple[Reconstruction, ...]
    paper_mse: float | None
    floor: Estimate | None
    round_trip: float | None
    neighbours: tuple[Overlap, ...]
    similarity: tuple[Estimate, Estimate] | None


def reconstruction(
    Q_learn: NDArray,
    X_learn: NDArray,
    z_learn: NDArray,
    Q_test: NDArray,
    X_test: NDArray,
    z_test: NDArray,
    rng: np.random.Generator,
) -> tuple[Reconstruction, ...]:
    """Read the rows back from their erased versions, with a linear reader and a wide network.

    The network learns what the linear reader leaves: a network alone would be judged by how well it imitates the
    identity, which says nothing about the eraser.

    Parameters
    ----------
    Q_learn, Q_test : arrays of shape (n, E)
        Erased rows to learn from and to be tested on.
    X_learn, X_test : arrays of shape (n, D)
        The same rows before erasure.
    z_learn, z_test : integer arrays of shape (n,)
        Their classes.
    rng : numpy Generator

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, z = rng.normal(size=(400, 3)), np.repeat([0, 1], 200)
    >>> ridge, network = reconstruction(X[::2], X[::2], z[::2], X[1::2], X[1::2], z[1::2], rng)
    >>> round(ridge.r2.value, 6)
    1.0
    """
    _check_same_rows("Q_learn", Q_learn, "X_learn", X_learn)
    _check_same_rows("Q_test", Q_test, "X_test", X_test)
    _check_same_rows("z_learn", z_learn, "X_learn", X_learn)
    _check_same_rows("z_test", z_test, "X_test", X_test)
    if len(X_learn) < _FEWEST_TO_LEARN or len(X_test) < 2:
        raise MuteError(
            f"reconstruction has {len(X_learn)} rows to learn from and {len(X_test)} to test on; "
            f"give at least {_FEWEST_TO_LEARN} and 2"
        )
    learn, test = _sample(len(X_learn), _LEARN_ROWS, rng), _sample(len(X_test), _TEST_ROWS, rng)
    seen, unseen = _standardised(Q_learn[learn], Q_test[test])
    goal = _whole_and_within(X_learn[learn], z_learn[learn])
    truth = _whole_and_within(X_test[test], z_test[test])
    ridge = _ridge(seen, goal)
    readers = {"ridge": ridge, "network": _network(seen, goal, ridge, rng)}
    return tuple(_score(name, reader(unseen), truth, rng) for name, reader in readers.items())


def _whole_and_within(X: NDArray, z: NDArray) -> NDArray[np.float64]:
    """The rows, and beside them the rows less the mean of their class: shape (n, 2D)."""
    X = X.astype(np.float64)
    within = X.copy()
    for k in np.unique(z):
        within[z == k] -= X[z == k].mean(axis=0)
    return np.hstack([X, within])


def _ridge(Q: NDArray, goal: NDArray) -> Reader:
    from sklearn.linear_model import RidgeCV

    # From no penalty at all to one that leaves a thousandth; each is judged on rows left out one by one.
    return RidgeCV(alphas=len(Q) * np.logspace(-9, 3, 13)).fit(Q, goal).predict


def _network(Q: NDArray, goal: NDArray, ridge: Reader, rng: np.random.Generator) -> Reader:
    """The linear reader and a network on top of it, as far as the network helps on rows it has not seen."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPRegressor

    left = goal - ridge(Q)
    scale = left.std() or 1.0
    watch = np.zeros(len(Q), bool)
    watch[rng.permutation(len(Q))[: len(Q) // 10]] = True
    network = MLPRegressor(
        hidden_layer_sizes=(_HIDDEN,),
        early_stopping=True,
        max_iter=-(-min(_PASSES, _WORK // Q.shape[1]) // len(Q)),
        random_state=int(rng.integers(2**31 - 1)),
    )
    with warnings.catch_warnings(), interruptible():
        # What counts is how well it reads, and that is measured on rows it has not seen.
        warnings.simplefilter("ignore", ConvergenceWarning)
        network.fit(Q[~watch].astype(np.float32), (left[~watch] / scale).astype(np.float32))

    def correction(rows: NDArray) -> NDArray:
        return scale * network.predict(rows.astype(np.float32)).astype(np.float64)

    guess = correction(Q[watch])
    trust = np.clip((guess * left[watch]).sum() / max((guess**2).sum(), np.finfo(float).tiny), 0, 1)
    return lambda rows: ridge(rows) + trust * correction(rows)


def _score(name: str, found: NDArray, truth: NDArray, rng: np.random.Generator) -> Reconstruction:
    width = truth.shape[1] // 2
    wrong, spread = (found - truth) ** 2, (truth - truth.mean(axis=0)) ** 2
    halves = slice(0, width), slice(width, None)
    (sse, sst), (sse_within, sst_within) = ((wrong[:, h].sum(axis=1), spread[:, h].sum(axis=1)) for h in halves)

    def share_read(sse: NDArray, sst: NDArray, rows: NDArray) -> float:
        total = sst[rows].sum()
        return float(1 - sse[rows].sum() / total) if total > 0 else float("nan")

    n = len(truth)
    return Reconstruction(
        reader=name,
        r2=bootstrap(lambda rows: share_read(sse, sst, rows), n, rng),
        r2_within=bootstrap(lambda rows: share_read(sse_within, sst_within, rows), n, rng),
        mse=bootstrap(lambda rows: float(sse[rows].mean() / width), n, rng),
    )


def paper_mse(Q: NDArray, X: NDArray, seed: int = 0) -> float:
    """The paper's utility: mean squared error of a network from erased rows to rows, on the rows it was trained on.

    Only for comparison with published figures. In-sample it flatters, and a hidden layer of 100 units cannot
    reproduce more than 100 directions: the identity does not reach 0. The paper trains on all rows for up to 500
    epochs; here on 5,000 rows drawn at random and, with many columns, fewer epochs (133 at D = 300).
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPRegressor

    _check_same_rows("Q", Q, "X", X)
    rows = _sample(len(X), _PAPER_ROWS, np.random.default_rng(seed))
    known, goal = Q[rows], X[rows]
    epochs = min(_PAPER_EPOCHS, max(1, _PAPER_WORK // goal.size))
    network = MLPRegressor(max_iter=epochs, random_state=seed)
    with warnings.catch_warnings(), interruptible():
        # The paper stops after a fixed number of epochs, converged or not.
        warnings.simplefilter("ignore", ConvergenceWarning)
        # scikit-learn wants a single column flat.
        network.fit(known, goal if goal.shape[1] > 1 else goal[:, 0])
    return float(np.mean((network.predict(known).reshape(goal.shape) - goal) ** 2, dtype=np.float64))


def erasure_floor(eraser: Any, Q: NDArray, X: NDArray, z: NDArray) -> Estimate | None:
    r"""The mean squared error that no reader of the erased rows can beat, if erasure is perfect.

    An erased row q comes from one of K rows, :math:`x_k = f_k^{-1}(q)`. If q says nothing about the class, it comes
    from :math:`x_k` with the prior probability :math:`\pi_k`; the best guess is the mean of the :math:`x_k`, and
    what is left is their variance,

    .. math:: \sum_k \pi_k \|x_k - \bar x\|^2 = \sum_{i<j} \pi_i \pi_j \|x_i - x_j\|^2,

    here divided by D and averaged over the erased rows.

    Parameters
    ----------
    eraser : object
        With `classes_` and ``inverse_transform(Q, concept=labels)``.
    Q : array of shape (n, D)
        Erased rows.
    X : array of shape (n, D)
        The same rows before erasure.
    z : integer array of shape (n,)
        The classes they were erased as: the router's where it chose, else their own.

    Returns
    -------
    Estimate or None
        None where the eraser has no inverse that takes a concept.

    Notes
    -----
    *Limits.* A reader below the floor is not a contradiction but a sign that the erased rows still tell the class.
    """
    _check_same_rows("Q", Q, "X", X)
    _check_same_rows("z", z, "X", X)
    inverse = _inverse(eraser)
    if inverse is None:
        return None
    rng = np.random.default_rng(0)
    rows = _sample(len(Q), _FLOOR_ROWS, rng)
    priors = np.bincount(z) / len(z)
    # West's running mean and variance: one class at a time, and no difference of large squares.
    weight, mean, variance = 0.0, np.zeros((len(rows), X.shape[1])), np.zeros(len(rows))
    for k in np.flatnonzero(priors):
        step = inverse(Q[rows], [eraser.classes_[k]] * len(rows)) - mean
        weight += priors[k]
        mean += priors[k] / weight * step
        variance += priors[k] * (1 - priors[k] / weight) * (step**2).mean(axis=1)
    return bootstrap(lambda drawn: float(variance[drawn].mean()), len(rows), rng)


def round_trip(eraser: Any, Q: NDArray, X: NDArray, z_as_erased: NDArray) -> float | None:
    """Largest error of the way there and back, in units of the rows' spread (root mean variance of the columns).

    Parameters
    ----------
    eraser : object
        With `classes_` and ``inverse_transform(Q, concept=labels)``; without, the answer is None.
    Q, X : arrays of shape (n, D)
        Rows after and before erasure.
    z_as_erased : integer array of shape (n,)
        The class each row was erased as: the router's where it chose.
    """
    _check_same_rows("Q", Q, "X", X)
    _check_same_rows("z_as_erased", z_as_erased, "X", X)
    inverse = _inverse(eraser)
    if inverse is None:
        return None
    rows = _sample(len(X), _ROUND_TRIP_ROWS, np.random.default_rng(0))
    back = inverse(Q[rows], [eraser.classes_[k] for k in z_as_erased[rows]])
    spread = np.sqrt(X.var(axis=0, dtype=np.float64).mean())
    return float(np.abs(back - X[rows]).max() / spread) if spread > 0 else float("nan")


def _inverse(eraser: Any) -> Callable[[NDArray, list], NDArray] | None:
    """The eraser's way back for a given class, where it has one."""
    undo = getattr(eraser, "inverse_transform", None)
    if undo is None or "concept" not in inspect.signature(undo).parameters:
        return None
    return lambda Q, labels: np.asarray(undo(Q, concept=labels))


def neighbourhood_overlap(
    X: NDArray, Q: NDArray, rng: np.random.Generator, shares: Sequence[float] = (0.5, 0.1, 0.01)
) -> tuple[Overlap, ...]:
    """Which part of their nearest neighbours the rows keep, by Euclidean distance among at most 2,000 of them.

    Parameters
    ----------
    X, Q : arrays of n rows
        Before and after erasure.
    rng : numpy Generator
    shares : sequence of float
        Sizes of the neighbourhood, as shares of the other rows; a row is not its own neighbour.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> for overlap in neighbourhood_overlap(X, 2 * X, np.random.default_rng(0), shares=(0.1,)):
    ...     print(overlap.share, overlap.raw)
    0.1 1.000 (1.000 to 1.000)
    """
    _check_same_rows("Q", Q, "X", X)
    if len(X) < 3:
        raise MuteError(f"neighbours need at least 3 rows, not {len(X)}")
    wrong = [share for share in shares if not 0 < share < 1]
    if wrong:
        raise MuteError(f"a neighbourhood's share must lie between 0 and 1, not {wrong[0]!r}")
    rows = _sample(len(X), _NEIGHBOUR_ROWS, rng)
    others = len(rows) - 1
    sizes = [max(1, int(share * others)) for share in shares]
    kept = np.empty((len(sizes), len(rows)))
    before, after = (_centred(values[rows]) for values in (X, Q))
    for start in range(0, len(rows), _BLOCK):
        part = np.arange(start, min(start + _BLOCK, len(rows)))
        ranks, ranks_after = _neighbour_ranks(before, part), _neighbour_ranks(after, part)
        for i, k in enumerate(sizes):
            kept[i, part] = ((ranks < k) & (ranks_after < k)).sum(axis=1) / k
    return tuple(_overlap(share, found, k / others, rng) for share, found, k in zip(shares, kept, sizes, strict=True))


def _centred(values: NDArray) -> NDArray[np.float64]:
    return values - values.mean(axis=0, dtype=np.float64)


def _neighbour_ranks(values: NDArray, part: NDArray) -> NDArray[np.intp]:
    """Rank of every row among the neighbours of each row of `part`, 0 the nearest; a row is its own last."""
    distances = (values**2).sum(axis=1) - 2 * values[part] @ values.T
    distances[np.arange(len(part)), part] = np.inf
    return np.argsort(np.argsort(distances, axis=1, kind="stable"), axis=1)


def _overlap(share: float, kept: NDArray, chance: float, rng: np.random.Generator) -> Overlap:
    raw = bootstrap(lambda rows: float(kept[rows].mean()), len(kept), rng)
    low, value, high = ((figure - chance) / (1 - chance) for figure in (raw.low, raw.value, raw.high))
    return Overlap(share, raw, Estimate(value, low, high))


def similarity_correlation(
    X: NDArray, Q: NDArray, words: Sequence[str], pairs: Sequence[tuple[str, str, float]]
) -> tuple[Estimate, Estimate]:
    """Spearman correlation of the cosine of two words with how alike people find them, before and after erasure.

    Parameters
    ----------
    X, Q : arrays of n rows
        Before and after erasure.
    words : sequence of n str
        Their names.
    pairs : sequence of (word, word, score)
        Human judgements; pairs with a word that has no row are left out.
    """
    _check_same_rows("Q", Q, "X", X)
    if len(words) != len(X):
        raise MuteError(f"there are {len(words)} words for {len(X)} rows; give one word for each row")
    row_of = {word: row for row, word in enumerate(words)}
    known = [(row_of[a], row_of[b], float(score)) for a, b, score in pairs if a in row_of and b in row_of]
    if len(known) < _FEWEST_PAIRS:
        raise MuteError(
            f"{len(known)} of {len(pairs)} pairs have both their words among the {len(words)} given; "
            f"a correlation needs at least {_FEWEST_PAIRS}: check spelling and upper case"
        )
    first, second, scores = (np.array(column) for column in zip(*known, strict=True))

    def agreement(values: NDArray) -> Estimate:
        alike = _cosine(values[first].astype(np.float64), values[second].astype(np.float64))
        # The same draws of pairs before and after, so that the two intervals can be compared.
        return bootstrap(lambda rows: _spearman(alike[rows], scores[rows]), len(scores), np.random.default_rng(0))

    return agreement(X), agreement(Q)


def _cosine(a: NDArray, b: NDArray) -> NDArray[np.float64]:
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return (a * b).sum(axis=1) / np.maximum(norms, np.finfo(float).tiny)


def _spearman(a: NDArray, b: NDArray) -> float:
    """Correlation of ranks; NaN where either side is constant."""
    from scipy.stats import rankdata

    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(np.corrcoef(rankdata(a), rankdata(b))[0, 1])


def _standardised(learn: NDArray, test: NDArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Both with the mean and spread of the former; constant columns stay as they are."""
    mean, std = learn.mean(axis=0, dtype=np.float64), learn.std(axis=0, dtype=np.float64)
    std[std <= 1e-12 * np.abs(mean)] = 1.0
    return (learn - mean) / std, (test - mean) / std


def _sample(n: int, most: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """At most so many rows, drawn at random, in ascending order."""
    return np.arange(n) if n <= most else np.sort(rng.choice(n, most, replace=False))


def _check_same_rows(name: str, rows: Any, other_name: str, others: Any) -> None:
    if len(rows) != len(others):
        raise MuteError(
            f"{name} has {len(rows)} rows and {other_name} {len(others)}; give the same rows, in the same order"
        )
