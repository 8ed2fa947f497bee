"""Words, their order and their kinship, learnt from a corpus."""

import numpy as np
import pytest

from gendered_texts import gendered_texts
from mute.errors import MuteError
from mute.text.decoders.language import Language, Token, begins, tokenise


@pytest.fixture(scope="module")
def language():
    return Language.learn(gendered_texts(2000, seed=0)[0])


def test_tokens_join_to_the_text():
    text = "She’d—well—lost (it),  didn't  she?\nÉmile's \t co-op."
    tokens = tokenise(text)
    assert "".join(token.text for token in tokens) == "".join(text.split())
    assert all(text[token.start : token.end] == token.text for token in tokens)


def test_split_and_running_text_give_the_same_words():
    split, running = tokenise("he 's here , is n't he ?"), tokenise("he's here, is n't he?")
    assert [token.word for token in split] == [token.word for token in running]


def test_sentences_begin_after_a_full_stop():
    tokens = tokenise("He left. She, too.")
    assert [token.text for at, token in enumerate(tokens) if begins(tokens, at)] == ["He", "She"]


def test_probabilities_of_what_follows_sum_to_one(language):
    every = np.arange(len(language) + 2)
    total = np.exp(language.log_after(every, every)).sum(axis=1)
    # Words that nothing was seen to precede get half a pair each, of which the sum knows.
    np.testing.assert_allclose(total, 1.0, atol=1e-9)


def test_the_three_ways_to_ask_agree(language):
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, len(language) + 2, size=(2, 40))
    table = language.log_after(first, second)
    np.testing.assert_allclose(language.log_before(first, second).T, table)
    np.testing.assert_allclose(language.log_pairs(first, second), np.diag(table))


def test_probability_by_hand():
    language = Language.learn(["a b", "a b", "a c"] * 2, least=1)
    a, b = language.ids(["a", "b"])
    # c(a, b) = 4 of c(a) = 6; two words follow a; b follows one word, of 5 different pairs and half a one for "other".
    expected = (4 - 0.75) / 6 + 0.75 * 2 / 6 * 1 / (5 + 0.5)
    assert np.exp(language.log_pairs(np.array([a]), np.array([b])))[0] == pytest.approx(expected)


@pytest.mark.parametrize(("word", "other"), [("he", "she"), ("his", "her"), ("book", "song"), ("nurse", "doctor")])
def test_words_used_alike_are_kin(language, word, other):
    near = language.kin @ language.kin[language.ids([word])[0]]
    nearest = {language.words[i] for i in np.argsort(-near)[1:6]}
    assert other in nearest
    assert not nearest & {".", "went", "was"}


def test_kin_have_length_one_and_strangers_none(language):
    np.testing.assert_allclose(np.linalg.norm(language.kin[: len(language)], axis=1), 1.0, atol=1e-5)
    assert not language.kin[len(language) :].any()


@pytest.mark.parametrize(
    ("old", "first", "new"),
    [("He", True, "She"), ("he", False, "she"), ("HE", False, "SHE"), ("He", False, "She"), ("he", True, "she")],
)
def test_capitals_are_kept(language, old, first, new):
    she = int(language.ids(["she"])[0])
    assert language.written(she, Token(old, 0), first) == new


def test_names_bring_their_own_capital():
    language = Language.learn(["Then we met Anna there", "Then we met him there"] * 5)
    anna, him = (int(i) for i in language.ids(["anna", "him"]))
    assert language.written(anna, Token("him", 0), False) == "Anna"
    assert language.written(him, Token("Anna", 0), False) == "him"


def test_the_same_corpus_gives_the_same_language():
    texts = gendered_texts(300, seed=1)[0]
    one, two = Language.learn(texts), Language.learn(texts)
    assert (one.words, one.forms) == (two.words, two.forms)
    np.testing.assert_array_equal(one.kin, two.kin)


def test_nothing_to_learn_from():
    assert len(Language.learn([])) == 0
    assert len(Language.learn(["once only"])) == 0


@pytest.mark.parametrize(
    ("words", "pairs", "counts"),
    [
        (["a", "a"], [[0, 1]], [1]),
        (["a", "b"], [[0, 9]], [1]),
        (["a", "b"], [[0, 1]], [1, 2]),
        (["a", "b"], [0, 1], [1, 2]),
    ],
)
def test_damaged_parts_are_refused(words, pairs, counts):
    with pytest.raises(MuteError, match="do not fit together"):
        Language(words, words, np.array(pairs, np.int32), np.array(counts, np.int32))
