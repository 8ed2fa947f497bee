"""The command that certifies: a bound on every adversary."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mute.cli import console
from mute.errors import MuteError

__all__ = ["EXIT_CODES", "commands"]

commands = typer.Typer()

EXIT_CODES = {"within": 0, "exceeds": 3, "too few rows": 5}
_STYLES = {"within": "bold green", "exceeds": "bold yellow", "too few rows": "bold red"}


@commands.command(epilog=f"Exit code: 0 within the budget, 3 above it, 5 too few rows for it. {console.INPUTS}")
def certify(
    model: Annotated[str, typer.Argument(help="Model written by `mute fit`, or a matrix of rows erased elsewhere.")],
    x: console.Rows,
    concept: console.Concept,
    cells: Annotated[int, typer.Option(min=1, help="Cells; not used if the model publishes cells.")] = 32,
    confidence: Annotated[float, typer.Option(help="Share of all draws for which the bound is true.")] = 0.95,
    columns: console.Columns = None,
    ids: console.Ids = None,
    fit_rows: Annotated[
        str | None, typer.Option(help="Rows that fix the cells, such as training rows.", show_default="a quarter of X")
    ] = None,
    fit_concept: Annotated[str | None, typer.Option(help="Labels of these rows.")] = None,
    oracle: Annotated[bool, typer.Option("--oracle", help="Erase with true labels in place of the router.")] = False,
    max_leak: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Budget: tolerated balanced accuracy above chance.")
    ] = 0.03,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Certificate to write: .json or .md.")] = None,
    secret: console.Secret = None,
    seed: console.Seed = 0,
    overwrite: console.Overwrite = False,
    quiet: console.Quiet = False,
) -> None:
    """Bound what any adversary reads: mute certify gender.safetensors X.npy --concept z.csv:gender --max-leak 0.03"""
    import mute
    from mute.evaluation.certificate import certify as prove
    from mute.evaluation.certificate_wording import at_most, certificate_table
    from mute.evaluation.rendering import cell
    from mute.tables import open_matrix
    from mute.tables.table import TableMatrix

    if output is not None:
        inputs = [model, x, concept, fit_rows, fit_concept]
        console.check_output(output, "a report", [".json", ".md"], inputs, overwrite)
    if (fit_rows is None) != (fit_concept is None):
        raise MuteError("--fit-rows and --fit-concept go together; give rows that fix the cells, and their labels")
    if model.endswith(".safetensors"):
        eraser = mute.load(Path(model), secret=console.read_secret(secret))
        subject, names = eraser.nameless(), console.names_of(eraser)
    else:
        subject, names = open_matrix(model), None
    matrix, labels = console.open_rows(x, concept, columns=columns, ids=ids, names=names)
    fixing = None if fit_rows is None else console.open_rows(fit_rows, fit_concept, ids=ids, names=names)
    out = console.output(quiet)
    if isinstance(matrix, TableMatrix):
        out.print(console.what_is_read(matrix, x, concept, labels))
    with console.warnings_shown(out):
        found = prove(
            subject, matrix, labels, cells=cells, confidence=confidence, fit_rows=fixing, oracle=oracle or None,
            random_state=seed,
        )  # fmt: skip
    matrix.check_unchanged()
    verdict, table = found.verdict(max_leak), certificate_table(found.to_dict())
    said = {
        "within": "within the budget", "exceeds": "above the budget", "too few rows": "too few rows for the budget",
    }[verdict]  # fmt: skip
    out.print(f"{said} of {max_leak * 100:g} points above chance", style=_STYLES[verdict])
    for line in found.summary:
        out.print(f"- {line}")
    console.print_table(out, table.head, [[cell(value) for value in row] for row in table.rows])
    for note in table.notes:
        out.print(note)
    if verdict != "within":
        out.print(f"To prove less than {at_most(found.bound)}, give more unseen rows or fewer --cells.")
    if output is not None:
        (found.to_json if output.suffix.lower() == ".json" else found.to_markdown)(output)
        console.wrote(out, output)
    raise typer.Exit(EXIT_CODES[verdict])
