"""The folder of an encoder: which kind it is, how it pools, and its tokenizer."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from mute.errors import MuteError, missing_extra
from mute.storage.files import sha256_of_file
from mute.text.encoders.weights import KINDS, Architecture
from mute.typing import Foreign, Json, JsonValue

__all__ = ["Folder", "hash_of", "why_not"]

_FILES = ("config.json", "model.safetensors", "tokenizer.json")

# Steps that sentence-transformers may do after one another and that this package does itself.
_STEPS = ("Transformer", "Pooling", "Normalize")

# Counts up when the graph changes such that embeddings do.
_VERSION = 1


def why_not(path: Path, pooling: str | None) -> str | None:
    """Why the encoder of this folder cannot run without torch; None if it can."""
    if not path.is_dir():
        return f"there is no encoder and no folder {str(path)!r}"
    missing = [name for name in _FILES if not (path / name).is_file()]
    if missing:
        return f"the folder {path} lacks {' and '.join(missing)}"
    config = _read(path / "config.json")
    kind = config.get("model_type")
    if kind not in KINDS:
        return f"the folder {path} holds a model of kind {kind!r}, not {' or '.join(KINDS)}"
    for name, needed in (("hidden_act", "gelu"), ("position_embedding_type", "absolute")):
        if config.get(name, needed) != needed:
            return f"the folder {path} holds a model with {name} {config[name]!r}, not {needed!r}"
    steps = _steps(path)
    unknown = [kind for kind, _ in steps if kind not in _STEPS]
    if unknown:
        return f"the folder {path} has a step {unknown[0]!r} after its {kind} encoder"
    if pooling is None and _pooling(path, steps) not in (None, "mean", "cls"):
        return f"the folder {path} pools by {_pooling(path, steps)}, not by mean or cls"
    return None


class Folder:
    """A folder with a BERT or MPNet encoder, and how to use it: `arch`, `pooling`, `max_tokens`, `normalise`, `lower`.

    The files are ``config.json``, ``model.safetensors`` and ``tokenizer.json``, and perhaps those in which
    sentence-transformers says how to use them. A setting of None means what the folder says.
    """

    def __init__(self, path: Path, pooling: str | None, max_tokens: int | None, normalise: bool | None) -> None:
        self.path = path
        self.arch = Architecture(_read(path / "config.json"), path / "config.json")
        steps = _steps(path)
        self.pooling = pooling or _pooling(path, steps) or "mean"
        self.normalise = any(kind == "Normalize" for kind, _ in steps) if normalise is None else bool(normalise)
        own = _read(path / "sentence_bert_config.json") if (path / "sentence_bert_config.json").is_file() else {}
        self.lower = own.get("do_lower_case") is True
        longest = self.arch.max_tokens
        if max_tokens is not None and max_tokens > longest:
            raise MuteError(f"the encoder of {path} takes at most {longest} tokens, max_tokens is {max_tokens}")
        said = own.get("max_seq_length")
        self.max_tokens: int = max_tokens or min(said if isinstance(said, int) and said > 0 else longest, longest)

    def tokenizer(self) -> Foreign:
        """The tokenizer, which cuts texts at `max_tokens` and does not pad."""
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise missing_extra("tokenizers", "text", "encoding texts") from None
        file = self.path / "tokenizer.json"
        try:
            tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:
            # The package raises bare Exceptions.
            raise MuteError(f"{file} cannot be read ({error}): fetch it again") from error
        marks = tokenizer.num_special_tokens_to_add(False)
        if self.max_tokens <= marks:
            raise MuteError(f"max_tokens {self.max_tokens} leaves no room for words: {marks} tokens mark start and end")
        tokenizer.no_padding()
        tokenizer.enable_truncation(self.max_tokens)
        return tokenizer

    def fingerprint(self) -> str:
        """A hash of all that decides the embeddings."""
        parts: list[JsonValue] = [_VERSION, self.pooling, self.max_tokens, self.normalise, self.lower]
        for name in _FILES:
            parts += [name, (self.path / name).stat().st_size, sha256_of_file(self.path / name)]
        return hash_of(parts)


def hash_of(parts: list[JsonValue]) -> str:
    """A hash of values that JSON can hold."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _read(path: Path) -> Json:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise MuteError(f"{path} cannot be read ({error}): fetch it again") from error
    if not isinstance(content, dict):
        raise MuteError(f"{path} holds no settings: fetch it again")
    return content


def _steps(path: Path) -> list[tuple[str, Path]]:
    """Kind and folder of each step that sentence-transformers would take; nothing where it is not its folder."""
    file = path / "modules.json"
    if not file.is_file():
        return []
    try:
        modules = json.loads(file.read_text(encoding="utf-8"))
        return [(str(module["type"]).rsplit(".", 1)[-1], path / module["path"]) for module in modules]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise MuteError(f"{file} cannot be read ({error!r}): fetch it again, or leave the file out") from error


def _pooling(path: Path, steps: list[tuple[str, Path]]) -> str | None:
    """How the folder says that tokens become one embedding; None where it does not say."""
    places = [place for kind, place in steps if kind == "Pooling"]
    if not places:
        return None
    config = _read(places[0] / "config.json")
    modes = config.get("pooling_mode")
    if modes is None:
        modes = [name for name, chosen in config.items() if name.startswith("pooling_mode_") and chosen is True]
    modes = [modes] if isinstance(modes, str) else list(modes)
    short = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
    return " and ".join(short.get(mode, str(mode)) for mode in modes) or None
