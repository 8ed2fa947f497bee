"""L̄EOPARD: its discrepancy against the definition, its projection against the theorems, and what it erases."""

import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

import mute
from forging import contents, forge
from laws import draw
from mute import MuteError
from mute.estimators.registry import make
from mute.rivals import LEOPARD

torch = pytest.importorskip("torch")
leopard = pytest.importorskip("mute.rivals.leopard")

QUICK: dict[str, Any] = {"epochs": 4, "batch_size": 256, "random_state": 0}


@parametrize_with_checks([LEOPARD(epochs=2), LEOPARD(epochs=2, cascaded=True, pairs="mean", patience=1)])
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def by_definition(Y: NDArray, z: NDArray, width_of: NDArray | None = None) -> float:
    """Unbiased MMD² over all pairs of classes, pair of rows by pair of rows; widths from other rows if given."""
    widths = Y if width_of is None else width_of
    total = 0.0
    for i, j in combinations(np.unique(z), 2):
        spots = widths[(z == i) | (z == j)]
        n = len(spots)
        width = ((spots[:, None] - spots) ** 2).sum() / (n * (n - 1))

        def kernel(A: NDArray, B: NDArray, width: float = width) -> NDArray:
            distance = ((A[:, None] - B) ** 2).sum(axis=2)
            return np.sum([np.exp(-distance / (c * width)) for c in (0.25, 0.5, 1, 2, 4)], axis=0)

        A, B = Y[z == i], Y[z == j]
        for rows in (A, B):
            own = kernel(rows, rows)
            total += (own.sum() - np.trace(own)) / (len(rows) * (len(rows) - 1))
        total -= 2 * kernel(A, B).mean()
    return total


def measure(Y: NDArray, z: NDArray) -> float:
    return float(leopard.mmd2(torch.from_numpy(Y), torch.from_numpy(z), int(z.max()) + 1))


def test_mmd2_is_its_definition() -> None:
    Y, z = draw("skew", 40, 3, seed=0, n_classes=3)
    assert measure(Y, z) == pytest.approx(by_definition(Y, z), rel=1e-12)


def test_gradient_of_mmd2_is_that_of_its_definition() -> None:
    Y, z = draw("skew", 12, 2, seed=1, n_classes=3)
    tensor = torch.from_numpy(Y).requires_grad_()
    leopard.mmd2(tensor, torch.from_numpy(z), 3).backward()
    step = 1e-5
    for row, column in np.ndindex(Y.shape):
        up, down = Y.copy(), Y.copy()
        up[row, column] += step
        down[row, column] -= step
        # The width counts as a constant.
        slope = (by_definition(up, z, Y) - by_definition(down, z, Y)) / (2 * step)
        # A central difference errs by step² plus rounding over step, both about 1e-10 here.
        assert tensor.grad[row, column].item() == pytest.approx(slope, abs=1e-8)


def test_mmd2_does_not_depend_on_the_size_of_its_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    Y, z = draw("gauss", 50, 4, seed=0)
    whole = measure(Y, z)
    monkeypatch.setattr(leopard, "_BLOCK", 7)
    assert measure(Y, z) == pytest.approx(whole, rel=1e-12)


def test_mmd2_is_unbiased() -> None:
    """Classes of one law: the mean over independent draws is 0, up to four of its standard errors."""
    rng = np.random.default_rng(0)
    z = np.repeat([0, 1], [10, 25])
    values = [measure(rng.normal(size=(35, 3)), z) for _ in range(400)]
    assert abs(np.mean(values)) < 4 * np.std(values) / 20
    assert min(values) < 0


def test_mmd2_leaves_out_classes_of_fewer_than_two_rows() -> None:
    Y, z = draw("gauss", 20, 3, seed=0)
    with_one_more = np.append(z, 2)
    assert measure(np.vstack([Y, Y[:1]]), with_one_more) == measure(Y, z)


@pytest.mark.parametrize("cascaded", [False, True])
def test_the_map_is_an_orthogonal_projection_of_the_given_rank(cascaded: bool) -> None:
    X, z = draw("skew", 300, 8, seed=0, n_classes=3)
    eraser = LEOPARD(5, cascaded=cascaded, **QUICK).fit(X, z)
    P = eraser.transform(np.eye(8))
    # Products of eight numbers of at most 1: rounding stays near 1e-15.
    np.testing.assert_allclose(P, P.T, atol=1e-14)
    np.testing.assert_allclose(P @ P, P, atol=1e-14)
    assert np.trace(P) == pytest.approx(5)
    norms = np.linalg.norm(X, axis=1)
    assert (np.linalg.norm(eraser.transform(X), axis=1) <= norms * (1 + 1e-12)).all()


def cross_covariance(X: NDArray, z: NDArray) -> NDArray:
    return (X - X.mean(axis=0)).T @ np.eye(z.max() + 1)[z] / len(X)


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_cascaded_leaves_no_linear_signal(offset: float) -> None:
    X, z = draw("skew", 300, 8, seed=0, n_classes=3)
    X += offset
    eraser = LEOPARD(cascaded=True, **QUICK).fit(X, z)
    before, after = cross_covariance(X, z), cross_covariance(eraser.transform(X), z)
    assert np.abs(after).max() < 1e-8 * np.abs(before).max()
    probe = LogisticRegression().fit(eraser.transform(X), z)
    assert probe.score(eraser.transform(X), z) < 0.4  # a constant gets 1/3; scores tie only up to rounding
    assert LEOPARD(6, cascaded=True, **QUICK).fit(X, z).basis_.shape == (8, 6)  # D - K + 1 dimensions are left


def test_cascaded_removes_only_as_many_directions_as_the_means_span() -> None:
    """Three classes whose means lie on one line leave D - 1 dimensions."""
    rng = np.random.default_rng(0)
    noise, z = rng.normal(size=(100, 5)), np.repeat([0, 1, 2], 100)
    X = np.tile(noise, (3, 1)) + np.outer(z, np.arange(5.0))
    assert LEOPARD(4, cascaded=True, **QUICK).fit(X, z).basis_.shape == (5, 4)


def test_mmd2_on_new_rows_falls_below_that_of_random_projections() -> None:
    X, z = draw("skew", 600, 8, seed=0)
    eraser = LEOPARD(4, epochs=60, batch_size=512, learning_rate=5e-3, random_state=0).fit(X, z)
    new, z_new = draw("skew", 500, 8, seed=1)
    rng = np.random.default_rng(0)
    bases = [np.linalg.qr(rng.normal(size=(8, 4)))[0] for _ in range(20)]
    assert measure(new @ eraser.basis_, z_new) < 0.5 * min(measure(new @ basis, z_new) for basis in bases)
    assert eraser.history_[-1] < 0.5 * eraser.history_[0]


def planted(seed: int, n: int = 400) -> tuple[NDArray, NDArray, NDArray]:
    """Classes that differ by their spread along one direction alone, which is the last value."""
    rng = np.random.default_rng(seed)
    z = np.repeat([0, 1], n)
    X = rng.normal(size=(2 * n, 4))
    X[z == 1, 0] *= 4
    turn = np.linalg.qr(np.random.default_rng(9).normal(size=(4, 4)))[0]
    return X @ turn, z, turn[0]


def test_a_direction_of_unequal_spread_goes_and_the_others_stay() -> None:
    X, z, direction = planted(0)
    eraser = LEOPARD(3, epochs=80, batch_size=128, learning_rate=0.02, random_state=0).fit(X, z)
    # Left in at an angle t, the direction adds t² to a variance: the loss is flat up to t⁴, and n rows tell t to about
    # n^(-1/4), not n^(-1/2).
    bound = 400**-0.25
    assert np.linalg.norm(eraser.transform(direction[None])) < bound
    others = np.linalg.svd(direction[None])[2][1:]
    assert np.linalg.norm(eraser.transform(others) - others, axis=1).max() < bound
    # The means are equal from the start, so only the squares tell. After erasure nothing does: three standard errors
    # of a coin over 800 new rows are 0.053.
    new, z_new, _ = planted(1)
    assert LogisticRegression().fit(X**2, z).score(new**2, z_new) > 0.65
    assert LogisticRegression().fit(eraser.transform(X) ** 2, z).score(eraser.transform(new) ** 2, z_new) < 0.553


def test_rare_classes() -> None:
    """Five classes, the smallest with 0.85 % of the rows: its mean, far off, is drawn in."""
    rng = np.random.default_rng(0)
    z = np.repeat(np.arange(5), [800, 600, 400, 183, 17])
    X = rng.normal(size=(2000, 6))
    X[z == 4, 1] += 5
    eraser = LEOPARD(5, epochs=40, batch_size=512, learning_rate=0.02, random_state=0).fit(X, z)
    assert eraser.transform(np.eye(6))[1, 1] < 0.1


def test_degenerate_rows() -> None:
    X, z = draw("gauss", 50, 3, seed=0)
    constant = np.column_stack([np.full(100, 7.0), X, X @ np.ones(3), np.zeros(100)])
    for rows in (constant, np.zeros((100, 4)), np.full((100, 4), 1e15, np.float32)):
        for cascaded in (False, True):
            assert np.isfinite(LEOPARD(cascaded=cascaded, **QUICK).fit_transform(rows, z)).all()


def test_one_column_of_unequal_means_leaves_nothing_to_the_cascade(tmp_path: Path) -> None:
    X, z = draw("gauss", 50, 1, seed=0)
    eraser = LEOPARD(cascaded=True, **QUICK).fit(X, z)
    assert eraser.basis_.shape == (1, 0)
    assert not eraser.transform(X).any()
    eraser.save(tmp_path / "e.mute")
    assert not mute.load(tmp_path / "e.mute").transform(X).any()


def test_place_and_scale_of_the_rows_do_not_matter() -> None:
    X, z = draw("skew", 200, 5, seed=0)
    first, second = (LEOPARD(2, **QUICK).fit(rows, z).transform(np.eye(5)) for rows in (X, 1e5 + 1e3 * X))
    # Training runs in single precision, and Adam divides by gradients: 1e-7 grows over the steps.
    np.testing.assert_allclose(first, second, atol=1e-3)


def test_pairs_are_summed_or_averaged() -> None:
    X, z = draw("gauss", 100, 4, seed=0, n_classes=3)
    total, mean = (LEOPARD(pairs=p, learning_rate=1e-9, **QUICK).fit(X, z).history_ for p in ("sum", "mean"))
    np.testing.assert_allclose(total, 3 * np.array(mean), rtol=1e-5)


def test_the_learning_rate_falls_to_a_tenth_at_half_of_the_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    X, z = draw("gauss", 50, 4, seed=0)
    rates, take = [], torch.optim.Adam.step

    def step(self: Any) -> None:
        rates.append(self.param_groups[0]["lr"])
        take(self)

    monkeypatch.setattr(torch.optim.Adam, "step", step)
    LEOPARD(epochs=6, learning_rate=0.01).fit(X, z)
    np.testing.assert_allclose(rates, [0.01] * 3 + [0.001] * 3)


def test_default_rank_is_half_of_the_columns() -> None:
    X, z = draw("gauss", 50, 7, seed=0)
    assert LEOPARD(**QUICK).fit(X, z).basis_.shape == (7, 3)


def test_patience_stops_and_keeps_the_best() -> None:
    X, z = draw("gauss", 200, 4, seed=0)
    settings: dict[str, Any] = {"rank": 2, "learning_rate": 0.05, "batch_size": 64, "validation_fraction": 0.0}
    eraser = LEOPARD(epochs=60, patience=3, random_state=0, **settings).fit(X, z)
    assert len(eraser.history_) < 60
    assert len(LEOPARD(epochs=60, random_state=0, **settings).fit(X, z).history_) == 60
    # All rows are watched. They are 400 in single precision; gains below 1e-4 do not count as such.
    assert measure(X @ eraser.basis_, z) == pytest.approx(min(eraser.history_), rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("cascaded", [False, True])
def test_saved_and_loaded_gives_the_same_bits(tmp_path: Path, cascaded: bool) -> None:
    X, z = draw("gauss", 100, 5, seed=0, n_classes=3)
    eraser = make("leopard-cascaded" if cascaded else "leopard", **QUICK).fit(X, z)
    assert eraser.cascaded is cascaded
    eraser.save(tmp_path / "e.mute")
    loaded = mute.load(tmp_path / "e.mute")
    assert loaded.transform(X).tobytes() == eraser.transform(X).tobytes()
    assert loaded.history_ == eraser.history_
    assert loaded.get_params() == eraser.get_params()


def test_a_file_whose_basis_is_not_orthonormal_is_refused(tmp_path: Path) -> None:
    X, z = draw("gauss", 100, 5, seed=0)
    eraser = LEOPARD(**QUICK).fit(X, z)
    eraser.save(tmp_path / "e.mute")
    tensors, state = contents(tmp_path / "e.mute")
    tensors["basis_"] *= 1.001
    forge(tmp_path / "f.mute", tensors, state, "LEOPARD")
    with pytest.raises(MuteError, match="orthonormal"):
        mute.load(tmp_path / "f.mute")


def test_a_seed_fixes_the_fit_and_leaves_torch_alone() -> None:
    X, z = draw("gauss", 200, 5, seed=0)
    torch.manual_seed(5)
    state = torch.random.get_rng_state()
    first, second, other = (LEOPARD(**{**QUICK, "random_state": s}).fit(X, z).basis_ for s in (0, 0, 1))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert first.tobytes() == second.tobytes() != other.tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_keep_their_precision_and_do_not_depend_on_the_batch(dtype: type) -> None:
    X, z = draw("gauss", 200, 20, seed=0)
    X = X.astype(dtype)
    eraser = LEOPARD(**QUICK).fit(X, z)
    whole = eraser.transform(X)
    assert whole.dtype == dtype
    for size in (1, 7, 100):
        parts = [eraser.transform(X[i : i + size]) for i in range(0, len(X), size)]
        np.testing.assert_allclose(np.concatenate(parts), whole, atol=1e-5 if dtype == np.float32 else 1e-13)


def test_torch_is_needed_to_fit_only(monkeypatch: pytest.MonkeyPatch) -> None:
    X, z = draw("gauss", 50, 3, seed=0)
    eraser = LEOPARD(**QUICK).fit(X, z)
    expected = eraser.transform(X)
    monkeypatch.setitem(sys.modules, "torch", None)
    np.testing.assert_array_equal(eraser.transform(X), expected)
    with pytest.raises(MuteError, match="mute-erasure"):
        eraser.fit(X, z)


@pytest.mark.parametrize(
    "settings",
    [
        {"rank": 0},
        {"rank": 2.5},
        {"cascaded": "yes"},
        {"pairs": "max"},
        {"gamma": -1},
        {"gamma": "large"},
        {"learning_rate": 0},
        {"learning_rate": float("nan")},
        {"weight_decay": -0.1},
        {"validation_fraction": 1.0},
        {"epochs": 0},
        {"batch_size": 1},
        {"patience": 0},
        {"device": "abacus"},
    ],
)
def test_bad_settings(settings: dict[str, Any]) -> None:
    X, z = draw("gauss", 50, 3, seed=0)
    with pytest.raises(MuteError, match=next(iter(settings))):
        LEOPARD(**settings).fit(X, z)


def test_a_rank_beyond_the_dimensions_is_refused() -> None:
    X, z = draw("gauss", 50, 3, seed=0)
    with pytest.raises(MuteError, match="at most 3"):
        LEOPARD(4).fit(X, z)
    with pytest.raises(MuteError, match=r"at most 2.*linear step"):
        LEOPARD(3, cascaded=True).fit(X, z)


@pytest.mark.parametrize("name", LEOPARD.PRESETS)
def test_presets(name: str) -> None:
    eraser = LEOPARD.from_preset(name, random_state=0)
    eraser._check_settings()
    assert eraser.cascaded is name.startswith("paper")
    assert eraser.pairs == ("mean" if name.startswith("paper") else "sum")


def test_a_preset_fits_with_another_rank() -> None:
    X, z = draw("gauss", 100, 4, seed=0)
    eraser = make("leopard:paper-dial", rank=2, epochs=2).fit(X, z)
    assert eraser.transform(X).shape == X.shape
