"""How well an inverter decodes texts that it has not learned from."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mute.text.decoders.decoder import cosines
from mute.text.decoders.inverter import Inverter
from mute.text.decoders.inverter_corpus import Corpus
from mute.text.decoders.inverter_pairs import WordEdits
from mute.text.evaluation.metrics import bleu

__all__ = ["judge"]


def judge(
    inverter: Inverter, corpus: Corpus, edits: WordEdits, random_state: int, report: Callable[[str, float], object]
) -> dict[str, float]:
    """The figures that `train_inverter` tells of, on the texts held out."""
    import torch
    from mute.text.decoders.inverter_network import Task

    rows, encoder = corpus.held_out, inverter.encoder
    texts, wanted = [corpus.texts[row] for row in rows], np.asarray(corpus.embeddings[rows], np.float32)
    report("judging", 0.0)
    hits, n_tokens = inverter._network.hits(Task(torch.tensor(wanted)), [corpus.ids[row] for row in rows])
    guesses = [row[0] for row in inverter.guess(wanted)]
    report("judging", 0.2)
    decoded = inverter.decode(wanted)
    report("judging", 0.6)
    rng = np.random.default_rng([random_state, 2**33])
    sources = [edits(text, rng) for text in texts]
    edited = inverter.decode(wanted, sources)
    report("judging", 1.0)
    return {
        "token_accuracy": hits / n_tokens,
        "guess_cosine": float(cosines(encoder(guesses), wanted).mean()),
        "guess_bleu": bleu(guesses, texts).score,
        "cosine": float(decoded.scores.mean()),
        "bleu": bleu(decoded.texts, texts).score,
        "source_cosine": float(cosines(encoder(sources), wanted).mean()),
        "source_bleu": bleu(sources, texts).score,
        "edited_cosine": float(edited.scores.mean()),
        "edited_bleu": bleu(edited.texts, texts).score,
        "n_held_out": len(rows),
        "n_texts": len(corpus.train),
        "n_too_long": corpus.left_out,
    }
