"""What all estimators built on a flow share."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.callback import CallbackSupportMixin
from sklearn.utils import Tags

from mute.flow import BLOCK_ROWS
from mute.io import save

__all__ = ["FlowEstimator", "digest_of_rows"]


def digest_of_rows(X: NDArray) -> str:
    """A hash that tells whether two matrices are the same, to the bit."""
    digest = hashlib.sha256()
    for start in range(0, len(X), BLOCK_ROWS):
        digest.update(X[start : start + BLOCK_ROWS].tobytes())
    return digest.hexdigest()


class FlowEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, CallbackSupportMixin, BaseEstimator):
    """A transformer that keeps width and precision, reports progress by callbacks and can be stored."""

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator to one safetensors file; `mute.load` reads it back."""
        save(self, path)

    def _remember_rows(self, X: NDArray, **more: Any) -> None:
        """Keep for the file what the estimator was fitted on: shape, precision and a hash of the rows."""
        self._fitted_on = {
            "rows": len(X),
            "columns": X.shape[1],
            "dtype": X.dtype.name,
            "sha256_of_rows": digest_of_rows(X),
            **more,
        }

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Undo a fit that fails or is interrupted: what was fitted before stays as it was."""
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            # Callbacks have their own state here, which scikit-learn tears down itself.
            kept = {n: v for n, v in self.__dict__.items() if n.startswith(("_callback", "_skl"))}
            self.__dict__ = before | kept
            raise

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
