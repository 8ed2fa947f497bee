"""Erasers for places without this package: as a torch module, or as an ONNX graph."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mute.export.onnx import to_onnx
    from mute.export.torch import to_pt2, to_torch

__all__ = ["to_onnx", "to_pt2", "to_torch"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'mute.export' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"mute.export.{'onnx' if name == 'to_onnx' else 'torch'}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
