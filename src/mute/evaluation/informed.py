"""The informed adversary: it holds the model of a routed eraser, and asks its router about each erased row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mute.adversaries.panel import PANEL
from mute.adversaries.scoring import Attack, cross_read
from mute.evaluation.rows import Rows
from mute.rows.validation import LabelEncoder
from mute.typing import Method

__all__ = ["INFORMED", "can_inform", "informed_attack", "would_be_routed"]

INFORMED = "informed"
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


def would_be_routed(eraser: Method, Q: NDArray) -> NDArray[np.float64]:
    """For each class, whether the erased row, brought back as this class, would be routed to it.

    The true route always would. Each class has a column of zeros and ones, and one more of the router's probability if
    it gives any; columns that are the same for all rows are left out. A row without a finite inverse would not be
    routed there.
    """
    encoder = LabelEncoder(eraser.classes_.tolist())
    router = getattr(eraser, "router_", None)
    columns = []
    for k, label in enumerate(eraser.classes_):
        X = np.asarray(eraser.inverse_transform(Q, concept=np.full(len(Q), label)))
        finite = np.isfinite(X).all(axis=1)
        answers = np.zeros((2, len(Q)))
        if finite.any():
            routes = np.asarray(eraser.route(X[finite]), object)
            answers[0, finite] = encoder.encode(routes, "the routes") == k
            if router is not None and (chances := router.predict_proba(X[finite])) is not None:
                answers[1, finite] = chances[:, k]
        columns.append(answers)
    found = np.concatenate(columns).T
    return found[:, np.ptp(found, axis=0) > 0]
