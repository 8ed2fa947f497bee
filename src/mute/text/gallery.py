"""A gallery of counterfactual texts: one web page that opens offline and asks nothing of the network."""

from __future__ import annotations

import html
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import groupby

from mute.errors import MuteError
from mute.storage.files import write_atomically
from mute.text.counterfactual import Counterfactuals
from mute.text.differences import as_html, differences
from mute.typing import Label, LabelsLike

__all__ = ["Example", "examples_of", "write_gallery"]


@dataclass(frozen=True)
class Example:
    """One pair of texts of a gallery.

    Attributes
    ----------
    source, text, reference : str
        The text, its counterfactual, and what the counterfactual should have been, if known.
    concept, to : label, optional
        The classes of source and text.
    start_score, score : float, optional
        Cosines with the wanted embedding, before and after.
    note, group : str, optional
        A few words beside the scores; the heading that it stands under, with its neighbours of the same group.
    """

    source: str
    text: str
    concept: LabelsLike = None
    to: Label = None
    start_score: float | None = None
    score: float | None = None
    reference: str | None = None
    note: str = ""
    group: str = ""


def examples_of(found: Counterfactuals) -> list[Example]:
    """The pairs of texts of a result, in its order."""
    arrays = (found.concept, found.to, found.start_scores, found.scores)
    rows = zip(found.sources, found.texts, *(array.tolist() for array in arrays), strict=True)
    return [Example(*row) for row in rows]


def write_gallery(
    path: str | os.PathLike[str],
    rows: Counterfactuals | Sequence[Example],
    *,
    title: str = "Counterfactual texts",
    note: str = "",
    table: Sequence[Mapping[str, str]] = (),
) -> None:
    """Write texts and their counterfactuals, side by side with their differences marked, as one HTML file.

    Parameters
    ----------
    path : path
        The file. It needs no other file and no network, follows the reader's light or dark theme, and prints.
    rows : Counterfactuals or sequence of Example
    title : str
    note : str, optional
        A paragraph under the title.
    table : sequence of dict, optional
        Rows of a table above the texts, by the heads of its columns, which are those of the first row.

    Notes
    -----
    Limits: made for up to some thousand texts; a browser gets slow beyond.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> example = Example("He left.", "She left.", "male", "female", 0.81, 0.97)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_gallery(f"{folder}/gallery.html", [example])
    ...     "<del>He</del> left." in pathlib.Path(folder, "gallery.html").read_text()
    True
    """
    shown = examples_of(rows) if isinstance(rows, Counterfactuals) else list(rows)
    for row in shown:
        if not isinstance(row, Example):
            raise MuteError(f"a gallery shows Counterfactuals or a list of Example, not {type(row).__name__}")
    changed = sum(row.source != row.text for row in shown)
    parts = {
        "title": html.escape(title),
        "note": f'<p class="note">{html.escape(note)}</p>' if note else "",
        "table": _table(table),
        "summary": f"{len(shown):,} texts, {changed:,} of them changed",
        "body": _body(shown),
    }
    template = files("mute.text").joinpath("gallery.html").read_text(encoding="utf-8")
    page = re.sub(r"{{(\w+)}}", lambda found: parts[found[1]], template)
    with write_atomically(path) as file:
        # A lone half of a surrogate pair, which a text may hold, has no bytes of its own.
        file.write(page.encode(errors="replace"))


def _body(rows: Sequence[Example]) -> str:
    parts: list[str] = []
    for group, some in groupby(rows, key=lambda row: row.group):
        parts += [f"<h2>{html.escape(group)}</h2>"] if group or parts else []
        parts += map(_card, some)
    return "\n".join(parts) or '<p class="note">There are no texts.</p>'


def _card(row: Example) -> str:
    before, after = differences(row.source, row.text)
    same = '<span class="chip">unchanged</span>' if row.source == row.text else ""
    way = " → ".join(dict.fromkeys(str(label) for label in (row.concept, row.to) if label is not None))
    facts = [f'<span class="chip">{html.escape(way)}</span>' if way else "", same, _scores(row), html.escape(row.note)]
    reference = ""
    if row.reference is not None:
        right = as_html(differences(row.text, row.reference)[1], "mark")
        reference = f'<div class="reference"><h3>reference</h3><p>{right}</p></div>'
    return (
        f'<article><div class="facts">{" ".join(fact for fact in facts if fact)}</div><div class="pair">'
        f"<div><h3>source</h3><p>{as_html(before, 'del')}</p></div>"
        f"<div><h3>counterfactual</h3><p>{as_html(after, 'ins')}</p></div></div>{reference}</article>"
    )


def _scores(row: Example) -> str:
    numbers = [f"{score:.3f}" for score in (row.start_score, row.score) if score is not None]
    if not numbers:
        return ""
    return f'<span title="cosine with the wanted embedding">cosine {" → ".join(numbers)}</span>'


def _table(rows: Sequence[Mapping[str, str]]) -> str:
    if not rows:
        return ""
    heads = "".join(f"<th>{html.escape(head)}</th>" for head in rows[0])
    cells = ["".join(f"<td>{html.escape(str(row[head]))}</td>" for head in rows[0]) for row in rows]
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    return f'<div class="table"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'
