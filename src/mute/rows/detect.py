"""Of what kind rows are (tensors, dask's collections, blocks), without importing torch or dask."""

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from mute.errors import missing_extra
from mute.typing import RowsLike

__all__ = ["come_in_blocks", "is_dask", "is_tensor", "require_torch", "to_host"]


def is_tensor(x: object) -> bool:
    """Whether `x` is a torch tensor."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def to_host(x: Any) -> Any:  # Any: rows, labels or one label, in any form
    """A tensor as a numpy array, a tensor of one number as that number, and anything else unchanged."""
    if not is_tensor(x):
        return x
    x = x.detach().cpu()
    if x.ndim == 0:
        return x.item()
    return (x.float() if x.dtype.is_floating_point and x.dtype.itemsize < 4 else x).numpy()


def require_torch(purpose: str) -> ModuleType:
    """The torch module, or an error that names its extra."""
    try:
        import torch
    except ImportError:
        raise missing_extra("torch", "torch", purpose) from None
    return torch


def is_dask(X: RowsLike) -> bool:
    """Whether this is a collection of dask."""
    return type(X).__module__.partition(".")[0] in ("dask", "dask_expr") and hasattr(X, "__dask_graph__")


def come_in_blocks(X: RowsLike) -> bool:
    """Whether rows come in blocks: from `mute.open_matrix`, an iterator, or dask."""
    return hasattr(X, "row_blocks") or isinstance(X, Iterator) or is_dask(X)
