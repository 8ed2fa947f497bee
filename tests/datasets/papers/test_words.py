"""Files of word vectors and of word pairs, in every form in which they are published."""

import pickle
import struct

import numpy as np
import pytest

from mute.datasets import load_word_pairs, load_word_vectors
from mute.errors import MuteError

WORDS = ["the", "naïve", "\x85", "日本", "1.5"]
VECTORS = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)


def lines(words=WORDS, end="\n"):
    return "".join(f"{word} {' '.join(map(repr, row.tolist()))}{end}" for word, row in zip(words, VECTORS, strict=True))


def binary(between=b"", header="5 3\n"):
    rows = (word.encode() + b" " + row.tobytes() + between for word, row in zip(WORDS, VECTORS, strict=True))
    return header.encode() + b"".join(rows)


FORMATS = {
    "glove.txt": lines().encode(),
    "windows.txt": lines(end="\r\n").encode(),
    "padded.vec": lines(end=" \n").encode(),
    "word2vec.txt": b"5 3\n" + lines().encode(),
    "google.bin": binary(),
    "original.bin": binary(b"\n"),
    "top.pickle": pickle.dumps({"words": WORDS, "vecs": VECTORS}),
    "lists.pkl": pickle.dumps({"words": np.array(WORDS), "vecs": VECTORS.tolist(), "more": 1}),
}


@pytest.mark.parametrize("name", FORMATS)
def test_vectors(tmp_path, name):
    (tmp_path / name).write_bytes(FORMATS[name])
    words, vectors = load_word_vectors(tmp_path / name)
    assert words == WORDS
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors, VECTORS)


def test_words_may_hold_spaces(tmp_path):
    (tmp_path / "x.txt").write_text(lines(["first", ". . .", "at name@domain.com", "a", "b"]))
    assert load_word_vectors(tmp_path / "x.txt")[0][1:3] == [". . .", "at name@domain.com"]


def test_words_of_broken_utf8_stay_readable(tmp_path):
    (tmp_path / "x.bin").write_bytes(b"1 2\nna\xefve " + struct.pack("<2f", 1, 2))
    assert load_word_vectors(tmp_path / "x.bin")[0] == ["na\ufffdve"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.txt", b"", "has 0 words"),
        ("x.txt", b"a 1 2\nb 1\n", "line 2: expected a word and 2 numbers"),
        ("x.txt", b"a 1 2\nb 1 two\n", r"line 2: expected a word and 2 numbers \(could not convert"),
        ("x.txt", b"word\n", "line 1: expected a word and its numbers"),
        ("x.txt", b"a 1 nan\n", "NaN or infinite values, first for the word 'a'"),
        ("x.txt", b"3 2\na 1 2\nb 1 2\n", "has 2 words of 3"),
        ("x.txt", b"\x1f\x8b\x08\xff\xfe", "unpack it if it is compressed"),
        ("x.bin", binary()[:-1], "too short for the 5 words of 3 numbers|ends after 4 of 5"),
        ("x.bin", binary(header="50000000000 3\n"), "too short for the 50000000000 words"),
        ("x.bin", binary(header="5 4\n"), "too short|ends after"),
        ("x.bin", binary().replace(VECTORS[1].tobytes(), np.full(3, np.inf, "f4").tobytes()), "word 'naïve'"),
        ("x.pkl", pickle.dumps([1]), "dict with 'words' and 'vecs'"),
        ("x.pkl", pickle.dumps({"words": ["a"]}), "dict with 'words' and 'vecs'"),
        ("x.pkl", pickle.dumps({"words": ["a"], "vecs": np.ones((2, 3))}), r"1 words, but 'vecs' has shape \(2, 3\)"),
        ("x.pkl", pickle.dumps({"words": [1], "vecs": np.ones((1, 3))}), "list of text"),
        ("x.pkl", pickle.dumps({"words": ["a", "b"], "vecs": [[1.0], [1.0, 2.0]]}), "all have one length"),
        ("x.pkl", pickle.dumps({"words": ["a"], "vecs": [[10**400]]}), "vectors of numbers"),
        # A list that contains itself twice, which numpy would follow to all of its 2**64 corners.
        ("x.pkl", b"}(U\x05words](U\x01aeU\x04vecs]q\x00(h\x00h\x00eu.", "vectors of numbers"),
        ("x.pkl", b"text", "not a whole pickle"),
    ],
)
def test_files_that_hold_no_vectors(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(MuteError, match=message):
        load_word_vectors(tmp_path / name)


@pytest.mark.parametrize("load", [load_word_vectors, load_word_pairs])
def test_missing_files(tmp_path, load):
    with pytest.raises(MuteError, match="does not exist"):
        load(tmp_path / "absent")
    with pytest.raises(MuteError, match="is not a file"):
        load(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "sun\tmoon\t7.5\nice cream\tnan\t2\n",
        "# a comment\n#word1\tword2\tscore\n\nsun\tmoon\t7.5\nice cream\tnan\t2\n",
        "\ufeffWord 1\tWord 2\tHuman (mean)\r\nsun\tmoon\t7.50\r\nice cream\tnan\t2\r\n",
        "S\tsun\tmoon\t7.50\nt\tice cream\tnan\t2.0\n",
        "sun\t\tmoon\t\t7.5\nice cream\t\tnan\t\t2\n",
        "Word 1,Word 2,Human (mean)\nsun,moon,7.5\nice cream,nan,2\n",
        '"word","other","score"\n"sun","moon","7.5"\n"ice cream","nan",2e0\n',
        "sun\tmoon\t7.5\t8\t7\nice cream\tnan\t2\t1\t3\n",
    ],
)
def test_pairs(tmp_path, text):
    (tmp_path / "pairs").write_bytes(text.encode())
    assert load_word_pairs(tmp_path / "pairs") == [("sun", "moon", 7.5), ("ice cream", "nan", 2.0)]


def test_pairs_between_spaces(tmp_path):
    (tmp_path / "pairs").write_text("first second score\nsun  moon 7.5\nx y .5")
    assert load_word_pairs(tmp_path / "pairs") == [("sun", "moon", 7.5), ("x", "y", 0.5)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has no pairs"),
        (b"# only a comment\n", "has no pairs"),
        (b"a\tb\t1\na\tb\n", r"line 2: expected two words and a score, got 'a\\tb'"),
        (b"a\tb\t1\nc\td\thigh\n", "line 2: expected"),
        (b"a\tb\t1\nc\td\tnan\n", "line 2: expected"),
        (b"a\tb\t\xff\n", "not UTF-8 text"),
    ],
)
def test_files_that_hold_no_pairs(tmp_path, content, message):
    (tmp_path / "pairs").write_bytes(content)
    with pytest.raises(MuteError, match=message):
        load_word_pairs(tmp_path / "pairs")
