"""RBIG: rotation-based iterative Gaussianisation of one law, the flow with a single class."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from mute.errors import MuteError
from mute.estimators.base import Estimator, digest_of_rows
from mute.estimators.settings import COUNT, COUNT_OR_NONE
from mute.flow.fitting import FlowFitter
from mute.flow.marginals import Histogram, Quantile, make_marginal
from mute.flow.rotations import make_rotation
from mute.rows.detect import come_in_blocks, to_host
from mute.rows.threads import resolve_threads
from mute.rows.validation import check_rows, check_whole_number
from mute.typing import Array, Constraints, LabelsLike, Ops, RowsLike, Seed, Value

__all__ = ["RBIG"]


class RBIG(Estimator):
    r"""Carry one law to the standard Gaussian, and use the map as a density.

    Each layer rotates the rows and then Gaussianises every coordinate. It reduces the negentropy by the sum of the
    marginal negentropies after the rotation. Any sequence of rotations that keeps mixing the coordinates converges.

    Parameters
    ----------
    n_iterations : int, default=50
        Number of layers.
    rotation : {"alternate", "global", "random", "ica"}, default="alternate"
        With one class, "alternate" and "global" are the same principal axes.
    marginal : {"quantile", "histogram"}, `Quantile` or `Histogram`, default="quantile"
    n_threads : int, optional
        All cores when None.
    random_state : int, RandomState or None

    Attributes
    ----------
    flow_ : Flow
    negentropy_ : float
        Estimated negentropy of the training law in nats: the sum of `reductions_`.
    reductions_ : array of shape (T,)
        Gain of each layer in the mean log-density of the training rows.
    fitted_on_ : dict
        The "rows", "columns" and "dtype" of the training rows, and "sha256_of_rows", their hash.

    See Also
    --------
    MUtE : The same flow for several classes, with shared rotations.
    Quantile, Histogram : The one-dimensional maps.

    Notes
    -----
    *Limits.* The density is that of the fitted map. With few training rows it is too high on the training rows and too
    low on unseen rows. Compare laws with `score` on unseen rows. All rows must fit in memory.

    References
    ----------
    V. Laparra, G. Camps-Valls, J. Malo, "Iterative Gaussianization: From ICA to Random Rotations", IEEE TNN 2011.

    Examples
    --------
    >>> import numpy as np
    >>> from mute import RBIG
    >>> rng = np.random.default_rng(0)
    >>> X = np.exp(rng.normal(size=(5000, 2)) @ [[0.5, 0.3], [0.0, 0.4]])
    >>> model = RBIG(n_iterations=20, random_state=0).fit(X)
    >>> model.transform(X).std(axis=0).round(1)
    array([1., 1.])
    >>> model.sample(3, random_state=1).shape
    (3, 2)
    """

    _parameter_constraints: ClassVar[Constraints] = {"n_iterations": COUNT, "n_threads": COUNT_OR_NONE}
    _STORED: ClassVar[dict[str, str]] = {"flow_": "flow T 1 D", "reductions_": "T as reductions"}

    def __init__(
        self,
        n_iterations: int = 50,
        *,
        rotation: str = "alternate",
        marginal: str | Histogram | Quantile = "quantile",
        n_threads: int | None = None,
        random_state: Seed = None,
    ) -> None:
        self.n_iterations = n_iterations
        self.rotation = rotation
        self.marginal = marginal
        self.n_threads = n_threads
        self.random_state = random_state

    def fit(self, X: RowsLike, y: LabelsLike = None) -> Self:
        """Fit the layers on `X` (n, D); `y` is ignored."""
        if come_in_blocks(X):
            raise MuteError("RBIG needs all rows in memory; give an array, such as X.to_numpy() or X.compute()")
        with self._all_or_nothing():
            self._check_settings()
            marginal, rotation, layers = make_marginal(self.marginal), make_rotation(self.rotation), self.n_iterations
            X = check_rows(self, X, reset=True)
            if len(X) < 2:
                raise MuteError(f"a law cannot be estimated from n_samples = {len(X)}; give at least two rows")
            fitter = FlowFitter.of(
                X, np.zeros(len(X), np.int64), max_layers=layers, rotation=rotation, marginal=marginal,
                rng=self._generator(), n_threads=resolve_threads(self.n_threads),
            )  # fmt: skip
            fitter.fit(layers, after_layer=lambda t: self._report("layer", t + 1, layers))
            self.flow_ = fitter.flow()
            self.reductions_ = self._reductions(X)
            self.negentropy_ = float(self.reductions_.sum())
            self._n_features_out = X.shape[1]
            self._remember_rows(X, digest_of_rows(X))
        return self

    def _check_settings(self) -> None:
        super()._check_settings()
        make_marginal(self.marginal)
        make_rotation(self.rotation)

    def _reductions(self, X: Array) -> NDArray[np.float64]:
        # For any law, a layer's gain in mean log-density equals its reduction of the negentropy.
        now, out = X, []
        for t in range(self.flow_.n_layers):
            after, logdet = self.flow_.layers(t, t + 1).push_with_logdet(now, 0, n_threads=self.n_threads)
            squares = [(rows.astype(np.float64) ** 2).sum(axis=1) for rows in (now, after)]
            out.append(float(np.mean(logdet + 0.5 * (squares[0] - squares[1]))))
            now = after
        return np.array(out)

    def transform(self, X: RowsLike) -> NDArray[np.floating]:
        """Map rows to the Gaussian."""
        return self._apply("transform", X)

    def _transform(self, X: Array) -> NDArray[np.floating]:
        return self.flow_.push(X, 0, n_threads=self.n_threads)

    def _transform_with(self, ops: Ops, x: Value) -> Value:
        return ops.flow_module(self.flow_).push(x, 0)

    def inverse_transform(self, Q: RowsLike) -> NDArray[np.floating]:
        """Undo `transform`."""
        return self._apply("inverse_transform", Q, erased=True)

    def _inverse_transform(self, Q: Array) -> NDArray[np.floating]:
        return self.flow_.pull(Q, 0, n_threads=self.n_threads)

    def _inverse_transform_with(self, ops: Ops, q: Value) -> Value:
        return ops.flow_module(self.flow_).pull(q, 0)

    def score_samples(self, X: RowsLike) -> NDArray[np.float64]:
        """Log-density of each row, in nats."""
        return self._apply("score_samples", to_host(X), one_each=True)

    def _score_samples(self, X: Array) -> NDArray[np.float64]:
        q, logdet = self.flow_.push_with_logdet(X, 0, n_threads=self.n_threads)
        return logdet - 0.5 * (q.astype(np.float64) ** 2).sum(axis=1) - 0.5 * q.shape[1] * np.log(2 * np.pi)

    def score(self, X: RowsLike, y: LabelsLike = None) -> float:
        """Mean log-density of the rows."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1, random_state: Seed = None) -> NDArray[np.floating]:
        """Draw rows from the fitted law."""
        check_is_fitted(self)
        check_whole_number("n_samples", n_samples)
        q = check_random_state(random_state).standard_normal((n_samples, self.n_features_in_))
        return self.flow_.pull(q.astype(self.flow_.dtype), 0, n_threads=self.n_threads)

    def _check_restored(self) -> None:
        self.negentropy_ = float(self.reductions_.sum())
