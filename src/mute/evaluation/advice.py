"""After the verdict: why an eraser leaks, as far as the figures of its report show it, and what to try next."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from mute.adversaries.expected import columns_needed, expected_accuracy, harmonic_mean, rows_needed
from mute.evaluation.informed import INFORMED
from mute.tables import split_spec
from mute.typing import Json

__all__ = ["Cause", "Step", "WantOfRows", "advice", "want_of_rows"]

_MOST_STEPS = 3
# Adversaries by what they can read: class means and covariances, the shapes of class laws, or single near rows.
_MOMENTS = ("logistic", "quadratic")
_SHAPES = ("boosting", "network", "wide network")
_NEAR = ("neighbours", "kernel", "narrow kernel")
# A router that errs less often is no cause.
_FEW_ERRORS = 0.005
_TABLES = (".parquet", ".csv", ".tsv")
# Names of files in the steps where the report does not know the user's.
_FILES = {
    "model": "eraser.safetensors", "x": "X_new.npy", "concept": "z_new.npy", "fit_rows": "X_train.npy",
    "fit_concept": "z_train.npy",
}  # fmt: skip


@dataclass(frozen=True)
class Step:
    """What to try: a sentence, and a command or a line of Python where there is one."""

    sentence: str
    command: str | None = None


@dataclass(frozen=True)
class Cause:
    """Why an eraser leaks.

    `name` is "rows" (too few training rows), "routes" (wrong routes), "shapes" (too few layers), "neighbours" (near
    rows keep their class), "model" (the model betrays its routes) or "map" (none of these). `leak` is the part of the
    leak that the figures ascribe to it.
    """

    name: str
    leak: float
    sentence: str
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class WantOfRows:
    """The part of a leak that too few training rows explain, by the closed form in `mute.adversaries.expected`.

    With `rows` training rows a class, class-wise maps can leak `expected`, which is `share` of the measured leak, 1 at
    most; `rows_to_halve` would leak half of it. All are upper bounds for a method whose classes share estimates.
    """

    rows: int
    expected: float
    share: float
    rows_to_halve: int | None


def want_of_rows(report: Json) -> WantOfRows | None:
    """What want of rows explains; None without a leak, or where the map does not depend on the class."""
    figures = _Figures(report)
    training, columns, classes = figures.training, figures.about["columns"], figures.n_classes
    if training is None or not figures.by_class or figures.leak <= 0 or report["decision"]["name"] == "erased":
        return None
    expected = expected_accuracy(columns, training, figures.learning, classes) - figures.chance
    halved = rows_needed(columns, figures.learning, expected / 2, classes)
    return WantOfRows(round(training), expected, min(expected / figures.leak, 1.0), halved)


def advice(report: Json) -> list[Cause]:
    """The causes of a leak, the largest first, with at most three steps in all; none where no leak was found.

    Parameters
    ----------
    report : dict
        What `Report.to_dict` gives. The files that it names under ``about`` are named in the steps.
    """
    if report["decision"]["name"] in ("erased", "too few rows to say"):
        return []
    figures = _Figures(report)
    found = [cause for judge in (_rows, _routes, _shapes, _neighbours, _model) if (cause := judge(figures)) is not None]
    unexplained = figures.leak - sum(cause.leak for cause in found)
    if not found or unexplained > figures.leak / 2:
        found.append(_map(figures, unexplained))
    return _with_budget(figures, _with_few_steps(sorted(found, key=lambda cause: -cause.leak)))


class _Figures:
    """The figures of a report that tell causes apart; leaks are balanced accuracies above chance on unseen rows."""

    def __init__(self, report: Json) -> None:
        privacy, self.about, self.routing = report["privacy"], report["about"], report["routing"]
        self.chance: float = privacy["chance"]
        self.leak: float = report["decision"]["leak"]["value"]
        self.adversary: str = report["decision"]["leak"]["adversary"]
        self.budget: float = report["decision"]["max_leak"]
        self.reads = {
            a["adversary"]: a["balanced_accuracy"]["value"] - self.chance
            for a in privacy["attacks"]
            if a["protocol"] == "fresh"
        }
        self.labelled: Json | None = privacy.get("with_true_labels")
        self.on_fit_rows: Json | None = privacy["on_fit_rows"]
        self.eraser: str = self.about["eraser"]
        self.is_mute = self.eraser == "MUtE"
        self.n_classes = len(self.about["classes"])
        self.files: Json = self.about.get("files") or {}

    def best_of(self, names: tuple[str, ...]) -> float | None:
        """The leak to the strongest of these adversaries; None if none of them tried."""
        return max((self.reads[name] for name in names if name in self.reads), default=None)

    @property
    def training(self) -> float | None:
        """Training rows a class, where they are known."""
        counts = self.about.get("training_rows") or self.about["fit_rows"]
        return harmonic_mean(counts) if counts and min(counts) > 0 else None

    @property
    def by_class(self) -> bool:
        """Whether the map of a row depends on its class."""
        return self.routing is not None or self.about["oracle"]

    @property
    def learning(self) -> float:
        """Rows a class that the adversaries learn from."""
        shares = self.about["class_counts"]
        return harmonic_mean(shares) * self.about["learn_rows"] / sum(shares)

    @property
    def erased(self) -> str:
        """A name for erased rows: a table stays a table."""
        suffix = split_spec(self.files.get("x") or _FILES["x"])[0].suffix.lower()
        return f"erased{suffix if suffix in _TABLES else '.npy'}"

    def command(self, template: str, python: str) -> str:
        """A command with the user's files if the report knows them, else a line of Python."""
        if not self.files:
            return python
        names = {name: shlex.quote(str(self.files.get(name) or other)) for name, other in _FILES.items()}
        return template.format(**names)

    def fit(self, options: str, settings: str, labels: str = "") -> str:
        """How to fit MUtE anew."""
        return self.command(
            f"mute fit {{fit_rows}} --concept {{fit_concept}}{options} -o new.safetensors",
            f"MUtE({settings}).fit(X_train, z_train{labels})",
        )

    @property
    def more_layers(self) -> int:
        """Twice as many layers as there are."""
        return 2 * (self.about["layers"] or 10)

    def fit_more_layers(self) -> str:
        """How to fit MUtE anew with more layers."""
        return self.fit(f" --iterations {self.more_layers}", f"n_iterations={self.more_layers}, random_state=0")

    def adapt(self) -> Step:
        """Adapt the eraser to all rows."""
        return Step(
            "If you have every row you will publish, adapt the eraser to these rows.",
            self.command(
                f"mute erase {{model}} {{x}} --adapt -o {self.erased}",
                "Q = eraser.adapt(X_publish).transform(X_publish)",
            ),
        )


def _points(leak: float) -> str:
    return f"{leak * 100:.1f} points"


def _rows(figures: _Figures) -> Cause | None:
    """The noise of class-wise maps, as far as adversaries of means and covariances read it."""
    training, columns = figures.training, figures.about["columns"]
    clean = figures.on_fit_rows is not None and figures.on_fit_rows["value"] - figures.chance <= figures.budget
    if training is None or not (figures.by_class or clean):
        return None
    learning, classes = figures.learning, figures.n_classes
    expected = expected_accuracy(columns, training, learning, classes) - figures.chance
    read = figures.best_of(_MOMENTS)
    leak = min(expected, figures.leak if read is None else read)
    if leak <= figures.budget:
        return None
    needed = rows_needed(columns, learning, figures.budget, classes)
    sentence = (
        f"There are too few training rows: with about {training:,.0f} rows a class in {columns:,} columns, estimation "
        f"errors alone can leak {_points(expected)}."
    )
    if needed is not None:
        sentence += f" A budget of {figures.budget * 100:g} points needs up to {needed:,} rows a class."
    steps = []
    if figures.is_mute:
        steps += [
            Step(
                "Fit on more rows; rows without labels help too.",
                figures.fit(" --unlabelled X_more.npy", "random_state=0", ", unlabelled=X_more"),
            ),
            figures.adapt(),
        ]
    else:
        steps.append(Step("Fit MUtE, whose classes share what they have in common.", figures.fit("", "random_state=0")))
    fewer = columns_needed(training, learning, figures.budget, classes)
    if 2 <= fewer < columns:
        steps.append(Step(f"Or keep fewer dimensions: about {fewer:,} principal components stay within the budget."))
    return Cause("rows", leak, sentence, tuple(steps))


def _routes(figures: _Figures) -> Cause | None:
    """Wrong routes: what is read less if the rows are erased with true labels."""
    routing, labelled = figures.routing, figures.labelled
    if routing is None or labelled is None or routing["error"] < _FEW_ERRORS:
        return None
    leak = labelled["routed"]["value"] - labelled["labelled"]["value"]
    if leak <= figures.budget / 2:
        return None
    sentence = (
        f"The router errs: it sends {routing['error']:.1%} of held-out rows to a wrong class. With true labels the "
        f"{labelled['adversary']} adversary reads {_points(leak)} less."
    )
    erase = figures.command(
        f"mute erase {{model}} {{x}} --concept {{concept}} -o {figures.erased}", "Q = eraser.transform(X, concept=z)"
    )
    router = figures.fit(" --router logistic", 'router="logistic", random_state=0')
    steps = (Step("Erase with true labels.", erase), Step("Or try another router.", router))
    return Cause("routes", leak, sentence, steps)


def _shapes(figures: _Figures) -> Cause | None:
    """Shapes of the class laws: means and covariances agree, and networks or trees still read."""
    moments, shapes = figures.best_of(_MOMENTS), figures.best_of(_SHAPES)
    if moments is None or shapes is None or moments > figures.budget or shapes <= figures.budget:
        return None
    sentence = (
        "The shapes of the classes differ: linear and quadratic adversaries are at chance, but "
        f"{max((name for name in _SHAPES if name in figures.reads), key=figures.reads.__getitem__)} reads "
        f"{_points(shapes)} above chance."
    )
    if figures.is_mute:
        step = Step(f"Fit {figures.more_layers} layers.", figures.fit_more_layers())
    else:
        step = Step("Fit MUtE, which makes the shapes of the classes equal.", figures.fit("", "random_state=0"))
    return Cause("shapes", shapes - max(moments, 0.0), sentence, (step,))


def _neighbours(figures: _Figures) -> Cause | None:
    """Near rows that keep their class."""
    if figures.adversary not in _NEAR:
        return None
    others = figures.best_of(_MOMENTS + _SHAPES)
    leak = figures.leak - max(others or 0.0, 0.0)
    sentence = (
        f"Near rows keep their class: the strongest adversary, {figures.adversary}, compares single rows. No smooth "
        "invertible map removes this."
    )
    fewer = Step("Keep fewer dimensions, for example by principal components, and fit again.", None)
    return Cause("neighbours", leak, sentence, (figures.adapt(), fewer) if figures.is_mute else (fewer,))


def _model(figures: _Figures) -> Cause | None:
    """What only an adversary reads who holds the model."""
    others = {name: leak for name, leak in figures.reads.items() if name != INFORMED}
    if INFORMED not in figures.reads or not others:
        return None
    leak = figures.reads[INFORMED] - max(*others.values(), 0.0)
    if leak <= figures.budget / 2:
        return None
    sentence = f"The model betrays its routes: an adversary who holds it reads {_points(leak)} more."
    return Cause("model", leak, sentence, (Step("Keep the model secret where erased rows are published."),))


def _map(figures: _Figures, leak: float) -> Cause:
    """What no other cause explains: the map itself, or rows unlike the training rows."""
    trained = figures.on_fit_rows
    if not figures.is_mute:
        subject = "The map" if figures.eraser == "rows erased elsewhere" else f"The map of {figures.eraser}"
        compare = figures.command(
            "mute compare {x} --concept {concept} -o compare.html", 'mute.compare(X, z).to_html("compare.html")'
        )
        steps = (
            Step("Fit MUtE on the training rows.", figures.fit("", "random_state=0")),
            Step("Or compare all methods on your rows.", compare),
        )
        return Cause("map", leak, f"{subject} leaves the classes different; more rows would not change this.", steps)
    if trained is not None and trained["value"] - figures.chance >= figures.leak / 2:
        step = Step(f"Fit {figures.more_layers} layers.", figures.fit_more_layers())
        return Cause("map", leak, "The classes still differ on training rows: there are too few layers.", (step,))
    sentence = "Neither few rows nor wrong routes explain the leak: the audited rows may differ from the training rows."
    step = Step("Fit on rows that are drawn like the audited rows.", figures.fit("", "random_state=0"))
    return Cause("map", leak, sentence, (step,))


def _with_budget(figures: _Figures, causes: list[Cause]) -> list[Cause]:
    """The causes with one more step after those of the largest: the leak that remains can be bought off."""
    spent = str(figures.about["settings"].get("max_leak", "None"))
    if figures.budget <= 0 or spent != "None":
        return causes
    budget = f"{figures.budget:g}"
    step = Step(
        "Or spend a leak budget: as little noise after the eraser as keeps every adversary of the panel within it.",
        figures.fit(f" --max-leak {budget}", f"max_leak={budget}, random_state=0"),
    )
    first, *others = causes
    return [Cause(first.name, first.leak, first.sentence, (*first.steps, step)), *others]


def _with_few_steps(causes: list[Cause]) -> list[Cause]:
    """The causes with at most three steps in all: the first of each cause, then the second of each, and so on."""
    taken: list[list[Step]] = [[] for _ in causes]
    seen: set[Step] = set()
    for at in range(_MOST_STEPS):
        for cause, steps in zip(causes, taken, strict=True):
            if at < len(cause.steps) and cause.steps[at] not in seen and len(seen) < _MOST_STEPS:
                seen.add(cause.steps[at])
                steps.append(cause.steps[at])
    return [
        Cause(cause.name, cause.leak, cause.sentence, tuple(steps)) for cause, steps in zip(causes, taken, strict=True)
    ]
