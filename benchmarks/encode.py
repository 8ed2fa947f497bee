"""How fast texts become embeddings, against sentence-transformers where that is installed, and how far the two differ.

``python benchmarks/encode.py [minilm|mpnet] [texts]``, after ``mute data prepare bug`` (and ``mpnet``). Times are wall
times, the best of three rounds that take turns.
"""

from __future__ import annotations

import os
import sys
import time

import numpy as np
from rich.console import Console
from rich.table import Table

from mute.datasets import load, prepared_folder
from mute.rows.threads import resolve_threads
from mute.text import load_encoder

ROUNDS = 3


def main(name: str, n: int) -> None:
    texts = load("bug").names[:n].tolist()
    encoder = load_encoder(name)
    cores = sorted({1, resolve_threads(None)})
    ways = {f"mute, {k} thread(s)": (k, encoder) for k in cores}
    try:
        import torch
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(str(prepared_folder(name)), device="cpu")
        ways |= {f"sentence-transformers, {k} thread(s)": (k, model.encode) for k in cores}
    except ImportError:
        torch = None
    best: dict[str, float] = {}
    found = {}
    for _ in range(ROUNDS):
        for way, (threads, encode) in ways.items():
            os.environ["OMP_NUM_THREADS"] = str(threads)
            if torch is not None:
                torch.set_num_threads(threads)
            start = time.perf_counter()
            found[way] = encode(texts)
            best[way] = min(best.get(way, np.inf), time.perf_counter() - start)
    table = Table("", "texts a second", "difference", title=f"{name}, {n} sentences of BUG")
    reference = found[list(ways)[-1]]
    for way, seconds in best.items():
        table.add_row(way, f"{n / seconds:.0f}", f"{np.abs(found[way] - reference).max():.1e}")
    Console().print(table)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "minilm", int(sys.argv[2]) if len(sys.argv) > 2 else 1000)
