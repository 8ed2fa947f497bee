"""The command that runs the studies of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mute.cli.main import _INTERRUPTED, Quiet, _console, _fail, _on_terminal, app
from mute.errors import MuteError

__all__: list[str] = []


@app.command(
    epilog="Studies: synthetic, tradeoff, words, fairness, augmentation, surrogates, text; all of these when none is "
    "named. One more, fresh, only when named, as it takes about an hour on two cores: what is read of new rows. "
    "Data: `mute data prepare glove wordsim bug bug-occupations bug-texts panda-gender` first (word2vec for fresh), or "
    "give the authors' files."
)
def paper(
    studies: Annotated[
        list[str] | None, typer.Argument(metavar="[STUDY]...", help="Which; all but fresh when not given.")
    ] = None,
    study: Annotated[
        list[str] | None, typer.Option(metavar="STUDY", help="The same as the argument; repeat for more.")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the page, its figures and results.")] = Path(
        "paper"
    ),
    quick: Annotated[bool, typer.Option("--quick", help="A pass of minutes: one run, few rows.")] = False,
    runs: Annotated[int, typer.Option(min=1, help="Seeds for each method of the paper's tables.")] = 5,
    rows: Annotated[int | None, typer.Option(min=200, help="Rows to fit on at most; all when not given.")] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PATH", help="The authors' files of glove, bios, dial, jigsaw or texts; repeat for more."
        ),
    ] = None,
    pairs: Annotated[Path | None, typer.Option(help="Human judgements of pairs of words, in place of WordSim.")] = None,
    inverter: Annotated[
        Path | None, typer.Option(help="Folder of a trained inverter, to decode texts with as well.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes side by side, one thread each; one for each core if not given.")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Do not take up what an earlier run has finished.")] = False,
    quiet: Quiet = False,
) -> None:
    """Run the paper's studies and set its figures beside ours: mute paper --quick -o results

    What is finished is kept in OUTPUT/parts, so that a run that was stopped goes on where it was.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from mute.errors import missing_extra
    from mute.paper import DEFAULT_STUDIES, Plan, run, write_page
    from mute.rows.threads import resolve_threads

    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise missing_extra("matplotlib", "report", "the figures of the page") from None
    paths = {}
    for entry in data or []:
        name, equals, path = entry.partition("=")
        if not equals or not path:
            raise MuteError(f"--data takes NAME=PATH, such as bios=data/biasbios, not {entry!r}")
        paths[name] = path
    plan = Plan(
        tuple(dict.fromkeys([*(studies or ()), *(study or ())])) or DEFAULT_STUDIES,
        paths,
        None if pairs is None else str(pairs),
        rows,
        runs,
        quick,
        None if inverter is None else str(inverter),
    )
    if again:
        for part in (output / "parts").glob("*.json"):
            part.unlink()
    console = _console(quiet)
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    try:
        with Progress(*columns, **_on_terminal(quiet)) as bar:
            task = bar.add_task("loading")
            found = run(
                plan, output, n_jobs=jobs or resolve_threads(None),
                progress=lambda what, done, total: bar.update(task, description=what, completed=done, total=total),
            )  # fmt: skip
    except KeyboardInterrupt:
        kept = len(list((output / "parts").glob("*.json")))
        _fail(
            f"interrupted; {kept} finished jobs are kept in {output / 'parts'}, and the same command goes on",
            _INTERRUPTED,
        )
    page = write_page(found, output)
    for name, why in found.left_out.items():
        console.print(f"left out: {name}. {why}", style="yellow", highlight=False, markup=False)
    for failure in found.failures:
        console.print(f"failed: {failure}", style="red", highlight=False, markup=False)
    console.print(f"wrote {page}", highlight=False)
