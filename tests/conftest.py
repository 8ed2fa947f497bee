"""Settings for the whole suite."""

import os
import signal
import sys

import pytest

# Tests run side by side, one process for each core; threads inside them that spin while they wait would only take
# the other's core. The engine's own threads are not affected.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

# A shell gives its background jobs an ignored Ctrl-C; tests of it, here and in processes of their own, run there too.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def cli(monkeypatch, capsys):
    """Run a command; give exit code, standard output and standard error."""
    from mute.cli import main

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


@pytest.fixture
def sabotage(monkeypatch):
    """Let `mute compare` and `mute frontier` find a method of this name that ends in an error."""
    from sklearn.preprocessing import FunctionTransformer

    from mute.estimators.registry import METHODS, Method
    from mute.evaluation import methods

    def add(name, error):
        real = methods.make

        class Broken(FunctionTransformer):
            def fit(self, X, y=None):
                raise error

        def make(asked, **settings):
            return Broken() if asked == name else real(asked, **settings)

        monkeypatch.setitem(METHODS, name, Method("LEACE", "broken"))
        monkeypatch.setattr(methods, "make", make)

    return add
