"""The adversaries: a panel of classifiers that try to read the concept from erased rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.interrupts import interruptible

__all__ = ["CODER", "PANEL", "Adversary", "Features", "attack", "panel_of"]

# Settings of the wide network, of which the better on its own watched rows is kept.
_WIDE_PENALTIES = (1e-4, 1.0)
_LANDMARKS = 500


class Features:
    """Erased rows as the adversaries see them: standardised columns, and what tells of scale.

    An eraser that moves rows well on average may still leave one class more spread than another, so the squared norm
    and the largest entry of a row are given as columns of their own.

    Parameters
    ----------
    learn : array of shape (n, D)
        Rows whose mean and spread serve for all others.
    scale_features : bool
    """

    def __init__(self, learn: NDArray, scale_features: bool) -> None:
        self.scale_features = scale_features
        self.columns = _standardiser(learn)
        self.extra = _standardiser(_scale(learn))

    def __call__(self, rows: NDArray) -> NDArray[np.float32]:
        parts = [self.columns(rows)]
        if self.scale_features:
            parts.append(self.extra(_scale(rows)))
        # Far rows of a failed map must not overflow a network; trees and neighbours see them as far all the same.
        return np.clip(np.concatenate(parts, axis=1), -1e3, 1e3).astype(np.float32)


def _scale(rows: NDArray) -> NDArray[np.float64]:
    wide = rows.astype(np.float64, copy=False)
    return np.stack([np.log1p((wide**2).sum(axis=1)), np.abs(wide).max(axis=1)], axis=1)


def _standardiser(rows: NDArray) -> Callable[[NDArray], NDArray]:
    mean, std = rows.mean(axis=0, dtype=np.float64), rows.std(axis=0, dtype=np.float64)
    std[std <= 1e-12 * np.abs(mean)] = 1.0
    return lambda x: (x - mean) / std


@dataclass(frozen=True)
class Adversary:
    """A classifier of the panel.

    Attributes
    ----------
    name : str
        What reports call it.
    train : function (X, z, seed) to a fitted classifier with ``predict_proba`` and ``classes_``
    """

    name: str
    train: Callable[[NDArray, NDArray, int], Any]


def _logistic(X: NDArray, z: NDArray, seed: int) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=0.1, max_iter=300, tol=1e-3).fit(X, z)


def _quadratic(X: NDArray, z: NDArray, seed: int) -> Any:
    from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis

    rows = X.astype(np.float64)
    # Shrinkage makes it usable with few rows in a class; what is chosen from the rows may be too little for an eraser
    # that leaves a direction without spread.
    try:
        return QuadraticDiscriminantAnalysis(solver="eigen", shrinkage="auto").fit(rows, z)
    except np.linalg.LinAlgError:
        return QuadraticDiscriminantAnalysis(solver="eigen", shrinkage=1e-3).fit(rows, z)


def _neighbours(X: NDArray, z: NDArray, seed: int) -> Any:
    from sklearn.neighbors import KNeighborsClassifier

    return KNeighborsClassifier(n_neighbors=max(1, min(25, len(X) // 20)), algorithm="brute").fit(X, z)


def _kernel(X: NDArray, z: NDArray, seed: int) -> Any:
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.kernel_approximation import Nystroem
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import LinearSVC

    landmarks = Nystroem(gamma=0.5 / X.shape[1], n_components=min(_LANDMARKS, len(X)), random_state=seed)
    machine = LinearSVC(C=1e-3, dual=False, random_state=seed)
    # Its answers become probabilities on rows that it has not learned from.
    return make_pipeline(landmarks, StandardScaler(), CalibratedClassifierCV(machine, cv=2, ensemble=False)).fit(X, z)


def _boosting(X: NDArray, z: NDArray, seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    # A tenth of the columns at each split: as good as all of them on rotated embeddings, and several times as fast.
    model = HistGradientBoostingClassifier(
        max_iter=100, learning_rate=0.1, max_leaf_nodes=15, max_features=max(0.1, min(1.0, 20 / X.shape[1])),
        early_stopping=False, random_state=seed,
    )  # fmt: skip
    return model.fit(X, z)


def _paper_network(X: NDArray, z: NDArray, seed: int) -> Any:
    from sklearn.neural_network import MLPClassifier

    enough = bool(np.bincount(z).min() >= 10)
    return MLPClassifier(max_iter=20, early_stopping=enough, random_state=seed).fit(X, z)


def _wide_network(X: NDArray, z: NDArray, seed: int) -> Any:
    from sklearn.neural_network import MLPClassifier

    from mute.routing import fit_network

    tried = []
    for penalty in _WIDE_PENALTIES:
        network = MLPClassifier((512, 512), alpha=penalty, batch_size=min(512, len(X)), random_state=seed)
        tried.append((fit_network(network, X, z, epochs=3, steps=50), network))
    return min(tried, key=lambda pair: pair[0])[1]


PANEL: dict[str, Adversary] = {
    a.name: a
    for a in (
        Adversary("logistic", _logistic),
        Adversary("quadratic", _quadratic),
        Adversary("neighbours", _neighbours),
        Adversary("kernel", _kernel),
        Adversary("boosting", _boosting),
        Adversary("network", _paper_network),
        Adversary("wide network", _wide_network),
    )
}


def _cautious(X: NDArray, z: NDArray, seed: int) -> Any:
    """Whichever of the class shares, a linear model and a network does best on a fifth of the rows, set aside."""
    from sklearn.dummy import DummyClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss
    from sklearn.model_selection import train_test_split
    from sklearn.neural_network import MLPClassifier

    from mute.routing import fit_network

    shares = DummyClassifier(strategy="prior").fit(X, z)
    if np.bincount(z).min() < 30:
        return LogisticRegression(C=1e-3).fit(X, z)
    learn, watch, z_learn, z_watch = train_test_split(X, z, test_size=0.2, stratify=z, random_state=seed)
    network = MLPClassifier(alpha=1e-2, random_state=seed)
    fit_network(network, learn, z_learn, epochs=3, steps=50)
    models = [shares, LogisticRegression(C=1e-2, max_iter=300, tol=1e-3).fit(learn, z_learn), network]
    return min(models, key=lambda model: log_loss(z_watch, model.predict_proba(watch)))


# A code is as long as its model is wrongly sure: not one of the panel, whose members are bold.
CODER = Adversary("cautious network", _cautious)


def panel_of(names: Any) -> list[Adversary]:
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

    A class that is missing among the rows to learn from gets the share of one row that has not been seen.
    """
    import warnings

    from sklearn.exceptions import ConvergenceWarning

    present = np.unique(z_learn)
    chances = np.full((len(test), n_classes), 1 / (len(z_learn) + n_classes))
    if len(present) == 1:
        chances[:, present] = 1.0
    else:
        # BLAS has been seen to flag an invalid operation on finite numbers; the answers are checked below.
        with (
            warnings.catch_warnings(),
            interruptible(),
            np.errstate(invalid="ignore", over="ignore", divide="ignore"),
        ):
            # An adversary that has not converged is a weaker one, and the panel has others.
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = adversary.train(learn, np.searchsorted(present, z_learn), seed)
            chances[:, present] = model.predict_proba(test)
        if not np.isfinite(chances).all():
            raise MuteError(f"the adversary {adversary.name!r} gave probabilities that are not finite")
    return chances / chances.sum(axis=1, keepdims=True)
