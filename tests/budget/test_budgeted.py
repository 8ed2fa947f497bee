"""Erasers with a leak budget: files, secrets, groups, and what stays lossless."""

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone

import mute
from mute.errors import BudgetNotMet, MuteError
from mute.rivals import LEACE, QLEACE

pytestmark = pytest.mark.filterwarnings("ignore::mute.errors.WeakResultWarning")
SECRET = b"0123456789abcdef"


@pytest.fixture(scope="module", autouse=True)
def small_panel() -> Iterator[None]:
    """Two adversaries: files, secrets and groups are the same, and the tests take seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mute.budget.search.JUDGES", ("quadratic", "logistic"))
        yield


@pytest.fixture(scope="module")
def data() -> tuple[NDArray, NDArray]:
    rng = np.random.default_rng(0)
    z = rng.choice(["f", "m"], size=3000)
    X = rng.normal(size=(3000, 6)) * np.where(z == "f", 1.8, 1.0)[:, None] + (z == "f")[:, None]
    return X.astype(np.float32), z


@pytest.fixture(scope="module")
def spent(data: tuple[NDArray, NDArray]) -> mute.MUtE:
    # One layer leaves the spreads to be read, so that the budget has to be spent.
    return mute.MUtE(n_iterations=1, max_leak=0.06, random_state=0).fit(*data)


@pytest.fixture(scope="module")
def wrapped(data: tuple[NDArray, NDArray]) -> mute.Budgeted:
    return mute.Budgeted(LEACE(), max_leak=0.06, random_state=0).fit(*data)


def test_attributes(spent: mute.MUtE) -> None:
    assert spent.channel_ is not None
    assert spent.leak_.low < spent.leak_.value < spent.leak_.high <= 0.06
    assert 0 < spent.r2_ < 1
    assert spent.budget_["max_leak"] == 0.06
    assert spent.budget_["rows"] == 3000
    assert spent.budget_["judged"][-1]["r2"] > 0


def test_transform_adds_the_same_noise_every_time(spent: mute.MUtE, data: tuple[NDArray, NDArray]) -> None:
    X = data[0]
    Q = spent.transform(X)
    assert Q.dtype == np.float32
    assert (spent.transform(X) == Q).all()
    # The lossless rows of a batch and of single rows differ by rounding in float32, the noise does not.
    assert np.allclose(spent.transform(X[17:20]), Q[17:20], atol=1e-5)
    assert not np.allclose(spent.without_budget().transform(X), Q, atol=0.1)


def test_inverse_and_counterfactual_are_those_of_the_lossless_flow(
    spent: mute.MUtE, data: tuple[NDArray, NDArray]
) -> None:
    X, z = data
    plain = mute.MUtE(n_iterations=1, random_state=0).fit(X, z)
    assert (spent.counterfactual(X, "m", concept=z) == plain.counterfactual(X, "m", concept=z)).all()
    Q = plain.transform(X, concept=z)
    assert (spent.inverse_transform(Q, concept=z) == plain.inverse_transform(Q, concept=z)).all()
    assert (spent.without_budget().transform(X, concept=z) == Q).all()


@pytest.mark.parametrize("which", ["spent", "wrapped"])
def test_a_file_gives_the_same_rows(which: str, data: tuple, tmp_path, request: pytest.FixtureRequest) -> None:
    eraser = request.getfixturevalue(which)
    path = tmp_path / "model.safetensors"
    eraser.save(path)
    loaded = mute.load(path)
    assert (loaded.transform(data[0]) == eraser.transform(data[0])).all()
    assert (loaded.leak_, loaded.r2_) == (eraser.leak_, eraser.r2_)
    assert loaded.budget_ == eraser.budget_
    with pytest.raises(MuteError, match="not the secret"):
        mute.load(path, secret=SECRET)


def test_a_secret_stays_outside_the_file(data: tuple[NDArray, NDArray], tmp_path) -> None:
    X, z = data
    eraser = mute.MUtE(n_iterations=1, max_leak=0.06, random_state=0).fit(X, z, secret=SECRET)
    path = tmp_path / "model.safetensors"
    eraser.save(path)
    assert SECRET.hex().encode() not in path.read_bytes()
    assert SECRET not in path.read_bytes()
    with pytest.raises(MuteError, match="saved without its secret"):
        mute.load(path).transform(X)
    assert (mute.load(path, secret=SECRET).transform(X) == eraser.transform(X)).all()
    with pytest.raises(MuteError, match="not the secret"):
        mute.load(path, secret=SECRET[::-1])
    with pytest.raises(MuteError, match="at least 16 bytes"):
        mute.MUtE(max_leak=0.06).fit(X, z, secret="short")
    mute.load(path).save(path)  # the check of the secret survives
    assert (mute.load(path, secret=SECRET).transform(X) == eraser.transform(X)).all()
    with pytest.raises(MuteError, match="not the secret"):
        mute.load(path, secret=SECRET[::-1])
    # What needs no noise works without the secret.
    assert mute.load(path).counterfactual(X[:3], "m").shape == (3, 6)


def test_the_secret_of_a_file_is_not_shown(spent: mute.MUtE, tmp_path) -> None:
    from mute.estimators.persistence import describe

    spent.save(tmp_path / "model.safetensors")
    assert describe(tmp_path / "model.safetensors")["state"]["budget"]["secret"] == "in the file"


def test_a_secret_without_a_budget_is_refused(data: tuple[NDArray, NDArray], tmp_path) -> None:
    with pytest.raises(MuteError, match="belong to a leak budget"):
        mute.MUtE().fit(*data, secret=SECRET)
    for model in (LEACE(), mute.MUtE(2, router="logistic")):
        model.fit(*data).save(tmp_path / "model.safetensors")
        with pytest.raises(MuteError, match="no leak budget and no secret"):
            mute.load(tmp_path / "model.safetensors", secret=SECRET)


def test_a_changed_channel_is_refused(spent: mute.MUtE) -> None:
    tensors, state = spent._to_artifact()
    for name, change in (("kept", lambda a: a + 1), ("write", lambda a: 2 * a), ("mean", lambda a: a[1:])):
        wrong = {**tensors, f"channel.{name}": change(tensors[f"channel.{name}"])}
        with pytest.raises(MuteError, match="channel"):
            mute.MUtE._from_artifact(wrong, state)


def test_any_eraser_can_have_a_budget(wrapped: mute.Budgeted, data: tuple[NDArray, NDArray]) -> None:
    X = data[0]
    assert wrapped.leak_.high <= 0.06
    assert wrapped.channel_ is not None
    assert not np.allclose(wrapped.transform(X), wrapped.eraser_.transform(X))
    assert clone(wrapped).get_params()["max_leak"] == 0.06
    assert not hasattr(wrapped, "counterfactual")


def test_an_eraser_that_requires_labels(data: tuple[NDArray, NDArray]) -> None:
    X, z = data
    eraser = mute.Budgeted(QLEACE(router=None), max_leak=0.06, random_state=0).fit(X, z)
    assert eraser.needs_concept
    with pytest.raises(MuteError, match="needs one label for each row"):
        eraser.transform(X)
    assert eraser.transform(X, concept=z).shape == X.shape


def test_rows_of_a_group_are_never_parted(data: tuple[NDArray, NDArray]) -> None:
    """Every row is there twice: without groups, neighbours find the twin on the other side of a fold."""
    X, z = np.repeat(data[0][:1500], 2, axis=0), np.repeat(data[1][:1500], 2)
    groups = np.repeat(np.arange(1500), 2)
    seen = []

    class Spy(LEACE):
        def fit(self, X: NDArray, z: NDArray) -> LEACE:
            seen.append(X)
            return super().fit(X, z)

    mute.Budgeted(Spy(), max_leak=0.08, random_state=0).fit(X, z, groups=groups)
    first, second = ({row.tobytes() for row in part} for part in seen[:2])
    assert first.isdisjoint(second)
    with pytest.raises(MuteError, match="groups"):
        mute.Budgeted(LEACE()).fit(X, z, groups=groups[:-1])


def test_a_failed_fit_leaves_the_model_as_it_was(spent: mute.MUtE, data: tuple[NDArray, NDArray]) -> None:
    from copy import deepcopy

    model = deepcopy(spent)
    before = model.transform(data[0])
    with pytest.raises(BudgetNotMet):
        model.fit(data[0][:200], data[1][:200])
    assert (model.transform(data[0]) == before).all()
    model.set_callbacks(lambda name, done, total: name == "budget")
    with pytest.raises(MuteError, match="stopped before its leak budget was settled"):
        model.fit(*data)
    assert (model.transform(data[0]) == before).all()


def test_what_cannot_carry_noise_says_so(spent: mute.MUtE, data: tuple[NDArray, NDArray]) -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(MuteError, match="hash of each row"):
        spent.transform(torch.from_numpy(data[0]))
    with pytest.raises(MuteError, match="cannot be adapted"):
        spent.adapt(data[0])
    with pytest.raises(MuteError, match="two ways to lose information"):
        mute.MUtE(max_leak=0.05, cells=4).fit(*data)
    with pytest.raises(MuteError, match="max_leak"):
        mute.MUtE(max_leak=1.5).fit(*data)


def test_cells_are_published_and_certified(data: tuple[NDArray, NDArray], tmp_path) -> None:
    X, z = data
    eraser = mute.MUtE(cells=8, random_state=0).fit(X[:1500], z[:1500])
    Q = eraser.transform(X[1500:])
    assert len(np.unique(Q, axis=0)) == 8
    certificate = mute.certify(eraser, X[1500:], z[1500:])
    assert certificate.covers == "every adversary"
    eraser.save(tmp_path / "cells.safetensors")
    assert (mute.load(tmp_path / "cells.safetensors").transform(X[1500:]) == Q).all()
    assert eraser.without_budget().cells_ is None
    assert eraser.counterfactual(X, "m").shape == X.shape


def test_the_audit_measures_no_way_back_through_noise(spent: mute.MUtE) -> None:
    rng = np.random.default_rng(1)
    z = rng.choice(["f", "m"], size=600)
    X = rng.normal(size=(600, 6)) * np.where(z == "f", 1.8, 1.0)[:, None] + (z == "f")[:, None]
    noisy = mute.audit(spent, X, z, adversaries="logistic", max_leak=0.2).utility
    assert noisy.round_trip is None and noisy.floor is None
    plain = mute.audit(spent.without_budget(), X, z, adversaries="logistic", max_leak=0.2).utility
    assert plain.round_trip < 1e-6 and plain.floor is not None
