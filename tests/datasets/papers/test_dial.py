"""DIAL in the authors' files: four cells for each part, balanced."""

import numpy as np
import pytest

from mute.datasets import load_dial
from mute.datasets.papers import dial
from mute.errors import MuteError

PARTS = {"train": "fit", "dev": "validate", "test": "test"}
CELLS = {"neg_neg": ("SAE", "sad"), "neg_pos": ("AAE", "sad"), "pos_neg": ("SAE", "happy"), "pos_pos": ("AAE", "happy")}
ROWS = {"train": 6, "dev": 4, "test": 3}


def cell(part, name):
    return np.random.default_rng([*f"{part}{name}".encode()]).normal(size=(ROWS[part] + 2, 5))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(dial, "_ROWS", ROWS)
    for part in PARTS:
        (tmp_path / part).mkdir()
        for name in CELLS:
            np.save(tmp_path / part / f"{name}.npy", cell(part, name))
    return tmp_path


def test_the_sizes_of_the_paper():
    assert {part: 4 * rows for part, rows in dial._ROWS.items()} == {"train": 160_000, "dev": 8_000, "test": 7_996}


@pytest.mark.parametrize("inner", [False, True])
def test_the_authors_files(folder, inner):
    if inner:
        parts = list(folder.iterdir())
        (folder / "emoji_sent_race_0.5").mkdir()
        for part in parts:
            part.rename(folder / "emoji_sent_race_0.5" / part.name)
    data = load_dial(folder)
    assert data.X.shape == (4 * (6 + 4 + 3), 5)
    for part, ours in PARTS.items():
        rows = data.rows(ours)
        for name, (z, y) in CELLS.items():
            chosen = (rows.z == z) & (rows.y == y)
            np.testing.assert_array_equal(rows.X[chosen], cell(part, name)[: ROWS[part]].astype(np.float32))
            assert rows.names[chosen][1] == f"{part} {name} 1"
    assert data.provenance["rows_per_file"]["dev"] == {"taken": 4, "paper": 4}
    assert len(data.provenance["files"]) == 12


def test_the_smallest_cell_counts_for_all(folder):
    np.save(folder / "dev" / "pos_neg.npy", cell("dev", "pos_neg")[:2])
    data = load_dial(folder)
    assert np.unique(data.rows("validate").z, return_counts=True)[1].tolist() == [4, 4]
    assert len(data.rows("fit")) == 24
    assert data.provenance["rows_per_file"]["dev"] == {"taken": 2, "paper": 4}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"test/neg_pos.npy is missing: it belongs to emoji_sent_race_0.5"),
        (np.zeros((9, 6)), r"test/neg_pos.npy has 6 columns where .*neg_neg.npy has 5"),
        (np.zeros(9), r"neg_pos.npy has float64 values of shape \(9,\)"),
        (np.zeros((0, 5)), r"shape \(0, 5\)"),
        (np.full((9, 5), np.inf), r"neg_pos.npy has NaN or infinite values"),
    ],
)
def test_files_that_do_not_fit(folder, content, message):
    path = folder / "test" / "neg_pos.npy"
    path.unlink()
    if content is not None:
        np.save(path, content)
    with pytest.raises(MuteError, match=message):
        load_dial(folder)


def test_a_missing_folder(tmp_path):
    with pytest.raises(MuteError, match=r"does not exist: give the folder that has train, dev and test"):
        load_dial(tmp_path / "absent")
