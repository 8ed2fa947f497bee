"""BERTScore with any encoder: how similar the tokens of two texts are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mute.text.encoders.encoder import Encoder
from mute.text.evaluation.words import check_pairs, check_some

__all__ = ["BertScore", "bertscore"]

# Pairs whose token vectors are in memory at a time.
_BLOCK = 512

# Pairs for the baseline: on biographies in MiniLM's space its standard error is then 0.005.
_BASELINE = 256

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class BertScore:
    """BERTScore of a set of texts.

    Attributes
    ----------
    precision, recall, f1 : float
        Means over texts: how near the best match is for each token of the text, of the reference, and their harmonic
        mean.
    f1_rescaled : float
        (f1 - b) / (1 - b), where b is the mean F1 of pairs of texts that do not belong together: 0 for a text that
        has nothing to do with its reference. NaN if there are no two different texts to pair.
    encoder : str
        The encoder of the tokens: scores of two encoders cannot be compared.
    """

    precision: float
    recall: float
    f1: float
    f1_rescaled: float
    encoder: str


def bertscore(
    hyps: Sequence[str], refs: Sequence[str], encoder: Encoder, *, rescale_with: Sequence[str] | None = None
) -> BertScore:
    """Match each token to the most similar one of the other text, by the cosine of their vectors.

    Parameters
    ----------
    hyps : sequence of n str
        The texts to judge. One without tokens scores 0.
    refs : sequence of n str
        What they should be; none may be empty.
    encoder : Encoder
        From `load_encoder`; a function shows no tokens and is refused.
    rescale_with : sequence of str, optional
        The texts that are paired at random for the baseline. By default the references.

    Notes
    -----
    The vectors are those of the last layer, at length 1, without the tokens that mark the start and end of a text; all
    tokens weigh the same. The paper used layer 17 of a large RoBERTa: its figures cannot be compared with these.

    *Limits.* Tokens beyond the longest text that the encoder takes are not seen.
    """
    given, wanted = check_pairs(hyps, refs)
    precision, recall, f1 = _scores(given, wanted, encoder).mean(axis=0)
    others = wanted if rescale_with is None else check_some(rescale_with, "texts to rescale with")
    first, second = _mismatched(others)
    base = _scores(first, second, encoder)[:, 2].mean() if first else np.nan
    # Texts that are all alike to the encoder leave no room above the baseline.
    rescaled = (f1 - base) / (1.0 - base) if base < 1.0 else np.nan
    return BertScore(float(precision), float(recall), float(f1), float(rescaled), encoder.name)


def _scores(hyps: Sequence[str], refs: Sequence[str], encoder: Encoder) -> Floats:
    """Precision, recall and F1 of each pair, shape (n, 3)."""
    out = np.zeros((len(hyps), 3))
    for start in range(0, len(hyps), _BLOCK):
        part = slice(start, start + _BLOCK)
        # A text that equals its reference, or another text, is encoded once.
        texts = list(dict.fromkeys([*hyps[part], *refs[part]]))
        vectors = dict(zip(texts, map(_unit, encoder.tokens(texts)), strict=True))
        for row, (hyp, ref) in enumerate(zip(hyps[part], refs[part], strict=True), start):
            out[row] = _matched(vectors[hyp], vectors[ref])
    return out


def _matched(hyp: Floats, ref: Floats) -> tuple[float, float, float]:
    if not len(hyp) or not len(ref):
        return 0.0, 0.0, 0.0
    cosines = hyp @ ref.T
    precision, recall = float(cosines.max(axis=1).mean()), float(cosines.max(axis=0).mean())
    total = precision + recall
    return precision, recall, 2.0 * precision * recall / total if total > 0 else 0.0


def _unit(rows: NDArray[np.float32]) -> Floats:
    wide = rows.astype(np.float64)
    return wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-12)


def _mismatched(texts: Sequence[str]) -> tuple[list[str], list[str]]:
    """Pairs of different texts: each with the next one in a shuffled round."""
    different = sorted(set(texts))
    if len(different) < 2:
        return [], []
    order = np.random.default_rng(0).permutation(len(different))[:_BASELINE]
    shuffled = [different[at] for at in order]
    return shuffled, [*shuffled[1:], shuffled[0]]
