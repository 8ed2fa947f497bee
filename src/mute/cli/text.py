"""The commands about texts: fit, counterfactual, evaluate, train-inverter."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mute.cli import console
from mute.errors import MuteError

if TYPE_CHECKING:
    from rich.console import Console

    from mute.text import Counterfactuals, TextCounterfactual
    from mute.text.evaluation.scoring import Evaluation
    from mute.typing import Array

__all__ = ["commands"]

commands = typer.Typer(
    name="text",
    help="Counterfactual texts: how would this sentence read if it were about a woman?",
    no_args_is_help=True,
)

# Texts in the gallery of an evaluation, beside the worst: more than anyone reads.
_SHOWN = 990

_TABLES = "Tables of texts: .csv, .tsv, .parquet or .jsonl, with named columns."

Corpus = Annotated[Path, typer.Argument(help="Table of texts: .csv, .tsv, .parquet or .jsonl.")]
Model = Annotated[Path, typer.Argument(help="Folder written by `mute text fit`.")]
TextColumn = Annotated[str, typer.Option("--text", metavar="COLUMN", help="Column of the texts.")]
MovedEncoder = Annotated[
    str | None, typer.Option(metavar="NAME|FOLDER", help="New place of the model's encoder, if it has moved.")
]
Inverter = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Decode with this inverter of `mute text train-inverter` instead.")
]
MostRows = Annotated[int | None, typer.Option(min=2, help="Maximum number of rows, at random.", show_default="all")]


@commands.command(epilog=_TABLES)
def fit(
    corpus: Corpus,
    text_column: TextColumn,
    concept: Annotated[str, typer.Option(metavar="COLUMN", help="Column of the concept's labels.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the model.")],
    encoder: console.EncoderName = "minilm",
    method: Annotated[str, typer.Option("--method", "-m", help="Moves the embeddings; see `mute methods`.")] = "mute",
    set_: console.Settings = None,
    decoder: Annotated[
        Literal["edits", "retrieval"],
        typer.Option(help="edits: small edits of the source. retrieval: the nearest text of the corpus."),
    ] = "edits",
    rows: MostRows = None,
    seed: console.Seed = 0,
    quiet: console.Quiet = False,
) -> None:
    """Learn from a corpus: mute text fit corpus.csv --text bio --concept gender -o model

    Encoded texts are kept during the fit; the same command continues an interrupted run.
    """
    from mute.cli.text_files import read_concept, read_corpus
    from mute.estimators.registry import make
    from mute.text import TextCounterfactual, load_encoder
    from mute.text.counterfactual import LAYERS
    from mute.text.encoders.encoding import forget
    from mute.text.saving import check_model_target

    check_model_target(output)
    layers = {"n_iterations": LAYERS} if method == "mute" else {}
    mover = make(method, **{"random_state": seed, **layers, **console.parse_settings(set_)})
    texts, labels = _sample(rows, seed, read_corpus(corpus, text_column), read_concept(corpus, concept))
    known = load_encoder(encoder)
    model = TextCounterfactual(known, mover, decoder, seed)
    parts, out, start = output.with_name(output.name + ".parts"), console.output(quiet), time.perf_counter()
    out.print(f"fitting on {len(texts):,} texts with {known.name} ...")
    with console.resumable(parts, what=lambda: "encoded texts"):
        with console.warnings_shown(out), console.progress_bar(quiet) as report:
            model.fit(texts, labels, cache=parts, progress=report)
        model.save(output)
    forget(parts)
    out.print(
        f"fitted {type(model.method_).__name__} on embeddings of {known.name} ({known.dimension} columns), decoder "
        f"{decoder}, in {console.clock(time.perf_counter() - start)}"
    )
    console.print_summary(out, model.method_)
    console.wrote(out, output)


@commands.command(
    epilog="Texts for --file: file.txt (one per line), file.csv:COLUMN, file.jsonl:KEY, ... A pipe receives only the "
    "counterfactual texts, one per line."
)
def counterfactual(
    model: Model,
    to: Annotated[str, typer.Option("--to", metavar="LABEL", help="Target class.")],
    texts: Annotated[list[str] | None, typer.Argument(metavar="[TEXT]...", help="Texts to move.")] = None,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="LABEL", help="True class of the texts.", show_default="as routed")
    ] = None,
    file: Annotated[str | None, typer.Option(help="Read the texts from a file: x.txt, x.csv:COLUMN, ...")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write .csv, .tsv, .jsonl or .txt.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a gallery, one web page, to this file.")] = None,
    encoder: MovedEncoder = None,
    inverter: Inverter = None,
    overwrite: console.Overwrite = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress and no notes.")] = False,
) -> None:
    """Move texts to another class: mute text counterfactual model "He received his PhD." --to female"""
    from mute.cli.text_files import OUTPUTS, read_texts, write_texts
    from mute.text import write_gallery

    if bool(texts) == (file is not None):
        raise MuteError('give texts, as in: mute text counterfactual model "He left." --to female; or give --file')
    inputs = [model, file, encoder, inverter]
    if output is not None:
        console.check_output(output, "texts", OUTPUTS, inputs, overwrite)
    if html is not None:
        console.check_output(html, "a gallery", [".html"], inputs, overwrite)
    given = read_texts(file) if file is not None else list(texts or [])
    mover = _load_mover(model, encoder, inverter)
    goal = console.label_of(mover.classes_, to, "--to")
    source = None if from_ is None else console.label_of(mover.classes_, from_, "--from")
    start = time.perf_counter()
    with console.progress_bar(quiet) as report:
        found = mover.counterfactual(given, goal, source, report)
    took = console.clock(time.perf_counter() - start)
    if output is not None:
        write_texts(output, found)
    if html is not None:
        note = f"To {goal}, by {type(mover.method_).__name__} on embeddings of {mover.encoder_.name}."
        write_gallery(html, found, note=note)
    results, notes = console.output(), console.output(quiet)
    if output is None:
        _print_texts(results, found)
    if output is not None or results.is_terminal:
        changed = sum(a != b for a, b in zip(found.sources, found.texts, strict=True))
        count = "1 text" if len(found) == 1 else f"{len(found):,} texts"
        notes.print(f"{count}, {changed:,} changed, in {took}")
        console.wrote(notes, *(path for path in (output, html) if path is not None))


@commands.command(epilog=_TABLES)
def evaluate(
    model: Model,
    pairs: Annotated[Path, typer.Argument(help="Table of texts and their references.")],
    source: Annotated[str, typer.Option(metavar="COLUMN", help="Column of the texts.")],
    reference: Annotated[str, typer.Option(metavar="COLUMN", help="Column of the texts that they should become.")],
    to: Annotated[str, typer.Option(metavar="LABEL|COLUMN", help="Target class.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for results.json and gallery.html.")],
    concept: Annotated[
        str | None, typer.Option(metavar="LABEL|COLUMN", help="True class of the texts.", show_default="as routed")
    ] = None,
    words: Annotated[
        Path | None,
        typer.Option(help="JSON file of the words of each class.", show_default="the paper's, for male and female"),
    ] = None,
    encoder: MovedEncoder = None,
    inverter: Inverter = None,
    quiet: console.Quiet = False,
) -> None:
    """Compare with references: mute text evaluate model pairs.csv --source a --reference b --to female -o results"""
    from mute.cli.text_files import labels_for, read_corpus, read_words
    from mute.text.evaluation.scoring import COLUMNS, evaluate_texts

    console.check_folder(output, "results.json", ["gallery.html"])
    sources, references = read_corpus(pairs, source), read_corpus(pairs, reference)
    mover = _load_mover(model, encoder, inverter)
    goal = labels_for(mover.classes_, pairs, to, "--to")
    classes = None if concept is None else labels_for(mover.classes_, pairs, concept, "--concept")
    lists = None if words is None else read_words(words, mover.classes_)
    out, start = console.output(quiet), time.perf_counter()
    with console.progress_bar(quiet) as report:
        found = evaluate_texts(mover, sources, references, goal, concept=classes, words=lists, progress=report)
    seconds = time.perf_counter() - start

    def cell(key: str, value: float | None) -> str:
        return "-" if value is None else f"{value:.2f}" if key in ("bleu", "edits") else f"{value:.3f}"

    table = [
        {"texts": f"{row['direction']} ({row['texts']:,})", "row": row["row"]}
        | {head: cell(key, row[key]) for key, head in COLUMNS.items()}
        for row in found.rows
    ]
    _write_evaluation(output, found, table, mover, pairs.name, seconds)
    console.print_table(out, table[0], [list(row.values()) for row in table], left=2)
    out.print(f"{len(sources):,} texts in {console.clock(seconds)}; cosine and BERTScore by {found.encoder}")
    console.wrote(out, output / "results.json", output / "gallery.html")


@commands.command(epilog=_TABLES)
def train_inverter(
    corpus: Corpus,
    text_column: TextColumn,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the inverter.")],
    encoder: console.EncoderName = "minilm",
    minutes: Annotated[float | None, typer.Option(min=0.0, help="Approximate training time.")] = None,
    rows: MostRows = None,
    seed: console.Seed = 0,
    quiet: console.Quiet = False,
) -> None:
    """Train a decoder of embeddings to texts: mute text train-inverter corpus.csv --text bio -o inverter

    The state of the training is kept; the same command continues an interrupted run.
    """
    from mute.cli.text_files import read_corpus
    from mute.storage.files import check_target
    from mute.text import encode, load_encoder
    from mute.text import train_inverter as train
    from mute.text.encoders.encoding import forget

    if output.exists() and not output.is_dir():
        raise MuteError(f"cannot write to {output}: a file is there, so give the name of a folder")
    parts = output.with_name(output.name + ".parts")
    check_target(parts / "x" if parts.is_dir() else parts)
    (texts,) = _sample(rows, seed, read_corpus(corpus, text_column))
    known = load_encoder(encoder)
    out, start = console.output(quiet), time.perf_counter()
    out.print(f"training on {len(texts):,} texts with {known.name} ...")
    with (
        console.resumable(parts, output),
        console.warnings_shown(out),
        console.progress_bar(quiet) as report,
    ):
        made = encode(texts, known, cache=parts, progress=lambda done, total: report("encoding", done / total))
        inverter = train(
            texts, known, folder=output, embeddings=made, minutes=minutes, random_state=seed, progress=report
        )
    del made
    forget(parts)
    for name, value in getattr(inverter, "quality_", {}).items():
        out.print(f"  {name}: {value:.3f}" if isinstance(value, float) else f"  {name}: {value}")
    out.print(f"trained in {console.clock(time.perf_counter() - start)}")
    console.wrote(out, output)


def _sample(rows: int | None, seed: int, *columns: Sequence[Any] | Array) -> tuple[Any, ...]:
    """At most `rows` rows of each column, drawn at random and kept in order."""
    import numpy as np

    n = len(columns[0])
    if rows is None or rows >= n:
        return columns
    chosen = np.sort(np.random.default_rng(seed).choice(n, rows, replace=False))
    return tuple(
        column[chosen] if isinstance(column, np.ndarray) else [column[i] for i in chosen] for column in columns
    )


def _load_mover(model: Path, encoder: str | None, inverter: Path | None) -> TextCounterfactual:
    from mute.text import Inverter, TextCounterfactual

    mover = TextCounterfactual.load(model, encoder)
    return mover if inverter is None else mover.with_decoder(Inverter.load(inverter, mover.encoder_))


def _print_texts(out: Console, found: Counterfactuals) -> None:
    """In a terminal, sources and counterfactuals with marked differences; elsewhere only the texts, one per line."""
    from rich.table import Table

    from mute.cli.text_files import one_line
    from mute.text.differences import as_rich, differences

    if not out.is_terminal:
        for line in found.texts:
            typer.echo(one_line(line))
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 1, 0), show_footer=False)
    table.add_column("source", ratio=1, overflow="fold")
    table.add_column("counterfactual", ratio=1, overflow="fold")
    table.add_column("cosine", no_wrap=True)
    for source, made, before, after in zip(found.sources, found.texts, found.start_scores, found.scores, strict=True):
        old, new = differences(source, made)
        table.add_row(as_rich(old, "red strike"), as_rich(new, "bold green"), f"{before:.3f} → {after:.3f}")
    out.print(table)


def _write_evaluation(
    folder: Path, found: Evaluation, table: list[dict[str, str]], model: TextCounterfactual, name: str, seconds: float
) -> None:
    """Write results.json, and a gallery with the worst cases first."""
    from dataclasses import replace

    import mute
    from mute.storage.files import write_atomically
    from mute.text import write_gallery
    from mute.text.gallery import examples_of

    about = {
        "mute": mute.__version__,
        "pairs": name,
        "method": type(model.method_).__name__,
        "decoder": type(model.decoder_).__name__,
        "seconds": round(seconds, 2),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MuteError(f"cannot write to {folder}: {error.strerror or error}") from error
    with write_atomically(folder / "results.json") as file:
        file.write(json.dumps(about | found.to_dict(), indent=1, ensure_ascii=False, default=str).encode())
    shown = [
        replace(row, reference=right, note=f"to the reference {near:.3f}")
        for row, right, near in zip(examples_of(found.counterfactuals), found.references, found.cosines, strict=True)
    ]
    worst = found.worst(10)
    others = [at for at in range(len(shown)) if at not in worst][:_SHOWN]
    rows = [replace(shown[at], group="The worst, by cosine to the reference") for at in worst]
    rows += [replace(shown[at], group="Others") for at in others]
    note = f"{about['method']} with {about['decoder']} on {name}; cosine and BERTScore by {found.encoder}."
    title = "Counterfactual texts against references"
    write_gallery(folder / "gallery.html", rows, title=title, note=note, table=table)
