"""What the section about counterfactual texts shows: its tables, its figure, and galleries of the texts."""

from __future__ import annotations

from pathlib import Path

from mute.paper import figures
from mute.paper.published import NAMES, TEXT
from mute.paper.running import Results
from mute.paper.texts import DECODERS, MOVERS, SETS
from mute.typing import Json

__all__ = ["name_of", "scores_shown", "text_values", "without_texts"]

# Six classes have thirty directions, of a few texts each.
_MOST_WAYS = 7

# (Mover, decoder) to the result of its job.
Found = dict[tuple[str, str], Json]


def name_of(mover: str) -> str:
    """The name of a mover on the page."""
    if mover in NAMES["movers"]:
        return NAMES["movers"][mover]
    method, settings, _ = MOVERS[mover]
    return f"Mean Diff × {settings['strength']:g}" if method == "mean-difference" else f"Linear OT, {settings['reg']:g}"


def scores_shown(score: Json) -> str:
    """Seven cells of a table."""
    keys = ("rouge_1", "rouge_2", "rouge_l", "substitution", "substitution_with_markers", "bertscore")
    cells = ["–" if score[key] is None else f"{score[key]:.3f}" for key in keys]
    return " | ".join([f"{score['bleu']:.1f}", *cells])


def text_values(results: Results, folder: Path) -> dict[str, Json]:
    """Of each set of texts, what the page shows; writes ``texts-SET.html`` and the figure to `folder`."""
    jobs = [r for r in results.found if r["job"] == "text"]
    shown = {}
    for name in SETS:
        found: Found = {(r["mover"], r["decoder"]): r["result"] for r in jobs if r["set"] == name}
        if not found:
            continue
        present = [decoder for decoder in DECODERS if any(by == decoder for _, by in found)]
        each = {mover: [found.get((mover, decoder)) for decoder in present] for mover in MOVERS}
        ways = found.get(("mute-oracle", "edits"), {}).get("scores", {})
        swept = name == "bios" and any(mover.startswith("mean") for mover, _ in found)
        shown[name] = {
            "title": NAMES["text_sets"][name],
            "about": results.texts[name],
            "published": name == "bios",
            "decoders": present,
            "by_mover": {mover: found[mover, "edits"] for mover in MOVERS if (mover, "edits") in found},
            "by_decoder": {m: rows for m, rows in each.items() if rows[0] is not None and any(rows[1:])},
            "by_direction": ways if len(ways) <= _MOST_WAYS else {"all": ways["all"]},
            "gallery": _gallery(name, found, folder),
            "sweep": _sweep(found, folder) if swept else None,
        }
    return shown


def without_texts(found: list[Json]) -> list[Json]:
    """Results without the texts themselves, which belong to others."""
    drop = ("examples", "worst")
    return [
        {**row, "result": {k: v for k, v in row["result"].items() if k not in drop}} if row["job"] == "text" else row
        for row in found
    ]


def _gallery(name: str, found: Found, folder: Path) -> str:
    from mute.text.gallery import Example, write_gallery

    def interest(key: tuple[str, str]) -> tuple[int, bool, int]:
        """Edit search first, and of its ways to move embeddings the paper's."""
        mover, decoder = key
        return DECODERS.index(decoder), mover != "mute-oracle", list(MOVERS).index(mover)

    rows = [
        Example(
            e["source"],
            e["text"],
            reference=e["reference"],
            score=e["cosine"],
            group=f"{name_of(mover)}, {NAMES['decoders'][by]}: {what}",
        )
        for mover, by in sorted(found, key=interest)
        if mover != "none"
        for what in ("worst", "examples")
        for e in found[mover, by][what]
    ]
    path = folder / f"texts-{name}.html"
    note = "The score is the cosine to the embedding of the reference."
    write_gallery(path, rows, title=NAMES["text_sets"][name], note=note)
    return path.name


def _sweep(found: Found, folder: Path) -> str:
    points = [
        (NAMES["decoders"][by], _way(mover), row["scores"]["all"]["substitution"], row["scores"]["all"]["bleu"])
        for mover in MOVERS
        for by in DECODERS
        if mover != "none" and (row := found.get((mover, by))) is not None
    ]
    points += [("the paper, with vec2text", _way(mover), rate, bleu) for mover, (bleu, rate) in TEXT.items()]
    return figures.texts(points, folder / "texts.png")


def _way(mover: str) -> str:
    """The family of a mover, as the figure calls it."""
    return NAMES["ways"][max((name for name in NAMES["ways"] if mover.startswith(name)), key=len)]
