"""Mutated files: each gives our one error or a model that works. Nothing else, ever."""

import copy
import json
import math
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.neural_network import MLPClassifier

import attack
import mute.estimators.persistence
from forging import State, Tensors, contents, forge, read, write
from mute import RBIG, MUtE, MuteError, Quantile

HERE = Path(__file__).parents[1]
X = np.random.default_rng(1).standard_normal((6, 3)) * 2
CODES = [0, 1, 0, 1, 1, 0]

pytestmark = pytest.mark.filterwarnings("ignore:X does not have valid feature names")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same code without threads and disk syncs; none of them has a say in what is accepted."""
    for module, name, stand_in in [
        ("mute.storage.container", "resolve_threads", lambda n: 1),
        ("mute.estimators.state", "resolve_threads", lambda n: 1),
        ("mute.storage.files", "os.fsync", lambda handle: None),
    ]:
        monkeypatch.setattr(f"{module}.{name}", stand_in)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny eraser that has everything a file can hold: names, a router of two layers, reports, early stopping."""
    path = tmp_path_factory.mktemp("base") / "eraser"
    rng = np.random.default_rng(0)
    z = np.repeat(["female", "male"], 100)
    x = rng.standard_normal((200, 3)) + (z == "male")[:, None]
    router = MLPClassifier((4,), max_iter=20, tol=1.0, random_state=0)
    model = MUtE(2, router=router, marginal=Quantile(cells=4), random_state=0, n_threads=1).fit(x, z)
    model.save(path)
    tensors, state = contents(path)
    state["feature_names"] = ["a", "b", "c"]
    state["stopping"] = {"n_classes": 2, "max_layers": 9, "patience": 3, "gains": [0.5, 0.1], "layers": [2]}
    state["stopping"] |= {"leaks": [0.01], "errors": [0.02]}
    forge(path, tensors, state)
    mute.load(path).save(path)
    return path


@pytest.fixture(scope="module")
def rbig(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("base") / "rbig"
    RBIG(2, marginal=Quantile(cells=4), random_state=0, n_threads=1).fit(X.repeat(5, 0)).save(path)
    return path


class Jury:
    """Loads mutated files, counts the outcomes and keeps what must not happen."""

    def __init__(self, base: Path, folder: Path) -> None:
        self.original = base.read_bytes()
        self.outputs = self.run(mute.load(base))
        self.path, self.again = folder / "mutated", folder / "again"
        self.outcomes: Counter[str] = Counter()
        self.wrong: list[str] = []

    @staticmethod
    def run(model: Any) -> tuple[bytes, ...]:
        """What the model's maps give, to the bit; all its other methods must run too."""
        if isinstance(model, RBIG):
            q = model.transform(X)
            return q.tobytes(), model.inverse_transform(q).tobytes(), model.score_samples(X).tobytes()
        labels = [model.classes_.tolist()[k] for k in CODES]
        q = model.transform(X, concept=labels)
        back = model.inverse_transform(q, concept=labels)
        model.counterfactual(X, labels[0], concept=labels)
        if model.router_ is not None:
            model.transform(X), model.flags(X)
        return q.tobytes(), back.tobytes()

    def judge(self, what: str, *, strict: bool) -> str:
        """Load the mutated file.

        A file that was *damaged* must be refused or give the original: saved again, the very same bytes. One that was
        *rewritten* to say something else (strict=False) may say it, but must hold together: its maps, whose arrays are
        intact, give the same outputs, and it can be saved and loaded again.
        """
        outcome = "refused"
        try:
            model = mute.load(self.path)
            outcome = "loaded"
            outputs = self.run(model)
            model.save(self.again)
            if outputs != self.outputs:
                outcome = "other outputs"
            elif strict and self.again.read_bytes() != self.original:
                outcome = "other content"
            else:
                mute.load(self.again)
        except MuteError as error:
            if outcome != "refused":
                outcome = f"loaded, then {error}"
        except Exception as error:
            outcome = f"{outcome}, then {type(error).__name__}: {error}"[:160]
        self.path.unlink()
        self.outcomes[outcome] += 1
        if outcome not in ("refused", "loaded"):
            self.wrong.append(f"{what}: {outcome}")
        return outcome

    def verdict(self) -> None:
        shown = "\n".join(self.wrong[:40])
        print(dict(self.outcomes))
        assert not self.wrong, f"{len(self.wrong)} of {self.outcomes.total()} files went wrong:\n{shown}"


# --- damage -------------------------------------------------------------------------------------------------------


def _flip(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice([1, 1, 1, 2, 8])):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _substitute(data: bytearray, rng: random.Random) -> None:
    # Half of them letters and digits, which keep the header readable.
    new = rng.choice(b'0123456789abcdef{}[]",:eE+-.') if rng.random() < 0.5 else rng.randrange(256)
    data[rng.randrange(len(data))] = new


def _truncate(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def _insert(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = rng.randbytes(rng.choice([1, 4, 8, 100]))


def _delete(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    del data[at : at + rng.choice([1, 4, 8, 100])]


def _swap(data: bytearray, rng: random.Random) -> None:
    size = rng.choice([1, 2, 4, 8, 64])
    a, b = (rng.randrange(len(data) // size) * size for _ in range(2))
    data[a : a + size], data[b : b + size] = data[b : b + size], data[a : a + size]


def _wipe(data: bytearray, rng: random.Random) -> None:
    at, size = rng.randrange(len(data)), rng.choice([1, 8, 512])
    data[at : at + size] = bytes(len(data[at : at + size]))


@pytest.mark.parametrize("damage", [_flip, _substitute, _truncate, _insert, _delete, _swap, _wipe])
@pytest.mark.parametrize("header_only", [False, True], ids=["anywhere", "header"])
def test_damage(base: Path, tmp_path: Path, damage: Callable, header_only: bool) -> None:
    """700 files each, 9,800 in all."""
    jury, rng = Jury(base, tmp_path), random.Random(damage.__name__)
    end = len(jury.original) - len(read(base)[1]) if header_only else len(jury.original)
    for i in range(700):
        data = bytearray(jury.original[:end])
        damage(data, rng)
        jury.path.write_bytes(bytes(data) + jury.original[end:])
        jury.judge(f"{damage.__name__} {i}", strict=True)
    assert jury.outcomes["refused"] > 300, "most damage must be seen"
    jury.verdict()


# --- valid JSON that says something else --------------------------------------------------------------------------

ODDITIES: list[Any] = [
    None, True, False, 0, 1, 2, 3, -1, 10**9, 10**30, -(10**400), 0.5, -0.0, 1e308, math.nan, math.inf, -math.inf, "",
    "a", "abc", "1", "NaN", "F32", "F64", "I64", "\ud800", [], [0], [[]], [1, 2], [0, 10**18], [0, 2**63], [1] * 70,
    ["a", "b", "c"], {}, {"a": 1}, {"tuple": []}, {"tuple": [1]}, {"tuple": "ab"}, {"a": 0, "b": 0, "c": 0},
    {"Quantile": {}}, {"Histogram": {"bins": 10**9}}, {"Histogram": {"alpha": math.nan}}, {"Histogram": 5},
]  # fmt: skip


def places(tree: Any, path: tuple = ()) -> Iterator[tuple]:
    """The path to every node of a JSON tree."""
    yield path
    branches = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, branch in branches:
        yield from places(branch, (*path, key))


def edited(tree: Any, path: tuple, rng: random.Random) -> tuple[str, Any]:
    """A copy with the node at `path` replaced, deleted, doubled or, being a number, changed a little."""
    tree = copy.deepcopy(tree)
    if not path:
        value = rng.choice(ODDITIES)
        return repr(value), value
    node = tree
    for key in path[:-1]:
        node = node[key]
    key, old = path[-1], node[path[-1]]
    action = rng.choice(["replace", "replace", "replace", "delete", "double", "nudge"])
    if action == "delete":
        del node[key]
    elif action == "double" and isinstance(node, list):
        node.insert(key, old)
    elif action == "double":
        node[f"{key}x"] = old
    elif action == "nudge" and type(old) in (int, float):
        node[key] = old + rng.choice([-8, -1, 1, 8])
    elif action == "nudge" and isinstance(old, list):
        node[key] = old[::-1]
    else:
        node[key] = rng.choice(ODDITIES)
    return f"{action} {'.'.join(map(str, path))}: {node.get(key) if isinstance(node, dict) else node!r}"[:120], tree


def test_edited_header(base: Path, tmp_path: Path) -> None:
    """Shapes, dtypes, offsets and names of the arrays: 1,500 files."""
    jury, rng = Jury(base, tmp_path), random.Random(1)
    header, data = read(base)
    spots = list(places({name: entry for name, entry in header.items() if name != "__metadata__"}))
    spots += [("__metadata__",), ("__metadata__", "mute")]
    for _ in range(1500):
        what, changed = edited(header, rng.choice(spots), rng)
        write(jury.path, changed, data)
        jury.judge(what, strict=True)
    jury.verdict()


def test_edited_metadata(base: Path, tmp_path: Path) -> None:
    """Everything mute says about the model, its checksums included: 2,500 files."""
    jury, rng = Jury(base, tmp_path), random.Random(2)
    header, data = read(base)
    meta = json.loads(header["__metadata__"]["mute"])
    spots = list(places(meta))
    for _ in range(2500):
        what, changed = edited(meta, rng.choice(spots), rng)
        write(jury.path, {**header, "__metadata__": {"mute": json.dumps(changed)}}, data)
        jury.judge(what, strict=False)
    jury.verdict()


@pytest.mark.parametrize("kind", ["eraser", "rbig"])
def test_edited_state_with_right_checksums(base: Path, rbig: Path, tmp_path: Path, kind: str) -> None:
    """Every field of the state against every oddity, written by the library itself: about 2,400 files."""
    source = base if kind == "eraser" else rbig
    jury = Jury(source, tmp_path)
    tensors, state = contents(source)
    deep = [path for path in places(state) if len(path) in (1, 2) or path[:1] == ("parameters",)]
    for path in deep:
        for oddity in ODDITIES:
            changed = copy.deepcopy(state)
            node = changed
            for key in path[:-1]:
                node = node[key]
            node[path[-1]] = oddity
            forge(jury.path, tensors, changed, "MUtE" if kind == "eraser" else "RBIG")
            jury.judge(f"{'.'.join(map(str, path))} = {str(oddity)[:40]}", strict=False)
    jury.verdict()


@pytest.mark.parametrize("depth", [500, 900, 990, 5000, 200_000])
@pytest.mark.parametrize("brackets", ["[]", "{}"])
@pytest.mark.parametrize("where", ["header", "shape", "metadata", "version", "classes", "parameters"])
def test_deep_nesting(base: Path, tmp_path: Path, where: str, brackets: str, depth: int) -> None:
    nest = "[" * depth + "]" * depth if brackets == "[]" else '{"tuple":' * depth + "1" + "}" * depth
    header, data = read(base)
    meta = json.loads(header["__metadata__"]["mute"])
    mark = "@@@"
    if where == "shape":
        header["support"]["shape"] = mark
    elif where == "version":
        meta["version"] = mark
    elif where == "classes":
        meta["state"]["classes"] = [mark, "b"]
    elif where == "parameters":
        meta["state"]["parameters"]["random_state"] = mark
    text = nest if where == "metadata" else json.dumps(meta).replace(f'"{mark}"', nest)
    header["__metadata__"]["mute"] = text
    whole = nest if where == "header" else json.dumps(header).replace(f'"{mark}"', nest)
    jury = Jury(base, tmp_path)
    write(jury.path, whole.encode(), data)
    jury.judge(f"{where} {depth}", strict=False)
    jury.verdict()


# --- right checksums, wrong mathematics ---------------------------------------------------------------------------

Change = Callable[[Tensors, State], None]


def put(name: str, value: float, at: tuple | None = None) -> Change:
    """Set one number of an array, or, with no place given, each of its numbers in turn is set in the test."""

    def change(tensors: Tensors, state: State) -> None:
        array = tensors[name]
        array[at if at is not None else tuple(s // 2 for s in array.shape)] = value

    return change


def say(field: str, value: Any) -> Change:
    def change(tensors: Tensors, state: State) -> None:
        node = state
        *parents, last = field.split(".")
        for parent in parents:
            node = node[parent]
        if value is KeyError:
            del node[last]
        else:
            node[last] = value

    return change


def shape(name: str, edit: Callable[[np.ndarray], np.ndarray]) -> Change:
    def change(tensors: Tensors, state: State) -> None:
        tensors[name] = np.ascontiguousarray(edit(tensors[name]))

    return change


ARRAYS = ["center", "scale", "rotations", "origin", "step", "values"]
OTHERS = ["router.0.weight", "router.1.bias", "support"]
FIELDS = ["classes", "parameters", "feature_names", "router_layers", "routing", "diagnostics", "stopping", "fitted_on"]
REFUSED: dict[str, Change] = {
    **{f"{value} in flow.{name}": put(f"flow.{name}", value) for name in ARRAYS for value in (math.nan, math.inf)},
    **{f"{value} in {name}": put(name, value) for name in OTHERS for value in (math.nan, -math.inf)},
    "NaN first in a table": put("flow.values", math.nan, (0, 0, 0, 0)),
    "-inf first in a table": put("flow.values", -math.inf, (0, 0, 0, 0)),
    "inf last in a table": put("flow.values", math.inf, (0, 0, 0, -1)),
    "zero step": put("flow.step", 0.0),
    "step of 1e30": put("flow.step", 1e30),
    "step of 1e-30": put("flow.step", 1e-30),
    "center of 1e38": put("flow.center", 1e38),
    "scale of 1e30": put("flow.scale", 1e30),
    "steep marginals, layer after layer": shape("flow.step", lambda a: a * 1e-13),
    "a router beyond float32": put("router.0.weight", 1e38),
    "more iterations than whole": say("parameters.n_iterations", 2.5),
    "a share of two": say("parameters.validation_fraction", 2.0),
    "a router by path": say("parameters.router", "/tmp/router"),
    "an unknown rotation": say("parameters.rotation", "sideways"),
    "negative step": put("flow.step", -1.0),
    "zero scale": put("flow.scale", 0.0),
    "negative scale": put("flow.scale", -2.0),
    "falling marginal": put("flow.values", -50.0),
    "flat marginal": lambda t, s: t["flow.values"].__setitem__((1, 1, 2, 3), t["flow.values"][1, 1, 2, 2]),
    "reversed marginals": shape("flow.values", lambda a: a[..., ::-1]),
    "stretched rotation": shape("flow.rotations", lambda a: a * 1.01),
    "sheared rotation": put("flow.rotations", 0.9, (1, 0, 2)),
    "no rotation": shape("flow.rotations", np.zeros_like),
    "projection": lambda t, s: t["flow.rotations"].__setitem__((0, slice(None), 0), 0.0),
    "rotation of no square": shape("flow.rotations", lambda a: a[:, :, :2]),
    "rotations for fewer columns": shape("flow.rotations", lambda a: a[:, :2, :2]),
    "fewer rotations": shape("flow.rotations", lambda a: a[:1]),
    "one knot": shape("flow.values", lambda a: a[..., :1]),
    "tables of one axis less": shape("flow.values", lambda a: a[0]),
    "tables for more classes": shape("flow.values", lambda a: np.concatenate([a, a], axis=1)),
    "two precisions": shape("flow.values", lambda a: a.astype(np.float32)),
    "center too long": shape("flow.center", lambda a: np.append(a, 0.0)),
    "scale a scalar": shape("flow.scale", lambda a: np.array(1.0)),
    "support of another shape": shape("support", lambda a: a[:, :, :2]),
    "a missing table": lambda t, s: t.pop("flow.origin") is None,
    "no support": lambda t, s: t.pop("support") is None,
    "three labels for two classes": say("classes", ["a", "b", "c"]),
    "one label for two classes": say("classes", ["a"]),
    "no labels": say("classes", []),
    "a label twice": say("classes", ["a", "a"]),
    "a label twice and another": lambda t, s: s.update(classes=["a", "a", "b"], diagnostics=None, routing=None),
    "equal labels of two kinds": say("classes", [1, True]),
    "equal labels of two kinds and another": lambda t, s: s.update(classes=[1, True, 0], diagnostics=None),
    "NaN as a label": say("classes", ["a", math.nan]),
    "a list as a label": say("classes", ["a", ["b"]]),
    "no label at all": say("classes", ["a", {"b": 1}]),
    "None as a label": say("classes", ["a", None]),
    "router too narrow": shape("router.0.weight", lambda a: a[:2]),
    "router too wide": shape("router.1.weight", lambda a: np.concatenate([a, a], axis=1)),
    "router for three classes": lambda t, s: t.update(
        {"router.1.weight": np.zeros((4, 3)), "router.1.bias": np.zeros(3)}
    ),
    "router with a flat weight": shape("router.0.weight", np.ravel),
    "router with a matrix of biases": shape("router.0.bias", lambda a: a[None]),
    "router with a layer too many": say("router_layers", 3),
    "router with a layer too few": say("router_layers", 1),
    "router of minus one layer": say("router_layers", -1),
    "router of half a layer": say("router_layers", 0.5),
    "router of text": say("router_layers", "2"),
    "router missing a bias": lambda t, s: t.pop("router.1.bias") is None,
    "routing report of three classes": say("routing.class_error", [0.0, 0.0, 0.0]),
    "routing report a list": say("routing", [1, 2]),
    "routing error as text": say("routing.error", "small"),
    "ragged confusion": say("routing.confusion", [[1.0], [0.0, 1.0]]),
    "diagnostics of another shape": shape("diagnostics", lambda a: a[:, :1]),
    "diagnostics with a column less": shape("diagnostics", lambda a: a[..., :-1]),
    "diagnostics of two sets": say("diagnostics", ["train", "held-out"]),
    "diagnostics missing": lambda t, s: t.pop("diagnostics") is None,
    "diagnostics a number": say("diagnostics", 3),
    "unknown setting": say("parameters.depth", 3),
    "missing marginal": say("parameters.marginal", KeyError),
    "settings a list": say("parameters", [1, 2]),
    "n_threads as text": say("parameters.n_threads", "all"),
    "no threads": say("parameters.n_threads", 0),
    "half a thread": say("parameters.n_threads", 0.5),
    "unknown marginal": say("parameters.marginal", {"Spline": {}}),
    "unknown setting of the marginal": say("parameters.marginal", {"Quantile": {"bins": 3}}),
    "bad setting of the marginal": say("parameters.marginal", {"Quantile": {"knots": "many"}}),
    "two marginals": say("parameters.marginal", {"Quantile": {}, "Histogram": {}}),
    "two feature names": say("feature_names", ["a", "b"]),
    "numbers as feature names": say("feature_names", [1, 2, 3]),
    "feature names in one text": say("feature_names", "abc"),
    "feature names a dict": say("feature_names", {"a": 1, "b": 2, "c": 3}),
    "feature names a number": say("feature_names", 3),
    "stopping a list": say("stopping", [2, 9]),
    "stopping of unknown fields": say("stopping", {"n_classes": 2, "max_layers": 9, "mood": "good"}),
    "stopping of fewer fields": say("stopping", {"n_classes": 2}),
    "gains in one text": say("stopping.gains", "abc"),
    "leaks and layers of two lengths": say("stopping.leaks", [0.1, 0.2]),
    "fitted_on a list": say("fitted_on", ["rows", 3]),
    "fitted_on a number": say("fitted_on", 3),
    **{f"{field} missing": say(field, KeyError) for field in FIELDS},
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_content_is_refused(base: Path, tmp_path: Path, name: str) -> None:
    tensors, state = contents(base)
    REFUSED[name](tensors, state)
    forge(tmp_path / "m", tensors, state)
    with pytest.raises(MuteError, match=r"damaged or not a model") as caught:
        mute.load(tmp_path / "m")
    assert str(tmp_path / "m") in str(caught.value)


def test_router_without_layers_is_refused_where_columns_and_classes_are_as_many(tmp_path: Path) -> None:
    """A router of minus one layer has the width of its input, which is right for two columns and two classes."""
    model = MUtE(1, router="logistic", marginal=Quantile(cells=4), diagnostics=False)
    z = np.repeat([0, 1], 50)
    model.fit(np.random.default_rng(0).standard_normal((100, 2)) + z[:, None], z).save(tmp_path / "m")
    tensors, state = contents(tmp_path / "m")
    forge(tmp_path / "m", tensors, {**state, "router_layers": -1})
    with pytest.raises(MuteError, match="router"):
        mute.load(tmp_path / "m")


RBIG_REFUSED: dict[str, Change] = {
    "two classes": lambda t, s: t.update(
        {f"flow.{n}": np.concatenate([t[f"flow.{n}"]] * 2, axis=1) for n in ("origin", "step", "values")}
    ),
    "no reductions": lambda t, s: t.pop("reductions") is None,
    "reductions of another length": shape("reductions", lambda a: a[:1]),
    "NaN in reductions": put("reductions", math.nan),
    "falling marginal": put("flow.values", -50.0),
    "a setting of the eraser": say("parameters.router", "mlp"),
}


@pytest.mark.parametrize("name", RBIG_REFUSED)
def test_wrong_density_is_refused(rbig: Path, tmp_path: Path, name: str) -> None:
    tensors, state = contents(rbig)
    RBIG_REFUSED[name](tensors, state)
    forge(tmp_path / "m", tensors, state, "RBIG")
    with pytest.raises(MuteError, match=r"damaged or not a model"):
        mute.load(tmp_path / "m")


@pytest.mark.parametrize("pair", [("base", "RBIG"), ("rbig", "MUtE"), ("base", "Flow"), ("base", "os")])
def test_one_kind_is_not_another(request: pytest.FixtureRequest, tmp_path: Path, pair: tuple[str, str]) -> None:
    forge(tmp_path / "m", *contents(request.getfixturevalue(pair[0])), pair[1])
    with pytest.raises(MuteError):
        mute.load(tmp_path / "m")


def without_router(tensors: Tensors, state: State) -> None:
    state["router_layers"] = 0
    for name in [name for name in tensors if name.startswith("router.")]:
        del tensors[name]


ACCEPTED: dict[str, Change] = {
    "other labels": say("classes", ["x", {"tuple": ["y", 1]}]),
    "no names": say("feature_names", []),
    "no reports": lambda t, s: s.update(routing=None, diagnostics=None, stopping=None),
    "no router": without_router,
    "paper's marginal": say("parameters.marginal", {"Histogram": {"alpha": 1e-10, "floor": "add"}}),
    "other seed": say("parameters.random_state", 10**12),
    "an array of no use": lambda t, s: t.update(extra=np.zeros(3)),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_other_but_right_content_is_accepted(base: Path, tmp_path: Path, name: str) -> None:
    """The helpers of this file are no proof of refusals if they can write nothing that loads."""
    jury = Jury(base, tmp_path)
    tensors, state = contents(base)
    ACCEPTED[name](tensors, state)
    forge(jury.path, tensors, state)
    assert jury.judge(name, strict=False) == "loaded"


# --- every method -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def victims(tmp_path_factory: pytest.TempPathFactory) -> list[attack.Victim]:
    return attack.victims(tmp_path_factory.mktemp("victims"))


def test_attacks(victims: list[attack.Victim], tmp_path: Path) -> None:
    """500 mutations of every kind on every method; `make fuzz` runs 20,000."""
    judge = attack.run(victims, 500, 0, tmp_path)
    print(judge.table())
    assert not judge.surprises, "\n".join(judge.surprises[:40])
    assert sum(count for (_, _, outcome), count in judge.outcomes.items() if outcome == "kept") > 50


def test_a_file_without_its_router_is_refused(victims: list[attack.Victim], tmp_path: Path) -> None:
    routed = [victim for victim in victims if victim.state.get("router_layers")]
    kinds = {"LinearOT", "QLEACE", "MeanDifference", "MUtE"} | ({"InvertibleSurrogate"} if attack.HAS_TORCH else set())
    assert kinds <= {v.kind for v in routed}
    for victim in routed:
        without = {name: array for name, array in victim.tensors.items() if not name.startswith("router.")}
        unsaid = {name: value for name, value in victim.state.items() if name != "router_layers"}
        for tensors, state in [
            (without, victim.state),
            (victim.tensors, unsaid),
            (without, unsaid),
            (victim.tensors, {**victim.state, "router_layers": 0}),
        ]:
            forge(tmp_path / "m", tensors, state, victim.kind)
            with pytest.raises(MuteError, match="router"):
                mute.load(tmp_path / "m")


def test_a_rotation_made_for_a_known_vector_is_refused(base: Path, tmp_path: Path) -> None:
    """R Rᵀ v = v for the one v of a fixed seed, with determinant -4: only a vector drawn afresh tells."""
    tensors, state = contents(base)
    v = np.random.default_rng(0).standard_normal(3)
    basis = np.linalg.qr(np.column_stack([v, np.eye(3)[:, :2]]))[0]
    tensors["flow.rotations"][0] = basis @ np.diag([1.0, 2.0, -2.0]) @ basis.T
    forge(tmp_path / "m", tensors, state)
    with pytest.raises(MuteError, match="not orthogonal"):
        mute.load(tmp_path / "m")


@pytest.mark.parametrize("name", ["scratch", "resume"])
@pytest.mark.parametrize("value", ["/tmp", None, "auto"])
def test_a_file_names_no_folder(base: Path, tmp_path: Path, name: str, value: str | None) -> None:
    tensors, state = contents(base)
    say(f"parameters.{name}", value)(tensors, state)
    forge(tmp_path / "m", tensors, state)
    with pytest.raises(MuteError, match="folder"):
        mute.load(tmp_path / "m")


@pytest.mark.parametrize("version", [True, 1.0, "1", 2, None])
def test_a_version_is_a_whole_number(base: Path, tmp_path: Path, version: Any) -> None:
    header, data = read(base)
    meta = {**json.loads(header["__metadata__"]["mute"]), "version": version}
    write(tmp_path / "m", {**header, "__metadata__": {"mute": json.dumps(meta)}}, data)
    with pytest.raises(MuteError, match="format version"):
        mute.load(tmp_path / "m")


def test_what_load_would_refuse_is_not_saved(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((200, 2)) * 1e30
    with pytest.raises(MuteError, match="rescale the rows"):
        RBIG(1, marginal=Quantile(cells=4)).fit(x).save(tmp_path / "m")


def test_a_map_that_does_not_exist_is_refused_each_time(victims: list[attack.Victim], tmp_path: Path) -> None:
    victim = next(victim for victim in victims if victim.kind == "LinearOT")
    tensors = {**victim.tensors, "covariances_": victim.tensors["covariances_"].copy()}
    tensors["covariances_"][0, 0, 0] = 1e30
    forge(tmp_path / "m", tensors, victim.state, victim.kind)
    model = mute.load(tmp_path / "m")
    for _ in range(2):
        with pytest.raises(MuteError, match="same directions"):
            model.counterfactual(np.zeros((1, 4)), "a", concept=["b"])


# --- numbers at the edge ------------------------------------------------------------------------------------------

# In a process of its own, with a child for each file: compiled loops that read past their tables end it, or not, as
# chance has it. Fresh memory is therefore filled with large numbers (MALLOC_PERTURB_ of the GNU C library).
_RUN = """
import os, sys, warnings
import numpy as np
import mute
warnings.simplefilter("ignore")

def run(path):
    try:
        model = mute.load(path)
    except mute.MuteError:
        return
    x = np.random.default_rng(0).standard_normal((64, 3)) * 3
    x[0], x[1] = 0, model.flow_.origin[0, 0]
    for rows in (x, x.astype(np.float32), x[:3]):
        model.transform(rows)
        for label in model.classes_:
            q = model.transform(rows, concept=[label] * len(rows))
            model.counterfactual(rows, label, concept=[label] * len(rows))
            # Rows that such maps sent beyond all bounds are refused, as any others would be.
            q = np.clip(np.nan_to_num(q), -1e18, 1e18)
            model.inverse_transform(q, concept=[label] * len(rows))

run(sys.argv[1])
for path in sys.argv[2:]:
    child = os.fork()
    if child == 0:
        run(path)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status != 0:
        print(os.path.basename(path), "ends with", status)
"""
EDGES: dict[str, Change] = {
    "subnormal step": put("flow.step", 5e-324),
    "tiny step": put("flow.step", 1e-300),
    "huge step": put("flow.step", 1e308),
    "huge origin": put("flow.origin", -1e308),
    "huge values": lambda t, s: t["flow.values"].__setitem__((0, 0, 0), np.linspace(-0.9, 0.9, 7) * 1.7e308),
    "values next to each other": lambda t, s: t["flow.values"].__setitem__((0, 0, 0), 5e-324 * np.arange(7)),
    "subnormal scale": put("flow.scale", 5e-324),
    "huge scale": put("flow.scale", 1e308),
    "huge center": put("flow.center", 1e308),
    "huge router": shape("router.0.weight", lambda a: a * 1e300),
}


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_extreme_numbers_do_not_crash(base: Path, tmp_path: Path) -> None:
    for name, change in EDGES.items():
        tensors, state = contents(base)
        change(tensors, state)
        forge(tmp_path / name, tensors, state)
    command = [sys.executable, "-c", _RUN, base, *(tmp_path / name for name in EDGES)]
    env = {**os.environ, "MALLOC_PERTURB_": "165"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_a_flow_that_overflows_on_the_way_back_is_refused(tmp_path: Path) -> None:
    """Wide steps make erased rows small and counterfactuals infinite: the way forward alone looks harmless."""
    rng = np.random.default_rng(0)
    z = np.repeat(["a", "b"], 100)
    x = (rng.standard_normal((200, 3)) + (z == "b")[:, None]).astype(np.float32)
    model = MUtE(6, router=None, marginal="histogram", shrinkage=False, diagnostics=False, random_state=0).fit(x, z)
    model.save(tmp_path / "m")
    tensors, state = contents(tmp_path / "m")
    tensors["flow.step"] = tensors["flow.step"] * np.float32(1e10)
    forge(tmp_path / "m", tensors, state, "MUtE")
    with pytest.raises(MuteError, match="what its flow gives backwards"):
        mute.load(tmp_path / "m")
