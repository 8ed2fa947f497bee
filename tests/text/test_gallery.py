"""The gallery: one file, everything escaped, nothing asked of the network."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from mute import MuteError
from mute.text import Counterfactuals, Example, write_gallery

HOSTILE = "<script>alert(1)</script> \"quoted\" & 'so' {braces} </style> <img src=x onerror=alert(2)>"


class Page(HTMLParser):
    """Tags, and the text of each paragraph."""

    def __init__(self, content):
        super().__init__()
        self.tags, self.paragraphs, self._open = [], [], False
        self.feed(content)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag == "p":
            self._open = True
            self.paragraphs.append("")

    def handle_endtag(self, tag):
        self._open = self._open and tag != "p"

    def handle_data(self, data):
        if self._open:
            self.paragraphs[-1] += data


def read(path):
    content = path.read_text(encoding="utf-8")
    return content, Page(content)


def test_texts_side_by_side(tmp_path):
    found = Counterfactuals(
        sources=["He sold his car.", "She left."],
        texts=["She sold her car.", "She left."],
        concept=np.array(["male", "female"]),
        to=np.array(["female", "female"]),
        start_scores=np.array([0.8123, 1.0], np.float32),
        scores=np.array([0.9567, 1.0], np.float32),
        embeddings=np.zeros((2, 3), np.float32),
    )
    write_gallery(tmp_path / "x.html", found, title="A title", note="A note.")
    content, page = read(tmp_path / "x.html")
    assert page.paragraphs == ["A note.", *found.sources[:1], *found.texts[:1], "She left.", "She left."]
    assert "<del>He</del> sold <del>his</del> car." in content and "<ins>She</ins> sold <ins>her</ins> car." in content
    assert ">male → female<" in content and ">female<" in content and "cosine 0.812 → 0.957" in content
    assert "2 texts, 1 of them changed" in content and content.count("unchanged</span>") == 1


def test_everything_is_escaped(tmp_path):
    row = Example(HOSTILE, HOSTILE + "!", HOSTILE, HOSTILE, reference=HOSTILE, note=HOSTILE, group=HOSTILE)
    write_gallery(tmp_path / "x.html", [row], title=HOSTILE, note=HOSTILE, table=[{HOSTILE: HOSTILE}])
    _, page = read(tmp_path / "x.html")
    assert page.paragraphs == [HOSTILE, HOSTILE, HOSTILE + "!", HOSTILE]
    assert [tag for tag, _ in page.tags].count("script") == 1 and "img" not in [tag for tag, _ in page.tags]
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)


def test_nothing_comes_from_elsewhere(tmp_path):
    write_gallery(tmp_path / "x.html", [Example("a", "b")])
    content, page = read(tmp_path / "x.html")
    assert not any({"src", "href"} & set(attributes) for _, attributes in page.tags)
    assert not re.search(r"https?:|url\(|@import", content)
    assert "default-src 'none'" in content and "prefers-color-scheme: dark" in content


def test_groups_and_tables(tmp_path):
    rows = [Example("a", "b", group="first"), Example("c", "d", group="first"), Example("e", "f", group="second")]
    write_gallery(
        tmp_path / "x.html", rows, table=[{"row": "model", "BLEU": "70.00"}, {"row": "identity", "BLEU": "60"}]
    )
    content, _ = read(tmp_path / "x.html")
    assert re.findall("<h2>(.*?)</h2>", content) == ["first", "second"]
    assert re.findall("<th>(.*?)</th>", content) == ["row", "BLEU"] and "<td>70.00</td>" in content


def test_a_thousand_texts_and_none(tmp_path):
    rows = [Example(f"he said {i}", f"she said {i}", "male", "female", 0.5, 0.75) for i in range(1000)]
    write_gallery(tmp_path / "x.html", rows)
    assert (tmp_path / "x.html").read_text().count("<article>") == 1000
    write_gallery(tmp_path / "x.html", [])
    assert "There are no texts" in (tmp_path / "x.html").read_text()


def test_what_cannot_be_shown(tmp_path):
    with pytest.raises(MuteError, match="a list of Example, not str"):
        write_gallery(tmp_path / "x.html", ["a"])
    with pytest.raises(MuteError, match="does not exist"):
        write_gallery(tmp_path / "none" / "x.html", [Example("a", "b")])
    assert not list(tmp_path.iterdir())
