"""Jigsaw in the authors' files and in the files of the challenge: labels as pandas would give them."""

import csv
import pickle

import numpy as np
import pandas as pd
import pytest

from mute.datasets import extract_jigsaw_religion, load_jigsaw, read_jigsaw_texts
from mute.errors import MuteError

RELIGIONS = ["buddhist", "christian", "hindu", "jewish", "muslim", "other_religion"]
WIDTH = 6


def table(n, seed):
    """Rows as in the challenge: few distinct shares, so that ties are common; every fourth row has none."""
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(random.choice([0, 0, 0.1, 0.3, 0.5, 0.8, 1], size=(n, 6)), columns=RELIGIONS)
    frame.loc[::4, RELIGIONS] = 0.0
    frame["toxicity"] = random.choice([0, 0.2, 0.49, 0.5, 0.7], size=n)
    frame["comment_text"] = [f'comment {row}, "quoted"\r\nnext line\n{"é" * row}' for row in range(n)]
    frame["embedded"] = random.normal(size=(n, WIDTH)).tolist()
    return frame


def authors_labels(frame):
    """The rows with any share, their label by pandas, without other religions."""
    frame = frame[(frame[RELIGIONS] > 0).any(axis=1)]
    frame = frame.assign(z=frame[RELIGIONS].idxmax(axis=1))
    return frame[frame["z"] != "other_religion"]


@pytest.fixture
def frames():
    return {"train": table(60, 0), "test": table(25, 1)}


def write_pickles(folder, frames):
    for part, frame in frames.items():
        frame = frame[(frame[RELIGIONS] > 0).any(axis=1)]
        (folder / f"jigsaw_{part}.pkl").write_bytes(pickle.dumps(frame))


def write_table(folder, frames):
    whole = pd.concat([frame.assign(split=part) for part, frame in frames.items()], ignore_index=True)
    spoken = (whole[RELIGIONS] > 0).any(axis=1)
    np.save(folder / "embedded.npy", np.array(whole["embedded"][spoken].tolist()))
    # Half of the rows without religion have empty cells, as in the challenge.
    whole.loc[~spoken & (whole.index % 8 == 0), RELIGIONS] = np.nan
    whole.drop(columns="embedded").assign(id=whole.index).to_csv(folder / "all_data.csv", index=False)


def check(data, frames):
    for part, ours in {"train": "fit", "test": "test"}.items():
        expected = authors_labels(frames[part])
        rows = data.rows(ours)
        assert rows.z.tolist() == expected["z"].tolist()
        assert rows.y.tolist() == ["toxic" if value >= 0.5 else "non-toxic" for value in expected["toxicity"]]
        np.testing.assert_array_equal(rows.X, np.array(expected["embedded"].tolist(), dtype=np.float32))
        assert rows.names[0] == " ".join(expected["comment_text"].iloc[0].split())
    assert "validate" not in data.split
    assert data.provenance["rows"]["kept"] == len(data)


def test_the_authors_pickles(tmp_path, frames):
    write_pickles(tmp_path, frames)
    data = load_jigsaw(tmp_path)
    check(data, frames)
    assert set(data.provenance["files"]) == {"jigsaw_train.pkl", "jigsaw_test.pkl"}


def test_the_table_of_the_challenge(tmp_path, frames):
    write_table(tmp_path, frames)
    check(load_jigsaw(tmp_path), frames)


def test_the_extract_stands_for_the_table(tmp_path, frames):
    write_table(tmp_path, frames)
    texts = read_jigsaw_texts(tmp_path)
    extract = extract_jigsaw_religion(tmp_path)
    assert extract == tmp_path / "religion.csv"
    (tmp_path / "all_data.csv").unlink()
    assert read_jigsaw_texts(tmp_path) == texts
    check(load_jigsaw(tmp_path), frames)
    with open(extract, encoding="utf-8", newline="") as file:
        assert [row["comment_text"] for row in csv.DictReader(file)] == texts["text"]


def test_texts(tmp_path, frames):
    write_table(tmp_path, frames)
    texts = read_jigsaw_texts(tmp_path)
    spoken = pd.concat([frame[(frame[RELIGIONS] > 0).any(axis=1)] for frame in frames.values()])
    for name in (*RELIGIONS, "toxicity"):
        assert texts[name] == spoken[name].tolist()
    assert texts["text"] == spoken["comment_text"].tolist()
    assert set(texts["split"]) == {"fit", "test"}


def test_margin(tmp_path, frames):
    # By thirds and tenths, so that 0.7 - 0.4 (0.29999999999999993) is among them.
    frames["train"].loc[1, RELIGIONS] = [0, 0.7, 0.4, 0, 0, 0]
    write_pickles(tmp_path, frames)
    data = load_jigsaw(tmp_path, margin=(0.5, 0.3))
    kept = []
    for frame in frames.values():
        for _, row in authors_labels(frame).iterrows():
            *_, second, first = sorted(row[RELIGIONS])
            if first >= 0.5 and round(first - second, 6) >= 0.3:
                kept.append(row["z"])
    assert data.z.tolist() == kept
    assert 0 < len(data) < len(load_jigsaw(tmp_path))
    assert "comment 1, " in data.names[0]
    assert len(load_jigsaw(tmp_path, margin=(0, 0))) == len(load_jigsaw(tmp_path))


@pytest.mark.parametrize("margin", [(0.5,), (0.5, -1), (2, 0.1), (float("nan"), 0)])
def test_margins_that_make_no_sense(tmp_path, frames, margin):
    write_pickles(tmp_path, frames)
    with pytest.raises(MuteError, match="margin must be two numbers between 0 and 1"):
        load_jigsaw(tmp_path, margin=margin)


def test_nothing_left(tmp_path, frames):
    for frame in frames.values():
        frame[RELIGIONS] = [0.2, 0, 0, 0, 0, 0.1]
    write_pickles(tmp_path, frames)
    with pytest.raises(MuteError, match="no rows left of 85"):
        load_jigsaw(tmp_path, margin=(0.5, 0.3))


def test_missing_files(tmp_path, frames):
    with pytest.raises(MuteError, match=r"does not exist: give the folder that has jigsaw_train.pkl"):
        load_jigsaw(tmp_path / "absent")
    with pytest.raises(MuteError, match=r"jigsaw_train.pkl is missing: .*all_data.csv"):
        load_jigsaw(tmp_path)
    with pytest.raises(MuteError, match=r"all_data.csv is missing: .*Kaggle"):
        read_jigsaw_texts(tmp_path)
    with pytest.raises(MuteError, match=r"all_data.csv is missing"):
        extract_jigsaw_religion(tmp_path)
    write_table(tmp_path, frames)
    (tmp_path / "embedded.npy").unlink()
    with pytest.raises(MuteError, match=r"embedded.npy is missing: make it with .*mute data encode .*religion.csv"):
        load_jigsaw(tmp_path)
    write_pickles(tmp_path, frames)
    (tmp_path / "jigsaw_test.pkl").unlink()
    with pytest.raises(MuteError, match=r"jigsaw_test.pkl is missing: give both"):
        load_jigsaw(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.drop(columns="hindu"), "jigsaw_test.pkl has no column 'hindu'"),
        (lambda f: f.drop(columns="embedded"), "no column 'embedded'"),
        (lambda f: f.assign(hindu=np.nan), "column 'hindu' must have shares"),
        (lambda f: f.assign(hindu=1.5), "column 'hindu' must have shares"),
        (lambda f: f.assign(toxicity="much"), "column 'toxicity' must have shares"),
        (lambda f: f.assign(embedded=[[1.0] * (2 + row % 2) for row in range(len(f))]), "all have one length"),
        (lambda f: f.assign(embedded=1.0), "one vector of numbers for each row"),
        (lambda f: f.assign(embedded=[[np.nan] * WIDTH] * len(f)), "jigsaw_test.pkl has NaN"),
        (lambda f: f.assign(embedded=[[1.0] * 3] * len(f)), "jigsaw_test.pkl has 3 columns where"),
        (lambda f: f.iloc[:0], "one vector of numbers for each row"),
        (lambda f: [1, 2], "no column 'buddhist'"),
        (lambda f: {name: np.zeros(row) for row, name in enumerate(f)}, "differ in length"),
    ],
)
def test_pickles_that_do_not_fit(tmp_path, frames, change, message):
    write_pickles(tmp_path, frames)
    (tmp_path / "jigsaw_test.pkl").write_bytes(pickle.dumps(change(frames["test"])))
    with pytest.raises(MuteError, match=message):
        load_jigsaw(tmp_path)


def test_pickles_without_texts(tmp_path, frames):
    write_pickles(tmp_path, {part: frame.drop(columns="comment_text") for part, frame in frames.items()})
    assert load_jigsaw(tmp_path).names[0].startswith("fit ")


HEAD = "split,comment_text,toxicity," + ",".join(RELIGIONS)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["split,comment_text"], r"all_data.csv has no column 'toxicity'"),
        ([], "has no column 'split'"),
        ([HEAD, "train,text,0.5,0,0.1,0,0,0"], "too few or too many cells in line 2"),
        ([HEAD, "train,text,0.5,0,0.1,0,0,0,0,9"], "too few or too many cells in line 2"),
        ([HEAD, "train,text,0.5,0,much,0,0,0,0"], "line 2: a religion must be a share between 0 and 1, got 'much'"),
        ([HEAD, "train,text,0.5,0,nan,0,0,0,0"], "got 'nan'"),
        ([HEAD, "train,text,,0,1,0,0,0,0"], "line 2: toxicity must be a share between 0 and 1, got ''"),
        ([HEAD, "dev,text,0,0,1,0,0,0,0"], "line 2: split must be 'train' or 'test', got 'dev'"),
        ([HEAD, "train,text,0,0,1,0,0,0,0"], r"embedded.npy has 2 rows where .*all_data.csv has 1"),
        ([HEAD, "train,\udcff,0,0,1,0,0,0,0"], "not a CSV file in UTF-8"),
        ([HEAD, "train," + "x" * 200_000 + ",0,0,1,0,0,0,0"], "not a CSV file"),
    ],
)
def test_tables_that_do_not_fit(tmp_path, lines, message):
    (tmp_path / "all_data.csv").write_text("\n".join(lines), encoding="utf-8", errors="surrogateescape")
    np.save(tmp_path / "embedded.npy", np.zeros((2, WIDTH)))
    with pytest.raises(MuteError, match=message):
        load_jigsaw(tmp_path)


def test_a_broken_table_leaves_no_extract(tmp_path):
    (tmp_path / "all_data.csv").write_text(f"{HEAD}\ntrain,text,0.5,0,1,0,0,0,0\ntrain,text\n")
    with pytest.raises(MuteError, match="line 3"):
        extract_jigsaw_religion(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["all_data.csv"]
