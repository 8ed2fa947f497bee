"""Gradient training for the methods that use torch: devices, seeds, batches, early stopping.

Trained weights become plain arrays (`mute.flow.network.Network`), so only a fit needs torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.estimators.base import ConceptEstimator
from mute.estimators.settings import COUNT, COUNT_OR_NONE, FROM_0_BELOW_1, POSITIVE
from mute.flow.network import Network
from mute.rows import detect
from mute.typing import Constraints, Foreign, JsonValue, Setting

if TYPE_CHECKING:
    import torch

__all__ = [
    "TRAINING",
    "GradientTrained",
    "StandardisedNetwork",
    "center_and_scale",
    "check_network",
    "descent",
    "device_of",
    "hold_out",
    "mlp",
    "require_torch",
    "seeded",
    "standardise",
]

# Allowed values of the settings that most of these methods have.
TRAINING: Constraints = {
    "epochs": COUNT,
    "batch_size": COUNT,
    "learning_rate": POSITIVE,
    "patience": COUNT_OR_NONE,
    "validation_fraction": FROM_0_BELOW_1,
}

# A loss counts as lower if it falls by more than this share.
_LEAST_GAIN = 1e-4


def require_torch(method: str) -> Foreign:
    """The torch module, or an error that says how to install it."""
    return detect.require_torch(f"fitting {method}")


def device_of(name: str) -> torch.device:
    """The device of this name; "auto" is an accelerator if there is one."""
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except Exception as error:  # torch raises several types here
        raise MuteError(f'device must be "auto" or one that torch can use here, not {name!r}: {error}') from error
    return device


@contextmanager
def seeded(seed: int | np.random.Generator) -> Iterator[None]:
    """Seed torch's random numbers, and restore the caller's state at the end."""
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(seed if isinstance(seed, int) else int(seed.integers(2**31 - 1)))
        yield


def hold_out(z: NDArray, share: float, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Random training rows and held-out rows; for codes 0 .. K - 1, with the same share of each class.

    A class with very few rows has no held-out rows. If there are none at all, all rows serve as both.
    """
    groups = [np.flatnonzero(z == k) for k in np.unique(z)] if z.ndim == 1 else [np.arange(len(z))]
    watched = np.zeros(len(z), bool)
    for rows in groups:
        watched[rng.permutation(rows)[: int(share * len(rows))]] = True
    if not watched.any():
        return np.arange(len(z)), np.arange(len(z))
    return np.flatnonzero(~watched), np.flatnonzero(watched)


def center_and_scale(X: NDArray) -> tuple[NDArray[np.float64], float]:
    """Mean of the rows, and root mean square of all columns about it (1 if all are constant)."""
    center = X.mean(axis=0, dtype=np.float64)
    scale = math.sqrt(X.var(axis=0, dtype=np.float64).mean())
    return center, scale if scale > 1e-12 * np.abs(center).max() else 1.0


def standardise(X: NDArray, center: NDArray[np.float64], scale: float) -> NDArray[np.floating]:
    """(X - center) / scale, in the precision of X."""
    return (X - center.astype(X.dtype)) / X.dtype.type(scale)


def mlp(*widths: int, zero: bool = False) -> torch.nn.Sequential:
    """Linear layers of these widths with ReLU between them; with `zero`, the last layer starts at zero."""
    from torch import nn

    linear = [nn.Linear(a, b) for a, b in pairwise(widths)]
    if zero:
        nn.init.zeros_(linear[-1].weight)
        nn.init.zeros_(linear[-1].bias)
    return nn.Sequential(*[layer for each in linear for layer in (each, nn.ReLU())][:-1])


def descent(
    loss: Callable[..., torch.Tensor],
    optimizer: torch.optim.Optimizer,
    *,
    schedule: torch.optim.lr_scheduler.LRScheduler | None = None,
    longest: float | None = None,
) -> Callable[..., None]:
    """A gradient step for `loss` on one batch; gradients are clipped to the norm `longest`."""
    import torch

    def step(*batch: torch.Tensor) -> None:
        optimizer.zero_grad()
        loss(*batch).backward()
        if longest is not None:
            torch.nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], longest)
        optimizer.step()
        if schedule is not None:
            schedule.step()

    return step


class GradientTrained(ConceptEstimator):
    """A method that torch trains, with the settings `epochs`, `batch_size` and `patience`."""

    epochs: int
    batch_size: Setting
    patience: int | None
    history_: list[float]

    def _train(
        self,
        step: Callable[..., None],
        watch: Callable[[], float],
        modules: Sequence[torch.nn.Module],
        rows: Sequence[torch.Tensor],
        *,
        epochs: Iterable[object] | None = None,
        batch_size: int | None = None,
    ) -> None:
        """Train on shuffled batches until the loss on held-out rows no longer falls; `history_` records this loss.

        ``step(*batch)`` makes one update. ``watch()`` returns the loss on held-out rows after each epoch; it runs
        without gradients and with the modules in eval mode. The modules end with their best weights, or with the last
        weights if `patience` is None. An incomplete last batch is dropped, unless it is the only one.
        """
        import torch

        n, size = len(rows[0]), batch_size or self.batch_size
        starts = range(0, max(n - size + 1, 1), size)
        best, since, kept = math.inf, 0, []
        self.history_ = []
        for _ in self._steps(self.epochs, "epoch") if epochs is None else epochs:
            for module in modules:
                module.train()
            order = torch.randperm(n).to(rows[0].device)  # drawn on the host, so that it is the same on every device
            for start in starts:
                try:
                    step(*(t[order[start : start + size]] for t in rows))
                except RuntimeError as error:  # torch has no own type for this
                    if "without overflow" not in str(error):
                        raise
                    raise MuteError("training diverged: a step overflows; lower the learning rate") from error
            for module in modules:
                module.eval()
            with torch.no_grad():
                loss = float(watch())
            if not math.isfinite(loss):
                raise MuteError(f"training diverged: the watched loss became {loss}; lower the learning rate")
            self.history_.append(loss)
            if self.patience is None:
                continue
            since = 0 if loss < best - _LEAST_GAIN * min(abs(best), abs(loss)) else since + 1
            if since == 0:
                best = loss
                kept = [{name: value.clone() for name, value in module.state_dict().items()} for module in modules]
            elif since >= self.patience:
                break
        for module, weights in zip(modules, kept, strict=False):
            module.load_state_dict(weights)


class StandardisedNetwork(GradientTrained):
    """A method whose map is a network of ``(X - center_) / scale_``."""

    validation_fraction: float
    device: str
    standardize: bool = True
    _STORED: ClassVar = {"center_": "D", "scale_": "plain", "network_": "network D", "history_": "plain"}

    def _tensors(
        self, X: NDArray, labels: Sequence[NDArray], most_watched: int, rng: np.random.Generator
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Standardised training rows and held-out rows, with their labels, on the device."""
        import torch

        device, d = device_of(self.device), X.shape[1]
        learn, watch = hold_out(labels[0], self.validation_fraction, rng)
        self.center_, self.scale_ = center_and_scale(X[learn]) if self.standardize else (np.zeros(d), 1.0)
        arrays = (standardise(X, self.center_, self.scale_).astype(np.float32), *labels)
        watch = rng.permutation(watch)[:most_watched]
        learned, watched = ([torch.as_tensor(a[part]).to(device) for a in arrays] for part in (learn, watch))
        return learned, watched

    def _check_restored(self) -> None:
        check_network(self.network_, self.scale_, self.n_features_in_)


def check_network(network: Network, scale: JsonValue, n_features: int) -> None:
    """Refuse a network and a scale of a file that do not fit rows of this width."""
    if network.n_outputs != n_features:
        raise MuteError("its network_ has a different number of outputs than of inputs")
    if not isinstance(scale, int | float) or not 0 < scale < math.inf:
        raise MuteError(f"its scale_ cannot be {scale!r}")
