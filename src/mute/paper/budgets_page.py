"""What the section about the leak budget shows: what it keeps, what is proved, and its frontier."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mute.paper.budgets import BUDGETS, CELLS, FRONTIER
from mute.paper.figures import save_with_legend
from mute.paper.fresh_page import TITLES, interval
from mute.typing import Json

__all__ = ["budget_values"]

# Okabe and Ito's colours; marks tell methods apart without colour.
_LOOKS = {
    "mute": ("MUtE", "#0072B2", "o"), "none": ("noise alone", "#000000", "."), "leace": ("LEACE", "#CC79A7", "^"),
    "qleace": ("QLEACE", "#009E73", "D"), "linear-ot": ("Linear OT", "#56B4E9", "p"), "taco": ("TaCo", "#999999", "*"),
    "pef": ("PEF", "#D55E00", "X"), "farm": ("FaRM", "#E69F00", "P"), "kram": ("KRaM", "#8c564b", "H"),
}  # fmt: skip


def budget_values(found: Iterable[Json], folder: Path) -> Json:
    """What the page shows; writes its figure to `folder`."""
    rows = list(found)
    order = [name for name in BUDGETS if any(row["problem"] == name for row in rows if row["job"] == "budget")]
    runs = {name: _results(rows, "budget", name) for name in order}
    curves = {name: {row["label"]: row["result"] for row in rows if _is(row, "frontier", name)} for name in FRONTIER}
    curves = {name: methods for name, methods in curves.items() if methods}
    if curves:
        _draw(curves, folder / "budget-frontier.png")
    kept = [run["low"] <= run["max_leak"] for mine in runs.values() for run in mine if "leak" in run]
    return {
        "drawn": bool(curves),
        "spent": [_spent(name, mine) for name, mine in runs.items()],
        "cells": [_cells(name, mine) for name, mine in runs.items()],
        "n_cells": CELLS,
        "kept": (sum(kept), len(kept)),
        "frontier": [row for name, methods in curves.items() for row in _chosen(name, methods)],
    }


def _is(row: Json, job: str, problem: str) -> bool:
    return row["job"] == job and row["problem"] == problem


def _results(rows: Sequence[Json], job: str, problem: str) -> list[Json]:
    return [row["result"] for row in rows if _is(row, job, problem)]


def _shown(values: Sequence[float]) -> str:
    if not values:
        return "–"
    mean, reach = interval(values)
    return f"{mean:.3f}" + ("" if np.isnan(reach) else f" ± {reach:.3f}")


def _spent(name: str, runs: list[Json]) -> tuple[str, ...]:
    measured = [run for run in runs if "leak" in run]
    verdicts = [run["verdict"] for run in runs]
    words = ", ".join(f"{verdicts.count(v)} {v}" for v in dict.fromkeys(verdicts))
    families = [run["family"] for run in measured]
    columns = [_shown([run[key] for run in measured]) for key in ("leak", "high", "r2", "promised", "certified")]
    kinds = ", ".join(f"{families.count(f)} {f}" for f in dict.fromkeys(families)) or "–"
    return (TITLES[name], f"{runs[0]['rows']:,}", f"{runs[0]['max_leak']:g}", words, *columns, kinds)


def _cells(name: str, runs: list[Json]) -> tuple[str, ...]:
    return (TITLES[name], *(_shown([run["cells"][key] for run in runs]) for key in ("certified", "leak", "r2")))


def _chosen(name: str, methods: Json) -> list[tuple[str, ...]]:
    """Each method's lossless point, and its best within the budget; best methods first."""
    rows = []
    for label, result in methods.items():
        best, whole = result["chosen"], result["points"][0]
        best_cells = ("–", "–") if best is None else (f"{best['r2']:.2f}", f"{best['leak']['value']:.3f}")
        cells = (TITLES[name], _LOOKS[label][0], f"{whole['leak']['value']:.3f}", f"{whole['r2']:.2f}", *best_cells)
        rows.append((-1.0 if best is None else best["r2"], cells))
    return [cells for _, cells in sorted(rows, key=lambda row: -row[0])]


def _draw(curves: Json, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.4 * len(curves) + 2.4, 5.2), layout="constrained")
    for axes, (name, methods) in zip(figure.subplots(1, len(curves), squeeze=False)[0], curves.items(), strict=True):
        budget = next(iter(methods.values()))["max_leak"]
        axes.axhspan(-0.02, budget, color="#F0E442", alpha=0.35, lw=0)
        for label, (title, colour, mark) in _LOOKS.items():
            if label in methods:
                points = methods[label]["points"]
                leak = np.array([[p["leak"][end] for end in ("value", "low", "high")] for p in points]).T
                axes.errorbar(
                    [p["r2"] for p in points], leak[0], yerr=np.abs(leak[1:] - leak[0]), color=colour, marker=mark,
                    ms=8 if label == "mute" else 5, lw=2.5 if label == "mute" else 1, elinewidth=0.8, label=title,
                    zorder=5 if label == "mute" else 2,
                )  # fmt: skip
        axes.set_yscale("function", functions=(_root, lambda y: np.sign(y) * y**2))
        axes.set_yticks((0, 0.01, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5))
        axes.set(title=f"{TITLES[name]}; shaded: budget of {budget:g}", xlabel="kept: R² of a linear reader")
        axes.set_ylim(-0.02, None)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.3, lw=0.5)
    figure.axes[0].set_ylabel("leak: strongest of nine adversaries, minus chance")
    save_with_legend(figure, path)


def _root(y: NDArray) -> NDArray:
    return np.asarray(np.sign(y) * np.sqrt(np.abs(y)))
