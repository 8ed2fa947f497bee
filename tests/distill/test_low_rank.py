"""The low-rank surrogate: least squares, and what of it a few directions keep."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import mute
from laws import draw
from mute import MUtE, MuteError
from mute.distill import LowRankSurrogate


@pytest.mark.filterwarnings("ignore::mute.WeakResultWarning")  # the checks fit on a few dozen rows
@parametrize_with_checks([LowRankSurrogate(MUtE(2, router="logistic", diagnostics=False))])
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.fixture(scope="module")
def case() -> tuple[Any, Any, Any]:
    X, z = draw("skew", 500, 6, seed=0)
    teacher = MUtE(4, router="logistic", diagnostics=False, random_state=0).fit(X, z)
    return X, z, teacher


def seen(X: Any, seed: int) -> Any:
    """The rows that a surrogate with this seed learns from."""
    from mute.distill.teaching import set_aside

    surrogate = LowRankSurrogate(random_state=seed)
    rng = surrogate._generator()
    rng.integers(2**31 - 1)  # for the teacher
    return set_aside(len(X), 2000, rng)


def test_it_is_least_squares(case: Any) -> None:
    X, _, teacher = case
    copy = LowRankSurrogate(teacher, ridge=0.0, random_state=0).fit(X)
    learn, watch = seen(X, 0)
    Q = teacher.transform(X)
    slopes = np.linalg.lstsq(np.column_stack([X, np.ones(len(X))])[learn], Q[learn])[0]
    np.testing.assert_allclose(copy.weights_["slopes"], slopes[:-1], atol=1e-9)
    np.testing.assert_allclose(copy.weights_["offset"], slopes[-1], atol=1e-9)
    error = ((copy.transform(X[watch]) - Q[watch]) ** 2).mean()
    assert copy.fidelity_["mse"] == pytest.approx(error)
    assert copy.fidelity_["mse_affine"] == pytest.approx(copy.fidelity_["mse"], rel=1e-3)  # but for its ridge
    mean = ((Q[learn].mean(axis=0) - Q[watch]) ** 2).mean()
    assert copy.fidelity_["mse_constant"] == pytest.approx(mean)


@pytest.mark.parametrize("rank", [1, 2, 3, 5])
def test_no_matrix_of_its_rank_is_nearer(case: Any, rank: int) -> None:
    """The best approximation of the fitted values by a matrix of this rank is their truncated decomposition."""
    X, _, teacher = case
    copy = LowRankSurrogate(teacher, rank=rank, ridge=0.0, random_state=0).fit(X)
    learn, _ = seen(X, 0)
    x, q = X[learn] - X[learn].mean(axis=0), teacher.transform(X)[learn]
    q = q - q.mean(axis=0)
    fitted = x @ np.linalg.lstsq(x, q)[0]
    u, s, vt = np.linalg.svd(fitted, full_matrices=False)
    best = (u[:, :rank] * s[:rank]) @ vt[:rank]
    ours = copy.transform(X)[learn]
    np.testing.assert_allclose(ours - ours.mean(axis=0), best, atol=1e-8)
    assert ("left" in copy.weights_) == (2 * rank < 6)  # two thin products only where they are cheaper


def test_a_rank_above_the_columns(case: Any) -> None:
    X, _, teacher = case
    with pytest.raises(MuteError, match="rank is 7, but X has only 6 columns"):
        LowRankSurrogate(teacher, rank=7).fit(X)


def test_save_and_load(case: Any, tmp_path: Path) -> None:
    X, _, teacher = case
    for rank in (None, 2):
        copy = LowRankSurrogate(teacher, rank=rank, random_state=0).fit(X)
        copy.save(tmp_path / "copy")
        np.testing.assert_array_equal(mute.load(tmp_path / "copy").transform(X), copy.transform(X))
