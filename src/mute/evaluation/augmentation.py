"""Training on counterfactuals: whether a classifier becomes fairer, and whether the counterfactuals are the reason."""

from __future__ import annotations

from copy import deepcopy
from typing import Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from mute.errors import MuteError
from mute.evaluation.blocks import labels_of
from mute.evaluation.fairness import Fairness, fairness
from mute.rows.interrupts import interruptible
from mute.rows.validation import LabelEncoder, check_rows, check_whole_number, label_array, random_state_of
from mute.typing import Classifier, LabelsLike, Method, RowsLike, Seed

__all__ = ["CounterfactualAugmentation", "augment", "compare_augmentation"]

_CONTROLS = (None, "original", "duplicate", "shuffled")


def augment(
    eraser: Method, X: RowsLike, z: LabelsLike, y: LabelsLike, *, oracle: bool | None = None
) -> tuple[NDArray, NDArray, NDArray, NDArray[np.int64]]:
    """Stack the rows and their counterfactuals under every other class of the concept.

    Parameters
    ----------
    eraser : fitted eraser
        Any object with a method ``counterfactual(X, target, concept=None)``.
    X : array-like of shape (n, D)
        Rows to augment.
    z : array-like of shape (n,)
        Class of the concept of each row.
    y : array-like of shape (n,)
        Task label, which the counterfactuals of a row keep.
    oracle : bool, optional
        Move the rows with true labels. Otherwise a row starts from the class that ``eraser.route`` gives it (from `z`,
        if the eraser has no such method) and goes to all others; a row routed wrongly moves the wrong way. By default
        only an eraser that requires labels (``needs_concept``) gets them.

    Returns
    -------
    X : array of shape (K n, D)
        The n rows as given, then the counterfactuals, n at a time.
    z, y : arrays of shape (K n,)
        Their classes (of a counterfactual, the target) and task labels.
    origin : array of shape (K n,)
        The row each comes from. A row and its counterfactuals belong on the same side of any split.

    Notes
    -----
    *Limits.* A counterfactual takes on the whole law of its target class. Where the task label depends on the concept,
    that law includes what predicts the label, while the label stays: a classifier trained on such rows loses accuracy,
    and its gaps may turn round instead of closing.

    Examples
    --------
    >>> import numpy as np
    >>> class Mirror:
    ...     def counterfactual(self, X, target):
    ...         return -X
    >>> X, z, y, origin = augment(Mirror(), np.array([[1.0], [2.0]]), ["f", "m"], [0, 1])
    >>> X.ravel(), z, y, origin
    (array([ 1.,  2., -1., -2.]), array(['f', 'm', 'm', 'f'], dtype='<U1'), array([0, 1, 0, 1]), array([0, 1, 0, 1]))
    """
    _check_eraser(eraser)
    rows = np.asarray(X)
    if rows.ndim != 2:
        raise MuteError(f"X must be of shape (n, D), not {rows.shape}; give one row of numbers for each label")
    groups, labels = labels_of(z, len(rows), "z"), labels_of(y, len(rows), "y")
    known = label_array(eraser.classes_, "classes_") if hasattr(eraser, "classes_") else None
    encoder = LabelEncoder.fit(groups)[0] if known is None else LabelEncoder(known.tolist())
    if len(encoder) < 2:
        raise MuteError(f"z has only the class {encoder.classes[0]!r}; give rows of two classes or more")
    oracle = getattr(eraser, "needs_concept", False) if oracle is None else oracle
    routes = not oracle and hasattr(eraser, "route")
    own = encoder.encode(groups, "z")
    source = encoder.encode(label_array(eraser.route(X), "route"), "route") if routes else own
    given = {"concept": groups} if oracle else {}
    names, K = encoder.as_array(), len(encoder)
    targets = [(source + step) % K for step in range(1, K)]
    twins = [np.asarray(eraser.counterfactual(X, names[target], **given)) for target in targets]
    return (
        np.concatenate([rows, *twins]),
        names[np.concatenate([own, *targets])],
        np.tile(_plain(labels), K),
        np.tile(np.arange(len(rows)), K),
    )


class CounterfactualAugmentation(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    """A classifier trained on the rows and their counterfactuals, or on a control that looks like them.

    Parameters
    ----------
    estimator : classifier
        Cloned and fitted on the augmented rows, in random order.
    eraser : eraser with a method `counterfactual`
        Cloned and fitted on the training rows; wrapped in scikit-learn's ``FrozenEstimator``, used as it is.
    control : None, "original", "duplicate" or "shuffled"
        None trains on the counterfactuals. The controls show what is not their merit: "original" trains on the rows
        alone; "duplicate" on as many rows as None does, all of them copies; "shuffled" on counterfactuals of an eraser
        that was fitted on, and starts from, permuted labels of the concept.
    oracle : bool, optional
        As in `augment`.
    random_state : None, int or RandomState
        Of the order of the rows, the watched rows and the permuted labels. The estimator and the eraser have their own.

    Attributes
    ----------
    estimator_ : fitted classifier
    eraser_ : fitted eraser, or None for the controls that need none
    classes_ : array of shape (Y,)
    n_features_in_ : int

    Notes
    -----
    *Early stopping.* An estimator that holds rows out to know when to stop would have counterfactuals of its training
    rows among them. An estimator with ``early_stopping=True`` and `partial_fit`, such as MLPClassifier, is therefore
    trained here, epoch by epoch: on the augmented rows of most sources, watched on the original rows of the others, by
    its own `validation_fraction`, `n_iter_no_change`, `tol` and `max_iter`, with the best epoch kept. The controls are
    trained in the same way. Early stopping of other estimators (a network within a pipeline,
    HistGradientBoostingClassifier) is refused.

    *Limits.* A cross-validation hidden in the estimator (GridSearchCV, LogisticRegressionCV) has the same fault and
    is not detected.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from mute import MUtE
    >>> rng = np.random.default_rng(0)
    >>> z, y = rng.integers(2, size=(2, 400))
    >>> X = rng.normal(size=(400, 2)) + np.stack([3 * z, 3 * y], axis=1)
    >>> eraser = MUtE(n_iterations=3, router=None, random_state=0)
    >>> model = CounterfactualAugmentation(LogisticRegression(), eraser, oracle=True, random_state=0)
    >>> model.fit(X, y, concept=z).score(X, y) > 0.9
    True
    """

    def __init__(
        self,
        estimator: Classifier,
        eraser: Method,
        *,
        control: str | None = None,
        oracle: bool | None = None,
        random_state: Seed = None,
    ) -> None:
        self.estimator = estimator
        self.eraser = eraser
        self.control = control
        self.oracle = oracle
        self.random_state = random_state

    def fit(self, X: RowsLike, y: LabelsLike, *, concept: LabelsLike = None) -> Self:
        """Fit the eraser on rows `X` and their `concept`, then the classifier on the augmented rows and labels `y`."""
        self._check_parameters()
        X = check_rows(self, X, reset=True)
        labels, groups = labels_of(y, len(X), "y"), labels_of(concept, len(X), "concept")
        rng = random_state_of(self.random_state)

        eraser = None
        rows, targets, origin = X, _plain(labels), np.arange(len(X))
        if self.control == "duplicate":
            frozen = self.eraser if isinstance(self.eraser, FrozenEstimator) else None
            origin = np.tile(origin, len(getattr(frozen, "classes_", LabelEncoder.fit(groups)[0].classes)))
            rows, targets = rows[origin], targets[origin]
        elif self.control != "original":
            groups = rng.permutation(groups) if self.control == "shuffled" else groups
            eraser = clone(self.eraser).fit(X, _plain(groups))
            rows, _, targets, origin = augment(eraser, X, groups, labels, oracle=self.oracle)

        estimator = clone(self.estimator)
        with interruptible():
            if getattr(estimator, "early_stopping", False):
                estimator = _fit_watched(estimator, rows, targets, origin, rng)
            else:
                order = rng.permutation(len(rows))
                estimator.fit(rows[order], targets[order])
        self.eraser_, self.estimator_, self.classes_ = eraser, estimator, estimator.classes_
        return self

    def _check_parameters(self) -> None:
        if self.control not in _CONTROLS:
            raise MuteError(f"control must be one of {', '.join(map(repr, _CONTROLS))}, not {self.control!r}")
        if self.control in (None, "shuffled"):
            _check_eraser(self.eraser)
        if self.control == "shuffled" and isinstance(self.eraser, FrozenEstimator):
            raise MuteError(
                'control="shuffled" fits the eraser on permuted labels, which a FrozenEstimator forbids; '
                "give the eraser itself"
            )
        if isinstance(self.estimator, type) or not hasattr(self.estimator, "get_params"):
            raise MuteError(f"estimator must be a scikit-learn classifier, not {self.estimator!r}")
        for name, value in self.estimator.get_params(deep=True).items():
            watched = name == "early_stopping" and value is True and hasattr(self.estimator, "partial_fit")
            if name.split("__")[-1] == "early_stopping" and value is not False and not watched:
                raise MuteError(
                    f"the estimator has {name}={value!r}, and would hold out counterfactuals of its own training rows; "
                    f"set {name}=False"
                )

    def predict(self, X: RowsLike) -> NDArray:
        """Task label of each row, taken as it is."""
        check_is_fitted(self)
        return self.estimator_.predict(check_rows(self, X))

    @available_if(lambda self: hasattr(self.estimator, "predict_proba"))
    def predict_proba(self, X: RowsLike) -> NDArray[np.floating]:
        """Probability of each label, shape (n, Y)."""
        check_is_fitted(self)
        return self.estimator_.predict_proba(check_rows(self, X))


def compare_augmentation(
    estimator: Classifier,
    eraser: Method,
    X: RowsLike,
    z: LabelsLike,
    y: LabelsLike,
    X_test: RowsLike,
    z_test: LabelsLike,
    y_test: LabelsLike,
    *,
    random_state: Seed,
    repeats: int = 3,
    oracle: bool | None = None,
) -> dict[str, list[Fairness]]:
    """The fairness of a classifier trained on counterfactuals, next to its controls.

    The answer has `repeats` results for each of "original", "duplicate", "shuffled" (not for a frozen eraser, which
    cannot be fitted on permuted labels) and "counterfactual". Every repeat has its own seed for the eraser (unless
    frozen), the classifier and the order of the rows. All are tested on the original test rows.
    `mute.evaluation.fairness.paired_p_value` compares two predictions.
    """
    check_whole_number("repeats", repeats)
    rng = random_state_of(random_state)
    controls = {"original": "original", "duplicate": "duplicate", "shuffled": "shuffled", "counterfactual": None}
    if isinstance(eraser, FrozenEstimator):
        del controls["shuffled"]
    found: dict[str, list[Fairness]] = {name: [] for name in controls}
    for _ in range(repeats):
        seed = rng.randint(2**31 - 1)
        seeded = _seeded(estimator, seed), _seeded(eraser, seed)
        for name, control in controls.items():
            model = CounterfactualAugmentation(*seeded, control=control, oracle=oracle, random_state=seed)
            predicted = model.fit(X, y, concept=z).predict(X_test)
            found[name].append(fairness(y_test, predicted, z_test, rng=np.random.default_rng(seed)))
    return found


def _check_eraser(eraser: Method) -> None:
    if not hasattr(eraser, "counterfactual"):
        raise MuteError(f"{type(eraser).__name__} has no method counterfactual; give an eraser with one, such as MUtE")


def _plain(labels: NDArray[np.object_]) -> NDArray:
    """Labels in the kind of array that scikit-learn's classifiers take."""
    encoder, codes = LabelEncoder.fit(labels)
    return encoder.as_array()[codes]


def _seeded(model: Method | Classifier, seed: int) -> Method | Classifier:
    model = clone(model)
    names = [name for name in model.get_params(deep=True) if name.split("__")[-1] == "random_state"]
    return model.set_params(**dict.fromkeys(names, seed)) if names else model


def _fit_watched(
    model: Classifier, rows: NDArray, targets: NDArray, origin: NDArray[np.int64], rng: np.random.RandomState
) -> Classifier:
    """Train epoch by epoch and keep the model that does best on original rows without counterfactuals in training.

    The rule of MLPClassifier decides when to stop, so that only the rows differ from its own early stopping.
    """
    n = origin.max() + 1
    watched = np.zeros(n, bool)
    watched[rng.permutation(n)[: max(1, int(model.validation_fraction * n))]] = True
    learn = np.flatnonzero(~watched[origin])
    watch = np.flatnonzero(watched)  # the first n rows are the originals
    classes = np.unique(targets)

    model.set_params(early_stopping=False)
    best, best_score, since = model, -np.inf, 0
    for _ in range(model.max_iter):
        # A new order for each epoch: SGDClassifier with a fixed seed would take the same one every time.
        learn = rng.permutation(learn)
        model.partial_fit(rows[learn], targets[learn], classes=classes)
        score = model.score(rows[watch], targets[watch])
        since = since + 1 if score < best_score + model.tol else 0
        if score > best_score:
            best, best_score = deepcopy(model), score
        if since > model.n_iter_no_change:
            break
    return best
