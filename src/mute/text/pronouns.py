"""Which "her" is *his* and which is *him*, and which "his" is *her* and which is *hers*, by the words around it."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["FUNCTION_WORDS", "owns"]

_LISTS = {
    # After these no noun phrase of the owner can go on: the pronoun stood alone.
    "closed": """
        a an the this that these those some any no neither either another such both each enough
        i you he she it we they me us them my your our their its his her him hers theirs mine yours ours everyone anyone
        everything anything something nothing someone nobody
        who whom whose which what where when why how whether if because although though unless until till while whereas
        and or but nor so yet than as
        about above across after against along alongside amid among around at before behind below beneath beside besides
        between beyond by concerning despite during except for from in into like of off on onto opposite over per
        regarding since through throughout to toward towards under underneath unlike up upon via with within without
        am is are was were be been has had have do does did can could would should may might must shall
        not n't too also there here away aside ahead along apart together again anymore anyway anywhere everywhere
        somewhere nowhere elsewhere abroad overseas upstairs downstairs online forever forward down out
        yesterday today tomorrow tonight alone herself himself themselves itself instead otherwise either
        """,
    # May stand before an adjective or a noun ("her once famous book") or end the clause ("met her once").
    "adverb": """
        then now once later still always ever never often already almost nearly quite rather even just more most less
        least very much well only perhaps sometimes soon somewhat outside inside twice
        """,
    # End in -ly and are no adverbs, or as often adjectives.
    "not_adverb": """
        family daily weekly monthly yearly early elderly friendly lovely lively lonely lowly costly deadly scholarly
        orderly worldly heavenly earthly likely unlikely ugly silly holy jolly belly bully ally rally reply supply
        assembly fly july italy anomaly monopoly melancholy homily motherly fatherly brotherly sisterly womanly manly
        """,
    # Base forms that are no nouns: "helped her become".
    "verb": """
        be become go get give take make come know understand realize realise find learn grow keep bring begin feel see
        hear achieve overcome discover develop build create choose decide explore succeed survive remember forget join
        enter leave continue prepare obtain secure earn gain pursue perform reach tell speak sing write read teach sit
        die eat connect communicate
        """,
    # Nouns as well: verbs only after "let", "make" or "help".
    "verb_or_noun": """
        work look stand cry laugh dance smile play move run walk talk fight shine rest change love win lead try stay
        live sleep follow think deal draw search research audition
        """,
    "lets": "let lets letting make makes made making help helps helped helping",
    # What these make of somebody, or find somebody to be, follows: "made her famous", "saw her dancing".
    "makes": """
        make makes made making find finds found finding keep keeps kept keeping leave leaves left leaving call calls
        called calling consider considers considered deem deems deemed render renders rendered drive drives drove get
        gets got getting have had want wants wanted see sees saw seen seeing watch watched watches watching hear heard
        hears hearing catch caught catches spot spotted notice noticed stop stopped prove proved proves feel felt
        """,
    # "gave her two books", "told her “yes”", "took her ten years".
    "gives": """
        give gives gave given giving tell tells told telling ask asks asked asking show shows showed shown showing send
        sends sent sending offer offers offered offering pay pays paid paying cost costs costing lend lent hand handed
        teach teaches taught buy bought grant grants granted owe owed owes award awarded awards earn earned win won take
        takes took taken taking
        """,
    # Of those, the ones whose second object cannot be taken for a possession: "taught her two classes" can.
    "gives_number": "give gives gave given giving cost costs costing take takes took taken taking pay pays paid paying",
    "says": "tell tells told telling ask asks asked asking call calls called calling name named dub dubbed nicknamed",
    "names": "call calls called calling name names named naming dub dubs dubbed crown crowned nicknamed christened",
    "moves": """
        bring brings brought bringing take takes took taken taking send sends sent sending call called get gets got
        getting want wants wanted welcome welcomed welcomes hold holds held holding set sets lead leads led leading draw
        drew drawn push pushed pull pulled invite invited pay paid win won drive drove driven walk walked follow
        followed escort escorted see carry carried fly flew
        """,
    "meets": """
        see sees saw seen meet meets met meeting visit visits visited interview interviewed join joined marry married
        hire hired contact contacted call called telephone telephoned
        """,
    "times": """
        day days night nights week weeks weekend month months year years morning evening afternoon time summer spring
        fall autumn winter monday tuesday wednesday thursday friday saturday sunday january february march april may
        june july august september october november december semester season
        """,
    # Nouns with the ending of an adjective: "made her living".
    "noun": """
        living training writing reading painting recording standing meaning feeling calling footing beginning upbringing
        wedding clothing housing teaching drawing building meeting king string ring wing music clinic topic fabric logic
        public critic mechanic native relative motive executive initiative perspective narrative dish wish table cable
        need seed bed speed breed
        """,
    # "won her many fans", "earned her praise".
    "wins": "win wins won winning earn earns earned earning garner garnered gain gained bring brings brought",
    "winnings": "numerous many several widespread worldwide critical international recognition praise acclaim fame",
    # Adjectives that stand alone after "made her" and have no telling ending.
    "adjective": """
        happy sad angry rich poor sick ill well better worse proud busy guilty afraid aware ready safe sure unable able
        free crazy mad strong weak calm alive dead awake asleep late young old smart brilliant confident different
        popular pregnant sorry uneasy unhappy healthy wealthy worthy hungry thirsty tired bored fit great wrong right
        """,
    "number": """
        one two three four five six seven eight nine ten eleven twelve fifteen twenty thirty forty fifty sixty hundred
        thousand dozen several many few
        """,
    "be": "is are was were be been being become became remains remained",
}
_WORDS = {name: frozenset(words.split()) for name, words in _LISTS.items()}
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
    """Say whether "her" or "his" stands before what is owned ("her book"), rather than alone ("saw her", "of his").

    Parameters
    ----------
    pronoun : {"her", "his"}
        In any case.
    before, after : sequence of str
        The words and marks around it, nearest first; a sentence of each is enough. Hyphenated words are one.

    Returns
    -------
    bool

    Notes
    -----
    Lists of function words and a few endings decide, not a trained tagger. *Limits.* A bare noun after a verb with two
    objects is taken for what is owned: "taught her English" as if English were hers.

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
    """ "over 20 years", "more than ten"."""
    return first in _APPROXIMATE and (_is_number(second) or (second == "than" and _is_number(third)))
