"""What the section about erasure on unseen rows shows: two answers, its figures, a table for each data set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mute.paper.figures import save_with_legend
from mute.paper.fresh import (
    COLOURS,
    CONFIRMING,
    CURVES,
    ENTRIES,
    KNOBS,
    MARKS,
    NO_LEAK,
    RIVALS,
    SLOW_RIVALS,
    SYNTHETIC,
    left_out,
)
from mute.typing import Foreign, Json

__all__ = [
    "TITLES",
    "Point",
    "as_good",
    "fresh_values",
    "interval",
    "leak_shown",
    "points_of",
    "share_lowered",
    "worse_anywhere",
]

TITLES = {
    "glove": "words", "bios": "sentences", SYNTHETIC: "synthetic", "word2vec": "other words", "jigsaw": "occupations"
}  # fmt: skip

# Rows of a class for each column where the default is compared with the paper's MUtE, and how much less it is to leak.
_RATIO, _AIM = 36, 0.5

_GREY = "#858585"
_LEAK_AXIS = "leak: strongest of five adversaries, minus chance"
# Points of one method that are joined in the trade-off: title, colour, mark and line.
_JOINED = (
    ("MUtE, 4, 10 layers", "mute", "o", "-", ("mute-4", "mute-10")),
    ("the paper's MUtE, 4, 10 layers", "mute-paper", "s", "-", ("mute-paper-4", "mute-paper-10", "mute-paper")),
    ("MUtE of 70, 50 % of the components", "mute", "p", ":", ("mute", "pca-70", "pca-50")),
    ("MUtE, noise of 0.1, 0.3", "mute", "X", "--", ("mute", "noise-1", "noise-3")),
)

# Results of one method at one point, by seed; and of all methods at all points.
Values = dict[int, Json]
Points = dict["Point", dict[str, Values]]


@dataclass(frozen=True)
class Point:
    """One place on the axes: a data set, its columns, and the rows to fit on."""

    problem: str
    columns: int
    rows: int
    class_rows: int

    @property
    def title(self) -> str:
        return f"{TITLES[self.problem]}, D = {self.columns}, n = {self.rows:,}"


def points_of(found: Iterable[Json]) -> Points:
    """Results of the study: at every point, of every method, by seed."""
    points: Points = {}
    order = list(TITLES)
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


def _shown(found: Sequence[float]) -> str:
    if not found:
        return "–"
    mean, reach = interval(found)
    return f"{mean:.3f}" + ("" if np.isnan(reach) else f" ± {reach:.3f}")


def leak_shown(values: Values) -> str:
    """Mean leak and its interval."""
    return _shown(_of(values, "leak"))


def share_lowered(points: Points) -> list[tuple[Point, float]]:
    """For each data set, by which share the default lowers the mean leak of the paper's MUtE at one point.

    It is the point where a class has nearest to 36 rows for each column.
    """
    answers = []
    for problem in dict.fromkeys(point.problem for point in points):
        mine = [p for p in points if p.problem == problem and {"mute", "mute-paper"} <= points[p].keys()]
        if mine:
            nearest = min(mine, key=lambda p: abs(p.class_rows / p.columns - _RATIO))
            ours, theirs = (float(np.mean(_of(points[nearest][label], "leak"))) for label in ("mute", "mute-paper"))
            answers.append((nearest, 1 - ours / theirs if theirs > 0 else float("nan")))
    return answers


def as_good(points: Points) -> list[tuple[Point, str, float, float]]:
    """At every point: the better of the paper's MUtE and QLEACE, and how much more the default leaks.

    The last number is the reach of the interval of this difference by seed. The default is worse where the difference
    minus the reach is above 0.
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


def fresh_values(found: Iterable[Json], folder: Path) -> Json:
    """What the page shows; writes its figures to `folder`."""
    points = points_of(found)
    by_rows = {title: [p for p in points if p.problem == name] for name, title in TITLES.items() if name != SYNTHETIC}
    by_rows["synthetic"] = _commonest(points, "columns")
    by_rows = {title: mine for title, mine in by_rows.items() if mine}
    by_columns = _commonest(points, "rows")
    by_columns = by_columns if len(by_columns) > 1 else []
    all_rows = [p for p in points if KNOBS.keys() & points[p].keys()]
    drawn = {}
    for confirming, name, title in (
        (False, "fresh-rows.png", "Leak on unseen rows by the training rows"),
        (True, "fresh-confirmed.png", "The same on data on which nothing was chosen"),
    ):
        panels = [
            (f"{TITLES[mine[0].problem]}, D = {mine[0].columns}", mine, [p.rows for p in mine])
            for mine in by_rows.values()
            if (mine[0].problem in CONFIRMING) == confirming
        ]
        if panels:
            _curves(points, panels, "rows to fit on (n)", folder / name)
            drawn[name] = title
    if by_columns:
        panels = [(f"synthetic, n = {by_columns[0].rows:,}", by_columns, [p.columns for p in by_columns])]
        _curves(points, panels, "columns (D)", folder / "fresh-columns.png")
        drawn["fresh-columns.png"] = "Leak on unseen rows by the columns"
    if all_rows:
        _tradeoff(points, all_rows, folder / "fresh-tradeoff.png")
        drawn["fresh-tradeoff.png"] = "Leak on unseen rows against what is kept"
    tables = by_rows | ({"synthetic, by columns": by_columns} if by_columns else {})
    return {
        "left_out": left_out(),
        "points": points,
        "ratio": _RATIO,
        "aim": _AIM,
        "lowered": share_lowered(points),
        "worse": worse_anywhere(points),
        "drawn": drawn,
        "by_rows": {title: _by_rows(points, mine) for title, mine in tables.items()},
        "at": {point.title: _at(points[point]) for point in all_rows},
    }


def _commonest(points: Iterable[Point], what: str) -> list[Point]:
    """The synthetic points with the number of rows or columns that most of them have."""
    made = [p for p in points if p.problem == SYNTHETIC]
    sizes = [getattr(p, what) for p in made]
    return [p for p in made if getattr(p, what) == max(sizes, key=sizes.count)]


def worse_anywhere(points: Points) -> tuple[str, list[tuple[str, ...]]]:
    """Whether the default is worse than the better of its rivals anywhere, in a sentence and as rows of a table."""
    answers = as_good(points)
    cells: list[tuple[str, ...]] = []
    for p, rival, more, reach in answers:
        once = np.isnan(reach)
        answer = "one run cannot tell" if once else "yes" if more - reach > 0 else "no"
        cells.append((p.title, ENTRIES[rival].title, f"{more:+.3f}" + ("" if once else f" ± {reach:.3f}"), answer))
    worse = [title for title, *_, answer in cells if answer == "yes"]
    if worse:
        return f"Yes, at {len(worse)} of {len(answers)}: {'; '.join(worse)}.", cells
    return "One run cannot tell." if any(np.isnan(reach) for *_, reach in answers) else "No.", cells


def _by_rows(points: Points, mine: list[Point]) -> tuple[str, list[str], list[list[str]]]:
    """How many rows were judged; and leak and R² of every method at some points, as a table."""
    same = len({p.columns for p in mine}) == 1
    head, floor = ["method"], [ENTRIES[NO_LEAK].title]
    labels = [label for label in CURVES | RIVALS if any(label in points[p] for p in mine)]
    cells = [[ENTRIES[label].title] for label in labels]
    for p in mine:
        at = f"n = {p.rows:,}" if same else f"D = {p.columns}"
        head += [f"leak, {at}", f"R², {at}"]
        floor += [_shown(_no_leak(points, p)), "–"]
        for row, label in zip(cells, labels, strict=True):
            row += [_shown(_of(points[p].get(label, {}), key)) for key in ("leak", "kept")]
    judged = {v["judge_rows"] for p in mine for values in points[p].values() for v in values.values()}
    return " or ".join(f"{n:,}" for n in sorted(judged)), head, [*cells, floor]


def _at(methods: dict[str, Values]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Every method and setting at one point, with what each adversary reads, as a table."""
    adversaries = list(next(iter(next(iter(methods.values())).values()))["balanced_accuracy"])
    cells = []
    for label in (*CURVES, *RIVALS, *SLOW_RIVALS, *KNOBS, NO_LEAK):
        if label in methods:
            values = methods[label]
            leak, kept = (_shown(_of(values, key)) for key in ("leak", "kept"))
            read = [[values[s]["balanced_accuracy"][name] for s in sorted(values)] for name in adversaries]
            layers, seconds = (_of(values, key) for key in ("layers", "fit_seconds"))
            end = (f"{np.mean(layers):.0f}" if layers else "–", f"{np.mean(seconds):.1f}" if seconds else "–")
            shown = (leak, "–" if label == NO_LEAK else kept, *(f"{np.mean(one):.3f}" for one in read))
            cells.append((ENTRIES[label].title, *shown, *end))
    return ("method", "leak", "R²", *adversaries, "layers", "fit, s"), cells


def _no_leak(points: Points, point: Point) -> list[float]:
    """What is read from noise of as many columns, with the same labels."""
    same = [p for p in points if (p.problem, p.columns) == (point.problem, point.columns)]
    return [leak for p in same for leak in _of(points[p].get(NO_LEAK, {}), "leak")]


def _root_scale(axes: Foreign) -> None:
    """An axis that shows differences of leaks near 0 and leaks of untouched rows."""
    axes.set_yscale(
        "function", functions=(lambda y: np.sign(y) * np.sqrt(np.abs(y)), lambda y: np.sign(y) * np.square(y))
    )
    ticks = (0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8)
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_ylim(-0.01, 0.85)
    axes.grid(axis="y", alpha=0.3, lw=0.5)
    axes.spines[["top", "right"]].set_visible(False)


def _style(label: str) -> Json:
    mine = label in COLOURS
    return {
        "color": COLOURS.get(label, _GREY),
        "marker": MARKS[label],
        "ms": 8 if label == "mute" else 6,
        "lw": 3 if label == "mute" else 1.6 if mine else 0.9,
        "ls": {"mute-routed": "--", "mute-unlabelled": "-.", "mute-adapted": ":", "none": ":"}.get(label, "-"),
        "zorder": 5 if label == "mute" else 3 if mine else 2,
    }


def _reach(values: Sequence[float]) -> tuple[float, float]:
    mean, reach = interval(values)
    return mean, 0.0 if np.isnan(reach) else reach


def _curves(points: Points, panels: list[tuple[str, list[Point], list[int]]], title: str, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.3 * len(panels) + 2.6, 5.2), layout="constrained")
    for axes, (name, mine, where) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        places = list(zip(where, mine, strict=True))
        for label in CURVES:
            line = [(x, *_reach(_of(points[p][label], "leak"))) for x, p in places if label in points[p]]
            if line:
                x, y, reach = zip(*line, strict=True)
                axes.errorbar(x, y, yerr=reach, capsize=2, elinewidth=1, label=CURVES[label].title, **_style(label))
        floor = [(x, *_reach(_no_leak(points, p))) for x, p in places if _no_leak(points, p)]
        if floor:
            x, y, reach = np.transpose(floor)
            axes.fill_between(x, y - reach, y + reach, color="#F0E442", alpha=0.5, lw=0)
            axes.plot(x, y, color="#b3a500", lw=1.2, ls="-.", label=ENTRIES[NO_LEAK].title)
        axes.set_xscale("log")
        axes.set_xticks(where, [f"{n:,}" for n in where], rotation=0 if len(where) < 4 else 45)
        axes.minorticks_off()
        axes.set(title=name, xlabel=title)
        _root_scale(axes)
    figure.axes[0].set_ylabel(_LEAK_AXIS)
    save_with_legend(figure, path)


def _tradeoff(points: Points, mine: list[Point], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.4 * len(mine) + 3.0, 5.6), layout="constrained")
    for axes, point in zip(figure.subplots(1, len(mine), squeeze=False)[0], mine, strict=True):
        shown = {label: values for label, values in points[point].items() if label != NO_LEAK}
        where = {label: (_reach(_of(v, "kept")), _reach(_of(v, "leak"))) for label, v in shown.items()}
        for title, family, mark, style, members in _JOINED:
            line = [(where[m][0][0], where[m][1][0]) for m in members if m in where]
            if line:
                looks = {"color": COLOURS[family], "marker": mark, "ms": 5, "mfc": "white", "lw": 1, "ls": style}
                axes.plot(*zip(*line, strict=True), **looks, zorder=2, label=title)
        for label in CURVES | RIVALS | SLOW_RIVALS:
            if label in where:
                (x, dx), (y, dy) = where[label]
                looks = _style(label) | {"ls": "none", "lw": 1}
                axes.errorbar(x, y, xerr=dx, yerr=dy, elinewidth=1, label=ENTRIES[label].title, **looks)
                if label in SLOW_RIVALS:  # marks that differ little
                    looks = {"fontsize": 7, "color": _GREY, "ha": "right", "va": "center"}
                    axes.annotate(ENTRIES[label].title, (x, y), (-6, 0), textcoords="offset points", **looks)
        floor = _no_leak(points, point)
        if floor:
            axes.axhline(np.mean(floor), color="#b3a500", lw=1.2, ls="-.", label=ENTRIES[NO_LEAK].title)
        axes.set(title=point.title, xlabel="kept: R² of a linear reader, unseen rows")
        _root_scale(axes)
    figure.axes[0].set_ylabel(_LEAK_AXIS)
    save_with_legend(figure, path)
