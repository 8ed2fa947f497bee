"""How an adversary is scored: what it reads from erased rows, with intervals, and how much of that luck explains."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, rankdata

from mute.adversaries.estimates import Estimate, bootstrap, bootstrap_mean
from mute.adversaries.panel import Adversary, Features, attack
from mute.errors import MuteError

__all__ = [
    "LEAST_CHANCE", "SIGNIFICANCE", "Attack", "Pair", "Parts", "cross_chances", "cross_read", "deal_groups",
    "entropy_bits", "folds_of", "guesses_of", "null_of_the_strongest", "read", "score",
]  # fmt: skip

# Rows to learn from with their classes, and rows to test on with theirs.
Parts: TypeAlias = tuple[NDArray, NDArray, NDArray, NDArray]

# The least probability: one row that an adversary is wrongly sure of must not decide a mean of logarithms.
LEAST_CHANCE = 1e-12
_NULL_DRAWS = 2000
# A leak counts when luck makes the strongest adversary this good less often than once in a thousand times.
SIGNIFICANCE = 1e-3


@dataclass(frozen=True)
class Pair:
    """Two classes, by their codes, and how well an adversary tells the rows of the two apart.

    The accuracy is balanced over the two; chance is 0.5. Its interval holds with 95 % for all pairs of classes at once.
    """

    first: int
    second: int
    accuracy: Estimate


@dataclass(frozen=True)
class Attack:
    """What one adversary reads under one protocol.

    The `protocol` says what taught it: original rows ("before"), erased training rows ("paper") or erased unseen rows
    ("fresh"). The balanced accuracy gives a row to the class whose probability exceeds its prior most; `recall` of each
    class and `guesses`, the answers on the test rows, follow the same rule. Under "fresh" every unseen row is a test
    row (`cross_read`). `auc` is the mean over classes against the rest. `information` is H(Z) less the cross-entropy on
    test rows, in bits: a lower bound of the mutual information, negative for an adversary that is wrong and sure.
    `worst_pair` is the pair of classes whose interval begins highest, of three classes or more.
    """

    adversary: str
    protocol: str
    accuracy: Estimate
    balanced_accuracy: Estimate
    auc: Estimate
    information: Estimate
    recall: tuple[float, ...]
    guesses: NDArray[np.int64]
    worst_pair: Pair | None = None


def score(
    adversary: str,
    protocol: str,
    chances: NDArray,
    z: NDArray,
    prior: NDArray,
    rng: np.random.Generator,
    folds: NDArray[np.int64] | None = None,
    groups: NDArray | None = None,
) -> Attack:
    """Judge the probabilities `chances` (n, K) of an adversary that was taught with the class shares `prior`.

    `prior` has shape (K,), or (n, K) where `folds` says which of several fits gave the answer of each row. Answers of
    two fits are not ranked against each other: the area under the curve is the mean over folds. Rows of one of
    `groups` depend on each other, which widens the interval of the balanced accuracy.
    """
    n_classes = chances.shape[1]
    fitted = np.zeros(len(z), np.int64) if folds is None else folds
    odds = chances / np.maximum(prior, 1e-12)
    guesses = odds.argmax(axis=1)
    right = guesses == z
    loss = -np.log2(np.maximum(chances[np.arange(len(z)), z], LEAST_CHANCE))
    entropy = entropy_bits(np.bincount(z) / len(z))

    def balanced(rows: NDArray) -> float:
        counts = np.bincount(z[rows], minlength=n_classes)
        hits = np.bincount(z[rows], weights=right[rows], minlength=n_classes)
        return float(np.mean(hits[counts > 0] / counts[counts > 0]))

    def area(rows: NDArray) -> float:
        parts = [rows[fitted[rows] == fold] for fold in range(fitted.max() + 1)]
        found = [
            _area_under_curve(z[part] == k, chances[part, k])
            for part in parts
            if len(present := np.unique(z[part])) > 1
            for k in present
        ]
        return float(np.mean(found)) if found else float("nan")

    return Attack(
        adversary,
        protocol,
        bootstrap_mean(chances.argmax(axis=1) == z, rng),
        bootstrap(balanced, len(z), rng, groups=z, units=groups),
        bootstrap(area, len(z), rng, draws=40, groups=z),
        bootstrap(lambda rows: entropy - float(loss[rows].mean()), len(z), rng),
        tuple(float(right[z == k].mean()) if (z == k).any() else float("nan") for k in range(n_classes)),
        guesses,
        _worst_pair(odds, z),
    )


def guesses_of(chances: NDArray, prior: NDArray) -> NDArray[np.int64]:
    """The class of each row whose probability exceeds its prior most."""
    return (chances / np.maximum(prior, 1e-12)).argmax(axis=1)


def _worst_pair(odds: NDArray, z: NDArray[np.int64]) -> Pair | None:
    """The pair of classes that these probabilities, divided by their priors, tell apart best.

    Of many pairs the best looks good by luck alone, most of all one of few rows: the beginning of an interval that
    holds for all pairs decides.
    """
    counts = np.bincount(z, minlength=odds.shape[1])
    present = np.flatnonzero(counts)
    n_pairs = len(present) * (len(present) - 1) // 2
    if n_pairs < 2:
        return None
    right: dict[int, NDArray] = {}  # for each class, how often its rows prefer it to each of the others
    for k in present.tolist():
        mine = odds[z == k]
        ahead = mine[:, [k]] - mine
        right[k] = ((ahead > 0) + 0.5 * (ahead == 0)).mean(axis=0)
    spread = float(norm.isf(0.025 / n_pairs))
    found = []
    for first, second in combinations(present.tolist(), 2):
        shares, sizes = np.array([right[first][second], right[second][first]]), counts[[first, second]]
        # Two rows more, one right and one wrong: a class of few rows that are all right is not certain.
        safe = (shares * sizes + 1) / (sizes + 2)
        half = spread * float(np.sqrt((safe * (1 - safe) / sizes).sum())) / 2
        value = float(shares.mean())
        found.append(Pair(first, second, Estimate(value, max(value - half, 0.0), min(value + half, 1.0))))
    return max(found, key=lambda pair: pair.accuracy.low)


def read(
    adversary: Adversary,
    protocol: str,
    rows: Parts,
    n_classes: int,
    rng: np.random.Generator,
    scale_features: bool = True,
) -> Attack:
    """Teach an adversary on some rows and score it on others."""
    learn, z_learn, test, z_test = rows
    features = Features(learn, scale_features, adversary.leading)
    seed = int(rng.integers(2**31 - 1))
    chances = attack(adversary, features(learn), z_learn, features(test), n_classes, seed)
    return score(adversary.name, protocol, chances, z_test, _prior(z_learn, n_classes), rng)


def cross_read(
    adversary: Adversary,
    protocol: str,
    X: NDArray,
    z: NDArray[np.int64],
    n_classes: int,
    rng: np.random.Generator,
    groups: NDArray | None = None,
    folds: int | NDArray[np.int64] = 3,
    scale_features: bool = True,
) -> Attack:
    """Teach an adversary on all folds of the rows but one and test it on that one, for each fold.

    Every row is tested exactly once, by a model that has not learned from it or from a row of its group, so that the
    interval rests on all rows. The answers are in the order of the rows.

    `z` has the codes 0 .. K - 1. `groups` has the group of each row, such as a document or a person; rows of one group
    are in one fold. `folds` is the number of folds, or the fold of each row (`folds_of`), for several adversaries to
    share.
    """
    places = folds_of(z, rng, groups, folds) if isinstance(folds, int) else folds
    chances, prior = cross_chances(adversary, X, z, n_classes, rng, places, scale_features)
    return score(adversary.name, protocol, chances, z, prior, rng, places, groups)


def cross_chances(
    adversary: Adversary,
    X: NDArray,
    z: NDArray[np.int64],
    n_classes: int,
    rng: np.random.Generator,
    places: NDArray[np.int64],
    scale_features: bool = True,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Class probabilities that an adversary gives each row after learning on the other folds, and its class shares."""
    chances, prior = np.empty((2, len(z), n_classes))
    for fold in range(places.max() + 1):
        test = places == fold
        learn, z_learn = X[~test], z[~test]
        features = Features(learn, scale_features, adversary.leading)
        seed = int(rng.integers(2**31 - 1))
        chances[test] = attack(adversary, features(learn), z_learn, features(X[test]), n_classes, seed)
        prior[test] = _prior(z_learn, n_classes)
    return chances, prior


def folds_of(
    z: NDArray[np.int64], rng: np.random.Generator, groups: NDArray | None = None, folds: int = 3
) -> NDArray[np.int64]:
    """The fold of each row: each class in proportion, whole groups together."""
    if groups is None:
        # Dealt class after class, so that the folds of many small classes are of one size too.
        order = rng.permutation(len(z))
        out = np.empty(len(z), np.int64)
        out[order[np.argsort(z[order], kind="stable")]] = np.arange(len(z)) % folds
        return out
    home = deal_groups(z, groups, np.full(folds, 1 / folds), rng)
    taken = np.stack([np.bincount(z[home == fold], minlength=z.max() + 1) for fold in range(folds)])
    if (taken == 0).any():
        few = int((taken == 0).any(axis=0).argmax())
        raise MuteError(
            f"class number {few} has rows in {len(np.unique(groups[z == few]))} group(s), which do not fill {folds} "
            "folds; give rows of more groups, or smaller groups"
        )
    return home


def deal_groups(z: NDArray[np.int64], groups: NDArray, shares: NDArray, rng: np.random.Generator) -> NDArray[np.int64]:
    """A part for each row, so that the parts have about these shares of each class and no group is in two of them."""
    _, units = np.unique(groups, return_inverse=True)
    counts = np.zeros((units.max() + 1, z.max() + 1))
    np.add.at(counts, (units, z), 1)
    weights = 1 / np.maximum(counts.sum(axis=0), 1) ** 2
    taken = np.zeros((len(shares), counts.shape[1]))
    home = np.empty(len(counts), np.int64)
    sizes = counts.sum(axis=1)
    # Large groups first. Each goes where it adds least to the sum of squared shares of the classes.
    for unit in sorted(rng.permutation(len(counts)), key=lambda unit: -sizes[unit]):
        home[unit] = part = int(((2 * taken + counts[unit]) @ (counts[unit] * weights) / shares).argmin())
        taken[part] += counts[unit]
    return home[units]


def _prior(z: NDArray[np.int64], n_classes: int) -> NDArray[np.float64]:
    """Class shares; a class without rows counts as one row, as in `attack`, or it would seem likely."""
    return np.maximum(np.bincount(z, minlength=n_classes), 1) / len(z)


def _area_under_curve(mine: NDArray[np.bool_], values: NDArray) -> float:
    """Chance that a row of the class has a larger value than one of the rest (scikit-learn's is too slow to draw)."""
    n = int(mine.sum())
    return float((rankdata(values)[mine].sum() - n * (n + 1) / 2) / (n * (len(mine) - n)))


def null_of_the_strongest(
    attacks: list[Attack], z: NDArray[np.int64], rng: np.random.Generator, draws: int = _NULL_DRAWS
) -> tuple[NDArray[np.float64], float]:
    """Balanced accuracy of the strongest adversary on shuffled labels, shape (draws,), and the p-value of the real one.

    The labels of the test rows are shuffled under the answers given. The strongest of many adversaries looks good by
    luck alone; its own distribution takes account of that, whatever the adversaries have in common.
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
    """Entropy of class shares, in bits."""
    shares = shares[shares > 0]
    return float(-(shares * np.log2(shares)).sum())
