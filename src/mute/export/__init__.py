"""Erasers for places without this package: as a torch module, or as an ONNX graph."""

from typing import TYPE_CHECKING

from mute.estimators.lazy import lazy_exports

if TYPE_CHECKING:
    from mute.export.onnx import to_onnx
    from mute.export.torch import to_pt2, to_torch

__all__ = ["to_onnx", "to_pt2", "to_torch"]

_HOMES = {"to_onnx": "mute.export.onnx", "to_pt2": "mute.export.torch", "to_torch": "mute.export.torch"}
__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
