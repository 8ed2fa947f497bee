"""The outcome of the studies as one page of Markdown with its figures, beside what the paper reports."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mute import MUtE
from mute.evaluation.rendering import deliver, markdown_table, render
from mute.flow.stopping import EarlyStopping, StopOnNoGain
from mute.paper import figures, published
from mute.paper.augmenting import TWINS
from mute.paper.budgets_page import budget_values
from mute.paper.copies import COPIES
from mute.paper.erasing import CORE, entries
from mute.paper.fresh_page import fresh_values, leak_shown
from mute.paper.published import NAMES
from mute.paper.running import DEFAULT_STUDIES, STUDIES, Plan, Results
from mute.paper.synthetic import draw_synthetic
from mute.paper.text_page import name_of, scores_shown, text_values, without_texts
from mute.typing import Json

__all__ = ["STOPPING_RULES", "command_of", "pm", "stopping_rule", "write_page"]

# How "auto" decides on the number of layers, by the record that a fitted MUtE keeps of it.
STOPPING_RULES: dict[type, str] = {
    StopOnNoGain: "stops when new layers no longer separate the classes",
    EarlyStopping: "stops where an adversary on held-out rows reads least",
}


def stopping_rule() -> str:
    """The rule by which MUtE with its defaults stops adding layers."""
    return STOPPING_RULES[StopOnNoGain if MUtE().shrinkage else EarlyStopping]


def write_page(results: Results, folder: Path) -> Path:
    """Write ``README.md``, its figures and ``results.json`` to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    studies = [study for study in STUDIES if study in results.plan.studies]
    values: Json = {}
    names = NAMES["methods"]
    if "synthetic" in studies:
        draw_synthetic(folder / "synthetic.png", results.plan.mixture_rows)
    if "tradeoff" in studies:
        found = {name: _erased(results, name, list(entries(name, every=True))) for name in results.problems}
        values["tradeoff"] = {name: (results.problems[name], rows) for name, rows in found.items() if rows}
        if values["tradeoff"]:
            figures.tradeoff(values["tradeoff"], names, CORE, folder / "tradeoff.png")
    if "augmentation" in studies:
        values["augmentation"] = {}
        for name in [name for name in published.AUGMENTATION if name in results.problems]:
            runs = {label: results.of("augment", problem=name, label=label) for label in TWINS}
            runs = {label: rows for label, rows in runs.items() if rows}
            values["augmentation"][name] = (results.problems[name], runs, _erased(results, name, CORE))
        if any(runs for _, runs, _ in values["augmentation"].values()):
            figures.fairness(values["augmentation"], names, folder / "fairness.png")
    if "text" in studies:
        values["texts"] = text_values(results, folder)
    if "fresh" in studies:
        values["fresh"] = fresh_values(results.found, folder)
    if "budget" in studies:
        values["budget"] = budget_values(results.found, folder)
    page = render(
        "mute.paper",
        "page.md.j2",
        {
            "pm": pm, "theirs": lambda figure: "–" if figure is None else f"{figure[0]:.3f} ± {figure[1]:.3f}",
            "theirs2": lambda value: "–" if value is None else f"{value:.2f}",
            "name": lambda label: names.get(label, label), "mover": name_of, "scores": scores_shown,
            "leak": leak_shown, "json": json.dumps,
        },
        results=results,
        plan=results.plan,
        about=results.about,
        studies=studies,
        only_new=set(studies) <= {"text", "fresh", "budget"},
        stopping_rule=stopping_rule(),
        words=_erased(results, "glove", CORE),
        core=lambda name: _erased(results, name, CORE),
        copies=COPIES,
        published=published,
        decoders=NAMES["decoders"],
        table=markdown_table,
        command=command_of(results),
        **values,
    )  # fmt: skip
    kept = results.to_dict()
    kept["found"] = without_texts(kept["found"])
    kept["plan"] |= _names_of(results.plan)
    deliver(json.dumps(kept, indent=1), folder / "results.json")
    deliver(page, folder / "README.md")
    return folder / "README.md"


def pm(runs: Iterable[Any], *path: str, digits: int = 3) -> str:
    """Mean ± standard deviation of one figure over the runs; one run has no deviation."""
    known = []
    for value in runs:
        for key in path:
            value = None if value is None else value.get(key)
        if value is not None:
            known.append(value)
    if not known:
        return "–"
    mean = f"{np.mean(known):.{digits}f}"
    return mean if len(known) == 1 else f"{mean} ± {np.std(known, ddof=1):.{digits}f}"


def _erased(results: Results, name: str, labels: Sequence[str]) -> dict[str, list[Json]]:
    found = {label: results.of("erase", problem=name, label=label) for label in labels}
    return {label: rows for label, rows in found.items() if rows}


def _names_of(plan: Plan) -> Json:
    """Files and folders without the place where they were on one machine."""
    return {
        "paths": {name: Path(path).name for name, path in plan.paths.items()},
        "pairs": plan.pairs and Path(plan.pairs).name,
        "inverter": plan.inverter and Path(plan.inverter).name,
    }


def command_of(results: Results) -> str:
    """The command that makes the same page again."""
    plan = results.plan
    words = ["mute paper", *(plan.studies if set(plan.studies) != set(DEFAULT_STUDIES) else ()), "-o FOLDER"]
    words += ["--quick"] if plan.quick else []
    words += [f"--rows {plan.rows}"] if plan.rows is not None else []
    words += [f"--runs {plan.runs}"] if plan.runs != 5 and not plan.quick else []
    words += [f"--data {name}=PATH" for name in plan.paths]
    words += ["--pairs FILE"] if plan.pairs else []
    words += ["--inverter FOLDER"] if plan.inverter else []
    return " ".join(words)
