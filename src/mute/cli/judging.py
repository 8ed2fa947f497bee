"""The commands that judge: audit and compare."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from mute.cli.main import (
    _INPUTS,
    _INTERRUPTED,
    Quiet,
    Rows,
    _check_lengths,
    _console,
    _fail,
    _load_any,
    _on_terminal,
    _warnings_shown,
    app,
)
from mute.errors import MuteError

__all__ = ["EXIT_CODES"]

EXIT_CODES = {"erased": 0, "leaks": 3, "not erased": 4}

Concept = Annotated[str, typer.Option("--concept", help="Labels: labels.csv:gender, z.npy, z.txt, ...")]
TaskLabels = Annotated[str | None, typer.Option("--task", help="A downstream label: its accuracy and fairness.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="The report: .html, .md or .json.")]
MaxLeak = Annotated[float, typer.Option(min=0.0, max=1.0, help="Balanced accuracy above chance that is tolerated.")]
Adversaries = Annotated[str, typer.Option(help="all, or names separated by commas.")]
MostRows = Annotated[int, typer.Option(min=100, help="Rows used, drawn at random.")]
Seed = Annotated[int, typer.Option(help="Seed; the same seed gives the same report.")]

_WRITERS = {".html": "to_html", ".md": "to_markdown", ".json": "to_json"}


@app.command(epilog=f"Exit code: 0 erased, 3 leaks, 4 not erased. {_INPUTS}")
def audit(
    model: Annotated[str, typer.Argument(help="A model written by `mute fit`, or erased rows made elsewhere.")],
    x: Rows,
    concept: Concept,
    output: Output,
    task: TaskLabels = None,
    fit_rows: Annotated[str | None, typer.Option(help="Rows of the fit, for the paper's protocol.")] = None,
    fit_concept: Annotated[str | None, typer.Option(help="Labels of these rows.")] = None,
    fit_erased: Annotated[str | None, typer.Option(help="These rows, erased: for rows erased elsewhere.")] = None,
    oracle: Annotated[bool, typer.Option("--oracle", help="Erase with the true labels.")] = False,
    adversaries: Adversaries = "all",
    max_leak: MaxLeak = 0.02,
    most_rows: MostRows = 20_000,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Judge an eraser on rows it never saw: mute audit gender.safetensors X.npy --concept z.csv:gender -o audit.html"""
    from mute.evaluation.audit import audit as judge
    from mute.tables import open_matrix

    write = _writer(output)
    if (fit_rows is None) != (fit_concept is None):
        raise MuteError("--fit-rows and --fit-concept go together: rows of the fit, and their labels")
    elsewhere = not model.endswith(".safetensors")
    subject = open_matrix(model) if elsewhere else _load_any(Path(model))
    if elsewhere and fit_rows is not None and fit_erased is None:
        raise MuteError("rows erased elsewhere need --fit-erased beside --fit-rows: the same rows, erased")
    labels, tasks, matrix = _read(x, concept, task)
    seen: tuple | None = None
    if fit_rows is not None and fit_concept is not None:
        z_fit, _, X_fit = _read(fit_rows, fit_concept, None)
        seen = (X_fit, z_fit) if not elsewhere else (X_fit, z_fit, open_matrix(fit_erased or ""))
    console = _console(quiet)
    with _warnings_shown(console), _steps(quiet) as progress:
        report = judge(
            subject, matrix, labels, task=tasks, fit_rows=seen, oracle=oracle or None,
            adversaries=adversaries if adversaries == "all" else adversaries.split(","),
            max_leak=max_leak, most_rows=most_rows, random_state=seed, progress=progress,
        )  # fmt: skip
    write(report)
    style = {"erased": "green", "leaks": "yellow", "not erased": "red"}[report.verdict]
    console.print(f"[bold {style}]{report.verdict}[/]", highlight=False)
    for line in report.summary:
        console.print(f"- {line}", highlight=False, markup=False)
    console.print(f"wrote {output}", highlight=False)
    raise typer.Exit(EXIT_CODES[report.verdict])


@app.command(epilog=_INPUTS)
def compare(
    x: Rows,
    concept: Concept,
    output: Output,
    task: TaskLabels = None,
    methods: Annotated[str, typer.Option(help="all, or names separated by commas.")] = "all",
    fit_share: Annotated[float, typer.Option(help="Share of the rows to fit on; the others judge.")] = 0.5,
    adversaries: Adversaries = "all",
    max_leak: MaxLeak = 0.02,
    most_rows: MostRows = 20_000,
    seed: Seed = 0,
    again: Annotated[bool, typer.Option("--again", help="Do not take up what an earlier run has finished.")] = False,
    quiet: Quiet = False,
) -> None:
    """Every eraser on one split: mute compare X.npy --concept z.csv:gender --methods all -o compare.html

    What is finished is kept in a folder beside the report, so that a run that was stopped goes on where it was.
    """
    from mute.evaluation.compare import compare as judge

    write = _writer(output)
    labels, tasks, matrix = _read(x, concept, task)
    folder = output.with_name(f"{output.stem}.parts")
    if again and folder.is_dir():
        for part in folder.glob("*.json"):
            part.unlink()
    console = _console(quiet)
    try:
        with _warnings_shown(console), _steps(quiet) as progress:
            found = judge(
                matrix, labels, task=tasks, methods=methods, fit_share=fit_share, folder=folder, random_state=seed,
                progress=progress, adversaries=adversaries if adversaries == "all" else adversaries.split(","),
                max_leak=max_leak, most_rows=most_rows,
            )  # fmt: skip
    except KeyboardInterrupt:
        kept = len(list(folder.glob("*.json")))
        _fail(
            f"interrupted; {kept} finished method(s) are kept in {folder}, and the same command goes on", _INTERRUPTED
        )
    _print_comparison(console, found)
    if not found.reports:
        name, error = next(iter(found.failures.items()))
        raise MuteError(f"every method failed, and nothing was written; the first, {name}: {error}")
    write(found)
    console.print(f"wrote {output}", highlight=False)


def _print_comparison(console: Any, found: Any) -> None:
    from rich.table import Table

    rows = found.rows()
    if rows:
        heads = {
            "method": "method", "verdict": "verdict", "fresh": "fresh", "paper": "paper", "bits_read": "bits",
            "r2": "R²", "neighbours_1pc": "near", "task_accuracy": "task", "tpr_rms": "gap",
            "fit_seconds": "fit s",
        }  # fmt: skip
        shown = [name for name in heads if any(row[name] is not None for row in rows)]
        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))  # 80 columns wide
        for name in shown:
            table.add_column(heads[name], justify="left" if name in ("method", "verdict") else "right", no_wrap=True)
        for row in rows:
            cells = {name: row[name] if isinstance(row[name], str) else _short(row[name]) for name in shown}
            if "fit_seconds" in cells:
                cells["fit_seconds"] = f"{row['fit_seconds']:.1f}"
            table.add_row(*cells.values())
        console.print(table)
    for name, error in found.failures.items():
        console.print(f"{name} failed: {error}", style="red", highlight=False, markup=False)


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _writer(output: Path) -> Callable[[Any], None]:
    """How to write the report, checked before any work is spent on it."""
    from mute.storage.files import check_target

    check_target(output)
    method = _WRITERS.get(output.suffix)
    if method is None:
        raise MuteError(f"cannot write a report to {output}: give a name that ends in {', '.join(_WRITERS)}")
    if method == "to_html":
        from mute.evaluation.page import require_libraries

        require_libraries()
    return lambda report: getattr(report, method)(output)


def _read(x: str, concept: str, task: str | None) -> tuple[Any, Any, Any]:
    """Labels, task labels and rows; columns that hold labels are not part of the rows."""
    from mute.tables import open_matrix, read_labels, split_spec

    specs = [s for s in (concept, task) if s is not None]
    beside = [split_spec(s)[1] or "" for s in specs if split_spec(s)[0] == split_spec(x)[0]]
    matrix = open_matrix(x, exclude=beside)
    read = {s: read_labels(s) for s in specs}
    for spec, labels in read.items():
        _check_lengths(spec, labels, matrix)
    return read[concept], None if task is None else read[task], matrix


@contextmanager
def _steps(quiet: bool) -> Iterator[Callable[[str, float], None]]:
    """A bar with the name of the step."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), TaskProgressColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, **_on_terminal(quiet)) as progress:
        task = progress.add_task("reading", total=1.0)
        yield lambda name, share: progress.update(task, description=name, completed=share)
