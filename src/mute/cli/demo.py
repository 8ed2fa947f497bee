"""`mute demo`: fit, erase, judge and make counterfactuals on word vectors that ship with the package."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mute.cli import console
from mute.cli.judging import print_next, print_verdict
from mute.errors import MuteError, missing_extra
from mute.typing import Method

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rich.console import Console

    from mute.datasets import Dataset
    from mute.eraser import MUtE
    from mute.evaluation.report import Report

__all__ = ["commands"]

commands = typer.Typer()

_WORDS = ("king", "actor", "uncle", "brother", "waiter", "prince", "he")
# The leak that the demo allows: balanced accuracy above chance.
_BUDGET = 0.05
# The wide network takes as long as all others together, and reads no more of these words.
_LEFT_OUT = ("wide network",)
_COLOURS = {"female": "#c2378a", "male": "#2f7fbf", "neutral": "#8a8a8a"}


@commands.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of model and pictures.")] = Path("demo"),
    quiet: console.Quiet = False,
) -> None:
    """Fit, erase, judge and make counterfactuals on word vectors that ship with the package."""
    import numpy as np

    from mute import MUtE
    from mute.adversaries.panel import PANEL
    from mute.datasets import load_glove_gender
    from mute.evaluation.audit import audit as judge

    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise missing_extra("matplotlib", "report", "the picture of the demo") from None
    console.check_folder(output, "gender.safetensors", ["demo.png", "diagnostics.png"])
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MuteError(f"cannot make the folder {output}: {error.strerror or error}") from error

    out = console.output(quiet)
    words = load_glove_gender()
    train, extra, test = (words.rows(part) for part in ("fit", "validate", "test"))
    out.rule("1. the data")
    out.print(f"12,000 GloVe word vectors (100 numbers each) in three classes: {', '.join(sorted(_COLOURS))}.")
    out.print(f"{len(train.X):,} training words; the eraser never sees the other {len(extra.X) + len(test.X):,}.\n")

    out.rule("2. fit and erase")
    start = time.perf_counter()
    eraser: Method = MUtE(max_leak=_BUDGET, random_state=0)
    with console.warnings_shown(out), console.fit_progress(eraser, quiet):
        eraser.fit(train.X, train.z)
    eraser.save(output / "gender.safetensors")
    out.print(f"Fitted {eraser.n_iterations_} layers in {console.clock(time.perf_counter() - start)}.")
    out.print("The fit stops when a new layer no longer separates the classes.")
    console.print_budget(out, eraser)
    out.print(f"The router sends {eraser.routing_.error:.1%} of held-out words to another class.\n")

    out.rule("3. the audit: what adversaries still read, without the budget and with it")
    unseen = words.X[words.split != "fit"], words.z[words.split != "fit"]
    lossless, panel = eraser.without_budget(), [name for name in PANEL if name not in _LEFT_OUT]
    with console.progress_bar(quiet, "audit") as progress:
        plain = judge(
            lossless, *unseen, fit_rows=(train.X, train.z), adversaries=panel, max_leak=_BUDGET, progress=progress
        )
    with console.progress_bar(quiet, "audit with the budget") as progress:
        report = judge(eraser, *unseen, adversaries=panel, max_leak=_BUDGET, progress=progress)
    _print_adversaries(out, plain, report)
    back = eraser.inverse_transform(lossless.transform(test.X, concept=test.z), concept=test.z)
    out.print(f"With true labels the inverse recovers all words, to within {np.abs(back - test.X).max():.0e}.\n")

    out.rule("4. counterfactuals: words as female, f⁻¹(f(word)), and their nearest words")
    rows = [int(np.flatnonzero(words.names == word)[0]) for word in _WORDS]
    moved = eraser.counterfactual(words.X[rows], "female", concept=words.z[rows])
    unit = words.X / np.linalg.norm(words.X, axis=1, keepdims=True)
    for word, order in zip(_WORDS, np.argsort(-(moved @ unit.T), axis=1), strict=True):
        names = [name for name in words.names[order[:6]] if name != word][:5]
        out.print(f"  {word:>8}  →  {', '.join(names)}")

    _draw(eraser, lossless.transform(test.X), test, output / "demo.png")
    eraser.diagnostics_.plot(output / "diagnostics.png")
    out.print()
    model = output / "gender.safetensors"
    console.wrote(out, model, output / "demo.png", output / "diagnostics.png")
    out.print()
    out.rule("5. the verdict")
    out.print(f"without the budget: {plain.verdict}", style="bold")
    print_next(out, plain)
    out.print("with the budget:", style="bold")
    print_verdict(out, report)


def _print_adversaries(out: Console, plain: Report, spent: Report) -> None:
    """Print what each adversary reads before erasure, after the lossless eraser and with the budget, and R²."""
    columns = ((plain, "before"), (plain, "paper"), (plain, "fresh"), (spent, "fresh"))
    reads = [
        {a.adversary: a.balanced_accuracy.value for a in report.privacy.attacks if a.protocol == protocol}
        for report, protocol in columns
    ]
    names = sorted(reads[2], key=lambda name: -reads[2][name])
    cells = [(name, *(f"{read[name]:.3f}" if name in read else "-" for read in reads)) for name in names]
    cells.insert(0, ("strongest of the panel", *(f"{max(read.values()):.3f}" for read in reads)))
    kept = [max(r.r2.value for r in report.utility.reconstruction) for report in (plain, spent)]
    cells.append(("R² kept", "1", "", *(f"{r2:.3f}" for r2 in kept)))
    out.print(
        f"Balanced accuracy of adversaries on unseen words; chance is {plain.privacy.chance:.3f}. They learn from"
    )
    out.print("words before erasure; from erased training words (the paper's protocol); from erased unseen words, as a")
    out.print("real adversary would; and from unseen words erased within the budget.\n")
    heads = ("adversary", "before", "paper", "unseen", "budget")
    console.print_table(out, heads, cells)
    out.print()


def _draw(eraser: MUtE, erased: NDArray, test: Dataset, path: Path) -> None:
    """Three panels: the classes before erasure, after it, and words on the way to their counterfactuals."""
    import numpy as np
    from matplotlib.figure import Figure
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    figure = Figure(figsize=(12.5, 4.2), layout="constrained")
    before, after, moves = figure.subplots(1, 3)
    plane = LinearDiscriminantAnalysis(n_components=2).fit(test.X, test.z)
    points = plane.transform(test.X)
    points_after = LinearDiscriminantAnalysis(n_components=2).fit_transform(erased, test.z)
    rows = np.flatnonzero(test.z == "male")[:60]
    steps = plane.transform(eraser.counterfactual(test.X[rows], "female", concept=test.z[rows])) - points[rows]
    for axes, xy, size, alpha, title in (
        (before, points, 5, 0.5, "before: the plane that separates the classes best"),
        (after, points_after, 5, 0.5, "after erasure: the same, fitted again"),
        (moves, points, 4, 0.18, "counterfactuals: male words as female"),
    ):
        for label, colour in _COLOURS.items():
            axes.scatter(*xy[test.z == label].T, s=size, c=colour, alpha=alpha, lw=0, label=label)
        axes.set_title(title, fontsize=10)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_color("0.8")
    before.legend(frameon=False, markerscale=3)
    arrows = {"angles": "xy", "scale_units": "xy", "scale": 1, "width": 0.003, "zorder": 3}
    moves.quiver(*points[rows].T, *steps.T, color="#333333", alpha=0.7, **arrows)
    figure.savefig(path, dpi=150)
