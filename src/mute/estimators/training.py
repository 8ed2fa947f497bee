"""Training by gradient, for the methods that use torch: devices, seeds, batches, early stopping.

Weights leave torch as plain arrays (`mute.flow.network.Network`), so that it is needed to fit and never to transform.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.rows import detect

if TYPE_CHECKING:
    import torch

__all__ = ["center_and_scale", "device_of", "hold_out", "require_torch", "seeded", "standardise", "train"]

# A loss that falls by less than this share of itself no longer falls.
_LEAST_GAIN = 1e-4


def require_torch(method: str) -> Any:
    """The torch module, or an error that says how to get it."""
    return detect.require_torch(f"fitting {method}")


def device_of(name: str) -> torch.device:
    """The device of this name; "auto" takes an accelerator where there is one."""
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except Exception as error:  # torch has no one kind of error for this
        raise MuteError(f'device must be "auto" or one that torch can use here, not {name!r}: {error}') from error
    return device


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Run with torch's random numbers set to `seed`, and leave the caller's as they were."""
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def hold_out(z: NDArray, share: float, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows to learn from and rows to watch, at random; of codes 0 .. K - 1, the same share of each class.

    Of a class with one row, or of very few rows, nothing is set aside; where that leaves none, all rows are watched.
    """
    groups = [np.flatnonzero(z == k) for k in np.unique(z)] if z.ndim == 1 else [np.arange(len(z))]
    watched = np.zeros(len(z), bool)
    for rows in groups:
        watched[rng.permutation(rows)[: int(share * len(rows))]] = True
    if not watched.any():
        return np.arange(len(z)), np.arange(len(z))
    return np.flatnonzero(~watched), np.flatnonzero(watched)


def center_and_scale(X: NDArray) -> tuple[NDArray[np.float64], float]:
    """Mean of the rows, and root mean square of all columns about it (1 where they are constant)."""
    center = X.mean(axis=0, dtype=np.float64)
    scale = math.sqrt(X.var(axis=0, dtype=np.float64).mean())
    return center, scale if scale > 1e-12 * np.abs(center).max() else 1.0


def standardise(X: NDArray, center: NDArray[np.float64], scale: float) -> NDArray[np.floating]:
    """(X - center) / scale, in the precision of X."""
    return (X - center.astype(X.dtype)) / X.dtype.type(scale)


def train(
    step: Callable[..., None],
    watch: Callable[[], float],
    modules: Sequence[torch.nn.Module],
    rows: Sequence[torch.Tensor],
    *,
    epochs: Iterable[Any],
    batch_size: int,
    patience: int | None,
) -> list[float]:
    """Take steps over shuffled batches until the watched loss no longer falls, and keep the best weights.

    Parameters
    ----------
    step : function of one batch, as many tensors as `rows`
        Makes one update.
    watch : function without arguments
        The loss on rows set aside, called after each epoch without gradients and with the modules in eval mode.
    modules : sequence of torch.nn.Module
        Whose weights are kept and, at the end, set back to the best.
    rows : sequence of tensors of equal length
    epochs : iterable
        One turn for each epoch; ``self._steps(most, "epoch")`` of an estimator also tells the callbacks.
    batch_size : int
        A last batch that is not full is dropped, unless it is the only one.
    patience : int or None
        Epochs without gain before it gives up. With None it never does, and the last weights are kept.

    Returns
    -------
    list of float
        The watched loss after each epoch.
    """
    import torch

    n = len(rows[0])
    starts = range(0, max(n - batch_size + 1, 1), batch_size)
    best, since, kept, history = math.inf, 0, [], []
    for _ in epochs:
        for module in modules:
            module.train()
        order = torch.randperm(n).to(rows[0].device)  # drawn on the host: the same on every device
        for start in starts:
            try:
                step(*(t[order[start : start + batch_size]] for t in rows))
            except RuntimeError as error:  # torch has no kind of its own for this
                if "without overflow" not in str(error):
                    raise
                raise MuteError("training diverged: a step overflows; lower the learning rate") from error
        for module in modules:
            module.eval()
        with torch.no_grad():
            loss = float(watch())
        if not math.isfinite(loss):
            raise MuteError(f"training diverged: the watched loss became {loss}; lower the learning rate")
        history.append(loss)
        if patience is None:
            continue
        since = 0 if loss < best - _LEAST_GAIN * min(abs(best), abs(loss)) else since + 1
        if since == 0:
            best = loss
            kept = [{name: value.clone() for name, value in module.state_dict().items()} for module in modules]
        elif since >= patience:
            break
    for module, weights in zip(modules, kept, strict=False):
        module.load_state_dict(weights)
    return history
