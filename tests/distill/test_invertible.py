"""The invertible surrogate: bijections whatever was learned, and copies that come near."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import mute
from forging import contents, forge
from laws import draw
from mute import MUtE, MuteError
from mute.distill import InvertibleSurrogate
from mute.export import to_torch
from mute.rivals import LEACE
from mute.steering import LinearOT, MeanDifference

torch = pytest.importorskip("torch")

QUICK = {"epochs": 2, "width": 16, "n_blocks": 3, "augment": 0}
KINDS = pytest.mark.parametrize("conditional", [True, False], ids=["cinn", "inn"])


@pytest.mark.filterwarnings("ignore::mute.WeakResultWarning")  # the checks fit on a few dozen rows
@parametrize_with_checks(
    [
        InvertibleSurrogate(MUtE(2, router="logistic", diagnostics=False), **QUICK),
        InvertibleSurrogate(MUtE(2, router="logistic", diagnostics=False), conditional=False, **QUICK),
    ]
)
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)


class Case:
    """Three classes, a flow fitted on them, and both kinds of copy, trained until they differ from matrices."""

    def __init__(self) -> None:
        self.X, self.z = draw("skew", 500, 4, seed=0, n_classes=3)
        self.new, self.z_new = draw("skew", 300, 4, seed=1, n_classes=3)
        self.teacher = MUtE(8, router="logistic", diagnostics=False, random_state=0).fit(self.X, self.z)
        self.copies = {
            conditional: InvertibleSurrogate(
                self.teacher, conditional=conditional, n_blocks=4, width=32, epochs=15, random_state=0
            ).fit(self.X)
            for conditional in (True, False)
        }


@pytest.fixture(scope="module")
def case() -> Case:
    return Case()


@KINDS
@pytest.mark.parametrize(("dtype", "exact"), [("float64", 1e-10), ("float32", 1e-5)])
def test_the_way_back(case: Case, conditional: bool, dtype: str, exact: float) -> None:
    copy, X, z = case.copies[conditional], case.new.astype(dtype), case.z_new
    Q = copy.transform(X, concept=z)
    assert Q.dtype == dtype
    size = np.abs(X).max()
    assert np.abs(copy.inverse_transform(Q, concept=z) - X).max() < exact * size
    # And the other way round, from any point.
    Q = np.random.default_rng(0).normal(size=X.shape).astype(dtype)
    assert np.abs(copy.transform(copy.inverse_transform(Q, concept=z), concept=z) - Q).max() < exact * size


@KINDS
def test_counterfactuals(case: Case, conditional: bool) -> None:
    copy, X, z = case.copies[conditional], case.new, case.z_new
    np.testing.assert_array_equal(copy.counterfactual(X, z, concept=z), X)
    there = copy.counterfactual(X, (z + 1) % 3, concept=z)
    np.testing.assert_allclose(copy.counterfactual(there, z, concept=(z + 1) % 3), X, atol=1e-9)
    # Erased, a row and its counterfactual are the same.
    np.testing.assert_allclose(copy.transform(there, concept=(z + 1) % 3), copy.transform(X, concept=z), atol=1e-9)
    exact = case.teacher.counterfactual(X, (z + 1) % 3, concept=z)
    assert ((there - exact) ** 2).mean() < 0.02 * exact.var()


@KINDS
def test_nearer_than_matrices_on_new_rows(case: Case, conditional: bool) -> None:
    copy = case.copies[conditional]
    exact = case.teacher.transform(case.new)
    error = ((copy.transform(case.new) - exact) ** 2).mean()
    affine = np.empty_like(exact)
    route, learned = case.teacher.route(case.new), case.teacher.route(case.X)
    for k in range(3):
        mine = learned == k
        slopes = np.linalg.lstsq(
            np.column_stack([case.X, np.ones(len(case.X))])[mine], case.teacher.transform(case.X)[mine]
        )[0]
        affine[route == k] = np.column_stack([case.new, np.ones(len(case.new))])[route == k] @ slopes
    assert error < 0.8 * ((affine - exact) ** 2).mean()
    found = copy.fidelity_
    assert found["mse"] < found["mse_class_affine"] < found["mse_affine"] < found["mse_constant"]
    assert found["mse"] == pytest.approx(error, rel=0.5)


@KINDS
@pytest.mark.parametrize("d", [1, 2, 5])
def test_log_determinant_is_autograds(conditional: bool, d: int) -> None:
    X, z = draw("skew", 200, d, seed=0)
    teacher = MUtE(3, router=None, diagnostics=False, random_state=0).fit(X, z)
    copy = InvertibleSurrogate(
        teacher, conditional=conditional, n_blocks=4, width=8, epochs=5, learning_rate=0.05, random_state=0
    ).fit(X, z)
    # Stretched and shifted by chance, so that no block is near the identity.
    rng = np.random.default_rng(0)
    copy.weights_ = {name: rng.normal(size=w.shape) / 3 for name, w in copy.weights_.items()}
    module = to_torch(copy, concept="given", dtype="float64")
    rows, codes = X[::50], z[::50]
    found = copy.log_determinant(rows, concept=codes)
    for row, k, ours in zip(rows, codes, found, strict=True):
        jacobian = torch.autograd.functional.jacobian(
            lambda x, k=k: module(x[None], torch.tensor([k]))[0], torch.from_numpy(row)
        )
        assert float(torch.linalg.slogdet(jacobian)[1]) == pytest.approx(ours, abs=1e-9)
    assert np.ptp(found) > 1e-3


@KINDS
@pytest.mark.parametrize("d", [1, 4, 7])
def test_blocks_begin_as_the_identity(conditional: bool, d: int) -> None:
    X, z = draw("gauss", 100, d, seed=0)
    copy = InvertibleSurrogate(LinearOT(router=None).fit(X, z), conditional=conditional, **QUICK).fit(X, z)
    copy.weights_ = copy._initial(d, 2, np.random.default_rng(0))
    expected = np.einsum("nd,nde->ne", X, copy.matrices_[z]) + copy.offsets_[z]
    np.testing.assert_allclose(copy.transform(X, concept=z), expected, atol=1e-10)


def test_no_block_stretches_beyond_its_clamp() -> None:
    X, z = draw("gauss", 100, 4, seed=0)
    copy = InvertibleSurrogate(LinearOT(router=None).fit(X, z), clamp=0.5, random_state=0, **QUICK).fit(X, z)
    copy.weights_ = {name: 100 * np.ones_like(w) for name, w in copy.weights_.items()}
    affine = np.linalg.slogdet(copy.matrices_)[1]
    stretch = copy.log_determinant(X, concept=z) - affine[z]
    assert np.abs(stretch).max() <= 0.5 * 2 * 3 + 1e-9  # clamp, columns changed, blocks


@KINDS
def test_an_affine_teacher_is_copied_exactly(conditional: bool) -> None:
    X, z = draw("gauss", 500, 4, seed=0)
    teacher = LinearOT(router="logistic").fit(X, z)
    copy = InvertibleSurrogate(teacher, conditional=conditional, random_state=0, **QUICK).fit(X)
    np.testing.assert_allclose(copy.transform(X), teacher.transform(X), atol=1e-4)
    np.testing.assert_allclose(copy.counterfactual(X, 1), teacher.counterfactual(X, 1), atol=1e-3)
    assert (copy.route(X) == teacher.route(X)).all()


def test_the_way_back_can_be_weighed_in(case: Case) -> None:
    settings = {"n_blocks": 4, "width": 32, "epochs": 10, "random_state": 0}
    copy = InvertibleSurrogate(case.teacher, inverse_weight=1.0, **settings).fit(case.X)
    assert copy.fidelity_["mse"] < copy.fidelity_["mse_class_affine"]
    plain = InvertibleSurrogate(case.teacher, **settings).fit(case.X)
    assert not np.array_equal(copy.transform(case.new), plain.transform(case.new))


@pytest.mark.filterwarnings("ignore::mute.WeakResultWarning")
def test_rows_that_do_not_span_the_space() -> None:
    rng = np.random.default_rng(0)
    z = np.repeat([0, 1], [40, 8])
    X = np.column_stack([rng.normal(size=(48, 12)), np.full(48, 7.0)])
    X = np.column_stack([X, X[:, 0]])
    teacher = MUtE(3, router=None, diagnostics=False, random_state=0).fit(X, z)
    copy = InvertibleSurrogate(teacher, random_state=0, **QUICK).fit(X, z)
    far = rng.normal(size=(48, 14)) * 3
    Q = copy.transform(far, concept=z)
    np.testing.assert_allclose(copy.inverse_transform(Q, concept=z), far, atol=1e-6)


def test_routers() -> None:
    X, z = draw("gauss", 300, 3, seed=0)
    teacher = MUtE(2, router=None, diagnostics=False).fit(X, z)
    copy = InvertibleSurrogate(teacher, **QUICK).fit(X, z)
    assert copy.needs_concept
    own = InvertibleSurrogate(teacher, router="logistic", **QUICK).fit(X, z)
    assert not own.needs_concept and own.routing_.error < 0.5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"teacher": LEACE()}, "teacher must be None or a method with counterfactuals"),
        ({"n_blocks": 0}, r"'n_blocks' parameter .* must be an int in the range \[1, inf\)"),
        ({"clamp": 0}, "'clamp' parameter .* must be"),
        ({"inverse_weight": -1}, "'inverse_weight' parameter .* must be"),
        ({"augment": "much"}, "'augment' parameter .* must be .*'auto'"),
        ({"device": "abacus"}, "device must be"),
        ({"router": "nobody"}, "router must be"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    X, z = draw("gauss", 50, 2, seed=0)
    with pytest.raises(MuteError, match=message):
        InvertibleSurrogate(**({"teacher": MeanDifference(router=None)} | settings)).fit(X, z)


def test_a_class_without_rows() -> None:
    X, z = draw("gauss", 100, 2, seed=0, n_classes=3)
    teacher = LinearOT(router=None).fit(X, z)
    with pytest.raises(MuteError, match="no row is of class 2, so its map cannot be copied"):
        InvertibleSurrogate(teacher, **QUICK).fit(X[z < 2], z[z < 2])
    flow = MUtE(2, router=None, diagnostics=False).fit(X, z)  # can make rows of any class
    copy = InvertibleSurrogate(flow, **(QUICK | {"augment": 1})).fit(X[z < 2], z[z < 2])
    assert copy.counterfactual(X, 2, concept=z).shape == X.shape


def test_files_that_are_no_bijection(tmp_path: Path) -> None:
    X, z = draw("gauss", 100, 3, seed=0)
    copy = InvertibleSurrogate(LinearOT(router=None).fit(X, z), random_state=0, **QUICK).fit(X, z)
    copy.save(tmp_path / "copy")
    assert mute.load(tmp_path / "copy").orders_ == copy.orders_

    def refused(change: Any, message: str) -> None:
        tensors, state = contents(tmp_path / "copy")
        change(tensors, state)
        forge(tmp_path / "forged", tensors, state, "InvertibleSurrogate")
        with pytest.raises(MuteError, match=message):
            mute.load(tmp_path / "forged")

    refused(lambda t, s: t["matrices_"].__imul__(2), "its inverses are not those of its matrices")
    refused(lambda t, s: s["orders_"].__setitem__(1, [0, 0, 1]), "not orders of its columns")
    refused(lambda t, s: s.__setitem__("orders_", s["orders_"][:1]), "not orders of its columns")
    refused(lambda t, s: s["orders_"].pop(), "do not fit together")
    refused(lambda t, s: t.__setitem__("weights_.net0_block0_layer1_weight", np.ones((16, 15))), "do not fit together")
    refused(lambda t, s: s["parameters"].__setitem__("clamp", 0), "'clamp' parameter .* must be")
