"""One self-contained web page for an audit, a comparison or a frontier: it opens offline, prints, and loads nothing."""

from __future__ import annotations

import json
from importlib import import_module

from mute.errors import missing_extra, visible
from mute.evaluation import figures as draw
from mute.evaluation.advice import advice
from mute.evaluation.frontier_wording import FRONTIER_TITLE, frontier_notes, frontier_sentences, frontier_table
from mute.evaluation.rendering import number, percent, render
from mute.evaluation.wording import comparison_table, kept_of, measurement_notes, summary_of, tables_of
from mute.typing import Json

__all__ = ["audit_page", "compare_page", "frontier_page", "require_libraries"]

# The figures in their order, and whether each takes the whole width. The template has their captions.
_FIGURES = {
    draw.adversary_bars: True, draw.row_map: True, draw.leak_curve: False, draw.audit_plane: False,
    draw.kept_bars: False, draw.routing_map: False, draw.layer_curves: True, draw.rate_gaps: True,
}  # fmt: skip


def audit_page(report: Json) -> str:
    """The report of one audit, from `Report.to_dict`, as HTML with everything inside it, plotly.js included."""
    require_libraries()
    drawn = [
        {"name": make.__name__, "figure": figure, "wide": wide}
        for make, wide in _FIGURES.items()
        if (figure := make(report)) is not None
    ]
    # The last of an odd number of half-width figures is widened, so that no place beside it stays empty.
    halves = [d for d in drawn if not d["wide"]]
    if len(halves) % 2:
        halves[-1]["wide"] = True
    return _render(
        "audit.html.j2",
        title=f"Audit of {report['about']['eraser']}",
        drawn=drawn,
        report=report,
        summary=summary_of(report),
        causes=advice(report),
        tiles=_tiles(report),
        tables=tables_of(report),
        method=measurement_notes(report),
    )


def compare_page(reports: dict[str, Json], failures: dict[str, str], title: str = "Comparison of erasers") -> str:
    """Reports of several methods on the same rows, and why other methods failed, as HTML with everything inside it."""
    require_libraries()
    plane = draw.comparison_plane(reports)
    return _render(
        "compare.html.j2",
        title=title,
        drawn=[{"name": "comparison_plane", "figure": plane, "wide": True}] if plane is not None else [],
        summary=_comparison_summary(reports, failures),
        tables=[comparison_table(reports)] if reports else [],
        failures=failures,
        methods=[
            {"name": name, "verdict": r["decision"]["name"], "summary": summary_of(r), "notes": measurement_notes(r)}
            for name, r in reports.items()
        ],
    )


def frontier_page(found: Json) -> str:
    """A frontier, from `Frontier.to_dict`, as HTML with everything inside it."""
    require_libraries()
    figures = {make.__name__: make(found) for make in (draw.frontier_plane, draw.frontier_task)}
    return _render(
        "frontier.html.j2",
        title=FRONTIER_TITLE,
        drawn=[{"name": name, "figure": drawn, "wide": True} for name, drawn in figures.items() if drawn is not None],
        summary=frontier_sentences(found),
        tables=[frontier_table(found)] if found["rows"] else [],
        failures=found["failures"],
        method=frontier_notes(found),
    )


def require_libraries() -> None:
    """Raise, before any work is done, if a page could not be made at its end."""
    for package in ("plotly", "jinja2"):
        try:
            import_module(package)
        except ImportError:
            raise missing_extra(package, "report", "a report as a web page") from None


def _render(template: str, drawn: list[Json], **values: object) -> str:
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

    plots = [json.loads(d["figure"].to_json()) for d in drawn]
    return render(
        "mute.evaluation", template, {"visible": visible}, drawn=drawn, plots=plots, plotlyjs=get_plotlyjs(), **values
    )


def _tiles(report: Json) -> list[tuple[str, str, str]]:
    """The few figures to remember: what, how much, and beside what."""
    decision, utility, task, moves = (report[n] for n in ("decision", "utility", "task", "counterfactuals"))
    leak, kept, near = decision["leak"], kept_of(report), utility["neighbours"][-1]
    budget = f"{decision['max_leak'] * 100:g} points"
    among = f"of the nearest {near['share'] * 100:g} %, above chance"
    tiles = [
        (
            "leak above chance",
            f"{leak['value'] * 100:.1f} points",
            f"interval to {leak['high'] * 100:.1f}; budget: {budget}",
        ),
        ("variance kept", percent(kept["value"]), f"{percent(kept['low'])} to {percent(kept['high'])}"),
        ("neighbours kept", percent(near["corrected"]["value"]), among),
    ]
    if task:
        accuracy, gap = ([task[w][n]["value"] for w in ("before", "after")] for n in ("accuracy", "tpr_rms"))
        tiles += [
            ("task accuracy", percent(accuracy[1]), f"{percent(accuracy[0])} before erasure"),
            ("gap between classes", number(gap[1]), f"in true positive rates; {number(gap[0])} before"),
        ]
    if moves:
        apart = max(m["two_sample"]["value"] for m in moves)
        tiles.append(("separated from real rows", percent(apart), "counterfactuals, worst pair; 50 % is chance"))
    return tiles


def _comparison_summary(reports: dict[str, Json], failures: dict[str, str]) -> list[str]:
    lines = []
    if reports:
        erased = [name for name, r in reports.items() if r["decision"]["name"] == "erased"]
        lines.append(
            f"{len(erased)} of {len(reports)} methods erase the concept as far as the panel can tell"
            + (f": {', '.join(erased)}." if erased else ".")
        )
        if unsettled := [name for name, r in reports.items() if r["decision"]["name"] == "too few rows to say"]:
            lines.append(f"The rows are too few to say for {len(unsettled)}: {', '.join(unsettled)}.")
        if len(erased) > 1:
            best = max(erased, key=lambda name: kept_of(reports[name])["value"])
            share = percent(kept_of(reports[best])["value"])
            lines.append(f"Of these, {best} keeps most of the rows: {share} of their variance can be read back.")
    if failures:
        lines.append(f"{len(failures)} could not be judged: {', '.join(failures)}.")
    return lines
