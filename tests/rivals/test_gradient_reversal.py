"""Gradient reversal: the layer, the schedules, and a game that ends with less of the concept."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from laws import draw
from mute import MuteError, load
from mute.rivals import GradientReversal

torch = pytest.importorskip("torch")

from mute.rivals.gradient_reversal import learning_rate_at, reverse, strength_at  # noqa: E402

QUICK: dict[str, Any] = {"adversary_width": 16, "epochs": 2, "random_state": 0}


@parametrize_with_checks([GradientReversal(epochs=1, adversary_width=8)])
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def shifted(n: int = 1500, d: int = 8, seed: int = 0) -> tuple[NDArray, NDArray, NDArray]:
    """Rows whose first column tells the concept and whose second tells a task."""
    rng = np.random.default_rng(seed)
    z = np.arange(n) % 2
    X = rng.normal(size=(n, d)) + 2 * z[:, None] * np.eye(d)[0]
    return X, z, (X[:, 1] > 0).astype(int)


def read(model: Any, Q: NDArray, labels: NDArray) -> float:
    """Score of a fresh probe that learns on rows 500 to 999 and is tested on the rest; the game has rows 0 to 499."""
    return model.fit(Q[500:1000], labels[500:1000]).score(Q[1000:], labels[1000:])


# The layer and the schedules ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strength", [0.0, 0.3, 2.0])
def test_the_gradient_that_goes_back_is_minus_strength_times_the_true_one(strength: float) -> None:
    """Against finite differences of the same loss without the layer."""
    generator = torch.Generator().manual_seed(0)
    x, weights, head = (
        torch.randn(*shape, dtype=torch.float64, generator=generator) for shape in ((30, 4), (4, 4), (4, 3))
    )
    z = torch.arange(30) % 3

    def loss(weights: Any, layer: Any) -> Any:
        return torch.nn.functional.cross_entropy(layer(torch.tanh(x @ weights)) @ head, z)

    trained = weights.clone().requires_grad_()
    played = loss(trained, lambda u: reverse(u, strength))
    played.backward()
    assert float(played.detach()) == float(loss(weights, lambda u: u)), "values pass unchanged"
    step = 1e-6
    for i in range(4):
        for j in range(4):
            nudge = torch.zeros(4, 4, dtype=torch.float64)
            nudge[i, j] = step
            slope = (loss(weights + nudge, lambda u: u) - loss(weights - nudge, lambda u: u)) / (2 * step)
            # Central differences: rounding of 1e-16 over 2e-6.
            assert float(trained.grad[i, j]) == pytest.approx(-strength * float(slope), abs=1e-9)


def test_the_adversary_gets_the_true_gradient() -> None:
    head = torch.nn.Linear(3, 2)
    u, z = torch.randn(10, 3, generator=torch.Generator().manual_seed(0)), torch.arange(10) % 2
    gradients = []
    for rows in (u, reverse(u, 5.0)):
        head.zero_grad()
        torch.nn.functional.cross_entropy(head(rows), z).backward()
        gradients.append(head.weight.grad.clone())
    assert torch.equal(*gradients)


def test_schedules() -> None:
    assert strength_at(0) == 0
    assert learning_rate_at(0) == 1
    for p in (0.1, 0.5, 1.0):
        assert strength_at(p) == pytest.approx(2 / (1 + np.exp(-10 * p)) - 1, rel=1e-12)
        assert learning_rate_at(p) == pytest.approx((1 + 10 * p) ** -0.75)


# The game -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted() -> GradientReversal:
    X, z, _ = shifted()
    eraser = GradientReversal(
        strength=5, adversary_width=16, adversary_steps=1, epochs=15, batch_size=10, random_state=0
    )
    return eraser.fit(X[:500], z[:500])


def test_without_strength_nothing_moves() -> None:
    """Encoder and decoder start as the identity, where the reconstruction error is zero and so is its gradient."""
    X, z, _ = shifted()
    eraser = GradientReversal(strength=0.0, **QUICK).fit(X[:500], z[:500])
    np.testing.assert_array_equal(eraser.transform(X), X)
    assert eraser.history_ == [0.0, 0.0]


def test_a_fresh_probe_reads_less(fitted: GradientReversal) -> None:
    X, z, _ = shifted()
    before, after = (read(LogisticRegression(), rows, z) for rows in (X, fitted.transform(X)))
    # 500 test rows: a standard error of 2 points. Bayes is at 84 %; no theorem says how far the game gets.
    assert before > 0.8
    assert after < before - 0.1


def test_the_encoder_does_not_collapse(fitted: GradientReversal) -> None:
    """What tells nothing of the concept is kept: the other columns can be read as before."""
    X, _, _ = shifted()
    assert read(LinearRegression(), fitted.transform(X), X[:, 1:]) > 0.9


def test_history_is_the_game_before_a_fresh_adversary(fitted: GradientReversal) -> None:
    assert len(fitted.history_) == 15
    assert min(fitted.history_) < 0.5 * fitted.history_[0]
    assert min(fitted.history_) >= 0, "an error and a gain over chance"


def test_the_fresh_adversary_reads_what_there_is() -> None:
    """Before the encoder moves, the figure is the information of the concept."""
    X, z, _ = shifted(n=6000)
    still = GradientReversal(adversary_width=32, epochs=1, learning_rate=1e-9, random_state=0).fit(X, z)
    truth = LogisticRegression(C=1e6).fit(X, z).predict_proba(X)  # two Gaussians of one covariance: logistic
    information = np.log(2) + np.log(truth[np.arange(len(z)), z]).mean()
    # 600 watched rows: a standard error of 0.024 nats; a network of 100 steps loses some, its best of ten looks wins.
    assert still.history_[0] == pytest.approx(information, abs=0.08)


def test_a_task_is_kept() -> None:
    X, z, y = shifted()
    eraser = GradientReversal(adversary_width=16, epochs=15, batch_size=10, learning_rate=0.05, random_state=0)
    Q = eraser.fit(X[:500], z[:500], task=y[:500]).transform(X)
    assert read(LogisticRegression(), Q, y) > 0.9
    assert read(LogisticRegression(), Q, z) < read(LogisticRegression(), X, z) - 0.1


def test_units_do_not_matter() -> None:
    """A power of two changes no digits: the same game to the bit."""
    X, z, _ = shifted()
    one, other = GradientReversal(**QUICK).fit(X, z), GradientReversal(**QUICK).fit(1024 * X, z)
    np.testing.assert_array_equal(1024 * one.transform(X), other.transform(1024 * X))


def test_constant_columns_and_many_classes() -> None:
    X, z = draw("gauss", 30, 4, seed=0, n_classes=5)
    X = np.column_stack([X, np.full(len(X), 3.0), X[:, 0]])
    more: list[dict[str, Any]] = [{"batch_size": 8, "reset_every": 1}, {"adversary_layers": 0}, {"adversary_steps": 0}]
    for settings in more:
        Q = GradientReversal(**QUICK, **settings).fit(X, z).transform(X)
        assert np.isfinite(Q).all()


def test_a_strong_game_stays_finite() -> None:
    """The adversary's loss has no bound, the encoder's steps do."""
    X, z, _ = shifted()
    settings: dict[str, Any] = {"strength": 100.0, "adversary_layers": 0, "epochs": 10, "batch_size": 10}
    assert np.isfinite(GradientReversal(**settings, random_state=0).fit(X[:500], z[:500]).transform(X)).all()


# The estimator --------------------------------------------------------------------------------------------------------


def test_save_and_load(fitted: GradientReversal, tmp_path: Path) -> None:
    X, _, _ = shifted()
    fitted.save(tmp_path / "reversal.safetensors")
    again = load(tmp_path / "reversal.safetensors")
    np.testing.assert_array_equal(again.transform(X), fitted.transform(X))
    assert again.history_ == fitted.history_
    assert again.get_params() == fitted.get_params()


def test_a_seed_gives_the_same_and_leaves_the_callers_alone() -> None:
    X, z, _ = shifted()
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    one, two, other = (GradientReversal(**{**QUICK, "random_state": seed}).fit(X, z).transform(X) for seed in (0, 0, 1))
    assert torch.equal(torch.rand(1), expected)
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)


def test_precision_and_batches(fitted: GradientReversal) -> None:
    X, _, _ = shifted()
    small = X.astype(np.float32)
    Q = fitted.transform(small)
    assert Q.dtype == np.float32
    np.testing.assert_allclose(Q, fitted.transform(X), rtol=0, atol=1e-4)  # single precision through two layers
    for rows in (slice(0, 1), slice(5, 22), slice(3, 700)):
        np.testing.assert_allclose(fitted.transform(small[rows]), Q[rows], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {"strength": -1.0},
        {"adversary_width": 0},
        {"adversary_layers": -1},
        {"adversary_steps": 1.5},
        {"adversary_decay": None},
        {"reset_every": 0},
        {"epochs": 0},
        {"learning_rate": 0.0},
        {"momentum": 1.0},
        {"validation_fraction": -0.1},
        {"device": "abacus"},
    ],
)
def test_settings_that_cannot_be_used(settings: dict[str, Any]) -> None:
    X, z, _ = shifted(n=50)
    with pytest.raises(MuteError, match=next(iter(settings))):
        GradientReversal(**settings).fit(X, z)


def test_one_class_of_the_task_is_refused() -> None:
    X, z, _ = shifted(n=50)
    with pytest.raises(MuteError, match="task has only one class"):
        GradientReversal(**QUICK).fit(X, z, task=np.zeros(50))


def test_presets() -> None:
    for name in GradientReversal.PRESETS:
        GradientReversal.from_preset(name)._check_settings()
    assert GradientReversal.from_preset("authors").adversary_steps == 0
