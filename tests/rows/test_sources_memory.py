"""A fit on rows that do not fit into memory gives the eraser of one on rows that do."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mute
from mute import MUtE
from same_models import assert_same

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits the address space"),
    pytest.mark.filterwarnings("ignore::mute.WeakResultWarning"),
]

# A first small fit takes what any fit takes (libraries, compiled code, buffers and stacks of the threads); then the
# process may take so many bytes more, of addresses: files that it maps count, too.
_FIT = """
import ctypes, gc, resource, sys, warnings
import numpy as np
from mute import MUtE, open_matrix
warnings.simplefilter("ignore")
folder, how, layers, spare = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
make = lambda layers: MUtE(layers, router="logistic", random_state=0)
z = np.load(folder + "/z.npy")
few = np.random.default_rng(0).gamma(2, size=(20_000, open_matrix(folder + "/x.npy").shape[1])).astype(np.float32)
make(2).fit(few + z[:20_000, None], z[:20_000])
gc.collect()
ctypes.CDLL(None).malloc_trim(0)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + spare,) * 2)
X = open_matrix(folder + "/x.npy") if how == "matrix" else np.load(folder + "/x.npy")
make(layers).fit(X, z).save(folder + "/model.safetensors")
"""


def write(folder: Path, n: int, d: int) -> None:
    rng = np.random.default_rng(0)
    z = rng.integers(0, 2, n)
    x = np.lib.format.open_memmap(folder / "x.npy", "w+", np.float32, (n, d))
    for start in range(0, n, 100_000):
        part = slice(start, start + 100_000)
        x[part] = rng.gamma(2, size=(len(z[part]), d)) + 0.3 * z[part, None]
    np.save(folder / "z.npy", z)


def fit(folder: Path, how: str, layers: int) -> subprocess.CompletedProcess[str]:
    """Fit with room for a quarter of the rows."""
    # On a busy machine threads free their buffers later and the heap has more holes: 8 MB for them.
    spare = (folder / "x.npy").stat().st_size // 4 + (8 << 20)
    command = [sys.executable, "-c", _FIT, str(folder), how, str(layers), str(spare)]
    # Each thread may reserve addresses for a heap of its own, by chance: here they share one.
    settings = os.environ | {"MALLOC_ARENA_MAX": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=900, env=settings)


def check(folder: Path, layers: int) -> None:
    done = fit(folder, "matrix", layers)
    assert done.returncode == 0, done.stderr
    whole = np.load(folder / "x.npy")
    expected = MUtE(layers, router="logistic", random_state=0).fit(whole, np.load(folder / "z.npy"))
    assert_same(mute.load(folder / "model.safetensors"), expected)


def test_a_quarter_of_the_rows_fits_into_memory(tmp_path: Path) -> None:
    write(tmp_path, 800_000, 64)
    check(tmp_path, 3)
    in_memory = fit(tmp_path, "array", 3)
    assert in_memory.returncode != 0 and "MemoryError" in in_memory.stderr, "the limit does not bite"


@pytest.mark.slow
def test_two_million_rows_in_a_quarter_of_their_size(tmp_path: Path) -> None:
    write(tmp_path, 2_000_000, 128)
    check(tmp_path, 5)
