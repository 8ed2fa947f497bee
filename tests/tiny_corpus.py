"""A corpus of small sentences, and an encoder from which they can be told."""

import numpy as np
from numpy.typing import NDArray

from mute.text import Encoder, load_encoder

NAMES, VERBS, THINGS = ["Ann", "Bob", "Eve"], ["saw", "MET"], ["her dog", "his cat", "a  Tree"]
TEXTS = [f"{a} {v} {t} and {b}." for a in NAMES for v in VERBS for t in THINGS for b in NAMES]
WORDS = sorted({word for text in TEXTS for word in text.split()})
PLACES = 3


def bag(texts: list[str]) -> NDArray[np.float64]:
    """Which words stand where, roughly; other words add a little that is their own."""
    out = np.full((len(texts), PLACES * len(WORDS)), 0.01)
    for row, text in enumerate(texts):
        for at, word in enumerate(text.split()):
            place = 0 if at == 0 else 1 if at < 4 else 2
            if word in WORDS:
                out[row, place * len(WORDS) + WORDS.index(word)] += 1
            else:
                out[row, sum(word.encode()) % out.shape[1]] += 0.3
    return out


def encoder(name: str = "bag") -> Encoder:
    made = load_encoder(bag, name=name)
    made([""])
    return made
