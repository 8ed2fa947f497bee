"""The command line: fit, erase, counterfactual, inspect, methods, demo; other modules have more.

Exit codes: 0 done; 1 something given cannot be used (one line says what); 2 the command itself is misspelt;
3 and 4 the verdict of an audit; 130 interrupted.
"""

from __future__ import annotations

import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mute.errors import MuteError, WeakResultWarning

if TYPE_CHECKING:
    import numpy as np
    from rich.console import Console

    from mute.tables import Matrix

__all__ = ["app", "run"]

# Rows transformed at a time: enough to keep all cores busy, little enough to be nothing in memory.
_BLOCK_ROWS = 16_384

# What typer gives back for a KeyboardInterrupt.
_INTERRUPTED = 130

_INPUTS = (
    "Matrices: X.npy, X.npz:KEY, X.safetensors:KEY, X.parquet (all numeric columns, or X.parquet:COLUMN for a list "
    "column), X.csv. Many files: a folder of .parquet files, or a pattern in quotes, 'part-*.parquet:COLUMN'. Labels: "
    "the same with :KEY or :COLUMN (also of folders such as gender=f), or a .txt file with one label a line. What is "
    "written follows from the suffix in the same way."
)

app = typer.Typer(
    name="mute",
    help="Take a concept (gender, race, religion, ...) out of embeddings, or ask what an embedding would be under "
    "another value of it.",
    epilog="Start with: mute demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Threads = Annotated[int | None, typer.Option("--threads", min=1, help="Cores to use; all when not given.")]
Model = Annotated[Path, typer.Argument(help="A model written by `mute fit`.")]
Rows = Annotated[str, typer.Argument(metavar="X", help="The embeddings: .npy, .npz:key, .parquet, .csv, a folder, ...")]
Labels = Annotated[
    str | None,
    typer.Option("--concept", help="True labels of the rows, FILE:COLUMN, in place of the router."),
]


class MarginalName(StrEnum):
    quantile = "quantile"
    histogram = "histogram"
    paper = "paper"


class RotationName(StrEnum):
    auto = "auto"
    alternate = "alternate"
    global_ = "global"
    random = "random"
    ica = "ica"


class RouterName(StrEnum):
    mlp = "mlp"
    logistic = "logistic"
    none = "none"


def run() -> None:
    """Run the command line; errors of the user's making end in one line and exit code 1."""
    import mute.cli.data
    import mute.cli.distilling
    import mute.cli.judging
    import mute.cli.paper
    import mute.cli.text  # noqa: F401  (they add their commands)

    # A polite kill unwinds like Ctrl-C, so that no half-written file stays behind.
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        code = app(standalone_mode=False)
    except MuteError as error:
        _fail(str(error), 1)
    except Exception as error:
        # Misspelt commands and options: click knows how to explain them.
        show = getattr(error, "show", None)
        if show is None:
            raise
        show()
        sys.exit(getattr(error, "exit_code", 2))
    if code == _INTERRUPTED:
        _fail("interrupted; nothing was written", _INTERRUPTED)
    sys.exit(code or 0)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _fail(message: str, code: int) -> None:
    from rich.console import Console
    from rich.text import Text

    Console(stderr=True).print(Text("mute: ", style="bold red") + Text(message), soft_wrap=True)
    sys.exit(code)


def _version(value: bool) -> None:
    if value:
        import mute

        typer.echo(f"mute {mute.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command(epilog=_INPUTS)
def fit(
    x: Rows,
    concept: Annotated[str, typer.Option("--concept", help="Labels: labels.csv:gender, z.npy, z.txt, ...")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the model (.safetensors).")],
    method: Annotated[
        str,
        typer.Option("--method", "-m", help="mute, leace, farm, ...; farm:paper-glove for a preset. See `methods`."),
    ] = "mute",
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of the method; repeat for more.")
    ] = None,
    task: Annotated[str | None, typer.Option(help="Labels of a task, for methods that spare it.")] = None,
    unlabelled: Annotated[
        str | None, typer.Option(help="mute: more rows, in a file of their own, which the router labels.")
    ] = None,
    iterations: Annotated[
        str | None,
        typer.Option(help="mute: number of layers, or auto: while they find anything.", show_default="auto"),
    ] = None,
    router: Annotated[
        RouterName | None, typer.Option(help="Who chooses the class of a row without label.", show_default="mlp")
    ] = None,
    marginal: Annotated[
        MarginalName | None,
        typer.Option(
            help="mute: kind of one-dimensional map; paper: its histogram and floor.", show_default="quantile"
        ),
    ] = None,
    shrinkage: Annotated[
        bool | None,
        typer.Option(
            "--shrinkage/--no-shrinkage",
            help="mute: let classes share what does not differ beyond chance.",
            show_default="shrinkage",
        ),
    ] = None,
    rotation: Annotated[
        RotationName | None, typer.Option(help="mute: schedule of rotations.", show_default="auto")
    ] = None,
    keep_norm: Annotated[
        bool, typer.Option("--keep-norm", help="mute: counterfactuals get the norm of their source.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed; the same seed gives the same model.")] = 0,
    scratch: Annotated[
        Path | None, typer.Option(help="mute: folder for the working copy of rows that do not fit into memory.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="mute: keep finished layers in this folder; the same command goes on from them.")
    ] = None,
    dask: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Fit on the dask cluster at host:port; local starts one.")
    ] = None,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Fit an eraser: mute fit X.npy --concept labels.csv:gender -o gender.safetensors"""
    from threadpoolctl import threadpool_limits

    from mute.eraser import MUtE
    from mute.estimators.registry import make, method_of
    from mute.flow.checkpoints import Checkpoint
    from mute.storage.files import check_target
    from mute.tables import open_matrix, read_labels, split_spec

    check_target(output)
    settings: dict[str, Any] = {"random_state": seed} | _settings(set_ or [])
    if iterations is not None:
        if iterations != "auto" and not iterations.isdecimal():
            raise MuteError(f"--iterations must be auto or a whole number, not {iterations!r}")
        settings["n_iterations"] = iterations if iterations == "auto" else int(iterations)
    if router is not None:
        settings["router"] = None if router is RouterName.none else router.value
    if marginal is not None:
        paper = MUtE.PRESETS["paper-text"]["marginal"]
        settings["marginal"] = paper if marginal is MarginalName.paper else marginal.value
    if shrinkage is not None:
        settings["shrinkage"] = shrinkage
    if rotation is not None:
        settings["rotation"] = rotation.value
    if keep_norm:
        settings["keep_norm"] = True
    settings |= {name: value for name, value in (("scratch", scratch), ("resume", resume)) if value is not None}
    if method_of(method).kind == "none":
        raise MuteError("the method none leaves the rows as they are: there is nothing to fit")
    if method_of(method).task and task is None:
        raise MuteError(f"the method {method} learns from the labels of a task; give --task FILE:COLUMN")
    eraser = make(method, **settings)
    if task is not None and "task" not in signature(eraser.fit).parameters:
        raise MuteError(f"the method {method} does not use the labels of a task; leave --task out")
    if unlabelled is not None and "unlabelled" not in signature(eraser.fit).parameters:
        raise MuteError(f"the method {method} does not learn from rows without labels; leave --unlabelled out")
    if hasattr(eraser, "n_threads"):
        eraser.set_params(n_threads=threads)
    specs = [concept] if task is None else [concept, task]
    labels = [read_labels(spec) for spec in specs]
    beside = [split_spec(spec)[1] or "" for spec in specs if split_spec(spec)[0] == split_spec(x)[0]]
    matrix = open_matrix(x, exclude=beside)
    for spec, values in zip(specs, labels, strict=True):
        _check_lengths(spec, values, matrix)
    console = _console(quiet)
    start = time.perf_counter()
    console.print(f"fitting on {matrix.shape[0]:,} rows of {matrix.shape[1]:,} columns ...", highlight=False)
    told: dict[str, Any] = {"task": labels[1]} if task is not None else {}
    if unlabelled is not None:
        told["unlabelled"] = open_matrix(unlabelled).to_numpy()
    try:
        with (
            _warnings_shown(console),
            _notes_shown(console),
            _fit_progress(eraser, quiet),
            threadpool_limits(threads),
            _rows_of(matrix, eraser, dask) as rows,
        ):
            # Rows without labels are joined to the others in memory.
            eraser.fit(rows if unlabelled is None else matrix.to_numpy(), labels[0], **told)
    except KeyboardInterrupt:
        if resume is None:
            raise
        _fail(f"interrupted; finished layers are kept in {resume}, and the same command goes on", _INTERRUPTED)
    about = {"x": Path(split_spec(x)[0]).name, "concept": concept.rsplit("/", 1)[-1], "method": method}
    eraser.save(output, about=about)
    if resume is not None:
        Checkpoint.remove(resume)
    layers = f" of {eraser.n_iterations_} layers" if method_of(method).kind == "MUtE" else ""
    took = _clock(time.perf_counter() - start)
    console.print(f"fitted {type(eraser).__name__}{layers} in {took}", highlight=False)
    _print_summary(console, eraser)
    console.print(f"wrote {output} ({output.stat().st_size / 1e6:.1f} MB)", highlight=False)


@contextmanager
def _rows_of(matrix: Matrix, eraser: Any, dask: str | None) -> Iterator[Any]:
    """The rows as the method can take them: on a cluster, block by block, or in memory."""
    if dask is None:
        yield matrix if eraser.fits_on_blocks else matrix.to_numpy()
        return
    from mute.rows.dask import cluster, to_dask

    with cluster(dask):
        yield to_dask(matrix)


@contextmanager
def _notes_shown(console: Console) -> Iterator[None]:
    """Say what the package notes on its way, such as the disk it needs."""
    import logging

    class Shown(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            console.print(record.getMessage(), highlight=False, markup=False)

    logger, handler = logging.getLogger("mute"), Shown()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def _settings(pairs: list[str]) -> dict[str, Any]:
    """What --set gives: JSON where it is JSON, else text."""
    import json

    out = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise MuteError(f"--set takes NAME=VALUE, not {pair!r}")
        try:
            out[name] = json.loads({"None": "null", "True": "true", "False": "false"}.get(text, text))
        except ValueError:
            out[name] = text
    return out


@app.command()
def methods() -> None:
    """List the methods that `fit` and `compare` know, with their presets."""
    from rich.table import Table

    from mute.estimators.registry import METHODS, class_of

    table = Table(box=None, pad_edge=False, padding=(0, 2))
    for name in ("method", "what it does", "needs", "presets"):
        table.add_column(name)
    for name, method in METHODS.items():
        needs = [word for word, needed in (("task labels", method.task), ("torch", method.torch)) if needed]
        presets = [] if method.kind == "none" else list(class_of(method.kind).PRESETS)
        table.add_row(name, method.about, ", ".join(needs), ", ".join(presets))
    _console(False).print(table)


@app.command(epilog=_INPUTS)
def erase(
    model: Model,
    x: Rows,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the erased rows, by its suffix.")],
    concept: Labels = None,
    adapt: Annotated[
        bool, typer.Option("--adapt", help="Adapt the eraser to these rows first; they are read into memory.")
    ] = False,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Erase the concept: mute erase gender.safetensors X.npy -o Q.npy"""
    eraser = _load(model, threads)
    if adapt:
        if not hasattr(eraser, "adapt"):
            raise MuteError(f"--adapt is for MUtE, not for {type(eraser).__name__}; leave it out")
        matrix, labels = _open_with_labels(x, concept)
        eraser = eraser.adapt(matrix.to_numpy(), concept=labels)
    _stream(eraser, x, output, concept, "erasing", quiet, lambda block, z, _: eraser.transform(block, concept=z))


@app.command(epilog=_INPUTS)
def counterfactual(
    model: Model,
    x: Rows,
    to: Annotated[str, typer.Option("--to", help="The label to go to, or FILE:COLUMN with one for each row.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the counterfactual rows.")],
    concept: Labels = None,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Move rows to another label: mute counterfactual gender.safetensors X.npy --to female -o X_cf.npy"""
    from mute.tables import read_labels
    from mute.tables.specs import names_files

    eraser = _load(model, threads, "counterfactual")
    label = _parse_label(eraser, to)
    targets = None
    if label is None:
        if not names_files(to):
            known = ", ".join(str(c) for c in eraser.classes_)
            raise MuteError(f"--to {to!r} is neither a label of the model nor a file; its labels: {known}")
        targets = read_labels(to)

    def work(block: np.ndarray, z: Any, part: slice) -> np.ndarray:
        return eraser.counterfactual(block, label if targets is None else targets[part], concept=z)

    _stream(eraser, x, output, concept, "moving", quiet, work, extra={to: targets} if targets is not None else {})


@app.command()
def inspect(
    model: Model,
    layers: Annotated[bool, typer.Option("--layers", help="Also the diagnostics of every layer and class.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the diagnostics to this file (.png, .svg, .pdf).")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Everything the file says of itself, as JSON.")] = False,
) -> None:
    """Show what a model is, how it was made and how its router does."""
    from mute.estimators.persistence import describe

    if json_:
        import json

        typer.echo(json.dumps(describe(model), indent=2))
        return
    eraser = _load_any(model)
    console = _console(False)
    about = describe(model)
    console.print(f"[bold]{model}[/bold]  {about['kind']}, {about['bytes'] / 1e6:.1f} MB", highlight=False)
    if hasattr(eraser, "flow_"):
        flow = eraser.flow_
        console.print(
            f"  {flow.n_layers} layers, {flow.n_features} columns, {flow.n_classes} classes, "
            f"{flow.values.shape[3]} knots, {flow.dtype.name}",
            highlight=False,
        )
    settings = ", ".join(f"{name}={value!r}" for name, value in eraser.get_params(deep=False).items())
    console.print(f"  settings: {settings}", highlight=False, markup=False)
    for name, value in about["provenance"].items():
        console.print(f"  {name}: {value}", highlight=False)
    _print_summary(console, eraser)
    for line in _how_near(eraser):
        console.print(line, highlight=False)
    diagnostics = getattr(eraser, "diagnostics_", None)
    if layers and diagnostics is not None:
        typer.echo(str(diagnostics))
    if plot is not None:
        if diagnostics is None:
            raise MuteError(f"{model} has no diagnostics of its layers; there is nothing to draw")
        diagnostics.plot(plot)
        console.print(f"wrote {plot}", highlight=False)


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for model and picture.")] = Path("demo"),
    quiet: Quiet = False,
) -> None:
    """Fit, erase and make counterfactuals on word vectors that ship with the package."""
    from mute.cli.demo import run_demo

    with _warnings_shown(_console(quiet)):
        run_demo(output, _console(quiet), quiet)


def _console(quiet: bool) -> Console:
    from rich.console import Console

    return Console(quiet=quiet)


def _load_any(model: Path) -> Any:
    import mute

    return mute.load(model)


def _load(model: Path, threads: int | None, needs: str = "needs_concept") -> Any:
    """The eraser of a file, which must have what the command `needs`."""
    eraser = _load_any(model)
    if not hasattr(eraser, needs):
        what = "counterfactuals" if needs == "counterfactual" else "an eraser written by `mute fit`"
        raise MuteError(f"{model} holds a {type(eraser).__name__}; this command needs {what}")
    if hasattr(eraser, "n_threads"):
        eraser.set_params(n_threads=threads)
    return eraser


def _check_lengths(name: str, labels: np.ndarray, matrix: Matrix) -> None:
    if len(labels) != matrix.shape[0]:
        raise MuteError(
            f"{name} has {len(labels)} labels for the {matrix.shape[0]} rows of {matrix.path}; give one for each row"
        )


def _open_with_labels(x: str, concept: str | None) -> tuple[Matrix, np.ndarray | None]:
    """The rows, and their labels if there are any; a column of labels beside the rows is none of them."""
    from mute.tables import open_matrix, read_labels, split_spec

    if concept is None:
        return open_matrix(x), None
    labels = read_labels(concept)
    path, column = split_spec(concept)
    matrix = open_matrix(x, exclude=[column or ""] if path == split_spec(x)[0] else [])
    _check_lengths(concept, labels, matrix)
    return matrix, labels


def _parse_label(eraser: Any, text: str) -> Any:
    """The label of the model that `text` writes, whatever its type; None if there is none."""
    matches = [label for label in eraser.classes_.tolist() if str(label) == text]
    return matches[0] if matches else None


def _stream(
    eraser: Any,
    x: str,
    output: Path,
    concept: str | None,
    verb: str,
    quiet: bool,
    work: Callable[[np.ndarray, Any, slice], np.ndarray],
    extra: dict[str, np.ndarray] | None = None,
) -> None:
    """Read, transform and write block by block."""
    from mute.tables import open_writer

    matrix, labels = _open_with_labels(x, concept)
    for name, values in (extra or {}).items():
        _check_lengths(name, values, matrix)
    if matrix.shape[1] != eraser.n_features_in_:
        raise MuteError(f"{x} has {matrix.shape[1]} columns, the model was fitted on {eraser.n_features_in_}")
    n, start = matrix.shape[0], time.perf_counter()
    with (
        open_writer(output, n, matrix.shape[1], matrix.dtype, columns=matrix.columns) as writer,
        _rows_progress(verb, n, quiet) as advance,
    ):
        done = 0
        for block in matrix.row_blocks(_BLOCK_ROWS):
            part = slice(done, done + len(block))
            try:
                writer.write(work(block, None if labels is None else labels[part], part))
            except MuteError as error:
                raise MuteError(f"rows {part.start} to {part.stop - 1} of {x}: {error}") from error
            done = part.stop
            advance(len(block))
    seconds = time.perf_counter() - start
    _console(quiet).print(
        f"wrote {n:,} rows to {output} in {_clock(seconds)} ({n / seconds:,.0f} rows/s)", highlight=False
    )


@contextmanager
def _rows_progress(verb: str, total: int, quiet: bool) -> Iterator[Callable[[int], None]]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("rows"))
    with Progress(*columns, TimeRemainingColumn(), **_on_terminal(quiet)) as progress:
        task = progress.add_task(verb, total=total)
        yield lambda rows: progress.advance(task, rows)


def _on_terminal(quiet: bool) -> dict[str, Any]:
    """Progress goes to the terminal only, never into a log, and leaves nothing behind."""
    from rich.console import Console

    console = Console(stderr=True)
    return {"console": console, "transient": True, "disable": quiet or not console.is_terminal}


@contextmanager
def _fit_progress(eraser: Any, quiet: bool) -> Iterator[None]:
    """A bar over the layers, epochs or whatever the fit counts."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from mute.estimators.progress import FitProgress

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[count]}"))
    with Progress(*columns, TimeRemainingColumn(), **_on_terminal(quiet)) as progress:
        task = progress.add_task("fit", total=None, count="")

        def report(name: str, done: int, total: int) -> None:
            progress.update(task, description=f"{name}s", completed=done, total=total, count=f"{done}/{total}")

        eraser.set_callbacks(FitProgress(report))
        try:
            yield
        finally:
            eraser.set_callbacks()


@contextmanager
def _warnings_shown(console: Console) -> Iterator[None]:
    """Say warnings about weak results in a line each, in place of Python's two."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", WeakResultWarning)
        yield
    for warning in caught:
        if issubclass(warning.category, WeakResultWarning):
            console.print(f"[yellow]note:[/yellow] {warning.message}", highlight=False)
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def _print_summary(console: Console, eraser: Any) -> None:
    """Classes, and how the router does on rows it has not learned from."""
    from rich.table import Table

    if not hasattr(eraser, "classes_"):
        return
    rows = eraser.fitted_on_.get("class_rows", [])
    report = getattr(eraser, "routing_", None)
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    table.add_column("class")
    for name in ("rows", *(("routed elsewhere", "mean margin") if report is not None else ())):
        table.add_column(name, justify="right")
    for k, label in enumerate(eraser.classes_):
        cells = [str(label), f"{rows[k]:,}" if k < len(rows) else "-"]
        if report is not None:
            cells += [f"{report.class_error[k]:.2%}", f"{report.margin[k]:.2f}"]
        table.add_row(*cells)
    console.print(table)
    if eraser.needs_concept:
        console.print("no router: labels must be given to erase", highlight=False)


def _how_near(copy: Any) -> list[str]:
    """How near a copy comes to its teacher on rows set aside, in words; nothing of what is no copy."""
    if not hasattr(copy, "teacher"):
        return []
    if hasattr(copy, "fidelity_"):
        found = copy.fidelity_
        others = {"one matrix": "mse_affine", "a matrix for each class": "mse_class_affine", "the mean": "mse_constant"}
        beside = ", ".join(f"{words} {found[key]:.4f}" for words, key in others.items() if key in found)
        return [
            f"on {found['rows']:,} rows set aside it explains {found['r2']:.2%} of the model's answers",
            f"mean squared error {found['mse']:.4f} (for comparison: {beside})",
        ]
    pushes = copy.r2_["pushes"]
    moves = [r2 for i, row in enumerate(copy.r2_["moves"]) for j, r2 in enumerate(row) if i != j]
    parts = {"erased rows": pushes, "counterfactuals": moves}
    return [f"on rows set aside it explains {sum(r) / len(r):.2%} of the model's {what}" for what, r in parts.items()]


def _clock(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} min"
