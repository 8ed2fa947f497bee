"""What the network of the inverter is made of: readers of embeddings and layers of a causal transformer."""

from __future__ import annotations

from torch.nn import functional

import torch
from torch import Tensor, nn

__all__ = ["LOUD", "Layer", "Reader"]

# The standard deviation of pseudo-tokens at the start.
LOUD = 0.1


class Reader(nn.Module):
    """Turns an embedding into pseudo-tokens."""

    def __init__(self, dimension: int, width: int, n_tokens: int) -> None:
        super().__init__()
        self.inner = nn.Linear(dimension, 2 * width)
        self.outer = nn.Linear(2 * width, n_tokens * width)
        self.norm = nn.LayerNorm(width)
        nn.init.constant_(self.norm.weight, LOUD)

    def forward(self, x: Tensor) -> Tensor:
        x = self.outer(functional.gelu(self.inner(x)))
        return self.norm(x.view(len(x), -1, self.norm.normalized_shape[0]))


class Layer(nn.Module):
    """Attention to what came before, then a network of its own at each place; both add to what is there."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_inner = nn.LayerNorm(width), nn.LayerNorm(width)
        self.ask = nn.Linear(width, 3 * width)
        self.answer = nn.Linear(width, width)
        self.widen = nn.Linear(width, 2 * width)
        self.narrow = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self._split(x)
        return self._finish(x, functional.scaled_dot_product_attention(q, k, v, is_causal=True))

    def start(self, x: Tensor, room: int) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The layer of a prompt, and its keys and values with room for more places."""
        q, k, v = self._split(x)
        kept = tuple(torch.cat([part, part.new_zeros(*part.shape[:2], room, part.shape[3])], dim=2) for part in (k, v))
        x = self._finish(x, functional.scaled_dot_product_attention(q, k, v, is_causal=True))
        return x, (kept[0], kept[1])

    def step(self, x: Tensor, cache: tuple[Tensor, ...], at: int, seen: Tensor) -> Tensor:
        """The layer of one further place, which is put into the cache."""
        q, k, v = self._split(x)
        keys, values = cache
        keys[:, :, at], values[:, :, at] = k[:, :, 0], v[:, :, 0]
        keys, values = keys[:, :, : at + 1], values[:, :, : at + 1]
        return self._finish(x, functional.scaled_dot_product_attention(q, keys, values, attn_mask=seen))

    def _split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        n, length, width = x.shape
        parts = self.ask(self.norm_attention(x)).view(n, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        return q, k, v

    def _finish(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + self.answer(attended.transpose(1, 2).reshape(x.shape))
        return x + self.narrow(functional.gelu(self.widen(self.norm_inner(x))))
