"""What .csv, .tsv and .parquet files share: named columns, of which some are the embedding."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mute.errors import MuteError
from mute.rows.embedding import Embedding, Kind, match_names
from mute.rows.matrix import Matrix, Stamp
from mute.typing import Array, Foreign

__all__ = ["Chooser", "TableMatrix", "check_unique"]

# Chooses the embedding from the kinds of a table's columns; the first argument names the table for messages.
Chooser = Callable[[str, Mapping[str, Kind]], Embedding]


class TableMatrix(Matrix):
    """The embedding of a table; the other columns can be read beside it.

    Attributes
    ----------
    embedding : Embedding
        The columns that are the embedding, and those that are not.
    kinds : dict
        The kind of each column, in the order of the table.
    types : pyarrow.Schema or None
        The types of the columns; None for text files, which have none.
    """

    def __init__(
        self, path: Path, shape: tuple[int, int], dtype: np.dtype[Any], embedding: Embedding,
        kinds: Mapping[str, Kind], stamp: Stamp, types: Foreign = None,
    ) -> None:  # fmt: skip
        super().__init__(path, shape, dtype, None if embedding.is_list else list(embedding.names), (stamp,))
        self.embedding, self.kinds, self.types = embedding, dict(kinds), types

    def __str__(self) -> str:
        numbers = f" of {self.shape[1]} numbers" if self.embedding.is_list else ""
        return f"{self.embedding}{numbers} of {self.path}"

    def matching(self, names: Sequence[str]) -> Matrix:
        """The columns `names` in their order; a list column, which has no names, as it is."""
        if self.columns == list(names):
            return self
        found = match_names(str(self.path), self.kinds, names)
        return self if found is None else self._reopened(lambda *_: found)

    @abstractmethod
    def _reopened(self, choose: Chooser) -> TableMatrix:
        """The same table with another choice of columns."""

    @abstractmethod
    def with_others(self, size: int, others: Sequence[str]) -> Iterator[tuple[Array, dict[str, Foreign]]]:
        """Iterate over the rows in blocks of about `size`, each with its cells of the columns `others`.

        The cells of a column are a list of texts (.csv, .tsv) or an Arrow array (.parquet).
        """


def check_unique(path: Path, names: Sequence[str]) -> None:
    """Refuse a table in which two columns have one name."""
    name, count = max(Counter(names).items(), key=lambda item: item[1], default=("", 0))
    if count > 1:
        raise MuteError(f"{path}: column {name!r} appears {count} times in the file; rename them")
