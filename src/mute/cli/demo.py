"""`mute demo`: the whole story on word vectors that ship with the package, in a minute."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError, missing_extra
from mute.rows.interrupts import interruptible

if TYPE_CHECKING:
    from rich.console import Console

    from mute.datasets import Dataset
    from mute.eraser import MUtE

__all__ = ["run_demo"]

_WORDS = ("king", "actor", "uncle", "brother", "waiter", "prince", "he")
_COLOURS = {"female": "#c2378a", "male": "#2f7fbf", "neutral": "#8a8a8a"}


def run_demo(folder: Path, console: Console, quiet: bool) -> None:
    """Fit, erase, audit briefly, make counterfactuals; write the model and a picture to `folder`."""
    from mute import MUtE
    from mute.cli.main import _clock, _fit_progress
    from mute.datasets import load_glove_gender

    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise missing_extra("matplotlib", "report", "the picture of the demo") from None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MuteError(f"cannot make the folder {folder}: {error.strerror or error}") from error

    words = load_glove_gender()
    fit, fresh, test = (words.rows(part) for part in ("fit", "validate", "test"))
    console.rule("[bold]1. the data")
    console.print(f"12,000 GloVe word vectors (100 numbers each) in three classes: {', '.join(sorted(_COLOURS))}.")
    console.print(f"{len(fit.X):,} words to fit on, {len(fresh.X) + len(test.X):,} the eraser never sees.\n")

    console.rule("[bold]2. fit and erase")
    start = time.perf_counter()
    eraser: Any = MUtE(random_state=0)
    with _fit_progress(eraser, quiet):
        eraser.fit(fit.X, fit.z)
    eraser.save(folder / "gender.safetensors")
    erased = {name: eraser.transform(part.X) for name, part in (("fit", fit), ("fresh", fresh), ("test", test))}
    console.print(
        f"{eraser.n_iterations_} layers (as many as find differences between the classes), fitted in "
        f"{_clock(time.perf_counter() - start)}; "
        f"the router sends {eraser.routing_.error:.1%} of words it has not learned from to another class.\n"
    )

    console.rule("[bold]3. what is left")
    _print_figures(console, eraser, erased, fit, fresh, test)

    console.rule("[bold]4. counterfactuals: the nearest words to f⁻¹(f(word)) as female")
    _print_neighbours(console, eraser, words)

    _draw(eraser, erased["test"], test, folder / "demo.png")
    eraser.diagnostics_.plot(folder / "diagnostics.png")
    names = ", ".join(str(folder / name) for name in ("gender.safetensors", "demo.png", "diagnostics.png"))
    console.print(f"\nwrote {names}", highlight=False)
    console.print(f"next: mute inspect {folder / 'gender.safetensors'}", highlight=False)


def _print_figures(
    console: Console,
    eraser: MUtE,
    erased: dict[str, NDArray],
    fit: Dataset,
    fresh: Dataset,
    test: Dataset,
) -> None:
    from rich.table import Table
    from sklearn.linear_model import Ridge

    majority = np.unique(test.z, return_counts=True)[1].max() / len(test.z)
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    table.add_column("accuracy of an adversary that reads the class")
    for name in ("before", "after", "chance"):
        table.add_column(name, justify="right")
    rows: list[tuple[str, Callable[[], Any], NDArray, NDArray, NDArray]] = [
        ("network, learns on the words of the fit (the paper's protocol)", _network, fit.X, erased["fit"], fit.z),
        ("network, learns on fresh words", _network, fresh.X, erased["fresh"], fresh.z),
        ("boosted trees, learn on fresh words", _trees, fresh.X, erased["fresh"], fresh.z),
    ]
    for name, make, before, after, z in rows:
        scores = [_score(make(), x, z, q, test.z) for x, q in ((before, test.X), (after, erased["test"]))]
        table.add_row(name, *(f"{s:.3f}" for s in scores), f"{majority:.3f}")
    console.print(table)
    kept = Ridge().fit(erased["fresh"], fresh.X).score(erased["test"], test.X)
    back = eraser.inverse_transform(eraser.transform(test.X, concept=test.z), concept=test.z)
    console.print(f"\nkept: R² {kept:.3f} of the vectors can be read back linearly from the erased ones;")
    console.print(f"given the class, all of it: the largest error on new words is {np.abs(back - test.X).max():.0e}.")
    console.print("Fresh adversaries do better than the paper's: the maps show their estimation noise on new words.\n")


def _network() -> Any:
    from sklearn.neural_network import MLPClassifier

    return MLPClassifier(max_iter=20, early_stopping=True, random_state=0)


def _trees() -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(max_iter=60, max_features=0.3, random_state=0)


def _score(model: Any, x: NDArray, z: NDArray, x_test: NDArray, z_test: NDArray) -> float:
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings(), interruptible():
        # Twenty epochs are the paper's setting for its probe.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return float(model.fit(x, z).score(x_test, z_test))


def _print_neighbours(console: Console, eraser: MUtE, words: Dataset) -> None:
    rows = np.array([int(np.flatnonzero(words.names == word)[0]) for word in _WORDS])
    moved = eraser.counterfactual(words.X[rows], "female", concept=words.z[rows])
    unit = words.X / np.linalg.norm(words.X, axis=1, keepdims=True)
    near = np.argsort(-(moved @ unit.T), axis=1)
    for word, order in zip(_WORDS, near, strict=True):
        names = [name for name in words.names[order[:6]] if name != word][:5]
        console.print(f"  {word:>8}  →  {', '.join(names)}", highlight=False)


def _draw(eraser: MUtE, erased: NDArray, test: Dataset, path: Path) -> None:
    """Three panels: the classes before, after, and words on their way to their counterfactuals."""
    from matplotlib.figure import Figure
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    figure = Figure(figsize=(12.5, 4.2), layout="constrained")
    before, after, moves = figure.subplots(1, 3)
    plane = LinearDiscriminantAnalysis(n_components=2).fit(test.X, test.z)
    points = plane.transform(test.X)
    for axes, xy, title in (
        (before, points, "before: the plane in which the classes lie farthest apart"),
        (
            after,
            LinearDiscriminantAnalysis(n_components=2).fit_transform(erased, test.z),
            "after erasure: the same, fitted anew",
        ),
    ):
        for label, colour in _COLOURS.items():
            mine = test.z == label
            axes.scatter(*xy[mine].T, s=5, c=colour, alpha=0.5, lw=0, label=label)
        axes.set_title(title, fontsize=10)
    before.legend(frameon=False, markerscale=3)
    rows = np.flatnonzero(test.z == "male")[:60]
    moved = plane.transform(eraser.counterfactual(test.X[rows], "female", concept=test.z[rows]))
    for label, colour in _COLOURS.items():
        mine = test.z == label
        moves.scatter(*points[mine].T, s=4, c=colour, alpha=0.18, lw=0)
    start, step = points[rows], moved - points[rows]
    moves.quiver(
        *start.T, *step.T, angles="xy", scale_units="xy", scale=1, width=0.003, color="#333333", alpha=0.7, zorder=3
    )
    moves.set_title("counterfactuals: male words as female", fontsize=10)
    for axes in (before, after, moves):
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_color("0.8")
    figure.savefig(path, dpi=150)
