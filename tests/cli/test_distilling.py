"""`mute distill` and `mute export`, run as a user runs them."""

import numpy as np
import pytest

import mute

pytest.importorskip("torch")
pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Rows, labels, a model with a router and one without."""
    rng = np.random.default_rng(0)
    z = np.repeat(["cat", "dog"], 400)
    x = (rng.normal(size=(800, 4)) + 4.0 * (z == "dog")[:, None]).astype(np.float32)
    place = tmp_path_factory.mktemp("files")
    np.save(place / "x.npy", x)
    np.save(place / "wide.npy", np.zeros((10, 5), np.float32))
    (place / "z.txt").write_text("\n".join(z) + "\n")
    model = mute.MUtE(4, router="logistic", diagnostics=False, random_state=0).fit(x, z)
    model.save(place / "model.safetensors")
    model.without_router().save(place / "oracle.safetensors")
    return place


@pytest.mark.parametrize(
    ("kind", "cls"),
    [
        ("mlp", "MLPSurrogate"),
        ("cinn", "InvertibleSurrogate"),
        ("inn", "InvertibleSurrogate"),
        ("linear", "LinearSurrogate"),
        ("low-rank", "LowRankSurrogate"),
    ],
)
def test_distill_and_use(cli, folder, kind, cls, tmp_path):
    settings = ["--set", "epochs=3", "--set", "augment=0"] if kind in ("mlp", "cinn", "inn") else []
    fast = tmp_path / "fast.safetensors"
    code, out, err = cli(
        "distill", folder / "model.safetensors", folder / "x.npy", "-o", fast, "--kind", kind, *settings
    )
    assert (code, err) == (0, "") and f"fitted {cls}" in out and "of the model's" in out
    copy = mute.load(fast)
    assert type(copy).__name__ == cls and getattr(copy, "conditional", True) == (kind != "inn")
    assert mute.estimators.persistence.describe(fast)["provenance"]["teacher"]["kind"] == "MUtE"
    assert cli("erase", fast, folder / "x.npy", "-o", tmp_path / "q.npy")[0] == 0
    np.testing.assert_array_equal(np.load(tmp_path / "q.npy"), copy.transform(np.load(folder / "x.npy")))
    moves = cli("counterfactual", fast, folder / "x.npy", "--to", "dog", "-o", tmp_path / "cf.npy")[0] == 0
    assert moves == (kind in ("cinn", "inn", "linear"))
    shown = cli("inspect", fast)[1]
    assert cls in shown and "of the model's" in shown


def test_labels_for_a_model_without_router(cli, folder, tmp_path):
    words = [
        "distill",
        folder / "oracle.safetensors",
        folder / "x.npy",
        "-o",
        tmp_path / "m.safetensors",
        "--kind",
        "low-rank",
    ]
    code, _, err = cli(*words)
    assert code == 1 and "the teacher has no router" in err and not list(tmp_path.iterdir())
    assert cli(*words, "--concept", folder / "z.txt")[0] == 0


def test_the_same_seed_gives_the_same_copy(cli, folder, tmp_path):
    for name in ("a", "b"):
        settings = ["--preset", "fast", "--set", "epochs=2", "--seed", 3, "--quiet"]
        words = [
            "distill",
            folder / "model.safetensors",
            folder / "x.npy",
            "-o",
            tmp_path / f"{name}.safetensors",
            *settings,
        ]
        assert cli(*words, *settings) == (0, "", "")
    a, b = mute.load(tmp_path / "a.safetensors"), mute.load(tmp_path / "b.safetensors")
    assert a.n_layers == 3 and all((a.weights_[name] == w).all() for name, w in b.weights_.items())


@pytest.mark.parametrize("suffix", ["onnx", "pt2"])
def test_export(cli, folder, suffix, tmp_path):
    path = tmp_path / f"model.{suffix}"
    words = ["export", folder / "model.safetensors", "-o", path, "--check", folder / "x.npy"]
    code, out, err = cli(*words)
    assert (code, err) == (0, "") and "on 800 rows the export differs from the model by at most" in out
    assert path.stat().st_size > 1000
    assert cli(*words, "--counterfactual", "--concept", "given", "-q") == (0, "", "")
    assert cli("export", folder / "oracle.safetensors", "-o", path, "--concept", "given")[0] == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["distill", "model.safetensors", "nothing.npy", "-o", "OUT.safetensors"], "does not exist"),
        (["distill", "nothing.safetensors", "x.npy", "-o", "OUT.safetensors"], "nothing.safetensors"),
        (["distill", "model.safetensors", "wide.npy", "-o", "OUT.safetensors"], "fitted on 4 columns, X has 5"),
        (
            ["distill", "model.safetensors", "x.npy", "-o", "OUT.safetensors", "--set", "wibble=1"],
            "no setting 'wibble'; it has",
        ),
        (
            ["distill", "model.safetensors", "x.npy", "-o", "OUT.safetensors", "--set", "teacher=1"],
            "no setting 'teacher'",
        ),
        (
            ["distill", "model.safetensors", "x.npy", "-o", "OUT.safetensors", "--preset", "wibble"],
            "no preset 'wibble'",
        ),
        (
            ["distill", "model.safetensors", "x.npy", "-o", "OUT.safetensors", "--concept", "few.txt"],
            "3 labels for the 800 rows",
        ),
        (
            ["distill", "model.safetensors", "x.npy", "-o", "OUT.safetensors", "--concept", "other.txt"],
            "the label 'cow'",
        ),
        (["export", "model.safetensors", "-o", "OUT.txt"], "cannot hold an export; give a name ending in .onnx, .pt2"),
        (["export", "model.safetensors", "-o", "OUT.onnx", "--check", "wide.npy"], "has 5 columns, the model was"),
        (["export", "model.safetensors", "-o", "OUT.pt2", "--quantize"], "--quantize is for .onnx only"),
        (["export", "model.safetensors", "-o", "OUT.onnx", "--quantize"], "only an MLPSurrogate has a network"),
        (["export", "oracle.safetensors", "-o", "OUT.onnx"], "this eraser has no router"),
    ],
)
def test_what_cannot_be_done(cli, folder, words, message, tmp_path):
    (folder / "few.txt").write_text("cat\ndog\ncat\n")
    (folder / "other.txt").write_text("cow\n" * 800)
    files = {str(p.name): p for p in folder.iterdir()}
    given = [files.get(w, str(w).replace("OUT", str(tmp_path / "out"))) for w in words]
    code, _, err = cli(*given)
    assert code == 1 and message in err and len(err.splitlines()) == 1
    assert not list(tmp_path.iterdir())
