"""What the commands share: console, progress bars, options, and the opening of rows, labels and models."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from mute.errors import MuteError, WeakResultWarning, listed, shown, visible
from mute.typing import Array, Json, Label, Method

if TYPE_CHECKING:
    from rich.console import Console

    from mute.tables import Matrix

__all__ = [
    "INPUTS", "INTERRUPTED", "Columns", "Concept", "DryRun", "EncoderName", "Ids", "Labels", "Model", "Overwrite",
    "Quiet", "Rows", "Seed", "Settings", "Threads", "check_columns", "check_folder", "check_output", "clock",
    "column_in", "fail", "fit_progress", "label_of", "load_eraser", "names_of", "notes_shown", "on_terminal",
    "open_rows", "output", "parse_settings", "print_fidelity", "print_summary", "print_table", "progress_bar",
    "resumable", "warnings_shown", "what_is_read", "wrote",
]  # fmt: skip

# The exit code that typer returns for a KeyboardInterrupt.
INTERRUPTED = 130

INPUTS = (
    "Matrices: X.npy, X.npz:KEY, X.safetensors:KEY. Tables: X.parquet, X.csv, X.tsv; their embedding is the one list "
    "column, or the float columns numbered like e0 ... e383, or what --columns names. Many files: a folder of .parquet "
    "files, or a quoted pattern such as 'part-*.parquet'. Labels: a column of the same table (gender), FILE:COLUMN, "
    "FILE:KEY (also from folders named gender=f), or a .txt file with one label per line. The suffix of an output file "
    "chooses its format."
)

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Threads = Annotated[int | None, typer.Option("--threads", min=1, help="Cores to use.", show_default="all")]
Seed = Annotated[int, typer.Option(help="Seed; the same seed gives the same result.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Setting of the method; repeat the option for more."),
]
Model = Annotated[Path, typer.Argument(help="Model written by `mute fit` or `mute distill`.")]
Rows = Annotated[str, typer.Argument(metavar="X", help="Embeddings: .npy, .npz:KEY, .parquet, .csv, a folder, ...")]
Concept = Annotated[
    str,
    typer.Option("--concept", help="Labels of the concept: gender (a column of X), labels.csv:gender, z.npy, ..."),
]
EncoderName = Annotated[
    str,
    typer.Option("--encoder", metavar="NAME|FOLDER", help="minilm, mpnet, or the folder of a BERT or MPNet model."),
]
Labels = Annotated[
    str | None,
    typer.Option("--concept", help="True labels, COLUMN or FILE:COLUMN, in place of the router."),
]
Columns = Annotated[
    str | None,
    typer.Option(
        "--columns", metavar="NAMES", help="Columns of the embedding: names or patterns with commas, such as 'emb_*'."
    ),
]
Ids = Annotated[
    list[str] | None,
    typer.Option("--id", metavar="NAME", help="Column that is not part of the embedding; repeatable."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be read, and as what; then stop.")]
Groups = Annotated[
    str | None,
    typer.Option("--groups", help="Source of each row (a document, a person): rows of one are never parted by a cut."),
]
Secret = Annotated[
    Path | None,
    typer.Option("--secret", help="File with the key of the noise of a leak budget, which the model does not contain."),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace a file of another kind at the output; never an input.")
]


def _console(*, quiet: bool = False, stderr: bool = False) -> Console:
    """A console that prints text as it is: no markup, no emoji names, control characters as escapes.

    Labels, columns and file names may have any characters, and a terminal obeys some of them.
    """
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class Plain(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else visible(text), style, control)

    return Plain(highlight=False, markup=False, emoji=False, quiet=quiet, stderr=stderr)


def output(quiet: bool = False) -> Console:
    """Standard output; lines are wrapped in a terminal and stay whole elsewhere."""
    console = _console(quiet=quiet)
    console.soft_wrap = not console.is_terminal
    return console


def fail(message: str, code: int = 1) -> NoReturn:
    """Print one line to standard error and exit."""
    from rich.text import Text

    line = message.replace("\n", " ")
    _console(stderr=True).print(Text("mute: ", style="bold red") + Text(line), soft_wrap=True)
    sys.exit(code)


@contextmanager
def resumable(*places: Path, what: Callable[[], str] = lambda: "finished parts") -> Iterator[None]:
    """On Ctrl-C, exit with a line that says `what` is kept in those `places` that exist."""
    try:
        yield
    except KeyboardInterrupt:
        kept = " and ".join(str(place) for place in places if place.exists())
        fail(
            f"interrupted; {what()} are kept in {kept}; run the same command to continue" if kept
            else "interrupted; nothing was written", INTERRUPTED,
        )  # fmt: skip


def wrote(out: Console, *paths: Path) -> None:
    """Say which files or folders were written, and their sizes."""
    for path in paths:
        files = path.iterdir() if path.is_dir() else [path]
        size = sum(file.stat().st_size for file in files) / 1e6
        out.print(f"wrote {path} ({size:.1f} MB)", soft_wrap=True)


def clock(seconds: float) -> str:
    """A duration in words."""
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def print_table(
    out: Console, heads: Iterable[str], rows: Iterable[Sequence[str]], left: int = 1, wrap: Iterable[str] = ()
) -> None:
    """Print a table: `left` columns of words, then columns of numbers; only columns in `wrap` may break lines."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for at, head in enumerate(heads):
        table.add_column(visible(head), justify="left" if at < left else "right", no_wrap=head not in wrap)
    for row in rows:
        table.add_row(*map(visible, row))  # before the widths are measured
    out.print(table, soft_wrap=False)


def on_terminal(quiet: bool) -> Json:
    """Settings of a progress bar: it goes to the terminal only, never into a log, and leaves nothing behind."""
    console = _console(stderr=True)
    return {"console": console, "transient": True, "disable": quiet or not console.is_terminal}


@contextmanager
def progress_bar(quiet: bool, step: str = "") -> Iterator[Callable[..., None]]:
    """A bar, moved by ``report(step, done, total)``; whole numbers are shown as a count, a share of 1.0 in percent.

    A count that falls starts a new estimate of the remaining time.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    count, name = (TextColumn(f"{{task.{what}}}", markup=False) for what in ("fields[count]", "description"))
    columns = (BarColumn(), count, TimeRemainingColumn(), name)
    with Progress(*columns, **on_terminal(quiet)) as progress:
        task = progress.add_task(step, total=None, count="")
        before = 0.0

        def report(step: str, done: float, total: float = 1.0) -> None:
            nonlocal before
            if done < before:
                progress.reset(task)
            before = done
            count = f"{done:,}/{total:,}" if isinstance(total, int) else f"{done / total:.0%}"
            progress.update(task, description=step, completed=done, total=total, count=count)

        yield report


@contextmanager
def fit_progress(estimator: Method, quiet: bool) -> Iterator[None]:
    """A bar over the layers or epochs of a fit."""
    with progress_bar(quiet, "fit") as report:
        estimator.set_callbacks(lambda step, done, total: report(f"{step}s", done, total))
        try:
            yield
        finally:
            estimator.set_callbacks()


@contextmanager
def warnings_shown(out: Console) -> Iterator[None]:
    """Print each warning about a weak result as one line, in place of Python's two."""
    from rich.text import Text

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", WeakResultWarning)
        yield
    for warning in caught:
        if issubclass(warning.category, WeakResultWarning):
            out.print(Text.assemble(("note: ", "yellow"), str(warning.message)))
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


@contextmanager
def notes_shown(out: Console) -> Iterator[None]:
    """Print what the package logs, such as the disk space it needs."""
    import logging

    class Shown(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            out.print(record.getMessage())

    logger, handler = logging.getLogger("mute"), Shown()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def parse_settings(pairs: list[str] | None) -> Json:
    """The values of --set: JSON where it is JSON, else text."""
    import json

    settings = {}
    for pair in pairs or []:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise MuteError(f"--set takes NAME=VALUE, not {pair!r}")
        try:
            settings[name] = json.loads({"None": "null", "True": "true", "False": "false"}.get(text, text))
        except ValueError:
            settings[name] = text
    return settings


def load_eraser(model: Path, threads: int | None = None, secret: Path | None = None) -> Method:
    """The eraser of a model file."""
    import mute

    eraser = mute.load(model, secret=read_secret(secret))
    if not hasattr(eraser, "needs_concept"):
        raise MuteError(f"{model} is a {type(eraser).__name__}, not an eraser; give a model written by `mute fit`")
    if hasattr(eraser, "n_threads"):
        eraser.set_params(n_threads=threads)
    return eraser


def open_rows(
    x: str,
    *specs: str | None,
    columns: str | None = None,
    ids: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
) -> tuple[Any, ...]:
    """The matrix of rows, then the labels of each spec (None for None).

    Columns of labels and ids are not part of the matrix. `names` are the columns that a model was fitted on.
    """
    from mute.tables import open_matrix, read_labels, split_spec
    from mute.tables.table import TableMatrix

    if columns is not None:
        if split_spec(x)[1] is not None:
            raise MuteError(f"{x} names columns, and --columns does too; give them once")
        x = f"{x}:{columns}"
    found = [None if spec is None else column_in(x, spec) for spec in specs]
    labels = [None if spec is None else read_labels(spec) for spec in found]
    own = [column for spec in found if spec is not None for column in _own_column(x, spec)]
    matrix = open_matrix(x, exclude=[*own, *(ids or ())], names=names)
    for name in ids or ():
        if not isinstance(matrix, TableMatrix) or name not in matrix.kinds:
            raise MuteError(f"{matrix.path} has no column {name!r}, given by --id; check the name")
    for spec, values in zip(found, labels, strict=True):
        if values is not None and len(values) != matrix.shape[0]:
            raise MuteError(
                f"{spec} has {len(values)} labels for the {matrix.shape[0]} rows of {matrix.path}; give one per row"
            )
    return matrix, *labels


def column_in(x: str, spec: str) -> str:
    """The spec of labels, completed if it is only the name of a column of the table `x`."""
    from mute.tables.specs import LABELS, names_files, split_spec

    (path, selector), table = split_spec(spec), split_spec(x)[0]
    is_table = table.suffix.lower() in (".parquet", ".csv", ".tsv") or table.is_dir()
    bare = selector is None and path.suffix.lower() not in LABELS and not names_files(spec)
    return f"{table}:{spec}" if bare and is_table else spec


def _own_column(x: str, spec: str) -> list[str]:
    """The column that a spec of labels takes from the table `x` itself, if it does."""
    from mute.tables.specs import split_spec

    (path, column), (table, _) = split_spec(spec), split_spec(x)
    same = path == table or (path.exists() and table.exists() and path.samefile(table))
    return [column] if same and column is not None else []


def what_is_read(matrix: Matrix, x: str, concept: str | None, labels: Array | None) -> str:
    """One line on what is read as what: the embedding, the concept and its classes, and the columns left out."""
    import numpy as np

    from mute.tables.table import TableMatrix

    parts, own = [f"{matrix} as the embedding"], []
    if concept is not None and labels is not None:
        spec = column_in(x, concept)
        own, classes = _own_column(x, spec), np.unique(labels.astype(str) if labels.dtype == object else labels)
        noun = "class" if len(classes) == 1 else "classes"
        parts.append(f"concept {own[0] if own else concept} ({len(classes)} {noun}: {listed(classes.tolist(), 10)})")
    if isinstance(matrix, TableMatrix):
        parts.append(f"left out: {listed([name for name in matrix.embedding.left_out if name not in own])}")
    return "; ".join(parts)


def names_of(eraser: Method) -> list[str] | None:
    """The columns that a model was fitted on, if they had names."""
    names = getattr(eraser, "feature_names_in_", None)
    return None if names is None else list(names)


def check_output(
    path: Path, content: str, endings: Sequence[str], inputs: Iterable[str | Path | None], overwrite: bool = False
) -> None:
    """Refuse, before any work, an output whose ending does not fit, that is an input, or that is of another kind."""
    from mute.storage.files import check_target
    from mute.storage.kinds import is_kind
    from mute.tables.specs import split_spec

    if path.suffix.lower() not in endings:
        raise MuteError(f"{path} cannot hold {content}; give a name ending in {', '.join(endings)}")
    for given in inputs:
        source = None if given is None else split_spec(given)[0]
        if source is None or not source.exists() or not path.exists():
            continue
        if source.samefile(path) or (source.is_dir() and source.resolve() in path.resolve().parents):
            raise MuteError(f"{path} is an input of this command; choose another name for the output")
    if path.is_file() and not overwrite and not is_kind(path, content):
        raise MuteError(f"{path} exists and is not {content}; choose another name, or replace it with --overwrite")
    check_target(path)


def check_folder(path: Path, mark: str, names: Sequence[str]) -> None:
    """Refuse, before any work, a folder of results that holds anything that this command has not written there.

    `names` are patterns of what the command writes; `mark` is what every folder of its results has. Hidden files, such
    as those of a file manager, do not count.
    """
    from mute.errors import listed

    if path.exists() and not path.is_dir():
        raise MuteError(f"cannot write to {path}: a file is there, so give the name of a folder")
    there = sorted(entry.name for entry in path.iterdir()) if path.exists() else []
    seen = [name for name in there if not name.startswith(".")]
    others = [name for name in seen if not any(fnmatch(name, pattern) for pattern in (mark, *names))]
    if others or (seen and mark not in seen):
        raise MuteError(f"{path} holds other files ({listed(others or seen, 5)}); give a new or empty folder")


def check_columns(x: str, matrix: Matrix, eraser: Method) -> None:
    """Refuse rows that have another width than the training rows."""
    if matrix.shape[1] != eraser.n_features_in_:
        raise MuteError(f"{x} has {matrix.shape[1]} columns, the model was fitted on {eraser.n_features_in_}")


def label_of(classes: Array, text: object, name: str) -> Label:
    """The label of a model that `text` spells, whatever the type of the label."""
    for label in classes.tolist():
        if str(label) == str(text):
            return label
    raise MuteError(f"{name} {text!r} is no label of the model; its labels: {listed(classes.tolist())}")


def print_summary(out: Console, eraser: Method) -> None:
    """Print the classes, and the errors of the router on held-out rows."""
    if not hasattr(eraser, "classes_"):
        return
    rows, report = eraser.fitted_on_.get("class_rows", []), getattr(eraser, "routing_", None)
    cells = [[shown(label), f"{rows[k]:,}" if k < len(rows) else "-"] for k, label in enumerate(eraser.classes_)]
    if report is not None:
        for k, row in enumerate(cells):
            row += [f"{report.class_error[k]:.2%}", f"{report.margin[k]:.2f}"]
    print_table(out, ["class", "rows", "routed elsewhere", "mean margin"][: len(cells[0])], cells)
    if eraser.needs_concept:
        out.print("no router: the model requires labels to erase")


def print_budget(out: Console, eraser: Method) -> None:
    """Print what a leak budget was spent on; nothing for models without one."""
    spent = getattr(eraser, "budget_", None)
    if spent is None:
        return
    leak, points = eraser.leak_, f"{spent['max_leak'] * 100:g} points"
    if eraser.channel_ is None:
        out.print(f"the eraser alone keeps the budget of {points}, so nothing more is lost")
    else:
        whose = "a Gaussian row is" if spent["family"] == "one bit" else "the erased rows are"
        out.print(f"{spent['family']} keeps {spent['share']:.0%} of what {whose} worth (budget: {points})")
    out.print(
        f"on folds of the training rows the strongest adversary, {spent['adversary']}, reads {leak.value * 100:.1f} "
        f"points above chance ({leak.low * 100:.1f} to {leak.high * 100:.1f}); R² {eraser.r2_:.2f} is kept"
    )


def read_secret(path: Path | None) -> bytes | None:
    """The bytes of a file with a secret."""
    if path is None:
        return None
    try:
        return path.read_bytes().strip()
    except OSError as error:
        raise MuteError(
            f"cannot read the secret {path}: {error.strerror or error}; give the file of the fit"
        ) from error


def print_fidelity(out: Console, copy: Method) -> None:
    """Print how close a distilled copy comes to its teacher on held-out rows; nothing for other models."""
    if not hasattr(copy, "teacher"):
        return
    if hasattr(copy, "fidelity_"):
        found = copy.fidelity_
        others = {"one matrix": "mse_affine", "a matrix per class": "mse_class_affine", "the mean": "mse_constant"}
        beside = ", ".join(f"{words} {found[key]:.4f}" for words, key in others.items() if key in found)
        out.print(f"on {found['rows']:,} held-out rows the copy explains {found['r2']:.2%} of the model's outputs")
        out.print(f"mean squared error {found['mse']:.4f} (for comparison: {beside})")
        return
    moves = [r2 for i, row in enumerate(copy.r2_["moves"]) for j, r2 in enumerate(row) if i != j]
    for what, shares in (("erased rows", copy.r2_["pushes"]), ("counterfactuals", moves)):
        out.print(f"on held-out rows the copy explains {sum(shares) / len(shares):.2%} of the model's {what}")
