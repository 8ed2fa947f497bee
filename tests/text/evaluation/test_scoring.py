"""The table of figures: floor and ceiling are where they must be, and directions add up."""

import json

import numpy as np
import pytest

import fake_text_modules
from mute import MuteError
from mute.steering import MeanDifference
from mute.text import TextCounterfactual, load_encoder, saving
from mute.text.evaluation.scoring import COLUMNS, evaluate_texts

pytest.importorskip("mute.text.evaluation.metrics")
pytest.importorskip("sacrebleu")
pytest.importorskip("rouge")
pytest.importorskip("nltk")

WORDS = ["he", "she", "nurse", "doctor", "left", "came", "home", "early", "late", "again"]
RNG = np.random.default_rng(0)
Z = np.array(["male", "female"] * 40)
TEXTS = [("he " if z == "male" else "she ") + " ".join(RNG.choice(WORDS[2:], 5)) for z in Z]
TO = np.where(Z == "male", "female", "male")
REFERENCES = [
    text.replace("he ", "she ", 1) if z == "male" else text.replace("she ", "he ", 1)
    for text, z in zip(TEXTS, Z, strict=True)
]


@pytest.fixture
def model(monkeypatch):
    monkeypatch.setitem(saving.DECODERS, "edits", fake_text_modules.EditSearch)
    counts = load_encoder(lambda texts: [[text.split().count(w) for w in WORDS] for text in texts], name="counts")
    return TextCounterfactual(counts, MeanDifference(router="logistic", random_state=0)).fit(TEXTS, Z)


def test_floor_and_ceiling(model):
    found = evaluate_texts(model, TEXTS, REFERENCES, TO, concept=Z)
    rows = {(row["direction"], row["row"]): row for row in found.rows}
    assert list(dict.fromkeys(direction for direction, _ in rows)) == ["all", "female → male", "male → female"]
    for direction in ("all", "female → male", "male → female"):
        ceiling, floor, ours = (rows[direction, name] for name in ("reference", "identity", "model"))
        assert ceiling["texts"] == (80 if direction == "all" else 40)
        assert ceiling["bleu"] == pytest.approx(100) and ceiling["rouge_l"] == pytest.approx(1)
        assert (
            ceiling["substitution"] == 1 and ceiling["cosine"] == pytest.approx(1, abs=1e-6) and ceiling["edits"] == 0
        )
        assert floor["substitution"] == floor["substitution_with_markers"] == 0 and floor["edits"] == 0
        assert floor["bleu"] < 95 and floor["cosine"] < 1
        assert all(ours[key] == ceiling[key] for key in COLUMNS), "the swap is what the references have"
    assert found.cosines.shape == (80,) and found.encoder == "counts"


def test_the_mean_over_directions_is_that_of_all(model):
    found = evaluate_texts(model, TEXTS[:7], REFERENCES[:7], TO[:7], concept=Z[:7])
    for name in ("model", "identity"):
        whole, *parts = [row for row in found.rows if row["row"] == name]
        for key in ("cosine", "edits", "substitution", "rouge_1"):
            assert whole[key] == pytest.approx(sum(part[key] * part["texts"] for part in parts) / 7, abs=1e-6)


def test_one_direction_is_not_told_twice(model):
    found = evaluate_texts(model, TEXTS[::2], REFERENCES[::2], "female")
    assert [row["row"] for row in found.rows] == ["model", "identity", "reference"]


def test_worst_first_and_json(model):
    references = list(REFERENCES)
    references[3] = "late late late late"
    found = evaluate_texts(model, TEXTS, references, TO, concept=Z)
    assert found.worst(2)[0] == 3 and len(found.worst()) == 10
    content = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert content["worst"][0] == 3 and content["texts"][3]["reference"] == "late late late late"
    assert content["figures"][0]["texts"] == 80


def test_functions_have_no_bertscore_and_other_classes_no_words(model):
    found = evaluate_texts(model, TEXTS, REFERENCES, TO, concept=Z)
    assert all(row["bertscore"] is None for row in found.rows)
    colours = np.where(Z == "male", "red", "blue")
    other = TextCounterfactual(model.encoder_, MeanDifference(router=None)).fit(TEXTS, colours)
    found = evaluate_texts(other, TEXTS[:4], REFERENCES[:4], "blue", concept=colours[:4])
    assert all(row["substitution"] is None for row in found.rows)
    words = {"red": {"he"}, "blue": {"she"}}
    found = evaluate_texts(other, TEXTS[:4], REFERENCES[:4], "blue", concept=colours[:4], words=words)
    assert found.rows[0]["substitution"] == 1.0
    with pytest.raises(MuteError, match="no words for the label 'blue'"):
        evaluate_texts(other, TEXTS[:4], REFERENCES[:4], "blue", concept=colours[:4], words={"red": {"he"}})


def test_what_cannot_be_judged(model):
    with pytest.raises(MuteError, match="80 sources but 3 references"):
        evaluate_texts(model, TEXTS, REFERENCES[:3], TO)
    with pytest.raises(MuteError, match="no texts to judge"):
        evaluate_texts(model, [], [], "female")
