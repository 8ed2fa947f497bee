"""The folder of fetched and prepared data: where it is, and what is in it."""

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from mute.errors import MuteError

__all__ = ["ENCODER_FILES", "cached_folder", "data_folder", "is_cached"]

# What the folder of a prepared sentence encoder contains. The small files say how its embeddings are pooled and cut.
ENCODER_FILES = (
    "config.json", "config_sentence_transformers.json", "modules.json", "sentence_bert_config.json",
    "special_tokens_map.json", "tokenizer_config.json", "vocab.txt", "1_Pooling/config.json", "tokenizer.json",
    "model.safetensors",
)  # fmt: skip


def data_folder() -> Path:
    """The folder of fetched and prepared data; it may not exist yet.

    Returns
    -------
    pathlib.Path
        The environment variable ``MUTE_DATA`` if it is set, else ``mute`` in the user's cache folder
        (``$XDG_CACHE_HOME`` or ``~/.cache``; ``~/Library/Caches`` on macOS; ``%LOCALAPPDATA%`` on Windows).
    """
    if own := os.environ.get("MUTE_DATA"):
        return Path(own).expanduser()
    if sys.platform == "darwin":
        caches = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        caches = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "mute"


def is_cached(name: str, files: Iterable[str], folder: str | Path | None = None) -> bool:
    """Whether all `files` of `name` are in the data folder."""
    place = Path(folder or data_folder(), name)
    return all((place / file).is_file() for file in files)


def cached_folder(name: str, files: Iterable[str], folder: str | Path | None = None) -> Path:
    """The folder of what was prepared under `name`; a `MuteError` says how to prepare it if a file is missing."""
    place = Path(folder or data_folder())
    if not is_cached(name, files, place):
        raise MuteError(f"{name} is not in {place}; run: mute data prepare {name}")
    return place / name
