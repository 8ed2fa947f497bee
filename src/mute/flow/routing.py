"""The router chooses the class whose map a row takes. This module trains a router and measures its errors."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.flow.network import Network
from mute.rows.interrupts import interruptible
from mute.rows.threads import single_threaded_blas
from mute.rows.validation import LabelEncoder
from mute.typing import Classifier, Json, LabelsLike

__all__ = ["NetworkRouter", "RoutingReport", "fit_router", "router_of", "stratified_sample", "stratified_sizes"]

# Most training rows of a router, drawn at random: three times the paper's 10,000.
MAX_ROWS = 30_000
_FOLDS = 3
# A network that gains fewer nats than this has stopped learning.
_LEAST_GAIN, _MOST_EPOCHS = 1e-3, 1000
_FEWEST_TO_SET_ASIDE, _FEWEST_PER_EPOCH = 30, 2000


@dataclass(frozen=True)
class RoutingReport:
    """Errors of a router on rows it has not learned from.

    Attributes
    ----------
    error : float
        Share of rows that are routed to a wrong class.
    class_error : array of shape (K,)
        The same within each class.
    confusion : array of shape (K, K)
        Row i, column j: share of class i that is routed to class j.
    margin : array of shape (K,)
        Mean probability of the first choice minus that of the second, by true class (NaN without probabilities).
    calibration : float
        Expected calibration error over ten bins of confidence (NaN without probabilities).
    """

    error: float
    class_error: NDArray[np.float64]
    confusion: NDArray[np.float64]
    margin: NDArray[np.float64]
    calibration: float

    @classmethod
    def measure(cls, z: NDArray, probabilities: NDArray | None, routed: NDArray, n_classes: int) -> RoutingReport:
        confusion = np.zeros((n_classes, n_classes))
        np.add.at(confusion, (z, routed), 1)
        counts = confusion.sum(axis=1)
        confusion /= np.maximum(counts, 1)[:, None]
        margin, calibration = np.full(n_classes, np.nan), float("nan")
        if probabilities is not None:
            lead, confidence, right = margins(probabilities), probabilities.max(axis=1), routed == z
            margin = np.array([lead[z == k].mean() if (z == k).any() else np.nan for k in range(n_classes)])
            bins = np.minimum((confidence * 10).astype(int), 9)
            inside = [bins == b for b in np.unique(bins)]
            calibration = float(np.sum([abs(right[b].mean() - confidence[b].mean()) * b.mean() for b in inside]))
        return cls(float((z != routed).mean()), 1 - np.diag(confusion), confusion, margin, calibration)

    def to_json(self) -> Json:
        return {name: v.tolist() if isinstance(v, np.ndarray) else v for name, v in vars(self).items()}

    @classmethod
    def from_json(cls, values: Json, n_classes: int) -> RoutingReport:
        arrays = {name: np.array(values[name], float) for name in ("class_error", "confusion", "margin")}
        if [a.shape for a in arrays.values()] != [(n_classes,), (n_classes, n_classes), (n_classes,)]:
            raise MuteError("its routing report does not fit its labels")
        return cls(error=float(values["error"]), calibration=float(values["calibration"]), **arrays)


def margins(probabilities: NDArray) -> NDArray[np.float64]:
    """Probability of the most likely class minus that of the second, for each row."""
    top = np.partition(probabilities, -2, axis=1)
    return (top[:, -1] - top[:, -2]).astype(np.float64)


class NetworkRouter(Network):
    """A feed-forward classifier with one output for each class."""

    @classmethod
    def from_classifier(cls, classifier: Classifier, encoder: LabelEncoder | None = None) -> NetworkRouter | None:
        """The router of a fitted scikit-learn network or linear model; None for other classifiers."""
        from sklearn.linear_model import LogisticRegression
        from sklearn.neural_network import MLPClassifier

        if type(classifier) is LogisticRegression:
            weights, biases = [classifier.coef_.T], [classifier.intercept_]
        elif type(classifier) is MLPClassifier and classifier.activation == "relu":
            weights, biases = list(classifier.coefs_), list(classifier.intercepts_)
        else:
            return None
        if weights[-1].shape[1] == 1:  # one logit for two classes: s is the pair (0, s)
            weights[-1] = np.concatenate([np.zeros_like(weights[-1]), weights[-1]], axis=1)
            biases[-1] = np.concatenate([np.zeros_like(biases[-1]), biases[-1]])
        if encoder is not None:
            # The router never predicts a class that the model has not seen.
            columns = encoder.encode(_objects(classifier.classes_), "the router")
            full = np.zeros((weights[-1].shape[0], len(encoder)), weights[-1].dtype)
            bias = np.full(len(encoder), -1e30, biases[-1].dtype)
            full[:, columns], bias[columns] = weights[-1], biases[-1]
            weights[-1], biases[-1] = full, bias
        return cls(weights, biases)

    def predict_proba(self, X: NDArray) -> NDArray[np.floating]:
        """Class probabilities, shape (n, K)."""
        out = self(X)
        out -= out.max(axis=1, keepdims=True)
        np.exp(out, out=out)
        out /= out.sum(axis=1, keepdims=True)
        return out

    def predict(self, X: NDArray) -> NDArray[np.int64]:
        """Encoded class of each row."""
        return self.predict_proba(X).argmax(axis=1)


class ClassifierRouter:
    """Any fitted classifier as a router; its labels become encoded classes."""

    def __init__(self, classifier: Classifier, encoder: LabelEncoder) -> None:
        self.classifier, self.encoder = classifier, encoder

    def predict(self, X: NDArray) -> NDArray[np.int64]:
        """Encoded class of each row."""
        return self.encoder.encode(_objects(self.classifier.predict(X)), "the router's prediction")

    def predict_proba(self, X: NDArray) -> NDArray[np.floating] | None:
        """Class probabilities, shape (n, K); None if the classifier has none."""
        if not hasattr(self.classifier, "predict_proba"):
            return None
        out = np.zeros((len(X), len(self.encoder)))
        out[:, self.encoder.encode(_objects(self.classifier.classes_), "the router")] = self.classifier.predict_proba(X)
        return out


Router = NetworkRouter | ClassifierRouter


def router_of(classifier: Classifier, encoder: LabelEncoder) -> Router:
    """A fitted classifier as a router."""
    return NetworkRouter.from_classifier(classifier, encoder) or ClassifierRouter(classifier, encoder)


def fit_router(
    spec: Classifier, X: NDArray, z: NDArray[np.int64], encoder: LabelEncoder, rng: np.random.Generator
) -> tuple[Router, NDArray[np.int64], RoutingReport]:
    """Train a router, and route its training rows by cross-validation.

    A router that has learned from a row routes it better than an unseen row. So the class of each row of `X`, and the
    report, come from a router that has not learned from it. More than `MAX_ROWS` rows are not needed.
    """
    from sklearn.model_selection import StratifiedKFold

    classifier, labels = _make_classifier(spec, rng), encoder.as_array()[z]
    train = partial(_train_ours if isinstance(spec, str) else _train_other, classifier, encoder=encoder)
    probabilities: NDArray | None = np.zeros((len(X), len(encoder)))
    routed = np.empty(len(X), np.int64)
    folds = int(min(_FOLDS, np.bincount(z).min()))
    splitter = StratifiedKFold(folds, shuffle=True, random_state=int(rng.integers(2**31 - 1)))
    for learn, test in splitter.split(X, z):
        router = train(X[learn], labels[learn])
        chances = router.predict_proba(X[test])
        if chances is None or probabilities is None:
            probabilities = None
            routed[test] = router.predict(X[test])
        else:
            probabilities[test] = chances
            routed[test] = chances.argmax(axis=1)
    return train(X, labels), routed, RoutingReport.measure(z, probabilities, routed, len(encoder))


def _make_classifier(spec: Classifier, rng: np.random.Generator) -> Classifier:
    from sklearn.base import clone
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier

    seed = int(rng.integers(2**31 - 1))
    if spec == "mlp":
        return MLPClassifier(random_state=seed)  # the paper's network
    if spec == "logistic":
        return LogisticRegression(max_iter=1000)
    if isinstance(spec, str | type) or not (hasattr(spec, "fit") and hasattr(spec, "predict")):
        raise MuteError(f'router must be "mlp", "logistic", None or a classifier, not {spec!r}')
    return clone(spec)


def _train_ours(model: Classifier, X: NDArray, labels: NDArray, encoder: LabelEncoder) -> NetworkRouter:
    """Train a copy of the model on standardised columns; its first layer absorbs the scaling."""
    from sklearn.base import clone
    from sklearn.exceptions import ConvergenceWarning

    model, z = clone(model), encoder.encode(_objects(labels), "labels")
    mean, std = X.mean(axis=0, dtype=np.float64), X.std(axis=0, dtype=np.float64)
    std[std <= 1e-12 * np.abs(mean)] = 1.0
    rows = (X - mean.astype(X.dtype)) / std.astype(X.dtype)
    with warnings.catch_warnings():
        # The report on unseen rows says how good the router is; convergence does not matter.
        warnings.simplefilter("ignore", ConvergenceWarning)
        if hasattr(model, "partial_fit"):
            fit_network(model, rows, z)
        else:
            model.fit(rows, z)
    router: Classifier = NetworkRouter.from_classifier(model)
    first = router.weights[0] / std[:, None]
    router.biases[0] = (router.biases[0] - mean @ first).astype(X.dtype)
    router.weights[0] = first.astype(X.dtype)
    return router


def fit_network(network: Classifier, X: NDArray, z: NDArray, *, epochs: int = 10, steps: int = 500) -> float:
    """Train until the loss on a tenth of the rows, held out, no longer falls; keep the best weights, return their loss.

    Training stops after `epochs` epochs without gain and, as an epoch of few rows has few steps, after `steps` steps.
    scikit-learn's own early stopping watches the accuracy and keeps the first of equal networks. If the classes are far
    apart, that network has hardly learned anything.
    """
    from sklearn.model_selection import train_test_split

    classes = np.unique(z)
    if np.bincount(z)[classes].min() < _FEWEST_TO_SET_ASIDE:
        with interruptible():
            return float(network.set_params(max_iter=100).fit(X, z).loss_)
    parts = train_test_split(X, z, test_size=0.1, stratify=z, random_state=network.random_state)
    learn, watch, z_learn, z_watch = parts
    # Few rows are repeated, because each call of partial_fit and each evaluation has a fixed cost.
    again = max(1, _FEWEST_PER_EPOCH // len(learn))
    learn, z_learn = np.tile(learn, (again, 1)), np.tile(z_learn, again)
    batch = 200 if network.batch_size == "auto" else network.batch_size
    patience = max(epochs, steps * batch // len(learn))
    own = np.searchsorted(classes, z_watch)
    best, since, weights = np.inf, 0, []
    # The products of a batch are too small for threads. BLAS sometimes flags an invalid operation on finite numbers.
    with single_threaded_blas(), interruptible(), np.errstate(invalid="ignore"):
        for _ in range(_MOST_EPOCHS):
            network.partial_fit(learn, z_learn, classes=classes)
            loss = _log_loss(network, watch, own)
            since = 0 if loss < best - _LEAST_GAIN else since + 1
            if since == 0:
                best, weights = loss, [w.copy() for w in network.coefs_ + network.intercepts_]
            if since > patience:
                break
    half = len(network.coefs_)
    network.coefs_, network.intercepts_ = weights[:half], weights[half:]
    return float(best)


def _log_loss(network: Classifier, X: NDArray, own: NDArray[np.intp]) -> float:
    """Mean cross-entropy of an MLPClassifier, without scikit-learn's checks, which take longer than the network."""
    chances = NetworkRouter.from_classifier(network).predict_proba(X)  # type: ignore[union-attr]
    picked = chances[np.arange(len(own)), own]
    return float(-np.log(np.maximum(picked, np.finfo(picked.dtype).eps)).mean(dtype=np.float64))


def _train_other(classifier: Classifier, X: NDArray, labels: NDArray, encoder: LabelEncoder) -> Router:
    from sklearn.base import clone
    from sklearn.frozen import FrozenEstimator

    # scikit-learn's classifiers accept text and whole numbers only.
    if labels.dtype.kind in "Of" and not isinstance(classifier, FrozenEstimator):
        labels, encoder = encoder.encode(_objects(labels), "labels"), LabelEncoder(range(len(encoder)))
    with interruptible():
        fitted = clone(classifier).fit(X, labels)
    return router_of(fitted, encoder)


def stratified_sample(z: NDArray[np.int64], size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Random rows in ascending order, in proportion to the classes, but with a minimum for small classes."""
    if len(z) <= size:
        return np.arange(len(z))
    take = stratified_sizes(np.bincount(z), size)
    return np.sort(np.concatenate([rng.choice(np.flatnonzero(z == k), m, replace=False) for k, m in enumerate(take)]))


def stratified_sizes(counts: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Rows of each class in a `stratified_sample`."""
    n = counts.sum()
    if n <= size:
        return counts
    least = min(size // (4 * len(counts)), int(counts.min()))
    return np.minimum(counts, np.maximum(least, (counts * (size / n)).astype(int)))


def _objects(labels: LabelsLike) -> NDArray[np.object_]:
    values = labels.tolist() if hasattr(labels, "tolist") else list(labels)
    out = np.empty(len(values), object)
    out[:] = values
    return out
