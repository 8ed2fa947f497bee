"""Many files of one kind as one matrix."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from mute.errors import MuteError
from mute.rows.matrix import Matrix, NoRowsError
from mute.tables.readers import listed

__all__ = ["JoinedMatrix"]


class JoinedMatrix(Matrix):
    """The rows of many files, one file after the other.

    Opening it looks at each file once, for its rows and columns. Of a file nothing but its name and its number of rows
    is kept, and one is open at a time, so that memory does not grow with their number. Files without rows are passed
    over.

    Parameters
    ----------
    path : pathlib.Path
        What they are together; for messages.
    files : sequence of pathlib.Path
    open_one : function (path) -> Matrix
    """

    def __init__(self, path: Path, files: Sequence[Path], open_one: Callable[[Path], Matrix]) -> None:
        self._open_one = open_one
        self._parts: list[tuple[Path, int]] = []
        first: Matrix | None = None
        for file in files:
            try:
                part = open_one(file)
            except NoRowsError:
                continue
            first = first or part
            _check_alike(first, part)
            self._parts.append((file, part.shape[0]))
        if first is None:
            raise NoRowsError(f"{path} has files but no rows: at least one is needed")
        self._first = first
        n_rows = sum(rows for _, rows in self._parts)
        super().__init__(path, (n_rows, first.shape[1]), first.dtype, first.columns)

    def parts(self, size: int) -> list[tuple[int, Callable[[], NDArray[Any]]]]:
        return [(rows, partial(self._part, file, rows)) for file, rows in self._parts]

    def _part(self, file: Path, rows: int) -> NDArray[Any]:
        return self._opened(file, rows).to_numpy()

    def _opened(self, file: Path, rows: int) -> Matrix:
        part = self._open_one(file)
        _check_alike(self._first, part)
        if part.shape[0] != rows:
            raise MuteError(f"{file} has {part.shape[0]} rows, but {rows} when it was opened: open it again")
        return part

    def _blocks(self, size: int) -> Iterator[NDArray[Any]]:
        for file, rows in self._parts:
            part = self._opened(file, rows)
            yield from part._complete(part._blocks(size))


def _check_alike(first: Matrix, part: Matrix) -> None:
    """Refuse a file that is not like the first one."""
    if part.columns != first.columns:
        here, there = part.columns or [], first.columns or []
        lacking, new = [n for n in there if n not in here], [n for n in here if n not in there]
        differences = [f"lacks {listed(lacking, 5)}"] * bool(lacking) + [f"also has {listed(new, 5)}"] * bool(new)
        what = " and ".join(differences) or "has its columns in another order"
        raise MuteError(
            f"{part.path} {what}, unlike {first.path}: all files must have the same numeric columns, so choose those "
            "that they share"
        )
    for name, mine, expected in (
        ("columns", part.shape[1], first.shape[1]),
        ("numbers", part.dtype, first.dtype),
    ):
        if mine != expected:
            raise MuteError(f"{part.path} holds {mine} {name} and {first.path} {expected}: make all files alike")
