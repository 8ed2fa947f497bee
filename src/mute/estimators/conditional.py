"""Methods whose map depends on the class of a row, from a true label or from a router."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from typing import Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from mute.errors import MuteError
from mute.estimators.base import ConceptEstimator
from mute.estimators.tensors import check_router
from mute.flow.routing import MAX_ROWS, fit_router, router_of, stratified_sample, stratified_sizes
from mute.rows.reductions import FirstScan
from mute.rows.sampling import Samples, sample_ranks
from mute.rows.sources import refuse_iterator
from mute.rows.stores import ChunkStore
from mute.typing import Classifier, LabelsLike, Ops, RowsLike, Value

__all__ = ["Conditional", "Invertible"]


class Conditional(ConceptEstimator):
    """A method whose map depends on the class of a row, from a true label or from a router.

    A subclass defines ``_push(X, k)``, which erases rows of classes k, and ``_move(X, source, target)``. It has a
    parameter ``router`` and calls ``_learn_router`` in its fit.
    """

    router: Classifier = None

    def _learn_router(self, X: NDArray, z: NDArray[np.int64]) -> None:
        """Train the router of the settings, if there is one."""
        self.router_, self.routing_ = None, None
        if self.router is not None:
            rng = self._generator()
            rows = stratified_sample(z, MAX_ROWS, rng)
            self.router_, _, self.routing_ = fit_router(self.router, X[rows], z[rows], self._encoder, rng)

    def _learn_router_from(self, rows: ChunkStore, scan: FirstScan) -> None:
        """`_learn_router` for a store of rows."""
        self.router_, self.routing_ = None, None
        if self.router is not None:
            rng, counts = self._generator(), scan.class_counts().sum(axis=0)
            some = Samples.fetch(rows, scan, sample_ranks(counts, stratified_sizes(counts, MAX_ROWS), rng))
            self.router_, _, self.routing_ = fit_router(self.router, some.x, some.z, self._encoder, rng)

    def _push(self, X: NDArray, k: NDArray[np.int64]) -> NDArray[np.floating]:
        raise NotImplementedError

    def _move(self, X: NDArray, source: NDArray[np.int64], target: NDArray[np.int64]) -> NDArray[np.floating]:
        raise NotImplementedError

    def _trial_outputs(self, X: NDArray) -> Iterator[NDArray]:
        k = np.arange(len(X)) % len(self._encoder)
        yield self._push(X, k)
        yield self._move(X, k, np.roll(k, 1))
        if self.router_ is not None:
            yield self.router_.predict_proba(X)

    def push_with(self, ops: Ops, x: Value, k: Value) -> Value:
        """`_push` in the operations of `ops` (see `mute.flow.ops`); this default requires affine maps."""
        return self._by_class_with(ops, x, k, self._push, "push")

    def move_with(self, ops: Ops, x: Value, source: Value, target: Value) -> Value:
        """`_move` in the operations of `ops`; this default requires affine maps."""
        n = len(self._encoder)

        def work(rows: Value, way: int) -> Value:
            i, j = divmod(way, n)
            return self._affine_with(
                ops, rows, lambda X: self._move(X, np.full(len(X), i), np.full(len(X), j)), f"move{i}_{j}"
            )

        return ops.by_class(work, x, source * n + target, n * n)

    def _by_class_with(self, ops: Ops, x: Value, k: Value, run: Callable[..., NDArray], name: str) -> Value:
        """``run(X, k)``, affine within each class, in the operations of `ops`."""

        def work(rows: Value, c: int) -> Value:
            return self._affine_with(ops, rows, lambda X: run(X, np.full(len(X), c)), f"{name}{c}")

        return ops.by_class(work, x, k, len(self._encoder))

    def _transform(self, X: NDArray, concept: LabelsLike) -> NDArray[np.floating]:
        return self._push(X, self._class_of(X, concept))

    def _transform_with(self, ops: Ops, x: Value, concept: LabelsLike) -> Value:
        return self.push_with(ops, x, self.class_with(ops, x, concept))

    def fit_transform(self, X: RowsLike, y: LabelsLike = None, *, concept: LabelsLike = None) -> NDArray[np.floating]:  # type: ignore[override]
        """Fit, then erase the training rows: routed, or with true labels if there is no router."""
        refuse_iterator(X)
        self.fit(X, y, concept=concept)
        labels = y if concept is None else concept
        return self.transform(X, concept=labels if self.needs_concept else None)

    def counterfactual(self, X: RowsLike, target: LabelsLike, *, concept: LabelsLike = None) -> NDArray[np.floating]:
        """The rows under another class.

        Parameters
        ----------
        X : array-like of shape (n, D)
        target : label or array-like of shape (n,)
            One label for all rows, or one for each row.
        concept : array-like of shape (n,), optional
            True labels. Without them the rows are routed; an eraser without a router requires labels.
        """
        return self._apply("counterfactual", X, target=target, concept=concept)

    def _counterfactual(self, X: NDArray, target: LabelsLike, concept: LabelsLike) -> NDArray[np.floating]:
        goal = self._encode_targets(target, len(X))
        return self._move(X, self._class_of(X, concept), goal)

    def _counterfactual_with(self, ops: Ops, x: Value, target: Value, concept: LabelsLike) -> Value:
        goal = ops.codes(self._encode_targets(target, len(x)))
        return self.move_with(ops, x, self.class_with(ops, x, concept), goal)

    def route(self, X: RowsLike) -> NDArray:
        """The router's class of each row, as an array of labels for any kind of rows."""
        return self._apply("route", X, one_each=True)

    def _route(self, X: NDArray) -> NDArray:
        return self.classes_[self._class_of(X, None)]

    def _route_with(self, ops: Ops, x: Value) -> NDArray:
        return self.classes_[self.class_with(ops, x, None).cpu().numpy()]

    @property
    def needs_concept(self) -> bool:
        """Whether `transform` requires labels."""
        check_is_fitted(self)
        return self.router_ is None

    def without_router(self) -> Self:
        """A copy without the router, which requires labels."""
        check_is_fitted(self)
        bare = copy(self)
        bare.router_, bare.routing_, bare.router = None, None, None
        return bare

    def _set_router(self, classifier: Classifier) -> None:
        from sklearn.exceptions import NotFittedError

        if isinstance(classifier, type) or not hasattr(classifier, "predict"):
            raise MuteError(f"router must be a fitted classifier, not {classifier!r}")
        try:
            check_is_fitted(classifier)
        except NotFittedError:
            raise MuteError(f"the router {classifier!r} is not fitted; fit it on the concept's labels first") from None
        width = getattr(classifier, "n_features_in_", self.n_features_in_)
        if width != self.n_features_in_:
            raise MuteError(f"the router was fitted on {width} columns, but this eraser on {self.n_features_in_}")
        self.router_ = router_of(classifier, self._encoder)

    def class_with(self, ops: Ops, x: Value, concept: LabelsLike) -> Value:
        """Encoded class of each row as a tensor: from the true labels, or else from the router."""
        if concept is not None or self.router_ is None:
            return ops.codes(self._class_of(x, concept))
        check_router(self)
        return ops.argmax(self.router_.run_with(ops, x.detach(), "router"))

    def _class_of(self, X: NDArray, concept: LabelsLike) -> NDArray[np.int64]:
        if concept is not None:
            return self._encode(concept, len(X), "concept")
        if self.router_ is None:
            raise MuteError(
                "this eraser has no router, so it needs one label for each row: concept= in Python, --concept on the "
                'command line; fit with router="mlp" (--router mlp) to erase without labels'
            )
        return self.router_.predict(X)


class Invertible(Conditional):
    """A conditional method whose maps are bijections; a subclass defines ``_pull(Q, k)``, which undoes ``_push``."""

    def _pull(self, Q: NDArray, k: NDArray[np.int64]) -> NDArray[np.floating]:
        raise NotImplementedError

    def pull_with(self, ops: Ops, q: Value, k: Value) -> Value:
        """`_pull` in the operations of `ops`; this default requires affine maps."""
        return self._by_class_with(ops, q, k, self._pull, "pull")

    def _trial_outputs(self, X: NDArray) -> Iterator[NDArray]:
        yield from super()._trial_outputs(X)
        yield self._pull(X, np.arange(len(X)) % len(self._encoder))

    def inverse_transform(self, Q: RowsLike, concept: LabelsLike = None) -> NDArray[np.floating]:
        """Undo `transform`; `concept` is the class whose map erased each row.

        For routed rows, this is the router's class (`route`), which may differ from the true label.
        """
        check_is_fitted(self)
        if concept is None:
            raise MuteError(
                "inverse_transform needs concept=, one label for each row, because the class is what was erased; give "
                "the true labels, or eraser.route(X) of the original rows if they were routed"
            )
        return self._apply("inverse_transform", Q, erased=True, concept=concept)

    def _inverse_transform(self, Q: NDArray, concept: LabelsLike) -> NDArray[np.floating]:
        return self._pull(Q, self._encode(concept, len(Q), "concept"))

    def _inverse_transform_with(self, ops: Ops, q: Value, concept: LabelsLike) -> Value:
        return self.pull_with(ops, q, ops.codes(self._encode(concept, len(q), "concept")))
