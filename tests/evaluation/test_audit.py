"""The audit on cases whose verdict is known."""

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.preprocessing import FunctionTransformer

from mute import Histogram, MUtE, audit
from mute.adversaries.estimates import Estimate
from mute.errors import MuteError
from mute.estimators.registry import METHODS
from mute.evaluation.audit import verdict_of
from mute.evaluation.compare import compare
from mute.evaluation.rows import Rows

QUICK = ["logistic", "quadratic", "boosting"]
# 1,000 training rows a class in 5 columns leak about two points, and 2,000 unseen rows see them: within this budget.
ROOMY = 0.1


def noise(seed: int, n: int = 3000, d: int = 10) -> tuple[Any, NDArray, NDArray]:
    rng = np.random.default_rng(seed)
    return FunctionTransformer(), rng.normal(size=(n, d)), rng.integers(2, size=n)


def separable(seed: int, n: int = 3000, d: int = 10) -> tuple[Any, NDArray, NDArray]:
    eraser, X, z = noise(seed, n, d)
    X[:, 0] += 4 * z
    return eraser, X, z


def two_laws(n: tuple[int, int], seed: int, d: int = 40) -> tuple[NDArray, NDArray]:
    """Two classes with other means, covariances and shapes: skewed, and with heavy tails."""
    mixing = np.random.default_rng(99).normal(size=(2, d, d)) / np.sqrt(d) + np.eye(d)
    rng = np.random.default_rng(seed)
    first = (rng.exponential(size=(n[0], d)) - 1) @ mixing[0]
    second = rng.standard_t(6, size=(n[1], d)) @ mixing[1] + 0.5
    return np.concatenate([first, second]), np.repeat([0, 1], n)


def memorised(seed: int) -> tuple[MUtE, NDArray, NDArray, tuple[NDArray, NDArray]]:
    """The paper's histogram on 300 and 6,000 rows: exact where it was fitted, and nowhere else."""
    X_fit, z_fit = two_laws((300, 6000), seed)
    paper = Histogram(bins=1000, alpha=1e-10, floor="add")
    eraser = MUtE(40, router=None, shrinkage=False, marginal=paper, diagnostics=False, random_state=seed)
    with pytest.warns(match="300 rows for 40 columns"):
        eraser.fit(X_fit, z_fit)
    X, z = two_laws((3000, 3000), seed + 1000)
    return eraser, X, z, (X_fit, z_fit)


def judge_memorised(seed: int, adversaries: Any) -> Any:
    eraser, X, z, fit_rows = memorised(seed)
    return audit(eraser, X, z, fit_rows=fit_rows, adversaries=adversaries, random_state=seed)


def test_noise_is_erased() -> None:
    eraser, X, z = noise(0)
    # 3,000 rows: the interval is 1.8 points wide on either side, and the strongest of eight is lucky by one or two.
    report = audit(eraser, X, z, fit_rows=(X[:1000] + 0.0, z[:1000]), max_leak=0.06)
    assert report.verdict == "erased" and report.leak.high <= 0.06
    assert report.privacy.information["fresh"].value < 0.02
    assert report.privacy.code["fresh"].bits == pytest.approx(report.privacy.code["fresh"].uniform_bits, rel=0.05)
    assert report.privacy.mmd["fresh"].p_value > 0.001


def test_separable_rows_are_not_erased() -> None:
    eraser, X, z = separable(0)
    report = audit(eraser, X, z, adversaries=QUICK)
    assert report.verdict == "not erased"
    # Phi(2) = 0.977 is the best any adversary can do.
    assert report.leak.value == pytest.approx(0.477, abs=0.02)
    assert report.leak.low < report.leak.value < report.leak.high
    assert report.decision.kept["fresh"] == pytest.approx(1.0, abs=0.03)


def test_fresh_finds_what_the_papers_protocol_does_not() -> None:
    report = judge_memorised(0, "all")
    assert report.verdict == "leaks"
    found = {(a.protocol, a.adversary): a for a in report.privacy.attacks}
    assert max(a.balanced_accuracy.value for a in report.privacy.attacks if a.protocol == "fresh") > 0.85
    # The paper's own probe, on as many test rows of each class: two standard errors are two points.
    assert found["paper", "network"].accuracy.value < 0.53
    # The norms of the small class spread more, which boosting sees: 0.65, where 0.75 is half of what was there.
    assert report.privacy.on_fit_rows.value < 0.72


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_the_verdict_never_flips(seed: int) -> None:
    for make, verdict in ((noise, "erased"), (separable, "not erased")):
        eraser, X, z = make(seed)
        assert audit(eraser, X, z, max_leak=0.06, random_state=seed).verdict == verdict
    assert judge_memorised(seed, "all").verdict == "leaks"


@pytest.mark.parametrize("seed", range(3))
def test_verdicts_of_other_seeds(seed: int) -> None:
    for make, verdict in ((noise, "erased"), (separable, "not erased")):
        eraser, X, z = make(seed)
        assert audit(eraser, X, z, adversaries=QUICK, max_leak=0.06, random_state=seed).verdict == verdict


def test_a_few_rows_are_never_called_erased() -> None:
    """This was seen as `erased`: luck may explain p = 0.0025, but the whole interval lies above chance."""
    rng = np.random.default_rng(24)
    z = np.repeat(np.arange(10), 32)
    X = rng.normal(size=(320, 6)) + 0.28 * rng.normal(size=(10, 6))[z]
    report = audit(FunctionTransformer(), X, z, adversaries=["logistic", "quadratic"], random_state=24)
    assert 0.001 < report.leak.p_value < 0.01 and report.leak.low > 0
    assert report.verdict == "too few rows to say"
    assert report.decision.rows_to_settle is None and "more rows would sooner show a leak" in report.summary[1]
    assert not report.next
    assert "too few rows to say" in report.to_markdown() and "Too few rows to say" in report.to_html()


def test_how_many_rows_would_settle_it() -> None:
    """Twice the half-width that there is room for: four times the rows."""
    eraser, X, z = noise(0, n=1000)
    report = audit(eraser, X, z, adversaries=["logistic"])
    leak, needed = report.leak, report.decision.rows_to_settle
    assert report.verdict == "too few rows to say" and leak.value < 0.02 < leak.high
    assert needed == pytest.approx(1000 * ((leak.high - leak.value) / (0.02 - leak.value)) ** 2, rel=0.01)
    assert f"about {needed:,} unseen rows would settle it (now 1,000)" in report.summary[1]
    assert json.loads(report.to_json())["decision"]["rows_to_settle"] == needed


@pytest.mark.parametrize(
    ("value", "half_width", "p_value", "verdict"),
    [
        (0.010, 0.009, 0.0005, "erased"),  # a leak that is there, and within the budget
        (0.010, 0.011, 0.5, "too few rows to say"),
        (0.019, 0.002, 0.0005, "too few rows to say"),
        (0.100, 0.090, 0.0035, "too few rows to say"),  # luck explains it
        (0.100, 0.050, 0.0005, "leaks"),
        (0.300, 0.010, 0.0005, "not erased"),
    ],
)
def test_the_interval_decides(value: float, half_width: float, p_value: float, verdict: str) -> None:
    def attack(protocol: str, above: float) -> Any:
        read = Estimate(0.5 + above, 0.5 + above - half_width, 0.5 + above + half_width)
        return SimpleNamespace(protocol=protocol, adversary="logistic", balanced_accuracy=read)

    read = SimpleNamespace(
        attacks=(attack("fresh", value), attack("before", 0.45)), chance=0.5, p_value={"fresh": p_value},
        on_fit_rows=None, tested=1000,
    )  # fmt: skip
    assert verdict_of(read, 0.02).name == verdict


@pytest.fixture(scope="module")
def fitted() -> tuple[MUtE, NDArray, NDArray, NDArray]:
    rng = np.random.default_rng(0)
    z = np.repeat(["f", "m"], 2000)
    y = np.where(rng.random(4000) < np.where(z == "m", 0.7, 0.3), "doctor", "nurse")
    X = rng.normal(size=(4000, 5))
    X[:, 0] += 8 * (z == "m")  # so far apart that the router errs nowhere: what is erased is erased
    X[:, 1] += 2 * (y == "doctor")
    fit = rng.permutation(4000) < 2000
    eraser = MUtE(6, random_state=0).fit(X[fit], z[fit])
    return eraser, X, np.stack([z, y]), fit


def test_every_part_of_a_report(fitted: tuple) -> None:
    eraser, X, (z, y), fit = fitted
    seen: list[tuple[str, float]] = []
    report = audit(
        eraser, X[~fit], z[~fit], task=y[~fit], fit_rows=(X[fit], z[fit]), adversaries=QUICK, max_leak=ROOMY,
        progress=lambda name, share: seen.append((name, share)),
    )  # fmt: skip
    shares = [share for _, share in seen]
    assert shares == sorted(shares) and shares[-1] == 1.0
    assert report.verdict == "erased"
    # The class shifts one column; what is left of the task's signal is in another.
    assert report.task.before.accuracy.value > report.task.trivial.accuracy.value + 0.2
    assert report.task.after.accuracy.value > report.task.trivial.accuracy.value + 0.2
    assert report.utility.round_trip < 1e-6
    assert {m.source for m in report.counterfactuals} == {"f", "m"}
    assert report.layers[0][0] == 0 and report.layers[-1][0] == 6
    assert report.layers[0][1] > 0.85 > report.layers[-1][1]
    plain = json.loads(report.to_json())
    assert plain["decision"]["name"] == report.verdict
    attacks = plain["privacy"]["attacks"]
    assert {(a["protocol"], a["adversary"]) for a in attacks} == {
        (protocol, name) for protocol in ("fresh", "before", "paper") for name in QUICK
    } | {("fresh", "informed")}
    assert len(attacks) == 10 and attacks[0]["adversary"] == report.leak.adversary
    for protocol in ("fresh", "before", "paper"):
        read = [a["balanced_accuracy"]["value"] for a in attacks if a["protocol"] == protocol]
        assert read == sorted(read, reverse=True), "the strongest adversary comes first"
    assert "guesses" not in plain["privacy"]["attacks"][0]
    text = report.to_markdown()
    assert all(line in text for line in report.summary)
    assert "<b>MUtE: erased</b>" in report._repr_html_()


def test_same_seed_same_report(fitted: tuple) -> None:
    eraser, X, (z, _), fit = fitted
    reports = [audit(eraser, X[~fit], z[~fit], adversaries=QUICK, random_state=3).to_dict() for _ in range(2)]
    for report in reports:
        report["about"].pop("seconds")
    assert reports[0] == reports[1]


def test_rows_erased_elsewhere(fitted: tuple) -> None:
    eraser, X, (z, _), fit = fitted
    new, seen = X[~fit], X[fit]
    report = audit(
        eraser.transform(new), new, z[~fit], fit_rows=(seen, z[fit], eraser.transform(seen)), adversaries=QUICK,
        max_leak=ROOMY,
    )  # fmt: skip
    assert report.verdict == "erased"
    assert report.counterfactuals is None and report.about["eraser"] == "rows erased elsewhere"


def test_an_oracle_is_given_the_labels_and_says_so(fitted: tuple) -> None:
    _, X, (z, _), fit = fitted
    eraser = MUtE(6, router=None, diagnostics=False, random_state=0).fit(X[fit], z[fit])
    report = audit(eraser, X[~fit], z[~fit], adversaries=QUICK)
    assert report.about["oracle"]
    assert any("true labels" in line for line in report.summary)


def test_most_rows_bounds_the_work(fitted: tuple) -> None:
    eraser, X, (z, _), fit = fitted
    report = audit(eraser, X[~fit], z[~fit], adversaries=["logistic"], most_rows=500)
    assert report.about["learn_rows"] + report.about["test_rows"] == pytest.approx(500, abs=3)
    assert report.about["rows"] == 2000


def bad(what: str, fitted: tuple) -> Any:
    eraser, X, (z, _), fit = fitted
    X, z = X[~fit], z[~fit]
    match what:
        case "rows of the fit":
            return audit(eraser, fitted[1][fit], fitted[2][0][fit])
        case "one class":
            return audit(eraser, X[z == "f"], z[z == "f"])
        case "few rows":
            rows = np.append(np.flatnonzero(z == "f"), np.flatnonzero(z == "m")[:5])
            return audit(eraser, X[rows], z[rows])
        case "labels of another length":
            return audit(eraser, X, z[:-1])
        case "task of another length":
            return audit(eraser, X, z, task=z[:-1])
        case "no eraser":
            return audit("gender.safetensors", X, z)
        case "erased rows of another length":
            return audit(X[:-1], X, z)
        case "fit_rows":
            return audit(eraser, X, z, fit_rows=(X, z, X))
        case "width of the fit":
            return audit(eraser, X, z, fit_rows=(X[:, :2], z))
        case "max_leak":
            return audit(eraser, X, z, max_leak=2.0)
        case "adversary":
            return audit(eraser, X, z, adversaries=["psychic"])
        case "truth":
            return audit(eraser, X, z, adversaries=["logistic"], truth=(np.arange(3), ["f"] * 2, X[:3]))
        case "mask of truth":
            return audit(eraser, X, z, truth=(np.arange(3) < 2, ["f"] * 2, X[:2]))
        case "width of the truth":
            return audit(eraser, X, z, truth=(np.arange(3), ["f"] * 3, X[:3, 1:]))
        case "words":
            return audit(eraser, X, z, words=["w"] * 3, pairs=[("w", "w", 1.0)])
        case "most_rows":
            return audit(eraser, X, z, most_rows=20)
        case "gap in the rows":
            return audit(eraser, np.where(np.arange(len(X))[:, None] == 7, np.nan, X), z)
        case "not finite":
            return audit(FunctionTransformer(lambda x: x * np.nan), X, z)
    raise AssertionError(what)


def test_truth_may_be_a_mask(fitted: tuple) -> None:
    eraser, X, (z, _), fit = fitted
    rows = Rows(eraser, X[~fit], z[~fit], None, None, None, 20_000, np.random.default_rng(0))
    places = np.arange(2000) % 3 == 0
    rest = np.where(z[~fit] == "f", "m", "f")[places], X[~fit][places]
    for mask, index in zip(rows.truth((places, *rest)), rows.truth((np.flatnonzero(places), *rest)), strict=True):
        assert np.array_equal(mask, index)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("rows of the fit", "very rows that the eraser was fitted on"),
        ("one class", "one class only \\('f'\\)"),
        ("few rows", "class 'm' has 5 row"),
        ("labels of another length", "1999"),
        ("task of another length", "task"),
        ("no eraser", "cannot audit 'gender.safetensors'"),
        ("erased rows of another length", "\\(1999, 5\\), but there are 2000 rows"),
        ("fit_rows", "fit_rows must be \\(X_fit, z_fit\\), not tuple of 3"),
        ("width of the fit", "X_fit has 2 columns, X has 5"),
        ("max_leak", "max_leak must lie between 0 and 1, not 2.0"),
        ("adversary", "'psychic'"),
        ("truth", "truth has 3 rows, 2 targets"),
        ("mask of truth", "the mask of truth has 3 labels for 2000 rows"),
        ("width of the truth", "X_cf of truth has 4 columns, X has 5"),
        ("words", "there are 3 words for 2000 rows"),
        ("most_rows", "most_rows is 20, which leaves 12 row"),
        ("not finite", "FunctionTransformer.transform gave contains NaN"),
        ("gap in the rows", "X contains NaN in 1 row \\(row 7\\)"),
    ],
)
def test_bad_input(what: str, message: str, fitted: tuple) -> None:
    with pytest.raises(MuteError, match=message):
        bad(what, fitted)


def test_comparison_resumes_and_survives_a_failure(fitted: tuple, tmp_path: Any, sabotage: Any) -> None:
    _, X, (z, y), _ = fitted
    sabotage("broken", RuntimeError("no such luck"))
    options = {
        "task": y,
        "folder": tmp_path,
        "adversaries": ["logistic"],
        "max_leak": ROOMY,
        "methods": "none,broken,mute-20",
    }
    first = compare(X, z, **options)
    assert list(first.reports) == ["none", "mute-20"]
    assert first.failures == {"broken": "RuntimeError: no such luck"}
    verdicts = {row["method"]: row["verdict"] for row in first.rows()}
    assert verdicts == {"none": "not erased", "mute-20": "erased"}
    assert "broken failed: RuntimeError: no such luck" in first.to_markdown()

    sabotage("none", RuntimeError("no such luck"))
    again = compare(X, z, **options)
    assert again.reports["none"] == first.reports["none"], "what was finished is not made again"
    other = compare(X, z, **{**options, "random_state": 1, "methods": ["none"]})
    assert not other.reports and "none" in other.failures, "other settings are other results"


@pytest.mark.slow  # every method at its defaults
@pytest.mark.filterwarnings("ignore::mute.WeakResultWarning")
def test_every_method_can_be_compared(fitted: tuple) -> None:
    _, X, (z, y), _ = fitted
    found = compare(X, z, task=y, adversaries=["logistic"])
    assert found.failures == {}
    assert list(found.reports) == list(METHODS)
    assert all(row["paper"] is not None and row["fresh"] is not None for row in found.rows())


def test_comparison_bad_input(fitted: tuple) -> None:
    _, X, (z, _), _ = fitted
    with pytest.raises(MuteError, match="'nonsense'"):
        compare(X, z, methods="mute,nonsense")
    with pytest.raises(MuteError, match="fit_share"):
        compare(X, z, fit_share=1.5)
    with pytest.raises(MuteError, match="empty list"):
        compare(X, z, methods=[])
    with pytest.raises(TypeError, match="unexpected keyword argument 'adversary'"):
        compare(X, z, methods="none", adversary="logistic")
    with pytest.raises(MuteError, match=r"'taco-task' learns from the labels of a task; give them .*task= .*--task"):
        compare(X, z, methods="none,taco-task")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"methods": "none,farm:wibble"}, "FaRM has no preset 'wibble'"),
        ({"adversaries": ["psychic"]}, "'psychic'"),
        ({"max_leak": 1.0}, "max_leak must lie between 0 and 1, not 1.0"),
        ({"z": ["f"] * 400}, "only one class, 'f'"),
        ({"task": ["yes"] * 400}, "task has one label only \\('yes'\\)"),
        (
            {"task": ["yes"] * 200 + ["no"] + ["yes"] * 199, "random_state": 2},
            "'yes'\\) among the rows to be judged on",
        ),
        ({"fit_share": 0.004}, "class 'f' has 0 row\\(s\\) to fit on; raise fit_share"),
        ({"fit_share": 0.95}, "class 'f' has 10 row\\(s\\) to be judged on; an audit needs at least 20"),
    ],
)
def test_what_no_method_could_use_is_refused_before_the_first(
    options: dict[str, Any], message: str, tmp_path: Any, sabotage: Any
) -> None:
    sabotage("none", AssertionError("fitted"))
    X, z = np.random.default_rng(0).normal(size=(400, 3)), np.repeat(["f", "m"], 200)
    with pytest.raises(MuteError, match=message):
        compare(X, **{"z": z, "methods": "none", "folder": tmp_path / "parts", **options})
    assert not (tmp_path / "parts").exists()


def test_rows_with_fewer_classes_than_the_eraser_knows() -> None:
    rng = np.random.default_rng(0)
    z = np.repeat(["a", "b", "c"], 600)
    X = rng.normal(size=(1800, 3)) + np.stack([8 * (z == "b"), 8 * (z == "c"), 0 * (z == "a")], axis=1)
    eraser = MUtE(4, random_state=0).fit(X[::2], z[::2])
    rows = np.flatnonzero(z != "b")[1::2]
    report = audit(eraser, X[rows], z[rows], adversaries=["logistic"])
    assert report.about["classes"] == ["a", "c"] and report.routing["classes"] == ["a", "b", "c"]
    assert report.utility.round_trip < 1e-6, "erased and brought back as the class that the label names"
    assert report.to_html()


def test_the_worst_pair_stands_beside_the_mean() -> None:
    rng = np.random.default_rng(0)
    z = rng.integers(5, size=2000)
    X = rng.normal(size=(2000, 3))
    X[:, 0] += np.array([0, -3, 0, 3, 0])[z]
    report = audit(FunctionTransformer(), X, np.array(list("abcde"))[z], adversaries=["logistic", "quadratic"])
    pair = report.privacy.worst_pair
    assert pair.classes == ("b", "d") and pair.accuracy.value > 0.99
    assert json.loads(report.to_json())["privacy"]["worst_pair"]["classes"] == ["b", "d"]
    assert any("worst pair of classes is b and d" in line for line in report.summary)
    assert "| worst pair |" in report.to_markdown()
