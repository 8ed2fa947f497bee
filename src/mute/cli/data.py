"""The commands about data: encode."""

from __future__ import annotations

import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mute.cli.main import _INTERRUPTED, Quiet, _clock, _console, _fail, _rows_progress, app

__all__ = ["data"]

data = typer.Typer(name="data", help="Data to erase concepts from.", no_args_is_help=True)
app.add_typer(data, name="data")


class Pooling(StrEnum):
    mean = "mean"
    cls = "cls"


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
    from mute.cli.tables import open_writer
    from mute.cli.texts import read_texts
    from mute.text.encoders import load_encoder
    from mute.text.encoding import encode as encode_texts
    from mute.text.encoding import forget

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
