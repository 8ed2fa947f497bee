"""A full audit of 20,000 x 300 rows: its time, step by step, and its memory.

python benchmarks/audit.py
python benchmarks/audit.py --rows 5000 --columns 100
"""

import argparse
import resource
import time
from itertools import pairwise

import numpy as np
from made_up import Mixture
from rich.console import Console
from rich.table import Table

from mute import MUtE, audit

TARGET_SECONDS = 180


def main() -> None:
    parser = argparse.ArgumentParser(description="Time and memory of a full audit.")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--columns", type=int, default=300)
    parser.add_argument("--html", help="Also write the report here.")
    options = parser.parse_args()
    n = options.rows
    X, z = Mixture(options.columns).draw(2 * n)
    y = (X[:, 5] + 0.5 * z + np.random.default_rng(0).normal(size=2 * n) > 0).astype(int) + (X[:, 6] > 1)
    eraser = MUtE(20, random_state=0).fit(X[:n], z[:n])
    before = peak()
    times: list[tuple[str, float]] = []
    report = audit(
        eraser, X[n:], z[n:], task=y[n:], fit_rows=(X[:n], z[:n]),
        progress=lambda name, share: times.append((name, time.perf_counter())),
    )  # fmt: skip
    table = Table("step", "seconds", title=f"audit of {n:,} x {options.columns} rows")
    for (name, start), (_, end) in pairwise(times):
        table.add_row(name, f"{end - start:.1f}")
    seconds = report.about["seconds"]
    table.add_section()
    table.add_row("all", f"{seconds:.1f} (target {TARGET_SECONDS}: {'met' if seconds <= TARGET_SECONDS else 'missed'})")
    table.add_row("memory above the fit's", f"{(peak() - before) / 1e6:,.0f} MB; input {X[n:].nbytes / 1e6:,.0f} MB")
    Console().print(table)
    print(report)
    if options.html:
        report.to_html(options.html)


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
