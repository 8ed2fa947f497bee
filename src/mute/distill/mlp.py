"""MLP surrogate: a network that copies an eraser, router and all."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from mute.distill.teaching import (
    RIDGE,
    Pairs,
    ParameterOps,
    Trained,
    affine_by_class,
    affine_with,
    erased_by,
    fidelity,
    made_rows,
    row_by_row,
    set_aside,
)
from mute.estimators.conditional import Invertible
from mute.estimators.settings import FLAG, at_least
from mute.estimators.training import device_of
from mute.flow.ops import NumpyOps, in_blocks
from mute.flow.routing import NetworkRouter
from mute.typing import Array, Constraints, Json, Method, Ops, Value

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["MLPSurrogate"]

# Directions with less than this share of the largest variance are not whitened: they would be noise blown up.
_LEAST_VARIANCE = 1e-6
_PAPER: Json = {"skip": False, "augment": 0, "batch_size": 2048, "weight_decay": 1e-2, "fall": False}


@dataclass(eq=False, repr=False)
class MLPSurrogate(Trained):
    r"""A network that copies an eraser: one pass in place of T layers and a router.

    Rows are whitened along their principal axes and go through layers :math:`h \mapsto \tanh(\mathrm{LN}(hW + b))` and
    a last linear one. An affine copy of the teacher is added, one for each class if the teacher has a router. The
    network learns what the affine copy leaves, so training begins at the least-squares solution.

    Parameters
    ----------
    teacher : eraser or None
        The method to copy. A fitted teacher is used as it is; otherwise a clone is fitted on the same rows. None is
        `MUtE`. (`clone`, and with it cross-validation, forgets what the teacher has learned.)
    n_layers, width : int, default=4 and None
        Linear layers, the last one included, and the width of the hidden ones; twice the number of columns when None.
    skip : bool, default=True
        Add the affine copies. Without them the network must learn a map that is mostly linear from nothing.
    augment : int or "auto", default="auto"
        Further rows to learn from, for each row; a teacher that can be inverted makes them from mixtures of erased
        rows. "auto" makes three, while all rows are fewer than 50,000.
    batch_size : int or "auto", default="auto"
        "auto" takes a 32nd of the rows, from 128 to 2048.
    learning_rate, weight_decay : float, default=1e-3 and 1.0
        Of AdamW.
    fall : bool, default=True
        Let the learning rate fall to a third whenever the watched loss stands still for a quarter of the patience.
    epochs, patience : int, default=1500 and 20
        The most passes over the rows. After `patience` passes without gain on held-out rows, training stops; the best
        weights are kept.
    validation_rows : int, default=2000
        The most held-out rows, at most a fifth.
    device, random_state : str, default="cpu", and int, RandomState or None
        As in `FaRM`.

    Attributes
    ----------
    weights_ : dict of arrays
        The network, its whitening folded into the first layer, and the affine copies, "matrices" and "offsets".
    router_, routing_
        The teacher's, if there is an affine copy for each class; else None.
    history_ : list of float
        Mean squared error on the held-out rows after each epoch.
    fidelity_ : dict
        On the held-out rows: "mse", the mean squared error per column; "mse_class_affine", that of the affine copies
        by class; "mse_affine" and "mse_constant", those of one affine map and of the mean; "r2", the share of variance
        explained; "rows", how many. The same rows chose the epoch, so "mse" is a little too good.
    classes_, n_features_in_, feature_names_in_
        As in `MUtE`.

    See Also
    --------
    InvertibleSurrogate : A copy that can be inverted and makes counterfactuals.
    LowRankSurrogate : One affine map.

    Notes
    -----
    *Guarantees.* With `skip`, the copy is never further from the teacher than the affine copies on the held-out rows: a
    network that gains nothing there is left out.

    *Limits.* A copy erases as far as it is faithful: its error makes the classes differ again. Of a teacher that
    requires labels it learns the mean over the classes a row may have. It cannot be inverted and makes no
    counterfactuals. Judge it by adversaries trained on its own outputs.

    *Labels.* Transforming needs no labels; a fitted teacher with a router needs none to copy either. *Cost.* 13
    products of (n, D) with (D, D) at 4 layers, 9 at 3, and the router. Training takes about three times as much for
    each pass. torch is needed to fit, never to transform.

    *Presets.* "paper" is the paper's, without skip and with batches of 2048; "authors" its code, of 3 layers and 10
    epochs; "fast" has 3 layers.

    References
    ----------
    A. Saillenfest, "MUtE: A Dual Framework for Concept Erasure and Counterfactual Interventions".

    Examples
    --------
    >>> import numpy as np
    >>> from mute.distill import MLPSurrogate
    >>> from mute.rivals import LEACE
    >>> X, z = np.random.default_rng(0).normal(size=(500, 3)), np.arange(500) % 2
    >>> copy = MLPSurrogate(LEACE().fit(X, z), epochs=5, random_state=0).fit(X)
    >>> copy.fidelity_["mse"] < 1e-6
    True
    """

    _parameter_constraints: ClassVar[Constraints] = {
        **Trained._parameter_constraints,
        "n_layers": at_least(2),
        "skip": FLAG,
        "fall": FLAG,
    }
    PRESETS: ClassVar[dict[str, Json]] = {
        "paper": {**_PAPER, "patience": 1500},
        "authors": {**_PAPER, "n_layers": 3, "epochs": 10, "patience": 50},
        "fast": {"n_layers": 3},
    }
    _STORED: ClassVar[dict[str, str]] = {
        "weights_": "arrays", "history_": "plain", "fidelity_": "plain", "router_": "router",
    }  # fmt: skip

    _: KW_ONLY
    n_layers: int = 4
    skip: bool = True
    fall: bool = True

    def _learn(self, X: Array, z: Array) -> None:
        import torch

        d, rng = X.shape[1], self._generator()
        teacher = self._fitted_teacher(X, z, rng)
        learn, watch = set_aside(len(X), self.validation_rows, rng)
        Q = erased_by(teacher, X, z)
        if isinstance(teacher, Invertible):
            made, classes, _ = made_rows(teacher, Q[learn], len(self._encoder), self.augment, rng)
            if len(made):
                learn = np.concatenate([learn, np.arange(len(X), len(X) + len(made))])
                # Erased as the router sends them, which near a border is not how they were made.
                X, Q = np.concatenate([X, made]), np.concatenate([Q, erased_by(teacher, made, classes)])
        learned, held = (Pairs.of(X, Q, rows) for rows in (learn, watch))
        center, axes = learned.mean[:d], _whitening(learned.covariance[:d, :d])
        k, matrices, offsets = self._learn_skip(teacher, X, Q, learn, learned)

        def tensors(rows: NDArray[np.int64]) -> list[Tensor]:
            white = row_by_row(rows, lambda part: (X[part] - center) @ axes, axes.shape[1])
            rest = row_by_row(rows, lambda part: Q[part] - affine_with(double, X[part], k[part], matrices, offsets), d)
            return [torch.from_numpy(array).to(device) for array in (white, rest)]

        device, double = device_of(self.device), NumpyOps(np.float64)
        learning, watching = tensors(learn), tensors(watch)
        weights = self._initial(axes.shape[1], d, rng)
        last = (f"layer{self.n_layers - 1}_weight", f"layer{self.n_layers - 1}_bias") if self.skip else ()
        ops = ParameterOps(weights, device, last, math.sqrt((learning[1] ** 2).mean()))

        def loss(x: Tensor, rest: Tensor) -> Tensor:
            return ((_network(ops, x, weights) - rest) ** 2).mean()

        batch = int(np.clip(len(learn) // 32, 128, 2048))
        self._copy_by_gradient(ops, loss, learning, watching, rng, auto_batch=batch, fall=self.fall)
        before, best = float((watching[1] ** 2).mean()), min(self.history_)
        gained = best < before or not self.skip
        trained = {"offsets": offsets} | ({"matrices": matrices} if self.skip else {})
        if gained:
            trained |= ops.weights()
            first = axes @ trained["layer0_weight"]
            trained |= {"layer0_weight": first, "layer0_bias": trained["layer0_bias"] - center @ first}
        self.weights_ = {name: w.astype(X.dtype) for name, w in trained.items()}
        self.fidelity_ = fidelity(best if gained else before, learned, held, len(watch))
        if len(offsets) > 1:
            self.fidelity_["mse_class_affine"] = before

    def _learn_skip(
        self, teacher: Method, X: Array, Q: Array, learn: NDArray[np.int64], learned: Pairs
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """The affine maps that the network is added to, and which of them each row takes."""
        d = X.shape[1]
        self.router_, self.routing_ = None, None
        k = np.zeros(len(X), np.int64)
        if not self.skip:
            return k, np.zeros((1, d, d)), learned.mean[None, d:]
        A, b = learned.regression(RIDGE)
        if not isinstance(getattr(teacher, "router_", None), NetworkRouter):
            return k, A.T[None], b[None]
        self.router_, self.routing_ = teacher.router_, teacher.routing_
        k = teacher.router_.predict(X)
        matrices, offsets = affine_by_class(X, Q, learn, k, np.tile(A.T, (len(self._encoder), 1, 1)))
        offsets[np.bincount(k[learn], minlength=len(offsets)) == 0] = b
        return k, matrices, offsets

    def _initial(self, n_inputs: int, d: int, rng: np.random.Generator) -> dict[str, Array]:
        """Xavier's weights for tanh; with `skip`, a last layer of zeros, so that the affine copy is the beginning."""
        width = self.width or 2 * d
        widths = [n_inputs, *[width] * (self.n_layers - 1), d]
        weights: dict[str, Array] = {}
        for i, (m, n) in enumerate(pairwise(widths)):
            last = i == self.n_layers - 1
            limit = 0.0 if last and self.skip else np.sqrt(6 / (m + n))
            weights[f"layer{i}_weight"] = rng.uniform(-limit, limit, (m, n))
            weights[f"layer{i}_bias"] = np.zeros(n)
            if not last:
                weights |= {f"layer{i}_gain": np.ones(n), f"layer{i}_offset": np.zeros(n)}
        return weights

    def _erase(self, X: Array) -> NDArray[np.floating]:
        return in_blocks(lambda rows: self.erase_with(NumpyOps(X.dtype), rows), X)

    def erase_with(self, ops: Ops, x: Value) -> Value:
        out = self._affine_of(ops, x)
        return out + _network(ops, x, self.weights_) if "layer0_weight" in self.weights_ else out

    def _affine_of(self, ops: Ops, x: Value) -> Value:
        """What the network is added to."""
        if "matrices" not in self.weights_:
            return ops.array("offset", self.weights_["offsets"][0])
        k = ops.argmax(self.router_.run_with(ops, x, "router")) if self.router_ is not None else None
        return affine_with(ops, x, k, self.weights_["matrices"], self.weights_["offsets"])

    def _check_restored(self) -> None:
        d, n = self.n_features_in_, _depth(self.weights_)
        width = self.weights_["layer0_bias"].size if n else 0
        widths = [d, *[width] * (n - 1), d]
        maps = 1 if self.router_ is None else len(self._encoder)
        expected: dict[str, tuple[int, ...]] = {"offsets": (maps, d)}
        if "matrices" in self.weights_ or not n:
            expected["matrices"] = (maps, d, d)
        for i in range(n):
            expected |= {f"layer{i}_weight": (widths[i], widths[i + 1]), f"layer{i}_bias": (widths[i + 1],)}
            expected |= {f"layer{i}_{name}": (width,) for name in ("gain", "offset") if i < n - 1}
        self._check_shapes(expected)


def _depth(weights: dict[str, Array]) -> int:
    return sum(name.endswith("_weight") for name in weights)


def _network(ops: Ops, x: Value, weights: dict[str, Array]) -> Value:
    """The network as arithmetic on values of `ops`."""

    def given(i: int, *parts: str) -> list[Value]:
        return [ops.array(f"layer{i}_{part}", weights[f"layer{i}_{part}"]) for part in parts]

    last = _depth(weights) - 1
    for i in range(last):
        x = ops.tanh(ops.layer_norm(ops.linear(x, *given(i, "weight", "bias")), *given(i, "gain", "offset")))
    return ops.linear(x, *given(last, "weight", "bias"))


def _whitening(S: NDArray[np.float64]) -> NDArray[np.float64]:
    """Principal axes over their standard deviations, shape (D, r); those of no variance are left out."""
    values, vectors = np.linalg.eigh(S)
    kept = values > max(values[-1], 0) * _LEAST_VARIANCE
    return vectors[:, kept] / np.sqrt(values[kept])
