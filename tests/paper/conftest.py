"""Small made-up data in place of the prepared sets."""

import numpy as np
import pytest

import mute.datasets as datasets
from mute.datasets import Dataset
from mute.errors import MuteError
from mute.paper import running

GROUPS = ("arts", "health", "law", "science", "trades")


def made_up(name: str) -> Dataset:
    """Sentences that are not: gender in the mean and spread of some columns, an occupation in others."""
    rng = np.random.default_rng(0)
    n, d = 1200, 8
    gender = rng.integers(2, size=n)
    group = rng.integers(5, size=n)
    X = rng.normal(size=(n, d))
    X[:, 0] += 4 * gender
    X[:, 1] *= 1 + gender
    X[:, 2] += group
    labels, groups = np.array(["female", "male"])[gender], np.array(GROUPS)[group]
    z, y = (groups, labels) if name == "bug-occupations" else (labels, groups)
    return Dataset(
        X=X, z=z, y=y, names=[f"sentence {i}" for i in range(n)],
        split=np.repeat(["fit", "validate", "test"], [600, 300, 300]), provenance={"source": "made up"},
    )  # fmt: skip


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
