"""Copies across the cuts of an audit, and groups that keep them on one side."""

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.preprocessing import FunctionTransformer

from mute import audit
from mute.errors import MuteError, WeakResultWarning
from mute.evaluation.compare import compare
from mute.evaluation.duplicates import find_duplicates


def copied(noise: float, n: int = 900, columns: int = 30) -> tuple[NDArray, NDArray, NDArray]:
    """Each row three times, nearly; the class belongs to the source and is not in the rows."""
    rng = np.random.default_rng(0)
    source = np.arange(n) // 3
    X = rng.normal(size=(n // 3, columns))[source] + noise * rng.normal(size=(n, columns))
    return X, rng.integers(2, size=n // 3)[source], source


def test_copies_are_counted() -> None:
    rng = np.random.default_rng(0)
    X, folds = rng.normal(size=(600, 30)), np.arange(600) % 3
    assert find_duplicates(X, folds, rng).sentence is None
    X[1] = X[0]  # of another fold
    X[5] = X[2]  # of the same fold: no cut parts them
    X[7] = X[6] + 1e-3
    found = find_duplicates(X, folds, rng)
    assert (found.exact, found.near, found.asked) == (2, 2, 600)


def test_near_rows_in_few_columns_are_no_copies() -> None:
    rng = np.random.default_rng(0)
    assert find_duplicates(rng.normal(size=(2000, 2)), np.arange(2000) % 3, rng).sentence is None


@pytest.mark.parametrize("noise", [0.0, 1e-3])
def test_copies_mislead_until_groups_are_given(noise: float) -> None:
    X, z, source = copied(noise)
    with pytest.warns(WeakResultWarning, match="copy.*groups="):
        parted = audit(FunctionTransformer(), X, z, adversaries=["narrow kernel"])
    assert parted.leak.value > 0.2, "an adversary knows rows, not the concept"
    assert any(line.startswith("Copies:") and "groups=" in line for line in parted.summary)
    whole = audit(FunctionTransformer(), X, z, adversaries=["narrow kernel"], groups=[f"doc {s}" for s in source])
    # 300 sources: three standard errors of a guess are 9 points.
    assert abs(whole.leak.value) < 0.09
    assert whole.about["groups"] == 300 and whole.about["duplicates"] is None


def test_compare_parts_no_group() -> None:
    X, z, source = copied(0.0)
    found = compare(X, z, methods="none", adversaries=["narrow kernel"], groups=source, fit_share=0.6)
    about = found.reports["none"]["about"]
    assert about["groups"] == pytest.approx(120, abs=3) and about["rows"] == 3 * about["groups"]


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (["a"] * 10, "groups has 10 labels for 900 rows"),
        ([None] + ["a"] * 899, "groups contains missing"),
        (np.arange(900) % 2, "class 0 has rows in 2 group\\(s\\); an audit needs at least 3"),
    ],
)
def test_groups_that_cannot_be_used(groups: object, message: str) -> None:
    X, z, _ = copied(1.0)
    with pytest.raises(MuteError, match=message):
        audit(FunctionTransformer(), X, z, groups=groups)
