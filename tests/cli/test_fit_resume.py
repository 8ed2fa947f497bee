"""`mute fit` that is interrupted: nothing half-written, and with --resume it goes on; on a cluster the same model."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals")

N, D, LAYERS = 60_000, 16, 20


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    z = rng.integers(0, 2, N)
    np.save(folder / "x.npy", (rng.gamma(2, size=(N, D)) + 0.3 * z[:, None]).astype(np.float32))
    np.save(folder / "z.npy", z)
    return folder


def command(data: Path, out: Path, *more: Any, layers: int = LAYERS) -> list[str]:
    code = "from mute.cli.main import run; run()"
    words = ["fit", data / "x.npy", "--concept", data / "z.npy", "-o", out, "--iterations", layers, *more]
    return [sys.executable, "-c", code, *map(str, words)]


def arrays_of(path: Path) -> dict[str, np.ndarray]:
    with safe_open(path, framework="np") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (it is no dict)


def assert_same_arrays(a: Path, b: Path) -> None:
    ours, theirs = arrays_of(a), arrays_of(b)
    assert sorted(ours) == sorted(theirs)
    for name, array in ours.items():
        np.testing.assert_array_equal(array, theirs[name], err_msg=name)


def interrupted(words: list[str], kind: signal.Signals, when: Callable[[], bool]) -> tuple[int, str]:
    """Run, signal once `when` says so, and give exit code and standard error."""
    process = subprocess.Popen(
        words,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"NO_COLOR": "1"},
        start_new_session=True,
    )
    try:
        end = time.monotonic() + 120
        while not when():
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
            assert time.monotonic() < end
            time.sleep(0.005)
        os.killpg(process.pid, kind)  # as a terminal does: to the process and all that it has started
        _, err = process.communicate(timeout=120)
    finally:
        process.kill()
    return process.returncode, err


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "m.safetensors"
    subprocess.run(command(data, out, "--router", "logistic", "-q"), check=True, timeout=300)
    return out


# Past the layers of the two classes, which are made together and begun again together.
@pytest.mark.parametrize(
    ("layers", "kind"), [(3, signal.SIGINT), pytest.param(7, signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_a_fit_goes_on(layers: int, kind: signal.Signals, data: Path, whole: Path, tmp_path: Path) -> None:
    out, kept, scratch = tmp_path / "out" / "m.safetensors", tmp_path / "kept", tmp_path / "scratch"
    out.parent.mkdir()
    scratch.mkdir()
    words = command(data, out, "--router", "logistic", "--resume", kept, "--scratch", scratch, "-q")
    code, err = interrupted(words, kind, lambda: len(list(kept.glob("layer-*"))) >= layers)
    assert code == 130
    assert err == f"mute: interrupted; finished layers are kept in {kept}; run the same command to continue\n"
    assert list(out.parent.iterdir()) == [] and list(scratch.iterdir()) == []
    finished = sorted(kept.iterdir())
    assert layers <= len(finished) - 1 < LAYERS
    assert not [p for p in finished if p.suffix not in (".safetensors", ".json")]

    before = {p: p.stat().st_mtime_ns for p in finished}
    code, err = interrupted(words, kind, lambda: len(list(kept.glob("layer-*"))) >= len(finished) + 1)
    assert code == 130
    assert {p: p.stat().st_mtime_ns for p in finished} == before, "finished layers were fitted anew"
    subprocess.run(words, check=True, timeout=300)
    assert_same_arrays(out, whole)
    assert not kept.exists() and list(scratch.iterdir()) == [] and list(out.parent.iterdir()) == [out]


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("wait", "router"), [(0.0, "logistic"), (0.05, "mlp"), (0.5, "logistic")])
def test_nothing_is_left(wait: float, router: str, kind: signal.Signals, data: Path, tmp_path: Path) -> None:
    out, scratch = tmp_path / "out" / "m.safetensors", tmp_path / "scratch"
    out.parent.mkdir()
    scratch.mkdir()
    log = tmp_path / "log"
    words = command(data, out, "--router", router, "--scratch", scratch)
    # Standard output tells that the work has begun: reading comes next, then the router, then layers.
    with log.open("w") as stdout:
        process = subprocess.Popen(
            words, stdout=stdout, stderr=subprocess.PIPE, text=True, env=os.environ | {"NO_COLOR": "1"}
        )
        try:
            while "fitting on" not in log.read_text():
                assert process.poll() is None, process.stderr.read() if process.stderr else ""
                time.sleep(0.005)
            time.sleep(wait)
            process.send_signal(kind)
            _, err = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 130, err
    assert err.splitlines()[-1] == "mute: interrupted; nothing was written"
    assert "Traceback" not in err
    assert list(out.parent.iterdir()) == [] and list(scratch.iterdir()) == []


def test_a_cluster_of_its_own_gives_the_same_model(data: Path, tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    there, here = tmp_path / "there.safetensors", tmp_path / "here.safetensors"
    for out, more in ((there, ["--dask", "local"]), (here, [])):
        words = command(data, out, "--router", "logistic", *more, layers=3)
        done = subprocess.run(words, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        assert done.stderr == "", done.stderr
    assert_same_arrays(there, here)


def test_ctrl_c_reaches_the_workers_too(data: Path, tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    out, kept = tmp_path / "m.safetensors", tmp_path / "kept"
    words = command(data, out, "--router", "logistic", "--dask", "local", "--resume", kept, layers=300)
    code, err = interrupted(words, signal.SIGINT, lambda: len(list(kept.glob("layer-*"))) >= 2)
    assert code == 130 and not out.exists()
    assert err == f"mute: interrupted; finished layers are kept in {kept}; run the same command to continue\n"


def test_an_address_that_accepts_and_is_silent(data: Path, tmp_path: Path) -> None:
    """In a process of its own, since what a cluster logs comes when the process ends."""
    pytest.importorskip("distributed")
    out = tmp_path / "m.safetensors"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        words = command(data, out, "--dask", address, "--timeout", 2, "-q")
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, out.exists()) == (1, "", False)
    assert done.stderr.startswith(f"mute: no dask scheduler answers at '{address}' within 2 s;")
    assert done.stderr.count("\n") == 1


def test_a_scheduler_that_does_not_answer(data: Path, tmp_path: Path, cli: Any) -> None:
    pytest.importorskip("distributed")
    out = tmp_path / "m.safetensors"
    for address in ("127.0.0.1:1", "no colon"):
        words = ("fit", data / "x.npy", "--concept", data / "z.npy", "-o", out, "--dask", address, "-q")
        code, _, err = cli(*words, "--timeout", 0.5)
        assert code == 1 and not out.exists()
        assert err.startswith(f"mute: no dask scheduler answers at '{address}'") and err.count("\n") == 1


def test_methods_that_need_all_rows_are_refused_on_a_cluster(
    data: Path, tmp_path: Path, cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed")
    from contextlib import nullcontext

    monkeypatch.setattr("mute.rows.dask.cluster", lambda *_: nullcontext())
    words = (
        "fit",
        data / "x.npy",
        "--concept",
        data / "z.npy",
        "-o",
        tmp_path / "m.safetensors",
        "--method",
        "kram",
        "-q",
    )
    code, _, err = cli(*words, "--dask", "local")
    assert code == 1 and "KRaM needs all rows in memory" in err
