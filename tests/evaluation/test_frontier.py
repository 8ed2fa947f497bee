"""The frontier: leak and R² of each method along the shares that a channel keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mute
from mute import BudgetNotMet, MuteError
from mute.evaluation.frontier import Frontier, frontier

SHARES = (0.9, 0.6, 0.3, 0.1)


@pytest.fixture(autouse=True)
def small_panel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two adversaries: the mathematics is the same, and the tests take seconds."""
    for module in ("budget.search", "evaluation.frontier"):
        monkeypatch.setattr(f"mute.{module}.JUDGES", ("logistic", "quadratic"))


@pytest.fixture(scope="module")
def data() -> tuple[Any, ...]:
    """2,000 rows of two classes, whose means lie two spreads apart, and a task in another column."""
    rng = np.random.default_rng(0)
    z = np.repeat(["a", "b"], 1000)
    X = rng.normal(size=(2000, 4))
    X[:, 0] += 2 * (z == "b")
    return X, z, np.where(X[:, 1] > 0, "nurse", "judge")


@pytest.fixture
def found(data: tuple) -> Frontier:
    X, z, y = data
    return frontier(X, z, task=y, methods="none,leace", families="noise", shares=SHARES, max_leak=0.1)


def test_less_is_read_and_less_is_kept_along_the_shares(found: Frontier) -> None:
    """Noise that keeps the share a of every axis leaves the share a of the variance to a linear reader.

    The tolerance of R² is four standard errors of the correlation of 1,300 test rows. Leaks fall within the half-width
    of their intervals.
    """
    for method in ("none", "leace"):
        lossless, *points = found.points[method]
        assert (lossless["family"], lossless["share"]) == ("lossless", 1.0)
        assert [p["share"] for p in points] == list(SHARES)
        for before, after in zip([lossless, *points], points, strict=False):
            assert after["r2"] == pytest.approx(after["share"] * lossless["r2"], abs=0.05)
            assert after["leak"]["value"] < before["leak"]["value"] + (after["leak"]["high"] - after["leak"]["value"])
            assert after["task_accuracy"]["value"] < before["task_accuracy"]["value"] + 0.03
    none = found.points["none"]
    # Means that lie two spreads apart are told apart in 84 % of cases; the standard error is 0.01.
    assert none[0]["leak"]["value"] == pytest.approx(0.34, abs=0.04) and none[0]["r2"] > 0.999
    assert none[-1]["leak"]["value"] < 0.2


def test_the_chosen_point_keeps_the_budget_and_most_of_the_rows(found: Frontier) -> None:
    rows = [row for row in found.rows() if row["method"] == "leace"]
    (chosen,) = (row for row in rows if row["chosen"])
    assert chosen["leak"]["high"] <= 0.1
    assert chosen["r2"] == max(row["r2"] for row in rows if row["leak"]["high"] <= 0.1)
    assert all(row["within"] == (row["leak"]["high"] <= 0.1) for row in rows)
    assert found.chosen("leace")["share"] == chosen["share"]


def test_no_point_is_chosen_where_none_keeps_the_budget(data: tuple) -> None:
    X, z, _ = data
    found = frontier(X, z, methods="none", families="noise", shares=[0.9], max_leak=0.05)
    assert found.chosen("none") is None and not any(row["chosen"] for row in found.rows())
    assert "none of 2 measured points keeps the budget of 5 points" in found.to_markdown()
    assert all(row["task_accuracy"] is None for row in found.rows())


def test_an_interrupted_run_continues(data: tuple, tmp_path: Path, sabotage: Any) -> None:
    """The same points as without an interruption; finished methods are not measured again, also for another budget."""
    X, z, y = data
    options: dict[str, Any] = {"task": y, "families": ["components"], "shares": [0.5], "max_leak": 0.1}
    whole = frontier(X, z, methods="none,leace", **options)
    sabotage("stopped", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        frontier(X, z, methods="none,stopped,leace", folder=tmp_path, **options)
    assert [path.name.partition("-")[0] for path in tmp_path.iterdir()] == ["none"]
    sabotage("none", RuntimeError("measured again"))
    continued = frontier(X, z, methods="none,leace", folder=tmp_path, **options)
    assert continued.to_dict() == whole.to_dict()
    assert not frontier(X, z, methods="none", folder=tmp_path, **{**options, "max_leak": 0.2}).failures
    other = frontier(X, z, methods="none", folder=tmp_path, **{**options, "shares": [0.4]})
    assert other.failures == {"none": "RuntimeError: measured again"}, "other shares are other points"


def test_a_failure_does_not_stop_the_others(data: tuple, sabotage: Any) -> None:
    X, z, _ = data
    sabotage("broken", RuntimeError("no such luck"))
    found = frontier(X, z, methods="broken,leace", families="noise", shares=[0.5], max_leak=0.1)
    assert list(found.points) == ["leace"] and found.failures == {"broken": "RuntimeError: no such luck"}
    assert "broken failed: RuntimeError: no such luck" in found.to_markdown()


def test_rows_of_one_group_are_on_one_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of a row give its class away if they are on both sides of a split.

    Groups of ten copies have classes by chance. The standard error of the leak of 200 groups is 0.035.
    """
    monkeypatch.setattr("mute.budget.search.JUDGES", ("narrow kernel",))
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(200), 10)
    X = rng.normal(size=(200, 6))[groups] + 1e-3 * rng.normal(size=(2000, 6))
    z = rng.integers(2, size=200)[groups]
    options: dict[str, Any] = {"methods": "none", "families": "noise", "shares": [0.9], "max_leak": 0.1}
    apart, together = (frontier(X, z, groups=g, **options) for g in (groups, None))
    assert apart.points["none"][0]["leak"]["value"] < 0.15
    assert together.points["none"][0]["leak"]["value"] > 0.4
    assert apart.about["groups"] == 200


def test_reports(found: Frontier, tmp_path: Path) -> None:
    written = json.loads(found.to_json(tmp_path / "f.json"))
    assert written == json.loads((tmp_path / "f.json").read_text()) == json.loads(json.dumps(found.to_dict()))
    assert len(written["rows"]) == 2 * (1 + len(SHARES))
    table = found.to_markdown(tmp_path / "f.md").partition("## Leak and what is kept")[2]
    assert table.count("\n| none | noise |") == table.count("\n| leace | noise |") == len(SHARES)
    assert table.count(" chosen |") == 1, "of leace; none keeps no budget"


def test_the_page_holds_all_points(found: Frontier, tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    pytest.importorskip("jinja2")
    page = found.to_html(tmp_path / "f.html")
    assert page == (tmp_path / "f.html").read_text() and page.count("<tr>") == 1 + len(found.rows())
    plots, _ = json.JSONDecoder().raw_decode(page, page.index("const plots = ") + len("const plots = "))
    assert len(plots) == 2
    for row in found.rows():
        for plot, x in zip(plots, (row["r2"], row["task_accuracy"]["value"]), strict=True):
            lines = [t for t in plot["data"] if t["name"] == row["method"] and t["mode"] == "lines+markers"]
            assert any((x, row["leak"]["value"]) in zip(t["x"], t["y"], strict=True) for t in lines)


def test_progress_goes_from_nothing_to_all(data: tuple) -> None:
    X, z, _ = data
    seen: list[tuple[str, float]] = []
    frontier(
        X, z, methods="none,mute-20", families="noise", shares=[0.5], max_leak=0.1,
        progress=lambda what, share: seen.append((what, share)),
    )  # fmt: skip
    shares = [share for _, share in seen]
    assert shares == sorted(shares) and shares[0] == 0 and 0.9 > shares[-1] > 0.5
    assert ("none: noise, share 0.5", pytest.approx(0.3)) in seen
    assert any(what.startswith("mute-20: fit, layer") for what, _ in seen)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"families": "noise,wibble"},
            "families must be some of noise, noise by worth, components, one bit, not 'wibble'",
        ),
        ({"families": []}, "families must be some of"),
        ({"shares": [0.5, 1.0]}, "each of shares must be a number between 0 and 1, not 1.0"),
        ({"shares": []}, "shares is empty"),
        ({"max_leak": 0}, "max_leak must be a number between 0 and 1, not 0"),
        ({"methods": "none,farm:wibble"}, "FaRM has no preset 'wibble'"),
        ({"methods": "taco-task"}, "learns from the labels of a task"),
        ({"task": ["yes"] * 400}, "task has one label only"),
        ({"z": ["f"] * 400}, "only one class, 'f'"),
        ({"z": ["f"] * 380 + ["m"] * 20}, "class 'm' has 10 row\\(s\\) in each half of the rows"),
        ({"groups": [1, 2]}, "groups"),
    ],
)
def test_what_no_method_could_use_is_refused_before_the_first(
    options: dict[str, Any], message: str, tmp_path: Path, sabotage: Any
) -> None:
    sabotage("none", AssertionError("fitted"))
    X, z = np.random.default_rng(0).normal(size=(400, 3)), np.repeat(["f", "m"], 200)
    with pytest.raises(MuteError, match=message):
        frontier(X, **{"z": z, "methods": "none", "max_leak": 0.1, "folder": tmp_path / "parts", **options})
    assert not (tmp_path / "parts").exists()


def test_too_few_rows_for_the_budget() -> None:
    X, z = np.random.default_rng(0).normal(size=(400, 3)), np.repeat(["f", "m"], 200)
    with pytest.raises(BudgetNotMet, match=r"a budget of 0\.03 needs at least 1,068 rows"):
        frontier(X, z, methods="none")


def test_it_is_public() -> None:
    assert mute.frontier is frontier
