"""Targeted concept erasure: indices that are known, and the projection they lead to."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

import mute
from laws import draw
from mute import MuteError, WeakResultWarning
from mute.flow.network import Network
from mute.rivals.taco import Probe, TaCo, drop_order, principal_components, sobol_masks, total_indices

QUICK: dict[str, Any] = {"n_samples": 60, "epochs": 15, "random_state": 0}


@parametrize_with_checks([TaCo(n_drop=1, n_samples=50, epochs=5)])
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.slow  # two networks for each of sixty checks
@pytest.mark.filterwarnings("ignore::mute.WeakResultWarning")  # too few rows for "auto"
@parametrize_with_checks([TaCo()])
def test_scikit_learns_checks_of_the_defaults(estimator: Any, check: Any) -> None:
    check(estimator)


def linear_probe(a: NDArray, X: NDArray, labels: NDArray) -> Probe:
    """The pair of logits (-s, s) with s = a x, as ReLU(a x) - ReLU(-a x), on components that are the columns."""
    network = Network([np.column_stack([a, -a]), np.array([[-1.0, 1.0], [1.0, -1.0]])], [np.zeros(2), np.zeros(2)])
    return Probe.of(network, X, np.eye(X.shape[1]), labels)


def test_indices_of_an_additive_response_are_its_shares_of_variance() -> None:
    a = np.array([3.0, 0.0, -1.0, 2.0, 0.5])
    X = np.random.default_rng(0).normal(size=(40, 5))
    labels = np.arange(40) % 2
    found = total_indices(linear_probe(a, X, labels), slice(None), sobol_masks(5, 4096), "logit")
    # Masks are uniform and independent, so component i has the variance (a_i u_i)² / 12.
    shares = (a * X) ** 2 / ((a * X) ** 2).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found, shares, rtol=0.05, atol=1e-12)
    np.testing.assert_array_equal(found[:, 1], 0.0)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=0.02)


def test_indices_count_interactions() -> None:
    """With s = max(x1 (1 - m1) + x2 (1 - m2) - 1, 0) at x = (1, 1) both masks matter together."""
    first, second = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[0.0, 1.0], [0.0, 0.0]])
    network = Network([first, second], [np.array([-1.0, 0.0]), np.zeros(2)])
    probe = Probe.of(network, np.ones((1, 2)), np.eye(2), np.array([1]))
    found = total_indices(probe, slice(None), sobol_masks(2, 4096), "logit")
    # s = max(a + b - 1, 0) for uniform a, b: E s = 1/6, E s² = 1/12, and E[E[s | a]²] = E[a⁴ / 4] = 1/20, so the
    # total index of either is 1 - (1/20 - 1/36) / (1/12 - 1/36) = 3/5.
    np.testing.assert_allclose(found, 0.6, rtol=0.05)


def test_masks_are_the_points_of_sobol() -> None:
    A, B = sobol_masks(3, 50)
    assert A.shape == B.shape == (50, 3)
    assert (A[0] == 0).all() and (A[1] == 0.5).all(), "unscrambled"
    assert min(A.min(), B.min()) >= 0 and max(A.max(), B.max()) < 1
    np.testing.assert_array_equal(sobol_masks(3, 64)[:, :50], sobol_masks(3, 50))


def test_the_margin_does_not_know_the_class() -> None:
    a, X = np.array([1.0, 2.0]), np.random.default_rng(0).normal(size=(20, 2))
    masks = sobol_masks(2, 64)
    both = [
        total_indices(linear_probe(a, X, np.full(20, label)), slice(None), masks, response)
        for response in ("margin", "logit")
        for label in (0, 1)
    ]
    np.testing.assert_array_equal(both[0], both[1])
    np.testing.assert_allclose(both[2], both[3], rtol=1e-12)  # of two classes one logit is minus the other
    assert (np.abs(both[0] - both[2]) > 0.01).any(), "|s| is not s where masks change its sign"


def test_order_of_dropping() -> None:
    concept, task = np.array([0.1, 0.5, 0.0, 0.4]), np.array([0.0, 0.6, 0.0, 0.1])
    assert drop_order(concept).tolist() == [1, 3, 0, 2]
    # Angles 0, 50, none and 14 degrees: a component that tells nothing at all is not worth a drop.
    assert drop_order(concept, task).tolist() == [0, 3, 1, 2]


def columns(n: int, seed: int) -> tuple[NDArray, NDArray, NDArray]:
    """Five independent columns of falling spread; the concept is in the second, the task in the third."""
    rng = np.random.default_rng(seed)
    z, y = rng.integers(2, size=(2, n))
    X = rng.normal(size=(n, 5)) * [16, 6, 3, 1, 0.5]
    X[:, 1] += 12 * z
    X[:, 2] += 6 * y
    return X, z, y


def test_the_component_of_the_concept_goes_and_the_others_stay() -> None:
    X, z, _ = columns(1500, 0)
    new, _, _ = columns(1500, 1)
    eraser = TaCo(n_drop=1, **QUICK).fit(X, z)
    assert eraser.kept_.tolist() == [1, 0, 1, 1, 1]
    assert min(eraser.indices_) >= 0 and int(np.argmax(eraser.indices_)) == 1
    Q = eraser.transform(new)
    # Sampling turns the axes of the first two, of spreads 16 and 8.5, by about 16 * 8.5 / (16² - 8.5²) / sqrt(1500),
    # which is 0.02; rows reach four times 16 along the first.
    np.testing.assert_allclose(Q[:, 1], X[:, 1].mean(), atol=2)
    assert np.abs(Q[:, 2:] - new[:, 2:]).mean() < 0.2


def test_components_of_the_task_are_spared() -> None:
    """Where both labels lean on one component, it goes first without the task and last with it."""
    rng = np.random.default_rng(0)
    n = 3000
    y, z = rng.integers(2, size=(2, n))
    X = rng.normal(size=(n, 3)) * [8, 4, 2]
    X[:, 0] += 16 * z + 24 * y
    X[:, 1] += 6 * z
    plain = TaCo(n_drop=1, **QUICK).fit(X, z)
    spared = TaCo(n_drop=1, **QUICK).fit(X, z, task=y)
    assert plain.task_indices_ is None and len(spared.task_indices_) == 3
    assert spared.kept_.tolist() == [1, 0, 1]
    angles = np.arctan2(spared.task_indices_, spared.indices_)
    assert int(angles.argmin()) == 1

    def task_accuracy(eraser: TaCo) -> float:
        Q = eraser.transform(X)
        return LogisticRegression().fit(Q[::2], y[::2]).score(Q[1::2], y[1::2])

    assert task_accuracy(spared) > 0.8


def test_auto_drops_what_it_must_and_no_more() -> None:
    X, z, _ = columns(3000, 0)
    eraser = TaCo(n_samples=100, random_state=0).fit(X, z)
    # The concept also shows, by the sampling error of the axes, in the neighbours of its component.
    assert eraser.kept_[1] == 0 and 1 <= eraser.n_drop_ <= 2
    new, z_new, _ = columns(3000, 1)
    Q = eraser.transform(new)
    accuracy = LogisticRegression().fit(Q[::2], z_new[::2]).score(Q[1::2], z_new[1::2])
    # Two standard errors on the 600 rows set aside are what it may leave, two on these 1500 what they may add.
    assert accuracy < 0.5 + 2 * 0.5 / np.sqrt(600) + 2 * 0.5 / np.sqrt(1500)
    assert [len(look) for look in eraser.leaks_] == [3] * len(eraser.leaks_)


def test_auto_drops_nothing_where_there_is_nothing() -> None:
    X = np.random.default_rng(0).normal(size=(600, 3))
    assert TaCo(n_samples=50, random_state=0).fit(X, np.arange(600) % 2).n_drop_ == 0


def test_auto_says_when_rows_are_too_few() -> None:
    X, z = draw("gauss", 40, 4, seed=0)
    with pytest.warns(WeakResultWarning, match="too few") as caught:
        eraser = TaCo(**QUICK).fit(X, z)
    assert eraser.n_drop_ == 3 and caught[0].filename == __file__


@pytest.mark.parametrize(("r", "k"), [(6, 0), (6, 2), (6, 5), (4, 1), (4, 9)])
def test_the_map_is_an_orthogonal_projection(r: int, k: int) -> None:
    X, z = draw("skew", 100, 6, seed=0, n_classes=3)
    eraser = TaCo(n_components=r, n_drop=k, **QUICK).fit(X, z)
    rank = r - min(k, r - 1)
    origin = eraser.transform(np.zeros((1, 6)))
    P = eraser.transform(np.eye(6)) - origin
    # Numbers of size 10 in double precision.
    np.testing.assert_allclose(P, P.T, atol=1e-12)
    np.testing.assert_allclose(P @ P, P, atol=1e-12)
    assert np.trace(P) == pytest.approx(rank, abs=1e-12)
    assert eraser.n_drop_ == r - rank and len(eraser.indices_) == r
    Q = eraser.transform(X)
    assert np.linalg.matrix_rank(Q - Q.mean(axis=0), tol=1e-8) == rank
    np.testing.assert_allclose(eraser.transform(Q), Q, atol=1e-11)
    np.testing.assert_allclose(Q.mean(axis=0), X.mean(axis=0), atol=1e-12)


@pytest.mark.parametrize("r", [2, 5])
def test_without_drops_it_is_the_reconstruction_of_pca(r: int) -> None:
    X, z = draw("heavy", 200, 5, seed=0)
    Q = TaCo(n_components=r, n_drop=0, **QUICK).fit(X, z).transform(X)
    pca = PCA(r).fit(X)
    np.testing.assert_allclose(Q, pca.inverse_transform(pca.transform(X)), atol=1e-10)


def test_the_mean_may_be_left_out() -> None:
    X, z = draw("gauss", 100, 3, seed=0)
    kept, left = (TaCo(n_drop=1, keep_mean=keep, **QUICK).fit(X, z) for keep in (True, False))
    np.testing.assert_allclose(kept.transform(X) - left.transform(X), np.tile(X.mean(axis=0), (200, 1)), atol=1e-12)


def test_a_linear_map_of_the_rows_does_not_change_the_projection() -> None:
    """Rows moved and scaled as a whole have the same components and the same indices."""
    X, z, _ = columns(400, 0)
    first, moved = TaCo(n_drop=2, **QUICK).fit(X, z), TaCo(n_drop=2, **QUICK).fit(X * 1024 + 5, z)
    np.testing.assert_array_equal(first.kept_, moved.kept_)
    # Training by gradient multiplies the rounding errors of the standardised rows.
    np.testing.assert_allclose(first.indices_, moved.indices_, atol=1e-3)


def test_principal_components_of_degenerate_rows() -> None:
    X = np.random.default_rng(0).normal(size=(50, 2)) @ np.random.default_rng(1).normal(size=(2, 6)) + 3
    mean, W, scale = principal_components(X, 20)
    assert W.shape == (2, 6) and scale > 0
    np.testing.assert_allclose((X - mean) @ W.T @ W + mean, X, atol=1e-12)
    constant = np.full((30, 3), 2.5)
    eraser = TaCo(n_drop=1, **QUICK).fit(constant, np.arange(30) % 2)
    assert eraser.indices_ == [0.0]
    np.testing.assert_array_equal(eraser.transform(constant), constant)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_precision_and_file(dtype: type, tmp_path: Path) -> None:
    X, z = draw("clusters", 200, 6, seed=0, n_classes=3)
    X = X.astype(dtype)
    eraser = TaCo(n_components=5, n_drop=2, **QUICK).fit(X, z, task=X[:, 0] > 0)
    eraser.save(tmp_path / "taco.safetensors")
    loaded = mute.load(tmp_path / "taco.safetensors")
    Q = eraser.transform(X)
    assert Q.dtype == dtype
    np.testing.assert_array_equal(loaded.transform(X), Q)
    parts = np.concatenate([loaded.transform(X[:1]), loaded.transform(X[1:])])
    np.testing.assert_allclose(parts, Q, atol=1e-5 if dtype == np.float32 else 1e-13)  # rounding of a product
    for name in ("indices_", "task_indices_", "leaks_", "n_drop_"):
        assert getattr(loaded, name) == getattr(eraser, name)


@pytest.mark.parametrize(("name", "value"), [("components_", 2.0), ("kept_", 0.5)])
def test_files_that_contradict_themselves_are_refused(name: str, value: float) -> None:
    X, z = draw("gauss", 50, 3, seed=0)
    tensors, state = TaCo(n_drop=1, **QUICK).fit(X, z)._to_artifact()
    tensors[name] = np.full_like(tensors[name], value)
    with pytest.raises(MuteError, match="components"):
        TaCo._from_artifact(tensors, state)


def test_one_seed_one_eraser() -> None:
    X, z = draw("gauss", 150, 4, seed=0)
    first, again, other = (
        TaCo(n_drop=1, n_samples=60, epochs=5, random_state=seed).fit(X, z).indices_ for seed in (1, 1, 2)
    )
    assert first == again != other


@pytest.mark.parametrize(
    "settings",
    [
        {"n_components": 0},
        {"n_drop": -1},
        {"n_drop": "all"},
        {"n_masks": 1},
        {"n_samples": 0},
        {"epochs": 0},
        {"response": "probability"},
        {"keep_mean": "yes"},
        {"validation_fraction": 1.0},
    ],
)
def test_bad_settings(settings: dict[str, Any]) -> None:
    X, z = draw("gauss", 20, 2, seed=0)
    with pytest.raises(MuteError, match=next(iter(settings))):
        TaCo(**settings).fit(X, z)


def test_fewer_samples_than_classes_are_refused() -> None:
    X, z = draw("gauss", 60, 3, seed=0, n_classes=3)
    with pytest.raises(MuteError, match="n_samples=2 is too few for one row of each class"):
        TaCo(n_drop=1, n_samples=2, epochs=2, random_state=0).fit(X, z)


def test_a_task_of_one_class_is_refused() -> None:
    X, z = draw("gauss", 20, 2, seed=0)
    with pytest.raises(MuteError, match="task has only one class"):
        TaCo(n_drop=1).fit(X, z, task=np.zeros(40))


def test_rare_classes_of_a_task() -> None:
    """Some have all their rows set aside, and the network for the task never meets them."""
    X, z = draw("gauss", 100, 2, seed=0)
    task = np.where(np.arange(200) % 5 == 0, np.arange(200), -1)
    eraser = TaCo(**QUICK).fit(X, z, task=task)
    assert np.isfinite(eraser.task_indices_).all()


@pytest.mark.parametrize("preset", TaCo.PRESETS)
def test_presets(preset: str) -> None:
    X, z = draw("gauss", 40, 3, seed=0)
    eraser = TaCo.from_preset(preset, n_drop=1, epochs=2, random_state=0).fit(X, z)
    assert np.abs(eraser.transform(X).mean(axis=0)).max() < 1e-12, "the mean is left out"
