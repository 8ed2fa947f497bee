"""Remove a protected attribute from embeddings, or ask what an embedding would be under another value of it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mute.errors import BudgetNotMet, ColumnsLeftOut, MuteError, WeakResultWarning

if TYPE_CHECKING:
    from mute import datasets, distill, export, rivals, steering, tables, text
    from mute.budget.budgeted import Budgeted
    from mute.eraser import MUtE
    from mute.estimators.persistence import load
    from mute.estimators.progress import ProgressBar
    from mute.evaluation.audit import audit
    from mute.evaluation.certificate import Certificate, certify
    from mute.evaluation.compare import compare
    from mute.evaluation.frontier import frontier
    from mute.evaluation.report import Report
    from mute.flow import Flow
    from mute.flow.marginals import Histogram, Quantile
    from mute.rbig import RBIG
    from mute.tables import open_matrix
    from mute.torch.intervene import intervene

__version__ = "0.1.0"

__all__ = [
    "RBIG",
    "BudgetNotMet",
    "Budgeted",
    "Certificate",
    "ColumnsLeftOut",
    "Flow",
    "Histogram",
    "MUtE",
    "MuteError",
    "ProgressBar",
    "Quantile",
    "Report",
    "WeakResultWarning",
    "audit",
    "certify",
    "compare",
    "datasets",
    "distill",
    "export",
    "frontier",
    "intervene",
    "load",
    "open_matrix",
    "rivals",
    "steering",
    "tables",
    "text",
]

# Names are imported when first used: `import mute` alone must stay fast and free of heavy packages. Type checkers see
# the imports above.
_HOMES = {
    "Budgeted": "mute.budget.budgeted",
    "Certificate": "mute.evaluation.certificate",
    "Flow": "mute.flow",
    "Histogram": "mute.flow.marginals",
    "MUtE": "mute.eraser",
    "ProgressBar": "mute.estimators.progress",
    "Quantile": "mute.flow.marginals",
    "RBIG": "mute.rbig",
    "Report": "mute.evaluation.report",
    "audit": "mute.evaluation.audit",
    "certify": "mute.evaluation.certificate",
    "compare": "mute.evaluation.compare",
    "frontier": "mute.evaluation.frontier",
    "intervene": "mute.torch.intervene",
    "load": "mute.estimators.persistence",
    "open_matrix": "mute.tables",
}


def __getattr__(name: str) -> Any:  # Any: whatever the name means
    if name not in __all__:
        raise AttributeError(f"module 'mute' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name) if name in _HOMES else import_module(f"mute.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
