"""Methods that are moments only: fitted at once, or block by block."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.estimators.base import ConceptEstimator
from mute.estimators.conditional import Conditional
from mute.estimators.moments import Moments
from mute.rows.chunks import RawChunk, Reduction
from mute.rows.reductions import FirstScan
from mute.rows.stores import ChunkStore
from mute.rows.validation import LabelEncoder, check_rows, concept_of, concept_values

__all__ = ["Streaming"]


class MomentSums(Reduction):
    """The moments of raw chunks."""

    def __init__(self, moments: Moments) -> None:
        self.moments = moments

    def add(self, chunk: RawChunk) -> None:
        self.moments.add(chunk.x, chunk.z.astype(np.int64))

    def merge(self, other: MomentSums) -> None:
        self.moments = self.moments.merged(other.moments)


class Streaming(ConceptEstimator):
    """A method whose map follows from moments: a subclass gives ``_solve``, which sets what `_STORED` lists.

    After `partial_fit` the map is solved for when it is first needed, not after every block.
    """

    fits_on_blocks = True
    _SCATTER: ClassVar[str | None] = None  # which scatter matrices `Moments` gathers

    moments_: Moments

    def _solve(self) -> None:
        raise NotImplementedError

    def _learn(self, X: NDArray, z: NDArray) -> None:
        self.moments_ = self._gather(X, z)
        self._solve()

    def _learn_from(self, rows: ChunkStore, scan: FirstScan) -> None:
        """Learn from rows wherever they are."""
        totals = MomentSums(Moments(len(self._encoder), rows.n_features, self._SCATTER))
        self.moments_ = rows.reduce(totals).moments
        self._solve()
        if isinstance(self, Conditional):
            self._learn_router_from(rows, scan)

    def _gather(self, X: NDArray, z: NDArray) -> Moments:
        """The moments of these rows."""
        moments = Moments(len(self._encoder), X.shape[1], self._SCATTER)
        moments.add(X, z)
        return moments

    def partial_fit(self, X: Any, y: Any = None, *, concept: Any = None) -> Self:
        """Take in another block of rows, as if all had been given to `fit` at once.

        A router is not fitted block by block: without one from an earlier `fit`, labels must be given to transform.

        Parameters
        ----------
        X : array-like of shape (n, D)
        y : array-like of shape (n,), optional
            The concept's labels, unless `concept` is given. New classes may appear in any block.
        concept : array-like of shape (n,), optional
            The concept's labels where `y` is another label.
        """
        with self._all_or_nothing():
            self._check_settings()
            first = not hasattr(self, "n_features_in_")
            if not first and "moments_" not in vars(self):
                raise MuteError("this model was loaded from a file, which does not hold its moments; fit it anew")
            X = check_rows(self, X, reset=first)
            self._take_in(X, y, concept, first)
            for name in self._STORED:
                self.__dict__.pop(name, None)
            if first and isinstance(self, Conditional):
                self.router_, self.routing_ = None, None
            self._n_features_out = X.shape[1]
            counts = self.moments_.counts.astype(int).tolist()
            self.fitted_on_ = {"rows": sum(counts), "columns": X.shape[1], "dtype": X.dtype.name}
            if hasattr(self, "classes_"):
                self.fitted_on_["class_rows"] = counts
        return self

    def _take_in(self, X: NDArray, y: Any, concept: Any, first: bool) -> None:
        if self._continuous():
            new = self._gather(X, concept_values(len(X), y, concept))
            self.moments_ = new if first else self.moments_.merged(new)
            return
        labels = concept_of(len(X), y, concept)
        known = () if first else self._encoder.classes
        both = np.empty(len(labels) + len(known), object)
        both[:] = [*labels, *known]
        self._encoder, codes = LabelEncoder.fit(both)
        self.classes_ = self._encoder.as_array()
        new = self._gather(X, codes[: len(labels)])
        self.moments_ = new if first else self.moments_.spread(codes[len(labels) :], len(self._encoder)).merged(new)

    def __getattr__(self, name: str) -> Any:
        # Only asked for what is not there: after `partial_fit`, the map.
        if name not in type(self)._STORED or "moments_" not in vars(self):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if "classes_" in vars(self) and len(self.classes_) < 2:
            raise MuteError(f"so far only one class was seen, {self._encoder.classes[0]!r}; go on with rows of another")
        self._solve()
        return vars(self)[name]
