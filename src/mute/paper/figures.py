"""The figures of the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mute.typing import Foreign, Json

__all__ = ["fairness", "save_with_legend", "texts", "tradeoff"]

_COLOURS = {
    "none": "#222222", "original": "#222222", "mute-paper": "#c2378a", "mute": "#7b2d8b", "mute-oracle": "#e377c2",
    "farm": "#2f7fbf", "kram": "#17a2a2", "leace": "#d9622b", "qleace": "#3a923a", "taco": "#8c6d31",
    "leopard-cascaded": "#b8a11a", "duplicate": "#888888", "mean-difference": "#d9622b", "linear-ot-paper": "#2f7fbf",
    "linear-ot": "#17a2a2", "mute-disjoint": "#c2378a",
}  # fmt: skip
_GREY = "#b5b5b5"

# Points of one method that are joined: TaCo by what it drops, the paper's MUtE by its layers.
_CURVES = {
    "taco": ("taco-5", "taco-25", "taco", "taco-75", "taco-95"),
    "mute-paper": ("mute-5", "mute-20", "mute-50", "mute-paper"),
}


def save_with_legend(figure: Foreign, path: Path, size: int = 9, title: str | None = None) -> None:
    """Write a figure with the legend of its first panel at its right side."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=size, title=title)
    figure.savefig(path, dpi=110)


def _mean(rows: list[Json], key: str) -> tuple[float, float]:
    values = [row[key] for row in rows]
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def tradeoff(panels: Json, names: dict[str, str], core: Sequence[str], path: Path) -> None:
    """A column for each data set: the paper's probe above, the strongest fresh adversary below."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.3 * len(panels) + 2.6, 7.6), layout="constrained")
    grid = figure.subplots(2, len(panels), squeeze=False)
    for column, (name, (about, found)) in enumerate(panels.items()):
        for axes, key, chance, title in (
            (grid[0, column], "probe_paper", about["majority"], "one network (the paper's probe), training rows"),
            (grid[1, column], "strong_fresh", 1 / about["classes"], "strongest of three, unseen rows"),
        ):
            axes.axhline(chance, color="#c0392b", lw=1)
            if "none" in found:
                axes.axhline(_mean(found["none"], key)[0], color="0.4", lw=1, ls=":")
            curves: dict[str, str] = {}
            for family, members in _CURVES.items():
                points = [m for m in members if m in found]
                points.sort(key=lambda m: found[m][0]["layers"] or 0)
                curves |= dict.fromkeys(points, _COLOURS[family])
                line = [(_mean(found[m], "kept")[0], _mean(found[m], key)[0]) for m in points]
                axes.plot(*zip(*line, strict=True), color=_COLOURS[family], lw=0.8, alpha=0.6, zorder=1)
            for label, rows in found.items():
                (x, dx), (y, dy) = _mean(rows, "kept"), _mean(rows, key)
                mine = label in core
                axes.errorbar(
                    x, y, xerr=dx, yerr=dy, fmt="o" if mine else ".", ms=7 if mine else 5, lw=1,
                    zorder=3 if mine else 2, color=_COLOURS[label] if mine else curves.get(label, _GREY),
                    label=names.get(label, label) if mine and label != "none" else None,
                )  # fmt: skip
            axes.set_title(f"{name}\n{title}" if axes is grid[0, column] else title, fontsize=10)
            axes.spines[["top", "right"]].set_visible(False)
        grid[1, column].set_xlabel("kept: R² of a linear reader, unseen rows")
    grid[0, 0].set_ylabel("accuracy")
    grid[1, 0].set_ylabel("balanced accuracy")
    title = "red: chance; dotted: original\nlines: drops of TaCo, layers of MUtE\nsmall grey: all other methods"
    save_with_legend(figure, path, title=title)


def fairness(panels: Json, names: dict[str, str], path: Path) -> None:
    """Accuracy against the gap in true positive rates: erasure (circles) and augmentation (triangles)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2 * len(panels) + 3.2, 4.6), layout="constrained")
    for axes, (name, (_, twins, erased)) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
    ):
        for kind, mark, found in (("erased", "o", erased), ("augmented", "^", twins)):
            for label, rows in found.items():
                tasks = [row["task"] for row in rows]
                (x, dx), (y, dy) = _mean(tasks, "tpr_rms"), _mean(tasks, "accuracy")
                axes.errorbar(
                    x, y, xerr=dx, yerr=dy, fmt=mark, ms=7, lw=1, color=_COLOURS.get(label, _GREY),
                    label=f"{kind}: {names.get(label, label)}",
                )  # fmt: skip
        axes.set(title=name, xlabel="gap in true positive rates (RMS): left is fairer")
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("accuracy of the task")
    save_with_legend(figure, path, size=8)


_MARKS = {"edit search": "o", "trained inverter": "s", "retrieval": "^", "the paper, with vec2text": "X"}
_WAYS = {
    "MUtE*": "#c2378a", "MUtE": "#7b2d8b", "Mean Diff": "#d9622b", "Linear OT": "#17a2a2",
    "linear surrogate": "#3a923a", "references": "#222222",
}  # fmt: skip


def texts(points: Sequence[tuple[str, str, float, float]], path: Path) -> str:
    """Each way to move embeddings (colour) and to decode them (mark) by substitution rate and BLEU.

    `points` are of (decoder, way, substitution rate, BLEU); those of one way and decoder are settings of it, joined.
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(9, 4.6), layout="constrained")
    axes = figure.subplots()
    for by, way in dict.fromkeys((by, way) for by, way, _, _ in points):
        x, y = zip(*((x, y) for b, w, x, y in points if (b, w) == (by, way)), strict=True)
        axes.plot(x, y, marker=_MARKS[by], color=_WAYS[way], lw=0.8, ms=7, alpha=0.8, mec="white", mew=0.5)
    axes.set(xlabel="share of gendered words that are of the target class (r_g)", ylabel="BLEU", ylim=(-3, 103))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, lw=0.5)
    present = {by for by, _, _, _ in points}
    marks = [Line2D([], [], marker=m, color="0.4", lw=0, label=by) for by, m in _MARKS.items() if by in present]
    ways = [Line2D([], [], marker="o", color=colour, lw=0, label=way) for way, colour in _WAYS.items()]
    blank = Line2D([], [], lw=0, label=" ")
    figure.legend(handles=[*marks, blank, *ways], loc="outside right upper", frameon=False, fontsize=9)
    figure.savefig(path, dpi=110)
    return path.name
