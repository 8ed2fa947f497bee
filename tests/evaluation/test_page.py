"""The report as a web page: every figure shows the report's numbers, and nothing comes from outside the page."""

from __future__ import annotations

import copy
import html
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mute import MuteError
from mute.evaluation import figures
from mute.evaluation.page import audit_page, compare_page, frontier_page, require_libraries
from mute.evaluation.wording import comparison_table, markdown_of, measurement_notes, summary_of

pytest.importorskip("plotly")
pytest.importorskip("jinja2")

ADVERSARIES = ("logistic", "quadratic", "neighbours", "kernel", "narrow kernel", "boosting", "network", "wide network")
NASTY = "<script>alert(1)</script>"
LABELS = ("nurse", "surgeon", "teacher", "professor", "journalist")


def estimate(value: float, width: float = 0.012) -> dict[str, float]:
    return {"value": value, "low": value - width, "high": value + width}


def made_report(n_classes: int = 2, labels: tuple[str, ...] = LABELS) -> dict[str, Any]:
    """A report with everything in it; the numbers are made up, but those of an eraser that mostly works."""
    rng = np.random.default_rng(n_classes)
    classes = ["female", "male", "not given"][:n_classes]
    chance = 1 / n_classes
    reads = {"before": 0.93 - chance, "paper": 0.004, "fresh": 0.014}
    pair = {"first": 0, "second": 1, "accuracy": estimate(0.57)} if n_classes > 2 else None
    attacks = [
        {
            "adversary": name,
            "protocol": protocol,
            "accuracy": estimate(chance + 0.03 + above * (0.8 + i / 30)),
            "balanced_accuracy": estimate(chance + above * (0.8 + i / 30)),
            "auc": estimate(0.5 + above * (0.6 + i / 50)),
            "information": estimate(above * (0.7 + i / 30)),
            "recall": [chance + above] * n_classes,
            "worst_pair": pair,
        }
        for protocol, above in (("fresh", reads["fresh"]), ("before", reads["before"]), ("paper", reads["paper"]))
        for i, name in enumerate(ADVERSARIES)
    ]
    points = 300
    z = rng.integers(n_classes, size=points)
    targets = (z + 1) % n_classes
    noise = rng.normal(size=(points, 2))
    shift = np.array([4.0, 0.0])
    return {
        "version": 1,
        "decision": {
            "name": "erased",
            "leak": {**estimate(0.014, 0.004), "adversary": "wide network", "p_value": 0.0123},
            "max_leak": 0.02,
            "kept": {"fresh": 0.03, "paper": 0.01},
            "rows_to_settle": None,
        },
        "privacy": {
            "attacks": attacks,
            "tested": 20_000,
            "worst_pair": pair and {"adversary": "kernel", "classes": classes[:2], "accuracy": pair["accuracy"]},
            "chance": chance,
            "majority": chance + 0.03,
            "entropy": float(np.log2(n_classes)),
            "null": {"before": chance + 0.021, "paper": chance + 0.022, "fresh": chance + 0.023},
            "p_value": {"before": 0.0005, "paper": 0.4, "fresh": 0.0123},
            "information": {p: estimate(v) for p, v in reads.items()},
            "code": {
                "before": {"bits": 2100.0, "uniform_bits": 12000.0},
                "fresh": {"bits": 12040.0, "uniform_bits": 12000.0},
            },
            "mmd": {
                "before": {"statistic": 0.21, "p_value": 0.005},
                "fresh": {"statistic": 0.0004, "p_value": 0.31},
            },
            "curve": ["boosting", [[375 * 2**i, estimate(chance + 0.002 * i)] for i in range(6)]],
            "noise_floor": estimate(chance + 0.011),
            "on_fit_rows": estimate(chance + 0.004),
        },
        "utility": {
            "reconstruction": [
                {"reader": "ridge", "r2": estimate(0.81), "r2_within": estimate(0.86), "mse": estimate(0.19)},
                {"reader": "network", "r2": estimate(0.9), "r2_within": estimate(0.93), "mse": estimate(0.1)},
            ],
            "paper_mse": 0.13,
            "floor": estimate(0.07),
            "round_trip": 2.3e-9,
            "neighbours": [
                {"share": s, "raw": estimate(v + 0.02), "corrected": estimate(v)}
                for s, v in ((0.5, 0.81), (0.1, 0.71), (0.01, 0.62))
            ],
            "similarity": [estimate(0.44), estimate(0.41)],
        },
        "task": made_task(rng, classes, labels),
        "counterfactuals": [
            {
                "source": a, "target": b, "n_rows": 1800, "routed": estimate(0.97), "own": 0.972,
                "two_sample": estimate(0.53), "displacement": estimate(0.62), "translational": 0.71,
                "plausibility": estimate(0.94), "norm_ratio": 1.004, "truth_cosine": None, "truth_distance": None,
            }
            for a in classes for b in classes if a != b
        ],
        "routing": {
            "classes": [str(c) for c in classes],
            "error": 0.03,
            "class_error": [0.03] * n_classes,
            "confusion": np.where(np.eye(n_classes), 0.97, 0.03 / (n_classes - 1)).tolist(),
            "margin": [0.9] * n_classes,
            "calibration": 0.01,
        },
        "diagnostics": {
            "classes": classes,
            "negentropy": {
                rows: [[(30 - 5 * k) * 0.7**t + floor for t in range(21)] for k in range(n_classes)]
                for rows, floor in (("train", 0.05), ("held-out", 0.5))
            },
        },
        "layers": [[t, chance + (0.93 - chance) * 0.75**t] for t in (0, 2, 5, 8, 10, 12, 15, 18, 20)],
        "picture": {
            "classes": z.tolist(),
            "before": (noise + z[:, None] * shift).round(4).tolist(),
            "after": rng.normal(size=(points, 2)).round(4).tolist(),
            "counterfactual": (noise * 1.1 + targets[:, None] * shift).round(4).tolist(),
            "targets": targets.tolist(),
            "trajectories": 40,
        },
        "about": {
            "eraser": "MUtE",
            "settings": {"n_iterations": "20", "marginal": "'quantile'", "router": "'network'"},
            "oracle": False,
            "layers": 20,
            "classes": classes,
            "class_counts": [9000, 8000, 3000][:n_classes],
            "rows": 20000,
            "columns": 300,
            "groups": None,
            "duplicates": None,
            "learn_rows": 12000,
            "test_rows": 8000,
            "fit_rows": [9000] * n_classes,
            "scale_features": True,
            "random_state": 0,
            "seconds": 212.4,
            "fit_seconds": 31.2,
            "mute": "0.1.0",
        },
    }  # fmt: skip


def made_task(rng: np.random.Generator, classes: list[str], labels: tuple[str, ...]) -> dict[str, Any]:
    def fairness(accuracy: float, gap: float) -> dict[str, Any]:
        rates = 0.75 + gap * rng.uniform(-1, 1, size=(len(classes), len(labels)))
        return {
            "accuracy": estimate(accuracy), "tpr_rms": estimate(gap), "demographic_parity": estimate(gap * 1.5),
            "gap_correlation": estimate(gap * 3, 0.1), "equalised_odds": estimate(gap * 2),
            "worst_group": estimate(accuracy - gap / 4), "labels": list(labels), "classes": classes,
            "tpr": rates.tolist(), "counts": rng.integers(20, 900, size=rates.shape).tolist(),
        }  # fmt: skip

    trivial = fairness(0.31, 0.0)
    trivial["gap_correlation"] = {"value": None, "low": None, "high": None}
    return {"before": fairness(0.79, 0.16), "after": fairness(0.77, 0.05), "trivial": trivial}


def bare_report(n_classes: int = 2) -> dict[str, Any]:
    """The report of rows that were erased elsewhere: no eraser to ask, no task, no training rows."""
    report = made_report(n_classes)
    privacy, utility = report["privacy"], report["utility"]
    privacy["attacks"] = [a for a in privacy["attacks"] if a["protocol"] != "paper"]
    for part in ("null", "p_value", "information"):
        del privacy[part]["paper"]
    privacy["noise_floor"] = privacy["on_fit_rows"] = None
    utility |= {"paper_mse": None, "floor": None, "round_trip": None, "similarity": None}
    report |= dict.fromkeys(("task", "counterfactuals", "routing", "diagnostics", "layers"))
    report["picture"] = {k: report["picture"][k] for k in ("classes", "before", "after")} | {"counterfactual": None}
    report["about"] |= {"eraser": "rows erased elsewhere", "settings": {}, "layers": None, "fit_rows": None}
    return report


def made_frontier(methods: tuple[str, ...] = ("mute", "leace"), task: bool = True) -> dict[str, Any]:
    """A frontier with made-up numbers: leak and R² fall with the share, and one point of each method is chosen."""
    families, shares = ["noise", "components"], [0.6, 0.3]
    rows = [
        {
            "method": method, "family": family, "share": share, "leak": estimate(0.08 * share + 0.01 * i, 0.01),
            "adversary": "kernel", "r2": 0.9 * share, "task_accuracy": estimate(0.5 + 0.3 * share) if task else None,
            "within": share < 0.5, "chosen": (family, share) == ("noise", 0.3),
        }
        for i, method in enumerate(methods)
        for family, share in [("lossless", 1.0), *((f, s) for f in families for s in shares)]
    ]  # fmt: skip
    about = {
        "max_leak": 0.05, "chance": 0.5, "classes": ["f", "m"], "rows": 4000, "columns": 20, "families": families,
        "shares": shares, "panel": list(ADVERSARIES), "groups": None, "random_state": 0, "mute": "0.1.0",
        "task_labels": ["a", "b"] if task else None, "commonest": 0.55 if task else None,
    }  # fmt: skip
    return {"frontier": about, "rows": rows, "failures": {}}


@pytest.fixture(params=[2, 3])
def report(request: pytest.FixtureRequest) -> dict[str, Any]:
    return made_report(request.param)


class Reader(HTMLParser):
    """What a page says outside its scripts, and what it would load."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.loads: list[str] = []
        self.open: list[str] = []
        self.scripts = 0
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br", "link", "img"):
            self.open.append(tag)
        self.scripts += tag == "script"
        self.loads += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data", "poster")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "style":
            self.loads += re.findall(r"url\([^)]*\)|@import.*", data)
        elif self.open and self.open[-1] != "script":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def values(figure: Any, name: str) -> dict[str, Any]:
    """The trace of this name as plain values."""
    return next(t for t in json.loads(figure.to_json())["data"] if t.get("name") == name)


def lines(figure: Any) -> list[float]:
    """Heights of the horizontal lines."""
    return [shape["y0"] for shape in json.loads(figure.to_json())["layout"]["shapes"]]


def test_adversary_bars(report: dict[str, Any]) -> None:
    figure = figures.adversary_bars(report)
    for protocol, (name, _) in figures.PROTOCOLS.items():
        trace = values(figure, name)
        found = {
            a["adversary"]: a["balanced_accuracy"] for a in report["privacy"]["attacks"] if a["protocol"] == protocol
        }
        assert dict(zip(trace["x"], trace["y"], strict=True)) == {n: e["value"] for n, e in found.items()}
        bars = trace["error_y"]
        np.testing.assert_allclose(np.add(trace["y"], bars["array"]), [found[n]["high"] for n in trace["x"]])
        np.testing.assert_allclose(np.subtract(trace["y"], bars["arrayminus"]), [found[n]["low"] for n in trace["x"]])
    assert lines(figure) == [report["privacy"]["chance"], report["privacy"]["null"]["fresh"]]


def test_leak_curve(report: dict[str, Any]) -> None:
    figure = figures.leak_curve(report)
    trace = values(figure, "boosting adversary")
    assert trace["x"] == [n for n, _ in report["privacy"]["curve"][1]]
    assert trace["y"] == [e["value"] for _, e in report["privacy"]["curve"][1]]
    assert lines(figure) == [report["privacy"]["chance"]]


def test_row_map(report: dict[str, Any]) -> None:
    data = json.loads(figures.row_map(report).to_json())["data"]
    picture, k = report["picture"], len(report["about"]["classes"])
    panels = [("before", "classes"), ("after", "classes"), ("counterfactual", "targets")]
    for i, (name, codes) in enumerate(panels):
        for c in range(k):
            trace = data[i * k + c]
            expected = [p for p, code in zip(picture[name], picture[codes], strict=True) if code == c]
            assert [list(p) for p in zip(trace["x"], trace["y"], strict=True)] == expected
            assert trace["name"] == report["about"]["classes"][c]
    arrows = data[-1]
    n = picture["trajectories"]
    assert [list(p) for p in zip(arrows["x"][0::3], arrows["y"][0::3], strict=True)] == picture["before"][:n]
    assert [list(p) for p in zip(arrows["x"][1::3], arrows["y"][1::3], strict=True)] == picture["counterfactual"][:n]
    assert set(arrows["x"][2::3]) == {None}


def test_layer_curves(report: dict[str, Any]) -> None:
    figure = figures.layer_curves(report)
    curves = [(t["name"], t["y"]) for t in json.loads(figure.to_json())["data"] if t["name"] != "quadratic adversary"]
    classes = report["about"]["classes"]
    assert curves == [pair for rows in report["diagnostics"]["negentropy"].values()
                      for pair in zip(classes, rows, strict=True)]  # fmt: skip
    leak = values(figure, "quadratic adversary")
    assert [list(p) for p in zip(leak["x"], leak["y"], strict=True)] == report["layers"]
    assert len(json.loads(figures.layer_curves(report | {"diagnostics": None}).to_json())["data"]) == 1
    assert len(figures.layer_curves(report | {"layers": None}).data) == 2 * len(report["about"]["classes"])


def test_audit_plane(report: dict[str, Any]) -> None:
    figure = figures.audit_plane(report)
    before, after = values(figure, "before erasure"), values(figure, "after erasure")
    best = {p: max(a["balanced_accuracy"]["value"] for a in report["privacy"]["attacks"] if a["protocol"] == p)
            for p in ("before", "fresh")}  # fmt: skip
    assert (before["x"], before["y"]) == ([1.0], [best["before"]])
    assert (after["x"], after["y"]) == ([0.9], [best["fresh"]])  # the better of the two readers
    arrow = figure.layout.annotations[0]
    assert (arrow.x, arrow.y, arrow.ax, arrow.ay) == (0.9, best["fresh"], 1.0, best["before"])


def test_comparison_plane(report: dict[str, Any]) -> None:
    other = copy.deepcopy(report)
    other["utility"]["reconstruction"][0]["r2"] = estimate(0.97)
    figure = figures.comparison_plane({"mute": report, "other": other})
    assert [values(figure, name)["x"] for name in ("mute", "other")] == [[0.9], [0.97]]
    assert figures.comparison_plane({}) is None


@pytest.mark.parametrize(("make", "across"), [(figures.frontier_plane, "r2"), (figures.frontier_task, "task_accuracy")])
def test_frontier_figures(make: Callable[..., Any], across: str) -> None:
    """Every point is drawn once for its family, with its interval; chosen points have rings, the budget is shaded."""
    found = made_frontier()
    drawn = json.loads(make(found).to_json())
    lines = [t for t in drawn["data"] if t["mode"] == "lines+markers"]
    assert [t["name"] for t in lines] == ["mute", "mute", "leace", "leace"]
    assert [t["line"]["color"] for t in lines] == [c for c in figures.PALETTE[:2] for _ in "nc"], "a colour a method"
    for trace, family in zip(lines, found["frontier"]["families"] * 2, strict=True):
        kinds = ("lossless", family)
        mine = [row for row in found["rows"] if row["method"] == trace["name"] and row["family"] in kinds]
        values = [row[across] for row in mine]
        assert trace["x"] == [v["value"] if isinstance(v, dict) else v for v in values]
        assert trace["y"] == [row["leak"]["value"] for row in mine]
        np.testing.assert_allclose(np.add(trace["y"], trace["error_y"]["array"]), [row["leak"]["high"] for row in mine])
        assert ("error_x" in trace) == (across == "task_accuracy")
        assert trace["marker"]["symbol"][0] == "star" and len(set(trace["marker"]["symbol"][1:])) == 1
    symbols = {t["marker"]["symbol"][1] for t in lines}
    assert len(symbols) == 2, "a marker a family"
    rings = next(t for t in drawn["data"] if t["name"].startswith("chosen"))
    assert rings["y"] == [row["leak"]["value"] for row in found["rows"] if row["chosen"]]
    zone = next(s for s in drawn["layout"]["shapes"] if s["type"] == "rect")
    assert zone["y1"] == 0.05 and zone["y0"] < 0
    assert make({**found, "rows": []}) is None


def test_frontier_without_a_task_has_one_figure() -> None:
    found = made_frontier(task=False)
    assert figures.frontier_task(found) is None
    assert frontier_page(found).count('<div id="plot-') == 1


def test_rate_gaps(report: dict[str, Any]) -> None:
    task = report["task"]
    task["before"]["tpr"][0][1] = None
    # A label that only one predictor ever names is a label of that predictor only.
    task["after"]["labels"].append("clerk")
    for rates in task["after"]["tpr"]:
        rates.append(None)
    figure = figures.rate_gaps(report)
    two = len(report["about"]["classes"]) == 2
    for name in ("before", "after"):
        trace = values(figure, f"{name} erasure")
        for label, found in zip(trace["text"], trace["x"], strict=True):
            rates = [r[LABELS.index(label)] for r in task[name]["tpr"]]
            known = [r for r in rates if r is not None]
            assert found == (rates[0] - rates[1] if two else max(known) - min(known))
    assert set(trace["text"]) == set(LABELS) - ({"surgeon"} if two else set())
    before = values(figure, "before erasure")["x"]
    assert before == sorted(before)


def test_routing_map(report: dict[str, Any]) -> None:
    figure = figures.routing_map(report)
    assert json.loads(figure.to_json())["data"][0]["z"] == report["routing"]["confusion"]
    assert list(figure.layout.xaxis.ticktext) == report["about"]["classes"]


def test_kept_bars(report: dict[str, Any]) -> None:
    figure = figures.kept_bars(report)
    read = values(figure, "variance read back")
    shown = dict(zip(read["y"], read["x"], strict=True))
    assert shown == {
        "rows, by ridge": 0.81, "rows, by network": 0.9,
        "within classes, by ridge": 0.86, "within classes, by network": 0.93,
    }  # fmt: skip
    near = values(figure, "neighbours kept, above chance")
    assert dict(zip(near["y"], near["x"], strict=True)) == {
        "nearest 50 %": 0.81,
        "nearest 10 %": 0.71,
        "nearest 1 %": 0.62,
    }


def test_estimates_without_an_interval(report: dict[str, Any]) -> None:
    for attack in report["privacy"]["attacks"]:
        attack["balanced_accuracy"] |= {"low": None, "high": None}
    assert values(figures.adversary_bars(report), "before erasure")["error_y"]["array"] == [None] * len(ADVERSARIES)


@pytest.mark.parametrize("draw", [figures.layer_curves, figures.rate_gaps, figures.routing_map])
def test_nothing_to_draw(draw: Callable[[dict[str, Any]], Any]) -> None:
    assert draw(bare_report()) is None


def test_audit_page(report: dict[str, Any]) -> None:
    page = audit_page(report)
    read = Reader(page)
    assert not read.open and not read.loads
    assert "Erased" in read.text
    for line in [*summary_of(report), *measurement_notes(report)]:
        assert " ".join(line.split()) in read.text
    order = [
        read.text.index(words) for words in (summary_of(report)[0], "At a glance", "What can be read", "How it was")
    ]
    assert order == sorted(order)
    assert page.count('<div id="plot-') == 8
    assert page == audit_page(report)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_missing_parts_are_left_out(n_classes: int) -> None:
    page = audit_page(bare_report(n_classes))
    text = Reader(page).text
    assert page.count('<div id="plot-') == 5
    for words in (
        "Task and fairness",
        "Counterfactuals",
        "as in the paper",
        "there and back",
        "after (training rows)",
        "Rows moved",
        "None",
    ):
        assert words not in text
    assert page.count("<table>") == 3


def test_labels_are_escaped() -> None:
    report = made_report(labels=(NASTY, "b"))
    report["about"]["classes"][0] = report["routing"]["classes"][0] = NASTY
    report["about"]["settings"]["router"] = NASTY
    report["about"]["eraser"] = f"MUtE {NASTY}"
    report["counterfactuals"][0]["source"] = NASTY
    for page in (audit_page(report), compare_page({NASTY: report}, {f"{NASTY}2": f"{NASTY} failed"}, title=NASTY)):
        assert NASTY not in page
        read = Reader(page)
        assert read.scripts == 2
        assert NASTY in read.text
    # plotly reads tags in labels itself.
    assert figures.routing_map(report).layout.xaxis.ticktext[0] == html.escape(NASTY)


def test_hostile_labels_in_markdown() -> None:
    """Tags, columns, emphasis, line breaks and control characters of a label stay text; a long label is shortened."""
    report = made_report()
    hostile = f"{NASTY}|*b*`c`[d](e)\n# f\x1b[31m"
    report["about"]["classes"] = report["routing"]["classes"] = [hostile, "x" * 10_000]
    report["counterfactuals"][0]["source"] = hostile
    report["about"]["eraser"] = hostile
    page = markdown_of(report)
    assert "<script" not in page and "\x1b" not in page and "\n# f" not in page and "x" * 100 not in page
    assert r"&lt;script>alert(1)&lt;/script>\|\*b\*\`c\`\[d\]" in page
    (row,) = (line for line in page.splitlines() if line.startswith("| &lt;script"))
    other = next(line for line in page.splitlines() if line.startswith("| male → "))
    columns = [len(re.findall(r"(?<!\\)\|", line)) for line in (row, other)]
    assert columns[0] == columns[1], "a pipe in a label opens no column"
    assert len(Reader(audit_page(report)).text) < 100_000


def test_compare_page(report: dict[str, Any]) -> None:
    leaky = copy.deepcopy(report)
    leaky["decision"] |= {"name": "leaks"}
    bare = copy.deepcopy(report) | {"task": None}
    page = compare_page({"mute": report, "leace": leaky, "plain": bare}, {"inlp": "ran out of memory"}, "Trade-off")
    read = Reader(page)
    assert not read.open and not read.loads
    assert "inlp : ran out of memory" in read.text
    assert "2 of 3 methods erase the concept" in read.text
    assert "1 could not be judged: inlp." in read.text
    assert page.count('<div id="plot-') == 1
    assert "None" not in read.text


def test_the_strongest_adversary_comes_first_everywhere(report: dict[str, Any]) -> None:
    """Also in a report whose attacks are in another order."""
    strongest = ADVERSARIES[-1]
    assert report["privacy"]["attacks"][0]["adversary"] != strongest
    assert summary_of(report)[0].startswith(f"After erasure the strongest adversary, {strongest},")
    tables = markdown_of(report).partition("## What can be read\n\n")[2].splitlines()
    assert tables[2].startswith(f"| {strongest} | after (unseen rows) |")
    table = comparison_table({"mute": report})
    assert table.head[2:4] == ("strongest adversary", "it reads, unseen rows") and table.rows[0][2] == strongest


@pytest.mark.parametrize("name", ["erased", "leaks", "not erased", "too few rows to say"])
def test_the_words_of_the_project(report: dict[str, Any], name: str) -> None:
    report["decision"]["name"] = name
    report["about"]["oracle"] = True
    pages = [audit_page(report), compare_page({"mute": report}, {})]
    said = [*(Reader(page).text for page in pages), markdown_of(report), markdown_of(bare_report())]
    said += [json.dumps(json.loads(figure.to_json())) for figure in map(figures.adversary_bars, [report])]
    for words in ("rows of the fit", "fit's rows", "rows at hand", " told ", "guessing"):
        assert not [text for text in said if words in text]


def test_frontier_page() -> None:
    found = made_frontier(("mute", NASTY))
    found["failures"] = {"inlp": f"{NASTY} ran out of memory"}
    page = frontier_page(found)
    read = Reader(page)
    assert not read.open and not read.loads and NASTY not in page and read.scripts == 2
    assert page.count('<div id="plot-') == 2 and page.count("<tr>") == 1 + len(found["rows"])
    assert read.text.startswith("Frontier of leak and R²")
    assert "mute: 2 of 5 measured points keep the budget of 5 points. The one with the largest R²" in read.text
    assert "noise with share 0.3, leaves R² 0.27" in read.text
    assert "1 could not be measured: inlp." in read.text and "ran out of memory" in read.text
    assert "None" not in read.text


def test_compare_page_where_everything_failed() -> None:
    page = compare_page({}, {"inlp": "ran out of memory"})
    assert "ran out of memory" in Reader(page).text
    assert "<table>" not in page and '<div id="plot-' not in page


@pytest.mark.parametrize("package", ["plotly", "jinja2"])
def test_missing_package(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = [name for name in sys.modules if name.split(".")[0] == package]
    for name in {package, *hidden}:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MuteError, match=rf'needs {package}.*mute-erasure\[report\]"'):
        audit_page(made_report())
    with pytest.raises(MuteError, match=f"needs {package}"):
        require_libraries()


CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# Runs before everything else on the page and leaves what it saw where `--dump-dom` shows it.
PROBE = """<script>
const trouble = [];
addEventListener("error", event => trouble.push(String(event.message)), true);
addEventListener("securitypolicyviolation", event => trouble.push(event.blockedURI));
addEventListener("load", () => setTimeout(() => {
  const found = {
    trouble,
    requests: performance.getEntriesByType("resource").map(entry => entry.name),
    drawn: [...document.querySelectorAll("[id^=plot-]")].filter(
      place => place.querySelector(".main-svg")?.getBoundingClientRect().width > 300).length,
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  };
  const note = document.createElement("pre");
  note.id = "found";
  note.textContent = JSON.stringify(found);
  document.body.append(note);
}, 500));
</script>"""


@pytest.fixture
def browser(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    if CHROMIUM is None:
        pytest.skip(
            "no Chromium here (chromium, chromium-browser, google-chrome): the page was not opened in a browser"
        )

    def run(page: str, *options: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "page.html").write_text(page, encoding="utf-8")
        fixed = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run",
                 "--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr", "--window-size=1280,3000",
                 f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=10000")  # fmt: skip
        command = [CHROMIUM, *fixed, *options, (tmp_path / "page.html").as_uri()]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, cwd=tmp_path)

    return run


@pytest.mark.parametrize("kind", ["audit", "bare audit", "comparison", "frontier"])
def test_in_a_browser(kind: str, browser: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    if kind == "comparison":
        page, plots = compare_page({"mute": made_report(), NASTY: made_report()}, {"inlp": "failed"}), 1
    elif kind == "frontier":
        page, plots = frontier_page(made_frontier()), 2
    else:
        page, plots = (audit_page(made_report(3)), 8) if kind == "audit" else (audit_page(bare_report()), 5)
    shown = browser(page.replace("<title>", PROBE + "<title>", 1), "--dump-dom")
    found = json.loads(html.unescape(re.search(r'<pre id="found">(.*?)</pre>', shown.stdout, re.DOTALL)[1]))
    assert found == {"trouble": [], "requests": [], "drawn": plots, "overflow": 0}
    assert "CONSOLE" not in shown.stderr


def test_screenshot_and_print(tmp_path: Path, browser: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    page = audit_page(made_report())
    browser(page, "--screenshot=shot.png")
    browser(page, "--print-to-pdf=page.pdf", "--no-pdf-header-footer")
    # An empty sheet is a tenth of either.
    assert (tmp_path / "shot.png").stat().st_size > 100_000
    assert (tmp_path / "page.pdf").stat().st_size > 100_000
