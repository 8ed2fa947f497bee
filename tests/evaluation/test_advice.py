"""The cause of a leak, from reports whose figures show one cause each, and the steps that follow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mute import MUtE, audit
from mute.errors import WeakResultWarning
from mute.evaluation.advice import advice, want_of_rows
from mute.evaluation.wording import markdown_of, next_lines

FILES = {"model": "my eraser.safetensors", "x": "people.parquet", "concept": "gender"}


def estimate(value: float) -> dict[str, float]:
    return {"value": value, "low": value - 0.01, "high": value + 0.01}


def made(reads: dict[str, float], **changes: Any) -> dict[str, Any]:
    """A report of MUtE in which adversaries read so much above chance, from plenty of training rows."""
    adversary = max(reads, key=reads.__getitem__)
    attacks = [
        {"adversary": name, "protocol": "fresh", "balanced_accuracy": estimate(0.5 + above)}
        for name, above in reads.items()
    ]
    about = {
        "eraser": "MUtE", "oracle": False, "layers": 12, "classes": ["a", "b"], "class_counts": [2000, 2000],
        "columns": 100, "learn_rows": 2000, "fit_rows": None, "training_rows": [10**7, 10**7], "settings": {},
    }  # fmt: skip
    privacy = {"chance": 0.5, "attacks": attacks, "on_fit_rows": None, "with_true_labels": None}
    for part in (about, privacy):
        part |= {name: value for name, value in changes.items() if name in part or name == "files"}
    return {
        "decision": {
            "name": changes.get("verdict", "leaks"),
            "leak": {"value": reads[adversary], "adversary": adversary},
            "max_leak": 0.02,
        },
        "privacy": privacy,
        "about": about,
        "routing": {"error": changes.get("error", 0.0)},
    }


BUDGET = "mute fit X_train.npy --concept z_train.npy --max-leak 0.02 -o new.safetensors"


def commands(report: dict[str, Any]) -> list[str]:
    return [step.command for cause in advice(report) for step in cause.steps if step.command]


def test_nothing_to_do_where_the_concept_is_erased() -> None:
    assert advice(made({"quadratic": 0.01}, verdict="erased")) == []


def test_too_few_rows() -> None:
    report = made({"quadratic": 0.2, "network": 0.15}, training_rows=[2000, 2000], files=FILES)
    (cause,) = advice(report)
    assert cause.name == "rows" and cause.leak == pytest.approx(0.2)
    assert "about 2,000 rows a class in 100 columns" in cause.sentence and "31,100 rows a class" in cause.sentence
    assert commands(report) == [
        "mute fit X_train.npy --concept z_train.npy --unlabelled X_more.npy -o new.safetensors",
        "mute erase 'my eraser.safetensors' people.parquet --adapt -o erased.parquet",
        BUDGET,
    ]
    assert "principal components" in cause.steps[2].sentence
    assert "eraser.adapt(" in " ".join(commands(made({"quadratic": 0.2}, training_rows=[2000, 2000])))


def test_wrong_routes() -> None:
    labelled = {"adversary": "boosting", "routed": estimate(0.65), "labelled": estimate(0.52)}
    report = made({"boosting": 0.15, "quadratic": 0.1}, with_true_labels=labelled, error=0.12, files=FILES)
    cause = advice(report)[0]
    assert cause.name == "routes" and "12.0%" in cause.sentence and "13.0 points less" in cause.sentence
    assert "mute erase 'my eraser.safetensors' people.parquet --concept gender -o erased.parquet" in commands(report)
    assert advice(made({"boosting": 0.15, "quadratic": 0.1}, with_true_labels=labelled))[0].name != "routes"


def test_shapes() -> None:
    report = made({"logistic": 0.0, "quadratic": 0.01, "boosting": 0.08}, files=FILES)
    (cause,) = advice(report)
    assert cause.name == "shapes" and "boosting reads 8.0 points" in cause.sentence
    more_layers = "mute fit X_train.npy --concept z_train.npy --iterations 24 -o new.safetensors"
    assert commands(report) == [more_layers, BUDGET]


def test_neighbours() -> None:
    (cause,) = advice(made({"neighbours": 0.12, "quadratic": 0.03}))
    assert cause.name == "neighbours" and "No smooth invertible map" in cause.sentence
    assert "adapt" in (cause.steps[0].command or "")


def test_a_map_that_does_not_erase() -> None:
    report = made({"logistic": 0.45}, eraser="rows erased elsewhere", training_rows=None)
    report["routing"] = None
    (cause,) = advice(report)
    assert cause.name == "map" and "leaves the classes different" in cause.sentence
    assert commands(report)[0] == "MUtE(random_state=0).fit(X_train, z_train)"


def test_the_largest_cause_comes_first_and_there_are_three_steps_and_the_budget() -> None:
    labelled = {"adversary": "kernel", "routed": estimate(0.7), "labelled": estimate(0.66)}
    report = made(
        {"kernel": 0.2, "quadratic": 0.12}, training_rows=[2000, 2000], with_true_labels=labelled, error=0.1
    )  # fmt: skip
    causes = advice(report)
    assert [cause.name for cause in causes] == ["rows", "neighbours", "routes"]
    assert sum(len(cause.steps) for cause in causes) == 3 + 1
    assert "max_leak=0.02" in (causes[0].steps[-1].command or "")
    report["about"]["settings"] = {"max_leak": "0.05"}  # the budget is spent already
    assert sum(len(cause.steps) for cause in advice(report)) == 3
    assert [cause.leak for cause in causes] == sorted((cause.leak for cause in causes), reverse=True)


def test_every_output_of_an_audit_has_the_same_advice() -> None:
    """Forty columns, 200 rows a class, no shrinkage: the noise of the maps leaks, and the report says so."""
    rng = np.random.default_rng(0)
    z = np.repeat([0, 1], 1200)
    X = rng.normal(size=(2400, 40)) + 3 * z[:, None]
    fit = np.arange(2400) % 6 == 0
    eraser = MUtE(2, shrinkage=False, router="logistic", diagnostics=False, random_state=0)
    with pytest.warns(WeakResultWarning, match="200 rows for 40 columns"):
        eraser.fit(X[fit], z[fit])
    report = audit(eraser, X[~fit], z[~fit], adversaries=["logistic", "quadratic"])
    assert report.verdict != "erased"
    assert any("Want of rows explains up to" in line and "would halve it" in line for line in report.summary)
    assert report.to_dict()["want_of_rows"]["rows"] == 200
    cause = report.next[0]
    assert cause.name == "rows"
    named = report.with_files(model="m.safetensors", x="X.npy", concept="z.npy")
    assert named.to_dict()["next"][0]["steps"][1]["command"] == "mute erase m.safetensors X.npy --adapt -o erased.npy"
    for text in (named.to_markdown(), "\n".join(next_lines(named.to_dict())), named._repr_html_()):
        assert "too few training rows" in text and "mute erase m.safetensors X.npy --adapt" in text
    assert "What to do next" in markdown_of(report.to_dict())
    pytest.importorskip("plotly")
    assert "mute erase m.safetensors X.npy --adapt" in named.to_html()


def test_the_share_that_want_of_rows_explains() -> None:
    """2,000 rows a class in 100 columns: the closed form says half of the leak, or more than there is."""
    training = [2000, 2000]
    expected = want_of_rows(made({"quadratic": 0.9}, training_rows=training)).expected
    half = want_of_rows(made({"quadratic": 2 * expected}, training_rows=training))
    assert half.share == pytest.approx(0.5) and half.rows == 2000
    assert want_of_rows(made({"quadratic": expected / 3}, training_rows=training)).share == 1.0
    halved = want_of_rows(made({"quadratic": 0.9}, training_rows=[half.rows_to_halve] * 2))
    assert halved.expected == pytest.approx(expected / 2, rel=0.01) and half.rows_to_halve > 2000


def test_want_of_rows_is_said_only_of_class_wise_maps() -> None:
    report = made({"quadratic": 0.2}, training_rows=[2000, 2000])
    assert want_of_rows({**report, "routing": None}) is None
    assert want_of_rows(made({"quadratic": 0.2}, training_rows=None)) is None
    assert want_of_rows(made({"quadratic": 0.01}, training_rows=[2000, 2000], verdict="erased")) is None
