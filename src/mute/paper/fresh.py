"""Erasure on unseen rows: what adversaries read, by training rows, by columns, and by what is kept."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from mute.estimators.registry import METHODS, make
from mute.paper.as_paper import fit_as_paper
from mute.paper.measures import kept, readings
from mute.paper.problems import Problem, rows_for
from mute.typing import Json

__all__ = [
    "COLOURS", "CONFIRMING", "CURVES", "ENTRIES", "FRESH_SETS", "KNOBS", "MARKS", "NO_LEAK", "RIVALS", "SLOW_RIVALS",
    "SYNTHETIC", "Entry", "fresh", "fresh_jobs", "left_out", "most_judge_rows", "rows_to_fit", "split", "split_problem",
    "synthetic_rows",
]  # fmt: skip

# Data set to numbers of rows to fit on, besides all that there are. The paper has 10,777 words to fit on.
FRESH_SETS = {"glove": (1500, 3000, 6000, 10_777), "bios": (3000, 12_000), "word2vec": (6000,), "jigsaw": (6000,)}

# No choice of a method or setting of this package was made on these.
CONFIRMING = ("word2vec", "jigsaw")

# Share of the rows to judge with. Sentences have as many as the paper tests on: half would leave too few to fit on.
_JUDGED = {"glove": 0.5, "bios": 0.3, "word2vec": 0.5, "jigsaw": 0.3}

# Whose number of layers the paper's MUtE has on data that are not the paper's.
_PRESETS = {"word2vec": "glove"}

SYNTHETIC = "synthetic"
NO_LEAK = "no-leak"

# (Rows to fit on, columns) of the synthetic rows: more rows of as many columns, and more columns with as many rows.
_SYNTHETIC = ((1152, 32), (4608, 32), (18_432, 32), (6000, 8), (6000, 32), (6000, 128))
_SYNTHETIC_QUICK = ((300, 8), (1200, 8), (600, 4), (600, 16))
_SYNTHETIC_UNLABELLED = 18_432
_CLASSES = 3

# The adversaries that read most from erased rows for their time, and a linear one.
_ADVERSARIES = ("logistic", "quadratic", "neighbours", "boosting", "network")


@dataclass(frozen=True)
class Entry:
    """A method on the axes, by its name on the page."""

    title: str
    method: str  # in `METHODS`, or "as-paper" for MUtE as the paper's code runs it
    settings: Json = field(default_factory=dict)
    true_labels: bool = False  # erase with true labels, though the method does not require labels
    components: float = 1.0  # share of the principal components of the training rows that rows are first cut down to
    noise: float = 0.0  # standard deviation of the noise added to erased rows, as a share of each column's
    adapted: bool = False  # to the rows that it erases
    unlabelled: bool = False  # the fit has the other rows as well, without labels


_DATA = json.loads(files("mute.paper").joinpath("fresh.json").read_text(encoding="utf-8"))
# The file says what these groups are.
CURVES, RIVALS, SLOW_RIVALS, KNOBS = (
    {label: Entry(**values) for label, values in _DATA[group].items()}
    for group in ("curves", "rivals", "slow_rivals", "knobs")
)
ENTRIES = {**CURVES, **RIVALS, **SLOW_RIVALS, **KNOBS, NO_LEAK: Entry("no leak (pure noise)", NO_LEAK)}
MARKS: dict[str, str] = _DATA["style"]["marks"]
COLOURS: dict[str, str] = _DATA["style"]["colours"]

_LEFT_OUT = {
    "qleace": "has true labels here",
    "mean-difference": "with true labels it gives the rows of LEACE, true labels, but for their common mean",
}


def left_out() -> dict[str, str]:
    """Methods of the package that are not on the axes, and why."""
    present = {entry.method for entry in (CURVES | RIVALS | SLOW_RIVALS).values()}
    found = {}
    for name, method in METHODS.items():
        why = "copies MUtE" if name.endswith("-surrogate") else "MUtE with other settings"
        why = "requires labels of a task" if method.task else why
        if name not in present:
            found[name] = _LEFT_OUT.get(name, why)
    return found


def fresh_jobs(sizes: dict[str, int], runs: int, quick: bool) -> list[Json]:
    """All jobs; `sizes` are the rows that there are to fit on, of each data set that is there."""
    found: list[Json] = []
    for name, most in sizes.items():
        grid = (most // 2,) if quick else tuple(n for n in FRESH_SETS[name] if n < most)
        labels = [*CURVES, NO_LEAK] if name in CONFIRMING else [*ENTRIES]
        points = [(label, n) for n in grid for label in CURVES]
        points += [(label, most) for label in labels if not ENTRIES[label].unlabelled]
        found += [{"job": "fresh", "problem": name, "label": label, "rows": n} for label, n in points]
    if quick:  # `adapt` needs more rows to judge with than there are columns
        found = [job for job in found if job["label"] not in SLOW_RIVALS and not ENTRIES[job["label"]].adapted]
    synthetic = _SYNTHETIC_QUICK if quick else _SYNTHETIC
    for n, columns in synthetic:
        # What is read of noise does not depend on the rows to fit on.
        labels = [*CURVES, NO_LEAK] if (n, columns) == next(p for p in synthetic if p[1] == columns) else [*CURVES]
        labels += RIVALS if n == max(rows for rows, _ in synthetic) else []
        found += [
            {"job": "fresh", "problem": SYNTHETIC, "label": label, "rows": n, "columns": columns} for label in labels
        ]
    once = [{**job, "seed": 0} for job in found]
    return once + [{**job, "seed": seed} for seed in range(1, runs) for job in found if job["label"] not in SLOW_RIVALS]


def most_judge_rows(quick: bool) -> int:
    """Rows on which adversaries learn and are tested, at most."""
    return 1200 if quick else 8000


def rows_to_fit(data: Problem, quick: bool) -> int:
    """How many rows of a data set there are to fit on."""
    _, counts = np.unique(_whole(data)[1], return_counts=True)
    return int(counts.min() - _judged(counts, _JUDGED[data.name], quick)) * len(counts)


def _judged(counts: NDArray, share: float, quick: bool) -> int:
    """Rows of each class to judge with."""
    return min(int(counts.min() * share), most_judge_rows(quick) // len(counts))


def _whole(data: Problem) -> tuple[NDArray, NDArray]:
    """All rows of a data set, each once, and their classes; its own parts do not matter here."""
    parts = data.fit, data.fresh, data.test
    X, z = np.concatenate([part.X for part in parts]), np.concatenate([part.z for part in parts])
    # A sentence that is there twice must not be fitted on and judged.
    once = np.sort(np.unique([row.tobytes() for row in X], return_index=True)[1])
    return X[once], z[once]


def split(z: NDArray, rows: int, share: float, seed: int, quick: bool = False) -> tuple[NDArray, NDArray]:
    """Numbers of the rows to fit on, `rows` of them, and of the rows to judge with; as many of each class in both.

    The rows to judge with, a `share` of the rarest class, do not depend on `rows`, and fewer rows to fit on are a part
    of more.
    """
    rng = np.random.default_rng(seed)
    classes, counts = np.unique(z, return_counts=True)
    judged, fitted = _judged(counts, share, quick), rows // len(classes)
    orders = [rng.permutation(np.flatnonzero(z == k)) for k in classes]
    fit = np.concatenate([order[judged : judged + fitted] for order in orders])
    return rng.permutation(fit), rng.permutation(np.concatenate([order[:judged] for order in orders]))


def synthetic_rows(n: int, columns: int, rng: np.random.Generator) -> tuple[NDArray, NDArray]:
    r"""`n` rows of three classes: Gaussians, column by column through smooth increasing maps, the law always the same.

    Mean, covariance and skewness differ by class. The maps are :math:`\sinh(s_{kj} + \mathrm{arcsinh}\, g_j)`.
    """
    law = np.random.default_rng(columns)
    axes = np.linalg.qr(law.normal(size=(columns, columns)))[0]
    shared = axes * np.geomspace(2.0, 0.5, columns)
    parts = []
    for _ in range(_CLASSES):
        own = np.eye(columns) + 0.3 * law.normal(size=(columns, columns)) / np.sqrt(columns)
        mean, skew = (law.normal(size=columns) / np.sqrt(columns) for _ in range(2))
        gaussian = (rng.normal(size=(n // _CLASSES, columns)) @ own + mean) @ shared.T
        parts.append(np.sinh(skew + np.arcsinh(gaussian)))
    order = rng.permutation(_CLASSES * (n // _CLASSES))
    return np.concatenate(parts)[order].astype(np.float32), np.repeat(np.arange(_CLASSES), n // _CLASSES)[order]


def fresh(data: Problem | None, job: Json, quick: bool = False) -> Json:
    """One method, fitted on some rows and judged on others; without `data` on synthetic rows."""
    seed = job["seed"]
    if data is None:
        rng = np.random.default_rng(seed)
        X_judge, z_judge = synthetic_rows(most_judge_rows(quick), job["columns"], rng)
        X, z = synthetic_rows(job["rows"], job["columns"], rng)
        more = synthetic_rows(_SYNTHETIC_UNLABELLED, job["columns"], rng)[0]
        preset = "synthetic"
    else:
        X_all, z_all = _whole(data)
        fit, judge = split(z_all, job["rows"], _JUDGED[data.name], seed, quick)
        X, z, X_judge, z_judge = X_all[fit], z_all[fit], X_all[judge], z_all[judge]
        more = X_all[np.setdiff1d(np.arange(len(X_all)), np.concatenate([fit, judge]))]
        preset = _PRESETS.get(data.name, data.name)
    entry = ENTRIES[job["label"]]
    if entry.method == NO_LEAK:
        Q, seconds, layers = np.random.default_rng(seed).normal(size=X_judge.shape).astype(np.float32), None, None
    else:
        Q, seconds, layers = _erased(entry, preset, X, z, X_judge, z_judge, seed, more)
    # Both halves have as many rows of each class.
    learn = np.empty(len(z_judge), bool)
    for k in np.unique(z_judge):
        learn[z_judge == k] = np.arange(np.count_nonzero(z_judge == k)) % 2 == 0
    halves = Q[learn], z_judge[learn], Q[~learn], z_judge[~learn]
    found = readings(*halves, seed, _ADVERSARIES, scaled=False)
    classes, counts = np.unique(z, return_counts=True)
    return {
        "leak": max(found.values()) - 1 / len(classes),
        "balanced_accuracy": found,
        "kept": kept(Q[learn], X_judge[learn], Q[~learn], X_judge[~learn]),
        "fit_seconds": seconds,
        "layers": layers,
        "class_rows": int(counts.min()),
        "columns": X.shape[1],
        "judge_rows": len(X_judge),
    }


def split_problem(
    data: Problem, rows: int, seed: int, quick: bool = False
) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """Rows to fit on and their classes, rows to judge with and theirs, as the study has them."""
    X, z = _whole(data)
    fit, judge = split(z, rows, _JUDGED[data.name], seed, quick)
    return X[fit], z[fit], X[judge], z[judge]


def _erased(
    entry: Entry, preset: str, X: NDArray, z: NDArray, X_new: NDArray, z_new: NDArray, seed: int, more: NDArray
) -> tuple[NDArray[np.float32], float | None, int | None]:
    """Unseen rows, erased after a fit on `X` and, where that counts, on `more` rows without labels; seconds; layers."""
    from sklearn.decomposition import PCA

    X, X_new = rows_for(entry.method, X), rows_for(entry.method, X_new)
    start = time.perf_counter()
    if entry.components < 1:
        cut = PCA(round(entry.components * X.shape[1]), svd_solver="covariance_eigh").fit(X)
        X, X_new = cut.transform(X), cut.transform(X_new)
    if entry.method == "as-paper":
        eraser = fit_as_paper(preset, X, z, X, z, seed, its_layers=True, **entry.settings)
    else:
        rest = {"unlabelled": more} if entry.unlabelled else {}
        eraser = make(entry.method, **entry.settings, random_state=seed).fit(X, z, **rest)
    if entry.adapted:
        eraser = eraser.adapt(X_new, concept=z_new)
    seconds = time.perf_counter() - start
    labels = {"concept": z_new} if entry.true_labels or getattr(eraser, "needs_concept", False) else {}
    Q = eraser.transform(X_new, **labels)
    if entry.noise:
        Q = Q + entry.noise * Q.std(axis=0) * np.random.default_rng(seed).normal(size=Q.shape)
    return Q.astype(np.float32), seconds, getattr(eraser, "n_iterations_", None)
