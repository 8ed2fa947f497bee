"""Counterfactual texts: what a text would be under another value of a concept."""

from __future__ import annotations

import os
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from inspect import signature
from typing import Self

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.rows.validation import LabelEncoder, check_length, label_array
from mute.text.decoders.decoder import Decoded, Decoder, cosines
from mute.text.encoders.encoder import Encoder, EncoderLike, Stages, TextsDone, as_encoder, check_texts, counted
from mute.text.encoders.encoding import encode
from mute.text.saving import decoder_class, read_model, write_model
from mute.typing import Array, Label, LabelsLike, Method

__all__ = ["LAYERS", "Counterfactuals", "TextCounterfactual"]

LAYERS = 4


@dataclass(frozen=True, eq=False)
class Counterfactuals:
    """Texts, and what they would be under another value of the concept.

    Attributes
    ----------
    sources, texts : list of n str
        The given texts and their counterfactuals.
    concept, to : ndarray of shape (n,)
        The class of each source, as given or as routed (None where the method does not need it), and its target class.
    start_scores, scores : ndarray of shape (n,)
        The cosine of the wanted embedding with that of the source, and with that of the counterfactual.
    embeddings : ndarray of shape (n, D)
        The wanted embeddings.
    """

    sources: list[str]
    texts: list[str]
    concept: Array
    to: Array
    start_scores: NDArray[np.float32]
    scores: NDArray[np.float32]
    embeddings: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.texts)


class TextCounterfactual:
    """Counterfactual texts: encode, move the embedding to another class, decode.

    Parameters
    ----------
    encoder : Encoder, str, path or function, default="minilm"
        From `load_encoder`, or an argument of it.
    method : estimator or str, optional
        Moves the embeddings: any estimator of this package with ``counterfactual``, or its name (see `mute methods`).
        By default, and for "mute", ``MUtE(LAYERS)``: four layers, as in the paper's text study. Early stopping is
        made for erasure and takes minutes; more layers also move content other than the concept.
    decoder : {"edits", "retrieval"} or Decoder, default="edits"
        Finds the texts: small edits of the source, the nearest text of the corpus, or an object of your own. `fit`
        calls its method ``fit(texts, embeddings)`` if there is one.
    random_state : int, default=0
        For the default method, and for a method given by its name.

    Attributes
    ----------
    encoder_, method_, decoder_
        As fitted.
    classes_ : ndarray of shape (K,)
    n_texts_ : int
        Number of training texts.

    Notes
    -----
    *Limits.* The encoder decides which words matter: words that do not move the embedding are not changed. A text that
    the router assigns to the wrong class is moved the wrong way, so give ``concept`` if you know it.

    Examples
    --------
    >>> from mute.steering import MeanDifference
    >>> from mute.text import load_encoder
    >>> vowels = load_encoder(lambda texts: [[text.count(v) for v in "aeo"] for text in texts], name="vowels")
    >>> texts = ["papa", "a pal", "dad", "a baobab", "pepe", "eel", "deed", "e-mode"]
    >>> model = TextCounterfactual(vowels, MeanDifference(router=None), "retrieval").fit(texts, [*"aaaaeeee"])
    >>> model.counterfactual(["a baobab"], "e", concept="a").texts
    ['e-mode']
    """

    encoder_: Encoder
    method_: Method
    decoder_: Decoder
    classes_: Array
    n_texts_: int

    def __init__(
        self,
        encoder: EncoderLike = "minilm",
        method: Method = None,
        decoder: str | Decoder = "edits",
        random_state: int = 0,
    ) -> None:
        self.encoder = encoder
        self.method = method
        self.decoder = decoder
        self.random_state = random_state

    def __repr__(self) -> str:
        encoder = self.encoder.name if isinstance(self.encoder, Encoder) else self.encoder
        return f"TextCounterfactual(encoder={encoder!r}, method={self.method!r}, decoder={self.decoder!r})"

    def fit(
        self,
        texts: Sequence[str],
        concept: LabelsLike,
        progress: Stages | None = None,
        *,
        cache: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Encode a corpus, learn to move its embeddings from class to class, and make the decoder ready.

        Parameters
        ----------
        texts : sequence of n str
        concept : array-like of shape (n,)
            The class of each text, any hashable kind.
        progress : function (stage, share done), optional
            The stages are "encoding", "fitting" and "decoder".
        cache : path, optional
            A folder for the embeddings, as in `mute.text.encode`: an interrupted fit encodes nothing twice.
        """
        given = check_texts(texts)
        if not given:
            raise MuteError("no texts were given: a fit needs some of each class")
        if hasattr(concept, "__len__") and len(concept) != len(given):
            raise MuteError(f"{len(given)} texts but {len(concept)} labels of the concept: give one for each text")
        method, decoder = _method(self.method, self.random_state), self.decoder
        if isinstance(decoder, str):
            decoder_class(decoder)
        elif not isinstance(decoder, Decoder):
            raise MuteError(f"decoder must be edits, retrieval or an object with decode, not {decoder!r:.80}")
        tell = progress or (lambda stage, share: None)
        encoder = as_encoder(self.encoder)
        rows = encode(given, encoder, cache=cache, progress=counted(tell, "encoding"))
        tell("fitting", 0.0)
        method.set_callbacks(lambda name, done, total: tell("fitting", done / max(total, 1)))
        try:
            method.fit(rows, concept)
        finally:
            method.set_callbacks()
        tell("fitting", 1.0)
        tell("decoder", 0.0)
        if isinstance(decoder, str):
            cls = decoder_class(decoder)
            decoder = cls(encoder, given, rows) if decoder == "retrieval" else cls(encoder).fit(given, rows)
        elif hasattr(decoder, "fit"):
            decoder = decoder.fit(given, rows)
        tell("decoder", 1.0)
        return self._take(encoder, method, decoder, len(given))

    def _take(self, encoder: Encoder, method: Method, decoder: Decoder, n_texts: int) -> Self:
        self.encoder_, self.method_, self.decoder_ = encoder, method, decoder
        self.classes_, self.n_texts_ = method.classes_, n_texts
        return self

    def counterfactual(
        self, texts: Sequence[str], to: Label, concept: LabelsLike = None, progress: Stages | None = None
    ) -> Counterfactuals:
        """What the texts would be under another value of the concept.

        Parameters
        ----------
        texts : sequence of n str
        to : label or array-like of shape (n,)
            One class for all texts, or one for each. Texts of this class already stay as they are.
        concept : label or array-like of shape (n,), optional
            The true class of the texts. Without it the router of the method chooses, if there is one.
        progress : function (stage, share done), optional
            The stages are "encoding" and "decoding".
        """
        self._check_fitted()
        given, tell = check_texts(texts), progress or (lambda stage, share: None)
        goal = self._codes(to, len(given), "to")
        known = None if concept is None else self._codes(concept, len(given), "concept")
        if known is None and self.needs_concept:
            raise MuteError(
                "this model has no router for the class of a text: give it (concept=, or --from or --concept on the "
                'command line), or fit a method with router="mlp"'
            )
        rows = self.encoder_(given, progress=counted(tell, "encoding"))
        if known is None and hasattr(self.method_, "route") and given:
            known = self._codes(self.method_.route(rows), len(given), "concept")
        moved = np.flatnonzero(known != goal) if known is not None else np.arange(len(given))
        wanted, found = np.array(rows, np.float32), list(given)
        scores, start = np.ones(len(given), np.float32), np.ones(len(given), np.float32)
        if len(moved):
            labels = None if known is None else self.classes_[known[moved]]
            wanted[moved] = self.method_.counterfactual(rows[moved], self.classes_[goal[moved]], concept=labels)
            start[moved] = cosines(rows[moved], wanted[moved])
            decoded = self._decode(wanted[moved], [given[row] for row in moved], counted(tell, "decoding"))
            scores[moved] = decoded.scores
            for row, text in zip(moved, decoded.texts, strict=True):
                found[row] = text
        classes = np.full(len(given), None) if known is None else self.classes_[known]
        return Counterfactuals(given, found, classes, self.classes_[goal], start, scores, wanted)

    def with_decoder(self, decoder: Decoder) -> TextCounterfactual:
        """The same encoder and method with another decoder, such as a trained inverter."""
        self._check_fitted()
        if not isinstance(decoder, Decoder):
            raise MuteError(f"a decoder has a method decode(embeddings, sources), which {decoder!r:.80} has not")
        other = copy(self)
        other.decoder = other.decoder_ = decoder
        return other

    @property
    def needs_concept(self) -> bool:
        """Whether `counterfactual` requires the class of each text."""
        self._check_fitted()
        return bool(self.method_.needs_concept)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the fitted model to a folder, whole or not at all; a model that was there is replaced.

        The folder holds ``model.json``, ``map.safetensors`` and, for the decoders of this package that have something
        to keep, ``decoder.safetensors``; no code and no pickle. Of the encoder it holds name and fingerprint only.
        """
        self._check_fitted()
        write_model(folder, self.encoder_, self.method_, self.decoder_, self.n_texts_)

    @classmethod
    def load(
        cls, folder: str | os.PathLike[str], encoder: EncoderLike | None = None, decoder: Decoder | None = None
    ) -> TextCounterfactual:
        """Read a model that `save` wrote.

        Parameters
        ----------
        folder : path
        encoder : Encoder, str, path or function, optional
            Where the encoder is now. Needed if it was a function; must be the encoder of the fit.
        decoder : Decoder, optional
            In place of the stored one; needed if that was an object of your own.
        """
        found = read_model(folder, encoder, decoder)
        return cls(*found[:3])._take(*found)

    def _check_fitted(self) -> None:
        if not hasattr(self, "method_"):
            raise MuteError("this model is not fitted yet: call fit(texts, concept) first, or load one")

    def _codes(self, given: LabelsLike, n: int, name: str) -> NDArray[np.int64]:
        """Codes of one label for all texts, or of one for each."""
        encoder = LabelEncoder(self.classes_.tolist())
        if encoder.holds(given) or isinstance(given, str) or not hasattr(given, "__len__"):
            return np.full(n, encoder.encode_one(given, name))
        labels = label_array(given, name)
        check_length(labels, n, name)
        return encoder.encode(labels, name)

    def _decode(self, wanted: NDArray[np.float32], sources: list[str], progress: TextsDone) -> Decoded:
        # The protocol does not ask for progress; decoders that take their time have it.
        more = {"progress": progress} if "progress" in signature(self.decoder_.decode).parameters else {}
        decoded = self.decoder_.decode(wanted, sources, **more)
        if len(decoded.texts) != len(sources) or len(decoded.scores) != len(sources):
            raise MuteError(f"the decoder gave {len(decoded.texts)} texts for {len(sources)} embeddings")
        return decoded


def _method(method: Method, random_state: int) -> Method:
    """The method of the user's choice, not fitted."""
    from sklearn.base import clone

    from mute.eraser import MUtE
    from mute.estimators.registry import make

    if method is None or (isinstance(method, str) and method == "mute"):
        return MUtE(LAYERS, random_state=random_state)
    chosen = make(method, random_state=random_state) if isinstance(method, str) else method
    if not hasattr(chosen, "counterfactual"):
        what = method if isinstance(method, str) else type(method).__name__
        raise MuteError(f"the method {what} makes no counterfactuals; take mute, mean-difference, linear-ot, ...")
    return chosen if isinstance(method, str) else clone(chosen)
