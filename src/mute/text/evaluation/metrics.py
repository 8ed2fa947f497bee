"""Scores of counterfactual texts: against references, by their concept words, and by what else was changed."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError, missing_extra
from mute.text.evaluation.token_matching import BertScore, bertscore
from mute.text.evaluation.words import GENDER, check_pairs, check_some, title_words
from mute.typing import Label, LabelsLike

__all__ = [
    "BertScore", "Bleu", "RougeScore", "SubstitutionRate", "bertscore", "bleu", "edit_distance", "rouge",
    "substitution_rate",
]  # fmt: skip

# The `rouge` package follows a common subsequence by recursion, a level for each word of both sentences; Python allows
# 1,000 levels, and the caller has used some of them.
_DEEPEST = 500


@dataclass(frozen=True)
class Bleu:
    """BLEU of a set of texts; ``float(...)`` gives the score.

    Attributes
    ----------
    score : float
        From 0 to 100.
    precisions : tuple of 4 floats
        Share of the 1-, 2-, 3- and 4-grams of the texts that their references have, in percent.
    brevity_penalty : float
        Below 1 where the texts are shorter than their references.
    hyp_length, ref_length : int
        Tokens of all texts, and of all references.
    """

    score: float
    precisions: tuple[float, ...]
    brevity_penalty: float
    hyp_length: int
    ref_length: int

    def __float__(self) -> float:
        return self.score


@dataclass(frozen=True)
class RougeScore:
    """Mean recall, precision and their harmonic mean, taken text by text; each from 0 to 1."""

    recall: float
    precision: float
    f: float


@dataclass(frozen=True)
class SubstitutionRate:
    """How many of the concept's words are of the wanted kind.

    Attributes
    ----------
    rate : float
        The paper's r_g: the mean over all texts, where a text without any word of the concept counts as 0.
    rate_with_markers : float
        The mean over the texts with such a word; NaN if there are none.
    n_with_markers : int
        The number of these texts.
    per_text : ndarray of shape (n,)
        The share in each text; NaN in texts without such a word.
    """

    rate: float
    rate_with_markers: float
    n_with_markers: int
    per_text: NDArray[np.float64]


def bleu(hyps: Sequence[str], refs: Sequence[str]) -> Bleu:
    """BLEU with sacrebleu's defaults: 13a tokens, case kept, up to 4-grams, exponential smoothing, one reference.

    Parameters
    ----------
    hyps : sequence of n str
        The texts to judge; empty ones are allowed.
    refs : sequence of n str
        What they should be; none may be empty.

    Examples
    --------
    >>> result = bleu(["she is a nurse ."], ["she is a good nurse ."])
    >>> round(float(result), 1), result.hyp_length, result.ref_length
    (40.9, 5, 6)
    """
    given, wanted = check_pairs(hyps, refs)
    try:
        from sacrebleu.metrics.bleu import BLEU
    except ImportError:
        raise missing_extra("sacrebleu", "text", "BLEU") from None
    # `force` only silences advice for texts that look tokenised, which the paper's references do.
    found = BLEU(force=True).corpus_score(given, [wanted])
    return Bleu(found.score, tuple(found.precisions), found.bp, found.sys_len, found.ref_len)


def rouge(hyps: Sequence[str], refs: Sequence[str]) -> dict[str, RougeScore]:
    """ROUGE-1, ROUGE-2 and ROUGE-L as the ``rouge`` package gives them, which is what the paper reports.

    Parameters
    ----------
    hyps : sequence of n str
        The texts to judge. One without words (empty, or only full stops) scores 0.
    refs : sequence of n str
        What they should be; none may be empty.

    Returns
    -------
    dict
        A `RougeScore` for each of ``"rouge-1"``, ``"rouge-2"`` and ``"rouge-l"``.

    Notes
    -----
    The package cuts texts at every full stop, keeps case and punctuation, and counts each n-gram of a text once; so its
    figures differ from those of other ROUGE programs.

    *Limits.* For ROUGE-L, time and memory grow with the product of the lengths of two sentences: two of 10,000 words
    take about 0.4 GB.

    Examples
    --------
    >>> rouge(["she is a nurse"], ["he is a nurse"])["rouge-1"]
    RougeScore(recall=0.75, precision=0.75, f=0.749...)
    """
    given, wanted = check_pairs(hyps, refs)
    try:
        from rouge import Rouge
    except ImportError:
        raise missing_extra("rouge", "text", "ROUGE") from None
    kinds = ("rouge-1", "rouge-2", "rouge-l")
    whole, counts = Rouge(list(kinds)), Rouge(list(kinds[:2]))
    none: dict[str, dict[str, float]] = {kind: {"r": 0.0, "p": 0.0, "f": 0.0} for kind in kinds}
    found = []
    for hyp, ref in zip(given, wanted, strict=True):
        pieces = _pieces(hyp), _pieces(ref)
        if not all(pieces):
            found.append(none)
        elif sum(max(map(len, sentences)) for sentences in pieces) <= _DEEPEST:
            found += whole.get_scores([hyp], [ref])
        else:
            found.append(counts.get_scores([hyp], [ref])[0] | {"rouge-l": _rouge_l(*pieces)})
    return {kind: RougeScore(*(float(np.mean([one[kind][part] for one in found])) for part in "rpf")) for kind in kinds}


def _pieces(text: str) -> list[list[str]]:
    """Sentences and words as the package sees them: a blank sentence is one empty word."""
    return [" ".join(piece.split()).split(" ") for piece in text.split(".") if piece]


def _rouge_l(hyp: list[list[str]], ref: list[list[str]]) -> dict[str, float]:
    """ROUGE-L as the package defines it, for sentences too long for its recursion."""
    shared = {word for wanted in ref for given in hyp for word in _common(wanted, given)}
    recall = len(shared) / len({word for sentence in ref for word in sentence})
    precision = len(shared) / len({word for sentence in hyp for word in sentence})
    return {"r": recall, "p": precision, "f": 2.0 * precision * recall / (precision + recall + 1e-8)}


def _common(a: list[str], b: list[str]) -> list[str]:
    """The words of one longest common subsequence; of several, the one that the package finds."""
    numbers = {word: at for at, word in enumerate(dict.fromkeys(a + b))}
    others = np.array([numbers[word] for word in b])
    table = np.zeros((len(a) + 1, len(b) + 1), np.int32)
    for row, word in enumerate(a):
        # A cell is the largest of the one above, the one before, and, where words agree, the one across plus 1.
        across = np.where(others == numbers[word], table[row, :-1] + 1, table[row, 1:])
        np.maximum.accumulate(across, out=table[row + 1, 1:])
    found, i, j = [], len(a), len(b)
    while i and j:
        if a[i - 1] == b[j - 1]:
            i, j = i - 1, j - 1
            found.append(a[i])
        elif table[i - 1, j] > table[i, j - 1]:
            i -= 1
        else:
            j -= 1
    return found


def substitution_rate(
    texts: Sequence[str], targets: LabelsLike, words: Mapping[Label, Iterable[str]] = GENDER
) -> SubstitutionRate:
    """The share of words of the wanted value among the words of the concept: the paper's r_g.

    Parameters
    ----------
    texts : sequence of n str
    targets : label or sequence of n labels
        The wanted value, for all texts or for each.
    words : mapping from label to words, optional
        Single words of each value of the concept, in any case; none may belong to two values. By default the pronouns
        and titles of the paper, under ``"male"`` and ``"female"``.

    Notes
    -----
    Words are counted whole, whomever they are about; "his/her" is neither. As in the paper, an initial "M." counts as
    male.

    Examples
    --------
    >>> substitution_rate(["Mr. Smith is here. He will stay.", "Ms. Lee is at home. He will come."], "male").rate
    0.75
    """
    given = check_some(texts)
    meaning = _meanings(words)
    wanted = _targets(targets, len(given), set(words))
    shares = np.full(len(given), np.nan)
    for row, (text, target) in enumerate(zip(given, wanted, strict=True)):
        found = [meaning[word] for word in map(str.lower, title_words(text)) if word in meaning]
        if found:
            shares[row] = found.count(target) / len(found)
    marked = shares[~np.isnan(shares)]
    with_markers = float(marked.mean()) if marked.size else float("nan")
    return SubstitutionRate(float(marked.sum()) / len(given), with_markers, int(marked.size), shares)


def _meanings(words: Mapping[Label, Iterable[str]]) -> dict[str, Label]:
    """The label of each word, in lower case."""
    if not isinstance(words, Mapping):
        raise MuteError(f"words must map each label to its words, not be of type {type(words).__name__}")
    out: dict[str, Label] = {}
    for label, some in words.items():
        for word in _word_set(some, f"the words of {label!r}"):
            if out.setdefault(word, label) != label:
                raise MuteError(f"the word {word!r} belongs to {out[word]!r} and to {label!r}: leave it out of one")
    return out


def _word_set(words: Iterable[str], what: str) -> set[str]:
    found = [words] if isinstance(words, str) else list(words)
    strange = [word for word in found if not isinstance(word, str) or not word.strip() or word.split() != [word]]
    if strange or isinstance(words, str):
        raise MuteError(f"{what} must be a list of single words; {(strange or found)[0]!r:.80} is none")
    return {word.lower() for word in found}


def _targets(targets: LabelsLike, n: int, labels: set[Label]) -> list[Label]:
    one = isinstance(targets, str) or not isinstance(targets, Iterable)
    wanted = [targets] * n if one else list(targets)
    if len(wanted) != n:
        raise MuteError(f"{n} texts but {len(wanted)} targets: give one for all texts or one for each")
    for target in wanted:
        if not isinstance(target, Hashable) or target not in labels:
            known = ", ".join(sorted(map(str, labels)))
            raise MuteError(f"the target {target!r:.80} has no words: there are words for {known}")
    return wanted


def edit_distance(
    texts: Sequence[str], sources: Sequence[str], words: Mapping[Label, Iterable[str]] | Iterable[str] | None = None
) -> NDArray[np.int64]:
    """How many words of each source were changed, without replacements of one concept word by another.

    Parameters
    ----------
    texts : sequence of n str
    sources : sequence of n str
        What the texts were made from.
    words : mapping from label to words, or words, optional
        The concept's words, as for `substitution_rate`. Replacing one of them by another, in any case, is free.

    Returns
    -------
    ndarray of shape (n,), int64
        The least number of words to put in, leave out or replace; case and punctuation count. A concept word that is
        put in, left out or replaces another kind of word counts like any other word.

    Examples
    --------
    >>> texts, sources = ["She left her old job."], ["He left his job."]
    >>> edit_distance(texts, sources), edit_distance(texts, sources, ["he", "his", "she", "her"])
    (array([3]), array([1]))
    """
    given, wanted = check_some(texts), check_some(sources, "sources")
    if len(given) != len(wanted):
        raise MuteError(f"{len(given)} texts but {len(wanted)} sources: give one source for each text")
    concept: set[str] = set()
    if words is not None:
        concept = set(_meanings(words)) if isinstance(words, Mapping) else _word_set(words, "words")
    pairs = zip(given, wanted, strict=True)
    return np.array([_distance(title_words(a), title_words(b), concept) for a, b in pairs], np.int64)


def _distance(a: list[str], b: list[str], free: set[str]) -> int:
    """Levenshtein's distance; words of `free` are all alike."""
    numbers: dict[str, int] = {}
    # No word is empty, so all free words can share that name.
    first, second = (
        np.array([numbers.setdefault("" if word.lower() in free else word, len(numbers)) for word in some], np.int64)
        for some in (a, b)
    )
    steps = np.arange(len(second) + 1)
    row = steps.copy()
    for at, word in enumerate(first):
        best = np.empty_like(row)
        best[0] = at + 1
        np.minimum(row[1:] + 1, row[:-1] + (second != word), out=best[1:])
        # Putting words in: the best earlier cell, and one for each step from there.
        row = np.minimum.accumulate(best - steps) + steps
    return int(row[-1])
