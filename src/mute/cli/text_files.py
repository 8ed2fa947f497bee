"""Files of the text commands: texts and labels to read (``PATH`` or ``PATH:COLUMN``), counterfactual texts to write."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mute.cli.console import label_of
from mute.datasets import read_pickle
from mute.errors import MuteError, listed
from mute.storage.files import write_atomically
from mute.tables import read_labels
from mute.tables.delimited import delimited_column
from mute.tables.parquet import parquet_column
from mute.tables.readers import pick, readable
from mute.tables.specs import locate
from mute.text import Counterfactuals
from mute.typing import Array, Label

__all__ = [
    "OUTPUTS", "labels_for", "one_line", "read_concept", "read_corpus", "read_texts", "read_words", "write_texts",
]  # fmt: skip

_CORPORA = (".csv", ".tsv", ".parquet", ".jsonl")


def read_texts(spec: str) -> list[str]:
    r"""Read one text per row; empty lines and cells are empty texts.

    `spec` is ``PATH.txt`` with one text per line, ``PATH.csv:COLUMN``, ``PATH.tsv:COLUMN``, ``PATH.parquet:COLUMN``,
    ``PATH.jsonl:KEY``, or ``PATH.pickle:KEY`` (``.pkl`` as well), a pickled list of dicts, of which only plain data is
    read. The name may be left out when there is only one thing to choose.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "x.csv")
    ...     with open(path, "w") as file:
    ...         _ = file.write('id,text\n1,"Yes, she did."\n2,\n')
    ...     read_texts(f"{path}:text")
    ['Yes, she did.', '']
    """
    path, selector = locate(spec, _READERS)
    texts = _READERS[path.suffix.lower()](path, selector)
    if not texts:
        raise MuteError(f"{spec} has no texts: at least one is needed")
    _check_values(spec, texts, lambda value: isinstance(value, str), "a text")
    return list(texts)


def read_corpus(path: Path, column: str) -> list[str]:
    """The texts of one column of a table."""
    if path.suffix.lower() not in _CORPORA:
        raise MuteError(f"{path} is of an unknown kind: give a table of texts that ends in {', '.join(_CORPORA)}")
    return read_texts(f"{path}:{column}")


def read_concept(path: Path, column: str) -> Array:
    """The labels of one column of a table."""
    if path.suffix.lower() != ".jsonl":
        return read_labels(f"{path}:{column}")
    values = _json_lines(path, column)
    _check_values(f"{path}:{column}", values, lambda value: isinstance(value, str | int) and value != "", "a label")
    return np.array(values, object)


def _check_values(spec: str, values: Sequence[Any], is_fine: Callable[[Any], bool], kind: str) -> None:
    for row, value in enumerate(values):
        if not is_fine(value):
            raise MuteError(
                f"{spec}: row {row} (counting from 0) is {value!r:.80}, not {kind}: fill it or drop the row"
            )


def labels_for(classes: Array, path: Path, given: str, name: str) -> Label | list[Label]:
    """One label of the model for all texts, or a list of labels from a column of the table."""
    if given in map(str, classes):
        return label_of(classes, given, name)
    try:
        values = read_concept(path, given)
    except MuteError as error:
        known = listed(list(classes))
        raise MuteError(f"{name} {given!r} is neither a label of the model ({known}) nor a column: {error}") from None
    labels = {value: label_of(classes, value, f"{path}: in column {given!r}") for value in set(values.tolist())}
    return [labels[value] for value in values.tolist()]


def read_words(path: Path, classes: Array) -> dict[Any, set[str]]:
    """The words of each class, from JSON like ``{"male": ["he", ...], "female": ["she", ...]}``."""
    if not path.is_file():
        raise MuteError(f"--words {path} does not exist: give a JSON file of lists of words by label")
    with readable(path):
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    lists = content.values() if isinstance(content, dict) else [None]
    if not all(isinstance(words, list) and all(isinstance(word, str) for word in words) for words in lists):
        raise MuteError(f'--words {path} must look like {{"male": ["he", "his"], "female": ["she", "her"]}}')
    return {label_of(classes, label, f"--words {path}:"): set(words) for label, words in content.items()}


def _lines(path: Path, _: str | None) -> list[str]:
    with readable(path), open(path, encoding="utf-8-sig") as file:
        return [line.removesuffix("\n") for line in file]


def _json_lines(path: Path, key: str | None) -> list[Any]:
    with readable(path), open(path, encoding="utf-8-sig") as file:
        rows = [json.loads(line) for line in file if line.strip()]
    return _under_key(path, rows, key)


def _pickle(path: Path, key: str | None) -> list[Any]:
    rows = read_pickle(path)
    if not isinstance(rows, list | tuple):
        raise MuteError(f"{path} is a pickled {type(rows).__name__}: a list of dicts, or of texts, is needed")
    return _under_key(path, rows, key)


def _under_key(path: Path, rows: Sequence[Any], key: str | None) -> list[Any]:
    """The value of each row under a key; rows that are texts themselves have none."""
    if key is None and all(isinstance(row, str) for row in rows):
        return list(rows)
    values = []
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise MuteError(f"{path}: row {number} (counting from 0) is {row!r:.80}, not a dict with texts in it")
        key = pick(path, key, [str(name) for name in row], "key") if number == 0 else key
        if key not in row:
            raise MuteError(f"{path}: row {number} (counting from 0) has no {key!r}: it has {', '.join(map(str, row))}")
        values.append(row[key])
    return values


_READERS: dict[str, Callable[[Path, str | None], list[Any]]] = {
    ".txt": _lines,
    ".csv": delimited_column,
    ".tsv": delimited_column,
    ".parquet": lambda path, column: list(parquet_column(path, column).to_pylist()),
    ".jsonl": _json_lines,
    ".pickle": _pickle,
    ".pkl": _pickle,
}
# Kinds of files that `write_texts` writes.
OUTPUTS = (".csv", ".tsv", ".jsonl", ".txt")


def write_texts(path: Path, found: Counterfactuals) -> None:
    """Write counterfactuals: only the texts (.txt), or also sources, labels and scores (.csv, .tsv, .jsonl)."""
    columns = {
        "source": found.sources,
        "text": found.texts,
        "concept": found.concept.tolist(),
        "to": found.to.tolist(),
        "start_score": found.start_scores.round(5).astype(float).tolist(),
        "score": found.scores.round(5).astype(float).tolist(),
    }
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    out, kind = io.StringIO(), path.suffix.lower()
    if kind == ".txt":
        out.writelines(one_line(text) + "\n" for text in found.texts)
    elif kind == ".jsonl":
        out.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    else:
        writer = csv.DictWriter(out, list(columns), delimiter="\t" if kind == ".tsv" else ",", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    with write_atomically(path) as file:
        file.write(out.getvalue().encode())


def one_line(text: str) -> str:
    """The text without line breaks, for files and pipes with one text per line."""
    return " ".join(text.splitlines())
