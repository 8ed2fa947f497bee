"""A trained inverter: a network guesses a text for an embedding, then corrects it step by step."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from difflib import SequenceMatcher
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mute.errors import MuteError, missing_extra
from mute.rows.validation import check_whole_number
from mute.storage.container import read_arrays, write_arrays
from mute.storage.files import sha256_of_file, write_atomically, write_json
from mute.text.decoders.decoder import Decoded, check_wanted, cosines
from mute.text.encoders.encoder import Encoder, TextsDone
from mute.typing import Foreign, Json

if TYPE_CHECKING:
    from mute.text.decoders.inverter_network import InverterNetwork

__all__ = ["Inverter", "require_packages", "token_ids"]

_VERSION = 2
_ABOUT, _ARRAYS, _TOKENIZER = "inverter.json", "inverter.safetensors", "tokenizer.json"

# Rows decoded at a time: enough to keep a core busy, few enough for the memory of what is written.
_ROWS = 64

# Cosines of one embedding differ by this much from batch to batch.
_ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class _Candidate:
    score: float
    text: str
    embedding: NDArray[np.float32]


_Pool = list[_Candidate]  # the nearest texts of a row, the nearest first


class Inverter:
    """Turns embeddings back into texts with a network trained for their encoder.

    `train_inverter` and `Inverter.load` make one. Without sources, the network first guesses texts. Then each step
    corrects the best texts so far: the network sees the wanted embedding e, the embedding ê of the text, e - ê, and the
    text. All it writes is encoded, and the `beam` unique texts nearest to e by cosine are kept. Older texts stay in the
    pool, so more steps never make the best text worse. Of texts that are equally near, the one most like the source
    wins. A row is done when nothing new is left to correct.

    Parameters
    ----------
    encoder : Encoder
        The encoder that the network was trained for.
    network : InverterNetwork
    tokenizer : tokenizers.Tokenizer
    quality : dict
        Measured quality, if known.
    steps : int, default=5
        Corrections.
    beam : int, default=2
        Texts kept, and texts written for each of them in a step. More come nearer to e, which helps as far as e is the
        embedding of a text.

    Attributes
    ----------
    quality_ : dict
        How well it decodes texts held out from training (see `train_inverter`).

    See Also
    --------
    EditSearch : edits the source word by word, and needs no training.
    Vec2Text : the same idea with large published weights.

    Notes
    -----
    *Limits.* An inverter writes at most the `max_tokens` of its training (it keeps longer sources unless something
    shorter comes nearer), and only texts like its corpus. In other batches, rounding may decide between texts that are
    equally near.
    """

    def __init__(
        self,
        encoder: Encoder,
        network: InverterNetwork,
        tokenizer: Foreign,
        quality: dict[str, float],
        *,
        steps: int = 5,
        beam: int = 2,
    ) -> None:
        check_whole_number("steps", steps, 0)
        check_whole_number("beam", beam)
        if beam > network.settings.vocabulary:
            raise MuteError(f"beam must be at most the {network.settings.vocabulary} tokens there are, not {beam}")
        self.encoder, self.network, self.tokenizer = encoder, network.eval(), tokenizer
        self.steps, self.beam, self.quality_ = int(steps), int(beam), quality

    def __repr__(self) -> str:
        s = self.network.settings
        return f"<inverter of {self.encoder.name}: {s.layers} layers of {s.width}, {s.vocabulary} tokens>"

    def decode(
        self, embeddings: ArrayLike, sources: Sequence[str] | None = None, *, progress: TextsDone | None = None
    ) -> Decoded:
        """Find a text for each embedding (n, D), from its source if there is one; else the network guesses.

        `progress` gets rows done and rows in all. Neither the order nor the number of the other rows matters to a row,
        up to rounding.
        """
        wanted, given = check_wanted(embeddings, sources, self.encoder)
        best: list[_Candidate] = []
        for start in range(0, len(wanted), _ROWS):
            part = slice(start, start + _ROWS)
            best += self._decode(wanted[part], None if given is None else given[part])
            if progress is not None:
                progress(len(best), len(wanted))
        return Decoded([one.text for one in best], np.array([one.score for one in best], np.float32))

    def guess(self, wanted: NDArray[np.float32], beam: int = 1) -> list[list[str]]:
        """The texts that the network writes without corrections, the likeliest first, for embeddings (n, D)."""
        return self._write(wanted, None, None, beam)

    def _decode(self, wanted: NDArray[np.float32], sources: list[str] | None) -> list[_Candidate]:
        pools: list[_Pool] = [[] for _ in wanted]
        begun = self.guess(wanted, self.beam) if sources is None else [[text] for text in sources]
        self._absorb(pools, wanted, begun, sources)
        corrected: list[set[str]] = [set() for _ in wanted]
        for _ in range(self.steps):
            jobs = [(row, one) for row, pool in enumerate(pools) for one in pool if one.text not in corrected[row]]
            if not jobs:
                break
            found: list[list[str]] = [[] for _ in wanted]
            jobs.sort(key=lambda job: len(job[1].text))  # a batch is as wide as its longest draft
            for start in range(0, len(jobs), _ROWS):
                rows, drafts = zip(*jobs[start : start + _ROWS], strict=True)
                reached = np.stack([one.embedding for one in drafts])
                written = self._write(wanted[list(rows)], [one.text for one in drafts], reached, self.beam)
                for row, one, texts in zip(rows, drafts, written, strict=True):
                    corrected[row].add(one.text)
                    found[row] += texts
            self._absorb(pools, wanted, found, sources)
        return [pool[0] for pool in pools]

    def _write(
        self, wanted: NDArray[np.float32], drafts: list[str] | None, reached: NDArray[np.float32] | None, beam: int
    ) -> list[list[str]]:
        import torch

        from mute.text.decoders.inverter_network import Request

        ids = None if drafts is None else token_ids(self.tokenizer, drafts)
        start = None if reached is None else torch.tensor(reached, dtype=torch.float32)
        found = self.network.write(Request(torch.tensor(wanted, dtype=torch.float32), ids, start), beam)
        flat = [[token - 1 for token in text] for row in found for text in row]
        texts = self.tokenizer.decode_batch(flat, skip_special_tokens=False)
        return [texts[row * beam : (row + 1) * beam] for row in range(len(found))]

    def _absorb(
        self, pools: list[_Pool], wanted: NDArray[np.float32], found: list[list[str]], sources: list[str] | None
    ) -> None:
        """Add the texts found to the pools and keep the nearest."""
        known = [{one.text for one in pool} for pool in pools]
        new = [
            (row, text) for row, texts in enumerate(found) for text in dict.fromkeys(texts) if text not in known[row]
        ]
        if not new:
            return
        unique = list(dict.fromkeys(text for _, text in new))
        encoded = dict(zip(unique, self.encoder(unique), strict=True))
        rows = np.stack([encoded[text] for _, text in new])
        scores = cosines(rows, wanted[[row for row, _ in new]])
        for (row, text), embedding, score in zip(new, rows, scores.tolist(), strict=True):
            pools[row].append(_Candidate(score, text, embedding))
        for row, pool in enumerate(pools):
            # By text among equals, so that the order of others does not matter.
            pool.sort(key=lambda one: (-one.score, one.text))
            if sources is not None:
                _least_change_first(pool, sources[row])
            del pool[self.beam :]

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the inverter into a folder, made if need be; ``inverter.json``, which describes it, comes last."""
        place = Path(folder)
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise MuteError(f"cannot write to {place}: {error.strerror}, so choose another folder") from error
        write_arrays(place / _ARRAYS, {name: array.numpy() for name, array in self.network.state_dict().items()})
        with write_atomically(place / _TOKENIZER) as file:
            file.write(self.tokenizer.to_str(pretty=False).encode())
        about = {
            "format": "mute inverter",
            "version": _VERSION,
            "encoder": {"name": self.encoder.name, "fingerprint": self.encoder.fingerprint},
            "settings": asdict(self.network.settings),
            "steps": self.steps,
            "beam": self.beam,
            "quality": self.quality_,
            "sha256": {name: sha256_of_file(place / name) for name in (_ARRAYS, _TOKENIZER)},
        }
        write_json(place / _ABOUT, about)

    @classmethod
    def load(
        cls, folder: str | os.PathLike[str], encoder: Encoder, *, steps: int | None = None, beam: int | None = None
    ) -> Inverter:
        """Read an inverter that `save` or `train_inverter` wrote.

        Parameters
        ----------
        folder : path
        encoder : Encoder
            The encoder that the inverter was trained for; another one is refused.
        steps, beam : int, optional
            By default the values it was saved with.
        """
        require_packages("decoding with an inverter")
        place = Path(folder)
        about = _read_about(place)
        theirs = about["encoder"]
        if encoder.fingerprint is None or encoder.fingerprint != theirs["fingerprint"]:
            mine, other = (str(mark)[:12] for mark in (theirs["fingerprint"], encoder.fingerprint))
            raise MuteError(
                f"the inverter of {place} was trained for the encoder {theirs['name']} ({mine}), not for "
                f"{encoder.name} ({other}): load that encoder, with the same pooling and max_tokens"
            )
        try:
            network, tokenizer = _read_parts(place, about)
            if encoder.dimension not in (None, network.settings.dimension):
                raise ValueError("its network is for embeddings of another width")
        except OSError as error:
            raise MuteError(f"{error.filename} cannot be read ({error.strerror}): train the inverter again") from error
        except Exception as error:
            # Broad on purpose: tokenizers, safetensors and torch each raise their own types.
            raise MuteError(f"the inverter of {place} is damaged ({error}): train it again") from error
        chosen = {"steps": about["steps"] if steps is None else steps, "beam": about["beam"] if beam is None else beam}
        return cls(encoder, network, tokenizer, about["quality"], **chosen)


def require_packages(purpose: str, **extras: str) -> None:
    """Raise the error that says how to get torch, tokenizers or a further package, if one is not there."""
    for package, extra in {"torch": "torch", "tokenizers": "text", **extras}.items():
        try:
            import_module(package)
        except ImportError:
            raise missing_extra(package, extra, purpose) from None


def token_ids(tokenizer: Foreign, texts: list[str]) -> list[list[int]]:
    """Token ids of the network: 0 ends a text, the ids of the tokenizer count from 1."""
    return [[token + 1 for token in one.ids] for one in tokenizer.encode_batch(texts)]


def _least_change_first(pool: _Pool, source: str) -> None:
    """Encoders that ignore capitals make several texts equally near: put the one most like the source first."""
    equal = [one for one in pool if one.score > pool[0].score - _ROUNDING]
    if len(equal) > 1:
        best = max(equal, key=lambda one: SequenceMatcher(None, source, one.text, autojunk=False).ratio())
        pool.remove(best)
        pool.insert(0, best)


def _read_about(place: Path) -> Json:
    try:
        about = json.loads((place / _ABOUT).read_bytes())
    except OSError as error:
        raise MuteError(f"{place} holds no trained inverter ({_ABOUT}: {error.strerror}): train one there") from error
    except ValueError as error:
        raise MuteError(f"{place / _ABOUT} cannot be read ({error}): train the inverter again") from error
    if not isinstance(about, dict) or about.get("format") != "mute inverter":
        raise MuteError(f"{place / _ABOUT} does not describe an inverter: give the folder of `train_inverter`")
    if (version := about.get("version")) != _VERSION:
        raise MuteError(f"the inverter of {place} has version {version!r}, this mute reads version {_VERSION}")
    kinds = {"encoder": dict, "settings": dict, "quality": dict, "sha256": dict, "steps": int, "beam": int}
    wrong = [name for name, kind in kinds.items() if not isinstance(about.get(name), kind)]
    if wrong or not {"name", "fingerprint"} <= set(about["encoder"]):
        raise MuteError(f"{place / _ABOUT} is damaged ({', '.join(wrong) or 'encoder'}): train the inverter again")
    return about


def _read_parts(place: Path, about: Json) -> tuple[InverterNetwork, Foreign]:
    """The network and the tokenizer of a folder; raises whatever is wrong with them."""
    import torch
    from tokenizers import Tokenizer

    from mute.text.decoders.inverter_network import InverterNetwork, Settings

    for name in (_ARRAYS, _TOKENIZER):
        if sha256_of_file(place / name) != about["sha256"].get(name):
            raise ValueError(f"{name} does not match its checksum")
    sizes = about["settings"]
    if any(isinstance(value, bool) or not isinstance(value, int) or value < 1 for value in sizes.values()):
        raise ValueError("its settings are not whole numbers")
    _, arrays = read_arrays(place / _ARRAYS, "the network of an inverter")
    for name, array in arrays.items():
        if array.dtype != np.float32 or not np.isfinite(array).all():
            raise ValueError(f"{name} has values that are not finite, or not of single precision")
    # Shapes first: settings that ask for more than the file has must not take the memory.
    with torch.device("meta"):
        network = InverterNetwork(Settings(**sizes))
    network.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()}, assign=True)
    tokenizer = Tokenizer.from_str((place / _TOKENIZER).read_text(encoding="utf-8"))
    if tokenizer.get_vocab_size() + 1 != network.settings.vocabulary:
        raise ValueError("its tokenizer knows other tokens than its network")
    return network, tokenizer
