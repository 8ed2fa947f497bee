"""An adversary who holds the model reads what its inverse betrays, and no more than others where it betrays nothing."""

import numpy as np
import pytest

from betraying import Marked, rows
from mute import MUtE, audit
from mute.adversaries.informed import would_be_routed

PANEL = ["logistic", "quadratic", "neighbours", "narrow kernel", "boosting"]


def test_preimages_that_betray_the_route() -> None:
    report = audit(Marked(), *rows(), adversaries=PANEL)
    reads = {a.adversary: a.balanced_accuracy.value for a in report.privacy.attacks if a.protocol == "fresh"}
    assert reads.pop("informed") > 0.99
    # 4,000 rows: three standard errors of a guess are 2.4 points.
    assert max(reads.values()) < 0.53
    assert report.leak.adversary == "informed" and report.verdict == "not erased"
    assert any(line.startswith("An informed adversary, who holds the model") for line in report.summary)
    assert report.next[0].name == "model"


def test_preimages_that_betray_nothing() -> None:
    report = audit(Marked(marks=False), *rows(), adversaries=["logistic"], max_leak=0.05)
    assert {a.adversary for a in report.privacy.attacks if a.protocol == "fresh"} == {"logistic", "informed"}
    assert report.verdict == "erased"


def test_the_true_route_is_always_possible() -> None:
    rng = np.random.default_rng(0)
    z = np.repeat([0, 1, 2], 400)
    X = rng.normal(size=(1200, 3)) + 2 * np.eye(3)[z]
    eraser = MUtE(3, diagnostics=False, random_state=0).fit(X, z)
    answers = would_be_routed(eraser, eraser.transform(X))
    routes = eraser.route(X)
    # A column of zeros and ones and one of probabilities for each class, in this order.
    assert answers.shape == (1200, 6)
    assert all(answers[routes == k, k * 2].mean() > 0.999 for k in range(3))


@pytest.mark.parametrize("how", ["elsewhere", "true labels", "no inverse"])
def test_left_out_and_said_so(how: str) -> None:
    X, z = rows(400)
    one_way = type("OneWay", (Marked,), {"inverse_transform": property()})()

    match how:
        case "elsewhere":
            report, reason = audit(Marked().transform(X), X, z, adversaries=["logistic"]), "come without a model"
        case "true labels":
            report, reason = audit(Marked(), X, z, adversaries=["logistic"], oracle=True), "with true labels"
        case _:
            report, reason = audit(one_way, X, z, adversaries=["logistic"]), "no router or no inverse"
    assert all(a.adversary != "informed" for a in report.privacy.attacks)
    assert "No informed adversary tried" in report.to_markdown() and reason in report.to_markdown()
