"""The search: what it promises, and when it says no."""

import numpy as np
import pytest
from numpy.typing import NDArray

import mute
from betraying import Marked, rows
from mute.budget.search import check_rows_suffice, leak_of, strongest_leak, trials_of
from mute.errors import BudgetNotMet
from mute.rivals import LEACE


def spread_classes(n: int, d: int = 8, seed: int = 0, ratio: float = 1.7) -> tuple[NDArray, NDArray]:
    """Two classes that differ in means and spreads: linear erasure leaves the spreads to be read."""
    rng = np.random.default_rng(seed)
    z = rng.integers(2, size=n)
    X = rng.normal(size=(n, d)) * np.where(z, ratio, 1.0)[:, None] + 1.0 * z[:, None]
    return X, z


@pytest.mark.filterwarnings("ignore::mute.errors.WeakResultWarning")
def test_the_budget_holds_on_folds_and_on_unseen_rows() -> None:
    X, z = spread_classes(12_000)
    eraser = mute.Budgeted(LEACE(), max_leak=0.06, random_state=0).fit(X[:4000], z[:4000])
    assert eraser.leak_.high <= 0.06
    assert eraser.budget_["family"] != "lossless"
    assert 0 < eraser.r2_ < 0.9
    report = mute.audit(eraser, X[4000:], z[4000:], adversaries=["quadratic", "boosting", "kernel"], max_leak=0.06)
    # The promise: the measured leak is within the budget and its interval.
    assert report.leak.low <= 0.06
    # LEACE alone leaks three times the budget.
    alone = mute.audit(LEACE().fit(X[:4000], z[:4000]), X[4000:], z[4000:], adversaries=["quadratic"])
    assert alone.leak.value > 0.18


def test_nothing_is_lost_where_the_eraser_alone_keeps_the_budget() -> None:
    rng = np.random.default_rng(0)
    z = rng.integers(2, size=4000)
    X = rng.normal(size=(4000, 4)) + 2 * z[:, None]
    eraser = mute.Budgeted(LEACE(), max_leak=0.05, random_state=0).fit(X, z)
    assert eraser.channel_ is None
    assert eraser.budget_["family"] == "lossless"
    assert (eraser.transform(X) == eraser.eraser_.transform(X)).all()


def test_a_budget_below_the_interval_of_so_few_rows_is_refused_before_any_fit() -> None:
    class Untouchable(LEACE):
        def fit(self, *args: object, **more: object) -> None:
            raise AssertionError("fitted")

    X, z = spread_classes(500)
    with pytest.raises(BudgetNotMet, match="needs at least 1,068 rows") as caught:
        mute.Budgeted(Untouchable(), max_leak=0.03).fit(X, z)
    assert caught.value.best == {}
    check_rows_suffice(1068, 2, 0.03)
    with pytest.raises(BudgetNotMet):
        check_rows_suffice(1067, 2, 0.03)


def test_one_bit_of_each_column_where_classes_differ_in_shape_alone(tmp_path) -> None:
    """A spread of each class that linear erasure leaves: the signs say nothing of it and keep more than noise."""
    rng = np.random.default_rng(0)
    z = rng.integers(2, size=6000)
    X = (rng.normal(size=(6000, 8)) * np.where(z, 2.5, 1.0)[:, None]).astype(np.float32)
    eraser = mute.Budgeted(LEACE(), max_leak=0.05, random_state=0).fit(X[:3000], z[:3000])
    assert eraser.budget_["family"] == "one bit"
    assert eraser.r2_ > 0.5
    Q = eraser.transform(X[3000:])
    assert all(len(np.unique(column)) == 2 for column in Q.T)
    eraser.save(tmp_path / "bits.safetensors")
    assert (mute.load(tmp_path / "bits.safetensors").transform(X[3000:]) == Q).all()
    report = mute.audit(eraser, X[3000:], z[3000:], adversaries=["quadratic", "boosting"], max_leak=0.05)
    assert report.verdict == "erased"


def test_one_bit_is_of_the_row_itself_whatever_the_eraser_gives() -> None:
    class Narrow(LEACE):
        def _erase(self, X: NDArray) -> NDArray:
            return super()._erase(X)[:, :2]

    rng = np.random.default_rng(0)
    z = rng.integers(2, size=3000)
    X = rng.normal(size=(3000, 6)) * np.where(z, 3.0, 1.0)[:, None]
    eraser = mute.Budgeted(Narrow(), max_leak=0.08, random_state=0).fit(X, z)
    assert eraser.budget_["family"] == "one bit"
    assert eraser.transform(X).shape == (3000, 6) and len(eraser.get_feature_names_out()) == 6


def test_the_search_has_an_informed_adversary() -> None:
    """The rows tell nothing, the inverse tells the route: a panel without the model would let this eraser pass."""
    X, labels = rows(1200)
    z = (labels == "b").astype(int)
    trials = trials_of(
        lambda seen: Marked(), lambda eraser, X, z: eraser.transform(X), X, z, None, np.random.default_rng(0), int
    )
    published = [t.Q for t in trials]
    # The leak of the strongest of two: three standard errors of 1,200 rows are 0.043.
    assert leak_of(trials, published, 2, ("quadratic", "boosting"), 0)[0].value < 0.06
    leak, name = strongest_leak(trials, published, 2, 0)
    assert name == "informed" and leak.value > 0.45


def test_an_adversary_that_may_have_had_luck_is_asked_again() -> None:
    """Rows without a class: an interval that contains the budget by luck is averaged over folds dealt anew."""
    rng = np.random.default_rng(2)
    X, z = rng.normal(size=(900, 3)), rng.integers(2, size=900)
    trials = trials_of(lambda seen: Untouched().fit(X, z), lambda e, X, z: X, X, z, None, rng, int)
    rows, panel = [t.Q for t in trials], ("quadratic",)
    once, _ = leak_of(trials, rows, 2, panel, 0)
    assert leak_of(trials, rows, 2, panel, 0, limit=once.high + 0.01)[0] == once
    assert leak_of(trials, rows, 2, panel, 0, limit=once.value - 0.01)[0] == once
    again, _ = leak_of(trials, rows, 2, panel, 0, limit=(once.value + once.high) / 2)
    assert again.value != once.value
    # No interval of one round is narrower for it: it is what an audit of one round has.
    assert again.high - again.low > 0.8 * (once.high - once.low)


class Untouched(LEACE):
    """An eraser that erases nothing."""

    def _erase(self, X: NDArray) -> NDArray:
        return X.copy()


def test_an_honest_no_with_the_best_that_was_found() -> None:
    """The class is the whole row, so even two hundredths of it tell more than the budget allows."""
    rng = np.random.default_rng(0)
    z = rng.integers(2, size=6000)
    X = np.stack([2.0 * z - 1] * 12, axis=1) + 1e-3 * rng.normal(size=(6000, 12))
    with pytest.raises(BudgetNotMet, match=r"no setting keeps max_leak=0\.03") as caught:
        mute.Budgeted(Untouched(), max_leak=0.03, random_state=0).fit(X, z)
    best = caught.value.best
    assert best["leak"]["high"] > 0.03
    assert best["share"] < 0.05


@pytest.mark.slow
def test_the_fit_on_all_rows_leaks_no_more_than_the_folds_said() -> None:
    """Why the promise survives the last fit: the maps have twice as many rows. Ten draws, 20,000 unseen rows each."""
    kept = 0
    for seed in range(10):
        X, z = spread_classes(26_000, d=12, seed=seed)
        eraser = mute.MUtE(max_leak=0.05, router=None, random_state=0).fit(X[:6000], z[:6000])
        report = mute.audit(
            eraser, X[6000:], z[6000:], adversaries=["quadratic", "neighbours", "boosting"], max_leak=0.05
        )
        kept += report.leak.low <= 0.05
    assert kept == 10
