"""The adversaries: a panel of classifiers that try to read the concept from erased rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.covariance import empirical_covariance, shrunk_covariance
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC, LinearSVC

from mute.errors import MuteError
from mute.flow.routing import fit_network
from mute.rows.interrupts import interruptible
from mute.typing import Classifier

__all__ = ["CODER", "PANEL", "Adversary", "Features", "attack", "panel_of", "standardiser", "training"]

# Penalties of the wide network: the network that does better on its held-out rows is kept.
_WIDE_PENALTIES = (1e-4, 1.0)
# A direction with a smaller share of the largest variance has none: the rows come in float32, whose rounding is 1e-14.
_NULL_SPREAD = 1e-10
# Shrinkages of the class covariances of the quadratic adversary: for many rows, for some, for few.
_SHRINKAGES = (1e-3, 0.1, 0.9)
_FEWEST_TO_CHOOSE = 20
# Gammas of the narrow kernel, times the number of columns: 4, 16 and 64 times that of the wide one.
_NARROW_GAMMAS = (2.0, 8.0, 32.0)
# An exact machine takes seconds for so many rows; its time grows faster than their square.
_MOST_EXACT, _LANDMARKS = 2500, 1000
# Rows that estimate principal axes, at most.
_AXES_ROWS = 20_000


class Features:
    """Erased rows as the adversaries see them: standardised columns and, with `scale_features`, two more for scale.

    An eraser that moves rows well on average may still leave one class more spread than another, so the squared norm
    and the largest entry of a row are columns of their own. The mean and spread of `learn` serve for all rows. With
    `leading` below 1 the columns are that share of the principal axes, those of largest variance: standardised columns
    hide which axes an eraser has filled with noise.
    """

    def __init__(self, learn: NDArray, scale_features: bool = True, leading: float = 1.0) -> None:
        self.scale_features = scale_features
        self.axes = leading_axes(learn, leading) if leading < 1 else None
        self.columns = standardiser(self._turned(learn))
        self.extra = standardiser(_scale(learn))

    def __call__(self, rows: NDArray) -> NDArray[np.float32]:
        parts = [self.columns(self._turned(rows))]
        if self.scale_features:
            parts.append(self.extra(_scale(rows)))
        # Far rows of a failed map must not overflow a network; trees and neighbours keep seeing them as far.
        return np.clip(np.concatenate(parts, axis=1), -1e3, 1e3).astype(np.float32)

    def _turned(self, rows: NDArray) -> NDArray:
        return rows if self.axes is None else rows.astype(np.float64) @ self.axes


def leading_axes(rows: NDArray, share: float) -> NDArray[np.float64]:
    """The principal axes of largest variance, as columns: a `share` of them, at least two."""
    wide = rows[:: -(-len(rows) // _AXES_ROWS)].astype(np.float64)
    _, axes = np.linalg.eigh(np.cov(wide.T).reshape(wide.shape[1], -1))
    return axes[:, ::-1][:, : max(2, round(share * wide.shape[1]))]


def _scale(rows: NDArray) -> NDArray[np.float64]:
    wide = rows.astype(np.float64, copy=False)
    return np.stack([np.log1p((wide**2).sum(axis=1)), np.abs(wide).max(axis=1)], axis=1)


def standardiser(rows: NDArray) -> Callable[[NDArray], NDArray]:
    """A map to mean zero and spread one of these rows; constant columns are only shifted."""
    mean, std = rows.mean(axis=0, dtype=np.float64), rows.std(axis=0, dtype=np.float64)
    std[std <= 1e-12 * np.abs(mean)] = 1.0
    return lambda x: (x - mean) / std


@contextmanager
def training() -> Iterator[None]:
    """Train a model that an interrupt can stop, without a warning where it has not converged: it is only weaker."""
    with warnings.catch_warnings(), interruptible():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


@dataclass(frozen=True)
class Adversary:
    """A classifier of the panel: its name in reports, and a function (X, z, seed) to a fitted classifier.

    With `leading` below 1 it sees only that share of the principal axes, those of largest variance.
    """

    name: str
    train: Callable[[NDArray, NDArray, int], Classifier]
    leading: float = 1.0


def _logistic(X: NDArray, z: NDArray, seed: int) -> Classifier:
    return LogisticRegression(C=0.1, max_iter=300, tol=1e-3).fit(X, z)


def _whitening(rows: NDArray[np.float64]) -> Callable[[NDArray], NDArray]:
    """A map to mean zero and covariance one that draws far rows in and drops directions without spread.

    It is affine invariant, up to a rotation. An eraser may throw some rows far out; without the drawing in, these rows
    would make the covariance and hide the classes of all others.
    """
    weights = np.ones(len(rows))
    for _ in range(5):
        mean = np.average(rows, axis=0, weights=weights)
        centred = rows - mean
        sizes, axes = np.linalg.eigh((centred * weights[:, None]).T @ centred / weights.sum())
        seen = sizes > _NULL_SPREAD * max(sizes[-1], np.finfo(float).tiny)
        matrix = axes[:, seen] / np.sqrt(sizes[seen])
        weights = _drawn_in(centred @ matrix) ** 2

    def whiten(rows: NDArray) -> NDArray:
        white = (rows - mean) @ matrix
        return white * _drawn_in(white)[:, None]

    return whiten


def _drawn_in(white: NDArray[np.float64]) -> NDArray[np.float64]:
    """The share of their length that rows keep: rows of a Gaussian keep nearly all of it."""
    d = max(white.shape[1], 1)
    length = np.sqrt((white**2).sum(axis=1) / d)
    return np.minimum(1, (1 + 2 / np.sqrt(d)) / np.maximum(length, 1e-300))


class ShrunkQuadratic(ClassifierMixin, BaseEstimator):
    """Quadratic discriminant analysis whose class covariances are shrunk towards a multiple of the identity.

    scikit-learn's own has this from 1.8 on. A class may be without spread in a direction that others have: what
    shrinkage gives it there is enough.
    """

    def __init__(self, shrinkage: float = 0.1) -> None:
        self.shrinkage = shrinkage

    def fit(self, X: NDArray, z: NDArray) -> ShrunkQuadratic:
        self.classes_, codes = np.unique(z, return_inverse=True)
        parts = [X[codes == k] for k in range(len(self.classes_))]
        self._priors = np.bincount(codes) / len(codes)
        self._means = [part.mean(axis=0) for part in parts]
        self._laws = [eigh(shrunk_covariance(empirical_covariance(part), self.shrinkage)) for part in parts]
        return self

    def predict_proba(self, X: NDArray) -> NDArray[np.float64]:
        densities = [
            (((X - mean) @ (axes * sizes**-0.5)) ** 2).sum(axis=1) + np.log(sizes).sum()
            for mean, (sizes, axes) in zip(self._means, self._laws, strict=True)
        ]
        return softmax(np.log(self._priors) - 0.5 * np.array(densities).T, axis=1)

    def predict(self, X: NDArray) -> NDArray:
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


def _quadratic(X: NDArray, z: NDArray, seed: int) -> Classifier:
    """Affine invariant quadratic discriminant analysis: it whitens the rows first.

    Rows x and A x + b (A invertible) get the same answers, so an eraser cannot look better by the axes and scales of
    its output. The covariance of a class is shrunk towards that of all rows; held-out rows choose by how much.
    """
    whiten = _whitening(X.astype(np.float64))
    rows, best, counts = whiten(X), _SHRINKAGES[-1], np.bincount(z)
    if counts.min() >= _FEWEST_TO_CHOOSE:
        learn, watch, z_learn, z_watch = train_test_split(rows, z, test_size=0.2, stratify=z, random_state=seed)

        def balanced(shrinkage: float) -> float:
            answer = (ShrunkQuadratic(shrinkage).fit(learn, z_learn).predict_proba(watch) / counts).argmax(axis=1)
            return float(np.mean([np.mean(answer[z_watch == k] == k) for k in range(len(counts))]))

        best = max(_SHRINKAGES, key=balanced)
    return make_pipeline(FunctionTransformer(whiten), ShrunkQuadratic(best).fit(rows, z))


def _polar(rows: NDArray) -> Callable[[NDArray], NDArray]:
    """A map to direction and logarithm of length, all columns of about unit variance."""

    def length(rows: NDArray) -> NDArray:
        return np.maximum(np.linalg.norm(rows, axis=1, keepdims=True) / np.sqrt(rows.shape[1]), 1e-30)

    logs = np.log(length(rows))
    mean, std = float(logs.mean()), max(float(logs.std()), 1e-6)
    return lambda x: np.hstack([x / length(x), (np.log(length(x)) - mean) / std]).astype(np.float32)


def _neighbours(X: NDArray, z: NDArray, seed: int) -> Classifier:
    """Nearest neighbours in direction and length.

    Among many columns the nearest rows are the short ones, whatever their direction. An eraser whose rows differ much
    in length would hide their classes behind that.
    """
    nearest = KNeighborsClassifier(n_neighbors=max(1, min(25, len(X) // 20)), algorithm="brute")
    return make_pipeline(FunctionTransformer(_polar(X)), nearest).fit(X, z)


def _kernel(X: NDArray, z: NDArray, seed: int) -> Classifier:
    landmarks = Nystroem(gamma=0.5 / X.shape[1], n_components=min(500, len(X)), random_state=seed)
    machine = LinearSVC(C=1e-3, dual=False, random_state=seed)
    return make_pipeline(landmarks, StandardScaler(), _calibrated(machine, seed)).fit(X, z)


def _narrow_kernel(X: NDArray, z: NDArray, seed: int) -> Classifier:
    """A support vector machine that tells small clusters apart; held-out rows choose among three widths."""
    gamma, counts = _NARROW_GAMMAS[0] / X.shape[1], np.bincount(z)
    size = min(_MOST_EXACT, len(X) - len(counts))
    if counts.min() * size / len(X) >= _FEWEST_TO_CHOOSE:
        rows, _, z_rows, _ = train_test_split(X, z, train_size=size, stratify=z, random_state=seed)
        learn, watch, z_learn, z_watch = train_test_split(
            rows, z_rows, test_size=0.3, stratify=z_rows, random_state=seed
        )

        def balanced(gamma: float) -> float:
            answer = _exact(gamma).fit(learn, z_learn).predict(watch)
            return float(np.mean([np.mean(answer[z_watch == k] == k) for k in range(len(counts))]))

        gamma = max((g / X.shape[1] for g in _NARROW_GAMMAS), key=balanced)
    if len(X) <= _MOST_EXACT:
        return _calibrated(_exact(gamma), seed).fit(X, z)
    landmarks = Nystroem(gamma=gamma, n_components=_LANDMARKS, random_state=seed)
    machine = RidgeClassifier(class_weight="balanced")
    return make_pipeline(landmarks, _calibrated(machine, seed)).fit(X, z)


def _calibrated(machine: Classifier, seed: int) -> Classifier:
    """The machine with probabilities, from rows that it has not learned from.

    The rows are shuffled first: files are often sorted, and one half of a sorted file says little of the other.
    """
    halves = StratifiedKFold(2, shuffle=True, random_state=seed)
    return CalibratedClassifierCV(machine, cv=halves, ensemble=False)


def _exact(gamma: float) -> SVC:
    return SVC(gamma=gamma, class_weight="balanced")


def _boosting(X: NDArray, z: NDArray, seed: int) -> Classifier:
    # A tenth of the columns at each split: as good as all of them on rotated embeddings, and several times as fast.
    share = max(0.1, min(1.0, 20 / X.shape[1]))
    model = HistGradientBoostingClassifier(
        max_leaf_nodes=15, max_features=share, early_stopping=False, random_state=seed
    )
    return model.fit(X, z)


def _paper_network(X: NDArray, z: NDArray, seed: int) -> Classifier:
    enough = bool(np.bincount(z).min() >= 10)
    return MLPClassifier(max_iter=20, early_stopping=enough, random_state=seed).fit(X, z)


def _wide_network(X: NDArray, z: NDArray, seed: int) -> Classifier:
    tried = []
    for penalty in _WIDE_PENALTIES:
        network = MLPClassifier((512, 512), alpha=penalty, batch_size=min(512, len(X)), random_state=seed)
        tried.append((fit_network(network, X, z, epochs=3, steps=50), network))
    return min(tried, key=lambda pair: pair[0])[1]


_MEMBERS = (
    Adversary("logistic", _logistic),
    Adversary("quadratic", _quadratic),
    Adversary("neighbours", _neighbours),
    Adversary("kernel", _kernel),
    Adversary("narrow kernel", _narrow_kernel),
    Adversary("leading axes", _narrow_kernel, leading=0.1),
    Adversary("boosting", _boosting),
    Adversary("network", _paper_network),
    Adversary("wide network", _wide_network),
)
PANEL = {adversary.name: adversary for adversary in _MEMBERS}


def _cautious(X: NDArray, z: NDArray, seed: int) -> Classifier:
    """Whichever of the class shares, a linear model and a network does best on held-out rows."""
    if np.bincount(z).min() < 30:
        return LogisticRegression(C=1e-3).fit(X, z)
    learn, watch, z_learn, z_watch = train_test_split(X, z, test_size=0.2, stratify=z, random_state=seed)
    network = MLPClassifier(alpha=1e-2, random_state=seed)
    fit_network(network, learn, z_learn, epochs=3, steps=50)
    shares = DummyClassifier(strategy="prior").fit(X, z)
    models = [shares, LogisticRegression(C=1e-2, max_iter=300, tol=1e-3).fit(learn, z_learn), network]
    return min(models, key=lambda model: log_loss(z_watch, model.predict_proba(watch)))


# A model that is wrongly sure makes a code long, and the members of the panel are bold: the code has its own model.
CODER = Adversary("cautious network", _cautious)


def panel_of(names: str | Sequence[str]) -> list[Adversary]:
    """The adversaries of these names; all for "all"."""
    if isinstance(names, str):
        names = list(PANEL) if names == "all" else [names]
    unknown = [n for n in names if n not in PANEL]
    if unknown or not names:
        raise MuteError(f'adversaries must be "all" or some of {list(PANEL)}, not {unknown or names}')
    return [PANEL[n] for n in names]


def attack(
    adversary: Adversary, learn: NDArray, z_learn: NDArray, test: NDArray, n_classes: int, seed: int
) -> NDArray[np.float64]:
    """Train on `learn` and give class probabilities (n, K) for `test`.

    A class without rows to learn from gets the share of one row more.
    """
    present = np.unique(z_learn)
    chances = np.full((len(test), n_classes), 1 / (len(z_learn) + n_classes))
    if len(present) == 1:
        chances[:, present] = 1.0
    else:
        # BLAS has been seen to flag an invalid operation on finite numbers; the answers are checked below.
        with training(), np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            model = adversary.train(learn, np.searchsorted(present, z_learn), seed)
            chances[:, present] = model.predict_proba(test)
        if not np.isfinite(chances).all():
            raise MuteError(f"the adversary {adversary.name!r} gave probabilities that are not finite")
    return chances / chances.sum(axis=1, keepdims=True)
