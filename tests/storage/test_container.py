"""The container reads and writes what the format's own library does, and refuses what is not whole."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save, save_file

from forging import read, write
from mute.errors import MuteError
from mute.storage.container import checksums, read_arrays, write_arrays

KINDS = ("?", "u1", "i1", "i2", "u2", "f2", "i4", "u4", "f4", "c8", "f8", "i8", "u8")
ARRAYS = {kind: np.arange(6).astype(kind).reshape(2, 3) for kind in KINDS}
ODD = {"number": np.float32(3.5) * np.ones(()), "none": np.empty((0, 4)), "turned": np.arange(6.0).reshape(2, 3).T}


@pytest.mark.parametrize("mapped", [False, True])
def test_every_kind_of_number_comes_back(tmp_path: Path, mapped: bool) -> None:
    write_arrays(tmp_path / "x", ARRAYS | ODD, {"ü": "\ud800"})
    metadata, back = read_arrays(tmp_path / "x", "arrays", mapped=mapped)
    assert metadata == {"ü": "\ud800"} and back.keys() == (ARRAYS | ODD).keys()
    for name, array in (ARRAYS | ODD).items():
        assert back[name].dtype == array.dtype and back[name].shape == array.shape
        np.testing.assert_array_equal(back[name], array)
        assert back[name].flags.writeable != mapped


def test_the_library_reads_what_we_write_and_we_read_what_it_writes(tmp_path: Path) -> None:
    write_arrays(tmp_path / "ours", ARRAYS, {"about": "all kinds"})
    save_file(ARRAYS, tmp_path / "theirs", {"about": "all kinds"})
    with safe_open(tmp_path / "ours", "numpy") as file:
        assert file.metadata() == {"about": "all kinds"}
    metadata, back = read_arrays(tmp_path / "theirs", "arrays")
    assert metadata == {"about": "all kinds"}
    for found in (load_file(tmp_path / "ours"), back):
        assert all(np.array_equal(found[name], array) for name, array in ARRAYS.items())
    # The same arrays in the same order, to the byte.
    (ours, data), (theirs, same) = read(tmp_path / "ours"), read(tmp_path / "theirs")
    assert list(ours.items()) == list(theirs.items()) and data == same


def test_bfloat16_is_read_as_float32(tmp_path: Path) -> None:
    values = np.array([1.0, -2.5, 0.0, 3.0], np.float32)
    bits = (values.view(np.uint32) >> 16).astype(np.uint16)
    write(tmp_path / "x", {"x": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}}, bits.tobytes())
    np.testing.assert_array_equal(read_arrays(tmp_path / "x", "arrays")[1]["x"], values)


def test_what_cannot_be_written(tmp_path: Path) -> None:
    for array in (np.array(["a"]), np.array([None]), np.zeros(2, np.longdouble)):
        with pytest.raises(MuteError, match=r"x holds .* values, which a safetensors file cannot hold"):
            write_arrays(tmp_path / "x", {"x": array})
    assert not list(tmp_path.iterdir())
    write_arrays(tmp_path / "x", {"x": np.arange(3, dtype=">i4")})
    np.testing.assert_array_equal(load_file(tmp_path / "x")["x"], np.arange(3))


def entry(**changes: Any) -> dict[str, Any]:
    return {"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | changes}


HEADERS: dict[str, Any] = {
    "a list": [1, 2],
    "a number": b"12",
    "no JSON": b"{]",
    "no text": b"\xff\xff",
    "deep": b"[" * 100_000 + b"]" * 100_000,
    "metadata a list": {"__metadata__": [], **entry()},
    "unknown dtype": entry(dtype="F33"),
    "dtype a list": entry(dtype=[]),
    "no dtype": {"x": {"shape": [2], "data_offsets": [0, 8]}},
    "entry a number": {"x": 3},
    "shape a text": entry(shape="2"),
    "shape too large": entry(shape=[3]),
    "shape huge": entry(shape=[2**62, 2**62]),
    "negative shape": entry(shape=[-2, -1]),
    "half a shape": entry(shape=[2.0]),
    "true as a shape": entry(shape=[True, 2]),
    "too many axes": entry(shape=[1] * 70 + [2]),
    "one offset": entry(data_offsets=[0]),
    "offsets turned": entry(data_offsets=[8, 0]),
    "offset beyond the end": entry(data_offsets=[8, 16]),
    "negative offset": entry(data_offsets=[-8, 0]),
    "text offset": entry(data_offsets=["0", "8"]),
    "hidden bytes": entry(shape=[1], data_offsets=[0, 4]),
    "hidden bytes in front": entry(shape=[1], data_offsets=[4, 8]),
    "shared bytes": {**entry(), "y": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}},
    "nothing": {},
}


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("name", HEADERS)
def test_hostile_headers_are_refused(tmp_path: Path, name: str, mapped: bool) -> None:
    write(tmp_path / "x", entry(), bytes(8))
    assert read_arrays(tmp_path / "x", "arrays", mapped=mapped)[1]["x"].tolist() == [0, 0]
    write(tmp_path / "x", HEADERS[name], bytes(8))
    with pytest.raises(MuteError, match="x is damaged or not a set of arrays: ") as caught:
        read_arrays(tmp_path / "x", "a set of arrays", mapped=mapped)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("mapped", [False, True])
def test_files_cut_short_or_too_long_are_refused(tmp_path: Path, mapped: bool) -> None:
    path, content = tmp_path / "x", save({"x": np.arange(5.0), "y": np.arange(3)}, {"about": "x"})
    for damaged in (*(content[:length] for length in range(len(content))), content + b"\0", b"\xff" * 100):
        path.write_bytes(damaged)
        with pytest.raises(MuteError, match="x is damaged or not"):
            read_arrays(path, "arrays", mapped=mapped)


def test_places_without_a_file(tmp_path: Path) -> None:
    with pytest.raises(MuteError, match="nothing does not exist; give the path of a model"):
        read_arrays(tmp_path / "nothing", "a model")
    with pytest.raises(MuteError, match="is a directory, not a model"):
        read_arrays(tmp_path, "a model")


def test_checksums_see_every_bit_and_every_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.arange(64.0)
    whole = checksums({"x": x, "none": np.empty(0)})
    for at in range(x.nbytes):
        raw = bytearray(x.tobytes())
        raw[at] ^= 1
        assert checksums({"x": np.frombuffer(raw)})["x"] != whole["x"]
    monkeypatch.setattr("mute.storage.container._CHUNK", 100)
    assert checksums({"x": x[::2]}) == checksums({"x": x[::2].copy()})
    assert checksums({"x": x}) != {"x": whole["x"]}


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    write_arrays(tmp_path / "a", ARRAYS, {"b": "1", "a": json.dumps({"x": 1})})
    write_arrays(tmp_path / "b", dict(reversed(ARRAYS.items())), {"b": "1", "a": json.dumps({"x": 1})})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
