"""Base classes of the estimators: files, progress, labels. Each method adds its mathematics."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from copy import copy
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.metadata_routing import MetadataRequest
from sklearn.utils.validation import check_is_fitted

from mute.errors import MuteError
from mute.estimators.persistence import Stored
from mute.estimators.progress import Callback
from mute.estimators.tensors import check_tensor, run_on
from mute.rows.detect import come_in_blocks, is_tensor, to_host
from mute.rows.reductions import FirstScan
from mute.rows.sources import fits_in_memory, join_blocks, open_block_store, over_blocks, refuse_iterator
from mute.rows.stores import ChunkStore
from mute.rows.threads import for_each, resolve_threads
from mute.rows.validation import (
    LabelEncoder,
    check_classes,
    check_length,
    check_rows,
    concept_of,
    concept_values,
    label_array,
    random_state_of,
    set_names,
)
from mute.typing import Constraints, Json, LabelsLike, Ops, RowsLike, Setting, Value

__all__ = ["ConceptEstimator", "Estimator", "WithTask", "digest_of_rows"]

_BLOCK = 2048


def digest_of_rows(X: NDArray) -> str:
    """A hash that is the same only for matrices that are equal to the bit."""
    parts = [slice(start, start + _BLOCK) for start in range(0, len(X), _BLOCK)]
    digests = [b""] * len(parts)

    def hash_part(part: slice) -> None:
        digests[part.start // _BLOCK] = hashlib.sha256(np.ascontiguousarray(X[part]).data).digest()

    for_each(hash_part, parts, resolve_threads(None))  # hashing releases Python's lock
    return hashlib.sha256(b"".join(digests)).hexdigest()


class Estimator(Stored, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A transformer that keeps width and precision, reports progress and can be stored.

    Every public method that takes rows goes through `_apply`. It accepts arrays, torch tensors and rows in blocks, and
    calls ``_NAME(X, **labels)`` with checked arrays or ``_NAME_with(ops, x, **labels)`` with tensors (`mute.flow.ops`),
    where NAME is the public method's.
    """

    _callbacks: tuple[Callback, ...] = ()

    # The allowed values of each setting; `check_parameters` checks them before a fit.
    _parameter_constraints: ClassVar[Constraints] = {}

    def _remember_rows(self, X: RowsLike, sha256: str, **more: Setting) -> None:
        """Set `fitted_on_`: shape, dtype and hash of the training rows, and `more`, such as the rows of each class."""
        shape = {"rows": X.shape[0], "columns": X.shape[1], "dtype": X.dtype.name}
        self.fitted_on_ = {**shape, "sha256_of_rows": sha256, **more}

    def _apply(
        self, name: str, X: RowsLike, *, erased: bool = False, one_each: bool = False, **labels: LabelsLike
    ) -> RowsLike:
        """Run the row method `name` on any kind of rows; `one_each` if it returns one value for each row."""
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        if names is not None and not erased and hasattr(X, "matching"):
            X = X.matching(list(names))
        if one_each and come_in_blocks(X):
            plain = self.nameless()
            return join_blocks(X, lambda block: getattr(plain, name)(block, **labels))
        if come_in_blocks(X):
            return over_blocks(self, name, X, **labels)
        if is_tensor(X):
            check_tensor(self, X, "Q" if erased else "X")
            return run_on(self, X, lambda ops, x: getattr(self, f"_{name}_with")(ops, x, **labels))
        return getattr(self, f"_{name}")(check_rows(self, X, erased=erased), **labels)

    def nameless(self) -> Self:
        """A copy that does not know the names of the columns, for blocks of rows, which have none."""
        bare = copy(self)
        bare.__dict__.pop("feature_names_in_", None)
        return bare

    def set_callbacks(self, *callbacks: Callback) -> Self:
        """Set the functions that are called after every step of a fit, in place of earlier ones.

        Parameters
        ----------
        *callbacks : function (name, done, total)
            They take the name of the step, the number of finished steps and the number of all steps. A callback that
            returns True stops the fit. `mute.ProgressBar` is a callback.
        """
        for callback in callbacks:
            if not callable(callback):
                raise MuteError(
                    f"a callback must be a function (name, done, total), not {callback!r}; for a bar on the terminal "
                    "use mute.ProgressBar()"
                )
        self._callbacks = callbacks
        return self

    def __sklearn_clone__(self) -> Self:
        return super().__sklearn_clone__().set_callbacks(*self._callbacks)

    def _report(self, name: str, done: int, total: int) -> bool:
        """Call every callback after a step; whether one of them stops the fit."""
        answers = [callback(name, done, total) for callback in self._callbacks]
        return any(answers)

    def _steps(self, most: int, name: str) -> Generator[int, None, None]:
        """Count the steps of a fit and report each, until `most` or until a callback stops the fit."""
        for i in range(most):
            try:
                yield i
            except GeneratorExit:  # the caller left the loop
                self._report(name, i + 1, most)
                raise
            if self._report(name, i + 1, most):
                return

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Restore the earlier state if a fit fails or is interrupted."""
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__ = before
            raise
        finally:
            for callback in self._callbacks:
                getattr(callback, "close", lambda: None)()

    def _seed(self) -> int:
        """The seed of one fit."""
        return int(random_state_of(getattr(self, "random_state", None)).randint(2**31 - 1))

    def _generator(self) -> np.random.Generator:
        """The random numbers of one fit."""
        return np.random.default_rng(self._seed())

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class ConceptEstimator(Estimator):
    """A method that learns from rows and the concept's labels, and then erases without labels.

    A subclass defines

    - ``_learn(X, z)``, which sets the fitted attributes from checked rows and codes 0 .. K - 1 (or numbers of shape
      (n, m) with ``concept_type="continuous"``), and may return the hash of the rows;
    - ``_erase(X)``, which maps checked rows to erased rows of the same dtype;
    - `_STORED`, the fitted attributes that its file contains; see `Stored`;
    - `PRESETS`, settings by name: those of the paper, and those of the method's authors for their data.
    """

    PRESETS: ClassVar[dict[str, Json]] = {}
    # Whether `fit` accepts rows in blocks; `_learn_from` then learns from a store of rows.
    fits_on_blocks: ClassVar[bool] = False
    _LABELLED = True

    @classmethod
    def from_preset(cls, name: str, **settings: Setting) -> Self:
        """An estimator with the settings of a preset (see ``PRESETS``), which `settings` override."""
        if name not in cls.PRESETS:
            known = ", ".join(cls.PRESETS) or "it has none"
            raise MuteError(f"{cls.__name__} has no preset {name!r}; known presets: {known}")
        return cls(**{**cls.PRESETS[name], **settings})

    def fit(self, X: RowsLike, y: LabelsLike = None, *, concept: LabelsLike = None) -> Self:
        """Learn the map.

        Parameters
        ----------
        X : array-like of shape (n, D)
            Training rows. They may come in blocks: a matrix on disk (`mute.open_matrix`), an iterator of arrays or of
            (array, labels), a dask array or data frame. `MUtE` and the methods of moments never load all of them.
        y : array-like of shape (n,), optional
            The concept's labels, of any hashable kind. Give them here or as `concept`.
        concept : array-like of shape (n,), optional
            The concept's labels if `y` has other labels, as in a pipeline.
        """
        return self._fit(X, y, concept)

    def _fit(self, X: RowsLike, y: LabelsLike, concept: LabelsLike, **labels: LabelsLike) -> Self:
        """Check the input, learn, and set `fitted_on_`; further `labels` are encoded and given to `_learn`."""
        on_disk = hasattr(X, "row_blocks")
        read_whole = on_disk and (not self.fits_on_blocks or fits_in_memory(X, getattr(self, "scratch", "auto")))
        if come_in_blocks(X) and not read_whole:
            return self._fit_blocks(X, y, concept)
        with self._all_or_nothing():
            self._check_settings()
            if on_disk:
                names, X = X.columns, check_rows(self, X.to_numpy(), reset=True)
                set_names(self, X.shape[1], names)
            else:
                X = check_rows(self, X, reset=True)
            z = self._read_concept(X, y, concept)
            codes = {name: self._encode_new(given, len(X), name) for name, given in labels.items()}
            self._n_features_out = X.shape[1]
            sha256 = self._learn(X, z, **codes) or digest_of_rows(X)
            counts = {"class_rows": np.bincount(z, minlength=len(self._encoder)).tolist()} if z.ndim == 1 else {}
            self._remember_rows(X, sha256, **counts)
        return self

    def _fit_blocks(self, X: RowsLike, y: LabelsLike, concept: LabelsLike) -> Self:
        """`_fit` for rows in blocks, without loading all of them."""
        if not self.fits_on_blocks or self._continuous():
            raise MuteError(
                f"{type(self).__name__} needs all rows in memory; give an array (X.to_numpy(), X.compute()), or use "
                "MUtE or a method of moments (LEACE, ...) with a discrete concept"
            )
        with self._all_or_nothing():
            self._check_settings()
            # A method without `n_threads` sums in the order of the rows.
            threads = resolve_threads(self.n_threads) if hasattr(self, "n_threads") else 1
            rows, encoder = open_block_store(X, y, concept, getattr(self, "scratch", "auto"), threads)
            with closing(rows):
                scan = rows.reduce(FirstScan(rows.n_features, len(encoder), check=True, digest=True))
                scan.bad.refuse(rows.dtype, "X")
                counts = scan.class_counts().sum(axis=0)
                check_classes(encoder, counts)
                self._encoder, self.classes_ = encoder, encoder.as_array()
                self._n_features_out = rows.n_features
                set_names(self, rows.n_features, getattr(X, "columns", None))
                self._learn_from(rows, scan)
                self._remember_rows(rows, scan.sha256, class_rows=counts.tolist())
        return self

    def _learn(self, X: NDArray, z: NDArray) -> str | None:
        raise NotImplementedError

    def _learn_from(self, rows: ChunkStore, scan: FirstScan) -> None:
        raise NotImplementedError

    def _erase(self, X: NDArray) -> NDArray[np.floating]:
        raise NotImplementedError

    def _trial_outputs(self, X: NDArray) -> Iterator[NDArray]:
        yield self._erase(X)

    def erase_with(self, ops: Ops, x: Value) -> Value:
        """`_erase` in the operations of `ops` (see `mute.flow.ops`); this default requires an affine map."""
        return self._affine_with(ops, x, self._erase, "erase")

    def _affine_with(self, ops: Ops, x: Value, work: Callable[[NDArray], NDArray], name: str) -> Value:
        """The affine map `work` in the operations of `ops`, which keep its coefficients by `name`."""
        known = getattr(ops, "known_maps", {})
        if name not in known:
            known[name] = self._read_off(ops, work)
        slopes, offset = known[name]
        return ops.linear(x, ops.array(f"{name}_weight", slopes), ops.array(f"{name}_bias", offset))

    def _read_off(self, ops: Ops, work: Callable[[NDArray], NDArray]) -> tuple[NDArray, NDArray]:
        """Slopes and offset of an affine map; an error if the map is not affine."""
        rows = 10 * np.random.default_rng(0).normal(size=(8, self.n_features_in_))
        offset = work(np.zeros((1, self.n_features_in_)))[0]
        slopes = work(np.eye(self.n_features_in_)) - offset
        if not np.allclose(rows @ slopes + offset, work(rows), rtol=1e-6, atol=1e-6 * np.abs(rows).max()):
            export = "cannot be exported as it is; copy it by MLPSurrogate and export the copy"
            refusal = getattr(ops, "refusal", export)
            raise MuteError(f"the map of {type(self).__name__} is not affine, so it {refusal}")
        return slopes, offset

    def _read_concept(self, X: NDArray, y: LabelsLike, concept: LabelsLike) -> NDArray:
        """Set `classes_` and return the codes of the labels; for a continuous concept, return numbers (n, m)."""
        if self._continuous():
            self.__dict__.pop("classes_", None)  # from an earlier fit
            return concept_values(len(X), y, concept)
        self._encoder, z = LabelEncoder.fit(concept_of(len(X), y, concept))
        check_classes(self._encoder, np.bincount(z))
        self.classes_ = self._encoder.as_array()
        return z

    def _continuous(self) -> bool:
        """Whether the concept is continuous."""
        kind = getattr(self, "concept_type", "categorical")
        if kind not in ("categorical", "continuous"):
            raise MuteError(f'concept_type must be "categorical" or "continuous", not {kind!r}')
        return kind == "continuous"

    @staticmethod
    def _encode_new(labels: LabelsLike, n_rows: int, name: str) -> NDArray[np.int64] | None:
        if labels is None:
            return None
        array = label_array(labels, name)
        check_length(array, n_rows, name)
        encoder, codes = LabelEncoder.fit(array)
        if len(encoder) < 2:
            raise MuteError(f"{name} has only one class, {encoder.classes[0]!r}; give labels of at least two classes")
        return codes

    def transform(self, X: RowsLike, concept: LabelsLike = None) -> NDArray[np.floating]:
        """Erase the concept.

        Parameters
        ----------
        X : array-like of shape (n, D)
        concept : array-like of shape (n,), optional
            True labels, for a method whose map depends on the class of a row. Without them the rows are routed; a
            method without a router requires them. Other methods ignore them.

        Returns
        -------
        array of shape (n, D)
            float32 for float32 input, else float64. A torch tensor gives a tensor (see `mute.estimators.tensors`). Rows
            in blocks (see `fit`) give a lazy matrix, iterator or dask array.
        """
        return self._apply("transform", X, concept=concept)

    def _transform(self, X: NDArray, concept: LabelsLike) -> NDArray[np.floating]:
        return self._erase(X)

    def _transform_with(self, ops: Ops, x: Value, concept: LabelsLike) -> Value:
        return self.erase_with(ops, x)

    def fit_transform(self, X: RowsLike, y: LabelsLike = None, **labels: LabelsLike) -> NDArray[np.floating]:
        """Fit, then erase the training rows."""
        refuse_iterator(X)
        return self.fit(X, y, **labels).transform(X)

    def get_metadata_routing(self) -> MetadataRequest:
        """What scikit-learn passes to the methods: `transform` takes over fit's request for `concept` if it has none.

        A pipeline calls ``fit_transform``, for which scikit-learn refuses different requests of `fit` and `transform`.
        """
        requests = super().get_metadata_routing()
        asked = requests.fit.requests.get("concept")
        if requests.transform.requests.get("concept") is None and asked is not None:
            requests.transform.add_request(param="concept", alias=asked)
        return requests

    @property
    def needs_concept(self) -> bool:
        """Whether `transform` requires labels."""
        return False

    def _encode(self, labels: LabelsLike, n_rows: int, name: str) -> NDArray[np.int64]:
        array = label_array(labels, name)
        check_length(array, n_rows, name)
        return self._encoder.encode(array, name)

    def _encode_targets(self, target: LabelsLike, n_rows: int) -> NDArray[np.int64]:
        """Codes of the target classes, from one label for all rows or one for each row."""
        target = to_host(target)
        if self._encoder.holds(target) or isinstance(target, str) or not hasattr(target, "__len__"):
            return np.full(n_rows, self._encoder.encode_one(target, "target"))
        return self._encode(target, n_rows, "target")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


class WithTask(ConceptEstimator):
    """A method that may also learn from task labels: its ``_learn`` takes ``task``, codes or None."""

    def fit(self, X: RowsLike, y: LabelsLike = None, *, concept: LabelsLike = None, task: LabelsLike = None) -> Self:
        """Learn the map.

        Parameters
        ----------
        X : array-like of shape (n, D)
        y : array-like of shape (n,), optional
            The concept's labels, of any hashable kind. Give them here or as `concept`.
        concept : array-like of shape (n,), optional
            The concept's labels if `y` has other labels, as in a pipeline.
        task : array-like of shape (n,), optional
            Labels of a task for which the rows should stay useful. The documentation of the class says how it uses
            them.
        """
        return self._fit(X, y, concept, task=task)
