"""One eraser on one data set: what can be read of the concept, what is kept, and how fair a task becomes."""

from __future__ import annotations

import time

import numpy as np

from mute.estimators.registry import METHODS
from mute.evaluation.utility import neighbourhood_overlap, paper_mse
from mute.paper.as_paper import fit_method
from mute.paper.measures import judge_task, kept, near, probe, strongest, wordsim
from mute.paper.problems import Problem, Words, rows_for, task_of
from mute.paper.published import FAIRNESS
from mute.typing import Json

__all__ = ["CORE", "DROPPED", "LAYERS", "SLOW", "entries", "erase"]

# Methods of the paper's figures and tables, and two controls: no erasure, and one affine layer.
CORE = ("none", "mute-paper", "mute", "mute-oracle", "farm", "kram", "leace", "qleace", "taco", "leopard-cascaded")

# Minutes for each fit, and in a figure of the paper only.
SLOW = ("leopard-cascaded",)

# How many components TaCo drops of its 100, and after how many layers MUtE stops, along the curves of the figure.
DROPPED = (5, 25, 50, 75, 95)
LAYERS = (5, 20, 50)


def entries(problem: str, *, every: bool) -> dict[str, tuple[str, Json]]:
    """Label to (method, settings): the core, points along the curves and, if `every`, all other methods.

    The paper's own settings are used where it gives them and they fit other data: its presets of FaRM, KRaM, TaCo and
    MUtE, but not of LEOPARD, whose rank may exceed the number of columns here.
    """
    found: dict[str, tuple[str, Json]] = {name: (name, {}) for name in CORE}
    found["mute"] = ("mute", {"diagnostics": False})
    found["mute-paper"], found["mute-oracle"] = ("as-paper", {}), ("as-paper", {"router": None})
    found["farm"], found["kram"] = (f"farm:paper-{problem}", {}), (f"kram:paper-{problem}", {})
    found["taco"] = ("taco:paper", {"n_drop": 50})
    if every:
        found |= {f"taco-{n}": ("taco:paper", {"n_drop": n}) for n in DROPPED if n != 50}
        found |= {f"mute-{n}": ("as-paper", {"n_iterations": n}) for n in LAYERS}
        for name, method in METHODS.items():
            copy = name.endswith("-surrogate")  # they have a study of their own
            if name not in found and not copy and not (method.task and problem == "glove"):
                found[name] = (name, {})
    return found


def erase(data: Problem, method: str, settings: Json, seed: int, *, words: Words | None = None) -> Json:
    """Fit a method of the package, or "as-paper", erase, and measure; `words` correlate with human judgements."""
    fit, fresh, test = data.fit, data.fresh, data.test
    start = time.perf_counter()
    eraser = fit_method(data, fit, method, settings, seed)
    seconds = time.perf_counter() - start
    oracle = getattr(eraser, "needs_concept", False)
    Q_fit, Q_fresh, Q_test = (
        eraser.transform(rows_for(method, part.X), **({"concept": part.z} if oracle else {})).astype(np.float32)
        for part in (fit, fresh, test)
    )
    found: Json = {
        "fit_seconds": seconds,
        "layers": getattr(eraser, "n_iterations_", None),
        "probe_paper": probe(Q_fit, fit.z, Q_test, test.z, seed),
        "probe_fresh": probe(Q_fresh, fresh.z, Q_test, test.z, seed),
        "strong_fresh": strongest(Q_fresh, fresh.z, Q_test, test.z, seed),
        "kept": kept(Q_fresh, fresh.X, Q_test, test.X),
    }
    if data.name in FAIRNESS:
        found["task"] = judge_task(Q_fit, task_of(fit), Q_test, task_of(test), test.z, seed)
    if seed == 0:  # the paper takes these once
        found["mse"] = paper_mse(Q_fit, fit.X)
    if data.name == "glove":
        rng = np.random.default_rng(seed)
        found["near_new"] = neighbourhood_overlap(test.X, Q_test, rng, (0.01,))[0].corrected.value
        found["near_paper"] = near(fit.X, Q_fit)
    if words is not None and not oracle:
        found["wordsim"] = wordsim(np.asarray(eraser.transform(rows_for(method, words.vectors))), words)
    return found
