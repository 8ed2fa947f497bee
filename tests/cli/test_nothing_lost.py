"""Whatever happens to a command: the old file or the whole new one, nothing half-written, and one line that says why.

Each command runs in a child of this process, which has all libraries loaded. A hook counts the calls of functions of
this package and lets something happen at one of them, so that a moment is the same in each run.
"""

import csv
import inspect
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import mute
from mute.tables import open_matrix
from mute.text import TextCounterfactual
from tiny_encoders import write_encoder

pytest.importorskip("onnxruntime")
pytest.importorskip("tokenizers")
pytest.importorskip("torch")

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork") or sys.platform == "darwin", reason="runs commands in forks"),
    pytest.mark.filterwarnings("ignore:This process.*multi-threaded"),
]

PACKAGE = os.path.dirname(mute.__file__)
ROWS = ("x.npy", "--concept", "z.npy")
PANEL = ("--adversaries", "logistic", "--most-rows", "200")
FAST = ("--method", "mean-difference", "--set", "router=logistic", "--decoder", "retrieval")

# The words of each command without its output, and the name of the output.
COMMANDS = {
    "fit": (["fit", *ROWS, "--iterations", "2", "--router", "logistic", "--threads", "1"], "m.safetensors"),
    "erase": (["erase", "model.safetensors", "x.npy", "--threads", "1"], "q.npy"),
    "counterfactual": (["counterfactual", "model.safetensors", "x.npy", "--to", "dog", "--threads", "1"], "q.csv"),
    "audit": (["audit", "model.safetensors", *ROWS, *PANEL], "audit.json"),
    "compare": (["compare", *ROWS, *PANEL, "--methods", "leace"], "compare.json"),
    "frontier": (
        ["frontier", *ROWS, "--methods", "leace", "--families", "noise", "--shares", "0.5", "--max-leak", "0.1"],
        "frontier.json",
    ),
    "distill": (["distill", "model.safetensors", "x.npy", "--kind", "low-rank"], "fast.safetensors"),
    "export": (["export", "model.safetensors"], "model.onnx"),
    "data encode": (["data", "encode", "texts.csv:text", "--encoder", "encoder"], "e.npy"),
    "text fit": (
        ["text", "fit", "texts.csv", "--text", "text", "--concept", "who", "--encoder", "encoder", *FAST],
        "folder",
    ),
}
READ_ROWS = ["fit", "erase", "counterfactual", "audit", "compare", "frontier", "distill"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Inputs of all commands, and for each command the output of an earlier run, by its name in `before`."""
    folder = tmp_path_factory.mktemp("inputs")
    rng = np.random.default_rng(0)
    z = np.repeat(["cat", "dog"], 200)
    x = (rng.normal(size=(400, 4)) + 2.0 * (z == "dog")[:, None]).astype(np.float32)
    np.save(folder / "x.npy", x)
    np.save(folder / "z.npy", z)
    mute.MUtE(2, router="logistic", random_state=0).fit(x[::-1] + 0.1, z[::-1]).save(folder / "model.safetensors")
    write_encoder(folder / "encoder", "bert")
    with open(folder / "texts.csv", "w", newline="") as file:
        words = rng.choice(["nurse", "doctor", "home"], 40)
        rows = [(f"{who} {word}", who) for who, word in zip(["he", "she"] * 20, words, strict=True)]
        csv.writer(file).writerows([("text", "who"), *rows])
    (folder / "before").mkdir()
    return folder


@pytest.fixture
def work(place: Path, tmp_path: Path, cli, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Give a folder with the output of an earlier run of a command in it; this process has loaded all it needs then."""
    monkeypatch.chdir(place)

    def prepare(name: str) -> Path:
        words, output = COMMANDS[name]
        first = place / "before" / output
        if not first.exists():
            code, _, err = cli(*words, "-o", first)
            assert code in (0, 3, 4, 5), err
            shutil.rmtree(first.with_suffix(".parts"), ignore_errors=True)
        (tmp_path / "out").mkdir()
        copy = shutil.copytree if first.is_dir() else shutil.copy
        copy(first, tmp_path / "out" / output)
        return tmp_path / "out" / output

    return prepare


def content(path: Path) -> object:
    return {p.name: p.read_bytes() for p in path.iterdir()} if path.is_dir() else path.read_bytes()


def is_whole(path: Path) -> bool:
    if path.is_dir():
        TextCounterfactual.load(path)
    elif path.suffix == ".safetensors":
        mute.load(path)
    elif path.suffix in (".npy", ".csv"):
        open_matrix(path).to_numpy()
    else:
        assert path.stat().st_size > 100
    return True


class Hook:
    """Counts the calls of this package's functions, and calls `happen` at one of them: by number, or by name."""

    def __init__(self, at: int | str | None, happen: Callable[[], None]) -> None:
        self.at, self.happen, self.count = at, happen, 0

    def __call__(self, frame, event, arg) -> None:
        # Python 3.11 loses an exception that a hook raises on the way into a generator.
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and not code.co_flags & inspect.CO_GENERATOR:
            self.count += 1
            if self.at in (self.count, frame.f_code.co_name):
                sys.setprofile(None)
                self.happen()


def run(words: list[str], hook: Hook, limit: int | None = None) -> tuple[int, str, int]:
    """Run a command in a child; give the exit code (negative for a signal), standard error, and the calls counted."""
    from mute.cli import main

    err_end, err_begin = os.pipe()
    count_end, count_begin = os.pipe()
    child = os.fork()
    if child == 0:
        code = 99
        try:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(err_begin, 2)
            sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
            sys.argv = ["mute", *words]
            os.environ["COLUMNS"] = "200"
            if limit is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            sys.setprofile(hook)
            main.run()
        except SystemExit as stop:
            code = int(stop.code or 0)
        except BaseException as error:
            os.write(2, f"Traceback: {error!r}\n".encode())
        finally:
            sys.setprofile(None)
            sys.stderr.flush()
            os.write(count_begin, str(hook.count).encode())
            os._exit(code)
    os.close(err_begin)
    os.close(count_begin)
    end = time.monotonic() + 60
    while (done := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail(f"{words} does not end")
        time.sleep(0.005)
    with open(err_end) as err, open(count_end) as count:
        return os.waitstatus_to_exitcode(done[1]), err.read(), int(count.read() or 0)


def assert_nothing_lost(path: Path, before: object) -> None:
    """The old output or a whole new one; beside it only the finished parts from which the next run continues."""
    assert {p.name for p in path.parent.iterdir()} - {path.name} <= {f"{path.name}.parts", f"{path.stem}.parts"}
    assert not list(path.parent.rglob(".*")), "no temporary file"
    assert content(path) == before or is_whole(path)


def signalled(name: str, path: Path, shares: list[float | str]) -> None:
    words, before = [*COMMANDS[name][0], "-o", str(path)], content(path)
    code, err, calls = run(words, Hook(None, lambda: None))
    assert code in (0, 3, 4, 5), err
    for share in shares:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            # Each run begins anew, so that the moment comes: finished parts would shorten it.
            for parts in path.parent.glob("*.parts"):
                shutil.rmtree(parts)
            at = share if isinstance(share, str) else max(int(share * calls), 1)
            code, err, _ = run(words, Hook(at, lambda number=number: os.kill(os.getpid(), number)))
            if number == signal.SIGKILL:
                assert (code, err) == (-number, "")
                # What is written as a folder may leave a hidden one, which the next run removes.
                if path.is_dir() and list(path.parent.glob(".*")):
                    assert run(words, Hook(None, lambda: None))[0] == 0
            else:
                assert code == 130 and err.startswith("mute: interrupted") and err.count("\n") == 1, (share, err)
            assert_nothing_lost(path, before)


@pytest.mark.parametrize("name", COMMANDS)
def test_signals(work, name: str) -> None:
    """In the middle, and when the file is whole but has no name yet."""
    signalled(name, work(name), [0.5, "check_target", "_name"])


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_signals_at_ten_moments(work, name: str) -> None:
    signalled(name, work(name), [(at + 0.5) / 10 for at in range(10)])


@pytest.mark.parametrize("name", COMMANDS)
def test_full_disk(work, name: str) -> None:
    path = work(name)
    before = content(path)
    code, err, _ = run([*COMMANDS[name][0], "-o", str(path)], Hook(None, lambda: None), limit=64)
    assert code == 1 and err.startswith("mute: cannot write") and err.count("\n") == 1, err
    assert content(path) == before
    assert_nothing_lost(path, before)


@pytest.mark.parametrize("options", ["ro", "size=4k"])
def test_file_systems_that_are_full_or_read_only(work, tmp_path: Path, options: str) -> None:
    work("erase")
    disk = tmp_path / "disk"
    disk.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", options, "none", str(disk)]
    if os.getuid() != 0 or shutil.which("mount") is None or subprocess.run(words, capture_output=True).returncode:
        pytest.skip("only root may mount")
    try:
        code, err, _ = run([*COMMANDS["erase"][0], "-o", str(disk / "q.npy")], Hook(None, lambda: None))
        assert not list(disk.iterdir())
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    reason = "is not writable" if options == "ro" else "No space left on device"
    assert code == 1 and "mute: cannot write" in err and reason in err and err.count("\n") == 1


@pytest.mark.parametrize("name", ["erase", "text fit"])
def test_two_writers_of_one_output(work, name: str) -> None:
    """While one writes, another starts and ends: the one that ends last wins, and nothing else remains."""
    path = work(name)
    words = [*COMMANDS[name][0], "-o", str(path)]

    def other() -> None:
        child = os.fork()
        if child == 0:
            os._exit(run(words, Hook(None, lambda: None))[0])
        assert os.waitpid(child, 0)[1] == 0

    code, err, _ = run(words, Hook("write_arrays" if name == "text fit" else "_opened_beside", other))
    assert (code, err) == (0, "")
    assert_nothing_lost(path, None)


@pytest.mark.parametrize("name", READ_ROWS)
def test_an_input_that_changes_while_it_is_read(work, place: Path, name: str) -> None:
    path = work(name)
    before, rows = content(path), place / "x.npy"
    old = rows.stat().st_mtime_ns - 10**9
    os.utime(rows, ns=(old, old))

    def change() -> None:
        os.utime(rows)

    code, err, _ = run([*COMMANDS[name][0], "-o", str(path)], Hook("_check_layout", change))
    assert code == 1 and "x.npy has changed while it was read" in err and err.count("\n") == 1, err
    assert content(path) == before
    assert_nothing_lost(path, before)


@pytest.mark.parametrize(
    "words",
    [
        ["data", "encode", "texts.csv:text", "--encoder", "encoder", "-o", "thesis.npy"],
        ["text", "fit", "texts.csv", "--text", "text", "--concept", "who", "--encoder", "encoder", "-o", "mine"],
        ["text", "evaluate", "folder", "p.csv", "--source", "a", "--reference", "b", "--to", "he", "-o", "mine"],
        ["text", "counterfactual", "folder", "he", "--to", "she", "--html", "page.html"],
        ["inspect", "model.safetensors", "--plot", "mine/thesis.png"],
        ["demo", "-o", "mine"],
        ["paper", "-o", "mine"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_what_is_there_already_is_kept(cli, place: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    monkeypatch.chdir(place)
    mine = [place / "thesis.npy", place / "page.html", place / "mine" / "thesis.png"]
    (place / "mine").mkdir(exist_ok=True)
    for file in mine:
        file.write_bytes(b"my thesis")
    code, _, err = cli(*words)
    assert code == 1 and err.count("\n") == 1 and any(words in err for words in ("holds", "exists and is not")), err
    assert all(file.read_bytes() == b"my thesis" for file in mine)
    assert sorted(os.listdir(place / "mine")) == ["thesis.png"]
