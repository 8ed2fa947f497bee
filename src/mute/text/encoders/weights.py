"""The sizes and weights of an encoder, read from its folder and checked against each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.storage.container import read_arrays
from mute.typing import Json

__all__ = ["KINDS", "Architecture", "read_weights"]

# What the parts of a layer are called: query, key, value, output, and the LayerNorm after it.
KINDS: dict[str, tuple[str, ...]] = {
    kind: tuple(f"attention.{part}" for part in parts.split())
    for kind, parts in (
        ("bert", "self.query self.key self.value output.dense output.LayerNorm"),
        ("mpnet", "attn.q attn.k attn.v attn.o LayerNorm"),
    )
}


class Architecture:
    """The sizes of an encoder, out of the content of its ``config.json`` at `where`.

    MPNet has `buckets` of relative positions, BERT has `types` of tokens; the other kind has 0 of them. `positions` are
    the rows of the table of positions, `padding` is an id, `epsilon` that of the LayerNorms, `max_tokens` the longest
    text.
    """

    def __init__(self, config: Json, where: Path) -> None:
        self._config, self._where = config, where
        self.kind: str = config["model_type"]
        self.width, self.depth = self._whole("hidden_size"), self._whole("num_hidden_layers")
        self.heads, self.inner = self._whole("num_attention_heads"), self._whole("intermediate_size")
        self.positions, self.vocabulary = self._whole("max_position_embeddings"), self._whole("vocab_size")
        mpnet = self.kind == "mpnet"
        self.buckets = self._whole("relative_attention_num_buckets", 32) if mpnet else 0
        self.types = 0 if mpnet else self._whole("type_vocab_size", 2)
        self.padding = self._whole("pad_token_id", 1 if mpnet else 0, least=0)
        epsilon = config.get("layer_norm_eps", 1e-12)
        if not isinstance(epsilon, int | float) or not 0 <= epsilon < 1:
            raise MuteError(f"{where}: layer_norm_eps must be a small number, not {epsilon!r}")
        self.epsilon = float(epsilon)
        if self.width % self.heads:
            raise MuteError(f"{where}: hidden_size {self.width} cannot be shared among {self.heads} attention heads")
        # MPNet counts positions from the one after that of the padding.
        self.max_tokens = self.positions - (self.padding + 1 if mpnet else 0)
        if self.max_tokens < 1 or self.padding >= self.vocabulary:
            raise MuteError(f"{where}: pad_token_id {self.padding} does not fit the other sizes")

    def _whole(self, name: str, default: int | None = None, least: int = 1) -> int:
        value = self._config.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise MuteError(f"{self._where}: {name} must be a whole number from {least}, not {value!r}")
        return value


def read_weights(path: Path, arch: Architecture) -> dict[str, NDArray[np.float32]]:
    """Read the tensors that the encoder needs, in single precision, under their names without prefix.

    Prefixes such as ``bert.`` and the older names ``gamma`` and ``beta`` of LayerNorms are understood. Heads for other
    purposes are left out.
    """
    _, arrays = read_arrays(path, f"the weights of a {arch.kind} encoder", mapped=True)
    stored = {_plain(name): array for name, array in arrays.items()}
    words = "embeddings.word_embeddings.weight"
    prefix = next((name.removesuffix(words) for name in stored if name.endswith(words)), "")
    out: dict[str, NDArray[np.float32]] = {}
    for name, shape in _shapes(arch).items():
        array = stored.get(prefix + name)
        if array is None:
            raise MuteError(f"{path} has no tensor {prefix + name!r}: it holds no {arch.kind} encoder")
        if array.shape != shape:
            raise MuteError(f"{path}: {name} has shape {array.shape}, its config.json asks for {shape}")
        # A copy, so that nobody who changes the file changes the encoder.
        out[name] = np.array(array, np.float32)
    return out


def _plain(name: str) -> str:
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def _shapes(arch: Architecture) -> dict[str, tuple[int, ...]]:
    """The tensors of an encoder and their shapes; matrices are (out, in)."""
    d = arch.width
    out: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (arch.vocabulary, d),
        "embeddings.position_embeddings.weight": (arch.positions, d),
    }
    if arch.kind == "mpnet":
        out["encoder.relative_attention_bias.weight"] = (arch.buckets, arch.heads)
    else:
        out["embeddings.token_type_embeddings.weight"] = (arch.types, d)
    dense = dict.fromkeys(KINDS[arch.kind][:4], (d, d))
    dense |= {"intermediate.dense": (arch.inner, d), "output.dense": (d, arch.inner)}
    norms = ["embeddings.LayerNorm"]
    for layer in range(arch.depth):
        at = f"encoder.layer.{layer}."
        norms += [at + KINDS[arch.kind][4], at + "output.LayerNorm"]
        for name, shape in dense.items():
            out |= {f"{at}{name}.weight": shape, f"{at}{name}.bias": shape[:1]}
    return out | {f"{name}.{part}": (d,) for name in norms for part in ("weight", "bias")}
