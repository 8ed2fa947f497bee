"""Many files as one matrix: folders, patterns, lists, partitions, and files that do not fit the others."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import mute
from mute.errors import MuteError
from mute.tables import open_matrix, open_writer, read_labels, split_spec
from mute.tables.parquet import import_arrow
from mute.tables.specs import names_files


@pytest.fixture
def rows() -> NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal((20, 3)).astype(np.float32)


def write(path: Path, rows: NDArray[Any], **columns: Any) -> Path:
    """Rows as the list column `emb` of a Parquet file, beside other columns."""
    pa = import_arrow()
    path.parent.mkdir(parents=True, exist_ok=True)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 3)
    pa.parquet.write_table(pa.table({"emb": lists} | columns), path)
    return path


@pytest.fixture
def folder(tmp_path: Path, rows: NDArray[np.float32]) -> Path:
    """Three files of 9, 0 and 11 rows under folders named for gender, and files that are no part of the data."""
    pytest.importorskip("pyarrow")
    data = tmp_path / "data"
    write(data / "gender=f" / "part-0.parquet", rows[:9], number=np.arange(9))
    write(data / "gender=f" / "part-1.parquet", rows[:0], number=np.arange(0))
    write(data / "gender=m" / "part-0.parquet", rows[9:], number=np.arange(9, 20))
    for name in ("_SUCCESS", "_metadata", ".hidden.parquet", "_temporary/x.parquet", "notes.txt"):
        (data / name).parent.mkdir(exist_ok=True)
        (data / name).write_text("no part of the data")
    return data


class TestReading:
    @pytest.mark.parametrize("size", [1, 4, 9, 100])
    def test_folder(self, folder: Path, rows: NDArray[np.float32], size: int) -> None:
        opened = mute.open_matrix(folder)
        assert opened.shape == (20, 3) and opened.dtype == np.float32 and opened.path == folder
        np.testing.assert_array_equal(opened.to_numpy(), rows)
        blocks = list(opened.row_blocks(size))
        assert {len(block) for block in blocks[:-1]} <= {size}
        assert all(block.flags.c_contiguous and block.flags.writeable for block in blocks)
        np.testing.assert_array_equal(np.concatenate(blocks), rows)

    @pytest.mark.parametrize("pattern", ["*/*.parquet", "**/part-*.parquet:emb", "gender=[fm]/part-?.parquet"])
    def test_pattern(self, folder: Path, rows: NDArray[np.float32], pattern: str) -> None:
        assert names_files(f"{folder}/{pattern}")
        np.testing.assert_array_equal(open_matrix(f"{folder}/{pattern}").to_numpy(), rows)

    def test_selectors(self, folder: Path) -> None:
        assert open_matrix(f"{folder}:number").to_numpy().ravel().tolist() == list(range(20))
        assert open_matrix(f"{folder}/**/*.parquet:number").columns == ["number"]
        assert split_spec(f"{folder}:number") == (folder, "number")
        with pytest.raises(MuteError, match=r"part-0\.parquet has no column 'age'; it has emb, number"):
            open_matrix(f"{folder}:age")

    def test_list_keeps_its_order(self, folder: Path, rows: NDArray[np.float32]) -> None:
        files = [folder / "gender=m/part-0.parquet", folder / "gender=f/part-0.parquet"]
        opened = open_matrix(files)
        np.testing.assert_array_equal(opened.to_numpy(), np.concatenate([rows[9:], rows[:9]]))
        assert str(opened.path).endswith("part-0.parquet and 1 more")
        assert open_matrix([f"{file}:number" for file in files]).to_numpy().ravel().tolist() == [
            *range(9, 20),
            *range(9),
        ]
        assert read_labels([f"{file}:number" for file in files]).tolist() == [*range(9, 20), *range(9)]

    @pytest.mark.parametrize("suffix", [".npy", ".npz", ".safetensors"])
    def test_arrays(self, tmp_path: Path, rows: NDArray[np.float32], suffix: str) -> None:
        for name, part in (("a", rows[:5]), ("b", rows[5:6]), ("c", rows[6:])):
            with open_writer(tmp_path / f"{name}{suffix}", len(part), 3, "float32") as writer:
                writer.write(part)
        opened = open_matrix(f"{tmp_path}/*{suffix}")
        np.testing.assert_array_equal(np.concatenate(list(opened.row_blocks(4))), rows)

    def test_names_with_a_line_before_them(self, tmp_path: Path, rows: NDArray[np.float32]) -> None:
        np.save(tmp_path / "_x.npy", rows)
        with pytest.raises(MuteError, match="matches no file"):
            open_matrix(f"{tmp_path}/*.npy")
        assert open_matrix(f"{tmp_path}/_*.npy").shape == (20, 3)

    def test_a_file_with_the_name_of_a_pattern(self, tmp_path: Path, rows: NDArray[np.float32]) -> None:
        np.save(tmp_path / "x[1].npy", rows)
        np.save(tmp_path / "x1.npy", rows[:2])
        assert open_matrix(tmp_path / "x[1].npy").shape == (20, 3)


class TestLabels:
    def test_column(self, folder: Path) -> None:
        assert read_labels(f"{folder}:number").tolist() == list(range(20))
        assert read_labels(f"{folder}/*/*.parquet:number").tolist() == list(range(20))

    @pytest.mark.parametrize("spec", ["", "/gender=*/*.parquet"])
    def test_partition(self, folder: Path, spec: str) -> None:
        assert read_labels(f"{folder}{spec}:gender").tolist() == ["f"] * 9 + ["m"] * 11

    def test_partition_of_a_list(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Paths from here and from the root of the disk, side by side."""
        monkeypatch.chdir(folder)
        files = ["gender=m/part-0.parquet:gender", f"{folder}/gender=f/part-0.parquet:gender"]
        assert read_labels(files).tolist() == ["m"] * 11 + ["f"] * 9

    def test_partition_of_numbers_and_odd_names(self, tmp_path: Path, rows: NDArray[np.float32]) -> None:
        pytest.importorskip("pyarrow")
        write(tmp_path / "age=31/city=New%20York/0.parquet", rows[:2])
        write(tmp_path / "age=7/city=a=b/0.parquet", rows[:1])
        assert read_labels(f"{tmp_path}:age").tolist() == [31, 31, 7]
        assert read_labels(f"{tmp_path}:city").tolist() == ["New York", "New York", "a=b"]

    def test_files_win_over_folders(self, tmp_path: Path, rows: NDArray[np.float32]) -> None:
        pytest.importorskip("pyarrow")
        write(tmp_path / "g=x/0.parquet", rows[:2], g=["a", "b"])
        assert read_labels(f"{tmp_path}:g").tolist() == ["a", "b"]

    def test_missing_partition(self, folder: Path, rows: NDArray[np.float32]) -> None:
        with pytest.raises(MuteError, match=r"holds 3 columns; choose one as .*data:NAME.* emb, number, gender"):
            read_labels(folder)
        write(folder / "gender=__HIVE_DEFAULT_PARTITION__/x.parquet", rows[:2], number=[1, 2])
        with pytest.raises(MuteError, match=r"2 of 22 labels are missing \(rows 0, 1"):
            read_labels(f"{folder}:gender")
        write(folder / "loose.parquet", rows[:2], number=[1, 2])
        with pytest.raises(MuteError, match=r"loose\.parquet is in no folder gender=\.\.\., unlike"):
            read_labels(f"{folder}:gender")

    def test_kinds_that_differ(self, folder: Path, rows: NDArray[np.float32]) -> None:
        write(folder / "x" / "late.parquet", rows[:2], number=["1", "2"])
        with pytest.raises(MuteError, match=r"late\.parquet has object labels .*part-0\.parquet int64 labels"):
            read_labels(f"{folder}:number")


class TestErrors:
    @pytest.mark.parametrize(
        ("columns", "message"),
        [
            (
                {"e0": [1.0], "e1": [2.0], "e3": [2.0], "e2": [0.0]},
                r"late\.parquet also has e3, unlike .*early\.parquet",
            ),
            ({"e0": [1.0], "e1": [2.0]}, r"late\.parquet lacks e2, unlike"),
            ({"e0": [1.0], "e1": [2.0], "e2": ["x"]}, r"late\.parquet lacks e2, unlike"),
            ({"a": [[1.0, 2.0]]}, r"late\.parquet lacks e0, e1, e2, unlike"),
        ],
    )
    def test_columns_that_differ(self, tmp_path: Path, columns: dict[str, Any], message: str) -> None:
        pytest.importorskip("pyarrow")
        pa = import_arrow()
        pa.parquet.write_table(pa.table({"e0": [1.0], "e1": [2.0], "e2": [0.0]}), tmp_path / "early.parquet")
        pa.parquet.write_table(pa.table(columns), tmp_path / "late.parquet")
        with pytest.raises(MuteError, match=message) as caught:
            open_matrix(tmp_path)
        assert "\n" not in str(caught.value)

    def test_columns_in_another_order_are_matched_by_name(self, tmp_path: Path) -> None:
        pytest.importorskip("pyarrow")
        pa = import_arrow()
        pa.parquet.write_table(pa.table({"b": [1.0], "a": [2.0]}), tmp_path / "early.parquet")
        pa.parquet.write_table(pa.table({"a": [3.0], "b": [4.0]}), tmp_path / "late.parquet")
        assert open_matrix(f"{tmp_path}:?").to_numpy().tolist() == [[1.0, 2.0], [4.0, 3.0]]

    def test_widths_and_precisions_that_differ(self, tmp_path: Path, rows: NDArray[np.float32]) -> None:
        np.save(tmp_path / "a.npy", rows)
        np.save(tmp_path / "b.npy", rows[:, :2])
        with pytest.raises(MuteError, match=r"b\.npy has 2 columns and .*a\.npy 3"):
            open_matrix(f"{tmp_path}/*.npy")
        np.save(tmp_path / "b.npy", rows.astype(np.float64))
        with pytest.raises(MuteError, match=r"b\.npy has float64 numbers and .*a\.npy float32"):
            open_matrix(f"{tmp_path}/*.npy")

    def test_damage_names_the_file(self, folder: Path) -> None:
        (folder / "gender=m" / "part-9.parquet").write_bytes(b"PAR1 is not enough")
        for read in (open_matrix, lambda spec: read_labels(f"{spec}:number")):
            with pytest.raises(MuteError, match=r"gender=m/part-9\.parquet cannot be read as \.parquet"):
                read(folder)

    def test_files_that_change(self, folder: Path, rows: NDArray[np.float32]) -> None:
        opened = open_matrix(folder)
        write(folder / "gender=m" / "part-0.parquet", rows[:4], number=np.arange(4))
        with pytest.raises(MuteError, match=r"part-0\.parquet has 4 rows, but 11 when it was opened"):
            opened.to_numpy()

    def test_what_names_no_files(self, tmp_path: Path, rows: NDArray[np.float32]) -> None:
        np.save(tmp_path / "x.npy", rows)
        (tmp_path / "y.csv").write_text("a\n1\n")
        (tmp_path / "empty").mkdir()
        cases: list[tuple[Any, str]] = [
            (tmp_path / "empty", r"is a directory without \.parquet files"),
            (f"{tmp_path}/part-*.parquet", "matches no file"),
            (f"{tmp_path}/*", r"empty is a directory"),
            (f"{tmp_path}/*.csv", r"y\.csv is of an unknown kind; give a file ending in \.parquet, "),
            ([], "the list of files is empty"),
            ([3], r"the spec is \[3\]; give a path or a list of paths"),
            (7, "the spec is 7; give a path or a list of paths"),
            ([tmp_path / "x.npy", tmp_path / "z.npy"], r"z\.npy does not exist"),
            ([tmp_path / "x.npy", f"{tmp_path}/x.npy:k"], "give the same to all files"),
            (f"{tmp_path}/*.npy:key", "has one thing only"),
        ]
        for spec, message in cases:
            for read in (open_matrix, read_labels):
                with pytest.raises(MuteError, match=message):
                    read(spec)
        assert not names_files(f"{tmp_path}/*.parquet")

    def test_two_kinds(self, tmp_path: Path, rows: NDArray[np.float32]) -> None:
        np.save(tmp_path / "a.npy", rows)
        np.savez(tmp_path / "b.npz", X=rows)
        with pytest.raises(MuteError, match="are of two kinds"):
            open_matrix([tmp_path / "a.npy", tmp_path / "b.npz"])

    def test_no_rows_at_all(self, tmp_path: Path, rows: NDArray[np.float32]) -> None:
        pytest.importorskip("pyarrow")
        write(tmp_path / "x.parquet", rows[:0], z=np.arange(0))
        with pytest.raises(MuteError, match="has files but no rows"):
            open_matrix(tmp_path)
        with pytest.raises(MuteError, match="has no labels"):
            read_labels(f"{tmp_path}:z")

    @pytest.mark.skipif(os.name == "nt", reason="links need rights there")
    def test_linked_folders_are_not_left_out_in_silence(self, folder: Path) -> None:
        (folder / "again").symlink_to(folder)
        with pytest.raises(MuteError, match="again is a link to a directory; give a pattern"):
            open_matrix(folder)
