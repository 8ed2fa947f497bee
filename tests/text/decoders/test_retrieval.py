"""Retrieval finds what a plain search over all cosines finds, and never the source."""

import numpy as np
import pytest

from mute import MuteError
from mute.text import Decoder, Retrieval, load_encoder
from mute.text.decoders import retrieval as module

RNG = np.random.default_rng(0)
N, D = 300, 12
VECTORS = RNG.normal(size=(N, D)).astype(np.float32)
TEXTS = [f"text {i}" for i in range(N)]
WANTED = RNG.normal(size=(40, D)).astype(np.float32)


@pytest.fixture
def encoder():
    return load_encoder(lambda texts: VECTORS[[int(text.split()[1]) for text in texts]], name="table")


def plain(wanted, rows=VECTORS):
    a, b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (wanted, rows))
    return a @ b.T


@pytest.fixture(params=[(8192, 1024), (7, 3), (1, 40)])
def blocks(request, monkeypatch):
    monkeypatch.setattr(module, "_BLOCK", request.param[0])
    monkeypatch.setattr(module, "_QUERIES", request.param[1])


def test_the_nearest(encoder, blocks):
    found = Retrieval(encoder, TEXTS).decode(WANTED)
    near = plain(WANTED)
    assert found.texts == [TEXTS[i] for i in near.argmax(axis=1)]
    # Half precision: 2**-11 of each number, of which errors of both signs add up.
    np.testing.assert_allclose(found.scores, near.max(axis=1), atol=2e-4)


def test_never_the_source(encoder, blocks):
    corpus = Retrieval(encoder, TEXTS + TEXTS, np.concatenate([VECTORS, VECTORS]))
    best = plain(WANTED).argsort(axis=1)[:, ::-1]
    sources = [TEXTS[i] for i in best[:, 0]]
    assert corpus.decode(WANTED, sources).texts == [TEXTS[i] for i in best[:, 1]]
    same = corpus.decode(np.repeat(WANTED[:1], 5, axis=0), sources[:1] * 5)
    assert same.texts == [TEXTS[best[0, 1]]] * 5, "the same source many times"
    elsewhere = ["not in the corpus"] * len(WANTED)
    assert corpus.decode(WANTED, elsewhere).texts == sources


def test_lengths_do_not_matter(encoder):
    scaled = VECTORS * np.exp(RNG.normal(size=(N, 1))).astype(np.float32) * 1e6
    assert (
        Retrieval(encoder, TEXTS, scaled).decode(WANTED * 1e-6).texts == Retrieval(encoder, TEXTS).decode(WANTED).texts
    )


def test_zero_rows_are_near_to_nothing(encoder):
    rows = VECTORS.copy()
    rows[0] = 0
    found = Retrieval(encoder, TEXTS, rows).decode(np.zeros((1, D)))
    assert found.scores.tolist() == [0.0]


def test_state_gives_the_same_answers(encoder):
    texts = [text + " äöü🙂\n" for text in TEXTS[:-1]] + ["text 299"]
    corpus = Retrieval(encoder, texts)
    arrays, meta = corpus.state()
    assert arrays["directions"].dtype == np.float16
    again = Retrieval.from_state(encoder, arrays, meta)
    assert again.texts == texts and isinstance(again, Decoder)
    for a, b in zip(vars(corpus.decode(WANTED)).values(), vars(again.decode(WANTED)).values(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "damage",
    [
        lambda a: a | {"offsets": a["offsets"][:-1]},
        lambda a: a | {"offsets": a["offsets"][::-1].copy()},
        lambda a: a | {"offsets": a["offsets"] + 1},
        lambda a: a | {"letters": a["letters"].astype(np.int64)},
        lambda a: a | {"directions": a["directions"][0]},
        lambda a: a | {"directions": np.full_like(a["directions"], np.nan)},
        lambda a: a | {"directions": a["directions"][:0], "offsets": a["offsets"][:1], "letters": a["letters"][:0]},
    ],
)
def test_forged_states_are_refused(encoder, damage):
    arrays, meta = Retrieval(encoder, TEXTS).state()
    with pytest.raises(MuteError):
        Retrieval.from_state(encoder, damage(arrays), meta)


def test_progress(encoder, monkeypatch):
    monkeypatch.setattr(module, "_BLOCK", 100)
    seen = []
    Retrieval(encoder, TEXTS).decode(WANTED, progress=lambda *at: seen.append(at))
    assert seen == [(100, N), (200, N), (300, N)]


def test_what_cannot_be_done(encoder):
    with pytest.raises(MuteError, match="no texts"):
        Retrieval(encoder, [])
    with pytest.raises(MuteError, match="300 texts but 40 embeddings"):
        Retrieval(encoder, TEXTS, WANTED)
    with pytest.raises(MuteError, match="not finite"):
        Retrieval(encoder, TEXTS, VECTORS * np.nan)
    corpus = Retrieval(encoder, TEXTS, VECTORS)
    with pytest.raises(MuteError, match="3 columns, those of the corpus 12"):
        corpus.decode(np.ones((1, 3)))
    with pytest.raises(MuteError, match="40 embeddings but 1 sources"):
        corpus.decode(WANTED, ["a"])
    with pytest.raises(MuteError, match="equal a source"):
        Retrieval(encoder, ["text 1"]).decode(WANTED[:1], ["text 1"])
    assert corpus.decode(np.empty((0, D))).texts == []
