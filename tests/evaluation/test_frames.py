"""Audits and comparisons of data frames and Arrow tables: columns are matched by name, without a warning."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import mute
from mute import MUtE

NAMES = ["p", "q", "r"]
QUICK = {"adversaries": ["logistic"]}


def drawn() -> tuple[NDArray, NDArray, NDArray]:
    """Rows of two classes, their labels, and which of them are training rows."""
    rng = np.random.default_rng(0)
    z = np.tile(["a", "b"], 400)
    X = rng.normal(size=(800, 3)) * [1.0, 10.0, 100.0]
    X[:, 0] += 6 * (z == "b")
    return X, z, np.arange(800) < 400


def as_frame(library: str, columns: dict[str, Any]) -> Any:
    module = pytest.importorskip(library)
    return module.table(columns) if library == "pyarrow" else module.DataFrame(columns)


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_columns_are_matched_by_name(library: str) -> None:
    X, z, fit = drawn()
    plain = MUtE(3, router="logistic", diagnostics=False, random_state=0).fit(X[fit], z[fit])
    expected = mute.audit(plain, X[~fit], z[~fit], fit_rows=(X[fit], z[fit]), **QUICK)

    def shuffled(rows: NDArray, labels: NDArray) -> Any:
        columns: dict[str, Any] = {name: rows[:, NAMES.index(name)] for name in ("r", "p", "q")}
        return as_frame(library, {"label": labels.tolist(), **columns})

    named = MUtE(3, router="logistic", diagnostics=False, random_state=0)
    named.fit(as_frame(library, dict(zip(NAMES, X[fit].T, strict=True))), z[fit])
    fit_rows = shuffled(X[fit], z[fit]), z[fit]
    found = mute.audit(named, shuffled(X[~fit], z[~fit]), z[~fit], fit_rows=fit_rows, **QUICK)
    assert found.leak == expected.leak
    assert found.utility == expected.utility
    erased = as_frame(library, dict(zip(NAMES, plain.transform(X[~fit]).T, strict=True)))
    elsewhere = mute.audit(erased, as_frame(library, dict(zip(NAMES, X[~fit].T, strict=True))), z[~fit], **QUICK)
    assert elsewhere.about["eraser"] == "rows erased elsewhere"
    reads = [
        {a.adversary: a.balanced_accuracy.value for a in r.privacy.attacks if a.protocol == "fresh"}
        for r in (elsewhere, expected)
    ]
    del reads[1]["informed"]  # rows erased elsewhere come without a model
    assert reads[0] == reads[1]


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_comparison_of_a_frame(library: str) -> None:
    X, z, _ = drawn()
    frame = as_frame(library, dict(zip(NAMES, X.T, strict=True)))
    found = mute.compare(frame, z, methods="leace", **QUICK)
    assert not found.failures
    expected = mute.compare(X, z, methods="leace", **QUICK)
    assert found.rows()[0]["fresh"] == expected.rows()[0]["fresh"]


def test_columns_of_a_file_are_matched_by_name(tmp_path: Any) -> None:
    pandas = pytest.importorskip("pandas")
    X, z, fit = drawn()
    frame = pandas.DataFrame(X, columns=NAMES)
    eraser = MUtE(3, router="logistic", diagnostics=False, random_state=0).fit(frame[fit], z[fit])
    frame[~fit][["r", "p", "q"]].to_csv(tmp_path / "X.csv", index=False)
    found = mute.audit(eraser, mute.open_matrix(f"{tmp_path}/X.csv:r,p,q"), z[~fit], **QUICK)
    assert found.leak == mute.audit(eraser, X[~fit], z[~fit], **QUICK).leak
