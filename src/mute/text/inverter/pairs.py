"""What a corrector learns from: texts, and drafts of them that are not quite right."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mute.storage.container import read_arrays, write_arrays
from mute.text.language import Language, Token, begins, tokenise

__all__ = ["Pairs", "WordEdits", "join_pairs", "read_pairs", "write_pairs"]

# Words that an edit chooses from, and the power of their likeness that decides how often it takes each.
_NEAREST, _PREFERENCE = 8, 4.0
# Most words that change, and in which share of the texts they do so everywhere.
_MOST, _EVERYWHERE = 4, 0.33
# Shares of the words that are left out, and up to where some are put in.
_LEFT_OUT, _PUT_IN = 0.07, 0.14


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
    """Changes a few words of a text to what a corpus uses alike, so that finding back looks like a counterfactual.

    One to four words change: mostly into one of the 8 that are used most alike, the more alike the likelier (*he* into
    *she* or *who*, *Paris* into *London*); a few are left out, or get such a word before them. In every third text,
    each change is made wherever the word occurs.

    Parameters
    ----------
    language : Language

    Examples
    --------
    >>> language = Language.learn(["He is here.", "She is here.", "He was there.", "She was there."] * 5)
    >>> edits, rng = WordEdits(language), np.random.default_rng(0)
    >>> drafts = {edits("He is here.", rng) for _ in range(200)}
    >>> "She is here." in drafts, "He is here." in drafts
    (True, False)
    """

    def __init__(self, language: Language) -> None:
        self._language = language
        self._known = np.array([Token(word, 0).is_word for word in language.words], bool)
        self._alike: dict[int, tuple[NDArray[np.int64], NDArray[np.float64]]] = {}

    def __call__(self, text: str, rng: np.random.Generator) -> str:
        """A text with one word or more changed, unless the corpus has none of its words."""
        language = self._language
        tokens = tokenise(text)
        ids = language.ids([token.word for token in tokens])
        places = [at for at, word in enumerate(ids) if word < len(language) and self._known[word]]
        if not places:
            return text
        everywhere = rng.random() < _EVERYWHERE
        edits: dict[int, str] = {}
        for at in rng.choice(places, min(len(places), int(rng.integers(1, _MOST + 1))), replace=False):
            word, kind = self._draw(int(ids[at]), rng), rng.random()
            for other in [one for one in places if ids[one] == ids[at]] if everywhere else [int(at)]:
                new = language.written(word, tokens[other], begins(tokens, other))
                edits[other] = "" if kind < _LEFT_OUT else new if kind > _PUT_IN else f"{new} {tokens[other].text}"
        pieces, done = [], 0
        for at, new in sorted(edits.items()):
            pieces += [text[done : tokens[at].start], new]
            done = tokens[at].end
            if not new and text[done : done + 1] == " ":
                done += 1
        return "".join([*pieces, text[done:]])

    def _draw(self, word: int, rng: np.random.Generator) -> int:
        """A word used like this one."""
        if word not in self._alike:
            near = self._language.kin[: len(self._known)] @ self._language.kin[word]
            near = np.where(self._known, np.maximum(near, 1e-6), 0.0)
            near[word] = 0.0
            best = np.argsort(-near, kind="stable")[:_NEAREST]
            weights = np.cumsum(near[best].astype(np.float64) ** _PREFERENCE)
            self._alike[word] = best, weights
        best, weights = self._alike[word]
        if not weights[-1]:
            return word
        return int(best[min(np.searchsorted(weights, rng.random() * weights[-1], side="right"), len(best) - 1)])


def write_pairs(path: Path, pairs: Pairs) -> None:
    """Keep pairs in a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_arrays(path, {"rows": pairs.rows, "reached": pairs.reached}, {"drafts": json.dumps(pairs.drafts)})


def read_pairs(path: Path) -> Pairs | None:
    """The pairs of a file; None where it is absent or damaged."""
    try:
        metadata, arrays = read_arrays(path, "a file of pairs")
        pairs = Pairs(arrays["rows"], list(map(str, json.loads(metadata["drafts"]))), arrays["reached"])
    except (ValueError, KeyError, TypeError):
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
