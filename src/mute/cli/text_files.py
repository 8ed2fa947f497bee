"""Files of the text commands: columns of a table of texts, lists of words, counterfactual texts."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mute.cli.texts import _json_lines, read_texts
from mute.errors import MuteError
from mute.storage.files import check_target, write_atomically
from mute.tables import read_labels
from mute.tables.readers import readable
from mute.text.counterfactual import Counterfactuals

__all__ = ["check_output", "label_of", "labels_for", "read_concept", "read_corpus", "read_words", "write_texts"]

_CORPORA = (".csv", ".tsv", ".parquet", ".jsonl")


def read_corpus(path: Path, column: str) -> list[str]:
    """The texts of one column of a table."""
    if path.suffix.lower() not in _CORPORA:
        raise MuteError(f"{path} is of an unknown kind: give a table of texts that ends in {', '.join(_CORPORA)}")
    return read_texts(f"{path}:{column}")


def read_concept(path: Path, column: str) -> NDArray[Any]:
    """The labels of one column of a table."""
    if path.suffix.lower() != ".jsonl":
        return read_labels(f"{path}:{column}")
    values = _json_lines(path, column)
    for row, value in enumerate(values):
        if not isinstance(value, str | int) or value == "":
            raise MuteError(
                f"{path}:{column}: row {row} (counting from 0) is {value!r:.80}, not a label: fill it or drop the row"
            )
    return np.array(values, object)


def label_of(classes: NDArray[Any], text: Any, name: str) -> Any:
    """The label of a model that `text` writes, whatever its type."""
    for label in classes.tolist():
        if str(label) == str(text):
            return label
    raise MuteError(f"{name} {text!r} is no label of the model; its labels: {', '.join(map(str, classes))}")


def labels_for(classes: NDArray[Any], path: Path, given: str, name: str) -> Any:
    """One label of a model for all texts, or a list out of a column of the table."""
    if given in map(str, classes):
        return label_of(classes, given, name)
    try:
        values = read_concept(path, given)
    except MuteError as error:
        known = ", ".join(map(str, classes))
        raise MuteError(f"{name} {given!r} is neither a label of the model ({known}) nor a column: {error}") from None
    labels = {value: label_of(classes, value, f"{path}: in column {given!r}") for value in set(values.tolist())}
    return [labels[value] for value in values.tolist()]


def read_words(path: Path, classes: NDArray[Any]) -> dict[Any, set[str]]:
    """Words that tell each class, out of JSON like ``{"male": ["he", ...], "female": ["she", ...]}``."""
    if not path.is_file():
        raise MuteError(f"--words {path} does not exist: give a JSON file of lists of words by label")
    with readable(path):
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    lists = content.values() if isinstance(content, dict) else [None]
    if not all(isinstance(words, list) and all(isinstance(word, str) for word in words) for words in lists):
        raise MuteError(f'--words {path} must look like {{"male": ["he", "his"], "female": ["she", "her"]}}')
    return {label_of(classes, label, f"--words {path}:"): set(words) for label, words in content.items()}


def check_output(path: Path) -> None:
    """Can texts be written here, and is it known how?"""
    if path.suffix.lower() not in _WRITERS:
        raise MuteError(f"cannot write texts to {path}: give a name that ends in {', '.join(_WRITERS)}")
    check_target(path)


def write_texts(path: Path, found: Counterfactuals) -> None:
    """Write counterfactuals: the texts alone (.txt), or all that is known of them (.csv, .tsv, .jsonl)."""
    rows = [
        {"source": source, "text": text, "concept": concept, "to": to, "start_score": before, "score": after}
        for source, text, concept, to, before, after in zip(
            found.sources,
            found.texts,
            found.concept.tolist(),
            found.to.tolist(),
            found.start_scores.round(5).astype(float).tolist(),
            found.scores.round(5).astype(float).tolist(),
            strict=True,
        )
    ]
    with write_atomically(path) as file:
        file.write(_WRITERS[path.suffix.lower()](rows).encode())


def one_line(text: str) -> str:
    """The text without its line breaks, for files and pipes where a line is a text."""
    return " ".join(text.splitlines())


def _lines(rows: Sequence[dict[str, Any]]) -> str:
    return "".join(one_line(row["text"]) + "\n" for row in rows)


def _json(rows: Sequence[dict[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _delimited(rows: Sequence[dict[str, Any]], delimiter: str) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), delimiter=delimiter, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


_WRITERS: dict[str, Callable[[Sequence[dict[str, Any]]], str]] = {
    ".csv": lambda rows: _delimited(rows, ","),
    ".tsv": lambda rows: _delimited(rows, "\t"),
    ".jsonl": _json,
    ".txt": _lines,
}
