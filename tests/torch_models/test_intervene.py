"""Erasing and steering inside a small transformer while it runs."""

import sys
from collections import OrderedDict
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import mute
from laws import draw
from mute import MUtE, MuteError
from mute.rivals import LEACE, PEF
from mute.steering import GaussianCFR, LinearOT, MeanDifference

torch = pytest.importorskip("torch")
from mute.torch.intervention import Intervention  # noqa: E402

D, TOKENS = 8, 5


class Transformer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Linear(D, D)
        layer = torch.nn.TransformerEncoderLayer(D, 2, 16, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = torch.nn.Linear(D, 2)

    def forward(self, inputs: Any) -> Any:
        return self.head(self.encoder(self.embedding(inputs)))


LAYER = "encoder.layers.0"


class Case:
    """A transformer and states of its first layer, in which the concept lies plainly."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = Transformer().eval()
        self.z = torch.arange(800) % 2
        self.inputs = self.draw()
        self.states = self.states_of(self.inputs)
        self.labels = np.array(["first", "last"])[np.repeat(self.z.numpy(), TOKENS)]
        self.rows = self.states.reshape(-1, D).numpy()
        self.eraser = MUtE(8, router="logistic", diagnostics=False, random_state=0).fit(self.rows, self.labels)

    def draw(self) -> Any:
        return torch.randn(800, TOKENS, D) + 1.5 * self.z[:, None, None]

    def states_of(self, inputs: Any) -> Any:
        """What the first layer gives, as the second one receives it."""
        seen = []
        handle = self.model.get_submodule("encoder.layers.1").register_forward_pre_hook(lambda _, x: seen.append(x[0]))
        with torch.no_grad():
            self.model(inputs)
        handle.remove()
        return seen[0]


@pytest.fixture(scope="module")
def case() -> Case:
    return Case()


def hooks(model: Any) -> int:
    return sum(len(module._forward_hooks) for module in model.modules())


def test_what_comes_after_sees_erased_states(case: Case) -> None:
    with mute.intervene(case.model, LAYER, case.eraser):
        erased = case.states_of(case.inputs)
    expected = case.eraser.transform(case.states.reshape(-1, D)).reshape(erased.shape)
    torch.testing.assert_close(erased, expected)
    torch.testing.assert_close(case.states_of(case.inputs), case.states)


def test_a_probe_reads_nothing_more(case: Case) -> None:
    """Trained and tested on new states of the layer: chance would be 0.5 with a standard error of 0.011."""
    torch.manual_seed(1)
    inputs = case.draw()

    def accuracy() -> float:
        rows = case.states_of(inputs).reshape(-1, D).numpy()
        probe = LogisticRegression(max_iter=2000).fit(rows[:2000], case.labels[:2000])
        return probe.score(rows[2000:], case.labels[2000:])

    before = accuracy()
    with mute.intervene(case.model, LAYER, case.eraser, concept=case.labels.reshape(800, TOKENS)):
        after = accuracy()
    assert before > 0.9
    assert abs(after - 0.5) < 0.05


@pytest.mark.parametrize("method", ["flow", MeanDifference, LinearOT, GaussianCFR])
def test_a_target_moves_the_class(case: Case, method: Any) -> None:
    steer = case.eraser
    if method != "flow":
        steer = (method() if method is GaussianCFR else method(router="logistic")).fit(case.rows, case.labels)
    judge = LogisticRegression(max_iter=2000).fit(case.rows, case.labels)
    with mute.intervene(case.model, LAYER, steer, target="last"):
        moved = case.states_of(case.inputs).reshape(-1, D)
    assert (judge.predict(moved.numpy()) == "last").mean() > 0.9
    torch.testing.assert_close(moved, steer.counterfactual(case.states.reshape(-1, D), "last"))


def test_targets_and_classes_for_each(case: Case) -> None:
    labels = case.labels.reshape(800, TOKENS)
    goal = np.where(labels[:, 0] == "first", "last", "first")  # one for each sentence
    with mute.intervene(case.model, LAYER, case.eraser, target=goal, concept=labels):
        moved = case.states_of(case.inputs)
    expected = case.eraser.counterfactual(
        case.states.reshape(-1, D), np.repeat(goal, TOKENS), concept=labels.reshape(-1)
    )
    torch.testing.assert_close(moved.reshape(-1, D), expected)
    with (
        mute.intervene(case.model, LAYER, case.eraser, target=goal[:3]),
        pytest.raises(MuteError, match=r"layer 'encoder.layers.0': labels of shape \(3,\) do not fit hidden states"),
    ):
        case.model(case.inputs)


def test_positions_and_strength(case: Case) -> None:
    whole = Intervention(case.eraser)(case.states)
    mask = torch.rand(case.states.shape[:2]) < 0.5
    for positions, changed in (
        ("last", torch.arange(TOKENS).expand(800, TOKENS) == TOKENS - 1),
        (slice(1, 3), (torch.arange(TOKENS).expand(800, TOKENS) - 1.5).abs() < 1),
        (mask, mask),
        (mask.numpy(), mask),
        (mask & False, mask & False),
    ):
        out = Intervention(case.eraser, positions=positions)(case.states)
        torch.testing.assert_close(out, torch.where(changed[..., None], whole, case.states))
    half = Intervention(case.eraser, strength=0.25)(case.states)
    torch.testing.assert_close(half, 0.75 * case.states + 0.25 * whole)
    assert torch.equal(Intervention(case.eraser, strength=0)(case.states), case.states)
    labels = np.repeat([["first", "last"]], 800, axis=0)[:, [0, 1, 0, 1, 0]]
    picked = Intervention(case.eraser, concept=labels, positions=mask)(case.states)
    each = case.eraser.transform(case.states[mask], concept=labels[mask.numpy()])
    torch.testing.assert_close(picked[mask], each)
    flat = case.states.reshape(-1, D)
    torch.testing.assert_close(Intervention(case.eraser)(flat), whole.reshape(-1, D))
    with pytest.raises(MuteError, match=r"needs hidden states \(batch, tokens, D\)"):
        Intervention(case.eraser, positions="last")(flat)
    with pytest.raises(MuteError, match=r"positions has shape \(800, 5\), but the hidden states have \(800, 4\)"):
        Intervention(case.eraser, positions=mask)(case.states[:, :4])


def test_no_hook_is_left(case: Case) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        mute.intervene(case.model, [LAYER, "encoder.layers.1", "embedding"], case.eraser),
    ):
        assert hooks(case.model) == 3
        raise KeyboardInterrupt
    assert hooks(case.model) == 0
    with pytest.raises(RuntimeError), mute.intervene(case.model, LAYER, case.eraser):
        case.model(torch.zeros(2, 2))  # too narrow
    assert hooks(case.model) == 0
    with pytest.raises(MuteError), mute.intervene(case.model, [LAYER, "nothing"], case.eraser):
        pass
    assert hooks(case.model) == 0


def test_nested(case: Case) -> None:
    """The inner one takes what the outer one made."""
    there = MeanDifference(router=None).fit(case.rows, case.labels)
    with mute.intervene(case.model, LAYER, there, target="last", concept="first"):
        with mute.intervene(case.model, LAYER, there, target="first", concept="last"):
            torch.testing.assert_close(case.states_of(case.inputs), case.states, atol=1e-5, rtol=1e-5)
        once = case.states_of(case.inputs)
    expected = there.counterfactual(case.states.reshape(-1, D), "last", concept=["first"] * 4000)
    torch.testing.assert_close(once.reshape(-1, D), expected)


def test_training_through_it(case: Case) -> None:
    torch.manual_seed(0)
    model = Transformer()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    losses, goal = [], (case.inputs[:64, 0, 0] > 0.75).long()
    with mute.intervene(model, LAYER, case.eraser):
        for _ in range(5):
            optimiser.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(case.inputs[:64]).mean(dim=1), goal)
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
    assert model.embedding.weight.grad.abs().sum() > 0, "what lies before the layer learns too"
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_precisions(case: Case, dtype: str) -> None:
    kind = getattr(torch, dtype)
    model = torch.nn.Sequential(torch.nn.Linear(3, D)).to(kind)
    rows = torch.randn(2, 4, 3).to(kind)
    with mute.intervene(model, "0", case.eraser, concept="last"):
        out = model(rows)
    states = model(rows)
    compute = states.double() if dtype == "float64" else states.float()
    expected = case.eraser.transform(compute.reshape(-1, D), concept=["last"] * 8).to(kind).reshape(states.shape)
    assert out.dtype == kind and torch.equal(out, expected)


class Pair(NamedTuple):
    hidden: Any
    weights: Any


class Returns(torch.nn.Module):
    def __init__(self, make: Any) -> None:
        super().__init__()
        self.make = make

    def forward(self, x: Any) -> Any:
        return self.make(x)


@pytest.mark.parametrize(
    ("make", "read"),
    [
        (lambda x: (x, "cache"), lambda out: out[0]),
        (lambda x: [x, None], lambda out: out[0]),
        (lambda x: Pair(x, 3), lambda out: out.hidden),
        (lambda x: {"attention": x + 1, "last_hidden_state": x}, lambda out: out["last_hidden_state"]),
        (lambda x: OrderedDict(hidden=x, other=1), lambda out: out["hidden"]),
        (lambda x: SimpleNamespace(loss=None, last_hidden_state=x), lambda out: out.last_hidden_state),
    ],
    ids=["tuple", "list", "namedtuple", "last_hidden_state", "dict", "object"],
)
def test_kinds_of_output(case: Case, make: Any, read: Any) -> None:
    kept = []

    def remember(x: Any) -> Any:
        kept.append(make(x))
        return kept[-1]

    model = torch.nn.Sequential(Returns(remember))
    with mute.intervene(model, "0", case.eraser):
        out = model(case.states)
    assert type(out) is type(kept[0])
    torch.testing.assert_close(read(out), Intervention(case.eraser)(case.states))
    torch.testing.assert_close(read(kept[0]), case.states)  # what the layer made is not changed
    if isinstance(out, tuple | list):
        assert list(out[1:]) == list(kept[0][1:])


@pytest.mark.filterwarnings("ignore::mute.WeakResultWarning")
def test_what_is_refused(case: Case) -> None:
    model, eraser = case.model, case.eraser
    narrow = LEACE().fit(case.rows[:, :5], case.labels)
    X, z = draw("gauss", 50, D, seed=0)
    for layer, method, settings, message in (
        ("layers.0", eraser, {}, "no layer 'layers.0'; did you mean 'encoder.layers.0'"),
        ("encoder.layer.0", eraser, {}, r"no layer 'encoder.layer.0'; did you mean 'encoder.layers.0"),
        ([], eraser, {}, "no layer was given"),
        ("head", eraser, {}, "layer 'head' gives states of 2 numbers, but the eraser was fitted on 8"),
        ("embedding", narrow, {}, "gives states of 8 numbers, but the eraser was fitted on 5"),
        (LAYER, narrow, {"target": "last"}, "LEACE makes no counterfactuals; leave target out"),
        (LAYER, eraser, {"target": "lost"}, "'lost', which was not seen in fit"),
        (LAYER, eraser, {"strength": 2}, "strength must be a number from 0 to 1, not 2"),
        (LAYER, eraser, {"positions": "first"}, 'positions must be "all", "last", a slice or'),
        (LAYER, eraser, {"positions": [1, 2]}, 'positions must be "all", "last", a slice or'),
        (LAYER, eraser.without_router(), {}, "no router; give concept="),
        (LAYER, MUtE(), {}, "not fitted"),
        (LAYER, mute.RBIG(2).fit(X), {}, "a RBIG cannot intervene"),
        (LAYER, PEF(random_state=0).fit(X, z), {}, "PEF is not affine, so it does not run on tensors"),
    ):
        with pytest.raises(MuteError, match=message), mute.intervene(model, layer, method, **settings):
            pass
    with (
        pytest.raises(MuteError, match="model must be a torch"),
        mute.intervene("m", "0", eraser),
    ):
        pass
    for make, message in (
        (lambda x: "text", "layer '0': it gives a str; hidden states are looked for in"),
        (
            lambda x: x[..., :3],
            r"layer '0': the hidden states are of shape \(800, 5, 3\), but the eraser",
        ),
        (lambda x: x.long(), "layer '0': the hidden state is a tensor of int64"),
    ):
        odd = torch.nn.Sequential(Returns(make))
        with mute.intervene(odd, "0", eraser), pytest.raises(MuteError, match=message):
            odd(case.states)


def test_without_torch(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    message = r'intervening in a model needs torch, which is not installed: pip install "mute-erasure\[torch\]"'
    with pytest.raises(MuteError, match=message), mute.intervene(case.model, LAYER, case.eraser):
        pass
    with pytest.raises(MuteError, match="a flow as a module needs torch"):
        case.eraser.flow_.to_torch()
    assert case.eraser.transform(case.rows[:2]).shape == (2, D)
