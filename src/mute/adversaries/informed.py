"""What an adversary learns who holds the model of a routed eraser: where each erased row could have come from."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mute.rows.validation import LabelEncoder
from mute.typing import Method

__all__ = ["INFORMED", "says_of_routes", "would_be_routed"]

INFORMED = "informed"


def says_of_routes(eraser: Method) -> bool:
    """Whether the model of a fitted eraser says something of the route of an erased row."""
    routed = not getattr(eraser, "needs_concept", False)
    return routed and all(hasattr(eraser, name) for name in ("route", "inverse_transform", "classes_"))


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
