"""The study of erasure on unseen rows."""

import numpy as np
import pytest

from mute.paper import DEFAULT_STUDIES, Plan, fresh, running
from mute.paper.fresh import (
    CURVES,
    ENTRIES,
    KNOBS,
    NO_LEAK,
    RIVALS,
    SLOW_RIVALS,
    SYNTHETIC,
    fresh_jobs,
    left_out,
    split,
    synthetic_rows,
)
from mute.paper.fresh_page import as_good, interval, points_of, share_lowered, worse_anywhere
from mute.paper.problems import problem

pytestmark = pytest.mark.filterwarnings("ignore::mute.errors.WeakResultWarning")


@pytest.mark.parametrize("seed", [0, 1])
def test_no_row_is_fitted_on_and_judged(seed):
    z = np.repeat(["a", "b"], [300, 900])
    fit, judge = split(z, 400, 0.3, seed)
    assert not set(fit) & set(judge) and len(set(fit)) == 400
    assert np.unique(z[fit], return_counts=True)[1].tolist() == [200, 200]
    assert np.unique(z[judge], return_counts=True)[1].tolist() == [90, 90]
    fewer, same = split(z, 100, 0.3, seed)
    assert set(fewer) < set(fit) and set(same) == set(judge)
    assert set(split(z, 400, 0.3, seed + 1)[1]) != set(judge)


def test_an_eraser_sees_the_training_rows_only(prepared, monkeypatch):
    data = problem("bios")
    data.fit.X[:5] = data.test.X[:5]  # rows that are there twice
    seen = {}

    def erased(entry, preset, X, z, X_new, z_new, seed, more):
        seen["fit"], seen["judge"] = ({row.tobytes() for row in part} for part in (np.concatenate([X, more]), X_new))
        return X_new, 0.0, None

    monkeypatch.setattr(fresh, "_erased", erased)
    rows = fresh.rows_to_fit(data, True)
    fresh.fresh(data, {"label": "leace", "rows": rows, "seed": 0}, True)
    assert len(seen["fit"]) >= rows and seen["judge"] and not seen["fit"] & seen["judge"]


def test_rows_untouched_leak_and_noise_does_not():
    job = {"rows": 600, "columns": 8, "seed": 0}
    before, noise = (fresh.fresh(None, {**job, "label": label}, True) for label in ("none", NO_LEAK))
    assert before["leak"] > 0.4 and before["kept"] == pytest.approx(1.0, abs=1e-3)
    # The best of five on 600 rows: three standard errors are 0.058.
    assert abs(noise["leak"]) < 0.06
    assert before["judge_rows"] == 1200 and before["class_rows"] == 200
    assert before["leak"] == max(before["balanced_accuracy"].values()) - 1 / 3


def test_settings_of_the_trade_off_do_what_they_say():
    X, z = synthetic_rows(600, 8, np.random.default_rng(0))

    def erased(entry):
        return fresh._erased(entry, SYNTHETIC, X, z, X, z, 0, X)

    assert [erased(ENTRIES[label])[2] for label in ("mute-4", "mute-paper-10")] == [4, 10]
    calm, noisy, cut = (
        erased(fresh.Entry("", "leace", **knob))[0] for knob in ({}, {"noise": 0.3}, {"components": 0.5})
    )
    # Six standard errors of the spread of 600 rows.
    assert np.allclose((noisy - calm).std(axis=0), 0.3 * calm.std(axis=0), rtol=0.17)
    assert calm.shape[1] == 8 and cut.shape[1] == 4
    assert (KNOBS["pca-50"].components, KNOBS["noise-3"].noise) == (0.5, 0.3)


def test_the_law_of_made_rows_is_always_the_same():
    (X, z), (Y, u) = (synthetic_rows(30_000, 4, np.random.default_rng(seed)) for seed in (0, 1))
    for k in range(3):
        # Four standard errors of 10,000 rows of spread about 2.
        assert np.abs(X[z == k].mean(axis=0) - Y[u == k].mean(axis=0)).max() < 0.1
    assert np.abs(X[z == 0].mean(axis=0) - X[z == 1].mean(axis=0)).max() > 0.3


def test_jobs_of_the_study():
    jobs = fresh_jobs({"glove": 10_998, "bios": 9000}, 2, False)
    rows = {name: {job["rows"] for job in jobs if job["problem"] == name} for name in ("glove", "bios", SYNTHETIC)}
    assert rows["glove"] == {1500, 3000, 6000, 10_777, 10_998} and rows["bios"] == {3000, 9000}
    assert {job["rows"] for job in jobs if job["label"] in KNOBS} == {10_998, 9000}
    slow = [job for job in jobs if job["label"] in SLOW_RIVALS]
    assert len(slow) == 2 * len(SLOW_RIVALS) and {job["seed"] for job in slow} == {0}
    confirming = {job["label"] for job in fresh_jobs({"jigsaw": 9000}, 1, False) if job["problem"] == "jigsaw"}
    assert confirming == {*CURVES, NO_LEAK}
    noise = [job for job in jobs if job["label"] == NO_LEAK and job["problem"] == SYNTHETIC and job["seed"] == 1]
    assert sorted(job["columns"] for job in noise) == [8, 32, 128]
    assert "fresh" not in DEFAULT_STUDIES and not [job for job in Plan().jobs(["glove"]) if job["job"] == "fresh"]


def test_every_method_is_on_the_axes_or_said_to_be_left_out():
    from mute.estimators.registry import METHODS

    assert {entry.method for entry in (CURVES | RIVALS | SLOW_RIVALS).values()} | left_out().keys() == {
        *METHODS,
        "as-paper",
    }


def row(label, leak, seed, rows=3600, columns=100, name="glove"):
    result = {
        "leak": leak, "kept": 0.9, "columns": columns, "class_rows": rows // 3, "judge_rows": 90, "layers": None,
        "fit_seconds": 1.0, "balanced_accuracy": {"quadratic": leak + 1 / 3},
    }  # fmt: skip
    return {"job": "fresh", "problem": name, "label": label, "rows": rows, "seed": seed, "result": result}


def test_the_interval_is_student_s():
    mean, reach = interval([0.1, 0.2, 0.3])
    assert (mean, reach) == (pytest.approx(0.2), pytest.approx(4.302653 * 0.1 / 3**0.5))
    assert np.isnan(interval([0.1])[1])


def test_the_share_is_taken_where_a_class_has_nearest_to_36_rows_for_each_column():
    found = [row("mute", leak, seed) for seed, leak in enumerate((0.02, 0.04))]
    found += [row("mute-paper", leak, seed) for seed, leak in enumerate((0.10, 0.14))]
    found += [row(label, 0.5, 0, rows=n) for label in ("mute", "mute-paper") for n in (300, 90_000)]
    [(point, share)] = share_lowered(points_of(found))
    assert point.rows == 3600 and point.class_rows == 1200
    found += [row(label, leak, 0, rows=9000) for label, leak in (("mute", 0.09), ("mute-paper", 0.12))]
    [(point, share)] = share_lowered(points_of(found))
    assert point.rows == 9000 and share == pytest.approx(0.25)  # 30 rows for each column


def test_the_default_is_held_against_the_better_rival_by_seed():
    found = [row("mute", leak, seed) for seed, leak in enumerate((0.12, 0.22, 0.33))]
    found += [row("mute-paper", leak, seed) for seed, leak in enumerate((0.10, 0.20, 0.30))]
    found += [row("qleace", 0.25, seed) for seed in range(3)]
    found += [row(label, 0.1, seed, rows=300) for label in ("mute", "qleace") for seed in range(3)]
    small, large = as_good(points_of(found))
    assert small[1:] == ("qleace", 0.0, 0.0)
    # Seeds differ by 0.1, but the default leaks more under each of them.
    assert large[1] == "mute-paper" and large[2] == pytest.approx(0.07 / 3) and large[2] - large[3] > 0
    verdict, cells = worse_anywhere(points_of(found))
    assert verdict == "Yes, at 1 of 2: words, D = 100, n = 3,600."
    assert ("words, D = 100, n = 3,600", "the paper's MUtE", "+0.023 ± 0.014", "yes") in cells


def test_one_run_cannot_tell():
    found = [row(label, leak, 0) for label, leak in (("mute", 0.3), ("qleace", 0.1))]
    assert worse_anywhere(points_of(found))[0] == "One run cannot tell."


def test_the_command_runs_it(cli, prepared, monkeypatch, tmp_path):
    few = {name: CURVES[name] for name in ("none", "leace", "qleace")}
    monkeypatch.setattr(fresh, "CURVES", few)
    monkeypatch.setattr(fresh, "RIVALS", {})
    monkeypatch.setattr(fresh, "SLOW_RIVALS", {})
    monkeypatch.setattr(fresh, "ENTRIES", {**few, "pca-50": ENTRIES["leace"], NO_LEAK: ENTRIES[NO_LEAK]})
    monkeypatch.setattr(fresh, "_SYNTHETIC_QUICK", ((60, 3), (120, 3), (60, 4)))
    monkeypatch.setattr(fresh, "_ADVERSARIES", ("logistic", "quadratic"))
    rest = ["--quick", "--jobs", "1", "-o", tmp_path]
    code, out, err = cli("paper", "--study", "fresh", *rest)
    assert (code, err) == (0, "") and "failed" not in out
    page = (tmp_path / "README.md").read_text()
    assert "mute paper fresh -o FOLDER --quick" in page and "| rows untouched | 0." in page
    for name in ("fresh-rows.png", "fresh-confirmed.png", "fresh-columns.png", "fresh-tradeoff.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG") and f"]({name})" in page
    monkeypatch.setattr(running, "_result", lambda job, plan: pytest.fail("was run again"))
    assert cli("paper", "fresh", *rest)[0] == 0  # the same study
