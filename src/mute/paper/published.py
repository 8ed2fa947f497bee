"""Data of the pages: the figures that the paper reports (``published.json``), and what pages call methods."""

from __future__ import annotations

import json
from importlib.resources import files

__all__ = ["AUGMENTATION", "FAIRNESS", "NAMES", "SURROGATE", "SYNTHETIC", "TEXT", "WORDS"]

_ALL, NAMES = (
    json.loads(files("mute.paper").joinpath(name).read_text(encoding="utf-8"))
    for name in ("published.json", "names.json")
)
SYNTHETIC, WORDS, FAIRNESS = _ALL["synthetic"], _ALL["words"], _ALL["fairness"]
AUGMENTATION, SURROGATE, TEXT = _ALL["augmentation"], _ALL["surrogate"], _ALL["text"]
