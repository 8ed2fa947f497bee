"""What the studies found, as one page of Markdown with its figures, beside what the paper reports."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mute.evaluation.report import _table
from mute.paper import figures
from mute.paper.augmenting import TWINS
from mute.paper.copies import COPIES
from mute.paper.erasing import CORE, DROPPED, LAYERS, entries
from mute.paper.fresh_page import fresh_section
from mute.paper.published import AUGMENTATION, FAIRNESS, SURROGATE, SYNTHETIC, WORDS
from mute.paper.running import DEFAULT_STUDIES, STUDIES, Plan, Results
from mute.paper.synthetic import SHIFTS, draw_synthetic
from mute.paper.text_page import text_section, without_texts
from mute.storage.files import write_atomically

__all__ = ["write_page"]

NAMES = {
    "none": "original",
    "original": "original",
    "mute-paper": "MUtE (the paper's setting)",
    "mute": "MUtE (default here)",
    "mute-oracle": "MUtE* (told the class)",
    "farm": "FaRM",
    "kram": "KRaM",
    "leace": "LEACE",
    "qleace": "QLEACE",
    "taco": "TaCo (50 of 100 dropped)",
    "leopard-cascaded": "LEOPARD (cascaded)",
    "duplicate": "every row twice (control)",
    "mean-difference": "Mean Diff",
    "linear-ot-paper": "Linear OT (ridge 0.01)",
    "linear-ot": "Linear OT (ridge chosen)",
    "mute-disjoint": "MUtE, labels of other rows",
    "mlp-surrogate": "MLP copy",
    "linear-surrogate": "one matrix for each class",
    **{f"taco-{n}": f"TaCo ({n} of 100 dropped)" for n in DROPPED if n != 50},
    **{f"mute-{n}": f"MUtE (the paper's, {n} layers)" for n in LAYERS},
}


def write_page(results: Results, folder: Path) -> Path:
    """Write ``README.md``, its figures and ``results.json`` to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    studies = results.plan.studies
    lines = ["# The paper's studies, run again", "", *_intro(results)]
    sections: dict[str, Callable[[Results, Path], list[str]]] = {
        "synthetic": _synthetic, "tradeoff": _tradeoff, "words": _words, "fairness": _fairness,
        "augmentation": _augmentation, "surrogates": _surrogates, "text": text_section,
        "fresh": fresh_section,
    }  # fmt: skip
    for study in STUDIES:
        if study in studies:
            lines += ["", *sections[study](results, folder)]
    lines += ["", *_outro(results)]
    with write_atomically(folder / "results.json") as file:
        kept = results.to_dict()
        kept["found"] = without_texts(kept["found"])
        kept["plan"] |= _names_of(results.plan)
        file.write(json.dumps(kept, indent=1).encode())
    page = folder / "README.md"
    with write_atomically(page) as file:
        file.write(("\n".join(lines) + "\n").encode())
    return page


def pm(values: Sequence[float | None], digits: int = 3) -> str:
    """Mean ± standard deviation over the runs; one run has no deviation."""
    known = [v for v in values if v is not None]
    if not known:
        return "–"
    mean = f"{np.mean(known):.{digits}f}"
    return mean if len(known) == 1 else f"{mean} ± {np.std(known, ddof=1):.{digits}f}"


def _theirs(figure: tuple[float, float] | None) -> str:
    return "–" if figure is None else f"{figure[0]:.3f} ± {figure[1]:.3f}"


def _pick(rows: list[dict[str, Any]], *path: str) -> list[Any]:
    """One figure of every run, None where it was not taken."""
    found = []
    for row in rows:
        value: Any = row
        for key in path:
            value = None if value is None else value.get(key)
        found.append(value)
    return found


def _intro(results: Results) -> list[str]:
    plan, about = results.plan, results.about
    rows = "all rows" if plan.most_rows is None else f"about {plan.most_rows:,} rows to fit on at most"
    runs = "one run" if plan.quick or plan.runs == 1 else f"{plan.runs} runs"
    if set(plan.studies) <= {"text", "fresh"}:
        return [_machine(about), *_left_out(results)]
    lines = [
        f"{'A quick pass' if plan.quick else 'The full run'}: {rows}, {runs} for each method of the paper's tables "
        "(mean ± standard deviation; each run has its own seed for fit, probes and classifiers), one for other methods "
        "and for Jigsaw, which has no table in the paper. " + _machine(about),
        "",
        "Two protocols throughout. *Paper*: the probe learns on erased rows that the eraser was fitted on. *Fresh*: it "
        "learns on erased rows that the eraser has never seen. Both are tested on the same test rows, new to both. "
        "*Probe* is the accuracy of the paper's network; *strongest* the balanced accuracy of the best of three "
        "adversaries (a quadratic one, boosted trees, the network), fresh.",
        "",
        "*MUtE (the paper's setting)* is its histograms, clipped as in its code; as many layers as in the paper on its "
        "own data and on words, else by its rule: as soon as its probe, which learned on rows of the fit, is at the "
        "majority rate on validation rows. *MUtE (default here)* has smoother maps with straight tails, which can be "
        "inverted exactly, and stops by a fresh adversary.",
        "",
    ]
    if results.problems:
        head = ("the paper's data", "here", "rows: fit, fresh, test", "columns", "classes", "majority", "task classes")
        cells = [
            (
                name,
                ("**stand-in**: " if d["stand_in"] else "the authors' files: ") + d["title"],
                ", ".join(f"{n:,}" for n in d["rows"]),
                str(d["columns"]),
                str(d["classes"]),
                f"{d['majority']:.3f}",
                "–" if d["task"] is None else str(d["task"]),
            )
            for name, d in results.problems.items()
        ]
        lines += _table(head, cells)
    if any(d["stand_in"] for d in results.problems.values()):
        lines += [
            "",
            "Stand-ins are other data: columns headed *paper* show what the paper reports on its own data, for the "
            "order of methods and the size of effects, not to be met to the digit.",
        ]
    return lines + _left_out(results)


def _machine(about: dict[str, Any]) -> str:
    return (
        f"{about['work_seconds'] / 60:.0f} minutes of work in {about['processes']} process(es) on: {about['machine']}; "
        f"Python {about['python']}, mute {about['mute']}, scikit-learn {about['scikit-learn']}."
    )


def _left_out(results: Results) -> list[str]:
    return [line for name, why in results.left_out.items() for line in ("", f"Left out: {name}. {why}")]


def _synthetic(results: Results, folder: Path) -> list[str]:
    draw_synthetic(folder / "synthetic.png", results.plan.mixture_rows)
    cells = []
    for regime in SHIFTS:
        rows = results.of("synthetic", regime=regime)
        before, after = SYNTHETIC[regime]
        cells.append(
            (regime, f"{before:.3f}", pm(_pick(rows, "before")), f"{after:.3f}", pm(_pick(rows, "after_paper")),
             pm(_pick(rows, "after_fresh")), pm(_pick(rows, "misrouted")))
        )  # fmt: skip
    head = ("classes", "before, paper", "before, here", "after, paper", "after, here", "after, fresh", "misrouted rows")
    return [
        "## Synthetic mixtures",
        "",
        f"Accuracy of a probe (guessing: 0.5), {results.plan.mixture_rows:,} rows of each class, 20 layers.",
        "",
        *_table(head, cells),
        "",
        "![Data, erased data, moves of misrouted rows and of one class](synthetic.png)",
    ]


def _erased(results: Results, name: str, labels: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    found = {label: results.of("erase", problem=name, label=label) for label in labels}
    return {label: rows for label, rows in found.items() if rows}


def _tradeoff(results: Results, folder: Path) -> list[str]:
    lines = [
        "## What can be read, and what is kept",
        "",
        "*Kept* is the share of the variance of new rows that a linear reader finds again in their erased versions "
        "(R²); *MSE* the paper's utility, in-sample and with a narrow network, of one run.",
    ]
    panels = {}
    for name, about in results.problems.items():
        found = _erased(results, name, list(entries(name, every=True)))
        if not found:
            continue
        panels[name] = (about, found)
        head = ("method", "probe, paper", "probe, fresh", "strongest, fresh", "kept", "MSE", "layers", "fit, s", "runs")
        cells = [
            (
                NAMES.get(label, label),
                pm(_pick(rows, "probe_paper")),
                pm(_pick(rows, "probe_fresh")),
                pm(_pick(rows, "strong_fresh")),
                pm(_pick(rows, "kept")),
                pm(_pick(rows, "mse"), 4),
                pm(_pick(rows, "layers"), 0),
                pm(_pick(rows, "fit_seconds"), 1),
                str(len(rows)),
            )
            for label, rows in found.items()
        ]
        lines += [
            "",
            f"### {name}: {about['title']}",
            "",
            f"Majority {about['majority']:.3f}; guessing, balanced: {1 / about['classes']:.3f}.",
            "",
            *_table(head, cells),
        ]
    if panels:
        figures.tradeoff(panels, NAMES, CORE, folder / "tradeoff.png")
        lines[3:3] = ["", "![What each method keeps, against what can be read](tradeoff.png)"]
    return lines


def _words(results: Results, folder: Path) -> list[str]:
    about = results.problems.get("glove")
    if about is None:
        return ["## Word vectors", "", "Left out: no words."]
    found = _erased(results, "glove", CORE)
    first, *others = about["surveys"] or ["WordSim"]
    asked = ", ".join(f"{name}: {n} pairs" for name, n in about["surveys"].items()) or "none at hand"
    head = ("method", "WordSim, paper", f"{first}, here", *others, "nearest 1 %, paper", "nearest 1 %, here",
            "nearest 1 %, new rows", "probe, paper", "probe, fresh", "strongest, fresh")  # fmt: skip
    cells = []
    for label, rows in found.items():
        theirs = WORDS.get(label, (None, None))
        cells.append(
            (
                NAMES.get(label, label),
                "–" if theirs[0] is None else f"{theirs[0]:.2f}",
                *(pm(_pick(rows, "wordsim", survey)) for survey in (first, *others)),
                "–" if theirs[1] is None else f"{theirs[1]:.2f}",
                pm(_pick(rows, "near_paper")),
                pm(_pick(rows, "near_new")),
                pm(_pick(rows, "probe_paper")),
                pm(_pick(rows, "probe_fresh")),
                pm(_pick(rows, "strong_fresh")),
            )
        )
    return [
        "## Word vectors",
        "",
        f"Spearman correlation of cosines with human judgements ({asked}), and which part of their nearest 1 % rows "
        "keep: as the paper counts (rows of the fit, each its own neighbour), and "
        "on new rows without itself, less what chance gives. A method that must be told the class has no answer for "
        "other words.",
        "",
        *_table(head, cells),
    ]


_TASK_HEAD = ("accuracy, paper", "accuracy, here", "TPR gap, paper", "TPR gap, here", "DP gap, paper", "DP gap, here")


def _task_cells(theirs: Any, rows: list[dict[str, Any]], *where: str) -> tuple[str, ...]:
    """Accuracy and gaps, the paper's beside ours."""
    cells: list[str] = []
    for i, key in enumerate(("accuracy", "tpr_rms", "dp")):
        cells += [_theirs(theirs and theirs[i]), pm(_pick(rows, *where, key))]
    return tuple(cells)


def _probe_cells(rows: list[dict[str, Any]], *where: str) -> tuple[str, ...]:
    return tuple(pm(_pick(rows, *where, key)) for key in ("probe_paper", "probe_fresh", "strong_fresh"))


def _fairness(results: Results, folder: Path) -> list[str]:
    lines = [
        "## Fairness after erasure",
        "",
        "A task classifier learns on the erased rows of the fit and is tested on erased test rows: its accuracy, the "
        "root mean square gap in true positive rates, the gap in demographic parity. Beside it, what the probes read.",
    ]
    for name, theirs in FAIRNESS.items():
        if name in results.problems:
            cells = [
                (NAMES.get(label, label), *_task_cells(theirs.get(label), rows, "task"), *_probe_cells(rows))
                for label, rows in _erased(results, name, CORE).items()
            ]
            head = ("method", *_TASK_HEAD, "probe, paper", "probe, fresh", "strongest, fresh")
            about = results.problems[name]
            always = f"Always the commonest label: accuracy {about['trivial']:.3f}, no gaps."
            lines += ["", f"### {name}: {about['title']}", "", always, "", *_table(head, cells)]
    return lines


def _augmentation(results: Results, folder: Path) -> list[str]:
    lines = [
        "## Fairness after counterfactual augmentation",
        "",
        "The classifier learns on half of the rows of the fit and on their counterfactuals, and is tested on test rows "
        "as they are. *Reached* is the share of counterfactuals that a probe, which learned on real rows, takes for "
        "their target: made of the rows that it and the maps learned from (paper), or of new ones (fresh).",
    ]
    panels = {}
    for name, theirs in AUGMENTATION.items():
        if name not in results.problems:
            continue
        found = {label: results.of("augment", problem=name, label=label) for label in TWINS}
        found = {label: rows for label, rows in found.items() if rows}
        panels[name] = (results.problems[name], found, _erased(results, name, CORE))
        cells = [
            (
                NAMES.get(label, label) if label != "mute-oracle" else "MUtE*, labels of these rows",
                *_task_cells(theirs.get(label), rows, "task"),
                pm(_pick(rows, "reached_paper")),
                pm(_pick(rows, "reached_fresh")),
            )
            for label, rows in found.items()
        ]
        head = ("learned on", *_TASK_HEAD, "reached, paper", "reached, fresh")
        lines += ["", f"### {name}: {results.problems[name]['title']}", "", *_table(head, cells)]
    if any(found for _, found, _ in panels.values()):
        figures.fairness(panels, NAMES, folder / "fairness.png")
        lines[3:3] = ["", "![Accuracy against gaps, after erasure and after augmentation](fairness.png)"]
    return lines


def _surrogates(results: Results, folder: Path) -> list[str]:
    lines = [
        "## Copies of MUtE",
        "",
        "*As paper*: classifiers and probe learned on the flow's own outputs, and are tested on the copy's. The other "
        "columns: all learned on the copy's outputs. The flow is not clipped here. Time: of the test rows; on one "
        "thread if jobs run side by side.",
    ]
    for name, theirs in SURROGATE.items():
        rows = results.of("copy", problem=name)
        if not rows:
            continue
        cells = []
        for label in COPIES:
            mine = [row[label] for row in rows]
            seconds, task, reader = theirs.get(label, (None, None, None))
            cells.append(
                (
                    NAMES.get(label, label),
                    "–" if seconds is None else f"{seconds:.1f}",
                    pm(_pick(mine, "seconds"), 2),
                    pm(_pick(mine, "r2")),
                    *_task_cells(task, mine, "task_as_paper"),
                    _theirs(reader),
                    pm(_pick(mine, "probe_as_paper")),
                    *_probe_cells(mine),
                )
            )
        head = ("", "time, paper (s)", "time, here (s)", "R² of the flow", *_TASK_HEAD, "probe as paper, paper",
                "probe as paper, here", "probe, paper", "probe, fresh", "strongest, fresh")  # fmt: skip
        lines += ["", f"### {name}: {results.problems[name]['title']}", "", *_table(head, cells)]
    return lines


def _outro(results: Results) -> list[str]:
    lines = ["## How this page is made", "", "```", command_of(results), "```", ""]
    lines += [f"- failed: {json.dumps(failure)}" for failure in results.failures]
    lines += ["All figures of all runs are in `results.json`."]
    return lines


def _names_of(plan: Plan) -> dict[str, Any]:
    """Files and folders by their names: where they were on one machine tells nobody anything."""
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
