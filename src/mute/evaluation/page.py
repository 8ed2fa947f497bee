"""One self-contained web page for an audit or a comparison: opens offline, prints, asks nothing of the network."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

from mute.errors import missing_extra
from mute.evaluation import figures as draw
from mute.evaluation.report import _cell, _number, _percent, method_of, summary_of

__all__ = ["audit_page", "compare_page", "require_libraries"]

# The figures in their order, and how to read each.
_CAPTIONS = {
    draw.adversary_bars: "Each group is one kind of classifier that tries to name the class of new rows. After erasure "
    "its bars should end at the line of guessing, whether it learns from the rows of the eraser's fit (the paper's "
    "protocol) or, as a real adversary would, from other rows.",
    draw.row_map: "Before erasure the classes lie apart. After it, on axes chosen anew to show whatever still differs, "
    "they should lie on top of each other.",
    draw.leak_curve: "A line that still rises at its right end: with more rows an adversary would read more.",
    draw.audit_plane: "The arrow should go down (less is read), and no further left (less is kept) than it must.",
    draw.kept_bars: "How much of the rows survives erasure: 100 % is everything, 0 % no more than their mean.",
    draw.routing_map: "Rows sent to the wrong class are erased with its map; the diagonal should be near 100 %.",
    draw.layer_curves: "Each iteration brings the classes nearer to one law (dashed: on held-out rows, where some were "
    "kept); the adversary should come down to guessing.",
    draw.rate_gaps: "How much more often the task's label is found for one class than for another; 0 is fair.",
}
_MOVED = (
    " Rows moved to another class, in its colour and with arrows from where they were, should lie where that class "
    "lies before erasure."
)
_WIDE = (draw.adversary_bars, draw.row_map, draw.rate_gaps, draw.layer_curves)


def audit_page(report: dict[str, Any]) -> str:
    """The report of one audit.

    Parameters
    ----------
    report : dict
        What `Report.to_dict` gives.

    Returns
    -------
    str
        HTML with everything inside it, plotly.js included.
    """
    require_libraries()
    moved = _MOVED if report["picture"]["counterfactual"] else ""
    drawn = [
        {"figure": figure, "caption": caption + moved * (make is draw.row_map), "wide": make in _WIDE}
        for make, caption in _CAPTIONS.items()
        if (figure := make(report)) is not None
    ]
    return _render(
        "audit.html.jinja",
        title=f"Audit of {report['about']['eraser']}",
        drawn=_paired(drawn),
        report=report,
        summary=summary_of(report),
        tiles=_tiles(report),
        tables=_tables(report),
        method=method_of(report),
    )


def compare_page(
    reports: dict[str, dict[str, Any]], failures: dict[str, str], title: str = "Comparison of erasers"
) -> str:
    """Several methods on the same rows.

    Parameters
    ----------
    reports : dict of str to dict
        What `Report.to_dict` gives, by method.
    failures : dict of str to str
        Methods that could not be judged, and why.
    title : str

    Returns
    -------
    str
        HTML with everything inside it, plotly.js included.
    """
    require_libraries()
    plane = draw.comparison_plane(reports)
    caption = "Best is the lower right corner: rows as they were, of which nobody can name the class."
    return _render(
        "compare.html.jinja",
        title=title,
        drawn=[{"figure": plane, "caption": caption, "wide": True}] if plane is not None else [],
        summary=_comparison_summary(reports, failures),
        tables=[_comparison_table(reports)] if reports else [],
        failures=failures,
        methods=[
            {"name": name, "verdict": r["decision"]["name"], "summary": summary_of(r), "settings": method_of(r)[0]}
            for name, r in reports.items()
        ],
        method=method_of(next(iter(reports.values())))[1:] if reports else [],
    )


def require_libraries() -> None:
    """Complain, before any work is done, if a page could not be made at its end."""
    for package in ("plotly", "jinja2"):
        try:
            import_module(package)
        except ImportError:
            raise missing_extra(package, "report", "a report as a web page") from None


def _render(template: str, drawn: list[dict[str, Any]], **values: Any) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

    environment = Environment(
        loader=PackageLoader("mute.evaluation"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = _number
    plots = [json.loads(d["figure"].to_json()) for d in drawn]
    return environment.get_template(template).render(drawn=drawn, plots=plots, plotlyjs=get_plotlyjs(), **values)


def _paired(drawn: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Widen the last of an odd number of half-width figures, so that no place beside it stays empty."""
    halves = [d for d in drawn if not d["wide"]]
    if len(halves) % 2:
        halves[-1]["wide"] = True
    return drawn


def _tiles(report: dict[str, Any]) -> list[dict[str, str]]:
    """The few figures to remember: what, how much, and beside what."""
    decision, utility, task, moves = (report[n] for n in ("decision", "utility", "task", "counterfactuals"))
    leak, kept, near = decision["leak"], draw.kept_of(report), utility["neighbours"][-1]
    tiles = [
        ("leak above guessing", f"{leak['value'] * 100:.1f} points", f"{decision['max_leak'] * 100:g} tolerated"),
        ("variance kept", _percent(kept["value"]), f"{_percent(kept['low'])} to {_percent(kept['high'])}"),
        (
            "neighbours kept",
            _percent(near["corrected"]["value"]),
            f"of the nearest {near['share'] * 100:g} %, above chance",
        ),
    ]
    if task:
        accuracy, gap = ([task[w][n]["value"] for w in ("before", "after")] for n in ("accuracy", "tpr_rms"))
        tiles += [
            ("task accuracy", _percent(accuracy[1]), f"{_percent(accuracy[0])} before erasure"),
            ("gap between classes", _number(gap[1]), f"in true positive rates; {_number(gap[0])} before"),
        ]
    if moves:
        apart = max(m["two_sample"]["value"] for m in moves)
        tiles.append(("told from real rows", _percent(apart), "counterfactuals, at worst; 50 % is a coin"))
    return [{"what": what, "value": value, "beside": beside} for what, value, beside in tiles]


def _tables(report: dict[str, Any]) -> list[dict[str, Any]]:
    tables = [_attack_table(report["privacy"]), *_utility_tables(report["utility"])]
    if report["task"]:
        tables.append(_task_table(report["task"]))
    if report["counterfactuals"]:
        tables.append(_move_table(report["counterfactuals"]))
    return tables


def _table(title: str, head: tuple[str, ...], rows: list[tuple], *notes: str, names: int = 1) -> dict[str, Any]:
    """A table whose first `names` columns are words."""
    return {"title": title, "head": head, "rows": rows, "notes": notes, "names": names}


def _attack_table(privacy: dict[str, Any]) -> dict[str, Any]:
    columns = ("balanced_accuracy", "accuracy", "auc", "information")
    when = {"before": "before", "paper": "after (fit's rows)", "fresh": "after (other rows)"}
    rows = [
        (when[protocol], a["adversary"], *(a[c] for c in columns))
        for protocol in when
        for a in privacy["attacks"]
        if a["protocol"] == protocol
    ]
    notes = [
        f"Guessing: {_number(privacy['chance'])} balanced, {_number(privacy['majority'])} accuracy. The strongest of "
        f"the panel passes {_number(privacy['null']['fresh'])} by luck once in 1,000 times; "
        f"p = {_number(privacy['p_value']['fresh'])}."
    ]
    if privacy["on_fit_rows"]:
        notes.append(f"Learned and read on the rows of the fit: {_cell(privacy['on_fit_rows'])}.")
    if privacy["noise_floor"]:
        notes.append(
            f"Left by class means and covariances estimated on the fit's rows: {_cell(privacy['noise_floor'])}."
        )
    when |= {"fresh": "after"}
    notes += [
        f"Description length {when[name]}: {code['bits']:,.0f} bits of {code['uniform_bits']:,.0f}."
        for name, code in privacy["code"].items()
    ]
    notes += [
        f"Mean discrepancy of the classes {when[name]}: {_number(test['statistic'])}, p = {_number(test['p_value'])}."
        for name, test in privacy["mmd"].items()
    ]
    head = ("learned from rows", "adversary", "balanced accuracy", "accuracy", "area under curve", "bits read")
    return _table("What can be read", head, rows, *notes, names=2)


def _utility_tables(utility: dict[str, Any]) -> list[dict[str, Any]]:
    measured = {
        "Least squared error of any perfect eraser with these maps": utility["floor"],
        "Squared error in the sample, as in the paper": utility["paper_mse"],
        "Largest error there and back, in spreads": utility["round_trip"],
    }
    notes = [f"{words}: {_cell(value)}." for words, value in measured.items() if value is not None]
    if utility["similarity"]:
        before, after = map(_cell, utility["similarity"])
        notes.append(f"Correlation with human judgements of similarity: {before} before, {after} after.")
    rows = [(r["reader"], r["r2"], r["r2_within"], r["mse"]) for r in utility["reconstruction"]]
    near = [(f"nearest {o['share'] * 100:g} %", o["raw"], o["corrected"]) for o in utility["neighbours"]]
    return [
        _table("What can be read back", ("read back by", "R²", "R² within classes", "squared error"), rows, *notes),
        _table("Neighbours kept", ("neighbours", "share kept", "above chance"), near),
    ]


def _task_table(task: dict[str, Any]) -> dict[str, Any]:
    columns = ("accuracy", "tpr_rms", "demographic_parity", "gap_correlation", "equalised_odds", "worst_group")
    head = (
        "predictor", "accuracy", "gap in true positive rates", "demographic parity", "correlation of gap and share",
        "equalised odds", "worst class's accuracy",
    )  # fmt: skip
    words = {"before": "before erasure", "after": "after erasure", "trivial": "always the commonest label"}
    rows = [(words[kind], *(task[kind][c] for c in columns)) for kind in words]
    note = "Always giving the commonest label is perfectly fair and useless: gaps count only beside accuracy."
    return _table("Task and fairness", head, rows, note)


def _move_table(moves: list[dict[str, Any]]) -> dict[str, Any]:
    head = {
        "routed": "taken for the target", "own": "real rows of the target", "two_sample": "told from real rows",
        "plausibility": "near a real row", "displacement": "length of move", "translational": "same for all",
        "norm_ratio": "norm against real", "truth_cosine": "cosine to truth", "truth_distance": "distance to truth",
    }  # fmt: skip
    columns = [c for c in head if any(m[c] is not None for m in moves)]
    rows = [(f"{m['source']} → {m['target']}", f"{m['n_rows']:,}", *(m[c] for c in columns)) for m in moves]
    note = (
        "Good counterfactuals: told from real rows 0.5 of the time (a coin), near a real row 0.95, norm against real 1."
    )
    return _table("Counterfactuals", ("from → to", "rows", *(head[c] for c in columns)), rows, note)


def _comparison_table(reports: dict[str, dict[str, Any]]) -> dict[str, Any]:
    rows = []
    for name, report in reports.items():
        task = report["task"]
        rows.append(
            (
                name,
                report["decision"]["name"],
                draw.read_of(report, "fresh"),
                draw.read_of(report, "paper"),
                draw.kept_of(report),
                report["utility"]["neighbours"][-1]["corrected"],
                task and task["after"]["accuracy"],
                task and task["after"]["tpr_rms"],
                f"{report['about'].get('fit_seconds', report['about']['seconds']):,.1f}",
            )
        )
    first = next(iter(reports.values()))
    share = first["utility"]["neighbours"][-1]["share"] * 100
    head = (
        "method", "verdict", "read from other rows", "read, paper's protocol", "R² kept",
        f"neighbours, nearest {share:g} %", "task accuracy", "gap in true positive rates", "seconds",
    )  # fmt: skip
    notes = [
        f"Read: balanced accuracy of the strongest adversary; guessing gives {_number(first['privacy']['chance'])}."
    ]
    if first["task"]:
        was = first["task"]["before"]
        notes.append(f"Before erasure: task accuracy {_cell(was['accuracy'])}, gap {_cell(was['tpr_rms'])}.")
    return _table("Side by side", head, rows, *notes, names=2)


def _comparison_summary(reports: dict[str, dict[str, Any]], failures: dict[str, str]) -> list[str]:
    lines = []
    if reports:
        erased = [name for name, r in reports.items() if r["decision"]["name"] == "erased"]
        lines.append(
            f"{len(erased)} of {len(reports)} methods erase the concept as far as the panel can tell"
            + (f": {', '.join(erased)}." if erased else ".")
        )
        if len(erased) > 1:
            best = max(erased, key=lambda name: draw.kept_of(reports[name])["value"])
            share = _percent(draw.kept_of(reports[best])["value"])
            lines.append(f"Of these {best} keeps most of the rows: {share} of their variance can be read back.")
    if failures:
        lines.append(f"{len(failures)} could not be judged: {', '.join(failures)}.")
    return lines
