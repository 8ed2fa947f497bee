"""`mute certify`, run as a user runs it."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mute import certify
from mute.rivals import LEACE


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of two classes that differ in place alone, which LEACE erases; a model, and unseen rows that it erased."""
    place = tmp_path_factory.mktemp("certifying")
    rng = np.random.default_rng(0)
    z = rng.choice(["cat", "dog"], 24_000)
    X = rng.normal(size=(24_000, 3)) + (z == "dog")[:, None]
    eraser = LEACE().fit(X[:4000], z[:4000])
    eraser.save(place / "model.safetensors")
    for name, rows in (("fit", slice(0, 4000)), ("new", slice(4000, None)), ("few", slice(4000, 4100))):
        np.save(place / f"x_{name}.npy", X[rows])
        np.save(place / f"z_{name}.npy", z[rows])
    np.save(place / "q_new.npy", eraser.transform(X[4000:]))
    return place


def words(folder: Path, model: str = "model.safetensors", rows: str = "new") -> tuple:
    return "certify", folder / model, folder / f"x_{rows}.npy", "--concept", folder / f"z_{rows}.npy"


def test_within_the_budget(cli, folder, tmp_path) -> None:
    out = tmp_path / "certificate.json"
    code, text, _ = cli(*words(folder), "--cells", 8, "-o", out)
    saved = json.loads(out.read_text())
    X, z = np.load(folder / "x_new.npy"), np.load(folder / "z_new.npy")
    found = certify(LEACE().fit(np.load(folder / "x_fit.npy"), np.load(folder / "z_fit.npy")), X, z, cells=8)
    assert code == 0 and saved == found.to_dict()
    assert text.startswith("within the budget of 3 points above chance\n")
    assert found.summary[0] in text and "any adversary names at most" in text and f"wrote {out}" in text


def test_above_the_budget_and_rows_erased_elsewhere(cli, folder, tmp_path) -> None:
    out = tmp_path / "c.md"
    code, text, _ = cli(*words(folder, "x_new.npy"), "-o", out)
    assert code == 3 and text.startswith("above the budget of 3 points") and "fewer --cells" in text
    assert out.read_text().startswith("# Certificate of rows erased elsewhere: at most")
    assert cli(*words(folder, "x_new.npy"), "--max-leak", 0.4)[0] == 0
    # A certificate may be written over, other files may not.
    assert cli(*words(folder, "q_new.npy"), "--cells", 8, "-o", out)[0] == 0
    (tmp_path / "notes.md").write_text("mine")
    code, _, err = cli(*words(folder), "-o", tmp_path / "notes.md")
    assert code == 1 and "is not a report" in err and (tmp_path / "notes.md").read_text() == "mine"


def test_a_table_is_matched_by_name(cli, folder, tmp_path) -> None:
    X, z = np.load(folder / "x_new.npy")[:3000], np.load(folder / "z_new.npy")[:3000]
    people = pd.DataFrame({"kind": z, "b": X[:, 1], "c": X[:, 2], "a": X[:, 0]})
    people.to_csv(tmp_path / "new.csv", index=False)
    named = pd.DataFrame(np.load(folder / "x_fit.npy"), columns=["a", "b", "c"])
    eraser = LEACE().fit(named, np.load(folder / "z_fit.npy"))
    eraser.save(tmp_path / "named.safetensors")
    given = ("--concept", "kind", "--columns", "a,b,c", "--cells", 4, "-o", tmp_path / "c.json")
    code, text, _ = cli("certify", tmp_path / "named.safetensors", tmp_path / "new.csv", *given)
    assert code in (0, 3) and "as the embedding" in text
    found = json.loads((tmp_path / "c.json").read_text())
    assert found["counts"] == certify(eraser, people[["b", "c", "a"]], z, cells=4).counts.tolist()


def test_too_few_rows(cli, folder) -> None:
    code, text, _ = cli(*words(folder, rows="few"), "--cells", 4)
    assert code == 5 and text.startswith("too few rows for the budget")


def test_rows_that_fix_the_cells(cli, folder, tmp_path) -> None:
    given = ("--fit-rows", folder / "x_fit.npy", "--fit-concept", folder / "z_fit.npy")
    code, text, err = cli(*words(folder), *given, "--cells", 8, "-q", "-o", tmp_path / "c.json")
    assert (code, text, err) == (0, "", "")
    assert sum(json.loads((tmp_path / "c.json").read_text())["rows"]) == 20_000
    code, _, err = cli(*words(folder), *given[:2])
    assert code == 1 and "--fit-rows and --fit-concept go together" in err
    code, _, err = cli(*words(folder, rows="fit"))
    assert code == 1 and "the very rows that the eraser was fitted on" in err
