"""How long counterfactual texts take, and how much of that is the encoder's.

``python benchmarks/counterfactual_text.py [rows of the corpus] [texts]``, after ``mute data prepare minilm bug-texts``.
Gender on sentences of BUG that the fit has not seen; edit search. Wall times on all cores.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from mute.datasets.prepared import load_texts
from mute.rows.threads import resolve_threads
from mute.text import Encoder, TextCounterfactual, load_encoder


class Counted(Encoder):
    """An encoder that counts its texts and its seconds."""

    def __init__(self, encoder: Encoder) -> None:
        self._inner, self.name, self.dimension = encoder, encoder.name, encoder.dimension
        self.texts, self.seconds = 0, 0.0

    @property
    def fingerprint(self) -> str | None:
        return self._inner.fingerprint

    def _encode(self, texts: list[str], batch_size: int, progress: Any) -> Any:
        start = time.perf_counter()
        rows = self._inner(texts, batch_size, progress=progress)
        self.texts, self.seconds = self.texts + len(texts), self.seconds + time.perf_counter() - start
        return rows


def chosen(bug: dict[str, list[str]], split: str, n: int) -> tuple[list[str], list[str]]:
    rows = [i for i, s in enumerate(bug["split"]) if s == split and len(bug["text"][i].split()) <= 40]
    some = np.random.default_rng(0).choice(rows, n, replace=False)
    return [bug["text"][i] for i in some], [bug["gender"][i] for i in some]


def main(rows: int, n: int) -> None:
    bug, encoder = load_texts("bug-texts"), Counted(load_encoder("minilm"))
    table = Table(title=f"MiniLM, {rows:,} texts to fit on, {resolve_threads(None)} cores")
    for head in ("", "seconds", "texts encoded", "share of the encoder"):
        table.add_column(head, justify="left" if not head else "right")

    def timed(what: str, work: Any, times: int = 1) -> None:
        encoder.texts, encoder.seconds = 0, 0.0
        start = time.perf_counter()
        work()
        seconds = time.perf_counter() - start
        share = f"{encoder.seconds / seconds:.0%}"
        table.add_row(what, f"{seconds / times:.2f}", f"{encoder.texts / times:,.0f}", share)

    model = TextCounterfactual(encoder)
    timed("fit, encoding included", lambda: model.fit(*chosen(bug, "fit", rows)))
    texts, genders = chosen(bug, "test", n)
    goals = ["male" if gender == "female" else "female" for gender in genders]

    def move(some: Sequence[int]) -> None:
        model.counterfactual([texts[i] for i in some], [goals[i] for i in some], [genders[i] for i in some])

    move(range(2))
    timed("one sentence, warm (mean of 20)", lambda: [move([i]) for i in range(20)], 20)
    timed(f"{n} sentences", lambda: move(range(n)))
    Console().print(table)


if __name__ == "__main__":
    main(*(int(a) for a in (sys.argv[1:] + ["20000", "628"][len(sys.argv) - 1 :])))
