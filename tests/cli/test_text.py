"""`mute text`, run as a user runs it, with a tiny encoder."""

import csv
import json

import numpy as np
import pytest

import fake_text_modules
from mute import MuteError
from mute.text import Decoded, TextCounterfactual, saving
from tiny_encoders import write_encoder

pytest.importorskip("onnxruntime")
pytest.importorskip("tokenizers")

RNG = np.random.default_rng(0)
WORDS = ["nurse", "doctor", "home", "work", "went", "was", "the"]
ROWS = [
    {"id": i, "bio": f"{who} {' '.join(RNG.choice(WORDS, 4))}", "gender": "male" if who == "he" else "female"}
    for i, who in enumerate(["he", "she"] * 60)
]
FAST = ["--method", "mean-difference", "--set", "router=logistic"]


def write_csv(path, rows):
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A corpus in every kind of file, pairs with references, an encoder and two models."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from mute.steering import MeanDifference

    place = tmp_path_factory.mktemp("files")
    write_encoder(place / "encoder", "bert")
    write_csv(place / "x.csv", ROWS)
    (place / "x.tsv").write_text("id\tbio\tgender\n" + "".join("\t".join(map(str, r.values())) + "\n" for r in ROWS))
    pq.write_table(pa.Table.from_pylist(ROWS), place / "x.parquet")
    (place / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    pairs = [
        {
            "a": row["bio"],
            "b": row["bio"].replace("he ", "she ", 1) if row["gender"] == "male" else row["bio"][1:],
            "is": row["gender"],
            "to": "female" if row["gender"] == "male" else "male",
        }
        for row in ROWS[:20]
    ]
    write_csv(place / "pairs.csv", pairs)
    texts, z = [row["bio"] for row in ROWS], [row["gender"] for row in ROWS]
    for name, router in (("model", "logistic"), ("oracle", None)):
        method = MeanDifference(router=router, random_state=0)
        TextCounterfactual(place / "encoder", method, "retrieval").fit(texts, z).save(place / name)
    return place


@pytest.fixture(autouse=True)
def edits(monkeypatch):
    monkeypatch.setitem(saving.DECODERS, "edits", fake_text_modules.EditSearch)


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet", "jsonl"])
def test_fit_and_move(cli, folder, tmp_path, kind):
    words = ["--text", "bio", "--concept", "gender", "--encoder", folder / "encoder", *FAST, "-o", tmp_path / "model"]
    code, out, err = cli("text", "fit", folder / f"x.{kind}", *words)
    assert (code, err) == (0, ""), err
    assert "fitting on 120 texts" in out and "MeanDifference" in out and "decoder edits" in out
    assert "female" in out and "60" in out and f"wrote {tmp_path / 'model'}" in out
    assert [path.name for path in tmp_path.iterdir()] == ["model"], "the cache is gone"
    code, out, err = cli("text", "counterfactual", tmp_path / "model", "he went home", "she was home", "--to", "female")
    assert (code, out, err) == (0, "she went home\nshe was home\n", "")


def test_some_rows_and_retrieval(cli, folder, tmp_path):
    words = ["--text", "bio", "--concept", "gender", "--encoder", folder / "encoder", *FAST, "--decoder", "retrieval"]
    code, out, err = cli("text", "fit", folder / "x.csv", *words, "--rows", 50, "-o", tmp_path / "a")
    assert (code, err) == (0, "") and "fitting on 50 texts" in out
    assert cli("text", "fit", folder / "x.csv", *words, "--rows", 50, "-o", tmp_path / "b", "--quiet") == (0, "", "")
    a, b = ((tmp_path / name / "decoder.safetensors").read_bytes() for name in "ab")
    assert a == b, "the same seed draws the same rows"
    texts = [row["bio"] for row in ROWS]
    code, out, _ = cli("text", "counterfactual", tmp_path / "a", "he went home", "--to", "female", "--from", "male")
    assert code == 0 and out.strip() in texts


def test_an_interrupted_fit_goes_on(cli, folder, tmp_path, monkeypatch):
    from mute.steering import MeanDifference

    def stops(*_):
        raise KeyboardInterrupt

    words = ["--text", "bio", "--concept", "gender", "--encoder", folder / "encoder", *FAST, "-o", tmp_path / "model"]
    with monkeypatch.context() as patch:
        patch.setattr(MeanDifference, "_learn", stops)
        code, _, err = cli("text", "fit", folder / "x.csv", *words)
    assert code == 130 and "encoded texts are kept in" in err and len(err.splitlines()) == 1
    assert "run the same command to continue" in err
    assert [path.name for path in tmp_path.iterdir()] == ["model.parts"]
    assert cli("text", "fit", folder / "x.csv", *words)[0] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_in_a_terminal_differences_are_shown(cli, folder, tmp_path, monkeypatch):
    words = ["--text", "bio", "--concept", "gender", "--encoder", folder / "encoder", *FAST, "-o", tmp_path / "model"]
    cli("text", "fit", folder / "x.csv", *words)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    code, out, _ = cli("text", "counterfactual", tmp_path / "model", "he went home", "--to", "female", "-q")
    assert code == 0 and "\x1b[9;31mhe\x1b[0m went home" in out and "\x1b[1;32mshe\x1b[0m went home" in out
    assert "→" in out


def test_files_in_and_out(cli, folder, tmp_path):
    (tmp_path / "x.txt").write_text("he went home\nshe was the doctor\n")
    words = ["text", "counterfactual", folder / "model", "--file", tmp_path / "x.txt", "--to", "female"]
    for kind in ("csv", "tsv", "jsonl", "txt"):
        code, out, err = cli(*words, "-o", tmp_path / f"out.{kind}", "--html", tmp_path / "gallery.html")
        assert (code, err) == (0, "") and f"wrote {tmp_path / f'out.{kind}'}" in out and "2 texts, 1 changed" in out
    lines = (tmp_path / "out.txt").read_text().splitlines()
    assert lines[1] == "she was the doctor"
    with open(tmp_path / "out.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["source", "text", "concept", "to", "start_score", "score"]
    assert [row["text"] for row in rows] == lines and rows[0]["concept"] == "male"
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["text"] for row in found] == lines and isinstance(found[0]["score"], float)
    assert "<del>he" in (tmp_path / "gallery.html").read_text()
    code, out, err = cli(*words[:3], "--file", f"{folder / 'pairs.csv'}:a", "--to", "female")
    assert (code, err) == (0, "") and len(out.splitlines()) == 20


def test_line_breaks_do_not_break_lines(cli, folder):
    code, out, _ = cli("text", "counterfactual", folder / "model", "she went\nhome", "--to", "female")
    assert code == 0 and out == "she went home\n"


def test_an_inverter_in_place_of_the_decoder(cli, folder, monkeypatch, tmp_path):
    class Inverter:
        @classmethod
        def load(cls, path, encoder):
            if not path.exists():
                raise MuteError(f"{path} does not exist")
            return cls()

        def decode(self, embeddings, sources=None):
            return Decoded([f"{source}!" for source in sources], np.zeros(len(sources), np.float32))

    monkeypatch.setattr("mute.text.Inverter", Inverter)
    words = ["text", "counterfactual", folder / "model", "he went home", "--to", "female", "--from", "male"]
    assert cli(*words, "--inverter", tmp_path) == (0, "he went home!\n", "")
    code, _, err = cli(*words, "--inverter", tmp_path / "none")
    assert code == 1 and "does not exist" in err


def test_train_inverter(cli, folder, monkeypatch, tmp_path):
    calls = []

    class Trained:
        quality_ = {"cosine": 0.91234, "texts": 12}  # noqa: RUF012

    def train_inverter(texts, encoder, *, folder, embeddings, random_state, progress, **more):
        calls.append((len(texts), embeddings.shape, more, random_state))
        progress("guessing", 0.5)
        if len(calls) == 1:
            raise KeyboardInterrupt
        folder.mkdir()
        return Trained()

    monkeypatch.setattr("mute.text.train_inverter", train_inverter)
    words = ["text", "train-inverter", folder / "x.csv", "--text", "bio", "--encoder", folder / "encoder"]
    code, _, err = cli(*words, "-o", tmp_path / "inverter", "--minutes", 2, "--rows", 30)
    assert code == 130 and "run the same command to continue" in err
    assert [path.name for path in tmp_path.iterdir()] == ["inverter.parts"]
    code, out, err = cli(*words, "-o", tmp_path / "inverter", "--minutes", 2, "--rows", 30)
    assert (code, err) == (0, "") and "cosine: 0.912" in out and "texts: 12" in out
    assert calls == [(30, (30, 16), {"minutes": 2.0}, 0)] * 2
    assert [path.name for path in tmp_path.iterdir()] == ["inverter"]
    (tmp_path / "file").write_text("")
    assert "a file is there" in cli(*words, "-o", tmp_path / "file")[2]


def test_evaluate(cli, folder, tmp_path):
    pytest.importorskip("mute.text.evaluation.metrics")
    words = ["text", "evaluate", folder / "model", folder / "pairs.csv", "--source", "a", "--reference", "b"]
    code, out, err = cli(*words, "--to", "to", "--concept", "is", "-o", tmp_path / "deep" / "results")
    assert (code, err) == (0, ""), err
    for word in ("BLEU", "r_g", "BERTScore", "identity", "reference", "male → female", "all (20)", "20 texts in"):
        assert word in out
    found = json.loads((tmp_path / "deep" / "results" / "results.json").read_text())
    assert len(found["figures"]) == 9 and len(found["texts"]) == 20 and len(found["worst"]) == 10
    ceiling = next(row for row in found["figures"] if row["row"] == "reference")
    assert ceiling["bleu"] == pytest.approx(100) and ceiling["bertscore"] == pytest.approx(1, abs=1e-5)
    page = (tmp_path / "deep" / "results" / "gallery.html").read_text()
    assert page.count("<article>") == 20 and "The worst" in page and "<h3>reference</h3>" in page
    (tmp_path / "words.json").write_text(json.dumps({"male": ["he"], "female": ["she"]}))
    more = ["--words", tmp_path / "words.json", "--concept", "male", "-o", tmp_path / "again", "--quiet"]
    assert cli(*words, "--to", "female", *more) == (0, "", "")
    found = json.loads((tmp_path / "again" / "results.json").read_text())
    assert {row["direction"] for row in found["figures"]} == {"all"}


MOVE = ["counterfactual", "model", "he went home"]
FIT = ["fit", "x.csv", "--text", "bio", "--concept", "gender"]
JUDGE = ["evaluate", "model", "pairs.csv", "--source", "a", "--reference", "b", "-o", "r"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["counterfactual", "model", "--to", "female"], "or give --file"),
        ([*MOVE, "--file", "pairs.csv:a", "--to", "female"], "or give --file"),
        ([*MOVE, "--to", "femail"], "--to 'femail' is no label of the model; its labels"),
        ([*MOVE, "--to", "male", "--from", "x"], "--from 'x' is no label"),
        (["counterfactual", "oracle", "he left", "--to", "female"], "has no router"),
        (["counterfactual", "none", "he left", "--to", "female"], "none does not exist; give the path of a folder"),
        (["counterfactual", "encoder", "he left", "--to", "female"], "model.json does not exist"),
        (["counterfactual", "x.csv", "he left", "--to", "female"], "is a file"),
        ([*MOVE, "--to", "female", "-o", "out.docx"], "give a name ending in .csv, .tsv, .jsonl, .txt"),
        ([*MOVE, "--to", "female", "-o", "none/out.csv"], "does not exist, so create it"),
        ([*MOVE, "--to", "female", "--html", "none/x.html"], "does not exist, so create it"),
        (["counterfactual", "model", "--file", "pairs.csv:c", "--to", "female"], "has no column 'c'"),
        ([*MOVE, "--to", "male", "--encoder", "nowhere"], "nowhere"),
        (["fit", "x.csv", "--text", "boi", "--concept", "gender", "-o", "m"], "did you mean 'bio'?"),
        (["fit", "x.csv", "--text", "bio", "--concept", "gendre", "-o", "m"], "did you mean 'gender'?"),
        (["fit", "gaps.jsonl", "--text", "bio", "--concept", "gender", "-o", "m"], "row 1 (counting from 0) is None"),
        (["fit", "pairs.txt", "--text", "bio", "--concept", "gender", "-o", "m"], "ends in .csv, .tsv"),
        (["fit", "none.csv", "--text", "bio", "--concept", "gender", "-o", "m"], "does not exist"),
        ([*FIT, "-o", "encoder"], "holds no model of mute"),
        ([*FIT, "-o", "x.csv"], "a file is there"),
        ([*FIT, "-o", "m", "-m", "leace"], "makes no counterfactuals"),
        ([*FIT, "-o", "m", "-m", "none"], "makes no counterfactuals"),
        ([*FIT, "-o", "m", "-m", "moot"], "no method 'moot'"),
        ([*FIT, "-o", "m", "--set", "a=1"], "has no setting 'a'"),
        ([*JUDGE, "--to", "x"], "neither a label"),
        ([*JUDGE, "--to", "a"], "is no label of the model"),
        ([*JUDGE, "--to", "to", "--source", "x"], "no column 'x'"),
        ([*JUDGE, "--to", "to", "--words", "words.json"], "must look like"),
        ([*JUDGE, "--to", "to", "-o", "x.csv"], "a file is there"),
    ],
)
def test_bad_input_is_one_line(cli, folder, monkeypatch, words, message):
    monkeypatch.chdir(folder)
    (folder / "gaps.jsonl").write_text('{"bio": "a", "gender": "x"}\n{"bio": "b", "gender": null}\n')
    (folder / "pairs.txt").write_text("a\n")
    (folder / "words.json").write_text('{"male": "he"}')
    before = {path.name for path in folder.iterdir()}
    more = ["--encoder", "encoder"] if words[0] == "fit" else []
    code, _, err = cli("text", *words, *more)
    assert code == 1 and message in err and len(err.splitlines()) == 1
    assert {path.name for path in folder.iterdir()} == before


def test_misspelt_commands(cli, folder):
    assert cli("text", "counterfactual", folder / "model", "he left")[0] == 2
    assert cli("text", "fit", folder / "x.csv", "--text", "bio", "-o", "m")[0] == 2
    code, out, _ = cli("text", "--help")
    assert code == 0 and "train-inverter" in out
