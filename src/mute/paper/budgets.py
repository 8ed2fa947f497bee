"""A leak budget on unseen rows: what it keeps, what is proved of it, and its frontier beside other methods."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from numpy.typing import NDArray

from mute.errors import BudgetNotMet
from mute.paper.fresh import split_problem
from mute.paper.problems import Problem
from mute.typing import Json, Method

if TYPE_CHECKING:
    from mute.evaluation.report import Report

__all__ = ["BUDGETS", "CELLS", "FRONTIER", "budget_jobs", "frontier_of", "spent", "spent_on"]

# Data set to its leak budget.
BUDGETS = {"glove": 0.05, "bios": 0.03, "word2vec": 0.03, "jigsaw": 0.03}
# Few rows show no small budget.
_QUICK_BUDGET = 0.2
# The methods on the frontier, each with noise after it. Those whose fits take minutes are on words only.
_FAST = ("mute", "none", "leace", "qleace", "linear-ot", "taco", "pef")
FRONTIER = {"glove": (*_FAST, "farm", "kram"), "bios": _FAST}
_SHARES = (0.6, 0.45, 0.3, 0.15)
_FRONTIER_ROWS = 6000
# Cells that the certificate counts, and that MUtE publishes.
CELLS = 8


def budget_jobs(sizes: dict[str, int], runs: int, quick: bool) -> list[Json]:
    """All jobs; `sizes` are the rows that there are to fit on, of each data set that is there."""
    found = [
        {"job": "budget", "problem": name, "rows": rows, "seed": seed}
        for name, rows in sizes.items()
        for seed in range(1 if quick else runs)
    ]
    return found + [
        {"job": "frontier", "problem": name, "label": label, "rows": min(sizes[name], _FRONTIER_ROWS), "seed": 0}
        for name in FRONTIER.keys() & sizes.keys()
        for label in FRONTIER[name][: 2 if quick else None]
    ]


def spent(data: Problem, job: Json, quick: bool = False) -> Json:
    """MUtE with the budget of this data set, and the cells, judged on unseen rows."""
    parts = split_problem(data, job["rows"], job["seed"], quick)
    max_leak = _QUICK_BUDGET if quick else BUDGETS[data.name]
    return spent_on(*parts, max_leak, job["seed"]) | {"cells": _cells(*parts, job["seed"])}


def spent_on(X: NDArray, z: NDArray, X_new: NDArray, z_new: NDArray, max_leak: float, seed: int) -> Json:
    """What MUtE with a leak budget leaks and keeps on unseen rows, and what its certificate says."""
    from mute import MUtE, audit, certify

    found: Json = {"max_leak": max_leak, "rows": len(X), "columns": X.shape[1], "unseen": len(X_new)}
    start = time.perf_counter()
    try:
        eraser: Method = MUtE(max_leak=max_leak, random_state=seed).fit(X, z)
    except BudgetNotMet as error:
        return {**found, "verdict": "budget not met", "said": str(error), "fit_seconds": time.perf_counter() - start}
    seconds, promised, spent = time.perf_counter() - start, eraser.leak_, eraser.budget_
    report = audit(eraser, X_new, z_new, max_leak=max_leak, random_state=seed)
    leak = report.leak
    certificate = certify(eraser, X_new, z_new, cells=CELLS, fit_rows=(X, z), random_state=seed)
    return {
        **found, "verdict": report.verdict, "leak": leak.value, "low": leak.low, "high": leak.high,
        "adversary": leak.adversary, "r2": _r2(report), "promised": promised.value, "promised_high": promised.high,
        "family": spent["family"], "share": spent["share"], "certified": certificate.leak, "fit_seconds": seconds,
    }  # fmt: skip


def _cells(X: NDArray, z: NDArray, X_new: NDArray, z_new: NDArray, seed: int) -> Json:
    """What is proved of every adversary where the centre of a cell is all that is published of a row."""
    from mute import MUtE, audit, certify

    eraser = MUtE(cells=CELLS, random_state=seed).fit(X, z)
    report = audit(eraser, X_new, z_new, adversaries=("logistic", "boosting"), random_state=seed)
    certificate = certify(eraser, X_new, z_new, random_state=seed)
    return {"certified": certificate.leak, "covers": certificate.covers, "leak": report.leak.value, "r2": _r2(report)}


def _r2(report: Report) -> float:
    return float(max(found.r2.value for found in report.utility.reconstruction))


def frontier_of(data: Problem, job: Json, quick: bool = False) -> Json:
    """Leak and R² of a method with noise of several strengths after it, on folds of the training rows."""
    from mute import frontier

    X, z, _, _ = split_problem(data, job["rows"], job["seed"], quick)
    max_leak = _QUICK_BUDGET if quick else BUDGETS[data.name]
    shares = _SHARES[:1] if quick else _SHARES
    found = frontier(X, z, methods=[job["label"]], families="noise by worth", shares=shares, max_leak=max_leak)
    if found.failures:
        raise RuntimeError(found.failures[job["label"]])
    return {"points": found.points[job["label"]], "chosen": found.chosen(job["label"]), "max_leak": max_leak}
