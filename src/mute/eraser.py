"""MUtE: erase a concept from embeddings, or compute an embedding's counterfactual under another class."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from mute.adversaries.cells import Cells, learn_cells
from mute.budget.spending import Spending, group_codes
from mute.errors import MuteError, warn_weak_result
from mute.estimators.conditional import Invertible
from mute.estimators.settings import BETWEEN_0_AND_1, COUNT, COUNT_OR_NONE, FLAG, at_least, one_of
from mute.estimators.state import plain_parameters
from mute.flow.checkpoints import Checkpoint
from mute.flow.diagnostics import Diagnostics, diagnose, rows_followed
from mute.flow.fitting import FlowFitter
from mute.flow.flow import BLOCK_ROWS
from mute.flow.marginals import Histogram, Quantile, make_marginal
from mute.flow.rotations import Rotation, make_rotation
from mute.flow.routing import MAX_ROWS as MAX_ROUTED
from mute.flow.routing import fit_router, margins, stratified_sample, stratified_sizes
from mute.flow.stopping import MAX_HELD_OUT, EarlyStopping, HeldOut, StopOnNoGain, StoppingRule
from mute.flow.whitening import as_by_chance
from mute.rows.detect import come_in_blocks
from mute.rows.maps import Routes
from mute.rows.reductions import FirstScan
from mute.rows.sampling import Samples, sample_ranks
from mute.rows.sources import in_memory
from mute.rows.stores import ChunkStore, open_store
from mute.rows.threads import resolve_threads
from mute.rows.validation import check_rows, check_whole_number, concept_of, warn_of_few_rows
from mute.typing import Array, Classifier, Constraints, Json, LabelsLike, Ops, RowsLike, Seed, Value

__all__ = ["Flags", "MUtE"]

# With fewer rows in the smallest class, an adversary on held-out rows cannot be distinguished from chance.
_FEWEST_FOR_AUTO = 100
_FALLBACK_ITERATIONS = 10


@dataclass(frozen=True, eq=False)
class Flags:
    """Rows that deserve a check, as arrays of shape (n,).

    Attributes
    ----------
    out_of_range : bool array
        The row lies outside the range of its class's training rows by more than a tenth of that range, in some
        direction of the first layer.
    low_margin : bool array
        `margin` is below the threshold, so the row may take the map of a wrong class.
    margin : float array
        Probability of the router's first choice minus that of its second. It is 1 with true labels and NaN if the
        router has no probabilities.
    """

    out_of_range: NDArray[np.bool_]
    low_margin: NDArray[np.bool_]
    margin: NDArray[np.float64]


class MUtE(Spending, Invertible):
    r"""Maximum utility-preserving erasure of a discrete concept, and its dual counterfactuals.

    A flow carries the law of every class to one shared Gaussian: :math:`f(x) = f_{\eta(x)}(x)`. Each layer is a
    rotation that all classes share, followed by invertible maps of single coordinates, one for each class. The router
    :math:`\eta` chooses the class of a row. With true labels in its place, the method is the paper's MUtE*. The same
    maps run backwards under another class give counterfactuals, :math:`f_j^{-1}(f(x))`.

    Parameters
    ----------
    n_iterations : int or "auto", default="auto"
        Number of layers, or "auto" to stop when a new layer no longer separates the classes. `shrinkage` uses the first
        K + 1 layers. Without `shrinkage`, or with `Histogram`, "auto" measures the leak on held-out rows after some of
        the layers, and keeps the number of layers with the least leak.
    max_iterations : int, default=100
        The most layers that "auto" tries.
    router : {"mlp", "logistic"}, classifier or None, default="mlp"
        Chooses the class of a row without a label. It may be any scikit-learn classifier; wrap a fitted one in
        `sklearn.frozen.FrozenEstimator`. An eraser with None has no router and requires labels.
    shrinkage : bool, default=True
        Let the classes share every estimate in which they do not differ beyond chance. This lowers the leak on unseen
        rows. All classes share the first layer; their covariances are estimated by cross-validation; their marginals
        shrink towards the common ones. With False each class is estimated alone, as in the paper.
    rotation : {"auto", "alternate", "global", "random", "ica"}, default="auto"
        "alternate" takes the principal axes of one class after the other (the paper), "global" those of all rows,
        "random" a Haar-random rotation, "ica" orthogonal independent components. "auto" means "random" with
        `shrinkage`, for the layers after the first K + 1, and "alternate" without.
    marginal : {"quantile", "histogram"}, `Quantile` or `Histogram`, default="quantile"
        How the one-dimensional maps are fitted. ``Histogram(bins=1000, alpha=1e-10, floor="add")`` is the paper's.
        Histograms are never shrunk.
    keep_norm : bool, default=False
        Give every counterfactual the norm of its row, as most sentence encoders put their rows on the unit sphere.
    validation_fraction : float, default=0.2
        Share of the rows that "auto" sets aside as held-out rows.
    max_leak : float, optional
        The leak budget: balanced accuracy above chance of the strongest adversary on unseen rows. Noise after the
        lossless flow, as little as keeps the budget, is chosen on folds of the training rows. `transform` adds it;
        `inverse_transform` and `counterfactual` use the lossless flow. None adds no noise.
    cells : int, optional
        Publish, in place of an erased row, the centre of its cell, one of so many. `mute.certify` then bounds every
        adversary whatever. Most of the row is lost; not together with `max_leak`.
    diagnostics : bool, default=True
        Follow a sample of rows through the layers after the fit and keep `diagnostics_`.
    scratch : "auto", folder or None, default="auto"
        Folder for a temporary file with the rows between two layers; None keeps them in memory. "auto" uses a file for
        rows from files (a memory map, `mute.open_matrix`, blocks) if a copy takes more than half of the free memory.
    resume : folder, optional
        Keep every finished layer in this folder. If the same fit was interrupted, it continues from the layers there.
    n_threads : int, optional
        All cores when None.
    random_state : int, RandomState or None
        Two fits with the same int give the same eraser.

    Attributes
    ----------
    classes_ : array of shape (K,)
        The labels.
    flow_ : Flow
        The maps.
    router_ : object or None
        Predicts the encoded class of each row.
    n_iterations_ : int
        Number of layers.
    routing_ : RoutingReport or None
        Errors of the router on rows it has not learned from.
    diagnostics_ : Diagnostics or None
        Negentropy and routing penalty of each class and layer.
    stopping_ : StopOnNoGain, EarlyStopping or None
        The record of "auto": differences between the classes at each layer, or the leak on held-out rows.
    channel_, leak_, r2_, budget_
        With `max_leak`: the noise after the flow (`mute.budget.channel.Channel`; None where the flow alone keeps the
        budget), the leak on folds of the training rows with its interval, the share of variance a linear reader reads
        back there, and what was spent on what. None without `max_leak`.
    cells_ : Cells or None
        With `cells`: the cells whose centres are published.
    fitted_on_ : dict
        The "rows", "columns" and "dtype" of the training rows; "sha256_of_rows", their hash; "class_rows", the number
        of rows of each class in the order of `classes_`; "unlabelled", the number of `unlabelled` rows, if given.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    See Also
    --------
    RBIG : The same flow for a single law, as a density.
    LEACE : Linear erasure, for adversaries that are linear.
    MLPSurrogate : A network that copies a fitted MUtE.
    mute.load : Reads a saved eraser.

    Notes
    -----
    *Guarantees.* Given the class, the map is a bijection of all of :math:`R^D`. ``inverse_transform`` undoes
    ``transform`` on any row, even far outside the range of the training rows. On the training rows, all classes have
    the same law, up to what T layers leave.

    *Limits.* Unseen rows leak the estimation noise of the class-conditional maps, about D²/n_k. A warning is given
    below 20·D rows in the smallest class. A row that the router sends to the wrong class takes the wrong map. An eraser
    with a router is fitted on routed rows; if the router errs often and you have true labels, use ``router=None``.
    Outputs are Gaussian and do not lie on the sphere. Downstream models must be trained on erased rows.

    *Cost.* T matrix products of (n, D) with (D, D); a fit also takes T eigendecompositions.

    References
    ----------
    A. Saillenfest, "MUtE: A Dual Framework for Concept Erasure and Counterfactual Interventions".

    Examples
    --------
    >>> import numpy as np
    >>> from mute import MUtE
    >>> rng = np.random.default_rng(0)
    >>> z = np.repeat(["a", "b"], 1000)
    >>> X = rng.normal(size=(2000, 3)) + 4 * (z == "b")[:, None]
    >>> eraser = MUtE(n_iterations=5, random_state=0).fit(X, z)
    >>> Q = eraser.transform(X, concept=z)
    >>> bool(abs(Q[z == "a"].mean(axis=0) - Q[z == "b"].mean(axis=0)).max() < 0.02)
    True
    >>> bool(np.allclose(eraser.inverse_transform(Q, concept=z), X))
    True
    >>> eraser.counterfactual(X[:1], "b", concept=["a"]).shape
    (1, 3)
    """

    fits_on_blocks = True
    cells_: Cells | None
    _parameter_constraints: ClassVar[Constraints] = {
        "n_iterations": [*COUNT, *one_of("auto")],
        "max_iterations": COUNT,
        **dict.fromkeys(("shrinkage", "keep_norm", "diagnostics"), FLAG),
        "validation_fraction": BETWEEN_0_AND_1,
        "max_leak": [*BETWEEN_0_AND_1, None],
        "cells": [*at_least(2), None],
        "n_threads": COUNT_OR_NONE,
    }
    PRESETS: ClassVar[dict[str, Json]] = {
        f"paper-{data}": {
            "n_iterations": layers,
            "shrinkage": False,
            "rotation": "alternate",
            "marginal": Histogram(bins=1000, alpha=1e-10, floor="add"),
        }
        for data, layers in {"glove": 100, "bios": 70, "dial": 150, "jigsaw": 150, "synthetic": 20, "text": 4}.items()
    }

    # `fitted_on_` is listed because files of MUtE have it last.
    _STORED: ClassVar[dict[str, str]] = {
        "flow_": "flow T K D",
        "_support": "2 K D as support",
        "router_": "router",
        "diagnostics_": "diagnostics",
        "stopping_": "stopping",
        "fitted_on_": "plain as fitted_on",
    }

    def __init__(
        self,
        n_iterations: int | str = "auto",
        *,
        max_iterations: int = 100,
        router: Classifier = "mlp",
        shrinkage: bool = True,
        rotation: str = "auto",
        marginal: str | Histogram | Quantile = "quantile",
        keep_norm: bool = False,
        validation_fraction: float = 0.2,
        max_leak: float | None = None,
        cells: int | None = None,
        diagnostics: bool = True,
        scratch: str | Path | None = "auto",
        resume: str | Path | None = None,
        n_threads: int | None = None,
        random_state: Seed = None,
    ) -> None:
        self.n_iterations = n_iterations
        self.max_iterations = max_iterations
        self.router = router
        self.shrinkage = shrinkage
        self.rotation = rotation
        self.marginal = marginal
        self.keep_norm = keep_norm
        self.validation_fraction = validation_fraction
        self.max_leak = max_leak
        self.cells = cells
        self.diagnostics = diagnostics
        self.scratch = scratch
        self.resume = resume
        self.n_threads = n_threads
        self.random_state = random_state

    def fit(
        self,
        X: RowsLike,
        y: LabelsLike = None,
        *,
        concept: LabelsLike = None,
        unlabelled: RowsLike = None,
        groups: LabelsLike = None,
        secret: bytes | str | None = None,
    ) -> Self:
        """Learn the maps.

        Parameters
        ----------
        X : array-like of shape (n, D)
            Training rows. They may come in blocks: a matrix on disk (`mute.open_matrix`), an iterator of arrays or of
            (array, labels), a dask array or data frame.
        y : array-like of shape (n,), optional
            The concept's labels, of any hashable kind. Give them here or as `concept`.
        concept : array-like of shape (n,), optional
            The concept's labels if `y` has other labels, as in a pipeline.
        unlabelled : array-like of shape (m, D), optional
            More training rows, without labels. The router learns from `X` alone and chooses their classes. More rows
            reduce the noise of the maps; the router's errors mix the classes.
        groups : array-like of shape (n,), optional
            With `max_leak`: the source of each row (document, person). Rows of one group are never on two sides of a
            fold.
        secret : bytes or str, optional
            With `max_leak`: the key of the noise, at least 16 random bytes. A file of the model then does not contain
            it, and ``mute.load(path, secret=...)`` needs it. By default the key is drawn and kept in the file.
        """
        if self.max_leak is not None:
            return self._fit_budget(X, y, concept, unlabelled, groups, secret)
        if groups is not None or secret is not None:
            raise MuteError("groups and secret belong to a leak budget; give max_leak too, or leave them out")
        if self.cells is not None:
            return self._fit_cells(X, y, concept, unlabelled)
        return self._fit_lossless(X, y, concept, unlabelled)

    def _fit_cells(self, X: RowsLike, y: LabelsLike, concept: LabelsLike, unlabelled: RowsLike) -> Self:
        """Fit the flow, then the cells of the erased training rows."""
        with self._all_or_nothing():
            given = _whole(X, "cells")
            self._fit_lossless(given, y, concept, unlabelled)
            X = check_rows(self, given)
            labels = concept_of(len(X), y, concept) if self.needs_concept else None
            self.cells_ = learn_cells(self._push(X, self._class_of(X, labels)), int(self.cells or 0), self._seed())
        return self

    def _fit_budget(
        self, X: RowsLike, y: LabelsLike, concept: LabelsLike, unlabelled: RowsLike, groups: LabelsLike,
        secret: bytes | str | None,
    ) -> Self:  # fmt: skip
        """Choose the channel on folds of the rows, fit the flow on all of them, then fit the channel."""
        if self.cells is not None:
            raise MuteError("max_leak and cells are two ways to lose information; give one of them")
        with self._all_or_nothing():
            self._check_settings()
            given = _whole(X, "max_leak")
            X = check_rows(self, given, reset=True)
            z = self._read_concept(X, y, concept)
            labels = self._encoder.as_array()
            plain = clone(self).set_params(max_leak=None, diagnostics=False, resume=None).set_callbacks()

            def fit(rows: NDArray[np.bool_]) -> MUtE:
                return clone(plain).fit(X[rows], labels[z[rows]], unlabelled=unlabelled)

            point = self._search_budget(fit, X, z, labels, group_codes(groups, len(X)), secret)
            found = self.leak_, self.r2_, self.budget_
            self._fit_lossless(given, y, concept, unlabelled)
            self.leak_, self.r2_, self.budget_ = found
            Q = self._push(X, z if self.needs_concept else self._class_of(X, None))
            self._open_channel(point, Q, X, str(self.fitted_on_["sha256_of_rows"]))
        return self

    def _fit_lossless(self, X: RowsLike, y: LabelsLike, concept: LabelsLike, unlabelled: RowsLike) -> Self:
        if unlabelled is None:
            return self._fit(X, y, concept)
        if come_in_blocks(X) or come_in_blocks(unlabelled):
            raise MuteError("a fit with unlabelled takes arrays only, not rows in blocks; label those by eraser.route")
        if self.router is None:
            raise MuteError("unlabelled requires a router, but router=None; choose a router")
        with self._all_or_nothing():
            self._check_settings()
            X = check_rows(self, X, reset=True)
            z = self._read_concept(X, y, concept)
            more = check_rows(self, unlabelled, name="unlabelled").astype(X.dtype, copy=False)
            self._n_features_out = X.shape[1]
            rng = self._generator()
            known = stratified_sample(z, MAX_ROUTED, rng)
            routes = self._train_router(known, X[known], z[known], rng)
            X = np.concatenate([X, more])
            z = np.concatenate([z, routes.router.predict(more)])
            sha256 = self._learn(X, z, routes)
            self._remember_rows(X, sha256, class_rows=np.bincount(z).tolist(), unlabelled=len(more))
        return self

    def _learn(self, X: Array, z: Array, routes: Routes | None = None) -> str:
        with closing(open_store(X, z, self.scratch, resolve_threads(self.n_threads))) as rows:
            scan = rows.reduce(FirstScan(X.shape[1], len(self._encoder), digest=True))
            self._learn_from(rows, scan, routes)
        return scan.sha256

    def _learn_from(self, rows: ChunkStore, scan: FirstScan, routes: Routes | None = None) -> None:
        """Plan the fit, train a router unless its `routes` are given, fit the layers and diagnose them."""
        self._spend_nothing()
        self.cells_ = None
        seed = self._seed()
        checkpoint = None if self.resume is None else Checkpoint(self.resume, self._identity(rows, scan), seed)
        # The layers have their own random numbers, so that they do not depend on what else is drawn.
        rng, turns = (np.random.default_rng(seed if checkpoint is None else checkpoint.seed) for _ in range(2))
        counts = scan.class_counts().sum(axis=0)
        warn_of_few_rows(self._encoder, counts, rows.n_features)
        max_layers, rule, aside = self._plan(counts)
        trains_router, rest = self.router is not None and routes is None, counts - aside
        most_followed = rows_followed(rows.n_features) * self.diagnostics
        held_out = sample_ranks(counts, aside, rng)
        router_rows = sample_ranks(counts, stratified_sizes(rest, MAX_ROUTED) * trains_router, rng, held_out)
        followed = sample_ranks(counts, np.minimum(rest, most_followed), rng, held_out)
        samples = Samples.fetch(rows, scan, held_out, router_rows, followed)
        out = samples.among(held_out)

        if trains_router:
            known = samples.among(router_rows)
            routes = self._train_router(samples.number[known], samples.x[known], samples.z[known], rng)
            self._report("router", 1, 1 + max_layers)
        elif routes is None:  # each row takes the map of its own class
            self.router_, self.routing_, routes = None, None, Routes()
        routes = replace(routes, held_out=samples.number[out], held_out_classes=samples.z[out])
        route = routes.of(samples.number, samples.x, samples.z)

        fitter = FlowFitter(
            rows, scan, routes, max_layers=max_layers, rotation=self._make_rotation(),
            marginal=make_marginal(self.marginal), shrinkage=self.shrinkage, rng=turns,
            n_threads=resolve_threads(self.n_threads),
        )  # fmt: skip
        self.stopping_ = fitter.fit(
            max_layers, rule, HeldOut(samples.x[out], samples.z[out], route[out], self.n_threads), checkpoint,
            lambda t: self._report("layer", trains_router + t + 1, trains_router + max_layers),
        )  # fmt: skip
        best = fitter.n_layers if self.stopping_ is None else min(self.stopping_.best(), fitter.n_layers)
        self.flow_ = fitter.flow().layers(0, best)
        self._support, self.n_iterations_ = fitter.support, best
        rows.close()  # before the diagnostics take memory of their own
        self.diagnostics_ = None
        if self.diagnostics:
            seen = np.minimum(most_followed / np.maximum(rest, 1), 1.0)
            sets = {"train": (samples.among(followed), seen), "held-out": (out, np.zeros(len(counts)))}
            chosen = {name: (samples.x[i], samples.z[i], route[i], s) for name, (i, s) in sets.items() if len(i)}
            self.diagnostics_ = diagnose(self.flow_, chosen, self._encoder.classes, rng, self.n_threads)

    def _train_router(self, numbers: Array, X: Array, z: Array, rng: np.random.Generator) -> Routes:
        """Train the router of the settings; the routes of its training rows come from cross-validation."""
        self.router_, routed, self.routing_ = fit_router(self.router, X, z, self._encoder, rng)
        return Routes(self.router_, numbers, routed)

    def _identity(self, rows: ChunkStore, scan: FirstScan) -> Json:
        """What two fits must have in common for one to continue the other."""
        import mute

        settings = {name: value for name, value in plain_parameters(self).items() if name != "n_threads"}
        if not isinstance(self.router, str | None):
            settings["router"] = repr(self.router)
        return {
            "version": mute.__version__,
            "rows": [rows.n_rows, rows.n_features, rows.dtype.name, scan.sha256],
            "labels": [repr(label) for label in self._encoder.classes],
            "labels of the rows": scan.sha256_of_labels,
            **{f"the setting {name}": value for name, value in settings.items()},
        }

    def _check_settings(self) -> None:
        super()._check_settings()
        make_marginal(self.marginal)
        self._make_rotation()

    def _plan(self, counts: NDArray[np.int64]) -> tuple[int, StoppingRule | None, NDArray[np.int64]]:
        """The most layers, the rule that stops them, and the number of held-out rows of each class."""
        none, layers = np.zeros_like(counts), int(self.max_iterations)
        if self.n_iterations != "auto":
            return int(self.n_iterations), None, none
        if self.shrinkage and isinstance(make_marginal(self.marginal), Quantile):
            # Shrunk marginals know which differences are due to chance, so no held-out rows are needed.
            return max(layers, len(counts) + 2), StopOnNoGain(len(counts) + 2), none
        if counts.min() < _FEWEST_FOR_AUTO:
            warn_weak_result(
                f'the smallest class has {counts.min()} rows, too few for n_iterations="auto" to measure a leak '
                f"(at least {_FEWEST_FOR_AUTO}); using {_FALLBACK_ITERATIONS} layers"
            )
            return _FALLBACK_ITERATIONS, None, none
        aside = np.clip((self.validation_fraction * counts).astype(np.int64), 20, MAX_HELD_OUT)
        return layers, EarlyStopping(len(counts), layers), aside

    def _make_rotation(self) -> Rotation:
        automatic = "random" if self.shrinkage else "alternate"
        return make_rotation(automatic if self.rotation == "auto" else self.rotation)

    def _transform(self, X: Array, concept: LabelsLike) -> NDArray[np.floating]:
        erased = super()._transform(X, concept)
        if self.cells_ is not None:
            return self.cells_.centres.astype(erased.dtype)[self.cells_.of(erased)]
        return self._publish(erased, X)

    def _transform_with(self, ops: Ops, x: Value, concept: LabelsLike) -> Value:
        self._check_no_channel("runs on arrays only: give X.cpu().numpy()")
        return super()._transform_with(ops, x, concept)

    def _check_no_channel(self, what: str) -> None:
        if self.channel_ is not None:
            raise MuteError(f"an eraser with a leak budget draws noise from a hash of each row and {what}")
        if self.cells_ is not None:
            raise MuteError(f"an eraser with cells publishes their centres and {what}")

    def without_budget(self) -> Self:
        """A copy that loses nothing: `transform` gives the rows of the flow, without noise or cells."""
        check_is_fitted(self)
        plain = copy(self)
        plain._spend_nothing()
        plain.cells_, plain.max_leak, plain.cells = None, None, None
        return plain

    def _push(self, X: Array, k: NDArray[np.int64]) -> NDArray[np.floating]:
        return self.flow_.push(X, k, n_threads=self.n_threads)

    def _pull(self, Q: Array, k: NDArray[np.int64]) -> NDArray[np.floating]:
        return self.flow_.pull(Q, k, n_threads=self.n_threads)

    def _move(self, X: Array, source: NDArray[np.int64], target: NDArray[np.int64]) -> NDArray[np.floating]:
        out = self._push(X, source)
        self.flow_.pull(out, target, n_threads=self.n_threads, out=out)
        if self.keep_norm:
            now = np.linalg.norm(out, axis=1, keepdims=True)
            out *= np.linalg.norm(X, axis=1, keepdims=True) / np.maximum(now, np.finfo(out.dtype).tiny)
        return out

    def push_with(self, ops: Ops, x: Value, k: Value) -> Value:
        return self.flow_.push_with(ops, x, k)

    def pull_with(self, ops: Ops, q: Value, k: Value) -> Value:
        return self.flow_.pull_with(ops, q, k)

    def move_with(self, ops: Ops, x: Value, source: Value, target: Value) -> Value:
        out = self.pull_with(ops, self.push_with(ops, x, source), target)
        if not self.keep_norm:
            return out
        limits = np.finfo(ops.precision)
        return out * (ops.norm(x) / ops.clip(ops.norm(out), float(limits.tiny), float(limits.max)))

    def adapt(self, X: RowsLike, concept: LabelsLike = None) -> Self:
        """Remove the residual leak of a fixed set of rows, up to second moments.

        Use this method if you have every row that you will publish. Unseen rows leak the noise of the maps. Training
        rows leak in the opposite way: their class means and covariances agree better than chance, so an adversary with
        some labels can invert its predictions for the other rows. `adapt` adds one affine layer for each class, which
        gives it the mean and covariance of an independent Gaussian sample of its size, and a rotation to hide the axes.

        Parameters
        ----------
        X : array-like of shape (n, D)
            All rows to erase, more than D of each class. They may be the training rows.
        concept : array-like of shape (n,), optional
            True labels, in place of the router. Give them here if you give them to `transform`.

        Returns
        -------
        MUtE
            A new eraser; this one does not change.

        Notes
        -----
        *Limits.* The guarantee covers these rows only. An adversary with labels of other rows, erased by the same maps,
        learns from them as before. If the router errs, the true classes differ by its errors.
        """
        check_is_fitted(self)
        self._check_no_channel("cannot be adapted: fit without max_leak to adapt")
        X = check_rows(self, in_memory(X))
        k = self._class_of(X, concept)
        counts = np.bincount(k, minlength=len(self.classes_))
        if counts.min() <= self.n_features_in_:
            few = self._encoder.classes[int(counts.argmin())]
            raise MuteError(
                f"adapt needs more rows of each class than there are columns ({self.n_features_in_}), but class "
                f"{few!r} has {counts.min()}; reduce the columns first (PCA), or fit with these rows as unlabelled="
            )
        more = as_by_chance(self._push(X, k), k, self.flow_.values.shape[-1], self._generator())
        adapted = copy(self)
        adapted.flow_ = self.flow_.then(more.astype(self.flow_.dtype))
        adapted.n_iterations_, adapted.stopping_, adapted.diagnostics_ = adapted.flow_.n_layers, None, None
        return adapted

    def first_layers(self, n: int) -> Self:
        """A copy with the first `n` layers only: the same as a fit with ``n_iterations=n``."""
        check_is_fitted(self)
        check_whole_number("n", n)
        self._check_no_channel("keeps the layers it was tuned for: fit with n_iterations instead")
        if n > self.n_iterations_:
            raise MuteError(f"there are {self.n_iterations_} layers, not {n}; give at most that many")
        short = copy(self)
        short.flow_, short.n_iterations_, short.n_iterations = self.flow_.layers(0, n), n, n
        if self.diagnostics_ is not None:
            short.diagnostics_ = replace(self.diagnostics_, figures=self.diagnostics_.figures[:, :n])
        return short

    def flags(self, X: RowsLike, concept: LabelsLike = None, *, margin: float = 0.2) -> Flags:
        """Flag rows outside the range of the training rows, and rows whose router margin is below `margin`."""
        check_is_fitted(self)
        X = check_rows(self, in_memory(X))
        k = self._class_of(X, concept)
        first, outside, (low, high) = self.flow_.layers(0, 1), np.empty(len(X), bool), self._support
        reach = 0.1 * (high - low)
        for start in range(0, len(X), BLOCK_ROWS):
            part = slice(start, start + BLOCK_ROWS)
            turned = ((X[part] - first.center) / first.scale) @ first.rotations[0]
            outside[part] = ((turned < (low - reach)[k[part]]) | (turned > (high + reach)[k[part]])).any(axis=1)
        lead = np.ones(len(X))
        if concept is None:
            chances = self.router_.predict_proba(X)
            lead = np.full(len(X), np.nan) if chances is None else margins(chances)
        return Flags(outside, lead < margin, lead)

    def diagnose(self, X: RowsLike, concept: LabelsLike) -> Diagnostics:
        """The figures of `diagnostics_` for other rows, which are named "held-out"."""
        check_is_fitted(self)
        X = check_rows(self, in_memory(X))
        z = self._encode(concept, len(X), "concept")
        routed = z if self.router_ is None else self.router_.predict(X)
        rows = {"held-out": (X, z, routed, np.zeros(len(self.classes_)))}
        return diagnose(self.flow_, rows, self._encoder.classes, np.random.default_rng(0), self.n_threads)

    def _trial_outputs(self, X: Array) -> Iterator[Array]:
        if self.router_ is not None:
            yield self.router_.predict_proba(X)

    def _to_artifact(self) -> tuple[dict[str, Array], Json]:
        tensors, state = super()._to_artifact()
        parts, budget = self._budget_state()
        if self.cells_ is not None:
            tensors["cells.centres"] = self.cells_.centres
        return {**tensors, **parts}, state if budget is None else {**state, "budget": budget}

    @classmethod
    def _from_artifact(cls, tensors: dict[str, Array], state: Json) -> Self:
        new = super()._from_artifact(tensors, state)
        new._restore_budget(tensors, state.get("budget"))
        if new.channel_ is not None and new.channel_.width != new.n_features_in_:
            raise MuteError("its channel does not fit its flow")
        centres = tensors.get("cells.centres")
        new.cells_ = None if centres is None else Cells(centres)
        if centres is not None and (centres.ndim != 2 or centres.shape[1] != new.n_features_in_ or not len(centres)):
            raise MuteError("its cells do not fit its flow")
        return new

    def _check_restored(self) -> None:
        self.n_iterations_ = self.flow_.n_layers


def _whole(X: RowsLike, setting: str) -> RowsLike:
    """Rows that are all in memory, for a setting that needs them so."""
    if hasattr(X, "row_blocks"):
        return X.to_numpy()
    if come_in_blocks(X):
        raise MuteError(f"{setting} needs all rows in memory; give an array, or fit without {setting}")
    return X
