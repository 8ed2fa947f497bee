"""Affine layers, one for each class, that give the class a chosen mean and covariance."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mute.flow.covariances import LEAST
from mute.flow.flow import Flow
from mute.flow.rotations import principal_axes

__all__ = ["as_by_chance", "whitening_flow"]


def as_by_chance(x: NDArray, k: NDArray[np.int64], n_values: int, rng: np.random.Generator) -> Flow:
    r"""Layers that give each class the mean and covariance of an independent Gaussian sample of its size.

    Let S be the covariance of the sample and C that of the rows. Whitening by :math:`C^{1/2} S^{-1} C^{1/2}` instead of
    C leaves the covariance S up to a rotation, which does not change its law. The last layer is a random rotation.
    """
    from scipy.linalg import eigh
    from scipy.stats import ortho_group, wishart

    d, counts = x.shape[1], np.bincount(k)
    centres, sizes = np.empty((len(counts), d)), np.empty((len(counts), d, d))
    for c, n in enumerate(counts.tolist()):
        mine = x[k == c].astype(np.float64)
        values, axes = eigh(np.atleast_2d(np.cov(mine, rowvar=False)))
        root = axes * np.sqrt(np.maximum(values, LEAST)) @ axes.T
        sample = np.atleast_2d(wishart.rvs(n - 1, np.eye(d), random_state=rng)) / (n - 1)
        sizes[c] = root @ np.linalg.solve(sample, root)
        values, axes = eigh(sizes[c])
        shift = rng.standard_normal(d) / np.sqrt(n)
        centres[c] = mine.mean(axis=0) - axes * np.sqrt(values) @ axes.T @ shift
    flow = whitening_flow(centres, sizes, n_values)
    turn = ortho_group.rvs(d, random_state=rng) if d > 1 else np.ones((1, 1))
    idle = whitening_flow(np.zeros((len(counts), d)), np.tile(np.eye(d), (len(counts), 1, 1)), n_values).layers(0, 1)
    return flow.then(replace(idle, rotations=turn[None]))


def whitening_flow(means: NDArray[np.float64], covariances: NDArray[np.float64], n_values: int) -> Flow:
    """One affine layer for each class that makes its mean zero and its covariance the identity.

    All classes share each rotation, so a layer works on covariances that the earlier layers have rotated.
    """
    n_classes, d = means.shape
    grid = np.linspace(-1, 1, n_values)
    rotations = np.empty((n_classes, d, d))
    origin, values = np.full((n_classes, n_classes, d), -1.0), np.tile(grid, (n_classes, n_classes, d, 1))
    turned = np.eye(d)
    for k in range(n_classes):
        rotations[k] = principal_axes(turned.T @ covariances[k] @ turned)
        turned = turned @ rotations[k]
        sizes = (turned * (covariances[k] @ turned)).sum(axis=0)
        # A flat direction stays flat.
        slopes = np.where(sizes > LEAST, np.maximum(sizes, LEAST) ** -0.5, 1)
        origin[k, k] += means[k] @ turned
        values[k, k] *= slopes[:, None]
    step = np.full_like(origin, grid[1] - grid[0])
    return Flow(np.zeros(d), np.ones(d), rotations, origin, step, values)
