"""What the paper measures, as it measures it, and beside it the same on fresh rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mute.adversaries.panel import Features, attack, panel_of, training
from mute.evaluation.fairness import fairness
from mute.evaluation.utility import similarity_correlation
from mute.paper.problems import Words
from mute.typing import Classifier

__all__ = [
    "FIRST_SEED", "judge_task", "kept", "near", "network", "probe", "readings", "strongest", "task_figures", "trained",
    "wordsim",
]  # fmt: skip

# The paper's five runs.
FIRST_SEED = 123

# Adversaries beside the paper's: those that read most from erased rows for their time.
STRONG = ("quadratic", "boosting", "network")


def network(seed: int, epochs: int) -> Classifier:
    """The paper's classifier: scikit-learn's network with its defaults and early stopping."""
    from sklearn.neural_network import MLPClassifier

    return MLPClassifier(early_stopping=True, max_iter=epochs, random_state=FIRST_SEED + seed)


def trained(model: Classifier, X: NDArray, labels: NDArray) -> Classifier:
    """The model, fitted; that it may not have converged is part of the protocol."""
    with training():
        return model.fit(X, labels)


def probe(learn: NDArray, z_learn: NDArray, test: NDArray, z_test: NDArray, seed: int) -> float:
    """Accuracy of the paper's probe: one hidden layer of 100 units, at most 20 epochs."""
    return float(trained(network(seed, 20), learn, z_learn).score(test, z_test))


def readings(
    learn: NDArray, z_learn: NDArray, test: NDArray, z_test: NDArray, seed: int, names: Sequence[str], *, scaled: bool
) -> dict[str, float]:
    """Balanced accuracy of each adversary on `test`, after it has learned on `learn`; chance is 1 / K.

    Adversaries see the scale of a row too. Unless `scaled`, the quadratic one does not, and is affine invariant.
    """
    from sklearn.metrics import balanced_accuracy_score

    classes, codes = np.unique(z_learn, return_inverse=True)
    truth = np.searchsorted(classes, z_test)
    features = Features(learn)
    seen, asked = features(learn), features(test)
    found = {}
    for adversary in panel_of(names):
        width = learn.shape[1] if adversary.name == "quadratic" and not scaled else seen.shape[1]
        chances = attack(adversary, seen[:, :width], codes, asked[:, :width], len(classes), FIRST_SEED + seed)
        # Rare classes count as much as others: answers are weighed by one over the share of the class.
        answer = (chances / np.bincount(codes)).argmax(axis=1)
        found[adversary.name] = float(balanced_accuracy_score(truth, answer))
    return found


def strongest(learn: NDArray, z_learn: NDArray, test: NDArray, z_test: NDArray, seed: int) -> float:
    """Balanced accuracy of the strongest of three adversaries; chance is 1 / K."""
    return max(readings(learn, z_learn, test, z_test, seed, STRONG, scaled=True).values())


def judge_task(
    learn: NDArray, y_learn: NDArray, test: NDArray, y_test: NDArray, z_test: NDArray, seed: int
) -> dict[str, float]:
    """Accuracy and gaps of the paper's task classifier."""
    return task_figures(trained(network(seed, 10_000), learn, y_learn), test, y_test, z_test)


def task_figures(model: Classifier, test: NDArray, y_test: NDArray, z_test: NDArray) -> dict[str, float]:
    """Accuracy and gaps of a classifier that has learned the task."""
    found = fairness(y_test, model.predict(test), z_test, rng=np.random.default_rng(0), draws=0)
    return {"accuracy": found.accuracy.value, "tpr_rms": found.tpr_rms.value, "dp": found.demographic_parity.value}


def kept(Q_learn: NDArray, X_learn: NDArray, Q_test: NDArray, X_test: NDArray) -> float:
    """Share of the variance of unseen rows that a linear reader reads back from their erased versions."""
    from sklearn.linear_model import Ridge
    from sklearn.metrics import r2_score
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(Q_learn.astype(np.float64))
    reader = Ridge(1.0).fit(scaler.transform(Q_learn.astype(np.float64)), X_learn.astype(np.float64))
    found = reader.predict(scaler.transform(Q_test.astype(np.float64)))
    return float(r2_score(X_test, found.reshape(X_test.shape), multioutput="variance_weighted"))


def near(X: NDArray, Q: NDArray, share: float = 0.01) -> float:
    """The paper's overlap of neighbourhoods: a row is its own nearest neighbour, before and after."""
    from sklearn.neighbors import NearestNeighbors

    k = max(1, int(share * len(X)))
    before, after = (
        NearestNeighbors(n_neighbors=k, algorithm="brute").fit(rows).kneighbors(rows, return_distance=False)
        for rows in (X, Q)
    )
    return float(np.mean([len(np.intersect1d(a, b)) for a, b in zip(before, after, strict=True)]) / k)


def wordsim(vectors: NDArray, words: Words) -> dict[str, float]:
    """Spearman correlation of cosines with the human judgements of each survey."""
    return {
        name: similarity_correlation(vectors, vectors, words.names, pairs)[0].value
        for name, pairs in words.surveys.items()
    }
