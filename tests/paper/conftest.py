"""Small made-up data in place of the prepared sets."""

import pytest

import mute.datasets as datasets
from made_up_sentences import made_up
from mute.errors import MuteError
from mute.paper import running


@pytest.fixture
def prepared(monkeypatch):
    """As if the stand-ins of sentences were prepared, but no words."""

    def load(name):
        if name in ("bug", "bug-occupations"):
            return made_up(name)
        raise MuteError(f"{name} is not prepared; run: mute data prepare {name}")

    def prepared_folder(name, folder=None):
        raise MuteError(f"{name} is not prepared; run: mute data prepare {name}")

    monkeypatch.setattr(datasets, "load", load)
    monkeypatch.setattr(datasets, "prepared_folder", prepared_folder)
    running._loaded.cache_clear()
    yield
    running._loaded.cache_clear()
