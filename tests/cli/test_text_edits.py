"""`mute text` with its real default decoder, a search of edits; test_text.py puts a stand-in in its place."""

import json

import numpy as np
import pytest

from mute.text import EditSearch, TextCounterfactual
from tiny_encoders import write_encoder

pytest.importorskip("onnxruntime")
pytest.importorskip("tokenizers")

RNG = np.random.default_rng(0)
WORDS = ["nurse", "doctor", "home", "work", "went", "was", "the"]
TEXTS = [f"{who} {' '.join(RNG.choice(WORDS, 4))}" for who in ["he", "she"] * 60]


def test_fit_save_and_move_with_the_default_decoder(cli, tmp_path):
    write_encoder(tmp_path / "encoder", "bert")
    rows = [{"bio": text, "gender": "male" if text.startswith("he") else "female"} for text in TEXTS]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["--text", "bio", "--concept", "gender", "--encoder", tmp_path / "encoder", "-o", tmp_path / "model"]
    code, out, err = cli(
        "text", "fit", tmp_path / "x.jsonl", *words, "--method", "mean-difference", "--set", "router=logistic"
    )
    assert (code, err) == (0, "") and "decoder edits" in out
    model = TextCounterfactual.load(tmp_path / "model")
    assert type(model.decoder_) is EditSearch

    men = TEXTS[:20:2]
    (tmp_path / "men.txt").write_text("\n".join(men) + "\n")
    move = ["text", "counterfactual", tmp_path / "model", "--to", "female"]
    code, out, err = cli(*move, "--file", tmp_path / "men.txt")
    assert (code, err) == (0, "")
    assert out.splitlines() == model.counterfactual(men, "female").texts
    # The weights are random, so other words may change too; but only "she" makes a text female.
    assert all(text.startswith("she ") for text in out.splitlines())
    assert cli(*move, "she was home", "he went home") == (0, "she was home\nshe went home\n", "")
