"""Invertible surrogate: coupling blocks that copy a flow and can still be run backwards."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from mute.distill.teaching import (
    Pairs,
    ParameterOps,
    Trained,
    affine_by_class,
    affine_with,
    classes_for,
    erased_by,
    fidelity,
    made_rows,
    set_aside,
)
from mute.errors import MuteError
from mute.estimators.conditional import Conditional, Invertible
from mute.estimators.settings import COUNT, FLAG, NOT_NEGATIVE, POSITIVE
from mute.estimators.training import device_of
from mute.flow.ops import NumpyOps, in_blocks
from mute.rows.sources import in_memory
from mute.rows.validation import check_rows
from mute.typing import Array, Classifier, Constraints, LabelsLike, Method, Ops, RowsLike, Value

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["InvertibleSurrogate"]


@dataclass(eq=False, repr=False)
class InvertibleSurrogate(Trained, Invertible):
    r"""Coupling blocks that copy a flow, with an exact inverse: they erase and make counterfactuals.

    Rows of class k first go through the affine map that copies the teacher best on them, then through blocks that leave
    one half of the columns, in an order of their own, and change the other:
    :math:`v \mapsto v \exp(c \tanh(s / c)) + t`, where s and t are given by a network of the first half (and of the
    class). All blocks begin as the identity.

    Parameters
    ----------
    teacher : MUtE or another method that depends on the class, or None
        The method to copy, as in `MLPSurrogate`.
    conditional : bool, default=True
        One network that takes the class as an input (cINN). If False, each class has its own (INN).
    n_blocks, width : int, default=8 and None
        Number of blocks, and width of their two hidden layers; when None, twice the number of columns, at most 512.
    clamp : float, default=2.0
        c: a block stretches no coordinate by more than exp(c).
    inverse_weight : float, default=0.0
        Weight of the error of the way back, beside that of the way there. The two are one map, so it changes little,
        and training takes twice as long.
    epochs, patience : int, default=200 and 12
        As in `MLPSurrogate`.
    batch_size : int or "auto", default="auto"
        "auto" takes a 32nd of the rows, made ones not counted, from 128 to 1024.
    learning_rate, weight_decay : float, default=5e-4 and 1.0
        Of AdamW. The learning rate falls to a third whenever the watched loss stands still for a quarter of the
        patience; gradients longer than 1 are cut.
    router : {"teacher", "mlp", "logistic"}, classifier or None, default="teacher"
        As in `LinearSurrogate`.
    augment, validation_rows, device, random_state
        As in `MLPSurrogate`, with the same defaults.

    Attributes
    ----------
    matrices_, inverses_, offsets_ : arrays of shape (K, D, D), (K, D, D) and (K, D)
        The affine maps: matrices, which multiply rows from the right, their inverses, and offsets.
    orders_ : list of lists of int
        How the columns are put before each block, and after the last.
    weights_ : dict of arrays
        The networks of the blocks.
    history_, fidelity_ : list of float and dict
        As in `MLPSurrogate`; "mse_class_affine" is the error of the affine maps alone.
    classes_, router_, routing_, n_features_in_, feature_names_in_
        As in `MUtE`.

    See Also
    --------
    MLPSurrogate : A faster copy that only erases.
    LinearSurrogate : Affine copies of counterfactuals.

    Notes
    -----
    *Guarantees.* Given the class it is a bijection: ``inverse_transform`` undoes ``transform``, from a class to itself
    is the identity, and from i to j and back ends where it began. On the held-out rows it is never further from the
    teacher than the affine maps.

    *Limits.* A copy erases as far as it is faithful. Far outside the data the networks of the blocks extrapolate.

    *Labels.* Without a router, transforming requires labels; a fitted teacher with a router needs none to copy.
    *Cost.* One product with a (D, D) matrix, and three with the thinner matrices of each block, either way. torch is
    needed to fit, never to transform.

    References
    ----------
    L. Dinh, J. Sohl-Dickstein and S. Bengio, "Density estimation using Real NVP", ICLR 2017. L. Ardizzone, C. Lüth,
    J. Kruse, C. Rother and U. Köthe, "Conditional invertible neural networks for guided image generation", 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from mute import MUtE
    >>> from mute.distill import InvertibleSurrogate
    >>> z = np.repeat(["a", "b"], 500)
    >>> X = np.random.default_rng(0).normal(size=(1000, 3)) + 4 * (z == "b")[:, None]
    >>> teacher = MUtE(5, random_state=0).fit(X, z)
    >>> copy = InvertibleSurrogate(teacher, epochs=5, random_state=0).fit(X)
    >>> Q = copy.transform(X, concept=z)
    >>> bool(np.allclose(copy.inverse_transform(Q, concept=z), X))
    True
    """

    _parameter_constraints: ClassVar[Constraints] = {
        **Trained._parameter_constraints,
        "conditional": FLAG,
        "n_blocks": COUNT,
        "clamp": POSITIVE,
        "inverse_weight": NOT_NEGATIVE,
    }
    _TEACHERS = (Conditional, "a method with counterfactuals that depend on the class, such as MUtE")
    _STORED: ClassVar[dict[str, str]] = {
        "matrices_": "K D D",
        "inverses_": "K D D",
        "offsets_": "K D",
        "weights_": "arrays",
        **dict.fromkeys(("orders_", "history_", "fidelity_"), "plain"),
    }

    _: KW_ONLY
    conditional: bool = True
    n_blocks: int = 8
    clamp: float = 2.0
    inverse_weight: float = 0.0
    epochs: int = 200
    learning_rate: float = 5e-4
    patience: int = 12
    router: Classifier = "teacher"

    def _learn(self, X: Array, z: Array) -> None:
        import torch

        d, n_classes, rng = X.shape[1], len(self._encoder), self._generator()
        teacher = self._fitted_teacher(X, z, rng)
        self._learn_router_of(teacher, X, z)
        learn, watch = set_aside(len(X), self.validation_rows, rng)
        k = classes_for(teacher, X, z)
        Q = erased_by(teacher, X, k)
        learned, held = (Pairs.of(X, Q, rows) for rows in (learn, watch))
        x, k_learn, q = X[learn], k[learn], Q[learn]
        if isinstance(teacher, Invertible):
            more = made_rows(teacher, q, n_classes, self.augment, rng)
            x, k_learn, q = (np.concatenate(pair) for pair in zip((x, k_learn, q), more, strict=True))
        self._check_every_class(k_learn)
        self._learn_affine(teacher, x, k_learn, q)
        self.orders_ = _orders(d, self.n_blocks, rng)
        weights = self.weights_ = self._initial(d, n_classes, rng)
        device = device_of(self.device)

        def tensors(rows: Array, codes: Array, answers: Array) -> list[Tensor]:
            near = affine_with(NumpyOps(rows.dtype), rows, codes, self.matrices_, self.offsets_)
            arrays = (near.astype(np.float32), codes, answers.astype(np.float32))
            return [torch.from_numpy(array).to(device) for array in arrays]

        def gap(h: Tensor, k: Tensor, q: Tensor) -> Tensor:
            return ((self._couple(ops, h, k) - q) ** 2).mean()

        def loss(h: Tensor, k: Tensor, q: Tensor) -> Tensor:
            if not self.inverse_weight:
                return gap(h, k, q)
            back = ((self._couple(ops, q, k, backwards=True) - h) ** 2).mean()
            return gap(h, k, q) + self.inverse_weight * back

        learning, watching = tensors(x, k_learn, q), tensors(X[watch], k[watch], Q[watch])
        left, before = (float(((h - answers) ** 2).mean()) for h, _, answers in (learning, watching))
        ops = ParameterOps(weights, device, ("layer2_weight", "layer2_bias"), math.sqrt(left))
        del x, q, Q

        batch = int(np.clip(len(learn) // 32, 128, 1024))
        self._copy_by_gradient(ops, loss, learning, watching, rng, auto_batch=batch, longest=1.0)
        with torch.no_grad():
            error = float(gap(*watching))
        best = ops.weights() if error < before else weights
        self.weights_ = {name: w.astype(X.dtype) for name, w in best.items()}
        self.fidelity_ = fidelity(min(error, before), learned, held, len(watch)) | {"mse_class_affine": before}

    def _learn_affine(self, teacher: Method, x: Array, k: NDArray[np.int64], q: Array) -> None:
        """The affine map of each class that comes nearest to the teacher's.

        The regression is on what the slopes of the teacher's map at the middle of the class leave: in directions in
        which the rows do not vary, these slopes stay, and they are a bijection's.
        """
        d, n_classes = x.shape[1], len(self._encoder)
        slopes = np.empty((n_classes, d, d))
        for c in range(n_classes):
            mine = x[k == c]
            middle = mine.mean(axis=0, dtype=np.float64)
            step = max(float(mine.std(axis=0, dtype=np.float64).mean()), 1e-3 * float(np.abs(middle).max()), 1e-6)
            around = np.concatenate([middle + step * np.eye(d), middle - step * np.eye(d)])
            there = teacher.transform(around, concept=teacher.classes_[np.full(2 * d, c)])
            slopes[c] = (there[:d] - there[d:]) / (2 * step)
        self.matrices_, self.offsets_ = affine_by_class(x, q, np.arange(len(x)), k, slopes)
        for label, matrix in zip(self._encoder.classes, self.matrices_, strict=True):
            if np.linalg.cond(matrix) > 1e10:
                raise MuteError(f"the rows of class {label!r} do not say how to invert the copy; give more rows")
        self.inverses_ = np.asarray(np.linalg.inv(self.matrices_), np.float64)

    def _initial(self, d: int, n_classes: int, rng: np.random.Generator) -> dict[str, Array]:
        """Kaiming's weights for ReLU, and a last layer of zeros, so that every block begins as the identity."""
        weights: dict[str, Array] = {}
        for name, (m, n) in self._layers(d, n_classes, self.width or min(2 * d, 512)):
            last = name.endswith("layer2")
            weights[f"{name}_weight"] = np.zeros((m, n)) if last else rng.normal(size=(m, n)) * np.sqrt(2 / max(m, 1))
            weights[f"{name}_bias"] = np.zeros(n)
        return weights

    def _layers(self, d: int, n_classes: int, width: int) -> list[tuple[str, tuple[int, int]]]:
        """Names and shapes of the linear layers."""
        nets, seen = (1, d // 2 + n_classes) if self.conditional else (n_classes, d // 2)
        sizes = [(seen, width), (width, width), (width, 2 * (d - d // 2))]
        return [
            (f"net{c}_block{i}_layer{j}", size)
            for c in range(nets)
            for i in range(len(self.orders_) - 1)
            for j, size in enumerate(sizes)
        ]

    def _couple(self, ops: Ops, h: Value, k: Value, *, backwards: bool = False, logdet: bool = False) -> Value:
        """The blocks, forwards or backwards; with `logdet`, a last column has the log-determinant of each row."""
        run = self._backwards if backwards else partial(self._forwards, logdet=logdet)
        if not self.conditional:
            return ops.by_class(lambda rows, c: run(ops, rows, None, c), h, k, len(self._encoder))
        return run(ops, h, ops.take(ops.array("one_hot", np.eye(len(self._encoder))), k), 0)

    def _forwards(self, ops: Ops, h: Value, given: Value, net: int, *, logdet: bool) -> Value:
        total: Value = 0.0
        for i in range(len(self.orders_) - 1):
            u, v = ops.split(ops.columns(h, self._order(ops, i)), self.n_features_in_ // 2)
            stretch, shift = self._subnet(ops, u, given, net, i)
            h = ops.concat([u, v * ops.exp(stretch) + shift])
            total = ops.sum_columns(stretch) + total if logdet else total
        h = ops.columns(h, self._order(ops, len(self.orders_) - 1))
        return ops.concat([h, ops.column(total)]) if logdet else h

    def _backwards(self, ops: Ops, h: Value, given: Value, net: int) -> Value:
        h = ops.columns(h, self._order(ops, len(self.orders_) - 1, back=True))
        for i in reversed(range(len(self.orders_) - 1)):
            u, v = ops.split(h, self.n_features_in_ // 2)
            stretch, shift = self._subnet(ops, u, given, net, i)
            h = ops.columns(ops.concat([u, (v - shift) / ops.exp(stretch)]), self._order(ops, i, back=True))
        return h

    def _subnet(self, ops: Ops, u: Value, given: Value, net: int, i: int) -> tuple[Value, Value]:
        """Logarithm of the stretch, and the shift, that a block gives to the columns it changes."""
        x = u if given is None else ops.concat([u, given])
        for j in range(3):
            names = [f"net{net}_block{i}_layer{j}_{part}" for part in ("weight", "bias")]
            x = ops.linear(x, *(ops.array(name, self.weights_[name]) for name in names))
            x = ops.relu(x) if j < 2 else x
        d = self.n_features_in_
        stretch, shift = ops.split(x, d - d // 2)
        return ops.tanh(stretch / self.clamp) * self.clamp, shift

    def _order(self, ops: Ops, i: int, back: bool = False) -> Value:
        order = np.array(self.orders_[i], np.int64)
        return ops.array(f"{'back' if back else 'order'}{i}", np.argsort(order) if back else order)

    def push_with(self, ops: Ops, x: Value, k: Value) -> Value:
        return self._couple(ops, affine_with(ops, x, k, self.matrices_, self.offsets_), k)

    def pull_with(self, ops: Ops, q: Value, k: Value) -> Value:
        def work(rows: Value, c: int) -> Value:
            inverse, offset = ops.array(f"inverse{c}", self.inverses_[c]), ops.array(f"offset{c}", self.offsets_[c])
            return ops.linear(rows - offset, inverse)

        return ops.by_class(work, self._couple(ops, q, k, backwards=True), k, len(self._encoder))

    def move_with(self, ops: Ops, x: Value, source: Value, target: Value) -> Value:
        moved = self.pull_with(ops, self.push_with(ops, x, source), target)
        return ops.where(ops.column(source == target), x, moved)

    def _push(self, X: Array, k: NDArray[np.int64]) -> NDArray[np.floating]:
        return in_blocks(partial(self.push_with, NumpyOps(X.dtype)), X, k)

    def _pull(self, Q: Array, k: NDArray[np.int64]) -> NDArray[np.floating]:
        return in_blocks(partial(self.pull_with, NumpyOps(Q.dtype)), Q, k)

    def _move(self, X: Array, source: NDArray[np.int64], target: NDArray[np.int64]) -> NDArray[np.floating]:
        return in_blocks(partial(self.move_with, NumpyOps(X.dtype)), X, source, target)

    def log_determinant(self, X: RowsLike, concept: LabelsLike = None) -> NDArray[np.floating]:
        """Logarithm of the determinant of the Jacobian of `transform` at each row, shape (n,)."""
        check_is_fitted(self)
        X = check_rows(self, in_memory(X))
        k, ops = self._class_of(X, concept), NumpyOps(X.dtype)
        near = affine_with(ops, X, k, self.matrices_, self.offsets_)
        return np.linalg.slogdet(self.matrices_)[1].astype(X.dtype)[k] + self._couple(ops, near, k, logdet=True)[:, -1]

    def _check_restored(self) -> None:
        d, n_classes = self.n_features_in_, len(self._encoder)
        places = [place for order in self.orders_ for place in order]
        whole = all(type(place) is int for place in places)
        if not whole or len(self.orders_) < 2 or any(sorted(order) != list(range(d)) for order in self.orders_):
            raise MuteError("its orders are not orders of its columns")
        width = self.weights_["net0_block0_layer0_bias"].size
        layers = self._layers(d, n_classes, width)
        expected: dict[str, tuple[int, ...]] = {f"{name}_weight": size for name, size in layers}
        self._check_shapes(expected | {f"{name}_bias": size[1:] for name, size in layers})
        with np.errstate(all="ignore"):
            gap = np.abs(self.matrices_ @ self.inverses_ - np.eye(d)).max()
        if not gap < 1e-4:
            raise MuteError("its inverses are not those of its matrices")


def _orders(d: int, n_blocks: int, rng: np.random.Generator) -> list[list[int]]:
    """Orders of the columns, at random, before each block, and the one after the last that puts them back."""
    orders = [rng.permutation(d) for _ in range(n_blocks)]
    whole = np.arange(d)
    for order in orders:
        whole = whole[order]
    return [order.tolist() for order in [*orders, np.argsort(whole)]]
