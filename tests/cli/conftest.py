"""A command line to run commands on."""

import signal
import sys

import pytest

from mute.cli import main


@pytest.fixture
def cli(monkeypatch, capsys):
    """Run a command; give exit code, standard output and standard error."""
    before = signal.getsignal(signal.SIGTERM)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["mute", *map(str, words)])
        monkeypatch.setenv("COLUMNS", "200")
        code = 0
        try:
            main.run()
        except SystemExit as stop:
            code = stop.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    yield call
    signal.signal(signal.SIGTERM, before)
