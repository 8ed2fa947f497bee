"""The trained inverter: what it learns, that steps never hurt, that training can stop and go on."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from safetensors.numpy import load_file, save_file

from mute.errors import MuteError
from mute.text import Encoder, load_encoder
from mute.text.decoders.decoder import Decoder, cosines
from mute.text.decoders.inverter import Inverter
from mute.text.decoders.inverter_training import train_inverter
from tiny_corpus import TEXTS, encoder

TINY: dict[str, Any] = {"vocabulary": 300, "width": 16, "layers": 1, "heads": 2, "max_tokens": 24, "batch_size": 8}


def train(folder: Path, **settings: Any) -> Inverter:
    return train_inverter(TEXTS, encoder(), folder=folder, **{**TINY, **settings})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("inverter") / "new"
    train(place, epochs=16, width=32, learning_rate=5e-3)
    return place


@pytest.fixture
def inverter(folder: Path) -> Inverter:
    return Inverter.load(folder, encoder())


@pytest.fixture(scope="module")
def weak(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Hardly trained, so that it is wrong in many ways."""
    place = tmp_path_factory.mktemp("weak")
    train(place, epochs=2, learning_rate=1e-2)
    return place


def test_it_learns_a_small_language(inverter: Inverter) -> None:
    quality = inverter.quality_
    assert quality["token_accuracy"] > 0.9
    assert quality["cosine"] > 0.95
    assert quality["bleu"] > 70
    # Starting from texts with words changed, it finds its way back.
    assert quality["edited_cosine"] > max(0.95, quality["source_cosine"] + 0.1)
    assert quality["edited_bleu"] > quality["source_bleu"] + 20
    assert quality["n_texts"] + quality["n_held_out"] == len(TEXTS)
    assert quality["texts_per_second"] > 0


def test_it_decodes_with_capitals_and_blanks(inverter: Inverter) -> None:
    texts = ["Ann MET a  Tree and Bob.", "Eve saw his cat and Ann."]
    decoded = inverter.decode(encoder()(texts))
    assert decoded.texts == texts
    assert_allclose(decoded.scores, 1, atol=1e-5)


def test_the_source_is_edited(inverter: Inverter) -> None:
    wanted = encoder()(["Ann saw her dog and Bob."])
    decoded = inverter.decode(wanted, ["Ann saw his cat and Bob."])
    assert decoded.texts == ["Ann saw her dog and Bob."]
    inverter.steps = 0
    assert inverter.decode(wanted, ["Ann saw his cat and Bob."]).texts == ["Ann saw his cat and Bob."]


def test_capitals_are_those_of_the_source(inverter: Inverter, monkeypatch: pytest.MonkeyPatch) -> None:
    """An encoder may not see them."""
    inverter.encoder = load_encoder(
        lambda texts: [[text.lower().count(a) for a in "she"] for text in texts], name="uncased"
    )
    monkeypatch.setattr(inverter, "_write", lambda wanted, *_: [[" she left.", "She left.", "SHE LEFT."]] * len(wanted))
    assert inverter.decode(inverter.encoder(["she left."]), ["He left."]).texts == ["She left."]
    assert inverter.decode(inverter.encoder(["she left."]), ["HE LEFT."]).texts == ["SHE LEFT."]


def test_it_is_a_decoder_and_scores_are_those_of_the_encoder(inverter: Inverter) -> None:
    assert isinstance(inverter, Decoder)
    wanted = np.random.default_rng(0).normal(size=(5, encoder().dimension or 0))
    done = []
    decoded = inverter.decode(wanted, progress=lambda *at: done.append(at))
    assert_allclose(decoded.scores, cosines(encoder()(decoded.texts), wanted.astype(np.float32)), atol=1e-6)
    assert done[-1] == (5, 5)
    empty = inverter.decode(np.empty((0, encoder().dimension or 0)))
    assert empty.texts == [] and empty.scores.shape == (0,)


@pytest.mark.parametrize("with_sources", [False, True])
def test_more_steps_never_hurt(weak: Path, with_sources: bool) -> None:
    rng = np.random.default_rng(1)
    wanted = encoder()(TEXTS[:12]) + 0.05 * rng.normal(size=(12, encoder().dimension or 0)).astype(np.float32)
    sources = TEXTS[12:24] if with_sources else None
    scores = [Inverter.load(weak, encoder(), steps=steps).decode(wanted, sources).scores for steps in range(5)]
    for fewer, more in pairwise(scores):
        assert (more >= fewer).all()
    assert (scores[-1] > scores[0]).any(), "nothing was corrected, so nothing was tested"


@pytest.mark.parametrize("with_sources", [False, True])
def test_rows_do_not_know_of_each_other(weak: Path, with_sources: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    inverter = Inverter.load(weak, encoder(), steps=2, beam=3)
    wanted, sources = encoder()(TEXTS[::4]), (["x", "Ann", *TEXTS[10:]] if with_sources else TEXTS)[: len(TEXTS[::4])]
    order = np.random.default_rng(0).permutation(len(wanted))
    whole = inverter.decode(wanted, sources if with_sources else None)
    mixed = inverter.decode(wanted[order], [sources[at] for at in order] if with_sources else None)
    monkeypatch.setattr("mute.text.decoders.inverter._ROWS", 3)
    parts = inverter.decode(wanted, sources if with_sources else None)
    assert mixed.texts == [whole.texts[at] for at in order]
    assert parts.texts == whole.texts
    assert_allclose(mixed.scores, whole.scores[order], atol=1e-6)
    assert_allclose(parts.scores, whole.scores, atol=1e-6)


def weights(folder: Path) -> dict[str, np.ndarray]:
    return load_file(folder / "inverter.safetensors")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """As in a terminal: a process that was started in the background may ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("stage", ["guessing", "drafting", "correcting"])
def test_a_resumed_training_equals_one_in_one_piece(
    stage: str, tmp_path: Path, whole_training: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mute.text.decoders.inverter_training._BLOCK", 16)
    calls = 0

    def interrupt(name: str, share: float) -> None:
        nonlocal calls
        calls += name == stage
        if name == stage and calls == 2:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, epochs=2, rounds=2, progress=interrupt)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert not (tmp_path / "inverter.json").exists()
    inverter = train(tmp_path, epochs=2, rounds=2)
    mine, theirs = weights(tmp_path), weights(whole_training)
    assert mine.keys() == theirs.keys()
    for name in mine:
        assert_allclose(mine[name], theirs[name], atol=1e-5, err_msg=name)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "inverter.json",
        "inverter.safetensors",
        "tokenizer.json",
        "training.json",
    ]
    assert inverter.quality_["token_accuracy"] == Inverter.load(whole_training, encoder()).quality_["token_accuracy"]


@pytest.mark.usefixtures("interruptible")
def test_drafts_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was drafted and encoded before an interruption is not made again."""
    monkeypatch.setattr("mute.text.decoders.inverter_training._BLOCK", 16)
    asked: list[str] = []

    def count(texts: list[str]) -> np.ndarray:
        asked.extend(texts)
        return encoder()(texts)

    def interrupt(name: str, share: float) -> None:
        if name == "drafting" and 0.3 < share < 0.7:
            os.kill(os.getpid(), signal.SIGINT)

    own = load_encoder(count, name="counted")
    with pytest.raises(KeyboardInterrupt):
        train_inverter(TEXTS, own, folder=tmp_path, **TINY, epochs=1, progress=interrupt)
    before, drafts = list(asked), [text for text in asked if text not in TEXTS]
    assert drafts
    asked.clear()
    stages: list[tuple[str, float]] = []
    train_inverter(TEXTS, own, folder=tmp_path, **TINY, epochs=1, progress=lambda *at: stages.append(at))
    assert min(share for name, share in stages if name == "drafting") > 0.3
    assert len(asked) < len(before) + len(TEXTS)
    assert "guessing" not in {name for name, _ in stages}


@pytest.fixture(scope="module")
def whole_training(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mute.text.decoders.inverter_training._BLOCK", 16)
        train(place, epochs=2, rounds=2)
    return place


def test_a_polite_kill_leaves_a_checkpoint(tmp_path: Path) -> None:
    code = f"""
import os, signal
from pathlib import Path
from test_inverter import train
def progress(stage, share):
    if stage == "guessing":
        os.kill(os.getpid(), signal.SIGTERM)
train(Path({str(tmp_path)!r}), epochs=1, progress=progress)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=False)
    assert done.returncode == -signal.SIGTERM
    assert (tmp_path / "checkpoint.safetensors").exists()
    assert not list(tmp_path.glob("*.tmp"))


def test_time_can_be_the_measure(tmp_path: Path) -> None:
    stages: dict[str, list[float]] = {}
    train(tmp_path, minutes=0.01, progress=lambda stage, share: stages.setdefault(stage, []).append(share))
    assert list(stages) == ["encoding", "guessing", "drafting", "correcting", "judging"]
    for shares in stages.values():
        assert shares == sorted(shares) and shares[0] >= 0 and shares[-1] <= 1


def test_a_folder_that_is_done_is_loaded(weak: Path) -> None:
    def never(stage: str, share: float) -> None:
        raise AssertionError(stage)

    before = (weak / "inverter.json").read_bytes()
    train(weak, epochs=2, learning_rate=1e-2, progress=never)
    assert (weak / "inverter.json").read_bytes() == before
    with pytest.raises(MuteError, match="other epochs: give another folder"):
        train(weak, epochs=3, learning_rate=1e-2)


def test_save_and_load(inverter: Inverter, tmp_path: Path) -> None:
    inverter.beam = 3
    inverter.save(tmp_path / "copy")
    again = Inverter.load(tmp_path / "copy", encoder())
    wanted = encoder()(TEXTS[:4])
    assert again.decode(wanted).texts == inverter.decode(wanted).texts
    assert (again.quality_, again.beam) == (inverter.quality_, 3)
    assert "bag" in repr(again)


def test_another_encoder_is_refused_by_name(weak: Path) -> None:
    with pytest.raises(MuteError, match=r"trained for the encoder bag .* not for words"):
        Inverter.load(weak, encoder("words"))


def damage_json(folder: Path, **changes: Any) -> None:
    about = json.loads((folder / "inverter.json").read_text())
    (folder / "inverter.json").write_text(json.dumps({**about, **changes}))


def forge(folder: Path, **arrays: np.ndarray) -> None:
    """Change arrays, and the checksum with them."""
    import hashlib

    save_file({**weights(folder), **arrays}, folder / "inverter.safetensors")
    about = json.loads((folder / "inverter.json").read_text())
    about["sha256"]["inverter.safetensors"] = hashlib.sha256((folder / "inverter.safetensors").read_bytes()).hexdigest()
    damage_json(folder, **about)


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda f: (f / "inverter.json").unlink(), "holds no trained inverter"),
        (lambda f: (f / "inverter.json").write_text("{"), "cannot be read"),
        (lambda f: (f / "inverter.json").write_text("[]"), "does not describe an inverter"),
        (lambda f: damage_json(f, version=99), "version 99"),
        (lambda f: damage_json(f, settings=3), r"damaged \(settings\)"),
        (lambda f: damage_json(f, settings={"width": -1}), "whole numbers"),
        (lambda f: (f / "inverter.safetensors").unlink(), "cannot be read"),
        (lambda f: (f / "tokenizer.json").write_text("{}"), "checksum"),
        (lambda f: forge(f, scale=np.array([np.nan], np.float32)), "not finite"),
        (lambda f: forge(f, center=np.zeros(3, np.float32)), "damaged"),
        (lambda f: forge(f, extra=np.zeros(3, np.float32)), "damaged"),
    ],
)
def test_damage_is_found(weak: Path, tmp_path: Path, break_it: Any, message: str) -> None:
    Inverter.load(weak, encoder()).save(tmp_path)
    break_it(tmp_path)
    with pytest.raises(MuteError, match=message):
        Inverter.load(tmp_path, encoder())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"vocabulary": 10}, "vocabulary must be a whole number of at least 300"),
        ({"width": 15}, "multiple of heads"),
        ({"minutes": 0}, "minutes must be a number above 0"),
        ({"epochs": 1.5}, "epochs must be a whole number"),
        ({"max_tokens": 1}, "raise max_tokens"),
        ({"embeddings": np.zeros((3, 33))}, "decode with the encoder that made them|3 embeddings"),
    ],
)
def test_bad_settings_are_said(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(MuteError, match=message):
        train(tmp_path / "new", **settings)


def test_numbers_of_numpy_are_settings_too(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"epochs": np.int64(1), "learning_rate": np.float32(1e-2), "random_state": np.int32(3)}
    train(tmp_path, **settings)
    kept = json.loads((tmp_path / "training.json").read_text())
    assert kept["learning_rate"] == np.float32(1e-2) and kept["random_state"] == 3
    assert train(tmp_path, **settings).quality_["n_texts"] > 0


def test_embeddings_of_other_texts_are_refused(tmp_path: Path) -> None:
    known = encoder()(TEXTS)
    with pytest.raises(MuteError, match="not what bag makes of these texts"):
        train(tmp_path / "new", embeddings=known[::-1])
    with pytest.raises(MuteError, match="with a name"):
        train_inverter(TEXTS, load_encoder(lambda texts: known[: len(texts)]), folder=tmp_path / "other")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    with pytest.raises(MuteError, match="holds other files"):
        train(tmp_path / "full")


def test_a_damaged_checkpoint_is_said(tmp_path: Path) -> None:
    def interrupt(stage: str, share: float) -> None:
        if stage == "guessing":
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, epochs=1, progress=interrupt)
    (tmp_path / "checkpoint.safetensors").write_bytes(b"x" * 100)
    with pytest.raises(MuteError, match=r"is damaged .* remove it"):
        train(tmp_path, epochs=1)


def test_known_embeddings_are_not_made_again(tmp_path: Path) -> None:
    asked: list[str] = []

    def count(texts: list[str]) -> np.ndarray:
        asked.extend(texts)
        return encoder()(texts)

    own: Encoder = load_encoder(count, name="counted")
    train_inverter(TEXTS, own, folder=tmp_path, embeddings=encoder()(TEXTS), **TINY, epochs=1, pairs=8)
    assert sum(text in TEXTS for text in asked) < len(TEXTS)


def test_any_text_comes_back_from_the_tokenizer(weak: Path) -> None:
    tokenizer = Inverter.load(weak, encoder()).tokenizer
    for text in ("Zoë's  café\n\t<end> 日本 🙂", " Two  Blanks ", "<end>", ""):
        assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text
