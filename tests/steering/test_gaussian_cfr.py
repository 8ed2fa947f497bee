"""Gaussian CFR: what a projection, a regression and the structural model say of its counterfactuals."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import Ridge
from sklearn.utils.estimator_checks import parametrize_with_checks

import mute
from forging import contents, forge
from laws import draw
from mute import MuteError
from mute.steering import GaussianCFR

VARIANTS = ("orthogonal", "leace")
# What rounding leaves of numbers of size 10, in sums of a few thousand of them.
EXACT = {"float64": 1e-10, "float32": 1e-4}


@parametrize_with_checks(
    [GaussianCFR(), GaussianCFR(variant="leace", ridge=0.0, tolerance=0.0), GaussianCFR(n_draws=1, random_state=0)]
)
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.fixture(
    params=[(v, t, k) for v in VARIANTS for t in EXACT for k in (2, 4)], ids=lambda p: "-".join(map(str, p))
)
def case(request: pytest.FixtureRequest) -> tuple[GaussianCFR, NDArray, NDArray, float]:
    variant, dtype, n_classes = request.param
    X, z = draw("skew", 1000, 6, seed=0, n_classes=n_classes)
    X = X.astype(dtype)
    return GaussianCFR(variant=variant).fit(X, z), X, z, EXACT[dtype]


def test_erased_rows_have_no_covariance_with_the_labels(case: tuple[GaussianCFR, NDArray, NDArray, float]) -> None:
    cfr, X, z, exact = case
    Q = cfr.transform(X)
    assert Q.dtype == X.dtype
    for k in cfr.classes_:  # no covariance with a one-hot label: all class means are one, that of all rows
        np.testing.assert_allclose(Q[z == k].mean(axis=0, dtype=float), X.mean(axis=0, dtype=float), atol=exact)
    assert np.linalg.matrix_rank(np.cov(Q.astype(float).T), tol=1e-6) == 6 - (len(cfr.classes_) - 1)


def test_the_map_is_a_projection(case: tuple[GaussianCFR, NDArray, NDArray, float]) -> None:
    cfr, X, _, exact = case
    E, P = cfr.basis_, cfr.projection_
    np.testing.assert_allclose(E @ E.T, np.eye(len(E)), atol=1e-12)
    np.testing.assert_allclose(P @ P, P, atol=1e-12)
    np.testing.assert_allclose(P @ E.T, 0, atol=1e-12)
    np.testing.assert_allclose(cfr.transform(cfr.transform(X)), cfr.transform(X), atol=exact)


def test_counterfactuals_keep_the_rest(case: tuple[GaussianCFR, NDArray, NDArray, float]) -> None:
    """P·CF(x, j) = Px, by which at most K - 1 coordinates change; and two in a row are the second."""
    cfr, X, z, exact = case
    for j in cfr.classes_:
        moved = cfr.counterfactual(X, j)
        assert moved.dtype == X.dtype
        np.testing.assert_allclose(cfr.transform(moved), cfr.transform(X), atol=exact)
        change = (moved - X).astype(float)
        np.testing.assert_allclose(change @ (np.eye(6) - cfr.basis_.T @ cfr.basis_), 0, atol=exact)
        assert np.linalg.matrix_rank(change, tol=100 * exact) == len(cfr.classes_) - 1
        np.testing.assert_allclose(cfr.counterfactual(moved, j), moved, atol=exact)
        np.testing.assert_allclose(cfr.counterfactual(cfr.counterfactual(X, z), j), moved, atol=exact)


def test_the_regression_is_ridge(case: tuple[GaussianCFR, NDArray, NDArray, float]) -> None:
    """Of the coordinates on Px, class by class: mean error zero, and the answers of another implementation."""
    cfr, X, z, exact = case
    rest = cfr.transform(X).astype(float)
    for j, label in enumerate(cfr.classes_):
        mine = z == label
        error = (X - cfr.counterfactual(X, label))[mine].astype(float) @ cfr.basis_.T
        np.testing.assert_allclose(error.mean(axis=0), 0, atol=exact)
        np.testing.assert_allclose(np.cov(error.T, bias=True).reshape(cfr.noise_[j].shape), cfr.noise_[j], atol=exact)
        c = (X[mine] - cfr.mean_) @ cfr.coordinates_.T
        penalty = cfr.ridge * np.trace(np.cov(rest[mine].T, bias=True)) / 6 * mine.sum()
        expected = Ridge(penalty, solver="svd").fit(rest[mine], c).predict(rest).reshape(len(rest), -1)
        np.testing.assert_allclose((cfr.counterfactual(X, label) - rest) @ cfr.basis_.T, expected, atol=10 * exact)


def structural(n: int, noise: float, seed: int) -> tuple[NDArray, NDArray, list[NDArray]]:
    """Rows of the model, their classes, and what each row is, without noise, under each of three classes."""
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(np.random.default_rng(1).normal(size=(5, 5)))[0]
    slopes, starts = rng.normal(size=(3, 3, 2)), 3 * np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    z = np.arange(3 * n) % 3
    rest = rng.gamma(2, size=(3 * n, 3)) @ rng.normal(size=(3, 3))
    for k in range(3):
        rest[z == k] -= rest[z == k].mean(axis=0)  # on the sample, as in law, the labels tell nothing of its mean
    truth = [np.column_stack([rest @ slopes[j] + starts[j], rest]) for j in range(3)]
    X = np.choose(z[:, None], truth)
    X[:, :2] += noise * rng.normal(size=(3 * n, 2))
    return X @ axes.T, z, [t @ axes.T for t in truth]


@pytest.mark.parametrize("variant", VARIANTS)
def test_where_the_model_holds_without_noise_counterfactuals_are_true(variant: str) -> None:
    X, z, truth = structural(400, 0.0, seed=0)
    cfr = GaussianCFR(variant=variant, ridge=0.0).fit(X, z)
    for j in range(3):
        np.testing.assert_allclose(cfr.counterfactual(X, j), truth[j], atol=1e-8)
    np.testing.assert_allclose(cfr.counterfactual(X, z), X, atol=1e-8)
    np.testing.assert_allclose(cfr.noise_, 0, atol=1e-12)


def test_where_the_model_holds_with_noise_counterfactuals_are_expected() -> None:
    n, noise = 20_000, 0.5
    X, z, truth = structural(n, noise, seed=0)
    cfr = GaussianCFR().fit(X, z)
    for j in range(3):
        error = cfr.counterfactual(X, j) - truth[j]
        # The basis and eight coefficients are estimated from 20,000 rows of this noise: some 3·noise/√n = 0.01.
        assert np.sqrt((error**2).sum(axis=1).mean()) < 0.02
        # A variance of noise from 20,000 rows is known to 1 %, and four of them.
        np.testing.assert_allclose(np.linalg.eigvalsh(cfr.noise_[j]), noise**2, rtol=0.04)


def test_one_draw_gives_the_spread_of_the_class() -> None:
    X, z, _ = structural(5000, 2.0, seed=0)
    plain = GaussianCFR(ridge=0.0).fit(X, z)
    one, twenty = (GaussianCFR(ridge=0.0, n_draws=n, random_state=0).fit(X, z) for n in (1, 20))
    still, moved = plain.counterfactual(X, 2), one.counterfactual(X, 2)
    for answers, share in ((moved, 1.0), (twenty.counterfactual(X, 2), 1 / 20)):
        drawn = (answers - still) @ plain.basis_.T
        # Four standard errors of 15,000 draws of variance 4·share: 0.065√share for means, 4.6 % for variances.
        np.testing.assert_allclose(drawn.mean(axis=0), 0, atol=0.065 * np.sqrt(share))
        np.testing.assert_allclose(np.cov(drawn.T), share * plain.noise_[2], atol=0.046 * 4 * share)
    own = z == 2
    spread, without, with_noise = (np.trace(np.cov(rows[own].T, bias=True)) for rows in (X, still, moved))
    assert without == pytest.approx(spread - np.trace(plain.noise_[2]), abs=1e-8), "what a regression loses"
    # 5,000 draws of variance 4 in two coordinates, beside predictions of variance 20: a standard error of
    # √2·(2√(20·4/5000) + 4√(2/5000)) = 0.5.
    assert with_noise == pytest.approx(spread, abs=2.0)
    assert spread - without > 7


def test_draws_belong_to_the_row_and_the_seed() -> None:
    X, z = draw("gauss", 100, 4, seed=0)
    cfr = GaussianCFR(n_draws=3, random_state=0).fit(X, z)
    whole = cfr.counterfactual(X, 1)
    np.testing.assert_allclose(np.concatenate([cfr.counterfactual(X[i : i + 1], 1) for i in range(200)]), whole)
    np.testing.assert_allclose(cfr.counterfactual(X[::-1], 1)[::-1], whole)
    np.testing.assert_array_equal(GaussianCFR(n_draws=3, random_state=0).fit(X, z).counterfactual(X, 1), whole)
    other = GaussianCFR(n_draws=3, random_state=1).fit(X, z).counterfactual(X, 1)
    assert (other != whole).any(axis=1).all()


def test_labels_are_not_needed() -> None:
    X, z = draw("gauss", 200, 4, seed=0)
    cfr = GaussianCFR().fit(X, np.array(["a", "b"])[z])
    assert not cfr.needs_concept
    np.testing.assert_array_equal(cfr.transform(X, concept=z), cfr.transform(X))
    np.testing.assert_array_equal(cfr.counterfactual(X, "a", concept=z), cfr.counterfactual(X, "a"))
    targets = np.array(["a", "b"])[1 - z]
    each = np.where(z[:, None] == 0, cfr.counterfactual(X, "b"), cfr.counterfactual(X, "a"))
    np.testing.assert_allclose(cfr.counterfactual(X, targets), each)
    with pytest.raises(MuteError, match="target has the label 'c'"):
        cfr.counterfactual(X, "c")


def test_the_oblique_variant_is_leace() -> None:
    """P = I - W⁺UUᵀW, and it moves rows less than the orthogonal one."""
    X, z = draw("heavy", 2000, 5, seed=0, n_classes=3)
    cfr = GaussianCFR(variant="leace").fit(X, z)
    values, V = np.linalg.eigh(np.cov(X.T, bias=True))
    W, back = V / np.sqrt(values) @ V.T, V * np.sqrt(values) @ V.T
    cross = np.cov(X.T, np.eye(3)[z].T, bias=True)[:5, 5:]
    U = np.linalg.svd(W @ cross)[0][:, :2]
    np.testing.assert_allclose(cfr.projection_, np.eye(5) - back @ U @ U.T @ W, atol=1e-10)
    edits = [((GaussianCFR(variant=v).fit_transform(X, z) - X) ** 2).sum() for v in VARIANTS]
    assert edits[1] < edits[0]


def test_classes_of_one_mean_are_left_alone() -> None:
    X = np.random.default_rng(0).normal(size=(300, 3)) + 100
    z = np.repeat([0, 1], 300)
    cfr = GaussianCFR().fit(np.concatenate([X, X]), z)
    np.testing.assert_array_equal(cfr.transform(X), X)
    np.testing.assert_array_equal(cfr.counterfactual(X, 1), X)


def test_means_on_a_line_are_one_direction() -> None:
    z = np.arange(3000) % 3
    X = np.random.default_rng(0).normal(size=(3000, 4))
    for k in range(3):
        X[z == k] += np.array([k**2, 0.0, 0.0, 0.0]) - X[z == k].mean(axis=0)
    cfr = GaussianCFR().fit(X, z)
    np.testing.assert_allclose(np.abs(cfr.basis_), [[1, 0, 0, 0], [0, 0, 0, 0]], atol=1e-12)
    np.testing.assert_allclose(cfr.transform(X), X * [0, 1, 1, 1] + [5 / 3, 0, 0, 0], atol=1e-12)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("ridge", [0.0, 1e-4])
def test_rows_that_do_not_span_the_space(variant: str, ridge: float) -> None:
    rng = np.random.default_rng(0)
    z = np.arange(12) % 3
    X = np.column_stack([rng.normal(size=(12, 8)), np.full(12, 7.0)])
    X = np.column_stack([X, X[:, 0], rng.normal(size=(12, 9))]) + z[:, None]
    cfr = GaussianCFR(variant=variant, ridge=ridge).fit(X, z)
    for out in (cfr.transform(X), cfr.counterfactual(X, 0)):
        assert np.isfinite(out).all()
        np.testing.assert_allclose(cfr.transform(out), cfr.transform(X), atol=1e-8)
    constant = GaussianCFR(variant=variant, ridge=ridge).fit(np.ones((12, 3)), z)
    np.testing.assert_allclose(constant.counterfactual(np.ones((2, 3)), 1), 1)


@pytest.mark.parametrize("dtype", list(EXACT))
def test_rows_do_not_depend_on_the_batch(dtype: str) -> None:
    X, z = draw("gauss", 1500, 30, seed=0, n_classes=4)
    X = X.astype(dtype)
    cfr = GaussianCFR().fit(X, z)
    for f in (cfr.transform, lambda rows: cfr.counterfactual(rows, 2)):
        whole = f(X)
        for size in (1, 7, 1000):
            np.testing.assert_allclose(f(X[-size:]), whole[-size:], rtol=0, atol=EXACT[dtype])


def test_save_and_load(tmp_path: Path) -> None:
    X, z = draw("gauss", 200, 4, seed=0, n_classes=3)
    cfr = GaussianCFR(variant="leace", n_draws=2).fit(X, z)
    cfr.save(tmp_path / "cfr")
    again = mute.load(tmp_path / "cfr")
    assert repr(again) == repr(cfr)
    np.testing.assert_array_equal(again.transform(X), cfr.transform(X))
    np.testing.assert_array_equal(again.counterfactual(X, z[::-1]), cfr.counterfactual(X, z[::-1]))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("basis_", 1.1, "not a projection"),
        ("coordinates_", 1.1, "not a projection"),
        ("noise_", -1.0, "negative variance"),
        ("slopes_", None, "see the concept"),
        ("seed_", -1, "seed"),
    ],
)
def test_files_that_do_not_fit_the_mathematics(tmp_path: Path, name: str, change: Any, message: str) -> None:
    X, z = draw("gauss", 200, 4, seed=0)
    cfr = GaussianCFR().fit(X, z)
    cfr.save(tmp_path / "cfr")
    tensors, state = contents(tmp_path / "cfr")
    if name == "slopes_":
        tensors[name] += cfr.basis_
    elif name in tensors:
        tensors[name] *= change
    else:
        state[name] = change
    forge(tmp_path / "forged", tensors, state, "GaussianCFR")
    with pytest.raises(MuteError, match=message):
        mute.load(tmp_path / "forged")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"variant": "oblique"}, "'variant' parameter .* must be"),
        ({"ridge": -1.0}, "'ridge' parameter .* must be"),
        ({"ridge": np.nan}, "'ridge' parameter .* must be"),
        ({"tolerance": 1.0}, "'tolerance' parameter .* must be"),
        ({"n_draws": 0.5}, "'n_draws' parameter .* must be"),
        ({"random_state": "x"}, "random_state must be"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    X, z = draw("gauss", 20, 2, seed=0)
    with pytest.raises(MuteError, match=message):
        GaussianCFR(**settings).fit(X, z)


def test_presets() -> None:
    assert [GaussianCFR.from_preset(name).n_draws for name in GaussianCFR.PRESETS] == [0, 20]
