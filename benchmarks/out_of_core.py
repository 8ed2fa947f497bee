"""Fits past memory and past one process, against the fit in memory: time, peak memory, bytes over the wire.

    python benchmarks/out_of_core.py                             500,000 x 128, a few minutes, 256 MB on disk
    python benchmarks/out_of_core.py --rows 50000 --layers 4     a small one
    python benchmarks/out_of_core.py --rows 2000000 --kinds memory file limited

Each fit runs in a process of its own on the same made-up float32 rows, without router and diagnostics, which are the
same everywhere; they take turns, and the best of `--rounds` counts. "File" reads the rows block by block and keeps the
working copy in a temporary file; "limited" does so in a process that may take, beyond what a small fit has taken, a
quarter of the bytes of the rows (of addresses: mapped files count; Linux). Dask runs on worker processes of this
machine; its time does not include starting them and bringing the rows there, and is compared with the fit in memory on
as many threads as they have together. Bytes over the wire are those that the loopback device carried (Linux; nothing
else should talk to itself meanwhile), per layer: the difference of two fits, one with twice as many layers.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from large_fit import write
from rich.console import Console
from rich.table import Table

FILE_TARGET, DASK_TARGET = 2.0, 1.6
KINDS = "memory", "file", "limited", "dask"


def loopback() -> int:
    """Bytes that this machine has sent to itself; 0 where the system does not say."""
    try:
        lines = Path("/proc/net/dev").read_text().splitlines()
        return next(int(line.split()[9]) for line in lines if line.strip().startswith("lo:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return 0


def fit(rows: Any, z: Any, layers: int, **settings: Any) -> tuple[Any, float]:
    from mute import MUtE

    start = time.perf_counter()
    model = MUtE(layers, router=None, diagnostics=False, random_state=0, **settings).fit(rows, z)
    return model, time.perf_counter() - start


def run(folder: Path, kind: str, layers: int) -> dict[str, Any]:
    """Runs in a process of its own."""
    import mute

    threads = int(kind.split()[-1])

    warnings.simplefilter("ignore")
    z = np.load(folder / "z.npy")
    small = np.load(folder / "x.npy", mmap_mode="r")[:4096].copy()
    fit(small, z[:4096], 2)  # what is compiled once
    out: dict[str, Any] = {}
    if kind.startswith("memory"):
        model, seconds = fit(np.load(folder / "x.npy"), z, layers, n_threads=threads)
    elif kind.startswith(("file", "limited")):
        if kind.startswith("limited"):
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            spare = (folder / "x.npy").stat().st_size // 4
            resource.setrlimit(resource.RLIMIT_AS, (used + spare,) * 2)
        matrix = mute.open_matrix(folder / "x.npy")
        model, seconds = fit(matrix, z, layers, n_threads=threads, scratch=folder)
    else:
        import dask.array as da
        from distributed import Client, LocalCluster, wait

        workers = int(kind.split()[1])
        with (
            LocalCluster(n_workers=workers, threads_per_worker=threads, dashboard_address=None) as cluster,
            Client(cluster),
        ):
            x = np.load(folder / "x.npy", mmap_mode="r")
            fit(da.from_array(small, chunks=(2048, -1)), z[:4096], 2)
            rows = da.from_array(x, chunks=(len(x) // 8, -1)).persist()
            wait(rows)
            model, seconds = fit(rows, z, layers)
            sent = []
            for t in (layers, 2 * layers):
                before = loopback()
                fit(rows, z, t)
                sent.append(loopback() - before)
            out["bytes"] = (sent[1] - sent[0]) / layers
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    from mute.estimators.base import digest_of_rows

    return out | {"seconds": seconds, "peak": peak, "digest": digest_of_rows(model.flow_.values[-1].reshape(1, -1))}


def main() -> None:
    parser = argparse.ArgumentParser(description="Fits past memory and past one process, against the fit in memory.")
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--columns", type=int, default=128)
    parser.add_argument("--layers", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=["memory", "file", "dask"])
    parser.add_argument("--child", nargs=2, metavar=("FOLDER", "KIND"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    from mute.rows.threads import resolve_threads

    threads = resolve_threads(None)
    if options.child:
        print(json.dumps(run(Path(options.child[0]), options.child[1], options.layers)))
        return
    # Where it is, of how many workers, of how many threads.
    kinds = [f"{place} {threads}" for place in KINDS[:3] if place in ("memory", *options.kinds)]
    if "dask" in options.kinds:
        kinds += [f"dask 1 {threads}"] + ([f"dask {threads} 1", "memory 1", "dask 1 1"] if threads > 1 else [])
    best: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="mute-out-of-core-") as name:
        write(Path(name), options.rows, options.columns)
        for _ in range(options.rounds):
            for kind in kinds:
                command = [sys.executable, __file__, "--layers", str(options.layers), "--child", name, kind]
                # Threads may reserve addresses for heaps of their own, by chance: with a limit they share one.
                settings = os.environ | ({"MALLOC_ARENA_MAX": "1"} if kind.startswith("limited") else {})
                answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=settings).stdout
                found = json.loads(answer.strip().splitlines()[-1])
                if kind not in best or found["seconds"] < best[kind]["seconds"]:
                    best[kind] = found
    Console().print(report(best, options))


def report(best: dict[str, dict[str, Any]], options: argparse.Namespace) -> Table:
    size = f"{options.rows:,} x {options.columns}, {options.layers} layers"
    table = Table("", "fit", "over memory", "target", "peak of the process", "sent per layer", "same bits", title=size)
    for column in table.columns[1:]:
        column.justify = "right"
    for kind, found in best.items():
        place, *counts = kind.split()
        threads = int(np.prod([int(c) for c in counts]))
        whole = best[f"memory {threads}"]
        ratio = found["seconds"] / whole["seconds"]
        targets = {"file": FILE_TARGET, "limited": FILE_TARGET, "dask": DASK_TARGET if counts[0] == "1" else None}
        target = targets.get(place)
        verdict = "" if target is None else f"{target} " + ("[green]met[/]" if ratio <= target else "[red]missed[/]")
        words = ("worker", "thread") if place == "dask" else ("thread",)
        name = " of ".join(f"{n} {word}" + "s" * (n != "1") for n, word in zip(counts, words, strict=True))
        table.add_row(
            f"{place}, {name}",
            f"{found['seconds']:.2f} s",
            f"{ratio:.2f}",
            verdict,
            f"{found['peak'] / 1e6:,.0f} MB",
            f"{found['bytes'] / 1e6:.2f} MB" if "bytes" in found else "",
            "yes" if found["digest"] == whole["digest"] else "[red]no[/]",
        )
    return table


if __name__ == "__main__":
    main()
