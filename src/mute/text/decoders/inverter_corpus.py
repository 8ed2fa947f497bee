"""The texts that an inverter learns from, with their embeddings and tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mute.errors import MuteError
from mute.storage.files import write_atomically
from mute.text.decoders.decoder import check_wanted, cosines
from mute.text.decoders.inverter import load_tokenizer, token_ids
from mute.text.encoders.encoder import Encoder
from mute.text.encoders.encoding import encode, forget

__all__ = ["Corpus", "prepare_corpus", "token_evidence"]

_FEWEST = 20
_HELD_OUT = 100


@dataclass(frozen=True)
class Corpus:
    """Unique texts that the network can write.

    Attributes
    ----------
    texts : list of n str
    ids : list of n lists of token ids
    embeddings : ndarray of shape (n, D)
    train, held_out : ndarray of int
        Rows to learn from, and rows to judge by.
    left_out : int
        Texts that were too long.
    tokenizer : tokenizers.Tokenizer
    cache : path
        Where embeddings are kept until the end.
    """

    texts: list[str]
    ids: list[list[int]]
    embeddings: NDArray[np.float32]
    train: NDArray[np.int64]
    held_out: NDArray[np.int64]
    left_out: int
    tokenizer: Any
    cache: Path

    def forget(self) -> None:
        """Remove the cache."""
        forget(self.cache)


def prepare_corpus(
    texts: list[str],
    encoder: Encoder,
    embeddings: ArrayLike | None,
    home: Path,
    vocabulary: int,
    max_tokens: int,
    random_state: int,
    report: Callable[[str, float], object],
) -> Corpus:
    """Tokenise and encode the texts, with what the folder `home` has of it, and choose those to hold out."""
    first: dict[str, int] = {}
    for row, text in enumerate(texts):
        if text:
            first.setdefault(text, row)
    tokenizer = _tokenizer(home / "tokenizer.json", list(first), vocabulary)
    ids = dict(zip(first, token_ids(tokenizer, list(first)), strict=True))
    rows = [row for text, row in first.items() if len(ids[text]) <= max_tokens]
    if len(rows) < _FEWEST:
        raise MuteError(
            f"{len(rows)} of {len(texts)} texts are unique, not empty and of at most {max_tokens} tokens; "
            f"training needs {_FEWEST}: give more texts, or raise max_tokens"
        )
    kept = [texts[row] for row in rows]
    cache = home / "embeddings"
    if embeddings is None:
        known = encode(
            kept, encoder, cache=cache, progress=lambda done, total: report("encoding", done / max(total, 1))
        )
    else:
        known = _given(embeddings, texts, encoder)[rows]
    order = np.random.default_rng([random_state, 2**32]).permutation(len(rows))
    n_held_out = min(_HELD_OUT, len(rows) // 10)
    return Corpus(
        kept,
        [ids[text] for text in kept],
        known,
        np.sort(order[n_held_out:]),
        np.sort(order[:n_held_out]),
        len(first) - len(rows),
        tokenizer,
        cache,
    )


def token_evidence(
    ids: list[list[int]], embeddings: NDArray[np.float64], vocabulary: int, ridge: float = 0.01
) -> NDArray[np.float64]:
    """The linear map from embeddings that best tells which tokens their texts have.

    Parameters
    ----------
    ids : list of n lists of token ids
    embeddings : ndarray of shape (n, D)
        With mean 0.
    vocabulary : int
        Tokens V.
    ridge : float, default=0.01
        Of the regression, in mean squares of the columns.

    Returns
    -------
    ndarray of shape (V, D)
        What tells a token is counted in standard deviations of its presence, so that one that is rare counts more.

    Examples
    --------
    >>> embeddings = np.array([[1.0, 0.0], [-1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    >>> token_evidence([[1], [2], [1], [2, 2]], embeddings, 3).round(1)
    array([[ 0.,  0.],
           [ 1.,  0.],
           [-1.,  0.]])
    """
    from scipy.sparse import csr_array

    unique = [sorted(set(text)) for text in ids]
    ends = np.cumsum([0, *map(len, unique)])
    columns = np.array([token for text in unique for token in text], np.int64)
    present = csr_array((np.ones(len(columns)), columns, ends), shape=(len(ids), vocabulary))
    share = present.sum(axis=0) / len(ids)
    squares = embeddings.T @ embeddings
    squares += ridge * (np.trace(squares) / len(squares) + 1e-12) * np.eye(len(squares))
    told = np.linalg.solve(squares, (present.T @ embeddings).T).T
    return np.asarray(told / np.sqrt(np.maximum(share * (1.0 - share), 1.0 / len(ids)))[:, None])


def _given(embeddings: ArrayLike, texts: list[str], encoder: Encoder) -> NDArray[np.float32]:
    """The embeddings, checked; a few are made again to see that they are of these texts and this encoder."""
    known, _ = check_wanted(embeddings, None, encoder)
    if len(known) != len(texts):
        raise MuteError(f"{len(texts)} texts but {len(known)} embeddings: give one for each")
    some = sorted({0, len(texts) // 3, 2 * len(texts) // 3, len(texts) - 1})
    again = encoder([texts[row] for row in some])
    if again.shape[1] != known.shape[1] or (cosines(again, known[some]) < 0.999).any():
        raise MuteError(f"these embeddings are not what {encoder.name} makes of these texts: leave them out")
    return known


def _tokenizer(path: Path, texts: list[str], vocabulary: int) -> Any:
    """Byte-level pairs: they can write any text, and give it back as it was."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    if path.exists():
        try:
            return load_tokenizer(path.read_bytes())
        except Exception as error:
            # The package raises bare Exceptions.
            raise MuteError(f"{path} is damaged ({error}): remove {path.parent} and train again") from error
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - 1,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    with write_atomically(path) as file:
        file.write(tokenizer.to_str(pretty=False).encode())
    return tokenizer
