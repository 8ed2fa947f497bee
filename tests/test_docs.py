"""The code of README and docs works: Python blocks run; commands are parsed and, where they are cheap, run."""

import pkgutil
import re
import shlex
from contextlib import ExitStack
from pathlib import Path

import pytest
import sklearn
import typer

from documented import COSTLY, prepare
from mute.cli.main import app

ROOT = Path(__file__).parents[1]
PAGES = {
    path.stem: path for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
}
# A comment `<!-- not run: reason -->` above a block exempts it.
BLOCK = re.compile(r"(<!-- not run: [^>]+-->\n)?^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def commands_of(script):
    """The commands of a shell block, each as its words."""
    return [words for line in script.replace("\\\n", " ").splitlines() if (words := shlex.split(line, comments=True))]


@pytest.mark.parametrize("page", PAGES)
def test_blocks_run_in_order(page, cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with ExitStack() as stack:
        stack.enter_context(sklearn.config_context())
        namespace = prepare(page, monkeypatch, stack)
        text = PAGES[page].read_text()
        for block in BLOCK.finditer(text):
            skipped, language, code = block.groups()
            if language == "python" and not skipped:
                lines_above = "\n" * text.count("\n", 0, block.start(3))
                exec(compile(lines_above + code, str(PAGES[page]), "exec"), namespace)
            for words in commands_of(code) if language == "sh" else ():
                if words[0] == "mute" and not COSTLY.search(" ".join(words)):
                    judges = words[1] in ("audit", "compare")
                    quick = ["--adversaries", "logistic", "--most-rows", "200"] if judges else []
                    quick += ["--max-leak", "0.1"] if words[1] == "frontier" else []  # the rows are few
                    status, _, message = cli(*words[1:], *quick)
                    verdicts = (0, 3, 4, 5) if judges else (0, 3, 5) if words[1] == "certify" else (0,)
                    assert status in verdicts, f"{shlex.join(words)}: {message}"


def check_command(words, *, complete):
    """`mute ...` parses, or, if it is a part of a command, has only options that exist."""
    command, rest = typer.main.get_command(app), words[1:]
    while rest and hasattr(command, "commands"):
        command, rest = command.commands[rest[0]], rest[1:]
    if complete:
        command.make_context(shlex.join(words), rest)
    options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    assert {word for word in rest if word.startswith("-")} <= options, words


@pytest.mark.parametrize("page", PAGES)
def test_commands_names_files_and_links_exist(page, cli):
    cli("--version")  # adds the commands
    text = PAGES[page].read_text()
    shell = "".join(code for _, language, code in BLOCK.findall(text) if language == "sh")
    inline = "\n".join(" ".join(code.split()) for code in re.findall(r"`((?:mute|python|make) [^`]+)`", text))
    for words, complete in [(w, True) for w in commands_of(shell)] + [(w, False) for w in commands_of(inline)]:
        if words[0] == "mute":
            check_command(words, complete=complete)
        elif words[0] == "python":
            assert (ROOT / words[1]).is_file(), words
        elif words[0] == "make":
            assert f"\n{words[1]}:" in (ROOT / "Makefile").read_text(), words
    for name in re.findall(r"`(mute(?:\.\w+)+)[`(]", text):
        assert pkgutil.resolve_name(name) is not None
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", text):
        path, _, anchor = link.partition("#")
        target = PAGES[page].parent / path if path else PAGES[page]
        assert target.exists(), link
        headings = re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE) if anchor else []
        assert not anchor or anchor in {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}, link
