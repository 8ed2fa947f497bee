"""Decoding by edits: finds what is there to be found, changes nothing else, and knows no concept."""

import numpy as np
import pytest

import tiny_corpus
from gendered_texts import FEMALE_OF, gendered_texts, mean_of_words, text_pairs
from mute.errors import MuteError
from mute.steering import MeanDifference
from mute.text import EditSearch, edit_distance, substitution_rate
from mute.text.decoders.decoder import Decoder, cosines
from mute.text.decoders.edits import Edit, apply_edits
from mute.text.decoders.language import Language


@pytest.fixture(scope="module")
def encoder():
    return mean_of_words()


@pytest.fixture(scope="module")
def search(encoder):
    # The mean of a few words moves as much as it is told: there is nothing to aim beyond.
    return EditSearch(encoder, reach=1.0).fit(gendered_texts(1500, seed=0)[0])


@pytest.fixture(scope="module")
def pairs():
    return text_pairs(60, seed=9)


def test_it_is_a_decoder(search):
    assert isinstance(search, Decoder)


def test_finds_the_counterfactual_whose_embedding_is_given(search, encoder, pairs):
    sources, references, _ = zip(*pairs, strict=True)
    found = search.decode(encoder(references), sources)
    # Every gendered word must change and no other one; nothing but the order of search stands in the way.
    assert found.texts == list(references)
    np.testing.assert_allclose(found.scores, 1.0, atol=1e-5)


def test_reach_is_how_far_beyond_it_aims(encoder, pairs):
    """Half of the way is enough with reach 2, and is not with reach 1."""
    sources, references, _ = zip(*pairs, strict=True)
    start = encoder(sources)
    halfway = start + 0.5 * (encoder(references) - start)
    corpus = gendered_texts(1500, seed=0)[0]
    near, far = (EditSearch(encoder, reach=r).fit(corpus).decode(halfway, sources).texts for r in (1.0, 2.0))
    assert far == list(references)
    assert near != list(references)


def test_an_embedding_that_was_not_moved_leaves_the_text(search, encoder, pairs):
    sources = [source for source, _, _ in pairs]
    assert search.decode(encoder(sources), sources).texts == sources


def test_scores_are_the_cosines_of_what_is_returned(search, encoder, pairs):
    sources, references, _ = zip(*pairs[:20], strict=True)
    wanted = encoder(references) + 0.1 * np.random.default_rng(0).normal(size=(20, 48)).astype(np.float32)
    found = search.decode(wanted, sources)
    np.testing.assert_allclose(found.scores, cosines(encoder(found.texts), wanted), atol=1e-5)


@pytest.mark.parametrize("noise", [0.02, 0.1])
def test_what_it_maximises_never_falls_with_more_rounds(encoder, pairs, noise):
    corpus = gendered_texts(600, seed=1)[0]
    sources, references, _ = zip(*pairs[:20], strict=True)
    start = encoder(sources)
    wanted = encoder(references) + noise * np.random.default_rng(1).normal(size=start.shape).astype(np.float32)
    aim = start + 2.0 * (wanted - start)
    best = cosines(start, aim)
    for rounds in (1, 2, 4):
        # Without costs the value is the cosine itself.
        free = EditSearch(encoder, rounds=rounds, change=0, kinship=0, length=0, fluency=0).fit(corpus)
        now = cosines(encoder(free.decode(wanted, sources).texts), aim)
        assert (now >= best - 1e-6).all()
        best = now


def test_texts_do_not_depend_on_their_company(search, encoder, pairs):
    sources, references, _ = zip(*pairs, strict=True)
    wanted = encoder(references)
    together = search.decode(wanted, sources).texts
    assert [search.decode(wanted[i : i + 1], sources[i : i + 1]).texts[0] for i in range(10)] == together[:10]
    order = np.random.default_rng(0).permutation(len(sources))
    assert search.decode(wanted[order], [sources[i] for i in order]).texts == [together[i] for i in order]


def test_moved_embeddings_change_the_gendered_words_only(search, encoder, pairs):
    texts, genders = gendered_texts(1500, seed=0)
    move = MeanDifference(router=None).fit(encoder(texts), np.array(genders))
    sources, _, mine = zip(*pairs, strict=True)
    goal = np.where(np.array(mine) == "male", "female", "male")
    found = search.decode(move.counterfactual(encoder(sources), goal, concept=np.array(mine)), sources).texts
    # The mean shift is that of no sentence: where it is too little a word stays, where it is too much another changes.
    words = {"male": set(FEMALE_OF), "female": set(FEMALE_OF.values())}
    assert substitution_rate(found, goal.tolist(), words).rate > 0.9
    assert edit_distance(found, sources, words).mean() < 0.2


def test_another_concept_without_a_word_said_about_it(search, encoder):
    """Occupations: nothing in the search was made for them."""
    sources = ["The nurse lost her letter, and she went to town.", "In court he showed a song; he was a painter."]
    references = ["The doctor lost her letter, and she went to town.", "In court he showed a song; he was a lawyer."]
    assert search.decode(encoder(references), sources).texts == references


def test_blanks_marks_and_capitals_stay(search, encoder):
    source = "  HE   sold  (his)\tbook…  in town!! "
    wanted = "  SHE   sold  (her)\tbook…  in town!! "
    assert search.decode(encoder([wanted]), [source]).texts == [wanted]


@pytest.mark.parametrize("text", ["", " ", "?!", "qwxz"])
def test_texts_with_nothing_to_change(search, encoder, text):
    assert search.decode(encoder(["She sold her book in town."]), [text]).scores.shape == (1,)


@pytest.mark.parametrize(
    ("edits", "result"),
    [
        ([Edit(0, 1, None)], "Sold a book."),
        ([Edit(2, 3, None)], "He sold book."),
        ([Edit(3, 4, None)], "He sold a ."),
        ([Edit(0, 0, "then")], "Then he sold a book."),
        ([Edit(3, 3, "old")], "He sold a old book."),
        ([Edit(5, 5, "then")], "He sold a book. then"),
        ([Edit(0, 1, "she"), Edit(3, 4, "song")], "She sold a song."),
    ],
)
def test_edits_by_hand(edits, result):
    language = Language.learn(["then he , she sold old a song book"] * 5)
    numbered = [e if e.word is None else e._replace(word=int(language.ids([e.word])[0])) for e in edits]
    assert apply_edits("He sold a book.", numbered, language) == result


def test_saved_and_read_again(search, encoder, pairs):
    arrays, meta = search.state()
    again = EditSearch.from_state(encoder, arrays, meta)
    sources, references, _ = zip(*pairs[:10], strict=True)
    wanted = 0.7 * encoder(references) + 0.3 * encoder(sources)
    assert again.decode(wanted, sources).texts == search.decode(wanted, sources).texts


@pytest.mark.parametrize(
    "harm",
    [
        lambda a: a.pop("kin"),
        lambda a: a.update(vectors=a["vectors"][:-1]),
        lambda a: a.update(kin=a["kin"] * np.nan),
        lambda a: a.update(words=a["words"][:-9]),
        lambda a: a.update(pairs=a["pairs"] + 10**6),
    ],
)
def test_damaged_states_are_refused(search, encoder, harm):
    arrays, meta = search.state()
    harm(arrays)
    with pytest.raises(MuteError):
        EditSearch.from_state(encoder, arrays, meta)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"candidates": 0}, "candidates must be a whole number of at least 1, not 0"),
        ({"beam": 1.5}, "beam must be a whole number"),
        ({"reach": -1}, "reach must be a number of at least 0, not -1"),
        ({"fluency": float("nan")}, "fluency must be"),
        ({"kinship": True}, "kinship must be"),
    ],
)
def test_settings_are_checked(encoder, settings, says):
    with pytest.raises(MuteError, match=says):
        EditSearch(encoder, **settings)


def test_bad_input(search, encoder):
    rows = encoder(["he is here"])
    with pytest.raises(MuteError, match="give the sources"):
        search.decode(rows)
    with pytest.raises(MuteError, match="1 embeddings but 2 sources"):
        search.decode(rows, ["a", "b"])
    with pytest.raises(MuteError, match="learnt no language"):
        EditSearch(encoder).decode(rows, ["a"])
    with pytest.raises(MuteError, match="larger corpus"):
        EditSearch(encoder).fit(["too few words"])
    with pytest.raises(MuteError, match="not finite"):
        search.decode(rows * np.nan, ["a"])
    assert search.decode(np.empty((0, 48)), []).texts == []


def test_progress_counts_texts(search, encoder, pairs):
    told = []
    sources = [source for source, _, _ in pairs]
    search.decode(encoder(sources), sources, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (60, 60) and len(told) > 1


def test_words_that_the_search_has_made_itself_are_known() -> None:
    """A word put in before a full stop makes a word that neither the corpus nor the source has."""
    encoder = tiny_corpus.encoder()
    search = EditSearch(encoder).fit(tiny_corpus.TEXTS)
    decoded = search.decode(encoder(tiny_corpus.TEXTS[:20]), tiny_corpus.TEXTS[20:40])
    assert (decoded.scores > cosines(encoder(tiny_corpus.TEXTS[20:40]), encoder(tiny_corpus.TEXTS[:20]))).any()
