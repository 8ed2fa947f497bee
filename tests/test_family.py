"""What every method must do, whatever its mathematics: one test for the whole family."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import sklearn
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from sklearn.pipeline import make_pipeline

import mute
from laws import draw
from mute import MuteError
from mute.estimators.registry import HOMES, METHODS, class_of, make, method_of
from mute.export import to_onnx, to_torch

# Less work for the slow ones; what is tested here does not depend on how far they get.
QUICK: dict[str, dict[str, Any]] = {
    "MUtE": {"n_iterations": 4, "diagnostics": False},
    "FreeFormLEACE": {"classifier": "logistic"},
    "RLACE": {"n_iterations": 2000, "evaluate_every": 500},
    "KernelErasure": {"n_iterations": 500, "n_landmarks": 50, "preimage_steps": 500, "hidden": (32,)},
    "GradientReversal": {"epochs": 20, "batch_size": 20, "strength": 5.0, "adversary_width": 16},
    "FaRM": {"epochs": 5},
    "KRaM": {"epochs": 5},
    "TaCo": {"n_components": 4, "n_drop": 2, "n_samples": 200, "epochs": 10},
    "LEOPARD": {"epochs": 5},
    "MLPSurrogate": {"epochs": 60, "width": 32, "patience": 60},
    "InvertibleSurrogate": {"epochs": 5, "n_blocks": 3, "width": 16},
}
# Neither affine nor a flow nor made for export: these can only be copied.
NOT_EXPORTED = {"leace-freeform", "kernel", "reversal", "reversal-task", "farm", "kram", "pef"}
NAMES = [name for name in METHODS if name != "none"]
# No linear classifier is to beat a constant on the rows of the fit.
LINEAR = {"leace", "leace-oracle", "qleace-oracle", "cfr", "leopard-cascaded"}
LABELS = np.array(["b", "c", "a"])  # not in the order of the codes


class Case(NamedTuple):
    name: str
    model: Any
    X: NDArray
    z: NDArray
    new: NDArray
    z_new: NDArray
    labels: dict[str, Any]  # what transform is told


def quick(name: str) -> Any:
    model = make(name, random_state=0).set_params(**QUICK.get(method_of(name).kind, {}))
    if getattr(model, "router", None) not in (None, "teacher"):
        model.set_params(router="logistic")
    if name.endswith("-surrogate") and name != "linear-surrogate":
        model.set_params(teacher=mute.MUtE(4, router="logistic", diagnostics=False))
    return model


def fitted(name: str, X: NDArray, z: NDArray) -> Any:
    task = {"task": X[:, 0] > np.median(X[:, 0])} if method_of(name).task else {}
    return quick(name).fit(X, z, **task)


@pytest.fixture(scope="module", params=NAMES)
def case(request: pytest.FixtureRequest) -> Case:
    X, z = draw("skew", 200, 6, seed=0, n_classes=3)
    new, z_new = draw("skew", 50, 6, seed=1, n_classes=3)
    X, new, z, z_new = X.astype(np.float32), new.astype(np.float32), LABELS[z], LABELS[z_new]
    model = fitted(request.param, X, z)
    return Case(request.param, model, X, z, new, z_new, {"concept": z_new} if model.needs_concept else {})


pytestmark = pytest.mark.filterwarnings("ignore::mute.WeakResultWarning")  # a few rows will do here


def test_shape_precision_and_labels(case: Case) -> None:
    Q = case.model.transform(case.new, **case.labels)
    assert Q.shape == case.new.shape and Q.dtype == np.float32 and np.isfinite(Q).all()
    assert case.model.transform(case.new.astype(np.float64), **case.labels).dtype == np.float64
    assert case.model.classes_.tolist() == ["a", "b", "c"]
    assert not np.shares_memory(Q, case.new)


# Methods of estimators that take no rows, or learn from them.
NOT_ON_ROWS = {
    "fit", "fit_transform", "from_preset", "partial_fit", "save", "set_callbacks", "without_router",
    "without_budget", "first_layers", "nameless",
}  # fmt: skip


def row_methods(case: Case) -> dict[str, dict[str, Any]]:
    """Every public method of a model that takes rows, with the labels that it requires."""
    required = {
        "transform": case.labels,
        "counterfactual": {"target": "a", **case.labels},
        "inverse_transform": {"concept": case.z_new},
        "route": {},
        "flags": case.labels,
        "diagnose": {"concept": case.z_new},
        "adapt": case.labels,
        "log_determinant": {"concept": case.z_new},
    }
    public = {
        name
        for name in dir(type(case.model))
        if not name.startswith(("_", "get_", "set_"))
        and not name.endswith("_with")  # arithmetic on other arrays, for exports
        and callable(getattr(type(case.model), name))
    }
    unknown = public - set(required) - NOT_ON_ROWS
    assert not unknown, f"row methods that this test does not call: {unknown}"
    there = {name: labels for name, labels in required.items() if name in public}
    if case.model.needs_concept:
        there.pop("route", None)  # it has no router
    return there


def numbers(found: Any) -> NDArray:
    """What a row method gave, as one array."""
    if isinstance(found, mute.MUtE):  # adapted
        return found.flow_.rotations
    if hasattr(found, "margin"):  # flags
        return found.margin
    if hasattr(found, "figures"):  # diagnostics
        return np.nan_to_num(found.figures)
    if hasattr(found, "to_numpy"):
        return found.to_numpy()
    if hasattr(found, "detach"):
        return found.detach().numpy()
    return np.asarray(found) if hasattr(found, "__len__") else np.concatenate(list(found))


def test_rows_of_every_kind(case: Case, tmp_path: Path) -> None:
    """Arrays, memory maps, matrices on disk, iterators of blocks, tensors: every row method gives the same answers."""
    torch = pytest.importorskip("torch")
    np.save(tmp_path / "rows.npy", case.new)
    for name, labels in row_methods(case).items():
        method = getattr(case.model, name)
        expected = numbers(method(case.new, **labels))
        given = {
            "memory map": np.load(tmp_path / "rows.npy", mmap_mode="r"),
            "matrix on disk": mute.open_matrix(tmp_path / "rows.npy"),
            "iterator of blocks": iter(np.array_split(case.new, 4)),
        }
        if case.name not in NOT_EXPORTED:
            given["tensor"] = torch.from_numpy(case.new)
        for kind, rows in given.items():
            found = numbers(method(rows, **labels))
            if found.dtype.kind != "f":
                np.testing.assert_array_equal(found, expected, err_msg=f"{name} of a {kind}")
                continue
            # float32 through four layers, in another order of operations.
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3, err_msg=f"{name} of a {kind}")


def test_the_batch_does_not_matter(case: Case) -> None:
    whole = case.model.transform(case.new, concept=case.z_new)
    for size in (1, 7):
        parts = [
            case.model.transform(case.new[i : i + size], concept=case.z_new[i : i + size])
            for i in range(0, len(case.new), size)
        ]
        # Matrix products of other shapes are rounded differently.
        np.testing.assert_allclose(np.concatenate(parts), whole, atol=2e-4)


def test_same_seed_same_model(case: Case) -> None:
    again = fitted(case.name, case.X, case.z)
    np.testing.assert_array_equal(
        again.transform(case.new, **case.labels), case.model.transform(case.new, **case.labels)
    )


def test_save_and_load(case: Case, tmp_path: Path) -> None:
    case.model.save(tmp_path / "model.safetensors")
    again = mute.load(tmp_path / "model.safetensors")
    assert type(again) is type(case.model) and again.needs_concept == case.model.needs_concept
    np.testing.assert_array_equal(
        again.transform(case.new, **case.labels), case.model.transform(case.new, **case.labels)
    )
    if hasattr(case.model, "counterfactual"):
        moved = (m.counterfactual(case.new, "a", **case.labels) for m in (again, case.model))
        np.testing.assert_array_equal(*moved)
    again.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").stat().st_size == (tmp_path / "model.safetensors").stat().st_size


def test_a_damaged_file_is_refused(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    case.model.save(path)
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    with pytest.raises(MuteError, match="damaged"):
        mute.load(path)


def test_counterfactuals(case: Case) -> None:
    if not hasattr(case.model, "counterfactual"):
        return
    told = {"concept": case.z_new}
    moved = case.model.counterfactual(case.new, "a", **told)
    assert moved.shape == case.new.shape and moved.dtype == np.float32 and np.isfinite(moved).all()
    each = case.model.counterfactual(case.new, np.full(len(case.new), "a"), **told)
    np.testing.assert_array_equal(each, moved)
    # They go where they should: a classifier of the originals says so.
    judge = LogisticRegression(max_iter=1000).fit(case.X, case.z)
    assert (judge.predict(moved) == "a").mean() > max(0.8, (judge.predict(case.new) == "a").mean())
    with pytest.raises(MuteError, match="'d', which was not seen in fit"):
        case.model.counterfactual(case.new, "d", **told)


def test_the_way_back(case: Case) -> None:
    if not hasattr(case.model, "inverse_transform"):
        return
    Q = case.model.transform(case.new.astype(np.float64), concept=case.z_new)
    np.testing.assert_allclose(case.model.inverse_transform(Q, concept=case.z_new), case.new, atol=1e-5)


def test_less_can_be_read(case: Case) -> None:
    """A linear probe on the rows of the fit: never more than before, and nothing where that is promised."""
    told = {"concept": case.z} if case.model.needs_concept else {}
    Q = case.model.transform(case.X.astype(np.float64), **told)
    before, after = (
        balanced_accuracy_score(case.z, LogisticRegression(max_iter=5000).fit(rows, case.z).predict(rows))
        for rows in (case.X, Q)
    )
    assert before > 0.85
    assert after < before
    if case.name in LINEAR:
        assert after < 0.34


def test_what_it_needs_it_says(case: Case) -> None:
    if case.model.needs_concept:
        with pytest.raises(MuteError, match="concept="):
            case.model.transform(case.new)
    else:
        assert case.model.transform(case.new).shape == case.new.shape
    with pytest.raises(MuteError, match="expecting 6 features"):
        case.model.transform(case.new[:, :5], **case.labels)
    broken = case.new.copy()
    broken[3, 2] = np.nan
    with pytest.raises(MuteError, match="NaN"):
        case.model.transform(broken, **case.labels)


def test_a_fit_that_fails_changes_nothing(case: Case) -> None:
    before = case.model.transform(case.new, **case.labels)
    with pytest.raises(MuteError):
        case.model.fit(case.X, np.full(len(case.X), "a"))
    np.testing.assert_array_equal(case.model.transform(case.new, **case.labels), before)


def test_presets_and_settings() -> None:
    for kind in HOMES:
        cls = class_of(kind)
        for preset in getattr(cls, "PRESETS", {}):
            model = cls.from_preset(preset)
            model._check_settings()
            assert clone(model).get_params().keys() == model.get_params().keys()


@pytest.mark.parametrize("kind", [kind for kind in HOMES if kind not in ("MUtE", "RBIG")])
def test_docstrings_say_what_a_user_must_know(kind: str) -> None:
    text = class_of(kind).__doc__
    for heading in ("*Guarantees.*", "*Limits.*", "*Labels.*", "*Cost.*", "Examples\n"):
        assert heading in text, f"{kind} does not say {heading}"
    # The two that everybody knows have no paper to cite.
    assert "References" in text or kind == "MeanDifference"


def test_names_that_do_not_exist() -> None:
    with pytest.raises(MuteError, match="no method 'lace'; known methods: none, mute"):
        make("lace")
    with pytest.raises(MuteError, match="FaRM has no preset 'papre'; known presets"):
        make("farm:papre")
    with pytest.raises(MuteError, match="LEACE has no setting 'epochs'; it has"):
        make("leace", epochs=3)
    with pytest.raises(AttributeError):
        mute.rivals.Nonsense  # noqa: B018


def test_onnx_gives_the_same_answers(case: Case, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    told = "given" if case.model.needs_concept else "routed"
    if case.name in NOT_EXPORTED:
        with pytest.raises(
            MuteError, match="is not affine, so it cannot be exported as it is; copy it by MLPSurrogate"
        ):
            to_onnx(case.model, tmp_path / "model.onnx")
        assert not list(tmp_path.iterdir())
        return
    moves = [False, True] if hasattr(case.model, "counterfactual") else [False]
    for counterfactual in moves:
        path = tmp_path / "model.onnx"
        to_onnx(case.model, path, counterfactual=counterfactual, concept=told)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        rows, labels = np.resize(case.new, (1000, 6)), np.resize(case.z_new, 1000)
        given = {"concept": np.searchsorted(case.model.classes_, labels)} if told == "given" else {}
        known = {"concept": labels} if told == "given" else {}
        if counterfactual:
            given["target"] = np.arange(1000) % 3
            expected = case.model.counterfactual(rows, case.model.classes_[given["target"]], **known)
        else:
            expected = case.model.transform(rows, **known)
        for size in (1, 7, 1000):
            (out,) = session.run(None, {"X": rows[:size], **{name: codes[:size] for name, codes in given.items()}})
            assert out.dtype == np.float32
            # Relative to the size of the answers, which is about one for erased rows.
            np.testing.assert_allclose(out, expected[:size], rtol=1e-4, atol=1e-4)


def test_torch_gives_the_same_answers(case: Case) -> None:
    torch = pytest.importorskip("torch")
    if case.name in NOT_EXPORTED:
        with pytest.raises(MuteError, match="cannot be exported"):
            to_torch(case.model)
        return
    told = "given" if case.model.needs_concept else "routed"
    codes = [torch.from_numpy(np.searchsorted(case.model.classes_, case.z_new))] if told == "given" else []
    for dtype, exact in (("float64", 1e-10), ("float32", 1e-4)):
        rows = case.new.astype(dtype)
        out = to_torch(case.model, concept=told, dtype=dtype)(torch.from_numpy(rows), *codes)
        np.testing.assert_allclose(out.numpy(), case.model.transform(rows, **case.labels), rtol=exact, atol=exact)


@pytest.mark.parametrize("name", NAMES)
def test_a_pipeline_needs_one_request(name: str) -> None:
    """Requests of `fit` and `transform` that differ would be an error of scikit-learn in every pipeline."""
    with sklearn.config_context(enable_metadata_routing=True):
        requests = make(name).set_fit_request(concept=True).get_metadata_routing()
        assert requests.fit_transform.requests["concept"] is True


def test_a_pipeline_of_a_method_without_a_router() -> None:
    """No warning that `fit_transform` forwards nothing: such a method ignores labels when it erases."""
    X, z = draw("gauss", 200, 3, seed=0)
    y = X[:, 0] > 0
    with sklearn.config_context(enable_metadata_routing=True):
        eraser = make("leace").set_fit_request(concept=True)
        model = make_pipeline(eraser, LogisticRegression()).fit(X, y, concept=z)
        np.testing.assert_array_equal(model.predict(X), model.predict(X, concept=z))
