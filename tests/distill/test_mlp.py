"""The MLP surrogate: nearer to its teacher than any matrix, without labels and without torch at the end."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import mute
from forging import contents, forge
from laws import draw
from mute import MUtE, MuteError
from mute.distill import LowRankSurrogate, MLPSurrogate
from mute.rivals import LEACE

torch = pytest.importorskip("torch")

QUICK = {"epochs": 3, "width": 16, "patience": 3}


@pytest.mark.filterwarnings("ignore::mute.WeakResultWarning")  # the checks fit on a few dozen rows
@parametrize_with_checks([MLPSurrogate(MUtE(2, router="logistic", diagnostics=False), augment=0, **QUICK)])
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def apart(seed: int) -> tuple[NDArray, NDArray]:
    X, z = draw("skew", 1500, 5, seed=seed)
    return X + 3 * z[:, None], z


class Case:
    """Two classes in five columns that a router tells apart, a flow fitted on them, its copy, and new rows."""

    def __init__(self) -> None:
        self.X, self.z = apart(seed=0)
        self.new, self.z_new = apart(seed=1)
        self.teacher = MUtE(8, router="logistic", diagnostics=False, random_state=0).fit(self.X, self.z)
        self.copy = MLPSurrogate(self.teacher, width=48, epochs=25, random_state=0).fit(self.X)
        self.exact = self.teacher.transform(self.new)

    def error(self, copy: Any) -> float:
        return float(((copy.transform(self.new) - self.exact) ** 2).mean())


@pytest.fixture(scope="module")
def case() -> Case:
    return Case()


def test_nearer_than_any_matrix_and_the_mean_on_new_rows(case: Case) -> None:
    design = np.column_stack([case.X, np.ones(len(case.X))])
    slopes = np.linalg.lstsq(design, case.teacher.transform(case.X))[0]
    affine = ((np.column_stack([case.new, np.ones(len(case.new))]) @ slopes - case.exact) ** 2).mean()
    constant = ((case.teacher.transform(case.X).mean(axis=0) - case.exact) ** 2).mean()
    assert case.error(case.copy) < 0.5 * affine < constant
    found = case.copy.fidelity_
    assert found["mse"] < found["mse_class_affine"] < found["mse_affine"] < found["mse_constant"]
    assert found["mse"] == pytest.approx(case.error(case.copy), rel=0.3)
    assert found["mse_affine"] == pytest.approx(affine, rel=0.3)
    assert found["r2"] == pytest.approx(1 - found["mse"] / found["mse_constant"])


def test_its_own_outputs_hide_what_those_of_one_matrix_show(case: Case) -> None:
    """Probes are trained on erased new rows of the copy itself, never on those of the exact map."""

    def probe(eraser: Any) -> float:
        Q, half = eraser.transform(case.new), np.arange(len(case.new)) % 2 == 0
        model = LogisticRegression(max_iter=1000).fit(Q[half], case.z_new[half])
        return float(balanced_accuracy_score(case.z_new[~half], model.predict(Q[~half])))

    assert abs(probe(case.copy) - probe(case.teacher)) < 0.04
    assert probe(LowRankSurrogate(case.teacher, random_state=0).fit(case.X)) > probe(case.copy) + 0.1


@pytest.mark.parametrize("settings", [{}, {"n_layers": 2}, {"skip": False}, {"width": 9, "n_layers": 3}])
def test_it_is_the_network_it_says(settings: dict[str, Any]) -> None:
    """Rebuilt from torch's own layers, on whitened rows: the folding and the arithmetic are right."""
    X, z = draw("gauss", 300, 4, seed=0)
    copy = MLPSurrogate(LEACE().fit(X, z), epochs=2, random_state=0, **settings).fit(X)
    n, layers = copy.n_layers, []
    for i in range(n):
        weight, bias = (torch.from_numpy(copy.weights_[f"layer{i}_{part}"]) for part in ("weight", "bias"))
        linear = torch.nn.Linear(*weight.shape, dtype=torch.float64)
        linear.weight.data, linear.bias.data = weight.T, bias
        layers.append(linear)
        if i < n - 1:
            norm = torch.nn.LayerNorm(len(bias), dtype=torch.float64)
            norm.weight.data, norm.bias.data = (
                torch.from_numpy(copy.weights_[f"layer{i}_{part}"]) for part in ("gain", "offset")
            )
            layers += [norm, torch.nn.Tanh()]
    with torch.no_grad():
        expected = torch.nn.Sequential(*layers)(torch.from_numpy(X)).numpy()
    expected += copy.weights_["offsets"] + (X @ copy.weights_["matrices"][0] if copy.skip else 0)
    np.testing.assert_allclose(copy.transform(X), expected, atol=1e-10)


def test_the_papers_settings() -> None:
    X, z = draw("gauss", 100, 3, seed=0)
    default, paper = MLPSurrogate(), MLPSurrogate.from_preset("paper")
    for surrogate in (default, paper):
        assert (surrogate.n_layers, surrogate.width, surrogate.epochs) == (4, None, 1500)
        assert (surrogate.learning_rate, surrogate.validation_rows) == (1e-3, 2000)
    assert paper.batch_size == 2048 and not paper.skip and paper.augment == 0
    copy = paper.set_params(teacher=LEACE().fit(X, z), epochs=2, random_state=0).fit(X)
    shapes = [copy.weights_[f"layer{i}_weight"].shape for i in range(4)]
    assert shapes == [(3, 6), (6, 6), (6, 6), (6, 3)] and "matrices" not in copy.weights_


def test_the_best_epoch_is_kept(case: Case) -> None:
    history = case.copy.history_
    assert case.copy.fidelity_["mse"] == min(history)
    stopped = MLPSurrogate(case.teacher, width=16, augment=0, patience=2, epochs=400, random_state=0).fit(case.X)
    assert 2 < len(stopped.history_) < 400
    assert len(stopped.history_) - 1 - int(np.argmin(stopped.history_)) >= 2


def test_where_nothing_is_gained_it_is_the_affine_copies(case: Case) -> None:
    copy = MLPSurrogate(case.teacher, learning_rate=3.0, weight_decay=0.0, epochs=1, random_state=0).fit(case.X)
    assert min(copy.history_) > copy.fidelity_["mse_class_affine"] == copy.fidelity_["mse"]
    assert copy.weights_.keys() == {"matrices", "offsets"}
    k = (case.teacher.route(case.new) == case.teacher.classes_[1]).astype(int)
    affine = np.einsum("nd,nde->ne", case.new, copy.weights_["matrices"][k]) + copy.weights_["offsets"][k]
    np.testing.assert_allclose(copy.transform(case.new), affine, atol=1e-8)


def test_one_affine_copy_where_no_router_can_choose(case: Case) -> None:
    oracle = MLPSurrogate(case.teacher.without_router(), random_state=0, **QUICK).fit(case.X, case.z)
    forest = MUtE(2, router=RandomForestClassifier(5, random_state=0), diagnostics=False, random_state=0)
    other = MLPSurrogate(forest.fit(case.X, case.z), random_state=0, **QUICK).fit(case.X)
    for copy in (oracle, other):
        assert copy.router_ is None and copy.weights_["matrices"].shape == (1, 5, 5)
        assert "mse_class_affine" not in copy.fidelity_
    assert case.copy.router_ is case.teacher.router_ and case.copy.weights_["matrices"].shape == (2, 5, 5)


def test_labels_are_needed_only_where_the_teacher_cannot_do_without(case: Case) -> None:
    told = MLPSurrogate(case.teacher, random_state=0, **QUICK).fit(case.X, case.z)
    untold = MLPSurrogate(case.teacher, random_state=0, **QUICK).fit(case.X)
    np.testing.assert_array_equal(told.transform(case.new), untold.transform(case.new))
    oracle = case.teacher.without_router()
    with pytest.raises(MuteError, match="the teacher has no router, so it needs concept="):
        MLPSurrogate(oracle, **QUICK).fit(case.X)
    copy = MLPSurrogate(oracle, random_state=0, **QUICK).fit(case.X, case.z)
    assert not copy.needs_concept
    # It copies what the labels say, without being told them.
    exact = oracle.transform(case.X, concept=case.z)
    assert ((copy.transform(case.X) - exact) ** 2).mean() < 0.5 * exact.var()


def test_a_teacher_that_is_not_fitted_is_fitted_first() -> None:
    X, z = draw("gauss", 300, 3, seed=0)
    teacher = MUtE(2, router="logistic", diagnostics=False)
    one = MLPSurrogate(teacher, random_state=0, **QUICK).fit(X, z)
    two = MLPSurrogate(clone(teacher), random_state=0, **QUICK).fit(X, z)
    np.testing.assert_array_equal(one.transform(X), two.transform(X))
    assert not hasattr(teacher, "flow_")
    with pytest.raises(MuteError, match="labels"):
        MLPSurrogate(teacher, **QUICK).fit(X)


def test_made_rows_follow_the_law_of_their_class(case: Case) -> None:
    from mute.distill.teaching import made_rows

    Q = case.teacher.transform(case.X)
    rows, classes, erased = made_rows(case.teacher, Q, 2, 2, np.random.default_rng(0))
    assert len(rows) == len(classes) == 2 * len(Q)
    np.testing.assert_allclose(case.teacher.transform(rows, concept=classes), erased, atol=1e-8)
    for k in range(2):
        made, true = rows[classes == k], case.new[case.z_new == k]
        np.testing.assert_allclose(made.mean(axis=0), true.mean(axis=0), atol=0.15)
        np.testing.assert_allclose(np.cov(made.T), np.cov(true.T), atol=0.35)
    assert len(made_rows(case.teacher, Q, 2, "auto", np.random.default_rng(0))[0]) == 3 * len(Q)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"teacher": "mute"}, "teacher must be None or an eraser"),
        ({"n_layers": 1}, r"'n_layers' parameter .* must be an int in the range \[2, inf\)"),
        ({"width": 0}, "'width' parameter .* must be"),
        ({"batch_size": "large"}, "'batch_size' parameter .* must be an int .*'auto'"),
        ({"augment": -1}, r"'augment' parameter .* must be an int in the range \[0, inf\) or .*'auto'"),
        ({"epochs": 0}, "'epochs' parameter .* must be"),
        ({"patience": 2.5}, "'patience' parameter .* must be an int"),
        ({"learning_rate": 0}, "'learning_rate' parameter .* must be"),
        ({"weight_decay": -1}, "'weight_decay' parameter .* must be"),
        ({"device": "abacus"}, 'device must be "auto" or'),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    X, z = draw("gauss", 50, 2, seed=0)
    with pytest.raises(MuteError, match=message):
        MLPSurrogate(**settings).fit(X, z)


def test_teachers_that_cannot_be_copied() -> None:
    X, z = draw("gauss", 100, 3, seed=0)
    with pytest.raises(MuteError, match="fitted on 2 columns, X has 3"):
        MLPSurrogate(LEACE().fit(X[:, :2], z)).fit(X)
    with pytest.raises(MuteError, match="LEACE was fitted on values in place of classes"):
        MLPSurrogate(LEACE(concept_type="continuous").fit(X, X[:, 0])).fit(X)


def test_files_that_do_not_fit_together(tmp_path: Path) -> None:
    X, z = draw("gauss", 100, 3, seed=0)
    copy = MLPSurrogate(LEACE().fit(X, z), random_state=0, **QUICK).fit(X)
    copy.save(tmp_path / "copy")
    again = mute.load(tmp_path / "copy")
    assert again.teacher is None and again.fidelity_ == copy.fidelity_ and again.history_ == copy.history_
    for name, broken in (
        ("weights_.layer1_weight", np.zeros((16, 15), np.float32)),
        ("weights_.layer0_gain", np.zeros(15)),
        ("weights_.matrices", np.zeros((2, 3, 3))),
        ("weights_.layer3_bias", np.array([0.0, np.nan, 0.0])),
    ):
        tensors, state = contents(tmp_path / "copy")
        tensors[name] = broken
        forge(tmp_path / "forged", tensors, state, "MLPSurrogate")
        with pytest.raises(MuteError, match=r"do not fit together|not finite"):
            mute.load(tmp_path / "forged")
