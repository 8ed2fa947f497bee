"""Words: lists of them, texts cut into them as the paper does, and checks of texts to score."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from configparser import ConfigParser
from functools import cache
from importlib.resources import files

from mute.errors import MuteError, missing_extra
from mute.text.encoders.encoder import check_texts
from mute.typing import Foreign

__all__ = ["GENDER", "check_pairs", "check_some", "split_sentences", "split_words", "title_words", "word_lists"]

# The words by which the paper tells the gender of a text.
GENDER: Mapping[str, frozenset[str]] = {
    "male": frozenset({"he", "him", "his", "mr", "m", "himself"}),
    "female": frozenset({"she", "her", "hers", "ms", "mrs", "herself"}),
}


def word_lists(section: str) -> dict[str, list[list[str]]]:
    """The lists of a section of ``word_lists.ini``, each as groups of words that commas separate."""
    parser = ConfigParser(interpolation=None)
    parser.read_string(files("mute.text").joinpath("word_lists.ini").read_text(encoding="utf-8"))
    return {name: [group.split() for group in text.split(",")] for name, text in parser[section].items()}


_BEFORE_NAMES, _MAY_END, _STARTERS = (frozenset(words) for [words] in word_lists("sentences").values())

# A word with a mark that may end a sentence, closing quotes or brackets, and the first word of what follows.
_BREAK = re.compile(r"(?P<word>\S*?)(?P<mark>[.!?]+)(?P<close>[\"'”’)\]]*)\s+(?=(?P<next>\S+))")

# The full stop of these is a token of its own; the paper takes the initial M. for a title.
_TITLES = {"Mr.": "Mr", "Ms.": "Ms", "Mrs.": "Mrs", "_.": "_", "M.": "Mr"}


def split_words(text: str) -> list[str]:
    """Cut a text into words and marks by the rules of NLTK.

    NLTK's ``word_tokenize`` first cuts a text into sentences by a trained model whose data have to be downloaded. Here
    a list of abbreviations does it (`split_sentences`); the rest is NLTK's own tokenizer.

    Examples
    --------
    >>> split_words("He's with Dr. Lee. Ask him.")
    ['He', "'s", 'with', 'Dr.', 'Lee', '.', 'Ask', 'him', '.']
    """
    tokenizer = _tokenizer()
    return [word for sentence in split_sentences(text) for word in tokenizer.tokenize(sentence)]


def title_words(text: str) -> list[str]:
    """Cut a text into words as the paper does: as `split_words`, with the full stop of titles on its own.

    Examples
    --------
    >>> title_words("Mr. Lee met Anna M. Fox.")
    ['Mr', '.', 'Lee', 'met', 'Anna', 'Mr', '.', 'Fox', '.']
    """
    words: list[str] = []
    for word in split_words(text):
        words += [_TITLES[word], "."] if word in _TITLES else [word]
    return words


def split_sentences(text: str) -> list[str]:
    """Cut a text after marks that end a sentence, but not after abbreviations and initials.

    Examples
    --------
    >>> split_sentences("She met Dr. A. B. Lee of Acme Inc. in the U.S. He left. (Why?) No.")
    ['She met Dr. A. B. Lee of Acme Inc. in the U.S.', 'He left.', '(Why?)', 'No.']
    """
    sentences, start = [], 0
    for found in _BREAK.finditer(text):
        if _ends(found["word"], found["mark"], found["next"]):
            sentences.append(text[start : found.end()].strip())
            start = found.end()
    return [sentence for sentence in (*sentences, text[start:].strip()) if sentence]


def _ends(word: str, mark: str, following: str) -> bool:
    if not following.strip("\"'”’)]"):
        return False
    if mark != ".":
        return True
    plain = word.lstrip("\"'“‘([").lower()
    if plain in _BEFORE_NAMES or (len(plain) == 1 and plain.isalpha()):
        return False
    return plain not in _MAY_END or (following[0].isupper() and following.strip(".,").lower() in _STARTERS)


@cache
def _tokenizer() -> Foreign:
    try:
        from nltk.tokenize.destructive import NLTKWordTokenizer
    except ImportError:
        raise missing_extra("nltk", "text", "cutting texts into words") from None
    return NLTKWordTokenizer()


def check_some(texts: Sequence[str], what: str = "texts") -> list[str]:
    """The texts as a list, of which there must be one at least."""
    given = check_texts(texts)
    if not given:
        raise MuteError(f"no {what} were given: there is nothing to score")
    return given


def check_pairs(hyps: Sequence[str], refs: Sequence[str]) -> tuple[list[str], list[str]]:
    """As many texts as references, and no reference without text."""
    given, wanted = check_texts(hyps), check_texts(refs)
    if len(given) != len(wanted):
        raise MuteError(f"{len(given)} texts but {len(wanted)} references: give one reference for each text")
    check_some(given)
    for row, ref in enumerate(wanted):
        if not ref.strip():
            raise MuteError(f"reference {row} (counting from 0) has no text: fill it or drop the pair")
    return given, wanted
