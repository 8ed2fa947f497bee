"""Scores of texts: the specification's vectors, the authors' own outputs where they are at hand, and bad input."""

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mute import MuteError
from mute.text import bertscore, bleu, edit_distance, load_encoder, rouge, substitution_rate
from mute.text.evaluation import metrics
from tiny_encoders import WORDS, sentences, write_encoder

pytest.importorskip("sacrebleu")
pytest.importorskip("rouge")
pytest.importorskip("nltk")

HYP = "She has her PhD. She teaches the law, the art. "
REF = "Him PhD is recent . He teaches the law, the U.S. art."


def random_text(rng, n_sentences, longest):
    return ". ".join(" ".join(rng.choice(WORDS, rng.integers(0, longest))) for _ in range(n_sentences)) + "."


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("tokenizers")
    return load_encoder(write_encoder(tmp_path_factory.mktemp("bert"), "bert"), name="tiny")


class TestBleu:
    def test_the_specified_vector(self):
        found = bleu([HYP], [REF])
        assert float(found) == found.score == pytest.approx(26.0365, abs=5e-5)
        np.testing.assert_allclose(found.precisions, [69.2308, 41.6667, 27.2727, 20.0], atol=5e-5)
        assert (found.hyp_length, found.ref_length) == (13, 17)
        assert found.brevity_penalty == pytest.approx(math.exp(1 - 17 / 13))

    def test_identical_texts_and_nothing(self):
        texts = ["She is a nurse .", "He is a doctor and went home."]
        assert float(bleu(texts, texts)) == pytest.approx(100)
        assert float(bleu(["", ""], texts)) == 0

    def test_no_advice_about_tokenised_texts(self, caplog, capsys):
        texts = [f"text {i} ends in a full stop of its own ." for i in range(150)]
        bleu(texts, texts)
        assert not caplog.records and capsys.readouterr() == ("", "")

    def test_the_mean_of_the_precisions_is_geometric(self):
        """The paper's MUtE* row follows from its four precisions."""
        assert np.exp(np.log([67.8, 38.5, 25.3, 17.8]).mean()) == pytest.approx(32.93, abs=0.01)


class TestRouge:
    def test_the_specified_vector(self):
        found = rouge([HYP], [REF])
        one, two, longest = (found[kind] for kind in ("rouge-1", "rouge-2", "rouge-l"))
        np.testing.assert_allclose([one.recall, one.precision, one.f], [0.454545, 0.555556, 0.5], atol=1e-6)
        np.testing.assert_allclose([two.recall, two.precision, two.f], [0.272727, 0.3, 0.285714], atol=1e-6)
        assert longest == one

    def test_identical_texts(self):
        assert all(score.f == pytest.approx(1, abs=1e-6) for score in rouge([REF], [REF]).values())

    @pytest.mark.parametrize("nothing", ["", ".", "...", ". . ."])
    def test_texts_without_words_score_nothing(self, nothing):
        found = rouge([nothing, "she left"], ["she left"] * 2)
        assert found["rouge-1"].f == pytest.approx(0.5, abs=1e-6)
        assert rouge(["she left"], ["..."])["rouge-l"].f == 0

    def test_texts_too_long_for_the_package(self):
        text = " ".join(WORDS * 200)
        # More words than Python allows levels of recursion.
        found = rouge([text], [text])["rouge-l"]
        assert found.f == pytest.approx(1, abs=1e-6)
        assert rouge([" ".join(map(str, range(3000)))], ["no word of these"])["rouge-l"].f == 0

    def test_long_and_short_texts_are_scored_alike(self, monkeypatch):
        """The package's own subsequence, of the many that are as long, decides which words count."""
        rng = np.random.default_rng(0)
        hyps, refs = ([random_text(rng, 3, 12) for _ in range(60)] for _ in range(2))
        by_package = rouge(hyps, refs)
        monkeypatch.setattr(metrics, "_DEEPEST", 0)
        assert rouge(hyps, refs) == by_package


class TestSubstitutionRate:
    def test_the_specified_example(self):
        texts = [
            "Mr. Smith is here. He will meet you at noon.",
            "Ms. Johnson is at home. He will come to you at lunch.",
        ]
        found = substitution_rate(texts, "male")
        assert found.rate == found.rate_with_markers == 0.75 and found.n_with_markers == 2
        assert found.per_text.tolist() == [1.0, 0.5]

    def test_texts_without_markers(self):
        found = substitution_rate(["He left.", "It rained.", "She left him."], ["male", "male", "female"])
        assert found.rate == pytest.approx((1 + 0 + 0.5) / 3)
        assert found.rate_with_markers == pytest.approx(0.75) and found.n_with_markers == 2
        np.testing.assert_array_equal(found.per_text, [1, np.nan, 0.5])
        alone = substitution_rate(["It rained."], "male")
        assert alone.rate == 0 and math.isnan(alone.rate_with_markers)

    def test_what_counts_as_a_marker(self):
        """As in the paper: an initial M. is male, two words with a slash are none, contractions are cut."""
        texts = ["Ann M. Lee met his/her dog.", "HE's in.", "Ask HER."]
        np.testing.assert_array_equal(substitution_rate(texts, "male").per_text, [1, 1, 0])

    def test_any_concept(self):
        words = {"old": ["Elderly", "aged"], "young": {"young"}, 3: ["child"]}
        found = substitution_rate(["An elderly man and a young child", "Young!"], np.array(["old", "young"]), words)
        np.testing.assert_allclose(found.per_text, [1 / 3, 1])
        assert substitution_rate(["a child"], 3, words).rate == 1

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"targets": ["male"]}, "2 texts but 1 targets"),
            ({"targets": "neutral"}, "the target 'neutral' has no words: there are words for female, male"),
            ({"targets": ["male", []]}, "has no words"),
            ({"targets": "a", "words": {"a": ["x"], "b": ["X"]}}, "the word 'x' belongs to 'a' and to 'b'"),
            ({"targets": "a", "words": {"a": "xyz"}}, "the words of 'a' must be a list of single words; 'xyz' is none"),
            ({"targets": "a", "words": {"a": ["old man"]}}, "'old man' is none"),
            ({"targets": "a", "words": ["x"]}, "words must map each label to its words"),
            ({"texts": [], "targets": "male"}, "no texts were given"),
        ],
    )
    def test_bad_input(self, settings, message):
        with pytest.raises(MuteError) as caught:
            substitution_rate(**{"texts": ["he", "she"], **settings})
        assert message in str(caught.value) and "\n" not in str(caught.value)


class TestBertScore:
    def test_it_is_the_definition(self, encoder):
        hyps, refs = ["she is a nurse", "", "the doctor went home"], ["he was a doctor of work", "he", "to work"]
        rows = []
        for hyp, ref in zip(hyps, refs, strict=True):
            a, b = (one / np.linalg.norm(one, axis=1, keepdims=True) for one in encoder.tokens([hyp, ref]))
            if not len(a):
                rows.append([0.0, 0.0, 0.0])
                continue
            p = sum(max(float(x @ y) for y in b) for x in a) / len(a)
            r = sum(max(float(x @ y) for x in a) for y in b) / len(b)
            rows.append([p, r, 2 * p * r / (p + r)])
        found = bertscore(hyps, refs, encoder)
        np.testing.assert_allclose([found.precision, found.recall, found.f1], np.mean(rows, axis=0), atol=1e-5)
        assert found.encoder == "tiny"

    def test_rescaling(self, encoder):
        texts = [text for text in sentences(40) if text]
        same = bertscore(texts, texts, encoder)
        assert same.f1 == pytest.approx(1, abs=1e-5) and same.f1_rescaled == pytest.approx(1, abs=1e-4)
        # Texts that have nothing to do with their references: the mean over another shuffle of the same texts.
        apart = bertscore(texts[::-1], texts, encoder)
        assert abs(apart.f1_rescaled) < 0.3 < same.f1_rescaled
        base = (apart.f1 - apart.f1_rescaled) / (1 - apart.f1_rescaled)
        assert apart.f1_rescaled == bertscore(texts[::-1], texts, encoder).f1_rescaled
        other = bertscore(texts[::-1], texts, encoder, rescale_with=texts[:5])
        assert other.f1 == apart.f1 and (other.f1 - base) / (1 - base) != pytest.approx(other.f1_rescaled)
        assert math.isnan(bertscore(["she"], ["he"], encoder).f1_rescaled)

    def test_blocks_change_nothing(self, encoder, monkeypatch):
        hyps, refs = sentences(20, seed=1), [text or "a" for text in sentences(20, seed=2)]
        whole = bertscore(hyps, refs, encoder)
        monkeypatch.setattr("mute.text.evaluation.token_matching._BLOCK", 3)
        assert bertscore(hyps, refs, encoder).f1 == pytest.approx(whole.f1, abs=1e-6)

    def test_functions_show_no_tokens(self):
        encoder = load_encoder(lambda texts: [[1.0]] * len(texts), name="mine")
        with pytest.raises(MuteError, match="mine gives one embedding for a text and none for its tokens"):
            bertscore(["a"], ["b"], encoder)


class TestEditDistance:
    @pytest.mark.parametrize(
        ("text", "source", "all_edits", "outside"),
        [
            ("She left her job.", "She left her job.", 0, 0),
            ("She left her job.", "He left his job.", 2, 0),
            ("She quit her old job.", "He left his job.", 4, 2),
            ("Ms. Lee left.", "Mr. Lee left.", 1, 0),
            ("He himself left.", "He left.", 1, 1),
            ("Nobody left.", "He left.", 1, 1),
            ("", "He left.", 3, 3),
            ("left he", "he left", 2, 2),
        ],
    )
    def test_known_distances(self, text, source, all_edits, outside):
        for pair in ([text], [source]), ([source], [text]):
            assert edit_distance(*pair).tolist() == [all_edits]
            assert edit_distance(*pair, metrics.GENDER).tolist() == [outside]
            assert edit_distance(*pair, {word for words in metrics.GENDER.values() for word in words}) == [outside]

    def test_it_is_levenshtein(self):
        rng = np.random.default_rng(0)
        a, b = (list(rng.choice(["x", "y", "z"], 9)) for _ in range(2))
        table = {(i, j): i + j for i in range(10) for j in range(10)}
        for i in range(1, 10):
            for j in range(1, 10):
                change = table[i - 1, j - 1] + (a[i - 1] != b[j - 1])
                table[i, j] = min(table[i - 1, j] + 1, table[i, j - 1] + 1, change)
        assert edit_distance([" ".join(a)], [" ".join(b)])[0] == table[9, 9]

    def test_bad_input(self):
        with pytest.raises(MuteError, match="2 texts but 1 sources"):
            edit_distance(["a", "b"], ["a"])
        with pytest.raises(MuteError, match="must be a list of single words"):
            edit_distance(["a"], ["a"], "he")


@pytest.mark.parametrize("score", [bleu, rouge, lambda hyps, refs: bertscore(hyps, refs, load_encoder(len))])
@pytest.mark.parametrize(
    ("hyps", "refs", "message"),
    [
        (["a", "b"], ["a"], "2 texts but 1 references"),
        ([], [], "no texts were given"),
        (["a"], [" "], "reference 0 (counting from 0) has no text"),
        ("a", "a", "one text was given where a list"),
        ([None], ["a"], "not a text"),
    ],
)
def test_what_cannot_be_scored(score, hyps, refs, message):
    with pytest.raises(MuteError) as caught:
        score(hyps, refs)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_missing_packages_name_their_extra(monkeypatch):
    for package, call in (
        ("sacrebleu.metrics.bleu", lambda: bleu(["a"], ["a"])),
        ("rouge", lambda: rouge(["a"], ["a"])),
    ):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(MuteError, match=r"mute-erasure\[text\]"):
            call()


def test_packages_are_imported_late():
    code = "import sys, mute.text; print({'nltk', 'rouge', 'sacrebleu', 'onnxruntime'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# --- The texts that the paper's authors published, and their table --------------------------------------------------

FOLDER = Path(os.environ.get("MUTE_CF_TEXTS") or Path(__file__).parents[2].parent / "shared" / "data" / "cf_texts")
published = pytest.mark.skipif(
    not (FOLDER / "small_test_texts.txt").is_file(),
    reason="the authors' texts are not there: set MUTE_CF_TEXTS to their folder",
)
# BLEU, F of ROUGE-1, ROUGE-2 and ROUGE-L, r_g.
TABLE = {
    "baseline_cf.txt": (78.68, 0.9195, 0.7967, 0.8782, 0.98),
    "MeanDiff_cf.txt": (61.00, 0.8424, 0.6431, 0.7766, 0.46),
    "LinearOT_cf.txt": (60.45, 0.8530, 0.6452, 0.7806, 0.65),
    "MUtE_cf.txt": (32.93, 0.6673, 0.3755, 0.5695, 0.85),
    "MUtE_LinReg_surrogate_cf.txt": (31.18, 0.6584, 0.3637, 0.5610, 0.92),
}


def published_texts(name: str) -> list[str]:
    _, *texts = (FOLDER / name).read_text(encoding="utf-8").removesuffix("\n").split("\n")
    assert len(texts) == 628
    return texts


def published_targets() -> list[str]:
    """The other gender than the source's, by its markers.

    No source has markers of both genders. Eight of the 628 have none, so their labels cannot be told from the text;
    they count as texts about men, as most are, which moves r_g by less than 0.002.
    """
    male = substitution_rate(published_texts("small_test_texts.txt"), "male").per_text
    assert set(male[~np.isnan(male)]) == {0.0, 1.0} and np.isnan(male).sum() == 8
    return ["male" if share == 0 else "female" for share in male]


@published
@pytest.mark.parametrize("name", TABLE)
def test_the_papers_table(name):
    """The tolerances are the known error of the transcribed texts; r_g was printed with two digits."""
    texts, references = published_texts(name), published_texts("small_test_texts_cf.txt")
    score, *rouges, rate = TABLE[name]
    assert float(bleu(texts, references)) == pytest.approx(score, abs=0.05)
    found = rouge(texts, references)
    np.testing.assert_allclose([found[kind].f for kind in ("rouge-1", "rouge-2", "rouge-l")], rouges, atol=0.001)
    assert substitution_rate(texts, published_targets()).rate == pytest.approx(rate, abs=0.02)


@published
def test_floor_and_ceiling_of_the_substitution_rate():
    targets = published_targets()
    sources, references = published_texts("small_test_texts.txt"), published_texts("small_test_texts_cf.txt")
    assert substitution_rate(sources, targets).rate == 0
    ceiling = substitution_rate(references, targets)
    # All but the 8 without markers; two references keep an initial M., which counts as male.
    assert ceiling.n_with_markers == 620 and 0.99 < ceiling.rate_with_markers < 1
    assert ceiling.rate == pytest.approx(ceiling.rate_with_markers * 620 / 628)
