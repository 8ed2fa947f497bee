import numpy as np
import pytest

from made_up_sentences import made_up
from mute.errors import MuteError
from mute.paper.problems import describe, problem, rows_for, task_of, words_of


def test_parts_are_disjoint_and_limited(prepared):
    data = problem("bios", most_rows=200)
    names = [set(part.names.tolist()) for part in (data.fit, data.fresh, data.test)]
    assert not names[0] & names[1] and not names[1] & names[2] and not names[0] & names[2]
    assert len(data.fit) <= 220 and len(data.fresh) <= 110 and len(data.test) <= 110
    assert set(data.fit.z) == {"female", "male"}


def test_a_limit_keeps_every_pair_of_class_and_label(prepared):
    data = problem("bios", most_rows=200)
    assert {(z, y) for z, y in zip(data.fit.z, data.fit.y, strict=True)} == {
        (z, y) for z, y in zip(made_up("bug").z, made_up("bug").y, strict=True)
    }


def test_the_stand_in_of_dial_has_four_cells_of_equal_size(prepared):
    data = problem("dial")
    for part in (data.fit, data.fresh, data.test):
        cells = np.unique(np.array([f"{z} {y}" for z, y in zip(part.z, part.y, strict=True)]), return_counts=True)
        assert len(cells[0]) == 4 and len(set(cells[1].tolist())) == 1
    assert set(data.fit.z) == {"female", "male"}


def test_rows_without_a_third_part_are_shared_between_adversary_and_judge(prepared, monkeypatch):
    import mute.datasets as datasets

    whole = made_up("bug-occupations")
    kept = whole.split != "validate"
    from mute.paper.problems import part_of

    monkeypatch.setattr(datasets, "load_jigsaw", lambda path: part_of(whole, kept))
    data = problem("jigsaw", "folder")
    assert not data.stand_in
    assert len(data.fresh) + len(data.test) == np.count_nonzero(whole.split == "test")
    assert not set(data.fresh.names.tolist()) & set(data.test.names.tolist())
    assert set(data.fresh.z) == set(data.test.z) == set(whole.z)


def test_what_is_not_prepared_is_said_with_the_command(prepared):
    with pytest.raises(MuteError, match="mute data prepare glove"):
        problem("glove")


def test_what_a_reader_must_know(prepared):
    about = describe(problem("jigsaw"))
    assert about["stand_in"] and about["classes"] == 5 and about["task"] == 2 and about["columns"] == 8
    assert about["source"] == "made up"
    assert 0.2 <= about["majority"] <= 0.3


def test_words_have_no_task():
    shipped = problem("glove", shipped=True)
    with pytest.raises(MuteError, match="no labels of a task"):
        task_of(shipped.fit)


def test_the_paper_s_maps_get_double_precision():
    X = np.ones((2, 2), np.float32)
    assert rows_for("as-paper", X).dtype == np.float64
    assert rows_for("mute", X).dtype == np.float32


def test_words_that_people_have_compared(tmp_path, monkeypatch):
    import mute.datasets as datasets

    vectors = np.arange(8.0, dtype=np.float32).reshape(4, 2)
    monkeypatch.setattr(datasets, "load_words", lambda name: (["king", "queen", "tea", "of"], vectors))
    monkeypatch.setattr(datasets, "load_pairs", lambda name: [("King", "tea", 1.0), ("queen", "nobody", 2.0)])
    (tmp_path / "mine.tsv").write_text("king\tqueen\t9\n")
    words = words_of(None, pairs=str(tmp_path / "mine.tsv"))
    assert list(words.surveys) == ["mine", "wordsim353", "simlex999", "men"]
    assert words.names == ["king", "queen", "tea"]  # only those that were asked for, in lower case
    assert words.vectors.tolist() == vectors[:3].tolist()
    (tmp_path / "other.tsv").write_text("x\ty\t9\n")
    monkeypatch.setattr(datasets, "load_pairs", lambda name: [("a", "b", 1.0)])
    with pytest.raises(MuteError, match="none of the 4 words"):
        words_of(None, pairs=str(tmp_path / "other.tsv"))
