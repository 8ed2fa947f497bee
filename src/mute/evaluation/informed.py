"""The informed adversary: it holds the model of a routed eraser, and asks its router about each erased row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mute.adversaries.informed import INFORMED, would_be_routed
from mute.adversaries.panel import PANEL
from mute.adversaries.scoring import Attack, cross_read
from mute.evaluation.rows import Rows

__all__ = ["INFORMED", "can_inform", "informed_attack"]

# It would take minutes to learn again.
_SLOW = ("wide network",)


def can_inform(rows: Rows) -> bool:
    """Whether the eraser routes the rows and has an inverse, so that its model says something of a route."""
    subject = rows.subject
    return not subject.oracle and subject.can("route") and subject.can("inverse_transform") and subject.can("classes_")


def informed_attack(attacks: list[Attack], rows: Rows, rng: np.random.Generator, scale_features: bool) -> Attack:
    """The strongest cheap adversary of `attacks` and boosting, if it tried, on erased rows and the model's answers.

    The better of the two counts.
    """
    cheap = [a for a in attacks if a.adversary not in _SLOW] or attacks
    best = max(cheap, key=lambda a: a.balanced_accuracy.value).adversary
    learners = [PANEL[name] for name in {a.adversary for a in attacks} & {best, "boosting"}]
    Q = np.hstack([rows.Q, would_be_routed(rows.subject.eraser, rows.Q)])
    found = [
        cross_read(learner, "fresh", Q, rows.z, rows.n_classes, rng, rows.groups, rows.folds, scale_features)
        for learner in sorted(learners, key=lambda learner: learner.name)
    ]
    return replace(max(found, key=lambda a: a.balanced_accuracy.value), adversary=INFORMED)
