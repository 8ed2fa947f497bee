"""The study of the leak budget."""

import pytest

import mute
from mute.paper import Plan, running, write_page
from mute.paper.budgets import BUDGETS, FRONTIER, budget_jobs, frontier_of, spent
from mute.paper.budgets_page import budget_values
from mute.paper.fresh import rows_to_fit
from mute.paper.problems import problem

pytestmark = pytest.mark.filterwarnings("ignore::mute.errors.WeakResultWarning")


def test_jobs_of_the_study():
    jobs = budget_jobs({"glove": 13_998, "word2vec": 900}, 3, False)
    assert [job["seed"] for job in jobs if job["job"] == "budget"] == [0, 1, 2] * 2
    curves = [job for job in jobs if job["job"] == "frontier"]
    assert {job["label"] for job in curves} == set(FRONTIER["glove"]) and {job["rows"] for job in curves} == {6000}
    assert set(BUDGETS) == {"glove", "bios", "word2vec", "jigsaw"}
    assert not [job for job in Plan().jobs(["glove"]) if job["job"] in ("budget", "frontier")]


def test_a_data_set_is_spent_on_and_certified(prepared, monkeypatch):
    monkeypatch.setattr("mute.budget.search.JUDGES", ("quadratic", "logistic"))
    monkeypatch.setitem(mute.audit.__kwdefaults__, "adversaries", ["quadratic", "logistic"])
    data = problem("bios", most_rows=800)
    found = spent(data, {"rows": rows_to_fit(data, True), "seed": 0}, True)
    assert found["verdict"] != "budget not met"
    assert found["low"] <= found["leak"] <= found["high"] and found["promised_high"] <= found["max_leak"]
    # A certificate bounds from above what the cells show, so it cannot be nothing with so few rows.
    assert 0.03 < found["certified"] < 0.5
    assert found["cells"]["covers"] == "every adversary" and found["cells"]["leak"] < found["cells"]["certified"] + 0.05


def test_a_method_that_fails_is_a_failure_of_its_job(prepared):
    data = problem("bios", most_rows=800)
    job = {"rows": rows_to_fit(data, True), "seed": 0, "label": "taco-task"}
    with pytest.raises(Exception, match="task"):
        frontier_of(data, job, True)


def line(problem, seed, **more):
    result = {
        "max_leak": 0.05, "rows": 6000, "verdict": "erased", "leak": 0.03, "low": 0.02, "high": 0.04, "r2": 0.3,
        "promised": 0.03, "certified": 0.06, "family": "noise", "cells": {"certified": 0.02, "leak": 0.0, "r2": 0.01},
    }  # fmt: skip
    return {"job": "budget", "problem": problem, "seed": seed, "result": {**result, **more}}


def curve(label, *points):
    made = [{"r2": r2, "leak": {"value": leak, "low": leak - 0.01, "high": leak + 0.01}} for r2, leak in points]
    result = {"points": made, "chosen": made[-1] if points[-1][1] < 0.04 else None, "max_leak": 0.05}
    return {"job": "frontier", "problem": "glove", "label": label, "seed": 0, "result": result}


def test_what_the_page_says(tmp_path):
    broken = line("word2vec", 0, leak=0.09, low=0.07, high=0.11, verdict="leaks")
    refused = {"job": "budget", "problem": "bios", "seed": 0, "result": {
        "max_leak": 0.03, "rows": 900, "verdict": "budget not met", "cells": {"certified": 0.1, "leak": 0.0, "r2": 0.0},
    }}  # fmt: skip
    curves = [curve("leace", (0.95, 0.5), (0.1, 0.03)), curve("mute", (0.9, 0.2), (0.3, 0.03)), curve("none", (1, 0.6))]
    values = budget_values([line("glove", 0), line("glove", 1, leak=0.05), broken, refused, *curves], tmp_path)
    assert values["kept"] == (2, 3)
    titles = [row[0] for row in values["spent"]]
    assert titles == ["words", "sentences", "other words"]
    assert values["spent"][0][3] == "2 erased" and values["spent"][0][4].startswith("0.040 ± ")
    assert values["spent"][1][3] == "1 budget not met" and values["spent"][1][4] == "–"
    # The method that keeps most within the budget first; one without a point within it last.
    assert [row[1] for row in values["frontier"]] == ["MUtE", "LEACE", "noise alone"]
    assert values["frontier"][0][4:] == ("0.30", "0.030") and values["frontier"][2][4] == "–"
    assert (tmp_path / "budget-frontier.png").stat().st_size > 10_000


def test_a_page_of_the_study(prepared, tmp_path, monkeypatch):
    def result(job, plan):
        made = line(job["problem"], 0) if job["job"] == "budget" else curve(job["label"], (0.9, 0.2), (0.3, 0.03))
        return made["result"]

    monkeypatch.setattr(running, "_result", result)
    found = running.run(Plan(("budget",), quick=True), tmp_path)
    page = write_page(found, tmp_path).read_text()
    assert "mute paper budget -o FOLDER --quick" in page and "in 3 of 3 runs" in page
    assert "| sentences | 6,000 | 0.05 | 1 erased |" in page
