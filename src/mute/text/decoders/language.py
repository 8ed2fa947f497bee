"""What a corpus says of its language: its words, how they are written, which follow which, and which are alike."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.text.encoders.encoder import TextsDone

__all__ = ["Language", "Token", "begins", "tokenise"]

# A word, what follows an apostrophe ('s, 'll), or one mark. Corpora that were split before ("he 's") and running text
# ("he's") give the same tokens.
_TOKEN = re.compile(r"['’]?\w+|[^\w\s]")

# Taken off every count of a pair of words, for pairs that were never seen (absolute discounting).
_DISCOUNT = 0.75

# Columns of the vectors that say which words are alike, and least words for each column: with nearly as many columns as
# words, nothing is learnt from what words have in common.
_KIN_COLUMNS, _WORDS_A_COLUMN = 100, 8

# Counts of context words are raised to this power, or rare ones would decide which words are alike.
_CONTEXT_POWER = 0.75


@dataclass(frozen=True)
class Token:
    """A piece of a text: as it is written, and where it begins."""

    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @property
    def word(self) -> str:
        """The form under which it is known."""
        return self.text.lower().replace("’", "'")

    @property
    def is_word(self) -> bool:
        return self.text[-1].isalnum()


def tokenise(text: str) -> list[Token]:
    """Cut a text into words and marks.

    Examples
    --------
    >>> [token.word for token in tokenise("She'd lost her Master's degree.")]
    ['she', "'d", 'lost', 'her', 'master', "'s", 'degree', '.']
    """
    return [Token(found.group(), found.start()) for found in _TOKEN.finditer(text)]


def begins(tokens: Sequence[Token], at: int) -> bool:
    """Whether a token is the first of a sentence."""
    return at == 0 or tokens[at - 1].text in (".", "!", "?")


class Language:
    r"""Words of a corpus and a model of their order.

    The probability that ``v`` follows ``u`` is that of Kneser and Ney [1]_, with c(u, v) counts of pairs, N(u·) how
    many different words follow u, N(·v) how many v follows, and d = 0.75:

    .. math:: p(v \mid u) = \frac{\max(c(u, v) - d, 0)}{c(u)} + \frac{d N(u·)}{c(u)} \frac{N(·v)}{\sum_w N(·w)}

    Words are alike when the same words stand before and after them: their vectors are a truncated singular value
    decomposition of the positive pointwise mutual information with neighbours on either side [2]_.

    Parameters
    ----------
    words : sequence of V str
        The vocabulary, the most frequent first, in lower case.
    forms : sequence of V str
        How each is written inside a sentence ("London", "I", "she").
    pairs : ndarray of shape (P, 2), int32
        Pairs of neighbours; V stands for the edge of a text, V + 1 for all other words. In ascending order.
    counts : ndarray of shape (P,), int32

    References
    ----------
    .. [1] Kneser, Ney (1995). Improved backing-off for m-gram language modeling. ICASSP.
    .. [2] Levy, Goldberg (2014). Neural word embedding as implicit matrix factorization. NeurIPS.

    Examples
    --------
    >>> language = Language.learn(["He is here.", "She is here."] * 5)
    >>> he, she, after = language.ids(["he"]), language.ids(["she"]), language.ids(["is", "here"])
    >>> [round(float(p), 2) for p in np.exp(language.log_after(he, after))[0]]
    [0.89, 0.02]
    >>> round(float(language.kin[he[0]] @ language.kin[she[0]]), 2)
    1.0
    """

    def __init__(
        self, words: Sequence[str], forms: Sequence[str], pairs: NDArray[np.int32], counts: NDArray[np.int32]
    ) -> None:
        from scipy.sparse import csr_array

        self.words, self.forms, self.pairs, self.counts = list(words), list(forms), pairs, counts
        self._index = {word: at for at, word in enumerate(self.words)}
        size = len(self.words) + 2
        inside = pairs.ndim == 2 and pairs.shape[1] == 2 and (not pairs.size or 0 <= pairs.min() <= pairs.max() < size)
        if not len(self._index) == len(self.words) == len(self.forms) or len(pairs) != len(counts) or not inside:
            raise MuteError("the words and the pairs of words do not fit together: the file is damaged")
        seen = csr_array((counts.astype(np.float64), (pairs[:, 0], pairs[:, 1])), shape=(size, size))
        total = np.maximum(seen.sum(axis=1), 1.0)
        followers = np.diff(seen.indptr)
        preceded = np.maximum(np.bincount(pairs[:, 1], minlength=size), 0.5)  # what nothing preceded may still come
        self._anew = preceded / preceded.sum()
        self._unseen = np.where(followers > 0, _DISCOUNT * followers / total, 1.0)
        self._after = seen.copy()
        self._after.data = (seen.data - _DISCOUNT) / np.repeat(total, followers)
        self._before = self._after.tocsc()

    @classmethod
    def learn(
        cls, texts: Sequence[str], size: int = 10_000, least: int = 5, progress: TextsDone | None = None
    ) -> Language:
        """Count a corpus, with a vocabulary of at most `size` words of at least `least` occurrences each."""
        cut = [tokenise(text) for text in texts]
        often = Counter(token.word for tokens in cut for token in tokens)
        words = [word for word, count in often.most_common(size) if count >= least]
        index = {word: at for at, word in enumerate(words)}
        edge, other = len(words), len(words) + 1
        forms: list[Counter[str]] = [Counter() for _ in words]
        pairs: Counter[tuple[int, int]] = Counter()
        for done, tokens in enumerate(cut):
            ids = [index.get(token.word, other) for token in tokens]
            pairs.update(zip([edge, *ids], [*ids, edge], strict=True))
            for at, (word, token) in enumerate(zip(ids, tokens, strict=True)):
                # The first word of a sentence says nothing of how a word is written elsewhere.
                if word < edge and not begins(tokens, at):
                    forms[word][token.text] += 1
            if progress is not None and done % 1000 == 0:
                progress(done, len(cut))
        usual = [seen.most_common(1)[0][0] if seen else word for word, seen in zip(words, forms, strict=True)]
        ordered = sorted(pairs)
        counts = np.array([pairs[pair] for pair in ordered], np.int32)
        return cls(words, usual, np.array(ordered, np.int32).reshape(-1, 2), counts)

    def __len__(self) -> int:
        return len(self.words)

    @property
    def edge(self) -> int:
        """What stands before the first and after the last word."""
        return len(self.words)

    @cached_property
    def kin(self) -> NDArray[np.float32]:
        """A vector of length 1 for each word, of shape (V + 2, C): words that are used alike have a large product.

        Zero for the edge of a text and for words that are not known, which are like nothing.
        """
        from scipy.sparse import csr_array, hstack
        from sklearn.utils.extmath import randomized_svd

        size = len(self) + 2
        sides = []
        for word, beside in (self.pairs.T, self.pairs.T[::-1]):
            count = self.counts.astype(np.float64)
            often = np.bincount(word, count, minlength=size)
            context = np.bincount(beside, count, minlength=size) ** _CONTEXT_POWER
            information = np.log(count * context.sum() / (often[word] * context[beside]))
            positive = information > 0
            sides.append(csr_array((information[positive], (word[positive], beside[positive])), shape=(size, size)))
        columns = min(_KIN_COLUMNS, max(2, len(self) // _WORDS_A_COLUMN))
        vectors, values, _ = randomized_svd(hstack(sides).tocsr(), columns, random_state=0)
        vectors = vectors * np.sqrt(values)
        vectors[len(self) :] = 0.0
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return (vectors / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)

    def ids(self, words: Sequence[str]) -> NDArray[np.int64]:
        """The number of each word, V + 1 for those that are not known."""
        return np.array([self._index.get(word, len(self.words) + 1) for word in words], np.int64)

    def log_after(self, first: NDArray[np.int64], words: NDArray[np.int64]) -> NDArray[np.float64]:
        """log p(word | u) for each u of `first` (rows) and each word (columns)."""
        seen = self._after[first][:, words].toarray()
        return np.log(seen + self._unseen[first][:, None] * self._anew[words][None])

    def log_before(self, words: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.float64]:
        """log p(u | word) for each u of `last` (rows) and each word (columns)."""
        seen = self._before[:, last][words].toarray().T
        return np.log(seen + self._unseen[words][None] * self._anew[last][:, None])

    def log_pairs(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.float64]:
        """log p(v | u) for each pair (u, v)."""
        seen = np.asarray(self._after[first, second]).reshape(len(first))
        return np.log(seen + self._unseen[first] * self._anew[second])

    def written(self, word: int, instead_of: Token, first: bool) -> str:
        """A word, with capitals like those of the token whose place it takes; `first`: that begins a sentence."""
        form, old, usual = self.forms[word], instead_of.text, self.usual(instead_of)
        if len(old) > 1 and old.isupper() and old != usual:
            return form.upper()
        if old[:1].isupper() and (first or old != usual):
            return form[:1].upper() + form[1:]
        return form

    def usual(self, token: Token) -> str:
        """How the token is written inside a sentence."""
        at = self._index.get(token.word)
        return token.text if at is None else self.forms[at]
