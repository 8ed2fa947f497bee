"""A table with its embedding replaced: everything else stays."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mute import MuteError, open_matrix
from mute.tables.rewriting import rewrite_table
from mute.tables.table import TableMatrix

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

N, D = 50, 4
X = np.random.default_rng(0).normal(size=(N, D)).astype(np.float32)
OTHERS: dict[str, Any] = {
    "person": np.arange(N) + 2**40,
    "code": ["007", *["42"] * (N - 1)],
    "job": ['a, "b"', "c\nd", None, *["é"] * (N - 3)],
    "when": pd.Timestamp("2020-01-01"),
    "gender": ["f", "m"] * (N // 2),
}


def opened(path: Path) -> TableMatrix:
    matrix = open_matrix(path)
    assert isinstance(matrix, TableMatrix)
    return matrix


def frame(shape: str) -> pd.DataFrame:
    rows = {"emb": list(X)} if shape == "list" else {f"e{i}": X[:, i] for i in range(D)}
    return pd.DataFrame({"person": OTHERS["person"], **rows, **{k: v for k, v in OTHERS.items() if k != "person"}})


@pytest.mark.parametrize("shape", ["list", "columns"])
@pytest.mark.parametrize("size", [7, 1000])
def test_parquet(tmp_path: Path, shape: str, size: int) -> None:
    table = frame(shape).set_index("person")
    table.to_parquet(tmp_path / "in.parquet")
    starts: list[int] = []
    rewrite_table(
        opened(tmp_path / "in.parquet"), tmp_path / "out.parquet", lambda x, at: starts.append(at) or -x, size=size
    )
    assert starts == list(range(0, N, size))
    before, after = pq.read_schema(tmp_path / "in.parquet"), pq.read_schema(tmp_path / "out.parquet")
    assert after.equals(before, check_metadata=True)
    names = ["emb"] if shape == "list" else [f"e{i}" for i in range(D)]
    old, new = (pd.read_parquet(tmp_path / f"{name}.parquet").drop(columns=names) for name in ("in", "out"))
    pd.testing.assert_frame_equal(new, old)
    np.testing.assert_array_equal(open_matrix(tmp_path / "out.parquet").to_numpy(), -X)


@pytest.mark.parametrize("kind", ["list", "large", "fixed", "half", "whole"])
def test_the_type_of_a_list_stays(tmp_path: Path, kind: str) -> None:
    types = {
        "list": pa.list_(pa.float64()),
        "large": pa.large_list(pa.float32()),
        "fixed": pa.list_(pa.float32(), D),
        "half": pa.list_(pa.float16(), D),
        "whole": pa.list_(pa.int8(), D),
    }
    whole = np.round(X).astype(np.float16 if kind == "half" else int)
    pq.write_table(pa.table({"emb": pa.array(list(whole), types[kind]), "id": range(N)}), tmp_path / "in.parquet")
    rewrite_table(opened(tmp_path / "in.parquet"), tmp_path / "out.parquet", lambda x, _: x / 2)
    out = pq.read_table(tmp_path / "out.parquet")
    assert out.schema.field("emb").type == (pa.list_(pa.float64(), D) if kind == "whole" else types[kind])
    np.testing.assert_array_equal(np.stack(out["emb"].to_pylist()), whole / 2)


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_text_stays_text(tmp_path: Path, suffix: str) -> None:
    delimiter = "\t" if suffix == ".tsv" else ","
    table = frame("columns")
    table.to_csv(tmp_path / f"in{suffix}", sep=delimiter, index=False)
    rewrite_table(opened(tmp_path / f"in{suffix}"), tmp_path / f"out{suffix}", lambda x, _: -x, drop=["gender"], size=9)
    read = {"dtype": str, "keep_default_na": False, "sep": delimiter}
    before, after = (pd.read_csv(tmp_path / f"{name}{suffix}", **read) for name in ("in", "out"))
    assert list(after.columns) == [name for name in before.columns if name != "gender"]
    names = [f"e{i}" for i in range(D)]
    pd.testing.assert_frame_equal(after.drop(columns=names), before.drop(columns=[*names, "gender"]))
    np.testing.assert_array_equal(after[names].to_numpy(float), -before[names].to_numpy(float))


def test_from_text_to_parquet_and_back(tmp_path: Path) -> None:
    frame("columns").to_csv(tmp_path / "in.csv", index=False)
    rewrite_table(opened(tmp_path / "in.csv"), tmp_path / "out.parquet", lambda x, _: -x)
    schema = pq.read_schema(tmp_path / "out.parquet")
    assert [str(schema.field(name).type) for name in ("person", "code", "job", "e0")] == [
        "int64", "string", "string", "double",
    ]  # fmt: skip
    assert pq.read_table(tmp_path / "out.parquet")["code"][0].as_py() == "007"
    rewrite_table(opened(tmp_path / "out.parquet"), tmp_path / "back.csv", lambda x, _: -x)
    assert (tmp_path / "back.csv").read_text() == (tmp_path / "in.csv").read_text()


def test_a_list_becomes_columns_in_text(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": range(N), "emb": list(X)}), tmp_path / "in.parquet")
    rewrite_table(opened(tmp_path / "in.parquet"), tmp_path / "out.csv", lambda x, _: x)
    assert (tmp_path / "out.csv").read_text().splitlines()[0] == "id,emb_0,emb_1,emb_2,emb_3"
    np.testing.assert_array_equal(open_matrix(tmp_path / "out.csv").to_numpy().astype(np.float32), X)


def test_many_files_and_their_folders(tmp_path: Path) -> None:
    for at, city in enumerate(["Rome", "New%20York"]):
        (tmp_path / "in" / f"city={city}").mkdir(parents=True)
        part = pa.table({"id": [at], **{f"e{i}": [float(at + i)] for i in range(D)}})
        pq.write_table(part, tmp_path / "in" / f"city={city}" / "0.parquet")
    rewrite_table(opened(tmp_path / "in"), tmp_path / "out.parquet", lambda x, _: -x)
    out = pq.read_table(tmp_path / "out.parquet").to_pydict()
    assert out["id"] == [1, 0] and out["city"] == ["New York", "Rome"] and out["e0"] == [-1.0, 0.0]


def test_what_cannot_be_written(tmp_path: Path) -> None:
    pq.write_table(pa.table({"tags": [["a"]], "e0": [0.5], "e1": [1.5]}), tmp_path / "in.parquet")
    matrix = opened(tmp_path / "in.parquet")
    with pytest.raises(MuteError, match=r"out\.npy cannot hold the other columns of the table \(tags\)"):
        rewrite_table(matrix, tmp_path / "out.npy", lambda x, _: x)
    with pytest.raises(MuteError, match=r"out\.csv cannot hold the column 'tags' \(list<"):
        rewrite_table(matrix, tmp_path / "out.csv", lambda x, _: x)
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]
