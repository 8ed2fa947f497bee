"""Allowed values of settings: shared entries of ``_parameter_constraints``, as in scikit-learn."""

from __future__ import annotations

from numbers import Integral, Real

from sklearn.utils._param_validation import Interval, StrOptions

from mute.typing import Setting

__all__ = [
    "BETWEEN_0_AND_1",
    "COUNT",
    "COUNT_OR_NONE",
    "FINITE",
    "FLAG",
    "FROM_0_BELOW_1",
    "FROM_0_TO_1",
    "NOT_NEGATIVE",
    "POSITIVE",
    "WHOLE",
    "at_least",
    "one_of",
]


class Number(Interval):
    """An interval that excludes True and False, which are whole numbers in Python."""

    def is_satisfied_by(self, val: Setting) -> bool:
        return not isinstance(val, bool) and super().is_satisfied_by(val)


def at_least(least: int) -> list[Setting]:
    """A whole number of at least `least`."""
    return [Number(Integral, least, None, closed="left")]


def one_of(*names: str) -> list[Setting]:
    """One of these strings."""
    return [StrOptions({*names})]


WHOLE = at_least(0)
COUNT = at_least(1)
COUNT_OR_NONE = [*COUNT, None]
FINITE = [Number(Real, None, None, closed="neither")]
POSITIVE = [Number(Real, 0, None, closed="neither")]
NOT_NEGATIVE = [Number(Real, 0, None, closed="left")]
FROM_0_TO_1 = [Number(Real, 0, 1, closed="both")]
FROM_0_BELOW_1 = [Number(Real, 0, 1, closed="left")]
BETWEEN_0_AND_1 = [Number(Real, 0, 1, closed="neither")]
FLAG = ["boolean"]
