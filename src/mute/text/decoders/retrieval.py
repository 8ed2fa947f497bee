"""Retrieval: the text of a corpus nearest to an embedding, the baseline of all decoders."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mute.errors import MuteError
from mute.text.decoders.decoder import Decoded, check_wanted
from mute.text.encoders.encoder import Encoder, TextsDone, check_texts, unit
from mute.typing import Array, Json

__all__ = ["Retrieval"]

# Rows of the corpus and of the embeddings that are compared at a time: 32 MB of cosines.
_BLOCK, _QUERIES = 8192, 1024


class Retrieval:
    """The nearest text of a corpus, by cosine.

    Parameters
    ----------
    encoder : Encoder
        The encoder that made the embeddings.
    texts : sequence of n str
        The corpus.
    embeddings : array-like of shape (n, D), optional
        The embeddings of the corpus, if they are known.

    Attributes
    ----------
    texts : list of n str
    directions : ndarray of shape (n, D), float16
        The embeddings at length 1, which is all that a cosine needs.

    Notes
    -----
    *Limits.* The result is a real text about something else: its concept and topic are near, its details are its own.
    Half precision moves cosines by about 1e-4, so any of several texts nearer to each other than that may be found. A
    million texts of 384 columns take 0.8 GB.

    Examples
    --------
    >>> from mute.text import load_encoder
    >>> letters = load_encoder(lambda texts: [[text.count("a"), text.count("b")] for text in texts], name="letters")
    >>> corpus = Retrieval(letters, ["aaa", "ab", "b"])
    >>> corpus.decode([[5.0, 4.0]]).texts
    ['ab']
    >>> corpus.decode([[5.0, 4.0]], sources=["ab"]).texts
    ['aaa']
    """

    def __init__(self, encoder: Encoder, texts: Sequence[str], embeddings: ArrayLike | None = None) -> None:
        self.encoder = encoder
        self.texts = check_texts(texts)
        if not self.texts:
            raise MuteError("the corpus has no texts: give at least one to find")
        found = encoder(self.texts) if embeddings is None else check_wanted(embeddings, None, encoder)[0]
        if len(found) != len(self.texts):
            raise MuteError(f"{len(self.texts)} texts but {len(found)} embeddings: give one for each text")
        self.directions: NDArray[np.float16] = np.empty(found.shape, np.float16)
        for part in _parts(len(found), _BLOCK):
            self.directions[part] = unit(found[part])

    def decode(
        self, embeddings: ArrayLike, sources: Sequence[str] | None = None, progress: TextsDone | None = None
    ) -> Decoded:
        """Find the nearest text for each embedding (n, D), never its source.

        `progress` gets the texts of the corpus that are done and all of them, after each block.
        """
        wanted, given = check_wanted(embeddings, sources, self.encoder)
        if wanted.shape[1] != self.directions.shape[1]:
            width = self.directions.shape[1]
            raise MuteError(
                f"these embeddings have {wanted.shape[1]} columns, those of the corpus {width}: give others"
            )
        wanted = unit(wanted)
        queries, barred = self._barred(given)
        best = np.full(len(wanted), -np.inf, np.float32)
        which = np.zeros(len(wanted), np.int64)
        for part in _parts(len(self.texts), _BLOCK):
            # Rounded to half precision they are not quite of length 1 any more.
            block = unit(self.directions[part])
            for some in _parts(len(wanted), _QUERIES):
                near = wanted[some] @ block.T
                here = (queries >= some.start) & (queries < some.stop) & (barred >= part.start) & (barred < part.stop)
                near[queries[here] - some.start, barred[here] - part.start] = -np.inf
                row = near.argmax(axis=1)
                value = near[np.arange(len(near)), row]
                better = value > best[some]
                best[some] = np.where(better, value, best[some])
                which[some] = np.where(better, part.start + row, which[some])
            if progress is not None:
                progress(part.stop, len(self.texts))
        if not np.isfinite(best).all():
            raise MuteError(f"all {len(self.texts)} texts of the corpus equal a source: give a corpus with other texts")
        return Decoded([self.texts[row] for row in which], np.clip(best, -1.0, 1.0))

    def _barred(self, sources: list[str] | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Pairs of an embedding and a row of the corpus that equals its source, as two arrays."""
        places: dict[str, list[int]] = defaultdict(list)
        for query, source in enumerate(sources or []):
            places[source].append(query)
        pairs = [(query, row) for row, text in enumerate(self.texts) for query in places.get(text, ())]
        array = np.array(pairs, np.int64).reshape(-1, 2)
        return array[:, 0], array[:, 1]

    def state(self) -> tuple[dict[str, Array], Json]:
        """What a file keeps: the texts as UTF-8 with where each begins, and the directions."""
        raw = [text.encode() for text in self.texts]
        offsets = np.cumsum([0, *map(len, raw)], dtype=np.int64)
        letters = np.frombuffer(b"".join(raw), np.uint8)
        return {"letters": letters, "offsets": offsets, "directions": self.directions}, {}

    @classmethod
    def from_state(cls, encoder: Encoder, arrays: dict[str, Array], meta: Json) -> Self:
        """What `state` gave, checked."""
        letters, offsets, directions = found = [arrays[name] for name in ("letters", "offsets", "directions")]
        kinds = [(np.dtype(np.uint8), 1), (np.dtype(np.int64), 1), (np.dtype(np.float16), 2)]
        if [(array.dtype, array.ndim) for array in found] != kinds:
            raise MuteError("its arrays are of other kinds than a corpus has")
        fits = len(offsets) == len(directions) + 1 > 1 and offsets[0] == 0 and offsets[-1] == len(letters)
        if not fits or (np.diff(offsets) < 0).any() or not np.isfinite(directions).all():
            raise MuteError("its texts and its embeddings do not fit together")
        raw, out = letters.tobytes(), cls.__new__(cls)
        out.encoder, out.directions = encoder, directions
        out.texts = [raw[start:stop].decode() for start, stop in pairwise(offsets.tolist())]
        return out


def _parts(n: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]
