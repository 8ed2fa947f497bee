"""`mute paper`, run as a user runs it."""

import json

import pytest

from mute.paper import running

TASK = {"accuracy": 0.5, "tpr_rms": 0.1, "dp": 0.2}


@pytest.fixture
def quick_jobs(monkeypatch, tmp_path):
    """Jobs that take no time, and no prepared data."""
    monkeypatch.setenv("MUTE_DATA", str(tmp_path / "nothing"))

    def result(job, plan):
        figures = {"probe_paper": 0.4, "probe_fresh": 0.5, "strong_fresh": 0.6, "kept": 0.9, "near_paper": 0.2}
        return {**figures, "fit_seconds": 1.0, "layers": 4, "task": TASK}

    monkeypatch.setattr(running, "_result", result)


def test_a_quick_pass_without_any_data(cli, quick_jobs, tmp_path):
    code, out, err = cli("paper", "tradeoff", "words", "--quick", "--jobs", "1", "-o", tmp_path / "page")
    assert (code, err) == (0, "")
    assert "mute data prepare bug" in out and "wrote" in out
    page = (tmp_path / "page" / "README.md").read_text()
    assert "12,000 GloVe words that ship with the package" in page and "Left out: bios" in page
    assert json.loads((tmp_path / "page" / "results.json").read_text())["plan"]["quick"]


def test_what_is_finished_is_taken_up_unless_told_otherwise(cli, quick_jobs, tmp_path, monkeypatch):
    words = ["paper", "words", "--quick", "--jobs", "1", "-o", tmp_path / "page"]
    assert cli(*words)[0] == 0
    monkeypatch.setattr(running, "_result", lambda job, plan: pytest.fail("was run again"))
    assert cli(*words)[0] == 0

    def failing(job, plan):
        raise ValueError("was run again")

    monkeypatch.setattr(running, "_result", failing)
    code, out, _ = cli(*words, "--again")
    assert code == 0 and "was run again" in out  # a failed job is shown, the page is written


def test_an_interrupt_says_what_is_kept(cli, quick_jobs, tmp_path, monkeypatch):
    inner = running._result

    def result(job, plan):
        if job["label"] == "kram":
            raise KeyboardInterrupt
        return inner(job, plan)

    monkeypatch.setattr(running, "_result", result)
    code, _, err = cli("paper", "words", "--quick", "--jobs", "1", "-o", tmp_path / "page")
    assert code == 130 and "1 finished jobs are kept" in err and "run the same command to continue" in err
    assert not (tmp_path / "page" / "README.md").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fair"], "there is no study 'fair'; known studies: synthetic"),
        (["--data", "bios"], "--data takes NAME=PATH"),
        (["--data", "imdb=x"], "there is no data set 'imdb'"),
        (["words", "--data", "glove=nowhere"], "nowhere"),
        (["words"], "mute data prepare glove"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(cli, quick_jobs, tmp_path, words, message):
    code, _, err = cli("paper", *words, "-o", tmp_path / "page")
    assert code == 1 and message in err and err.count("\n") == 1
    assert not (tmp_path / "page").exists()


def test_a_folder_that_cannot_be_made(cli, quick_jobs, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = cli("paper", "words", "--quick", "-o", tmp_path / "file" / "page")
    assert code == 1 and "cannot make the folder" in err
