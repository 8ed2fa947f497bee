"""Tensors in, tensors out: the same answers as on the host, with gradients, and nothing left on the estimator."""

import copy
import gc
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier

import mute
from laws import draw
from mute import RBIG, MUtE, MuteError
from mute.estimators import tensors
from mute.rivals import LEACE, PEF
from mute.steering import GaussianCFR, LinearOT, MeanDifference
from test_family import NAMES, NOT_EXPORTED, fitted

torch = pytest.importorskip("torch")
from mute.flow.module import FlowModule  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::mute.WeakResultWarning")  # a few rows will do here
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA"))]
# Largest difference, as a share of the root mean square of the answers: what rounding becomes in a few steep layers.
EXACT = {"float32": 1e-5, "float64": 1e-10}


def assert_same(tensor: Any, expected: NDArray, exact: float, size: float = 0.0) -> None:
    assert tensor.dtype == getattr(torch, expected.dtype.name) and tensor.shape == expected.shape
    gap = np.abs(tensor.detach().cpu().numpy() - expected).max()
    assert gap <= exact * max(size, np.sqrt((expected**2).mean())), gap


class Case:
    def __init__(self, marginal: Any, n_classes: int) -> None:
        self.X, codes = draw("skew", 400, 5, seed=0, n_classes=n_classes)
        self.z = np.array(["b", "c", "a"])[codes]
        settings = {"router": "logistic", "marginal": marginal, "diagnostics": False, "random_state": 0}
        self.eraser = MUtE(6, **settings).fit(self.X, self.z)
        self.codes = np.searchsorted(self.eraser.classes_, self.z)
        self.target = np.roll(self.z, 7)


@pytest.fixture(scope="module", params=[(m, k) for m in ("quantile", "histogram") for k in (2, 3)], ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    return Case(*request.param)


@pytest.fixture(scope="module")
def plain() -> Case:
    return Case("quantile", 3)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", EXACT)
def test_the_flow_is_the_same(case: Case, dtype: str, device: str) -> None:
    X = case.X.astype(dtype)
    rows, exact, eraser = torch.from_numpy(X).to(device), EXACT[dtype], case.eraser
    Q = eraser.transform(X, concept=case.z)
    erased = eraser.transform(rows, concept=case.z)
    assert erased.device == rows.device
    assert_same(erased, Q, exact)
    assert_same(eraser.transform(rows), eraser.transform(X), exact)
    assert (eraser.route(rows) == eraser.route(X)).all()
    assert_same(eraser.inverse_transform(torch.from_numpy(Q).to(device), concept=case.z), X, 10 * exact)
    pulled = eraser.inverse_transform(torch.from_numpy(Q).to(device), concept=case.target)
    assert_same(pulled, eraser.inverse_transform(Q, concept=case.target), exact)
    for target in ("b", case.target):
        moved = eraser.counterfactual(rows, target, concept=case.z)
        assert_same(moved, eraser.counterfactual(X, target, concept=case.z), 2 * exact)  # there and back


def test_knots_that_crowd_and_rows_far_outside() -> None:
    """The paper's histograms have hundreds of knots in some cells of the guide; tails are straight lines."""
    X, z = draw("bimodal", 300, 4, seed=0)
    X[z == 0, 1] = np.where(X[z == 0, 1] > 0, 40, -40) + X[z == 0, 1]  # a wide gap, where the map is flat
    paper = MUtE.from_preset("paper-text", n_iterations=3, router=None, diagnostics=False)
    flow = paper.fit(X, z).flow_
    module = flow.to_torch(dtype="float64")
    rng = np.random.default_rng(0)
    Q = np.concatenate([rng.uniform(-8, 8, (3000, 4)), rng.normal(size=(20, 4)) * 1e4])
    k = np.arange(len(Q)) % 2
    guessed = module._guess(2, 0, torch.from_numpy(Q.T.copy()))
    values = flow.values[2, 0]
    true = np.stack([np.searchsorted(v, q, side="right") - 1 for v, q in zip(values, Q.T, strict=True)])
    assert (guessed.numpy() != true.clip(0, values.shape[1] - 2)).any(), "some need more than the guess"
    pulled = flow.pull(Q, k)
    np.testing.assert_allclose(module.pull(torch.from_numpy(Q), torch.from_numpy(k)), pulled, rtol=1e-9, atol=1e-7)
    back = module.push(torch.from_numpy(pulled), torch.from_numpy(k))
    np.testing.assert_allclose(back, Q, rtol=1e-9, atol=1e-6)  # such maps are steep beside the gap


@pytest.mark.parametrize("threads", [1, 2])
def test_blocks_and_threads_do_not_matter(plain: Case, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    module, k = plain.eraser.flow_.to_torch(), torch.from_numpy(plain.codes)

    def answers() -> list[Any]:
        rows = torch.from_numpy(plain.X).requires_grad_()
        (module.push(rows, k) * module.pull(rows, k)).sum().backward()
        with torch.no_grad():
            plainly = module.push(rows, k)
        with torch.inference_mode():
            pulled = module.pull(rows, 1)
        assert not plainly.requires_grad and pulled.is_inference()
        return [rows.grad, plainly, pulled]

    whole, before = answers(), torch.get_num_threads()
    monkeypatch.setattr("mute.flow.module._BLOCK_CPU", 1)
    monkeypatch.setattr("mute.flow.module._FEWEST_ROWS", 70)
    try:
        torch.set_num_threads(threads)
        parts = answers()
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(one.clone(), other.clone(), rtol=1e-9, atol=1e-9)


def test_a_flow_of_one_class(plain: Case) -> None:
    model = RBIG(5, random_state=0).fit(plain.X)
    rows = torch.from_numpy(plain.X)
    Q = model.transform(plain.X)
    assert_same(model.transform(rows), Q, 1e-10)
    assert_same(model.inverse_transform(torch.from_numpy(Q)), plain.X, 1e-10)


@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith("-task")])
def test_the_whole_family(name: str) -> None:
    X, z = draw("skew", 60, 6, seed=0, n_classes=3)
    z = np.array(["b", "c", "a"])[z]
    model = fitted(name, X.astype(np.float32), z)
    rows = torch.from_numpy(X)
    if name in NOT_EXPORTED:
        with pytest.raises(MuteError, match=r"not affine, so it does not run on tensors; give X.cpu\(\).numpy\(\), or"):
            model.transform(rows, concept=z)
        return
    for dtype, exact in EXACT.items():
        now = X.astype(dtype)
        rows = torch.from_numpy(now).requires_grad_()
        erased = model.transform(rows, concept=z)
        # INLP leaves next to nothing of these rows: their own size counts.
        size = np.sqrt((X**2).mean())
        assert_same(erased, model.transform(now, concept=z), 4 * exact, size)
        erased.sum().backward()
        assert torch.isfinite(rows.grad).all() and rows.grad.abs().sum() > 0
        if hasattr(model, "counterfactual"):
            moved = model.counterfactual(torch.from_numpy(now), "a", concept=z)
            assert_same(moved, model.counterfactual(now, "a", concept=z), 8 * exact)
        if hasattr(model, "inverse_transform"):
            back = model.inverse_transform(erased.detach(), concept=z)
            assert_same(back, model.inverse_transform(erased.detach().numpy(), concept=z), 8 * exact)


def away_from_knots(flow: mute.Flow, X: NDArray, k: NDArray, margin: float) -> NDArray[np.bool_]:
    """Rows that come no nearer to a knot than `margin` steps, in any layer."""
    kept = np.ones(len(X), bool)
    now = (X - flow.center) / flow.scale
    for t in range(flow.n_layers):
        place = (now @ flow.rotations[t] - flow.origin[t, k]) / flow.step[t, k]
        kept &= (np.abs(place - place.round()) > margin).all(axis=1)
        now = flow.layers(t, t + 1).push(now, k) if t else flow.layers(0, 1).push(X, k)
    return kept


def test_gradients(case: Case) -> None:
    flow, codes = case.eraser.flow_, case.codes
    target = (codes + 1) % len(case.eraser.classes_)
    Q = flow.push(case.X, codes)
    # A finite difference of 1e-6 then meets no knot, neither on the way there nor, as the target, on the way back.
    kept = away_from_knots(flow, case.X, codes, 1e-3) & away_from_knots(flow, flow.pull(Q, target), target, 1e-3)
    some = np.flatnonzero(kept)[:6]
    assert len(some) == 6
    x, q = (torch.from_numpy(a[some]).requires_grad_() for a in (case.X, Q))
    z, goal = case.z[some], case.eraser.classes_[target[some]]
    settings = {"eps": 1e-7, "atol": 1e-4, "rtol": 1e-4}
    assert torch.autograd.gradcheck(lambda rows: case.eraser.transform(rows, concept=z), x, **settings)
    assert torch.autograd.gradcheck(lambda rows: case.eraser.inverse_transform(rows, concept=z), q, **settings)
    assert torch.autograd.gradcheck(lambda rows: case.eraser.counterfactual(rows, goal, concept=z), x, **settings)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_computed_in_single(plain: Case, dtype: str) -> None:
    rows = torch.from_numpy(plain.X).to(getattr(torch, dtype))
    out = plain.eraser.transform(rows, concept=plain.z)
    expected = plain.eraser.transform(rows.float(), concept=plain.z).to(rows.dtype)
    assert out.dtype == rows.dtype and torch.equal(out, expected)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        same = plain.eraser.transform(rows.float(), concept=plain.z)
    torch.testing.assert_close(same, plain.eraser.transform(rows.float(), concept=plain.z))


def test_labels_as_tensors() -> None:
    X, z = draw("gauss", 100, 3, seed=0, n_classes=3)
    eraser = MeanDifference(router="logistic").fit(X, z)
    rows, labels = torch.from_numpy(X), torch.from_numpy(z)
    assert_same(eraser.transform(rows, concept=labels), eraser.transform(X, concept=z), 1e-12)
    moved = eraser.counterfactual(X, np.roll(z, 5), concept=z)
    assert_same(eraser.counterfactual(rows, labels.roll(5), concept=labels), moved, 1e-12)
    assert_same(eraser.counterfactual(rows, torch.tensor(2)), eraser.counterfactual(X, 2), 1e-12)
    np.testing.assert_array_equal(eraser.counterfactual(X, torch.tensor(2)), eraser.counterfactual(X, 2))


def test_fit_takes_tensors_to_the_host(plain: Case) -> None:
    rows = torch.from_numpy(plain.X).requires_grad_()
    for model in (LEACE(), MUtE(2, router=None, diagnostics=False, random_state=0)):
        given, expected = clone(model).fit(rows, torch.from_numpy(plain.codes)), clone(model).fit(plain.X, plain.codes)
        told = {"concept": plain.codes}
        np.testing.assert_array_equal(given.transform(plain.X, **told), expected.transform(plain.X, **told))
    assert plain.eraser.flags(rows).margin.shape == (len(rows),)


def test_what_is_wrong_with_rows(plain: Case) -> None:
    rows, eraser = torch.from_numpy(plain.X), plain.eraser
    bad = rows.clone()
    bad[3, 2], bad[7, 0] = torch.nan, torch.inf
    large = rows.clone()
    large[5, 1] = 1e200
    for X, message in (
        (rows[:, :4], "X has 4 features, but MUtE is expecting 5"),
        (rows[0], "two dimensions, rows and columns, not shape"),
        (rows[None], "mute.torch.intervention.Intervention for hidden states of any shape"),
        (rows[:0], "it has no rows"),
        (rows.long(), "a tensor of int64; give one of float16, bfloat16, float32, float64, for example X.float"),
        (bad, r"X contains NaN and infinity in 2 rows \(rows 3, 7\); remove or fill"),
        (large, r"numbers beyond 1e\+154 in 1 row \(row 5\)"),
        (rows.to_sparse(), "sparse"),
    ):
        for call in (lambda X: eraser.transform(X), lambda X: eraser.counterfactual(X, "a")):
            with pytest.raises(MuteError, match=message):
                call(X)
    with pytest.raises(MuteError, match="Q has 4 features"):
        eraser.inverse_transform(rows[:, :4], concept=plain.z)
    with pytest.raises(MuteError, match="inverse_transform needs concept="):
        eraser.inverse_transform(rows)
    with pytest.raises(MuteError, match="labels for 1200 rows"):
        eraser.transform(rows, concept=plain.z[:3])
    with pytest.raises(MuteError, match="'d', which was not seen in fit"):
        eraser.counterfactual(rows, "d")
    with pytest.raises(MuteError, match="no router"):
        eraser.without_router().transform(rows)
    many = rows.clone()
    many[:] = 1e153  # each square is finite, their sum is not
    assert eraser.transform(many).shape == many.shape


def test_what_does_not_run_on_tensors(plain: Case) -> None:
    rows = torch.from_numpy(plain.X)
    forest = RandomForestClassifier(5, random_state=0)
    routed = MUtE(2, router=forest, diagnostics=False).fit(plain.X, plain.z)
    with pytest.raises(MuteError, match=r"type RandomForestClassifier does not run on tensors; give concept=eraser.r"):
        routed.transform(rows)
    assert routed.transform(rows, concept=routed.route(plain.X)).shape == rows.shape
    drawn = GaussianCFR(n_draws=2, random_state=0).fit(plain.X, plain.z)
    with pytest.raises(MuteError, match="GaussianCFR is not affine, so it does not run on tensors"):
        drawn.counterfactual(rows, "a")
    with pytest.raises(MuteError, match="PEF is not affine"):
        PEF(random_state=0).fit(plain.X[::20], plain.z[::20]).transform(rows)


def test_the_same_file(plain: Case, tmp_path: Path) -> None:
    plain.eraser.save(tmp_path / "eraser.safetensors")
    again = mute.load(tmp_path / "eraser.safetensors")
    assert_same(again.transform(torch.from_numpy(plain.X)), plain.eraser.transform(plain.X), 1e-10)


def test_constants_are_uploaded_once_and_go_with_the_estimator(plain: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    build = FlowModule.__init__
    monkeypatch.setattr(FlowModule, "__init__", lambda self, *a, **s: made.append(1) or build(self, *a, **s))
    eraser, rows = copy.deepcopy(plain.eraser), torch.from_numpy(plain.X)
    names, held = set(vars(eraser)), len(tensors._uploaded)
    for _ in range(3):
        eraser.transform(rows)
    eraser.inverse_transform(rows, concept=plain.z)
    assert len(made) == 1
    eraser.transform(rows.float())
    assert len(made) == 2 and len(tensors._uploaded) == held + 1
    assert set(vars(eraser)) == names
    for other in (copy.deepcopy(eraser), pickle.loads(pickle.dumps(eraser))):
        assert_same(other.transform(rows), eraser.transform(plain.X), 1e-10)
    del eraser, other
    gc.collect()
    assert len(tensors._uploaded) == held


def test_a_new_fit_and_new_settings_are_heeded(plain: Case) -> None:
    rows = torch.from_numpy(plain.X)
    eraser = MeanDifference(router=None).fit(plain.X, plain.z)
    eraser.transform(rows, concept=plain.z)
    eraser.fit(plain.X + 3, np.roll(plain.z, 1))
    assert_same(eraser.transform(rows, concept=plain.z), eraser.transform(plain.X, concept=plain.z), 1e-12)
    eraser.set_params(strength=0.5)
    assert_same(eraser.transform(rows, concept=plain.z), eraser.transform(plain.X, concept=plain.z), 1e-12)
    for part in (slice(0, 600), slice(600, 1200)):
        eraser.partial_fit(rows[part], plain.z[part])
        assert_same(eraser.transform(rows, concept=plain.z), eraser.transform(plain.X, concept=plain.z), 1e-12)


def test_constants_made_without_gradients_serve_with_them(plain: Case) -> None:
    for eraser in (copy.deepcopy(plain.eraser), LEACE().fit(plain.X, plain.z)):
        with torch.inference_mode():
            eraser.transform(torch.from_numpy(plain.X))
        rows = torch.from_numpy(plain.X).requires_grad_()
        eraser.transform(rows).square().sum().backward()
        assert rows.grad.abs().sum() > 0


def test_only_the_maps_that_are_needed_are_made(plain: Case) -> None:
    eraser = LinearOT(router=None).fit(plain.X, plain.z)
    eraser.counterfactual(torch.from_numpy(plain.X[plain.z == "a"]), "b", concept=plain.z[plain.z == "a"])
    (ops,) = tensors._uploaded[eraser][1].values()
    assert list(ops.known_maps) == ["move0_1"]


def test_the_module(plain: Case) -> None:
    flow = plain.eraser.flow_
    module = flow.to_torch(dtype="float32")
    assert "n_layers=6, n_classes=3, n_features=5" in repr(module)
    assert set(module.state_dict()) == set(flow.arrays()) and not list(module.parameters())
    states = torch.from_numpy(plain.X).float().reshape(4, 300, 5)
    k = torch.from_numpy(plain.codes).reshape(4, 300)
    expected = flow.push(plain.X.astype(np.float32), plain.codes)
    assert_same(module(states, k).reshape(-1, 5), expected, 1e-5)
    assert_same(module.pull(module.push(states, k), k), states.numpy(), 1e-4)
    assert torch.equal(module.push(states, 1), module.push(states, torch.ones_like(k)))
    moved = flow.pull(expected, 2)
    assert_same(module.counterfactual(states, k, 2).reshape(-1, 5), moved, 1e-4)

    other = MUtE(6, router=None, diagnostics=False, random_state=1).fit(plain.X[::2], plain.z[::2]).flow_.to_torch()
    other.float().push(states, k)  # so that it has made its tables
    other.load_state_dict(module.state_dict())
    assert torch.equal(other.push(states, k), module.push(states, k))
    double = copy.deepcopy(module).double()
    assert double.push(states.double(), k).dtype == torch.float64
    assert torch.equal(copy.deepcopy(module).half().push(states, k), module.push(states, k))
    content = io.BytesIO()
    torch.save(module, content)
    content.seek(0)
    assert torch.equal(torch.load(content, weights_only=False).push(states, k), module.push(states, k))


def test_what_the_module_refuses(plain: Case) -> None:
    flow = plain.eraser.flow_
    module, rows = flow.to_torch(), torch.from_numpy(plain.X)
    for call, message in (
        (lambda: module.push(rows[:, :4], 0), r"its last axis must have 5 numbers"),
        (lambda: module.push(rows, 3), "k must be from 0 to 2, not 3"),
        (lambda: module.pull(rows, torch.full((1200,), -1)), "k must be from 0 to 2, not -1"),
        (
            lambda: module.push(rows, torch.zeros(7, dtype=torch.int64)),
            r"one whole number for each state",
        ),
        (lambda: module.push(rows.long(), 0), "a tensor of int64"),
        (lambda: flow.to_torch(dtype="float16"), 'dtype must be "float32" or "float64"'),
        (lambda: flow.to_torch(dtype="float64", device="mps"), 'device of type "mps" has no float64'),
    ):
        with pytest.raises(MuteError, match=message):
            call()
    broken = rows.clone()
    broken[3, 1] = torch.nan
    for run in (module.push, module.pull):
        out = run(broken, 0)
        assert out[3].isnan().all() and torch.equal(out[4:], run(rows, 0)[4:])
    assert module.push(rows[:0], 0).shape == (0, 5)
