"""Sums that do not depend on the order of their terms, to the bit."""

from typing import Self

import numpy as np
from numpy.typing import NDArray

from mute.typing import Array

__all__ = ["ExactSum"]

# A number is cut into whole multiples of 1, of 2**-36 and of 2**-72. Whole numbers below 2**53 are added without
# rounding, so each of the three sums is exact, and exact sums do not depend on the order.
_CUT = 2.0**36


class ExactSum:
    """A sum of float64 arrays of one shape.

    *Limits.* The sum is exact while it stays below 2**53 and fewer than 2**18 arrays are added between two merges;
    beyond that it rounds like other sums. Digits below 2**-73 are lost.

    Examples
    --------
    >>> import numpy as np
    >>> numbers = np.random.default_rng(0).normal(size=(1000, 1))
    >>> there, back = ExactSum((1,)), ExactSum((1,))
    >>> for v, w in zip(numbers, numbers[::-1]):
    ...     there.add(v)
    ...     back.add(w)
    >>> bool(there.value == back.value)
    True
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape = shape
        self._sum: NDArray[np.float64] | None = None

    @property
    def _parts(self) -> NDArray[np.float64]:
        # Allocated when first needed, so that an empty sum is quickly sent to a worker.
        if self._sum is None:
            self._sum = np.zeros((3, *self._shape))
        return self._sum

    def add(self, values: Array) -> None:
        """Add an array."""
        from mute.rows import kernels

        flat = np.ascontiguousarray(values, np.float64).reshape(-1)
        kernels.add_exactly(self._parts.reshape(3, -1), flat)

    def merge(self, other: Self) -> None:
        """Add another sum."""
        if other._sum is not None:
            np.add(self._parts, other._sum, out=self._parts)
            self._carry()

    def _carry(self) -> None:
        """Move whole units to the next coarser part; halves always go up, so that equal sums have equal parts."""
        parts = self._parts
        for fine in (2, 1):
            units = np.floor(parts[fine] / _CUT + 0.5)
            parts[fine] -= units * _CUT
            parts[fine - 1] += units

    @property
    def value(self) -> NDArray[np.float64]:
        self._carry()
        whole, middle, fine = self._parts
        return whole + (middle / _CUT + fine / _CUT**2)
