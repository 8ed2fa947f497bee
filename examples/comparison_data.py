"""Three problems to compare all methods on, written as files for `mute compare`.

    python examples/comparison_data.py FOLDER
    mute compare FOLDER/words.npz:X --concept FOLDER/words.npz:z --task FOLDER/words.npz:y -o FOLDER/words.html

- *words*: the 12,000 GloVe vectors that ship with the package, 100 columns, in three gender classes. The task is
  whether a word ends in s.
- *gauss*: 8,000 rows of 20 columns in two Gaussian classes that differ in mean and covariance. The task is the sign of
  a direction that correlates with the classes.
- *shapes*: 9,000 rows of 8 columns in three classes with the same mean and covariance. The classes differ only in the
  shape of their distribution: two bumps, flat, or peaked. No method that rests on two moments can erase them.
"""

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mute.datasets import load_glove_gender

Problem = tuple[NDArray, NDArray, NDArray]


def words() -> Problem:
    data = load_glove_gender()
    return data.X, data.z, np.where(np.char.endswith(data.names, "s"), "s", "other")


def gauss(n: int = 8_000, d: int = 20) -> Problem:
    rng = np.random.default_rng(0)
    z = rng.integers(2, size=n)
    mixing = np.eye(d) + rng.normal(size=(2, d, d)) / (2 * np.sqrt(d))
    X = np.einsum("nd,nde->ne", rng.normal(size=(n, d)), mixing[z])
    X[:, 0] += 3 * z
    y = X[:, 0] + 3 * X[:, 1] + rng.normal(size=n) > 1.5
    return X.astype(np.float32), np.array(["a", "b"])[z], np.where(y, "yes", "no")


def shapes(n: int = 9_000, d: int = 8) -> Problem:
    rng = np.random.default_rng(0)
    z = rng.integers(3, size=n)
    bumps = 0.9 * rng.choice([-1, 1], size=(n, d)) + np.sqrt(1 - 0.9**2) * rng.normal(size=(n, d))
    flat = rng.uniform(-np.sqrt(3), np.sqrt(3), size=(n, d))
    peaked = rng.laplace(scale=np.sqrt(0.5), size=(n, d))
    X = np.choose(z[:, None], [bumps, flat, peaked])
    y = X[:, 0] + 0.5 * rng.normal(size=n) > 0
    return X.astype(np.float32), np.array(["bumps", "flat", "peaked"])[z], np.where(y, "yes", "no")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for problem in (words, gauss, shapes):
        X, z, y = problem()
        np.savez(folder / f"{problem.__name__}.npz", X=X, z=z, y=y)
        print(f"{folder / problem.__name__}.npz: {len(X):,} rows of {X.shape[1]} columns")
