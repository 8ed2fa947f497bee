"""Methods whose map depends on the class of a row, which is given or chosen by a router."""

from __future__ import annotations

from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from mute.errors import MuteError
from mute.estimators.base import ConceptEstimator
from mute.estimators.tensors import classes_of
from mute.flow.routing import MAX_ROWS, ClassifierRouter, NetworkRouter, fit_router, stratified_sample, stratified_sizes
from mute.rows.reductions import FirstScan
from mute.rows.sampling import Samples, sample_ranks
from mute.rows.sources import refuse_iterator
from mute.rows.stores import ChunkStore

__all__ = ["Conditional", "Invertible"]


class Conditional(ConceptEstimator):
    """A method whose map depends on the class of a row, which is given or chosen by a router.

    A subclass gives ``_push(X, k)`` (erase rows of classes k) and ``_move(X, source, target)``, has a parameter
    ``router``, and calls ``_learn_router`` when it learns.
    """

    router_: Any
    routing_: Any

    def _learn_router(self, X: NDArray, z: NDArray[np.int64]) -> None:
        """Train the router that the settings ask for, if any."""
        self.router_, self.routing_ = None, None
        router = getattr(self, "router", None)
        if router is not None:
            rng = self._generator()
            rows = stratified_sample(z, MAX_ROWS, rng)
            self.router_, _, self.routing_ = fit_router(router, X[rows], z[rows], self._encoder, rng)

    def _learn_router_from(self, rows: ChunkStore, scan: FirstScan) -> None:
        """The same from rows wherever they are."""
        self.router_, self.routing_ = None, None
        router = getattr(self, "router", None)
        if router is not None:
            rng, counts = self._generator(), scan.class_counts().sum(axis=0)
            some = Samples.fetch(rows, scan, sample_ranks(counts, stratified_sizes(counts, MAX_ROWS), rng))
            self.router_, _, self.routing_ = fit_router(router, some.x, some.z, self._encoder, rng)

    def _push(self, X: NDArray, k: NDArray[np.int64]) -> NDArray[np.floating]:
        raise NotImplementedError

    def _move(self, X: NDArray, source: NDArray[np.int64], target: NDArray[np.int64]) -> NDArray[np.floating]:
        raise NotImplementedError

    def _push_with(self, ops: Any, x: Any, k: Any) -> Any:
        """`_push` as arithmetic on values of `ops` (see `mute.flow.ops`), to run elsewhere; here, if affine."""

        def work(rows: Any, c: int) -> Any:
            return self._affine_with(ops, rows, lambda X: self._push(X, np.full(len(X), c)), f"push{c}")

        return ops.by_class(work, x, k, len(self._encoder))

    def _move_with(self, ops: Any, x: Any, source: Any, target: Any) -> Any:
        """`_move` as arithmetic on values of `ops`; here, if affine."""
        n = len(self._encoder)

        def work(rows: Any, way: int) -> Any:
            i, j = divmod(way, n)
            return self._affine_with(
                ops, rows, lambda X: self._move(X, np.full(len(X), i), np.full(len(X), j)), f"move{i}_{j}"
            )

        return ops.by_class(work, x, source * n + target, n * n)

    def transform(self, X: Any, concept: Any = None) -> NDArray[np.floating]:
        """Erase the concept.

        Parameters
        ----------
        X : array-like of shape (n, D)
        concept : array-like of shape (n,), optional
            True labels. Without them the router chooses, if there is one.

        Returns
        -------
        array of shape (n, D)
            float32 for float32 input, else float64; a tensor for a torch tensor, see `mute.estimators.tensors`.
        """
        return self._apply("transform", X, concept=concept)

    def _transform(self, X: NDArray, concept: Any) -> NDArray[np.floating]:
        return self._push(X, self._class_of(X, concept))

    def _transform_with(self, ops: Any, x: Any, concept: Any) -> Any:
        return self._push_with(ops, x, self._class_with(ops, x, concept))

    def fit_transform(self, X: Any, y: Any = None, *, concept: Any = None) -> NDArray[np.floating]:  # type: ignore[override]
        """Fit, then erase the same rows: by the router, or by their labels where there is none."""
        refuse_iterator(X)
        self.fit(X, y, concept=concept)
        labels = y if concept is None else concept
        return self.transform(X, concept=labels if self.needs_concept else None)

    def counterfactual(self, X: Any, target: Any, *, concept: Any = None) -> NDArray[np.floating]:
        """What the rows would be under another value of the concept.

        Parameters
        ----------
        X : array-like of shape (n, D)
        target : label or array-like of shape (n,)
            One label for all rows, or one for each.
        concept : array-like of shape (n,), optional
            True labels. Without them the router chooses, if there is one.
        """
        return self._apply("counterfactual", X, target=target, concept=concept)

    def _counterfactual(self, X: NDArray, target: Any, concept: Any) -> NDArray[np.floating]:
        goal = self._encode_targets(target, len(X))
        return self._move(X, self._class_of(X, concept), goal)

    def _counterfactual_with(self, ops: Any, x: Any, target: Any, concept: Any) -> Any:
        goal = ops.codes(self._encode_targets(target, len(x)))
        return self._move_with(ops, x, self._class_with(ops, x, concept), goal)

    def route(self, X: Any) -> NDArray:
        """The class that the router sends each row to, one label for each row however the rows come."""
        return self._apply("route", X, one_each=True)

    def _route(self, X: NDArray) -> NDArray:
        return self.classes_[self._class_of(X, None)]

    def _route_with(self, ops: Any, x: Any) -> NDArray:
        return self.classes_[self._class_with(ops, x, None).cpu().numpy()]

    @property
    def needs_concept(self) -> bool:
        """Whether `transform` requires labels."""
        check_is_fitted(self)
        return self.router_ is None

    def without_router(self) -> Self:
        """The same maps without the router: an eraser that must always be told the class."""
        check_is_fitted(self)
        bare: Any = copy(self)
        bare.router_, bare.routing_, bare.router = None, None, None
        return bare

    def _set_router(self, classifier: Any) -> None:
        from sklearn.exceptions import NotFittedError

        if isinstance(classifier, type) or not hasattr(classifier, "predict"):
            raise MuteError(f"router must be a fitted classifier, not {classifier!r}")
        try:
            check_is_fitted(classifier)
        except NotFittedError:
            raise MuteError(f"the router {classifier!r} is not fitted; fit it on the concept's labels first") from None
        width = getattr(classifier, "n_features_in_", self.n_features_in_)
        if width != self.n_features_in_:
            raise MuteError(f"the router was fitted on {width} columns, this eraser on {self.n_features_in_}")
        self.router_ = NetworkRouter.from_classifier(classifier, self._encoder) or ClassifierRouter(
            classifier, self._encoder
        )

    def _class_with(self, ops: Any, x: Any, concept: Any) -> Any:
        """`_class_of` for tensors, as a tensor."""
        return classes_of(ops, self, x, concept)

    def _class_of(self, X: NDArray, concept: Any) -> NDArray[np.int64]:
        if concept is not None:
            return self._encode(concept, len(X), "concept")
        if self.router_ is None:
            raise MuteError(
                "this eraser has no router, so it needs one label for each row: concept= in Python, --concept on the "
                'command line; fit with router="mlp" (--router mlp) to do without'
            )
        return self.router_.predict(X)


class Invertible(Conditional):
    """A conditional method whose maps are bijections: a subclass gives ``_pull(Q, k)``, which undoes ``_push``."""

    def _pull(self, Q: NDArray, k: NDArray[np.int64]) -> NDArray[np.floating]:
        raise NotImplementedError

    def _pull_with(self, ops: Any, q: Any, k: Any) -> Any:
        """`_pull` as arithmetic on values of `ops`; here, if affine."""

        def work(rows: Any, c: int) -> Any:
            return self._affine_with(ops, rows, lambda Q: self._pull(Q, np.full(len(Q), c)), f"pull{c}")

        return ops.by_class(work, q, k, len(self._encoder))

    def inverse_transform(self, Q: Any, concept: Any = None) -> NDArray[np.floating]:
        """Undo `transform`, given the class each row was erased as.

        For rows erased without labels that is the router's choice, `route`, which need not be the true label.
        """
        check_is_fitted(self)
        if concept is None:
            raise MuteError(
                "inverse_transform needs concept=, one label for each row: the class is what was erased, so it cannot "
                "be read from the erased rows"
            )
        return self._apply("inverse_transform", Q, erased=True, concept=concept)

    def _inverse_transform(self, Q: NDArray, concept: Any) -> NDArray[np.floating]:
        return self._pull(Q, self._encode(concept, len(Q), "concept"))

    def _inverse_transform_with(self, ops: Any, q: Any, concept: Any) -> Any:
        return self._pull_with(ops, q, ops.codes(self._encode(concept, len(q), "concept")))
