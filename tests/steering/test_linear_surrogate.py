"""The linear surrogate: what least squares promises of a copy, and what a regression loses."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import r2_score
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks
from sklearn.utils.validation import check_is_fitted

import mute
from forging import contents, forge
from laws import draw
from mute import MUtE, MuteError
from mute.rivals import LEACE
from mute.steering import LinearOT, LinearSurrogate, MeanDifference

CHECKED = [
    LinearSurrogate(router="logistic"),
    LinearSurrogate(MeanDifference(router=None), ridge=0.0, router="logistic", validation_fraction=0.0),
]


# The checks fit on a few dozen rows, of which the warning rightly says that they are few.
@pytest.mark.filterwarnings("ignore::mute.WeakResultWarning")
@parametrize_with_checks(CHECKED)
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.slow  # trains a network some hundred times
@pytest.mark.filterwarnings("ignore::mute.WeakResultWarning")
def test_scikit_learns_checks_at_its_defaults() -> None:
    for estimator, check in estimator_checks_generator(LinearSurrogate()):
        if "array_api" not in str(check):  # skips itself unless SCIPY_ARRAY_API is set
            check(estimator)


def flow() -> MUtE:
    return MUtE(4, router=None, diagnostics=False, random_state=0)


class Case:
    """Rows of three classes, a flow fitted on them, and its copy without ridge, learned from all rows."""

    def __init__(self) -> None:
        self.X, self.z = draw("skew", 1000, 4, seed=0, n_classes=3)
        self.teacher = flow().fit(self.X, self.z)
        self.copy = LinearSurrogate(self.teacher, ridge=0.0, router=None, validation_fraction=0.0)
        self.copy.fit(self.X, self.z)

    def pairs(self, i: int, j: int) -> tuple[NDArray, NDArray]:
        """Rows of class i, true or counterfactual, and the same as class j."""
        of_i, of_j = self.X[self.z == i], self.X[self.z == j]
        there = self.teacher.counterfactual(of_i, j, concept=[i] * len(of_i))
        back = self.teacher.counterfactual(of_j, i, concept=[j] * len(of_j))
        return np.concatenate([of_i, back]), np.concatenate([there, of_j])

    def moved(self, x: NDArray, i: int, j: int) -> NDArray:
        return self.copy.counterfactual(x, j, concept=[i] * len(x))


@pytest.fixture(scope="module")
def case() -> Case:
    return Case()


WAYS = [(i, j) for i in range(3) for j in range(3) if i != j]


@pytest.mark.parametrize(("i", "j"), WAYS)
def test_it_is_least_squares(case: Case, i: int, j: int) -> None:
    x, y = case.pairs(i, j)
    design = np.column_stack([x, np.ones(len(x))])
    expected = np.linalg.lstsq(design, y)[0]
    # Normal equations square the condition number, which is about 100 here: 1e-16 becomes 1e-12.
    np.testing.assert_allclose(case.moved(x, i, j), design @ expected, atol=1e-9)
    rest = y - case.moved(x, i, j)
    np.testing.assert_allclose(design.T @ rest / len(x), 0, atol=1e-9)


@pytest.mark.parametrize(("i", "j"), WAYS)
def test_a_regression_shrinks_the_covariance(case: Case, i: int, j: int) -> None:
    """Cov(y) = Cov(Ax + b) + Cov(rest): in every direction the copy varies less than what it copies."""
    x, y = case.pairs(i, j)
    lost = np.cov(y.T, bias=True) - np.cov(case.moved(x, i, j).T, bias=True)
    assert np.linalg.eigvalsh(lost).min() > 0  # a flow that is not affine leaves something everywhere
    share = np.trace(lost) / np.trace(np.cov(y.T, bias=True))
    assert share == pytest.approx(1 - case.copy.r2_["moves"][i][j], abs=1e-9)


def test_erasure_is_least_squares(case: Case) -> None:
    Q, copied = case.teacher.transform(case.X, concept=case.z), case.copy.transform(case.X, concept=case.z)
    for k in range(3):
        mine = case.z == k
        design = np.column_stack([case.X[mine], np.ones(mine.sum())])
        np.testing.assert_allclose(design.T @ (Q - copied)[mine] / mine.sum(), 0, atol=1e-9)
        score = r2_score(Q[mine], copied[mine], multioutput="variance_weighted")
        # Weighted by the variances of the columns, that is the share of all the variance.
        assert case.copy.r2_["pushes"][k] == pytest.approx(score, abs=1e-9)
    # With an intercept, the means of the erased rows are the teacher's.
    np.testing.assert_allclose(
        [copied[case.z == k].mean(axis=0) for k in range(3)], [Q[case.z == k].mean(axis=0) for k in range(3)], atol=1e-9
    )


def test_from_a_class_to_itself_nothing_changes(case: Case) -> None:
    np.testing.assert_array_equal(case.copy.counterfactual(case.X, case.z, concept=case.z), case.X)


def test_each_row_takes_the_map_of_its_pair(case: Case) -> None:
    rng = np.random.default_rng(0)
    source, target = rng.integers(3, size=(2, len(case.X)))
    mixed = case.copy.counterfactual(case.X, target, concept=source)
    for i in range(3):
        for j in range(3):
            rows = (source == i) & (target == j)
            np.testing.assert_allclose(mixed[rows], case.moved(case.X[rows], i, j), atol=1e-12)


@pytest.mark.parametrize("teacher", [MeanDifference(router=None), LinearOT(reg=0.0, router=None)], ids=["mean", "ot"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_an_affine_teacher_is_copied_exactly(teacher: Any, dtype: str) -> None:
    X, z = draw("heavy", 500, 5, seed=0, n_classes=3)
    X = X.astype(dtype)
    new, z_new = draw("gauss", 50, 5, seed=1, n_classes=3)
    new = new.astype(dtype)
    copy = LinearSurrogate(teacher, ridge=0.0, router=None, random_state=0).fit(X, z)
    fitted = clone(teacher).fit(X, z)
    exact = 1e-8 if dtype == "float64" else 1e-3  # rows up to 50, rounded to 1e-7 of that, answers of a float32 teacher
    for j in range(3):
        np.testing.assert_allclose(
            copy.counterfactual(new, j, concept=z_new), fitted.counterfactual(new, j, concept=z_new), atol=exact
        )
    assert copy.transform(new, concept=z_new).dtype == new.dtype
    np.testing.assert_allclose(copy.transform(new, concept=z_new), fitted.transform(new, concept=z_new), atol=exact)
    np.testing.assert_allclose(copy.r2_["moves"], 1, atol=1e-6)
    np.testing.assert_allclose(copy.r2_["pushes"], 1, atol=1e-6)


def test_r2_is_measured_on_rows_set_aside() -> None:
    """With as many columns as rows to learn from, the rows learned from are met and others are not."""
    rng = np.random.default_rng(0)
    X, z = rng.standard_t(3, size=(60, 24)), np.arange(60) % 2
    with pytest.warns(mute.WeakResultWarning):
        teacher = flow().fit(X, z)
    fit = {s: LinearSurrogate(teacher, router=None, validation_fraction=s, random_state=0).fit(X, z) for s in (0, 0.2)}
    assert min(fit[0].r2_["pushes"]) > 0.9
    assert max(fit[0.2].r2_["pushes"]) < min(fit[0].r2_["pushes"]) - 0.1


def test_ridge_is_a_share_of_the_variance() -> None:
    """So the copy of rows in other units is the copy, in these units."""
    X, z = draw("gauss", 300, 3, seed=0)
    one, thousand = (
        LinearSurrogate(MeanDifference(router=None), ridge=0.5, router=None, random_state=0).fit(s * X, z)
        for s in (1, 1000)
    )
    np.testing.assert_allclose(one.moves_, thousand.moves_, atol=1e-9)
    np.testing.assert_allclose(1000 * one.move_offsets_, thousand.move_offsets_, atol=1e-6)
    assert one.r2_["moves"][0][1] < 0.95


def test_the_teacher_is_left_as_it_is() -> None:
    X, z = draw("gauss", 300, 3, seed=0)
    teacher = flow()
    LinearSurrogate(teacher, router=None).fit(X, z)
    with pytest.raises(NotFittedError):
        check_is_fitted(teacher)
    other, z_other = draw("gauss", 300, 3, seed=1)
    teacher.fit(other, z_other)
    before = teacher.transform(X, concept=z)
    copy = LinearSurrogate(teacher, router=None).fit(X, z)
    np.testing.assert_array_equal(teacher.transform(X, concept=z), before)
    # It copies what this teacher has learned, not what a new one would.
    error = [
        np.abs(copy.transform(X, concept=z) - t.transform(X, concept=z)).mean() for t in (teacher, flow().fit(X, z))
    ]
    assert error[0] < error[1]


def test_a_teacher_of_other_rows_or_labels() -> None:
    X, z = draw("gauss", 100, 3, seed=0)
    with pytest.raises(MuteError, match="fitted on 2 columns, X has 3"):
        LinearSurrogate(MeanDifference(router=None).fit(X[:, :2], z)).fit(X, z)
    with pytest.raises(MuteError, match="the label 0, which was not seen in fit; known labels: 1, 2"):
        LinearSurrogate(MeanDifference(router=None).fit(X, z + 1)).fit(X, z)
    with pytest.raises(MuteError, match="no row is of class 1, so its map cannot be copied"):
        LinearSurrogate(MeanDifference(router=None).fit(X, z)).fit(X[z == 0], z[z == 0])


def test_the_default_teacher_is_the_papers_flow() -> None:
    X, z = draw("gauss", 500, 3, seed=0)
    default = LinearSurrogate(router=None, random_state=0).fit(X, z)
    named = LinearSurrogate(MUtE(4, router=None, diagnostics=False), router=None, random_state=0).fit(X, z)
    np.testing.assert_array_equal(default.moves_, named.moves_)


def test_the_router_stands_in_for_labels() -> None:
    X, z = draw("gauss", 500, 3, seed=0)
    copy = LinearSurrogate(router="logistic", random_state=0).fit(X, z)
    assert not copy.needs_concept
    np.testing.assert_allclose(copy.transform(X), copy.transform(X, concept=copy.route(X)))
    with pytest.raises(MuteError, match="needs one label for each row: concept="):
        copy.without_router().transform(X)


def test_a_fitted_teacher_with_a_router_needs_no_labels() -> None:
    X, z = draw("gauss", 500, 3, seed=0)
    teacher = MUtE(3, router="logistic", diagnostics=False, random_state=0).fit(X, z)
    copy = LinearSurrogate(teacher, router="teacher", random_state=0).fit(X)
    assert copy.router_ is teacher.router_ and copy.classes_.tolist() == [0, 1]
    told = LinearSurrogate(teacher, router="teacher", random_state=0).fit(X, teacher.route(X))
    np.testing.assert_array_equal(copy.transform(X), told.transform(X))


def test_nested_settings() -> None:
    surrogate = LinearSurrogate(flow())
    assert surrogate.get_params()["teacher__n_iterations"] == 4
    assert clone(surrogate.set_params(teacher__n_iterations=7)).teacher.n_iterations == 7


@pytest.mark.parametrize("teacher", [None, MeanDifference(router=None)])
def test_save_and_load(tmp_path: Path, teacher: Any) -> None:
    X, z = draw("gauss", 300, 3, seed=0, n_classes=3)
    labels = np.array(["a", "b", "c"])[z]
    copy = LinearSurrogate(teacher, router="logistic", random_state=0).fit(X, labels)
    copy.save(tmp_path / "copy")
    assert copy.teacher is teacher
    again = mute.load(tmp_path / "copy")
    assert again.teacher is None and again.r2_ == copy.r2_
    np.testing.assert_array_equal(again.transform(X), copy.transform(X))
    np.testing.assert_array_equal(again.counterfactual(X, "b"), copy.counterfactual(X, "b"))


def test_a_file_whose_identity_is_none(tmp_path: Path) -> None:
    X, z = draw("gauss", 100, 2, seed=0)
    copy = LinearSurrogate(MeanDifference(router=None), router=None).fit(X, z)
    copy.save(tmp_path / "copy")
    tensors, state = contents(tmp_path / "copy")
    tensors["move_offsets_"][1, 1, 0] = 1
    forge(tmp_path / "forged", tensors, state, "LinearSurrogate")
    with pytest.raises(MuteError, match="not the identity"):
        mute.load(tmp_path / "forged")


def test_the_same_seed_gives_the_same_copy() -> None:
    X, z = draw("gauss", 300, 3, seed=0)
    teacher = MUtE(2, rotation="random", router=None, diagnostics=False)
    one, two = (LinearSurrogate(teacher, router="logistic", random_state=5).fit(X, z) for _ in range(2))
    np.testing.assert_array_equal(one.transform(X), two.transform(X))
    np.testing.assert_array_equal(one.counterfactual(X, 1), two.counterfactual(X, 1))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_rows_do_not_depend_on_the_batch(dtype: str) -> None:
    X, z = draw("gauss", 1500, 30, seed=0)
    X = X.astype(dtype)
    copy = LinearSurrogate(MeanDifference(router=None), router=None).fit(X, z)
    moved, erased = copy.counterfactual(X, 0, concept=z), copy.transform(X, concept=z)
    exact = 1e-12 if dtype == "float64" else 1e-4  # rounding in sums of 30 numbers of size 10
    for size in (1, 7, 1000):
        last = X[-size:], z[-size:]
        np.testing.assert_allclose(copy.counterfactual(last[0], 0, concept=last[1]), moved[-size:], atol=exact)
        np.testing.assert_allclose(copy.transform(last[0], concept=last[1]), erased[-size:], atol=exact)


@pytest.mark.filterwarnings("ignore::mute.WeakResultWarning")
@pytest.mark.parametrize("ridge", [0.0, 1e-6])
def test_rows_that_do_not_span_the_space(ridge: float) -> None:
    rng = np.random.default_rng(0)
    z = np.repeat([0, 1, 2], [30, 4, 2])
    X = np.column_stack([rng.normal(size=(36, 3)), np.full(36, 7.0)])
    X = np.column_stack([X, X[:, 0], rng.normal(size=(36, 9))])
    copy = LinearSurrogate(ridge=ridge, router=None, random_state=0).fit(X, z)
    assert np.isfinite(copy.transform(X, concept=z)).all()
    moved = copy.counterfactual(X, 0, concept=z)
    np.testing.assert_allclose(moved[:, 3], 7, atol=1e-6)
    assert np.isfinite(moved).all() and np.isfinite(copy.r2_["moves"]).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"teacher": "mute"}, "teacher must be"),
        ({"teacher": LEACE()}, "teacher must be"),
        ({"teacher": MUtE}, "teacher must be"),
        ({"ridge": -1.0}, "'ridge' parameter .* must be"),
        ({"validation_fraction": 1.0}, "'validation_fraction' parameter .* must be"),
        ({"router": "nobody"}, "router must be"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    X, z = draw("gauss", 100, 2, seed=0)
    with pytest.raises(MuteError, match=message):
        LinearSurrogate(**settings).fit(X, z)


def test_presets() -> None:
    paper = LinearSurrogate.from_preset("paper")
    assert paper.ridge == 0 and paper.validation_fraction == 0 and paper.teacher is None
