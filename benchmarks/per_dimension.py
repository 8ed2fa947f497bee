"""The paper's method as one would first write it in torch: a Python loop over classes and dimensions.

Written from the paper's formulas, as the yardstick of ``speed.py``: histograms of 1000 bins with `ALPHA` added to the
counts, a CDF by cumulative sum, linear interpolation between its edges, a clip, the normal quantile. Every step of the
loop is one of torch's own vectorised calls over all rows of a class.
"""

import torch
from torch import Tensor

BINS, ALPHA, REACH, CLIP = 1000, 1e-10, 0.1, 1e-5

Marginal = tuple[Tensor, Tensor]  # edges and the CDF there, (BINS + 1,) each
Layer = tuple[Tensor, Tensor, dict[tuple[int, int], Marginal]]  # mean (D,), axes (D, D), marginals by class and column


def fit(x: Tensor, z: Tensor, n_layers: int) -> tuple[list[Layer], Tensor]:
    """Fit `n_layers` layers on the rows `x` (n, D) with classes `z` (n,); also the rows behind the last one."""
    layers: list[Layer] = []
    n_classes = int(z.max()) + 1
    for t in range(n_layers):
        mine = x[z == t % n_classes]
        mean, axes = mine.mean(dim=0), torch.linalg.eigh(torch.cov(mine.T)).eigenvectors.flip(1)
        turned = (x - mean) @ axes
        marginals = {}
        for k in range(n_classes):
            rows = turned[z == k]
            for d in range(x.shape[1]):
                marginals[k, d] = fit_marginal(rows[:, d])
        layers.append((mean, axes, marginals))
        x = apply(turned, z, marginals)
    return layers, x


def transform(x: Tensor, z: Tensor, layers: list[Layer]) -> Tensor:
    """Carry rows through the layers."""
    for mean, axes, marginals in layers:
        x = apply((x - mean) @ axes, z, marginals)
    return x


def fit_marginal(column: Tensor) -> Marginal:
    low, high = float(column.min()), float(column.max())
    low, high = low - REACH * (high - low), high + REACH * (high - low)
    counts = torch.histc(column, BINS, low, high) + ALPHA
    cdf = torch.cumsum(counts, dim=0) / counts.sum()
    return torch.linspace(low, high, BINS + 1), torch.cat([torch.zeros(1), cdf])


def apply(x: Tensor, z: Tensor, marginals: dict[tuple[int, int], Marginal]) -> Tensor:
    out = torch.empty_like(x)
    for k in range(int(z.max()) + 1):
        rows = x[z == k]
        for d in range(x.shape[1]):
            rows[:, d] = gaussianise(rows[:, d], *marginals[k, d])
        out[z == k] = rows
    return out


def gaussianise(column: Tensor, edges: Tensor, cdf: Tensor) -> Tensor:
    j = torch.searchsorted(edges, column.contiguous()).clamp(1, BINS)
    share = (column - edges[j - 1]) / (edges[j] - edges[j - 1])
    return torch.special.ndtri((cdf[j - 1] + share * (cdf[j] - cdf[j - 1])).clamp(CLIP, 1 - CLIP))
