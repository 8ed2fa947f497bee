"""Checks of what the scores are given."""

from __future__ import annotations

from collections.abc import Sequence

from mute.errors import MuteError
from mute.text.encoders.encoder import check_texts

__all__ = ["check_pairs", "check_some"]


def check_some(texts: Sequence[str], what: str = "texts") -> list[str]:
    """The texts as a list, of which there must be one at least."""
    given = check_texts(texts)
    if not given:
        raise MuteError(f"no {what} were given: there is nothing to score")
    return given


def check_pairs(hyps: Sequence[str], refs: Sequence[str]) -> tuple[list[str], list[str]]:
    """As many texts as references, and no reference without text."""
    given, wanted = check_texts(hyps), check_texts(refs)
    if len(given) != len(wanted):
        raise MuteError(f"{len(given)} texts but {len(wanted)} references: give one reference for each text")
    check_some(given)
    for row, ref in enumerate(wanted):
        if not ref.strip():
            raise MuteError(f"reference {row} (counting from 0) has no text: fill it or drop the pair")
    return given, wanted
