"""The jobs themselves, on data small enough for a test."""

import numpy as np
import pytest

from mute.paper.as_paper import fit_as_paper
from mute.paper.augmenting import augmented
from mute.paper.copies import copied
from mute.paper.erasing import erase
from mute.paper.measures import probe
from mute.paper.problems import problem
from mute.paper.synthetic import SHIFTS, mixtures, synthetic

# As in the run itself, which shows what the warning is about.
pytestmark = pytest.mark.filterwarnings("ignore::mute.errors.WeakResultWarning")


@pytest.mark.parametrize("regime", SHIFTS)
def test_synthetic_probes_fall_to_chance(regime):
    found = synthetic(regime, 0, 500)
    # By construction; three standard errors of 1,000 test rows are 0.023 and 0.037.
    assert found["before"] == pytest.approx({"separable": 0.94, "overlapping": 0.81}[regime], abs=0.04)
    # Three standard errors of 1,000 test rows are 0.047; what twenty layers leave of one draw of a mixture differs by
    # six points once in ten times.
    assert abs(found["after_paper"] - 0.5) < 0.1
    assert abs(found["after_fresh"] - 0.5) < 0.1


def test_mixtures_have_as_many_rows_of_each_class():
    x, z = mixtures(1.0, 50, np.random.default_rng(0))
    assert x.shape == (100, 2) and np.bincount(z).tolist() == [50, 50]


def test_an_eraser_on_a_data_set(prepared):
    data = problem("bios")
    before = erase(data, "none", {}, 0)
    after = erase(data, "mute-20", {"diagnostics": False}, 0)
    assert before["probe_paper"] > 0.8 and before["kept"] == pytest.approx(1.0, abs=1e-4)
    # Three standard errors of 300 test rows are 0.09.
    assert abs(after["probe_paper"] - 0.5) < 0.1
    assert after["strong_fresh"] < before["strong_fresh"] - 0.1
    assert 0.5 < after["kept"] < 1.0
    assert after["layers"] == 20 and after["task"]["accuracy"] > 0.3
    assert before["mse"] < after["mse"]
    assert "mse" not in erase(data, "leace", {}, 1)  # taken once


def test_words_are_judged_as_words(prepared):
    from mute.paper.problems import Words

    data = problem("glove", shipped=True, most_rows=600)
    names = data.test.names[:40].tolist()
    rng = np.random.default_rng(0)
    pairs = [(names[i], names[j], float(rng.normal())) for i, j in rng.integers(40, size=(60, 2)) if i != j]
    words = Words(names, data.test.X[:40], {"made up": pairs})
    found = erase(data, "none", {}, 0, words=words)
    assert found["near_paper"] == found["near_new"] == 1.0
    assert -1 <= found["wordsim"]["made up"] <= 1
    assert "wordsim" not in erase(data, "qleace-oracle", {}, 0, words=words)  # told the class, which words have not


def test_the_paper_s_rule_stops_where_its_probe_guesses(prepared):
    data = problem("bios")
    X, watch = data.fit.X.astype(float), data.fresh.X.astype(float)
    eraser = fit_as_paper("bios", X, data.fit.z, watch, data.fresh.z, 0, its_layers=False)
    majority = np.unique(data.fresh.z, return_counts=True)[1].max() / len(data.fresh)
    assert eraser.n_iterations_ in (1, 2, 4, 8, 16, 32, 64, 70)
    reached = probe(eraser.transform(X), data.fit.z, eraser.transform(watch), data.fresh.z, 0)
    assert reached <= majority + 0.01 or eraser.n_iterations_ == 70
    assert fit_as_paper("bios", X, data.fit.z, watch, data.fresh.z, 0, its_layers=True).n_iterations_ == 70


def test_twins_close_a_gap_that_controls_leave(prepared):
    data = problem("bios")
    control = augmented(data, "duplicate", 0)
    assert "reached_fresh" not in control and 0.2 < control["task"]["accuracy"] <= 1
    moved = augmented(data, "mean-difference", 0)
    # The means lie four standard deviations apart.
    assert moved["reached_fresh"] > 0.8 and moved["reached_paper"] > 0.8
    disjoint = augmented(data, "mute-disjoint", 0)
    assert disjoint["reached_fresh"] > 0.7


def test_copies_are_close_to_the_flow(prepared, monkeypatch):
    pytest.importorskip("torch")
    from mute.paper import copies

    monkeypatch.setitem(copies.COPIES, "mlp-surrogate", ("mlp-surrogate", {"augment": 0, "epochs": 5}))
    found = copied(problem("dial"), 0)
    assert list(found) == list(copies.COPIES)
    assert found["mute-paper"]["r2"] == pytest.approx(1.0)
    assert 0.5 < found["linear-surrogate"]["r2"] < 1.0
    # The flow's own classifier is the same whether it is trained anew or not.
    assert found["mute-paper"]["task"] == found["mute-paper"]["task_as_paper"]
