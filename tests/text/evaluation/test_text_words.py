"""Words and sentences, as NLTK would cut them with its trained model at hand."""

import pytest

from mute.text.evaluation.words import split_sentences, split_words, title_words

pytest.importorskip("nltk")


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("", []),
        ("  \n ", []),
        ("...", ["..."]),
        ("No stop", ["No stop"]),
        ("She left. He stayed.", ["She left.", "He stayed."]),
        ("Really?! Yes. ", ["Really?!", "Yes."]),
        ("Mr. A. B. Lee left.", ["Mr. A. B. Lee left."]),
        ("She has a Ph.D. from Oslo.", ["She has a Ph.D. from Oslo."]),
        ("She has a Ph.D. She teaches.", ["She has a Ph.D.", "She teaches."]),
        ("Acme Inc. sold it. (Later.) End", ["Acme Inc. sold it.", "(Later.)", "End"]),
        ("“It was him.” He left.", ["“It was him.”", "He left."]),
        ('he said. "', ['he said. "']),
        ("at 3.5 percent", ["at 3.5 percent"]),
    ],
)
def test_sentences(text, sentences):
    assert split_sentences(text) == sentences


def test_words():
    assert split_words("Don't ask him. She'll know, won't she?") == [
        *("Do", "n't", "ask", "him", ".", "She", "'ll", "know", ",", "wo", "n't", "she", "?")
    ]
    # Two words joined by a slash are one, as the paper's count has it.
    assert split_words("his/her book") == ["his/her", "book"]


def test_titles_lose_their_full_stop_and_initials_are_taken_for_titles():
    assert title_words("Mrs. Lee, Ms. Ray and M. Fox met _. Roe.") == [
        *("Mrs", ".", "Lee", ",", "Ms", ".", "Ray", "and", "Mr", ".", "Fox", "met", "_", ".", "Roe", ".")
    ]
