"""Word vectors and pairs of words with a similarity, in the formats in which they are published."""

import csv
import mmap
import os
import re
from array import array
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mute.datasets.papers.reading import as_vectors
from mute.datasets.papers.unpickle import read_pickle
from mute.errors import MuteError

__all__ = ["load_word_pairs", "load_word_vectors"]

_HEADER = re.compile(rb"(\d+) (\d+)\s*")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def load_word_vectors(path: str | os.PathLike[str]) -> tuple[list[str], NDArray[np.float32]]:
    r"""Load words with their vectors.

    Parameters
    ----------
    path : str or path-like
        One of these, recognised by their content:

        - a pickle (``.pickle``, ``.pkl``) of a dict with ``"words"`` and ``"vecs"``, as ``glove-top-150k.pickle``;
        - text, a word and its numbers on each line, separated by single spaces, as GloVe is published; a first line
          ``n d``, as word2vec writes it, may precede;
        - the binary format of word2vec: a first line ``n d``, then word, space and d float32 each.

    Returns
    -------
    words : list of n str
        In the order of the file.
    vectors : array of shape (n, D)

    Notes
    -----
    *Limits.* Compressed files must be unpacked first. Words that are not proper UTF-8 in the binary format have
    U+FFFD in place of the bytes in question.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "glove.txt").write_text("the 0.5 1\nqueen -1 2\n")
    ...     words, vectors = load_word_vectors(Path(folder, "glove.txt"))
    >>> words, vectors.tolist()
    (['the', 'queen'], [[0.5, 1.0], [-1.0, 2.0]])
    """
    source = _file(path)
    if source.suffix.lower() in (".pkl", ".pickle"):
        words, vectors = _pickled(source)
    else:
        with open(source, "rb") as file:
            header = _HEADER.fullmatch(file.readline(64))
            announced = None if header is None else (int(header[1]), int(header[2]))
            binary = announced is not None and _is_binary(file.readline(1 << 20), announced[1])
        words, vectors = _binary(source) if binary else _text(source, announced)
    bad = ~np.isfinite(vectors).all(axis=1)
    if bad.any():
        raise MuteError(f"{source} has NaN or infinite values, first for the word {words[bad.argmax()]!r}")
    return words, vectors


def load_word_pairs(path: str | os.PathLike[str]) -> list[tuple[str, str, float]]:
    r"""Load pairs of words with the similarity that people gave them (WordSim-353, MEN, ...).

    Parameters
    ----------
    path : str or path-like
        Text with two words and a score on each line, separated by tabs, by commas or by spaces. Lines that begin with
        ``#`` are comments; a first line without a score is taken for a heading; columns after the score are ignored. A
        column of single letters before the words, which names their relation, is left out.

    Returns
    -------
    list of (str, str, float)
        First word, second word, score; in the order of the file, spelt as there.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "pairs.tsv").write_text("# from 0 to 10\nking\tqueen\t8.5\n")
    ...     load_word_pairs(Path(folder, "pairs.tsv"))
    [('king', 'queen', 8.5)]
    """
    source = _file(path)
    pairs: list[tuple[str, str, float]] = []
    try:
        lines = source.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise MuteError(f"{source} is not UTF-8 text: pairs of words with a score are expected") from error
    heading_possible = True
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = _fields(line)
        if len(fields) >= 4 and len(fields[0]) == 1 and not _NUMBER.fullmatch(fields[2]):
            fields = fields[1:]
        if len(fields) >= 3 and _NUMBER.fullmatch(fields[2]):
            pairs.append((fields[0], fields[1], float(fields[2])))
        elif not heading_possible:
            raise MuteError(f"{source}, line {number}: expected two words and a score, got {line.strip()[:60]!r}")
        heading_possible = False
    if not pairs:
        raise MuteError(f"{source} has no pairs: each line must have two words and a score")
    return pairs


def _file(path: str | os.PathLike[str]) -> Path:
    source = Path(path)
    if not source.is_file():
        raise MuteError(f"{source} {'is not a file' if source.exists() else 'does not exist'}: give a file of words")
    return source


def _fields(line: str) -> list[str]:
    tabs, commas = "\t" in line, "," in line
    fields = line.split("\t") if tabs else next(csv.reader([line])) if commas else line.split()
    # Some files pad their columns with more than one tab.
    return [field.strip() for field in fields if field.strip()]


def _pickled(path: Path) -> tuple[list[str], NDArray[np.float32]]:
    content = read_pickle(path)
    if not isinstance(content, dict) or not content.keys() >= {"words", "vecs"}:
        raise MuteError(f"{path} must contain a dict with 'words' and 'vecs'")
    words = content["words"].tolist() if isinstance(content["words"], np.ndarray) else content["words"]
    vectors = as_vectors(content["vecs"], f"{path}: 'vecs'", np.float32)
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise MuteError(f"{path}: 'words' must be a list of text")
    if len(vectors) != len(words):
        raise MuteError(f"{path} has {len(words)} words, but 'vecs' has shape {vectors.shape}")
    return words, vectors


def _is_binary(line: bytes, d: int) -> bool:
    """Whether what follows a header is no line of text with d numbers."""
    numbers = line.rstrip(b" \r\n").split(b" ")[-d:]
    return len(numbers) < d or not all(_NUMBER.fullmatch(number.decode("latin1")) for number in numbers)


def _text(path: Path, announced: tuple[int, int] | None) -> tuple[list[str], NDArray[np.float32]]:
    words: list[str] = []
    numbers = array("f")
    d = 0 if announced is None else announced[1]
    try:
        # Only "\n" ends a line: some words of GloVe are other characters that Python takes for the end of one.
        with open(path, encoding="utf-8", newline="\n") as file:
            lines = enumerate(file, start=1)
            for number, line in lines if announced is None else islice(lines, 1, None):  # noqa: B007  (in the messages)
                line = line.rstrip(" \r\n")
                d = d or line.count(" ")
                # Words may contain spaces themselves, so the numbers are counted from the right.
                word, *values = line.rsplit(" ", d)
                if d == 0 or len(values) != d:
                    raise ValueError(f"it has {len(values)}")
                words.append(word)
                numbers.extend(map(float, values))
    except UnicodeDecodeError as error:
        raise MuteError(f"{path} is neither text nor a word2vec file: unpack it if it is compressed") from error
    except ValueError as error:
        raise MuteError(f"{path}, line {number}: expected a word and {d or 'its'} numbers ({error})") from error
    if not words or (announced is not None and len(words) != announced[0]):
        raise MuteError(f"{path} has {len(words)} words{f' of {announced[0]}' if announced else ''}: fetch it again")
    return words, np.array(numbers, dtype=np.float32).reshape(len(words), d)


def _binary(path: Path) -> tuple[list[str], NDArray[np.float32]]:
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        at = data.find(b"\n") + 1
        n, d = map(int, data[:at].split())
        # Checked before memory is taken for them: a word and its space take at least two bytes.
        if n == 0 or d == 0 or len(data) - at < n * (4 * d + 2):
            raise MuteError(f"{path} is too short for the {n} words of {d} numbers that its first line announces")
        words = []
        vectors = np.empty((n, d), dtype=np.float32)
        for row in range(n):
            space = data.find(b" ", at)
            end = space + 1 + 4 * d
            if space < 0 or end > len(data):
                raise MuteError(f"{path} ends after {row} of {n} words: fetch it again")
            # Some writers put the end of a line after each vector.
            words.append(data[at:space].lstrip(b"\n").decode("utf-8", errors="replace"))
            vectors[row] = np.frombuffer(data[space + 1 : end], dtype="<f4")
            at = end
    return words, vectors
