"""The commands that make and show a model: fit, methods, inspect."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mute.cli import console
from mute.errors import MuteError
from mute.typing import Json, Method

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mute.tables import Matrix

__all__ = ["commands"]

commands = typer.Typer()


@commands.command(epilog=console.INPUTS)
def fit(
    x: console.Rows,
    concept: console.Concept,
    output: Annotated[Path, typer.Option("--output", "-o", help="Model file to write (.safetensors).")],
    method: Annotated[
        str,
        typer.Option("--method", "-m", help="METHOD or METHOD:PRESET, as in farm:paper-glove; see `mute methods`."),
    ] = "mute",
    set_: console.Settings = None,
    task: Annotated[str | None, typer.Option(help="Labels of a task, for methods that preserve a task.")] = None,
    columns: console.Columns = None,
    ids: console.Ids = None,
    unlabelled: Annotated[
        str | None, typer.Option(help="mute: more rows, without labels; the router labels them.")
    ] = None,
    iterations: Annotated[
        str | None,
        typer.Option(
            help="mute: number of layers, or `auto` to stop when a new layer no longer separates the classes.",
            show_default="auto",
        ),
    ] = None,
    router: Annotated[
        Literal["mlp", "logistic", "none"] | None,
        typer.Option(help="Classifier of rows without labels. none: the model requires labels.", show_default="mlp"),
    ] = None,
    marginal: Annotated[
        Literal["quantile", "histogram", "paper"] | None,
        typer.Option(help="mute: map of one coordinate. paper: the paper's histogram.", show_default="quantile"),
    ] = None,
    shrinkage: Annotated[
        bool | None,
        typer.Option(
            "--shrinkage/--no-shrinkage",
            help="mute: classes share an estimate unless they differ by more than chance.",
            show_default="shrinkage",
        ),
    ] = None,
    rotation: Annotated[
        Literal["auto", "alternate", "global", "random", "ica"] | None,
        typer.Option(help="mute: schedule of rotations.", show_default="auto"),
    ] = None,
    keep_norm: Annotated[
        bool, typer.Option("--keep-norm", help="mute: a counterfactual gets the norm of its source row.")
    ] = False,
    max_leak: Annotated[
        float | None,
        typer.Option(
            help="Leak budget, such as 0.03: noise after the eraser, as little as keeps the strongest adversary on "
            "unseen rows within it. Any method."
        ),
    ] = None,
    cells: Annotated[
        int | None, typer.Option(help="mute: publish the centre of a row's cell, one of so many (see mute certify).")
    ] = None,
    groups: console.Groups = None,
    secret: console.Secret = None,
    seed: console.Seed = 0,
    scratch: Annotated[
        Path | None, typer.Option(help="mute: folder for a copy of rows that exceed the memory.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="mute: folder that keeps finished layers to continue from.")
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Fit on the dask cluster at host:port; local starts a cluster."),
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for an answer of the dask cluster.")] = 30,
    dry_run: console.DryRun = False,
    overwrite: console.Overwrite = False,
    threads: console.Threads = None,
    quiet: console.Quiet = False,
) -> None:
    """Fit an eraser: mute fit people.parquet --concept gender -o gender.safetensors"""
    import numpy as np
    from threadpoolctl import threadpool_limits

    from mute.eraser import MUtE
    from mute.estimators.conditional import Conditional
    from mute.estimators.registry import make, method_of
    from mute.flow.checkpoints import Checkpoint
    from mute.rows.validation import LabelEncoder, check_classes, label_array, set_names
    from mute.tables import open_matrix, split_spec

    console.check_output(
        output,
        "a model",
        [".safetensors"],
        [x, concept, task, unlabelled, groups, str(secret or "") or None],
        overwrite,
    )
    if iterations not in (None, "auto") and not str(iterations).isdecimal():
        raise MuteError(f"--iterations must be auto or a whole number, not {iterations!r}")
    given: Json = {
        "n_iterations": int(iterations) if iterations and iterations != "auto" else iterations,
        "router": router,
        "marginal": MUtE.PRESETS["paper-text"]["marginal"] if marginal == "paper" else marginal,
        "shrinkage": shrinkage,
        "rotation": rotation,
        "keep_norm": keep_norm or None,
        "cells": cells,
        "scratch": scratch,
        "resume": resume,
    }
    settings = {"random_state": seed} | console.parse_settings(set_) | {k: v for k, v in given.items() if v is not None}
    if router == "none":
        settings["router"] = None
    if method_of(method).kind == "none":
        raise MuteError("the method none leaves the rows as they are: there is nothing to fit")
    if method_of(method).task and task is None:
        raise MuteError(f"the method {method} learns from the labels of a task; give --task FILE:COLUMN")
    if max_leak is None and (groups is not None or secret is not None):
        raise MuteError("--groups and --secret belong to a leak budget; give --max-leak too, or leave them out")
    eraser = _with_budget(make(method, **settings), max_leak, seed)
    taken = signature(eraser.fit).parameters
    inner: Method = getattr(eraser, "eraser", eraser)
    if task is not None and "task" not in signature(inner.fit).parameters:
        raise MuteError(f"the method {method} does not use the labels of a task; leave --task out")
    if unlabelled is not None and "unlabelled" not in taken:
        raise MuteError(f"the method {method} does not learn from rows without labels; leave --unlabelled out")
    if hasattr(eraser, "n_threads"):
        eraser.set_params(n_threads=threads)
    matrix, labels, tasks, sources = console.open_rows(x, concept, task, groups, columns=columns, ids=ids)
    more = {} if task is None else {"task": tasks}
    if max_leak is not None:
        more |= {"groups": sources, "secret": console.read_secret(secret)}
    others = [] if unlabelled is None else [open_matrix(unlabelled, names=matrix.columns)]
    if others:
        more["unlabelled"] = others[0].to_numpy()
    out, start = console.output(quiet), time.perf_counter()
    out.print(console.what_is_read(matrix, x, concept, labels))
    if settings.get("concept_type") != "continuous":
        encoder, codes = LabelEncoder.fit(label_array(labels, "concept"))
        check_classes(encoder, np.bincount(codes))
        if labels.dtype.kind == "f":
            out.print(f"note: the concept has {len(encoder)} different decimal numbers, each of which is a class")
        if isinstance(inner, Conditional):
            out.print(_leak_to_expect(np.bincount(codes), matrix.shape[1]))
    if dry_run:
        out.print(f"{matrix.shape[0]:,} rows would be fitted; nothing was fitted or written")
        return
    out.print(f"fitting on {matrix.shape[0]:,} rows of {matrix.shape[1]:,} columns ...")
    with (
        nullcontext() if resume is None else console.resumable(resume, what=lambda: "finished layers"),
        console.warnings_shown(out),
        console.notes_shown(out),
        console.fit_progress(eraser, quiet),
        threadpool_limits(threads),
        _rows_for(matrix, dask, timeout) as rows,
    ):
        # Rows without labels are joined to the others in memory.
        eraser.fit(rows if unlabelled is None else matrix.to_numpy(), labels, **more)
    for read in (matrix, *others):
        read.check_unchanged()
    set_names(eraser, matrix.shape[1], matrix.columns)  # arrays, in memory or on a cluster, have lost them
    about = {"x": split_spec(x)[0].name, "concept": console.column_in(x, concept).rsplit("/", 1)[-1], "method": method}
    eraser.save(output, about=about)
    if resume is not None:
        Checkpoint.remove(resume)
    layers = f" of {eraser.n_iterations_} layers" if method_of(method).kind == "MUtE" else ""
    out.print(f"fitted {type(inner).__name__}{layers} in {console.clock(time.perf_counter() - start)}")
    console.print_summary(out, eraser)
    console.print_budget(out, eraser)
    console.wrote(out, output)


def _with_budget(eraser: Method, max_leak: float | None, seed: int) -> Method:
    """The eraser with its leak budget: MUtE has its own, other methods are wrapped."""
    if max_leak is None:
        return eraser
    if "max_leak" in eraser.get_params(deep=False):
        return eraser.set_params(max_leak=max_leak)
    from mute.budget.budgeted import Budgeted

    return Budgeted(eraser, max_leak, random_state=seed)


def _leak_to_expect(counts: NDArray[np.int64], columns: int) -> str:
    """What class-wise maps from so few rows can leak, in one line."""
    from mute.adversaries.expected import expected_accuracy, harmonic_mean

    rows = harmonic_mean(counts.tolist())
    leak = expected_accuracy(columns, rows, rows, len(counts)) - 1 / len(counts)
    return (
        f"from {rows:,.0f} rows a class in {columns:,} columns, class-wise maps can leak up to {leak * 100:.1f} points "
        "to an adversary with as many unseen rows"
    )


@contextmanager
def _rows_for(matrix: Matrix, dask: str | None, timeout: float) -> Iterator[Any]:
    """The rows: the matrix itself, or a collection on a cluster."""
    if dask is None:
        yield matrix
        return
    from mute.rows.dask import cluster, to_dask

    with cluster(dask, timeout):
        yield to_dask(matrix)


@commands.command()
def methods() -> None:
    """List the methods of `mute fit` and `mute compare`, with their presets."""
    from mute.estimators.registry import METHODS, class_of

    rows = []
    for name, method in METHODS.items():
        requires = [word for word, needed in (("task labels", method.task), ("torch", method.torch)) if needed]
        presets = [] if method.kind == "none" else list(class_of(method.kind).PRESETS)
        rows.append((name, method.about, ", ".join(requires), ", ".join(presets)))
    heads = ("method", "what it does", "requires", "presets")
    console.print_table(console.output(), heads, rows, left=4, wrap=heads)


@commands.command()
def inspect(
    model: console.Model,
    layers: Annotated[bool, typer.Option("--layers", help="Also print diagnostics of each layer and class.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the diagnostics to this file (.png, .svg, .pdf).")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print all metadata of the file as JSON.")] = False,
    overwrite: console.Overwrite = False,
) -> None:
    """Show what a model is, how it was fitted, and the errors of its router."""
    import mute
    from mute.estimators.persistence import describe

    if plot is not None:
        console.check_output(plot, "a picture", [".png", ".svg", ".pdf"], [model], overwrite)
    about = describe(model)
    if json_:
        import json

        typer.echo(json.dumps(about, indent=2))
        return
    eraser = mute.load(model)
    out = console.output()
    out.print(f"{model}  {about['kind']}, {about['bytes'] / 1e6:.1f} MB", style="bold")
    if hasattr(eraser, "flow_"):
        flow = eraser.flow_
        out.print(
            f"  {flow.n_layers} layers, {flow.n_features} columns, {flow.n_classes} classes, "
            f"{flow.values.shape[3]} knots, {flow.dtype.name}"
        )
    settings = ", ".join(f"{name}={value!r}" for name, value in eraser.get_params(deep=False).items())
    out.print(f"  settings: {settings}")
    for name, value in about["provenance"].items():
        out.print(f"  {name}: {value}")
    console.print_summary(out, eraser)
    console.print_budget(out, eraser)
    console.print_fidelity(out, eraser)
    diagnostics = getattr(eraser, "diagnostics_", None)
    if layers and diagnostics is not None:
        typer.echo(str(diagnostics))
    if plot is not None:
        if diagnostics is None:
            raise MuteError(f"{model} has no diagnostics of its layers; leave --plot out, or fit with diagnostics=True")
        diagnostics.plot(plot)
        console.wrote(out, plot)
