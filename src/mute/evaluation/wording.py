"""What a report says, in sentences and tables, from the plain values of `Report.to_dict`; strongest adversary first."""

from __future__ import annotations

from dataclasses import replace

from mute.errors import shown
from mute.evaluation.advice import advice, want_of_rows
from mute.evaluation.certificate_wording import certificate_sentences, certificate_table
from mute.evaluation.informed import INFORMED
from mute.evaluation.rendering import Table, bullets, cell, escaped, number, percent
from mute.evaluation.rows import ELSEWHERE
from mute.typing import Json

__all__ = [
    "comparison_table", "kept_of", "markdown_of", "measurement_notes", "next_lines", "strongest", "summary_of",
    "tables_of",
]  # fmt: skip

# How the adversary was taught, in the order of the tables.
_TAUGHT = {"fresh": "after (unseen rows)", "paper": "after (training rows)", "before": "before"}

_LONGEST_COMMAND = 2000


def strongest(report: Json, protocol: str) -> Json | None:
    """The attack with the highest balanced accuracy; None where no adversary tried."""
    tried = [a for a in report["privacy"]["attacks"] if a["protocol"] == protocol]
    return max(tried, key=lambda a: a["balanced_accuracy"]["value"], default=None)


def kept_of(report: Json) -> Json:
    """Share of the variance that the better reader reads back."""
    return max((r["r2"] for r in report["utility"]["reconstruction"]), key=lambda e: e["value"])


def summary_of(report: Json) -> list[str]:
    """What a reader in a hurry needs to know, in sentences."""
    privacy, decision = report["privacy"], report["decision"]
    leak, budget = decision["leak"], f"{decision['max_leak'] * 100:g}"
    points = f"{leak['value'] * 100:.1f} points above chance"
    read = {p: a["balanced_accuracy"] for p in _TAUGHT if (a := strongest(report, p)) is not None}
    fresh = read["fresh"]
    lines = [
        f"After erasure the strongest adversary, {leak['adversary']}, names the class of {percent(fresh['value'])} of "
        f"unseen rows ({percent(fresh['low'])} to {percent(fresh['high'])}; balanced over classes, chance is "
        f"{percent(privacy['chance'])}). Before erasure the strongest named {percent(read['before']['value'])}."
    ]
    if decision["name"] == "not erased":
        where = ", even on training rows" if privacy["on_fit_rows"] else ""
        lines.append(f"The concept is not erased: most of what could be read before can still be read{where}.")
    elif decision["name"] == "leaks":
        lines.append(
            f"The concept leaks: the strongest adversary is {points}, the budget is {budget}, and luck does not "
            f"explain the difference (p = {leak['p_value']:.2g})."
        )
    elif decision["name"] == "erased":
        lines.append(
            f"The concept is erased: the strongest adversary is {points}, and its interval ends at "
            f"{leak['high'] * 100:.1f}, within the budget of {budget}."
        )
    else:
        lines.append(_too_few(decision, privacy["tested"]))
    if pair := privacy["worst_pair"]:
        first, second = map(shown, pair["classes"])
        apart = pair["accuracy"]
        lines.append(
            f"The worst pair of classes is {first} and {second}: {pair['adversary']} tells them apart in "
            f"{percent(apart['value'])} of rows ({percent(apart['low'])} to {percent(apart['high'])}, an interval for "
            "all pairs at once; chance is 50 %)."
        )
    if (sentence := _informed(report)) is not None:
        lines.append(sentence)
    if (want := want_of_rows(report)) is not None:
        halve = f" About {want.rows_to_halve:,} rows a class would halve it." if want.rows_to_halve else ""
        lines.append(
            f"Want of rows explains up to {want.share * 100:.0f} % of the leak: class-wise maps from about "
            f"{want.rows:,} rows a class in {report['about']['columns']:,} columns can leak "
            f"{want.expected * 100:.1f} points (an upper bound for methods whose classes share estimates).{halve}"
        )
    if "paper" in read:
        lines.append(
            "The strongest adversary taught on erased training rows (the paper's protocol) names "
            f"{percent(read['paper']['value'])} of unseen rows. The verdict rests on adversaries "
            "taught on unseen rows, as a real adversary would be."
        )
    if privacy["noise_floor"]:
        lines.append(
            "Exact maps of class means and covariances, estimated on the training rows, leave "
            f"{percent(privacy['noise_floor']['value'])} to be read: a leak near this figure comes from too few rows."
        )
    best = max(report["utility"]["reconstruction"], key=lambda r: r["r2"]["value"])
    lines.append(
        f"{percent(best['r2']['value'])} of the variance of the original rows can be read back from the erased rows "
        f"({percent(best['r2_within']['value'])} of the variance within classes)."
    )
    if report["task"]:
        was, now, trivial = (report["task"][kind] for kind in ("before", "after", "trivial"))
        lines.append(
            f"Downstream accuracy goes from {percent(was['accuracy']['value'])} to {percent(now['accuracy']['value'])} "
            f"(always the commonest label: {percent(trivial['accuracy']['value'])}); the gap in true positive rates "
            f"goes from {number(was['tpr_rms']['value'])} to {number(now['tpr_rms']['value'])}."
        )
    if report["counterfactuals"]:
        apart = max((m["two_sample"]["value"] for m in report["counterfactuals"]), key=lambda v: v or 0.0)
        lines.append(
            f"A classifier separates counterfactuals from real rows of their class in {percent(apart)} of cases (worst "
            "pair of classes; 50 % is chance)."
        )
    if copies := report["about"]["duplicates"]:
        lines.append(f"Copies: {copies['sentence']}.")
    if report["about"]["oracle"]:
        lines.append("This eraser requires labels: it erased the rows with true labels.")
    return lines


def _informed(report: Json) -> str | None:
    """What the informed adversary read beside the strongest uninformed one."""
    tried = {a["adversary"]: a["balanced_accuracy"] for a in report["privacy"]["attacks"] if a["protocol"] == "fresh"}
    if (informed := tried.pop(INFORMED, None)) is None:
        return None
    best = max(tried, key=lambda name: tried[name]["value"])
    return (
        "An informed adversary, who holds the model and asks its router about the inverse of each row, names "
        f"{percent(informed['value'])}; without the model the strongest, {best}, names {percent(tried[best]['value'])}."
    )


def _why_uninformed(about: Json) -> str:
    """Why no informed adversary tried."""
    if about["eraser"] == ELSEWHERE:
        return "rows erased elsewhere come without a model"
    return "the rows were erased with true labels" if about["oracle"] else "the eraser has no router or no inverse"


def _too_few(decision: Json, tested: int) -> str:
    """Why these rows settle nothing, and how many would."""
    leak, needed = decision["leak"], decision["rows_to_settle"]
    read = (
        f"There are too few rows to say: the strongest adversary is {leak['value'] * 100:.1f} points above chance, and "
        f"its interval ends at {leak['high'] * 100:.1f}, beyond the budget of {decision['max_leak'] * 100:g}."
    )
    if needed is not None:
        return f"{read} If the leak stays as it is, about {needed:,} unseen rows would settle it (now {tested:,})."
    return (
        f"{read} Luck alone can do as well on so few rows (p = {leak['p_value']:.2g}), but the figure exceeds the "
        "budget: more rows would sooner show a leak than erasure."
    )


def measurement_notes(report: Json) -> list[str]:
    """How the figures were measured; the first note names the eraser and its settings."""
    about, budget = report["about"], report["decision"]["max_leak"]
    settings = ", ".join(f"{k}={v}" for k, v in about["settings"].items())
    classes = ", ".join(f"{shown(c)} ({n:,})" for c, n in zip(about["classes"], about["class_counts"], strict=True))
    used = about["learn_rows"] + about["test_rows"]
    given = "." if about["fit_rows"] else " (not measured: no training rows were given)."
    groups = f" {about['groups']:,} groups of rows were never parted." if about["groups"] else ""
    scale = " Adversaries also see the norm and the largest entry of each row." if about["scale_features"] else ""
    return [
        f"{about['eraser']}({settings}), MUtE {about['mute']}, random_state={about['random_state']}, "
        f"{about['seconds']:.0f} s.",
        f"{about['rows']:,} unseen rows of {about['columns']} columns; {used:,} were used. Classes: {classes}.{groups}",
        "Fresh: the adversary learns on two thirds of the erased unseen rows and is tested on the third, three times, "
        f"so that every row is tested once. Paper: it learns on erased training rows{given} What is measured on one "
        f"cut only learns on {about['learn_rows']:,} unseen rows and is tested on {about['test_rows']:,}.",
        "Balanced accuracy is the mean recall of the classes. Each row is given to the class whose probability exceeds "
        f"its prior most.{scale}",
        '"Erased": the 95 % interval of the leak (balanced accuracy above chance) of the strongest fresh adversary '
        f"ends within the budget of {budget:g}.",
        '"Too few rows to say": the interval ends beyond the budget, but the leak itself is within it, or luck '
        "explains it (p > 0.001; the labels of the test rows are shuffled, and the strongest of the panel counts each "
        "time). "
        '"Not erased": at least half of the leak before erasure is left, on training rows too where they are given '
        '(one half of them teaches, the other half tests). "Leaks": everything between.',
        *([f"No informed adversary tried: {_why_uninformed(about)}."] if _informed(report) is None else []),
        "Intervals: the middle 95 % of bootstrap draws of the test rows.",
    ]


def markdown_of(report: Json) -> str:
    """The report as a Markdown page: summary first, how it was measured last."""
    title = escaped(f"Audit of {report['about']['eraser']}: {report['decision']['name']}")
    parts = [f"# {title}", bullets(summary_of(report)), *_next(report)]
    parts += [table.to_markdown() for table in tables_of(report)]
    return "\n\n".join([*parts, "## How it was measured", bullets(measurement_notes(report))]) + "\n"


def next_lines(report: Json) -> list[str]:
    """Causes of a leak and what to try next, as lines of text: each cause, then its steps with their commands."""
    lines = []
    for cause in advice(report):
        lines.append(f"Cause: {cause.sentence}")
        for step in cause.steps:
            lines += [f"Next: {step.sentence}", *([f"    {step.command}"] if step.command else [])]
    return lines


def _next(report: Json) -> list[str]:
    """The part of the Markdown page on what to do after the verdict."""
    parts = []
    for cause in advice(report):
        parts.append(escaped(cause.sentence))
        for step in cause.steps:
            # One line that does not begin with a fence cannot close the fence around it.
            code = [f"```\n{shown(step.command, _LONGEST_COMMAND)}\n```"] if step.command else []
            parts += [escaped(step.sentence), *code]
    return ["## What to do next", *parts] if parts else []


def tables_of(report: Json) -> list[Table]:
    """Every table of a report."""
    tables = [_attacks(report["privacy"]), *_utility(report["utility"])]
    if report["task"]:
        tables.append(_task(report["task"]))
    if report["counterfactuals"]:
        tables.append(_moves(report["counterfactuals"]))
    if proved := report.get("certificate"):
        table = certificate_table(proved)
        tables.append(replace(table, notes=[*certificate_sentences(proved), *table.notes]))
    return tables


def _attacks(privacy: Json) -> Table:
    columns = {
        "balanced_accuracy": "balanced accuracy", "accuracy": "accuracy", "auc": "area under curve",
        "information": "bits read",
    }  # fmt: skip
    pairs = privacy["worst_pair"] is not None
    ranked = sorted(privacy["attacks"], key=lambda a: -a["balanced_accuracy"]["value"])
    rows = [
        (a["adversary"], words, *(a[c] for c in columns), *([(a["worst_pair"] or {}).get("accuracy")] if pairs else []))
        for protocol, words in _TAUGHT.items()
        for a in ranked
        if a["protocol"] == protocol
    ]
    notes = [
        f"Chance: {number(privacy['chance'])} balanced, {number(privacy['majority'])} accuracy. The strongest of the "
        f"panel exceeds {number(privacy['null']['fresh'])} by luck once in 1,000 times; "
        f"p = {number(privacy['p_value']['fresh'])}."
    ]
    if privacy["on_fit_rows"]:
        notes.append(f"Taught and tested on training rows: {cell(privacy['on_fit_rows'])}.")
    if privacy["noise_floor"]:
        notes.append(f"Left by class means and covariances of the training rows: {cell(privacy['noise_floor'])}.")
    when = {"fresh": "after", "before": "before"}
    notes += [
        f"Description length {when[name]}: {code['bits']:,.0f} bits of {code['uniform_bits']:,.0f}."
        for name, code in privacy["code"].items()
    ]
    notes += [
        f"Mean discrepancy of the classes {when[name]}: {number(test['statistic'])}, p = {number(test['p_value'])}."
        for name, test in privacy["mmd"].items()
    ]
    if pairs:
        notes.append(
            "Worst pair: the two classes that the adversary tells apart best, balanced over the two (chance 0.500). "
            "Its interval holds for all pairs at once."
        )
    head = ("adversary", "erasure (taught on)", *columns.values(), *(["worst pair"] if pairs else []))
    return Table("What can be read", head, rows, notes, names=2)


def _utility(utility: Json) -> list[Table]:
    measured = {
        "Least squared error of any perfect eraser with these maps": utility["floor"],
        "Squared error in the sample, as in the paper": utility["paper_mse"],
        "Largest error there and back, in spreads": utility["round_trip"],
    }
    notes = [f"{words}: {cell(value)}." for words, value in measured.items() if value is not None]
    if utility["similarity"]:
        before, after = map(cell, utility["similarity"])
        notes.append(f"Correlation with human judgements of similarity: {before} before, {after} after.")
    rows = [(r["reader"], r["r2"], r["r2_within"], r["mse"]) for r in utility["reconstruction"]]
    near = [(f"nearest {o['share'] * 100:g} %", o["raw"], o["corrected"]) for o in utility["neighbours"]]
    return [
        Table("What can be read back", ("read back by", "R²", "R² within classes", "squared error"), rows, notes),
        Table("Neighbours kept", ("neighbours", "share kept", "above chance"), near),
    ]


def _task(task: Json) -> Table:
    head = {
        "accuracy": "accuracy", "tpr_rms": "gap in true positive rates", "demographic_parity": "demographic parity",
        "gap_correlation": "correlation of gap and share", "equalised_odds": "equalised odds",
        "worst_group": "worst class's accuracy",
    }  # fmt: skip
    words = {"before": "before erasure", "after": "after erasure", "trivial": "always the commonest label"}
    rows = [(words[kind], *(task[kind][c] for c in head)) for kind in words]
    note = "Always giving the commonest label is perfectly fair and useless: gaps count only beside accuracy."
    return Table("Task and fairness", ("predictor", *head.values()), rows, [note])


def _moves(moves: list[Json]) -> Table:
    head = {
        "routed": "taken for the target", "own": "real rows of the target", "two_sample": "separated from real rows",
        "plausibility": "near a real row", "displacement": "length of move", "translational": "same for all",
        "norm_ratio": "norm against real", "truth_cosine": "cosine to truth", "truth_distance": "distance to truth",
    }  # fmt: skip
    columns = [c for c in head if any(m[c] is not None for m in moves)]
    rows = [
        (f"{shown(m['source'])} → {shown(m['target'])}", f"{m['n_rows']:,}", *(m[c] for c in columns)) for m in moves
    ]
    note = "Good counterfactuals: separated from real rows 0.5 (chance), near a real row 0.95, norm against real 1."
    return Table("Counterfactuals", ("from → to", "rows", *(head[c] for c in columns)), rows, [note])


def comparison_table(reports: dict[str, Json]) -> Table:
    """Methods side by side: what the strongest adversary reads, then what is kept."""
    rows = []
    for name, report in reports.items():
        fresh, paper, about = strongest(report, "fresh") or {}, strongest(report, "paper"), report["about"]
        after = report["task"] and report["task"]["after"]
        read = fresh["adversary"], fresh["balanced_accuracy"], paper and paper["balanced_accuracy"]
        kept = kept_of(report), report["utility"]["neighbours"][-1]["corrected"]
        task = after and after["accuracy"], after and after["tpr_rms"]
        bits, seconds = report["privacy"]["information"]["fresh"]["value"], about.get("fit_seconds", about["seconds"])
        rows.append((name, report["decision"]["name"], *read, bits, *kept, *task, f"{seconds:,.1f}"))
    first = next(iter(reports.values()))
    head = (
        "method", "verdict", "strongest adversary", "it reads, unseen rows", "strongest, paper's protocol", "bits read",
        "R² kept", f"neighbours, nearest {first['utility']['neighbours'][-1]['share'] * 100:g} %", "task accuracy",
        "gap in true positive rates", "seconds",
    )  # fmt: skip
    notes = [f"Read: balanced accuracy of the strongest adversary; chance is {number(first['privacy']['chance'])}."]
    if first["task"]:
        was = first["task"]["before"]
        notes.append(f"Before erasure: task accuracy {cell(was['accuracy'])}, gap {cell(was['tpr_rms'])}.")
    return Table("Side by side", head, rows, notes, names=2)
