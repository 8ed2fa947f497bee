"""Decode by editing: small changes to the source, as long as they bring its embedding nearer to the wanted one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mute.errors import MuteError
from mute.rows.validation import check_number, check_whole_number
from mute.text.decoders.decoder import Decoded, check_wanted, cosines
from mute.text.decoders.edits import Costs, Edit, PricedEdits, Proposer, apply_edits
from mute.text.decoders.language import Language, tokenise
from mute.text.encoders.encoder import Encoder, TextsDone, check_texts, unit
from mute.typing import Array, Json

__all__ = ["EditSearch"]

# Texts searched side by side, so that their candidates fill the encoder's batches.
_TOGETHER = 32

# Most edits of one round that are tried together.
_JOINED = 6


@dataclass(frozen=True)
class _State:
    """A text of the search: its embedding of length 1, its cosine to the aim, what its edits have cost."""

    text: str
    embedding: NDArray[np.float32]
    cosine: float
    cost: float

    @property
    def value(self) -> float:
        return self.cosine - self.cost


_New = tuple[str, _State, PricedEdits]
_Vectors = dict[str, NDArray[np.float32]]

_COUNTS, _COSTS = ("candidates", "beam", "rounds", "vocabulary"), ("change", "kinship", "length", "fluency", "slack")
_SETTINGS = (*_COUNTS, "reach", *_COSTS)


class EditSearch:
    r"""Find texts for embeddings by small edits of the texts that the embeddings were moved from.

    Words are substituted, put in or taken away, one at a time or several together, so that

    .. math:: \cos(E(text), aim) - \text{cost of the edits}, \qquad aim = E(source) + reach\,(wanted - E(source))

    grows, with a beam search that ends when no edit helps. The words to put in come from a corpus: its vocabulary,
    which words are used alike, and which follow which. There is no list of words for any concept, and the encoder only
    has to encode.

    Parameters
    ----------
    encoder : Encoder
        The encoder that made the embeddings.
    candidates : int, default=32
        Texts encoded in each round for each source: the work, and the width of the search.
    beam : int, default=2
        Texts kept from one round to the next.
    rounds : int, default=12
        Most rounds; most searches end after three.
    reach : float, default=2.0
        How far to go towards the wanted embedding, and beyond it. Maps between classes move an embedding less than a
        change of every word of the concept does. With 1, words that add little stay.
    change : float, default=0.001
        What each edit costs, in cosine.
    kinship : float, default=0.08
        What it costs, besides, to replace a word by one that is used altogether differently.
    length : float, default=0.05
        What it costs to put in a word or to take one away.
    fluency : float, default=0.003
        What it costs to make neighbours less likely, for each factor of e beyond `slack`.
    slack : float, default=2.0
        Neighbours may become this much less likely, in the logarithm, at no cost.
    vocabulary : int, default=10000
        Most words of the corpus to choose from; the most frequent, from five occurrences on.

    Notes
    -----
    *Limits.* The search starts from the source: a counterfactual that needs another order of words, or words that the
    corpus does not have, is out of reach. Neighbouring words agree with each other; nothing checks the grammar of a
    whole sentence. A word that the encoder hardly notices stays. Costs were chosen for gender, on held-out sentences of
    BUG; for other concepts they are a start. The search encodes about 60 texts for each source, and learning the
    language of 100,000 sentences takes half a minute.

    Examples
    --------
    >>> from mute.text import load_encoder
    >>> words = ["he", "she", "nurse", "here"]
    >>> encoder = load_encoder(lambda texts: [[1 + t.lower().count(w) for w in words] for t in texts], name="counts")
    >>> search = EditSearch(encoder).fit(["He is a nurse.", "She is a nurse.", "He is here.", "She is here."] * 5)
    >>> search.decode(encoder(["she is here"]), ["He is here."]).texts
    ['She is here.']
    """

    def __init__(
        self,
        encoder: Encoder,
        *,
        candidates: int = 32,
        beam: int = 2,
        rounds: int = 12,
        reach: float = 2.0,
        change: float = 0.001,
        kinship: float = 0.08,
        length: float = 0.05,
        fluency: float = 0.003,
        slack: float = 2.0,
        vocabulary: int = 10_000,
    ) -> None:
        self.encoder, self.vocabulary = encoder, vocabulary
        self.candidates, self.beam, self.rounds, self.reach = candidates, beam, rounds, reach
        self.change, self.kinship, self.length, self.fluency, self.slack = change, kinship, length, fluency, slack
        for name in _COUNTS:
            check_whole_number(name, getattr(self, name))
        for name in ("reach", *_COSTS):
            check_number(name, getattr(self, name), "of at least 0", lambda value: value >= 0)

    def fit(
        self, texts: Sequence[str], embeddings: ArrayLike | None = None, *, progress: TextsDone | None = None
    ) -> Self:
        """Learn words and their neighbours from a corpus.

        Parameters
        ----------
        texts : sequence of str
            In the language, and of the kind, of what will be decoded. A few thousand are a start.
        embeddings : ignored
            All decoders are fitted with the same arguments.
        progress : function (texts done, texts in all), optional
        """
        language = Language.learn(check_texts(texts), self.vocabulary, progress=progress)
        if not any(word.isalpha() for word in language.words):
            raise MuteError("no word occurs five times in these texts: give a larger corpus")
        return self._with(language, self.encoder(language.words))

    def _with(self, language: Language, vectors: NDArray[np.float32]) -> Self:
        self._proposer = Proposer(language, vectors, Costs(*(getattr(self, name) for name in _COSTS)))
        return self

    def state(self) -> tuple[dict[str, Array], Json]:
        """What a file keeps: arrays, and settings that can be written as JSON."""
        language = self._learnt().language
        names = json.dumps([language.words, language.forms], ensure_ascii=False).encode()
        arrays: dict[str, Array] = {"words": np.frombuffer(names, np.uint8), "vectors": self._learnt().vectors}
        arrays |= {name: getattr(language, name) for name in ("pairs", "counts", "kin")}
        kinds = {name: int if name in _COUNTS else float for name in _SETTINGS}
        return arrays, {name: kind(getattr(self, name)) for name, kind in kinds.items()}

    @classmethod
    def from_state(cls, encoder: Encoder, arrays: dict[str, Array], meta: Json) -> Self:
        """The search that `state` described."""
        try:
            out = cls(encoder, **{name: meta[name] for name in _SETTINGS})
            words, forms = json.loads(arrays["words"].tobytes())
            language = Language(words, forms, arrays["pairs"], arrays["counts"])
            kin, vectors = arrays["kin"], arrays["vectors"]
        except (KeyError, ValueError, TypeError) as error:
            if isinstance(error, MuteError):
                raise
            raise MuteError(f"this is no edit search: {error}") from error
        width = encoder.dimension or vectors.shape[-1]
        if kin.ndim != 2 or len(kin) != len(language) + 2 or vectors.shape != (len(language), width):
            raise MuteError("the words and their vectors do not fit together: the file is damaged")
        if not (np.isfinite(kin).all() and np.isfinite(vectors).all()):
            raise MuteError("vectors of words hold numbers that are not finite: the file is damaged")
        language.kin = kin
        return out._with(language, vectors)

    def decode(
        self, embeddings: ArrayLike, sources: Sequence[str] | None = None, *, progress: TextsDone | None = None
    ) -> Decoded:
        """Find a text for each embedding (n, D) by edits of its source; `progress` gets texts done and texts in all."""
        self._learnt()
        wanted, given = check_wanted(embeddings, sources, self.encoder)
        if given is None:
            raise MuteError("edit search starts from a text: give the sources")
        texts: list[str] = []
        scores = [np.empty(0, np.float32)]
        for start in range(0, len(given), _TOGETHER):
            part = slice(start, start + _TOGETHER)
            found = self._search(given[part], wanted[part])
            texts += [state.text for state in found]
            scores.append(cosines(np.stack([state.embedding for state in found]), wanted[part]))
            if progress is not None:
                progress(len(texts), len(given))
        return Decoded(texts, np.concatenate(scores))

    def _learnt(self) -> Proposer:
        if not hasattr(self, "_proposer"):
            raise MuteError("this edit search has learnt no language yet: call fit with a corpus")
        return self._proposer

    def _search(self, sources: list[str], wanted: NDArray[np.float32]) -> list[_State]:
        first = self.encoder(sources)
        aims = unit(first + self.reach * (wanted - first))
        unknown: _Vectors = {}
        searches = [_Search(self, *row, unknown) for row in zip(sources, unit(first), aims, strict=True)]
        for _ in range(self.rounds):
            active = [search for search in searches if not search.ended]
            if not active:
                break
            self._learn_unknown([state.text for search in active for state in search.beam], unknown)
            for propose in (_Search.single, _Search.joined):
                made = [(search, *new) for search in active for new in propose(search)]
                if not made:
                    continue
                rows = unit(self.encoder([text for _, text, _, _ in made]))
                for (search, text, parent, change), row in zip(made, rows, strict=True):
                    search.add(text, row, parent, change)
            for search in active:
                search.end_round()
        return [search.beam[0] for search in searches]

    def _learn_unknown(self, texts: list[str], unknown: _Vectors) -> None:
        """Add the embeddings of words that the vocabulary does not have."""
        words = sorted({token.word for text in texts for token in tokenise(text)} - unknown.keys())
        language = self._learnt().language
        new = [word for word, at in zip(words, language.ids(words), strict=True) if at > language.edge]
        if new:
            unknown.update(zip(new, self.encoder(new), strict=True))


class _Search:
    """The search for one text."""

    def __init__(
        self, by: EditSearch, text: str, embedding: NDArray[np.float32], aim: NDArray[np.float32], unknown: _Vectors
    ) -> None:
        self._by, self._aim, self._unknown = by, aim, unknown
        self.beam = [_State(text, embedding, float(embedding @ aim), 0.0)]
        self.ended = self._arrived()
        self._tried = {text}
        self._found: list[tuple[_State, _State, PricedEdits]] = []

    def single(self) -> list[_New]:
        """The most promising changes of each text of the beam."""
        n, proposer = max(1, self._by.candidates // len(self.beam)), self._by._learnt()
        return [
            new
            for state in self.beam
            for change in proposer.propose(state.text, state.embedding, self._aim, self._unknown, n)
            for new in self._new(state, change)
        ]

    def joined(self) -> list[_New]:
        """The best changes of this round, which have been encoded by now, two together, three, and so on."""
        out = []
        for parent in self.beam:
            better = [(new, change) for new, of, change in self._found if of is parent and new.value > parent.value]
            better.sort(key=lambda pair: -pair[0].value)
            edits: tuple[Edit, ...] = ()
            cost = 0.0
            for _, change in better:
                if len(edits) >= _JOINED or any(a.meets(b) for a in edits for b in change.edits):
                    continue
                edits, cost = edits + change.edits, cost + change.cost
                out += self._new(parent, PricedEdits(edits, cost))
        return out

    def _new(self, parent: _State, change: PricedEdits) -> list[_New]:
        text = apply_edits(parent.text, change.edits, self._by._learnt().language)
        new = [] if text in self._tried else [(text, parent, change)]
        self._tried.add(text)
        return new

    def add(self, text: str, embedding: NDArray[np.float32], parent: _State, change: PricedEdits) -> None:
        """Take note of a candidate that has been encoded."""
        state = _State(text, embedding, float(embedding @ self._aim), parent.cost + change.cost)
        self._found.append((state, parent, change))

    def end_round(self) -> None:
        """Keep the best; the search ends when the best is what it was."""
        best = self.beam[0]
        pool = self.beam + [new for new, _, _ in self._found]
        self.beam = sorted(pool, key=lambda state: -state.value)[: self._by.beam]
        self.ended, self._found = self.beam[0] is best or self._arrived(), []

    def _arrived(self) -> bool:
        """Whether no edit could gain what it costs at least."""
        return 1.0 - self.beam[0].cosine <= self._by.change
