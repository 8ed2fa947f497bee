"""The text study: its sets, its jobs and its section of the page."""

import json
import re

import pytest

from gendered_texts import FEMALE_OF, mean_of_words, text_pairs
from mute.errors import MuteError
from mute.paper import Plan, run, texts, write_page
from mute.paper.text_page import name_of


@pytest.fixture
def corpora(monkeypatch, tmp_path):
    """Made-up corpora in the place of the prepared ones, and an encoder that is a mean of words."""
    pairs = text_pairs(400, seed=3)
    other = {"male": "female", "female": "male"}
    split = ["fit"] * 300 + ["test"] * 100
    tail = {"fit": " Yes.", "test": " No."}
    made = {
        "bug-texts": {
            "text": [source for source, _, _ in pairs],
            "gender": [gender for _, _, gender in pairs],
            "profession": ["patient"] * 400,
            "split": split,
        },
        "panda-gender": {
            "source": [pair[0] + tail[part] for pair, part in zip(pairs, split, strict=True)],
            "reference": [pair[1] + tail[part] for pair, part in zip(pairs, split, strict=True)],
            "from": [gender for _, _, gender in pairs],
            "to": [other[gender] for _, _, gender in pairs],
            "split": split,
            # Two rewrites of each original.
            "original_id": [str(i // 2) for i in range(400)],
        },
    }
    encoder = mean_of_words()
    monkeypatch.setattr("mute.datasets.prepared.load_texts", made.__getitem__)
    monkeypatch.setattr(texts, "_encoder", lambda: encoder)
    monkeypatch.setenv("MUTE_DATA", str(tmp_path / "data"))
    for cached in (texts.text_set, texts.encoded_corpus, texts._edits):
        cached.cache_clear()
    yield made
    for cached in (texts.text_set, texts.encoded_corpus, texts._edits):
        cached.cache_clear()


@pytest.fixture
def bios(tmp_path):
    folder = tmp_path / "cf_texts"
    folder.mkdir()
    pairs = text_pairs(30, seed=4)
    for name, side in (("small_test_texts.txt", 0), ("small_test_texts_cf.txt", 1)):
        (folder / name).write_text("\n".join(["A title", *(pair[side] for pair in pairs)]) + "\n")
    return folder


def test_sets_keep_fit_and_test_apart(corpora):
    panda = texts.text_set("panda", None, False)
    assert not {*panda.sources, *panda.references} & set(panda.corpus)
    assert len(panda.sources) == 50, "one rewrite of each original"
    assert len(panda.corpus) == len(panda.labels) == len(set(panda.corpus))


def test_biographies_are_read_from_the_authors_folder(corpora, bios):
    data = texts.text_set("bios", str(bios), False)
    assert len(data.sources) == len(data.paper_references) == 30
    female = set(FEMALE_OF.values())
    for source, concept, to in zip(data.sources, data.concept, data.to, strict=True):
        words = set(source.lower().replace(".", "").replace(",", "").split())
        assert {"male": not words & female, "female": bool(words & female)}[concept] and {concept, to} == {
            "male",
            "female",
        }
    with pytest.raises(MuteError, match="--data texts=FOLDER"):
        texts.text_set("bios", None, False)
    with pytest.raises(MuteError, match="cannot read"):
        texts.text_set("bios", str(bios / "nothing"), False)


def test_sweeps_are_made_on_the_first_set_with_edits_only():
    jobs = texts.text_jobs(["bios", "panda"], inverter=True, quick=False)
    swept = [job for job in jobs if job["mover"] == "mean-difference-3"]
    assert [(job["set"], job["decoder"]) for job in swept] == [("bios", "edits")]
    whole = {(job["set"], job["decoder"]) for job in jobs if job["mover"] == "mute-oracle"}
    assert whole == {(name, by) for name in ("bios", "panda") for by in texts.DECODERS}
    assert not any(job["decoder"] == "inverter" for job in texts.text_jobs(["bios"], inverter=False, quick=False))


def test_the_study_from_corpus_to_page(corpora, bios, tmp_path):
    plan = Plan(("text",), {"texts": str(bios)}, quick=True)
    results = run(plan, tmp_path / "out")
    assert not results.failures and not results.left_out
    found = {(r["set"], r["mover"], r["decoder"]): r["result"] for r in results.found}
    for name in ("bios", "panda"):
        nothing, reference = found[name, "none", "edits"], found[name, "reference", "edits"]
        assert nothing["scores"]["all"]["substitution"] == 0.0, "the sources are of the other class"
        assert nothing["wanted_length"] == pytest.approx(1.0, abs=0.2)
        assert reference["wanted_to_reference"] == pytest.approx(1.0, abs=1e-5)
        assert reference["scores"]["all"]["bleu"] > nothing["scores"]["all"]["bleu"]
        assert found[name, "mute-oracle", "edits"]["scores"]["all"]["substitution"] > 0.5
    page = write_page(results, tmp_path / "out").read_text()
    assert "Counterfactual texts" in page and "MUtE* (true labels)" in page and "female → male" in page
    kept = (tmp_path / "out" / "results.json").read_text()
    source = texts.text_set("bios", str(bios), True).sources[0]
    assert source not in kept and source not in page, "the texts belong to their authors"
    gallery = (tmp_path / "out" / "texts-bios.html").read_text()
    assert source in re.sub("<[^>]+>", "", gallery), "with its differences marked"
    # A second run finds everything done.
    again = run(plan, tmp_path / "out")
    assert json.dumps(again.to_dict()["found"], sort_keys=True) == json.dumps(
        results.to_dict()["found"], sort_keys=True
    )


def test_without_the_biographies_they_are_left_out(corpora, tmp_path):
    results = run(Plan(("text",), quick=True), tmp_path / "out")
    assert "texts: bios" in results.left_out and {r["set"] for r in results.found} == {"panda"}


def test_an_inverter_that_is_none(corpora, tmp_path):
    with pytest.raises(MuteError, match="holds no trained inverter"):
        run(Plan(("text",), quick=True, inverter=str(tmp_path)), tmp_path / "out")


@pytest.mark.parametrize("mover", texts.MOVERS)
def test_every_mover_has_a_name(mover):
    assert name_of(mover) and name_of(mover) != mover
