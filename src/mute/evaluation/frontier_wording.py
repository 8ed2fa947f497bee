"""What a frontier says, in sentences and a table, from the plain values of `Frontier.to_dict`."""

from __future__ import annotations

from mute.errors import listed
from mute.evaluation.rendering import Table, bullets, number, percent
from mute.typing import Json

__all__ = ["FRONTIER_TITLE", "frontier_markdown", "frontier_notes", "frontier_sentences", "frontier_table"]

FRONTIER_TITLE = "Frontier of leak and R²"


def frontier_sentences(found: Json) -> list[str]:
    """Which point of each method was chosen, and which method keeps most within the budget."""
    budget, chosen = f"{found['frontier']['max_leak'] * 100:g} points", {}
    lines = []
    for method in dict.fromkeys(row["method"] for row in found["rows"]):
        mine = [row for row in found["rows"] if row["method"] == method]
        within = sum(row["within"] for row in mine)
        pick = next((row for row in mine if row["chosen"]), None)
        if pick is None:
            nearest = min(mine, key=lambda row: row["leak"]["high"])
            lines.append(
                f"{method}: none of {len(mine)} measured points keeps the budget of {budget}. The nearest, "
                f"{_channel(nearest)}, leaves R² {nearest['r2']:.2f}; {_leak(nearest)}."
            )
        else:
            chosen[method] = pick
            lines.append(
                f"{method}: {within} of {len(mine)} measured points keep the budget of {budget}. The one with the "
                f"largest R², {_channel(pick)}, leaves R² {pick['r2']:.2f}; {_leak(pick)}."
            )
    if len(chosen) > 1:
        best = max(chosen, key=lambda method: chosen[method]["r2"])
        lines.append(f"Within the budget, {best} keeps most of the rows.")
    if found["failures"]:
        lines.append(f"{len(found['failures'])} could not be measured: {', '.join(found['failures'])}.")
    return lines


def _channel(row: Json) -> str:
    return "without a channel" if row["share"] >= 1 else f"{row['family']} with share {row['share']:g}"


def _leak(row: Json) -> str:
    leak = row["leak"]
    return (
        f"the strongest adversary, {row['adversary']}, reads {leak['value'] * 100:.1f} points above chance "
        f"({leak['low'] * 100:.1f} to {leak['high'] * 100:.1f})"
    )


def frontier_table(found: Json) -> Table:
    """All points, in the order of methods, families and shares."""
    rows = []
    for row in found["rows"]:
        verdict = "chosen" if row["chosen"] else "yes" if row["within"] else "no"
        words = row["method"], row["family"], f"{row['share']:g}", verdict, row["adversary"]
        rows.append((*words, row["leak"], row["r2"], row["task_accuracy"]))
    about = found["frontier"]
    head = (
        "method", "family", "share kept", "within the budget", "strongest adversary", "leak", "R²", "task accuracy"
    )  # fmt: skip
    notes = [f"Leak: balanced accuracy above chance ({number(about['chance'])}); budget {about['max_leak']:g}."]
    if about["commonest"] is not None:
        notes.append(f"Always giving the commonest label of the task: {percent(about['commonest'])}.")
    return Table("Leak and what is kept", head, rows, notes, names=5)


def frontier_notes(found: Json) -> list[str]:
    """How the points were measured."""
    about = found["frontier"]
    groups = "" if about["groups"] is None else f" Rows of one of {about['groups']:,} groups are on one side."
    notes = [
        f"{about['rows']:,} rows of {about['columns']} columns, classes {listed(about['classes'], 10)}; MUtE "
        f"{about['mute']}, random_state={about['random_state']}.",
        "Each method was fitted on one half of the rows and erased the other half; then the halves changed places. A "
        f"channel published the erased rows, and each adversary learned on two thirds of them and was tested on the "
        f"third, three times, so that every row was tested once.{groups}",
        f"The panel: {', '.join(about['panel'])}, and the informed adversary for erasers that route. Intervals: the "
        "middle 95 % of bootstrap draws of the test rows.",
        "R²: share of the variance of the original rows that a linear reader reads back from published rows it has not "
        "learned from. Share kept: share of the worth of the erased rows that the channel keeps.",
        "The chosen point has the largest R² of the measured points whose interval ends within the budget. A fit with "
        f"max_leak={about['max_leak']:g} searches more finely. The rows that chose the point also judge it: audit the "
        "fitted eraser on unseen rows.",
        "The method none leaves the rows as they are: its lossless point is what can be read before erasure.",
    ]
    if about["task_labels"] is not None:
        notes.append("Task accuracy: a network of one hidden layer that learned the task from the same folds.")
    return notes


def frontier_markdown(found: Json) -> str:
    """The frontier as a Markdown page."""
    parts = [f"# {FRONTIER_TITLE}", bullets(frontier_sentences(found))]
    parts += [frontier_table(found).to_markdown()] if found["rows"] else []
    parts += [bullets(f"{name} failed: {error}" for name, error in found["failures"].items())] * bool(found["failures"])
    return "\n\n".join([*parts, "## How it was measured", bullets(frontier_notes(found))]) + "\n"
