"""Texts cut into words as the paper's scores count them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from mute.errors import missing_extra

__all__ = ["GENDER", "split_sentences", "split_words", "title_words"]

# The words by which the paper tells the gender of a text.
GENDER: Mapping[str, frozenset[str]] = {
    "male": frozenset({"he", "him", "his", "mr", "m", "himself"}),
    "female": frozenset({"she", "her", "hers", "ms", "mrs", "herself"}),
}


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Words whose full stop belongs to them; those before names never end a sentence.
_BEFORE_NAMES = _set("capt col dr drs fr gen gov hon lt maj messrs mr mrs ms mt prof rep rev sen sgt st")
_ABBREVIATIONS = _BEFORE_NAMES | _set("""
    a.m apr aug ave b.a bros cf co corp d.c dec dept e.g etc feb fig i.e inc jan jr ltd m.b.a m.d no nov oct p.m ph.d
    sep sept sr u.k u.n u.s vs
""")

# After an abbreviation that may end a sentence, one of these, capitalised, begins the next.
_STARTERS = _set("a after an as at by for he her his in it mr mrs ms she since the they this we when you")

# A word with a mark that may end a sentence, closing quotes or brackets, and the first word of what follows.
_BREAK = re.compile(r"(?P<word>\S*?)(?P<mark>[.!?]+)(?P<close>[\"'”’)\]]*)\s+(?=(?P<next>\S+))")

# The full stop of these is a token of its own; the paper takes the initial M. for a title.
_TITLES = {"Mr.": "Mr", "Ms.": "Ms", "Mrs.": "Mrs", "_.": "_", "M.": "Mr"}


def split_words(text: str) -> list[str]:
    """Cut a text into words and marks by the rules of NLTK.

    Parameters
    ----------
    text : str

    Returns
    -------
    list of str

    Notes
    -----
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
    return plain not in _ABBREVIATIONS or (following[0].isupper() and following.strip(".,").lower() in _STARTERS)


@cache
def _tokenizer() -> Any:
    try:
        from nltk.tokenize.destructive import NLTKWordTokenizer
    except ImportError:
        raise missing_extra("nltk", "text", "cutting texts into words") from None
    return NLTKWordTokenizer()
