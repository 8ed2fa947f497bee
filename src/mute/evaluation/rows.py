"""The rows of an audit: checked, drawn, split and erased."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.evaluation.blocks import as_rows, check_matrix, gather
from mute.evaluation.subject import Subject
from mute.flow.routing import stratified_sample
from mute.rows.validation import LabelEncoder, check_length, label_array
from mute.typing import LabelsLike, Method, RowsLike

__all__ = ["Rows", "TrainingRows", "check_enough_rows", "check_task"]

# Share of the unseen rows that adversaries learn from; the others test them.
_LEARN = 0.6
_FEWEST_ROWS = 20


@dataclass(frozen=True)
class TrainingRows:
    """Rows that the eraser was fitted on: all (`X_all` may be on disk), and a draw with its classes and erased rows."""

    X: NDArray
    z: NDArray[np.int64]
    Q: NDArray
    X_all: RowsLike
    z_all: NDArray[np.int64]


class Rows:
    """Unseen rows, some to learn from and some to test on, and training rows where given; arguments as in `audit`."""

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
    ) -> None:
        labels = label_array(z, "z")
        X = as_rows(X, "X", len(labels))
        n_rows = X.shape[0]
        check_length(labels, n_rows, "z")
        self.encoder, codes = LabelEncoder.fit(labels)
        self.n_classes, self.n_given, self.class_counts = len(self.encoder), n_rows, np.bincount(codes)
        check_enough_rows(self.encoder, self.class_counts)
        self.subject = Subject(eraser, self.encoder, oracle)
        self.learn_rows, self.test_rows = _split(codes, min(most, n_rows), rng)
        self.X_learn, self.X_test = self._draw(X)
        self.z_learn, self.z_test = codes[self.learn_rows], codes[self.test_rows]
        if self.subject.erased is None:
            self.Q_learn = self.subject.erase(self.X_learn, self.z_learn)
            self.Q_test = self.subject.erase(self.X_test, self.z_test)
        else:
            self.subject.check_erased(n_rows)
            places = [self.learn_rows, self.test_rows]
            (self.Q_learn, self.Q_test), _ = gather(self.subject.erased, "the erased array", places)
        self.task_encoder: LabelEncoder | None = None
        self.y_learn: NDArray | None = None
        self.y_test: NDArray | None = None
        if task is not None:
            self._take_task(task)
        self.seen = None if fit_rows is None else self._take_seen(fit_rows, rng)

    def _draw(self, X: RowsLike) -> list[NDArray]:
        """The rows to learn from and the rows to test on; training rows are refused."""
        known = getattr(self.subject.eraser, "fitted_on_", {})
        suspicious = known.get("rows") == self.n_given
        drawn, digest = gather(X, "X", [self.learn_rows, self.test_rows], digest=suspicious)
        if suspicious and known.get("sha256_of_rows") == digest:
            raise MuteError(
                "X has the very rows that the eraser was fitted on, where every eraser looks good; give unseen rows, "
                "and these rows as fit_rows for comparison"
            )
        return drawn

    def _take_task(self, task: LabelsLike) -> None:
        labels = label_array(task, "task")
        check_length(labels, self.n_given, "task")
        self.task_encoder, y = LabelEncoder.fit(labels)
        check_task(self.task_encoder)
        self.y_learn, self.y_test = y[self.learn_rows], y[self.test_rows]

    def _take_seen(self, fit_rows: tuple, rng: np.random.Generator) -> TrainingRows:
        elsewhere = self.subject.erased is not None
        if not isinstance(fit_rows, tuple) or len(fit_rows) != 2 + elsewhere:
            expected = "(X_fit, z_fit, Q_fit)" if elsewhere else "(X_fit, z_fit)"
            raise MuteError(f"fit_rows must be {expected}, not {type(fit_rows).__name__} of {len(fit_rows)}")
        X = as_rows(fit_rows[0], "X_fit")
        if X.shape[1] != self.X_learn.shape[1]:
            raise MuteError(f"X_fit has {X.shape[1]} columns, X has {self.X_learn.shape[1]}")
        labels = label_array(fit_rows[1], "z_fit")
        check_length(labels, X.shape[0], "z_fit")
        z = self.encoder.encode(labels, "z_fit")
        drawn = stratified_sample(z, len(self.X_learn), rng)
        (X_drawn,), _ = gather(X, "X_fit", [drawn])
        if elsewhere:
            erased = as_rows(fit_rows[2], "Q_fit")
            shape = (X.shape[0], self.Q_learn.shape[1])
            if erased.shape != shape:
                raise MuteError(f"Q_fit has shape {erased.shape}; expected {shape}")
            (Q,), _ = gather(erased, "Q_fit", [drawn])
        else:
            Q = self.subject.erase(X_drawn, z[drawn])
        return TrainingRows(X_drawn, z[drawn], Q, X, z)

    def truth(self, given: tuple | None) -> tuple | None:
        """True counterfactuals of test rows: positions, target codes, rows."""
        if given is None:
            return None
        if not isinstance(given, tuple) or len(given) != 3:
            raise MuteError("truth must be (rows, targets, X_cf): which rows of X, their targets, what they become")
        rows, targets = np.asarray(given[0]), label_array(given[1], "targets of truth")
        made = check_matrix(given[2], "X_cf of truth")
        if rows.dtype == bool:
            rows = np.flatnonzero(rows)
        if not len(rows) == len(targets) == len(made):
            raise MuteError(f"truth has {len(rows)} rows, {len(targets)} targets and {len(made)} counterfactuals")
        place = {row: i for i, row in enumerate(self.test_rows)}
        kept = np.array([i for i, row in enumerate(rows) if row in place], int)
        codes = self.encoder.encode(targets[kept], "targets of truth")
        return np.array([place[rows[i]] for i in kept], int), codes, made[kept]


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


def _split(z: NDArray, size: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows to learn from and rows to test on, every class in both."""
    rows = stratified_sample(z, size, rng)
    learn = np.zeros(len(rows), bool)
    for k in np.unique(z):
        mine = np.flatnonzero(z[rows] == k)
        learn[rng.permutation(mine)[: round(_LEARN * len(mine))]] = True
    return rows[learn], rows[~learn]
