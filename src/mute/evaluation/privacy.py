"""Privacy: how much of the concept adversaries still read from unseen rows, and from how many rows they learn it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist, squareform

from mute.adversaries.estimates import Estimate
from mute.adversaries.panel import CODER, PANEL, Adversary, Features, attack
from mute.adversaries.scoring import (
    LEAST_CHANCE,
    SIGNIFICANCE,
    Attack,
    Parts,
    entropy_bits,
    null_of_the_strongest,
    read,
)
from mute.estimators.moments import Moments
from mute.evaluation.blocks import blocks_of
from mute.typing import RowsLike

if TYPE_CHECKING:
    from mute.evaluation.rows import Rows, TrainingRows

__all__ = ["OnlineCode", "Privacy", "TrueLabels", "TwoSample", "WorstPair", "measure"]

_MMD_ROWS, _MMD_DRAWS = 1000, 200
# Bytes for the covariances of classes that are gathered together.
_ROOM = 1 << 28
# Shares of the rows after which the online code learns anew.
_PREFIXES = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.125, 0.25, 0.5, 1.0)


@dataclass(frozen=True)
class Privacy:
    """What can still be read; dicts are by protocol.

    `attacks` has the strongest adversary of each protocol first. `tested` is the number of unseen rows that the fresh
    adversaries are tested on. `chance` and `majority` are the balanced accuracy and the accuracy of guessing,
    `entropy` is H(Z) of the unseen rows in bits. The strongest adversary exceeds `null` by luck once in a thousand
    times. `information` is a lower bound of I(Z; f(X)), in bits. `curve` has an adversary's name and its balanced
    accuracy by the number of rows to learn from. `on_fit_rows` is the balanced accuracy of an adversary that is
    taught and tested on erased training rows; `noise_floor` that after whitening each class with the mean and
    covariance of the training rows. `with_true_labels` says what is read without the errors of the router, where a
    routed eraser leaks. `worst_pair` has the two classes of three or more that are told apart best, which a mean over
    classes hides.
    """

    attacks: tuple[Attack, ...]
    tested: int
    chance: float
    majority: float
    entropy: float
    null: dict[str, float]
    p_value: dict[str, float]
    information: dict[str, Estimate]
    code: dict[str, OnlineCode]
    mmd: dict[str, TwoSample]
    curve: tuple[str, tuple[tuple[int, Estimate], ...]]
    on_fit_rows: Estimate | None
    noise_floor: Estimate | None
    with_true_labels: TrueLabels | None = None
    worst_pair: WorstPair | None = None


@dataclass(frozen=True)
class WorstPair:
    """The two classes that an adversary tells apart best on unseen rows, and how well (see `Pair`)."""

    adversary: str
    classes: tuple[str, str]
    accuracy: Estimate


@dataclass(frozen=True)
class TrueLabels:
    """Balanced accuracy of an adversary on routed rows and on rows erased with true labels."""

    adversary: str
    routed: Estimate
    labelled: Estimate


def measure(attacks: list[Attack], rows: Rows, rng: np.random.Generator, steps: Callable[[str], None]) -> Privacy:
    """All that the audit says about privacy, from what the adversaries of the panel read."""
    steps("chance")
    protocols = ("before", "paper", "fresh")
    by_protocol = {p: tried for p in protocols if (tried := [a for a in attacks if a.protocol == p])}
    # Fresh adversaries answer every unseen row, the others the test rows.
    asked = {p: rows.z if p == "fresh" else rows.z_test for p in by_protocol}
    nulls = {p: null_of_the_strongest(tried, asked[p], rng) for p, tried in by_protocol.items()}
    # The wide network would take minutes to learn again and again.
    uninformed = [a for a in by_protocol["fresh"] if a.adversary in PANEL]
    cheap = [a for a in uninformed if a.adversary != "wide network"] or uninformed
    curious = PANEL[max(cheap, key=lambda a: a.balanced_accuracy.value).adversary]
    steps("leak by rows")
    after = rows.Q_learn, rows.z_learn, rows.Q_test, rows.z_test
    curve = leak_by_rows(curious, after, rows.n_classes, rng)
    labelled = None
    if nulls["fresh"][1] <= SIGNIFICANCE and rows.subject.routes:
        steps("true labels")
        labelled = _with_true_labels(curious, curve[-1][1], rows, rng)
    steps("description length")
    learned = {"before": rows.X_learn, "fresh": rows.Q_learn}
    codes = {p: online_code(learn, rows.z_learn, rows.n_classes, rng) for p, learn in learned.items()}
    steps("two-sample tests")
    shares = np.bincount(rows.z, minlength=rows.n_classes) / len(rows.z)
    ranked = sorted(attacks, key=lambda a: a.balanced_accuracy.value)[::-1]
    return Privacy(
        attacks=tuple(a for p in dict.fromkeys(a.protocol for a in attacks) for a in ranked if a.protocol == p),
        tested=len(rows.z),
        chance=1 / rows.n_classes,
        majority=float(shares.max()),
        entropy=entropy_bits(shares),
        null={p: float(np.quantile(null, 0.999)) for p, (null, _) in nulls.items()},
        p_value={p: p_value for p, (_, p_value) in nulls.items()},
        information={p: information_bound(tried) for p, tried in by_protocol.items()},
        code=codes,
        mmd={"before": mmd(rows.X_test, rows.z_test, rng), "fresh": mmd(rows.Q_test, rows.z_test, rng)},
        curve=(curious.name, tuple(curve)),
        on_fit_rows=None if rows.seen is None else _read_on_training_rows(rows.seen, rows.n_classes, rng),
        noise_floor=None if rows.seen is None else _noise_floor(rows, rows.seen, rng),
        with_true_labels=labelled,
        worst_pair=_worst_pair(by_protocol["fresh"], [str(c) for c in rows.encoder.classes]),
    )


def _worst_pair(attacks: list[Attack], classes: list[str]) -> WorstPair | None:
    """Of all adversaries and pairs the one whose interval begins highest; None for two classes."""
    found = [(a.adversary, a.worst_pair) for a in attacks if a.worst_pair is not None]
    if not found:
        return None
    adversary, pair = max(found, key=lambda one: one[1].accuracy.low)
    return WorstPair(adversary, (classes[pair.first], classes[pair.second]), pair.accuracy)


def information_bound(attacks: list[Attack]) -> Estimate:
    """The highest lower bound of the adversaries; information is never negative."""
    best = max((a.information for a in attacks), key=lambda e: e.value)
    return Estimate(*(max(0.0, v) for v in (best.value, best.low, best.high)))


@dataclass(frozen=True)
class OnlineCode:
    """Length of the labels' online code, and n log2 K, which the labels cost without any help."""

    bits: float
    uniform_bits: float


def online_code(
    X: NDArray, z: NDArray[np.int64], n_classes: int, rng: np.random.Generator, adversary: Adversary = CODER
) -> OnlineCode:
    """Minimum description length: send the labels block by block, each with a model of the blocks before it.

    The first block costs log2 K bits a label. Every later label costs the negative logarithm of its probability under
    a model of the earlier labels.
    """
    order = rng.permutation(len(X))
    X, z = Features(X, scale_features=True)(X)[order], z[order]
    ends = sorted({max(n_classes, int(share * len(z))) for share in _PREFIXES})
    bits = ends[0] * np.log2(n_classes)
    for end, following in pairwise(ends):
        block = slice(end, following)
        chances = attack(adversary, X[:end], z[:end], X[block], n_classes, int(rng.integers(2**31 - 1)))
        bits -= float(np.log2(np.maximum(chances[np.arange(following - end), z[block]], LEAST_CHANCE)).sum())
    return OnlineCode(float(bits), float(len(z) * np.log2(n_classes)))


@dataclass(frozen=True)
class TwoSample:
    """A test of whether the classes follow one law: the statistic and its p-value."""

    statistic: float
    p_value: float


def mmd(X: NDArray, z: NDArray[np.int64], rng: np.random.Generator) -> TwoSample:
    """Unbiased maximum mean discrepancy between a class and the rest, the largest over classes, tested by permutation.

    The kernel is Gaussian with the median distance as its width, on at most 1,000 rows.
    """
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
    adversary: Adversary, rows: Parts, n_classes: int, rng: np.random.Generator
) -> list[tuple[int, Estimate]]:
    """Balanced accuracy of an adversary with 2, 4, 8 ... times fewer rows to learn from, fewest first."""
    learn, z_learn, test, z_test = rows
    order = rng.permutation(len(learn))
    sizes = sorted({len(learn) >> i for i in range(6) if len(learn) >> i >= 20 * n_classes} or {len(learn)})
    found = []
    for size in sizes:
        part = learn[order[:size]], z_learn[order[:size]], test, z_test
        found.append((size, read(adversary, "fresh", part, n_classes, rng).balanced_accuracy))
    return found


def _with_true_labels(adversary: Adversary, routed: Estimate, rows: Rows, rng: np.random.Generator) -> TrueLabels:
    """What the adversary, which read `routed` from routed rows, reads from the same rows erased with true labels."""
    learn, test = rows.subject.with_true_labels((rows.X_learn, rows.z_learn), (rows.X_test, rows.z_test))
    found = read(adversary, "fresh", (learn, rows.z_learn, test, rows.z_test), rows.n_classes, rng)
    return TrueLabels(adversary.name, routed, found.balanced_accuracy)


def _read_on_training_rows(seen: TrainingRows, n_classes: int, rng: np.random.Generator) -> Estimate:
    """The strongest of three adversaries, taught on one half of the erased training rows and tested on the other half.

    The balanced accuracy separates a map that does not erase from a map that erases its training rows only.
    """
    order = rng.permutation(len(seen.z))
    half = np.zeros(len(order), bool)
    for k in range(n_classes):
        half[order[seen.z[order] == k][::2]] = True
    rows = seen.Q[half], seen.z[half], seen.Q[~half], seen.z[~half]
    return _strongest_of(("logistic", "quadratic", "boosting"), rows, n_classes, rng)


def _noise_floor(rows: Rows, seen: TrainingRows, rng: np.random.Generator) -> Estimate | None:
    """Balanced accuracy after an exact map of class means and covariances: the leak of estimating them on these rows.

    None where a class has too few rows for its covariance.
    """
    whiten = _whitening(seen.X_all, seen.z_all, rows.n_classes)
    if whiten is None:
        return None
    learn, test = whiten(rows.X_learn, rows.z_learn), whiten(rows.X_test, rows.z_test)
    return _strongest_of(("logistic", "quadratic"), (learn, rows.z_learn, test, rows.z_test), rows.n_classes, rng)


def _strongest_of(names: tuple[str, ...], rows: Parts, n_classes: int, rng: np.random.Generator) -> Estimate:
    found = [read(PANEL[name], "fresh", rows, n_classes, rng).balanced_accuracy for name in names]
    return max(found, key=lambda e: e.value)


def _whitening(X: RowsLike, z: NDArray, n_classes: int) -> Callable[[NDArray, NDArray], NDArray] | None:
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
