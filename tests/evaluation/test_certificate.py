"""The certificate: no adversary on cells exceeds it, cells are fixed without the counted rows, misuse is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from sklearn.preprocessing import OneHotEncoder

import mute
from mute import MuteError, certify
from mute.adversaries.cells import Cells, learn_cells
from mute.evaluation.cell_bounds import best_bound
from mute.evaluation.certificate import certify_rows
from mute.evaluation.certificate_wording import at_most, certificate_table
from mute.rivals import LEACE


class Same:
    """Publishes the rows as they are."""

    def transform(self, X):
        return X


class Published:
    """Publishes the centre of the nearest cell of each row."""

    def __init__(self, cells: Cells) -> None:
        self.cells_ = cells

    def transform(self, X):
        return self.cells_.centres[self.cells_.of(X)]


class Signed(Published):
    """Publishes centres whose zeros have a sign that tells classes apart."""

    def transform(self, X):
        Q = super().transform(X)
        Q[:, 1] = np.where(X[:, 0] > 0, 0.0, -0.0)
        return Q


class WithLabels:
    """Erases with true labels only."""

    needs_concept = True

    def transform(self, X, concept):
        return X - np.where(np.asarray(concept) == "b", 1.0, 0.0)[:, None]


def made(n: int, seed: int, shift: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    z = rng.choice(["a", "b"], n)
    return rng.normal(size=(n, 4)) + shift * (z == "b")[:, None], z


@pytest.mark.parametrize("model", [LogisticRegression(), RandomForestClassifier(30, random_state=0)])
def test_no_adversary_on_cells_exceeds_the_bound(model) -> None:
    """Also one that learns from the test rows themselves stays below what was counted on them."""
    (X, z), (X_fit, z_fit), (X_adv, z_adv) = made(8000, 0), made(2000, 1), made(20_000, 2)
    found = certify(Same(), X, z, fit_rows=(X_fit, z_fit), cells=16)
    cells = learn_cells(X_fit, 16)
    code = OneHotEncoder().fit(np.arange(len(cells))[:, None])

    def seen(X):
        return code.transform(cells.of(X)[:, None])

    model.fit(seen(X_adv), z_adv)
    # The true value is that of the rule on many rows; 20,000 of them have a standard error of 0.003.
    fresh = balanced_accuracy_score(z_adv, model.predict(seen(X_adv)))
    assert found.estimate - 0.03 < fresh <= found.bound + 0.01
    assert balanced_accuracy_score(z, model.fit(seen(X), z).predict(seen(X))) <= found.estimate + 1e-12


def test_it_is_the_best_bound_of_its_counts() -> None:
    X, z = made(4000, 0)
    found = certify(Same(), X, z, cells=8, confidence=0.9)
    assert found.counts.shape == (2, 8) and found.counts.sum() == sum(found.rows) and 2990 <= sum(found.rows) <= 3010
    again = best_bound(np.array(found.to_dict()["counts"]), 1 - 0.9)
    assert (found.bound, found.estimate, found.method) == (again.value, again.estimate, again.method)
    assert found.leak == found.bound - 0.5 and found.cells == 8 and found.covers == "cells"
    assert found.worst_pair.classes == ("a", "b") and found.worst_pair.bound == found.bound
    assert certify(Same(), X, z, cells=8, confidence=0.99).bound > found.bound


def test_the_leak_of_equal_and_of_disjoint_classes() -> None:
    X, z = made(20_000, 0, shift=0.0)
    alike = certify(Same(), X, z, cells=4)
    assert 0.5 < alike.smallest < alike.bound < 0.52
    X, z = made(4000, 0, shift=50.0)
    assert certify(Same(), X, z, cells=4).bound == 1.0


def test_the_rows_that_fix_the_cells_are_not_counted() -> None:
    X, z = made(4000, 0)
    seen = []

    class Spy(Same):
        def transform(self, X):
            seen.append(X.copy())
            return X

    found = certify(Spy(), X, z, cells=4)
    fixing, counted = seen[0], np.concatenate(seen[1:])
    assert len(fixing) + len(counted) == 4000 and len(counted) == sum(found.rows)
    assert not {row.tobytes() for row in fixing} & {row.tobytes() for row in counted}
    seen.clear()
    X_fit, z_fit = made(100, 1)
    assert sum(certify(Spy(), X, z, cells=4, fit_rows=(X_fit, z_fit)).rows) == 4000
    assert len(seen[0]) == 100


def test_a_seed_decides() -> None:
    X, z = made(1000, 0)
    first, second, other = (certify(Same(), X, z, cells=6, random_state=seed) for seed in (0, 0, 1))
    assert first.to_json() == second.to_json() and not np.array_equal(first.counts, other.counts)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_published_centres_cover_every_adversary(dtype: type) -> None:
    X, z = made(3000, 0)
    X = X.astype(dtype)
    cells = learn_cells(made(1000, 1)[0].astype(dtype), 5)
    found = certify(Published(cells), X, z)
    assert found.covers == "every adversary" and found.cells == 5 and sum(found.rows) == 3000
    # Whatever reads the published rows themselves reads no more than cells.
    Q = Published(cells).transform(X)
    guess = RandomForestClassifier(30, random_state=0).fit(Q, z).predict(Q)
    assert balanced_accuracy_score(z, guess) <= found.estimate + 1e-12
    assert certify_rows(None, Q, z, cells=cells).to_dict() == {**found.to_dict(), "eraser": "rows erased elsewhere"}


def test_a_published_row_that_is_no_centre_is_refused() -> None:
    X, z = made(500, 0)
    centres = np.array([[-1.0, 0.0, -1.0, -1.0], [1.0, 0.0, 1.0, 1.0]])
    assert certify(Published(Cells(centres)), X, z).covers == "every adversary"
    other = Published(Cells(centres))
    other.transform = lambda X: X
    with pytest.raises(MuteError, match="500 of 500 rows that it published are not centres"):
        certify(other, X, z)
    with pytest.raises(MuteError, match="are not centres of these cells"):
        certify(Signed(Cells(centres)), X, z)


def test_three_classes_and_the_worst_pair() -> None:
    rng = np.random.default_rng(0)
    z = rng.choice([0, 1, 2], 9000)
    X = rng.normal(size=(9000, 2)) + 3.0 * (z == 2)[:, None]
    found = certify(Same(), X, z, cells=8)
    assert [pair.classes for pair in found.pairs] == [(0, 1), (0, 2), (1, 2)]
    alike, *apart = [pair.bound for pair in found.pairs]
    assert alike < 0.6 < 0.9 < min(apart) and found.worst_pair.bound == max(apart)
    counts = found.counts[[0, 1]]
    assert alike == best_bound(counts, (1 - 0.95) / 3).value
    table = certificate_table(found.to_dict())
    assert table.rows[0][0] == "all" and table.rows[1][0] in ("0 / 2", "1 / 2")
    assert any("pairs hold together" in note for note in table.notes)


def test_few_rows_are_wide_and_finite() -> None:
    X, z = made(12, 0, shift=0.0)
    found = certify(Same(), X, z, cells=2)
    assert 0.8 < found.bound <= 1 and all(np.isfinite([found.estimate, found.smallest, found.leak]))
    z[:] = "a"
    z[0] = "b"  # one row of its class: counted, never spent on the cells
    found = certify(Same(), X, z, cells=2)
    assert found.rows == (9, 1) and 0.8 < found.bound <= 1
    assert found.verdict(0.1) == "too few rows"


def test_verdicts() -> None:
    X, z = made(20_000, 0, shift=0.0)
    found = certify(Same(), X, z, cells=4)
    assert [found.verdict(b) for b in (0.05, 1e-3)] == ["within", "too few rows"]
    X, z = made(20_000, 0)
    assert certify(Same(), X, z, cells=4).verdict(0.05) == "exceeds"


def test_rows_erased_elsewhere_and_true_labels() -> None:
    X, z = made(4000, 0)
    eraser = LEACE().fit(*made(2000, 1))
    first, second = certify(eraser, X, z, cells=4), certify(eraser.transform(X), X, z, cells=4)
    assert first.eraser == "LEACE" and (first.counts == second.counts).all()
    assert certify(WithLabels(), X, z, cells=4).bound < certify(Same(), X, z, cells=4).bound
    rows = certify_rows(eraser.transform(made(2000, 1)[0]), eraser.transform(X), z, cells=4)
    assert (rows.counts == certify(eraser, X, z, cells=4, fit_rows=made(2000, 1)).counts).all()


def test_rows_on_disk_give_the_same(tmp_path: Path) -> None:
    X, z = made(20_000, 0)
    np.save(tmp_path / "X.npy", X)
    on_disk = certify(Same(), mute.open_matrix(tmp_path / "X.npy"), z, cells=6)
    assert on_disk.to_json() == certify(Same(), X, z, cells=6).to_json()


def test_what_cannot_be_done_is_said() -> None:
    X, z = made(400, 0)
    eraser = LEACE().fit(X, z)
    for words, call in {
        "the very rows that the eraser was fitted on": lambda: certify(eraser, X, z),
        "must be fixed without the counted rows": lambda: certify(Same(), X, z, fit_rows=(X.copy(), z)),
        "one class only": lambda: certify(Same(), X, ["a"] * 400),
        "cells must be a whole number": lambda: certify(Same(), X, z, cells=0),
        "confidence must lie between 0 and 1": lambda: certify(Same(), X, z, confidence=95),
        "cannot fix 200 cells": lambda: certify(Same(), X, z, cells=200),
        "must be (X_fit, z_fit)": lambda: certify(Same(), X, z, fit_rows=X),
        "X_fit has 3 columns, X has 4": lambda: certify(Same(), X, z, fit_rows=(X[:50, :3], z[:50])),
        "cannot be erased without the eraser": lambda: certify(X, X, z, fit_rows=(X[:50], z[:50])),
        "but there are 400 rows in X": lambda: certify(X[:50], X, z),
        "give other erased rows as Q_fix": lambda: certify_rows(None, X, z),
        "cannot audit 3": lambda: certify(3, X, z),
    }.items():
        with pytest.raises(MuteError) as error:
            call()
        assert words in str(error.value)


def test_what_it_says(tmp_path: Path) -> None:
    X, z = made(4000, 0)
    found = certify(Same(), X, z, cells=8)
    first, second = found.summary
    assert f"at most {at_most(found.bound)} of the rows" in first and "in which of 8 cells" in first
    assert f"{sum(found.rows):,} unseen rows" in second and "sees the erased row itself" in second
    assert str(found) == f"{first} {second}" and repr(found).startswith("Certificate(bound=0.")
    page = found.to_markdown(tmp_path / "c.md")
    assert page.startswith("# Certificate of Same: at most") and first in page
    saved = json.loads(found.to_json(tmp_path / "c.json"))
    assert saved == json.loads((tmp_path / "c.json").read_text()) and saved["bound"] == found.bound
    published = certify(Published(learn_cells(X[:500], 3)), X, z)
    assert "an adversary that sees an erased row names" in published.summary[0]


def test_a_bound_is_rounded_up() -> None:
    assert [at_most(v) for v in (0.5, 0.5001, 0.541, 0.54199, 1.0)] == [
        "50.0 %", "50.1 %", "54.1 %", "54.2 %", "100.0 %",
    ]  # fmt: skip


def test_the_audit_has_a_certificate_of_its_own() -> None:
    rng = np.random.default_rng(0)
    z = rng.integers(2, size=4000)
    X = rng.normal(size=(4000, 3)) + 2 * z[:, None]
    report = mute.audit(LEACE().fit(X[:2000], z[:2000]), X[2000:], z[2000:], adversaries="logistic", max_leak=0.05)
    proved = report.certificate
    assert proved["covers"] == "cells"
    assert 0.5 < proved["bound"] < 0.75  # 800 rows and 16 cells
    assert "nothing else of it" in report.to_markdown()
    cells = mute.MUtE(cells=4, router=None, random_state=0).fit(X[:2000], z[:2000])
    report = mute.audit(cells, X[2000:], z[2000:], adversaries="logistic", max_leak=0.05)
    assert report.certificate["covers"] == "every adversary"
    assert sum(report.certificate["rows"]) == 2000
