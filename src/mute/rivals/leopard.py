"""L̄EOPARD: the orthogonal projection under which the classes have the same law, as far as a kernel can tell."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from itertools import combinations
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.estimators.moments import Moments
from mute.estimators.settings import COUNT_OR_NONE, FLAG, NOT_NEGATIVE, at_least, one_of
from mute.estimators.training import TRAINING, GradientTrained, descent, device_of, hold_out, require_torch, seeded
from mute.flow.ops import in_blocks
from mute.flow.routing import stratified_sample
from mute.rivals.projection import Projector
from mute.typing import Array, Constraints, Json, Seed

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["LEOPARD", "mmd2"]

# Widths of the kernels, in mean squared distances. Each is half of the one before: its kernel is the square of that.
_WIDTHS = (4.0, 2.0, 1.0, 0.5, 0.25)
# Rows whose kernels are computed at a time: few enough for the cache.
_BLOCK = 256
_MOST_WATCHED = 4096
_TINY = 1e-12

_GLOVE = {"epochs": 1000, "batch_size": 10777, "gamma": 200.0, "learning_rate": 1e-3}
_BIOS = {"epochs": 100, "batch_size": 8192, "gamma": 100.0, "learning_rate": 5e-4}
_DIAL = {"epochs": 200, "batch_size": 2048, "gamma": 100.0, "learning_rate": 5e-4}
_PAPER = {"cascaded": True, "pairs": "mean", "validation_fraction": 0.0}
_AUTHORS = {"pairs": "sum", "validation_fraction": 0.0}


@dataclass(eq=False, repr=False)
class LEOPARD(Projector, GradientTrained):
    r"""Orthogonal projection of rank r that matches the laws of the classes in maximum mean discrepancy.

    Over matrices :math:`U` of shape (D, r), started at the first r unit vectors, Adam minimises

    .. math:: \sum_{i<j} \mathrm{MMD}^2(X_i UU^\top, X_j UU^\top) + \frac{\gamma}{r^2} \|U^\top U - I\|_F^2,

    where :math:`X_i` are the rows of class i in a batch (see `mmd2`). The columns are then made exactly orthonormal,
    which gives the basis :math:`B`, and :math:`x' = BB^\top x`. In the cascaded form :math:`U` is learned within the
    orthogonal complement of the differences between the class means, so that no linear signal is left to begin with.

    Parameters
    ----------
    rank : int, optional
        How many dimensions are kept: the fewer, the less of the concept and of everything else. None keeps half of
        the columns, the most that the authors keep (150 of 300 for GloVe, and as few as a twentieth for DIAL).
    cascaded, gamma : bool and float, default=False and 100
        Whether to erase linearly first; weight of the orthonormality of `U`.
    pairs : {"sum", "mean"}, default="sum"
        The loss is the sum over pairs of classes (the authors) or their mean (the MUtE paper). With the mean, `gamma`
        weighs K (K - 1) / 2 times as much.
    learning_rate, weight_decay : float, default=5e-4 and 0
        Of Adam; a tenth of this learning rate from half of the epochs on.
    epochs, batch_size : int, default=200 and 2048
        A pair of classes counts in a batch if both have two rows there: choose it large enough for the rarest class.
    patience, validation_fraction, device, random_state
        As in `FaRM`, with the same defaults but for a patience of None.

    Attributes
    ----------
    basis_ : array of shape (D, r)
        Orthonormal basis of what is kept.
    history_ : list of float
        MMD² (sum or mean over pairs, as `pairs` says) of the watched rows after each epoch, at most 4,096 of them.
    classes_, n_features_in_, feature_names_in_
        As in `MUtE`.

    See Also
    --------
    LEACE : Linear erasure in closed form, as the cascade's first step.
    TaCo : A projection that drops principal components.

    Notes
    -----
    *Guarantees.* :math:`P = BB^\top` is symmetric, idempotent and of rank r, so no row grows. Cascaded, the classes
    have the same mean on the training rows, and no linear classifier has a lower log loss than a constant there.

    *Limits.* The objective is not convex and r is given. The concept stays readable if the laws differ in more than
    D - r directions, or if Adam stops short, so measure it (``mute compare``). The kernels are about as wide as the
    cloud of all rows and see little detail in many dimensions. Nothing but the rank keeps information: directions along
    which all rows agree are perfect for the objective, and if the first r columns are constant, the start has no
    gradient. Without the cascade there is no linear guarantee.

    *Labels.* Not needed to transform. *Cost.* For each batch of b rows two products of (b, b) with (b, D) for each pair
    of classes, and one exponential for each pair of rows, in blocks: memory grows with b, not b². A transform takes
    2 D r for each row.

    *Presets.* "paper-..." are those of the MUtE paper's repository, cascaded and with the mean over pairs. The paper
    says that they are the authors', and for Jigsaw those of DIAL, but the repository's ranks (200, 200, 10, 150) are
    others. "authors-..." are those of the method's authors, who give two ranks for Bios.

    References
    ----------
    A. Saillenfest and P. Lemberger, "Nonlinear Concept Erasure: a Density Matching Approach", 2025.

    Examples
    --------
    Two classes of the same mean, one of them wider in its second column, which is what goes:

    >>> import numpy as np
    >>> from mute.rivals import LEOPARD
    >>> z = np.repeat([0, 1], 300)
    >>> X = np.random.default_rng(0).normal(size=(600, 3))
    >>> X[z == 1, 1] *= 3
    >>> eraser = LEOPARD(rank=2, epochs=60, batch_size=128, learning_rate=0.05, random_state=0).fit(X, z)
    >>> np.diag(eraser.transform(np.eye(3))).round(1)
    array([1., 0., 1.])
    """

    _parameter_constraints: ClassVar[Constraints] = {
        **TRAINING,
        "rank": COUNT_OR_NONE,
        "cascaded": FLAG,
        "gamma": NOT_NEGATIVE,
        "weight_decay": NOT_NEGATIVE,
        "pairs": one_of("sum", "mean"),
        "batch_size": at_least(4),
    }
    PRESETS: ClassVar[dict[str, Json]] = {
        "paper-glove": {**_GLOVE, **_PAPER, "rank": 200},
        "paper-bios": {**_BIOS, **_PAPER, "rank": 200},
        "paper-dial": {**_DIAL, **_PAPER, "rank": 10},
        "paper-jigsaw": {**_DIAL, **_PAPER, "rank": 150},
        "authors-glove": {**_GLOVE, **_AUTHORS, "rank": 150},
        "authors-bios-50": {**_BIOS, **_AUTHORS, "rank": 50, "weight_decay": 5e-4},
        "authors-bios-250": {**_BIOS, **_AUTHORS, "rank": 250, "weight_decay": 5e-4},
        "authors-dial": {**_DIAL, **_AUTHORS, "rank": 15},
    }

    rank: int | None = None
    _: KW_ONLY
    cascaded: bool = False
    gamma: float = 100.0
    pairs: str = "sum"
    learning_rate: float = 5e-4
    epochs: int = 200
    batch_size: int = 2048
    weight_decay: float = 0.0
    validation_fraction: float = 0.1
    patience: int | None = None
    device: str = "auto"
    random_state: Seed = None

    def _learn(self, X: Array, z: Array) -> None:
        require_torch("LEOPARD")
        space = _without_linear_signal(X, z) if self.cascaded else np.eye(X.shape[1])
        rank = self._rank_within(space)
        self.history_ = []
        U = self._find_frame(_coordinates(X, space), z, rank) if rank else np.zeros((0, 0))
        # The eigenvectors of UUᵀ for its r largest eigenvalues.
        self.basis_ = space @ np.linalg.svd(U.astype(np.float64), full_matrices=False)[0]

    def _rank_within(self, space: Array) -> int:
        """How many dimensions to keep of those that there are."""
        columns, most = space.shape
        if self.rank is None:
            return min(max(columns // 2, 1), most)
        if self.rank > most:
            left = "are left by the linear step" if self.cascaded else "there are"
            raise MuteError(f"rank must be at most {most}, as many dimensions as {left}, not {self.rank}")
        return int(self.rank)

    def _find_frame(self, rows: NDArray[np.float32], z: NDArray[np.int64], rank: int) -> NDArray[np.float32]:
        """U, not yet orthonormal."""
        import torch

        n_classes, rng, device = int(z.max()) + 1, self._generator(), device_of(self.device)
        learn, watched = hold_out(z, self.validation_fraction, rng)
        if np.bincount(z[watched], minlength=n_classes).min() < 2:
            learn = watched = np.arange(len(z))
        watched = watched[stratified_sample(z[watched], _MOST_WATCHED, rng)]
        X, k = torch.from_numpy(rows).to(device), torch.from_numpy(z).to(device)
        X_watched, k_watched = X[watched], k[watched]
        share = 1.0 if self.pairs == "sum" else 2 / (n_classes * (n_classes - 1))
        unit = torch.eye(rank, device=device)
        with seeded(rng):
            frame = torch.nn.Linear(rows.shape[1], rank, bias=False, device=device)
            torch.nn.init.eye_(frame.weight)  # Uᵀ
            optimizer = torch.optim.Adam(frame.parameters(), self.learning_rate, weight_decay=self.weight_decay)
            schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [max(self.epochs // 2, 1)], gamma=0.1)

            def loss(x: Tensor, k: Tensor) -> Tensor:
                gap = frame.weight @ frame.weight.T - unit
                return share * mmd2(frame(x) @ frame.weight, k, n_classes) + self.gamma / rank**2 * (gap**2).sum()

            def watch() -> float:
                schedule.step()
                kept = torch.linalg.qr(frame.weight.T).Q
                return share * float(mmd2(X_watched @ kept, k_watched, n_classes))

            self._train(descent(loss, optimizer), watch, [frame], [X[learn], k[learn]])
        return frame.weight.detach().cpu().numpy().T

    def _erase(self, X: Array) -> NDArray[np.floating]:
        basis = self.basis_.astype(X.dtype, copy=False)
        return in_blocks(lambda rows: (rows @ basis) @ basis.T, X)


def _without_linear_signal(X: Array, z: NDArray[np.int64]) -> NDArray[np.float64]:
    """Orthonormal basis of the directions that are orthogonal to all differences between class means."""
    n_classes = int(z.max()) + 1
    moments = Moments(n_classes, X.shape[1])
    moments.add(X, z)
    left, sizes, _ = np.linalg.svd(moments.cross_covariance)
    # K means span K - 1 directions at most; below the rounding of the means there is nothing but noise.
    noise = max(moments.means.shape) * np.finfo(float).eps * np.abs(moments.means).max()
    return left[:, int((sizes[: n_classes - 1] > noise).sum()) :]


def _coordinates(X: Array, space: NDArray[np.float64]) -> NDArray[np.float32]:
    """The rows in a basis of the space, centred and scaled: exact in single precision, and the same to MMD."""
    rows = (X - X.mean(axis=0, dtype=np.float64).astype(X.dtype)) @ space.astype(X.dtype)
    spread = np.sqrt((rows.astype(np.float64) ** 2).sum(axis=1).mean())
    return (rows / (spread or 1.0)).astype(np.float32)


def mmd2(Y: Tensor, z: Tensor, n_classes: int) -> Tensor:
    r"""Squared maximum mean discrepancy between classes, unbiased, summed over pairs of classes.

    Of rows a of one class and b of another,

    .. math:: \frac{1}{n(n-1)} \sum_{i \ne j} k(a_i, a_j) + \frac{1}{m(m-1)} \sum_{i \ne j} k(b_i, b_j)
              - \frac{2}{nm} \sum_{i,j} k(a_i, b_j), \quad k(a, b) = \sum_c e^{-\|a - b\|^2 / (c w)},

    with c = 1/4, 1/2, 1, 2, 4 and w the mean squared distance of two rows of the pair, which counts as a constant in
    the gradient. Where two classes have the same law its mean is 0, so it can be negative.

    `Y` has shape (n, D); `z` are codes 0 .. `n_classes` - 1 of shape (n,). A pair of classes is left out if one of them
    has fewer than two rows. The gradient, of first order, is computed on the way, in blocks, from products of matrices.
    """
    import torch

    groups = [torch.nonzero(z == k)[:, 0] for k in range(n_classes)]
    rows = Y.detach()
    value, gradient = rows.new_zeros(()), torch.zeros_like(rows)
    for a, b in combinations([group for group in groups if len(group) > 1], 2):
        width = (2 * rows[torch.cat([a, b])].var(dim=0).sum()).clamp_min(_TINY)
        for own, other in ((a, b), (b, a)):
            part, slope = _likeness(rows[own], rows[other], width)
            value = value + part
            gradient[own] += slope
    along = (gradient * Y).sum()
    return value + (along - along.detach())


def _likeness(own: Tensor, other: Tensor, width: Tensor) -> tuple[Tensor, Tensor]:
    """Mean kernel within `own` less that between both, and the derivative of MMD² by the rows of `own`."""
    import torch

    n, m = len(own), len(other)
    rows = torch.cat([own, other])
    weights = torch.cat([own.new_full((n,), 1 / (n - 1)), own.new_full((m,), -1 / m)])
    weighted = torch.cat([rows * weights[:, None], weights[:, None]], dim=1)
    squares = (rows**2).sum(dim=1)
    # A row and itself have kernels of 1, which do not count.
    value = own.new_full((), -len(_WIDTHS) / (n - 1))
    slopes = []
    for block in own.split(_BLOCK):
        distance = torch.addmm(squares, block, rows.T, alpha=-2) + (block**2).sum(dim=1, keepdim=True)
        kernel = distance.clamp_(min=0).mul_(-1 / (_WIDTHS[0] * width)).exp_()
        kernels, slope = kernel.clone(), kernel / _WIDTHS[0]
        for c in _WIDTHS[1:]:
            kernel *= kernel
            kernels += kernel
            slope.add_(kernel, alpha=1 / c)
        value += (kernels @ weights).sum() / n
        pull = slope @ weighted
        slopes.append(pull[:, -1:] * block - pull[:, :-1])
    return value, torch.cat(slopes) * (-4 / (n * width))
