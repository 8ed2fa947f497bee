"""`mute demo`: fit, erase, judge and make counterfactuals on word vectors that ship with the package."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mute.cli import console
from mute.errors import MuteError, missing_extra
from mute.typing import Classifier, Method

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rich.console import Console

    from mute.datasets import Dataset
    from mute.eraser import MUtE

__all__ = ["commands"]

commands = typer.Typer()

_WORDS = ("king", "actor", "uncle", "brother", "waiter", "prince", "he")
_COLOURS = {"female": "#c2378a", "male": "#2f7fbf", "neutral": "#8a8a8a"}


@commands.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of model and pictures.")] = Path("demo"),
    quiet: console.Quiet = False,
) -> None:
    """Fit, erase, judge and make counterfactuals on word vectors that ship with the package."""
    import numpy as np
    from sklearn.linear_model import Ridge

    from mute import MUtE
    from mute.datasets import load_glove_gender

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
    eraser: Method = MUtE(random_state=0)
    with console.warnings_shown(out), console.fit_progress(eraser, quiet):
        eraser.fit(train.X, train.z)
    eraser.save(output / "gender.safetensors")
    out.print(f"Fitted {eraser.n_iterations_} layers in {console.clock(time.perf_counter() - start)}.")
    out.print("The fit stops when a new layer no longer separates the classes.")
    out.print(f"The router sends {eraser.routing_.error:.1%} of held-out words to another class.\n")

    out.rule("3. what adversaries still read")
    erased = {name: eraser.transform(part.X) for name, part in (("train", train), ("extra", extra), ("test", test))}
    _print_adversaries(out, erased, train, extra, test, quiet)
    kept = Ridge().fit(erased["extra"], extra.X).score(erased["test"], test.X)
    back = eraser.inverse_transform(eraser.transform(test.X, concept=test.z), concept=test.z)
    out.print(f"Kept: a linear map recovers the vectors from the erased ones with R² {kept:.3f}.")
    out.print(f"With true labels the inverse recovers all of them, to within {np.abs(back - test.X).max():.0e}.\n")

    out.rule("4. counterfactuals: words as female, f⁻¹(f(word)), and their nearest words")
    rows = [int(np.flatnonzero(words.names == word)[0]) for word in _WORDS]
    moved = eraser.counterfactual(words.X[rows], "female", concept=words.z[rows])
    unit = words.X / np.linalg.norm(words.X, axis=1, keepdims=True)
    for word, order in zip(_WORDS, np.argsort(-(moved @ unit.T), axis=1), strict=True):
        names = [name for name in words.names[order[:6]] if name != word][:5]
        out.print(f"  {word:>8}  →  {', '.join(names)}")

    _draw(eraser, erased["test"], test, output / "demo.png")
    eraser.diagnostics_.plot(output / "diagnostics.png")
    out.print()
    model = output / "gender.safetensors"
    console.wrote(out, model, output / "demo.png", output / "diagnostics.png")
    out.print(f"next: mute inspect {model}", soft_wrap=True)


def _print_adversaries(
    out: Console, erased: dict[str, NDArray], train: Dataset, extra: Dataset, test: Dataset, quiet: bool
) -> None:
    """Print the strongest adversary of the audit first, then single adversaries such as the paper's."""
    import numpy as np
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.neural_network import MLPClassifier

    from mute.evaluation.adversaries import PANEL, Adversary, Features, attack

    def network(X: NDArray, z: NDArray, seed: int) -> Classifier:
        # Twenty epochs are the paper's setting for its probe.
        return MLPClassifier(max_iter=20, early_stopping=True, random_state=seed).fit(X, z)

    def trees(X: NDArray, z: NDArray, seed: int) -> Classifier:
        return HistGradientBoostingClassifier(max_iter=60, max_features=0.3, random_state=seed).fit(X, z)

    sources = {"training words": (train, erased["train"]), "other words": (extra, erased["extra"])}
    classes = np.unique(test.z)

    def accuracies(adversary: Adversary, source: str, scaled: bool) -> list[float]:
        """Accuracy before and after erasure."""
        part, after = sources[source]
        scores = []
        for learn, tried in ((part.X, test.X), (after, erased["test"])):
            features = Features(learn, scale_features=True) if scaled else np.asarray
            codes = np.searchsorted(classes, part.z)
            chances = attack(adversary, features(learn), codes, features(tried), len(classes), seed=0)
            scores.append(float(np.mean(classes[chances.argmax(axis=1)] == test.z)))
        return scores

    rows, strongest = [], []
    with console.progress_bar(quiet, "adversaries") as report:
        for source in sources:
            panel = {}
            for done, adversary in enumerate(PANEL.values()):
                report(f"adversaries that learn from {source}", done, len(PANEL))
                panel[adversary.name] = accuracies(adversary, source, scaled=True)
            rows.append((f"strongest of {len(PANEL)}", source, *np.max(list(panel.values()), axis=0)))
            strongest.append(f"{max(panel, key=lambda name: panel[name][1])} ({source})")
    for name, source, fit in (
        ("network (the paper's protocol)", "training words", network),
        ("network", "other words", network),
        ("boosted trees", "other words", trees),
    ):
        rows.append((name, source, *accuracies(Adversary(name, fit), source, scaled=False)))
    chance = np.unique(test.z, return_counts=True)[1].max() / len(test.z)
    out.print(f"Accuracy of adversaries on {len(test.z):,} unseen words; chance is {chance:.3f}.\n")
    cells = [(name, source, f"{before:.3f}", f"{after:.3f}") for name, source, before, after in rows]
    console.print_table(out, ("adversary", "learns from", "before", "after erasure"), cells, left=2)
    out.print(f"\nStrongest after erasure: {', '.join(strongest)}.")
    out.print("Judge an eraser by its strongest adversary: the paper's protocol alone would say that nothing is left.")
    out.print("A larger training set lowers the residual leak.")
    out.print("If you have every row you will publish, `mute erase --adapt` lowers it as well.")
    out.print("`mute audit` runs these adversaries on your own rows.\n")


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
