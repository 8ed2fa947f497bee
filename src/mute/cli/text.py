"""The commands about texts: fit, counterfactual, evaluate, train-inverter."""

from __future__ import annotations

import json
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mute.cli.data import _bar
from mute.cli.main import _INTERRUPTED, Quiet, _clock, _console, _fail, _print_summary, _settings, _warnings_shown, app
from mute.errors import MuteError

if TYPE_CHECKING:
    from mute.text.counterfactual import Counterfactuals, TextCounterfactual

__all__ = ["text"]

text = typer.Typer(
    name="text",
    help="Counterfactual texts: what would this sentence be, were it about a woman?",
    no_args_is_help=True,
)
app.add_typer(text, name="text")

# Texts in the gallery of an evaluation, beside the worst: more than anyone reads.
_SHOWN = 990

_CORPORA = "Tables of texts: .csv, .tsv, .parquet or .jsonl, with the names of their columns."

Corpus = Annotated[Path, typer.Argument(help="A table of texts: .csv, .tsv, .parquet or .jsonl.")]
Model = Annotated[Path, typer.Argument(help="A folder written by `mute text fit`.")]
TextColumn = Annotated[str, typer.Option("--text", metavar="COLUMN", help="The column of the texts.")]
EncoderName = Annotated[
    str, typer.Option(metavar="NAME|FOLDER", help="minilm, mpnet, or a folder with a BERT or MPNet encoder.")
]
Inverter = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Decode with this inverter of `mute text train-inverter` instead."),
]
MostRows = Annotated[int | None, typer.Option(min=2, help="Rows used, drawn at random; all if not given.")]
Seed = Annotated[int, typer.Option(help="Seed; the same seed gives the same result.")]


class DecoderName(StrEnum):
    edits = "edits"
    retrieval = "retrieval"


@text.command(epilog=_CORPORA)
def fit(
    corpus: Corpus,
    text_column: TextColumn,
    concept: Annotated[str, typer.Option(metavar="COLUMN", help="The column of the concept's labels.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder of the model.")],
    encoder: EncoderName = "minilm",
    method: Annotated[str, typer.Option("--method", "-m", help="What moves embeddings; see `mute methods`.")] = "mute",
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of the method; repeat for more.")
    ] = None,
    decoder: Annotated[
        DecoderName, typer.Option(help="edits: small edits of the source. retrieval: the nearest text of the corpus.")
    ] = DecoderName.edits,
    rows: MostRows = None,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Learn from a corpus: mute text fit corpus.csv --text bio --concept gender -o model

    Encoding is kept as it goes, so that a run that was stopped goes on where it was.
    """
    from mute.cli.text_files import read_concept, read_corpus
    from mute.estimators.registry import make
    from mute.text import TextCounterfactual, load_encoder
    from mute.text.counterfactual import LAYERS
    from mute.text.encoders.encoding import forget
    from mute.text.saving import check_model_target

    check_model_target(output)
    layers = {"n_iterations": LAYERS} if method == "mute" else {}
    mover = make(method, **{"random_state": seed, **layers, **_settings(set_ or [])})
    texts, labels = read_corpus(corpus, text_column), read_concept(corpus, concept)
    texts, labels = _drawn(rows, seed, texts, labels)
    known = load_encoder(encoder)
    model = TextCounterfactual(known, mover, decoder.value, seed)
    parts, console, start = output.with_name(output.name + ".parts"), _console(quiet), time.perf_counter()
    console.print(f"fitting on {len(texts):,} texts with {known.name} ...", highlight=False, markup=False)
    try:
        with _warnings_shown(console), _bar(quiet) as progress:
            model.fit(texts, labels, cache=parts, progress=progress)
        model.save(output)
    except KeyboardInterrupt:
        kept = f"what is encoded is kept in {parts}: the same command goes on from there"
        _fail(f"interrupted; {kept if parts.exists() else 'nothing was written'}", _INTERRUPTED)
    forget(parts)
    console.print(
        f"fitted {type(model.method_).__name__} on embeddings of {known.name} ({known.dimension} columns), decoder "
        f"{decoder.value}, in {_clock(time.perf_counter() - start)}",
        highlight=False, markup=False, soft_wrap=True,
    )  # fmt: skip
    _print_summary(console, model.method_)
    size = sum(file.stat().st_size for file in output.iterdir()) / 1e6
    console.print(f"wrote {output} ({size:.1f} MB)", highlight=False, markup=False, soft_wrap=True)


@text.command(
    epilog="Texts for --file: file.txt (one a line), file.csv:COLUMN, file.jsonl:KEY, ... What is piped to another "
    "program is the counterfactual texts alone, one a line."
)
def counterfactual(
    model: Model,
    to: Annotated[str, typer.Option("--to", metavar="LABEL", help="The class to move to.")],
    texts: Annotated[list[str] | None, typer.Argument(metavar="[TEXT]...", help="The texts.")] = None,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="LABEL", help="The class they are of.", show_default="as routed")
    ] = None,
    file: Annotated[str | None, typer.Option(help="Texts from a file: x.txt, x.csv:COLUMN, ...")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write .csv, .tsv, .jsonl or .txt.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a gallery, one web page, to this file.")] = None,
    encoder: Annotated[
        str | None, typer.Option(metavar="NAME|FOLDER", help="Where the model's encoder is now, if it has moved.")
    ] = None,
    inverter: Inverter = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress and no notes.")] = False,
) -> None:
    """Move texts to another class: mute text counterfactual model "He received his PhD." --to female"""
    from mute.cli.text_files import check_output, label_of, write_texts
    from mute.cli.texts import read_texts
    from mute.storage.files import check_target
    from mute.text.gallery import write_gallery

    if bool(texts) == (file is not None):
        raise MuteError('give texts, as in: mute text counterfactual model "He left." --to female; or give --file')
    if output is not None:
        check_output(output)
    if html is not None:
        check_target(html)
    given = read_texts(file) if file is not None else list(texts or [])
    mover = _load(model, encoder, inverter)
    goal = label_of(mover.classes_, to, "--to")
    source = None if from_ is None else label_of(mover.classes_, from_, "--from")
    start = time.perf_counter()
    with _bar(quiet) as progress:
        found = mover.counterfactual(given, goal, source, progress)
    took = _clock(time.perf_counter() - start)
    if output is not None:
        write_texts(output, found)
    if html is not None:
        note = f"To {goal}, by {type(mover.method_).__name__} on embeddings of {mover.encoder_.name}."
        write_gallery(html, found, note=note)
    console = _console(False)
    if output is None:
        _show(console, found)
    if output is not None or console.is_terminal:
        said = _console(quiet)
        changed = sum(a != b for a, b in zip(found.sources, found.texts, strict=True))
        count = "1 text" if len(found) == 1 else f"{len(found):,} texts"
        said.print(f"{count}, {changed:,} changed, in {took}", highlight=False)
        for path in (output, html):
            if path is not None:
                said.print(f"wrote {path}", highlight=False, markup=False, soft_wrap=True)


@text.command(epilog=_CORPORA)
def evaluate(
    model: Model,
    pairs: Annotated[Path, typer.Argument(help="A table of texts and their references.")],
    source: Annotated[str, typer.Option(metavar="COLUMN", help="The column of the texts.")],
    reference: Annotated[str, typer.Option(metavar="COLUMN", help="The column of what each should become.")],
    to: Annotated[str, typer.Option(metavar="LABEL|COLUMN", help="The class to move to.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for results.json and gallery.html.")],
    concept: Annotated[
        str | None, typer.Option(metavar="LABEL|COLUMN", help="The class they are of.", show_default="as routed")
    ] = None,
    words: Annotated[
        Path | None,
        typer.Option(help="JSON: words that tell each class.", show_default="the paper's, for male and female"),
    ] = None,
    encoder: Annotated[
        str | None, typer.Option(metavar="NAME|FOLDER", help="Where the model's encoder is now, if it has moved.")
    ] = None,
    inverter: Inverter = None,
    quiet: Quiet = False,
) -> None:
    """Compare with references: mute text evaluate model pairs.csv --source a --reference b --to female -o results"""
    from mute.cli.text_files import labels_for, read_corpus, read_words
    from mute.text.evaluation.scoring import evaluate_texts

    if output.exists() and not output.is_dir():
        raise MuteError(f"cannot write to {output}: a file is there, so give the name of a folder")
    sources, references = read_corpus(pairs, source), read_corpus(pairs, reference)
    mover = _load(model, encoder, inverter)
    goal = labels_for(mover.classes_, pairs, to, "--to")
    classes = None if concept is None else labels_for(mover.classes_, pairs, concept, "--concept")
    lists = None if words is None else read_words(words, mover.classes_)
    console, start = _console(quiet), time.perf_counter()
    with _bar(quiet) as progress:
        found = evaluate_texts(mover, sources, references, goal, concept=classes, words=lists, progress=progress)
    seconds = time.perf_counter() - start
    _write_evaluation(output, found, mover, pairs.name, seconds)
    _print_evaluation(console, found)
    console.print(
        f"{len(sources):,} texts in {_clock(seconds)}; cosine and BERTScore by {found.encoder}\n"
        f"wrote {output / 'results.json'} and {output / 'gallery.html'}",
        highlight=False, markup=False, soft_wrap=True,
    )  # fmt: skip


@text.command(epilog=_CORPORA)
def train_inverter(
    corpus: Corpus,
    text_column: TextColumn,
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder of the inverter.")],
    encoder: EncoderName = "minilm",
    minutes: Annotated[float | None, typer.Option(min=0.0, help="Train for about so long.")] = None,
    rows: MostRows = None,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Train what turns embeddings into texts: mute text train-inverter corpus.csv --text bio -o inverter

    What is trained is kept as it goes, so that a run that was stopped goes on where it was.
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
    (texts,) = _drawn(rows, seed, read_corpus(corpus, text_column))
    known = load_encoder(encoder)
    console, start = _console(quiet), time.perf_counter()
    console.print(f"training on {len(texts):,} texts with {known.name} ...", highlight=False, markup=False)
    try:
        with _warnings_shown(console), _bar(quiet) as progress:
            made = encode(texts, known, cache=parts, progress=lambda done, total: progress("encoding", done / total))
            inverter = train(
                texts, known, folder=output, embeddings=made, minutes=minutes, random_state=seed, progress=progress
            )
    except KeyboardInterrupt:
        kept = " and ".join(str(place) for place in (parts, output) if place.exists())
        _fail(
            f"interrupted; what is done is kept in {kept}: the same command goes on from there" if kept
            else "interrupted; nothing was written", _INTERRUPTED,
        )  # fmt: skip
    del made
    forget(parts)
    for name, value in getattr(inverter, "quality_", {}).items():
        console.print(f"  {name}: {value:.3f}" if isinstance(value, float) else f"  {name}: {value}", highlight=False)
    console.print(f"wrote {output} in {_clock(time.perf_counter() - start)}", highlight=False, soft_wrap=True)


def _drawn(rows: int | None, seed: int, *columns: Any) -> tuple[Any, ...]:
    """So many rows of each column, drawn at random, in their order."""
    import numpy as np

    n = len(columns[0])
    if rows is None or rows >= n:
        return columns
    chosen = np.sort(np.random.default_rng(seed).choice(n, rows, replace=False))
    return tuple(column[chosen] if hasattr(column, "dtype") else [column[i] for i in chosen] for column in columns)


def _load(model: Path, encoder: str | None, inverter: Path | None) -> TextCounterfactual:
    from mute.text.counterfactual import TextCounterfactual

    mover = TextCounterfactual.load(model, encoder)
    if inverter is None:
        return mover
    from mute.text import Inverter

    return mover.with_decoder(Inverter.load(inverter, mover.encoder_))


def _show(console: Any, found: Counterfactuals) -> None:
    """In a terminal side by side with the differences marked; elsewhere the texts alone, one a line."""
    from rich.table import Table

    from mute.cli.text_files import one_line
    from mute.text.differences import as_rich, differences

    if not console.is_terminal:
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
    console.print(table)


def _print_evaluation(console: Any, found: Any) -> None:
    from rich.table import Table

    rows = _cells(found)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for at, head in enumerate(rows[0]):
        table.add_column(head, justify="left" if at < 2 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row.values())
    console.print(table)


def _cells(found: Any) -> list[dict[str, str]]:
    """The figures as words, by the heads of a table."""
    from mute.text.evaluation.scoring import COLUMNS

    def cell(key: str, value: float | None) -> str:
        return "-" if value is None else f"{value:.2f}" if key in ("bleu", "edits") else f"{value:.3f}"

    return [
        {"texts": f"{row['direction']} ({row['texts']:,})", "row": row["row"]}
        | {head: cell(key, row[key]) for key, head in COLUMNS.items()}
        for row in found.rows
    ]


def _write_evaluation(folder: Path, found: Any, model: TextCounterfactual, name: str, seconds: float) -> None:
    """results.json, and a gallery with the worst cases first."""
    from dataclasses import replace

    import mute
    from mute.storage.files import write_atomically
    from mute.text.gallery import examples_of, write_gallery

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
    write_gallery(
        folder / "gallery.html", rows, title="Counterfactual texts against references", note=note,
        table=_cells(found),
    )  # fmt: skip
