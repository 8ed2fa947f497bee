"""An unpickler with a strict allow-list, which binds even the names on it to inert stand-ins.

A pickle is a small program: it names callables and has them called. Here every name it may give stands for a class
that only notes down what it was called with, so nothing that a file says is ever carried out. The real classes would
be no substitute: numpy believes the shapes and sizes that a pickle claims.
"""

import pickle
import re
from typing import Any, ClassVar

from mute.errors import MuteError

__all__ = ["StandIn", "StandInUnpickler"]

# In the spelling of Python 3 and numpy 2.
_ALLOWED = {
    "builtins": {"bytearray", "bytes", "complex", "frozenset", "set", "slice"},
    "_codecs": {"encode"},
    "collections": {"OrderedDict"},
    "numpy": {"dtype", "ndarray"},
    "numpy._core.multiarray": {"_reconstruct", "scalar"},
    "numpy._core.numeric": {"_frombuffer"},
}

# The parts of a DataFrame go by many names, and some of them (the index of the rows) are not needed at all.
_FRAMES = ("pandas", "pyarrow")


class StandIn:
    """What a pickle wanted to have made: the name it gave (`source`), and the `args` of the call.

    `state` is what the object would have been filled with afterwards, and `items` are the pairs that would have been
    put into it with ``[]``.
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

    # A file can ask to fill a class in place of an object. This method then fails; without it, the class would change.
    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        self.items.append((key, value))


class StandInUnpickler(pickle.Unpickler):
    """Refuses every name that is neither plain data, nor numpy's arrays, nor a part of a DataFrame."""

    def find_class(self, module: str, name: str) -> type[StandIn]:
        """Give a new stand-in for a global name of the pickle."""
        # Python 2 and numpy 1 have other names for the same things.
        module = re.sub(r"^numpy\.core\b", "numpy._core", "builtins" if module == "__builtin__" else module)
        # Names of the file's choice end up in messages: a line break or a code of the terminal must not.
        source = f"{module}.{name}".encode("unicode_escape").decode("ascii")[:120]
        if name not in _ALLOWED.get(module, ()) and module.split(".")[0] not in _FRAMES:
            raise MuteError(f"asks for {source}: only plain data, arrays and DataFrames are read")
        return type("StandIn", (StandIn,), {"__slots__": (), "source": source})

    def persistent_load(self, pid: Any) -> Any:
        """Refuse references to other files."""
        raise MuteError("refers to data outside of the file (a persistent id): only plain data is read")
