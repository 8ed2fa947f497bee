"""The protocol of all decoders, which turn embeddings back into texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mute.errors import MuteError
from mute.text.encoders.encoder import Encoder, check_texts

__all__ = ["Decoded", "Decoder", "check_wanted", "cosines"]


@dataclass(frozen=True)
class Decoded:
    """Decoded texts, and the cosine between the embedding of each and the wanted one."""

    texts: list[str]
    scores: NDArray[np.float32]


@runtime_checkable
class Decoder(Protocol):
    """Anything with this method decodes; no base class is needed."""

    def decode(self, embeddings: ArrayLike, sources: Sequence[str] | None = None) -> Decoded:
        """Find a text for each embedding.

        Parameters
        ----------
        embeddings : array-like of shape (n, D)
        sources : sequence of n str, optional
            The texts that the embeddings were moved from, for decoders that start from them.
        """
        ...


def check_wanted(
    embeddings: ArrayLike, sources: Sequence[str] | None, encoder: Encoder
) -> tuple[NDArray[np.float32], list[str] | None]:
    """The embeddings as a finite matrix as wide as the encoder's, and as many sources, if any."""
    try:
        wanted = np.asarray(embeddings, np.float32)
    except (TypeError, ValueError) as error:
        raise MuteError(f"embeddings must be a matrix of numbers: {error}") from None
    if wanted.ndim != 2:
        raise MuteError(f"embeddings must be a matrix of shape (n, D), not of shape {wanted.shape}")
    if encoder.dimension is not None and wanted.shape[1] != encoder.dimension:
        raise MuteError(
            f"these embeddings have {wanted.shape[1]} columns, those of {encoder.name} have {encoder.dimension}: "
            "decode with the encoder that made them"
        )
    if not np.isfinite(wanted).all():
        row = int(np.flatnonzero(~np.isfinite(wanted).all(axis=1))[0])
        raise MuteError(f"row {row} (counting from 0) of the embeddings holds numbers that are not finite")
    if sources is None:
        return wanted, None
    given = check_texts(sources)
    if len(given) != len(wanted):
        raise MuteError(f"{len(wanted)} embeddings but {len(given)} sources: give one text for each")
    return wanted, given


def cosines(a: NDArray[np.floating], b: NDArray[np.floating]) -> NDArray[np.float32]:
    """The cosine between each row of a and the same row of b; 0 where one of them is 0."""
    product = np.einsum("nd,nd->n", a, b, dtype=np.float64)
    lengths = np.linalg.norm(a.astype(np.float64), axis=1) * np.linalg.norm(b.astype(np.float64), axis=1)
    return (product / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
