"""The commands that judge: audit, compare and frontier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mute.cli import console
from mute.errors import MuteError
from mute.typing import Json

if TYPE_CHECKING:
    from rich.console import Console

    from mute.evaluation.compare import Comparison
    from mute.evaluation.frontier import Frontier
    from mute.evaluation.report import Report

__all__ = ["EXIT_CODES", "commands", "print_next", "print_verdict"]

commands = typer.Typer()

EXIT_CODES = {"erased": 0, "leaks": 3, "not erased": 4, "too few rows to say": 5}
_STYLES = {
    "erased": "bold green", "leaks": "bold yellow", "not erased": "bold red", "too few rows to say": "bold cyan",
}  # fmt: skip
_WRITERS = {".html": "to_html", ".md": "to_markdown", ".json": "to_json"}

TaskLabels = Annotated[str | None, typer.Option("--task", help="Labels of a task, to judge its accuracy and fairness.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="Report to write: .html, .md or .json.")]
MaxLeak = Annotated[
    float,
    typer.Option(min=0.0, max=1.0, help="Budget: the interval of the leak above chance must end within it."),
]
Adversaries = Annotated[str, typer.Option(help="all, or names separated by commas.")]
Again = Annotated[bool, typer.Option("--again", help="Ignore the finished methods of an earlier run.")]
MostRows = Annotated[int, typer.Option(min=100, help="Maximum number of rows, drawn at random.")]


@commands.command(epilog=f"Exit code: 0 erased, 3 leaks, 4 not erased, 5 too few rows to say. {console.INPUTS}")
def audit(
    model: Annotated[str, typer.Argument(help="Model written by `mute fit`, or a matrix of rows erased elsewhere.")],
    x: console.Rows,
    concept: console.Concept,
    output: Output,
    task: TaskLabels = None,
    columns: console.Columns = None,
    ids: console.Ids = None,
    fit_rows: Annotated[str | None, typer.Option(help="Training rows of the eraser, for the paper's protocol.")] = None,
    fit_concept: Annotated[str | None, typer.Option(help="Labels of the training rows.")] = None,
    fit_erased: Annotated[
        str | None, typer.Option(help="The training rows after erasure; required if rows were erased elsewhere.")
    ] = None,
    oracle: Annotated[bool, typer.Option("--oracle", help="Erase with true labels in place of the router.")] = False,
    groups: console.Groups = None,
    adversaries: Adversaries = "all",
    max_leak: MaxLeak = 0.02,
    most_rows: MostRows = 20_000,
    secret: console.Secret = None,
    seed: console.Seed = 0,
    overwrite: console.Overwrite = False,
    quiet: console.Quiet = False,
) -> None:
    """Judge an eraser on unseen rows: mute audit gender.safetensors X.npy --concept z.csv:gender -o audit.html"""
    import mute
    from mute.evaluation.audit import audit as judge
    from mute.tables import open_matrix
    from mute.tables.table import TableMatrix

    write = _writer(output, [model, x, concept, task, groups, fit_rows, fit_concept, fit_erased], overwrite)
    if (fit_rows is None) != (fit_concept is None):
        raise MuteError("--fit-rows and --fit-concept go together; give the training rows and their labels")
    elsewhere = not model.endswith(".safetensors")
    if elsewhere:
        subject = open_matrix(model)
        names = subject.columns
    else:
        eraser = mute.load(Path(model), secret=console.read_secret(secret))
        subject, names = eraser.nameless(), console.names_of(eraser)
    if elsewhere and fit_rows is not None and fit_erased is None:
        raise MuteError("--fit-rows of rows erased elsewhere need --fit-erased; give the erased training rows")
    matrix, labels, tasks, sources = console.open_rows(
        x, concept, task, groups, columns=columns, ids=ids, names=names
    )  # fmt: skip
    seen: tuple | None = None
    if fit_rows is not None:
        seen = console.open_rows(fit_rows, fit_concept, ids=ids, names=names)
        seen = (*seen, open_matrix(fit_erased or "", names=names)) if elsewhere else seen
    out = console.output(quiet)
    if isinstance(matrix, TableMatrix):
        out.print(console.what_is_read(matrix, x, concept, labels))
    with console.warnings_shown(out), console.progress_bar(quiet, "reading") as report:
        found = judge(
            subject, matrix, labels, task=tasks, fit_rows=seen, oracle=oracle or None, progress=report,
            groups=sources, random_state=seed, **_panel(adversaries, max_leak, most_rows),
        )  # fmt: skip
    for read in (matrix, *([subject] if elsewhere else []), *((seen[0], *seen[2:]) if seen else ())):
        read.check_unchanged()
    found = found.with_files(model=model, x=x, concept=concept, fit_rows=fit_rows, fit_concept=fit_concept)
    write(found)
    print_verdict(out, found)
    console.wrote(out, output)
    raise typer.Exit(EXIT_CODES[found.verdict])


@commands.command(epilog=console.INPUTS)
def compare(
    x: console.Rows,
    concept: console.Concept,
    output: Output,
    task: TaskLabels = None,
    columns: console.Columns = None,
    ids: console.Ids = None,
    methods: Annotated[str, typer.Option(help="all, or names separated by commas; see `mute methods`.")] = "all",
    fit_share: Annotated[float, typer.Option(help="Share of training rows; the other rows judge.")] = 0.5,
    groups: console.Groups = None,
    adversaries: Adversaries = "all",
    max_leak: MaxLeak = 0.02,
    most_rows: MostRows = 20_000,
    seed: console.Seed = 0,
    again: Again = False,
    overwrite: console.Overwrite = False,
    quiet: console.Quiet = False,
) -> None:
    """Judge many erasers on one split: mute compare X.npy --concept z.csv:gender --methods all -o compare.html

    Finished methods are kept in a folder beside the report; the same command continues an interrupted run.
    """
    from mute.evaluation.compare import compare as judge
    from mute.tables.table import TableMatrix

    write = _writer(output, [x, concept, task, groups], overwrite)
    matrix, labels, tasks, sources = console.open_rows(x, concept, task, groups, columns=columns, ids=ids)
    folder = _parts(output, again)
    out = console.output(quiet)
    if isinstance(matrix, TableMatrix):
        out.print(console.what_is_read(matrix, x, concept, labels))
    with (
        _resumable(folder),
        console.warnings_shown(out),
        console.progress_bar(quiet, "reading") as report,
    ):
        found = judge(
            matrix, labels, task=tasks, methods=methods, fit_share=fit_share, folder=folder, progress=report,
            groups=sources, random_state=seed, **_panel(adversaries, max_leak, most_rows),
        )  # fmt: skip
    matrix.check_unchanged()
    _print_comparison(out, found)
    if not found.reports:
        raise _all_failed(found.failures)
    write(found)
    console.wrote(out, output)


@commands.command(epilog=console.INPUTS)
def frontier(
    x: console.Rows,
    concept: console.Concept,
    output: Output,
    task: Annotated[str | None, typer.Option("--task", help="Labels of a task, to measure its accuracy.")] = None,
    columns: console.Columns = None,
    ids: console.Ids = None,
    methods: Annotated[str, typer.Option(help="all, or names separated by commas; see `mute methods`.")] = "mute",
    families: Annotated[
        str,
        typer.Option(help="noise, noise by worth, components, one bit; names separated by commas.", show_default="all"),
    ] = "all",
    shares: Annotated[
        str, typer.Option(help="Shares of the erased rows' worth to keep, between 0 and 1, separated by commas.")
    ] = "0.9,0.75,0.6,0.45,0.3,0.2,0.1",
    max_leak: MaxLeak = 0.03,
    groups: console.Groups = None,
    seed: console.Seed = 0,
    again: Again = False,
    overwrite: console.Overwrite = False,
    quiet: console.Quiet = False,
) -> None:
    """Draw leak against what is kept: mute frontier X.npy --concept z.csv:gender -o frontier.html

    Finished methods are kept in a folder beside the report; the same command continues an interrupted run.
    """
    from mute.budget.channel import FAMILIES, ONE_BIT
    from mute.evaluation.frontier import frontier as measure
    from mute.tables.table import TableMatrix

    write = _writer(output, [x, concept, task, groups], overwrite)
    kept = _numbers("--shares", shares)
    matrix, labels, tasks, units = console.open_rows(x, concept, task, groups, columns=columns, ids=ids)
    folder = _parts(output, again)
    out = console.output(quiet)
    if isinstance(matrix, TableMatrix):
        out.print(console.what_is_read(matrix, x, concept, labels))
    kinds = [*FAMILIES, ONE_BIT] if families == "all" else families
    with _resumable(folder), console.warnings_shown(out), console.progress_bar(quiet, "reading") as report:
        found = measure(
            matrix, labels, task=tasks, methods=methods, families=kinds,
            shares=kept, max_leak=max_leak, groups=units, random_state=seed, progress=report, folder=folder,
        )  # fmt: skip
    matrix.check_unchanged()
    _print_frontier(out, found)
    if not found.points:
        raise _all_failed(found.failures)
    write(found)
    console.wrote(out, output)


def print_verdict(out: Console, report: Report) -> None:
    """Print the verdict, the report in sentences, and after a leak its causes and what to try next."""
    out.print(report.verdict, style=_STYLES[report.verdict])
    for line in report.summary:
        out.print(f"- {line}")
    print_next(out, report)


def print_next(out: Console, report: Report) -> None:
    """Print the causes of a leak and the commands to try next; a command stays on one line, to be copied."""
    from mute.evaluation.wording import next_lines

    for line in next_lines(report.to_dict()):
        out.print(line, soft_wrap=True if line.startswith(" ") else None)  # None: as the console is set


def _panel(adversaries: str, max_leak: float, most_rows: int) -> Json:
    names = adversaries if adversaries == "all" else adversaries.split(",")
    return {"adversaries": names, "max_leak": max_leak, "most_rows": most_rows}


def _parts(output: Path, again: bool) -> Path:
    """The folder of finished methods beside a report, emptied to begin `again`."""
    folder = output.with_name(f"{output.stem}.parts")
    if again:
        for part in folder.glob("*.json"):
            part.unlink()
    return folder


def _resumable(folder: Path) -> AbstractContextManager[None]:
    return console.resumable(folder, what=lambda: f"{len(list(folder.glob('*.json')))} finished method(s)")


def _all_failed(failures: dict[str, str]) -> MuteError:
    name, error = next(iter(failures.items()))
    return MuteError(f"every method failed, and nothing was written; the first, {name}: {error}")


def _numbers(option: str, text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise MuteError(f"{option} takes numbers separated by commas, such as 0.6,0.3, not {text!r}") from None


def _print_comparison(out: Console, found: Comparison) -> None:
    heads = {
        "method": "method", "verdict": "verdict", "fresh": "unseen", "paper": "paper", "bits_read": "bits", "r2": "R²",
        "neighbours_1pc": "near", "task_accuracy": "task", "tpr_rms": "gap", "fit_seconds": "fit s",
    }  # fmt: skip
    rows = found.rows()
    shown = [name for name in heads if any(row[name] is not None for row in rows)]

    def cell(name: str, value: object) -> str:
        if value is None or isinstance(value, str):
            return value or "-"
        return f"{value:.1f}" if name == "fit_seconds" else f"{value:.3f}"

    if rows:
        cells = [[cell(name, row[name]) for name in shown] for row in rows]
        console.print_table(out, [heads[name] for name in shown], cells, left=2)
        out.print("unseen, paper: what the strongest adversary of the panel reads under each protocol")
    for name, error in found.failures.items():
        out.print(f"{name} failed: {error}", style="red")


def _print_frontier(out: Console, found: Frontier) -> None:
    """Print the lossless and the chosen point of each method, and what was found in sentences."""
    rows = [row for row in found.rows() if row["chosen"] or row["share"] >= 1]
    if rows:
        heads = ["method", "family", "adversary", "share", "leak", "interval", "R²", "task", "budget"]
        cells = [
            [
                row["method"], row["family"], row["adversary"], f"{row['share']:g}", f"{row['leak']['value']:.3f}",
                f"{row['leak']['low']:.3f} to {row['leak']['high']:.3f}", f"{row['r2']:.3f}",
                f"{row['task_accuracy']['value']:.3f}" if row["task_accuracy"] else "-",
                "chosen" if row["chosen"] else "exceeded",
            ]
            for row in rows
        ]  # fmt: skip
        console.print_table(out, heads, cells, left=3)
    for line in found.summary:
        out.print(f"- {line}")
    for name, error in found.failures.items():
        out.print(f"{name} failed: {error}", style="red")


def _writer(output: Path, inputs: Sequence[str | None], overwrite: bool) -> Callable[[Any], None]:
    """The function that writes the report; the file name is checked before any work."""
    console.check_output(output, "a report", list(_WRITERS), inputs, overwrite)
    method = _WRITERS[output.suffix.lower()]
    if method == "to_html":
        from mute.evaluation.page import require_libraries

        require_libraries()
    return lambda report: getattr(report, method)(output)
