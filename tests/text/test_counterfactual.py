"""From text to text with a small encoder, and its folder: the same answers, or one clear error."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import fake_text_modules
from mute import MUtE, MuteError
from mute.errors import WeakResultWarning
from mute.rivals import LEACE
from mute.steering import GaussianCFR, MeanDifference
from mute.text import Decoded, Decoder, Retrieval, TextCounterfactual, load_encoder, saving
from mute.text.counterfactual import _method

WORDS = ["he", "she", "nurse", "doctor", "left", "came", "home", "early", "late", "again"]


def count_words(texts):
    return [[text.split().count(word) + 0.01 * i for i, word in enumerate(WORDS)] for text in texts]


@pytest.fixture
def encoder():
    return load_encoder(count_words, name="counts")


@pytest.fixture
def edits(monkeypatch):
    monkeypatch.setitem(saving.DECODERS, "edits", fake_text_modules.EditSearch)


RNG = np.random.default_rng(0)
Z = np.array(["male", "female"] * 60)
TEXTS = [("he " if z == "male" else "she ") + " ".join(RNG.choice(WORDS[2:], 4)) for z in Z]


def mean_difference(**settings):
    return MeanDifference(router="logistic", random_state=0, **settings)


@pytest.fixture
def model(encoder):
    return TextCounterfactual(encoder, mean_difference(), "retrieval").fit(TEXTS, Z)


@pytest.fixture
def editor(encoder, edits):
    return TextCounterfactual(encoder, mean_difference()).fit(TEXTS, Z)


def test_he_becomes_she(editor):
    found = editor.counterfactual(["he left home", "she came early"], "female")
    assert found.texts == ["she left home", "she came early"] and found.sources == ["he left home", "she came early"]
    assert found.concept.tolist() == ["male", "female"] and found.to.tolist() == ["female", "female"]
    assert found.scores[0] > found.start_scores[0] and len(found) == 2


def test_texts_of_the_class_stay_as_they_are(editor):
    found = editor.counterfactual(["she came early", "he left home"], ["female", "male"])
    assert found.texts == found.sources and found.scores.tolist() == found.start_scores.tolist() == [1.0, 1.0]
    np.testing.assert_array_equal(found.embeddings, editor.encoder_(found.sources))


def test_given_classes_go_before_routed_ones(editor):
    text = ["she came early"]
    assert editor.counterfactual(text, "female", concept="male").concept.tolist() == ["male"]
    moved = editor.method_.counterfactual(editor.encoder_(text), "female", concept=["male"])
    np.testing.assert_allclose(editor.counterfactual(text, "female", concept=["male"]).embeddings, moved)


def test_scores_are_cosines_with_the_wanted_embedding(editor):
    found = editor.counterfactual(["he left home"], "female")

    def cosine(text):
        row = editor.encoder_([text])[0]
        return row @ found.embeddings[0] / np.linalg.norm(row) / np.linalg.norm(found.embeddings[0])

    assert found.start_scores[0] == pytest.approx(cosine("he left home"), abs=1e-6)
    assert found.scores[0] == pytest.approx(cosine(found.texts[0]), abs=1e-6)


def test_methods_by_name_and_as_objects(encoder):
    default, named = _method(None, 3), _method("mean-difference", 3)
    assert isinstance(default, MUtE) and default.random_state == 3
    assert isinstance(named, MeanDifference) and named.random_state == 3
    method = mean_difference(strength=2.0)
    fitted = TextCounterfactual(encoder, method, "retrieval").fit(TEXTS, Z)
    assert not hasattr(method, "means_"), "it is the user's, and stays as it was"
    assert fitted.method_.strength == 2.0
    for method in (LEACE(), "leace"):
        with pytest.raises(MuteError, match="makes no counterfactuals"):
            TextCounterfactual(encoder, method, "retrieval").fit(TEXTS, Z)


def test_a_method_that_does_not_ask_for_the_class(encoder):
    fitted = TextCounterfactual(encoder, GaussianCFR(), "retrieval").fit(TEXTS, Z)
    found = fitted.counterfactual(TEXTS[:2], "female")
    assert found.concept.tolist() == [None, None]
    assert all(text.startswith("she") for text in found.texts)


class Own:
    """A decoder of the user's, which must not be touched but for its fit."""

    def __init__(self, short=False):
        self.short, self.fitted_on = short, 0

    def fit(self, texts, embeddings):
        self.fitted_on = len(texts)
        return self

    def decode(self, embeddings, sources=None):
        n = len(embeddings) - self.short
        return Decoded(["found"] * n, np.zeros(n, np.float32))


def test_decoders_of_ones_own(encoder, model, tmp_path):
    own = Own()
    fitted = TextCounterfactual(encoder, mean_difference(), own).fit(TEXTS, Z)
    assert fitted.counterfactual(TEXTS[:2], "female").texts == ["found", TEXTS[1]] and own.fitted_on == len(TEXTS)
    assert model.with_decoder(own).counterfactual(TEXTS[:1], "female").texts == ["found"]
    assert isinstance(model.decoder_, Retrieval), "the model itself is as before"
    with pytest.raises(MuteError, match="gave 0 texts for 1"):
        model.with_decoder(Own(short=True)).counterfactual(TEXTS[:1], "female")
    with pytest.raises(MuteError, match="has a method decode"):
        model.with_decoder(3)
    fitted.save(tmp_path / "model")
    with pytest.raises(MuteError, match="a decoder of your own, Own"):
        TextCounterfactual.load(tmp_path / "model", encoder)
    again = TextCounterfactual.load(tmp_path / "model", encoder, own)
    assert again.counterfactual(TEXTS[:1], "female").texts == ["found"]


def test_progress_and_cache(encoder, edits, tmp_path):
    seen = []
    model = TextCounterfactual(encoder, MUtE(n_iterations=2, router="logistic", random_state=0))
    with pytest.warns(WeakResultWarning):
        model.fit(TEXTS, Z, cache=tmp_path, progress=lambda *at: seen.append(at))
    stages = list(dict.fromkeys(stage for stage, _ in seen))
    assert stages == ["encoding", "fitting", "decoder"] and all(0 <= share <= 1 for _, share in seen)
    shares = [share for stage, share in seen if stage == "fitting"]
    assert shares == sorted(shares) and shares[0] == 0.0 and shares[-1] == 1.0 and len(set(shares)) > 2
    assert len(list(tmp_path.glob("*.npy"))) == 1
    seen.clear()
    model.counterfactual(TEXTS, "female", progress=lambda *at: seen.append(at))
    assert seen[-1] == ("decoding", 1.0)


@pytest.mark.parametrize("kind", ["retrieval", "edits"])
def test_saved_and_loaded(encoder, edits, tmp_path, kind):
    model = TextCounterfactual(encoder, mean_difference(), kind).fit(TEXTS, Z)
    model.save(tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    names = sorted(path.name for path in (tmp_path / "model").iterdir())
    assert names == ["decoder.safetensors", "map.safetensors", "model.json"]
    again = TextCounterfactual.load(tmp_path / "model", encoder)
    assert again.n_texts_ == len(TEXTS) and again.classes_.tolist() == ["female", "male"]
    a, b = (one.counterfactual(TEXTS[:30], "female") for one in (model, again))
    assert a.texts == b.texts
    for name in ("scores", "start_scores", "embeddings"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


def test_an_encoder_in_a_folder_is_found_again(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    from tiny_encoders import write_encoder

    monkeypatch.chdir(tmp_path)
    write_encoder(tmp_path / "encoder", "bert")
    TextCounterfactual("encoder", mean_difference(), "retrieval").fit(TEXTS, Z).save("model")
    monkeypatch.chdir("/")
    found = TextCounterfactual.load(tmp_path / "model")
    assert found.encoder_.dimension == 16
    with pytest.raises(MuteError, match="needs the encoder 'encoder' that it was fitted with") as error:
        TextCounterfactual.load(tmp_path / "model", load_encoder(tmp_path / "encoder", pooling="cls"))
    assert "\n" not in str(error.value)
    shutil.move(tmp_path / "encoder", tmp_path / "moved")
    with pytest.raises(MuteError, match="needs its encoder 'encoder', which cannot be loaded"):
        TextCounterfactual.load(tmp_path / "model")
    TextCounterfactual.load(tmp_path / "model", tmp_path / "moved")


def test_functions_must_be_given_again(model, tmp_path):
    model.save(tmp_path / "model")
    with pytest.raises(MuteError, match="fitted with the function 'counts'"):
        TextCounterfactual.load(tmp_path / "model")
    with pytest.raises(MuteError, match="needs the encoder 'counts'"):
        TextCounterfactual.load(tmp_path / "model", load_encoder(count_words, name="other"))
    with pytest.raises(MuteError, match="needs the encoder 'counts'"):
        TextCounterfactual.load(tmp_path / "model", count_words)
    narrow = load_encoder(lambda texts: [[len(text)] for text in texts], name="counts")
    narrow(["a"])
    with pytest.raises(MuteError, match="an encoder of 10 columns"):
        TextCounterfactual.load(tmp_path / "model", narrow)
    nameless = TextCounterfactual(count_words, mean_difference(), "retrieval").fit(TEXTS, Z)
    nameless.save(tmp_path / "nameless")
    TextCounterfactual.load(tmp_path / "nameless", count_words)


def edit_json(folder, **changes):
    about = json.loads((folder / "model.json").read_bytes())
    (folder / "model.json").write_text(json.dumps(about | changes))


DAMAGES = {
    "no folder": (shutil.rmtree, "does not exist"),
    "no json": (lambda f: (f / "model.json").unlink(), "model.json does not exist"),
    "no map": (lambda f: (f / "map.safetensors").unlink(), "map.safetensors does not exist"),
    "no decoder": (lambda f: (f / "decoder.safetensors").unlink(), "decoder.safetensors does not exist"),
    "broken json": (lambda f: (f / "model.json").write_text("{"), "damaged or not a folder written by"),
    "json list": (lambda f: (f / "model.json").write_text("[]"), "damaged or not a folder written by"),
    "other format": (lambda f: edit_json(f, format="x"), "damaged or not a folder written by"),
    "version": (lambda f: edit_json(f, version=99), "format version 99, this mute reads version 1"),
    "encoder": (lambda f: edit_json(f, encoder=3), "damaged or not a folder written by"),
    "sums": (lambda f: edit_json(f, sha256={"../x": "0"}), "does not match its checksum"),
    "method": (lambda f: edit_json(f, method="LEACE"), "not what model.json says"),
    "decoder": (lambda f: edit_json(f, decoder={"kind": "os", "meta": {}}), "there is no decoder 'os'"),
    "cut map": (lambda f: os.truncate(f / "map.safetensors", 500), "does not match its checksum"),
    "cut decoder": (lambda f: os.truncate(f / "decoder.safetensors", 500), "does not match its checksum"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_folders_are_refused(encoder, model, tmp_path, name):
    damage, message = DAMAGES[name]
    model.save(tmp_path / "model")
    damage(tmp_path / "model")
    with pytest.raises(MuteError, match=message) as error:
        TextCounterfactual.load(tmp_path / "model", encoder)
    assert "\n" not in str(error.value) and str(tmp_path) in str(error.value)


@pytest.mark.parametrize("at", ["write_arrays", "sha256_of_file", "_put"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_an_interrupted_save_leaves_the_old_model(encoder, model, tmp_path, monkeypatch, at, error):
    place = tmp_path / "model"
    for before in (False, True):
        with monkeypatch.context() as patch:
            patch.setattr(saving, at, lambda *_: (_ for _ in ()).throw(error))
            with pytest.raises((KeyboardInterrupt, MuteError)):
                model.save(place)
        assert [path.name for path in tmp_path.iterdir()] == ["model"] * before
        if not before:
            model.save(place)
    assert TextCounterfactual.load(place, encoder).n_texts_ == len(TEXTS)


def test_interrupted_between_the_two_renames(encoder, model, tmp_path, monkeypatch):
    model.save(tmp_path / "model")
    rename = os.rename

    def stops(old, new):
        if Path(new) == tmp_path / "model" and ".tmp" in str(old):
            raise KeyboardInterrupt
        rename(old, new)

    with monkeypatch.context() as patch:
        patch.setattr(saving, "exchange", lambda *_: False)  # as where two folders cannot change places
        patch.setattr(os, "rename", stops)
        with pytest.raises(KeyboardInterrupt):
            model.save(tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    TextCounterfactual.load(tmp_path / "model", encoder)


def test_killed_between_the_two_renames_the_older_model_is_put_back(encoder, model, tmp_path):
    model.save(tmp_path / "model")
    (tmp_path / "model").rename(tmp_path / ".model.old")
    saving.check_model_target(tmp_path / "model")
    TextCounterfactual.load(tmp_path / "model", encoder)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_model_is_replaced_and_nothing_else(model, tmp_path):
    model.save(tmp_path / "model")
    model.save(tmp_path / "model")
    (tmp_path / "model" / "thesis.txt").write_text("")
    with pytest.raises(MuteError, match=r"the folder there also has thesis\.txt, so give another name"):
        model.save(tmp_path / "model")
    assert (tmp_path / "model" / "thesis.txt").exists()
    (tmp_path / "mine").mkdir()
    model.save(tmp_path / "mine")
    shutil.rmtree(tmp_path / "mine")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("")
    (tmp_path / "file").write_text("")
    for name, message in (("mine", "holds no model"), ("file", "a file is there"), ("none/model", "does not exist")):
        with pytest.raises(MuteError, match=message):
            model.save(tmp_path / name)
    assert (tmp_path / "mine" / "thesis.txt").exists()


def test_what_cannot_be_done(encoder, model):
    fresh = TextCounterfactual(encoder, mean_difference(), "retrieval")
    with pytest.raises(MuteError, match="not fitted yet"):
        fresh.counterfactual(["a"], "female")
    with pytest.raises(MuteError, match="not fitted yet"):
        fresh.save("model")
    for decoder, message in (("none", "there is no decoder 'none'"), (3, "decoder must be edits, retrieval or an")):
        with pytest.raises(MuteError, match=message):
            TextCounterfactual(encoder, mean_difference(), decoder).fit(TEXTS, Z)
    with pytest.raises(MuteError, match="120 texts but 3 labels"):
        fresh.fit(TEXTS, Z[:3])
    with pytest.raises(MuteError, match="no texts were given"):
        fresh.fit([], [])
    with pytest.raises(MuteError, match="did you mean 'female'"):
        model.counterfactual(TEXTS[:1], "femal")
    with pytest.raises(MuteError, match="concept has the label 'x'"):
        model.counterfactual(TEXTS[:1], "female", concept=["x"])
    with pytest.raises(MuteError, match="one text was given"):
        model.counterfactual("he left", "female")
    oracle = TextCounterfactual(encoder, MeanDifference(router=None), "retrieval").fit(TEXTS, Z)
    assert oracle.needs_concept and not model.needs_concept
    with pytest.raises(MuteError, match="has no router for the class"):
        oracle.counterfactual(TEXTS[:1], "female")
    assert len(model.counterfactual([], "female")) == 0


def test_more_than_two_classes_of_any_kind(encoder):
    z = np.arange(len(TEXTS)) % 3
    model = TextCounterfactual(encoder, mean_difference(), "retrieval").fit(TEXTS, z)
    found = model.counterfactual(TEXTS[:6], [0, 1, 2, 1, 1, 1], concept=z[:6])
    assert found.to.tolist() == [0, 1, 2, 1, 1, 1]
    assert [a == b for a, b in zip(found.sources, found.texts, strict=True)] == [True, True, True, False, True, False]
    assert isinstance(model.decoder_, Decoder) and "counts" in repr(model)
