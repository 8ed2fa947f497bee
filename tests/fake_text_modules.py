"""Small stand-ins for parts of `mute.text` that are slow or need trained weights."""

import numpy as np

from mute.text.decoders.decoder import Decoded, cosines
from mute.text.encoders.encoder import Encoder

SWAPS = {"he": "she", "she": "he"}


class EditSearch:
    """Swaps he and she where that brings the text nearer; knows only the words it was fitted on."""

    def __init__(self, encoder: Encoder, strict: bool = True) -> None:
        self.encoder, self.strict, self.words = encoder, strict, set()

    def fit(self, texts, embeddings):
        assert len(texts) == len(embeddings)
        self.words = {word for text in texts for word in text.split()}
        return self

    def decode(self, embeddings, sources, progress=None):
        known = {old: new for old, new in SWAPS.items() if new in self.words}
        swapped = [" ".join(known.get(word, word) for word in source.split()) for source in sources]
        before, after = (cosines(self.encoder(texts), np.asarray(embeddings)) for texts in (sources, swapped))
        if progress is not None:
            progress(len(sources), len(sources))
        texts = [new if b > a else old for old, new, a, b in zip(sources, swapped, before, after, strict=True)]
        return Decoded(texts, np.maximum(before, after))

    def state(self):
        return {"words": np.frombuffer("\n".join(sorted(self.words)).encode(), np.uint8)}, {"strict": self.strict}

    @classmethod
    def from_state(cls, encoder, arrays, meta):
        out = cls(encoder, strict=meta["strict"])
        out.words = set(arrays["words"].tobytes().decode().split("\n"))
        return out
