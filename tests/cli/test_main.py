"""The command line, run as a user runs it."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from contextlib import suppress
from itertools import count

import numpy as np
import pytest

import mute
from mute.adversaries.panel import PANEL


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    z = np.repeat(["cat", "dog"], 400)
    x = rng.normal(size=(800, 4)) + 2.0 * (z == "dog")[:, None]
    return x.astype(np.float32), z


@pytest.fixture(scope="module")
def folder(tmp_path_factory, rows):
    """The same rows and labels in every kind of file."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from safetensors.numpy import save_file

    x, z = rows
    place = tmp_path_factory.mktemp("files")
    np.save(place / "x.npy", x)
    np.savez(place / "x.npz", emb=x, other=x[:3])
    save_file({"emb": x}, place / "x.safetensors")
    columns = {f"c{i}": x[:, i] for i in range(4)}
    pq.write_table(pa.table({**columns, "kind": z}), place / "columns.parquet")
    pq.write_table(pa.table({"emb": list(x), "kind": z}), place / "list.parquet")
    with open(place / "x.csv", "w") as file:
        file.write("c0,c1,c2,c3,kind\n")
        file.writelines(",".join(map(repr, map(float, row))) + f",{label}\n" for row, label in zip(x, z, strict=True))
    np.save(place / "z.npy", z)
    (place / "z.txt").write_text("\n".join(z) + "\n")
    return place


@pytest.fixture(scope="module")
def model(folder, rows):
    x, z = rows
    eraser = mute.MUtE(4, random_state=0).fit(x, z)
    eraser.save(folder / "model.safetensors")
    return folder / "model.safetensors", eraser


@pytest.mark.parametrize(
    ("x", "z"),
    [
        ("x.npy", "z.npy"),
        ("x.npz:emb", "z.txt"),
        ("x.safetensors", "x.csv:kind"),
        ("columns.parquet", "columns.parquet:kind"),
        ("list.parquet:emb", "list.parquet:kind"),
        ("x.csv", "x.csv:kind"),
    ],
)
def test_fit_erase_and_counterfactual_equal_the_api(cli, folder, tmp_path, rows, x, z):
    data, labels = rows
    if x.startswith("x.csv"):
        data = data.astype(np.float64)  # text has no precision of its own
    target = tmp_path / "model.safetensors"
    code, out, err = cli("fit", folder / x, "--concept", f"{folder}/{z}", "-o", target, "--iterations", 4)
    assert code == 0, err
    assert "fitted MUtE of 4 layers" in out
    eraser = mute.MUtE(4, random_state=0).fit(data, labels)
    assert cli("erase", target, folder / x, "-o", tmp_path / "q.npy")[0] == 0
    np.testing.assert_array_equal(np.load(tmp_path / "q.npy"), eraser.transform(data))
    args = ("--to", "dog", "--concept", f"{folder}/{z}")
    assert cli("counterfactual", target, folder / x, *args, "-o", tmp_path / "cf.npy")[0] == 0
    expected = eraser.counterfactual(data, "dog", concept=labels)
    np.testing.assert_array_equal(np.load(tmp_path / "cf.npy"), expected)


def test_rows_without_labels_and_rows_at_hand_equal_the_api(cli, folder, tmp_path, rows):
    data, labels = rows
    files = (folder / "x.npy", "--concept", folder / "z.npy", "-o", tmp_path / "m.safetensors")
    more = ("--unlabelled", folder / "x.npz:emb", "--iterations", "5", "--no-shrinkage", "--rotation", "random")
    code, _, err = cli("fit", *files, *more)
    assert code == 0, err
    eraser = mute.MUtE(5, shrinkage=False, rotation="random", random_state=0).fit(data, labels, unlabelled=data)
    np.testing.assert_array_equal(mute.load(tmp_path / "m.safetensors").transform(data), eraser.transform(data))
    labelled = ("--concept", folder / "z.npy", "-o", tmp_path / "q.npy")
    assert cli("erase", tmp_path / "m.safetensors", folder / "x.npy", "--adapt", *labelled)[0] == 0
    expected = eraser.adapt(data, concept=labels).transform(data, concept=labels)
    np.testing.assert_array_equal(np.load(tmp_path / "q.npy"), expected)
    cli("fit", *files, "-m", "leace", "-q")
    code, _, err = cli("erase", tmp_path / "m.safetensors", folder / "x.npy", "--adapt", "-o", tmp_path / "q2.npy")
    assert code == 1 and "--adapt is for MUtE, not for LEACE" in err


def test_other_methods_equal_the_api(cli, folder, tmp_path, rows):
    from mute.rivals import TaCo
    from mute.steering import LinearOT

    data, labels = rows
    files = (folder / "x.npy", "--concept", folder / "z.npy", "-o", tmp_path / "m.safetensors")
    code, out, err = cli("fit", *files, "--method", "linear-ot:paper", "--router", "none", "--set", "reg=0.5")
    assert code == 0, err
    assert "fitted LinearOT in" in out and "requires labels" in out
    expected = LinearOT.from_preset("paper", reg=0.5, router=None).fit(data, labels)
    labelled = ("--concept", folder / "z.npy", "-o", tmp_path / "q.npy")
    assert cli("erase", tmp_path / "m.safetensors", folder / "x.npy", *labelled)[0] == 0
    np.testing.assert_array_equal(np.load(tmp_path / "q.npy"), expected.transform(data, concept=labels))
    assert cli("counterfactual", tmp_path / "m.safetensors", folder / "x.npy", "--to", "dog", *labelled)[0] == 0
    np.testing.assert_array_equal(np.load(tmp_path / "q.npy"), expected.counterfactual(data, "dog", concept=labels))
    assert "LinearOT" in cli("inspect", tmp_path / "m.safetensors")[1]

    settings = ("--set", "n_drop=1", "--set", "response=margin", "--set", "epochs=3")
    assert cli("fit", *files, "-m", "taco-task", "--task", folder / "z.txt", *settings)[0] == 0
    expected = TaCo(n_drop=1, response="margin", epochs=3, random_state=0).fit(data, labels, task=labels)
    np.testing.assert_array_equal(mute.load(tmp_path / "m.safetensors").transform(data), expected.transform(data))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-m", "lace"], "there is no method 'lace'; known methods: none, mute"),
        (["-m", "none"], "there is nothing to fit"),
        (["-m", "linear-ot:papre"], "no preset 'papre'; known presets: paper, authors"),
        (["-m", "leace", "--iterations", "3"], "LEACE has no setting 'n_iterations'"),
        (["-m", "leace", "--set", "tolerance"], "--set takes NAME=VALUE, not 'tolerance'"),
        (
            ["-m", "leace", "--set", "tolerance=7"],
            "The 'tolerance' parameter of LEACE must be a float in the range [0.0, 1.0). Got 7 instead",
        ),
        (["-m", "taco-task"], "give --task FILE:COLUMN"),
        (["-m", "leace", "--task", "z.npy"], "leave --task out"),
        (["-m", "leace", "--unlabelled", "x.npy"], "leave --unlabelled out"),
        (["--router", "none", "--unlabelled", "x.npy"], "unlabelled requires a router, but router=None"),
    ],
)
def test_methods_that_cannot_be(cli, folder, tmp_path, words, message):
    words = [folder / word if word.endswith(".npy") else word for word in words]
    code, _, err = cli("fit", folder / "x.npy", "--concept", folder / "z.npy", "-o", tmp_path / "m.safetensors", *words)
    assert code == 1 and message in err
    assert not list(tmp_path.iterdir())


def test_no_counterfactuals_where_there_are_none(cli, folder, tmp_path):
    cli("fit", folder / "x.npy", "--concept", folder / "z.npy", "-o", tmp_path / "m.safetensors", "-m", "leace", "-q")
    words = ("counterfactual", tmp_path / "m.safetensors", folder / "x.npy", "--to", "dog")
    code, _, err = cli(*words, "-o", tmp_path / "q.npy")
    assert code == 1 and "is a LEACE, which makes no counterfactuals" in err


def test_list_of_methods(cli):
    from mute.estimators.registry import METHODS

    out = cli("methods")[1]
    assert all(f"\n{name} " in out for name in METHODS if name != "none")
    assert "paper-glove" in out and "task labels" in out


@pytest.mark.parametrize("suffix", ["npy", "npz", "safetensors", "parquet", "csv"])
def test_every_kind_of_output_can_be_read_again(cli, folder, tmp_path, model, rows, suffix):
    from mute.tables import open_matrix

    path, eraser = model
    out = tmp_path / f"q.{suffix}"
    assert cli("erase", path, folder / "x.npy", "-o", out)[0] == 0
    again = open_matrix(str(out)).to_numpy().astype(np.float32)  # text has no precision of its own
    np.testing.assert_array_equal(again, eraser.transform(rows[0]))


def test_columns_keep_their_names(cli, folder, tmp_path, model):
    cli("erase", model[0], folder / "columns.parquet", "--only-embedding", "-o", tmp_path / "q.csv")
    assert (tmp_path / "q.csv").read_text().splitlines()[0] == "c0,c1,c2,c3"


def test_one_target_for_each_row(cli, folder, tmp_path, model, rows):
    path, eraser = model
    targets = np.where(np.arange(800) % 2, "cat", "dog")
    (tmp_path / "to.txt").write_text("\n".join(targets))
    args = ("--to", tmp_path / "to.txt", "-o", tmp_path / "cf.npy")
    assert cli("counterfactual", path, folder / "x.npy", *args)[0] == 0
    np.testing.assert_array_equal(np.load(tmp_path / "cf.npy"), eraser.counterfactual(rows[0], targets))


def test_many_files_are_one_matrix(cli, tmp_path, model, rows):
    """Rows, true labels and targets, each out of two files."""
    path, eraser = model
    targets = np.where(np.arange(800) % 2, "cat", "dog")
    for name, values in (("x", rows[0]), ("z", rows[1]), ("to", targets)):
        np.save(tmp_path / f"{name}-0.npy", values[:300])
        np.save(tmp_path / f"{name}-1.npy", values[300:])
    words = (tmp_path / "x-*.npy", "--concept", tmp_path / "z-*.npy", "-o", tmp_path / "out.npy")
    assert cli("erase", path, *words)[0] == 0
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), eraser.transform(rows[0], concept=rows[1]))
    assert cli("counterfactual", path, *words, "--to", tmp_path / "to-*.npy")[0] == 0
    expected = eraser.counterfactual(rows[0], targets, concept=rows[1])
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected)
    code, _, err = cli("counterfactual", path, *words, "--to", tmp_path / "nowhere-*.npy")
    assert code == 1 and "is neither a label of the model nor a file" in err


def test_integer_labels_are_recognised_in_text(cli, tmp_path, rows):
    x, z = rows
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "z.npy", (z == "dog").astype(int))
    target = tmp_path / "m.safetensors"
    cli("fit", tmp_path / "x.npy", "--concept", tmp_path / "z.npy", "-o", target, "--iterations", 2)
    assert cli("counterfactual", target, tmp_path / "x.npy", "--to", 1, "-o", tmp_path / "cf.npy")[0] == 0
    np.testing.assert_array_equal(np.load(tmp_path / "cf.npy"), mute.load(target).counterfactual(x, 1))


def test_quiet_prints_nothing(cli, folder, tmp_path, model):
    assert cli("erase", model[0], folder / "x.npy", "-o", tmp_path / "q.npy", "--quiet") == (0, "", "")
    target = tmp_path / "m.safetensors"
    args = ("--concept", folder / "z.npy", "-o", target, "--iterations", 1, "-q")
    assert cli("fit", folder / "x.npy", *args) == (0, "", "")


def test_inspect(cli, model, tmp_path):
    path, _ = model
    code, out, _ = cli("inspect", path, "--layers", "--plot", tmp_path / "d.png")
    assert code == 0
    assert "4 layers, 4 columns, 2 classes" in out
    assert "routed elsewhere" in out
    assert "corrected" in out
    assert (tmp_path / "d.png").stat().st_size > 10_000
    about = json.loads(cli("inspect", path, "--json")[1])
    assert about["kind"] == "MUtE"
    assert about["provenance"]["rows"] == 800


def test_fit_notes_where_it_came_from_and_what_is_weak(cli, folder, tmp_path):
    target = tmp_path / "m.safetensors"
    rng = np.random.default_rng(0)
    np.save(tmp_path / "wide.npy", rng.normal(size=(800, 60)))
    args = ("--concept", folder / "z.npy", "-o", target, "--iterations", 1)
    code, out, _ = cli("fit", tmp_path / "wide.npy", *args)
    assert code == 0
    assert "note: class 'cat' has 400 rows for 60 columns" in out
    assert mute.estimators.persistence.describe(target)["provenance"]["x"] == "wide.npy"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["erase", "{f}/none.safetensors", "{f}/x.npy", "-o", "{t}/q.npy"], "none.safetensors does not exist"),
        (["erase", "{f}/x.safetensors", "{f}/x.npy", "-o", "{t}/q.npy"], "not one that mute wrote"),
        (["erase", "{f}/x.npy", "{f}/x.npy", "-o", "{t}/q.npy"], "not a safetensors file"),
        (["erase", "{m}", "{f}/none.npy", "-o", "{t}/q.npy"], "none.npy does not exist"),
        (["erase", "{m}", "{f}/x.npz:embb", "-o", "{t}/q.npy"], "emb"),
        (["erase", "{m}", "{f}/x.npy", "-o", "{t}/none/q.npy"], "does not exist, so create it first"),
        (["erase", "{m}", "{f}/x.npy", "-o", "{t}/q.xyz"], ".npy"),
        (["erase", "{m}", "{f}/columns.parquet:c0,c1", "-o", "{t}/q.npy"], "has 2 columns, the model was fitted on 4"),
        (["erase", "{m}", "{f}/x.npy", "--concept", "{f}/short.txt", "-o", "{t}/q.npy"], "3 labels for the 800 rows"),
        (["erase", "{m}", "{f}/x.npy", "--concept", "{f}/x.csv:kin", "-o", "{t}/q.npy"], "kind"),
        (["counterfactual", "{m}", "{f}/x.npy", "--to", "bird", "-o", "{t}/q.npy"], "its labels: cat, dog"),
        (["erase", "{o}", "{f}/x.npy", "-o", "{t}/q.npy"], "--concept on the command line; fit with router"),
        (["fit", "{f}/x.npy", "--concept", "{f}/one.txt", "-o", "{t}/m.safetensors"], "only one class, 'a'"),
        (["fit", "{f}/nan.npy", "--concept", "{f}/z.txt", "-o", "{t}/m.safetensors"], "in 2 rows (rows 5, 700)"),
        (
            ["fit", "{f}/x.npy", "--concept", "{f}/z.txt", "-o", "{t}/m.safetensors", "--iterations", "few"],
            "auto or a whole",
        ),
        (["fit", "{f}/cut.npy", "--concept", "{f}/z.txt", "-o", "{t}/m.safetensors"], "cut.npy"),
    ],
)
def test_bad_input_is_one_line_exit_1_and_nothing_written(cli, folder, tmp_path, model, rows, words, message):
    (folder / "short.txt").write_text("cat\ndog\ncat\n")
    (folder / "one.txt").write_text("a\n" * 800)
    bad = rows[0].copy()
    bad[[5, 700], 1] = np.nan
    np.save(folder / "nan.npy", bad)
    (folder / "cut.npy").write_bytes((folder / "x.npy").read_bytes()[:-100])
    model[1].without_router().save(folder / "oracle.safetensors")
    files = {"f": folder, "t": tmp_path, "m": model[0], "o": folder / "oracle.safetensors"}
    code, _, err = cli(*(w.format(**files) for w in words))
    assert code == 1
    assert message in err
    assert err.startswith("mute: ")
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        ["fitt"],
        ["erase"],
        ["fit", "x.npy", "--concept", "z.npy", "-o", "m", "--router", "best"],
        ["erase", "--frobnicate"],
    ],
)
def test_misspelt_commands_exit_2(cli, words):
    code, _, err = cli(*words)
    assert code == 2
    assert "Usage" in err


@pytest.mark.parametrize(
    "words", [["--help"], *([c, "--help"] for c in ("fit", "erase", "counterfactual", "inspect", "methods", "demo"))]
)
def test_help(cli, words):
    code, out, _ = cli(*words, "--help")
    assert code == 0
    assert "Usage" in out


def test_version(cli):
    assert cli("--version")[1].strip() == f"mute {mute.__version__}"


def _open_files(pid):
    found = []
    for link in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):  # closed meanwhile
            found.append(os.readlink(f"/proc/{pid}/fd/{link}"))
    return found


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="looks at the open files of a process")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_command_leaves_nothing_behind(folder, tmp_path, model, number):
    big = np.lib.format.open_memmap(tmp_path / "big.npy", "w+", np.float32, (4_000_000, 4))
    del big
    (tmp_path / "out").mkdir()
    target = tmp_path / "out" / "q.npy"
    np.save(target, np.zeros(3))
    old = target.read_bytes()
    words = ["erase", str(model[0]), str(tmp_path / "big.npy"), "-o", str(target)]
    process = subprocess.Popen(
        [sys.executable, "-c", "from mute.cli.main import run; run()", *words],
        stderr=subprocess.PIPE,
        text=True,
        # Whatever was started in the background ignores Ctrl-C, and so do its children unless told otherwise.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 60
    # Until it writes: what it writes to has no name yet.
    while not any(path.startswith(str(tmp_path / "out")) for path in _open_files(process.pid)):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in err
    assert "Traceback" not in err
    assert os.listdir(tmp_path / "out") == ["q.npy"]
    assert target.read_bytes() == old


def test_an_interrupt_in_training_ends_the_fit(cli, folder, tmp_path, monkeypatch):
    from sklearn.neural_network import MLPClassifier

    real, batches = MLPClassifier._backprop, count()

    def backprop(*args):
        if next(batches) == 30:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(MLPClassifier, "_backprop", backprop)
    with warnings.catch_warnings():
        warnings.simplefilter("default")  # as a user has it: the suite makes an error of every warning
        code, _, err = cli("fit", folder / "x.npy", "--concept", folder / "z.npy", "-o", tmp_path / "m.safetensors")
    assert code == 130 and "interrupted; nothing was written" in err
    assert not list(tmp_path.iterdir())


def test_the_bar_has_no_numbers_before_the_first_step(monkeypatch, rows):
    from rich.console import Console

    from mute.cli import console as module

    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100)
    monkeypatch.setattr(module, "on_terminal", lambda quiet: {"console": console, "auto_refresh": False})
    eraser = mute.MUtE(2, router="logistic", random_state=0)
    with module.fit_progress(eraser, quiet=False):
        assert "fit" in screen.getvalue() and "0/" not in screen.getvalue()
        eraser.fit(*rows)
    assert re.search(r"(\d+)/\1 ", screen.getvalue()) and "None" not in screen.getvalue()


def test_rows_stream_with_bounded_memory(tmp_path, model):
    """600 MB of rows pass through a process that grows by far less."""
    n = 40_000_000
    np.lib.format.open_memmap(tmp_path / "big.npy", "w+", np.float32, (n // 1, 4))
    script = """
import resource, sys
from mute.cli import erasing
import mute
mute.load(sys.argv[2]).transform([[0.0] * 4] * 20000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
from mute.tables import open_matrix
blocks = 0
eraser = mute.load(sys.argv[2])
for block in open_matrix(sys.argv[1]).row_blocks(erasing.BLOCK_ROWS):
    eraser.transform(block, concept=["cat"] * len(block))
    blocks += 1
    if blocks == 60:
        break
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    out = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "big.npy"), str(model[0])],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert int(out.stdout) * 1024 < 60e6


def test_demo_runs_and_writes_its_files(cli, tmp_path, monkeypatch):
    some = ("quadratic", "neighbours", "boosting")  # all of them take minutes
    monkeypatch.setattr("mute.cli.demo._LEFT_OUT", tuple(name for name in PANEL if name not in some))
    monkeypatch.setattr("mute.budget.search.JUDGES", some)
    code, out, err = cli("demo", "-o", tmp_path / "demo")
    assert code == 0, err
    assert {p.name for p in (tmp_path / "demo").iterdir()} == {"gender.safetensors", "demo.png", "diagnostics.png"}
    assert "king  →  queen" in out
    assert out.index("strongest of the panel") < out.index("boosting"), "the strongest adversary comes first"
    assert out.index("without the budget: leaks") < out.index("Cause: ") < out.index("Next: ") < out.index("\nerased\n")
    assert "max_leak=0.05" in out
    assert "eraser.adapt" in out
    assert mute.load(tmp_path / "demo" / "gender.safetensors").n_features_in_ == 100


def test_a_fit_says_what_few_rows_can_leak(cli, tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", rng.normal(size=(400, 10)))
    np.save(tmp_path / "z.npy", np.repeat([0, 1], 200))
    words = ("fit", tmp_path / "x.npy", "--concept", tmp_path / "z.npy", "--dry-run", "-o", tmp_path / "m.safetensors")
    # d = 10 / sqrt(200) * sqrt(1 / 2) = 0.5, and Phi(0.25) = 0.599.
    line = "from 200 rows a class in 10 columns, class-wise maps can leak up to 9.9 points"
    assert line in " ".join(cli(*words)[1].split())
    # The map of LEACE is the same for all classes.
    assert "class-wise maps" not in cli(*words, "--method", "leace")[1]
