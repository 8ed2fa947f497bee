"""Corpora in files: what is written is read again, by others too, and damage is said."""

import csv
from pathlib import Path

import pytest

from mute.datasets.corpora import read_corpus, write_corpus
from mute.errors import MuteError

CORPUS = {
    "text": ['"Yes", she said', "line\nbreak", "carriage\rreturn\r\n", "", "Zoë, 李 and \u2028", " blanks ", "'"],
    "from": ["a", "b", "", "d", "e", "f", "g"],
}


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    write_corpus(CORPUS, tmp_path / "corpus.csv")
    assert read_corpus(tmp_path / "corpus.csv") == CORPUS
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.csv"]


def test_the_file_is_as_rfc_4180_has_it(tmp_path: Path) -> None:
    write_corpus({"text": ['say "a, b"', "x\ny"], "n": ["1", "é"]}, tmp_path / "corpus.csv")
    expected = b'text,n\r\n"say ""a, b""",1\r\n"x\ny",\xc3\xa9\r\n'
    assert (tmp_path / "corpus.csv").read_bytes() == expected


def test_other_readers_see_the_same(tmp_path: Path) -> None:
    write_corpus(CORPUS, tmp_path / "corpus.csv")
    with open(tmp_path / "corpus.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {name: [row[name] for row in rows] for name in CORPUS} == CORPUS


def test_columns_of_two_lengths_leave_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="shorter"):
        write_corpus({"text": ["a", "b"], "split": ["fit"]}, tmp_path / "corpus.csv")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it is empty"),
        (b"text,split\r\na,fit\r\nb\r\n", "shorter"),
        (b"text,split\r\na,fit,more\r\n", "longer"),
        (b'text,split\r\n"a,fit\r\n', "unexpected end"),
        (b"text,split\r\n\xff,fit\r\n", "utf-8"),
    ],
)
def test_damage_is_said(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "corpus.csv"
    path.write_bytes(content)
    with pytest.raises(MuteError, match=f"corpus.csv is damaged: .*{said}.*prepare it again"):
        read_corpus(path)


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(MuteError, match=r"nowhere\.csv cannot be read: No such file"):
        read_corpus(tmp_path / "nowhere.csv")
