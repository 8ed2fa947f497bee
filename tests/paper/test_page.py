import json
from pathlib import Path

import numpy as np
import pytest

from mute import MUtE
from mute.paper import Plan, run, write_page
from mute.paper.page import STOPPING_RULES, command_of, pm, stopping_rule


def test_mean_and_deviation():
    assert pm([0.5]) == "0.500"
    assert pm([0.4, 0.6]) == "0.500 ± 0.141"  # sqrt(0.02)
    assert pm([None, 1.0, None]) == "1.000"
    assert pm([]) == pm([None]) == "–"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A quick pass with two methods on made-up data."""
    import mute.datasets as datasets
    from made_up_sentences import made_up
    from mute.errors import MuteError
    from mute.paper import running

    def absent(name, folder=None):
        raise MuteError(f"run: mute data prepare {name}")

    whole = running.entries
    few = {"none", "leace"}
    folder = tmp_path_factory.mktemp("paper")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets, "load", made_up)
        patch.setattr(datasets, "prepared_folder", absent)
        patch.setattr(running, "_QUICK_MIXTURE", 60)
        patch.setattr("mute.MUtE.from_preset", lambda name, **kw: MUtE(2, router="logistic", **kw))  # quick to fit
        patch.setattr("mute.paper.erasing.paper_mse", lambda Q, X: 0.1)  # the slowest figure, tested where it lives
        patch.setattr(running, "TWINS", {"original": (), "mean-difference": ()})
        patch.setattr(
            running, "entries", lambda name, every: {k: v for k, v in whole(name, every=every).items() if k in few}
        )
        running._loaded.cache_clear()
        results = run(Plan(("synthetic", "tradeoff", "words", "fairness", "augmentation"), quick=True), folder)
        page = write_page(results, folder).read_text()
    running._loaded.cache_clear()
    return folder, page, results


def test_the_page_shows_the_paper_s_figures_beside_ours(small):
    _, page, results = small
    assert not results.failures
    fairness = page.partition("## Fairness after erasure")[2].partition("## Fairness after counterfactual")[0]
    original = next(line for line in fairness.splitlines() if line.startswith("| original"))
    assert "0.800 ± 0.001" in original  # Bias in Bios in the paper
    ours = results.of("erase", problem="bios", label="none")[0]["task"]["accuracy"]
    assert f"{ours:.3f}" in original


def test_the_page_names_the_rule_by_which_the_default_stops(small):
    """The rule of a MUtE fitted with its defaults, on a new page and on the page of the documentation."""
    rng = np.random.default_rng(0)
    z = np.repeat(["a", "b"], 200)
    X = rng.normal(size=(400, 2)) + 2 * (z == "b")[:, None]
    rule = STOPPING_RULES[type(MUtE(router=None, diagnostics=False, random_state=0).fit(X, z).stopping_)]
    assert rule == stopping_rule()
    documented = Path(__file__).parents[2] / "docs" / "results" / "README.md"
    for page in (small[1], documented.read_text(encoding="utf-8")):
        default = page.partition("*MUtE (default here)* has")[2].partition("\n")[0]
        assert rule in default and "fresh adversary" not in default.partition(rule)[0]


def test_the_words_of_the_project(small):
    for words in ("rows of the fit", "rows at hand", "told", "guessing"):
        assert words not in small[1]


def test_stand_ins_are_said_to_be_stand_ins(small):
    _, page, _ = small
    assert page.count("**stand-in**") == 4
    assert "not to be met to the digit" in page


def test_both_protocols_in_every_table(small):
    _, page, _ = small
    heads = [line for line in page.splitlines() if line.startswith(("| method", "| learned on"))]
    assert len(heads) == 4 + 1 + 2 + 2
    assert all("paper" in head and "fresh" in head for head in heads)


def test_figures_are_there_and_are_shown(small):
    folder, page, _ = small
    for name in ("synthetic.png", "tradeoff.png", "fairness.png"):
        assert (folder / name).read_bytes().startswith(b"\x89PNG")
        assert f"]({name})" in page


def test_all_figures_of_all_runs_are_kept(small):
    folder, _, results = small
    kept = json.loads((folder / "results.json").read_text())
    assert kept["found"] == results.found
    assert kept["about"]["processes"] == 1 and kept["plan"]["quick"]
    assert kept["problems"]["jigsaw"]["classes"] == 5


def test_the_command_that_makes_it_again(small):
    _, page, results = small
    assert command_of(results) == "mute paper synthetic tradeoff words fairness augmentation -o FOLDER --quick"
    assert command_of(results) in page
