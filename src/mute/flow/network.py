"""Feed-forward networks as plain arrays, which are stored, checked and run without torch or scikit-learn."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import NDArray

from mute.errors import MuteError
from mute.flow.ops import NumpyOps
from mute.typing import Foreign, JsonValue, Ops, Value

__all__ = ["Network"]

_BLOCK = 4096


class Network:
    """Linear layers, with weights (in, out) and biases (out,), and ReLU between them.

    Examples
    --------
    >>> import numpy as np
    >>> Network([np.eye(2), np.ones((2, 1))], [np.zeros(2), np.zeros(1)])(np.array([[-3.0, 2.0]]))
    array([[2.]])
    """

    def __init__(self, weights: list[NDArray], biases: list[NDArray]) -> None:
        self.weights, self.biases = weights, biases

    @classmethod
    def from_torch(cls, module: Foreign) -> Network:
        """The network of a ``torch.nn.Sequential`` of linear layers with ReLU between them."""
        layers = [layer for layer in module if hasattr(layer, "weight")]
        arrays = [[p.detach().cpu().numpy() for p in (layer.weight, layer.bias)] for layer in layers]
        return cls([w.T.copy() for w, _ in arrays], [b.copy() for _, b in arrays])

    def arrays(self, name: str) -> dict[str, NDArray]:
        """The arrays by their names in a file."""
        return {
            f"{name}.{i}.{what}": array
            for i, pair in enumerate(zip(self.weights, self.biases, strict=True))
            for what, array in zip(("weight", "bias"), pair, strict=True)
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray], name: str, n_layers: JsonValue, n_features: int) -> Self:
        """The network of a file, checked."""
        if type(n_layers) is not int or n_layers < 1:
            raise MuteError(f"its {name} cannot have {n_layers!r} layers")
        weights, biases = ([arrays[f"{name}.{i}.{part}"] for i in range(n_layers)] for part in ("weight", "bias"))
        width = n_features
        for w, b in zip(weights, biases, strict=True):
            if w.ndim != 2 or w.shape[0] != width or b.shape != w.shape[1:]:
                raise MuteError(f"the layers of its {name} do not fit together")
            width = w.shape[1]
        return cls(weights, biases)

    def __len__(self) -> int:
        return len(self.weights)

    @property
    def n_outputs(self) -> int:
        return self.weights[-1].shape[1]

    def run_with(self, ops: Ops, x: Value, name: str) -> Value:
        """The outputs in the operations of `ops` (see `mute.flow.ops`)."""
        for i, (w, b) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = ops.linear(x, ops.array(f"{name}{i}_weight", w), ops.array(f"{name}{i}_bias", b))
            x = ops.relu(x) if i < len(self) - 1 else x
        return x

    def __call__(self, X: NDArray) -> NDArray[np.floating]:
        """Outputs of shape (n, out), in the precision of `X`."""
        out, ops = np.empty((len(X), self.n_outputs), X.dtype), NumpyOps(X.dtype)
        for start in range(0, len(X), _BLOCK):
            h = X[start : start + _BLOCK]
            n = len(h)
            # Padded, so that BLAS takes the same path for few rows as for many.
            h = np.concatenate([h, np.zeros((-n % 16, h.shape[1]), h.dtype)]) if n % 16 else h
            out[start : start + n] = self.run_with(ops, h, "")[:n]
        return out
