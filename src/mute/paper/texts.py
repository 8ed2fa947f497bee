"""Counterfactual texts: ways to move embeddings times ways to decode them, on biographies, PANDA, and occupations."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.typing import Json

if TYPE_CHECKING:
    from mute.text import EditSearch, Encoder
    from mute.text.decoders.decoder import Decoder

__all__ = [
    "DECODERS", "MOVERS", "SETS", "TextSet", "describe_texts", "encoded_corpus", "moved_texts", "print_of_inverter",
    "print_of_texts", "text_jobs", "text_set",
]  # fmt: skip

# A label to the method, its settings, and whether texts are moved with true labels. The paper's flow has four layers.
MOVERS: dict[str, tuple[str | None, Json, bool]] = {
    "none": (None, {}, True),
    "reference": (None, {}, True),  # the embeddings of the references: what decoding alone costs
    "mute-oracle": ("mute", {"n_iterations": 4}, True),
    "mute": ("mute", {"n_iterations": 4}, False),
    **{f"mean-difference-{s:g}": ("mean-difference", {"strength": s}, True) for s in (0.5, 1.0, 1.5, 2.0, 3.0)},
    **{f"linear-ot-{r:.0e}": ("linear-ot", {"reg": r}, True) for r in (1e-2, 1e-4, 1e-6)},
    "linear-surrogate": ("linear-surrogate", {}, True),
}

DECODERS = ("edits", "retrieval", "inverter")

# Texts to move, and what about them: `bios` are the authors' files, `panda` people's rewrites, `occupations` a second
# concept, of six classes.
SETS = ("bios", "panda", "occupations")

# These move all texts of both sets about gender; the other strengths and ridges, every fourth text of the first. The
# inverter, which takes its time, decodes every fourth, too.
_WHOLE = ("none", "reference", "mute-oracle", "mute", "mean-difference-1", "linear-ot-1e-04", "linear-surrogate")

_TEXTS = ("sources", "references", "concept", "to", "paper_references")
_SECOND = ("none", "reference", "mute-oracle", "mean-difference-1")
_SWEPT = 4
_ENCODER = "minilm"
_MOST = {"bios": None, "panda": 200, "occupations": 120}
_QUICK_CORPUS, _QUICK_TEXTS = 1500, 24


@dataclass(frozen=True, eq=False)
class TextSet:
    """Texts to be moved, with references and the corpus from which the maps are learnt."""

    name: str
    sources: list[str]
    references: list[str]
    concept: list[str]  # the class of each source
    to: list[str]  # the class that it is moved to
    paper_references: list[str] | None  # by the paper's rule, with its faults
    words: dict[str, set[str]] | None  # that tell the classes, to score with; None for the paper's lists of gender
    corpus: list[str]
    labels: list[str]


def text_jobs(sets: list[str], inverter: bool, quick: bool) -> list[Json]:
    """All jobs; the sweeps on the first set only, since they are the longest part."""
    found = []
    for name in sets:
        movers: Iterable[str] = MOVERS if name == sets[0] else _WHOLE
        if quick or name == "occupations":
            movers = _SECOND
        decoders = DECODERS if inverter and name != "occupations" else DECODERS[:2]
        found += [
            {"job": "text", "set": name, "mover": mover, "decoder": decoder, "seed": 0}
            for mover in movers
            for decoder in (decoders if mover in _WHOLE else DECODERS[:1])
        ]
    return found


@lru_cache(maxsize=2)
def text_set(name: str, path: str | None, quick: bool) -> TextSet:
    """Load one of `SETS`; `path` is the folder of the authors' texts, which `bios` needs."""
    made = {"bios": _bios, "panda": _panda, "occupations": _occupations}[name](path)
    made = _some(made, _TEXTS, _spread(len(made.sources), _QUICK_TEXTS if quick else _MOST[name]))
    return _some(made, ("corpus", "labels"), _spread(len(made.corpus), _QUICK_CORPUS if quick else None))


def _some(data: TextSet, columns: Iterable[str], rows: Sequence[int]) -> TextSet:
    """These rows of some columns, with the others whole."""
    given = {name: getattr(data, name) for name in columns}
    some: Json = {name: [v[i] for i in rows] for name, v in given.items() if v is not None}
    return replace(data, **some)


def describe_texts(data: TextSet) -> Json:
    """What a reader must know of a set: its size, and how much the references themselves are of the wanted class."""
    from mute.text import substitution_rate
    from mute.text.evaluation.words import GENDER

    rate = substitution_rate(data.references, data.to, GENDER if data.words is None else data.words)
    return {
        "texts": len(data.sources),
        "corpus": {label: data.labels.count(label) for label in sorted(set(data.labels))},
        "substitution": rate.rate,
        "substitution_with_markers": rate.rate_with_markers,
    }


def print_of_texts(data: TextSet) -> str:
    """A hash of the texts, of the corpus and of the encoder."""
    parts = (data.sources, data.references, data.to, data.corpus, data.labels, _encoder().fingerprint)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def print_of_inverter(folder: str) -> str:
    """A hash of its weights."""
    files = sorted(Path(folder).glob("*.safetensors"))
    if not files:
        raise MuteError(f"{folder} holds no trained inverter: make one with `mute text train-inverter`")
    return hashlib.sha256(b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files)).hexdigest()


def moved_texts(data: TextSet, mover: str, decoder: str, inverter: str | None) -> Json:
    """Move the texts of a set, decode them, and score what comes out."""
    from mute.text import bleu
    from mute.text.decoders.decoder import cosines
    from mute.text.evaluation.scoring import score_texts

    encoder, corpus = _encoder(), encoded_corpus(data)
    decode = _decoder(data, corpus, decoder, inverter).decode
    if mover not in _WHOLE or decoder == "inverter":
        data = _some(data, _TEXTS, range(0, len(data.sources), _SWEPT))
    rows, target = encoder(data.sources), encoder(data.references)
    wanted = target if mover == "reference" else _moved(data, corpus, rows, mover)
    out = decode(wanted, data.sources)
    scores, near = score_texts(
        out.texts, data.sources, data.references, data.to, encoder, concept=data.concept, words=data.words
    )
    examples = [
        {"source": data.sources[i], "text": out.texts[i], "reference": data.references[i], "cosine": float(near[i])}
        for i in range(len(near))
    ]
    return {
        "encoder": encoder.name,
        "scores": scores,
        "bleu_paper_references": data.paper_references and bleu(out.texts, data.paper_references).score,
        "wanted_to_reference": float(cosines(wanted, target).mean()),
        "wanted_length": float(np.mean(np.linalg.norm(wanted, axis=1) / np.linalg.norm(target, axis=1))),
        "reached": float(out.scores.mean()),
        "examples": [examples[i] for i in _spread(len(examples), 12)],
        "worst": [examples[int(i)] for i in np.argsort(near, kind="stable")[:10]],
    }


def _moved(data: TextSet, corpus: NDArray[np.float32], rows: NDArray[np.float32], mover: str) -> NDArray[np.float32]:
    from mute.estimators.registry import make

    name, settings, true_labels = MOVERS[mover]
    if name is None:
        return rows
    # With true labels no router is needed; without one MUtE is the paper's oracle, MUtE*.
    routing = {"router": None} if true_labels else {}
    method = make(name, random_state=0, **settings, **routing).fit(corpus, np.array(data.labels))
    return method.counterfactual(rows, np.array(data.to), concept=np.array(data.concept) if true_labels else None)


@lru_cache(maxsize=1)
def _encoder() -> Encoder:
    from mute.text import load_encoder

    return load_encoder(_ENCODER)


@lru_cache(maxsize=2)
def encoded_corpus(data: TextSet) -> NDArray[np.float32]:
    """The embeddings of the corpus, made once and kept with the prepared data."""
    from mute.datasets import data_folder
    from mute.text import encode

    return np.asarray(encode(data.corpus, _encoder(), cache=data_folder() / "encoded"))


@lru_cache(maxsize=1)
def _edits(data: TextSet) -> EditSearch:
    from mute.text import EditSearch

    return EditSearch(_encoder()).fit(data.corpus)


def _decoder(data: TextSet, corpus: NDArray[np.float32], decoder: str, inverter: str | None) -> Decoder:
    from mute.text import Inverter, Retrieval

    if decoder == "edits":
        return _edits(data)
    if decoder == "retrieval":
        return Retrieval(_encoder(), data.corpus, corpus)
    if inverter is None:
        raise MuteError("there is no trained inverter: give its folder")
    return Inverter.load(inverter, _encoder())


def _gendered() -> tuple[list[str], list[str]]:
    """The corpus of gender: BUG and PANDA, their parts to fit."""
    from mute.datasets.prepared import load_texts

    bug, panda = load_texts("bug-texts"), load_texts("panda-gender")
    pairs: dict[str, str] = {}
    for table, text, gender in ((bug, "text", "gender"), (panda, "source", "from"), (panda, "reference", "to")):
        rows = zip(table[text], table[gender], table["split"], strict=True)
        pairs |= {text: gender for text, gender, split in rows if split == "fit"}
    return list(pairs), list(pairs.values())


def _bios(path: str | None) -> TextSet:
    from mute.text.evaluation.words import GENDER, split_words
    from mute.text.swaps import swap_gender

    if path is None:
        raise MuteError("the paper's biographies are the authors': give their folder with --data texts=FOLDER")
    sources, by_rule = (_lines(Path(path) / name) for name in ("small_test_texts.txt", "small_test_texts_cf.txt"))
    if len(sources) != len(by_rule):
        raise MuteError(f"{path}: {len(sources)} texts but {len(by_rule)} references")
    concept = []
    for text in sources:
        said = Counter(gender for token in split_words(text) for gender in GENDER if token.lower() in GENDER[gender])
        concept.append("female" if said["female"] > said["male"] else "male")
    to = ["male" if gender == "female" else "female" for gender in concept]
    references = [swap_gender(text, nouns=False) for text in sources]
    return TextSet("bios", sources, references, concept, to, by_rule, None, *_gendered())


def _lines(path: Path) -> list[str]:
    """The texts of one of the authors' files, whose first line is a title."""
    try:
        return path.read_text(encoding="utf-8").rstrip("\n").split("\n")[1:]
    except (OSError, UnicodeDecodeError) as error:
        raise MuteError(f"cannot read {path}: give the folder of the authors' counterfactual texts") from error


def _panda(_: str | None) -> TextSet:
    from mute.datasets.prepared import load_texts

    pairs = load_texts("panda-gender")
    first: dict[str, int] = {}
    for i, (original, split) in enumerate(zip(pairs["original_id"], pairs["split"], strict=True)):
        if split == "test":
            first.setdefault(original, i)
    columns = ("source", "reference", "from", "to")
    sources, references, concept, to = ([pairs[c][i] for i in first.values()] for c in columns)
    return TextSet("panda", sources, references, concept, to, None, None, *_gendered())


def _occupations(_: str | None) -> TextSet:
    """Sentences of BUG about the six most frequent occupations; a reference has one word in the place of another."""
    import re

    from mute.datasets.bug import OCCUPATIONS
    from mute.datasets.prepared import load_texts

    bug = load_texts("bug-texts")
    known = {occupation for group in OCCUPATIONS.values() for occupation in group}
    classes = [p for p, _ in Counter(p for p in bug["profession"] if p in known).most_common(6)]
    moved = TextSet("occupations", [], [], [], [], None, {p: {p} for p in classes}, [], [])
    for text, mine, split in zip(bug["text"], bug["profession"], bug["split"], strict=True):
        if mine in classes and split == "fit":
            moved.corpus.append(text)
            moved.labels.append(mine)
        found = re.findall(r"\w+", text.lower())
        # One of the words only, once: otherwise it is not said who the sentence is about.
        if split == "test" and mine in classes and mine in found and sum(found.count(p) for p in classes) == 1:
            goal = classes[(classes.index(mine) + 1 + len(moved.sources) % 5) % 6]
            capital = re.search(rf"\b{mine.capitalize()}\b", text)
            moved.sources.append(text)
            moved.references.append(re.sub(rf"(?i)\b{mine}\b", goal.capitalize() if capital else goal, text))
            moved.concept.append(mine)
            moved.to.append(goal)
    return moved


def _spread(n: int, most: int | None) -> list[int]:
    """At most so many of n rows, evenly spread."""
    return list(range(n)) if most is None or most >= n else [i * n // most for i in range(most)]
