"""What is audited: a fitted eraser, or rows that were erased elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.evaluation.blocks import as_rows, on_disk
from mute.rows.validation import LabelEncoder, check_finite
from mute.typing import Method

__all__ = ["Subject"]


class Subject:
    """An eraser as the audit sees it.

    `erased` has the rows that were erased elsewhere, and `eraser` is None then. With `oracle` the eraser gets true
    labels (``concept=``); by default only an eraser that requires labels does.
    """

    def __init__(self, eraser: Method, encoder: LabelEncoder, oracle: bool | None = None) -> None:
        self.encoder = encoder
        elsewhere = isinstance(eraser, np.ndarray) or on_disk(eraser)
        self.erased: Any = as_rows(eraser, "the erased array") if elsewhere else None
        self.eraser: Method = None if self.erased is not None else eraser
        if self.erased is None and (isinstance(eraser, type) or not hasattr(eraser, "transform")):
            raise MuteError(
                f"cannot audit {eraser!r}; give a fitted eraser with a transform method, or an array of erased rows"
            )
        self.oracle = bool(getattr(eraser, "needs_concept", False)) if oracle is None else oracle

    @property
    def name(self) -> str:
        return "rows erased elsewhere" if self.eraser is None else type(self.eraser).__name__

    def can(self, method: str) -> bool:
        """Whether the eraser has this method."""
        return hasattr(self.eraser, method)

    def labels(self, z: NDArray[np.int64]) -> NDArray:
        """The user's labels for these codes."""
        return self.encoder.as_array()[z]

    def _true_labels(self, z: NDArray[np.int64]) -> dict[str, NDArray]:
        return {"concept": self.labels(z)} if self.oracle else {}

    def check_erased(self, n_rows: int) -> None:
        """Refuse erased rows that do not fit the rows they were made from."""
        if self.erased.shape[0] != n_rows:
            raise MuteError(f"the erased rows have shape {self.erased.shape}, but there are {n_rows} rows in X")

    def erase(self, X: NDArray, z: NDArray[np.int64]) -> NDArray:
        """Erased rows; `z` is used only by an oracle."""
        Q = np.asarray(self.eraser.transform(X, **self._true_labels(z)))
        if Q.ndim != 2 or len(Q) != len(X):
            raise MuteError(f"{self.name}.transform gave shape {Q.shape} for {len(X)} rows; expected one row for each")
        check_finite(Q, f"what {self.name}.transform gave")
        return Q

    def counterfactual(self, X: NDArray, target: NDArray[np.int64], z: NDArray[np.int64]) -> NDArray:
        """Rows taken to the classes `target`; `z` is used only by an oracle."""
        return np.asarray(self.eraser.counterfactual(X, self.labels(target), **self._true_labels(z)))

    def erased_as(self, X: NDArray, z: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """The class each row is erased as, as its place in the eraser's ``classes_``; None where the eraser has none.

        The eraser may know classes that the audited rows do not have, and may send rows there.
        """
        if not self.can("classes_") or not (self.oracle or self.can("route")):
            return None
        labels = self.labels(z) if self.oracle else self.eraser.route(X)
        return LabelEncoder(self.eraser.classes_.tolist()).encode(np.asarray(labels, object), "the rows")
