"""Copies of MUtE: how fast, how faithful, and what a copy reveals."""

from __future__ import annotations

import time

import numpy as np

from mute.estimators.registry import make
from mute.paper.as_paper import fit_method
from mute.paper.measures import judge_task, network, probe, strongest, task_figures, trained
from mute.paper.problems import Problem, rows_for, task_of
from mute.typing import Json

__all__ = ["COPIES", "copied"]

# Label to (method, settings); the first is the flow itself. The network of the default is also trained on made rows;
# here only on training rows, as in the paper.
COPIES: dict[str, tuple[str, Json]] = {
    "mute-paper": ("as-paper", {}),
    "mlp-surrogate": ("mlp-surrogate", {"augment": 0}),
    "linear-surrogate": ("linear-surrogate", {"router": "teacher"}),
}


def copied(data: Problem, seed: int) -> Json:
    """The flow and its copies on test rows; classifiers learn on the flow's outputs, as in the paper, and anew."""
    fit, fresh, test = data.fit, data.fresh, data.test
    y_fit, y_test = task_of(fit), task_of(test)
    method, settings = COPIES["mute-paper"]
    X_fit, X_fresh, X_test = (rows_for(method, part.X) for part in (fit, fresh, test))
    flow = fit_method(data, fit, method, settings, seed).eraser
    exact_fit, exact_test = flow.transform(X_fit), flow.transform(X_test)
    task = trained(network(seed, 10_000), exact_fit, y_fit)
    reader = trained(network(seed, 20), exact_fit, fit.z)
    spread = float(np.mean((exact_test - exact_test.mean(axis=0)) ** 2, dtype=np.float64))
    found: Json = {}
    for label, (method, settings) in COPIES.items():
        copy = flow if label == "mute-paper" else make(method, teacher=flow, random_state=seed, **settings).fit(X_fit)
        copy.transform(X_test[:100])  # compiled before it is timed
        start = time.perf_counter()
        Q_test = copy.transform(X_test)
        seconds = time.perf_counter() - start
        Q_fit, Q_fresh = copy.transform(X_fit), copy.transform(X_fresh)
        found[label] = {
            "seconds": seconds,
            "r2": 1 - float(np.mean((Q_test - exact_test) ** 2, dtype=np.float64)) / spread,
            "task_as_paper": task_figures(task, Q_test, y_test, test.z),
            "probe_as_paper": float(reader.score(Q_test, test.z)),
            "task": judge_task(Q_fit, y_fit, Q_test, y_test, test.z, seed),
            "probe_paper": probe(Q_fit, fit.z, Q_test, test.z, seed),
            "probe_fresh": probe(Q_fresh, fresh.z, Q_test, test.z, seed),
            "strong_fresh": strongest(Q_fresh, fresh.z, Q_test, test.z, seed),
        }
    return found
