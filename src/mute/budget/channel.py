"""The channel: the one stage after an eraser that loses information, by a stated amount."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from mute.errors import MuteError
from mute.flow.ops import in_blocks
from mute.rows.threads import for_each, resolve_threads

__all__ = ["FAMILIES", "ONE_BIT", "ONE_BIT_SHARE", "SECRET_BYTES", "Axes", "Bits", "Channel", "check_of", "noise_of"]

# How noise is spread over the axes: the share kept of an axis is proportional to its worth to this power, at most 1.
# "noise" treats all axes alike; "components" keeps the most valuable axes whole and drops the others.
FAMILIES = {"noise": 0.0, "noise by worth": 0.3, "components": np.inf}

# Publishes on which side of its median each column of the row lies. Of a Gaussian column this keeps 2/π.
ONE_BIT, ONE_BIT_SHARE = "one bit", 2 / np.pi

SECRET_BYTES = 32
# Rows that estimate the axes: their covariance then has an error far below the noise.
_AXES_ROWS = 50_000
# An axis with a smaller share of the largest variance carries nothing.
_FLAT = 1e-10
_ROWS_AT_ONCE = 4096


@dataclass(frozen=True, eq=False)
class Axes:
    """Uncorrelated axes of erased rows, by what they are worth for reading the original rows back.

    ``(q - mean) @ read`` has r uncorrelated coordinates of unit variance, and ``mean + y @ write`` is the way back.
    `worth`, of shape (r,), is the share of the variance of the original rows that each coordinate reads back.
    """

    mean: NDArray[np.float64]
    read: NDArray[np.float64]
    write: NDArray[np.float64]
    worth: NDArray[np.float64]

    @classmethod
    def of(cls, Q: NDArray, X: NDArray) -> Axes:
        """The axes of erased rows Q of the rows X."""
        step = -(-len(Q) // _AXES_ROWS)
        Q, X = Q[::step].astype(np.float64), X[::step].astype(np.float64)
        mean = Q.mean(axis=0)
        Q, X = Q - mean, X - X.mean(axis=0)
        sizes, axes = np.linalg.eigh(Q.T @ Q / len(Q))
        seen = sizes > _FLAT * max(sizes[-1], np.finfo(float).tiny)
        root = np.sqrt(sizes[seen])
        read, write = axes[:, seen] / root, (axes[:, seen] * root).T
        turn, found, _ = np.linalg.svd((Q @ read).T @ X / len(Q))
        worth = np.zeros(len(root))
        worth[: len(found)] = found**2 / max((X**2).sum() / len(X), np.finfo(float).tiny)
        return cls(mean, read @ turn, turn.T @ write, worth)

    def kept(self, family: str, share: float) -> NDArray[np.float64]:
        """The share kept of every axis, so that `share` of the total worth is kept."""
        power, worth = FAMILIES[family], self.worth
        if share >= 1 or not worth.sum():
            return np.ones(len(worth))
        if power == 0:
            return np.full(len(worth), share)
        if np.isinf(power):  # the axes come in the order of their worth
            return (np.cumsum(worth) - worth < share * worth.sum()).astype(float)
        low, high = 1e-12 * worth.max(), 1e12 * worth.max()
        for _ in range(100):  # bisection of the worth from which on an axis is kept whole
            middle = np.sqrt(low * high)
            kept = np.minimum(1, (worth / middle) ** power)
            low, high = (middle, high) if kept @ worth > share * worth.sum() else (low, middle)
        return kept

    def channel(self, family: str, share: float) -> Channel:
        """The channel that keeps `share` of the worth of the axes."""
        return Channel(self.mean, self.read, self.write, self.kept(family, share))


@dataclass(frozen=True, eq=False)
class Channel:
    r"""Adds Gaussian noise along uncorrelated axes and publishes the best guess of the erased row.

    A coordinate y of unit variance, of which the share a is kept, becomes

    .. math:: a\,y + \sqrt{a (1 - a)}\,\varepsilon, \qquad \varepsilon \sim N(0, 1),

    the mean of y given y plus noise. A reader of rows loses the share 1 - a of this coordinate. An adversary cannot
    mistake a noisy axis for a clean one, because its variance is a: noise hides nothing behind its own size.

    Attributes
    ----------
    mean : array of shape (D,)
    read, write : arrays of shape (D, r) and (r, D)
        To the coordinates and back.
    kept : array of shape (r,)
        The share a of each coordinate.
    """

    mean: NDArray[np.float64]
    read: NDArray[np.float64]
    write: NDArray[np.float64]
    kept: NDArray[np.float64]

    @property
    def width(self) -> int:
        """The number of columns."""
        return len(self.mean)

    @property
    def noisy(self) -> bool:
        """Whether any coordinate gets noise; without noise the channel is a projection."""
        return bool(((self.kept > 0) & (self.kept < 1)).any())

    def __call__(self, Q: NDArray, X: NDArray, secret: bytes) -> NDArray[np.floating]:
        """What is published of the erased rows Q of the rows X, in the precision of Q."""
        mean, write = (a.astype(Q.dtype, copy=False) for a in (self.mean, self.write))
        read = (self.read * self.kept).astype(Q.dtype, copy=False)
        if not self.noisy:
            return in_blocks(lambda q: mean + ((q - mean) @ read) @ write, Q)
        spread = np.sqrt(self.kept * (1 - self.kept)).astype(Q.dtype)

        def publish(q: NDArray, x: NDArray) -> NDArray:
            noise = noise_of(x, secret, len(spread)).astype(q.dtype)
            return mean + ((q - mean) @ read + spread * noise) @ write

        return in_blocks(publish, Q, X)


@dataclass(frozen=True, eq=False)
class Bits:
    """Publishes one bit of each column of the row itself: on which side of its median the number lies.

    Where classes differ in shape but not in their medians, as a ring and a disc do, these bits tell nothing of the
    class and still keep most of the row. No eraser is needed for that, and no noise.

    Attributes
    ----------
    median, low, high : array of shape (D,)
        The median of each column, and what is published on either side of it: the mean of the numbers there.
    """

    median: NDArray[np.floating]
    low: NDArray[np.floating]
    high: NDArray[np.floating]

    noisy: ClassVar[bool] = False

    @property
    def width(self) -> int:
        """The number of columns."""
        return len(self.median)

    @classmethod
    def of(cls, X: NDArray) -> Bits:
        """The bits of rows like the rows X."""
        wide = X[:: -(-len(X) // _AXES_ROWS)].astype(np.float64)
        median = np.median(wide, axis=0)
        above = wide > median
        n = above.sum(axis=0)
        total, upper = wide.sum(axis=0), (wide * above).sum(axis=0)
        low, high = (total - upper) / np.maximum(len(wide) - n, 1), upper / np.maximum(n, 1)
        return cls(median, low, np.where(n > 0, high, low))

    def __call__(self, Q: NDArray, X: NDArray, secret: bytes) -> NDArray[np.floating]:
        """What is published of the rows X, in the precision of Q."""
        return np.where(self.median.astype(X.dtype) < X, self.high.astype(Q.dtype), self.low.astype(Q.dtype))


def noise_of(X: NDArray, secret: bytes, width: int) -> NDArray[np.float64]:
    """Standard Gaussian noise of shape (n, width), drawn from a keyed hash of each row.

    One row always gets the same noise, so that noise cannot be averaged away by publishing the row again. Rows are
    hashed in float32: a row gets the same noise in either precision. SHAKE-256 with the secret before the row is a
    pseudo-random function, so the noise of a row is unknown to whoever lacks the secret or the row.
    """
    rows = np.ascontiguousarray(X, np.float32) + np.float32(0)  # -0 and 0 are one number
    bits = np.empty((len(rows), width), np.uint32)
    keyed = hashlib.shake_256(secret)

    def draw(start: int) -> None:
        for i in range(start, min(start + _ROWS_AT_ONCE, len(rows))):
            stream = keyed.copy()
            stream.update(rows[i].data)
            bits[i] = np.frombuffer(stream.digest(4 * width), "<u4")

    for_each(draw, range(0, len(rows), _ROWS_AT_ONCE), resolve_threads(None))
    return ndtri((bits + 0.5) / 2.0**32)


def check_of(secret: bytes) -> str:
    """A check value that tells a wrong secret from the right one."""
    return hashlib.shake_256(b"check of a secret of mute" + secret).hexdigest(8)


def secret_bytes(secret: bytes | str) -> bytes:
    """A secret as bytes, refused if it is too short to be one."""
    given = secret.encode() if isinstance(secret, str) else secret
    if not isinstance(given, bytes) or len(given) < 16:
        raise MuteError(
            "the secret must have at least 16 bytes, drawn at random and kept: secrets.token_bytes(32); "
            f"this one is {type(secret).__name__} of {len(given) if isinstance(given, bytes) else 'another type'}"
        )
    return given
