"""The words in which two texts differ, for the terminal and for web pages."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["Span", "as_html", "as_rich", "differences"]

# A word (with what its apostrophes and hyphens join) or one sign of punctuation, and the blanks after it.
_WORD = re.compile(r"^\s+|(?:\w+(?:['’-]\w+)*|[^\w\s])\s*")


class Span(NamedTuple):
    """A part of a text, and whether the other text lacks it here."""

    text: str
    changed: bool


def differences(source: str, text: str) -> tuple[list[Span], list[Span]]:
    """Compare two texts word by word.

    Returns
    -------
    before, after : list of Span
        Joined, the spans of `before` are the source and those of `after` the text. Blanks never count as changed.

    Examples
    --------
    >>> before, after = differences("He sold his car.", "She sold her car.")
    >>> [span.text for span in before if span.changed], [span.text for span in after if span.changed]
    (['He', 'his'], ['She', 'her'])
    """
    words, new_words = _WORD.findall(source), _WORD.findall(text)
    # difflib would take words that come often for noise, in texts of 200 words or more.
    matcher = SequenceMatcher(None, [w.strip() for w in words], [w.strip() for w in new_words], autojunk=False)
    before: list[Span] = []
    after: list[Span] = []
    for kind, start, stop, new_start, new_stop in matcher.get_opcodes():
        before += _spans("".join(words[start:stop]), kind != "equal")
        after += _spans("".join(new_words[new_start:new_stop]), kind != "equal")
    return before, after


def _spans(text: str, changed: bool) -> list[Span]:
    """The text as spans; blanks at its end are on their own, so that no mark runs on over them."""
    bare = text.rstrip() if changed else text
    return [span for span in (Span(bare, changed), Span(text[len(bare) :], False)) if span.text]


def as_html(spans: Sequence[Span], tag: str) -> str:
    """The spans as HTML, escaped, the changed ones inside `tag` ("del" or "ins")."""
    parts = [(html.escape(span.text), span.changed) for span in spans]
    return "".join(f"<{tag}>{text}</{tag}>" if changed else text for text, changed in parts)


def as_rich(spans: Sequence[Span], style: str) -> Text:
    """The spans as one text for the terminal, the changed ones in `style`."""
    from rich.text import Text

    out = Text()
    for span in spans:
        out.append(span.text, style if span.changed else None)
    return out
