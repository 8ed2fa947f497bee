import json

import pytest

from mute.errors import MuteError
from mute.paper import Plan, run, running, write_page
from mute.paper.augmenting import TWINS
from mute.paper.erasing import CORE, SLOW, entries
from mute.paper.published import AUGMENTATION, FAIRNESS, SURROGATE, WORDS


@pytest.fixture
def quick_jobs(monkeypatch):
    """Jobs that take no time; the list says which were run."""
    done = []

    def result(job, plan):
        done.append(job)
        if job.get("label") == "farm":
            raise ValueError("did not learn")
        task = {"accuracy": 0.5 + job["seed"] / 100, "tpr_rms": 0.1, "dp": 0.2}
        figures = {"probe_paper": 0.5, "probe_fresh": 0.6, "strong_fresh": 0.7, "task": task, "kept": 0.9}
        if job["job"] == "synthetic":
            return {"before": 0.94, "after_paper": 0.5, "after_fresh": 0.52, "misrouted": 0.05}
        if job["job"] == "copy":
            copy = {"seconds": 1.0, "r2": 0.9, "task_as_paper": task, "probe_as_paper": 0.5, **figures}
            return dict.fromkeys(("mute-paper", "mlp-surrogate", "linear-surrogate"), copy)
        return {**figures, "fit_seconds": 1.0, "layers": 4, "reached_paper": 0.9, "reached_fresh": 0.8}

    monkeypatch.setattr(running, "_result", result)
    return done


def test_every_published_row_has_a_job():
    for name, rows in FAIRNESS.items():
        assert set(rows) <= set(entries(name, every=False))
    assert set(WORDS) <= set(entries("glove", every=False))
    assert all(set(rows) <= set(TWINS) for rows in AUGMENTATION.values())
    from mute.paper.copies import COPIES

    assert all(set(rows) <= set(COPIES) for rows in SURROGATE.values())


def test_every_method_is_in_the_trade_off():
    from mute.estimators.registry import METHODS

    assert {name for name in METHODS if not name.endswith("-surrogate")} <= set(entries("bios", every=True))
    assert {"reversal-task", "taco-task"} & set(entries("glove", every=True)) == set()  # words have no task


def test_seeds_of_the_paper_s_methods_and_of_the_others():
    jobs = Plan(runs=3).jobs(["bios", "dial"])
    seeds = {(job.get("label"), job["seed"]) for job in jobs if job["job"] == "erase" and job["problem"] == "bios"}
    assert {seed for label, seed in seeds if label == "kram"} == {0, 1, 2}
    assert {seed for label, seed in seeds if label == "inlp"} == {0}
    assert {job["seed"] for job in Plan(runs=3).jobs(["jigsaw"])} == {0, 1, 2}  # the synthetic study
    assert {job["seed"] for job in Plan(("tradeoff",), runs=3).jobs(["jigsaw"])} == {0}
    assert [job["seed"] for job in jobs] == sorted(job["seed"] for job in jobs)
    assert len({json.dumps(job, sort_keys=True) for job in jobs}) == len(jobs)


def test_a_study_runs_its_own_jobs_only():
    assert {job["job"] for job in Plan(("augmentation",)).jobs(["bios"])} == {"augment"}
    fairness = Plan(("fairness",)).jobs(["bios", "dial", "jigsaw"])
    assert {job["problem"] for job in fairness} == {"bios", "dial"}
    assert {job["label"] for job in fairness} == set(CORE)


def test_finished_jobs_are_not_run_again(prepared, quick_jobs, tmp_path):
    plan = Plan(("fairness", "augmentation"), quick=True)
    first = run(plan, tmp_path)
    count = len(quick_jobs)
    second = run(plan, tmp_path)
    repeated = quick_jobs[count:]
    assert {job.get("label") for job in repeated} == {"farm"}  # what failed is tried again, nothing else
    assert sorted(map(json.dumps, first.found)) == sorted(map(json.dumps, second.found))


def test_other_rows_are_other_jobs(prepared, quick_jobs, tmp_path):
    plan = Plan(("augmentation",), rows=300, runs=1)
    run(plan, tmp_path)
    quick_jobs.clear()
    run(Plan(("augmentation",), rows=400, runs=1), tmp_path)
    # The stand-in of DIAL has fewer rows than either limit: its jobs are the same.
    assert [job["label"] for job in quick_jobs if job["problem"] == "bios"] == sorted(TWINS)
    assert not [job for job in quick_jobs if job["problem"] == "dial"]


def test_a_damaged_part_is_made_again(prepared, quick_jobs, tmp_path):
    plan = Plan(("augmentation",), quick=True)
    run(plan, tmp_path)
    count = len(quick_jobs)
    next((tmp_path / "parts").glob("*.json")).write_text('{"job": "aug')
    run(plan, tmp_path)
    assert len(quick_jobs) == count + 1


def test_a_job_that_fails_does_not_lose_the_others(prepared, quick_jobs, tmp_path):
    found = run(Plan(("fairness",), quick=True), tmp_path)
    assert {failure["label"] for failure in found.failures} == {"farm"}
    assert "did not learn" in found.failures[0]["error"]
    assert {r["label"] for r in found.found} == set(CORE) - {"farm", *SLOW}
    page = write_page(found, tmp_path).read_text()
    assert "did not learn" in page and "| KRaM |" in page


def test_an_interrupt_keeps_what_is_done(prepared, quick_jobs, tmp_path, monkeypatch):
    inner = running._result

    def result(job, plan):
        if job.get("label") == "mean-difference":
            raise KeyboardInterrupt
        return inner(job, plan)

    monkeypatch.setattr(running, "_result", result)
    with pytest.raises(KeyboardInterrupt):
        run(Plan(("augmentation",), quick=True), tmp_path)
    kept = list((tmp_path / "parts").glob("*"))
    assert kept and all(json.loads(part.read_text())["result"] for part in kept)


def test_quick_leaves_out_what_is_not_prepared_and_full_refuses(prepared, quick_jobs, tmp_path, monkeypatch):
    import mute.datasets as datasets

    def load(name):
        raise MuteError(f"run: mute data prepare {name}")

    monkeypatch.setattr(datasets, "load", load)
    running._loaded.cache_clear()
    found = run(Plan(("tradeoff",), quick=True), tmp_path)
    assert set(found.left_out) == {"bios", "dial", "jigsaw"}  # words ship with the package
    assert "mute data prepare bug" in write_page(found, tmp_path).read_text()
    with pytest.raises(MuteError, match="mute data prepare"):
        run(Plan(("tradeoff",)), tmp_path)


def test_failures_come_back_from_other_processes(tmp_path):
    jobs = [({"job": "synthetic", "regime": "unheard of", "seed": s}, tmp_path / f"{s}.json") for s in range(3)]
    found = list(running._all(jobs, Plan(quick=True), 2))
    assert sorted(job["seed"] for job, _, _ in found) == [0, 1, 2]
    assert all(result is None and "unheard of" in error for _, result, error in found)


@pytest.mark.slow
def test_side_by_side_gives_the_same(prepared, tmp_path):
    plan = Plan(("synthetic",), quick=True)
    alone, together = run(plan, tmp_path / "one"), run(plan, tmp_path / "two", n_jobs=2)
    assert alone.of("synthetic", regime="separable") == together.of("synthetic", regime="separable")
    assert len(together.found) == 2 and not together.failures


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"studies": ("fair",)}, "no study 'fair'"),
        ({"paths": {"imdb": "x"}}, "no data set 'imdb'"),
        ({"runs": 0}, "runs must be at least 1"),
        ({"rows": 10}, "rows must be at least 200"),
    ],
)
def test_plans_that_cannot_be(settings, message):
    with pytest.raises(MuteError, match=message):
        Plan(**settings)


def test_authors_files_that_are_missing_are_an_error_even_when_quick(prepared, tmp_path):
    with pytest.raises(MuteError, match="nowhere"):
        run(Plan(("fairness",), {"bios": str(tmp_path / "nowhere")}, quick=True), tmp_path)
