"""The figures of the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["fairness", "texts", "tradeoff"]

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


def _mean(rows: list[dict[str, Any]], *path: str) -> tuple[float, float]:
    values = []
    for row in rows:
        value: Any = row
        for key in path:
            value = value[key]
        values.append(value)
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def tradeoff(panels: dict[str, Any], names: dict[str, str], core: Sequence[str], path: Path) -> None:
    """A column for each data set: the paper's probe above, the strongest fresh adversary below."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.3 * len(panels) + 2.6, 7.6), layout="constrained")
    grid = figure.subplots(2, len(panels), squeeze=False)
    for column, (name, (about, found)) in enumerate(panels.items()):
        for axes, key, chance, title in (
            (grid[0, column], "probe_paper", about["majority"], "the paper's probe, rows of the fit"),
            (grid[1, column], "strong_fresh", 1 / about["classes"], "strongest of three, fresh rows"),
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
        grid[1, column].set_xlabel("kept: R² of a linear reader, new rows")
    grid[0, 0].set_ylabel("accuracy")
    grid[1, 0].set_ylabel("balanced accuracy")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside right center", frameon=False, fontsize=9,
        title="red: guessing; dotted: original\nlines: drops of TaCo, layers of MUtE\nsmall grey: all other methods",
    )  # fmt: skip
    figure.savefig(path, dpi=110)


def fairness(panels: dict[str, Any], names: dict[str, str], path: Path) -> None:
    """Accuracy against the gap in true positive rates: erasure (circles) and augmentation (triangles)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2 * len(panels) + 3.2, 4.6), layout="constrained")
    for axes, (name, (_, twins, erased)) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
    ):
        for kind, mark, found in (("erased", "o", erased), ("augmented", "^", twins)):
            for label, rows in found.items():
                (x, dx), (y, dy) = _mean(rows, "task", "tpr_rms"), _mean(rows, "task", "accuracy")
                axes.errorbar(
                    x, y, xerr=dx, yerr=dy, fmt=mark, ms=7, lw=1, color=_COLOURS.get(label, _GREY),
                    label=f"{kind}: {names.get(label, label)}",
                )  # fmt: skip
        axes.set(title=name, xlabel="gap in true positive rates (RMS): left is fairer")
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("accuracy of the task")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=8)
    figure.savefig(path, dpi=110)


def texts(points: Sequence[tuple[str, str | None, float, float]], path: Path) -> str:
    """Each way to move embeddings by its substitution rate and its BLEU; the settings of one method are joined."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.6), layout="constrained")
    axes = figure.subplots()
    for method in dict.fromkeys(method for _, method, _, _ in points):
        mine = [(name, x, y) for name, of, x, y in points if of == method]
        colour = _COLOURS.get(str(method), "#3a923a")
        # MUtE told and MUtE routed are two ways, not two settings.
        style = "" if method == "mute" else "-"
        axes.plot([x for _, x, _ in mine], [y for _, _, y in mine], f"o{style}", color=colour, lw=0.8, ms=5)
        for name, x, y in mine:
            axes.annotate(name, (x, y), xytext=(5, 4), textcoords="offset points", fontsize=7.5, color=colour)
    axes.set_xlabel("share of gendered words that are of the target class (r_g)")
    axes.set_ylabel("BLEU against grammatical references")
    axes.margins(x=0.16, y=0.12)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, lw=0.5)
    figure.savefig(path, dpi=150)
    return path.name
