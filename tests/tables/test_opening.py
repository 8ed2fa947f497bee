"""Every kind of file gives back what was written, and every wrong one says what is wrong."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from mute.errors import MuteError
from mute.tables import open_matrix, open_writer, read_labels, split_spec
from mute.tables.parquet import import_arrow

KINDS = [".npy", ".npz", ".safetensors", ".parquet", ".csv", ".tsv"]
TEXT = (".csv", ".tsv")


@pytest.fixture(autouse=True)
def needs_pyarrow(request: pytest.FixtureRequest) -> None:
    callspec = getattr(request.node, "callspec", None)
    values = [] if callspec is None else callspec.params.values()
    if "parquet" in request.node.name or any(".parquet" in str(value) for value in values):
        pytest.importorskip("pyarrow")


def matrix(rows: int = 7, columns: int = 4, dtype: str = "float64") -> NDArray[Any]:
    values = np.random.default_rng(0).standard_normal((rows, columns)).astype(dtype)
    values[0, :3] = [np.nan, np.inf, 1e-30]
    return values


def save(path: Path, values: NDArray[Any], *, size: int = 3, columns: list[str] | None = None) -> str:
    with open_writer(path, values.shape[0], values.shape[1], values.dtype, columns=columns) as writer:
        for start in range(0, len(values), size):
            writer.write(values[start : start + size])
    return str(path)


def text(path: Path, content: str) -> str:
    path.write_text(content, encoding="utf-8")
    return str(path)


def parquet(path: Path, **columns: Any) -> str:
    pa = import_arrow()
    pa.parquet.write_table(pa.table(columns), path)
    return str(path)


class TestRoundTrip:
    @pytest.mark.parametrize("suffix", KINDS)
    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    @pytest.mark.parametrize("size", [1, 3, 100])
    def test_blocks(self, tmp_path: Path, suffix: str, dtype: str, size: int) -> None:
        values = matrix(dtype=dtype)
        opened = open_matrix(save(tmp_path / f"x{suffix}", values, size=size))
        assert opened.shape == (7, 4)
        assert opened.dtype == (np.float64 if suffix in TEXT else dtype)
        blocks = list(opened.row_blocks(size))
        assert all(block.flags.c_contiguous and block.flags.writeable and len(block) <= size for block in blocks)
        assert all(type(block) is np.ndarray and block.dtype == opened.dtype for block in blocks)
        # Exact: text is the shortest that gives the number back in the precision of the file.
        np.testing.assert_array_equal(np.concatenate(blocks).astype(dtype), values)
        np.testing.assert_array_equal(opened.to_numpy().astype(dtype), values)
        assert [path.name for path in tmp_path.iterdir()] == [f"x{suffix}"]

    @pytest.mark.parametrize("suffix", [".parquet", *TEXT])
    def test_column_names(self, tmp_path: Path, suffix: str) -> None:
        names = ["a", "b.c", 'd "quoted", e', "é"]
        opened = open_matrix(save(tmp_path / f"x{suffix}", matrix(), columns=names), names=names)
        assert opened.columns == names
        np.testing.assert_array_equal(opened.to_numpy(), matrix())

    def test_without_names(self, tmp_path: Path) -> None:
        assert open_matrix(save(tmp_path / "x.npy", matrix())).columns is None
        assert open_matrix(save(tmp_path / "x.csv", matrix())).columns == ["x0", "x1", "x2", "x3"]

    def test_other_libraries_read_our_files(self, tmp_path: Path) -> None:
        np.testing.assert_array_equal(np.load(save(tmp_path / "x.npy", matrix())), matrix())
        with np.load(save(tmp_path / "x.npz", matrix())) as archive:
            assert archive.files == ["X"]
            np.testing.assert_array_equal(archive["X"], matrix())
        np.testing.assert_array_equal(load_file(save(tmp_path / "x.safetensors", matrix()))["X"], matrix())

    def test_parquet_is_a_fixed_size_list_in_large_row_groups(self, tmp_path: Path) -> None:
        pq = import_arrow().parquet
        table = pq.ParquetFile(save(tmp_path / "x.parquet", matrix(dtype="float32"), size=1))
        assert str(table.schema_arrow.field("embedding").type).startswith("fixed_size_list<")
        assert table.metadata.num_row_groups == 1
        table.close()

    def test_parquet_row_groups_are_bounded(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        pq = import_arrow().parquet
        monkeypatch.setattr("mute.tables.writers._GROUP_BYTES", 3 * 4 * 8)
        path = save(tmp_path / "x.parquet", matrix(), size=2)
        with pq.ParquetFile(path) as file:
            assert file.metadata.num_row_groups > 1
        np.testing.assert_array_equal(open_matrix(path).to_numpy(), matrix())

    @pytest.mark.parametrize("suffix", KINDS)
    def test_blocks_are_cast_and_may_be_reused(self, tmp_path: Path, suffix: str) -> None:
        block = np.zeros((1, 2), dtype=np.int16, order="F")
        with open_writer(tmp_path / f"x{suffix}", 3, 2, np.float32) as writer:
            for row in range(3):
                block[:] = row
                writer.write(block)
        assert open_matrix(str(tmp_path / f"x{suffix}")).to_numpy().tolist() == [[0, 0], [1, 1], [2, 2]]


class TestReading:
    def test_npy_is_mapped_not_read(self, tmp_path: Path) -> None:
        path = tmp_path / "huge.npy"
        with open(path, "wb") as file:
            header = {"descr": "<f4", "fortran_order": False, "shape": (1 << 19, 1 << 10)}
            np.lib.format.write_array_header_1_0(file, header)
            file.truncate(file.tell() + (1 << 31))
        opened = open_matrix(str(path))
        assert isinstance(opened.to_numpy(), np.memmap)
        resource = pytest.importorskip("resource")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        block = next(opened.row_blocks(16))
        # In kB (bytes on macOS, where the test is only weaker the other way round): far below the 2 GiB of the file.
        unit = 1 if sys.platform == "darwin" else 1024
        assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit < 1 << 26
        assert block.shape == (16, 1 << 10) and not block.any()

    @pytest.mark.parametrize("stored", ["float16", "int8", "uint64", "bool", ">f4", ">f8", "longdouble"])
    def test_other_numbers_become_floats(self, tmp_path: Path, stored: str) -> None:
        values = np.array([[0, 1], [1, 1]]).astype(stored)
        np.save(tmp_path / "x.npy", values)
        opened = open_matrix(str(tmp_path / "x.npy"))
        assert opened.dtype == (np.float32 if stored in ("float16", ">f4") else np.float64)
        assert opened.to_numpy().dtype == opened.dtype
        np.testing.assert_array_equal(opened.to_numpy(), values.astype(float))

    def test_fortran_order(self, tmp_path: Path) -> None:
        np.save(tmp_path / "x.npy", np.asfortranarray(matrix()))
        blocks = list(open_matrix(str(tmp_path / "x.npy")).row_blocks(3))
        assert all(block.flags.c_contiguous for block in blocks)
        np.testing.assert_array_equal(np.concatenate(blocks), matrix())

    def test_bfloat16(self, tmp_path: Path) -> None:
        values = np.array([[1.0, -2.5], [np.inf, 2.0**-130], [3.140625, 0.0]], dtype=np.float32)
        bits = (values.view(np.uint32) >> 16).astype("<u2")
        header = json.dumps({"X": {"dtype": "BF16", "shape": [3, 2], "data_offsets": [0, 12]}}).encode()
        path = tmp_path / "x.safetensors"
        path.write_bytes(len(header).to_bytes(8, "little") + header + bits.tobytes())
        opened = open_matrix(str(path))
        assert opened.dtype == np.float32
        np.testing.assert_array_equal(opened.to_numpy(), values)
        np.testing.assert_array_equal(np.concatenate(list(opened.row_blocks(2))), values)
        with pytest.raises(MuteError, match="BF16 labels"):
            read_labels(str(path))

    def test_safetensors_key_and_odd_alignment(self, tmp_path: Path) -> None:
        path = tmp_path / "x.safetensors"
        header = json.dumps(
            {
                "a": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]},
                "X": {"dtype": "F64", "shape": [7, 4], "data_offsets": [3, 227]},
            }
        ).encode()
        path.write_bytes(len(header).to_bytes(8, "little") + header + b"\1\2\3" + matrix().tobytes())
        np.testing.assert_array_equal(open_matrix(f"{path}:X").to_numpy(), matrix())
        assert read_labels(f"{path}:a").tolist() == [1, 2, 3]

    def test_npz_key(self, tmp_path: Path) -> None:
        np.savez_compressed(tmp_path / "x.npz", a=matrix(), b=matrix() + 1)
        np.testing.assert_array_equal(open_matrix(f"{tmp_path}/x.npz:b").to_numpy(), matrix() + 1)

    @pytest.mark.parametrize("size", [1, 2, 100])
    def test_parquet_lists(self, tmp_path: Path, size: int) -> None:
        pa = import_arrow()
        lists = [[1, 2], [3, 4], [5, 6]]
        for kind in (pa.list_(pa.float32()), pa.large_list(pa.float16()), pa.list_(pa.float32(), 2)):
            path = parquet(tmp_path / "x.parquet", id=[7, 8, 9], emb=pa.array(lists, kind))
            for spec in (path, f"{path}:emb"):
                opened = open_matrix(spec)
                assert opened.shape == (3, 2) and opened.dtype == np.float32 and opened.columns is None
                assert np.concatenate(list(opened.row_blocks(size))).tolist() == lists

    def test_parquet_columns(self, tmp_path: Path) -> None:
        pa = import_arrow()
        path = parquet(
            tmp_path / "x.parquet",
            c1=pa.array([1, 2], pa.int8()),
            c0=pa.array([0.5, 1.5], pa.float32()),
            label=[0, 1],
            name=["x", "y"],
            __index_level_0__=[5, 6],
            __index_level_1__=[5.0, 6.0],
        )
        opened = open_matrix(path, exclude=["label", "absent"])
        assert opened.columns == ["c0", "c1"] and opened.dtype == np.float64
        assert opened.to_numpy().tolist() == [[0.5, 1], [1.5, 2]]
        assert open_matrix(f"{path}:c0").dtype == np.float32
        assert open_matrix(f"{path}:c1, c0").to_numpy().tolist() == [[1, 0.5], [2, 1.5]]

    def test_csv_columns(self, tmp_path: Path) -> None:
        path = text(tmp_path / "x.csv", '\ufefflabel,a,note,"b,c",id\n1,,"two\nlines",2,2020_01\n0,3e2,"x, y",-4,1\n\n')
        assert open_matrix(f"{path}:b,c").to_numpy().tolist() == [[2], [-4]]
        opened = open_matrix(path, exclude=["label"], names=["a", "b,c"])
        assert opened.columns == ["a", "b,c"] and opened.shape == (2, 2)
        with pytest.raises(MuteError, match=r"line 3: '' in column 'a' is not a number"):
            opened.to_numpy()

    def test_tsv(self, tmp_path: Path) -> None:
        assert open_matrix(text(tmp_path / "x.TSV", "0\t1\n1.0\t2\n")).to_numpy().tolist() == [[1, 2]]

    def test_csv_that_shrinks(self, tmp_path: Path) -> None:
        opened = open_matrix(text(tmp_path / "x.csv", "a\n1\n2\n") + ":a")
        text(tmp_path / "x.csv", "a\n1\n")
        with pytest.raises(MuteError, match="has 1 rows where 2 were announced"):
            opened.to_numpy()

    def test_block_size(self, tmp_path: Path) -> None:
        with pytest.raises(MuteError, match="at least 1"):
            open_matrix(save(tmp_path / "x.npy", matrix())).row_blocks(0)


class TestSplitting:
    @pytest.mark.parametrize(
        ("spec", "path", "selector"),
        [
            ("x.npy", "x.npy", None),
            ("x.npz:a:b", "x.npz", "a:b"),
            ("x.npz:/key", "x.npz", "/key"),
            ("C:\\data\\x.npz:key", "C:\\data\\x.npz", "key"),
            ("C:/data/x.npy", "C:/data/x.npy", None),
            ("a:b.npy", "a:b.npy", None),
            ("a:b.csv:c", "a:b.csv", "c"),
            ("x", "x", None),
            ("x:y", "x:y", None),
            (":x.npy", ":x.npy", None),
            ("x.csv:" + ",".join(map(str, range(2000))), "x.csv", ",".join(map(str, range(2000)))),
        ],
    )
    def test_absent_files(self, spec: str, path: str, selector: str | None) -> None:
        assert split_spec(spec) == (Path(path), selector)

    @pytest.mark.skipif(os.name == "nt", reason="no colons in the names of files")
    def test_what_exists_is_the_path(self, tmp_path: Path) -> None:
        for name in ("a.npz:b.npz", "a.npz"):
            (tmp_path / name).touch()
        assert split_spec(f"{tmp_path}/a.npz:b.npz") == (tmp_path / "a.npz:b.npz", None)
        assert split_spec(f"{tmp_path}/a.npz:b.npz:k") == (tmp_path / "a.npz:b.npz", "k")
        assert split_spec(f"{tmp_path}/a.npz:k") == (tmp_path / "a.npz", "k")


class TestLabels:
    @pytest.mark.parametrize(
        "labels",
        [np.array([2, 0, -1]), np.array([True, False, True]), np.array(["b", "a", "é"])],
        ids=lambda x: x.dtype,
    )
    def test_kinds(self, tmp_path: Path, labels: NDArray[Any]) -> None:
        np.save(tmp_path / "y.npy", labels)
        np.savez(tmp_path / "y.npz", y=labels, z=labels)
        specs = ["y.npy", "y.npz:y"]
        if labels.dtype.kind != "U":
            save_file({"y": labels}, tmp_path / "y.safetensors")
            specs += ["y.safetensors:y", "y.safetensors"]
        for spec in specs:
            read = read_labels(f"{tmp_path}/{spec}")
            assert type(read) is np.ndarray and read.dtype == labels.dtype
            assert read.tolist() == labels.tolist()

    def test_parquet(self, tmp_path: Path) -> None:
        pa = import_arrow()
        path = parquet(
            tmp_path / "y.parquet",
            i=pa.array([1, 2], pa.int16()),
            b=[True, False],
            s=["x", "y"],
            c=pa.array(["x", "y"]).dictionary_encode(),
        )
        assert read_labels(f"{path}:i").dtype == np.int16
        assert read_labels(f"{path}:b").dtype == np.bool_
        for column in "sc":
            assert read_labels(f"{path}:{column}").tolist() == ["x", "y"]

    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            (["1", "-2", "+3"], [1, -2, 3]),
            (["1", "x"], ["1", "x"]),
            (["1", "1.0"], ["1", "1.0"]),
            (["1_2", "3"], ["1_2", "3"]),
            (["9" * 30, "1"], ["9" * 30, "1"]),
            (["True", "False"], ["True", "False"]),
        ],
    )
    def test_text(self, tmp_path: Path, values: list[str], expected: list[Any]) -> None:
        table = "".join(f"{value},z\n" for value in values)
        for spec in (
            text(tmp_path / "y.csv", f"y,z\n{table}") + ":y",
            text(tmp_path / "y.tsv", "y\n" + "\n".join(values)),
            text(tmp_path / "y.txt", "\r\n".join([*values, ""])),
        ):
            read = read_labels(spec)
            assert read.tolist() == expected
            assert read.dtype.kind == ("i" if isinstance(expected[0], int) else "O")

    def test_bytes(self, tmp_path: Path) -> None:
        np.save(tmp_path / "y.npy", np.array(["a", "é"]).astype(object).astype("U").view(np.ndarray))
        np.save(tmp_path / "z.npy", np.array([b"a", "é".encode()]))
        assert read_labels(f"{tmp_path}/z.npy").tolist() == read_labels(f"{tmp_path}/y.npy").tolist() == ["a", "é"]

    def test_missing_in_parquet(self, tmp_path: Path) -> None:
        path = parquet(tmp_path / "y.parquet", y=[1, None, 3, None], s=["a", "b", "", None])
        with pytest.raises(MuteError, match=r"2 of 4 labels are missing \(rows 1, 3, counting from 0\)"):
            read_labels(f"{path}:y")
        with pytest.raises(MuteError, match=r"1 of 4 labels are missing \(rows 3,"):
            read_labels(f"{path}:s")

    def test_missing_in_text(self, tmp_path: Path) -> None:
        path = text(tmp_path / "y.csv", "y,z\n" + "a,1\n" + ",1\n" * 7)
        with pytest.raises(MuteError, match=r"7 of 8 labels are missing \(rows 1, 2, 3, 4, 5 and 2 more, counting"):
            read_labels(f"{path}:y")
        with pytest.raises(MuteError, match=r"1 of 3 labels are missing \(rows 1,"):
            read_labels(text(tmp_path / "y.txt", "1\n\n2\n\n"))
        np.save(tmp_path / "y.npy", [0.0, np.nan])
        with pytest.raises(MuteError, match="1 of 2 labels are missing"):
            read_labels(f"{tmp_path}/y.npy")

    def test_what_is_no_label(self, tmp_path: Path) -> None:
        for name, value in {"two": np.zeros((2, 2)), "none": np.zeros(0), "z": np.zeros(2, complex)}.items():
            np.save(tmp_path / f"{name}.npy", value)
        for name, message in {"two": r"shape \(2, 2\)", "none": "no labels", "z": "complex128 values"}.items():
            with pytest.raises(MuteError, match=message):
                read_labels(f"{tmp_path}/{name}.npy")

    def test_parquet_column_that_is_no_label(self, tmp_path: Path) -> None:
        with pytest.raises(MuteError, match="column y is list<"):
            read_labels(parquet(tmp_path / "y.parquet", y=[[1], [2]]) + ":y")

    def test_selector_needed(self, tmp_path: Path) -> None:
        with pytest.raises(MuteError, match=r"holds 2 columns; choose one as .*y\.csv:NAME.* one of a, b"):
            read_labels(text(tmp_path / "y.csv", "a,b\n1,2\n"))
        with pytest.raises(MuteError, match="'a' appears 2 times"):
            read_labels(text(tmp_path / "y.csv", "a,a\n1,2\n") + ":a")


def damaged(suffix: str, damage: Callable[[bytes], bytes]) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        path = folder / f"x{suffix}"
        save(path, matrix(200))
        path.write_bytes(damage(path.read_bytes()))
        return str(path)

    return make


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda content: content[:-20],
    "short": lambda content: content[:5],
    "noise": lambda content: bytes(255 - byte for byte in content),
}


class TestErrors:
    @pytest.mark.parametrize("suffix", KINDS)
    @pytest.mark.parametrize("damage", DAMAGES)
    def test_damaged(self, tmp_path: Path, suffix: str, damage: str) -> None:
        spec = damaged(suffix, DAMAGES[damage])(tmp_path)
        with pytest.raises(MuteError, match=r"cannot be read as|fields where|not a number|no rows") as caught:
            open_matrix(spec).to_numpy()
        assert "\n" not in str(caught.value) and f"x{suffix}" in str(caught.value)

    @pytest.mark.parametrize("suffix", KINDS)
    def test_labels_damaged(self, tmp_path: Path, suffix: str) -> None:
        with pytest.raises(MuteError, match="cannot be read as"):
            read_labels(damaged(suffix, DAMAGES["noise"])(tmp_path))

    def test_damaged_parquet_page(self, tmp_path: Path) -> None:
        path = Path(save(tmp_path / "x.parquet", matrix(200)))
        content = path.read_bytes()
        path.write_bytes(content[:4] + b"\xff" * 100 + content[104:])
        with pytest.raises(MuteError, match=r"cannot be read as \.parquet"):
            list(open_matrix(str(path)).row_blocks(10))

    def test_unterminated_quote(self, tmp_path: Path) -> None:
        with pytest.raises(MuteError, match=r"cannot be read as \.csv \(unexpected end of data\)"):
            open_matrix(text(tmp_path / "x.csv", 'a,b\n1,"x\n2,3\n'))

    def test_missing_file(self, tmp_path: Path) -> None:
        for read in (open_matrix, read_labels):
            with pytest.raises(MuteError, match=r"x\.npz does not exist"):
                read(f"{tmp_path}/x.npz:key")
            with pytest.raises(MuteError, match="is a directory"):
                read(str(tmp_path))

    def test_unknown_suffix(self, tmp_path: Path) -> None:
        path = text(tmp_path / "x.txt", "1\n")
        with pytest.raises(MuteError, match=r"\.npy, \.npz, \.safetensors, \.parquet, \.csv, \.tsv$"):
            open_matrix(path)
        with pytest.raises(MuteError, match=r"unknown kind; .*\.tsv, \.txt$"):
            read_labels(text(tmp_path / "x.pkl", "1\n"))

    @pytest.mark.parametrize("suffix", KINDS)
    def test_empty_file(self, tmp_path: Path, suffix: str) -> None:
        with pytest.raises(MuteError, match="is empty"):
            open_matrix(text(tmp_path / f"x{suffix}", ""))

    @pytest.mark.parametrize("suffix", KINDS)
    def test_no_rows(self, tmp_path: Path, suffix: str) -> None:
        with pytest.raises(MuteError, match=r"no rows|shape \(0, 4\)"):
            open_matrix(save(tmp_path / f"x{suffix}", matrix()[:0]))

    def test_unreadable(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = save(tmp_path / "x.npy", matrix())
        monkeypatch.setattr(os, "access", lambda *_: False)
        with pytest.raises(MuteError, match="may not be read"):
            open_matrix(path)

    def test_keys(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "x.npz", train=matrix(), test=matrix())
        save_file({"train": matrix(), "test": matrix()}, tmp_path / "x.safetensors")
        for name, what in {"x.npz": "array", "x.safetensors": "tensor"}.items():
            with pytest.raises(MuteError, match=rf"has no {what} 'trian'; did you mean 'train'\? it has t"):
                open_matrix(f"{tmp_path}/{name}:trian")
            with pytest.raises(MuteError, match=rf"holds 2 {what}s; choose one"):
                open_matrix(f"{tmp_path}/{name}")

    def test_selectors_that_do_not_belong(self, tmp_path: Path) -> None:
        path = save(tmp_path / "x.npy", matrix())
        with pytest.raises(MuteError, match="leave out ':key'"):
            open_matrix(f"{path}:key")
        with pytest.raises(MuteError, match="ends in a colon"):
            open_matrix(f"{path}:")

    @pytest.mark.parametrize("suffix", [".parquet", ".csv"])
    def test_unknown_column(self, tmp_path: Path, suffix: str) -> None:
        path = save(tmp_path / f"x{suffix}", matrix(), columns=["age", "height", "c", "d"])
        with pytest.raises(MuteError, match=r"no column 'heigth'; did you mean 'height'\? it has age, height, c, d"):
            open_matrix(f"{path}:age,heigth")
        with pytest.raises(MuteError, match="'age' appears 2 times in the selection"):
            open_matrix(f"{path}:age,age")
        with pytest.raises(MuteError, match="'age' has labels of this call; leave it out"):
            open_matrix(f"{path}:age,c", exclude=["age"])

    def test_many_columns_are_listed_in_short(self, tmp_path: Path) -> None:
        path = save(tmp_path / "x.csv", np.zeros((1, 30)))
        with pytest.raises(MuteError, match=r"x19 and 10 more$"):
            open_matrix(f"{path}:qqq")

    def test_arrays(self, tmp_path: Path) -> None:
        for name, value, message in [
            ("one", np.zeros(3), r"shape \(3,\); save a matrix of 2 dimensions"),
            ("three", np.zeros((2, 2, 2)), r"shape \(2, 2, 2\)"),
            ("text", np.array([["a"]]), "<U1 values, which are not numbers"),
            ("object", np.array([[None]]), "Python objects"),
        ]:
            np.save(tmp_path / f"{name}.npy", value, allow_pickle=True)
            np.savez(tmp_path / f"{name}.npz", value, allow_pickle=True)
            for suffix in (".npy", ".npz:arr_0"):
                with pytest.raises(MuteError, match=message):
                    open_matrix(f"{tmp_path}/{name}{suffix}")
        with pytest.raises(MuteError, match="Python objects"):
            read_labels(f"{tmp_path}/object.npy")

    def test_tensor_of_unknown_type(self, tmp_path: Path) -> None:
        header = json.dumps({"X": {"dtype": "F8_E4M3", "shape": [1, 2], "data_offsets": [0, 2]}}).encode()
        (tmp_path / "x.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0\0")
        with pytest.raises(MuteError, match="is F8_E4M3, which cannot be read"):
            open_matrix(f"{tmp_path}/x.safetensors")

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("a,b\n1,2\n3\n", r"line 3 has 1 fields where the header has 2"),
            ("a,b\n1,2\n3,4,5\n", r"line 3 has 3 fields"),
            ("e0,e1\n1,2.5\n3,x\n", r"line 3: 'x' in column 'e1' is not a number"),
            ("a,b\n1,2\n\n3,4\n", "line 3 is blank"),
            ("0.5,1\n1,2\n", r"starts with numbers \(0\.5, 1\); add a header line"),
            ("a,a\n0,1\n", "'a' appears 2 times in the file"),
            ("a\nx\n", "no column that is recognised as an embedding .* none among a"),
            ("a,b\n", "has a header but no rows"),
            ("\n\n", "is empty"),
            ("a\n\0\n", "none among a|line contains NUL"),
        ],
    )
    def test_csv(self, tmp_path: Path, content: str, message: str) -> None:
        with pytest.raises(MuteError, match=message):
            open_matrix(text(tmp_path / "x.csv", content)).to_numpy()

    def test_csv_column_that_is_text(self, tmp_path: Path) -> None:
        with pytest.raises(MuteError, match="column 'b' is not numeric"):
            open_matrix(text(tmp_path / "x.csv", "a,b\n1,x\n") + ":a,b")

    def test_csv_in_another_encoding(self, tmp_path: Path) -> None:
        (tmp_path / "x.csv").write_bytes(b"a,\xe9\n1,2\n")
        with pytest.raises(MuteError, match="utf-8"):
            open_matrix(f"{tmp_path}/x.csv")

    @pytest.mark.parametrize("size", [1, 2, 100])
    def test_parquet(self, tmp_path: Path, size: int) -> None:
        pa = import_arrow()
        fixed = pa.array([[1.0, 2], [3, 4], [5, 6], None], pa.list_(pa.float64(), 2))
        cases: list[tuple[dict[str, Any], str, str]] = [
            ({"e": [[1.0, 2], [3, 4], [5, 6], [7]]}, "", r"'e' has 1 values in row 3 but 2 in row 0"),
            ({"e": [[1.0, 2], [3, 4], None, [5, 6]]}, "", r"'e' is missing \(null\) in row 2"),
            ({"e": [[1.0, 2], [3, 4], [5, None]]}, "", r"'e' is missing \(null\) in row 2"),
            ({"e": [None, [1.0]]}, "", r"'e' is missing \(null\) in row 0"),
            ({"e": fixed}, "", r"'e' is missing \(null\) in row 3"),
            ({"a": [1, 2, 3, None]}, ":a", r"'a' is missing \(null\) in row 3"),
            ({"a": ["x"], "b": [1]}, ":a", "column 'a' is not numeric"),
            ({"a": [["x"]], "b": [1]}, ":a", "column 'a' is not numeric"),
            ({"a": [[[1]]], "b": [1]}, ":a", "column 'a' is not numeric"),
            ({"a": [[1]], "b": [1]}, ":a,b", "'a' is a list column, selected with others"),
            (
                {"a": [[1]], "b": [[1]]},
                "",
                "several candidates for the embedding: the list column a; the list column b; name its columns as .*:a ",
            ),
            ({"a": [[]]}, ":a", r"not numeric|shape \(1, 0\)"),
            ({"a": ["x"]}, "", "none among a"),
        ]
        for columns, selector, message in cases:
            path = parquet(tmp_path / "x.parquet", **columns)
            with pytest.raises(MuteError, match=message):
                list(open_matrix(path + selector).row_blocks(size))

    def test_without_pyarrow(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = text(tmp_path / "x.parquet", "x")
        for name in [name for name in sys.modules if name.split(".")[0] == "pyarrow"]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        for call in (open_matrix, read_labels, lambda path: open_writer(path, 1, 1, "f4")):
            with pytest.raises(MuteError, match=r"pyarrow, which is not installed: .*mute-erasure\[datasets\]"):
                call(path)


class TestWriting:
    @pytest.mark.parametrize("suffix", KINDS)
    @pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
    def test_interruption_leaves_the_old_file(self, tmp_path: Path, suffix: str, error: type[BaseException]) -> None:
        path = tmp_path / f"x{suffix}"
        path.write_bytes(b"old")
        with pytest.raises(error), open_writer(path, 10, 2, "float32") as writer:
            writer.write(np.zeros((4, 2)))
            raise error
        assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"old"]

    @pytest.mark.parametrize("suffix", KINDS)
    @pytest.mark.parametrize("rows", [2, 4])
    def test_other_numbers_of_rows(self, tmp_path: Path, suffix: str, rows: int) -> None:
        writer = open_writer(tmp_path / f"x{suffix}", 3, 2, "float32")
        with pytest.raises(MuteError, match=f"promised 3 rows and got {rows}"), writer:
            writer.write(np.zeros((rows, 2)))
        assert not list(tmp_path.iterdir())

    def test_wrong_blocks(self, tmp_path: Path) -> None:
        for block in (np.zeros((2, 3)), np.zeros(2)):
            writer = open_writer(tmp_path / "x.npy", 3, 2, "float32")
            with pytest.raises(MuteError, match="give rows of 2 columns"), writer:
                writer.write(block)
        with pytest.raises(MuteError, match="not open"):
            open_writer(tmp_path / "x.npy", 3, 2, "float32").write(np.zeros((3, 2)))

    def test_refused_before_any_work(self, tmp_path: Path) -> None:
        (tmp_path / "d.npy").mkdir()
        for name, shape, dtype, columns, message in [
            ("nowhere/x.npy", (1, 1), "f4", None, "the directory .* does not exist"),
            ("d.npy", (1, 1), "f4", None, "it is a directory"),
            ("x.pkl", (1, 1), "f4", None, r"unknown kind; give a name ending in \.npy, "),
            ("x.npy", (1, 1), "i4", None, "choose float32 or float64"),
            ("x.npy", (1, 0), "f4", None, "at least one column"),
            ("x.csv", (1, 2), "f4", ["a"], "1 column names, 1 of them distinct, for 2 columns"),
            ("x.csv", (1, 2), "f4", ["a", "a"], "1 of them distinct"),
        ]:
            with pytest.raises(MuteError, match=message):
                open_writer(tmp_path / name, *shape, dtype, columns=columns)
        assert [path.name for path in tmp_path.iterdir()] == ["d.npy"]

    def test_csv_text_is_short(self, tmp_path: Path) -> None:
        path = save(tmp_path / "x.csv", np.array([[0.1, np.nan]], dtype=np.float32), columns=["a", "b"])
        assert Path(path).read_bytes() == b"a,b\n0.1,nan\n"


@pytest.mark.parametrize(("at", "value"), [(6, 1), (8, 97)], ids=["encrypted", "unknown compression"])
def test_members_of_npz_files_that_cannot_be_unpacked(tmp_path, at, value):
    path = tmp_path / "x.npz"
    np.savez(path, X=np.ones((3, 2)))
    content = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\3\4", at), (b"PK\1\2", at + 2)):
        place = content.index(mark) + offset
        content[place : place + 2] = value.to_bytes(2, "little")
    path.write_bytes(content)
    for read in (open_matrix, read_labels):
        with pytest.raises(MuteError, match=r"cannot be read as \.npz"):
            read(path)
