"""Diagnostics: the exact figures in one dimension, and the estimates from rows against them."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.base import BaseEstimator, ClassifierMixin

import mute.flow.diagnostics
from laws import draw
from mute import MUtE, MuteError
from mute.flow.diagnostics import COLUMNS, Diagnostics, routing_penalty_1d

# Classes N(-m, 1) and N(m, 1), threshold 0.
TABLE = {
    0.5: {"error": 0.3085, "printed": -0.1978, "entropy": 0.4110, "true": 0.2133},
    1.0: {"error": 0.1587, "printed": -0.1666, "entropy": 0.3488, "true": 0.1822},
    1.5: {"error": 0.0668, "printed": -0.0879, "entropy": 0.1663, "true": 0.0784},
}


class Threshold(ClassifierMixin, BaseEstimator):
    """Routes by the sign of the first column."""

    def fit(self, X: NDArray, y: NDArray) -> "Threshold":
        self.classes_ = np.unique(y)
        return self

    def predict(self, X: NDArray) -> NDArray:
        return self.classes_[(X[:, 0] > 0).astype(int)]


@pytest.mark.parametrize("m", TABLE)
@pytest.mark.parametrize("k", [0, 1])
def test_routing_table(m: float, k: int) -> None:
    found = routing_penalty_1d(
        [norm(-m, 1).pdf, norm(m, 1).pdf], lambda x: (x > 0).astype(int), k, np.linspace(-12, 12, 200_001)
    )
    for name, value in TABLE[m].items():
        assert found[name] == pytest.approx(value, abs=1e-4), name
    assert found["corrected"] == pytest.approx(TABLE[m]["true"], abs=1e-4)


def test_a_perfect_router_costs_nothing() -> None:
    grid = np.linspace(-20, 20, 200_001)
    found = routing_penalty_1d([norm(-9, 1).pdf, norm(9, 1).pdf], lambda x: (x > 0).astype(int), 0, grid)
    np.testing.assert_allclose(list(found.values()), 0, atol=1e-6)


@pytest.mark.parametrize("marginal", ["quantile", "histogram"])
@pytest.mark.parametrize("m", TABLE)
def test_estimates_from_rows(m: float, marginal: str, monkeypatch: pytest.MonkeyPatch) -> None:
    n = 10_000
    monkeypatch.setattr(mute.flow.diagnostics, "_ROWS", n)
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(-m, 1, n), rng.normal(m, 1, n)])[:, None]
    z = np.repeat([0, 1], n)
    found = MUtE(1, router=Threshold(), marginal=marginal, random_state=0).fit(x, z).diagnostics_
    exact = TABLE[m]
    for k in (0, 1):
        figures = {name: found.column(name)[0, k] for name in COLUMNS}
        # Standard errors of half a point and one hundredth of a nat. A histogram's tails add as much again.
        assert figures["routing_error"] == pytest.approx(exact["error"], abs=0.015)
        assert figures["penalty_printed"] == pytest.approx(exact["printed"], abs=0.03)
        # A cross-entropy errs upwards, here by what a cubic of the clue leaves of the steps that the maps draw.
        assert -0.01 < figures["routing_entropy"] - exact["entropy"] < 0.1
        assert figures["penalty_corrected"] == pytest.approx(
            figures["penalty_printed"] + figures["routing_entropy"], abs=1e-12
        )
        assert -0.02 < figures["penalty_corrected"] - exact["true"] < 0.1
        # What the layer leaves is exactly the penalty (spacings see a little too much entropy where the density
        # jumps, as it does at the image of the threshold); N(m, 1) is m^2 / 2 away from N(0, 1).
        assert figures["negentropy_after"] == pytest.approx(exact["true"], abs=0.05)
        assert figures["negentropy"] == pytest.approx(m**2 / 2, abs=0.04)
        assert figures["ideal_reduction"] == pytest.approx(m**2 / 2, abs=0.04)
        assert figures["penalty_bound"] > exact["true"]


@pytest.fixture(scope="module")
def fitted() -> MUtE:
    x, z = draw("gauss", 10_000, 4, seed=0)
    return MUtE(5, router=None, random_state=0).fit(x, np.array(["a", "b"])[z])


def test_table_of_all_figures(fitted: MUtE) -> None:
    found = fitted.diagnostics_
    assert found.figures.shape == (1, 5, 2, len(COLUMNS))
    assert found.sets == ("train",)
    records = found.records()
    assert len(records) == 10
    assert records[3] == {
        "rows": "train", "layer": 1, "class": "b", **{c: found.column(c)[1, 1] for c in COLUMNS},
    }  # fmt: skip
    assert found.to_pandas().shape == (10, 3 + len(COLUMNS))
    lines = str(found).splitlines()
    assert len(lines) == 11
    assert len({len(line) for line in lines}) == 1, "aligned"


def test_figures_hang_together(fitted: MUtE) -> None:
    found = fitted.diagnostics_
    np.testing.assert_array_equal(found.column("negentropy")[1:], found.column("negentropy_after")[:-1])
    for name in ("routing_error", "penalty_printed", "routing_entropy", "penalty_corrected", "penalty_bound"):
        np.testing.assert_array_equal(found.column(name), 0, err_msg="true labels cost nothing")
    x, z = draw("gauss", 200_000, 4, seed=2)
    for k in (0, 1):
        mean, cov = x[z == k].mean(axis=0), np.cov(x[z == k], rowvar=False)
        exact = 0.5 * (np.trace(cov) - np.linalg.slogdet(cov)[1] - 4 + mean @ mean)
        # Half the mean square norm of 2,000 rows has a standard error of 2 % of these figures; five layers fit
        # 0.05 nats of noise; spacings see 0.02 nats too little in every column.
        assert found.column("negentropy")[0, k] == pytest.approx(exact, rel=0.08)
        assert found.column("ideal_reduction")[:, k].sum() == pytest.approx(exact, rel=0.08)
    assert (found.column("negentropy_after")[-1] < 0.02 * found.column("negentropy")[0]).all()


def test_held_out_rows(fitted: MUtE) -> None:
    x, z = draw("gauss", 3000, 4, seed=1)
    found = fitted.diagnose(x, np.array(["a", "b"])[z])
    assert found.sets == ("held-out",)
    first = found.column("negentropy", "held-out")[0]
    np.testing.assert_allclose(first, fitted.diagnostics_.column("negentropy")[0], rtol=0.05)
    x, z = draw("gauss", 2000, 4, seed=0)
    auto = MUtE(router=None, shrinkage=False, max_iterations=4, random_state=0).fit(x, z)
    assert auto.diagnostics_.sets == ("train", "held-out")
    assert auto.diagnostics_.n_layers == auto.n_iterations_


def test_overfitting_shows_on_held_out_rows() -> None:
    x, z = draw("gauss", 130, 6, seed=0)
    new, z_new = draw("gauss", 3000, 6, seed=1)
    eraser = MUtE(12, router=None, random_state=0).fit(x, z)
    late = eraser.diagnose(new, z_new).column("ideal_reduction", "held-out")[6:]
    assert late.mean() < 0, "layers that fit noise lower the density of new rows"
    assert eraser.diagnostics_.column("ideal_reduction")[6:].mean() > 0, "and raise that of their own"


@pytest.mark.parametrize("what", ["whole numbers", "a constant column", "equal columns", "one column"])
def test_data_without_a_density(what: str) -> None:
    x, z = draw("gauss", 300, 3, seed=0)
    match what:
        case "whole numbers":
            x = np.round(x)
        case "a constant column":
            x[:, 1] = 2.0
        case "equal columns":
            x[:, 1] = x[:, 0]
        case "one column":
            x = x[:, :1]
    found = MUtE(2, router=None, random_state=0).fit(x, z).diagnostics_
    assert np.isfinite(found.column("ideal_reduction")).all()
    assert not np.isneginf(found.figures).any()


@pytest.mark.filterwarnings("ignore::mute.WeakResultWarning")  # five rows are what this is about
def test_too_few_rows_give_no_figure() -> None:
    x, z = draw("gauss", 300, 3, seed=0)
    found = MUtE(2, router=None, random_state=0).fit(x[295:], z[295:]).diagnostics_
    assert np.isnan(found.column("negentropy")[:, 0]).all()
    assert np.isfinite(found.column("negentropy")[:, 1]).all()


def test_can_be_left_out() -> None:
    x, z = draw("gauss", 300, 3, seed=0)
    assert MUtE(2, router=None, diagnostics=False).fit(x, z).diagnostics_ is None


@pytest.mark.parametrize(("column", "rows"), [("entropy", "train"), ("negentropy", "test")])
def test_unknown_column(fitted: MUtE, column: str, rows: str) -> None:
    with pytest.raises(MuteError, match=f"no column '{column}' for rows '{rows}'; columns: .*negentropy"):
        fitted.diagnostics_.column(column, rows)


def test_plot(fitted: MUtE, tmp_path: Path) -> None:
    path = tmp_path / "plot.png"
    figure = fitted.diagnostics_.plot(path)
    assert path.read_bytes()[:4] == b"\x89PNG"
    left, right = figure.axes
    drawn = {line.get_label(): line.get_ydata() for line in left.lines}
    np.testing.assert_array_equal(drawn["a, train"][:-1], fitted.diagnostics_.column("negentropy")[:, 0])
    assert "nats" in right.get_ylabel()


def test_a_file_that_does_not_fit() -> None:
    with pytest.raises(MuteError, match="its diagnostics do not fit its maps"):
        Diagnostics.from_arrays(np.zeros((1, 5, 2, 8)), ("train",), ("a", "b"), 6)
