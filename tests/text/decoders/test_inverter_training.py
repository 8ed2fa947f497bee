"""Texts with words changed, to learn correcting from."""

import numpy as np
import pytest

from mute.text.decoders.inverter_training import WordEdits
from mute.text.decoders.language import Language

PLACES = ("Rome", "Bonn")
TEXTS = [f"{who} {did} in {where}." for who in ("He", "She") for did in ("left", "stayed") for where in PLACES]


@pytest.fixture(scope="module")
def edits() -> WordEdits:
    return WordEdits(Language.learn(TEXTS * 3))


def test_words_turn_into_words_used_alike(edits: WordEdits) -> None:
    rng = np.random.default_rng(0)
    changed = [edits("He left in  Rome, ok?", rng) for _ in range(400)]
    assert {"She left in  Rome, ok?", "He stayed in  Rome, ok?", "He left in  Bonn, ok?"} <= set(changed)
    assert all("ok?" in text and "," in text for text in changed)
    # Capitals belong to the place, not to the word.
    assert not any(text[:1].islower() for text in changed if text.split()[0].lower() in ("he", "she"))
    lengths = np.array([len(text.split()) for text in changed])
    assert 0.05 < np.mean(lengths < 5) < 0.35 and 0.05 < np.mean(lengths > 5) < 0.35


def test_sometimes_all_occurrences_change_alike(edits: WordEdits) -> None:
    rng = np.random.default_rng(1)
    changed = [edits("He left. He stayed. He left.", rng) for _ in range(300)]
    assert any(text.count("She") == 3 for text in changed)
    assert any(text.count("She") == 1 and text.count("He") == 2 for text in changed)


def test_nothing_known_nothing_changed(edits: WordEdits) -> None:
    rng = np.random.default_rng(0)
    assert edits("...", rng) == "..."
    assert edits("", rng) == ""
    assert edits("Unknown words!", rng) == "Unknown words!"
    assert WordEdits(Language.learn(["Too few."]))("Too few.", rng) == "Too few."
