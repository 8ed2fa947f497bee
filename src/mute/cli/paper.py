"""The command that runs the studies of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mute.cli import console
from mute.errors import MuteError

__all__ = ["commands"]

commands = typer.Typer()


@commands.command(
    epilog="Studies: synthetic, tradeoff, words, fairness, augmentation, surrogates, text. Two more measure what "
    "adversaries read from unseen rows and run only if named: fresh (an hour on two cores) and budget (three hours). "
    "Data: first run `mute data prepare glove wordsim bug bug-occupations bug-texts panda-gender` (word2vec for "
    "fresh and budget), or give the authors' files."
)
def paper(
    studies: Annotated[
        list[str] | None,
        typer.Argument(metavar="[STUDY]...", help="Studies to run.", show_default="all but fresh and budget"),
    ] = None,
    study: Annotated[
        list[str] | None, typer.Option(metavar="STUDY", help="The same as the argument; repeat for more.")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the page, its figures and results.")] = Path(
        "paper"
    ),
    quick: Annotated[bool, typer.Option("--quick", help="A pass of minutes: one run, few rows.")] = False,
    runs: Annotated[int, typer.Option(min=1, help="Seeds for each method of the paper's tables.")] = 5,
    rows: Annotated[
        int | None, typer.Option(min=200, help="Maximum number of training rows.", show_default="all")
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=PATH", help="Authors' glove, bios, dial, jigsaw or texts; repeatable."),
    ] = None,
    pairs: Annotated[
        str | None, typer.Option(metavar="FILE", help="Judgements of word pairs, to replace WordSim.")
    ] = None,
    inverter: Annotated[str | None, typer.Option(metavar="FOLDER", help="Inverter that decodes texts as well.")] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Parallel processes of one thread each.", show_default="one per core")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Ignore the finished jobs of an earlier run.")] = False,
    quiet: console.Quiet = False,
) -> None:
    """Run the paper's studies and print its figures beside ours: mute paper --quick -o results

    Finished jobs are kept in OUTPUT/parts; the same command continues an interrupted run.
    """
    from mute.errors import missing_extra
    from mute.paper import DEFAULT_STUDIES, Plan, run, write_page
    from mute.rows.threads import resolve_threads

    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise missing_extra("matplotlib", "report", "the page of figures") from None
    paths = {}
    for entry in data or []:
        name, equals, path = entry.partition("=")
        if not equals or not path:
            raise MuteError(f"--data takes NAME=PATH, such as bios=data/biasbios, not {entry!r}")
        paths[name] = path
    named = tuple(dict.fromkeys([*(studies or ()), *(study or ())])) or DEFAULT_STUDIES
    plan = Plan(named, paths, pairs, rows, runs, quick, inverter)
    console.check_folder(output, "parts", ["README.md", "results.json", "*.png", "texts-*.html"])
    parts = output / "parts"
    if again:
        for part in parts.glob("*.json"):
            part.unlink()
    with (
        console.resumable(parts, what=lambda: f"{len(list(parts.glob('*.json')))} finished jobs"),
        console.progress_bar(quiet, "loading") as report,
    ):
        found = run(plan, output, n_jobs=jobs or resolve_threads(None), progress=report)
    page, out = write_page(found, output), console.output(quiet)
    for name, why in found.left_out.items():
        out.print(f"left out: {name}. {why}", style="yellow")
    for failure in found.failures:
        out.print(f"failed: {failure}", style="red")
    console.wrote(out, page)
