"""What is audited, and its rows: checked, drawn, split and erased."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mute.adversaries.scoring import folds_of
from mute.errors import MuteError
from mute.evaluation.blocks import as_rows, check_matrix, gather, labels_of, on_disk
from mute.flow.routing import stratified_sample
from mute.rows.frames import is_frame
from mute.rows.validation import LabelEncoder, check_finite, check_length, label_array
from mute.typing import LabelsLike, Method, RowsLike

__all__ = [
    "ELSEWHERE", "Rows", "Subject", "TrainingRows", "check_enough_rows", "check_task", "gather_unseen", "groups_of",
]  # fmt: skip

# The name of the eraser in reports on rows that were erased elsewhere.
ELSEWHERE = "rows erased elsewhere"
_FEWEST_ROWS = 20


class Subject:
    """What is audited: a fitted eraser, or rows that were erased elsewhere (`erased`, and `eraser` is None then).

    With `oracle` the eraser gets true labels (``concept=``); by default only an eraser that requires labels does.
    """

    def __init__(self, eraser: Method, encoder: LabelEncoder, oracle: bool | None) -> None:
        elsewhere = isinstance(eraser, np.ndarray) or on_disk(eraser) or is_frame(eraser)
        if not elsewhere and (isinstance(eraser, type) or not hasattr(eraser, "transform")):
            raise MuteError(
                f"cannot audit {eraser!r}; give a fitted eraser with a transform method, or an array of erased rows"
            )
        self.erased: RowsLike = as_rows(eraser, "the erased array") if elsewhere else None
        # Rows are matched to the names here, so that the eraser gets plain arrays and has no names to ask for.
        names = None if elsewhere else getattr(eraser, "feature_names_in_", None)
        self.columns: list[str] | None = None if names is None else list(names)
        bare = eraser.nameless() if hasattr(eraser, "nameless") else eraser
        self.eraser: Method = None if elsewhere else bare
        self.name = ELSEWHERE if elsewhere else type(eraser).__name__
        self.oracle = bool(getattr(eraser, "needs_concept", False)) if oracle is None else oracle
        self._labels = encoder.as_array()

    def can(self, method: str) -> bool:
        """Whether the eraser has this method."""
        return hasattr(self.eraser, method)

    @property
    def routes(self) -> bool:
        """Whether a router picks the class of each row, and the labels of the audit could take its place."""
        if self.oracle or not self.can("route"):
            return False
        known = LabelEncoder(self.eraser.classes_.tolist())
        return all(known.holds(label) for label in self._labels.tolist())

    def _true_labels(self, z: NDArray[np.int64]) -> dict[str, NDArray]:
        return {"concept": self._labels[z]} if self.oracle else {}

    def erase(self, X: NDArray, z: NDArray[np.int64]) -> NDArray:
        """Erased rows; `z` is used only by an oracle."""
        return self._erase(X, self._true_labels(z))

    def with_true_labels(self, *parts: tuple[NDArray, NDArray[np.int64]]) -> list[NDArray]:
        """Rows of each part (X, z), erased with true labels."""
        return [self._erase(X, {"concept": self._labels[z]}) for X, z in parts]

    def _erase(self, X: NDArray, labels: dict[str, NDArray]) -> NDArray:
        Q = np.asarray(self.eraser.transform(X, **labels))
        if Q.ndim != 2 or len(Q) != len(X):
            raise MuteError(f"{self.name}.transform gave shape {Q.shape} for {len(X)} rows; expected one row for each")
        check_finite(Q, f"what {self.name}.transform gave")
        return Q

    def counterfactual(self, X: NDArray, target: NDArray[np.int64], z: NDArray[np.int64]) -> NDArray:
        """Rows taken to the classes `target`; `z` is used only by an oracle."""
        return np.asarray(self.eraser.counterfactual(X, self._labels[target], **self._true_labels(z)))

    def erased_as(self, X: NDArray, z: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """The class each row is erased as, as its place in the eraser's ``classes_``; None where the eraser has none.

        The eraser may know classes that the audited rows do not have, and may send rows there.
        """
        if not self.can("classes_") or not (self.oracle or self.can("route")):
            return None
        labels = self._labels[z] if self.oracle else self.eraser.route(X)
        return LabelEncoder(self.eraser.classes_.tolist()).encode(np.asarray(labels, object), "the rows")


@dataclass(frozen=True)
class TrainingRows:
    """Rows that the eraser was fitted on: all (`X_all` may be on disk), and a draw with its classes and erased rows."""

    X: NDArray
    z: NDArray[np.int64]
    Q: NDArray
    X_all: RowsLike
    z_all: NDArray[np.int64]


class Rows:
    """Unseen rows in three folds, and training rows where given; arguments as in `audit`.

    What needs only one cut learns on two of the folds (``X_learn``) and is tested on the third (``X_test``). `z` and
    `Q` have all rows, those to learn from first, and `folds` has the fold of each.
    """

    def __init__(
        self,
        eraser: Method,
        X: RowsLike,
        z: LabelsLike,
        task: LabelsLike,
        fit_rows: tuple | None,
        oracle: bool | None,
        most: int,
        rng: np.random.Generator,
        groups: LabelsLike = None,
    ) -> None:
        labels = label_array(z, "z")
        self.encoder, codes = LabelEncoder.fit(labels)
        self.subject = Subject(eraser, self.encoder, oracle)
        X = as_rows(X, "X", len(labels), columns=self.subject.columns)
        self.n_given = X.shape[0]
        check_length(labels, self.n_given, "z")
        self.n_classes, self.class_counts = len(self.encoder), np.bincount(codes)
        check_enough_rows(self.encoder, self.class_counts)
        self.learn_rows, self.test_rows, self.folds = _split(
            self.encoder, codes, min(most, self.n_given), rng, known := groups_of(groups, self.n_given)
        )
        used = np.concatenate([self.learn_rows, self.test_rows])
        self.groups: NDArray[np.int64] | None = None if known is None else known[used]
        self.X_learn, self.X_test = gather_unseen(self.subject, X, [self.learn_rows, self.test_rows])
        self.z_learn, self.z_test = codes[self.learn_rows], codes[self.test_rows]
        erased = self.subject.erased
        if erased is None:
            self.Q_learn = self.subject.erase(self.X_learn, self.z_learn)
            self.Q_test = self.subject.erase(self.X_test, self.z_test)
        else:
            if erased.shape[0] != self.n_given:
                raise MuteError(f"the erased rows have shape {erased.shape}, but there are {self.n_given} rows in X")
            (self.Q_learn, self.Q_test), _ = gather(erased, "the erased array", [self.learn_rows, self.test_rows])
        self.z, self.Q = np.concatenate([self.z_learn, self.z_test]), np.concatenate([self.Q_learn, self.Q_test])
        self.Q_learn, self.Q_test = np.split(self.Q, [len(self.z_learn)])  # views: the rows are held once
        self.task: tuple[NDArray, NDArray, NDArray] | None = None
        if task is not None:
            encoder, y = LabelEncoder.fit(labels_of(task, self.n_given, "task"))
            check_task(encoder)
            self.task = encoder.as_array(), y[self.learn_rows], y[self.test_rows]
        self.seen = None if fit_rows is None else self._take_seen(fit_rows, rng)

    def _take_seen(self, fit_rows: tuple, rng: np.random.Generator) -> TrainingRows:
        elsewhere = self.subject.erased is not None
        if not isinstance(fit_rows, tuple) or len(fit_rows) != 2 + elsewhere:
            expected = "(X_fit, z_fit, Q_fit)" if elsewhere else "(X_fit, z_fit)"
            raise MuteError(f"fit_rows must be {expected}, not {type(fit_rows).__name__} of {len(fit_rows)}")
        X = as_rows(fit_rows[0], "X_fit", columns=self.subject.columns)
        if X.shape[1] != self.X_learn.shape[1]:
            raise MuteError(f"X_fit has {X.shape[1]} columns, X has {self.X_learn.shape[1]}")
        z = self.encoder.encode(labels_of(fit_rows[1], X.shape[0], "z_fit"), "z_fit")
        drawn = stratified_sample(z, len(self.X_learn), rng)
        (X_drawn,), _ = gather(X, "X_fit", [drawn])
        if elsewhere:
            erased, shape = as_rows(fit_rows[2], "Q_fit"), (X.shape[0], self.Q_learn.shape[1])
            if erased.shape != shape:
                raise MuteError(f"Q_fit has shape {erased.shape}; expected {shape}")
            (Q,), _ = gather(erased, "Q_fit", [drawn])
        else:
            Q = self.subject.erase(X_drawn, z[drawn])
        return TrainingRows(X_drawn, z[drawn], Q, X, z)

    def truth(self, given: tuple | None) -> tuple | None:
        """True counterfactuals of test rows: positions, target codes, embeddings."""
        if given is None:
            return None
        if not isinstance(given, tuple) or len(given) != 3:
            raise MuteError("truth must be (rows, targets, X_cf): which rows of X, their targets, what they become")
        rows, targets = np.asarray(given[0]), label_array(given[1], "targets of truth")
        made = check_matrix(given[2], "X_cf of truth", columns=self.subject.columns)
        if rows.dtype == bool:
            check_length(rows, self.n_given, "the mask of truth")
            rows = np.flatnonzero(rows)
        if not len(rows) == len(targets) == len(made):
            raise MuteError(f"truth has {len(rows)} rows, {len(targets)} targets and {len(made)} counterfactuals")
        if made.shape[1] != self.X_test.shape[1]:
            raise MuteError(f"X_cf of truth has {made.shape[1]} columns, X has {self.X_test.shape[1]}")
        place = {row: i for i, row in enumerate(self.test_rows)}
        kept = np.array([i for i, row in enumerate(rows) if row in place], int)
        codes = self.encoder.encode(targets[kept], "targets of truth")
        return np.array([place[rows[i]] for i in kept], int), codes, made[kept]


def gather_unseen(subject: Subject, X: RowsLike, places: Sequence[NDArray[np.int64]]) -> list[NDArray]:
    """The rows of `X` at each of `places`, in ascending order; the rows that the eraser was fitted on are refused."""
    known = getattr(subject.eraser, "fitted_on_", {})
    suspicious = known.get("rows") == X.shape[0]
    drawn, digest = gather(X, "X", places, digest=suspicious)
    if suspicious and known.get("sha256_of_rows") == digest:
        raise MuteError(
            "X has the very rows that the eraser was fitted on, where every eraser looks good; give unseen rows, "
            "and these rows as fit_rows for comparison"
        )
    return drawn


def check_enough_rows(encoder: LabelEncoder, counts: NDArray[np.int64], where: str = "") -> None:
    """Refuse classes that are too small for an adversary to learn and to be tested on."""
    if len(encoder) < 2:
        raise MuteError(f"z has one class only ({encoder.classes[0]!r}); give rows of two classes or more")
    fewest = int(counts.min())
    if fewest < _FEWEST_ROWS:
        few = encoder.classes[int(counts.argmin())]
        raise MuteError(
            f"class {few!r} has {fewest} row(s){where}; an audit needs at least {_FEWEST_ROWS} of each class, to learn "
            "from and to test on"
        )


def check_task(encoder: LabelEncoder, where: str = "") -> None:
    """Refuse a task of one label."""
    if len(encoder) < 2:
        raise MuteError(f"task has one label only ({encoder.classes[0]!r}){where}; give two labels or more")


def groups_of(groups: LabelsLike, n_rows: int) -> NDArray[np.int64] | None:
    """The number of each row's group; None without groups."""
    if groups is None:
        return None
    numbers: dict = {}
    labels = labels_of(groups, n_rows, "groups")
    return np.fromiter((numbers.setdefault(label, len(numbers)) for label in labels), np.int64, n_rows)


def _split(
    encoder: LabelEncoder, z: NDArray, size: int, rng: np.random.Generator, groups: NDArray | None
) -> tuple[NDArray[np.int64], ...]:
    """Rows to learn from, rows to test on (the first of three folds), and the fold of each, in this order."""
    rows = stratified_sample(z, size, rng)
    mine = None if groups is None else groups[rows]
    if mine is not None:
        for k in range(len(encoder)):
            if (n := len(np.unique(mine[z[rows] == k]))) < 3:
                raise MuteError(
                    f"class {encoder.classes[k]!r} has rows in {n} group(s); an audit needs at least 3, because no "
                    "group may be on two sides of a cut"
                )
    folds = folds_of(z[rows], rng, mine)
    test = folds == 0
    if (~test).sum() < _FEWEST_ROWS:
        raise MuteError(f"most_rows is {size}, which leaves {(~test).sum()} row(s) to learn from; give more")
    return rows[~test], rows[test], np.concatenate([folds[~test], folds[test]])
