"""An audit says the same of rows in memory, in a memory map and on disk, and does not hold what is on disk."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mute import MUtE, audit, open_matrix
from mute.errors import MuteError
from mute.estimators.base import digest_of_rows
from mute.evaluation import privacy
from mute.evaluation.blocks import check_matrix, gather
from mute.rows.validation import check_finite
from mute.tables import open_writer

QUICK = ["logistic"]


def judged(*given: Any, **options: Any) -> dict[str, Any]:
    """A report without its time, the one thing that may differ."""
    report = audit(*given, adversaries=QUICK, most_rows=1000, random_state=3, **options).to_dict()
    del report["about"]["seconds"]
    return report


class World:
    """Rows of a fit and new rows, in memory and in files; a model; erased rows."""

    def __init__(self, folder: Path) -> None:
        rng = np.random.default_rng(0)
        self.folder = folder
        self.z = np.where(rng.random(6000) < 0.4, "f", "m")
        self.X = (rng.normal(size=(6000, 4)) + 2 * (self.z == "m")[:, None]).astype(np.float32)
        self.eraser = MUtE(3, router="logistic", diagnostics=False, random_state=0).fit(self.X[:3000], self.z[:3000])
        self.Q = self.eraser.transform(self.X)
        for name, rows in (
            ("fit", self.X[:3000]),
            ("new", self.X[3000:]),
            ("Q", self.Q[3000:]),
            ("Q_fit", self.Q[:3000]),
        ):
            np.save(folder / f"{name}.npy", rows)
            # Files of odd lengths, so that their ends are nowhere near those of blocks.
            (folder / name).mkdir()
            for i, start in enumerate(range(0, 3000, 1100)):
                part = rows[start : start + 1100]
                with open_writer(folder / name / f"{i}.npy", *part.shape, part.dtype) as writer:
                    writer.write(part)

    def on_disk(self, name: str, how: str) -> Any:
        if how == "map":
            return np.load(self.folder / f"{name}.npy", mmap_mode="r")
        return open_matrix(self.folder / f"{name}.npy" if how == "file" else f"{self.folder}/{name}/*.npy")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def in_memory(world: World) -> dict[str, Any]:
    return judged(world.eraser, world.X[3000:], world.z[3000:], fit_rows=(world.X[:3000], world.z[:3000]))


@pytest.mark.parametrize("how", ["map", "file", "files"])
def test_the_same_report(world: World, in_memory: dict[str, Any], how: str) -> None:
    fit_rows = (world.on_disk("fit", how), world.z[:3000])
    report = judged(world.eraser, world.on_disk("new", how), world.z[3000:], fit_rows=fit_rows)
    assert report == in_memory
    assert report["privacy"]["noise_floor"] is not None


def test_the_same_report_of_rows_erased_elsewhere(world: World) -> None:
    z, z_fit = world.z[3000:], world.z[:3000]
    expected = judged(world.Q[3000:], world.X[3000:], z, fit_rows=(world.X[:3000], z_fit, world.Q[:3000]))
    fit_rows = (world.on_disk("fit", "files"), z_fit, world.on_disk("Q_fit", "files"))
    assert judged(world.on_disk("Q", "files"), world.on_disk("new", "files"), z, fit_rows=fit_rows) == expected


def test_rows_of_the_fit_are_refused(world: World) -> None:
    with pytest.raises(MuteError, match="the very rows that the eraser was fitted on"):
        audit(world.eraser, world.on_disk("fit", "files"), world.z[:3000])


def test_what_does_not_fit(world: World, tmp_path: Path) -> None:
    new, z = world.on_disk("new", "files"), world.z[3000:]
    for name, rows in (("short", world.Q[:100]), ("narrow", world.X[:3000, :3])):
        np.save(tmp_path / f"{name}.npy", rows)
    short, narrow = (open_matrix(tmp_path / f"{name}.npy") for name in ("short", "narrow"))
    for given, options, message in [
        ((world.eraser, new, z[:-1]), {}, "z has 2999 labels for 3000 rows"),
        (
            (short, new, z),
            {},
            r"erased rows have shape \(100, 4\), but .* 3000 rows in X",
        ),
        (
            (world.eraser, new, z),
            {"fit_rows": (narrow, z)},
            "X_fit has 3 columns, X has 4",
        ),
        (
            (world.on_disk("Q", "file"), new, z),
            {"fit_rows": (new, z, short)},
            r"Q_fit has shape \(100, 4\); expected \(3000, 4\)",
        ),
    ]:
        with pytest.raises(MuteError, match=message):
            audit(*given, **options)


@pytest.mark.parametrize(("value", "rows"), [(np.nan, [5]), (np.inf, [2047, 2048, 2999]), (1e30, [0, 2500])])
def test_numbers_that_cannot_be_used(world: World, tmp_path: Path, value: float, rows: list[int]) -> None:
    """The same words as for an array, with the rows' numbers in the whole."""
    X = world.X[3000:].copy()
    X[rows, 1] = value
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(MuteError) as expected:
        check_finite(X, "X")
    for given in (X, open_matrix(tmp_path / "x.npy")):
        with pytest.raises(MuteError) as caught:
            audit(world.eraser, given, world.z[3000:])
        assert str(caught.value) == str(expected.value)


@pytest.mark.parametrize("n", [1, 2047, 2048, 5000])
def test_hash_and_rows_of_one_pass(tmp_path: Path, n: int) -> None:
    X = np.random.default_rng(n).normal(size=(n, 3))
    np.save(tmp_path / "x.npy", X)
    some, none = np.arange(0, n, 7), np.arange(0)
    for given in (X, np.asfortranarray(X), open_matrix(tmp_path / "x.npy")):
        taken, digest = gather(given, "X", [some, none], digest=True)
        assert digest == digest_of_rows(X)
        np.testing.assert_array_equal(taken[0], X[some])
        assert taken[1].shape == (0, 3)
    assert gather(X, "X", [some])[1] is None


def test_rows_that_are_read_whole(world: World) -> None:
    np.testing.assert_array_equal(check_matrix(world.on_disk("new", "files"), "X"), world.X[3000:])


def test_classes_that_are_whitened_in_several_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whitened, each class has mean 0 and covariance 1, whatever room there is for their covariances."""
    rng = np.random.default_rng(0)
    z = rng.integers(5, size=20_000)
    X = rng.normal(size=(20_000, 3)) @ rng.normal(size=(3, 3)) * (1 + z)[:, None] + 100 * z[:, None]
    found = []
    for room in (privacy._ROOM, 2 * 8 * 9, 1):
        monkeypatch.setattr(privacy, "_ROOM", room)
        whiten = privacy._whitening(X, z, 5)
        assert whiten is not None
        found.append(whiten(X, z))
    for k in range(5):
        np.testing.assert_allclose(found[0][z == k].mean(axis=0), 0, atol=1e-9)
        np.testing.assert_allclose(np.cov(found[0][z == k].T, bias=True), np.eye(3), atol=1e-9)
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], atol=1e-9)


GATHER = """
import resource, sys
import numpy as np
import mute
from mute.evaluation.blocks import check_matrix, gather
X = np.load(sys.argv[1], mmap_mode="r") if sys.argv[2] == "map" else mute.open_matrix(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
taken, _ = gather(X, "X", [np.arange(0, X.shape[0], 100)], digest=True)
print(len(taken[0]), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="memory is measured as Unix does it")
@pytest.mark.parametrize("how", ["map", "file"])
def test_what_is_on_disk_stays_there(tmp_path: Path, how: str) -> None:
    """200 MB go by, of which 2 MB are taken."""
    with open(tmp_path / "x.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (500_000, 100)})
        file.truncate(file.tell() + 200_000_000)
    done = subprocess.run(
        [sys.executable, "-c", GATHER, str(tmp_path / "x.npy"), how], capture_output=True, text=True, check=True
    ).stdout.split()
    unit = 1 if sys.platform == "darwin" else 1024
    assert done[0] == "5000" and int(done[1]) * unit < 30e6
