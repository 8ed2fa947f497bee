"""What an audit found, for people and for programs."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mute.evaluation.counterfactuals import Move
from mute.evaluation.estimates import Estimate
from mute.evaluation.fairness import Fairness
from mute.evaluation.privacy import Attack, OnlineCode, TwoSample
from mute.evaluation.utility import Utility
from mute.storage.files import write_atomically

__all__ = ["Leak", "Privacy", "Report", "Task", "Verdict"]

_VERSION = 1


@dataclass(frozen=True)
class Leak(Estimate):
    """Worst fresh balanced accuracy above chance, who reached it, and how often luck alone would."""

    adversary: str = ""
    p_value: float = float("nan")


@dataclass(frozen=True)
class Verdict:
    """The judgement.

    Attributes
    ----------
    name : {"erased", "leaks", "not erased"}
        "Erased": on fresh rows the strongest adversary stays within `max_leak` of chance, or does no better than luck.
        "Not erased": at least half of what could be read before can still be read, on the rows of the fit too where
        they are given. "Leaks": what lies between.
    leak : Leak
    max_leak : float
    kept : dict
        Share of the leak before erasure that is left, by protocol and on the rows of the fit.
    """

    name: str
    leak: Leak
    max_leak: float
    kept: dict[str, float]


@dataclass(frozen=True)
class Privacy:
    """Everything about what can still be read; dicts are by protocol.

    Attributes
    ----------
    attacks : tuple of Attack
    chance, majority : float
        Balanced accuracy, and accuracy, of guessing.
    entropy : float
        H(Z) of the test rows, in bits.
    null : dict of float
        Balanced accuracy that the strongest adversary exceeds by luck once in a thousand times.
    p_value : dict of float
    information : dict of Estimate
        Lower bound of I(Z; f(X)), in bits.
    code : dict of OnlineCode
    mmd : dict of TwoSample
    curve : (adversary, ((rows, Estimate), ...))
        Balanced accuracy by the number of rows to learn from.
    on_fit_rows : Estimate, optional
        Balanced accuracy when both learning and test are on erased rows of the fit.
    noise_floor : Estimate, optional
        Balanced accuracy that is left by whitening each class with the mean and covariance of the rows of the fit.
    """

    attacks: tuple[Attack, ...]
    chance: float
    majority: float
    entropy: float
    null: dict[str, float]
    p_value: dict[str, float]
    information: dict[str, Estimate]
    code: dict[str, OnlineCode]
    mmd: dict[str, TwoSample]
    curve: tuple[str, tuple[tuple[int, Estimate], ...]]
    on_fit_rows: Estimate | None
    noise_floor: Estimate | None


@dataclass(frozen=True)
class Task:
    """A downstream task: learned from the rows as they were, from erased rows, and the commonest label always."""

    before: Fairness
    after: Fairness
    trivial: Fairness


@dataclass(frozen=True)
class Report:
    """The outcome of `mute.audit`.

    Attributes
    ----------
    decision : Verdict
    privacy : Privacy
    utility : Utility
    task : Task, optional
    counterfactuals : tuple of Move, optional
    routing, diagnostics, layers, picture, about
        What else the figures show, as plain values.
    """

    decision: Verdict
    privacy: Privacy
    utility: Utility
    task: Task | None
    counterfactuals: tuple[Move, ...] | None
    routing: dict[str, Any] | None
    diagnostics: dict[str, Any] | None
    layers: list[tuple[int, float]] | None
    picture: dict[str, Any]
    about: dict[str, Any]

    @property
    def verdict(self) -> str:
        """ "erased", "leaks" or "not erased"."""
        return self.decision.name

    @property
    def leak(self) -> Leak:
        """Worst fresh balanced accuracy above chance."""
        return self.decision.leak

    @property
    def summary(self) -> list[str]:
        """The findings in sentences."""
        return summary_of(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Plain values only; what is not a number becomes None."""
        return {"version": _VERSION, **_plain(self)}

    def to_json(self, path: str | Path | None = None) -> str:
        """As JSON text, also written to `path` where given."""
        return _deliver(json.dumps(self.to_dict(), indent=1), path)

    def to_markdown(self, path: str | Path | None = None) -> str:
        """As Markdown text, also written to `path` where given."""
        return _deliver(markdown_of(self.to_dict()), path)

    def to_html(self, path: str | Path | None = None) -> str:
        """One self-contained page with interactive figures, also written to `path` where given."""
        from mute.evaluation.page import audit_page

        return _deliver(audit_page(self.to_dict()), path)

    def _repr_html_(self) -> str:
        from html import escape

        lines = "".join(f"<li>{escape(line)}</li>" for line in self.summary)
        return f"<b>{escape(self.about['eraser'])}: {self.verdict}</b><ul>{lines}</ul>"

    def __repr__(self) -> str:
        return f"Report({self.verdict!r}, leak={self.leak.value:.3f} by {self.leak.adversary})"


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        # The answers to every test row are for the permutation test, not for reading.
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value) if f.name != "guesses"}
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, str | int | bool | None) else str(value)


def _deliver(text: str, path: str | Path | None) -> str:
    if path is not None:
        with write_atomically(path) as file:
            file.write(text.encode())
    return text


def summary_of(report: dict[str, Any]) -> list[str]:
    """What a reader in a hurry needs to know, in sentences."""
    privacy, decision = report["privacy"], report["decision"]
    leak, tolerated = decision["leak"], f"{decision['max_leak'] * 100:g}"
    points = f"{leak['value'] * 100:.1f} points above guessing"
    # Sorted, so that the strongest of each protocol stays.
    best = {a["protocol"]: a for a in sorted(privacy["attacks"], key=lambda a: a["balanced_accuracy"]["value"])}
    fresh, before = best["fresh"]["balanced_accuracy"], best["before"]["balanced_accuracy"]
    lines = [
        f"Before erasure the strongest adversary named the class of {_percent(before['value'])} of new rows (balanced "
        f"over classes; guessing gives {_percent(privacy['chance'])}). After erasure the strongest, "
        f"{leak['adversary']}, names {_percent(fresh['value'])} ({_percent(fresh['low'])} to "
        f"{_percent(fresh['high'])})."
    ]
    if decision["name"] == "not erased":
        where = ", even on the rows that the eraser was fitted on" if privacy["on_fit_rows"] else ""
        lines.append(f"The concept is not erased: most of what could be read before can still be read{where}.")
    elif decision["name"] == "leaks":
        lines.append(
            f"The concept still leaks: {points}, where {tolerated} are tolerated and luck does not explain it "
            f"(p = {leak['p_value']:.2g})."
        )
    elif leak["value"] <= decision["max_leak"]:
        lines.append(f"The concept is gone as far as this panel can tell: {points}, {tolerated} are tolerated.")
    else:
        lines.append(
            f"No leak was found: the strongest is {points}, but luck alone does as well on so few rows "
            f"(p = {leak['p_value']:.2g})."
        )
    if "paper" in best:
        lines.append(
            "An adversary that learns on the rows of the eraser's fit (the paper's protocol) names "
            f"{_percent(best['paper']['balanced_accuracy']['value'])} of new rows; the verdict rests on those that "
            "learn on other rows, as a real one would."
        )
    if privacy["noise_floor"]:
        lines.append(
            "Class means and covariances alone, estimated on the rows of the fit, leave "
            f"{_percent(privacy['noise_floor']['value'])} to be read: what is near it is for want of rows."
        )
    read = max(report["utility"]["reconstruction"], key=lambda r: r["r2"]["value"])
    lines.append(
        f"{_percent(read['r2']['value'])} of the variance of the original rows can be read back from the erased ones "
        f"({_percent(read['r2_within']['value'])} of that within classes)."
    )
    if report["task"]:
        was, now, trivial = (report["task"][kind] for kind in ("before", "after", "trivial"))
        lines.append(
            f"Downstream accuracy goes from {_percent(was['accuracy']['value'])} to "
            f"{_percent(now['accuracy']['value'])} (always the commonest label: "
            f"{_percent(trivial['accuracy']['value'])}); the gap in true positive rates from "
            f"{_number(was['tpr_rms']['value'])} to {_number(now['tpr_rms']['value'])}."
        )
    if report["counterfactuals"]:
        apart = max((m["two_sample"]["value"] for m in report["counterfactuals"]), key=lambda v: v or 0.0)
        lines.append(
            f"A classifier tells counterfactuals from real rows of their class in {_percent(apart)} of cases (at "
            "worst; 50 % is a coin)."
        )
    if report["about"]["oracle"]:
        lines.append("This eraser was given the true labels of the rows it erased; without them it cannot be used.")
    return lines


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value * 100:.1f} %"


def markdown_of(report: dict[str, Any]) -> str:
    """Summary first, how it was measured last."""
    about, privacy, utility = report["about"], report["privacy"], report["utility"]
    lines = [f"# Audit of {about['eraser']}: {report['decision']['name']}", ""]
    lines += [f"- {line}" for line in summary_of(report)]
    lines += ["", "## What can be read", ""]
    rows = [
        (a["protocol"], a["adversary"], *(_cell(a[c]) for c in ("balanced_accuracy", "accuracy", "auc", "information")))
        for a in privacy["attacks"]
    ]
    lines += _table(("protocol", "adversary", "balanced accuracy", "accuracy", "AUC", "bits read"), rows)
    lines += ["", f"Guessing: {_number(privacy['chance'])} balanced, {_number(privacy['majority'])} accuracy."]
    if privacy["on_fit_rows"]:
        lines.append(f"Learned and read on the rows of the fit: {_cell(privacy['on_fit_rows'])}.")
    for name, code in privacy["code"].items():
        lines.append(f"Description length, {name}: {code['bits']:.0f} bits of {code['uniform_bits']:.0f}.")
    for name, test in privacy["mmd"].items():
        lines.append(f"Mean discrepancy, {name}: {_number(test['statistic'])}, p = {_number(test['p_value'])}.")
    lines += ["", "## What is left", ""]
    lines += _table(
        ("read back by", "R²", "R² within classes", "MSE"),
        [(r["reader"], _cell(r["r2"]), _cell(r["r2_within"]), _cell(r["mse"])) for r in utility["reconstruction"]],
    )
    lines += ["", f"Least error of any perfect eraser with these maps: {_cell(utility['floor'])} (MSE)."]
    lines.append(f"In-sample MSE as in the paper: {_number(utility['paper_mse'])}.")
    lines.append(f"Round trip, largest error in spreads: {_number(utility['round_trip'])}.")
    lines += ["", "Neighbours kept:", ""]
    lines += _table(
        ("share of rows", "raw", "above chance"),
        [(_number(o["share"]), _cell(o["raw"]), _cell(o["corrected"])) for o in utility["neighbours"]],
    )
    if report["task"]:
        names = ("accuracy", "tpr_rms", "demographic_parity", "gap_correlation", "equalised_odds", "worst_group")
        lines += ["", "## Task and fairness", ""]
        lines += _table(
            ("learned from", *(n.replace("_", " ") for n in names)),
            [(kind, *(_cell(report["task"][kind][n]) for n in names)) for kind in ("before", "after", "trivial")],
        )
    if report["counterfactuals"]:
        columns = ("routed", "two_sample", "displacement", "translational", "plausibility", "norm_ratio")
        lines += ["", "## Counterfactuals", ""]
        lines += _table(
            ("from", "to", *(c.replace("_", " ") for c in columns)),
            [(m["source"], m["target"], *(_cell(m[c]) for c in columns)) for m in report["counterfactuals"]],
        )
    lines += ["", "## How it was measured", ""]
    lines += [f"- {line}" for line in method_of(report)]
    return "\n".join(lines) + "\n"


def method_of(report: dict[str, Any]) -> list[str]:
    """The small print."""
    about, limit = report["about"], report["decision"]["max_leak"]
    settings = ", ".join(f"{k}={v}" for k, v in about["settings"].items())
    classes = ", ".join(f"{c} ({n:,})" for c, n in zip(about["classes"], about["class_counts"], strict=True))
    given = "." if about["fit_rows"] else " (not measured: no such rows were given)."
    scale = "; adversaries also saw the norm and the largest entry of each row." if about["scale_features"] else "."
    return [
        f"{about['eraser']}({settings}), MUtE {about['mute']}, random_state={about['random_state']}, "
        f"{about['seconds']:.0f} s.",
        f"{about['rows']:,} rows of {about['columns']} columns that the eraser never saw; {about['learn_rows']:,} of "
        f"them taught the adversaries, {about['test_rows']:,} tested them. Classes: {classes}.",
        "Fresh: the adversary learns on erased rows that the eraser never saw. Paper: on erased rows of its fit"
        + given,
        "Balanced accuracy is the mean recall of the classes, each row being given to the class whose probability "
        "exceeds its prior most" + scale,
        f'"Erased": the strongest fresh adversary is at most {limit:g} above chance or no better than luck (p > 0.001; '
        "the labels of the test rows are shuffled and the strongest of the panel is taken each time). "
        '"Not erased": at least half of the leak before erasure is left, on the rows of the fit too where they are '
        'given (there one half teaches and the other tests). "Leaks": otherwise.',
        "Intervals: the middle 95 % of bootstrap draws of the test rows.",
    ]


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        interval = "" if value["low"] is None else f" ({_number(value['low'])} to {_number(value['high'])})"
        return _number(value["value"]) + interval
    return _number(value)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if abs(value) >= 1e-3 or value == 0 else f"{value:.1e}"


def _table(head: tuple, rows: list[tuple]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]
