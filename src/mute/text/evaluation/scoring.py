"""Counterfactual texts against references: a table of scores with its floor and its ceiling."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.text.counterfactual import Counterfactuals, TextCounterfactual
from mute.text.decoders.decoder import cosines
from mute.text.encoders.encoder import Encoder, Stages, check_texts
from mute.text.evaluation.metrics import bertscore, bleu, edit_distance, rouge, substitution_rate
from mute.text.evaluation.words import GENDER
from mute.typing import Json, Label, LabelsLike

__all__ = ["COLUMNS", "Evaluation", "evaluate_texts", "score_texts"]

_Words = Mapping[Label, Iterable[str]]

# The figures of a row and their heads in a table.
COLUMNS = {
    "bleu": "BLEU",
    "rouge_1": "ROUGE-1",
    "rouge_2": "ROUGE-2",
    "rouge_l": "ROUGE-L",
    "substitution": "r_g",
    "substitution_with_markers": "r_g marked",
    "bertscore": "BERTScore",
    "cosine": "cosine",
    "edits": "other edits",
}


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The figures, and their texts.

    Attributes
    ----------
    rows : list of dict
        One for each direction (and for all texts) and each of *model*, *identity* (the sources as they are) and
        *reference* (the references themselves, a ceiling): ``texts``, their number, and the keys of `COLUMNS`. A figure
        that does not exist is None.
    counterfactuals : Counterfactuals
    references : list of n str
    cosines : ndarray of shape (n,)
        Between the embedding of each text of the model and that of its reference.
    encoder : str
        The encoder of embeddings, cosines and BERTScore.
    """

    rows: list[Json]
    counterfactuals: Counterfactuals
    references: list[str]
    cosines: NDArray[np.float32]
    encoder: str

    def worst(self, n: int = 10) -> list[int]:
        """The rows of the n texts farthest from their references, the farthest first."""
        return [int(row) for row in np.argsort(self.cosines, kind="stable")[:n]]

    def to_dict(self) -> Json:
        """Everything but the embeddings, for JSON."""
        found = self.counterfactuals
        texts = [
            {
                "source": found.sources[i],
                "text": found.texts[i],
                "reference": self.references[i],
                "concept": found.concept.tolist()[i],
                "to": found.to.tolist()[i],
                "start_score": round(float(found.start_scores[i]), 5),
                "score": round(float(found.scores[i]), 5),
                "cosine_to_reference": round(float(self.cosines[i]), 5),
            }
            for i in range(len(found))
        ]
        return {"encoder": self.encoder, "figures": self.rows, "worst": self.worst(), "texts": texts}


def evaluate_texts(
    model: TextCounterfactual,
    sources: Sequence[str],
    references: Sequence[str],
    to: Label,
    *,
    concept: LabelsLike = None,
    words: _Words | None = None,
    progress: Stages | None = None,
) -> Evaluation:
    """Make the counterfactuals of texts and compare them with references.

    Parameters
    ----------
    model : TextCounterfactual
        Fitted.
    sources, references : sequence of n str
        Texts, and what each should become.
    to : label or array-like of shape (n,)
        One class for all texts, or one for each.
    concept : label or array-like of shape (n,), optional
        The class they are of; routed if not given.
    words : mapping of label to words, optional
        Words of each class, for the substitution rate. By default the paper's lists if the classes are "male" and
        "female"; otherwise these figures are left out.
    progress : function (stage, share done), optional

    Notes
    -----
    BLEU and ROUGE (as F) compare with the references. r_g is the share of words of the target class among the words of
    all classes. *Other edits* are changed, added or left-out words of no class, a mean over texts.
    """
    given, wanted = check_texts(sources), check_texts(references)
    if len(given) != len(wanted):
        raise MuteError(f"{len(given)} sources but {len(wanted)} references: give one for each text")
    if not given:
        raise MuteError("there are no texts to judge: give at least one")
    found = model.counterfactual(given, to, concept, progress)
    tell = progress or (lambda stage, share: None)
    rows, near = [], []
    sides = {"model": found.texts, "identity": given, "reference": wanted}
    for done, (name, texts) in enumerate(sides.items()):
        tell("scores", done / len(sides))
        scores, cosine = score_texts(texts, given, wanted, found.to, model.encoder_, concept=found.concept, words=words)
        rows += [{"direction": way, "row": name, **score} for way, score in scores.items()]
        near.append(cosine)
    directions = list(dict.fromkeys(row["direction"] for row in rows))
    rows.sort(key=lambda row: directions.index(row["direction"]))
    return Evaluation(rows, found, wanted, near[0], model.encoder_.name)


def score_texts(
    texts: Sequence[str],
    sources: Sequence[str],
    references: Sequence[str],
    to: Label,
    encoder: Encoder,
    *,
    concept: LabelsLike = None,
    words: _Words | None = None,
) -> tuple[dict[str, Json], NDArray[np.float32]]:
    """Compare texts, however they were made, with references.

    Parameters
    ----------
    texts, sources, references : sequence of n str
    to : array-like of shape (n,)
        The class that each should be of.
    encoder : Encoder
        For BERTScore and cosines.
    concept : array-like of shape (n,), optional
        The class of each source; None where it is not known.
    words : mapping of label to words, optional
        As in `evaluate_texts`.

    Returns
    -------
    scores : dict
        Of "all", and of each direction if there are several, to a dict: ``texts``, their number, and `COLUMNS`.
    cosines : ndarray of shape (n,)
        Between the embeddings of texts and references.
    """
    targets = np.asarray(to).tolist()
    classes = [None] * len(targets) if concept is None else np.asarray(concept).tolist()
    lists = _word_lists(words, targets)
    near = cosines(encoder(texts), encoder(references))
    ways = [f"to {b}" if a is None else f"{a} → {b}" for a, b in zip(classes, targets, strict=True)]
    parts = {way: [i for i, one in enumerate(ways) if one == way] for way in sorted(set(ways))}
    bert = {way: _bertscore(_some(texts, part), _some(references, part), encoder) for way, part in parts.items()}
    bert["all"] = _mean(list(bert.values()), [len(part) for part in parts.values()])
    groups = {"all": list(range(len(targets))), **(parts if len(parts) > 1 else {})}
    scores = {
        way: {
            **_figures(_some(texts, part), _some(sources, part), _some(references, part), _some(targets, part), lists),
            "bertscore": bert[way],
            "cosine": float(near[part].mean()),
        }
        for way, part in groups.items()
    }
    return scores, near


def _some(values: Sequence[Label], rows: Sequence[int]) -> list[Label]:
    return [values[row] for row in rows]


def _word_lists(words: _Words | None, labels: list[Label]) -> _Words | None:
    if words is None:
        return GENDER if set(labels) <= set(GENDER) else None
    missing = [label for label in dict.fromkeys(labels) if label not in words]
    if missing:
        raise MuteError(f"there are no words for the label {missing[0]!r}; there are for: {', '.join(map(str, words))}")
    return words


def _figures(
    texts: list[str], sources: list[str], references: list[str], to: list[Label], words: _Words | None
) -> Json:
    """The figures that need no encoder."""
    overlap = rouge(texts, references)
    rate = None if words is None else substitution_rate(texts, to, words)
    rates = (np.nan, np.nan) if rate is None else (rate.rate, rate.rate_with_markers)
    own, marked = (float(value) if np.isfinite(value) else None for value in rates)  # JSON has no NaN
    return {
        "texts": len(texts),
        "bleu": float(bleu(texts, references).score),
        **{key.replace("-", "_"): float(score.f) for key, score in overlap.items()},
        "substitution": own,
        "substitution_with_markers": marked,
        "edits": float(np.mean(edit_distance(texts, sources, words))),
    }


def _bertscore(texts: Sequence[str], references: Sequence[str], encoder: Encoder) -> float | None:
    try:
        return float(bertscore(texts, references, encoder).f1)
    except MuteError:  # a function has no vectors of tokens
        return None


def _mean(values: Sequence[float | None], weights: Sequence[int]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.average(known, weights=weights)) if len(known) == len(values) else None
