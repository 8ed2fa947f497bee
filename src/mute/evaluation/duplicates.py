"""Copies across the audit's cuts: an adversary that has learned from a copy of a row knows the row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Duplicates", "find_duplicates"]

_MOST_ASKED = 2000
# Cosine distance of centred rows. In fewer columns rows without any relation come so near.
_NEAR, _FEWEST_COLUMNS = 1e-3, 20


@dataclass(frozen=True)
class Duplicates:
    """Rows with a copy on another side of a cut: exact copies among all rows, near copies among those `asked`."""

    exact: int
    near: int
    asked: int

    @property
    def sentence(self) -> str | None:
        """What was found and what to do about it; None where nothing was."""
        parts = []
        if self.exact:
            parts.append(f"{self.exact:,} row(s) have an exact copy")
        if self.near:
            parts.append(f"{self.near:,} of {self.asked:,} rows looked at have a near copy")
        if not parts:
            return None
        return (
            f"{' and '.join(parts)} on another side of the audit's cuts, so that adversaries may know rows instead of "
            "the concept; give the source of each row as groups= (--groups), or drop the copies"
        )


def find_duplicates(X: NDArray, folds: NDArray[np.int64], rng: np.random.Generator) -> Duplicates:
    """Count copies of rows in other folds; near copies are sought for 2,000 rows among all."""
    _, same, counts = np.unique(X, axis=0, return_inverse=True, return_counts=True)
    same = same.reshape(-1)
    here = np.zeros((len(counts), folds.max() + 1), np.int64)
    np.add.at(here, (same, folds), 1)
    copied = counts[same] > here[same, folds]
    if X.shape[1] < _FEWEST_COLUMNS:
        return Duplicates(int(copied.sum()), 0, 0)
    rows = X - X.mean(axis=0, dtype=np.float64)
    unit = (rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30)).astype(np.float32)
    asked = rng.permutation(len(X))[:_MOST_ASKED]
    near = np.zeros(len(asked), bool)
    for fold in range(folds.max() + 1):
        mine = folds[asked] == fold
        if mine.any():
            near[mine] = (unit[asked[mine]] @ unit[folds != fold].T).max(axis=1) > 1 - _NEAR
    return Duplicates(int(copied.sum()), int((near & ~copied[asked]).sum()), len(asked))
