"""The commands that make an eraser fast or portable: distill and export."""

from __future__ import annotations

import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from mute.cli.main import (
    _INPUTS,
    Model,
    Quiet,
    Rows,
    _clock,
    _console,
    _fit_progress,
    _how_near,
    _load,
    _open_with_labels,
    _settings,
    _warnings_shown,
    app,
)
from mute.errors import MuteError

__all__ = ["Kind"]


class Kind(StrEnum):
    """Copies, which `mute.estimators.registry` has under these names and "-surrogate"."""

    mlp = "mlp"
    cinn = "cinn"
    inn = "inn"
    linear = "linear"
    low_rank = "low-rank"


class Concept(StrEnum):
    routed = "routed"
    given = "given"


@app.command(epilog=_INPUTS)
def distill(
    model: Model,
    x: Rows,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the copy (.safetensors).")],
    kind: Annotated[
        Kind,
        typer.Option(
            help="mlp: a network, erases only. cinn, inn: invertible networks, with counterfactuals. linear: a matrix "
            "for each class, with counterfactuals. low-rank: one matrix, the cheapest."
        ),
    ] = Kind.mlp,
    preset: Annotated[str | None, typer.Option(help="Settings by name: fast, paper, ...")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of the copy; repeat for more.")
    ] = None,
    concept: Annotated[
        str | None, typer.Option("--concept", help="Labels of the rows, FILE:COLUMN, for a model without router.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed; the same seed gives the same copy.")] = 0,
    quiet: Quiet = False,
) -> None:
    """Copy a model into a faster one: mute distill gender.safetensors X.npy -o fast.safetensors"""
    from mute.estimators.registry import make
    from mute.storage.files import check_target
    from mute.tables import split_spec

    check_target(output)
    teacher = _load(model, None)
    settings = {"random_state": seed} | ({"router": "teacher"} if kind is Kind.linear else {}) | _settings(set_ or [])
    if "teacher" in settings:
        raise MuteError("there is no setting 'teacher' here: the teacher is the model that is copied")
    copy = make(f"{kind.value}-surrogate" + (f":{preset}" if preset else ""), **settings).set_params(teacher=teacher)
    matrix, labels = _open_with_labels(x, concept)
    console = _console(quiet)
    start = time.perf_counter()
    console.print(f"copying {type(teacher).__name__} on {matrix.shape[0]:,} rows ...", highlight=False)
    with _warnings_shown(console), _fit_progress(copy, quiet):
        copy.fit(matrix.to_numpy(), concept=labels)
    copy.save(output, about={"x": Path(split_spec(x)[0]).name})
    console.print(f"fitted {type(copy).__name__} in {_clock(time.perf_counter() - start)}", highlight=False)
    for line in _how_near(copy):
        console.print(line, highlight=False)
    console.print(f"wrote {output} ({output.stat().st_size / 1e6:.1f} MB)", highlight=False)


@app.command(epilog=_INPUTS)
def export(
    model: Model,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write it: .onnx, or .pt2 for torch.")],
    counterfactual: Annotated[
        bool, typer.Option("--counterfactual", help="Move rows to a target class in place of erasing them.")
    ] = False,
    concept: Annotated[
        Concept, typer.Option(help="Who says the class of a row: the model's router, or an input of the export.")
    ] = Concept.routed,
    quantize: Annotated[
        bool, typer.Option("--quantize", help=".onnx of an mlp copy: its network in 8 bits, smaller and faster.")
    ] = False,
    check: Annotated[
        str | None, typer.Option(metavar="X", help="Rows on which the export is compared with the model.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Write a model for places without this package: mute export fast.safetensors -o fast.onnx --check X.npy"""
    from mute.export import to_onnx, to_pt2
    from mute.tables import open_matrix

    console = _console(quiet)
    kind = output.suffix.lower()
    if kind not in (".onnx", ".pt2"):
        raise MuteError(f"{output} must end in .onnx or, for torch, in .pt2")
    eraser = _load(model, None)
    rows = None
    if check is not None:
        matrix = open_matrix(check)
        rows = next(iter(matrix.row_blocks(1000)))
        if matrix.shape[1] != eraser.n_features_in_:
            raise MuteError(f"{check} has {matrix.shape[1]} columns, the model was fitted on {eraser.n_features_in_}")
    if quantize and kind != ".onnx":
        raise MuteError("--quantize is for .onnx only")
    settings: dict[str, Any] = {"counterfactual": counterfactual, "concept": concept.value, "check": rows}
    if kind == ".onnx":
        gap = to_onnx(eraser, output, quantize=quantize, **settings)
    else:
        gap = to_pt2(eraser, output, **settings)
    if gap is not None and rows is not None:
        console.print(f"on {len(rows):,} rows it differs from the model by at most {gap:.1e}", highlight=False)
    console.print(f"wrote {output} ({output.stat().st_size / 1e6:.1f} MB)", highlight=False)
