"""Every eraser on one split, judged by one protocol."""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mute.adversaries.scoring import deal_groups
from mute.errors import MuteError
from mute.evaluation.audit import audit, judges_of
from mute.evaluation.blocks import check_matrix, labels_of
from mute.evaluation.methods import Progress, fitted, methods_of, run_methods
from mute.evaluation.page import compare_page
from mute.evaluation.rendering import bullets, deliver
from mute.evaluation.report import VERSION
from mute.evaluation.rows import check_enough_rows, check_task, groups_of
from mute.evaluation.wording import comparison_table, kept_of, strongest
from mute.flow.routing import stratified_sample
from mute.rows.validation import LabelEncoder, check_classes
from mute.typing import Array, Json, LabelsLike, RowsLike, Setting

# Share of the bar that a method's fit takes; its audit takes the rest.
_FIT = 0.5

__all__ = ["Comparison", "compare"]


@dataclass(frozen=True)
class Comparison:
    """The outcome of `compare`.

    Attributes
    ----------
    reports : dict of str to dict
        Of each method, what `Report.to_dict` gives, with the seconds of its fit under ``about``.
    failures : dict of str to str
        Methods that ended in an error, and the error.
    """

    reports: dict[str, Json] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def rows(self) -> list[Json]:
        """One plain dict for each method, for a table."""
        return [{"method": name, **_figures(report)} for name, report in self.reports.items()]

    def to_json(self, path: str | Path | None = None) -> str:
        """As JSON text, also written to `path` where given."""
        return deliver(json.dumps({"reports": self.reports, "failures": self.failures}, indent=1), path)

    def to_markdown(self, path: str | Path | None = None) -> str:
        """As Markdown text, also written to `path` where given."""
        parts = ["# Comparison of erasers"]
        if self.reports:
            parts.append(comparison_table(self.reports).to_markdown())
        if self.failures:
            parts.append(bullets(f"{name} failed: {error}" for name, error in self.failures.items()))
        return deliver("\n\n".join(parts) + "\n", path)

    def to_html(self, path: str | Path | None = None) -> str:
        """One self-contained page with the trade-off, also written to `path` where given."""
        return deliver(compare_page(self.reports, self.failures), path)


def _figures(report: Json) -> Json:
    decision, privacy, task = report["decision"], report["privacy"], report["task"]
    paper = strongest(report, "paper")
    return {
        "verdict": decision["name"],
        "adversary": decision["leak"]["adversary"],
        "fresh": decision["leak"]["value"] + privacy["chance"],
        "paper": paper and paper["balanced_accuracy"]["value"],
        "bits_read": privacy["information"]["fresh"]["value"],
        "r2": kept_of(report)["value"],
        "neighbours_1pc": report["utility"]["neighbours"][-1]["corrected"]["value"],
        "task_accuracy": task and task["after"]["accuracy"]["value"],
        "tpr_rms": task and task["after"]["tpr_rms"]["value"],
        "fit_seconds": report["about"]["fit_seconds"],
    }


def compare(
    X: RowsLike,
    z: LabelsLike,
    *,
    task: LabelsLike = None,
    methods: str | Sequence[str] = "all",
    fit_share: float = 0.5,
    groups: LabelsLike = None,
    folder: str | Path | None = None,
    random_state: int = 0,
    progress: Progress | None = None,
    **options: Setting,
) -> Comparison:
    """Fit every method on one part of the rows and audit it on the other part.

    Parameters
    ----------
    X : array of shape (n, D), data frame, Arrow table, or what `mute.open_matrix` gives
        Rows. A matrix on disk is read whole.
    z, task : array-like of shape (n,)
        Concept and, optionally, a downstream label.
    methods : "all", comma-separated names or a sequence of them
        Names of `mute.estimators.registry.METHODS`, with a preset after a colon where wanted ("farm:paper-glove").
    fit_share : float
        Share of each class to fit on.
    groups : array-like of shape (n,), optional
        The source of each row. Rows of one group are not parted between fit and audit, nor within an audit.
    folder : path, optional
        Each report is kept here as soon as it is done, and is not made again for the same rows and settings.
    random_state : int
        Seed of the split, of every method and of every audit.
    progress : function (what is being done, share done), optional
        Called at each step.
    **options
        Passed on to `audit`.

    Returns
    -------
    Comparison
        With ``to_html``, ``to_markdown`` and ``to_json``. A method that fails is listed and does not stop the others.

    See Also
    --------
    mute.audit : One eraser.

    Notes
    -----
    *Limits.* All methods run with their defaults (or a preset), which may not suit the rows.

    Examples
    --------
    >>> import numpy as np
    >>> from mute.evaluation.compare import compare
    >>> rng = np.random.default_rng(0)
    >>> z = np.repeat(["a", "b"], 400)
    >>> X = rng.normal(size=(800, 3)) + 3 * (z == "b")[:, None]
    >>> found = compare(X, z, methods="none,leace", adversaries=["logistic"], max_leak=0.15)
    >>> [(row["method"], row["verdict"]) for row in found.rows()]
    [('none', 'not erased'), ('leace', 'erased')]
    """
    names = methods_of(methods, with_task=task is not None)
    inspect.signature(audit).bind(None, X, z, **options)  # an option that no audit takes is an error here
    judges_of(**options)
    X = check_matrix(X, "X", fits=True)
    labels = labels_of(z, len(X), "z")
    if not 0 < fit_share < 1:
        raise MuteError(f"fit_share must lie between 0 and 1, not {fit_share!r}")
    encoder, codes = LabelEncoder.fit(labels)
    check_classes(encoder, np.bincount(codes))
    tasks = None
    if task is not None:
        tasks = labels_of(task, len(X), "task")
        check_task(LabelEncoder.fit(tasks)[0])
    rng = np.random.default_rng(random_state)
    sources = groups_of(groups, len(X))
    if sources is None:
        fit = np.isin(np.arange(len(X)), stratified_sample(codes, int(fit_share * len(X)), rng))
        own = None
    else:
        fit = deal_groups(codes, sources, np.array([fit_share, 1 - fit_share]), rng) == 0
        own = sources[~fit]
    _check_parts(encoder, codes, tasks, fit)
    X_fit, z_fit, X_new, z_new = X[fit], labels[fit], X[~fit], labels[~fit]
    y_fit, y_new = (None, None) if tasks is None else (tasks[fit], tasks[~fit])

    def work(name: str, step: Progress) -> Json:
        start = time.perf_counter()
        eraser = fitted(name, X_fit, z_fit, y_fit, random_state, lambda what, done: step(what, _FIT * done))
        seconds = time.perf_counter() - start
        report = audit(
            eraser, X_new, z_new, task=y_new, fit_rows=(X_fit, z_fit), groups=own,
            random_state=random_state, progress=lambda what, done: step(what, _FIT + (1 - _FIT) * done), **options,
        ).to_dict()  # fmt: skip
        report["about"]["fit_seconds"] = seconds
        return report

    settings = fit_share, random_state, options, VERSION
    return Comparison(*run_methods(names, work, X, (labels, tasks, sources), settings, folder, progress))


def _check_parts(encoder: LabelEncoder, codes: Array, tasks: Array | None, fit: Array) -> None:
    """Refuse a split with a part that no method can use."""
    counts = np.bincount(codes[fit], minlength=len(encoder))
    if counts.min() < 2:
        few = encoder.classes[int(counts.argmin())]
        raise MuteError(f"class {few!r} has {counts.min()} row(s) to fit on; raise fit_share or give more rows")
    check_enough_rows(encoder, np.bincount(codes[~fit], minlength=len(encoder)), " to be judged on")
    if tasks is not None:
        check_task(LabelEncoder.fit(tasks[~fit])[0], " among the rows to be judged on")
