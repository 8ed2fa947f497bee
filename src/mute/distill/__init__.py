"""Fast copies of an eraser: `MLPSurrogate(eraser).fit(X)`."""

from typing import TYPE_CHECKING

from mute.estimators.lazy import lazy_exports
from mute.estimators.registry import HOMES

if TYPE_CHECKING:
    from mute.distill.invertible import InvertibleSurrogate
    from mute.distill.low_rank import LowRankSurrogate
    from mute.distill.mlp import MLPSurrogate
    from mute.steering.linear_surrogate import LinearSurrogate

__all__ = ["InvertibleSurrogate", "LinearSurrogate", "LowRankSurrogate", "MLPSurrogate"]

__getattr__, __dir__ = lazy_exports(__name__, {name: HOMES[name] for name in __all__})
