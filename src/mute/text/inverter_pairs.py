"""What a corrector learns from: texts, and drafts of them that are not quite right."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mute.files import write_atomically

__all__ = ["Pairs", "WordEdits", "join_pairs", "read_pairs", "write_pairs"]

_PIECE = re.compile(r"\w+|\s+|[^\w\s]")
_WORD = re.compile(r"\w+")

# The share of a text's words that an edit touches, beside the one that it always does.
_SHARE = 0.1


@dataclass(frozen=True)
class Pairs:
    """Drafts of texts.

    Attributes
    ----------
    rows : ndarray of shape (n,)
        The text that each draft should become.
    drafts : list of n str
    reached : ndarray of shape (n, D)
        The embeddings of the drafts.
    """

    rows: NDArray[np.int64]
    drafts: list[str]
    reached: NDArray[np.float32]


class WordEdits:
    """Takes words out of texts, puts in others of the corpus, or puts one in another's place, at random.

    Half of the words put in are drawn as often as the corpus uses them, so that the small ones get their turn (*his*
    for *her*); half are drawn evenly.

    Examples
    --------
    >>> WordEdits(["she left", "he stayed"])("she left early.", np.random.default_rng(3))
    'left early.'
    """

    def __init__(self, texts: Sequence[str]) -> None:
        counts = Counter(word for text in texts for word in _WORD.findall(text))
        self._words = sorted(counts)
        often = np.array([counts[word] for word in self._words], np.float64)
        self._upto = np.cumsum(0.5 * often / often.sum() + 0.5 / len(often)) if self._words else np.empty(0)

    def __call__(self, text: str, rng: np.random.Generator) -> str:
        """A text with one word or more changed; the blanks around a word go and come with it."""
        pieces = _PIECE.findall(text)
        places = [at for at, piece in enumerate(pieces) if _WORD.match(piece)]
        if not places:
            return text
        n_edits = min(len(places), 1 + int(rng.binomial(len(places), _SHARE)))
        for at in rng.choice(places, n_edits, replace=False):
            kind = rng.integers(4)
            if kind == 0:
                pieces[at] = ""
                if at + 1 < len(pieces) and pieces[at + 1].isspace():
                    pieces[at + 1] = ""
            elif kind == 1:
                pieces[at] = f"{self._draw(rng)} {pieces[at]}"
            else:
                pieces[at] = self._draw(rng)
        return "".join(pieces)

    def _draw(self, rng: np.random.Generator) -> str:
        at = int(np.searchsorted(self._upto, rng.random() * self._upto[-1], side="right"))
        return self._words[min(at, len(self._words) - 1)]


def write_pairs(path: Path, pairs: Pairs) -> None:
    """Keep pairs in a file."""
    from safetensors.numpy import save

    content = save({"rows": pairs.rows, "reached": pairs.reached}, {"drafts": json.dumps(pairs.drafts)})
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(path) as file:
        file.write(content)


def read_pairs(path: Path) -> Pairs | None:
    """The pairs of a file; None where it is absent or damaged."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            drafts = json.loads((file.metadata() or {})["drafts"])
            pairs = Pairs(file.get_tensor("rows"), list(map(str, drafts)), file.get_tensor("reached"))
    except (OSError, SafetensorError, ValueError, KeyError, TypeError):
        return None
    whole = len(pairs.rows) == len(pairs.drafts) == len(pairs.reached) and bool(np.isfinite(pairs.reached).all())
    return pairs if whole else None


def join_pairs(parts: Sequence[Pairs]) -> Pairs:
    """All pairs as one."""
    return Pairs(
        np.concatenate([part.rows for part in parts]),
        [draft for part in parts for draft in part.drafts],
        np.concatenate([part.reached for part in parts]),
    )
