"""Edits of a text, word by word: put in, taken away, or one in the place of another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mute.text.decoders.language import Language, Token, begins, tokenise

__all__ = ["Change", "Edit", "apply_edits"]


class Edit(NamedTuple):
    """Put a word (None: nothing) in the place of tokens start to stop (an empty range: before the token at start)."""

    start: int
    stop: int
    word: int | None

    def meets(self, other: Edit) -> bool:
        return self.start == other.start or (self.start < other.stop and other.start < self.stop)


class Change(NamedTuple):
    """Edits made together, and what they cost."""

    edits: tuple[Edit, ...]
    cost: float


def apply_edits(text: str, edits: Sequence[Edit], language: Language) -> str:
    """Edit a text; blanks and all other words stay as they are."""
    tokens = tokenise(text)
    for edit in sorted(edits, reverse=True):
        if edit.word is None:
            text = _without(text, tokens, edit.start)
        elif edit.stop > edit.start:
            token = tokens[edit.start]
            new = language.written(edit.word, token, begins(tokens, edit.start))
            text = text[: token.start] + new + text[token.end :]
        elif edit.start == len(tokens):
            text = f"{text[: tokens[-1].end]} {language.forms[edit.word]}{text[tokens[-1].end :]}"
        else:
            token = tokens[edit.start]
            new, old = language.forms[edit.word], token.text
            if begins(tokens, edit.start) and old[:1].isupper():
                new, old = new[:1].upper() + new[1:], language.usual(token)
            text = f"{text[: token.start]}{new} {old}{text[token.end :]}"
    return text


def _without(text: str, tokens: Sequence[Token], at: int) -> str:
    """A text without a token and one blank beside it; what then begins the sentence takes over its capital."""
    before, after = text[: tokens[at].start], text[tokens[at].end :]
    if not before or before[-1].isspace():
        after = after[1:] if after[:1].isspace() else after
    if begins(tokens, at) and tokens[at].text[:1].isupper():
        after = after[:1].upper() + after[1:]
    return before + after
