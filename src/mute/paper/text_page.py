"""The section about counterfactual texts: its tables, its figure, and galleries of what came out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mute.evaluation.report import _table
from mute.paper import figures
from mute.paper.published import TEXT
from mute.paper.running import Results
from mute.paper.texts import DECODERS, MOVERS, SETS

__all__ = ["text_section", "without_texts"]

_TITLES = {
    "bios": "628 biographies of the paper, gender",
    "panda": "PANDA, gender, references by people",
    "occupations": "BUG, six occupations: a second concept, without a word list",
}

_NAMES = {
    "none": "not moved (the sources)",
    "reference": "to the references' embeddings",
    "mute-oracle": "MUtE* (told the class)",
    "mute": "MUtE (routed)",
    "linear-surrogate": "linear surrogate of MUtE*",
}

# Families of movers, as the figure calls them.
_WAYS = {
    "reference": "references",
    "mute-oracle": "MUtE*",
    "mute": "MUtE",
    "mean-difference": "Mean Diff",
    "linear-ot": "Linear OT",
    "linear-surrogate": "linear surrogate",
}

_BY = {"edits": "edit search", "retrieval": "retrieval", "inverter": "trained inverter"}

# Six classes have thirty directions, of a few texts each.
_MOST_WAYS = 7

_FIGURES = ("bleu", "rouge_1", "rouge_2", "rouge_l", "substitution", "substitution_with_markers", "bertscore")


def name_of(mover: str) -> str:
    """What a mover is called on the page."""
    if mover in _NAMES:
        return _NAMES[mover]
    method, settings, _ = MOVERS[mover]
    return f"Mean Diff × {settings['strength']:g}" if method == "mean-difference" else f"Linear OT, {settings['reg']:g}"


def text_section(results: Results, folder: Path) -> list[str]:
    """Lines of the page; writes ``texts-SET.html`` beside it."""
    lines = [
        "## Counterfactual texts",
        "",
        "Embeddings of MiniLM are moved to the other class by maps that were fitted on BUG and on PANDA's part to fit, "
        "with four layers as in the paper; then they are decoded. BLEU and ROUGE (F) against grammatical references, "
        "which differ from the paper's (that has *his* → *hers* and *her* → *him* throughout). r_g: share of gendered "
        "words that are of the target class, 0 for a text without; *marked*: over texts that have one. BERTScore is "
        "that of MiniLM, not rescaled, and not to be compared with the paper's, of another model. *Cosine*: of the "
        "decoded text to the reference; *wanted*: of the moved embedding to the reference, and its length relative to "
        "that. *Other edits*: words changed, put in or left out that tell no class, for each text.",
    ]
    for name in SETS:
        found = {key: row for key, row in _found(results).items() if key[0] == name}
        if not found:
            continue
        about = results.texts[name]
        rows = ", ".join(f"{count:,} {label}" for label, count in about["corpus"].items())
        lines += ["", f"### {_TITLES[name]}", "", f"Maps fitted on: {rows}.", "", *_by_mover(name, found, about)]
        lines += ["", *_by_decoder(name, found)]
        lines += ["", *_by_direction(name, found)]
        lines += ["", f"What came out, with the ten worst cases of each: `{_gallery(name, found, folder)}`."]
        if any(mover.startswith("mean") for _, mover, _ in found) and name == "bios":
            lines += [
                "",
                f"![Words that change against what else stays]({_sweep(found, folder)})",
                "",
                "(The paper's BLEU is against its own references.)",
            ]
    return lines


def without_texts(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Results without the texts themselves, which belong to others."""
    drop = ("examples", "worst")
    return [
        {**row, "result": {k: v for k, v in row["result"].items() if k not in drop}} if row["job"] == "text" else row
        for row in found
    ]


def _found(results: Results) -> dict[tuple[str, str, str], dict[str, Any]]:
    return {(r["set"], r["mover"], r["decoder"]): r["result"] for r in results.found if r["job"] == "text"}


def _cells(row: dict[str, Any]) -> list[str]:
    return [f"{row['bleu']:.1f}", *("–" if row[key] is None else f"{row[key]:.3f}" for key in _FIGURES[1:])]


def _by_mover(name: str, found: dict[tuple[str, str, str], dict[str, Any]], about: dict[str, Any]) -> list[str]:
    """Every mover with edit search between floor and ceiling; for the biographies with the paper's figures beside."""
    theirs = TEXT if name == "bios" else {}
    rows: list[tuple[Any, ...]] = []
    for mover in MOVERS:
        row = found.get((name, mover, "edits"))
        if row is None:
            continue
        score = row["scores"]["all"]
        paper = theirs.get(mover)
        rows.append(
            (
                name_of(mover),
                score["texts"],
                *_cells(score),
                f"{score['cosine']:.3f}",
                f"{row['wanted_to_reference']:.3f} ({row['wanted_length']:.2f})",
                f"{score['edits']:.2f}",
                *((_bleu(row), "–" if paper is None else f"{paper[0]:.1f}, {paper[1]:.2f}") if theirs else ()),
            )
        )
    ceiling = (f"{about['substitution']:.3f}", f"{about['substitution_with_markers']:.3f}")
    rest = ("1.000", "1.000", "–", "–", *(("–", "–") if theirs else ()))
    rows.append(("the references themselves", about["texts"], "100.0", "1.000", "1.000", "1.000", *ceiling, *rest))
    head = ("moved by, decoded by edit search", "texts", "BLEU", "ROUGE-1", "ROUGE-2", "ROUGE-L", "r_g", "r_g marked",
            "BERTScore", "cosine", "wanted (length)", "other edits")  # fmt: skip
    more = ("BLEU, the paper's references", "paper: BLEU, r_g (by vec2text)") if theirs else ()
    return _table(head + more, rows)


def _bleu(row: dict[str, Any]) -> str:
    value = row["bleu_paper_references"]
    return "–" if value is None else f"{value:.1f}"


def _by_decoder(name: str, found: dict[tuple[str, str, str], dict[str, Any]]) -> list[str]:
    rows = []
    present = [d for d in DECODERS if any(key[2] == d for key in found)]
    for mover in MOVERS:
        each = [found.get((name, mover, decoder)) for decoder in present]
        if each[0] is not None and any(row is not None for row in each[1:]):
            rows.append((name_of(mover), *("–" if row is None else _short(row) for row in each)))
    return _table(("BLEU, r_g, cosine", *(_BY[decoder] for decoder in present)), rows)


def _short(row: dict[str, Any]) -> str:
    score = row["scores"]["all"]
    return f"{score['bleu']:.1f}, {score['substitution']:.3f}, {score['cosine']:.3f}"


def _by_direction(name: str, found: dict[tuple[str, str, str], dict[str, Any]]) -> list[str]:
    row = found.get((name, "mute-oracle", "edits"))
    if row is None:
        return []
    ways = row["scores"] if len(row["scores"]) <= _MOST_WAYS else {"all": row["scores"]["all"]}
    rows = [
        (way, score["texts"], *_cells(score), f"{score['cosine']:.3f}", f"{score['edits']:.2f}")
        for way, score in ways.items()
    ]
    head = ("MUtE*, edit search", "texts", "BLEU", "ROUGE-1", "ROUGE-2", "ROUGE-L", "r_g", "r_g marked", "BERTScore",
            "cosine", "other edits")  # fmt: skip
    return _table(head, rows)


def _gallery(name: str, found: dict[tuple[str, str, str], dict[str, Any]], folder: Path) -> str:
    from mute.text.gallery import Example, write_gallery

    rows = [
        Example(
            e["source"],
            e["text"],
            reference=e["reference"],
            score=e["cosine"],
            group=f"{name_of(mover)}, {_BY[by]}: {what}",
        )
        for (_, mover, by), row in sorted(found.items(), key=_interest)
        if mover != "none"
        for what in ("worst", "examples")
        for e in row[what]
    ]
    path = folder / f"texts-{name}.html"
    note = "The score is the cosine to the embedding of the reference."
    write_gallery(path, rows, title=_TITLES[name], note=note)
    return path.name


def _interest(item: tuple[tuple[str, str, str], dict[str, Any]]) -> tuple[int, bool, int]:
    """Edit search first, and of its ways to move embeddings the paper's."""
    (_, mover, decoder), _ = item
    return DECODERS.index(decoder), mover != "mute-oracle", list(MOVERS).index(mover)


def _sweep(found: dict[tuple[str, str, str], dict[str, Any]], folder: Path) -> str:
    rows = {(mover, by): found.get(("bios", mover, by)) for mover in MOVERS if mover != "none" for by in DECODERS}
    points = [
        (_BY[by], _way(mover), row["scores"]["all"]["substitution"], row["scores"]["all"]["bleu"])
        for (mover, by), row in rows.items()
        if row is not None
    ]
    points += [("the paper, with vec2text", _way(mover), rate, bleu) for mover, (bleu, rate) in TEXT.items()]
    return figures.texts(points, folder / "texts.png")


def _way(mover: str) -> str:
    return _WAYS[max((name for name in _WAYS if mover.startswith(name)), key=len)]
