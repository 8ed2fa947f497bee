"""The columns of a pickled pandas DataFrame, out of the stand-ins that a safe reader has made of its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from mute.datasets.papers.standins import StandIn
from mute.errors import MuteError
from mute.typing import Array

__all__ = ["frame_columns"]

Plain = Callable[[Any], Any]

_OFFSETS = {"string": "<i4", "large_string": "<i8"}


def frame_columns(frame: StandIn, plain: Plain) -> dict[Any, Array]:
    """Take the columns, in the order of the frame, out of a DataFrame of pandas 1, 2 or 3.

    pandas keeps columns of one type together as the rows of a block, with the places that they have in the frame.
    `plain` turns the stand-in of an array into the array. Text becomes an array of objects, with None or NaN where it
    is missing. Columns of other kinds than numbers, booleans, text and Python objects are left out.
    """
    manager = frame.state["_mgr" if "_mgr" in frame.state else "_data"]
    blocks, (names, _) = _parts(manager)
    titles = _titles(names, plain)
    found: dict[int, Array] = {}
    for values, places in blocks:
        columns = _columns(values, plain)
        if columns is None:
            continue
        where = _places(places, plain)
        if len(where) != len(columns):
            raise MuteError(f"has a DataFrame with {len(columns)} columns for {len(where)} places: fetch it again")
        found.update(zip(where, columns, strict=True))
    if len(set(titles)) != len(titles) or not set(found) <= set(range(len(titles))):
        raise MuteError("has a DataFrame whose columns and their names do not fit each other: give each its own name")
    if len({len(column) for column in found.values()}) > 1:
        raise MuteError("has a DataFrame whose columns differ in length: fetch it again")
    return {title: found[place] for place, title in enumerate(titles) if place in found}


def _parts(manager: StandIn) -> tuple[Iterator[tuple[Any, Any]], list[Any]]:
    """Give pairs of values and places, and the two axes."""
    if manager.args:
        blocks, axes = manager.args
        return ((block.args[0], block.args[1]) for block in blocks), axes
    # Before pandas 1.3: three entries for readers of older still, and then this, named after the version it came with.
    stored = manager.state[3]["0.14.1"]
    return ((block["values"], block["mgr_locs"]) for block in stored["blocks"]), stored["axes"]


def _titles(names: StandIn, plain: Plain) -> list[Any]:
    _, fields = names.args
    if "data" not in fields:
        return list(_range(fields["start"], fields["stop"], fields["step"]))
    columns = _columns(fields["data"], plain)
    if columns is None:
        raise MuteError("has a DataFrame whose columns have names of an unknown kind: name them with plain text")
    # The names are one array, which `_columns` takes for one column.
    return columns[0].tolist()


def _places(places: Any, plain: Plain) -> list[int]:
    if isinstance(places, StandIn) and places.source.endswith(".BlockPlacement"):
        places = places.args[0]
    if isinstance(places, StandIn) and places.source == "builtins.slice":
        return list(_range(*places.args))
    return plain(places).tolist()


def _range(start: int, stop: int, step: int | None) -> range:
    made = range(start, stop, 1 if step is None else step)
    if len(made) > 1_000_000:
        raise MuteError(f"has a DataFrame of {len(made)} columns: fetch it again")
    return made


def _columns(values: Any, plain: Plain) -> list[Array] | None:
    """Give the columns of a block, or None if they are of a kind that is not read."""
    if isinstance(values, StandIn) and values.source.split(".")[0] in ("pandas", "pyarrow"):
        text = _text(values, plain)
        return None if text is None else [text]
    array = plain(values)
    return [array] if array.ndim == 1 else list(array)


def _text(values: StandIn, plain: Plain) -> Array | None:
    name = values.source.rsplit(".", 1)[1]
    if name == "__pyx_unpickle_NDArrayBacked" and ".StringArray" in values.args[0].source:
        return plain(values.state[1]).reshape(-1)
    if name.startswith("ArrowStringArray"):
        arrow = values.state["_pa_array" if "_pa_array" in values.state else "_data"]
        chunks = arrow.args[0] if arrow.source.endswith(".chunked_array") else [arrow]
        texts = [text for chunk in chunks for text in _arrow_strings(chunk, plain)]
        return np.fromiter(texts, dtype=object, count=len(texts))
    return None


def _arrow_strings(chunk: StandIn, plain: Plain) -> list[str | None]:
    """Cut one Arrow array of strings: bits that say which are there, offsets, and all letters in one buffer."""
    kind, length, _, offset, (validity, offsets, letters), *_ = chunk.args[0]
    bounds = np.frombuffer(_buffer(offsets, plain), dtype=_OFFSETS[kind.args[0]])[offset : offset + length + 1]
    data = _buffer(letters, plain)
    if length and (len(bounds) != length + 1 or bounds[0] < 0 or (np.diff(bounds) < 0).any() or bounds[-1] > len(data)):
        raise MuteError("has a text column that is cut off: fetch it again")
    texts: list[str | None] = [data[start:stop].decode() for start, stop in pairwise(bounds.tolist())]
    if validity is not None:
        bits = np.unpackbits(np.frombuffer(_buffer(validity, plain), dtype=np.uint8), bitorder="little")
        there = bits[offset : offset + length].tolist()
        texts = [text if known else None for text, known in zip(texts, there, strict=True)]
    return texts


def _buffer(buffer: StandIn | None, plain: Plain) -> bytes:
    return b"" if buffer is None else plain(buffer.args[0])
