"""Every method by name: the module of its class, and its short name on the command line."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from mute.errors import MuteError
from mute.typing import Json, Setting

__all__ = ["HOMES", "METHODS", "Method", "class_of", "make", "method_of"]

# The module of each class. A file names its class, and `load` imports no other classes.
HOMES = {
    "MUtE": "mute.eraser",
    "RBIG": "mute.rbig",
    "Budgeted": "mute.budget.budgeted",
    "LEACE": "mute.rivals.leace",
    "OracleLEACE": "mute.rivals.leace",
    "FreeFormLEACE": "mute.rivals.leace",
    "QLEACE": "mute.rivals.leace",
    "INLP": "mute.rivals.inlp",
    "RLACE": "mute.rivals.rlace",
    "KernelErasure": "mute.rivals.kernel",
    "GradientReversal": "mute.rivals.gradient_reversal",
    "FaRM": "mute.rivals.farm",
    "KRaM": "mute.rivals.kram",
    "PEF": "mute.rivals.pef",
    "TaCo": "mute.rivals.taco",
    "LEOPARD": "mute.rivals.leopard",
    "MeanDifference": "mute.steering.mean_difference",
    "LinearOT": "mute.steering.linear_ot",
    "GaussianCFR": "mute.steering.gaussian_cfr",
    "LinearSurrogate": "mute.steering.linear_surrogate",
    "MLPSurrogate": "mute.distill.mlp",
    "InvertibleSurrogate": "mute.distill.invertible",
    "LowRankSurrogate": "mute.distill.low_rank",
}


@dataclass(frozen=True)
class Method:
    """An entry of `METHODS`: class, description, settings, and whether a fit uses task labels and torch."""

    kind: str
    about: str
    settings: Json = field(default_factory=dict)
    task: bool = False
    torch: bool = False


METHODS: dict[str, Method] = {
    "none": Method("none", "the rows as they are"),
    "mute": Method("MUtE", "MUtE; layers are added while they separate the classes"),
    "mute-20": Method("MUtE", "MUtE with 20 layers", {"n_iterations": 20}),
    "mute-histogram": Method("MUtE", "the same with histograms", {"n_iterations": 20, "marginal": "histogram"}),
    "mute-oracle": Method("MUtE", "MUtE*: with true labels", {"router": None}),
    "leace": Method("LEACE", "least-squares linear erasure"),
    "leace-oracle": Method("OracleLEACE", "class means made equal, with true labels", {"router": None}),
    "leace-freeform": Method("FreeFormLEACE", "least-squares erasure of a classifier's answer"),
    "qleace": Method("QLEACE", "class means and covariances made equal"),
    "qleace-oracle": Method("QLEACE", "the same, with true labels", {"router": None}),
    "inlp": Method("INLP", "null spaces of linear classifiers, one after the other"),
    "rlace": Method("RLACE", "linear projection by a minimax game"),
    "kernel": Method("KernelErasure", "RLACE on kernel features, brought back by a network", torch=True),
    "reversal": Method("GradientReversal", "a network against an adversary", torch=True),
    "reversal-task": Method("GradientReversal", "the same, kept useful for the task", task=True, torch=True),
    "farm": Method("FaRM", "a network that maximises rate and rate within classes", torch=True),
    "kram": Method("KRaM", "a network that maximises the kernelised rate", torch=True),
    "pef": Method("PEF", "couplings to one law on finitely many atoms"),
    "taco": Method("TaCo", "components that tell the concept are dropped"),
    "taco-task": Method("TaCo", "the same, sparing those that tell the task", task=True),
    "leopard": Method("LEOPARD", "projection that makes the classes' laws equal in MMD", torch=True),
    "leopard-cascaded": Method("LEOPARD", "the same after linear erasure", {"cascaded": True}, torch=True),
    "mean-difference": Method("MeanDifference", "translation between class means"),
    "linear-ot": Method("LinearOT", "affine transport between class laws"),
    "cfr": Method("GaussianCFR", "concept coordinates predicted from the others"),
    "linear-surrogate": Method("LinearSurrogate", "least-squares copy of MUtE, by class"),
    "mlp-surrogate": Method("MLPSurrogate", "a network that copies MUtE", torch=True),
    "cinn-surrogate": Method("InvertibleSurrogate", "an invertible network that copies MUtE", torch=True),
    "inn-surrogate": Method("InvertibleSurrogate", "the same, one for each class", {"conditional": False}, torch=True),
    "low-rank-surrogate": Method("LowRankSurrogate", "one affine map that copies MUtE"),
}


def class_of(kind: str) -> Any:  # Any: the class of an estimator, which this module must not import
    """Class of an estimator by its name."""
    return getattr(import_module(HOMES[kind]), kind)


def method_of(name: str) -> Method:
    """The entry of a name, which may have a preset after a colon."""
    short = name.partition(":")[0]
    if short not in METHODS:
        raise MuteError(f"there is no method {short!r}; known methods: {', '.join(METHODS)}")
    return METHODS[short]


def make(name: str, **settings: Setting) -> Any:  # Any: of any class, also scikit-learn's
    """An unfitted estimator from a name such as ``"farm"``, or ``"farm:paper-glove"`` with a preset.

    A setting that the class does not have is an error, except for `random_state`, which some methods do not need.

    Examples
    --------
    >>> make("mute-20", random_state=0)
    MUtE(n_iterations=20, random_state=0)
    """
    method = method_of(name)
    if method.kind == "none":
        from sklearn.preprocessing import FunctionTransformer

        return FunctionTransformer()
    cls = class_of(method.kind)
    known = cls._get_param_names()
    if "random_state" not in known:
        settings.pop("random_state", None)
    for key in settings:
        if key not in known:
            raise MuteError(f"{method.kind} has no setting {key!r}; it has: {', '.join(known)}")
    preset, settings = name.partition(":")[2], {**method.settings, **settings}
    return cls.from_preset(preset, **settings) if preset else cls(**settings)
