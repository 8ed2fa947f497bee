"""The audit: four questions about an eraser, answered on unseen rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict

import numpy as np

from mute.adversaries.expected import rounded_up
from mute.adversaries.panel import PANEL, Adversary, Features, attack, panel_of
from mute.adversaries.scoring import SIGNIFICANCE, Attack, cross_read, read
from mute.errors import MuteError, warn_weak_result
from mute.evaluation import privacy, utility
from mute.evaluation.certificate import certify_rows
from mute.evaluation.counterfactuals import can_judge, counterfactual_quality
from mute.evaluation.duplicates import Duplicates, find_duplicates
from mute.evaluation.fairness import fairness, trivial
from mute.evaluation.informed import can_inform, informed_attack
from mute.evaluation.picture import leak_by_layer, map_of
from mute.evaluation.report import Leak, Report, TaskOutcome, Verdict
from mute.evaluation.rows import Rows
from mute.rows.threads import single_threaded_blas
from mute.typing import Json, LabelsLike, Method, RowsLike, Setting

__all__ = ["audit", "judges_of", "verdict_of"]

# Adversaries that take longer than the others, and roughly how many times as long.
_COSTS = {"wide network": 12.0, "boosting": 3.0}
# Three folds of a fresh adversary cost about three times one fit.
_FOLDS = 3
# "Not erased": an adversary reads at least this share of what it read before, on training rows too.
_MOSTLY_THERE = 0.5
# Cells of the certificate: with more of them its bound is wider.
_CELLS = 16
# The name of the training rows in `Verdict.kept`, which saved reports have.
_TRAINING = "rows of the fit"


def audit(
    eraser: Method,
    X: RowsLike,
    z: LabelsLike,
    *,
    task: LabelsLike = None,
    fit_rows: tuple[RowsLike, ...] | None = None,
    oracle: bool | None = None,
    adversaries: str | Sequence[str] = "all",
    scale_features: bool = True,
    max_leak: float = 0.02,
    most_rows: int = 20_000,
    words: Sequence[str] | None = None,
    pairs: Sequence[tuple[str, str, float]] | None = None,
    truth: tuple[RowsLike, LabelsLike, RowsLike] | None = None,
    groups: LabelsLike = None,
    random_state: int = 0,
    progress: Callable[[str, float], None] | None = None,
) -> Report:
    """Judge an eraser on unseen rows.

    The strongest adversary of a panel is compared with chance. The report also says what the erased rows are still
    worth, how fair a task becomes, and whether counterfactuals look like rows of their class.

    Parameters
    ----------
    eraser : fitted eraser, or array of shape (n, D')
        Any object with a ``transform``; or the erased rows of `X`, made elsewhere.
    X : array of shape (n, D), data frame, Arrow table, what `mute.open_matrix` gives, iterator of blocks, or dask array
        Unseen rows. Named columns are matched by name to those that the eraser was fitted on. Rows on disk are read in
        blocks, and no more than `most_rows` of them stay in memory.
    z : array-like of shape (n,)
        Their concept.
    task : array-like of shape (n,), optional
        A downstream label: accuracy and fairness are measured on it.
    fit_rows : (X_fit, z_fit) or, for an array of erased rows, (X_fit, z_fit, Q_fit), optional
        Training rows of the eraser, for the paper's protocol.
    oracle : bool, optional
        Erase with true labels. By default only if the eraser requires labels.
    adversaries : "all" or sequence of names
        The panel.
    scale_features : bool
        Give the adversaries the norm and the largest entry of each row too.
    max_leak : float
        The budget: balanced accuracy above chance that is tolerated. `Verdict` says how it decides.
    most_rows : int
        Rows used at most, drawn at random, each class in proportion.
    words, pairs : optional
        The word of each row, and (word, word, score) by human judgement: similarity before and after.
    truth : (rows, targets, X_cf), optional
        True counterfactuals: which rows of `X`, the label each is taken to, and the row it then is.
    groups : array-like of shape (n,), optional
        The source of each row, such as a document or a person. Rows of one group are never on two sides of a cut.
    random_state : int
        Seed of all random choices.
    progress : function (name of the step, share done), optional
        Called at each step.

    Returns
    -------
    Report

    See Also
    --------
    mute.evaluation.compare.compare : Several erasers on the same rows.

    Notes
    -----
    *Limits.* "Erased" means that no adversary of this panel exceeds the budget with this many rows. A stronger
    adversary, or one with more rows, may read more; `Report.privacy.curve` shows whether more rows help.

    Examples
    --------
    >>> import numpy as np
    >>> from mute import MUtE, audit
    >>> rng = np.random.default_rng(0)
    >>> z = np.repeat(["a", "b"], 4000)
    >>> X = rng.normal(size=(8000, 3)) + 6 * (z == "b")[:, None]
    >>> fit = rng.permutation(8000) < 4000
    >>> eraser = MUtE(n_iterations=5, random_state=0).fit(X[fit], z[fit])
    >>> report = audit(eraser, X[~fit], z[~fit], adversaries=["logistic", "quadratic"], max_leak=0.05)
    >>> report.verdict
    'erased'
    """
    start = time.perf_counter()
    rng = np.random.default_rng(random_state)
    panel = judges_of(adversaries, max_leak)
    rows = Rows(eraser, X, z, task, fit_rows, oracle, most_rows, rng, groups)
    copies = find_duplicates(np.concatenate([rows.X_learn, rows.X_test]), rows.folds, rng)
    if copies.sentence is not None:
        warn_weak_result(copies.sentence)
    known = rows.truth(truth)
    if words is not None and len(words) != rows.n_given:
        raise MuteError(f"there are {len(words)} words for {rows.n_given} rows; give one word for each row")
    steps = _Steps(progress, panel, rows)
    with single_threaded_blas():  # most of it is small products
        attacks = _attacks(panel, rows, scale_features, rng, steps)
        read = privacy.measure(attacks, rows, rng, steps)
        kept = utility.measure(rows, words, pairs, rng, steps)
        downstream = _task(rows, rng, steps)
        moves = None
        if rows.subject.can("counterfactual") and can_judge(rows.z_test):
            steps("counterfactuals")
            moves = counterfactual_quality(
                rows.subject.eraser, rows.X_test, rows.z_test, rows.encoder.classes, rng,
                oracle=rows.subject.oracle, truth=known,
            )  # fmt: skip
        steps("figures")
        picture = map_of(rows, rng)
        layers = leak_by_layer(rows, rng)
    steps.done()
    about = _about(rows, copies, random_state, scale_features, time.perf_counter() - start)
    decision, routing, diagnostics = verdict_of(read, max_leak), _routing(eraser), _diagnostics(eraser)
    return Report(
        decision, read, kept, downstream, moves, routing, diagnostics, layers, picture, about,
        _certificate(rows, random_state),
    )  # fmt: skip


def judges_of(adversaries: str | Sequence[str] = "all", max_leak: float = 0.02, **_: Setting) -> list[Adversary]:
    """The panel that these options of `audit` ask for, checked before any work."""
    if not 0 <= max_leak < 1:
        raise MuteError(f"max_leak must lie between 0 and 1, not {max_leak!r}; give a budget such as 0.02")
    return panel_of(adversaries)


def _certificate(rows: Rows, seed: int) -> Json:
    """A bound for every adversary that sees cells: those that the eraser publishes, or some fixed on other rows."""
    labels = rows.encoder.as_array()
    published = getattr(rows.subject.eraser, "cells_", None)
    if published is not None:
        return certify_rows(None, rows.Q, labels[rows.z], cells=published, name=rows.subject.name).to_dict()
    cells = min(_CELLS, len(rows.Q_learn))
    found = certify_rows(
        rows.Q_learn, rows.Q_test, labels[rows.z_test], cells=cells, name=rows.subject.name, random_state=seed
    )
    return found.to_dict()


class _Steps:
    """Reports how far the audit is, by rough shares of its time."""

    def __init__(self, progress: Callable[[str, float], None] | None, panel: list[Adversary], rows: Rows) -> None:
        self.progress, self.now, self.last = progress, 0.0, 0.0
        self.total = sum(_COSTS.get(a.name, 1.0) for a in panel) * (_FOLDS + 1 + (rows.seen is not None)) + 20.0

    def __call__(self, name: str, adversary: str | None = None, times: int = 1) -> None:
        self.now += self.last
        self.last = times * _COSTS.get(adversary, 1.0) if adversary else 2.5
        if self.progress is not None:
            self.progress(name, min(self.now / self.total, 1.0))

    def done(self) -> None:
        if self.progress is not None:
            self.progress("done", 1.0)


def _attacks(
    panel: list[Adversary], rows: Rows, scale_features: bool, rng: np.random.Generator, steps: _Steps
) -> list[Attack]:
    sets = {"before": (rows.X_learn, rows.z_learn, rows.X_test, rows.z_test)}
    if rows.seen is not None:
        sets["paper"] = rows.seen.Q, rows.seen.z, rows.Q_test, rows.z_test
    found = []
    for adversary in panel:
        steps(f"{adversary.name} (fresh)", adversary.name, _FOLDS)
        given = rows.groups, rows.folds, scale_features
        found.append(cross_read(adversary, "fresh", rows.Q, rows.z, rows.n_classes, rng, *given))
    if can_inform(rows):
        steps("informed (fresh)", "boosting", 2 * _FOLDS)
        found.append(informed_attack(found, rows, rng, scale_features))
    for protocol, parts in sets.items():
        for adversary in panel:
            steps(f"{adversary.name} ({protocol})", adversary.name)
            found.append(read(adversary, protocol, parts, rows.n_classes, rng, scale_features))
    return found


def verdict_of(read: privacy.Privacy, max_leak: float) -> Verdict:
    """One of the four words of `Verdict`, and the leak it rests on."""
    best: dict[str, Attack] = {}
    for tried in read.attacks:  # the strongest comes first
        best.setdefault(tried.protocol, tried)
    above = {protocol: a.balanced_accuracy.value - read.chance for protocol, a in best.items()}
    fresh = best["fresh"].balanced_accuracy
    low, high = fresh.low - read.chance, fresh.high - read.chance
    leak = Leak(above["fresh"], low, high, best["fresh"].adversary, read.p_value["fresh"])
    if read.on_fit_rows is not None:
        above[_TRAINING] = read.on_fit_rows.value - read.chance
    kept = {name: v / max(above["before"], 1e-9) for name, v in above.items() if name != "before"}
    if leak.high <= max_leak:
        name = "erased"
    elif leak.value <= max_leak or leak.p_value > SIGNIFICANCE:
        name = "too few rows to say"
    elif min(kept["fresh"], kept.get(_TRAINING, 1.0)) >= _MOSTLY_THERE:
        name = "not erased"
    else:
        name = "leaks"
    needed = _rows_to_settle(leak, max_leak, read.tested) if name == "too few rows to say" else None
    return Verdict(name, leak, max_leak, kept, needed)


def _rows_to_settle(leak: Leak, max_leak: float, tested: int) -> int | None:
    """Unseen rows whose interval would end at the budget if the leak stays as it is; None for a leak above it.

    The half-width of the interval falls with the square root of the rows.
    """
    if leak.value >= max_leak:
        return None
    return rounded_up(tested * ((leak.high - leak.value) / (max_leak - leak.value)) ** 2)


def _task(rows: Rows, rng: np.random.Generator, steps: _Steps) -> TaskOutcome | None:
    if rows.task is None:
        return None
    steps("task")
    labels, y_learn, y_test = rows.task
    truth, groups = labels[y_test], rows.encoder.as_array()[rows.z_test]
    seed = int(rng.integers(2**31 - 1))
    found = {}
    for name, learn, test in (("before", rows.X_learn, rows.X_test), ("after", rows.Q_learn, rows.Q_test)):
        features = Features(learn, scale_features=False)
        chances = attack(PANEL["network"], features(learn), y_learn, features(test), len(labels), seed)
        found[name] = fairness(truth, labels[chances.argmax(axis=1)], groups, rng=rng)
    return TaskOutcome(**found, trivial=trivial(labels[y_learn], truth, groups, rng=rng))


def _about(rows: Rows, copies: Duplicates, seed: int, scale_features: bool, seconds: float) -> Json:
    import mute

    eraser, settings = rows.subject.eraser, {}
    if hasattr(eraser, "get_params"):
        settings = {name: repr(value) for name, value in eraser.get_params(deep=False).items()}
    return {
        "eraser": rows.subject.name,
        "settings": settings,
        "oracle": rows.subject.oracle,
        "layers": getattr(eraser, "n_iterations_", None),
        "classes": [str(c) for c in rows.encoder.classes],
        "class_counts": rows.class_counts.tolist(),
        "rows": rows.n_given,
        "columns": rows.X_learn.shape[1],
        "learn_rows": len(rows.z_learn),
        "test_rows": len(rows.z_test),
        "fit_rows": None if rows.seen is None else np.bincount(rows.seen.z_all, minlength=rows.n_classes).tolist(),
        "training_rows": getattr(eraser, "fitted_on_", {}).get("class_rows"),
        "groups": None if rows.groups is None else len(np.unique(rows.groups)),
        "duplicates": None if copies.sentence is None else {**asdict(copies), "sentence": copies.sentence},
        "scale_features": scale_features,
        "random_state": seed,
        "seconds": seconds,
        "mute": mute.__version__,
    }


def _routing(eraser: Method) -> Json | None:
    """The router's report, with all classes of the eraser: the audited rows may have fewer."""
    found = getattr(eraser, "routing_", None)
    return None if found is None else {"classes": [str(c) for c in eraser.classes_], **found.to_json()}


def _diagnostics(eraser: Method) -> Json | None:
    """Negentropy by layer, for the report."""
    found = getattr(eraser, "diagnostics_", None)
    if found is None:
        return None
    curves = {}
    for name in found.sets:
        before, after = found.column("negentropy", name), found.column("negentropy_after", name)
        curves[name] = np.concatenate([before, after[-1:]]).T.tolist()
    return {"classes": [str(c) for c in found.classes], "negentropy": curves}
