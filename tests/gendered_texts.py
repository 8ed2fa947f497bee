"""Made-up texts about a man or a woman, and an encoder that is a mean of word vectors."""

import re

import numpy as np

from mute.text import load_encoder

FEMALE_OF = {"he": "she", "his": "her", "himself": "herself", "man": "woman", "father": "mother"}
JOBS = ("nurse", "doctor", "lawyer", "teacher", "painter", "singer")
THINGS = ("book", "house", "car", "letter", "song", "garden")
DOINGS = ("sold", "found", "lost", "liked", "showed", "kept")
PLACES = ("town", "spring", "winter", "school", "summer", "court")
SHAPES = (
    "{He} {did} {his} {thing} in {place}.",
    "The {job} {did} {his} {thing}, and {he} went to {place}.",
    "In {place} {he} {did} a {thing}; {he} was a {job}.",
    "A {man} who {did} {his} {thing} is a {job}.",
    "{His} {father} {did} the {thing} and {he} {did} it {himself}.",
)


def gendered_texts(n: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """n texts and the gender of each."""
    pairs = text_pairs(n, seed)
    return [source for source, _, _ in pairs], [gender for _, _, gender in pairs]


def text_pairs(n: int, seed: int = 0) -> list[tuple[str, str, str]]:
    """n times a text, the same text about the other gender, and the gender of the first."""
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(n):
        fill = {
            "job": rng.choice(JOBS), "thing": rng.choice(THINGS), "did": rng.choice(DOINGS), "place": rng.choice(PLACES)
        }  # fmt: skip
        shape, male = str(rng.choice(SHAPES)), bool(rng.integers(2))
        both = {}
        for gender in ("male", "female"):
            words = {m: m if gender == "male" else f for m, f in FEMALE_OF.items()}
            both[gender] = shape.format(**fill, **words, **{m.capitalize(): w.capitalize() for m, w in words.items()})
        mine, other = ("male", "female") if male else ("female", "male")
        out.append((both[mine], both[other], mine))
    return out


def mean_of_words(width: int = 48):
    """An encoder: the mean of vectors of the words; those of a man's and a woman's word differ in one direction."""
    vectors: dict[str, np.ndarray] = {}
    male_of = {f: m for m, f in FEMALE_OF.items()}
    gender = np.zeros(width)
    gender[0] = 1.0

    def vector(word: str) -> np.ndarray:
        if word not in vectors:
            base = male_of.get(word, word)
            seed = int.from_bytes(base.encode()[:12].ljust(12, b"\0"), "little")
            side = 1.0 if word in male_of else -1.0 if word in FEMALE_OF else 0.0
            vectors[word] = np.random.default_rng(seed).normal(size=width) / np.sqrt(width) + side * gender
        return vectors[word]

    def encode(texts: list[str]) -> np.ndarray:
        rows = [[vector(word) for word in re.findall(r"\w+", text.lower())] or [np.zeros(width)] for text in texts]
        return np.stack([np.mean(row, axis=0) for row in rows])

    return load_encoder(encode, name="mean of words")
