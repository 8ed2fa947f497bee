"""A fit that was stopped goes on where it was, and ends as if it never had been."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from at_layer import AtLayer, press_ctrl_c
from laws import draw
from mute import MUtE, MuteError
from mute.flow.checkpoints import Checkpoint
from same_models import assert_same

pytestmark = pytest.mark.filterwarnings("ignore::mute.WeakResultWarning")

X, Z = draw("skew", 1300, 4, seed=0)
ORDER = np.random.default_rng(0).permutation(len(X))
X, Z = X[ORDER], Z[ORDER]
ROUTER = "logistic"


def stopped(folder: Path, layer: int = 3, x: Any = X, z: Any = Z, **settings: Any) -> MUtE:
    eraser = make(folder, **settings)
    eraser.set_callbacks(AtLayer(layer, press_ctrl_c))
    with pytest.raises(KeyboardInterrupt):
        eraser.fit(x, z)
    assert not hasattr(eraser, "classes_")
    return eraser


def make(folder: Path | None, **settings: Any) -> MUtE:
    defaults = {"n_iterations": 6, "router": ROUTER, "random_state": 0, "max_iterations": 8}
    return MUtE(resume=folder, **(defaults | settings))


def layers_in(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.glob("layer-*"))


SETTINGS: dict[str, dict[str, Any]] = {
    "layers": {},
    "each class on its own": {"shrinkage": False},
    "auto, each class on its own": {"n_iterations": "auto", "shrinkage": False},
    "auto": {"n_iterations": "auto"},
    "single precision": {"n_iterations": "auto", "x": X.astype(np.float32)},
    "random rotations": {"rotation": "random"},
    "ica": {"rotation": "ica", "x": X.astype(np.float32)},
    "no router": {"router": None, "marginal": "histogram"},
    "network": {"router": "mlp", "diagnostics": False},
    "a classifier": {"router": LogisticRegression(C=0.5)},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_fit_goes_on_to_the_same_bits(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mute.flow.routing._MOST_EPOCHS", 3)
    settings = dict(SETTINGS[name])
    x = settings.pop("x", X)
    expected = make(None, **settings).fit(x, Z)
    folder = tmp_path / "new" / "layers"
    stopped(folder, x=x, **settings)
    assert layers_in(folder) == ["layer-0000.safetensors", "layer-0001.safetensors"]
    stopped(folder, layer=5, x=x, **settings)
    assert len(layers_in(folder)) == 4
    again = make(folder, **settings)
    again.set_callbacks(watch := AtLayer())
    assert_same(again.fit(x, Z), expected)
    assert watch.layers == len(layers_in(folder))
    # All layers are there: they are read, not fitted.
    monkeypatch.setattr("mute.flow.fitting.FlowFitter.add_layer", lambda self: pytest.fail("fitted anew"))
    assert_same(make(folder, **settings).fit(x, Z), expected)


@pytest.mark.parametrize("n_iterations", [5, "auto"])
def test_without_a_seed_the_fit_keeps_the_one_it_began_with(n_iterations: Any, tmp_path: Path) -> None:
    stopped(tmp_path, random_state=None, n_iterations=n_iterations)
    again = make(tmp_path, random_state=None, n_iterations=n_iterations).fit(X, Z)
    # Another fit that goes on from the same folder has that seed, too; one that begins does not.
    for layer in sorted(tmp_path.glob("layer-*")):
        layer.unlink()
    assert_same(make(tmp_path, random_state=None, n_iterations=n_iterations).fit(X, Z), again)
    fresh = make(None, random_state=None, n_iterations=n_iterations, rotation="random").fit(X, Z)
    other = make(None, random_state=None, n_iterations=n_iterations, rotation="random").fit(X, Z)
    assert not np.array_equal(fresh.flow_.rotations[-1], other.flow_.rotations[-1])


def test_it_goes_on_wherever_the_rows_are(tmp_path: Path) -> None:
    expected = make(None).fit(X, Z)
    stopped(tmp_path / "layers", n_threads=1)
    (tmp_path / "scratch").mkdir()
    again = make(tmp_path / "layers", scratch=tmp_path / "scratch", n_threads=3)
    assert_same(again.fit(iter(np.array_split(X, 7)), Z), expected)


def swap(labels: np.ndarray) -> np.ndarray:
    """Two labels changed places: as many of each class as before."""
    out = labels.copy()
    i, j = np.flatnonzero(labels == 0)[5], np.flatnonzero(labels == 1)[5]
    out[[i, j]] = out[[j, i]]
    return out


OTHERS: dict[str, tuple[dict[str, Any], Any, Any, str]] = {
    "a number": ({}, np.where(np.arange(X.size).reshape(X.shape) == 7, 0.5, X), Z, "rows"),
    "fewer rows": ({}, X[:-1], Z[:-1], "labels of the rows, rows"),
    "another precision": ({}, X.astype(np.float32), Z, "rows"),
    "another order of rows": ({}, X[::-1], Z[::-1], "labels of the rows, rows"),
    "two labels": ({}, X, swap(Z), "labels of the rows"),
    "names of labels": ({}, X, np.array(["a", "b"])[Z], "labels"),
    "layers": ({"n_iterations": 7}, X, Z, "the setting n_iterations"),
    "marginal": ({"marginal": "histogram"}, X, Z, "the setting marginal"),
    "seed": ({"random_state": 1}, X, Z, "the setting random_state"),
    "router": ({"router": None}, X, Z, "the setting router"),
    "router and seed": ({"router": None, "random_state": None}, X, Z, "the setting random_state, the setting router"),
    "a classifier": ({"router": LogisticRegression(C=0.1)}, X, Z, "the setting router"),
}


@pytest.mark.parametrize("what", OTHERS)
def test_another_fit_is_refused(what: str, tmp_path: Path) -> None:
    settings, x, z, differing = OTHERS[what]
    stopped(tmp_path)
    before = {p: p.read_bytes() for p in tmp_path.iterdir()}
    with pytest.raises(MuteError, match=f"contains the layers of another fit, which differs in {differing};"):
        make(tmp_path, **settings).fit(x, z)
    assert {p: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_two_classifiers_as_routers_are_told_apart(tmp_path: Path) -> None:
    stopped(tmp_path, router=LogisticRegression(C=0.1))
    for other in (LogisticRegression(C=0.2), "mlp"):
        with pytest.raises(MuteError, match="the setting router"):
            make(tmp_path, router=other).fit(X, Z)


@pytest.mark.parametrize("damage", ["cut", "empty", "noise", "one byte", "another file"])
def test_a_damaged_layer_is_refused(damage: str, tmp_path: Path) -> None:
    stopped(tmp_path)
    layer = tmp_path / "layer-0001.safetensors"
    good = layer.read_bytes()
    if damage == "another file":
        from safetensors.numpy import save

        layer.write_bytes(save({"x": np.zeros(3)}))
    else:
        flipped = good[:-40] + bytes([good[-40] ^ 1]) + good[-39:]
        layer.write_bytes({"cut": good[:-40], "empty": b"", "noise": b"\xff" * 100, "one byte": flipped}[damage])
    with pytest.raises(MuteError, match=r"layer-0001\.safetensors is damaged; remove it and all later ones"):
        make(tmp_path).fit(X, Z)
    layer.unlink()
    assert_same(make(tmp_path).fit(X, Z), make(None).fit(X, Z))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"fit": {}}', '{"fit": 1, "seed": 0}'])
def test_a_damaged_description_is_refused(text: str, tmp_path: Path) -> None:
    stopped(tmp_path)
    (tmp_path / "fit.json").write_text(text)
    with pytest.raises(MuteError, match=r"fit\.json cannot be read; remove the folder"):
        make(tmp_path).fit(X, Z)


def test_other_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(MuteError, match="contains other files; give a new or empty folder"):
        make(tmp_path).fit(X, Z)
    with pytest.raises(MuteError, match="cannot keep layers in"):
        make(tmp_path / "notes.txt").fit(X, Z)
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]
    for wrong in (3, True):
        with pytest.raises(MuteError, match="resume must be"):
            MUtE(2, resume=wrong).fit(X, Z)


def test_remove_takes_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "layers"
    stopped(folder)
    (folder / "notes.txt").write_text("mine")
    Checkpoint.remove(folder)
    assert [p.name for p in folder.iterdir()] == ["notes.txt"]
    (folder / "notes.txt").unlink()
    Checkpoint.remove(folder)
    assert not folder.exists()
    Checkpoint.remove(folder)


def test_a_callback_that_says_stop_is_heard_when_it_goes_on(tmp_path: Path) -> None:
    for folder in (tmp_path, None):
        if folder is not None:
            stopped(folder)
        eraser = make(folder)
        eraser.set_callbacks(AtLayer(4, lambda: True))
        eraser.fit(X, Z)
        assert eraser.n_iterations_ == 4
