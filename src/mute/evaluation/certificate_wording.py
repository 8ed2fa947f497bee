"""What a certificate says, in sentences and a table, from the plain values of `Certificate.to_dict`."""

from __future__ import annotations

import math

from mute.errors import shown
from mute.evaluation.rendering import Table, bullets, escaped, percent
from mute.typing import Json

__all__ = ["at_most", "certificate_markdown", "certificate_sentences", "certificate_table"]

_MOST_PAIRS = 10


def at_most(share: float) -> str:
    """A bound in per cent, rounded up: rounding must not promise more than was proved."""
    return percent(math.ceil(share * 1000 - 1e-9) / 1000)


def certificate_sentences(found: Json) -> list[str]:
    """What is proved, and what it rests on: two sentences."""
    sure, chance, bound = f"{found['confidence'] * 100:g} %", 1 / len(found["classes"]), at_most(found["bound"])
    rest = f"{bound} of the rows, whatever its method and computing power; guessing names {percent(chance)}"
    given = f"{sum(found['rows']):,} unseen rows"
    alike = "and assumes that these rows are independent and drawn like the rows to be published"
    if found["covers"] == "every adversary":
        return [
            f"With {sure} confidence, an adversary that sees an erased row names the right class of at most {rest} "
            "(mean over the classes).",
            f"This rests on {given}, each of which was published as the centre of one of {found['cells']} cells to the "
            f"bit, {alike}; it does not bound an adversary that knows more of a row than what is published.",
        ]
    return [
        f"With {sure} confidence, an adversary that sees in which of {found['cells']} cells an erased row lies, and "
        f"nothing else of it, names the right class of at most {rest} (mean over the classes).",
        f"This rests on {given}, which were not used to choose the cells, {alike}; it does not bound an adversary that "
        "sees the erased row itself.",
    ]


def certificate_table(found: Json) -> Table:
    """The bound over all classes, then the worst pairs of classes."""
    n_pairs, sure = len(found["pairs"]), f"{found['confidence'] * 100:g} %"
    lines = [("all", found, 1 / len(found["classes"]))]
    if n_pairs > 1:
        pairs = sorted(found["pairs"], key=lambda p: -p["bound"])[:_MOST_PAIRS]
        lines += [(" / ".join(map(shown, p["classes"])), p, 0.5) for p in pairs]
    rows = [
        (name, at_most(b["bound"]), f"{math.ceil(1000 * (b['bound'] - chance) - 1e-9) / 10:.1f} points",
         percent(b["estimate"]), b["method"])
        for name, b, chance in lines
    ]  # fmt: skip
    counted = ", ".join(f"{shown(c)} ({n:,})" for c, n in zip(found["classes"], found["rows"], strict=True))
    notes = [
        f"Rows counted: {counted}.",
        f"If all classes had been counted in the same shares, so many rows would prove {at_most(found['smallest'])}.",
    ]
    if n_pairs > 1:
        left = f"; the worst {_MOST_PAIRS} of {n_pairs} are shown" if n_pairs > _MOST_PAIRS else ""
        notes.append(f"The bounds of the pairs hold together with {sure} confidence{left}.")
    head = ("classes", "any adversary names at most", "leak at most", "counted", "bound by")
    return Table("Certificate", head, rows, notes)


def certificate_markdown(found: Json) -> str:
    """The certificate as a Markdown page."""
    title = escaped(f"Certificate of {found['eraser']}: at most {at_most(found['bound'])}")
    about = (
        f"MUtE {found['mute']}, random_state={found['random_state']}. How the bounds are proved: docs/certificate.md."
    )
    parts = [f"# {title}", bullets(certificate_sentences(found)), certificate_table(found).to_markdown()]
    return "\n\n".join([*parts, escaped(about)]) + "\n"
