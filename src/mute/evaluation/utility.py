"""What erasure costs: how much of the rows can be read back from erased rows, and which neighbours stay near."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.linear_model import RidgeCV
from sklearn.neural_network import MLPRegressor

from mute.adversaries.estimates import Estimate, bootstrap, bootstrap_mean, cosines
from mute.adversaries.panel import standardiser, training
from mute.errors import MuteError
from mute.typing import Method

if TYPE_CHECKING:
    from mute.evaluation.rows import Rows

__all__ = ["Utility", "measure", "neighbourhood_overlap", "paper_mse", "similarity_correlation"]

Reader = Callable[[NDArray], NDArray]

# Rows that the readers learn from and are tested on: beyond these, R² of 300 columns moves in the third digit.
_LEARN_ROWS, _TEST_ROWS = 8000, 4000
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


@dataclass(frozen=True)
class Reconstruction:
    """How well a reader ("ridge" or "network") reads rows back from erased rows that it has not learned from.

    `r2` is 1 − SSE / SST over all entries: 1 is everything, 0 no more than the mean row. `r2_within` is the same after
    removing the mean of each class, so that reading the class earns nothing and losing it costs nothing.
    """

    reader: str
    r2: Estimate
    r2_within: Estimate
    mse: Estimate


@dataclass(frozen=True)
class Overlap:
    """Mean share of the nearest neighbours, among the nearest `share` of the other rows, that erasure keeps.

    `corrected` is (raw − chance) / (1 − chance): 0 for a random shuffle, 1 for the same neighbours.
    """

    share: float
    raw: Estimate
    corrected: Estimate


@dataclass(frozen=True)
class Utility:
    """What is left after erasure; every field is described at the function that measures it.

    `similarity` has the Spearman correlation with human judgements before and after.
    """

    reconstruction: tuple[Reconstruction, ...]
    paper_mse: float | None
    floor: Estimate | None
    round_trip: float | None
    neighbours: tuple[Overlap, ...]
    similarity: tuple[Estimate, Estimate] | None


def measure(
    rows: Rows,
    words: Sequence[str] | None,
    pairs: Sequence[tuple[str, str, float]] | None,
    rng: np.random.Generator,
    steps: Callable[[str], None],
) -> Utility:
    """All that the audit says about utility; `words` and `pairs` as in `mute.audit`."""
    steps("reconstruction")
    learn, test = (rows.Q_learn, rows.X_learn, rows.z_learn), (rows.Q_test, rows.X_test, rows.z_test)
    readers = reconstruction(learn, test, rng)
    steps("the paper's error")
    in_sample = None if rows.seen is None else paper_mse(rows.seen.Q, rows.seen.X)
    steps("neighbourhoods")
    floor = back = None
    as_erased = rows.subject.erased_as(rows.X_test, rows.z_test)
    # What is published after noise or in cells has no way back to be measured.
    whole = all(getattr(rows.subject.eraser, name, None) is None for name in ("channel_", "cells_"))
    if as_erased is not None and whole:
        given = rows.subject.eraser, rows.Q_test, rows.X_test, as_erased
        floor, back = erasure_floor(*given), round_trip(*given)
    similarity = None
    if words is not None and pairs is not None:
        named = [words[i] for i in np.concatenate([rows.learn_rows, rows.test_rows])]
        X, Q = np.concatenate([rows.X_learn, rows.X_test]), np.concatenate([rows.Q_learn, rows.Q_test])
        similarity = similarity_correlation(X, Q, named, pairs)
    neighbours = neighbourhood_overlap(rows.X_test, rows.Q_test, rng)
    return Utility(readers, in_sample, floor, back, neighbours, similarity)


def reconstruction(
    learn: tuple[NDArray, NDArray, NDArray], test: tuple[NDArray, NDArray, NDArray], rng: np.random.Generator
) -> tuple[Reconstruction, ...]:
    """Read rows X back from their erased versions Q, with a linear reader and a wide network.

    `learn` and `test` are (Q, X, z), where z has the classes of the rows. The network learns what the linear reader
    leaves: a network alone would be judged by how well it imitates the identity, which says nothing about the eraser.
    """
    seen_rows, unseen_rows = _sample(len(learn[0]), _LEARN_ROWS, rng), _sample(len(test[0]), _TEST_ROWS, rng)
    (Q, *known), (Q_test, *asked) = (part[seen_rows] for part in learn), (part[unseen_rows] for part in test)
    standardised = standardiser(Q)
    seen, unseen = standardised(Q), standardised(Q_test)
    goal, truth = _whole_and_within(*known), _whole_and_within(*asked)
    # From no penalty at all to one that leaves a thousandth; each is judged by leaving rows out one by one.
    ridge = RidgeCV(alphas=len(seen) * np.logspace(-9, 3, 13)).fit(seen, goal).predict
    readers = {"ridge": ridge, "network": _network(seen, goal, ridge, rng)}
    return tuple(_score(name, reader(unseen), truth, rng) for name, reader in readers.items())


def _whole_and_within(X: NDArray, z: NDArray) -> NDArray[np.float64]:
    """The rows, and beside them the rows minus the mean of their class: shape (n, 2D)."""
    X = X.astype(np.float64)
    within = X.copy()
    for k in np.unique(z):
        within[z == k] -= X[z == k].mean(axis=0)
    return np.hstack([X, within])


def _network(Q: NDArray, goal: NDArray, ridge: Reader, rng: np.random.Generator) -> Reader:
    """The linear reader plus a network, as far as the network helps on held-out rows."""
    left = goal - ridge(Q)
    scale = left.std() or 1.0
    watch = np.zeros(len(Q), bool)
    watch[rng.permutation(len(Q))[: len(Q) // 10]] = True
    epochs, seed = -(-min(_PASSES, _WORK // Q.shape[1]) // len(Q)), int(rng.integers(2**31 - 1))
    network = MLPRegressor(hidden_layer_sizes=(512,), early_stopping=True, max_iter=epochs, random_state=seed)
    with training():
        network.fit(Q[~watch].astype(np.float32), (left[~watch] / scale).astype(np.float32))

    def correction(rows: NDArray) -> NDArray:
        return scale * network.predict(rows.astype(np.float32)).astype(np.float64)

    guess = correction(Q[watch])
    trust = np.clip((guess * left[watch]).sum() / max((guess**2).sum(), np.finfo(float).tiny), 0, 1)
    return lambda rows: ridge(rows) + trust * correction(rows)


def _score(name: str, found: NDArray, truth: NDArray, rng: np.random.Generator) -> Reconstruction:
    width = truth.shape[1] // 2
    wrong, spread = (found - truth) ** 2, (truth - truth.mean(axis=0)) ** 2

    def share_read(part: slice) -> Estimate:
        sse, sst = wrong[:, part].sum(axis=1), spread[:, part].sum(axis=1)

        def r2(rows: NDArray) -> float:
            total = sst[rows].sum()
            return float(1 - sse[rows].sum() / total) if total > 0 else float("nan")

        return bootstrap(r2, len(truth), rng)

    r2, r2_within, sse = share_read(slice(width)), share_read(slice(width, None)), wrong[:, :width].sum(axis=1)
    mse = bootstrap(lambda rows: float(sse[rows].mean() / width), len(truth), rng)
    return Reconstruction(name, r2, r2_within, mse)


def paper_mse(Q: NDArray, X: NDArray, seed: int = 0) -> float:
    """The paper's utility: mean squared error of a network from erased rows to rows, on the rows it learned from.

    Only for comparison with published figures: in-sample it flatters, and a hidden layer of 100 units cannot reproduce
    more than 100 directions, so the identity does not reach 0. The paper trains on all rows for up to 500 epochs; here
    the network has 5,000 random rows and, with many columns, fewer epochs (133 at D = 300).
    """
    rows = _sample(len(X), _PAPER_ROWS, np.random.default_rng(seed))
    known, goal = Q[rows], X[rows]
    epochs = min(_PAPER_EPOCHS, max(1, _PAPER_WORK // goal.size))
    network = MLPRegressor(max_iter=epochs, random_state=seed)
    with training():  # the paper stops after a fixed number of epochs, converged or not
        # scikit-learn wants a single column flat.
        network.fit(known, goal if goal.shape[1] > 1 else goal[:, 0])
    return float(np.mean((network.predict(known).reshape(goal.shape) - goal) ** 2, dtype=np.float64))


def erasure_floor(eraser: Method, Q: NDArray, X: NDArray, z: NDArray) -> Estimate | None:
    r"""The mean squared error that no reader of erased rows Q can beat, if erasure is perfect.

    An erased row q comes from one of K rows, :math:`x_k = f_k^{-1}(q)`. If q says nothing about the class, it comes
    from :math:`x_k` with the prior probability :math:`\pi_k`; the best guess is the mean of the :math:`x_k`, and the
    rest is their variance,

    .. math:: \sum_k \pi_k \|x_k - \bar x\|^2 = \sum_{i<j} \pi_i \pi_j \|x_i - x_j\|^2,

    here divided by D and averaged over the erased rows. `z` has the classes that the rows were erased as. The answer is
    None where the eraser has no ``inverse_transform(Q, concept=labels)``.

    Notes
    -----
    *Limits.* A reader below the floor is no contradiction: the erased rows then still leak the class.
    """
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
    return bootstrap_mean(variance, rng)


def round_trip(eraser: Method, Q: NDArray, X: NDArray, z_as_erased: NDArray) -> float | None:
    """Largest error of the way there and back, in units of the rows' spread (root mean variance of the columns).

    None where the eraser has no ``inverse_transform(Q, concept=labels)``.
    """
    inverse = _inverse(eraser)
    if inverse is None:
        return None
    rows = _sample(len(X), _ROUND_TRIP_ROWS, np.random.default_rng(0))
    back = inverse(Q[rows], [eraser.classes_[k] for k in z_as_erased[rows]])
    spread = np.sqrt(X.var(axis=0, dtype=np.float64).mean())
    return float(np.abs(back - X[rows]).max() / spread) if spread > 0 else float("nan")


def _inverse(eraser: Method) -> Callable[[NDArray, list], NDArray] | None:
    """The eraser's way back for a given class, where it has one."""
    undo = getattr(eraser, "inverse_transform", None)
    if undo is None or "concept" not in inspect.signature(undo).parameters:
        return None
    return lambda Q, labels: np.asarray(undo(Q, concept=labels))


def neighbourhood_overlap(
    X: NDArray, Q: NDArray, rng: np.random.Generator, shares: Sequence[float] = (0.5, 0.1, 0.01)
) -> tuple[Overlap, ...]:
    """Which share of their nearest neighbours the rows keep, by Euclidean distance among at most 2,000 of them."""
    rows = _sample(len(X), _NEIGHBOUR_ROWS, rng)
    others = len(rows) - 1
    sizes = [max(1, int(share * others)) for share in shares]
    kept = np.empty((len(sizes), len(rows)))
    before, after = (values[rows] - values[rows].mean(axis=0, dtype=np.float64) for values in (X, Q))
    for start in range(0, len(rows), _BLOCK):
        part = np.arange(start, min(start + _BLOCK, len(rows)))
        ranks, ranks_after = _neighbour_ranks(before, part), _neighbour_ranks(after, part)
        for i, k in enumerate(sizes):
            kept[i, part] = ((ranks < k) & (ranks_after < k)).sum(axis=1) / k
    found = []
    for share, k, of_rows in zip(shares, sizes, kept, strict=True):
        raw, chance = bootstrap_mean(of_rows, rng), k / others
        corrected = ((figure - chance) / (1 - chance) for figure in (raw.value, raw.low, raw.high))
        found.append(Overlap(share, raw, Estimate(*corrected)))
    return tuple(found)


def _neighbour_ranks(values: NDArray, part: NDArray) -> NDArray[np.intp]:
    """Rank of every row among the neighbours of each row of `part`, 0 the nearest; a row is its own last."""
    distances = (values**2).sum(axis=1) - 2 * values[part] @ values.T
    distances[np.arange(len(part)), part] = np.inf
    return np.argsort(np.argsort(distances, axis=1, kind="stable"), axis=1)


def similarity_correlation(
    X: NDArray, Q: NDArray, words: Sequence[str], pairs: Sequence[tuple[str, str, float]]
) -> tuple[Estimate, Estimate]:
    """Spearman correlation of the cosine of two words with human judgements (word, word, score), before and after.

    `words` names the rows; pairs with a word that has no row are left out.
    """
    row_of = {word: row for row, word in enumerate(words)}
    known = [(row_of[a], row_of[b], float(score)) for a, b, score in pairs if a in row_of and b in row_of]
    if len(known) < 3:
        raise MuteError(
            f"{len(known)} of {len(pairs)} pairs have both words among the {len(words)} given, and a correlation needs "
            "at least 3; check spelling and upper case"
        )
    first, second, scores = (np.array(column) for column in zip(*known, strict=True))

    def agreement(values: NDArray) -> Estimate:
        alike = cosines(values[first].astype(np.float64), values[second].astype(np.float64))
        # The same draws of pairs before and after, so that the two intervals can be compared.
        return bootstrap(lambda rows: _spearman(alike[rows], scores[rows]), len(scores), np.random.default_rng(0))

    return agreement(X), agreement(Q)


def _spearman(a: NDArray, b: NDArray) -> float:
    """Correlation of ranks; NaN where either side is constant."""
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(np.corrcoef(rankdata(a), rankdata(b))[0, 1])


def _sample(n: int, most: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """At most so many rows, drawn at random, in ascending order."""
    return np.arange(n) if n <= most else np.sort(rng.choice(n, most, replace=False))
