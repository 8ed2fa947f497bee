"""Files larger than what the process may take."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mute.errors import MuteError
from mute.tables import open_matrix, open_writer

if sys.platform != "linux":
    pytest.skip("address space is limited and measured as Linux does it", allow_module_level=True)

ROWS, COLUMNS = 400_000, 200  # 320 MB

READ = """
import resource, sys
import numpy as np
from mute.tables import open_matrix
matrix = open_matrix(sys.argv[1])
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (64 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
rows, last = 0, None
for block in open_matrix(sys.argv[1]).row_blocks(4096):
    rows, last = rows + len(block), block[-1, -1]
print(rows, last)
try:
    matrix.to_numpy()
except Exception:
    print("too large to be mapped")
"""


@pytest.mark.parametrize("suffix", [".npy", ".safetensors"])
def test_a_file_longer_than_the_address_space(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x{suffix}"
    header = {"X": {"dtype": "F32", "shape": [ROWS, COLUMNS], "data_offsets": [0, 4 * ROWS * COLUMNS]}}
    with open(path, "wb") as file:
        if suffix == ".npy":
            layout = {"descr": "<f4", "fortran_order": False, "shape": (ROWS, COLUMNS)}
            np.lib.format.write_array_header_1_0(file, layout)
        else:
            file.write(len(json.dumps(header)).to_bytes(8, "little") + json.dumps(header).encode())
        # A hole up to the last number: the file is long but takes no room on the disk.
        file.seek(4 * ROWS * COLUMNS - 4, 1)
        file.write(np.float32(7).tobytes())
    done = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [f"{ROWS} 7.0", "too large to be mapped"], done.stderr


@pytest.mark.parametrize("suffix", [".npy", ".safetensors"])
def test_a_file_that_shrinks(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x{suffix}"
    with open_writer(path, 3000, 50, "float64") as writer:
        writer.write(np.ones((3000, 50)))
    blocks = open_matrix(path).row_blocks(100)
    next(blocks)
    with open(path, "r+b") as file:
        file.truncate(600_000)
    with pytest.raises(MuteError, match="became shorter while it was read"):
        list(blocks)
    with pytest.raises(MuteError, match="cannot be read as"):
        list(open_matrix(path).row_blocks(100))


def test_a_file_that_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.ones((30, 5)))
    matrix = open_matrix(path)
    np.save(path, np.ones((30, 6)))
    for read in (matrix.to_numpy, lambda: list(matrix.row_blocks(7))):
        with pytest.raises(MuteError, match="has changed since it was opened"):
            read()


def test_columns_first(tmp_path: Path) -> None:
    rows = np.arange(42.0).reshape(14, 3)
    np.save(tmp_path / "x.npy", np.asfortranarray(rows))
    matrix = open_matrix(tmp_path / "x.npy")
    blocks = list(matrix.row_blocks(4))
    assert all(block.flags.c_contiguous and block.flags.writeable for block in blocks)
    np.testing.assert_array_equal(np.concatenate(blocks), rows)
    np.testing.assert_array_equal(matrix.to_numpy(), rows)


@pytest.mark.parametrize("dtype", [">f4", "<f2", ">f8", "<i4", "?", "<u8"])
def test_kinds_of_numbers(tmp_path: Path, dtype: str) -> None:
    rows = np.arange(42).reshape(14, 3).astype(dtype)
    np.save(tmp_path / "x.npy", rows)
    matrix = open_matrix(tmp_path / "x.npy")
    assert matrix.dtype == (np.float32 if dtype in (">f4", "<f2") else np.float64) and matrix.dtype.isnative
    np.testing.assert_array_equal(np.concatenate(list(matrix.row_blocks(4))), rows.astype(matrix.dtype))
    np.testing.assert_array_equal(matrix.to_numpy(), rows.astype(matrix.dtype))


PEAK = """
import resource, sys
from mute.tables import open_matrix
total = 0
for block in open_matrix(sys.argv[1]).row_blocks(1024):
    total += len(block)
print(total, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_memory_does_not_grow_with_the_number_of_files(tmp_path: Path) -> None:
    """One file of 8 MB, and twenty links to it: the rest of the data would be 150 MB."""
    pytest.importorskip("pyarrow")
    rows = np.random.default_rng(0).standard_normal((20_000, 100)).astype(np.float32)
    with open_writer(tmp_path / "x.parquet", *rows.shape, "float32") as writer:
        writer.write(rows)
    peaks = []
    for n in (1, 20):
        folder = tmp_path / str(n)
        folder.mkdir()
        for i in range(n):
            (folder / f"{i:02}.parquet").symlink_to(tmp_path / "x.parquet")
        done = subprocess.run(
            [sys.executable, "-c", PEAK, str(folder)], capture_output=True, text=True, check=True
        ).stdout.split()
        assert int(done[0]) == n * len(rows)
        peaks.append(int(done[1]) * 1024)
    assert peaks[1] - peaks[0] < 30e6
