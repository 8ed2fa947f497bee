"""The search for the channel that keeps most and stays within a leak budget, on folds of the training rows.

The eraser is fitted on one half of the rows and erases the other half, on which the panel learns and is judged; then
the halves change places. So every training row is judged once, by adversaries that learned on a third of all rows.

Why the promise survives the last fit on all rows: the maps are then estimated from twice as many rows. The leak of
estimation errors from n rows to an adversary with m rows is, where it is small, proportional to √m / n
(`mute.adversaries.expected`). Halves with m = n/3 leak as much as all rows do to an adversary with m = 4n/3 rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import RidgeCV

from mute.adversaries.estimates import Estimate, bootstrap
from mute.adversaries.informed import INFORMED, says_of_routes, would_be_routed
from mute.adversaries.panel import PANEL, standardiser
from mute.adversaries.scoring import cross_chances, folds_of, guesses_of
from mute.budget.channel import FAMILIES, ONE_BIT, ONE_BIT_SHARE, Axes, Bits
from mute.errors import BudgetNotMet, MuteError
from mute.rows.threads import single_threaded_blas
from mute.typing import Json, Method

__all__ = [
    "JUDGES", "SCOUTS", "Point", "Trial", "check_rows_suffice", "leak_of", "published", "read_back", "search",
    "strongest_leak", "trials_of",
]  # fmt: skip

# The judge's panel without the wide network, which takes half of its time and never was the strongest after noise.
# The quick ones come first: a channel that one of them convicts needs no other.
JUDGES = (
    "quadratic", "neighbours", "logistic", "network", "leading axes", "kernel", "boosting", "narrow kernel",
)  # fmt: skip
# The adversaries that are strongest after noise for their time choose the family and where to begin.
SCOUTS = ("quadratic", "neighbours")
# Families differ in how plainly they show the axes that carry the class.
_AXES = "leading axes"
_SCOUTED_SHARES = (0.6, 0.35, 0.2, 0.1)
# Where no share above this keeps the budget, nothing is left to keep.
_LEAST_SHARE = 0.02
_MOST_JUDGED = 6
# Shares this near to each other are not told apart by the intervals of their leaks.
_NEAR = 1.12
# A family must leak no more than this part of what plain noise leaks: single points have luck.
_CLEARLY = 0.9
# A leak falls about as the share to the power 1 / 0.7.
_FALL = 0.7
# An adversary whose interval contains the budget is asked so many times, at most.
_ROUNDS = 3
# Rows that are judged in each half, at most: the interval of two classes is then 0.7 points wide to each side.
_MOST_ROWS = 10_000
_READ_ROWS = 8000
# An interval of 95 % reaches this many standard deviations.
_REACH = 1.96


@dataclass(frozen=True, eq=False)
class Trial:
    """Rows that an eraser has not seen, erased by it, and the axes of its own training rows.

    `rows` has the numbers of the rows, `groups` their sources where they are known. `answers` gives what the model
    says of the routes of published rows; None if it says nothing. `bits` publishes one bit of each column of the rows.
    """

    X: NDArray
    z: NDArray[np.int64]
    Q: NDArray
    folds: NDArray[np.int64]
    axes: Axes
    bits: Bits
    rows: NDArray[np.int64]
    groups: NDArray[np.int64] | None = None
    answers: Callable[[NDArray], NDArray] | None = None


@dataclass(frozen=True)
class Point:
    """A channel and what it costs: the leak to the strongest adversary of the panel, and what can be read back."""

    family: str
    share: float
    leak: Estimate
    adversary: str
    r2: float

    def to_json(self) -> Json:
        leak = {"value": self.leak.value, "low": self.leak.low, "high": self.leak.high}
        return {**vars(self), "leak": leak}

    @classmethod
    def from_json(cls, values: Json) -> Point:
        """The point of a file, checked."""
        numbers = [values[name] for name in ("share", "r2")] + [values["leak"][end] for end in ("value", "low", "high")]
        if values["family"] not in ("lossless", *FAMILIES, ONE_BIT) or values["adversary"] not in (*PANEL, INFORMED):
            raise MuteError("its leak budget names a family or an adversary that this version does not know")
        if not all(isinstance(n, int | float) and not isinstance(n, bool) and abs(n) <= 1 for n in numbers):
            raise MuteError("its leak budget has numbers that are no shares")
        share, r2, *leak = map(float, numbers)
        return cls(values["family"], share, Estimate(*leak), values["adversary"], r2)


Fit = Callable[[NDArray[np.bool_]], Method]
Erase = Callable[[Method, NDArray, NDArray[np.int64]], NDArray]


def trials_of(
    fit: Fit, erase: Erase, X: NDArray, z: NDArray[np.int64], groups: NDArray | None, rng: np.random.Generator,
    step: Callable[[], None],
) -> list[Trial]:  # fmt: skip
    """Fit on one half of the rows and erase the other half, both ways.

    ``fit(rows)`` gives an eraser fitted on a mask of the rows; ``erase(eraser, X, z)`` the erased rows.
    """
    half, found = folds_of(z, rng, groups, 2) == 0, []
    for seen in (half, ~half):
        eraser = fit(seen)
        axes, bits = Axes.of(erase(eraser, X[seen], z[seen]), X[seen]), Bits.of(X[seen])
        unseen = np.flatnonzero(~seen)
        unseen = np.sort(rng.permutation(unseen)[:_MOST_ROWS])
        kept = None if groups is None else groups[unseen]
        Q = erase(eraser, X[unseen], z[unseen])
        answers = partial(would_be_routed, eraser) if says_of_routes(eraser) else None
        found.append(Trial(X[unseen], z[unseen], Q, folds_of(z[unseen], rng, kept), axes, bits, unseen, kept, answers))
        step()
    return found


def published(trials: list[Trial], family: str, share: float, secret: bytes) -> list[NDArray]:
    """What a channel publishes of the erased rows of each trial; the erased rows themselves at a share of 1."""
    if share >= 1:
        return [t.Q for t in trials]
    if family == ONE_BIT:
        return [t.bits(t.Q, t.X, secret) for t in trials]
    return [t.axes.channel(family, share)(t.Q, t.X, secret) for t in trials]


def leak_of(
    trials: list[Trial],
    rows: list[NDArray],
    n_classes: int,
    panel: tuple[str, ...],
    seed: int,
    limit: float = np.inf,
) -> tuple[Estimate, str]:
    """The leak to the strongest adversary of a panel, over the rows of all trials, and its name.

    The first adversary whose interval ends above `limit` is enough: the others are not asked. One whose leak is within
    the limit, but whose interval is not, learns anew on other folds, and the mean of its rounds counts: it may have had
    luck.
    """
    z = np.concatenate([t.z for t in trials])
    parts = [t.groups for t in trials if t.groups is not None]
    units = np.concatenate(parts) if parts else None  # no group is in two trials
    best, strongest = Estimate(-1.0), ""
    for name in panel:
        rounds: list[Estimate] = []
        for number in range(_ROUNDS):
            guesses = np.concatenate(_guesses(trials, rows, name, n_classes, seed, number))
            rounds.append(_above_chance(guesses == z, z, n_classes, seed, units))
            found = Estimate(*(float(np.mean([getattr(r, end) for r in rounds])) for end in ("value", "low", "high")))
            if not found.value <= limit < found.high:
                break
        if found.value > best.value:
            best, strongest = found, name
        if found.high > limit:
            return found, name
    return best, strongest


def _guesses(
    trials: list[Trial], rows: list[NDArray], name: str, n_classes: int, seed: int, number: int
) -> list[NDArray[np.int64]]:
    """What an adversary answers in a round: the first has the folds of the trials, the others have their own."""
    rng = np.random.default_rng(seed if number == 0 else (seed, number))  # the same draws for every channel
    found = []
    for t, Q in zip(trials, rows, strict=True):
        folds = t.folds if number == 0 else folds_of(t.z, rng, t.groups)
        found.append(guesses_of(*cross_chances(PANEL[name], Q, t.z, n_classes, rng, folds)))
    return found


def strongest_leak(
    trials: list[Trial], rows: list[NDArray], n_classes: int, seed: int, limit: float = np.inf
) -> tuple[Estimate, str]:
    """`leak_of` by the judges, and by the informed adversary where the eraser routes.

    The informed adversary is the strongest of the others or boosting, whichever does better with the model's answers.
    """
    leak, name = leak_of(trials, rows, n_classes, JUDGES, seed, limit)
    if leak.high > limit or any(t.answers is None for t in trials):
        return leak, name
    more = [np.hstack([Q, t.answers(Q)]) for t, Q in zip(trials, rows, strict=True) if t.answers is not None]
    learners = tuple(dict.fromkeys(["boosting", name]))
    found, _ = leak_of(trials, more, n_classes, learners, seed, limit)
    return (found, INFORMED) if found.value > leak.value or found.high > limit else (leak, name)


def _above_chance(
    right: NDArray[np.bool_], z: NDArray[np.int64], n_classes: int, seed: int, units: NDArray | None
) -> Estimate:
    rng = np.random.default_rng(seed)
    found = bootstrap(lambda rows: _balanced(right[rows], z[rows]), len(z), rng, groups=z, units=units)
    return Estimate(*(v - 1 / n_classes for v in (found.value, found.low, found.high)))


def _balanced(right: NDArray[np.bool_], z: NDArray[np.int64]) -> float:
    counts = np.bincount(z)
    return float(np.mean(np.bincount(z, weights=right)[counts > 0] / counts[counts > 0]))


def read_back(trials: list[Trial], published: list[NDArray]) -> float:
    """R² of a linear reader on rows that it has not learned from, the mean of the trials."""
    found = []
    for trial, Q in zip(trials, published, strict=True):
        learn = trial.folds != 0
        rows, test = np.flatnonzero(learn)[:_READ_ROWS], np.flatnonzero(~learn)[:_READ_ROWS]
        scaled = standardiser(Q[rows])
        reader = RidgeCV(alphas=len(rows) * np.logspace(-9, 3, 13)).fit(scaled(Q[rows]), trial.X[rows])
        wrong = ((reader.predict(scaled(Q[test])) - trial.X[test]) ** 2).sum()
        spread = ((trial.X[test] - trial.X[test].mean(axis=0, dtype=np.float64)) ** 2).sum()
        found.append(max(1 - wrong / spread, -1.0) if spread > 0 else 0.0)
    return float(np.mean(found))


class _Search:
    """Measures points, and remembers them."""

    def __init__(self, trials: list[Trial], n_classes: int, secret: bytes, seed: int, step: Callable[[], None]) -> None:
        self.trials, self.n_classes, self.secret, self.seed, self.step = trials, n_classes, secret, seed, step
        self.judged: list[Point] = []

    def scout(self, family: str, share: float, scouts: tuple[str, ...]) -> Point:
        """The point of a channel by a few adversaries."""
        rows = published(self.trials, family, share, self.secret)
        leak, adversary = leak_of(self.trials, rows, self.n_classes, scouts, self.seed)
        self.step()
        return Point(family, share, leak, adversary, float("nan"))

    def judge(self, family: str, share: float, max_leak: float) -> Point:
        """The point of a channel by the panel, up to the first adversary that exceeds the budget."""
        rows = published(self.trials, family, share, self.secret)
        leak, adversary = strongest_leak(self.trials, rows, self.n_classes, self.seed, max_leak)
        self.judged.append(Point(family, share, leak, adversary, read_back(self.trials, rows)))
        self.step()
        return self.judged[-1]


def search(
    trials: list[Trial], n_classes: int, max_leak: float, secret: bytes, seed: int, step: Callable[[], None]
) -> tuple[Point, list[Point]]:
    """The channel that keeps most within the budget, and all points that were judged.

    The budget is kept where the upper end of the interval of the leak is within it. The lossless eraser is tried first,
    then scouts choose the family of noise, then the whole panel judges shares until the largest one within the budget
    is known to a tenth. One bit of each column is judged too. Of all that keep the budget, the largest R² wins.

    Raises
    ------
    BudgetNotMet
        If no share keeps the budget.
    """
    check_rows_suffice(sum(len(t.z) for t in trials), n_classes, max_leak)
    with single_threaded_blas():
        found = _Search(trials, n_classes, secret, seed, step)
        whole = found.scout("lossless", 1.0, SCOUTS)
        if whole.leak.value <= max_leak and (point := found.judge("lossless", 1.0, max_leak)).leak.high <= max_leak:
            return point, found.judged
        if found.scout(ONE_BIT, ONE_BIT_SHARE, SCOUTS).leak.value <= max_leak:
            found.judge(ONE_BIT, ONE_BIT_SHARE, max_leak)
        width = whole.leak.high - whole.leak.value
        _judge_shares(found, *_begin(found, whole, max(max_leak - width, max_leak / 4)), max_leak)
        best = max((p for p in found.judged if p.leak.high <= max_leak), key=lambda p: p.r2, default=None)
        if best is None:
            raise _not_met(found.judged, trials, n_classes, max_leak)
        return best, found.judged


def _judge_shares(found: _Search, family: str, share: float, max_leak: float) -> None:
    """Judge shares of a family until the largest one that keeps the budget is known to a tenth."""
    best: Point | None = None
    bad, failed = 1.0, 0
    for _ in range(_MOST_JUDGED):
        point = found.judge(family, share, max_leak)
        # Where the end of the interval would meet the budget, by the usual fall of a leak with the share.
        aim = share * (max_leak / max(point.leak.high, max_leak / 4)) ** _FALL
        if point.leak.high <= max_leak:
            best = point
        else:
            bad, failed = share, failed + 1
        if best is None:
            if bad <= _LEAST_SHARE:
                break
            share = max(min(aim, share / 1.1**failed), _LEAST_SHARE)
        else:
            if min(aim, bad) <= best.share * _NEAR:
                break
            share = min(aim if best.share < aim < bad else math.sqrt(best.share * bad), 2 * best.share)


def _begin(found: _Search, whole: Point, aim: float) -> tuple[str, float]:
    """The family that leaks least at one share of worth, and its share for a leak of `aim`, by the scouts' word.

    The leak of plain noise is fitted by a power of the share, which smooths the luck of single points.
    """
    shares, leaks = [1.0], [max(whole.leak.value, 1e-4)]
    for share in _SCOUTED_SHARES:
        shares.append(share)
        leaks.append(max(found.scout("noise", share, SCOUTS).leak.value, 1e-4))
        if leaks[-1] < aim:
            break
    power, level = np.polyfit(np.log(shares), np.log(leaks), 1)
    power = max(float(power), 0.5)
    share = float(np.clip(np.exp((math.log(aim) - level) / power), _LEAST_SHARE, 0.95))
    leak = {family: found.scout(family, share, (*SCOUTS, _AXES)).leak.value for family in FAMILIES}
    best = min(leak, key=lambda name: leak[name])
    # Another family must leak less beyond the luck of one point.
    family = best if leak[best] < _CLEARLY * leak["noise"] else "noise"
    return family, share


def check_rows_suffice(n_rows: int, n_classes: int, max_leak: float) -> None:
    """Refuse a budget below the interval that pure noise would have on so many rows."""
    chance = 1 / n_classes
    spread = chance * (1 - chance) * _REACH**2
    if max_leak <= 0 or math.sqrt(spread / n_rows) > max_leak:
        needed = f"at least {math.ceil(spread / max_leak**2):,} rows" if max_leak > 0 else "no number of rows is enough"
        raise BudgetNotMet(
            f"max_leak={max_leak:g} cannot be shown with {n_rows:,} training rows: the interval of a leak is "
            f"{math.sqrt(spread / n_rows):.3f} wide to each side even where nothing leaks; a budget of {max_leak:g} "
            f"needs {needed}",
        )


def _not_met(judged: list[Point], trials: list[Trial], n_classes: int, max_leak: float) -> BudgetNotMet:
    from mute.adversaries.expected import harmonic_mean, rows_needed

    best = min(judged, key=lambda p: p.leak.high)
    counts = np.bincount(np.concatenate([t.z for t in trials]), minlength=n_classes)
    half = best.leak.high - best.leak.value
    if best.leak.value < max_leak:
        wanted = math.ceil(counts.sum() * (half / (max_leak - best.leak.value)) ** 2)
        more = f"; the interval is too wide, and about {wanted:,} rows would narrow it enough"
    else:
        columns = trials[0].X.shape[1]
        learning = harmonic_mean(counts.tolist()) / 3
        needed = rows_needed(columns, learning, max_leak, n_classes)
        enough = needed is None or needed <= counts.min()
        more = "" if enough else f"; by the closed form {needed:,} rows a class are enough for {columns:,} columns"
    return BudgetNotMet(
        f"no setting keeps max_leak={max_leak:g}: the best found leaks {best.leak.value:.3f} ({best.leak.low:.3f} to "
        f"{best.leak.high:.3f}) to {best.adversary} at R² {best.r2:.2f}; allow a larger leak or give more rows{more}",
        best.to_json(),
    )
