"""A file that changes while its rows are read is noticed at the end of the pass."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from mute.errors import MuteError
from mute.tables import open_matrix, open_writer
from mute.tables.rewriting import rewrite_table
from mute.tables.table import TableMatrix

KINDS = ["npy", "npz", "safetensors", "parquet", "csv", "fortran"]


def write(folder: Path, kind: str) -> Path:
    """A file that is a minute old: file systems count time in steps of milliseconds."""
    rows = np.arange(3000.0).reshape(1000, 3)
    path = folder / ("x.npy" if kind == "fortran" else f"x.{kind}")
    if kind == "fortran":
        np.save(path, np.asfortranarray(rows))
    else:
        with open_writer(path, *rows.shape, "float64") as writer:
            writer.write(rows)
    os.utime(path, (path.stat().st_atime - 60, path.stat().st_mtime - 60))
    return path


def in_place(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content)


def replaced(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    stamp = path.stat()
    os.utime(other, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    other.replace(path)


@pytest.mark.parametrize("change", [in_place, replaced, Path.unlink])
@pytest.mark.parametrize("kind", KINDS)
def test_a_pass_over_a_file_that_changes(tmp_path, kind, change):
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    path = write(tmp_path, kind)
    matrix = open_matrix(path)
    assert sum(map(len, matrix.row_blocks(100))) == 1000, "a file that stays can be read again"
    blocks = matrix.row_blocks(100)
    next(blocks)
    change(path)
    with pytest.raises(MuteError, match=rf"{path.name} has changed while it was read; run it again"):
        list(blocks)
    with pytest.raises(MuteError, match="has changed while it was read"):
        matrix.check_unchanged()


def test_one_of_many_files(tmp_path):
    for part in range(3):
        (tmp_path / str(part)).mkdir()
        write(tmp_path / str(part), "npy")
    matrix = open_matrix(f"{tmp_path}/*/x.npy")
    blocks = matrix.row_blocks(100)
    next(blocks)
    in_place(tmp_path / "0" / "x.npy")
    with pytest.raises(MuteError, match=r"0/x\.npy has changed while it was read"):
        list(blocks)


def test_a_table_that_changes_is_not_written_again(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("id,e0,e1\n" + "a,0.5,1.5\n" * 1000)
    os.utime(path, (0, 0))
    matrix = open_matrix(path)
    assert isinstance(matrix, TableMatrix)

    def work(rows, start):
        if start == 0:
            in_place(path)
        return rows

    with pytest.raises(MuteError, match="has changed while it was read"):
        rewrite_table(matrix, tmp_path / "y.csv", work, size=100)
    assert list(tmp_path.iterdir()) == [path]


def test_another_machine_does_not_compare_the_numbers_of_files(tmp_path):
    """Workers of a cluster may know a file by another device and inode."""
    matrix = open_matrix(write(tmp_path, "npy"))
    assert matrix.stamps and not pickle.loads(pickle.dumps(matrix)).stamps
