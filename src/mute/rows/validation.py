"""Rows, labels and settings are checked and encoded here, once, and nowhere deeper."""

import difflib
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError, listed, warn_weak_result
from mute.rows.detect import to_host
from mute.rows.frames import FrameRows, is_frame
from mute.typing import Label, LabelsLike, Method, RowsLike, Seed, Setting

__all__ = [
    "BadRows", "LabelEncoder", "check_classes", "check_finite", "check_length", "check_number", "check_parameters",
    "check_rows", "check_whole_number", "check_width", "concept_of", "concept_values", "label_array", "one_per_row",
    "random_state_of", "set_names", "warn_of_few_rows",
]  # fmt: skip

_BLOCK = 8192

# More different numbers than this are a quantity, not classes.
_MOST_NUMBERS = 50
# Every class has maps of its own, so the cost grows with their number.
_MOST_CLASSES = 1000


class _MuteTypeError(MuteError, TypeError):
    """Also a TypeError, as scikit-learn's conventions require for a value of the wrong type."""


def check_rows(
    estimator: Method, X: RowsLike, *, reset: bool = False, erased: bool = False, name: str | None = None
) -> NDArray[np.floating]:
    """Rows as a finite float32 or float64 array of shape (n, D), of the width that the estimator was fitted on.

    With `erased`, the rows are outputs of the estimator, whose columns have other names than its inputs. Messages call
    the rows `name`.
    """
    from scipy.sparse import issparse
    from sklearn.utils.validation import check_array, validate_data

    name = name or ("Q" if erased else "X")
    X = to_host(X)
    if issparse(X):
        raise _MuteTypeError(f"{name} is a sparse {type(X).__name__}; give a dense array, for example X.toarray()")
    frame = None
    if is_frame(X) and not erased:
        frame = FrameRows(X, None if reset else getattr(estimator, "feature_names_in_", None), name, fits=reset)
        X = frame.rows
    half = getattr(X, "dtype", None) == np.float16
    settings = {"dtype": np.float32 if half else (np.float64, np.float32), "ensure_all_finite": False}
    try:
        if frame is None and not erased:
            X = validate_data(estimator, X, reset=reset, **settings)
        else:
            X = check_array(X, **settings)
    except TypeError as error:
        raise _MuteTypeError(f"{name} cannot be read as an array of numbers: {error}") from error
    except ValueError as error:
        raise MuteError(f"{name} cannot be used: {error}") from error
    if frame is not None and reset:
        set_names(estimator, X.shape[1], frame.names)
    check_width(X.shape[1], estimator, name)
    check_finite(X, name)
    return X


def set_names(estimator: Method, width: int, names: Sequence[str] | None) -> None:
    """Remember the width of the rows, and the names of their columns if they have names, as scikit-learn does."""
    estimator.n_features_in_ = width
    estimator.__dict__.pop("feature_names_in_", None)
    if names is not None:
        estimator.feature_names_in_ = np.array(names, object)


def check_width(width: int, estimator: Method, name: str) -> None:
    """Refuse rows of another width than the estimator was fitted on."""
    # The words are those that scikit-learn's checks of estimators ask for.
    if width != estimator.n_features_in_:
        raise MuteError(
            f"{name} has {width} features, but {type(estimator).__name__} is expecting {estimator.n_features_in_} "
            "features as input"
        )


def check_finite(X: NDArray, name: str) -> None:
    """Refuse NaN, infinity, and numbers so large that their squares overflow."""
    found = BadRows()
    for start in range(0, len(X), _BLOCK):
        found.look_at(X[start : start + _BLOCK], start)
    found.refuse(X.dtype, name)


class BadRows:
    """Collects rows that are not finite or so large that their squares overflow."""

    def __init__(self) -> None:
        self._bad: list[int] = []
        self._large: list[int] = []
        self._kinds: set[str] = set()

    def look_at(self, block: NDArray, start: int) -> bool:
        """Whether all rows of a block can be used; `start` is the number of its first row."""
        flat = block.reshape(-1)
        with np.errstate(all="ignore"):
            # A sum of squares is finite only if all its terms are: one fast pass is enough for nearly every block.
            if np.isfinite(flat @ flat):
                return True
            sizes = np.abs(block)
            finite = np.isfinite(sizes).all(axis=1)
            large = finite & (sizes > _largest(block.dtype)).any(axis=1)
        self._kinds |= _not_finite(sizes)
        self._bad += (start + np.flatnonzero(~finite)).tolist()
        self._large += (start + np.flatnonzero(large)).tolist()
        return False

    def merge(self, other: Self) -> None:
        """Take in the rows that another collected."""
        self._bad += other._bad
        self._large += other._large
        self._kinds |= other._kinds

    def refuse(self, dtype: np.dtype[Any], name: str) -> None:
        """Raise if there are such rows."""
        for found, what, advice in (
            (self._bad, " and ".join(sorted(self._kinds)), "remove or fill these rows first"),
            (self._large, f"numbers beyond {_largest(dtype):.0e}", "rescale the rows first"),
        ):
            if found:
                s = "s" if len(found) > 1 else ""
                raise MuteError(
                    f"{name} contains {what} in {len(found)} row{s} (row{s} {listed(sorted(found), 5)}); {advice}"
                )


def _largest(dtype: np.dtype[Any]) -> float:
    """The largest number whose square is finite."""
    return np.sqrt(np.finfo(dtype).max)


def _not_finite(values: NDArray) -> set[str]:
    """Which kinds of values are not finite, in words."""
    found = {"NaN": np.isnan(values), "infinity": np.isinf(values)}
    return {kind for kind, where in found.items() if where.any()}


def label_array(labels: LabelsLike, name: str) -> NDArray[np.object_]:
    """Labels of any hashable kind as a one-dimensional object array."""
    from sklearn.utils.validation import column_or_1d

    if labels is None:
        raise MuteError(f"{name} is missing: give one label for each row")
    labels = to_host(labels)
    array_like = hasattr(labels, "__array__")
    if isinstance(labels, str | bytes) or not (array_like or isinstance(labels, Iterable)):
        raise MuteError(f"{name} must hold one label for each row, not the single value {labels!r}")
    if array_like:
        array = np.asarray(labels)
        if array.ndim != 1:
            try:
                array = column_or_1d(array, warn=True)
            except ValueError as error:
                raise MuteError(f"{name} must be one-dimensional, not of shape {array.shape}") from error
        labels = array.tolist()
        if array.dtype.kind in "biuU":  # Python's own numbers and texts, of which none can be missing
            return np.fromiter(labels, object, len(labels))
    values = [v.item() if isinstance(v, np.generic) else v for v in labels]
    missing = [i for i, v in enumerate(values) if _is_missing(v)]
    if missing:
        raise MuteError(
            f"{name} contains missing or infinite labels (NaN, None, inf) in {len(missing)} row(s), first in row "
            f"{missing[0]}; remove these rows, or give them a label of their own"
        )
    return np.fromiter(values, object, len(values))


def _is_missing(label: Label) -> bool:
    # The marks of pandas are recognised by name, without importing pandas.
    kind = type(label)
    if label is None or (kind.__name__ in ("NAType", "NaTType") and kind.__module__.startswith("pandas.")):
        return True
    return isinstance(label, float) and not math.isfinite(label)


class LabelEncoder:
    """Maps labels of any hashable kind to 0 .. K - 1 and back; `classes` are distinct, in the order of their codes.

    Examples
    --------
    >>> import numpy as np
    >>> encoder, codes = LabelEncoder.fit(np.array(["m", "f", "f"], dtype=object))
    >>> encoder.classes, codes
    (('f', 'm'), array([1, 0, 0]))
    """

    def __init__(self, classes: Sequence[Label]) -> None:
        self.classes = tuple(classes)
        self._codes = {label: code for code, label in enumerate(self.classes)}

    @classmethod
    def fit(cls, labels: NDArray[np.object_]) -> tuple[Self, NDArray[np.int64]]:
        try:
            distinct = set(labels.tolist())
        except TypeError as error:
            raise _MuteTypeError(f"labels must be hashable (text, numbers, tuples): {error}") from error
        try:
            ordered = sorted(distinct)
        except TypeError:  # mixed kinds have no order of their own
            ordered = sorted(distinct, key=lambda v: (type(v).__name__, repr(v)))
        encoder = cls(ordered)
        return encoder, encoder.encode(labels, "labels")

    def __len__(self) -> int:
        return len(self.classes)

    def as_array(self) -> NDArray:
        """The classes as scikit-learn keeps them: a plain array if their kind allows it."""
        if len({type(label) for label in self.classes}) == 1 and isinstance(self.classes[0], str | int | float | bool):
            return np.array(self.classes)
        return np.fromiter(self.classes, object, len(self))

    def holds(self, label: Label) -> bool:
        try:
            return label in self._codes
        except TypeError:
            return False

    def encode(self, labels: Collection[Label], name: str) -> NDArray[np.int64]:
        try:
            return np.fromiter((self._codes[v] for v in labels), np.int64, len(labels))
        except (KeyError, TypeError):
            label = next(v for v in labels if not self.holds(v))
        close = difflib.get_close_matches(str(label), [str(c) for c in self.classes], n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise MuteError(
            f"{name} has the label {label!r}, which was not seen in fit{hint}; known labels: "
            f"{listed(list(map(repr, self.classes)))}"
        )

    def encode_one(self, label: Label, name: str) -> int:
        return int(self.encode([label], name)[0])


def one_per_row(given: LabelsLike, estimator: Method) -> bool:
    """Whether labels are one for each row, not one class of the fitted estimator for all rows."""
    if given is None or isinstance(given, str | bytes) or not hasattr(given, "__len__"):
        return False
    return not LabelEncoder(estimator.classes_.tolist()).holds(given)


def _concept_or_y(y: LabelsLike, concept: LabelsLike, what: str) -> tuple[LabelsLike, str]:
    given, name = (y, "y") if concept is None else (concept, "concept")
    if given is None:
        raise MuteError(
            f"the concept's {what} are missing: call fit(X, z), or fit(X, y, concept=z) where y is another label. "
            "This estimator requires y to be passed, but the target y is None"
        )
    return given, name


def concept_of(n_rows: int, y: LabelsLike, concept: LabelsLike) -> NDArray[np.object_]:
    """The concept's labels: `concept` if given, else `y`."""
    given, name = _concept_or_y(y, concept, "labels")
    labels = label_array(given, name)
    check_length(labels, n_rows, name)
    return labels


def concept_values(n_rows: int, y: LabelsLike, concept: LabelsLike) -> NDArray[np.float64]:
    """The values of a continuous concept as an array of shape (n, m): `concept` if given, else `y`."""
    given, name = _concept_or_y(y, concept, "values")
    try:
        values = np.asarray(to_host(given), np.float64)
    except (TypeError, ValueError) as error:
        raise MuteError(
            f'{name} must hold numbers for concept_type="continuous"; for labels use "categorical": {error}'
        ) from error
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2:
        raise MuteError(f"{name} must have one value or one vector for each row, not shape {values.shape}")
    check_length(values, n_rows, name)
    if not np.isfinite(values).all():
        raise MuteError(f"{name} contains {' and '.join(sorted(_not_finite(values)))}; remove or fill these rows first")
    if not np.ptp(values, axis=0).any():
        raise MuteError(f"{name} has the same value in all rows (n_samples = {n_rows}): there is nothing to erase")
    return values


def check_classes(encoder: LabelEncoder, counts: NDArray[np.int64]) -> None:
    """Refuse fewer than two classes, numbers that are no classes, too many classes, and classes of one row."""
    n, classes = int(counts.sum()), encoder.classes
    if len(classes) < 2:
        raise MuteError(
            f"the concept has only one class, {classes[0]!r}, in all {n:,} rows: there is nothing to erase; "
            "give labels of at least two classes"
        )
    if len(classes) > _MOST_NUMBERS and all(isinstance(c, int | float) for c in classes):
        raise MuteError(
            f"the concept has {len(classes):,} different numbers ({min(classes)} to {max(classes)}) in {n:,} rows, as "
            "a quantity or an identifier has; bin it into a few classes, or give its values as text if each is a class"
        )
    if len(classes) > _MOST_CLASSES:
        raise MuteError(
            f"the concept has {len(classes):,} classes in {n:,} rows, more than {_MOST_CLASSES:,}; merge classes"
        )
    if counts.min() < 2:
        lonely = [repr(classes[k]) for k in np.flatnonzero(counts < 2)]
        raise MuteError(
            f"{len(lonely)} of {len(classes)} classes have one row only ({listed(lonely, 5)}), from which no law can "
            "be estimated; merge or drop them"
        )


def warn_of_few_rows(encoder: LabelEncoder, counts: NDArray[np.int64], n_features: int) -> None:
    """Warn if the training rows are too few to erase unseen rows."""
    if counts.min() < 20 * n_features:
        k = int(counts.argmin())
        warn_weak_result(
            f"class {encoder.classes[k]!r} has {counts[k]} rows for {n_features} columns; below 20 rows per column "
            f"({20 * n_features}), unseen rows leak although training rows do not; measure the leak on unseen rows"
        )


def random_state_of(value: Seed) -> np.random.RandomState:
    """The generator of a `random_state`."""
    from sklearn.utils import check_random_state

    try:
        return check_random_state(value)
    except ValueError as error:
        raise MuteError(
            f"random_state must be None, a whole number of at least 0 or a RandomState, not {value!r}"
        ) from error


def check_length(labels: NDArray, n_rows: int, name: str) -> None:
    """Refuse labels that are not one for each row."""
    if len(labels) != n_rows:
        raise MuteError(f"{name} has {len(labels)} labels for {n_rows} rows; give one label for each row")


def check_parameters(estimator: Method) -> None:
    """Refuse settings that the estimator's ``_parameter_constraints`` (scikit-learn's way) do not allow."""
    try:
        estimator._validate_params()
    except ValueError as error:
        raise MuteError(str(error)) from error


def check_whole_number(name: str, value: Setting, least: int = 1, *, or_none: bool = False, also: str = "") -> None:
    """Refuse a setting that is not a whole number from `least` on; for the message, `also` names other values."""
    if value is None and or_none:
        return
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        also = "None or " if or_none else also
        raise MuteError(f"{name} must be {also}a whole number of at least {least}, not {value!r}")


def check_number(name: str, value: Setting, allowed: str, test: Callable[[float], bool]) -> None:
    """Refuse a setting that is not a finite number, or fails `test`; `allowed` says in words what `test` requires."""
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not test(value):
        raise MuteError(f"{name} must be a number {allowed}, not {value!r}")
