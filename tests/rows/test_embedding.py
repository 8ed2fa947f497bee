"""Which columns of a table are the embedding: by one rule, in files and in frames."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from mute import MUtE, MuteError
from mute.errors import ColumnsLeftOut
from mute.rows.embedding import Kind, choose_embedding, match_names

E = [f"e{i}" for i in range(12)]
FLOATS: dict[str, Kind] = dict.fromkeys(E, "float")


@pytest.mark.parametrize(
    ("kinds", "names"),
    [
        ({"id": "integer", **FLOATS, "job": "other"}, E),
        ({"id": "integer", **dict.fromkeys(reversed(E), "float")}, E),  # in the order of the numbers
        ({"emb": "list", **FLOATS, "score": "float"}, ["emb"]),
        (dict.fromkeys(["0", "1", "2"], "float"), ["0", "1", "2"]),
        (dict.fromkeys(["v_08", "v_09", "v_10"], "float"), ["v_08", "v_09", "v_10"]),
        ({"e0": "float", "e1": "integer", "e2": "float"}, ["e0", "e1", "e2"]),  # one column of whole numbers
        ({**FLOATS, "score": "float", "age": "float"}, E),
        ({**dict.fromkeys(map(str, range(30)), "float"), "q1": "float", "q2": "float"}, [*map(str, range(30))]),
    ],
)  # fmt: skip
def test_recognised(kinds: dict[str, Kind], names: list[str]) -> None:
    found = choose_embedding("people.parquet", kinds)
    assert list(found.names) == names
    assert found.left_out == tuple(name for name in kinds if name not in names)


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        ({"a": "list", "b": "list"}, "several candidates .*: the list column a; the list column b; name .* t.csv:a "),
        (
            {**dict.fromkeys(["a0", "a1"], "float"), **dict.fromkeys(["b0", "b1"], "float")},
            "several candidates .*: 2 columns a0 … a1; 2 columns b0 … b1; .*--columns 'a\\*'",
        ),
        (
            {"height": "float", "age": "integer", "job": "other"},
            "is recognised.*columns height, age; name",
        ),
        (dict.fromkeys(["e0", "e1", "e3"], "float"), "no column that is recognised"),  # a gap
        (dict.fromkeys(["e0", "e1"], "integer"), "no column that is recognised"),
        ({"job": "other"}, "none among job"),
    ],
)
def test_not_recognised(kinds: dict[str, Kind], message: str) -> None:
    with pytest.raises(MuteError, match=message):
        choose_embedding("t.csv", kinds)


def test_labels_are_never_part_of_it() -> None:
    kinds: dict[str, Kind] = {**FLOATS, "e12": "float", "ethnicity": "float"}
    assert list(choose_embedding("t", kinds, exclude=["e12"]).names) == E
    assert list(choose_embedding("t", kinds, "e*", exclude=["e12", "ethnicity"]).names) == E
    with pytest.raises(MuteError, match="'e12' has labels of this call"):
        choose_embedding("t", kinds, "e0,e12", exclude=["e12"])


def test_a_model_finds_its_columns_by_name() -> None:
    shuffled: dict[str, Kind] = {"id": "integer", "e1": "float", "e0": "float"}
    found = match_names("t", shuffled, ["e0", "e1"])
    assert found is not None and found.names == ("e0", "e1")
    with pytest.raises(MuteError, match=r"t has no column 'e2', which .* \(and 1 more: e3\); give a table with"):
        match_names("t", shuffled, ["e0", "e2", "e3"])
    assert match_names("t", {"emb": "list"}, ["e0", "e1"]) is None


RNG = np.random.default_rng(0)
X, Z = RNG.normal(size=(200, 3)), np.repeat(["a", "b"], 100)
PEOPLE = pd.DataFrame({"person": np.arange(200), **{f"e{i}": X[:, i] for i in range(3)}, "job": ["x", "y"] * 100})
LISTS = pd.DataFrame({"person": np.arange(200), "emb": list(X), "job": ["x", "y"] * 100})


@pytest.mark.filterwarnings("ignore::mute.WeakResultWarning")
@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_frames_follow_the_rule_of_files(library: str) -> None:
    module = pytest.importorskip(library)
    if library == "polars":
        pytest.importorskip("pyarrow")  # polars takes frames of pandas by way of Arrow

    def make(frame: pd.DataFrame) -> Any:
        if library == "pandas":
            return frame
        return module.from_pandas(frame) if library == "polars" else module.Table.from_pandas(frame)

    expected = MUtE(2, router="logistic", random_state=0).fit(X, Z).transform(X)
    with pytest.warns(ColumnsLeftOut, match="the embedding of X is 3 columns e0 … e2; left out: person, job"):
        eraser = MUtE(2, router="logistic", random_state=0).fit(make(PEOPLE), Z)
    assert eraser.feature_names_in_.tolist() == ["e0", "e1", "e2"]
    other = make(PEOPLE[["job", "e2", "e0", "person", "e1"]])
    np.testing.assert_array_equal(eraser.transform(make(PEOPLE)), expected)
    np.testing.assert_array_equal(eraser.transform(other), expected)
    with pytest.raises(MuteError, match="X has no column 'e1'"):
        eraser.transform(make(PEOPLE.drop(columns="e1")))
    with pytest.warns(ColumnsLeftOut, match="the embedding of X is the list column emb; left"):
        by_list = MUtE(2, router="logistic", random_state=0).fit(make(LISTS), Z)
    assert not hasattr(by_list, "feature_names_in_")
    np.testing.assert_array_equal(by_list.transform(make(LISTS)), expected)
    np.testing.assert_array_equal(eraser.transform(make(LISTS)), expected)  # the numbers of a list have no names
    with pytest.raises(MuteError, match=r"no column that is recognised.*give the columns of the embedding only"):
        MUtE(2).fit(make(PEOPLE[["person", "job"]].assign(height=1.0)), Z)


@pytest.mark.filterwarnings("ignore::mute.WeakResultWarning")
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_out_of_mixed_frames(library: str) -> None:
    pytest.importorskip(library)
    eraser = MUtE(2, router="logistic", random_state=0).set_output(transform=library)
    with pytest.warns(ColumnsLeftOut):
        out = eraser.fit(PEOPLE, Z).transform(PEOPLE)
    assert type(out).__module__.split(".")[0] == library and out.shape == (200, 3)


@pytest.mark.filterwarnings("ignore::mute.WeakResultWarning")
def test_ragged_lists() -> None:
    ragged = LISTS.assign(emb=[*X[:-1], X[0, :2]])
    with (
        pytest.warns(ColumnsLeftOut),
        pytest.raises(MuteError, match="column 'emb' has 2 numbers in row 199 and 3 in row 0"),
    ):
        MUtE(2).fit(ragged, Z)
