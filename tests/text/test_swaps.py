"""Swaps of gender: the paper's, fault by fault, and the grammatical one by sentences with known answers."""

import os
import re
import sys
from pathlib import Path

import pytest

from mute import MuteError
from mute.text import paper_swap, substitution_rate, swap_gender
from mute.text.swaps import NAMES, NOUNS, ROLES, _detokenizer

pytest.importorskip("nltk")

# Each way: the text about a woman, the text about a man.
PAIRS = [
    ("I saw her.", "I saw him."),
    ("She lost her book.", "He lost his book."),
    ("I gave her the book.", "I gave him the book."),
    ("They told her that it rained.", "They told him that it rained."),
    ("She has her own studio.", "He has his own studio."),
    ("It is her much-loved garden.", "It is his much-loved garden."),
    ("We went with her.", "We went with him."),
    ("I met her and the others.", "I met him and the others."),
    ("He is not a friend of hers.", "She is not a friend of his."),
    ("The house is hers.", "The house is his."),
    ("A friend of hers from school left.", "A friend of his from school left."),
    ("The choice was hers and she made it.", "The choice was his and he made it."),
    ("Hers is a sad story.", "His is a sad story."),
    ("I saw her yesterday.", "I saw him yesterday."),
    ("Her late husband left.", "His late wife left."),
    ("Her research is new.", "His research is new."),
    ("This made her famous.", "This made him famous."),
    ("She made her famous debut.", "He made his famous debut."),
    ("They saw her dancing in town.", "They saw him dancing in town."),
    ("They like her dancing.", "They like his dancing."),
    ("It helped her become a doctor.", "It helped him become a doctor."),
    ("It helped her investigate.", "It helped him investigate."),
    ("She let her work.", "He let him work."),
    ("I like her work.", "I like his work."),
    ("I knew her well.", "I knew him well."),
    ("Read her well known book.", "Read his well known book."),
    ("She uses her more than 20 years of practice.", "He uses his more than 20 years of practice."),
    ("It took her two years.", "It took him two years."),
    ("She has her two cats.", "He has his two cats."),
    ("Out of her $100 she spent ten.", "Out of his $100 he spent ten."),
    ("They met her last week.", "They met him last week."),
    ("She is in her last year.", "He is in his last year."),
    ("It was against her will.", "It was against his will."),
    ("Those who know her will agree.", "Those who know him will agree."),
    ("They took her home.", "They took him home."),
    ("She left her home.", "He left his home."),
    ("They brought her back.", "They brought him back."),
    ("She hurt her back.", "He hurt his back."),
    ("Contact her directly at the office.", "Contact him directly at the office."),
    ("Read her highly acclaimed novel.", "Read his highly acclaimed novel."),
    ("She gave it her all.", "He gave it his all."),
    ("Tell her all about it.", "Tell him all about it."),
    ("They call her Alex.", "They call him Alex."),
    ("It was her May wedding.", "It was his May wedding."),
    ("She makes her living as a singer.", "He makes his living as a singer."),
    ("It earned her many awards.", "It earned him many awards."),
    ("She earned her degree.", "He earned his degree."),
    ("Try her “secret” recipe.", "Try his “secret” recipe."),
    ("I told her “yes”.", "I told him “yes”."),
    ("I told her she could.", "I told him he could."),
    ("Ask her not to go.", "Ask him not to go."),
    ("I saw her there; she ran.", "I saw him there; he ran."),
    ("More than her, I liked Bob.", "More than him, I liked Bob."),
    ("It is for her (and me).", "It is for him (and me)."),
    ("She hired her in - house lawyer.", "He hired his in - house lawyer."),
    ("She herself knew.", "He himself knew."),
    ("She's sure she'll win; she’d know.", "He's sure he'll win; he’d know."),
    ("SHE SAID IT. She did.", "HE SAID IT. He did."),
    ("Pronouns: (she/her/hers)", "Pronouns: (he/him/his)"),
    ("her/our clients", "his/our clients"),
    ("Ms. Lee and Ms Ray left.", "Mr. Lee and Mr Ray left."),
    ("She was an actress/director.", "He was an actor/director."),
    ("She was Chairwoman Lee's aunt.", "He was Chairman Lee's uncle."),
    ("Her father-in-law met an ex-husband.", "His mother-in-law met an ex-wife."),
    ("Women's rights; the women’s team", "Men's rights; the men’s team"),
    ("The Queen saw the lady.", "The King saw the gentleman."),
]

ALONE = [
    "He/she, he or she, his/her, her or his, s/he, (s)he, him & her",
    "Men and women, boys & girls, ladies and gentlemen; husband and/or wife",
    "Mr. and Mrs. Smith",
    "his (her) own, her (or his) hat",
    "An MS, an M.S., 5 ms, M. Lee, Ann M. Lee, MS Windows, a Ms. degree, Ms Degree",
    "Mr and Miss are titles",
    "Martin Luther King, Dr. King's dream, Prince sang, Duke University",
    "the Women's Hospital, Lady Gaga, Warner Brothers, the Girl Scouts, First Lady",
    "her@his.com, www.she.org, http://x.y/he/she",
    "human, shepherd, theory, there, hero-worship, man-made, Mother's Day, he-man, she_he, he2",
    "",
    " \n\t ",
]


@pytest.mark.parametrize(("female", "male"), PAIRS)
def test_known_answers(female, male):
    assert (swap_gender(female), swap_gender(male)) == (male, female)


@pytest.mark.parametrize("text", ALONE)
def test_left_alone(text):
    assert swap_gender(text) == swap_gender(text, to="male") == swap_gender(text, to="female") == text


def test_one_direction():
    text = "She met his wife, Mr. Lee, and told him; he thanked her."
    assert swap_gender(text, to="female") == "She met her wife, Ms. Lee, and told her; she thanked her."
    assert swap_gender(text, to="male") == "He met his husband, Mr. Lee, and told him; he thanked him."


def test_nouns_can_stay():
    text = "His ex-wife, an actress, told him about Mr. Lee's women."
    assert swap_gender(text, nouns=False) == "Her ex-wife, an actress, told her about Ms. Lee's women."


def test_titles_that_do_not_come_back():
    assert swap_gender("Mrs. Lee and Miss Ray, Sir Tom") == "Mr. Lee and Mr Ray, Dame Tom"


@pytest.mark.parametrize(("male", "female"), [*ROLES, *NOUNS])
def test_swapping_twice_gives_the_text_back(male, female):
    if female == "mum":
        assert swap_gender("a mum") == "a dad"
        return
    for word in (male, female, male.upper(), female.upper()):
        text = f"  It is,\tsays “{word}”…  the {word}'s  way.\n"
        assert swap_gender(text) != text and swap_gender(swap_gender(text)) == text
    assert swap_gender(f"the {male}", to="female") == f"the {female}" == swap_gender(f"the {female}", to="female")


def test_nothing_else_changes():
    """Blanks, marks and words outside the lexicon stay where they are, to the character."""
    marks = "  \t—«Él», naïve ﬁne 日本 … 3.5% (x_y) don't\r\n"
    for female, male in PAIRS:
        assert swap_gender(marks + female + marks) == marks + male + marks


def test_names():
    text = "John met MARY's boss, Henry James; Mark will."
    assert swap_gender(text) == text
    assert swap_gender(text, names=True) == "Mary met JOHN's boss, Alice James; Mark will."
    assert swap_gender(text, names=True, to="female") == "Mary met MARY's boss, Alice James; Mark will."
    assert swap_gender("Mary met john", names={"mary": "DeShawn"}) == "DeShawn met john"
    assert swap_gender("John", names=False) == "John"
    listed = [name for pair in NAMES for name in pair]
    assert len(NAMES) >= 40 and len(set(listed)) == len(listed)
    everyone = " and ".join(name.capitalize() for name in listed)
    assert swap_gender(swap_gender(everyone, names=True), names=True) == everyone


class TestPaperSwap:
    @pytest.mark.parametrize(
        ("text", "neutral", "gender", "expected"),
        [
            ("His work is his own.", "_ work is _ own.", "male", "Hers work is hers own."),
            ("Her work pleased her.", "_ work pleased _.", "female", "Him work pleased him."),
            ("He left. He won.", "_ left. _ won.", "male", "She left . She won."),
            ("Mr. McDonald left.", "_. _ left.", "male", "Ms . Mcdonald left."),
            ("She has an MS from Oslo.", "_ has an _ from Oslo.", "female", "He has an Mr from Oslo."),
            ("He met Joe M. Lee.", "_ met _ M. Lee.", "male", "She met Joe Mr . Lee."),
            ("Ms. Lee, herself hers", "_. _, _ _", "female", "Mr . Lee, himself his"),
            ('He said "yes." (He did.)', '_ said "yes." (_ did.)', "male", 'She said "yes ." (She did.)'),
            ("", "", "male", ""),
        ],
    )
    def test_the_rule_and_its_faults(self, text, neutral, gender, expected):
        assert paper_swap(text, neutral, gender) == expected

    def test_texts_that_do_not_fit_each_other(self):
        assert paper_swap("He left home.", "_ left.", "male") is None


def test_bad_input(monkeypatch):
    for call, message in (
        (lambda: swap_gender(None), "text must be one text, not NoneType"),
        (lambda: swap_gender("he", to="woman"), "to must be male or female, or left out, not 'woman'"),
        (lambda: swap_gender("he", names=["John"]), "names must be True or map"),
        (lambda: swap_gender("he", names={"John": None}), "names must be True or map"),
        (lambda: paper_swap("he", "_", "m"), "gender must be male or female, not 'm'"),
        (lambda: paper_swap("he", ["_"], "male"), "neutral must be one text, not list"),
    ):
        with pytest.raises(MuteError) as caught:
            call()
        assert message in str(caught.value) and "\n" not in str(caught.value)
    monkeypatch.setitem(sys.modules, "nltk.tokenize.treebank", None)
    _detokenizer.cache_clear()
    with pytest.raises(MuteError, match=r"mute-erasure\[text\]"):
        paper_swap("he", "_", "male")


FOLDER = Path(os.environ.get("MUTE_CF_TEXTS") or Path(__file__).parents[2].parent / "shared" / "data" / "cf_texts")


@pytest.mark.skipif(
    not (FOLDER / "small_test_texts.txt").is_file(),
    reason="the authors' texts are not there: set MUTE_CF_TEXTS to their folder",
)
def test_the_papers_references():
    """The authors' neutral texts are not published, so pronouns and titles are blanked here, and no names.

    That leaves two names whose capitals the paper's rule flattens, and one dash that newer NLTK takes for a word.
    """
    sources, references = (
        (FOLDER / name).read_text(encoding="utf-8").removesuffix("\n").split("\n")[1:]
        for name in ("small_test_texts.txt", "small_test_texts_cf.txt")
    )
    blank = re.compile(r"\b(he|him|his|mr|himself|she|her|hers|ms|mrs|herself)\b", re.IGNORECASE)
    female = substitution_rate(sources, "female").per_text == 1
    same = 0
    for source, reference, about_woman in zip(sources, references, female, strict=True):
        found = paper_swap(source, blank.sub("_", source), "female" if about_woman else "male")
        same += found is not None and found.strip() == reference.strip()
    assert same >= 624
