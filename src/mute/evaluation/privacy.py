"""Privacy: how much of the concept can still be read, by whom, and from how many rows.

Everything is measured on rows that neither the eraser nor the adversary has learned from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mute.estimators.moments import Moments
from mute.evaluation.adversaries import CODER, PANEL, Adversary, Features, attack
from mute.evaluation.blocks import blocks_of
from mute.evaluation.estimates import Estimate, bootstrap

if TYPE_CHECKING:
    from mute.evaluation.rows import Rows, SeenRows

__all__ = [
    "Attack",
    "OnlineCode",
    "TwoSample",
    "information_bound",
    "leak_by_rows",
    "mmd",
    "noise_floor",
    "null_of_the_worst",
    "online_code",
    "read_on_fit_rows",
    "score",
]

# No probability is smaller: one row that an adversary is wrongly sure of must not decide a mean of logarithms.
_LEAST_CHANCE = 1e-12
_NULL_DRAWS = 2000
_MMD_ROWS, _MMD_DRAWS = 1000, 200
# Bytes for the covariances of classes that are gathered together.
_ROOM = 1 << 28
# Shares of the rows after which the online code learns anew.
_PREFIXES = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.125, 0.25, 0.5, 1.0)


@dataclass(frozen=True)
class Attack:
    """What one adversary reads under one protocol.

    Attributes
    ----------
    adversary : str
    protocol : {"before", "paper", "fresh"}
        Learned on rows as they were; on erased rows of the eraser's fit; on erased rows that it never saw.
    accuracy, balanced_accuracy, auc : Estimate
        The balanced accuracy takes the class whose probability exceeds its prior most. The area under the curve is the
        mean over classes against the rest.
    information : Estimate
        H(Z) less the held-out cross-entropy, in bits: a lower bound of the mutual information, negative for an
        adversary that is wrong and sure of it.
    recall : tuple of float
        Of each class, under the rule of the balanced accuracy.
    guesses : array of shape (n,)
        That rule's answers on the test rows.
    """

    adversary: str
    protocol: str
    accuracy: Estimate
    balanced_accuracy: Estimate
    auc: Estimate
    information: Estimate
    recall: tuple[float, ...]
    guesses: NDArray[np.int64]


def score(
    adversary: str, protocol: str, chances: NDArray, z: NDArray, prior: NDArray, rng: np.random.Generator
) -> Attack:
    """Judge the probabilities `chances` (n, K) of an adversary that learned with the class shares `prior`."""
    n_classes = chances.shape[1]
    first = chances.argmax(axis=1)
    guesses = (chances / np.maximum(prior, 1e-12)).argmax(axis=1)
    right = guesses == z
    loss = -np.log2(np.maximum(chances[np.arange(len(z)), z], _LEAST_CHANCE))
    entropy = entropy_bits(np.bincount(z, minlength=n_classes) / len(z))

    def balanced(rows: NDArray) -> float:
        counts = np.bincount(z[rows], minlength=n_classes)
        hits = np.bincount(z[rows], weights=right[rows], minlength=n_classes)
        return float(np.mean(hits[counts > 0] / counts[counts > 0]))

    def area(rows: NDArray) -> float:
        return float(np.mean([_area_under_curve(z[rows] == k, chances[rows, k]) for k in np.unique(z)]))

    return Attack(
        adversary,
        protocol,
        bootstrap(lambda rows: float((first == z)[rows].mean()), len(z), rng),
        bootstrap(balanced, len(z), rng, groups=z),
        bootstrap(area, len(z), rng, draws=40, groups=z),
        bootstrap(lambda rows: entropy - float(loss[rows].mean()), len(z), rng),
        tuple(float(right[z == k].mean()) if (z == k).any() else float("nan") for k in range(n_classes)),
        guesses,
    )


def _area_under_curve(mine: NDArray[np.bool_], values: NDArray) -> float:
    """Chance that a row of the class has a larger value than one of the rest (scikit-learn's is too slow to draw)."""
    from scipy.stats import rankdata

    n = int(mine.sum())
    return float((rankdata(values)[mine].sum() - n * (n + 1) / 2) / (n * (len(mine) - n)))


def null_of_the_worst(
    attacks: list[Attack], z: NDArray[np.int64], rng: np.random.Generator, draws: int = _NULL_DRAWS
) -> tuple[NDArray[np.float64], float]:
    """What the strongest of these adversaries would score if the erased rows told nothing.

    The labels of the test rows are shuffled under the answers given. The strongest of many looks good by luck alone;
    its own distribution takes account of that, whatever the adversaries have in common.

    Returns
    -------
    null : array of shape (draws,)
        Balanced accuracy of the strongest.
    p_value : float
        Share of draws at least as good as what was found, counting the finding itself.
    """
    guesses = np.stack([a.guesses for a in attacks], axis=1).astype(np.int16)
    counts = np.bincount(z)
    classes = np.flatnonzero(counts)
    weights = 1.0 / (counts[z] * len(classes))
    null = np.empty(draws)
    for i in range(draws):
        order = rng.permutation(len(z))
        null[i] = (weights[order] @ (guesses == z[order, None])).max()
    found = max(float(weights @ (column == z)) for column in guesses.T)
    return null, float((1 + (null >= found - 1e-12).sum()) / (1 + draws))


def entropy_bits(shares: NDArray) -> float:
    """Entropy of a distribution."""
    shares = shares[shares > 0]
    return float(-(shares * np.log2(shares)).sum())


def information_bound(attacks: list[Attack]) -> Estimate:
    """The best lower bound of I(Z; f(X)) that any of the adversaries gives, in bits; information is never negative."""
    best = max((a.information for a in attacks), key=lambda e: e.value)
    return Estimate(*(max(0.0, v) for v in (best.value, best.low, best.high)))


@dataclass(frozen=True)
class OnlineCode:
    """Length of the labels' online code.

    Attributes
    ----------
    bits : float
    uniform_bits : float
        n log2 K: what the labels cost without any help.
    """

    bits: float
    uniform_bits: float


def online_code(
    X: NDArray, z: NDArray[np.int64], n_classes: int, rng: np.random.Generator, adversary: Adversary = CODER
) -> OnlineCode:
    """Minimum description length: send the labels block by block, each with a model of those before it.

    The first block costs log2 K bits a label; every later label costs the negative logarithm of the probability that a
    model of the earlier ones gave it. No row is counted twice.
    """
    order = rng.permutation(len(X))
    X, z = Features(X, scale_features=True)(X)[order], z[order]
    ends = sorted({max(n_classes, int(share * len(z))) for share in _PREFIXES})
    bits = ends[0] * np.log2(n_classes)
    for end, following in pairwise(ends):
        block = slice(end, following)
        chances = attack(adversary, X[:end], z[:end], X[block], n_classes, int(rng.integers(2**31 - 1)))
        bits -= float(np.log2(np.maximum(chances[np.arange(following - end), z[block]], _LEAST_CHANCE)).sum())
    return OnlineCode(float(bits), float(len(z) * np.log2(n_classes)))


@dataclass(frozen=True)
class TwoSample:
    """A test of whether the classes follow one law: the statistic, and the chance of one as large if they do."""

    statistic: float
    p_value: float


def mmd(X: NDArray, z: NDArray[np.int64], rng: np.random.Generator) -> TwoSample:
    """Maximum mean discrepancy between each class and the rest, unbiased; the largest over classes, by permutation.

    A Gaussian kernel with the median distance as its width, on at most 1,000 rows.
    """
    from scipy.spatial.distance import pdist, squareform

    if len(X) > _MMD_ROWS:
        rows = rng.permutation(len(X))[:_MMD_ROWS]
        X, z = X[rows], z[rows]
    squares = pdist(Features(X, scale_features=False)(X).astype(np.float64), "sqeuclidean")
    kernel = squareform(np.exp(-squares / max(float(np.median(squares)), 1e-12)))
    classes = [k for k in np.unique(z) if 2 <= (z == k).sum() <= len(z) - 2]
    if not classes:
        return TwoSample(float("nan"), float("nan"))

    def largest(labels: NDArray) -> float:
        found = []
        for k in classes:
            mine = (labels == k).astype(float)
            rest = 1 - mine
            m, n = mine.sum(), rest.sum()
            within, across = kernel @ mine, kernel @ rest
            found.append(mine @ within / (m * (m - 1)) + rest @ across / (n * (n - 1)) - 2 * (mine @ across) / (m * n))
        return float(max(found))

    value = largest(z)
    null = np.array([largest(rng.permutation(z)) for _ in range(_MMD_DRAWS)])
    return TwoSample(value, float((1 + (null >= value).sum()) / (1 + _MMD_DRAWS)))


def leak_by_rows(
    adversary: Adversary,
    learn: NDArray,
    z_learn: NDArray[np.int64],
    test: NDArray,
    z_test: NDArray[np.int64],
    n_classes: int,
    rng: np.random.Generator,
    steps: int = 6,
) -> list[tuple[int, Estimate]]:
    """Balanced accuracy of an adversary that has 2, 4, 8 ... times fewer rows to learn from, fewest first."""
    order = rng.permutation(len(learn))
    sizes = sorted({len(learn) >> i for i in range(steps) if len(learn) >> i >= 20 * n_classes} or {len(learn)})
    found = []
    for size in sizes:
        rows = order[:size]
        features = Features(learn[rows], scale_features=True)
        seed = int(rng.integers(2**31 - 1))
        chances = attack(adversary, features(learn[rows]), z_learn[rows], features(test), n_classes, seed)
        prior = np.bincount(z_learn[rows], minlength=n_classes) / size
        found.append((size, score(adversary.name, "fresh", chances, z_test, prior, rng).balanced_accuracy))
    return found


def read_on_fit_rows(seen: SeenRows, n_classes: int, rng: np.random.Generator) -> Estimate:
    """Balanced accuracy of an adversary that learns on half of the erased rows of the fit and reads the other half.

    It tells a map that does not erase from one that does so on its own rows only. The strongest of three adversaries.
    """
    order = rng.permutation(len(seen.z))
    half = np.zeros(len(order), bool)
    for k in range(n_classes):
        half[order[seen.z[order] == k][::2]] = True
    features = Features(seen.Q[half], scale_features=True)
    prior = np.bincount(seen.z[half], minlength=n_classes) / half.sum()
    found = []
    for name in ("logistic", "quadratic", "boosting"):
        seed = int(rng.integers(2**31 - 1))
        chances = attack(PANEL[name], features(seen.Q[half]), seen.z[half], features(seen.Q[~half]), n_classes, seed)
        found.append(score(name, "rows of the fit", chances, seen.z[~half], prior, rng).balanced_accuracy)
    return max(found, key=lambda e: e.value)


def noise_floor(rows: Rows, seen: SeenRows, rng: np.random.Generator) -> Estimate | None:
    """Balanced accuracy after an exact map of class means and covariances: what estimating them on these rows leaks.

    None where a class has too few rows for its covariance.
    """
    whiten = _whitening(seen.X_all, seen.z_all, rows.n_classes)
    if whiten is None:
        return None
    learn, test = whiten(rows.X_learn, rows.z_learn), whiten(rows.X_test, rows.z_test)
    features = Features(learn, scale_features=True)
    prior = np.bincount(rows.z_learn, minlength=rows.n_classes) / len(rows.z_learn)
    found = []
    for name in ("logistic", "quadratic"):
        seed = int(rng.integers(2**31 - 1))
        chances = attack(PANEL[name], features(learn), rows.z_learn, features(test), rows.n_classes, seed)
        found.append(score(name, "fresh", chances, rows.z_test, prior, rng).balanced_accuracy)
    return max(found, key=lambda e: e.value)


def _whitening(X: Any, z: NDArray, n_classes: int) -> Callable[[NDArray, NDArray], NDArray] | None:
    """Whitening by class; None where a class has too few rows for its covariance."""
    d = X.shape[1]
    if np.bincount(z, minlength=n_classes).min() < 2 * d:
        return None
    maps = []
    # One pass for as many classes as there is room for.
    together = max(1, _ROOM // (8 * d * d))
    for first in range(0, n_classes, together):
        moments = Moments(min(together, n_classes - first), d, "class")
        for start, block in blocks_of(X, 8192):
            codes = z[start : start + len(block)] - first
            mine = (codes >= 0) & (codes < len(moments.counts))
            moments.add(block[mine].astype(np.float64), codes[mine])
        for mean, covariance in zip(moments.means, moments.class_covariances, strict=True):
            values, axes = np.linalg.eigh(covariance)
            # Directions without spread (rows on a sphere, constant columns) are only shifted.
            inside = values > 1e-9 * values.max()
            scale = np.where(inside, 1 / np.sqrt(np.where(inside, values, 1.0)), 0.0)
            maps.append((mean, (axes * scale) @ axes.T))

    def whiten(rows: NDArray, labels: NDArray) -> NDArray:
        out = np.empty(rows.shape)
        for k, (mean, matrix) in enumerate(maps):
            out[labels == k] = (rows[labels == k] - mean) @ matrix
        return out

    return whiten
