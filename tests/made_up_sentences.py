"""Data in the shape of the prepared sets of sentences, small and made up."""

import numpy as np

from mute.datasets import Dataset

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
