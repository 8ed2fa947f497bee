"""A gallery of counterfactual texts: one web page that opens offline and asks nothing of the network."""

from __future__ import annotations

import html
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mute.errors import MuteError
from mute.storage.files import write_atomically
from mute.text.counterfactual import Counterfactuals
from mute.text.differences import as_html, differences

__all__ = ["Example", "examples_of", "write_gallery"]


@dataclass(frozen=True)
class Example:
    """One pair of texts of a gallery.

    Attributes
    ----------
    source, text : str
        The text and its counterfactual.
    concept, to : label, optional
        The classes they are of.
    start_score, score : float, optional
        Cosines with the wanted embedding, before and after.
    reference : str, optional
        What the counterfactual should have been.
    note : str, optional
        A few words beside the scores.
    group : str, optional
        The heading that it stands under, with its neighbours of the same group.
    """

    source: str
    text: str
    concept: Any = None
    to: Any = None
    start_score: float | None = None
    score: float | None = None
    reference: str | None = None
    note: str = ""
    group: str = ""


def examples_of(found: Counterfactuals) -> list[Example]:
    """The pairs of texts of a result, in its order."""
    return [
        Example(source, text, concept, to, float(before), float(after))
        for source, text, concept, to, before, after in zip(
            found.sources,
            found.texts,
            found.concept.tolist(),
            found.to.tolist(),
            found.start_scores,
            found.scores,
            strict=True,
        )
    ]


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
    >>> path = pathlib.Path(tempfile.mkdtemp(), "gallery.html")
    >>> write_gallery(path, [Example("He left.", "She left.", "male", "female", 0.81, 0.97)])
    >>> "<del>He</del> left." in path.read_text()
    True
    """
    shown = examples_of(rows) if isinstance(rows, Counterfactuals) else list(rows)
    for row in shown:
        if not isinstance(row, Example):
            raise MuteError(f"a gallery shows Counterfactuals or a list of Example, not {type(row).__name__}")
    changed = sum(row.source != row.text for row in shown)
    page = _PAGE.format(
        title=html.escape(title),
        note=f'<p class="note">{html.escape(note)}</p>' if note else "",
        table=_table(table),
        summary=f"{len(shown):,} texts, {changed:,} of them changed",
        style=_STYLE,
        script=_SCRIPT,
        body=_body(shown),
    )
    with write_atomically(path) as file:
        # A lone half of a surrogate pair, which a text may hold, has no bytes of its own.
        file.write(page.encode(errors="replace"))


def _body(rows: Sequence[Example]) -> str:
    parts: list[str] = []
    group = ""
    for row in rows:
        if row.group != group:
            group = row.group
            parts.append(f"<h2>{html.escape(group)}</h2>")
        parts.append(_card(row))
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
    heads = list(rows[0])
    lines = [f"<tr>{''.join(f'<th>{html.escape(head)}</th>' for head in heads)}</tr>"]
    for row in rows:
        lines.append(f"<tr>{''.join(f'<td>{html.escape(str(row[head]))}</td>' for head in heads)}</tr>")
    return f'<div class="table"><table><thead>{lines[0]}</thead><tbody>{"".join(lines[1:])}</tbody></table></div>'


_STYLE = """
:root { color-scheme: light dark; --ink: #1f2933; --soft: #5b6773; --rule: #e1e5ea; --paper: #fff; --ground: #f5f7fa;
  --gone: #b3261e; --gone-ground: #fdeceb; --new: #00694f; --new-ground: #e2f5ee; --mark: #fff3c4; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaef; --soft: #9aa7b4; --rule: #2d3742; --paper: #1b222a;
  --ground: #12171d; --gone: #ff9d94; --gone-ground: #43211f; --new: #7fe0bd; --new-ground: #153a2e;
  --mark: #57491a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); font: 15px/1.55 system-ui, sans-serif; }
main { max-width: 1160px; margin: 0 auto; padding: 32px 24px 56px; }
h1 { margin: 0 0 4px; font-size: 26px; line-height: 1.25; overflow-wrap: anywhere; }
h2 { margin: 32px 0 8px; font-size: 19px; }
h3 { margin: 0 0 2px; font-size: 12px; font-weight: 600; color: var(--soft); letter-spacing: .03em; }
.note { color: var(--soft); max-width: 900px; margin: 4px 0 12px; }
.tools { position: sticky; top: 0; display: flex; flex-wrap: wrap; gap: 12px; align-items: center; padding: 12px 0;
  background: var(--ground); z-index: 1; }
input, select { font: inherit; color: inherit; background: var(--paper); border: 1px solid var(--rule);
  border-radius: 8px; padding: 6px 12px; }
input { flex: 1 1 260px; max-width: 460px; }
#count { color: var(--soft); font-size: 13.5px; }
article, .table { background: var(--paper); border: 1px solid var(--rule); border-radius: 10px; padding: 14px 18px;
  margin: 0 0 12px; }
article { content-visibility: auto; contain-intrinsic-size: auto 120px; }
article[hidden] { display: none; }
.pair { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 28px; }
p { margin: 0; overflow-wrap: anywhere; white-space: pre-wrap; }
.reference { margin-top: 10px; padding-top: 10px; border-top: 1px solid var(--rule); }
.facts { display: flex; flex-wrap: wrap; gap: 10px; align-items: center; margin-bottom: 8px; font-size: 13px;
  color: var(--soft); font-variant-numeric: tabular-nums; }
.chip { padding: 0 10px; border: 1px solid var(--rule); border-radius: 999px; overflow-wrap: anywhere; }
del { color: var(--gone); background: var(--gone-ground); border-radius: 4px; padding: 0 2px; }
ins { color: var(--new); background: var(--new-ground); border-radius: 4px; padding: 0 2px; text-decoration: none;
  font-weight: 600; }
mark { color: inherit; background: var(--mark); border-radius: 4px; padding: 0 2px; }
.table { overflow-x: auto; margin: 16px 0 4px; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; font-variant-numeric: tabular-nums; }
th, td { padding: 6px 8px; border-bottom: 1px solid var(--rule); text-align: right; white-space: nowrap; }
th { color: var(--soft); font-weight: 600; }
th:nth-child(-n+2), td:nth-child(-n+2) { text-align: left; }
tbody tr:last-child td { border-bottom: 0; }
@media (max-width: 720px) { .pair { grid-template-columns: minmax(0, 1fr); gap: 10px; } main { padding: 20px 14px; } }
@media print { .tools { display: none; } article { break-inside: avoid; content-visibility: visible; } }
"""

_SCRIPT = """
const cards = [...document.querySelectorAll("article")], words = cards.map(card => card.textContent.toLowerCase());
const box = document.getElementById("filter"), kind = document.getElementById("kind");
const count = document.getElementById("count"), whole = count.textContent;
function show() {
  const wanted = box.value.toLowerCase().split(/\\s+/).filter(Boolean);
  let shown = 0;
  cards.forEach((card, i) => {
    const changed = card.querySelector("del, ins") !== null;
    const fits = kind.value === "all" || (kind.value === "changed") === changed;
    card.hidden = !(fits && wanted.every(word => words[i].includes(word)));
    shown += !card.hidden;
  });
  count.textContent = shown === cards.length ? whole : `${shown} of ${cards.length} texts`;
}
box.addEventListener("input", show);
kind.addEventListener("change", show);
"""

# The page may not ask the network for anything, whatever a text in it tries.
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline'; \
style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
<h1>{title}</h1>
{note}
{table}
<div class="tools"><input id="filter" type="search" placeholder="Filter by words" aria-label="Filter by words">
<select id="kind" aria-label="Which texts"><option value="all">all texts</option>
<option value="changed">changed</option><option value="same">unchanged</option></select>
<span id="count">{summary}</span></div>
{body}
</main>
<script>{script}</script>
</body>
</html>
"""
