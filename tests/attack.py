"""Attacks on model files: one mutation of a small fitted model, with right checksums, loaded and held to its promises.

    python tests/attack.py 20000 --seed 0

prints a table of outcomes by kind of mutation and by method. docs/format.md lists the promises.
"""

import argparse
import contextlib
import copy
import math
import random
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

import mute
from forging import State, Tensors, contents, forge
from laws import draw
from mute import MuteError
from mute.adversaries.cells import learn_cells
from mute.adversaries.estimates import Estimate
from mute.budget.search import Point
from mute.estimators.conditional import Invertible
from mute.estimators.registry import METHODS
from test_family import fitted

KINDS = ("dtype", "shape", "value", "extreme", "absent", "doubled")
OUTCOMES = ("refused", "kept", "surprise")
HAS_TORCH = find_spec("torch") is not None
NAMES = [name for name, method in METHODS.items() if name != "none" and (HAS_TORCH or not method.torch)]
# Erasers that lose something after their map, which no fit of so few rows would choose.
SPENT = {"mute-budget": "mute", "mute-bits": "mute", "leace-budget": "leace", "mute-cells": "mute"}
NAMES += SPENT
_MOST_SECONDS, _MOST_KILOBYTES = 5.0, 500_000

EXTREMES = [math.nan, math.inf, -math.inf, 1e18, -1e30, 1e30, 1e35, 1e38, -1e38, 1e300, 1e-30, 1e-300, 5e-324, 0.0]
ODD: dict[str, list[Any]] = {
    "dtype": [None, True, 0, 1, 1.0, 2.5, "", "a", "1", [], [1], {}, {"a": 1}],
    "extreme": [
        -1, 0, 10**9, 10**30, -(10**400), 1e308, -1e308, 1e-308, math.nan, math.inf, "\ud800", "x" * 10_000,
        "/etc/passwd", [0] * 1000, [[[[]]]], {"Histogram": {"bins": 10**12}}, {"Quantile": {"cells": 10**12}},
    ],
    "value": ["mlp", "logistic", "teacher", "auto", "random", "alternate", "leace", "cuda", 0.5, 3, 7, True, None],
}  # fmt: skip


class Victim(NamedTuple):
    """A small fitted model as the parts of its file."""

    name: str
    kind: str
    tensors: Tensors
    state: State


class Attack(NamedTuple):
    kind: str
    what: str
    tensors: Tensors
    state: State
    doubled: str = ""


def victims(folder: Path, names: list[str] = NAMES) -> list[Victim]:
    """One fitted model of each method; half of them in float32."""
    X, z = draw("skew", 120, 4, seed=0, n_classes=2)
    found = []
    for i, name in enumerate(names):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows, labels = X.astype(np.float32 if i % 2 else np.float64), np.array(["b", "a"])[z]
            model = fitted(SPENT.get(name, name), rows, labels)
            model = spend(name, model, rows) if name in SPENT else model
            model.save(folder / "victim")
        found.append(Victim(name, type(model).__name__, *contents(folder / "victim")))
    return found


def spend(name: str, eraser: Any, X: NDArray) -> Any:
    """The eraser with cells, or with a channel that keeps half, or with one bit of each column."""
    Q = eraser.transform(X)
    if name == "mute-cells":
        eraser.cells_ = learn_cells(Q, 8)
        return eraser
    model = eraser
    if name == "leace-budget":
        model = mute.Budgeted(clone(eraser), 0.05)
        model.eraser_, model.fitted_on_, model._encoder = eraser, eraser.fitted_on_, eraser._encoder
        model.n_features_in_ = model._n_features_out = X.shape[1]
    point = Point("one bit" if name == "mute-bits" else "noise", 0.5, Estimate(0.03, 0.02, 0.04), "neighbours", 0.5)
    model._open_channel(point, Q, X, "0")
    model.leak_, model.r2_ = point.leak, point.r2
    model.budget_ = {"max_leak": 0.05, "rows": len(X), **point.to_json(), "judged": [point.to_json()]}
    return model


# --- mutations ----------------------------------------------------------------------------------------------------


def attack(victim: Victim, kind: str, rng: random.Random) -> Attack:
    """A random mutation of this kind: of an array, of a setting, or of anything else that the file says."""
    tensors, state = dict(victim.tensors), copy.deepcopy(victim.state)
    if rng.random() < 0.5:
        name = rng.choice(list(tensors))
        return Attack(kind, f"{name}: {_mutate_array(tensors, name, kind, rng)}", tensors, state)
    places = list(_places(state["parameters"], ("parameters",)) if rng.random() < 0.6 else _places(state))
    path = rng.choice([place for place in places if place])
    what, doubled = _mutate_state(state, path, kind, rng)
    return Attack(kind, f"{'.'.join(map(str, path))}: {what}"[:120], tensors, state, doubled)


def _mutate_array(tensors: Tensors, name: str, kind: str, rng: random.Random) -> str:
    array = tensors[name]
    if kind == "dtype":
        new = np.dtype(rng.choice(["<f4", "<f8", "<f2", "<i4", "?", "<u8"]))
        with np.errstate(all="ignore"):
            tensors[name] = array.astype(new)
        return new.name
    if kind == "shape":
        axis = rng.randrange(array.ndim)
        what, new = rng.choice(
            [
                ("reversed axes", array.T), ("flat", array.ravel()), ("one axis more", array[None]),
                ("empty", array.take([], axis)), ("one less", array.take(range(array.shape[axis] - 1), axis)),
                ("one more", np.concatenate([array, array.take([0], axis)], axis)), ("a scalar", np.array(1.0)),
                ("first only", array.take([0], axis)),
            ]
        )  # fmt: skip
        tensors[name] = np.ascontiguousarray(new)
        return what
    if kind == "absent":
        del tensors[name]
        return "absent"
    if kind == "doubled":
        axis = rng.randrange(array.ndim)
        other = rng.choice(list(tensors))
        match rng.randrange(3):
            case 0:
                tensors[f"{name}.{rng.choice(['0.weight', 'x', '9'])}"] = array
                return "a second name"
            case 1:
                tensors[name] = np.concatenate([array, array], axis)
                return f"twice along axis {axis}"
            case _:
                tensors[name] = tensors[other].copy()
                return f"that of {other}"
    tensors[name] = array = array.copy()
    if not array.size:
        return "empty as before"
    at = np.unravel_index(rng.randrange(array.size), array.shape) if rng.random() < 0.6 else ...
    with np.errstate(all="ignore"):
        if kind == "extreme" and rng.random() < 0.6:
            number = rng.choice(EXTREMES)
            array[at] = number
            return f"{number} {'everywhere' if at is ... else 'once'}"
        factors = [1e30, 1e-30, -1e30, 1e10, 1e-10] if kind == "extreme" else [-1.0, 0.0, 0.5, 1.01, 2.0, 1.0]
        factor, shift = rng.choice(factors), 0.0 if kind == "extreme" else rng.choice([0.0, 0.0, 1e-3, 1.0, -3.0])
        array[at] = array[at] * factor + shift
        if at is ... and kind == "value" and rng.random() < 0.3:
            array[...] = np.random.default_rng(rng.randrange(10**6)).permuted(array, axis=rng.randrange(array.ndim))
    return f"times {factor} plus {shift} {'everywhere' if at is ... else 'once'}"


def _places(tree: Any, path: tuple = ()) -> Iterator[tuple]:
    yield path
    branches = tree.items() if isinstance(tree, dict) else enumerate(tree[:20]) if isinstance(tree, list) else ()
    for key, branch in branches:
        yield from _places(branch, (*path, key))


def _mutate_state(state: State, path: tuple, kind: str, rng: random.Random) -> tuple[str, str]:
    node: Any = state
    for key in path[:-1]:
        node = node[key]
    key, old = path[-1], node[path[-1]]
    if kind == "absent":
        del node[key]
        return "absent", ""
    if kind == "doubled" and isinstance(node, dict):
        node[f"@{key}"] = rng.choice([old, None, 1])
        return "named twice", key
    if kind == "doubled":
        node.insert(key, old)
        return "an entry twice", ""
    if kind == "shape":
        shapes = [[old], [], {}, {"a": old}]
        shapes += [old[:-1], old[::-1], old + old] if isinstance(old, list) else []
        node[key] = rng.choice(shapes)
    elif kind == "value" and isinstance(old, bool):
        node[key] = not old
    elif kind == "value" and isinstance(old, int | float):
        node[key] = rng.choice([old + 1, old - 1, -old, 2 * old, old / 2, 0])
    else:
        node[key] = rng.choice(ODD[kind])
    return repr(node[key]), ""


# --- promises -----------------------------------------------------------------------------------------------------


class BrokenPromiseError(Exception):
    """A promise of docs/format.md that a loaded model does not keep."""


def hold(what: str, kept: Any) -> None:
    if not bool(kept):
        raise BrokenPromiseError(what)


def check_promises(model: Any, again: Path) -> None:
    """Use a loaded model on ordinary rows and hold it to what docs/format.md promises."""
    X = _ordinary_rows(model)
    repr(model), str(getattr(model, "diagnostics_", "")), str(getattr(model, "routing_", ""))
    flow = getattr(model, "flow_", None)
    if flow is not None:
        gap = np.abs(flow.rotations @ flow.rotations.transpose(0, 2, 1) - np.eye(flow.n_features)).max()
        hold("orthogonal rotations", gap < (1e-2 if flow.dtype == np.float32 else 1e-7))
        hold("increasing marginals", (np.diff(flow.values, axis=-1) > 0).all() and (flow.step > 0).all())
    for rows in (X, X.astype(np.float32)):
        outputs = _outputs(model, rows)
        for name, out in outputs.items():
            hold(f"shape and precision of {name}", out.shape == rows.shape and out.dtype == rows.dtype)
            hold(f"finite {name} of {rows.dtype}", np.isfinite(out).all())
        lossless = getattr(model, "channel_", None) is None and getattr(model, "cells_", None) is None
        if lossless and rows.dtype == np.float64 and "inverse_transform" in outputs:
            _check_round_trip(model, rows, outputs)
    if hasattr(model, "score_samples"):
        hold("finite log-densities", np.isfinite(model.score_samples(X)).all())
    model.save(again)
    same = mute.load(again)
    hold("the same outputs when stored again", all(
        np.array_equal(a, b) for a, b in zip(_outputs(model, X).values(), _outputs(same, X).values(), strict=True)
    ))  # fmt: skip


def _ordinary_rows(model: Any) -> NDArray:
    rows = np.random.default_rng(7).standard_normal((32, model.n_features_in_))
    if hasattr(model, "flow_"):
        return rows * model.flow_.scale + model.flow_.center
    return rows * getattr(model, "scale_", 1.0) + getattr(model, "center_", 0.0)


def _outputs(model: Any, X: NDArray) -> dict[str, NDArray]:
    """What the maps give, each by the name of its method."""
    if not hasattr(model, "classes_"):
        q = model.transform(X)
        back = {"inverse_transform": model.inverse_transform(q)} if hasattr(model, "inverse_transform") else {}
        return {"transform": q, **back}
    classes = list(model._encoder.classes)
    labels = np.empty(len(X), object)
    labels[:] = [classes[i % len(classes)] for i in range(len(X))]
    q = model.transform(X, concept=labels)
    outputs = {"transform": q}
    if hasattr(model, "counterfactual"):
        for i, label in enumerate(classes):
            # Classes that do not vary in the same directions have no map between them; only a use tells.
            with contextlib.suppress(MuteError) if hasattr(model, "covariances_") else contextlib.nullcontext():
                outputs[f"counterfactual {i}"] = model.counterfactual(X, label, concept=labels)
    if isinstance(model, Invertible):
        outputs["inverse_transform"] = model.inverse_transform(q, concept=labels)
    if not model.needs_concept:
        outputs["routed transform"] = model.transform(X)
    if getattr(model, "router_", None) is not None and hasattr(model, "route"):
        hold("a known class for each row", all(label in classes for label in model.route(X).tolist()))
    return outputs


def _check_round_trip(model: Any, X: NDArray, outputs: dict[str, NDArray]) -> None:
    flow = getattr(model, "flow_", None)
    if flow is not None:
        slopes = np.diff(flow.values, axis=-1) / flow.step[..., None]
        if slopes.min() < 0.1 or slopes.max() > 10:
            return  # the promise is for moderate slopes
    elif not hasattr(model, "pushes_"):
        return  # an invertible network has no bound on its slopes
    size = max(np.abs(part).max() for part in (X, outputs["transform"]))
    if flow is not None:
        size = max(size, np.abs(flow.origin).max() * flow.scale.max(), np.abs(flow.values).max() * flow.scale.max())
    hold("a way back", np.abs(outputs["inverse_transform"] - X).max() <= 1e-5 * size)


class Judge:
    """Writes the attacks to files, loads them and counts the outcomes."""

    def __init__(self, folder: Path) -> None:
        self.path, self.again = folder / "attacked", folder / "again"
        self.outcomes: Counter[tuple[str, str, str]] = Counter()
        self.surprises: list[str] = []

    def judge(self, victim: Victim, attack: Attack) -> str:
        forge(self.path, attack.tensors, attack.state, victim.kind, attack.doubled)
        before, start, loaded, surprise = _peak(), time.process_time(), False, ""
        try:
            with _alarm(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = mute.load(self.path)
                loaded = True
                check_promises(model, self.again)
        except MuteError as error:
            surprise = f"loads, then refuses ordinary rows: {error}"[:160] if loaded else ""
        except Exception as error:
            surprise = f"{'loads, then ' if loaded else ''}{type(error).__name__}: {error}"[:160]
        if time.process_time() - start > _MOST_SECONDS or _peak() - before > _MOST_KILOBYTES:
            surprise = surprise or f"{time.process_time() - start:.1f} s, {(_peak() - before) / 1000:.0f} MB"
        outcome = "surprise" if surprise else "kept" if loaded else "refused"
        if surprise:
            self.surprises.append(f"{victim.name}, {attack.kind}, {attack.what}: {surprise}")
        self.outcomes[attack.kind, victim.name, outcome] += 1
        return outcome

    def table(self) -> str:
        """Methods by kinds of mutation; each cell is refused / loads and keeps its promises / surprise."""
        names = list(dict.fromkeys(name for _, name, _ in self.outcomes))

        def cell(kinds: tuple[str, ...], names: list[str]) -> str:
            sums = (sum(self.outcomes[kind, name, o] for kind in kinds for name in names) for o in OUTCOMES)
            return "/".join(map(str, sums)).rjust(14)

        lines = ["".join([f"{'':20}", *(kind.rjust(14) for kind in (*KINDS, "all"))])]
        for title, group in [*((name, [name]) for name in names), ("all", names)]:
            lines.append(f"{title:20}" + "".join(cell(kinds, group) for kinds in (*((k,) for k in KINDS), KINDS)))
        return "\n".join(lines)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@contextlib.contextmanager
def _alarm() -> Iterator[None]:
    def late(*_: Any) -> None:
        raise TimeoutError(f"it takes more than {_MOST_SECONDS} s")

    # Time of the processor: on a busy machine the clock on the wall says nothing about a file.
    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, _MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def run(found: list[Victim], count: int, seed: int, folder: Path) -> Judge:
    """Attack each victim in turn by each kind in turn."""
    judge, rng = Judge(folder), random.Random(seed)
    for victim in found:  # untouched, a model keeps its promises; and what is compiled on first use is compiled here
        check_promises(mute.load(_written(victim, folder)), judge.again)
    for i in range(count):
        victim, kind = found[i % len(found)], KINDS[i // len(found) % len(KINDS)]
        judge.judge(victim, attack(victim, kind, rng))
    return judge


def _written(victim: Victim, folder: Path) -> Path:
    forge(folder / "intact", victim.tensors, victim.state, victim.kind)
    return folder / "intact"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--methods", nargs="+", default=NAMES)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, patch("mute.storage.files.os.fsync"):
        found = victims(Path(folder), given.methods)
        start = time.monotonic()
        judge = run(found, given.count, given.seed, Path(folder))
    print(*judge.surprises, judge.table(), sep="\n")
    print(f"{given.count} attacks in {time.monotonic() - start:.0f} s, {len(judge.surprises)} surprises")
    sys.exit(bool(judge.surprises))


if __name__ == "__main__":
    main()
