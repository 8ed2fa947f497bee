"""The laws the tests draw from: `draw(law, n, d, seed)` gives n rows of each class and their labels."""

import numpy as np
from numpy.typing import NDArray

# Every law has classes that differ in place and covariance; beyond that,
# gauss: nothing; skew: gamma noise, leaning opposite ways; heavy: Student's t, 4 and 6 degrees of freedom;
# bimodal: two bumps in every coordinate against a uniform; clusters: three clouds, about three spreads apart.
LAWS = ("gauss", "skew", "heavy", "bimodal", "clusters")


def draw(law: str, n: int, d: int, seed: int, n_classes: int = 2) -> tuple[NDArray, NDArray]:
    rng = np.random.default_rng(seed)
    rows = [_one_class(law, n, d, k, rng) for k in range(n_classes)]
    return np.concatenate(rows), np.repeat(np.arange(n_classes), n)


def _one_class(law: str, n: int, d: int, k: int, rng: np.random.Generator) -> NDArray:
    # Fixed by the class, not by the seed: another seed gives new rows of the same law.
    shape = np.random.default_rng(50 + k)
    mixing = np.eye(d) + shape.normal(size=(d, d)) / np.sqrt(d)
    match law:
        case "gauss":
            x = rng.normal(size=(n, d))
        case "skew":
            x = (-1) ** k * rng.gamma(4 - k % 2, 0.5, size=(n, d))
        case "heavy":
            x = rng.standard_t(4 + 2 * k, size=(n, d))
        case "bimodal" if k % 2 == 0:
            x = 0.6 * rng.normal(size=(n, d)) + rng.choice([-0.8, 0.8], size=(n, d))
        case "bimodal":
            x = rng.uniform(-1.7, 1.7, size=(n, d))
        case "clusters":
            x = 0.7 * rng.normal(size=(n, d)) + (2 / d) ** 0.5 * shape.normal(size=(3, d))[rng.integers(3, size=n)]
        case _:
            raise ValueError(law)
    return x @ mixing + k
