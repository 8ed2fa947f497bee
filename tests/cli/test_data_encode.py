"""`mute data encode`, run as a user runs it."""

import json
import pickle

import numpy as np
import pytest

from mute.text import load_encoder
from tiny_encoders import WIDTH, sentences, write_encoder

pytest.importorskip("onnxruntime")
pytest.importorskip("tokenizers")

TEXTS = ["she is a nurse", "", 'he said: "no, not 1"', *sentences(20)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The same texts in every kind of file, and an encoder."""
    import csv

    import pyarrow as pa
    import pyarrow.parquet as pq

    place = tmp_path_factory.mktemp("files")
    write_encoder(place / "encoder", "bert")
    (place / "x.txt").write_text("\n".join(TEXTS) + "\n")
    rows = [{"id": i, "text": text} for i, text in enumerate(TEXTS)]
    with open(place / "x.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, ["id", "text"])
        writer.writeheader()
        writer.writerows(rows)
    pq.write_table(pa.Table.from_pylist(rows), place / "x.parquet")
    (place / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (place / "x.pickle").write_bytes(pickle.dumps([{"text": text} for text in TEXTS]))
    (place / "dict.pickle").write_bytes(pickle.dumps({"text": TEXTS}))
    return place


@pytest.mark.parametrize("spec", ["x.txt", "x.csv:text", "x.parquet:text", "x.jsonl:text", "x.pickle:text", "x.pickle"])
def test_every_kind_of_file(cli, folder, spec, tmp_path):
    code, out, err = cli(
        "data", "encode", folder / spec, "-o", tmp_path / "x.npy", "--encoder", folder / "encoder", "--batch-size", 5
    )
    assert (code, err) == (0, "") and f"wrote 23 rows of {WIDTH} columns" in out and "texts/s" in out
    np.testing.assert_allclose(np.load(tmp_path / "x.npy"), load_encoder(folder / "encoder")(TEXTS), atol=1e-5)
    assert [file.name for file in tmp_path.iterdir()] == ["x.npy"]


def test_settings_and_other_outputs(cli, folder, tmp_path):
    words = ["data", "encode", folder / "x.txt", "--encoder", folder / "encoder", "--quiet"]
    settings = ["--pooling", "cls", "--max-tokens", 5]
    assert cli(*words, "-o", tmp_path / "x.npz", *settings) == (0, "", "")
    expected = load_encoder(folder / "encoder", pooling="cls", max_tokens=5)(TEXTS)
    np.testing.assert_array_equal(np.load(tmp_path / "x.npz")["X"], expected)


def test_interrupted_it_goes_on_where_it_was(cli, folder, tmp_path, monkeypatch):
    from mute.text.encoders import encoding

    monkeypatch.setattr(encoding, "_BLOCK", 10)
    encoder = load_encoder(folder / "encoder")
    whole, calls = type(encoder)._encode, []

    def stops(self, texts, batch_size, progress):
        calls.append(len(texts))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return whole(self, texts, batch_size, progress)

    monkeypatch.setattr(type(encoder), "_encode", stops)
    words = ["data", "encode", folder / "x.txt", "-o", tmp_path / "x.npy", "--encoder", folder / "encoder"]
    code, _, err = cli(*words)
    assert code == 130 and "encoded texts are kept in" in err and len(err.splitlines()) == 1
    assert "run the same command to continue" in err
    assert [file.name for file in tmp_path.iterdir()] == ["x.npy.parts"]
    code, out, err = cli(*words)
    assert (code, err) == (0, "") and "10 of them made before" in out
    assert calls == [10, 10, 10, 3]
    assert [file.name for file in tmp_path.iterdir()] == ["x.npy"]
    monkeypatch.setattr(type(encoder), "_encode", whole)
    np.testing.assert_allclose(np.load(tmp_path / "x.npy"), encoder(TEXTS), atol=1e-5)


def test_interrupted_at_once(cli, folder, tmp_path, monkeypatch):
    def stops(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(load_encoder(folder / "encoder")), "_encode", stops)
    words = ["data", "encode", folder / "x.txt", "-o", tmp_path / "x.npy", "--encoder", folder / "encoder"]
    code, _, err = cli(*words)
    assert code == 130 and "nothing was written" in err and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nothing.txt", "does not exist"),
        ("x.csv", "holds 2 columns; choose one"),
        ("x.csv:txet", "did you mean 'text'?"),
        ("x.parquet:id", "row 0 (counting from 0) is 0, not a text"),
        ("x.jsonl", "holds 2 keys"),
        ("x.jsonl:id", "row 0 (counting from 0) is 0, not a text"),
        ("broken.jsonl:text", "cannot be read as .jsonl"),
        ("ragged.jsonl:text", "row 1 (counting from 0) has no 'text'"),
        ("list.jsonl:text", "row 0 (counting from 0) is [1], not a dict"),
        ("x.npy", "unknown kind"),
        ("header.csv:text", "has no texts"),
    ],
)
def test_texts_that_cannot_be_read(cli, folder, tmp_path, spec, message):
    (folder / "broken.jsonl").write_text("{")
    (folder / "ragged.jsonl").write_text('{"text": "a"}\n{"id": 1}\n')
    (folder / "list.jsonl").write_text("[1]\n")
    (folder / "header.csv").write_text("text\n")
    np.save(folder / "x.npy", np.zeros(3))
    code, _, err = cli("data", "encode", folder / spec, "-o", tmp_path / "x.npy", "--encoder", folder / "encoder")
    assert code == 1 and message in err and len(err.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_what_is_found_out_before_the_work(cli, folder, tmp_path):
    words = ["data", "encode", folder / "x.txt", "--encoder"]
    code, _, err = cli(*words, folder / "encoder", "-o", tmp_path / "none" / "x.npy")
    assert code == 1 and "does not exist, so create it first" in err
    code, _, err = cli(*words, folder / "encoder", "-o", tmp_path / "x.docx")
    assert code == 1 and "x.docx cannot hold rows; give a name ending in .npy" in err
    code, _, err = cli(*words, folder / "encoder", "-o", tmp_path / "x.npy", "--max-tokens", 1000)
    assert code == 1 and "at most" in err
    assert cli(*words, folder / "encoder", "-o", tmp_path / "x.npy", "--pooling", "max")[0] == 2


def test_pickles_that_hold_something_else(cli, folder, tmp_path):
    words = ["-o", tmp_path / "x.npy", "--encoder", folder / "encoder"]
    code, _, err = cli("data", "encode", folder / "dict.pickle:text", *words)
    assert code == 1 and "is a pickled dict: a list of dicts" in err
