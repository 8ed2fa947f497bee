"""Edits of a text, word by word, and which of them are worth encoding.

Gains are estimated from the embeddings of single words, costs from the language.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mute.text.decoders.language import Language, Token, begins, tokenise

__all__ = ["Costs", "Edit", "PricedEdits", "Proposer", "apply_edits"]

# Words to put into a text: those whose embeddings lie furthest in the direction of the aim, and those most like each of
# its own words.
_PROMISING, _ALIKE = 200, 16

_Vector = NDArray[np.float32]
_Table = tuple[NDArray[np.float64], NDArray[np.float64]]


class Edit(NamedTuple):
    """Put a word (None: nothing) in place of tokens start to stop; an empty range stands before the token at start."""

    start: int
    stop: int
    word: int | None

    def meets(self, other: Edit) -> bool:
        return self.start == other.start or (self.start < other.stop and other.start < self.stop)


class PricedEdits(NamedTuple):
    """Edits made together, and what they cost."""

    edits: tuple[Edit, ...]
    cost: float


def apply_edits(text: str, edits: Sequence[Edit], language: Language) -> str:
    """Edit a text; blanks and all other words stay as they are."""
    tokens = tokenise(text)
    for edit in sorted(edits, reverse=True):
        if edit.word is None:
            text = _without(text, tokens, edit.start)
            continue
        token, first = tokens[min(edit.start, len(tokens) - 1)], begins(tokens, edit.start)
        new, old = language.forms[edit.word], token.text
        if edit.stop > edit.start:
            new = language.written(edit.word, token, first)
        elif edit.start == len(tokens):
            new = f"{old} {new}"
        elif first and old[:1].isupper():
            new = f"{new[:1].upper()}{new[1:]} {language.usual(token)}"
        else:
            new = f"{new} {old}"
        text = text[: token.start] + new + text[token.end :]
    return text


def _without(text: str, tokens: Sequence[Token], at: int) -> str:
    """A text without a token and one blank beside it; what then begins the sentence takes over its capital."""
    before, after = text[: tokens[at].start], text[tokens[at].end :]
    if not before or before[-1].isspace():
        after = after[1:] if after[:1].isspace() else after
    if begins(tokens, at) and tokens[at].text[:1].isupper():
        after = after[:1].upper() + after[1:]
    return before + after


@dataclass(frozen=True)
class Costs:
    """What edits cost, in cosine; see `EditSearch`."""

    change: float
    kinship: float
    length: float
    fluency: float
    slack: float


class Proposer:
    """Proposes edits of texts; `vectors` of shape (V, D) are the embeddings of the single words of the language."""

    def __init__(self, language: Language, vectors: NDArray[np.float32], costs: Costs) -> None:
        self.language, self.vectors, self.costs = language, vectors, costs
        self.usable = np.array([word.isalpha() for word in language.words])

    def propose(
        self, text: str, embedding: _Vector, aim: _Vector, unknown: dict[str, _Vector], n: int
    ) -> list[PricedEdits]:
        """The n changes of a text that promise most, from its embedding towards the aim, both of length 1.

        `unknown` has the embeddings of those words of the text that the language does not have.
        """
        if not tokenise(text):
            return []
        view = _View(self, text, embedding, aim, unknown)
        found: list[tuple[float, PricedEdits]] = []
        for (values, costs), span in ((view.substitutions(), 1), (view.insertions(), 0)):
            best = np.argsort(-values, axis=None, kind="stable")[: 2 * n]
            for at, column in zip(*np.unravel_index(best, values.shape), strict=True):
                word = int(view.words[column])
                one = PricedEdits((Edit(int(at), int(at) + span, word),), costs[at, column])
                found.append((values[at, column], one))
                same = view.places(int(at)) if span else []
                if len(same) > 1:
                    # A word wherever it stands: each "he" of a text alone may be too little to gain.
                    every = tuple(Edit(i, i + 1, word) for i in same)
                    found.append((values[same, column].sum(), PricedEdits(every, costs[same, column].sum())))
        values, costs = view.deletions()
        found += [(values[at], PricedEdits((Edit(at, at + 1, None),), costs[at])) for at in range(len(values))]
        found.sort(key=lambda pair: -pair[0])
        return _varied([change for value, change in found if np.isfinite(value)], n)


class _View:
    """Values, which are estimated gains less costs, of all edits of a text.

    The embedding of a text is approximated by the mean over its L words. So v in place of w moves it by (v - w) / L,
    and moves its cosine to the aim by the product of that with the cosine's gradient.
    """

    def __init__(self, by: Proposer, text: str, embedding: _Vector, aim: _Vector, unknown: dict[str, _Vector]) -> None:
        language = by.language
        self._costs, self._language, self._tokens = by.costs, language, tokenise(text)
        self._ids = language.ids([token.word for token in self._tokens])
        self._marks = np.array([not token.is_word for token in self._tokens])
        slope = aim - float(embedding @ aim) * embedding
        gains = np.where(by.usable, by.vectors @ slope, -np.inf)
        alike = np.where(by.usable, language.kin[self._ids] @ language.kin[: len(language)].T, -1.0)
        known = self._ids < language.edge
        self.words = _worth(gains, alike[known])
        self._gain, self._alike = gains[self.words], alike[:, self.words]
        pairs = zip(self._tokens, self._ids, strict=True)
        own = [by.vectors[at] if at < language.edge else unknown[token.word] for token, at in pairs]
        self._own = np.array([vector @ slope for vector in own])
        self._here = float(embedding @ slope)
        around = np.concatenate([[language.edge], self._ids, [language.edge]])
        self._left, self._right = around[:-1], around[1:]
        self._before, self._after = around[:-2], around[2:]
        self._log_now = language.log_pairs(self._before, self._ids) + language.log_pairs(self._ids, self._after)

    def places(self, at: int) -> list[int]:
        """Where the word of this token stands."""
        return [i for i, token in enumerate(self._tokens) if token.word == self._tokens[at].word]

    def substitutions(self) -> _Table:
        """Values and costs of shape (tokens, words)."""
        then = self._language.log_after(self._before, self.words) + self._language.log_before(self.words, self._after)
        strangeness = 1.0 - np.maximum(self._alike, 0.0)
        costs = self._unlikely(self._log_now[:, None] - then) + self._costs.change + self._costs.kinship * strangeness
        values = (self._gain - self._own[:, None]) / len(self._tokens) - costs
        values[self._ids[:, None] == self.words] = -np.inf
        values[self._marks] = -np.inf
        return values, costs

    def insertions(self) -> _Table:
        """Values and costs of shape (tokens + 1, words): before each token, and at the end."""
        then = self._language.log_after(self._left, self.words) + self._language.log_before(self.words, self._right)
        now = self._language.log_pairs(self._left, self._right)
        costs = self._unlikely(now[:, None] - then) + self._costs.length
        return (self._gain - self._here) / len(self._tokens) - costs, costs

    def deletions(self) -> _Table:
        """Values and costs of shape (tokens,)."""
        costs = self._unlikely(self._log_now - self._language.log_pairs(self._before, self._after)) + self._costs.length
        values = (self._here - self._own) / len(self._tokens) - costs
        return np.where(self._marks, -np.inf, values), costs

    def _unlikely(self, loss: NDArray[np.float64]) -> NDArray[np.float64]:
        return self._costs.fluency * np.maximum(loss - self._costs.slack, 0.0)


def _worth(gains: NDArray[np.floating], alike: NDArray[np.floating]) -> NDArray[np.int64]:
    """The words that a text might take: those that promise most, and those most like one of its own."""
    promising = np.argsort(-gains, kind="stable")[:_PROMISING]
    near = np.argpartition(-alike, min(_ALIKE, alike.shape[1] - 1), axis=1)[:, :_ALIKE]
    both = np.union1d(promising, near)
    return both[np.isfinite(gains[both])]


def _varied(changes: list[PricedEdits], n: int) -> list[PricedEdits]:
    """The first n changes, of which no place has more than a quarter."""
    out: list[PricedEdits] = []
    at_place: Counter[tuple[tuple[int, int], ...]] = Counter()
    for change in changes:
        place = tuple((edit.start, edit.stop) for edit in change.edits)
        at_place[place] += 1
        if at_place[place] <= max(4, n // 4):
            out.append(change)
        if len(out) == n:
            break
    return out
