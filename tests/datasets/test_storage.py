"""Data sets in files: what is written comes back, and what is damaged is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forging import read, write
from mute.datasets import Dataset
from mute.datasets.storage import read_words, write_words
from mute.errors import MuteError


def small(**changed: Any) -> Dataset:
    fields: dict[str, Any] = {
        "X": np.arange(8.0).reshape(4, 2),
        "z": ["a", "b", "a", "é"],
        "y": [3, 1, 3, 2],
        "names": ["", "two\nlines", "naïve 😀", "x"],
        "split": ["fit", "fit", "validate", "test"],
        "provenance": {"title": "small", "parts": [1, 2]},
    }
    return Dataset(**(fields | changed))


@pytest.mark.parametrize("y", [[3, 1, 3, 2], None, [True, False, True, True], [0.5, 1.5, 0.5, 0.25], list("wxyz")])
@pytest.mark.parametrize("z", [["a", "b", "a", "é"], [7, 7, 8, -1]])
def test_round_trip(tmp_path: Path, z: list[Any], y: list[Any] | None) -> None:
    data = small(z=z, y=y)
    data.save(tmp_path / "data.safetensors")
    back = Dataset.open(tmp_path / "data.safetensors")
    for name in ("X", "z", "names", "split"):
        np.testing.assert_array_equal(getattr(back, name), getattr(data, name))
        assert getattr(back, name).dtype.kind == getattr(data, name).dtype.kind
    if data.y is None:
        assert back.y is None
    else:
        np.testing.assert_array_equal(back.y, data.y)
        assert back.y is not None and back.y.dtype == data.y.dtype
    assert back.provenance == data.provenance
    assert repr(back) == repr(data)
    back.X[:] = 0  # the arrays are the caller's own


def test_the_same_data_give_the_same_bytes(tmp_path: Path) -> None:
    small().save(tmp_path / "a")
    small().save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"z": np.array([None, "a", "b", "c"])}, "z holds object values"),
        ({"provenance": {"when": object()}}, "provenance cannot be written as JSON"),
        ({"names": ["\ud800", "b", "c", "d"]}, "cannot be written as UTF-8"),
    ],
)
def test_what_a_file_cannot_hold_is_refused(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(MuteError, match=message):
        small(**changed).save(tmp_path / "data.safetensors")
    assert not list(tmp_path.iterdir())


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    path = tmp_path / "data.safetensors"
    small().save(path)
    return path


def test_a_file_cut_short_is_refused(stored: Path) -> None:
    content = stored.read_bytes()
    for length in (0, 4, 40, len(content) // 2, len(content) - 1):
        stored.write_bytes(content[:length])
        with pytest.raises(MuteError, match=r"data.safetensors is damaged or not a dataset file of mute"):
            Dataset.open(stored)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "words"}, "it is a words, not a dataset"),
        ({"version": 2}, "version 2, this mute reads 1; update mute"),
        ({"labels": {"z": ["a"], "y": [1, 2, 3], "split": ["fit", "test", "validate"]}}, "z has codes beyond its 1"),
        ({"labels": {"y": [1, 2, 3], "split": ["fit", "test", "validate"]}}, "damaged"),
        ({"labels": {"z": ["a", "b", "c"], "x": [1]}}, "damaged"),
        ({"labels": {"z": ["a", "b", "c"], "y": [1, 2, 3], "split": ["a", "b", "c"]}}, "split must contain only"),
        ({"labels": []}, "damaged"),
        ({"provenance": 3}, "damaged"),
    ],
)
def test_metadata_that_do_not_fit_are_refused(stored: Path, change: dict[str, Any], message: str) -> None:
    header, content = read(stored)
    about = json.loads(header["__metadata__"]["mute"]) | change
    header["__metadata__"]["mute"] = json.dumps(about)
    write(stored, header, content)
    with pytest.raises(MuteError, match=message):
        Dataset.open(stored)


@pytest.mark.parametrize("metadata", [{}, {"mute": "{"}, {"mute": "[1]"}, {"other": "x"}])
def test_a_foreign_file_is_refused(stored: Path, metadata: dict[str, str]) -> None:
    header, content = read(stored)
    header["__metadata__"] = metadata
    write(stored, header, content)
    with pytest.raises(MuteError, match="damaged or not a dataset file of mute"):
        Dataset.open(stored)


def tampered(path: Path, name: str, at: int, value: bytes) -> None:
    header, content = read(path)
    begin = header[name]["data_offsets"][0] + at
    write(path, header, content[:begin] + value + content[begin + len(value) :])


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("X", np.float32("nan").tobytes(), "X has values that are not finite"),
        ("z", np.int32(9).tobytes(), "z has codes beyond"),
        ("z", np.int32(-1).tobytes(), "z has codes beyond"),
        ("lengths", np.int64(1).tobytes(), "lengths of its texts"),
        ("lengths", np.int64(-5).tobytes(), "lengths of its texts"),
        ("text", b"\xff", "damaged"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(stored: Path, name: str, value: bytes, message: str) -> None:
    tampered(stored, name, 0, value)
    with pytest.raises(MuteError, match=message):
        Dataset.open(stored)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(MuteError, match="does not exist"):
        Dataset.open(tmp_path / "none.safetensors")
    with pytest.raises(MuteError):
        Dataset.open(tmp_path)


def test_words_round_trip(tmp_path: Path) -> None:
    vectors = np.arange(6, dtype=np.float32).reshape(3, 2)
    write_words(["the", ",", "naïve"], vectors, tmp_path / "words")
    words, back = read_words(tmp_path / "words")
    assert words == ["the", ",", "naïve"]
    np.testing.assert_array_equal(back, vectors)
    write_words(["the"], vectors, tmp_path / "words")
    with pytest.raises(MuteError, match=r"1 words have vectors of shape \(3, 2\)"):
        read_words(tmp_path / "words")
    with pytest.raises(MuteError, match="it is a words, not a dataset"):
        Dataset.open(tmp_path / "words")
