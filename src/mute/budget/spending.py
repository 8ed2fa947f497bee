"""What an eraser with a leak budget has: the search before its fit, the channel after it, and its secret."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from mute.adversaries.estimates import Estimate
from mute.budget.channel import ONE_BIT, SECRET_BYTES, Axes, Bits, Channel, check_of, secret_bytes
from mute.budget.search import Fit, Point, check_rows_suffice, search, trials_of
from mute.errors import MuteError, WeakResultWarning
from mute.estimators.state import LARGEST_ROW, TRIAL_ROWS, check_array
from mute.rows.validation import LabelEncoder, check_length, check_whole_number, label_array
from mute.typing import Array, Json, LabelsLike, Method

__all__ = ["Spending", "erased_rows", "group_codes"]

# Steps of a search that reports its progress: two fits, and at most so many channels.
_STEPS = 23


class Spending:
    """An eraser with a leak budget: a mixin of `Estimator`.

    Attributes
    ----------
    channel_ : Channel, Bits or None
        What is lost after the eraser; None if nothing is.
    leak_ : Estimate or None
        The leak to the strongest adversary of the panel on folds of the training rows, with its interval.
    r2_ : float or None
        Share of the variance of the rows that a linear reader reads back there.
    budget_ : dict or None
        What was spent, on what: `max_leak`, the `family` of the channel, the `share` of worth it keeps, and all points
        that were `judged`.
    """

    max_leak: float | None
    channel_: Channel | Bits | None
    leak_: Estimate | None
    r2_: float | None
    budget_: Json | None
    _secret: bytes | None
    _secret_in_file: bool
    _check: str | None
    # These come from `Estimator`.
    _generator: Callable[[], np.random.Generator]
    _report: Callable[[str, int, int], bool]

    def _spend_nothing(self) -> None:
        self.channel_ = self.leak_ = self.r2_ = self.budget_ = self._secret = None
        self._secret_in_file, self._check = True, None

    def _search_budget(
        self,
        fit: Fit,
        X: Array,
        z: NDArray[np.int64],
        labels: Array,
        groups: NDArray[np.int64] | None,
        secret: bytes | str | None,
    ) -> Point:
        """The channel to use, from folds of the training rows: codes `z` and the `labels` of the codes."""
        self._given_secret = None if secret is None else secret_bytes(secret)
        rng, done = self._generator(), 0

        def step() -> None:
            nonlocal done
            done = min(done + 1, _STEPS - 1)
            if self._report("budget", done, _STEPS):
                raise MuteError("the fit was stopped before its leak budget was settled; nothing was fitted")

        max_leak = float(self.max_leak or 0.0)
        check_rows_suffice(len(z), len(labels), max_leak)
        with warnings.catch_warnings():  # the fit on all rows warns of what matters
            warnings.simplefilter("ignore", WeakResultWarning)
            trials = trials_of(fit, lambda e, rows, k: erased_rows(e, rows, labels[k]), X, z, groups, rng, step)
        point, judged = search(trials, len(labels), max_leak, rng.bytes(SECRET_BYTES), int(rng.integers(2**31)), step)
        self._report("budget", _STEPS, _STEPS)
        self.leak_, self.r2_ = point.leak, point.r2
        self.budget_ = {
            "max_leak": max_leak, "rows": sum(len(t.z) for t in trials), **point.to_json(),
            "judged": [p.to_json() for p in judged],
        }  # fmt: skip
        return point

    def _open_channel(self, point: Point, Q: Array, X: Array, sha256: str) -> None:
        """Fit the channel of `point` to the erased training rows Q of X, and set its secret."""
        if point.family == ONE_BIT:
            self.channel_ = Bits.of(X)
        else:
            self.channel_ = None if point.share >= 1 else Axes.of(Q, X).channel(point.family, point.share)
        self._secret = self.__dict__.pop("_given_secret", None)
        self._secret_in_file = self._secret is None
        if self._secret is None:
            # It follows from the seed and the training rows: a fit is repeatable, and the seed alone tells nothing.
            drawn = self._generator().bytes(SECRET_BYTES) + sha256.encode()
            self._secret = hashlib.shake_256(drawn).digest(SECRET_BYTES)
        self._check = check_of(self._secret)

    def _publish(self, Q: Array, X: Array) -> Array:
        """What is published of erased rows Q of the rows X."""
        if self.channel_ is None:
            return Q
        if self._secret is None and self.channel_.noisy:
            raise MuteError(
                "this model was saved without its secret, so it cannot draw the noise of its rows; "
                "give the secret of the fit: mute.load(path, secret=...), --secret FILE on the command line"
            )
        return self.channel_(Q, X, self._secret or b"")

    def _budget_state(self) -> tuple[dict[str, NDArray], Json | None]:
        """Arrays and plain state for a file."""
        if self.budget_ is None:
            return {}, None
        # A model that was loaded without its secret keeps the check of it.
        state = {**self.budget_, "secret": None, "check": self._check, "channel": self.channel_ is not None}
        if self._secret is not None and self._secret_in_file:
            state["secret"] = self._secret.hex()
        if self.channel_ is None:
            return {}, state
        return {f"channel.{name}": array for name, array in vars(self.channel_).items()}, state

    def _restore_budget(self, tensors: dict[str, NDArray], state: Json | None) -> None:
        """Set the attributes from the parts of a file, checked."""
        self._spend_nothing()
        if state is None:
            return
        point, max_leak, secret = Point.from_json(state), state["max_leak"], state["secret"]
        if not isinstance(max_leak, float) or not 0 < max_leak < 1:
            raise MuteError("its leak budget is not a number between 0 and 1")
        check_whole_number("the rows of its leak budget", state["rows"])
        if not isinstance(state["judged"], list) or not isinstance(state["channel"], bool):
            raise MuteError("its leak budget is not a record of one")
        judged = [Point.from_json(p) for p in state["judged"]]
        self._secret_in_file, self._check = secret is not None, str(state["check"])
        if state["channel"]:
            kind = Bits if point.family == ONE_BIT else Channel
            parts = {field.name: tensors[f"channel.{field.name}"] for field in fields(kind)}
            self.channel_ = kind(**parts)
            _check_channel(self.channel_)
        self.leak_, self.r2_ = point.leak, point.r2
        self.budget_ = {
            "max_leak": max_leak, "rows": state["rows"], **point.to_json(), "judged": [p.to_json() for p in judged],
        }  # fmt: skip
        if secret is not None:
            self.set_secret(bytes.fromhex(secret))

    def set_secret(self, secret: bytes | str) -> None:
        """Give a model that was saved without its secret the secret of its fit."""
        if self.budget_ is None:
            raise MuteError("this model has no leak budget and no secret; load it without secret=")
        given = secret_bytes(secret)
        if self._check != check_of(given):
            raise MuteError("this is not the secret that the model was fitted with; give that secret")
        self._secret = given


def _check_channel(channel: Channel | Bits) -> None:
    parts = vars(channel)
    if isinstance(channel, Bits):
        if channel.median.ndim != 1 or len({a.shape for a in parts.values()}) != 1:
            raise MuteError("the arrays of its channel do not fit together")
        return
    read, write, kept = parts["read"], parts["write"], parts["kept"]
    if kept.ndim != 1 or read.shape[1:] != kept.shape or write.shape[::-1] != read.shape:
        raise MuteError("the arrays of its channel do not fit together")
    if parts["mean"].shape != read.shape[:1] or ((kept < 0) | (kept > 1)).any():
        raise MuteError("its channel keeps shares that are not between 0 and 1, or does not fit its columns")
    if not np.allclose(write @ read, np.eye(len(kept)), atol=1e-6):
        raise MuteError("the two ways of its channel do not undo each other")
    rng = np.random.default_rng()
    erased = parts["mean"] + rng.standard_normal((TRIAL_ROWS, len(kept))) @ write
    for rows in (erased, rng.standard_normal(erased.shape)):
        with np.errstate(all="ignore"):
            published = channel(rows.astype(np.float32), rows, b"trial")
        check_array("what its channel publishes", published, LARGEST_ROW)


def erased_rows(eraser: Method, X: Array, labels: Array) -> Array:
    """Erased rows: with true labels only if the eraser requires them."""
    needs = bool(getattr(eraser, "needs_concept", False))
    return np.asarray(eraser.transform(X, concept=labels) if needs else eraser.transform(X))


def group_codes(groups: LabelsLike, n_rows: int) -> NDArray[np.int64] | None:
    """Groups as codes, one for each row; None where there are none."""
    if groups is None:
        return None
    array = label_array(groups, "groups")
    check_length(array, n_rows, "groups")
    return LabelEncoder.fit(array)[1]
