"""Inert stand-ins for what a pickle file asks for by name.

A pickle is a small program: it names callables and has them called. Here every name it may give stands for a class
that only notes down what it was called with, so nothing that a file says is ever carried out.
"""

from typing import Any, ClassVar

from mute.errors import MuteError

__all__ = ["StandIn", "stand_in"]

_KNOWN = frozenset(
    {
        "_codecs.encode",
        "builtins.bytearray",
        "builtins.bytes",
        "builtins.complex",
        "builtins.frozenset",
        "builtins.set",
        "builtins.slice",
        "collections.OrderedDict",
        "numpy._core.multiarray._reconstruct",
        "numpy._core.multiarray.scalar",
        "numpy._core.numeric._frombuffer",
        "numpy.dtype",
        "numpy.ndarray",
    }
)

# The parts of a DataFrame go by many names, and some of them (the index of the rows) are not needed at all.
_FRAMES = ("pandas", "pyarrow")

# Python 2 and numpy 1 have other names for the same things.
_RENAMED = {
    "__builtin__": "builtins",
    "numpy.core.multiarray": "numpy._core.multiarray",
    "numpy.core.numeric": "numpy._core.numeric",
}


class StandIn:
    """What a pickle wanted to have made, and of what.

    Attributes
    ----------
    source : str
        The name that the file gave, such as ``"numpy.dtype"``.
    args : tuple
        What it would have been called with.
    state : object
        What it would have been filled with afterwards; None if nothing.
    items : list of (key, value)
        What would have been put into it with ``[]``.

    Notes
    -----
    A file can hand a class of this kind itself to the operation that fills objects. Python then calls ``__setstate__``
    without an object, which fails; were it not defined here, the file could write into the class.

    Examples
    --------
    >>> noted = stand_in("numpy", "dtype")("f8", False, True)
    >>> noted.source, noted.args
    ('numpy.dtype', ('f8', False, True))
    """

    __slots__ = ("args", "items", "state")

    source: ClassVar[str] = ""
    args: tuple[Any, ...]
    state: Any
    items: list[tuple[Any, Any]]

    def __new__(cls, *args: Any) -> "StandIn":
        self = object.__new__(cls)
        self.args, self.state, self.items = args, None, []
        return self

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        self.items.append((key, value))


def stand_in(module: str, name: str) -> type[StandIn]:
    """Give the stand-in for a global name of a pickle.

    Parameters
    ----------
    module, name : str
        What the file asks for.

    Returns
    -------
    type
        A new subclass of `StandIn`; `source` is the name, in the spelling of Python 3 and numpy 2.

    Raises
    ------
    MuteError
        If it is neither plain data, nor numpy's arrays, nor a part of a DataFrame.
    """
    # Names of the file's choice end up in messages: a line break or a code of the terminal must not.
    source = f"{_RENAMED.get(module, module)}.{name}".encode("unicode_escape").decode("ascii")[:120]
    if source not in _KNOWN and module.split(".")[0] not in _FRAMES:
        raise MuteError(f"asks for {source}: only plain data, arrays and DataFrames are read")
    return type("StandIn", (StandIn,), {"__slots__": (), "source": source})
