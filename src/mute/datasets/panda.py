"""PANDA: texts, and how people rewrote them for another gender, race or age."""

from __future__ import annotations

import json
import tarfile
from collections import defaultdict
from pathlib import Path

import numpy as np

from mute.datasets.gender_words import PAIRS
from mute.errors import MuteError
from mute.typing import Json

__all__ = ["RACES", "gender_rewrites", "race_rewrites", "read_panda"]

RACES = (
    "American Indian or Alaska Native",
    "Asian",
    "Black or African American",
    "Hispanic or Latino",
    "Native Hawaiian or Other Pacific Islander",
    "White",
)

# A sentence or two: what rewrites sentence by sentence can be compared with.
_MOST_WORDS = 40

_SHARDS = tuple(f"dataset/PANDA-annotated-100k-shard{shard}.jsonl" for shard in range(5))

# What a selected word says of the person before the rewrite. Only words that leave no doubt.
_GENDER_OF = {"him": "Man"} | {f: "Woman" for f, _ in PAIRS} | {m: "Man" for _, m in PAIRS}


def read_panda(path: Path) -> list[Json]:
    """Read all rewrites of ``PANDA-dataset.tgz``, gathered under the text they were made from.

    Texts that differ in capitals and blanks only are one original. Rewrites that change nothing, or that are there
    twice, are left out. 70 % of the originals are there to fit, 10 % to validate and 20 % to test: an original has
    about a dozen rewrites, and a split by rewrite would show the test texts to the fit.
    """
    gathered: dict[str, dict[tuple[str, ...], Json]] = defaultdict(dict)
    for row in _rows(path):
        original, rewrite = row["original"].strip(), row["rewrite"].strip()
        if _key(original) == _key(rewrite):
            continue
        word, target = row["selected_word"], row["perturbed_category"]
        gathered[_key(original)].setdefault(
            (rewrite, word, target),
            {
                "original": original,
                "rewrite": rewrite,
                "selected_word": word,
                # None where the word does not say it.
                "source_attribute": _GENDER_OF.get(word.lower()) if target in ("Man", "Woman", "Non-Binary") else None,
                "target_attribute": target,
                "corpus": row["source_data_type"],
            },
        )
    ranks = np.random.default_rng(0).permutation(len(gathered)) / len(gathered)
    return [
        {
            "original_id": i,
            "split": "fit" if rank < 0.7 else "validate" if rank < 0.8 else "test",
            "rewrites": list(rewrites.values()),
        }
        for i, (rank, rewrites) in enumerate(zip(ranks.tolist(), gathered.values(), strict=True))
    ]


def race_rewrites(pairs: list[Json]) -> list[Json]:
    """The rewrites for a race, each text once; texts that were given for two races are left out."""
    races = defaultdict(set)
    for pair in pairs:
        races[_key(pair["rewrite"])].add(pair["target_attribute"])
    chosen: dict[str, Json] = {}
    for pair in pairs:
        key = _key(pair["rewrite"])
        if pair["target_attribute"] in RACES and len(races[key]) == 1:
            chosen.setdefault(key, pair)
    return list(chosen.values())


def gender_rewrites(pairs: list[Json]) -> dict[str, list[str]]:
    """The rewrites of short texts from a man to a woman or the other way round, as columns, in the order of the pairs.

    `pairs` are as `mute.datasets.load_pairs_of_texts` gives them.
    """
    name = {"Man": "male", "Woman": "female"}
    chosen = [
        pair
        for pair in pairs
        if {pair["source_attribute"], pair["target_attribute"]} == set(name)
        and len(pair["original"].split()) <= _MOST_WORDS
    ]
    return {
        "source": [pair["original"] for pair in chosen],
        "reference": [pair["rewrite"] for pair in chosen],
        "from": [name[pair["source_attribute"]] for pair in chosen],
        "to": [name[pair["target_attribute"]] for pair in chosen],
        "split": [pair["split"] for pair in chosen],
        "original_id": [str(pair["original_id"]) for pair in chosen],
    }


def _key(text: str) -> str:
    return " ".join(text.lower().split())


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        with tarfile.open(path) as archive:
            # A member that is not a regular file gives None.
            return [json.loads(line) for name in _SHARDS for line in archive.extractfile(name)]  # type: ignore[union-attr]
    except (TypeError, tarfile.TarError, KeyError, EOFError, OSError, json.JSONDecodeError) as error:
        raise MuteError(f"{path} does not contain the five parts of PANDA: {error}; fetch it again") from error
