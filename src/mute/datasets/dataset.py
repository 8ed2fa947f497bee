"""The one shape in which every data set arrives."""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mute.datasets.storage import read_dataset, write_dataset
from mute.errors import MuteError
from mute.typing import Array, Json

__all__ = ["SPLITS", "Dataset"]

SPLITS = ("fit", "validate", "test")


# eq=False: comparing arrays gives arrays, so a generated ``==`` would raise instead of answering.
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Dataset:
    """Representations with a concept to erase, row by row.

    Parameters
    ----------
    X : array of shape (n, D)
        Representations; kept as float32.
    z : array of shape (n,)
        The concept: one label for each row.
    y : array of shape (n,), optional
        The task: what should stay readable once the concept is erased. None where the data set has no task.
    names : array of shape (n,)
        What each row is, for a reader: a word, a sentence, an identifier.
    split : array of shape (n,)
        Which part a row belongs to: ``"fit"``, ``"validate"`` or ``"test"``.
    provenance : dict
        Where the data come from, under which licence, and how they were made.

    Raises
    ------
    MuteError
        If `X` is not a matrix of numbers, if a column is not one-dimensional or has another length than `X`, or if
        `split` has a name other than the three above.

    Notes
    -----
    The fields cannot be replaced; the arrays themselves are ordinary writable arrays. Arrays that already have the
    right type are kept without a copy.

    Examples
    --------
    >>> data = Dataset(X=[[0.0, 1.0], [2.0, 3.0]], z=["a", "b"], names=["first", "second"], split=["fit", "test"])
    >>> data
    Dataset(2 x 2; z: a 1, b 1; split: fit 1, test 1)
    >>> data.rows("test").names.tolist()
    ['second']
    """

    X: NDArray[np.float32]
    z: Array
    names: NDArray[np.str_]
    split: NDArray[np.str_]
    y: Array | None = None
    provenance: Json = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            X = np.asarray(self.X, dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise MuteError(f"X must be a matrix of numbers of shape (n, D): {error}") from error
        if X.ndim != 2:
            raise MuteError(f"X must be a matrix of shape (n, D), got shape {X.shape}")
        columns = {name: np.asarray(getattr(self, name), dtype=np.str_) for name in ("names", "split")}
        columns |= {name: np.asarray(values) for name in "zy" if (values := getattr(self, name)) is not None}
        wrong = [f"{name} {column.shape}" for name, column in columns.items() if column.shape != (len(X),)]
        if wrong:
            raise MuteError(f"X has {len(X)} rows, so each column must have shape ({len(X)},); got {', '.join(wrong)}")
        unknown = sorted(set(columns["split"].tolist()) - set(SPLITS))
        if unknown:
            raise MuteError(
                f"split must contain only {', '.join(map(repr, SPLITS))}; got {', '.join(map(repr, unknown))}"
            )
        # The only way to store the converted arrays in a frozen dataclass.
        object.__setattr__(self, "X", X)
        for name, column in columns.items():
            object.__setattr__(self, name, column)

    def __len__(self) -> int:
        return len(self.X)

    def __repr__(self) -> str:
        columns = [name for name in ("z", "y", "split") if getattr(self, name) is not None]
        counts = "".join(f"; {name}: {_counts(getattr(self, name))}" for name in columns)
        return f"Dataset({len(self)} x {self.X.shape[1]}{counts})"

    def rows(self, split: str) -> Dataset:
        """Return one part of the data as a data set of its own.

        Parameters
        ----------
        split : {"fit", "validate", "test"}
            The rows of this part are copied, in the same order. A part without rows is refused.
        """
        chosen = self.split == split
        if not chosen.any():
            present = ", ".join(name for name in SPLITS if name in self.split) or "none"
            raise MuteError(f"no rows of split {split!r}; this data set has: {present}")
        columns = {name: getattr(self, name) for name in ("X", "z", "y", "names", "split")}
        taken = {name: column[chosen] for name, column in columns.items() if column is not None}
        return Dataset(**taken, provenance=copy.deepcopy(self.provenance))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the data set to one safetensors file, whole or not at all.

        Parameters
        ----------
        path : str or path-like
            Where to write. The file contains numbers and text only, so opening it runs no code. Labels must be
            text, numbers or booleans, and JSON must be able to store `provenance`.

        Examples
        --------
        >>> import tempfile
        >>> data = Dataset(X=[[0.0], [2.0]], z=["a", "b"], names=["first", "second"], split=["fit", "test"])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     data.save(folder + "/data.safetensors")
        ...     Dataset.open(folder + "/data.safetensors")
        Dataset(2 x 1; z: a 1, b 1; split: fit 1, test 1)
        """
        write_dataset(self, path)

    @staticmethod
    def open(path: str | os.PathLike[str]) -> Dataset:
        """Read a data set that `save` wrote; a file that is damaged or something else is refused."""
        return read_dataset(path)


def _counts(labels: Array, shown: int = 5) -> str:
    """How often each label occurs; a long list is cut so that the repr stays on one line."""
    values, counts = np.unique(labels, return_counts=True)
    text = ", ".join(f"{value} {count}" for value, count in zip(values[:shown], counts[:shown], strict=True))
    return text if len(values) <= shown else f"{text}, ... ({len(values)} values)"
