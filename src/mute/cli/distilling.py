"""The commands that make an eraser fast or portable: distill and export."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Literal

import typer

from mute.cli import console
from mute.errors import MuteError
from mute.typing import Json

__all__ = ["commands"]

commands = typer.Typer()


@commands.command(epilog=console.INPUTS)
def distill(
    model: console.Model,
    x: console.Rows,
    output: Annotated[Path, typer.Option("--output", "-o", help="File of the copy to write (.safetensors).")],
    kind: Annotated[
        Literal["mlp", "cinn", "inn", "linear", "low-rank"],
        typer.Option(
            help="mlp: a network that only erases. cinn, inn: invertible networks, with counterfactuals. linear: a "
            "matrix per class, with counterfactuals. low-rank: one matrix, the cheapest."
        ),
    ] = "mlp",
    preset: Annotated[str | None, typer.Option(help="Settings by name: fast, paper, ...")] = None,
    set_: console.Settings = None,
    concept: Annotated[
        str | None, typer.Option("--concept", help="True labels, FILE:COLUMN, for a model that requires labels.")
    ] = None,
    columns: console.Columns = None,
    seed: console.Seed = 0,
    overwrite: console.Overwrite = False,
    quiet: console.Quiet = False,
) -> None:
    """Copy a model into a faster one: mute distill gender.safetensors X.npy -o fast.safetensors"""
    from mute.estimators.registry import make
    from mute.rows.validation import set_names
    from mute.tables import split_spec

    console.check_output(output, "a model", [".safetensors"], [model, x, concept], overwrite)
    teacher = console.load_eraser(model)
    settings = {"random_state": seed} | ({"router": "teacher"} if kind == "linear" else {})
    settings |= console.parse_settings(set_)
    if "teacher" in settings:
        raise MuteError("there is no setting 'teacher' here: the teacher is the model that is copied")
    copy = make(f"{kind}-surrogate" + (f":{preset}" if preset else ""), **settings)
    copy.set_params(teacher=teacher.nameless())
    matrix, labels = console.open_rows(x, concept, columns=columns, names=console.names_of(teacher))
    out, start = console.output(quiet), time.perf_counter()
    out.print(f"copying {type(teacher).__name__} on {matrix.shape[0]:,} rows ...")
    with console.warnings_shown(out), console.fit_progress(copy, quiet):
        copy.fit(matrix.to_numpy(), concept=labels)
    matrix.check_unchanged()
    set_names(copy, matrix.shape[1], matrix.columns)
    copy.save(output, about={"x": split_spec(x)[0].name})
    out.print(f"fitted {type(copy).__name__} in {console.clock(time.perf_counter() - start)}")
    console.print_fidelity(out, copy)
    console.wrote(out, output)


@commands.command(epilog=console.INPUTS)
def export(
    model: console.Model,
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write: .onnx, or .pt2 for torch.")],
    counterfactual: Annotated[
        bool, typer.Option("--counterfactual", help="Export counterfactuals to a target class instead of erasure.")
    ] = False,
    concept: Annotated[
        Literal["routed", "given"],
        typer.Option(help="Class of a row. routed: chosen by the model's router. given: an input of the export."),
    ] = "routed",
    quantize: Annotated[
        bool, typer.Option("--quantize", help=".onnx of an mlp copy: 8-bit network, smaller and faster.")
    ] = False,
    check: Annotated[
        str | None, typer.Option(metavar="X", help="Rows on which the export is compared with the model.")
    ] = None,
    overwrite: console.Overwrite = False,
    quiet: console.Quiet = False,
) -> None:
    """Write a model that runs without this package: mute export fast.safetensors -o fast.onnx --check X.npy"""
    from mute.export import to_onnx, to_pt2
    from mute.tables import open_matrix

    console.check_output(output, "an export", [".onnx", ".pt2"], [model, check], overwrite)
    kind = output.suffix.lower()
    if quantize and kind != ".onnx":
        raise MuteError("--quantize is for .onnx only; leave it out, or write a .onnx file")
    eraser = console.load_eraser(model)
    rows = None
    if check is not None:
        matrix = open_matrix(check, names=console.names_of(eraser))
        console.check_columns(check, matrix, eraser)
        rows = next(iter(matrix.row_blocks(1000)))
    settings: Json = {"counterfactual": counterfactual, "concept": concept, "check": rows}
    if kind == ".onnx":
        gap = to_onnx(eraser, output, quantize=quantize, **settings)
    else:
        gap = to_pt2(eraser, output, **settings)
    out = console.output(quiet)
    if gap is not None and rows is not None:
        out.print(f"on {len(rows):,} rows the export differs from the model by at most {gap:.1e}")
    console.wrote(out, output)
