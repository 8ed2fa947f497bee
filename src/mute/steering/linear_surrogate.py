"""Linear surrogate: least-squares copies of a method's counterfactuals, one matrix for each pair of classes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from itertools import combinations
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mute.distill.teaching import Pairs, Surrogate, blocks
from mute.eraser import MUtE
from mute.errors import MuteError
from mute.estimators.conditional import Conditional
from mute.estimators.settings import FROM_0_BELOW_1, NOT_NEGATIVE
from mute.estimators.training import hold_out
from mute.estimators.transport import by_group
from mute.typing import Array, Classifier, Constraints, Json, Method, Seed

__all__ = ["LinearSurrogate"]


@dataclass(eq=False, repr=False)
class LinearSurrogate(Surrogate, Conditional):
    r"""Least-squares copy of a flow: steering by one matrix for each pair of classes.

    From class i to class j it is the affine map that best predicts, on the training rows, the teacher's
    counterfactuals: :math:`x \mapsto A_{ij} x + b_{ij}`, regressed on the pairs :math:`(x, x_{j \leftarrow i})` of rows
    x of class i and :math:`(x_{i \leftarrow j}, x)` of rows x of class j. Erasure is the regression of the teacher's
    erased rows on the rows, within each class.

    Parameters
    ----------
    teacher : MUtE or another method that depends on the class, or None
        The method to copy, as in `MLPSurrogate`. None is ``MUtE(4, router=None, diagnostics=False)``, with the four
        layers of the paper's text study.
    ridge : float, default=1e-6
        Penalty on the matrices, as a share of the mean variance of a column.
    router : {"mlp", "logistic", "teacher"}, classifier or None, default="mlp"
        As in `MeanDifference`; "teacher" takes over the teacher's router.
    validation_fraction : float, default=0.1
        Share of held-out rows, on which the maps are measured. With 0 the training rows serve for that.
    random_state : int, RandomState or None
        For the held-out rows, the router, and a teacher without a seed.

    Attributes
    ----------
    moves_, move_offsets_ : arrays of shape (K, K, D, D) and (K, K, D)
        ``moves_[i, j]`` is the matrix from class i to class j, which multiplies columns; the identity for i = j.
    pushes_, push_offsets_ : arrays of shape (K, D, D) and (K, D)
        The maps that erase.
    r2_ : dict
        Share of the variance of the teacher's answers that the maps explain on the held-out rows: ``"moves"``, by
        source and target, and ``"pushes"``, by class. The mean of the training rows has 0.
    classes_, router_, routing_, n_features_in_, feature_names_in_
        As in `MUtE`.

    See Also
    --------
    MLPSurrogate : A network that copies an eraser.
    InvertibleSurrogate : Copies counterfactuals by an invertible network.

    Notes
    -----
    *Guarantees.* No affine map is nearer to the teacher on the training rows (up to `ridge`): what is left is
    uncorrelated with the rows. A teacher whose counterfactuals are affine, such as `LinearOT`, is copied exactly.

    *Limits.* A regression answers with a mean, so its outputs vary less than what they copy: moved rows have a smaller
    covariance than the target class, by the share 1 - R², and an adversary can see that. Nothing is exactly erased, and
    from i to j and back is not the identity.

    *Labels.* Without a router, transforming requires labels. *Cost.* That of the teacher, then O(K n D²) for the
    covariances and O(K² D³) for the regressions. One product with a (D, D) matrix to transform or move, while the
    teacher has one for each layer.

    *Presets.* "paper" regresses as the paper does, without ridge and on all rows. The paper's teacher was
    ``MUtE(4, router=None, marginal=Histogram(bins=1000, alpha=1e-10, floor="add"))``.

    References
    ----------
    A. Saillenfest, "MUtE: A Dual Framework for Concept Erasure and Counterfactual Interventions".

    Examples
    --------
    >>> import numpy as np
    >>> from mute.steering import LinearSurrogate, MeanDifference
    >>> X, z = np.random.default_rng(0).normal(size=(500, 3)), np.arange(500) % 2
    >>> X[z == 1] = 2 * X[z == 1] + 5
    >>> teacher = MeanDifference(router=None).fit(X, z)
    >>> copy = LinearSurrogate(teacher, ridge=0.0, router=None).fit(X, z)
    >>> bool(np.allclose(copy.counterfactual(X, 1, concept=z), teacher.counterfactual(X, 1, concept=z)))
    True
    """

    _parameter_constraints: ClassVar[Constraints] = {"ridge": NOT_NEGATIVE, "validation_fraction": FROM_0_BELOW_1}
    _TEACHERS = (Conditional, "a method with counterfactuals that depend on the class, such as MUtE")
    PRESETS: ClassVar[dict[str, Json]] = {"paper": {"ridge": 0.0, "validation_fraction": 0.0}}
    _STORED: ClassVar[dict[str, str]] = {
        "moves_": "K K D D",
        "move_offsets_": "K K D",
        "pushes_": "K D D",
        "push_offsets_": "K D",
        "r2_": "plain",
    }

    teacher: Method = None
    _: KW_ONLY
    ridge: float = 1e-6
    router: Classifier = "mlp"
    validation_fraction: float = 0.1
    random_state: Seed = None

    def _learn(self, X: Array, z: Array) -> None:
        self._check_every_class(z)
        rng = self._generator()
        teacher = self._fitted_teacher(X, z, rng)
        self._learn_router_of(teacher, X, z)
        k, d = len(self._encoder), X.shape[1]
        learn, watch = hold_out(z, self.validation_fraction, rng)
        seen, held = ([part[z[part] == i] for i in range(k)] for part in (learn, watch))
        held = [rows if len(rows) else seen[i] for i, rows in enumerate(held)]  # with few rows none may be held out

        self.moves_, self.move_offsets_ = np.tile(np.eye(d), (k, k, 1, 1)), np.zeros((k, k, d))
        self.pushes_, self.push_offsets_ = np.empty((k, d, d)), np.empty((k, d))
        moved, pushed = np.ones((k, k)), np.ones(k)
        for i, j in combinations(range(k), 2):
            there, there_held = (Pairs.gather(_moved(teacher, X, part, i, j), d) for part in (seen, held))
            # The pairs of the way back are the same, the other way round.
            for way, pairs, new in (((i, j), there, there_held), ((j, i), there.reverse(), there_held.reverse())):
                self.moves_[way], self.move_offsets_[way] = pairs.regression(self.ridge)
                moved[way] = new.r2(self.moves_[way], self.move_offsets_[way], pairs)
        for i in range(k):
            pairs, new = (Pairs.gather(_pushed(teacher, X, part, i), d) for part in (seen, held))
            self.pushes_[i], self.push_offsets_[i] = pairs.regression(self.ridge)
            pushed[i] = new.r2(self.pushes_[i], self.push_offsets_[i], pairs)
        self.r2_ = {"moves": moved.tolist(), "pushes": pushed.tolist()}

    def _default_teacher(self) -> MUtE:
        return MUtE(4, router=None, diagnostics=False)

    def _push(self, X: Array, k: NDArray[np.int64]) -> NDArray[np.floating]:
        origin = np.zeros(X.shape[1])
        return by_group(X, k, lambda i: (self.pushes_[i], origin, self.push_offsets_[i]))

    def _move(self, X: Array, source: NDArray[np.int64], target: NDArray[np.int64]) -> NDArray[np.floating]:
        k, d = self.push_offsets_.shape
        moves, offsets, origin = self.moves_.reshape(-1, d, d), self.move_offsets_.reshape(-1, d), np.zeros(d)
        return by_group(X, source * k + target, lambda way: (moves[way], origin, offsets[way]))

    def _check_restored(self) -> None:
        own = np.arange(len(self.pushes_))
        if (self.moves_[own, own] != np.eye(self.n_features_in_)).any() or self.move_offsets_[own, own].any():
            raise MuteError("its maps from a class to itself are not the identity")


def _moved(teacher: Method, X: Array, rows: list[Array], i: int, j: int) -> Iterator[tuple[Array, Array]]:
    """Rows as class i and as class j: those of class i with their counterfactuals, and the reverse for class j."""
    labels = teacher.classes_
    for x in blocks(X, rows[i]):
        yield x, teacher.counterfactual(x, labels[[j] * len(x)], concept=labels[[i] * len(x)])
    for x in blocks(X, rows[j]):
        yield teacher.counterfactual(x, labels[[i] * len(x)], concept=labels[[j] * len(x)]), x


def _pushed(teacher: Method, X: Array, rows: list[Array], i: int) -> Iterator[tuple[Array, Array]]:
    """Rows of class i, and the same rows erased."""
    for x in blocks(X, rows[i]):
        yield x, teacher.transform(x, concept=teacher.classes_[[i] * len(x)])
