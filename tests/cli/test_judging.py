"""`mute audit`, `mute compare` and `mute frontier`, run as a user runs them."""

import json
from pathlib import Path

import numpy as np
import pytest

from mute import MUtE

QUICK = ("--adversaries", "logistic,quadratic")
# 1,200 unseen rows: an interval of three points on either side.
ROOMY = ("--max-leak", "0.1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of two classes in a CSV file with concept and task, their halves as arrays, and a model of one half."""
    place = tmp_path_factory.mktemp("judging")
    rng = np.random.default_rng(0)
    z = np.repeat(["cat", "dog"], 1200)
    task = np.where(rng.random(2400) < 0.5, "yes", "no")
    x = rng.normal(size=(2400, 4))
    x[:, 0] += 8 * (z == "dog")  # so far apart that the router errs nowhere: what is erased is erased
    x[:, 1] += 2 * (task == "yes")
    fit = rng.permutation(2400) < 1200
    for name, rows in (("fit", fit), ("new", ~fit)):
        np.save(place / f"x_{name}.npy", x[rows])
        np.save(place / f"z_{name}.npy", z[rows])
        np.save(place / f"y_{name}.npy", task[rows])
    with open(place / "all.csv", "w") as file:
        file.write("c0,c1,c2,c3,kind,task\n")
        for row, label, y in zip(x, z, task, strict=True):
            file.write(",".join(map(repr, map(float, row))) + f",{label},{y}\n")
    eraser = MUtE(5, diagnostics=False, random_state=0).fit(x[fit], z[fit])
    eraser.save(place / "model.safetensors")
    np.save(place / "q_new.npy", eraser.transform(x[~fit]))
    np.save(place / "q_fit.npy", eraser.transform(x[fit]))
    return place


def test_audit_writes_a_report_and_exits_with_its_verdict(cli, folder, tmp_path) -> None:
    out = tmp_path / "audit.json"
    code, text, _ = cli(
        "audit", folder / "model.safetensors", folder / "x_new.npy", "--concept", folder / "z_new.npy",
        "--task", folder / "y_new.npy", "--fit-rows", folder / "x_fit.npy", "--fit-concept", folder / "z_fit.npy",
        "-o", out, *QUICK, *ROOMY,
    )  # fmt: skip
    report = json.loads(out.read_text())
    assert code == 0 and report["decision"]["name"] == "erased"
    assert text.startswith("erased\n") and f"wrote {out}" in text
    assert report["task"] and {a["protocol"] for a in report["privacy"]["attacks"]} == {"before", "paper", "fresh"}


@pytest.mark.parametrize(("suffix", "start"), [("html", "<!doctype html>"), ("md", "# Audit of rows erased elsewhere")])
def test_rows_erased_elsewhere(cli, folder, tmp_path, suffix, start) -> None:
    out = tmp_path / f"audit.{suffix}"
    code, _, _ = cli(
        "audit", folder / "q_new.npy", folder / "x_new.npy", "--concept", folder / "z_new.npy", "-o", out,
        *QUICK, *ROOMY,
    )  # fmt: skip
    assert code == 0
    assert out.read_text().lower().startswith(start.lower())


def test_not_erased_is_exit_code_4_and_quiet_is_quiet(cli, folder, tmp_path) -> None:
    words = ("audit", folder / "x_new.npy", folder / "x_new.npy", "--concept", folder / "z_new.npy")
    code, text, err = cli(*words, "-o", tmp_path / "a.md", "--quiet", *QUICK)
    assert (code, text, err) == (4, "", "")


def test_a_leak_is_followed_by_what_to_try_with_the_users_files(cli, folder, tmp_path) -> None:
    words = ("audit", folder / "x_new.npy", folder / "x_new.npy", "--concept", folder / "z_new.npy")
    _, text, _ = cli(*words, "-o", tmp_path / "a.json", *QUICK)
    command = f"mute compare {folder / 'x_new.npy'} --concept {folder / 'z_new.npy'} -o compare.html"
    assert "Cause: The map leaves the classes different" in text and f"\n    {command}\n" in text
    (cause,) = json.loads((tmp_path / "a.json").read_text())["next"]
    assert cause["name"] == "map" and cause["steps"][1]["command"] == command


def test_max_leak_decides(cli, folder, tmp_path) -> None:
    """The rows themselves leak 50 points: tolerated, they pass."""
    words = ("audit", folder / "x_new.npy", folder / "x_new.npy", "--concept", folder / "z_new.npy")
    assert cli(*words, "-o", tmp_path / "a.md", "--max-leak", "0.55", *QUICK)[0] == 0


def test_too_few_rows_to_say_is_exit_code_5(cli, folder, tmp_path) -> None:
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", rng.normal(size=(200, 3)))
    (tmp_path / "z.txt").write_text("a\nb\n" * 100)
    words = ("audit", tmp_path / "x.npy", tmp_path / "x.npy", "--concept", tmp_path / "z.txt", "-o", tmp_path / "a.md")
    code, text, _ = cli(*words, *QUICK)
    assert code == 5 and text.startswith("too few rows to say\n")
    assert "5 too few rows to say" in cli("audit", "--help")[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("model.safetensors", "x_new.npy", "-o", "a.pdf"), "give a name ending in .html, .md, .json"),
        (("model.safetensors", "x_fit.npy", "-o", "a.md"), "very rows that the eraser was fitted on"),
        (("model.safetensors", "x_new.npy", "-o", "a.md", "--fit-rows", "x_fit.npy"), "--fit-rows and --fit-concept"),
        (("missing.safetensors", "x_new.npy", "-o", "a.md"), "missing.safetensors"),
        (("q_fit.npy", "x_new.npy", "-o", "nowhere/a.md"), "nowhere"),
        (("model.safetensors", "x_new.npy", "-o", "a.md", "--adversaries", "psychic"), "'psychic'"),
    ],
)
def test_bad_input(cli, folder, monkeypatch, words, message) -> None:
    monkeypatch.chdir(folder)
    labels = "z_fit.npy" if words[1] == "x_fit.npy" else "z_new.npy"
    code, _, err = cli("audit", *words, "--concept", labels)
    assert code == 1 and message in err
    assert not list(folder.glob("a.*"))


def test_compare_columns_of_one_file(cli, folder, tmp_path, sabotage) -> None:
    sabotage("broken", RuntimeError("no such luck"))
    table = folder / "all.csv"
    words = (
        "compare", table, "--concept", f"{table}:kind", "--task", f"{table}:task",
        "--methods", "none,broken,mute-20", "-o", tmp_path / "compare.html", *QUICK,
    )  # fmt: skip
    code, text, _ = cli(*words)
    assert code == 0
    assert "not erased" in text and "broken failed: RuntimeError: no such luck" in text
    page = (tmp_path / "compare.html").read_text()
    assert "mute-20" in page and "no such luck" in page
    parts = sorted((tmp_path / "compare.parts").iterdir())
    assert [p.name.rsplit("-", 1)[0] for p in parts] == ["mute-20", "none"]

    stamp = parts[0].stat().st_mtime_ns
    assert cli(*words)[0] == 0
    assert parts[0].stat().st_mtime_ns == stamp, "finished methods are not made again"
    assert cli(*words, "--again")[0] == 0
    assert parts[0].stat().st_mtime_ns != stamp


def test_compare_fails_when_nothing_is_left(cli, folder, tmp_path, sabotage) -> None:
    sabotage("none", ZeroDivisionError("by zero"))
    sabotage("broken", RuntimeError("no such luck"))
    words = ("compare", folder / "x_new.npy", "--concept", folder / "z_new.npy", "--methods", "none,broken")
    code, text, err = cli(*words, "-o", tmp_path / "c.md")
    assert code == 1 and "none failed: ZeroDivisionError" in text and "broken failed: RuntimeError" in text
    assert "every method failed" in err and "none: ZeroDivisionError: by zero" in err
    assert cli(*words, "-o", tmp_path / "c.md", "--quiet") == (1, "", err), "the one line says why"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--methods", "farm:wibble"), "FaRM has no preset 'wibble'; known presets: paper"),
        (("--methods", "leace", "--adversaries", "wibble"), "adversaries must be"),
        (("--methods", "leace", "--task", "one.txt"), "task has one label only ('a')"),
        (("--methods", "leace", "--concept", "one.txt"), "the concept has only one class, 'a'"),
        (("--methods", "taco-task"), "--task on the command line"),
    ],
)
def test_compare_bad_input(cli, folder, tmp_path, monkeypatch, words, message) -> None:
    monkeypatch.chdir(folder)
    (folder / "one.txt").write_text("a\n" * 1200)
    code, text, err = cli("compare", "x_new.npy", "--concept", "z_new.npy", "-o", tmp_path / "c.md", *words)
    assert code == 1 and message in err and text == ""
    assert err.startswith("mute: ") and err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_an_interrupted_comparison_says_what_it_keeps(cli, folder, tmp_path, sabotage) -> None:
    sabotage("stopped", KeyboardInterrupt())
    code, _, err = cli(
        "compare", folder / "x_new.npy", "--concept", folder / "z_new.npy", "--methods", "none,stopped",
        "-o", tmp_path / "c.md", *QUICK,
    )  # fmt: skip
    assert code == 130 and "1 finished method(s) are kept" in err
    assert [p.name for p in tmp_path.iterdir()] == ["c.parts"]


def test_audit_of_a_folder_says_what_it_says_of_the_array(cli, folder, tmp_path) -> None:
    """Rows in Parquet files whose folders are named for the concept."""
    pytest.importorskip("pyarrow")
    from mute.tables import open_writer

    x, z = np.load(folder / "x_new.npy"), np.load(folder / "z_new.npy")
    for label in ("cat", "dog"):
        rows = x[z == label]
        (tmp_path / "data" / f"kind={label}").mkdir(parents=True)
        for i, part in enumerate((rows[:100], rows[100:])):
            with open_writer(tmp_path / "data" / f"kind={label}" / f"{i}.parquet", *part.shape, "float64") as writer:
                writer.write(part)
    order = np.argsort(z, kind="stable")
    np.save(tmp_path / "x.npy", x[order])
    np.save(tmp_path / "z.npy", z[order])
    reports = []
    for rows, labels in (("data", "data:kind"), ("data/*/*.parquet:embedding", "data:kind"), ("x.npy", "z.npy")):
        words = ("audit", folder / "model.safetensors", tmp_path / rows, "--concept", tmp_path / labels)
        assert cli(*words, "-o", tmp_path / "a.json", *QUICK, *ROOMY)[0] == 0
        reports.append(json.loads((tmp_path / "a.json").read_text()))
        del reports[-1]["about"]["seconds"], reports[-1]["about"]["files"]
    assert reports[0] == reports[1] == reports[2]


def test_groups_are_a_column_of_labels(cli, tmp_path) -> None:
    """Each row stands three times, and the class belongs to the source alone."""
    rng = np.random.default_rng(0)
    source = np.arange(900) // 3
    np.save(tmp_path / "x.npy", rng.normal(size=(300, 30))[source])
    z = rng.integers(2, size=300)[source]
    table = tmp_path / "z.csv"
    table.write_text("kind,doc\n" + "".join(f"{k},d{s}\n" for k, s in zip(z, source, strict=True)))
    words = ("audit", tmp_path / "x.npy", tmp_path / "x.npy", "--concept", f"{table}:kind", "--overwrite")
    words = (*words, "-o", tmp_path / "a.json", "--adversaries", "narrow kernel")
    code, text, err = cli(*words)
    assert code == 4 and "--groups" in text + err
    code, text, err = cli(*words, "--groups", f"{table}:doc")
    assert code == 5 and "copy" not in text + err
    assert json.loads((tmp_path / "a.json").read_text())["about"]["groups"] == 300


@pytest.fixture
def small_panel(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("budget.search", "evaluation.frontier"):
        monkeypatch.setattr(f"mute.{module}.JUDGES", ("logistic", "quadratic"))


FRONTIER = ("--families", "noise,components", "--shares", "0.6,0.3", *ROOMY)


@pytest.mark.parametrize("suffix", ["html", "md", "json"])
def test_frontier_of_columns_of_one_file(cli, folder, tmp_path, sabotage, small_panel, suffix) -> None:
    sabotage("broken", RuntimeError("no such luck"))
    out, table = tmp_path / f"frontier.{suffix}", folder / "all.csv"
    words = ("frontier", table, "--concept", "kind", "--task", "task", "--methods", "broken,leace", "-o", out)
    code, text, _ = cli(*words, *FRONTIER)
    assert code == 0 and "broken failed: RuntimeError: no such luck" in text and f"wrote {out}" in text
    assert "leace  lossless" in text and "measured points keep the budget of 10 points" in text
    assert "5 columns" not in text, "the task is no part of the embedding"
    (part,) = (tmp_path / "frontier.parts").iterdir()
    stamp = part.stat().st_mtime_ns
    assert cli(*words, *FRONTIER, "--max-leak", "0.2")[0] == 0
    assert part.stat().st_mtime_ns == stamp, "finished methods are not made again"
    assert cli(*words, *FRONTIER, "--again", "--quiet") == (0, "", "")
    assert part.stat().st_mtime_ns != stamp


def test_frontier_with_groups(cli, folder, tmp_path, small_panel) -> None:
    (tmp_path / "person.txt").write_text("".join(f"p{i // 2}\n" for i in range(1200)))
    words = ("frontier", folder / "x_new.npy", "--concept", folder / "z_new.npy", "--methods", "leace", *FRONTIER)
    assert cli(*words, "--groups", tmp_path / "person.txt", "-o", tmp_path / "f.json")[0] == 0
    assert json.loads((tmp_path / "f.json").read_text())["frontier"]["groups"] == 600


def test_an_interrupted_frontier_says_what_it_keeps(cli, folder, tmp_path, sabotage, small_panel) -> None:
    sabotage("stopped", KeyboardInterrupt())
    words = ("frontier", folder / "x_new.npy", "--concept", folder / "z_new.npy", "--methods", "none,stopped")
    code, _, err = cli(*words, "-o", tmp_path / "f.md", *FRONTIER)
    assert code == 130 and "1 finished method(s) are kept" in err
    assert [p.name for p in tmp_path.iterdir()] == ["f.parts"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--families", "wibble"), "families must be some of noise, noise by worth, components, one bit, not 'wibble'"),
        (("--shares", "0.5,1.5"), "each of shares must be a number between 0 and 1, not 1.5"),
        (("--shares", "half"), "--shares takes numbers separated by commas, such as 0.6,0.3, not 'half'"),
        (("--max-leak", "0.02"), "a budget of 0.02 needs at least 2,401 rows"),
        (("-o", "f.pdf"), "give a name ending in .html, .md, .json"),
        (("-o", "x_new.npy.md"), "is not a report; choose another name, or replace it with --overwrite"),
    ],
)
def test_frontier_bad_input(cli, folder, tmp_path, monkeypatch, words, message) -> None:
    monkeypatch.chdir(folder)
    (folder / "x_new.npy.md").write_text("my notes")
    code, text, err = cli("frontier", "x_new.npy", "--concept", "z_new.npy", "-o", tmp_path / "f.md", *words)
    assert code == 1 and message in err and text == ""
    assert err.startswith("mute: ") and err.count("\n") == 1
    assert not list(tmp_path.iterdir())
