"""The commands that put a model to use: erase, counterfactual."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mute.cli import console
from mute.errors import MuteError, listed
from mute.typing import LabelsLike, Method

if TYPE_CHECKING:
    import numpy as np

__all__ = ["BLOCK_ROWS", "commands"]

commands = typer.Typer()

OnlyEmbedding = Annotated[
    bool, typer.Option("--only-embedding", help="Write the embedding alone, without the other columns of the table.")
]
KeepConcept = Annotated[
    bool, typer.Option("--keep-concept", help="Keep the column of the concept. Beside erased rows it tells the class.")
]

# Rows transformed at a time: enough to keep all cores busy, few enough to need little memory.
BLOCK_ROWS = 16_384


@commands.command(epilog=console.INPUTS)
def erase(
    model: console.Model,
    x: console.Rows,
    output: Annotated[Path, typer.Option("--output", "-o", help="File of the erased rows: the same table, or matrix.")],
    concept: console.Labels = None,
    columns: console.Columns = None,
    only_embedding: OnlyEmbedding = False,
    keep_concept: KeepConcept = False,
    adapt: Annotated[
        bool, typer.Option("--adapt", help="Adapt the eraser to these rows first. All rows are read into memory.")
    ] = False,
    secret: console.Secret = None,
    dry_run: console.DryRun = False,
    overwrite: console.Overwrite = False,
    threads: console.Threads = None,
    quiet: console.Quiet = False,
) -> None:
    """Erase the concept: mute erase gender.safetensors people.parquet -o erased.parquet

    The output is the input table with its embedding replaced. The column of the concept is left out: published beside
    the erased rows, it would defeat the erasure.
    """
    eraser = console.load_eraser(model, threads, secret)
    if adapt and not hasattr(eraser, "adapt"):
        raise MuteError(f"--adapt is for MUtE, not for {type(eraser).__name__}; leave it out")
    table = _Table(model, eraser, x, [concept], output, columns, only_embedding, keep_concept, overwrite, quiet)
    if dry_run:
        table.describe()
        return
    plain = eraser.nameless()
    if adapt:
        plain = plain.adapt(table.matrix.to_numpy(), concept=table.labels[0])
    table.rewrite("erasing rows", lambda rows, z: plain.transform(rows, concept=z))


@commands.command(epilog=console.INPUTS)
def counterfactual(
    model: console.Model,
    x: console.Rows,
    to: Annotated[str, typer.Option("--to", help="Target label, or FILE:COLUMN with one target per row.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="File of the counterfactual rows.")],
    concept: console.Labels = None,
    columns: console.Columns = None,
    only_embedding: OnlyEmbedding = False,
    keep_concept: KeepConcept = False,
    dry_run: console.DryRun = False,
    overwrite: console.Overwrite = False,
    threads: console.Threads = None,
    quiet: console.Quiet = False,
) -> None:
    """Move rows to another label: mute counterfactual gender.safetensors people.parquet --to female -o moved.parquet

    The output is the input table with its embedding replaced, without the column of the concept.
    """
    from mute.tables.specs import names_files

    eraser = console.load_eraser(model, threads)
    if not hasattr(eraser, "counterfactual"):
        raise MuteError(f"{model} is a {type(eraser).__name__}, which makes no counterfactuals; see `mute methods`")
    known = list(map(str, eraser.classes_))
    label = console.label_of(eraser.classes_, to, "--to") if to in known else None
    if label is None and not names_files(to) and not _is_column(x, to, console.names_of(eraser)):
        raise MuteError(f"--to {to!r} is neither a label of the model nor a file; its labels: {listed(known)}")
    specs = [concept, to if label is None else None]
    table = _Table(model, eraser, x, specs, output, columns, only_embedding, keep_concept, overwrite, quiet)
    if dry_run:
        table.describe()
        return
    plain = eraser.nameless()

    def work(rows: np.ndarray, z: LabelsLike, targets: LabelsLike) -> np.ndarray:
        return plain.counterfactual(rows, label if targets is None else targets, concept=z)

    table.rewrite("moving rows", work)


class _Table:
    """Rows of a model's input and where they go: a table whose embedding is replaced, or a matrix."""

    def __init__(
        self, model: Path, eraser: Method, x: str, specs: list[str | None], output: Path, columns: str | None,
        only_embedding: bool, keep_concept: bool, overwrite: bool, quiet: bool,
    ) -> None:  # fmt: skip
        from mute.tables.rewriting import TABLES
        from mute.tables.specs import MATRICES
        from mute.tables.table import TableMatrix

        self.x, self.output, self.concept, self.quiet = x, output, specs[0], quiet
        self.matrix, *self.labels = console.open_rows(x, *specs, columns=columns, names=console.names_of(eraser))
        console.check_columns(x, self.matrix, eraser)
        self.others: list[str] = []
        self.dropped: list[str] = []
        self.as_table = isinstance(self.matrix, TableMatrix) and not only_embedding
        if self.as_table:
            self.dropped = [] if keep_concept else self._concepts(model, self.matrix.embedding.left_out)
            self.others = [name for name in self.matrix.embedding.left_out if name not in self.dropped]
            self.as_table = bool(self.others) or output.suffix.lower() in TABLES
        kinds = TABLES if self.others else MATRICES
        if self.others and output.suffix.lower() in MATRICES and output.suffix.lower() not in TABLES:
            raise MuteError(
                f"{output} cannot hold the other columns of {x} ({listed(self.others, 5)}); give a name ending in "
                f"{', '.join(TABLES)}, or write the embedding alone with --only-embedding"
            )
        console.check_output(output, "rows", kinds, [model, x, *specs], overwrite)

    def _concepts(self, model: Path, names: Sequence[str]) -> list[str]:
        """Columns of the concept: of its labels in this call, and of those that the model was fitted on."""
        from mute.estimators.persistence import describe
        from mute.tables.specs import split_spec

        at_fit = describe(model)["provenance"].get("concept")
        given = None if self.concept is None else split_spec(console.column_in(self.x, self.concept))[1]
        found = [name for name in names if name in (str(at_fit).rpartition(":")[2], given)]
        if names and not found:
            console.output(self.quiet).print(
                "note: no column of the table is known to be the concept; name one with --concept to leave it out"
            )
        return found

    def describe(self) -> None:
        """Print what would be read and written."""
        out = console.output(self.quiet)
        out.print(console.what_is_read(self.matrix, self.x, self.concept, self.labels[0]))
        out.print(f"{self.matrix.shape[0]:,} rows would be written to {self.output}; {self._kept()}")

    def _kept(self) -> str:
        kept = f"with the columns {listed(self.others)}" if self.others else "the embedding alone"
        gone = f"; without {listed(self.dropped)}, which tells the class (--keep-concept keeps it)"
        return kept + (gone if self.dropped else "")

    def rewrite(self, step: str, work: Callable[..., np.ndarray]) -> None:
        """`work` on the rows and labels and write them, block by block."""
        from mute.tables import open_writer
        from mute.tables.rewriting import rewrite_table

        matrix, n, begin = self.matrix, self.matrix.shape[0], time.perf_counter()
        with console.progress_bar(self.quiet, step) as report:

            def of_block(block: np.ndarray, start: int) -> np.ndarray:
                end = start + len(block)
                try:
                    made = work(block, *(None if values is None else values[start:end] for values in self.labels))
                except MuteError as error:
                    raise MuteError(f"rows {start} to {end - 1} of {self.x}: {error}") from error
                report(step, end, n)
                return made

            if self.as_table:
                rewrite_table(matrix, self.output, of_block, drop=self.dropped, size=BLOCK_ROWS)
            else:
                with open_writer(self.output, n, matrix.shape[1], matrix.dtype, columns=matrix.columns) as writer:
                    start = 0
                    for block in matrix.row_blocks(BLOCK_ROWS):
                        writer.write(of_block(block, start))
                        start += len(block)
        seconds = time.perf_counter() - begin
        speed = f"in {console.clock(seconds)} ({n / seconds:,.0f} rows/s)"
        console.output(self.quiet).print(f"wrote {n:,} rows to {self.output} {speed}; {self._kept()}")


def _is_column(x: str, name: str, names: list[str] | None) -> bool:
    """Whether the table of rows has a column of this name."""
    from mute.tables import open_matrix
    from mute.tables.table import TableMatrix

    matrix = open_matrix(x, names=names)
    return isinstance(matrix, TableMatrix) and name in matrix.kinds
