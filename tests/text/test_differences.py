"""Differences: joined they are the texts, and the marks are where a reader would put them."""

import pytest

from mute.text.differences import as_html, as_rich, differences

PAIRS = [
    ("He sold his car.", "She sold her car.", ["He", "his"], ["She", "her"]),
    ("the male doctor left", "the female nurse left", ["male doctor"], ["female nurse"]),
    ("one two", "one two", [], []),
    ("", "new", [], ["new"]),
    ("gone", "", ["gone"], []),
    ("", "", [], []),
    ("  a\tb\n", "a b", [], []),
    ("He's here", "She's here", ["He's"], ["She's"]),
    ("a mother-in-law", "a father-in-law", ["mother-in-law"], ["father-in-law"]),
    ("well, yes", "well yes", [","], []),
    ("sie sagt „ja“ 🙂", "er sagt „ja“ 🙂", ["sie"], ["er"]),
]


@pytest.mark.parametrize(("source", "text", "gone", "new"), PAIRS)
def test_marks(source, text, gone, new):
    before, after = differences(source, text)
    assert "".join(span.text for span in before) == source
    assert "".join(span.text for span in after) == text
    found = [[span.text.strip() for span in spans if span.changed and span.text.strip()] for spans in (before, after)]
    assert found == [gone, new]


def test_no_mark_ends_in_a_blank():
    before, after = differences("a b  c", "x  y c")
    assert all(not span.changed or span.text == span.text.strip() for span in before + after)


def test_for_pages_and_terminals():
    before, after = differences("<b>he</b> & co", "<b>she</b> & co")
    assert as_html(before, "del") == "&lt;b&gt;<del>he</del>&lt;/b&gt; &amp; co"
    assert as_html(after, "ins") == "&lt;b&gt;<ins>she</ins>&lt;/b&gt; &amp; co"
    text = as_rich(after, "green")
    assert text.plain == "<b>she</b> & co"
    assert [(span.start, span.end, str(span.style)) for span in text.spans] == [(3, 6, "green")]


def test_long_texts():
    words = [f"w{i % 700}" for i in range(3000)]
    before, _ = differences(" ".join(words), " ".join("x" if i % 100 == 0 else word for i, word in enumerate(words)))
    assert sum(span.changed for span in before) == 30
