"""Reading pickles and .npy files: what comes out equals what went in, and nothing that a file says is run."""

import base64
import collections
import contextlib
import copyreg
import io
import os
import pickle
import struct
import time
import zlib

import numpy as np
import pytest

from mute.datasets.papers import opcodes
from mute.datasets.papers.unpickle import read_npy, read_pickle
from mute.errors import MuteError

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
PLAIN = (bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset, np.ndarray, np.generic)

# The frame of `test_frames_of_older_pandas`, as pickled by these versions with numpy 1.26; zlib, base64.
OLDER = {
    "pandas 1.5.3, protocol 4": """
eNqVVctu00AUtd2kSVtKW7WFCiqEWJVNJKSCWFRK2kZUrVUjgdhRjcb2JLbqR+oZqwlqJVjQB5pdhw0fgFjwASDxMWyQWPIHcGfsUIeGl6OM7z
zuPec+5vp56fXBqKYePtPBkYtpzYkTUmslOCSCjzUxww+UfCZuvxCHYomXUNhOBL9RPO5HjCQRDmgtxBFuk4QKfmktiJ3d7WwO6kv8Sq6CAt+m
5zqCT6E06vjObkCQLZXgNJ+P0rDTy8yHacB8nCS4B2ZRQpw4oixJHSYPltVBwStgWx05E6b2UqzrtjgWj8SSqcPPOBLeFC+7rNeRrnDDviNOT7
L9Ea4fCMuytr7DowZTY8I+XTc0XYDAq3bqA4EImJZp4DvSglkyy6YuDZiGHL0J77I3I4G92T6soWAXuNG6XwRbGQp2M0vD53r2/lYfnH+tSyre
LVMzx83yn3H1Pq5fwPVqw1Cnjcy8NpK/cxRJ/l+9e1hEWRxEqUuUHci90YMU6c8EyBuNaoa10ZjOBKJW5/qrC/kqybgYEGv9Hz1uLf/NY8BuNO
Q/93TUrAxa57MDZapqCjK/iFCn1z0vVKu5KnfWsLNLXFlSi8ULkWnVXMwI80MC+pPNXF7Ni3Trw9Mnk5bCBOLb50EsXSAO127dgPJTnupMHCnu
v4/C/xuDStC0Vx/vvvky33/L5UOoeNRKyJ6w6LEKV8Ws/pKMFr82xHO4n37URoJPPFbSEK9P+3vN/FaqBsMrlMUJ9AzBRzs95sWRoEN8NWCypS
pL3xN8biBloU8pmIVbbq2CWaIcyehXzbEifSbrkS8MtjKXdAmt2ZgChXEUkX20KdfAkveWl/uyaoWQXywukhv7Sa7sgb0UoujEacSgezlxGJKI
IUa6MK2S0CauCwXES5SQCFZY3PUdn/VkrwlxEMDOvid3SkpFOsNLkezIVnokw/iOXx/GH7oiSXwHXNiM2L3lAm3v/fBwrkAR6HkbMIrt4FOGRO
QA7R+yBV8G6Xr/K4FCwrCKxQ7QxoxB/4dMjqJWgNtKvAqexPsUuWkHGijcBBRgm0DvP6GpXfsBgF90mw==
""",
    "pandas 2.2.3, protocol 5": """
eNqVVctu00AUjd04SR9AKW0pqCrsCJtICJBYIJI2EYVaDRKsq9HYmcRW/Ug9Y5ogkGBB26DZMXTBByCE+AEkPoYNEkv4ArgzdlqnDYtOFM/L99
5zz334tfHheSGnBr/YxUEL04odRqTSjrBPBJ9sYIYfqvV7cfONeCXKPI/8TiT4SvZ1N2AkCrBHKz4OcIdEVPCZNS+0tzeTPYiX+WIqgjzXoscy
gl9AcdB17W2PIEsKwdt8Loj9bj9RD0sSubbg06gdhb4Vt9uJykM9lw5NcENJwNxi/a4EzHXrlhgc7IunomxOcO2laDabG39hqIeZY8IyNVPfE1
yrCwav8ZIVux5zAwBlUM+1pRozbxqmJrWYunw608758uH1XHb8qCbz7+ro/ldVOHNcb9/L4rg/DocucThXJApnxcyZU6Zx0uRsamzo9EQ6KxNu
xoRz43+OHhmA3ahPfCFDuB8DCTiKMNA5gyJihwFlUWwzoMOZ5UUIo7oEcnJvRV2zRGJZS90APE+yeBZH8VQBz2ALMkLvgwHthYD1eq2UeLNeS/
0k6nR+eLqUnhIQBgd0CMupoJSOAlKryX9C/p0zMVMwiyeYuTSSt8pzyI9lhLr93nHmNhur8mYN29ukJbNvOVshiVSlhRlhrk9A/lwjXa+mVG5c
K/zJN5VNQL15zF/+FGqow7oOSQrQ4cfEnpCkPHBqMhzO2jAY2jAYZ1c2qEMU3n27+/HnwnCWx7IBGFCEZEc0eQHZ2HYIdAWejwOXQcGBGhrvqw
AVzdKJAFn86hhKILHcoIOguJ+p1Rg6BsO7RlrZqhXxImVhBN1F8EK3z5wwEHQMCTpsHqls03YEnx+Jpe9SCmoBeHMV1BLlYQK/ZE5m4TOZo3xp
tOm1SI/QioUpQJhCAdlFj+WZLJJP3BiuVdOEwGNxGtzkETjDAX0xtB07jAOgcsYOfZ8EDDHSg22J+BZptSCzeJ4SEsAJC3uu7TLZ8aiPPQ9udh
15k1ci0hmeD2TvbsZ7ksbPzhfA4nzN9hLtRE8Rzm3FWFIN3xNJIh/Q+IF9+CZIV4bfB+QThpVvWwADMwadHyJTQG0Pd9TyMiALdylqxV3op5Dy
yMMWga5/QGOr8g+sPGsV
""",
}


class Call:
    """Pickles as a call of any function."""

    def __init__(self, function, *args, state=None):
        self.reduced = (function, args) if state is None else (function, args, state)

    def __reduce__(self):
        return self.reduced


@pytest.fixture
def stored(tmp_path):
    """Write bytes, or the pickle of an object, and give the path."""

    def write(thing, protocol=None, name="file.pkl"):
        path = tmp_path / name
        path.write_bytes(thing if isinstance(thing, bytes) else pickle.dumps(thing, protocol))
        return path

    return write


def same(a, b):
    """Equal in value, type, shape, dtype and nesting."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        return all(map(same, a.ravel().tolist(), b.ravel().tolist())) if a.dtype == object else bool((a == b).all())
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_plain_data(stored, protocol):
    data = {
        "none": [None, True, False],
        "numbers": (0, -1, 2**80, 1.5, -float("inf"), 1 + 2j),
        "texts": ["", "naïve \U0001f600\n", b"", b"\x00\xff"],
        3: {"nested": [[], (), {}, {1, 2}, frozenset({"a"})]},
        ("a", b"b"): set(),
    }
    assert same(read_pickle(stored(data, protocol)), data)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(24.0).reshape(2, 3, 4).transpose(1, 0, 2),
        np.arange(10)[::3],
        np.arange(4, dtype=">i4"),
        np.array([1.5, -2], dtype=">f8"),
        np.array([0.5], dtype=np.float16),
        np.array([True, False]),
        np.array(3.5),
        np.empty((0, 5)),
        np.array([1 + 2j]),
        np.array(["f", "mm", ""]),
        np.array(["ü"], dtype=">U3"),
        np.array([b"ab", b"c"]),
        np.array(["f", None, [1, (2.5,)], {"a": np.arange(2)}], dtype=object),
        np.array([["a", "b"], ["c", "d"]], dtype=object).T,
    ],
    ids=lambda array: f"{array.dtype.str}{array.shape}",
)
def test_arrays(stored, array, protocol):
    read = read_pickle(stored([array, array], protocol))
    assert same(read[0], array)
    assert read[0] is read[1]
    assert read[0].flags.writeable


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_scalars_are_numpy_scalars(stored, protocol):
    scalars = [np.float32(0.1), np.float64(0.1), np.int64(-3), np.bool_(True), np.str_("text"), np.bytes_(b"x")]
    assert same(read_pickle(stored(scalars, protocol)), scalars)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_ordered_dicts_and_byte_arrays_become_plain(stored, protocol):
    data = collections.OrderedDict(
        [("b", np.ones(2)), ("a", bytearray(b"xy")), (np.str_("c"), collections.OrderedDict())]
    )
    assert same(read_pickle(stored(data, protocol)), {"b": np.ones(2), "a": b"xy", np.str_("c"): {}})


def test_pickles_of_python_2(stored):
    # {'w': numpy.array([1.0, 2.0])}, protocol 2: the names, and the bytes of the array, are strings.
    parts = (
        b"\x80\x02}U\x01wcnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01K\x02\x85"
        b"cnumpy\ndtype\nU\x02f8K\x00K\x01\x87R(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89U\x10"
    )
    assert same(read_pickle(stored(parts + struct.pack("<2d", 1, 2) + b"tbs.")), {"w": np.array([1.0, 2.0])})


def test_arrays_of_python_2_in_the_first_protocol(stored):
    text = "".join(f"\\x{byte:02x}" for byte in struct.pack("<2d", 1.5, -2.5))
    code = reconstruct(b"(I2\nt", DTYPE, f"S'{text}'\n".encode()) + b"."
    assert same(read_pickle(stored(code)), np.array([1.5, -2.5]))


def test_what_is_shared_stays_shared_and_lists_may_contain_themselves(stored):
    shared = [np.ones(1)]
    loop = [shared, shared]
    loop.append(loop)
    read = read_pickle(stored(loop))
    assert read[0] is read[1]
    assert read[2] is read


# Hostile files


def attacks(target):
    touch = f"open({str(target)!r}, 'w').close()"
    yield "os.system", Call(os.system, f"touch {target}")
    yield "builtins.exec", Call(exec, touch)
    yield "builtins.eval", Call(eval, touch)
    yield "builtins.open", Call(open, str(target), "w")
    yield "numpy.save", Call(np.save, str(target), [1])
    yield "numpy.load", Call(np.load, str(target), None, True)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_is_run(stored, tmp_path, protocol):
    target = tmp_path / "touched"
    wrapped = [
        lambda evil: evil,
        lambda evil: {"words": [("a", evil)]},
        lambda evil: {evil: 1},
        lambda evil: np.array([1, evil], dtype=object),
        lambda evil: collections.OrderedDict(a=evil),
        lambda evil: Call(collections.OrderedDict, evil),
        lambda evil: Call(np.dtype, evil),
    ]
    for name, evil in attacks(target):
        for wrap in wrapped:
            with pytest.raises(MuteError, match="only plain data") as caught:
                read_pickle(stored(wrap(evil), protocol))
            assert name.split(".")[1] in str(caught.value)
            assert "file.pkl asks for" in str(caught.value)
    assert not target.exists()


def test_nothing_is_run_out_of_npy_files_and_frames(stored, tmp_path):
    import pandas as pd

    target = tmp_path / "touched"
    evil = Call(os.system, f"touch {target}")
    np.save(tmp_path / "z.npy", np.array(["f", evil], dtype=object), allow_pickle=True)
    with pytest.raises(MuteError, match=r"z.npy asks for (posix|nt).system"):
        read_npy(tmp_path / "z.npy")
    for function in (pd.eval, pd.read_pickle, pd.io.common.urlopen):
        # Names of pandas are not refused at once, but they are no more than names.
        with pytest.raises(MuteError, match="only plain data"):
            read_pickle(stored(Call(function, f"@open({str(target)!r}, 'w')")))
    with pytest.raises(MuteError, match="system"):
        read_pickle(stored(pd.DataFrame({"a": [1, 2], "b": pd.Series(["f", evil], dtype=object)})))
    assert not target.exists()


@pytest.mark.parametrize(
    "code",
    [
        b"cnumpy\nndarray\n}X\x06\x00\x00\x00sourceX\x01\x00\x00\x00xsb.",  # a class is filled
        b"cnumpy\nndarray\nN}X\x06\x00\x00\x00sourceX\x01\x00\x00\x00xs\x86b.",  # the same through its slots
        b"cnumpy\nndarray\nK\x01K\x02s.",
        b"cnumpy\nndarray\nK\x01a.",
        b"\x80\x04\x8c\x05numpy\x8c\x12ndarray.__class__.x\x93.",
        b"cnumpy\nndarray\n.",
        b"cnumpy\ndtype\n(X\x02\x00\x00\x00f8tR}X\x06\x00\x00\x00sourceK\x01sb.",
    ],
)
def test_what_is_noted_cannot_be_changed(stored, code):
    from mute.datasets.papers.opcodes import Noted

    before = dict(vars(Noted))
    with pytest.raises(MuteError, match=r"file.pkl"):
        read_pickle(stored(code))
    assert dict(vars(Noted)) == before


def test_extension_codes_are_not_followed(stored, tmp_path):
    copyreg.add_extension("os", "getcwd", 240)
    try:
        code = b"\x80\x02\x82\xf0)R."
        assert pickle.loads(code) == os.getcwd()  # so that Python's cache holds it
        with pytest.raises(MuteError, match="asks for the extension code 240"):
            read_pickle(stored(code))
    finally:
        copyreg.remove_extension("os", "getcwd", 240)
    with pytest.raises(MuteError, match="asks for the extension code 240"):
        read_pickle(stored(code))


def test_names_cannot_break_messages(stored):
    for module in ("numpy", "pandas", "nowhere"):
        code = b"\x80\x04\x8c" + bytes([len(module)]) + module.encode() + b"\x8c\x06a\n\x1b[2m\x93)R."
        with pytest.raises(MuteError, match=module + r"\.a\\n\\x1b\[2m"):
            read_pickle(stored(code))


@pytest.mark.parametrize("protocol", [0, 2])
def test_persistent_ids_are_refused(stored, protocol):
    class Pickler(pickle.Pickler):
        def persistent_id(self, thing):
            return "elsewhere" if thing == "there" else None

    buffer = io.BytesIO()
    Pickler(buffer, protocol).dump(["there"])
    with pytest.raises(MuteError, match="persistent id"):
        read_pickle(stored(buffer.getvalue()))


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        (np.zeros(2, dtype=[("a", "f4"), ("b", "i4")]), "dtype 'V8': only numbers"),
        (np.array(["2020-01-01"], dtype="M8[D]"), "dtype 'M8': only numbers"),
        (np.ma.masked_array([1, 2]), "asks for numpy.ma"),
        (collections.Counter("ab"), "asks for collections.Counter"),
        (np.ndarray, "numpy.ndarray itself"),
        (slice(3), "contains a builtins.slice"),
        (Call(bytearray, 10**15), "bytes of an unknown kind"),
        (Call(bytes, "text", "rot13"), "bytes of an unknown kind"),
    ],
)
def test_other_data_are_refused(stored, thing, message):
    with pytest.raises(MuteError, match=message):
        read_pickle(stored(thing, 4))


def forged(shape, content, code="f8", order="<"):
    """An array whose parts are given one by one."""
    from numpy._core.multiarray import _reconstruct

    dtype = Call(np.dtype, code, False, True, state=(3, order, None, None, None, -1, -1, 0))
    return Call(_reconstruct, np.ndarray, (0,), b"b", state=(1, shape, dtype, False, content))


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        (forged((3,), bytes(16)), r"shape \(3,\) with 16 bytes in place of 24"),
        (forged((1,), bytes(16)), "16 bytes in place of 8"),
        (forged((2**40, 2**40), bytes(16)), "in place of"),
        (forged((-2, -1), bytes(16)), r"shape \(-2, -1\)"),
        (forged((2.0,), bytes(16)), r"shape \(2.0,\)"),
        (forged([2], bytes(16)), r"shape \[2\]"),
        (forged((2**62, 2**62, 0), b""), "not a whole pickle"),
        (forged((2,), 16), "bytes of an unknown kind"),
        (forged((2,), ["a"], "O8", "|"), "1 objects in place of 2"),
        (forged((2,), bytes(16), "O8", "|"), "0 objects in place of 2"),
        (forged((1,), b"\xff" * 4, "U1"), "impossible characters"),
        (forged((2,), bytes(16), "f8", "x"), "byte order 'x'"),
        (forged((2,), bytes(16), "V8"), "dtype 'V8'"),
        (forged((2,), bytes(16), "U0"), "dtype 'U0'"),
        (forged((2,), bytes(16), 8), "dtype 8"),
        (Call(np.dtype, "f8", state=(3, "<", (np.dtype("f4"), (2,)), None, None, 8, 4, 0)), "dtype 'f8'"),
        (Call(np._core.numeric._frombuffer, bytes(16), np.dtype("f8"), (3,), "C"), "16 bytes in place of 24"),
        (Call(np._core.numeric._frombuffer, bytes(16), "f8", (2,), "C"), "proper dtype"),
        (Call(np._core.numeric._frombuffer, bytes(16), np.dtype("f8"), (2,), "Q"), "order"),
        (Call(np._core.multiarray.scalar, np.dtype("f8"), bytes(4)), "4 bytes in place of 8"),
    ],
)
def test_shapes_and_contents_must_fit(stored, thing, message):
    with pytest.raises(MuteError, match=message):
        read_pickle(stored(thing, 4))


def test_every_cut_of_a_pickle_is_refused(stored):
    whole = pickle.dumps({"words": ["a", "b"], "vecs": np.arange(4.0)}, 4)
    for size in range(len(whole)):
        with pytest.raises(MuteError, match=r"file.pkl is not a whole pickle file"):
            read_pickle(stored(whole[:size]))


def test_flipped_bytes_end_in_data_or_in_a_clear_error(stored):
    whole = pickle.dumps({"words": np.array(["a", None], dtype=object), "vecs": np.arange(4.0), "n": {1, 2}}, 2)
    random = np.random.default_rng(0)
    for _ in range(600):
        broken = bytearray(whole)
        # Never the codes that announce lengths of four or eight bytes: they only ask for memory.
        broken[random.integers(2, len(whole))] = random.choice([*b"(){}[]NKRbsuteq.c\x85\x86\x87\x89h\x00\xff"])
        with contextlib.suppress(MuteError):
            read_pickle(stored(bytes(broken)))


def test_deep_nesting_is_refused(stored):
    with pytest.raises(MuteError, match="nested more than"):
        read_pickle(stored(b"]" + b"]" * 50_000 + b"a" * 50_000 + b"."))


def test_tuples_that_contain_themselves_are_refused(stored):
    inner: list = []
    whole = (inner,)
    inner.append(whole)
    with pytest.raises(MuteError, match="contains itself"):
        read_pickle(stored(whole))


@pytest.mark.parametrize(
    "content", [b"", b"<!DOCTYPE html>", b"version https://git-lfs\n", b"word 1 2\n", b"\x93NUMPY"]
)
def test_files_that_are_no_pickles(stored, content):
    with pytest.raises(MuteError, match=r"file.pkl is not a whole pickle file .*: fetch it again"):
        read_pickle(stored(content))


@pytest.mark.parametrize("read", [read_pickle, read_npy])
def test_missing_files_and_folders(tmp_path, read):
    with pytest.raises(MuteError, match=r"there is no file .*absent"):
        read(tmp_path / "absent")
    with pytest.raises(MuteError, match="cannot read"):
        read(tmp_path)


# Files that ask for more time, memory or stack than their size warrants

DOUBLED = b"N" + b"2\x86" * 60  # each tuple contains the one before twice: 2**60 when written out
DTYPE = b"cnumpy\ndtype\n(X\x02\x00\x00\x00f8I0\nI1\ntR(I3\nX\x01\x00\x00\x00<NNNI-1\nI-1\nI0\ntb"


def reconstruct(shape, dtype, data):
    return (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntC\x01btR(I1\n"
        + shape
        + dtype
        + b"\x89"
        + data
        + b"tb"
    )


def many(made, times):
    """A list of the same thing, made again and again out of the same parts."""
    return b"](" + made * times + b"e."


def colliding(count):
    # Multiples of this number all have the hash 0.
    return [pickle.dumps(i * (2**61 - 1), 2)[2:-1] for i in range(1, count)]


ATTACKS = {
    "tuples that double": b"N" + b"2\x86" * 240 + b".",
    "tuples that double, not deep": DOUBLED + b".",
    "lists that double": b"]q\x000" + b"".join(
        b"](h%ch%ceq%c0" % (i, i, i + 1) for i in range(60)
    ) + b"h\x3c.",
    "a key that doubles": b"}" + DOUBLED + b"Ns.",
    "a member that doubles": b"\x8f(" + DOUBLED + b"\x90.",
    "a shape that doubles": reconstruct(DOUBLED, DTYPE, b"C\x00") + b".",
    "a dtype that doubles": b"cnumpy\ndtype\n" + DOUBLED + b"\x85R.",
    "a byte order that doubles": b"cnumpy\ndtype\n(X\x02\x00\x00\x00f8tR(I3\n" + DOUBLED + b"NNNI-1\nI-1\nI0\ntb.",
    "an encoding that doubles": b"c_codecs\nencode\nX\x01\x00\x00\x00a" + DOUBLED + b"\x86R.",
    "a name that doubles": DOUBLED + b"2\x93.",
    "nested tuples": b")" + b"\x85" * 200_000 + b".",
    "nested lists": b"]" * 200_000 + b"a" * 199_999 + b".",
    "nested dicts": b"}" + b"N}" * 200_000 + b"s" * 200_000 + b".",
    "nested calls": b"cbuiltins\nset\nq\x00" + b"h\x00" * 200_000 + b")" + b"R\x85" * 200_000 + b".",
    "nested states": b"cpandas\nIndex\nq\x00" + b"h\x00)R" * 200_000 + b"b" * 199_999 + b".",
    "marks": b"(" * 1_000_000 + b".",
    "long bytes": b"\x8e" + b"\xff" * 7 + b"\x7f",
    "long byte array": b"\x96" + b"\xff" * 7 + b"\x7f",
    "long text": b"\x8d" + b"\xff" * 7 + b"\x7f",
    "2 GB of bytes": b"B\xff\xff\xff\x7f",
    "2 GB of text": b"X\xff\xff\xff\x7f",
    "2 GB of string": b"T\xff\xff\xff\x7f",
    "2 GB of integer": b"\x8b\xff\xff\xff\x7f",
    "a negative length": b"\x8b\xff\xff\xff\xff.",
    "a long frame": b"\x80\x04\x95" + b"\xff" * 8 + b"N",
    "a long integer": b"\x8b" + struct.pack("<i", 1_000_000) + b"\x01" * 1_000_000 + b".",
    "a long decimal": b"L" + b"9" * 1_000_000 + b"L\n.",
    "a far memo": b"Nr\xff\xff\xff\xff.",
    "a memo of colliding numbers": b"".join(b"Np%d\n0" % (i * (2**61 - 1)) for i in range(50_000)) + b"N.",
    "colliding keys": b"}" + b"".join(key + b"Ns" for key in colliding(50_000)) + b".",
    "colliding members": b"\x8f(" + b"".join(colliding(50_000)) + b"\x90.",
    "colliding tuples": b"}" + b"".join(key + b"\x85\x85Ns" for key in colliding(50_000)) + b".",
    "arrays of the same bytes": b"C\x00" + b"B" + struct.pack("<i", 800_000) + bytes(800_000) + b"q\x000"
    + DTYPE + b"q\x010" + many(reconstruct(b"J\xa0\x86\x01\x00\x85", b"h\x01", b"h\x00"), 20_000),
    "bytes of the same text": b"X" + struct.pack("<i", 10**6) + b"a" * 10**6 + b"q\x000"
    + many(b"c_codecs\nencode\nh\x00X\x06\x00\x00\x00latin1\x86R", 20_000),
    "sets of the same list": b"](" + b"".join(b"X\x04\x00\x00\x00%04x" % i for i in range(50_000)) + b"eq\x000"
    + many(b"cbuiltins\nset\nh\x00\x85R", 20_000),
    "dicts of the same pairs": b"](" + b"".join(b"X\x04\x00\x00\x00%04xN\x86" % i for i in range(50_000)) + b"eq\x000"
    + many(b"ccollections\nOrderedDict\nh\x00\x85R", 20_000),
    "rows without columns": many(reconstruct(b"(L1099511627776L\nI0\nt", DTYPE, b"C\x00"), 3),
    "a shape of many sizes": reconstruct(b"(" + (b"\x8a\xff" + b"\x7f" * 255) * 30_000 + b"t", DTYPE, b"C\x00") + b".",
}  # fmt: skip


@contextlib.contextmanager
def refused(message):
    """Expect a MuteError of one short sentence, soon and without much memory."""
    resource = pytest.importorskip("resource")
    memory, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    with pytest.raises(MuteError, match=message) as caught:
        yield
    assert len(str(caught.value).partition("file.pkl")[2]) < 300
    # Each takes a second or two, and up to 250 MB; the machine may be busy.
    assert time.monotonic() - start < 60
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 600_000  # kB


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_file_takes_no_more_than_its_size_warrants(stored, attack):
    with refused(r"file\.pkl"):
        read_pickle(stored(ATTACKS[attack]))


def test_frames_of_the_same_parts_take_no_more_than_their_size_warrants(stored):
    import pandas as pd
    import pyarrow as pa

    texts = pd.DataFrame({"t": pd.array(pa.array(["text"] * 20_000), dtype="string[pyarrow]")})
    for frame in (texts, pd.DataFrame(np.zeros((0, 20_000))), pd.DataFrame(np.zeros((2, 20_000)))):
        state = frame.__reduce_ex__(4)[2]
        frames = [Call(pd.DataFrame, state=state) for _ in range(3000)]
        with refused("in full"):
            read_pickle(stored(frames, 4))


def test_the_number_of_opcodes_is_limited(stored, monkeypatch):
    path = stored(list(range(100)))
    monkeypatch.setattr(opcodes, "_MOST_OPCODES", 50)
    with pytest.raises(MuteError, match="has more than 50 opcodes"):
        read_pickle(path)


def test_mutated_files_end_in_data_or_in_one_clear_sentence(stored):
    import pandas as pd

    things = [
        [{"g": "f", "p": "nurse", "hard_text_untokenized": "She works.", "n": 2**70}],
        {"words": ["a", "b"], "vecs": np.arange(4.0).reshape(2, 2)},
        {"a": np.array(["x", None, {1, 2}], dtype=object), "b": (1.5, b"z", np.float32(2))},
        pd.DataFrame({"toxicity": [0.5, 1.0], "embedded": [[1.0, 2.0], [3.0, 4.0]], "comment_text": ["x", None]}),
    ]
    random = np.random.default_rng(0)
    for thing in things:
        for protocol in PROTOCOLS:
            whole = pickle.dumps(thing, protocol)
            for _ in range(100):
                broken = bytearray(whole)
                for at in random.integers(0, len(whole), size=random.integers(1, 4)):
                    broken[at] = random.integers(256)
                cut, again = sorted(random.integers(0, len(whole), size=2))
                if random.random() < 0.3:
                    broken[cut:again] = broken[cut:again] * 2 if random.random() < 0.5 else b""
                with contextlib.suppress(MuteError):
                    read = read_pickle(stored(bytes(broken)))
                    assert read is None or isinstance(read, PLAIN)


# DataFrames


def check_frame(columns):
    assert list(columns) == ["hindu", "count", "comment_text", "embedded", "seen", "toxicity", "small", "text"]
    assert same(columns["hindu"], np.array([0.5, 1.0]))
    assert same(columns["count"], np.array([2, 3]))
    assert same(columns["comment_text"], np.array(["yy", "z"], dtype=object))
    assert columns["embedded"].tolist() == [[3.0, 4.0], [5.0, 6.0]]
    assert columns["embedded"].shape == (2,)
    assert same(columns["seen"], np.array([False, True]))
    assert same(columns["toxicity"], np.array([0.5, 0.75]))
    assert same(columns["small"], np.array([3, 3], dtype=np.float32))
    assert same(columns["text"], np.array(["q", None], dtype=object))


@pytest.mark.parametrize("version", OLDER)
def test_frames_of_older_pandas(stored, version):
    check_frame(read_pickle(stored(zlib.decompress(base64.b64decode(OLDER[version])))))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("storage", ["string[python]", "string[pyarrow]", "str"])
def test_frames_of_the_installed_pandas(stored, protocol, storage):
    import pandas as pd

    frame = pd.DataFrame(
        {
            "hindu": [0.0, 0.5, 1.0],
            "count": [1, 2, 3],
            "comment_text": ["x", "yy", "z"],
            "embedded": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
            "seen": [True, False, True],
            "toxicity": [0.25, 0.5, 0.75],
        }
    )
    frame = frame[frame["count"] > 1]
    frame["small"] = np.float32(3)
    frame["when"] = pd.to_datetime("2020-01-01")
    frame["kind"] = pd.Categorical(["u", "v"])
    frame["text"] = pd.array(["q", None], dtype=storage)
    columns = read_pickle(stored(frame, protocol))
    if columns["text"][1] is not None:
        assert np.isnan(columns["text"][1])
        columns["text"][1] = None
    check_frame(columns)


def test_frames_before_pandas_1_3(stored):
    import pandas as pd
    from pandas.core.indexes.base import _new_Index
    from pandas.core.internals.managers import BlockManager

    axes = [Call(_new_Index, pd.Index, {"data": np.array(list("abc"), dtype=object), "name": None}), pd.RangeIndex(2)]
    blocks = [
        {"values": np.array([[1.0, 2.0], [5.0, 6.0]]), "mgr_locs": slice(0, 3, 2)},
        {"values": np.array([["x", "y"]], dtype=object), "mgr_locs": np.array([1])},
    ]
    manager = Call(BlockManager, state=(axes, [], [], {"0.14.1": {"axes": axes, "blocks": blocks}}))
    columns = read_pickle(stored(Call(pd.DataFrame, state={"_data": manager, "_typ": "dataframe"})))
    expected = {"a": np.array([1.0, 2.0]), "b": np.array(["x", "y"], dtype=object), "c": np.array([5.0, 6.0])}
    assert same(columns, expected)


def test_text_in_many_pieces_with_gaps(stored):
    import pandas as pd
    import pyarrow as pa

    texts = [None, "ä", "", "long text", None, "x", "\U0001f600", "z", None, "end"] * 3
    whole = pa.array(["cut", *texts, "cut"], type=pa.large_string())
    pieces = pa.chunked_array([whole[1:4], whole[4:4], whole[4:31]])
    frame = pd.DataFrame({"t": pd.array(pieces, dtype="string[pyarrow]")})
    assert read_pickle(stored(frame))["t"].tolist() == texts


def test_frames_in_other_data_with_numbered_columns_and_without_any(stored):
    import pandas as pd

    frame = pd.DataFrame(np.arange(6).reshape(3, 2))
    read = read_pickle(stored({"train": frame, "empty": pd.DataFrame()}))
    assert same(read, {"train": {0: np.array([0, 2, 4]), 1: np.array([1, 3, 5])}, "empty": {}})


@pytest.mark.parametrize(
    ("values", "places", "names", "message"),
    [
        (np.ones((2, 3)), slice(0, 1, 1), ["a"], "2 columns for 1 places"),
        (np.ones((1, 3)), slice(1, 2, 1), ["a"], "do not fit"),
        (np.ones((2, 3)), slice(0, 2, 1), ["a", "a"], "give each its own name"),
        (np.ones((1, 3)), slice(0, 10**15, 1), ["a"], "1 columns for 1000000000000000 places"),
        (np.ones(()), slice(0, 1, 1), ["a"], "not a whole pickle"),
        ("text", slice(0, 1, 1), ["a"], "not a whole pickle"),
    ],
)
def test_damaged_frames(stored, values, places, names, message):
    import pandas as pd
    from pandas._libs.internals import _unpickle_block
    from pandas.core.indexes.base import _new_Index
    from pandas.core.internals.managers import BlockManager

    axis = Call(_new_Index, pd.Index, {"data": np.array(names, dtype=object), "name": None})
    manager = Call(BlockManager, (Call(_unpickle_block, values, places, 2),), [axis, None])
    with pytest.raises(MuteError, match=message):
        read_pickle(stored(Call(pd.DataFrame, state={"_mgr": manager})))


# .npy


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize(
    "array", [np.arange(6.0).reshape(2, 3), np.asfortranarray(np.ones((2, 3), ">f4")), np.array(["a"])]
)
def test_npy_numbers(tmp_path, array, mmap):
    np.save(tmp_path / "x.npy", array)
    read = read_npy(tmp_path / "x.npy", mmap=mmap)
    assert same(np.asarray(read), array)
    assert isinstance(read, np.memmap) == mmap
    assert read.flags.writeable != mmap


def test_npy_without_rows(tmp_path):
    np.save(tmp_path / "x.npy", np.empty((0, 3)))
    assert read_npy(tmp_path / "x.npy").shape == (0, 3)


@pytest.mark.parametrize("array", [np.array(["f", "m", None], dtype=object), np.array([["a"], ["b"]], dtype=object).T])
def test_npy_objects(tmp_path, array):
    np.save(tmp_path / "z.npy", array, allow_pickle=True)
    assert same(read_npy(tmp_path / "z.npy"), array)


def test_damaged_npy_files(tmp_path, stored):
    buffer = io.BytesIO()
    np.save(buffer, np.arange(6.0))
    numbers = buffer.getvalue()
    buffer = io.BytesIO()
    np.save(buffer, np.array(["f", "m"], dtype=object), allow_pickle=True)
    objects = buffer.getvalue()
    broken = [
        b"",
        b"text",
        numbers[:5],
        numbers[:100],
        numbers[:-1],
        objects[:-1],
        objects[:128],
        numbers.replace(b"(6,)", b"(9,)"),
        numbers.replace(b"(6,)", b"-6, "),
        numbers.replace(b"(6,)", b"(-6)"),
        objects.replace(b"(2,)", b"(3,)"),
        numbers.replace(b"<f8", b"|O8"),
        numbers.replace(b"<f8", b"<q9"),
        numbers.replace(b"'descr'", b"'other'"),
    ]
    for content in broken:
        with pytest.raises(MuteError, match=r"x\.npy"):
            read_npy(stored(content, name="x.npy"))
    with pytest.raises(MuteError, match=r"shape \(-6,\)"):
        read_npy(stored(numbers.replace(b"(6,), ", b"(-6,),"), name="x.npy"))
    np.save(tmp_path / "x.npy", np.zeros(2, dtype=[("a", "f4")]))
    with pytest.raises(MuteError, match=r"x.npy has .*only numbers"):
        read_npy(tmp_path / "x.npy")
    np.save(tmp_path / "x.npy", np.array(["2020-01-01"], dtype="M8[D]"))
    with pytest.raises(MuteError, match="has datetime64"):
        read_npy(tmp_path / "x.npy")
