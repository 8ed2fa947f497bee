"""The frontier: what each method, with a channel after it, leaves to be read, against what is kept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mute.adversaries.estimates import Estimate, bootstrap_mean
from mute.adversaries.panel import PANEL
from mute.adversaries.scoring import cross_chances
from mute.budget.channel import FAMILIES, ONE_BIT, ONE_BIT_SHARE, SECRET_BYTES
from mute.budget.search import JUDGES, Trial, check_rows_suffice, published, read_back, strongest_leak, trials_of
from mute.budget.spending import erased_rows, group_codes
from mute.errors import MuteError
from mute.evaluation.blocks import check_matrix, labels_of
from mute.evaluation.frontier_wording import frontier_markdown, frontier_sentences
from mute.evaluation.methods import Progress, fitted, methods_of, run_methods
from mute.evaluation.page import frontier_page
from mute.evaluation.rendering import deliver, plain
from mute.evaluation.rows import check_enough_rows, check_task
from mute.rows.threads import single_threaded_blas
from mute.rows.validation import LabelEncoder, check_classes, check_number
from mute.typing import Array, Json, LabelsLike, Method, RowsLike

__all__ = ["Frontier", "frontier"]

# Share of a method's part of the bar that its two fits take; its points take the rest.
_FITS = 0.2
_LOSSLESS = "lossless"


@dataclass(frozen=True)
class Frontier:
    """The outcome of `frontier`.

    Attributes
    ----------
    about : dict
        What was measured and how: `max_leak`, `chance`, `classes`, `rows`, `columns`, `families`, `shares`, `panel`,
        `groups`, `random_state`, and with a task `task_labels` and `commonest`, the share of its commonest label.
    points : dict of str to list of dict
        Of each method, the measured points: the `family` and `share` of the channel, the `leak` (value, low, high) to
        the strongest `adversary`, `r2`, and `task_accuracy` (value, low, high), None without a task.
    failures : dict of str to str
        Methods that ended in an error, and the error.
    """

    about: Json
    points: dict[str, list[Json]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def chosen(self, method: str) -> Json | None:
        """The point of a method with the largest R² whose interval of the leak ends within the budget; None if none.

        It is chosen among the measured points. A fit with `max_leak` searches more finely.
        """
        kept = [p for p in self.points[method] if self._within(p)]
        return max(kept, key=lambda p: p["r2"], default=None)

    def _within(self, point: Json) -> bool:
        return bool(point["leak"]["high"] <= self.about["max_leak"])

    @property
    def summary(self) -> list[str]:
        """What was found, in sentences."""
        return frontier_sentences(self.to_dict())

    def rows(self) -> list[Json]:
        """One plain dict for each point, with its `method`, and whether it is `within` the budget and `chosen`."""
        return [
            {"method": method, **point, "within": self._within(point), "chosen": point is self.chosen(method)}
            for method, points in self.points.items()
            for point in points
        ]

    def to_dict(self) -> Json:
        """Everything as plain values."""
        return {"frontier": self.about, "rows": self.rows(), "failures": self.failures}

    def to_json(self, path: str | Path | None = None) -> str:
        """As JSON text, also written to `path` where given."""
        return deliver(json.dumps(self.to_dict(), indent=1), path)

    def to_markdown(self, path: str | Path | None = None) -> str:
        """As Markdown text with a table of all points, also written to `path` where given."""
        return deliver(frontier_markdown(self.to_dict()), path)

    def to_html(self, path: str | Path | None = None) -> str:
        """One self-contained page with the figures and the table, also written to `path` where given."""
        return deliver(frontier_page(self.to_dict()), path)


def frontier(
    X: RowsLike,
    z: LabelsLike,
    *,
    task: LabelsLike = None,
    methods: str | Sequence[str] = "mute",
    families: str | Sequence[str] = (*FAMILIES, ONE_BIT),
    shares: Sequence[float] = (0.9, 0.75, 0.6, 0.45, 0.3, 0.2, 0.1),
    max_leak: float = 0.03,
    groups: LabelsLike = None,
    random_state: int = 0,
    progress: Progress | None = None,
    folder: str | Path | None = None,
) -> Frontier:
    """Measure leak, R² and task accuracy of each method at each strength of the channel after it.

    Every method is fitted on one half of the rows and erases the other half, then the halves change places. For every
    family and share, a panel of adversaries learns and is judged on what the channel publishes of the erased rows.

    Parameters
    ----------
    X : array of shape (n, D), data frame, Arrow table, or what `mute.open_matrix` gives
        Rows. A matrix on disk is read whole.
    z, task : array-like of shape (n,)
        Concept and, optionally, a downstream label.
    methods : "all", comma-separated names or a sequence of them
        Names of `mute.estimators.registry.METHODS`, with a preset after a colon where wanted.
    families : comma-separated names or a sequence of them
        How information is lost: of `mute.budget.channel.FAMILIES`, and "one bit" of each column, which has no shares.
    shares : sequence of float
        Shares of the worth of the erased rows that the channel keeps, between 0 and 1. The lossless point is always
        measured.
    max_leak : float
        The budget: balanced accuracy above chance of the strongest adversary. It decides which point is chosen.
    groups : array-like of shape (n,), optional
        The source of each row (document, person). Rows of one group are never on two sides of a split.
    random_state : int
        Seed of the halves, of every method, of the noise and of the adversaries. All methods have the same halves.
    progress : function (what is being done, share done), optional
        Called at each step.
    folder : path, optional
        The points of each method are kept here as soon as it is done, and are not measured again for the same rows and
        settings. Another `max_leak` needs no new points.

    Returns
    -------
    Frontier
        With ``to_html``, ``to_markdown`` and ``to_json``. A method that fails is listed and does not stop the others.

    Raises
    ------
    BudgetNotMet
        If there are too few rows to show such a budget.

    See Also
    --------
    MUtE : Its `max_leak` searches for the channel.
    Budgeted : The same for other erasers.
    mute.compare : Methods without a channel, with the whole audit.

    Notes
    -----
    *Limits.* The chosen point is the best of those measured, by the same rows that judge it. Audit the fitted eraser on
    unseen rows. The panel is that of the search, without the wide network. Intervals draw single rows, so they are too
    narrow where `groups` are large.

    *Cost.* Two fits of each method, and one run of the panel for each family and share.

    Examples
    --------
    >>> import numpy as np
    >>> from mute.evaluation.frontier import frontier
    >>> rng = np.random.default_rng(0)
    >>> z = np.repeat(["a", "b"], 200)
    >>> X = rng.normal(size=(400, 3)) + 3 * (z == "b")[:, None]
    >>> found = frontier(X, z, methods="leace", families="noise", shares=[0.3], max_leak=0.1)
    >>> [(row["family"], row["share"]) for row in found.rows()]
    [('lossless', 1.0), ('noise', 0.3)]
    """
    import mute

    names = methods_of(methods, with_task=task is not None)
    kinds, kept = _families_of(families), _shares_of(shares)
    check_number("max_leak", max_leak, "between 0 and 1", _inside)
    X = check_matrix(X, "X", fits=True)
    labels = labels_of(z, len(X), "z")
    encoder, codes = LabelEncoder.fit(labels)
    counts = np.bincount(codes)
    check_classes(encoder, counts)
    check_enough_rows(encoder, counts // 2, " in each half of the rows")
    check_rows_suffice(len(X), len(encoder), max_leak)
    tasks, task_labels, task_codes = None, None, None
    if task is not None:
        tasks = labels_of(task, len(X), "task")
        task_labels, task_codes = LabelEncoder.fit(tasks)
        check_task(task_labels)
    units = group_codes(groups, len(X))

    given = _Rows(X, encoder.as_array(), codes, tasks, task_codes, units, random_state)
    channels = [(_LOSSLESS, 1.0)]
    channels += [(family, share) for family in kinds for share in ([ONE_BIT_SHARE] if family == ONE_BIT else kept)]

    def work(name: str, step: Progress) -> Json:
        return {"points": given.points(name, channels, step)}

    settings = "frontier", kinds, kept, JUDGES, random_state
    found, failures = run_methods(names, work, X, (labels, tasks, units), settings, folder, progress)
    about = {
        "max_leak": float(max_leak), "chance": 1 / len(encoder), "classes": [str(c) for c in encoder.classes],
        "rows": len(X), "columns": X.shape[1], "families": kinds, "shares": kept, "panel": list(JUDGES),
        "groups": None if units is None else int(units.max()) + 1, "random_state": random_state,
        "mute": mute.__version__,
        "task_labels": None if task_labels is None else [str(label) for label in task_labels.classes],
        "commonest": None if task_codes is None else float(np.bincount(task_codes).max() / len(task_codes)),
    }  # fmt: skip
    return Frontier(about, {name: made["points"] for name, made in found.items()}, failures)


@dataclass(frozen=True, eq=False)
class _Rows:
    """The rows, codes `z` of their `classes`, the task's labels and their codes `y`, and the groups."""

    X: NDArray
    classes: Array
    z: NDArray[np.int64]
    task: Array | None
    y: NDArray[np.int64] | None
    groups: NDArray[np.int64] | None
    random_state: int

    def points(self, name: str, channels: list[tuple[str, float]], progress: Progress) -> list[Json]:
        """The points of a method, one for each channel."""
        rng = np.random.default_rng(self.random_state)
        secret, seed, half = rng.bytes(SECRET_BYTES), int(rng.integers(2**31)), 0

        def fit(rows: NDArray[np.bool_]) -> Method:
            task = None if self.task is None else self.task[rows]
            return fitted(
                name, self.X[rows], self.classes[self.z[rows]], task, self.random_state,
                lambda what, done: progress(what, _FITS * (half + done) / 2),
            )  # fmt: skip

        def next_half() -> None:
            nonlocal half
            half += 1
            progress("fit", _FITS * half / 2)

        def erase(eraser: Method, rows: NDArray, z: NDArray[np.int64]) -> NDArray:
            return erased_rows(eraser, rows, self.classes[z])

        trials = trials_of(fit, erase, self.X, self.z, self.groups, rng, next_half)
        found: list[Json] = []
        with single_threaded_blas():
            for family, share in channels:
                progress(f"{family}, share {share:g}", _FITS + (1 - _FITS) * len(found) / len(channels))
                found.append(self._point(trials, family, share, secret, seed))
        return found

    def _point(self, trials: list[Trial], family: str, share: float, secret: bytes, seed: int) -> Json:
        rows = published(trials, family, share, secret)
        leak, adversary = strongest_leak(trials, rows, len(self.classes), seed)
        accuracy = None if self.y is None else _accuracy(trials, rows, self.y, seed)
        return {
            "family": family, "share": share, "leak": plain(leak), "adversary": adversary,
            "r2": read_back(trials, rows), "task_accuracy": plain(accuracy),
        }  # fmt: skip


def _accuracy(trials: list[Trial], rows: list[NDArray], y: NDArray[np.int64], seed: int) -> Estimate:
    """Accuracy in the task of the network that also judges tasks in an audit, over the rows of all trials."""
    rng = np.random.default_rng(seed)
    right = []
    for trial, Q in zip(trials, rows, strict=True):
        mine = y[trial.rows]
        chances, _ = cross_chances(PANEL["network"], Q, mine, int(y.max()) + 1, rng, trial.folds, scale_features=False)
        right.append(chances.argmax(axis=1) == mine)
    return bootstrap_mean(np.concatenate(right), rng)


def _families_of(families: str | Sequence[str]) -> list[str]:
    names = [name.strip() for name in families.split(",")] if isinstance(families, str) else list(families)
    known = (*FAMILIES, ONE_BIT)
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise MuteError(f"families must be some of {', '.join(known)}, not {unknown[0] if unknown else names!r}")
    return list(dict.fromkeys(names))


def _shares_of(shares: Sequence[float]) -> list[float]:
    """The shares, largest first."""
    given = list(shares)
    if not given:
        raise MuteError("shares is empty; give numbers between 0 and 1, such as 0.6,0.3")
    for share in given:
        check_number("each of shares", share, "between 0 and 1", _inside)
    return sorted({float(share) for share in given}, reverse=True)


def _inside(share: float) -> bool:
    return 0 < share < 1
