"""The door for a fairness engineer: an ordinary table of people in, the right model and the right table out."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import mute

pytest.importorskip("pyarrow")

D = 5
E = [f"e{i}" for i in range(D)]


def people(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    gender = rng.integers(0, 2, n)
    X = rng.normal(size=(n, D)).astype(np.float32) + gender[:, None]
    ids = rng.permutation(n) + 1000
    columns: dict[str, Any] = {"person_id": ids, **dict(zip(E, X.T, strict=True)), "gender": gender}
    return pd.DataFrame({**columns, "job": rng.choice(["nurse", "judge"], n)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("people")
    people(600, 0).to_parquet(place / "people.parquet", index=False)
    new = people(200, 1)
    new.to_parquet(place / "same.parquet", index=False)
    new[["job", *reversed(E), "gender", "person_id"]].to_parquet(place / "new.parquet", index=False)
    new.to_csv(place / "new.csv", index=False)
    new.drop(columns="e3").to_parquet(place / "missing.parquet", index=False)
    return place


@pytest.fixture(scope="module")
def model(folder: Path) -> Path:
    from typer.testing import CliRunner

    from mute.cli.main import app

    words = ["fit", f"{folder}/people.parquet", "--concept", "gender", "-o", f"{folder}/gender.safetensors"]
    done = CliRunner().invoke(app, [*words, "--iterations", "3", "--router", "logistic"])
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[0] == (
        f"5 columns e0 … e4 of {folder}/people.parquet as the embedding; concept gender (2 classes: 0, 1); left out: "
        "person_id, job"
    )
    return folder / "gender.safetensors"


def test_the_model_is_that_of_the_embedding_alone(folder: Path, model: Path) -> None:
    table, loaded = pd.read_parquet(folder / "people.parquet"), mute.load(model)
    expected = mute.MUtE(3, router="logistic", random_state=0).fit(table[E], table["gender"])
    assert loaded.feature_names_in_.tolist() == E
    np.testing.assert_array_equal(loaded.transform(table), expected.transform(table[E]))


@pytest.mark.parametrize("name", ["same.parquet", "new.parquet", "new.csv"])
def test_columns_in_any_order_and_the_rest_of_the_table(
    cli: Any, folder: Path, model: Path, tmp_path: Path, name: str
) -> None:
    out = tmp_path / f"out{Path(name).suffix}"
    code, text, err = cli("erase", model, folder / name, "-o", out)
    assert (code, err) == (0, "")
    assert "without gender, which tells the class (--keep-concept keeps it)" in text
    read = pd.read_csv if name.endswith("csv") else pd.read_parquet
    before, after = read(folder / name), read(out)
    assert list(after.columns) == [column for column in before.columns if column != "gender"]
    pd.testing.assert_frame_equal(after.drop(columns=E), before.drop(columns=[*E, "gender"]))
    X = pd.read_parquet(folder / "same.parquet")[E]
    np.testing.assert_allclose(after[E], mute.load(model).transform(X), atol=1e-5)  # text was read as float64


def test_other_outputs(cli: Any, folder: Path, model: Path, tmp_path: Path) -> None:
    code, _, err = cli("erase", model, folder / "new.parquet", "-o", tmp_path / "q.npy")
    assert code == 1 and "cannot hold the other columns" in err and "--only-embedding" in err
    assert cli("erase", model, folder / "new.parquet", "--only-embedding", "-o", tmp_path / "q.npy")[0] == 0
    X = pd.read_parquet(folder / "same.parquet")[E]
    np.testing.assert_array_equal(np.load(tmp_path / "q.npy"), mute.load(model).transform(X))
    assert cli("erase", model, folder / "new.parquet", "--keep-concept", "-o", tmp_path / "q.parquet")[0] == 0
    assert "gender" in pd.read_parquet(tmp_path / "q.parquet")
    words = ("counterfactual", model, folder / "new.parquet", "--concept", "gender", "--to", "1")
    assert cli(*words, "-o", tmp_path / "cf.parquet")[0] == 0
    moved = pd.read_parquet(tmp_path / "cf.parquet")
    z = pd.read_parquet(folder / "same.parquet")["gender"]
    np.testing.assert_array_equal(moved[E], mute.load(model).counterfactual(X, 1, concept=z))
    assert "gender" not in moved and list(moved["person_id"]) == list(
        pd.read_parquet(folder / "same.parquet")["person_id"]
    )


def test_dry_runs_write_nothing(cli: Any, folder: Path, model: Path, tmp_path: Path) -> None:
    people, new = folder / "people.parquet", folder / "new.parquet"
    code, text, _ = cli("fit", people, "--concept", "job", "-o", tmp_path / "m.safetensors", "--dry-run")
    assert code == 0 and "concept job (2 classes: judge, nurse); left out: person_id, gender" in text
    code, text, _ = cli("erase", model, new, "-o", tmp_path / "q.parquet", "--dry-run")
    assert code == 0 and "200 rows would be written" in text
    assert not list(tmp_path.iterdir())


def test_what_is_refused(cli: Any, folder: Path, model: Path, tmp_path: Path) -> None:
    people, out = folder / "people.parquet", tmp_path / "m.safetensors"
    table = pd.read_parquet(people)
    table.assign(g=[None, *["a", "b"] * 299, "a"]).to_parquet(tmp_path / "gaps.parquet")
    table.assign(g=1).to_parquet(tmp_path / "constant.parquet")
    table.assign(g=["x", *["a", "b"] * 299, "a"]).to_parquet(tmp_path / "lonely.parquet")
    table.assign(g=np.arange(600) % 70).to_parquet(tmp_path / "age.parquet")
    table.drop(columns=E).assign(height=1.5).to_parquet(tmp_path / "none.parquet")
    files = sorted(tmp_path.iterdir())
    for words, message in [
        (
            ("erase", model, folder / "missing.parquet", "-o", tmp_path / "q.parquet"),
            "has no column 'e3', which the model",
        ),
        (("fit", tmp_path / "gaps.parquet", "--concept", "g", "-o", out), "1 of 600 labels are missing"),
        (("fit", tmp_path / "constant.parquet", "--concept", "g", "-o", out), "only one class, 1, in all 600 rows"),
        (("fit", tmp_path / "lonely.parquet", "--concept", "g", "-o", out), "1 of 3 classes have one row only"),
        (("fit", tmp_path / "age.parquet", "--concept", "g", "-o", out), "70 different numbers (0 to 69) in 600 rows"),
        (("fit", tmp_path / "none.parquet", "--concept", "gender", "-o", out), "the numeric columns person_id, height"),
        (("fit", people, "--concept", "gendre", "-o", out), "no column 'gendre'; did you mean 'gender'?"),
        (("fit", people, "--concept", "gender", "--columns", "job", "-o", out), "column 'job' is not numeric"),
        (
            ("fit", people, "--concept", "gender", "--columns", "gender,e0", "-o", out),
            "'gender' has labels of this call",
        ),
        (("fit", people, "--concept", "gender", "-o", people), "cannot hold a model"),
        (("erase", model, people, "-o", people), "is an input of this command"),
        (("erase", model, people, "--only-embedding", "-o", model), "is an input of this command"),
        (("erase", model, people, "--only-embedding", "--overwrite", "-o", model), "is an input of this command"),
        (("fit", "", "--concept", "gender", "-o", out), "a path is empty"),
    ]:
        code, _, err = cli(*words)
        assert code == 1 and message in err and len(err.splitlines()) == 1, (words, err)
    assert sorted(tmp_path.iterdir()) == files


def test_a_file_of_another_kind_is_not_written_over(cli: Any, folder: Path, model: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.safetensors"
    other.write_bytes(model.read_bytes())
    words = ("erase", model, folder / "new.parquet", "--only-embedding", "-o", other)
    code, _, err = cli(*words)
    assert code == 1 and "other.safetensors exists and is not rows; choose another name" in err
    assert other.read_bytes() == model.read_bytes()
    assert cli(*words, "--overwrite")[0] == 0 and mute.open_matrix(other).shape == (200, D)
    notes = tmp_path / "README.md"
    notes.write_text("# My project\n")
    audit = ("audit", model, folder / "new.parquet", "--concept", "gender", "--adversaries", "logistic")
    code, _, err = cli(*audit, "-o", notes)
    assert code == 1 and "README.md exists and is not a report" in err and notes.read_text() == "# My project\n"
    assert cli(*audit, "-o", tmp_path / "audit.md")[0] in (0, 3, 4, 5)
    assert cli(*audit, "-o", tmp_path / "audit.md")[0] in (0, 3, 4, 5)  # its own report may be replaced


def test_patterns_and_ids(cli: Any, tmp_path: Path) -> None:
    people(300, 0).rename(columns={"e4": "ethnicity"}).to_csv(tmp_path / "t.csv", index=False)
    words = ("fit", tmp_path / "t.csv", "--concept", "gender", "-o", tmp_path / "m.safetensors", "--dry-run")
    assert "4 columns e0 … e3 of" in cli(*words)[1]
    assert "5 columns e0 … ethnicity of" in cli(*words, "--columns", "e*")[1]
    code, text, _ = cli(*words, "--columns", "e*", "--id", "ethnicity")
    assert code == 0 and "4 columns e0 … e3 of" in text and "left out: person_id, ethnicity, job" in text
    assert "has no column 'e7', given by --id" in cli(*words, "--id", "e7")[2]
