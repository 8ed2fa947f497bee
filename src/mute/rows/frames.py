"""Data frames (pandas, polars) and Arrow tables as rows: columns are matched by name, as in files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from mute.errors import ColumnsLeftOut, MuteError, listed, warn_user
from mute.rows.embedding import Embedding, Kind, choose_embedding, match_names
from mute.typing import Array, Foreign

__all__ = ["FrameRows", "is_frame", "kind_of_arrow"]

_ADVICE = "give the columns of the embedding only, as X[names]"


def is_frame(X: object) -> bool:
    """Whether this is a data frame of pandas or polars, or an Arrow table; none of them is imported."""
    package, name = type(X).__module__.partition(".")[0], type(X).__name__
    return (package, name) in {("pandas", "DataFrame"), ("polars", "DataFrame"), ("pyarrow", "Table")}


class FrameRows:
    """The rows of a frame.

    If the frame has numbers of one kind only, all its columns are the embedding, as in scikit-learn. Otherwise the
    embedding is recognised by the rule of `choose_embedding`; if the rows are for a fit (`fits`), a `ColumnsLeftOut`
    warning names what was left out.
    With `names`, the columns that an estimator was fitted on, these are taken by name and in any order.

    Attributes
    ----------
    rows : data frame or array
        The embedding: a frame of pandas or polars if its columns have names, else an array.
    names : list of str or None
        Names of the columns; None for a list column.
    """

    def __init__(self, X: Foreign, names: Sequence[str] | None, title: str, *, fits: bool) -> None:
        kinds = _kinds(X)
        found = None if names is None else match_names(title, kinds, names)
        if found is None and len(set(kinds.values())) == 1 and set(kinds.values()) <= {"float", "integer"}:
            found = Embedding(tuple(kinds), False, ())
        if found is None:
            found = choose_embedding(title, kinds, advice=_ADVICE)
            if found.left_out and fits:
                warn_user(
                    f"the embedding of {title} is {found}; left out: {listed(found.left_out)}; for others, "
                    "give them only",
                    ColumnsLeftOut,
                )
        self.rows = _lists(X, found.names[0], title) if found.is_list else _columns(X, found.names)
        self.names = None if found.is_list else list(found.names)


def kind_of_arrow(name: str, kind: Foreign) -> Kind:
    """The kind of a column, by its name and Arrow type."""
    from pyarrow import types

    # pandas stores the index of a frame as one more column of such a name.
    if re.fullmatch(r"__index_level_\d+__", name):
        return "other"
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return "list" if kind_of_arrow("", kind.value_type) in ("float", "integer") else "other"
    if types.is_floating(kind) or types.is_decimal(kind):
        return "float"
    return "integer" if types.is_integer(kind) else "other"


def _kinds(X: Foreign) -> dict[str, Kind]:
    match type(X).__module__.partition(".")[0]:
        case "pyarrow":
            return {field.name: kind_of_arrow(field.name, field.type) for field in X.schema}
        case "polars":
            return {name: _kind_of_polars(kind) for name, kind in X.schema.items()}
        case _:
            return {str(name): _kind_of_pandas(X.iloc[:, at]) for at, name in enumerate(X.columns)}


def _kind_of_polars(kind: Foreign) -> Kind:
    if kind.is_nested():
        inner = getattr(kind, "inner", None)
        return "list" if inner is not None and inner.is_numeric() else "other"
    return "float" if kind.is_float() or kind.is_decimal() else "integer" if kind.is_integer() else "other"


def _kind_of_pandas(column: Foreign) -> Kind:
    from pandas.api import types

    if types.is_float_dtype(column.dtype):
        return "float"
    if types.is_bool_dtype(column.dtype) or not len(column):
        return "other"
    if types.is_integer_dtype(column.dtype):
        return "integer"
    first = column.iloc[0]
    is_list = isinstance(first, list | tuple | np.ndarray) and np.asarray(first).dtype.kind in "iuf"
    return "list" if is_list else "other"


def _columns(X: Foreign, names: Sequence[str]) -> Any:  # Any: a frame of the same kind, or an array
    if type(X).__module__.startswith("pyarrow"):
        return np.column_stack([X.column(name).to_numpy() for name in names])
    if list(map(str, X.columns)) == list(names):
        return X
    if not all(isinstance(name, str) for name in X.columns):  # of pandas: such names are not kept by scikit-learn
        places = {str(name): at for at, name in enumerate(X.columns)}
        return X.iloc[:, [places[name] for name in names]]
    return X[list(names)]


def _lists(X: Foreign, name: str, title: str) -> Array:
    column = X.column(name) if type(X).__module__.startswith("pyarrow") else X[name]
    cells = column.to_pylist() if hasattr(column, "to_pylist") else column.to_list()
    lengths = [-1 if cell is None else len(cell) for cell in cells]
    wrong = next((row for row, length in enumerate(lengths) if length != lengths[0] or length < 1), None)
    if wrong is not None:
        raise MuteError(
            f"{title}: column {name!r} has {max(lengths[wrong], 0)} numbers in row {wrong} and {max(lengths[0], 0)} in "
            "row 0; make all rows equally long"
        )
    single = "float32" in str(getattr(column, "dtype", getattr(column, "type", ""))).lower() or (
        getattr(cells[0], "dtype", None) in (np.float32, np.float16)
    )
    return np.array([list(cell) for cell in cells], np.float32 if single else np.float64)
