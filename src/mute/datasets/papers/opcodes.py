"""A stack machine for pickles that calls nothing: what a file wants made is only noted.

Python's own machine runs what a file names, and takes as much memory and stack as the file says. This one keeps names
as text, if they are on its allow-list. It never hashes, compares or prints what it has read, and takes memory only for
bytes that the file has, so that its time and memory are proportional to the size of the file.
"""

import codecs
import pickletools
import re
import struct
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any

from mute.errors import MuteError

__all__ = ["Noted", "follow"]

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

_MOST_OPCODES = 200_000_000
_LONGEST_INT = 8_000  # bits: Python refuses to print much longer ones

_FLOATS = re.compile(rb"(?:G.{8}){1,1000}", re.DOTALL)
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_AS_READ = frozenset(
    {"BINBYTES", "BINBYTES8", "BININT", "BININT1", "BININT2", "BINSTRING", "BINUNICODE", "BINUNICODE8", "FLOAT", "INT"}
    | {"LONG", "LONG1", "SHORT_BINBYTES", "SHORT_BINSTRING", "SHORT_BINUNICODE", "STRING", "UNICODE"}
)


class Noted:
    """What a pickle wants made: the `source` that it names, and the `args` of the call (None for the bare name).

    `state` is what the object would have been filled with afterwards, and `items` are what would have been put into it:
    the members of a set, or keys and values in turn.
    """

    __slots__ = ("args", "items", "source", "state")

    def __init__(self, source: str, args: tuple[Any, ...] | None = None) -> None:
        self.source, self.args = source, args
        self.state: Any = None  # Any: whatever the file has
        self.items: list[Any] = []


def follow(content: bytes) -> Any:  # Any: whatever the file has
    """Give what a pickle has: None, bool, int, float, str, bytes, list and tuple, and `Noted` for all else."""
    stack: list[Any] = []
    marks: list[int] = []  # heights of the stack
    memo: dict[int, Any] = {}

    def since_mark() -> list[Any]:
        height = marks.pop()
        items = stack[height:]
        del stack[height:]
        return items

    for opcode, value in _opcodes(content):
        match opcode:
            case _ if opcode in _AS_READ:
                stack.append(value)
            case "MEMOIZE" | "BINPUT" | "LONG_BINPUT" | "PUT":
                place = len(memo) if value is None else value
                # Writers number what they keep one by one; numbers of the file's choice could fill the memo with gaps.
                if not 0 <= place <= 2 * len(memo) + 1000:
                    raise MuteError(f"keeps {len(memo)} values and numbers the next {place}: fetch it again")
                memo[place] = stack[-1]
            case "BINGET" | "LONG_BINGET" | "GET":
                stack.append(memo[value])
            case "BINFLOAT":
                stack += value
            case "MARK":
                marks.append(len(stack))
            case _ if opcode in _CONSTANTS:
                stack.append(_CONSTANTS[opcode])
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                size = int(opcode[-1])
                if len(stack) < size:
                    raise IndexError(f"{opcode} of {len(stack)} values")
                stack[-size:] = [tuple(stack[-size:])]
            case "TUPLE":
                stack.append(tuple(since_mark()))
            case "EMPTY_DICT" | "EMPTY_SET":
                stack.append(Noted("dict" if opcode == "EMPTY_DICT" else "builtins.set", ()))
            case "DICT":
                made = Noted("dict", ())
                made.items = since_mark()
                stack.append(made)
            case "FROZENSET":
                stack.append(Noted("builtins.frozenset", (since_mark(),)))
            case "SETITEM":
                items = [stack.pop(-2), stack.pop()]
                _called(stack[-1]).items += items
            case "SETITEMS" | "ADDITEMS":
                items = since_mark()
                _called(stack[-1]).items += items
            case "EMPTY_LIST":
                stack.append([])
            case "LIST":
                stack.append(since_mark())
            case "APPEND" | "APPENDS":
                items = [stack.pop()] if opcode == "APPEND" else since_mark()
                if not isinstance(stack[-1], list):
                    raise MuteError("appends to something that is not a list: fetch it again")
                stack[-1] += items
            case "GLOBAL":
                stack.append(_named(*value.split(" ", 1)))
            case "STACK_GLOBAL":
                stack.append(_named(stack.pop(-2), stack.pop()))
            case "REDUCE" | "NEWOBJ":
                stack.append(_call(stack.pop(-2), stack.pop()))
            case "BUILD":
                state = stack.pop()
                _called(stack[-1]).state = state
            case "BYTEARRAY8":
                stack.append(bytes(value))
            case "LONG4":
                if value.bit_length() > _LONGEST_INT:
                    raise MuteError(f"has an integer of {value.bit_length()} bits: up to {_LONGEST_INT} are read")
                stack.append(value)
            case "DUP":
                stack.append(stack[-1])
            case "POP" if len(stack) not in marks[-1:]:
                stack.pop()
            case "POP" | "POP_MARK":
                since_mark()
            case "PROTO" | "FRAME":
                pass
            case "STOP":
                return stack.pop()
            case "PERSID" | "BINPERSID":
                raise MuteError("refers to data outside of the file (a persistent id): only plain data is read")
            case "EXT1" | "EXT2" | "EXT4":
                raise MuteError(f"asks for the extension code {value}: only plain data, arrays and DataFrames are read")
            case _:
                raise MuteError(f"has the opcode {opcode}: only plain data is read")


def _opcodes(content: bytes) -> Iterator[tuple[str, Any]]:
    """Like `pickletools.genops`, with two readers of our own."""
    file = BytesIO(content)

    def floats(file: BytesIO) -> list[float]:
        # Embeddings are lists of millions of floats, so a run of them is read at once.
        run = _FLOATS.match(content, file.tell() - 1)
        if run is None:
            raise ValueError("cut off in a number")
        file.seek(run.end())
        return [value for (value,) in struct.iter_unpack(">xd", run[0])]

    def latin1(file: BytesIO) -> str:
        # Strings of Python 2, which may be the bytes of an array; pickletools reads only ASCII.
        return codecs.escape_decode(pickletools.read_stringnl(file, decode=False))[0].decode("latin1")

    own: dict[str, Callable[[BytesIO], Any]] = {"BINFLOAT": floats, "STRING": latin1}
    known = {opcode.code.encode("latin1"): opcode for opcode in pickletools.opcodes}
    for _ in range(_MOST_OPCODES):
        code = file.read(1)
        if code not in known:
            raise ValueError(f"the opcode {code!r} at byte {file.tell()}" if code else "cut off")
        name, argument = known[code].name, known[code].arg
        if name in own:
            yield name, own[name](file)
        else:
            yield name, None if argument is None else argument.reader(file)
    raise MuteError(f"has more than {_MOST_OPCODES} opcodes: split it")


def _named(module: object, name: object) -> Noted:
    if not isinstance(module, str) or not isinstance(name, str):
        raise MuteError("asks for something whose name is not text: only plain data, arrays and DataFrames are read")
    # Python 2 and numpy 1 have other names for the same things.
    module = re.sub(r"^numpy\.core\b", "numpy._core", "builtins" if module == "__builtin__" else module)
    # Names of the file's choice end up in messages: a line break or a code of the terminal must not.
    source = f"{module}.{name}"[:120].encode("unicode_escape").decode("ascii")[:120]
    if name not in _ALLOWED.get(module, ()) and module.split(".")[0] not in _FRAMES:
        raise MuteError(f"asks for {source}: only plain data, arrays and DataFrames are read")
    return Noted(source)


def _call(function: object, args: object) -> Noted:
    if not isinstance(function, Noted) or function.args is not None or not isinstance(args, tuple):
        raise MuteError("calls something without a name: only plain data, arrays and DataFrames are read")
    return Noted(function.source, args)


def _called(thing: object) -> Noted:
    if not isinstance(thing, Noted) or thing.args is None:
        raise MuteError("fills something that it has not made: fetch it again")
    return thing
