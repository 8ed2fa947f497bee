"""FaRM: the theorems of the rate, and a network that follows it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from forging import contents, forge
from laws import draw
from mute import MuteError, load
from mute.rivals import FaRM

torch = pytest.importorskip("torch")

from mute.rivals.farm import half_logdet, rate, rate_within  # noqa: E402


@parametrize_with_checks([FaRM(epochs=2), FaRM(epochs=2, optimizer="adam", normalization="sphere", output="raw")])
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def sphere(n: int, d: int, seed: int) -> Any:
    Y = torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(Y)


def shifted(n: int = 1500, d: int = 8, seed: int = 0) -> tuple[NDArray, NDArray, NDArray]:
    """Rows whose first column tells the concept and whose second tells a task."""
    rng = np.random.default_rng(seed)
    z = np.arange(n) % 2
    X = rng.normal(size=(n, d)) + 2 * z[:, None] * np.eye(d)[0]
    return X, z, (X[:, 1] > 0).astype(int)


def read(Q: NDArray, labels: NDArray) -> float:
    """Accuracy of a fresh probe that learns on rows 500 to 999 and is tested on the rest; FaRM sees rows 0 to 499."""
    return LogisticRegression().fit(Q[500:1000], labels[500:1000]).score(Q[1000:], labels[1000:])


@pytest.fixture(scope="module")
def fitted() -> FaRM:
    X, z, _ = shifted()
    return FaRM(epochs=60, batch_size=100, random_state=0).fit(X[:500], z[:500])


# The rate -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("distortion", [0.1, 0.5])
def test_the_rate_of_an_orthonormal_basis(distortion: float) -> None:
    Y = torch.eye(7, dtype=torch.float64)  # n = D: every eigenvalue of I + YᵀY/ε² is 1 + 1/ε²
    assert float(rate(Y, distortion)) == pytest.approx(7 / 2 * np.log(1 + 1 / distortion), rel=1e-14)


@pytest.mark.parametrize("shape", [(40, 6), (6, 40), (1, 5), (5, 1)])
def test_the_rate_is_the_formula_on_either_side(shape: tuple[int, int]) -> None:
    n, d = shape
    Y = sphere(n, d, 0)
    gram = Y.T @ Y * d / (n * 0.5)
    expected = 0.5 * np.linalg.slogdet(np.eye(d) + gram.numpy())[1]
    assert float(rate(Y)) == pytest.approx(expected, rel=1e-12)


def test_the_rate_is_invariant_under_orthogonal_maps() -> None:
    Y, z = sphere(200, 12, 0), torch.arange(200) % 3
    turn = torch.linalg.qr(sphere(12, 12, 1)).Q
    # Rounding of products of 200 rows in double precision.
    assert float(rate(Y @ turn)) == pytest.approx(float(rate(Y)), rel=1e-12)
    assert float(rate_within(Y @ turn, z)) == pytest.approx(float(rate_within(Y, z)), rel=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_the_rate_within_classes_is_at_most_the_rate(seed: int) -> None:
    """log det is concave; with equality where all classes have the same second moments."""
    Y = sphere(90, 6, seed)
    z = torch.randint(4, (90,), generator=torch.Generator().manual_seed(seed))
    assert float(rate_within(Y, z)) < float(rate(Y))
    twice = torch.cat([Y, Y])
    assert float(rate_within(twice, torch.arange(180) // 90)) == pytest.approx(float(rate(twice)), rel=1e-12)


def test_classes_missing_from_a_batch_and_classes_of_one_row() -> None:
    Y, z = sphere(20, 5, 0).requires_grad_(), torch.tensor([1] * 12 + [7] * 7 + [9])
    within = rate_within(Y, z)
    within.backward()
    assert torch.isfinite(Y.grad).all()
    expected = (12 * rate(Y[:12]) + 7 * rate(Y[12:19]) + rate(Y[19:])) / 20
    assert float(within.detach()) == pytest.approx(float(expected.detach()), rel=1e-14)


def test_the_gradient_of_the_rate() -> None:
    Y, z = sphere(15, 4, 0).requires_grad_(), torch.arange(15) % 2
    assert torch.autograd.gradcheck(lambda rows: rate(rows) + rate_within(rows, z), (Y,))


def test_the_rate_is_taken_in_double_precision() -> None:
    Y = sphere(300, 200, 0)
    single = rate(Y.float())
    assert single.dtype == torch.float64
    assert float(single) == pytest.approx(float(rate(Y)), rel=1e-5)  # what single precision makes of the rows


# The network ----------------------------------------------------------------------------------------------------------


def test_both_rates_rise_while_it_learns() -> None:
    X, z, _ = shifted()
    rates = []
    for epochs in (1, 60):
        farm = FaRM(epochs=epochs, batch_size=100, patience=None, random_state=0).fit(X[:500], z[:500])
        Y = torch.as_tensor(farm.transform(X[500:]))
        rates.append((float(rate(Y)), float(rate_within(Y, torch.as_tensor(z[500:])))))
    assert rates[1][0] > rates[0][0] and rates[1][1] > rates[0][1]


def test_the_watched_loss_is_the_objective(fitted: FaRM) -> None:
    X, z, _ = shifted()
    all_rows = FaRM(epochs=3, batch_size=500, validation_fraction=0.0, patience=None, random_state=0)
    Y = torch.as_tensor(all_rows.fit(X[:500], z[:500]).transform(X[:500]))
    objective = float(rate(Y) + rate_within(Y, torch.as_tensor(z[:500])))
    assert all_rows.history_[-1] == pytest.approx(-objective, rel=1e-4)  # watched in single precision
    assert min(fitted.history_) < fitted.history_[0]


def test_it_erases(fitted: FaRM) -> None:
    X, z, _ = shifted()
    # 500 test rows: a standard error of 2.2 points about chance. Bayes is at 84 %.
    assert read(X, z) > 0.8
    assert read(fitted.transform(X), z) < 0.6


@pytest.mark.parametrize(("normalization", "norm"), [("layer", np.sqrt(8)), ("sphere", 1.0)])
def test_rows_are_centred_and_have_one_norm(normalization: str, norm: float) -> None:
    X, z, _ = shifted()
    farm = FaRM(epochs=3, normalization=normalization, random_state=0).fit(X[:500], z[:500])
    Q = farm.transform(X)
    raw = farm.set_params(output="raw").transform(X)
    assert np.abs(Q.sum(axis=1)).max() < 1e-12
    variance = raw.var(axis=1)  # to which layer normalisation adds 1e-5
    np.testing.assert_allclose(np.linalg.norm(Q, axis=1), norm * np.sqrt(variance / (variance + 1e-5)), rtol=1e-10)
    torch_says = torch.nn.functional.layer_norm(torch.as_tensor(raw), (8,)) * norm / np.sqrt(8)
    np.testing.assert_allclose(Q, torch_says.numpy(), rtol=0, atol=1e-12)


def test_a_task_is_kept() -> None:
    X, z, y = shifted()
    farm = FaRM(epochs=200, batch_size=50, learning_rate=1e-2, random_state=0).fit(X[:500], z[:500], task=y[:500])
    # A threshold in one column of eight: a network of four layers learns it from 450 rows to some ten points.
    assert read(farm.transform(X), y) > 0.8


def test_with_a_task_the_weight_brings_the_rates_together() -> None:
    X, z, y = shifted()
    gaps = []
    for weight in (0.0, 1.0):
        farm = FaRM(epochs=60, batch_size=50, learning_rate=1e-2, reduction_weight=weight, random_state=0)
        Y, codes = (
            torch.as_tensor(farm.fit(X[:500], z[:500], task=y[:500]).transform(X[500:])),
            torch.as_tensor(z[500:]),
        )
        gaps.append(float(rate(Y) - rate_within(Y, codes)))
    assert gaps[1] < gaps[0] / 2


def test_units_do_not_matter(fitted: FaRM) -> None:
    """A power of two changes no digits: the same network to the bit."""
    X, z, _ = shifted()
    large = FaRM(epochs=60, batch_size=100, random_state=0).fit(1024 * X[:500], z[:500])
    np.testing.assert_array_equal(large.transform(1024 * X), fitted.transform(X))


def test_rows_far_from_the_origin() -> None:
    """Centred, they train as others do; as the authors have it, every row ends at one point."""
    X, z, _ = shifted()
    rates = []
    for standardize in (True, False):
        farm = FaRM(epochs=60, batch_size=100, standardize=standardize, random_state=0).fit(X[:500] + 100, z[:500])
        rates.append(float(rate(torch.as_tensor(farm.transform(X[500:] + 100)))))
    assert rates[0] > 9  # of 10.3 in the end
    # One point: one eigenvalue D²/ε² of 128, and the others 0.
    assert rates[1] == pytest.approx(0.5 * np.log(1 + 128), rel=0.02)


def test_constant_columns_and_many_classes() -> None:
    X, z = draw("gauss", 30, 4, seed=0, n_classes=5)
    X = np.column_stack([X, np.full(len(X), 3.0), X[:, 0]])
    for settings in ({"batch_size": 8}, {"n_layers": 1}, {"standardize": False}, {"validation_fraction": 0.0}):
        Q = FaRM(epochs=2, random_state=0, **settings).fit(X, z).transform(X)
        assert np.isfinite(Q).all()


# The estimator --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("output", ["normalized", "raw"])
def test_save_and_load(output: str, tmp_path: Path) -> None:
    X, z, _ = shifted()
    farm = FaRM(epochs=3, output=output, random_state=0).fit(X[:500], z[:500])
    farm.save(tmp_path / "farm.safetensors")
    again = load(tmp_path / "farm.safetensors")
    np.testing.assert_array_equal(again.transform(X), farm.transform(X))
    assert again.history_ == farm.history_
    assert again.get_params() == farm.get_params()


def test_a_file_whose_network_has_another_width(fitted: FaRM, tmp_path: Path) -> None:
    fitted.save(tmp_path / "farm.safetensors")
    tensors, state = contents(tmp_path / "farm.safetensors")
    narrow = {name: tensors[name][..., :5] for name in ("network_.3.weight", "network_.3.bias")}
    forge(tmp_path / "narrow.safetensors", {**tensors, **narrow}, state, "FaRM")
    with pytest.raises(MuteError, match="different number of outputs"):
        load(tmp_path / "narrow.safetensors")
    forge(tmp_path / "flat.safetensors", tensors, {**state, "scale_": 0.0}, "FaRM")
    with pytest.raises(MuteError, match="scale_"):
        load(tmp_path / "flat.safetensors")


def test_a_seed_gives_the_same_and_leaves_the_callers_alone() -> None:
    X, z, _ = shifted()
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    one, two, other = (FaRM(epochs=2, random_state=seed).fit(X, z).transform(X) for seed in (0, 0, 1))
    assert torch.equal(torch.rand(1), expected)
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)


def test_precision_and_batches(fitted: FaRM) -> None:
    X, _, _ = shifted()
    small = X.astype(np.float32)
    Q = fitted.transform(small)
    assert Q.dtype == np.float32
    np.testing.assert_allclose(Q, fitted.transform(X), rtol=0, atol=1e-4)  # single precision through four layers
    for rows in (slice(0, 1), slice(5, 22), slice(3, 700)):
        np.testing.assert_allclose(fitted.transform(small[rows]), Q[rows], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {"n_layers": 0},
        {"epochs": 1.5},
        {"optimizer": "lbfgs"},
        {"normalization": None},
        {"output": "unit"},
        {"distortion": 0},
        {"learning_rate": -1.0},
        {"learning_rate": float("nan")},
        {"momentum": 1.0},
        {"reduction_weight": "a"},
        {"validation_fraction": 1.0},
        {"patience": 0},
        {"device": "abacus"},
    ],
)
def test_settings_that_cannot_be_used(settings: dict[str, Any]) -> None:
    X, z, _ = shifted(n=50)
    with pytest.raises(MuteError, match=next(iter(settings))):
        FaRM(**settings).fit(X, z)


@pytest.mark.parametrize("settings", [{"learning_rate": 1e5}, {"distortion": 1e-320}])
def test_training_that_diverges(settings: dict[str, Any]) -> None:
    X, z, _ = shifted(n=200)
    with pytest.raises(MuteError, match=r"training diverged: .*lower the learning rate or raise the distortion"):
        FaRM(**settings, random_state=0).fit(X, z)


def test_steps_beyond_single_precision() -> None:
    X, z, _ = shifted(n=200)
    with pytest.raises(MuteError, match="training diverged: a step overflows; lower the learning rate"):
        FaRM(learning_rate=1e300, random_state=0).fit(X, z)


def test_a_determinant_that_cannot_be_taken() -> None:
    with pytest.raises(MuteError, match="raise the distortion"):
        half_logdet(-2 * torch.eye(3))


def test_presets() -> None:
    assert {"paper", "paper-glove", "paper-dial", "authors-glove", "authors-dial"} <= set(FaRM.PRESETS)
    for name in FaRM.PRESETS:
        FaRM.from_preset(name)._check_settings()
    assert FaRM.from_preset("paper").epochs == 50 and FaRM.from_preset("paper-glove").epochs == 500
    assert FaRM.from_preset("paper-dial").n_layers == 7 and FaRM.from_preset("paper-dial").output == "raw"
