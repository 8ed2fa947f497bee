"""What leaves the package: graphs that run elsewhere, modules that learn inside a network."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

from laws import draw
from mute import RBIG, Histogram, MUtE, MuteError
from mute.distill import InvertibleSurrogate, MLPSurrogate
from mute.export import to_onnx, to_pt2, to_torch
from mute.rivals import LEACE

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


class Case:
    def __init__(self) -> None:
        X, z = draw("skew", 500, 5, seed=0, n_classes=3)
        self.X, self.z = X.astype(np.float32), np.array(["b", "c", "a"])[z]
        self.codes = np.searchsorted(["a", "b", "c"], self.z)
        self.flow = MUtE(6, router="logistic", diagnostics=False, random_state=0).fit(self.X, self.z)


@pytest.fixture(scope="module")
def case() -> Case:
    return Case()


@pytest.fixture(scope="module")
def models(case: Case) -> dict[str, Any]:
    quick = {"epochs": 3, "augment": 0, "width": 16, "random_state": 0}
    return {
        "flow": case.flow,
        "mlp": MLPSurrogate(case.flow, **quick).fit(case.X),
        "cinn": InvertibleSurrogate(case.flow, n_blocks=3, **quick).fit(case.X),
    }


@pytest.mark.parametrize(
    "settings",
    [
        {"marginal": "histogram"},
        {"marginal": Histogram(bins=1000, alpha=1e-10, floor="add"), "n_iterations": 2},
        {"keep_norm": True},
        {"router": "logistic"},
        {"n_iterations": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("concept", ["routed", "given"])
def test_every_kind_of_flow(case: Case, settings: dict[str, Any], concept: str, tmp_path: Path) -> None:
    flow = MUtE(**({"n_iterations": 5, "router": "logistic", "diagnostics": False, "random_state": 0} | settings))
    flow.fit(case.X, case.z)
    for counterfactual in (False, True):
        gap = to_onnx(flow, tmp_path / "m.onnx", counterfactual=counterfactual, concept=concept, check=case.X)
        # The paper's histograms are so steep that single precision is lost on single rows, though not in the mean.
        assert gap is not None and (gap < 1e-3 or isinstance(flow.marginal, Histogram))
    module = to_torch(flow, counterfactual=True, concept="given", dtype="float64")
    rows, target = case.X.astype(np.float64), np.roll(case.codes, 1)
    moved = module(*map(torch.from_numpy, (rows, case.codes, target))).numpy()
    exact = 1e-6 if isinstance(flow.marginal, Histogram) else 1e-10
    expected = flow.counterfactual(rows, flow.classes_[target], concept=case.z)
    np.testing.assert_allclose(moved, expected, rtol=exact, atol=exact * np.abs(expected).max())


@pytest.mark.filterwarnings("ignore::mute.WeakResultWarning")
def test_a_network_as_router(case: Case, tmp_path: Path) -> None:
    some = slice(None, None, 20)
    flow = MUtE(2, router="mlp", diagnostics=False, random_state=0).fit(case.X[some], case.z[some])
    assert len(flow.router_) > 1
    assert to_onnx(flow, tmp_path / "m.onnx", check=case.X) < 1e-4


def test_rows_far_outside(case: Case) -> None:
    rows = np.array([[-1e4] * 5, [0.0] * 5, [1e4] * 5])
    module = to_torch(case.flow, counterfactual=True, concept="given", dtype="float64")
    codes = np.array([0, 1, 2]), np.array([1, 2, 0])
    expected = case.flow.counterfactual(rows, case.flow.classes_[codes[1]], concept=case.flow.classes_[codes[0]])
    moved = module(*map(torch.from_numpy, (rows, *codes))).numpy()
    np.testing.assert_allclose(moved, expected, rtol=1e-9)


@pytest.mark.parametrize("name", ["flow", "mlp", "cinn"])
def test_gradients(case: Case, models: dict[str, Any], name: str) -> None:
    """By torch and by finite differences: between knots the maps are smooth, and random rows do not meet a knot."""
    module = to_torch(models[name], dtype="float64")
    rows = torch.from_numpy(case.X[:3].astype(np.float64)).requires_grad_()
    assert torch.autograd.gradcheck(module, rows, eps=1e-7, atol=1e-4)


@pytest.mark.parametrize("name", ["flow", "cinn"])
def test_gradients_of_counterfactuals(case: Case, models: dict[str, Any], name: str) -> None:
    module = to_torch(models[name], counterfactual=True, concept="given", dtype="float64")
    rows = torch.from_numpy(case.X[:3].astype(np.float64)).requires_grad_()
    source, target = torch.tensor([0, 1, 2]), torch.tensor([1, 1, 0])
    assert torch.autograd.gradcheck(lambda x: module(x, source, target), rows, eps=1e-7, atol=1e-4)


def test_a_module_inside_a_network(case: Case) -> None:
    """It is moved, stored and trained through like any other, and has nothing to train itself."""
    eraser = to_torch(case.flow)
    assert eraser.classes == ["a", "b", "c"] and not list(eraser.parameters())
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(3, 5), eraser, torch.nn.Linear(5, 1))
    network(torch.randn(20, 3)).square().mean().backward()
    assert network[0].weight.grad.abs().sum() > 0
    before = eraser(torch.from_numpy(case.X))
    assert "layer0_rotation" in eraser.state_dict()
    eraser.load_state_dict(eraser.state_dict())
    np.testing.assert_array_equal(eraser(torch.from_numpy(case.X)), before)
    assert eraser.to("meta")(torch.empty(4, 5, device="meta")).shape == (4, 5)


ALONE = """
import json, sys
for name in ("mute", "sklearn", "numba"):
    sys.modules[name] = None
import numpy as np
X = np.load("X.npy")
if sys.argv[1].endswith(".onnx"):
    import onnxruntime
    session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
    assert json.loads(session.get_modelmeta().custom_metadata_map["classes"]) == ["a", "b", "c"]
    out = session.run(None, {"X": X})[0]
elif sys.argv[1].endswith(".pt2"):
    import torch
    extra = {"classes": ""}
    out = torch.export.load(sys.argv[1], extra_files=extra).module()(torch.from_numpy(X)).numpy()
    assert json.loads(extra["classes"]) == ["a", "b", "c"]
else:
    import torch
    out = torch.load(sys.argv[1], weights_only=False)(torch.from_numpy(X)).numpy()
np.save("out.npy", out)
"""


@pytest.mark.parametrize("suffix", ["onnx", "pt2", "pt"])
@pytest.mark.parametrize("name", ["flow", "mlp", "cinn"])
def test_without_this_package(case: Case, models: dict[str, Any], name: str, suffix: str, tmp_path: Path) -> None:
    model = models[name]
    path = tmp_path / f"model.{suffix}"
    if suffix == "pt":
        torch.save(to_torch(model), path)
    else:
        (to_onnx if suffix == "onnx" else to_pt2)(model, path)
    np.save(tmp_path / "X.npy", case.X)
    done = subprocess.run(
        [sys.executable, "-c", ALONE, path], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), model.transform(case.X), rtol=1e-4, atol=1e-4)


def test_pt2_takes_any_number_of_rows(case: Case, tmp_path: Path) -> None:
    gap = to_pt2(case.flow, tmp_path / "m.pt2", counterfactual=True, concept="given", check=case.X)
    assert gap is not None and gap < 1e-3
    module = torch.export.load(tmp_path / "m.pt2").module()
    for size in (1, 7, 1000):
        rows, codes = torch.from_numpy(case.X[:size]), torch.from_numpy(case.codes[:size])
        np.testing.assert_allclose(module(rows, codes, codes).numpy(), case.X[:size], atol=1e-3)


def test_onnx_is_valid_and_says_what_it_takes(case: Case, tmp_path: Path) -> None:
    to_onnx(case.flow, tmp_path / "m.onnx", counterfactual=True, concept="given")
    model = onnx.load(tmp_path / "m.onnx")
    onnx.checker.check_model(model, full_check=True)
    shapes = {
        v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim]
        for v in (*model.graph.input, *model.graph.output)
    }
    assert shapes == {"X": ["rows", 5], "concept": ["rows"], "target": ["rows"], "counterfactual": ["rows", 5]}
    assert json.loads(next(p.value for p in model.metadata_props if p.key == "classes")) == ["a", "b", "c"]


def test_quantized(case: Case, tmp_path: Path) -> None:
    """The network in a quarter of the bytes; what it adds to the matrices is coarser by a few hundredths of itself."""
    # Of a flow that leaves the network much to add: what it adds little to is mostly rounded.
    flow = MUtE(6, router="logistic", shrinkage=False, diagnostics=False, random_state=0).fit(case.X, case.z)
    copy = MLPSurrogate(flow, epochs=20, width=64, random_state=0).fit(case.X)
    gap = to_onnx(copy, tmp_path / "fine.onnx", check=case.X)
    to_onnx(copy, tmp_path / "coarse.onnx", quantize=True)
    assert gap < 1e-5
    assert (tmp_path / "coarse.onnx").stat().st_size < 0.5 * (tmp_path / "fine.onnx").stat().st_size
    session = onnxruntime.InferenceSession(tmp_path / "coarse.onnx", providers=["CPUExecutionProvider"])
    out, exact = session.run(None, {"X": case.X})[0], copy.transform(case.X)
    k = np.searchsorted(["a", "b", "c"], flow.route(case.X))
    affine = np.einsum("nd,nde->ne", case.X, copy.weights_["matrices"][k]) + copy.weights_["offsets"][k]
    assert np.abs(out - exact).max() > 1e-5
    assert ((out - exact) ** 2).mean() < 0.1**2 * ((exact - affine) ** 2).mean()
    for eraser in (case.flow, LEACE().fit(case.X, case.z)):
        with pytest.raises(MuteError, match="only an MLPSurrogate has a network to quantize"):
            to_onnx(eraser, tmp_path / "m.onnx", quantize=True)


def test_what_cannot_be_exported(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    forest = MUtE(2, router=RandomForestClassifier(5, random_state=0), diagnostics=False).fit(case.X, case.z)
    for eraser, settings, message in (
        (forest, {}, "a router of type RandomForestClassifier cannot be exported"),
        (case.flow.without_router(), {}, 'no router; export it with concept="given"'),
        (case.flow, {"concept": "guessed"}, 'concept must be "routed" or "given"'),
        (LEACE().fit(case.X, case.z), {"counterfactual": True}, "LEACE makes no counterfactuals"),
        (LEACE().fit(case.X, case.z), {"concept": "given"}, "LEACE does not use the class"),
        (RBIG(2).fit(case.X), {}, "a RBIG cannot be exported; give an eraser"),
        (LEACE(), {}, "not fitted"),
    ):
        for write in (to_onnx, to_pt2):
            with pytest.raises(ValueError, match=message):
                write(eraser, path, **settings)
    with pytest.raises(MuteError, match='dtype must be "float32" or "float64"'):
        to_torch(case.flow, dtype="float16")
    with pytest.raises(MuteError, match="does not exist, so create it first"):
        to_onnx(case.flow, tmp_path / "nowhere" / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_an_export_that_differs_is_not_written(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MUtE, "push_with", lambda self, ops, x, k: x + 1)
    for write in (to_onnx, to_pt2):
        with pytest.raises(MuteError, match=r"differs from the eraser by .*; nothing was written"):
            write(case.flow, tmp_path / "m.onnx", check=case.X)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("package", "write"), [("onnx", to_onnx), ("torch", to_pt2), ("torch", to_torch)])
def test_a_missing_package_is_named(
    case: Case, package: str, write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        MuteError, match=rf'needs {package}, which is not installed: pip install "mute-erasure\[{package}'
    ):
        write(case.flow, *([tmp_path / "m"] if write is not to_torch else []))
