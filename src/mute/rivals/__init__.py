"""The erasers that MUtE is compared with, each written from its mathematics, on one interface."""

from typing import TYPE_CHECKING

from mute.estimators.lazy import lazy_exports
from mute.estimators.registry import HOMES

if TYPE_CHECKING:
    from mute.rivals.farm import FaRM
    from mute.rivals.gradient_reversal import GradientReversal
    from mute.rivals.inlp import INLP
    from mute.rivals.kernel import KernelErasure
    from mute.rivals.kram import KRaM
    from mute.rivals.leace import LEACE, QLEACE, FreeFormLEACE, OracleLEACE
    from mute.rivals.leopard import LEOPARD
    from mute.rivals.pef import PEF
    from mute.rivals.rlace import RLACE
    from mute.rivals.taco import TaCo

__all__ = [
    "INLP",
    "LEACE",
    "LEOPARD",
    "PEF",
    "QLEACE",
    "RLACE",
    "FaRM",
    "FreeFormLEACE",
    "GradientReversal",
    "KRaM",
    "KernelErasure",
    "OracleLEACE",
    "TaCo",
]

__getattr__, __dir__ = lazy_exports(__name__, {name: HOMES[name] for name in __all__})
