"""The command line `mute`.

Exit codes: 0 done; 1 an input cannot be used (one line says why); 2 the command is misspelt; 3 and 4 verdicts of an
audit; 3 and 5 those of a certificate; 130 interrupted.
"""

from __future__ import annotations

import signal
import sys
from typing import Annotated

import typer

from mute.cli import certifying, data, demo, distilling, erasing, fitting, judging, paper, text
from mute.cli.console import INTERRUPTED, fail
from mute.errors import MuteError

__all__ = ["app", "run"]

app = typer.Typer(
    name="mute",
    help="Remove a concept (gender, race, religion, ...) from embeddings, or compute what an embedding would be under "
    "another value of the concept.",
    epilog="Start with: mute demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for group in (fitting, erasing, judging, certifying, distilling, paper, demo, data, text):
    app.add_typer(group.commands)


def run() -> None:
    """Run the command line; an error of the user ends in one line and exit code 1."""
    # A termination signal unwinds like Ctrl-C, so that no half-written file stays behind.
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        code = app(standalone_mode=False)
    except MuteError as error:
        fail(str(error))
    except Exception as error:
        # Misspelt commands and options: click explains them.
        show = getattr(error, "show", None)
        if show is None:
            raise
        show()
        sys.exit(getattr(error, "exit_code", 2))
    if code == INTERRUPTED:
        fail("interrupted; nothing was written", INTERRUPTED)
    sys.exit(code or 0)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


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
