"""The columns of a pickled pandas DataFrame, out of what `opcodes` has noted of its parts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from mute.datasets.papers.opcodes import Noted
from mute.errors import MuteError
from mute.typing import Array, Label

if TYPE_CHECKING:
    from mute.datasets.papers.unpickle import Plain

__all__ = ["frame_columns"]

_OFFSETS = {"string": "<i4", "large_string": "<i8"}


def frame_columns(frame: Noted, plain: Plain) -> dict[Label, Array]:
    """Take the columns, in the order of the frame, out of a DataFrame of pandas 1, 2 or 3.

    pandas keeps columns of one type together as the rows of a block, with the places that they have in the frame. Text
    becomes an array of objects, with None or NaN where it is missing. Columns of other kinds than numbers, booleans,
    text and Python objects are left out.
    """
    blocks, (names, _) = _parts(_either(_fields(frame.state, plain), "_mgr", "_data"), plain)
    titles = _titles(names, plain)
    found: dict[int, Array] = {}
    for values, places in blocks:
        columns = _columns(values, plain)
        if columns is None:
            continue
        where = _places(places, plain)
        if len(where) != len(columns):
            raise MuteError(f"has a DataFrame with {len(columns)} columns for {len(where)} places: fetch it again")
        if not all(type(place) is int and 0 <= place < len(titles) for place in where):
            raise MuteError("has a DataFrame whose columns and their names do not fit each other: fetch it again")
        found.update(zip(where, columns, strict=True))
    if isinstance(titles, list) and len(set(titles)) != len(titles):
        raise MuteError("has a DataFrame with two columns of one name: give each its own name")
    if len({len(column) for column in found.values()}) > 1:
        raise MuteError("has a DataFrame whose columns differ in length: fetch it again")
    return {titles[place]: found[place] for place in sorted(found)}


def _parts(manager: Noted, plain: Plain) -> tuple[list[Sequence[Any]], Sequence[Any]]:
    """Give values and places of each block, and the two axes."""
    if manager.args:
        blocks, axes = manager.args
        return [block.args[:2] for block in blocks], axes
    # Before pandas 1.3: three entries for readers of older still, and then this, named after the version it came with.
    stored = _fields(_fields(manager.state[3], plain)["0.14.1"], plain)
    read = (_fields(block, plain) for block in stored["blocks"])
    return [(block["values"], block["mgr_locs"]) for block in read], stored["axes"]


def _fields(noted: Noted, plain: Plain) -> dict[str, Any]:
    """The entries of a dict that have text for keys, with the values as they were noted."""
    plain.spend(len(noted.items))
    pairs = zip(noted.items[::2], noted.items[1::2], strict=True)
    return {key: value for key, value in pairs if isinstance(key, str)}


def _either(fields: dict[str, Any], new: str, old: str) -> Noted:
    return fields[new if new in fields else old]


def _titles(names: Noted, plain: Plain) -> Sequence[Label]:
    _, noted = names.args or ()
    fields = _fields(noted, plain)
    if "data" not in fields:
        return range(fields["start"], fields["stop"], fields["step"])
    columns = _columns(fields["data"], plain)
    if columns is None:
        raise MuteError("has a DataFrame whose columns have names of an unknown kind: name them with plain text")
    # The names are one array, which `_columns` takes for one column.
    return plain.keys(columns[0].tolist())


def _places(places: Noted, plain: Plain) -> Sequence[int]:
    if places.source.endswith(".BlockPlacement"):
        (places,) = places.args or ()
    if places.source == "builtins.slice":
        start, stop, step = places.args or ()
        return range(start, stop, 1 if step is None else step)
    return plain(places).tolist()


def _columns(values: Noted, plain: Plain) -> list[Array] | None:
    """Give the columns of a block, or None if they are of a kind that is not read."""
    if values.source.split(".")[0] in ("pandas", "pyarrow"):
        text = _text(values, plain)
        return None if text is None else [text]
    array = plain(values)
    return [array] if array.ndim == 1 else list(array)


def _text(values: Noted, plain: Plain) -> Array | None:
    name = values.source.rsplit(".", 1)[1]
    if name == "__pyx_unpickle_NDArrayBacked" and values.args and ".StringArray" in values.args[0].source:
        return plain(values.state[1]).reshape(-1)
    if name.startswith("ArrowStringArray"):
        arrow = _either(_fields(values.state, plain), "_pa_array", "_data")
        chunks = (arrow.args or ())[0] if arrow.source.endswith(".chunked_array") else [arrow]
        texts = [text for chunk in chunks for text in _arrow_strings(chunk, plain)]
        return np.fromiter(texts, dtype=object, count=len(texts))
    return None


def _arrow_strings(chunk: Noted, plain: Plain) -> list[str | None]:
    """Cut one Arrow array of strings: bits that say which are there, offsets, and all letters in one buffer."""
    kind, length, _, offset, buffers, *_ = (chunk.args or ())[0]
    validity, offsets, letters = (b"" if buffer is None else plain(buffer.args[0]) for buffer in buffers)
    plain.spend(len(validity) + len(offsets) + len(letters))
    bounds = np.frombuffer(offsets, dtype=_OFFSETS[plain(kind.args[0])])[offset : offset + length + 1]
    if length and (
        len(bounds) != length + 1 or bounds[0] < 0 or (np.diff(bounds) < 0).any() or bounds[-1] > len(letters)
    ):
        raise MuteError("has a text column that is cut off: fetch it again")
    texts: list[str | None] = [letters[start:stop].decode() for start, stop in pairwise(bounds.tolist())]
    if buffers[0] is not None:
        bits = np.unpackbits(np.frombuffer(validity, dtype=np.uint8), bitorder="little")
        there = bits[offset : offset + length].tolist()
        texts = [text if known else None for text, known in zip(texts, there, strict=True)]
    return texts
