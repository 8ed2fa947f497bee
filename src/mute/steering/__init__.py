"""Methods that move rows from one class to another, on the interface of the erasers."""

from typing import TYPE_CHECKING

from mute.estimators.lazy import lazy_exports
from mute.estimators.registry import HOMES

if TYPE_CHECKING:
    from mute.steering.gaussian_cfr import GaussianCFR
    from mute.steering.linear_ot import LinearOT
    from mute.steering.linear_surrogate import LinearSurrogate
    from mute.steering.mean_difference import MeanDifference

__all__ = ["GaussianCFR", "LinearOT", "LinearSurrogate", "MeanDifference"]

__getattr__, __dir__ = lazy_exports(__name__, {name: HOMES[name] for name in __all__})
