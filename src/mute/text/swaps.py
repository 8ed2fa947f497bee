"""Texts about the other gender: the paper's rule with its faults, and a rule that follows grammar."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from mute.errors import MuteError, missing_extra
from mute.text.evaluation.words import title_words, word_lists
from mute.text.pronouns import FUNCTION_WORDS, owns
from mute.typing import Foreign

__all__ = ["NAMES", "NOUNS", "ROLES", "TITLES", "paper_swap", "swap_gender"]

_PAIRS = {name: tuple((male, female) for male, female in pairs) for name, pairs in word_lists("gender").items()}
TITLES, ROLES, NOUNS, NAMES = (_PAIRS[name] for name in ("titles", "roles", "nouns", "names"))
_NAME_LIKE = frozenset(word_lists("proper_names")["name_like"][0])

_PAPER = {
    "male": {"he": "she", "him": "her", "his": "hers", "mr": "ms", "m": "ms", "himself": "herself"},
    "female": {"she": "he", "her": "him", "hers": "his", "ms": "mr", "mrs": "mr", "herself": "himself"},
}

# Stands for a full stop inside a text while NLTK joins the tokens.
_STOP = "\ue000"

# "her" and "his" are decided by what stands around them; the others of the family only ever turn into one word.
_PRONOUNS = (("he", "she"), ("himself", "herself"), ("him", "her"), ("his", "hers"))


def _table(column: int) -> dict[str, str]:
    """What words of one gender turn into."""
    table: dict[str, str] = {}
    for pair in (*_PRONOUNS, *TITLES, *ROLES, *NOUNS):
        table.setdefault(pair[column], pair[1 - column])
    return table


_TABLES = {"male": _table(0), "female": _table(1)}
_GENDERS = {word: gender for gender, table in _TABLES.items() for word in table}
_PRONOUN_WORDS, _TITLE_WORDS, _NOUN_WORDS, _NOUNS_AND_ROLES = (
    {word for pair in pairs for word in pair} for pairs in (_PRONOUNS, TITLES, NOUNS, (*NOUNS, *ROLES))
)
_COUNTERPARTS = {frozenset(pair) for pair in (*_PRONOUNS, *TITLES, *ROLES, *NOUNS, ("his", "her"), ("him", "hers"))}

_TOKEN = re.compile(r"\w+(?:-\w+)*|(?<=\w)['’](?:s|ll|d|re|ve|m|t)\b|\S", re.IGNORECASE)
_ADDRESS = re.compile(r"\S*(?:@|://|\bwww\.|\.(?:com|org|net|edu|gov|info|io|co)\b)\S*", re.IGNORECASE)
_JOINTS = frozenset({"and", "or", "nor", "&", "/", ",", ".", "("})
_ARTICLES = frozenset({"the", "a", "an"})


def paper_swap(text: str, neutral: str, gender: str) -> str | None:
    """The paper's reference texts: gendered words are replaced one by one, with the faults that this has.

    Parameters
    ----------
    text : str
    neutral : str
        The same text with ``_`` for each gendered word and name.
    gender : {"male", "female"}
        Of the person the text is about.

    Returns
    -------
    str or None
        The text about the other gender, or None if the two texts do not have the same number of tokens.

    Notes
    -----
    The faults are the paper's: "her book" becomes "him book" and "his book" "hers book"; the degree MS becomes Mr and
    the initial "M." Mr too; "McDonald" becomes "Mcdonald"; a full stop inside the text stands alone. Scores against the
    paper's references need them. `swap_gender` has none of them.

    Examples
    --------
    >>> paper_swap("She sold her book. Ask Mr. Lee.", "_ sold _ book. Ask Mr. Lee.", "female")
    'He sold him book . Ask Mr . Lee.'
    """
    if gender not in _PAPER:
        raise MuteError(f"gender must be male or female, not {gender!r:.80}")
    for what, given in (("text", text), ("neutral", neutral)):
        if not isinstance(given, str):
            raise MuteError(f"{what} must be one text, not {type(given).__name__}")
    words, blanks = title_words(text), title_words(neutral)
    if len(words) != len(blanks):
        return None
    swapped = [_paper_word(word, gender) if blank == "_" else word for word, blank in zip(words, blanks, strict=True)]
    return _joined(swapped)


def _paper_word(word: str, gender: str) -> str:
    new = _PAPER[gender].get(word.lower(), word.lower())
    return new.capitalize() if word[0].isupper() else new


def _joined(words: list[str]) -> str:
    """Join tokens by NLTK's rules of when the paper was written, which left full stops inside a text alone."""
    closing = {"''", '"', "'", ")", "]", "}", ">"}
    last = max((at for at, word in enumerate(words) if word not in closing), default=0)
    kept = [
        _STOP if word == "." and at != last and at and words[at - 1] not in closing else word
        for at, word in enumerate(words)
    ]
    return _detokenizer().detokenize(kept).replace(_STOP, ".")


@cache
def _detokenizer() -> Foreign:
    try:
        from nltk.tokenize.treebank import TreebankWordDetokenizer
    except ImportError:
        raise missing_extra("nltk", "text", "the paper's swap") from None
    return TreebankWordDetokenizer()


def swap_gender(
    text: str, *, to: str | None = None, names: Mapping[str, str] | bool | None = None, nouns: bool = True
) -> str:
    """Replace gendered words of a text by those of the other gender, by grammar; everything else stays as it is.

    Parameters
    ----------
    text : str
    to : {"male", "female"}, optional
        Change only words of the other gender. By default those of both change places.
    names : mapping, or True, optional
        First names to replace, each by what it is mapped to; or True for a short list of common English ones, which
        follows `to`. By default names stay.
    nouns : bool, default=True
        Whether nouns and adjectives change ("wife", "actor", "female"), or only pronouns and titles, as in the paper.

    Notes
    -----
    The words around "her" decide between *his* and *him*, and those around "his" between *her* and *hers*. Unchanged:
    words named with their counterpart ("he or she", "his/her", "Mr. and Mrs."), titles that do not stand before a name,
    the degrees MS and M.S., initials, nouns within a proper name ("Women's Hospital", "Martin Luther King"), addresses.

    *Limits.* A list of words decides, whomever they are about: "his wife" becomes "her husband", and, unless nouns
    stay, "she studies women's health" becomes "he studies men's health". "Ms.", "Mrs." and "Miss" all become "Mr.",
    which turns back into "Ms.". On 64,546 pronouns of BUG that no rule was made from, 1 in 100 of "her" gets the wrong
    case; of those that should become *him*, 7 in 100 do.

    Examples
    --------
    >>> swap_gender("He gave Ms. Lee his book;  she thanked him for HIS help.")
    'She gave Mr. Lee her book;  he thanked her for HER help.'
    >>> swap_gender("She met him and gave him her card.", to="male")
    'He met him and gave him his card.'
    """
    if not isinstance(text, str):
        raise MuteError(f"text must be one text, not {type(text).__name__}")
    if to not in (None, "male", "female"):
        raise MuteError(f"to must be male or female, or left out, not {to!r:.80}")
    named = _names(names, to)
    addresses = [found.span() for found in _ADDRESS.finditer(text)]
    sentence = _Sentence(text)
    parts, start = [], 0
    for at, (_, begin, end) in enumerate(sentence.tokens):
        if any(first <= begin < last for first, last in addresses):
            continue
        new = _named(sentence, at, named) or _swapped(sentence, at, to, nouns)
        if new is not None:
            parts += [text[start:begin], new]
            start = end
    return "".join([*parts, text[start:]])


class _Sentence:
    """A text as words and marks, each with its place."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [(found[0], found.start(), found.end()) for found in _TOKEN.finditer(text)]

    def word(self, at: int) -> str:
        """The token, or nothing beyond the ends."""
        return self.tokens[at][0] if 0 <= at < len(self.tokens) else ""

    def touches(self, at: int) -> bool:
        """Whether nothing stands between this token and the next."""
        return 0 <= at < len(self.tokens) - 1 and self.tokens[at][2] == self.tokens[at + 1][1]

    def around(self, at: int) -> tuple[list[str], list[str]]:
        """A few tokens before this one, nearest first, and a few after it."""
        return [self.word(i) for i in range(at - 1, max(at - 4, -1), -1)], [t[0] for t in self.tokens[at + 1 : at + 4]]


def _names(names: Mapping[str, str] | bool | None, to: str | None) -> dict[str, str]:
    if names is None or names is False:
        return {}
    if names is True:
        pairs = [*(NAMES if to != "male" else ()), *((f, m) for m, f in NAMES if to != "female")]
        return {old: new.capitalize() for old, new in pairs}
    if not isinstance(names, Mapping) or not all(isinstance(w, str) and w for pair in names.items() for w in pair):
        raise MuteError("names must be True or map each name to another, texts both")
    return {old.lower(): new for old, new in names.items()}


def _named(sentence: _Sentence, at: int, names: Mapping[str, str]) -> str | None:
    word = sentence.word(at)
    new = names.get(word.lower()) if word[0].isupper() else None
    # "Henry James": the second is a surname.
    if new is None or (sentence.word(at - 1)[:1].isupper() and sentence.word(at - 1).lower() in names):
        return None
    return new.upper() if word.isupper() and len(word) > 1 else new


def _swapped(sentence: _Sentence, at: int, to: str | None, nouns: bool) -> str | None:
    """What the token becomes; None if it stays."""
    word = sentence.word(at)
    plain = word.lower()
    if "-" in word:
        return _compound(word, to) if nouns else None
    gender = _GENDERS.get(plain)
    if gender is None or gender == to or _names_both(sentence, at):
        return None
    if plain in _TITLE_WORDS:
        return _cased(_TABLES[gender][plain], word) if _before_name(sentence, at) else None
    if plain in _NOUNS_AND_ROLES and not nouns:
        return None
    if plain in _NOUN_WORDS and _in_proper_name(sentence, at):
        return None
    if plain in ("her", "his"):
        group = _slashed(sentence, at)
        alone = bool({"he", "she"} & set(group)) if len(group) > 1 else not owns(word, *sentence.around(at))
        new = {"her": ("his", "him"), "his": ("her", "hers")}[plain][alone]
    else:
        new = _TABLES[gender][plain]
    return _cased(new, word)


def _cased(new: str, old: str) -> str:
    if old.isupper() and len(old) > 1:
        return new.upper()
    return new.capitalize() if old[0].isupper() else new


def _compound(word: str, to: str | None) -> str | None:
    """Swap the one noun, at the end or before "in-law": "mother-in-law", "ex-husband", "all-male"."""
    parts = word.split("-")
    found = [at for at, part in enumerate(parts) if part.lower() in _NOUNS_AND_ROLES]
    if len(found) != 1 or not _PRONOUN_WORDS.isdisjoint(map(str.lower, parts)):
        return None
    at = found[0]
    part, rest = parts[at], [other.lower() for other in parts[at + 1 :]]
    gender = _GENDERS[part.lower()]
    # Capitalised at the end it is a surname: "Lloyd-King".
    if gender == to or rest not in ([], ["in", "law"]) or (not rest and part.istitle()):
        return None
    parts[at] = _cased(_TABLES[gender][part.lower()], part)
    return "-".join(parts)


def _names_both(sentence: _Sentence, at: int) -> bool:
    """Whether both are named: "he or she", "his/her", "men, women and children", "Mr. and Mrs.", "s/he", "she (he)"."""
    plain = sentence.word(at).lower()
    if (sentence.touches(at - 1) and sentence.word(at - 1) == ")") or (
        sentence.touches(at) and sentence.word(at + 1) == "("
    ):
        return True
    for step in (-1, 1):
        other = at + step
        while sentence.word(other).lower() in _JOINTS and abs(other - at) <= 3:
            # A full stop joins only where it belongs to a title.
            if sentence.word(other) == "." and sentence.word(other - 1).lower() not in _TITLE_WORDS:
                break
            other += step
        if abs(other - at) > 1 and frozenset({plain, sentence.word(other).lower()}) in _COUNTERPARTS:
            return True
    group = _slashed(sentence, at)
    return plain in _PRONOUN_WORDS and ("s" in group or len({_GENDERS[w] for w in group if w in _PRONOUN_WORDS}) > 1)


def _slashed(sentence: _Sentence, at: int) -> list[str]:
    """The words joined to this one by slashes without blanks, itself among them."""
    first = last = at
    while sentence.word(first - 1) == "/" and sentence.touches(first - 1) and sentence.touches(first - 2):
        first -= 2
    while sentence.word(last + 1) == "/" and sentence.touches(last) and sentence.touches(last + 1):
        last += 2
    return [sentence.word(i).lower() for i in range(first, last + 1, 2)]


def _before_name(sentence: _Sentence, at: int) -> bool:
    """Whether a title, written as such, has a name after it; "MS" and "ms" are other things."""
    stop = sentence.word(at + 1) == "." and sentence.touches(at)
    name = sentence.word(at + 1 + stop)
    apart = not sentence.touches(at + stop)
    return sentence.word(at).istitle() and apart and name[:1].isupper() and name.lower() not in ("degree", "thesis")


def _in_proper_name(sentence: _Sentence, at: int) -> bool:
    word = sentence.word(at)
    if not word.istitle():
        return False
    if word.lower() in _NAME_LIKE:
        return sentence.word(at - 1).lower() not in _ARTICLES
    after = at + 2 if sentence.word(at + 1).lower() in ("'s", "’s", "'", "’") else at + 1
    beside = (sentence.word(at - 1), sentence.word(after))
    return any(other[:1].isupper() and other.lower() not in FUNCTION_WORDS for other in beside)
