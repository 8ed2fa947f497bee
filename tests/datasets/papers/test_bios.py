"""Bias in Bios in the authors' files: embeddings, labels and texts, and what is said when they do not fit."""

import pickle

import numpy as np
import pytest

from mute.datasets import load_bias_in_bios, read_bios_texts
from mute.errors import MuteError

SIZES = {"train": 7, "dev": 3, "test": 4}
OURS = {"train": "fit", "dev": "validate", "test": "test"}


def people(part):
    random = np.random.default_rng(len(part))
    return [
        {
            "g": str(random.choice(["f", "m"])),
            "p": str(random.choice(["nurse", "surgeon", "poet"])),
            "text": f"{part} {row} whole",
            "start": 3,
            "hard_text": ["A", "text"],
            "hard_text_untokenized": f"{part} {row}\nShe writes " + "long " * 30 * row,
            "text_without_gender": f"{part} {row} _ writes",
        }
        for row in range(SIZES[part])
    ]


def embeddings(part):
    return np.random.default_rng(SIZES[part]).normal(size=(SIZES[part], 8)).astype(np.float32)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "bert").mkdir()
    for part in SIZES:
        persons = people(part)
        (tmp_path / f"{part}.pickle").write_bytes(pickle.dumps(persons))
        np.save(tmp_path / "bert" / f"{part}_cls.npy", embeddings(part))
        for column, key in (("z", "g"), ("y", "p")):
            labels = np.array([person[key] for person in persons], dtype=object)
            np.save(tmp_path / "bert" / f"{part}_{column}.npy", labels, allow_pickle=True)
    return tmp_path


def check(data):
    for part, ours in OURS.items():
        rows = data.rows(ours)
        np.testing.assert_array_equal(rows.X, embeddings(part))
        assert rows.z.tolist() == [{"f": "female", "m": "male"}[person["g"]] for person in people(part)]
        assert rows.y.tolist() == [person["p"] for person in people(part)]
    assert data.X.dtype == np.float32
    assert len(data) == sum(SIZES.values())


def test_the_authors_files(folder):
    data = load_bias_in_bios(folder)
    check(data)
    names = data.rows("validate").names
    assert names[0] == "dev 0 She writes"
    assert names[2].startswith("dev 2 She writes long long")
    assert names[2].endswith("…")
    assert max(map(len, names)) == 80
    assert "De-Arteaga" in data.provenance["citation"]
    assert data.provenance["files"]["bert/train_cls.npy"]["bytes"] == 7 * 8 * 4 + 128
    assert len(data.provenance["files"]) == 12


def test_without_texts_rows_are_numbered(folder):
    for part in SIZES:
        (folder / f"{part}.pickle").unlink()
    data = load_bias_in_bios(str(folder))
    check(data)
    assert data.names[[0, 6, 7]].tolist() == ["train 0", "train 6", "dev 0"]


@pytest.mark.parametrize("missing", ["z", "y", "zy"])
def test_labels_come_from_the_pickles(folder, missing):
    for part in SIZES:
        for column in missing:
            (folder / "bert" / f"{part}_{column}.npy").unlink()
    check(load_bias_in_bios(folder))


def test_another_encoding(folder):
    (folder / "bert").rename(folder / "T5")
    for part in SIZES:
        (folder / "T5" / f"{part}_cls.npy").rename(folder / "T5" / f"{part}_meanpool.npy")
    data = load_bias_in_bios(folder, encoding="T5")
    check(data)
    assert data.provenance["encoding"] == "T5"
    with pytest.raises(MuteError, match=r"bert/train_cls.npy is missing"):
        load_bias_in_bios(folder)


def test_texts(folder):
    texts = read_bios_texts(folder)
    assert {len(column) for column in texts.values()} == {14}
    assert texts["text"][7] == people("dev")[0]["hard_text_untokenized"]
    assert texts["without_gender"][-1] == "test 3 _ writes"
    assert texts["split"] == ["fit"] * 7 + ["validate"] * 3 + ["test"] * 4
    data = load_bias_in_bios(folder)
    assert texts["z"] == data.z.tolist()
    assert texts["y"] == data.y.tolist()


def test_missing_files_come_with_instructions(folder):
    (folder / "dev.pickle").unlink()
    with pytest.raises(MuteError, match=r"dev.pickle is missing: .*nullspace/biasbios"):
        read_bios_texts(folder)
    (folder / "bert" / "dev_z.npy").unlink()
    with pytest.raises(MuteError, match=r"dev.pickle is missing"):
        load_bias_in_bios(folder)
    (folder / "bert" / "dev_cls.npy").unlink()
    expected = r"dev_cls.npy is missing: .*nullspace/biasbios.*mute data encode .*dev.pickle:hard_text_untokenized -o "
    with pytest.raises(MuteError, match=expected + r".*bert/dev_cls.npy --encoder BERT_FOLDER --pooling cls"):
        load_bias_in_bios(folder)
    for load in (load_bias_in_bios, read_bios_texts):
        with pytest.raises(MuteError, match="does not exist: give the folder"):
            load(folder / "absent")
        with pytest.raises(MuteError, match="is not a folder"):
            load(folder / "train.pickle")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("bert/dev_cls.npy", np.zeros((4, 8)), r"dev_z.npy has 3 rows where .*dev_cls.npy has 4"),
        ("bert/dev_cls.npy", np.zeros((3, 9)), r"dev_cls.npy has 9 columns where .*train_cls.npy has 8"),
        ("bert/dev_cls.npy", np.zeros(3), r"dev_cls.npy has float64 values of shape \(3,\)"),
        ("bert/dev_cls.npy", np.array([["a"] * 8] * 3), r"numbers of shape \(n, D\)"),
        ("bert/dev_cls.npy", np.full((3, 8), [[0], [np.nan], [0]]), r"dev_cls.npy has NaN.*in row 1"),
        ("bert/dev_cls.npy", np.full((3, 8), 1e300), r"infinite values, first in row 0"),
        ("bert/dev_z.npy", np.array(["f", "m"], dtype=object), r"dev_z.npy has 2 rows where .*dev_cls.npy has 3"),
        ("bert/dev_y.npy", np.array(["a"] * 4, dtype=object), r"dev_y.npy has 4 rows"),
        ("bert/dev_z.npy", np.array(["f", "m", None], dtype=object), r"dev_z.npy .* text of shape \(n,\)"),
        ("bert/dev_z.npy", np.array([0, 1, 0]), r"text of shape \(n,\)"),
        ("dev.pickle", {"a": 1}, r"dev.pickle contains no list of dicts"),
        ("dev.pickle", [{"g": "f"}] * 3, r"dev.pickle has no text under 'p' in entry 0"),
        ("dev.pickle", people("test"), r"dev.pickle has 4 rows where .*dev_cls.npy has 3"),
        ("dev.pickle", [], r"dev.pickle has 0 rows"),
        ("bert/dev_y.npy", np.array(["poet?"] * 3, dtype=object), r"dev_y.npy and .*dev.pickle differ in row 0"),
        ("dev.pickle", np.zeros, r"dev.pickle asks for numpy.zeros"),
    ],
)
def test_files_that_do_not_fit(folder, name, content, message):
    if name.endswith(".npy"):
        np.save(folder / name, content, allow_pickle=True)
    else:
        (folder / name).write_bytes(pickle.dumps(content))
    with pytest.raises(MuteError, match=message):
        load_bias_in_bios(folder)


def test_unknown_genders(folder):
    persons = people("dev")
    persons[1]["g"] = "x"
    (folder / "dev.pickle").write_bytes(pickle.dumps(persons))
    with pytest.raises(MuteError, match=r"dev.pickle has the gender 'x'"):
        read_bios_texts(folder)
    (folder / "dev.pickle").unlink()
    np.save(folder / "bert" / "dev_z.npy", np.array(["f", "m", "x"], dtype=object), allow_pickle=True)
    with pytest.raises(MuteError, match=r"dev_z.npy has the gender 'x'"):
        load_bias_in_bios(folder)
