"""The section about erasure on new rows: two answers, three figures, a table for each data set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mute.evaluation.report import _table
from mute.paper.fresh import CONFIRMING, CURVES, ENTRIES, KNOBS, NO_LEAK, RIVALS, SLOW_RIVALS, SYNTHETIC, left_out
from mute.paper.running import Results

__all__ = ["Point", "as_good", "fresh_section", "interval", "points_of", "share_lowered"]

_TITLES = {
    "glove": "words", "bios": "sentences", SYNTHETIC: "synthetic", "word2vec": "other words", "jigsaw": "occupations"
}  # fmt: skip

# Rows of a class for each column, where the default is held against the paper's MUtE, and by how much it is to be less.
_RATIO, _AIM = 36, 0.5

# Okabe and Ito's colours, which the colour-blind can tell apart; other methods differ by their marks.
_COLOURS = {
    "mute": "#0072B2", "mute-routed": "#56B4E9", "mute-unlabelled": "#56B4E9", "mute-adapted": "#0072B2",
    "mute-paper": "#D55E00", "qleace": "#009E73", "leace": "#CC79A7", "none": "#000000",
}  # fmt: skip
_GREY = "#858585"
_MARKS = {
    "mute": "o", "mute-routed": "o", "mute-unlabelled": "h", "mute-adapted": "d", "mute-paper": "s",
    "qleace": "D", "leace": "^", "none": ".",
    "leace-oracle": "v", "leace-freeform": "<", "pef": "X", "taco": "*", "linear-ot": "p", "cfr": ">",
    "inlp": "1", "rlace": "2", "kernel": "3", "reversal": "4", "farm": "P", "kram": "H", "leopard": "+",
    "leopard-cascaded": "x",
}  # fmt: skip

# Points of one method that are joined in the trade-off, and their marks.
_JOINED = {
    "mute-layers": ("mute", "o", ("mute-4", "mute-10")),
    "mute-paper-layers": ("mute-paper", "s", ("mute-paper-4", "mute-paper-10", "mute-paper")),
    "pca": ("mute", "p", ("mute", "pca-70", "pca-50")),
    "noise": ("mute", "X", ("mute", "noise-1", "noise-3")),
}

Values = dict[int, dict[str, Any]]


@dataclass(frozen=True)
class Point:
    """One place on the axes: a data set, its columns, and the rows to fit on."""

    problem: str
    columns: int
    rows: int
    class_rows: int

    @property
    def title(self) -> str:
        return f"{_TITLES[self.problem]}, D = {self.columns}, n = {self.rows:,}"


def points_of(found: Iterable[dict[str, Any]]) -> dict[Point, dict[str, Values]]:
    """Results of the study: at every point, of every method, by seed."""
    points: dict[Point, dict[str, Values]] = {}
    order = list(_TITLES)
    mine = [row for row in found if row["job"] == "fresh"]
    for row in sorted(mine, key=lambda row: (order.index(row["problem"]), row["result"]["columns"], row["rows"])):
        result = row["result"]
        point = Point(row["problem"], result["columns"], row["rows"], result["class_rows"])
        points.setdefault(point, {}).setdefault(row["label"], {})[row["seed"]] = result
    return points


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean, and how far its 95 % interval of Student's t reaches to either side; one run has none (NaN)."""
    from scipy.stats import t

    mean, n = float(np.mean(values)), len(values)
    if n == 1:
        return mean, float("nan")
    return mean, float(t.ppf(0.975, n - 1) * np.std(values, ddof=1) / np.sqrt(n))


def _of(values: Values, key: str) -> list[float]:
    return [values[seed][key] for seed in sorted(values) if values[seed][key] is not None]


def _shown(found: Sequence[float], digits: int = 3, form: str = "f") -> str:
    if not found:
        return "–"
    mean, reach = interval(found)
    return f"{mean:.{digits}{form}}" + ("" if np.isnan(reach) else f" ± {reach:.{digits}{form}}")


def share_lowered(points: dict[Point, dict[str, Values]]) -> list[tuple[Point, float]]:
    """Of each data set, the point where a class has nearest to 36 rows for each column.

    And there, the share by which the default lowers the mean leak of the paper's MUtE.
    """
    answers = []
    for problem in dict.fromkeys(point.problem for point in points):
        mine = [p for p in points if p.problem == problem and {"mute", "mute-paper"} <= points[p].keys()]
        if mine:
            nearest = min(mine, key=lambda p: abs(p.class_rows / p.columns - _RATIO))
            ours, theirs = (float(np.mean(_of(points[nearest][label], "leak"))) for label in ("mute", "mute-paper"))
            answers.append((nearest, 1 - ours / theirs if theirs > 0 else float("nan")))
    return answers


def as_good(points: dict[Point, dict[str, Values]]) -> list[tuple[Point, str, float, float]]:
    """At every point: the better of the paper's MUtE and QLEACE, and by how much the default leaks more, by seed.

    Each is (point, label of the rival, mean difference, how far its interval reaches). The default is worse where
    difference less reach is above 0.
    """
    answers: list[tuple[Point, str, float, float]] = []
    for point, methods in points.items():
        rivals = [label for label in ("mute-paper", "qleace") if label in methods]
        if "mute" not in methods or not rivals:
            continue
        best = min(rivals, key=lambda label: float(np.mean(_of(methods[label], "leak"))))
        both = sorted(methods["mute"].keys() & methods[best].keys())
        if both:
            more = [methods["mute"][seed]["leak"] - methods[best][seed]["leak"] for seed in both]
            answers.append((point, best, *interval(more)))
    return answers


def fresh_section(results: Results, folder: Path) -> list[str]:
    """Lines of the page; writes its figures beside it."""
    points = points_of(results.found)
    lines = [
        "## Erasure on new rows",
        "",
        "Every method learns on the rows of the fit only. Other rows, erased, are split in two: adversaries (logistic, "
        "quadratic, nearest neighbours, boosted trees, the paper's network) learn on one half and are tested on the "
        "other. *Leak*: balanced accuracy of the best of them, less guessing (1/K). The best of several is above "
        "guessing by luck alone: *no leak* is what the same adversaries find in pure noise with the same labels. *R²*: "
        "share of the variance of the rows that a linear reader finds again in their erased versions, on new rows. "
        "Mean ± 95 % interval (Student's t) over the seeds, which differ in split, fit and adversaries. All classes "
        "have as many rows, in the fit and among the rows to judge with; fewer rows to fit on are a part of more.",
        "",
        "MUtE, the paper's MUtE, QLEACE, Linear OT, PEF and *LEACE, told* are told the classes of the rows they erase; "
        "*MUtE, routed* asks its router; the others do not need them. *Other rows unlabelled*: the fit has the rest of "
        "the rows as well, without labels. *Adapted*: adapted, with their labels, to the rows that are judged. "
        "The paper's MUtE has 100 layers on words, 70 on sentences, 150 on occupations, 20 on synthetic rows. "
        "Synthetic: three classes of correlated Gaussians, pushed through smooth "
        "increasing maps, with other means, covariances and skewness.",
        "",
        "*Other words* (word2vec, 300-d, gender) and *occupations* (the same sentences by five groups of occupations) "
        "confirm: nothing was chosen on them. Methods whose fits take minutes have one run, hence no interval.",
        "",
        "Left out: " + "; ".join(f"{name} ({why})" for name, why in left_out().items()) + ".",
    ]
    if not points:
        return [*lines, "", "No job has a result."]
    lines += ["", *_first_answer(points), "", *_second_answer(points)]
    by_rows = {
        title: mine
        for title, mine in (
            *((_TITLES[name], [p for p in points if p.problem == name]) for name in _TITLES if name != SYNTHETIC),
            ("synthetic", _most_frequent_columns(points)),
        )
        if mine
    }
    for confirming, name, title in (
        (False, "fresh-rows.png", "Leak on new rows by the rows of the fit"),
        (True, "fresh-confirmed.png", "The same on data on which nothing was chosen"),
    ):
        panels = [
            (f"{_TITLES[mine[0].problem]}, D = {mine[0].columns}", mine, [p.rows for p in mine])
            for mine in by_rows.values()
            if (mine[0].problem in CONFIRMING) == confirming
        ]
        if panels:
            _curves(points, panels, "rows to fit on (n)", folder / name)
            lines += ["", f"![{title}]({name})"]
    by_columns = _same_rows(points)
    if by_columns:
        panels = [(f"synthetic, n = {by_columns[0].rows:,}", by_columns, [p.columns for p in by_columns])]
        _curves(points, panels, "columns (D)", folder / "fresh-columns.png")
        lines += ["", "![Leak on new rows by the columns](fresh-columns.png)"]
    all_rows = [p for p in points if KNOBS.keys() & points[p].keys()]
    if all_rows:
        _tradeoff(points, all_rows, folder / "fresh-tradeoff.png")
        lines += ["", "![Leak on new rows against what is kept](fresh-tradeoff.png)"]
    for title, mine in by_rows.items():
        lines += ["", f"### {title}", "", *_by_rows(points, mine)]
    if by_columns:
        lines += ["", "### synthetic, by columns", "", *_by_rows(points, by_columns)]
    for point in all_rows:
        lines += ["", f"### {point.title}: all settings", "", *_at(points[point], point)]
    return lines


def _most_frequent_columns(points: Iterable[Point]) -> list[Point]:
    """Synthetic points that differ in rows."""
    made = [p for p in points if p.problem == SYNTHETIC]
    columns = [p.columns for p in made]
    return [p for p in made if p.columns == max(columns, key=columns.count)]


def _same_rows(points: Iterable[Point]) -> list[Point]:
    """Synthetic points that differ in columns."""
    made = [p for p in points if p.problem == SYNTHETIC]
    rows = [p.rows for p in made]
    return [p for p in made if p.rows == max(rows, key=rows.count) and rows.count(p.rows) > 1]


def _first_answer(points: dict[Point, dict[str, Values]]) -> list[str]:
    cells = [
        (
            p.title,
            f"{p.class_rows / p.columns:.0f}",
            *(_shown(_of(points[p][label], "leak")) for label in ("mute-paper", "mute")),
            f"{share:.0%}",
            "yes" if share >= _AIM else "no",
        )
        for p, share in share_lowered(points)
    ]
    head = ("at", "rows of a class for each column", "the paper's MUtE", "MUtE", "lowered by", "by half")
    return [
        f"**Does the default halve the paper's excess over guessing?** Where a class has nearest to {_RATIO} rows for "
        "each column:",
        "",
        *_table(head, cells),
    ]


def _second_answer(points: dict[Point, dict[str, Values]]) -> list[str]:
    answers = as_good(points)
    worse = [p.title for p, _, more, reach in answers if more - reach > 0]
    cells = [
        (
            p.title,
            ENTRIES[rival].title,
            f"{more:+.3f}" + ("" if np.isnan(reach) else f" ± {reach:.3f}"),
            "one run cannot tell" if np.isnan(reach) else "yes" if more - reach > 0 else "no",
        )
        for p, rival, more, reach in answers
    ]
    told = [reach for _, _, _, reach in answers if not np.isnan(reach)]
    if worse:
        verdict = f"Yes, at {len(worse)} of {len(answers)}: {'; '.join(worse)}."
    else:
        verdict = "No." if len(told) == len(answers) else "One run cannot tell."
    return [
        "**Is the default worse than the better of the paper's MUtE and QLEACE anywhere,** beyond the interval of the "
        f"difference by seed? {verdict}",
        "",
        *_table(("at", "the better of the two", "MUtE leaks more by", "worse"), cells),
    ]


def _by_rows(points: dict[Point, dict[str, Values]], mine: list[Point]) -> list[str]:
    same = len({p.columns for p in mine}) == 1
    head = ["method"]
    for p in mine:
        at = f"n = {p.rows:,}" if same else f"D = {p.columns}"
        head += [f"leak, {at}", f"R², {at}"]
    cells = []
    for label in CURVES | RIVALS:
        if not any(label in points[p] for p in mine):
            continue
        row = [ENTRIES[label].title]
        for p in mine:
            values = points[p].get(label, {})
            row += [_shown(_of(values, "leak")), _shown(_of(values, "kept"))]
        cells.append(tuple(row))
    floor = [ENTRIES[NO_LEAK].title]
    for p in mine:
        floor += [_shown(_no_leak(points, p)), "–"]
    lines = _table(tuple(head), [*cells, tuple(floor)])
    judged = {v["judge_rows"] for p in mine for values in points[p].values() for v in values.values()}
    return [f"Judged on {' or '.join(f'{n:,}' for n in sorted(judged))} rows.", "", *lines]


def _at(methods: dict[str, Values], point: Point) -> list[str]:
    """Every method and setting at one point, with what each adversary reads."""
    adversaries = list(next(iter(next(iter(methods.values())).values()))["balanced_accuracy"])
    cells = []
    for label in (*CURVES, *RIVALS, *SLOW_RIVALS, *KNOBS, NO_LEAK):
        values = methods.get(label, {})
        if values:
            read = [[values[s]["balanced_accuracy"][name] for s in sorted(values)] for name in adversaries]
            cells.append(
                (
                    ENTRIES[label].title,
                    _shown(_of(values, "leak")),
                    _shown(_of(values, "kept")) if label != NO_LEAK else "–",
                    *(f"{np.mean(one):.3f}" for one in read),
                    "–" if not _of(values, "layers") else f"{np.mean(_of(values, 'layers')):.0f}",
                    "–" if not _of(values, "fit_seconds") else f"{np.mean(_of(values, 'fit_seconds')):.1f}",
                )
            )
    return _table(("method", "leak", "R²", *adversaries, "layers", "fit, s"), cells)


def _no_leak(points: dict[Point, dict[str, Values]], point: Point) -> list[float]:
    """What is found in noise of as many columns, with the same labels."""
    same = [p for p in points if (p.problem, p.columns) == (point.problem, point.columns)]
    return [leak for p in same for leak in _of(points[p].get(NO_LEAK, {}), "leak")]


def _root_scale(axes: Any) -> None:
    """Leaks near 0 are told apart, and those of rows untouched are on the axes as well."""
    axes.set_yscale(
        "function", functions=(lambda y: np.sign(y) * np.sqrt(np.abs(y)), lambda y: np.sign(y) * np.square(y))
    )
    ticks = (0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8)
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_ylim(-0.01, 0.85)
    axes.grid(axis="y", alpha=0.3, lw=0.5)
    axes.spines[["top", "right"]].set_visible(False)


def _style(label: str) -> dict[str, Any]:
    mine = label in _COLOURS
    return {
        "color": _COLOURS.get(label, _GREY),
        "marker": _MARKS[label],
        "ms": 8 if label == "mute" else 6,
        "lw": 3 if label == "mute" else 1.6 if mine else 0.9,
        "ls": {"mute-routed": "--", "mute-unlabelled": "-.", "mute-adapted": ":", "none": ":"}.get(label, "-"),
        "zorder": 5 if label == "mute" else 3 if mine else 2,
    }


def _reach(values: Sequence[float]) -> tuple[float, float]:
    mean, reach = interval(values)
    return mean, 0.0 if np.isnan(reach) else reach


def _curves(
    points: dict[Point, dict[str, Values]], panels: list[tuple[str, list[Point], list[int]]], title: str, path: Path
) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.3 * len(panels) + 2.6, 5.2), layout="constrained")
    for axes, (name, mine, where) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for label in CURVES:
            line = [(x, *_reach(_of(points[p][label], "leak"))) for x, p in zip(where, mine, strict=True)
                    if label in points[p]]  # fmt: skip
            if line:
                x, y, reach = zip(*line, strict=True)
                axes.errorbar(x, y, yerr=reach, capsize=2, elinewidth=1, label=CURVES[label].title, **_style(label))
        floor = [(x, *_reach(_no_leak(points, p))) for x, p in zip(where, mine, strict=True) if _no_leak(points, p)]
        if floor:
            x_floor, low, high = zip(*((x, y - reach, y + reach) for x, y, reach in floor), strict=True)
            axes.fill_between(x_floor, low, high, color="#F0E442", alpha=0.5, lw=0)
            axes.plot(x_floor, [y for _, y, _ in floor], color="#b3a500", lw=1.2, ls="-.", label=ENTRIES[NO_LEAK].title)
        axes.set_xscale("log")
        axes.set_xticks(where, [f"{n:,}" for n in where], rotation=0 if len(where) < 4 else 45)
        axes.minorticks_off()
        axes.set(title=name, xlabel=title)
        _root_scale(axes)
    figure.axes[0].set_ylabel("leak: best of five adversaries, less guessing")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=9)
    figure.savefig(path, dpi=110)


def _tradeoff(points: dict[Point, dict[str, Values]], mine: list[Point], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.4 * len(mine) + 3.0, 5.6), layout="constrained")
    for axes, point in zip(figure.subplots(1, len(mine), squeeze=False)[0], mine, strict=True):
        methods = points[point]
        where = {
            label: (_reach(_of(values, "kept")), _reach(_of(values, "leak")))
            for label, values in methods.items()
            if label != NO_LEAK
        }
        for name, (family, mark, members) in _JOINED.items():
            line = [where[m] for m in members if m in where]
            if line:
                axes.plot(
                    [x for (x, _), _ in line], [y for _, (y, _) in line], color=_COLOURS[family], marker=mark, ms=5,
                    mfc="white", lw=1, ls={"pca": ":", "noise": "--"}.get(name, "-"), zorder=2,
                    label={"mute-layers": "MUtE, 4, 10 layers", "pca": "MUtE of 70, 50 % of the components",
                           "noise": "MUtE, noise of 0.1, 0.3"}.get(name, "the paper's MUtE, 4, 10 layers"),
                )  # fmt: skip
        for label in CURVES | RIVALS | SLOW_RIVALS:
            if label in where:
                (x, dx), (y, dy) = where[label]
                style = _style(label) | {"ls": "none", "lw": 1}
                axes.errorbar(x, y, xerr=dx, yerr=dy, elinewidth=1, label=ENTRIES[label].title, **style)
                if label in SLOW_RIVALS:  # marks that differ little
                    axes.annotate(
                        ENTRIES[label].title, (x, y), (-6, 0), textcoords="offset points", fontsize=7, color=_GREY,
                        ha="right", va="center",
                    )  # fmt: skip
        floor = _no_leak(points, point)
        if floor:
            axes.axhline(np.mean(floor), color="#b3a500", lw=1.2, ls="-.", label=ENTRIES[NO_LEAK].title)
        axes.set(title=point.title, xlabel="kept: R² of a linear reader, new rows")
        _root_scale(axes)
    figure.axes[0].set_ylabel("leak: best of five adversaries, less guessing")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=9)
    figure.savefig(path, dpi=110)
