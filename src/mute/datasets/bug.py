"""BUG: real sentences about one person, with a gender (from a pronoun) and an occupation (from a word)."""

import ast
import csv
import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError

__all__ = ["MASK", "OCCUPATIONS", "read_bug", "read_bug_texts"]

# The word that stands for the occupation; BERT-like tokenisers know it.
MASK = "[MASK]"

# The 28 occupations with at least 735 sentences. Left out are nouns as frequent that are no occupation (patient, child,
# friend, person, user, student) or rather a rank (captain, chief). Half of the sentences are about the arts, so writing
# is a group of its own.
OCCUPATIONS = {
    "arts and stage": ("artist", "director", "musician", "painter", "producer", "singer"),
    "writing": ("author", "editor", "journalist", "writer"),
    "health and learning": ("doctor", "nurse", "physician", "professor", "scientist", "surgeon", "teacher"),
    "state and church": ("agent", "judge", "lawyer", "officer", "president", "priest"),
    "trade and sport": ("coach", "driver", "farmer", "manager", "pilot"),
}

_COLUMNS = ("tokens", "profession", "profession_first_index", "predicted gender", "sentence_text")


def read_bug(path: Path) -> dict[str, NDArray[np.str_]]:
    """Read the sentences about the 28 occupations of `OCCUPATIONS`, as columns ``names``, ``z``, ``y`` and ``split``.

    The occupation is masked wherever the sentence has it, in the singular or the plural: without that the task would be
    to spot a word. 50 % of the sentences are there to fit, 20 % to validate and 30 % to test, in the same shares for
    each gender and occupation; sentences that are the same once masked (but for capitals) are in the same part.
    """
    kept = {occupation for group in OCCUPATIONS.values() for occupation in group}
    texts, genders, occupations = [], [], []
    for row in _rows(path):
        occupation = row["profession"].lower()
        if occupation in kept:
            texts.append(_masked(path, row["tokens"], int(row["profession_first_index"]), occupation))
            genders.append(row["predicted gender"])
            occupations.append(occupation)
    z, y = np.array(genders), np.array(occupations)
    return {"names": np.array(texts), "z": z, "y": y, "split": _split(texts, np.char.add(np.char.add(z, "/"), y))}


def read_bug_texts(path: Path) -> dict[str, list[str]]:
    """Read all sentences of ``full_BUG.csv`` as they are, each once; of equal sentences the first row counts.

    About 80 % of the sentences are there to fit, 10 % to validate and 10 % to test. The part is drawn from a hash of
    the letters of the sentence, so it depends on nothing else, and sentences that differ only in capitals, digits or
    signs are in the same part.
    """
    first: dict[str, dict[str, str]] = {}
    for row in _rows(path):
        first.setdefault(row["sentence_text"].strip(), row)
    return {
        "text": list(first),
        "gender": [row["predicted gender"] for row in first.values()],
        "profession": [row["profession"].lower() for row in first.values()],
        "split": [_part(text) for text in first],
    }


def _rows(path: Path) -> Iterator[dict[str, str]]:
    """The rows with a gender."""
    with open(path, encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        missing = [name for name in _COLUMNS if name not in (reader.fieldnames or ())]
        if missing:
            raise MuteError(f"{path} has no column {missing[0]!r}; it is not the file full_BUG.csv")
        for row in reader:
            if row["predicted gender"] in ("female", "male"):
                yield row


def _part(text: str) -> str:
    letters = "".join(filter(str.isalpha, text.lower()))
    tenth = int.from_bytes(hashlib.sha256(letters.encode()).digest()[:8]) % 10
    return {0: "test", 1: "validate"}.get(tenth, "fit")


def _masked(path: Path, literal: str, index: int, occupation: str) -> str:
    try:
        tokens = [str(token) for token in ast.literal_eval(literal)]
        tokens[index] = MASK
    except (ValueError, SyntaxError, IndexError, TypeError) as error:
        raise MuteError(f"{path} has tokens that are not a list with an occupation at {index}: {literal!r}") from error
    same = {occupation, f"{occupation}s", f"{occupation}es"}
    return " ".join(MASK if token.lower() in same else token for token in tokens)


def _split(texts: list[str], strata: NDArray[np.str_]) -> NDArray[np.str_]:
    """Split distinct texts by strata; the others follow the first that is the same."""
    from sklearn.model_selection import train_test_split

    first: dict[str, int] = {}
    leader = np.array([first.setdefault(text.lower(), i) for i, text in enumerate(texts)])
    distinct = np.array(list(first.values()))
    seen, test = train_test_split(distinct, test_size=0.3, random_state=0, stratify=strata[distinct])
    _, validate = train_test_split(seen, test_size=2 / 7, random_state=0, stratify=strata[seen])
    split = np.full(len(texts), "fit", dtype="<U8")
    split[validate], split[test] = "validate", "test"
    return split[leader]
