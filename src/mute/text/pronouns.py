"""Which "her" is *his* and which is *him*, and which "his" is *her* and which is *hers*, by the words around it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mute.text.evaluation.words import word_lists

__all__ = ["FUNCTION_WORDS", "owns"]

_WORDS = {name: frozenset(words) for name, [words] in word_lists("pronouns").items()}
_ADVERB, _NUMBER = _WORDS["adverb"], _WORDS["number"]

# No noun, adjective, name or full verb is among them.
FUNCTION_WORDS = _WORDS["closed"]

_ADJECTIVE_ENDING = re.compile(r"(?:ful|less|able|ible|ous|ive|ish|ic|ed|ing)$")
_APPROXIMATE = frozenset(["almost", "approximately", "nearly", "over", "roughly", "more", "less"])
# Where hyphens stand between blanks: "her in - house lawyer".
_BEFORE_HYPHEN = _ADVERB | frozenset(["in", "on", "to", "at", "by", "under", "over", "above", "not", "so", "off"])
_VERB_ENDING = re.compile(r"(?:tigate|icate|ulate|orate|trate|nate|ize|ise|ify)$")
_SUBJECTS = frozenset(["i", "he", "she", "it", "we", "they", "you"])
_OPENING = frozenset("\"'“‘«`")
_BEFORE_NUMBER = frozenset("$£€#")
_OPENING_BRACKET = frozenset("([")


def owns(pronoun: str, before: Sequence[str], after: Sequence[str]) -> bool:
    """Whether "her" or "his" stands before what is owned ("her book"), rather than alone ("saw her", "of his").

    `before` and `after` are the words and marks around the pronoun, nearest first; a hyphenated word is one word. Lists
    of function words and a few endings decide, not a trained tagger.

    *Limits.* A bare noun after a verb with two objects counts as owned: "taught her English" as if English were hers.

    Examples
    --------
    >>> owns("her", ["saw"], ["yesterday"]), owns("her", ["saw"], ["mother"])
    (False, True)
    >>> owns("his", ["of"], ["."]), owns("his", ["of"], ["own"])
    (False, True)
    """
    last = before[0].lower() if before else ""
    first, second, third = (word.lower() for word in [*after[:3], "", "", ""][:3])
    his = pronoun.lower() == "his"
    if first in _OPENING and (second[:1].isalnum() or (second in _OPENING and third[:1].isalnum())):
        return his or last not in _WORDS["says"]
    if first in _OPENING_BRACKET and his:
        return last != "of" and last not in _WORDS["be"] and second[:1].isalnum()
    hyphened = second == "-" and _content(third) and (first in _BEFORE_HYPHEN or _adverb(first))
    if hyphened or (first in _BEFORE_NUMBER and second[:1].isdigit()):
        return his or last not in _WORDS["gives_number"]
    if not first[:1].isalnum():
        return False
    if pronoun.islower() and after[0][0].isupper():
        # A name or a title of something, except where a full stop is missing: "contact her He is".
        return first not in _SUBJECTS and (his or last not in _WORDS["names"])
    return _his_owns(last, first, second, third) if his else _her_owns(last, first, second, third)


def _his_owns(last: str, first: str, second: str, third: str) -> bool:
    if first in ("will", "all", "every") or _counts(first, second, third):
        return True
    if first in ("and", "or"):
        # "his and other people's", but "a friend of his and", "the choice was his and".
        return last != "of" and last not in _WORDS["be"]
    if _adverb(first):
        return _content(second)
    return first not in FUNCTION_WORDS


def _her_owns(last: str, first: str, second: str, third: str) -> bool:
    if last in _WORDS["wins"] and first in _WORDS["winnings"]:
        return False
    if _is_number(first) or _counts(first, second, third):
        return last not in _WORDS["gives_number"]
    if first == "will":
        return last in ("against", "of", "in", "with", "by") or second == "to" or not second[:1].isalpha()
    if first == "all":
        return second not in FUNCTION_WORDS and second not in _WORDS["times"] and last not in _WORDS["gives"]
    if first in ("last", "next", "every") and second in _WORDS["times"]:
        return first != "every" and last not in _WORDS["meets"]
    if first in ("back", "home") and last in _WORDS["moves"]:
        return _content(second)
    if first in FUNCTION_WORDS or first in _WORDS["verb"]:
        return False
    if last in _WORDS["lets"] and (first in _WORDS["verb_or_noun"] or _VERB_ENDING.search(first)):
        return False
    if _adverb(first):
        return _content(second) and second not in ("much", "well") and last not in _WORDS["lets"]
    if last in _WORDS["makes"] and first not in _WORDS["noun"]:
        alone = first in _WORDS["adjective"] or _ADJECTIVE_ENDING.search(first)
        return not alone or _content(second)
    return True


def _content(word: str) -> bool:
    """Whether the word can go on a noun phrase."""
    return word[:1].isalnum() and word not in FUNCTION_WORDS


def _adverb(word: str) -> bool:
    return word in _ADVERB or (word.endswith("ly") and word not in _WORDS["not_adverb"])


def _is_number(word: str) -> bool:
    return word[:1].isdigit() or word in _NUMBER


def _counts(first: str, second: str, third: str) -> bool:
    """Whether a number follows: "over 20 years", "more than ten"."""
    return first in _APPROXIMATE and (_is_number(second) or (second == "than" and _is_number(third)))
