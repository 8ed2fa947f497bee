"""The data sets of the paper: the authors' own files where a path is given, else real data that stands in for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mute.datasets import Dataset
from mute.errors import MuteError
from mute.flow.routing import stratified_sample
from mute.rows.validation import LabelEncoder
from mute.typing import Json

__all__ = ["MORE", "PROBLEMS", "Problem", "Words", "describe", "part_of", "problem", "rows_for", "task_of", "words_of"]


@dataclass(frozen=True)
class Problem:
    """A data set of the paper, by the paper's name; the title says what the rows really are.

    Erasers are fitted on `fit`, fresh adversaries learn on `fresh`, and all are judged on `test`.
    """

    name: str
    title: str
    stand_in: bool
    fit: Dataset
    fresh: Dataset
    test: Dataset

    @property
    def its_layers(self) -> bool:
        """Whether the paper's number of layers suits: there are as many rows for each column as it had, or more."""
        return self.name == "glove" or not self.stand_in


# Name to (loader of the authors' files, stand-in, title of the paper's, title of the stand-in).
PROBLEMS: dict[str, tuple[str, str, str, str]] = {
    "glove": ("load_glove_gender", "glove", "GloVe (300-d words, gender)", "GloVe words, 100-d, gender"),
    "bios": (
        "load_bias_in_bios", "bug", "Bias in Bios (BERT, gender, occupation)",
        "BUG sentences, MiniLM 384-d, gender; task: which of 28 occupations was masked",
    ),
    "dial": (
        "load_dial", "bug-occupations", "DIAL (DeepMoji, dialect, sentiment)",
        "BUG sentences, MiniLM 384-d, gender; task: which of two groups of occupations; four cells of equal size",
    ),
    "jigsaw": (
        "load_jigsaw", "bug-occupations", "Jigsaw (text-embedding-3, religion)",
        "BUG sentences, MiniLM 384-d, five groups of occupations",
    ),
}  # fmt: skip


# Other data, in the same form.
MORE = {"word2vec": ("load_glove_gender", "word2vec", "", "word2vec words, 300-d, gender")}


def problem(name: str, path: str | None = None, *, most_rows: int | None = None, shipped: bool = False) -> Problem:
    """Load a data set of `PROBLEMS` or `MORE`: the authors' files in the folder `path`, or the prepared stand-in.

    `most_rows` limits the training rows, drawn at random within classes, and half of it each of the other two parts.
    `shipped` words are the smaller set that ships with the package.
    """
    import mute.datasets as datasets

    loader, stand_in, title, other_title = (PROBLEMS | MORE)[name]
    if path is not None:
        data = getattr(datasets, loader)(path)
    elif shipped:
        data, other_title = datasets.load_glove_gender(), "12,000 GloVe words that ship with the package"
    else:
        data = datasets.load(stand_in)
        data = _four_cells(data) if name == "dial" else data
    fit, test = data.rows("fit"), data.rows("test")
    if "validate" in data.split:
        fresh = data.rows("validate")
    else:  # Jigsaw has no third part: fresh adversaries learn on one half of the test rows
        half = _drawn(test, len(test) // 2)
        fresh, test = part_of(test, half), part_of(test, ~half)
    if most_rows is not None:
        fit = part_of(fit, _drawn(fit, most_rows))
        fresh, test = (part_of(part, _drawn(part, most_rows // 2)) for part in (fresh, test))
    return Problem(name, other_title if path is None else title, path is None, fit, fresh, test)


def _four_cells(data: Dataset) -> Dataset:
    """Like DIAL: two classes, two labels of a task, as many rows of each pair, in each part of the data.

    The task is which of the two groups a row belongs to whose rarest pair with a class is the most frequent.
    """
    gender, group = task_of(data), data.z
    pairs = {(g, k): (group == g) & (gender == k) for g in np.unique(group) for k in np.unique(gender)}
    rarest = {g: min(rows.sum() for (other, _), rows in pairs.items() if other == g) for g in np.unique(group)}
    two = sorted(rarest, key=lambda g: -rarest[g])[:2]
    rng = np.random.default_rng(0)
    kept = np.zeros(len(data), bool)
    for split in np.unique(data.split):
        cells = [np.flatnonzero((data.split == split) & pairs[g, k]) for g in two for k in np.unique(gender)]
        for cell in cells:
            kept[rng.choice(cell, min(map(len, cells)), replace=False)] = True
    return part_of(replace(data, z=gender, y=group), kept)


def _drawn(data: Dataset, size: int) -> NDArray[np.bool_]:
    chosen = np.zeros(len(data), bool)
    if size >= len(data):
        return ~chosen
    # Classes of the task within classes of the concept, so that rare ones are not lost.
    cells = data.z if data.y is None else np.array([f"{z}\n{y}" for z, y in zip(data.z, data.y, strict=True)])
    chosen[stratified_sample(LabelEncoder.fit(cells)[1], size, np.random.default_rng(0))] = True
    return chosen


def part_of(data: Dataset, rows: NDArray[np.bool_]) -> Dataset:
    """These rows of a data set."""
    y = None if data.y is None else data.y[rows]
    return replace(data, X=data.X[rows], z=data.z[rows], y=y, names=data.names[rows], split=data.split[rows])


def rows_for(method: str, X: NDArray) -> NDArray:
    """Rows in the precision that a method needs: the paper's floors are finer than float32 can tell."""
    return X.astype(np.float64) if method == "as-paper" else X


def task_of(data: Dataset) -> NDArray:
    """The task's labels; studies of a task need them."""
    if data.y is None:
        raise MuteError("these rows have no labels of a task, which this study needs")
    return data.y


@dataclass(frozen=True)
class Words:
    """Vectors of words that people have compared, and what they said, by survey; the first is the main one."""

    names: Sequence[str]
    vectors: NDArray[np.float32]
    surveys: dict[str, Sequence[tuple[str, str, float]]]


def words_of(path: str | None, *, pairs: str | None = None) -> Words:
    """Words of the authors' GloVe folder, or prepared ones, for the correlation with human judgements.

    `pairs` is a file of judgements to come first. The paper's is the part of WordSim-353 for similarity, 203 pairs; the
    prepared one has all 353.
    """
    import mute.datasets as datasets

    surveys: Json = {}
    gold = "evaluation/ws353simrel/wordsim353_sim_rel/wordsim_similarity_goldstandard.txt"
    if pairs is not None or path is not None:
        file = Path(pairs) if pairs is not None else Path(path or "") / gold
        surveys[file.stem] = datasets.load_word_pairs(file)
    if path is not None:
        names, vectors = datasets.load_word_vectors(Path(path) / "glove-top-150k.pickle")
    else:
        names, vectors = datasets.load_words("glove")
        surveys |= {name: datasets.load_pairs(name) for name in ("wordsim353", "simlex999", "men")}
    # GloVe's words are in lower case.
    surveys = {name: [(a.lower(), b.lower(), score) for a, b, score in judged] for name, judged in surveys.items()}
    asked = {word for judged in surveys.values() for a, b, _ in judged for word in (a, b)}
    known = [row for row, name in enumerate(names) if name in asked]
    if not known:
        raise MuteError(f"none of the {len(asked)} words that people have compared has a vector; check the two files")
    return Words([names[row] for row in known], np.asarray(vectors[known], np.float32), surveys)


def describe(data: Problem) -> Json:
    """What a reader must know of it."""
    z = np.unique(data.test.z, return_counts=True)[1]
    tasks, counts = np.unique([] if data.fit.y is None else data.fit.y, return_counts=True)
    return {
        "title": data.title,
        "stand_in": data.stand_in,
        "columns": data.fit.X.shape[1],
        "rows": [len(data.fit), len(data.fresh), len(data.test)],
        "classes": len(z),
        "majority": float(z.max() / z.sum()),
        "task": len(tasks) or None,
        "trivial": float(np.mean(data.test.y == tasks[counts.argmax()])) if len(tasks) else None,
        "source": str(data.fit.provenance.get("source", "")),
    }
