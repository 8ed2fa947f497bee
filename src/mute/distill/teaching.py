"""What the copies of an eraser share: the teacher, its answers, how a copy is judged, training by gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from mute.errors import MuteError
from mute.estimators.base import ConceptEstimator
from mute.estimators.conditional import Conditional
from mute.estimators.moments import Moments, least_squares
from mute.estimators.settings import COUNT, COUNT_OR_NONE, NOT_NEGATIVE, POSITIVE, WHOLE, one_of
from mute.estimators.training import GradientTrained, descent, device_of, require_torch, seeded
from mute.flow.ops import TorchOps
from mute.rows.validation import LabelEncoder, concept_of
from mute.typing import Array, Constraints, Json, LabelsLike, Method, Ops, RowsLike, Seed, Value

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = [
    "RIDGE",
    "Pairs",
    "ParameterOps",
    "Surrogate",
    "Trained",
    "affine_by_class",
    "affine_with",
    "blocks",
    "classes_for",
    "erased_by",
    "fidelity",
    "made_rows",
    "row_by_row",
    "set_aside",
]

_BLOCK = 8192

# On the matrices of affine copies, as a share of the mean variance of a column.
RIDGE = 1e-6

# With this many rows to learn from, "auto" makes no more.
_ENOUGH = 50_000


class Surrogate(ConceptEstimator):
    """A method that copies a `teacher`, which is fitted already, or is fitted first on the same rows.

    A fitted teacher with a router needs no labels: each row then counts as the class that the router chooses.
    """

    teacher: Method
    _TEACHERS: tuple[type, str] = (ConceptEstimator, "an eraser")

    def _check_settings(self) -> None:
        super()._check_settings()
        kind, words = self._TEACHERS
        if self.teacher is not None and not isinstance(self.teacher, kind):
            raise MuteError(f"teacher must be None or {words}, not {self.teacher!r}")

    def _default_teacher(self) -> ConceptEstimator:
        from mute.eraser import MUtE

        return MUtE(diagnostics=False)

    def _is_taught(self) -> bool:
        """Whether the teacher is fitted already."""
        return self.teacher is not None and hasattr(self.teacher, "n_features_in_")

    def _fit(self, X: RowsLike, y: LabelsLike, concept: LabelsLike, **labels: LabelsLike) -> Self:
        super()._fit(X, y, concept, **labels)
        if self._is_taught():
            self.fitted_on_["teacher"] = {"kind": type(self.teacher).__name__, **self.teacher.fitted_on_}
        return self

    def _read_concept(self, X: Array, y: LabelsLike, concept: LabelsLike) -> Array:
        """Codes of the labels; without labels the router's choice, or no columns if the teacher uses no classes."""
        if not self._is_taught():
            return super()._read_concept(X, y, concept)
        teacher = self.teacher
        if teacher.n_features_in_ != X.shape[1]:
            raise MuteError(f"the teacher was fitted on {teacher.n_features_in_} columns, X has {X.shape[1]}")
        if not hasattr(teacher, "classes_"):
            raise MuteError(f"{type(teacher).__name__} was fitted on values in place of classes; it cannot be copied")
        self._encoder, self.classes_ = LabelEncoder(teacher.classes_.tolist()), teacher.classes_
        if y is not None or concept is not None:
            return self._encoder.encode(concept_of(len(X), y, concept), "concept")
        if not isinstance(teacher, Conditional):
            return np.empty((len(X), 0))
        if teacher.router_ is None:
            raise MuteError("the teacher has no router, so it needs concept=, one label for each row")
        return teacher.router_.predict(X)

    def _fitted_teacher(self, X: Array, z: NDArray[np.int64], rng: np.random.Generator) -> Method:
        """The teacher, if it is fitted; else a clone of it, fitted on these rows."""
        seed = int(rng.integers(2**31 - 1))
        if self._is_taught():
            teacher = copy(self.teacher)
            vars(teacher).pop("feature_names_in_", None)  # from here on rows are arrays
            return teacher
        teacher = self._default_teacher() if self.teacher is None else clone(self.teacher)
        if teacher.get_params(deep=False).get("random_state", seed) is None:
            teacher.set_params(random_state=seed)
        return teacher.fit(X, self.classes_[z])

    def _learn_router_of(self: Method, teacher: Method, X: Array, z: NDArray[np.int64]) -> None:
        """The teacher's router, if the settings ask for it, or one of its own."""
        if self.router == "teacher":
            self.router_, self.routing_ = teacher.router_, teacher.routing_
        else:
            self._learn_router(X, z)

    def _to_artifact(self) -> tuple[dict[str, Array], Json]:
        bare = copy(self)
        bare.teacher = None  # a file contains no other estimators
        return super(Surrogate, bare)._to_artifact()

    def _check_every_class(self, k: NDArray[np.int64]) -> None:
        """Refuse rows without some class, whose map could not be learned."""
        for label, count in zip(self._encoder.classes, np.bincount(k, minlength=len(self._encoder)), strict=True):
            if count == 0:
                raise MuteError(f"no row is of class {label!r}, so its map cannot be copied; give rows of it")

    def _check_shapes(self: Method, expected: dict[str, tuple[int, ...]]) -> None:
        """Refuse the weights of a file whose shapes do not fit together."""
        if {name: w.shape for name, w in self.weights_.items()} != expected:
            raise MuteError("the shapes of its weights do not fit together")


def classes_for(teacher: Method, X: Array, z: Array) -> NDArray[np.int64]:
    """The class whose map each row takes: the router's choice or, without a router, the label."""
    return z if teacher.router_ is None else teacher.router_.predict(X)


def erased_by(teacher: Method, X: Array, z: Array) -> Array:
    """The teacher's erased rows."""
    concept = teacher.classes_[classes_for(teacher, X, z)] if isinstance(teacher, Conditional) else None
    return np.asarray(teacher.transform(X, concept=concept))


def made_rows(
    teacher: Method, Q: Array, n_classes: int, augment: int | str, rng: np.random.Generator
) -> tuple[NDArray[np.floating], NDArray[np.int64], NDArray[np.floating]]:
    """Further rows to learn from, their classes, and these rows erased, made by a fitted `Invertible` teacher.

    The erased rows are mixtures of two rows of `Q` with weights cos a and sin a; the teacher brings them back as
    classes at random. If erased rows are Gaussian, so are such mixtures, and what comes back follows the law of the
    class. `augment` says how many for each row; "auto" makes three, while all rows are fewer than 50,000.
    """
    n = len(Q)
    size = min(3 * n, max(_ENOUGH - n, 0)) if augment == "auto" else int(augment) * n
    first, second = rng.integers(n, size=(2, size))
    angle = rng.uniform(0, np.pi / 2, (size, 1)).astype(Q.dtype)
    mixed = np.cos(angle) * Q[first] + np.sin(angle) * Q[second]
    classes = rng.integers(n_classes, size=size)
    back = teacher.inverse_transform(mixed, concept=teacher.classes_[classes]) if size else mixed
    return back, classes, mixed


def set_aside(n: int, rows: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows to learn from and up to `rows` to watch, at most a fifth; with fewer than ten rows, all are both."""
    if n < 10:
        return np.arange(n), np.arange(n)
    order = rng.permutation(n)
    size = min(rows, n // 5)
    return np.sort(order[size:]), np.sort(order[:size])


class Pairs(NamedTuple):
    """Moments of rows x and answers y to them, side by side."""

    mean: NDArray[np.float64]
    covariance: NDArray[np.float64]

    @classmethod
    def gather(cls, blocks: Iterable[tuple[Array, Array]], d: int) -> Pairs:
        moments = Moments(1, 2 * d, "pooled")
        for x, y in blocks:
            # In double precision: a regression divides by the smallest variances.
            moments.add(np.concatenate([x, y], axis=1, dtype=np.float64))
        return cls(moments.mean, moments.covariance)

    @classmethod
    def of(cls, X: Array, Y: Array, rows: NDArray[np.int64]) -> Pairs:
        """The pairs of some rows of both."""
        return cls.gather(zip(blocks(X, rows), blocks(Y, rows), strict=True), X.shape[1])

    def reverse(self) -> Pairs:
        """The same pairs with x for y."""
        d = len(self.mean) // 2
        return Pairs(np.roll(self.mean, d), np.roll(self.covariance, (d, d), axis=(0, 1)))

    def regression(self, ridge: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Matrix and offset of the affine map that best gives y from x; the matrix multiplies columns."""
        d = len(self.mean) // 2
        A = least_squares(self.covariance[:d, :d], self.covariance[:d, d:], ridge).T
        return A, self.mean[d:] - A @ self.mean[:d]

    def r2(self, A: NDArray[np.float64], b: NDArray[np.float64], learned: Pairs) -> float:
        """Share of the squared distance of y from the mean of the pairs learned from that the map explains."""
        spread = self.spread(learned)
        return 1 - self.error(A, b) / spread if spread > 0 else 1.0

    def error(self, A: NDArray[np.float64], b: NDArray[np.float64]) -> float:
        """Mean squared length of y - (Ax + b)."""
        rest = np.concatenate([-A, np.eye(len(b))], axis=1)  # (x, y) to y - Ax
        return float(np.trace(rest @ self.covariance @ rest.T) + ((rest @ self.mean - b) ** 2).sum())

    def spread(self, learned: Pairs) -> float:
        """Mean squared distance of y from the mean of the pairs learned from."""
        d = len(self.mean) // 2
        return float(np.trace(self.covariance[d:, d:]) + ((self.mean - learned.mean)[d:] ** 2).sum())


def blocks(X: Array, rows: NDArray[np.int64]) -> Iterator[Array]:
    """Some rows of X, in blocks."""
    return (X[rows[start : start + _BLOCK]] for start in range(0, len(rows), _BLOCK))


def affine_by_class(
    X: Array, Q: Array, rows: NDArray[np.int64], k: NDArray[np.int64], priors: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """For each class the affine map that best gives the rows of Q from those of X: matrices (K, D, D), offsets (K, D).

    The matrices multiply rows from the right. Where the rows of a class do not vary, `priors` (K, D, D) stand.
    """
    matrices, offsets = priors.copy(), np.zeros(priors.shape[:2])
    for c, prior in enumerate(priors):
        mine = rows[k[rows] == c]
        if len(mine):
            left = ((x, q - x @ prior) for x, q in zip(blocks(X, mine), blocks(Q, mine), strict=True))
            A, offsets[c] = Pairs.gather(left, X.shape[1]).regression(RIDGE)
            matrices[c] += A.T
    return matrices, offsets


def affine_with(ops: Ops, x: Value, k: Value, matrices: Array, offsets: Array) -> Value:
    """The affine map of each row's class as arithmetic on values of `ops`."""

    def work(rows: Value, c: int) -> Value:
        return ops.linear(rows, ops.array(f"matrix{c}", matrices[c]), ops.array(f"offset{c}", offsets[c]))

    return ops.by_class(work, x, k, len(matrices))


def row_by_row(rows: NDArray[np.int64], work: Callable[[NDArray[np.int64]], Array], width: int) -> NDArray[np.float32]:
    """`work` on blocks of `rows`, in single precision."""
    out = np.empty((len(rows), width), np.float32)
    for start in range(0, len(rows), _BLOCK):
        out[start : start + _BLOCK] = work(rows[start : start + _BLOCK])
    return out


def fidelity(error: float, learned: Pairs, held: Pairs, n: int) -> dict[str, float]:
    """How near a copy comes on held-out rows: its mean squared error beside those of an affine map and a constant."""
    d = len(learned.mean) // 2
    constant = held.spread(learned) / d
    return {
        "mse": error,
        "mse_affine": held.error(*learned.regression(RIDGE)) / d,
        "mse_constant": constant,
        "r2": 1 - error / constant if constant > 0 else 1.0,
        "rows": n,
    }


class ParameterOps(TorchOps):
    """Arithmetic on tensors whose constants are parameters under training, if they are among `weights`.

    Constants whose name ends in one of `small` begin at zero and are `size` times their parameter: an optimiser makes
    steps of one length, and their sum should be as large as what is to be learned.
    """

    def __init__(self, weights: dict[str, Array], device: torch.device, small: tuple[str, ...], size: float) -> None:
        super().__init__(np.float32)
        self.device, self.small, self.size = device, small, size
        parameters = {name: self.torch.nn.Parameter(TorchOps.array(self, name, w)) for name, w in weights.items()}
        self.module = self.torch.nn.ParameterDict(parameters).to(device)
        self.constants: dict[str, Tensor] = {}

    def array(self, name: str, values: Array) -> Value:
        if name in self.module:
            return self.module[name] * self.size if name.endswith(self.small) else self.module[name]
        if name not in self.constants:
            self.constants[name] = super().array(name, values).to(self.device)
        return self.constants[name]

    def by_class(self, work: Callable[[Value, int], Value], x: Value, k: Value, n_classes: int) -> Value:
        """Each class's map on its own rows only."""
        if n_classes == 1:
            return work(x, 0)
        mine = [self.torch.nonzero(k == c).flatten() for c in range(n_classes)]
        parts = [work(x[rows], c) for c, rows in enumerate(mine)]
        return self.torch.cat(parts)[self.torch.argsort(self.torch.cat(mine))]

    def weights(self) -> dict[str, Array]:
        """The parameters as arrays."""
        return {name: self.array(name, np.empty(0)).detach().cpu().numpy().copy() for name in self.module}


@dataclass(eq=False, repr=False)
class Trained(Surrogate, GradientTrained):
    """A surrogate with a network that torch trains."""

    _parameter_constraints: ClassVar[Constraints] = {
        **dict.fromkeys(("epochs", "patience", "validation_rows"), COUNT),
        "width": COUNT_OR_NONE,
        "batch_size": [*COUNT, *one_of("auto")],
        "augment": [*WHOLE, *one_of("auto")],
        "learning_rate": POSITIVE,
        "weight_decay": NOT_NEGATIVE,
    }

    teacher: Method = None
    _: KW_ONLY
    width: int | None = None
    augment: int | str = "auto"
    epochs: int = 1500
    batch_size: int | str = "auto"
    learning_rate: float = 1e-3
    weight_decay: float = 1.0
    patience: int = 20
    validation_rows: int = 2000
    device: str = "cpu"
    random_state: Seed = None

    def _fit(self, X: RowsLike, y: LabelsLike, concept: LabelsLike, **labels: LabelsLike) -> Self:
        require_torch(type(self).__name__)
        device_of(self.device)
        return super()._fit(X, y, concept, **labels)

    def _copy_by_gradient(
        self,
        ops: ParameterOps,
        loss: Callable[..., Tensor],
        learn: list[Tensor],
        watch: list[Tensor],
        rng: np.random.Generator,
        *,
        auto_batch: int,
        fall: bool = True,
        longest: float | None = None,
    ) -> None:
        """Train the parameters of `ops` by AdamW on `loss`, a mean over the rows of a batch.

        With `fall`, the learning rate falls to a third whenever the watched loss has not fallen for a quarter of the
        patience.
        """
        optim = ops.torch.optim
        optimiser = optim.AdamW(ops.module.parameters(), lr=self.learning_rate, weight_decay=self.weight_decay)
        quarter = max(self.patience // 4, 1)
        schedule = optim.lr_scheduler.ReduceLROnPlateau(optimiser, factor=1 / 3, patience=quarter, threshold=1e-4)

        def watched() -> float:
            parts = zip(*(t.split(_BLOCK) for t in watch), strict=True)
            value = sum(float(loss(*part)) * len(part[0]) for part in parts) / len(watch[0])
            if fall:
                schedule.step(value)
            return value

        size = auto_batch if self.batch_size == "auto" else int(self.batch_size)
        with seeded(rng):
            self._train(descent(loss, optimiser, longest=longest), watched, [ops.module], learn, batch_size=size)
