"""Blocks that are kept: what was done is not done again, and what is damaged is."""

import numpy as np
import pytest

from mute import MuteError
from mute.text import encode, load_encoder
from mute.text.encoders.encoding import _BLOCK, forget

N = 3 * _BLOCK + 100
TEXTS = [f"text {i}" for i in range(N)]
EXPECTED = np.array([[i, i % 7] for i in range(N)], np.float32)


class Counter:
    """Encodes "text i" as (i, i % 7), counts its calls, and fails when told to."""

    def __init__(self):
        self.calls, self.fails_at, self.error = 0, None, KeyboardInterrupt

    def __call__(self, texts):
        self.calls += 1
        if self.calls == self.fails_at:
            raise self.error
        numbers = [int(text.split()[1]) for text in texts]
        return [[i, i % 7] for i in numbers]


@pytest.fixture
def counter():
    return Counter()


@pytest.fixture
def encoder(counter):
    return load_encoder(counter, name="counter")


def test_without_cache(counter):
    found = encode(TEXTS, counter, batch_size=_BLOCK)
    np.testing.assert_array_equal(found, EXPECTED)
    assert found.dtype == np.float32 and found.flags.writeable and counter.calls == 4


def test_with_cache(counter, encoder, tmp_path):
    cache = tmp_path / "deep" / "cache"
    found = encode(TEXTS, encoder, batch_size=_BLOCK, cache=cache)
    np.testing.assert_array_equal(found, EXPECTED)
    assert isinstance(found, np.memmap) and not found.flags.writeable
    (file,) = cache.iterdir()
    assert file.suffix == ".npy"
    np.testing.assert_array_equal(np.load(file), EXPECTED)
    np.testing.assert_array_equal(encode(TEXTS, encoder, cache=cache), EXPECTED)
    assert counter.calls == 4, "read, not made again"
    encode(TEXTS[:-1], encoder, cache=cache)
    encode(TEXTS, load_encoder(counter, name="another"), cache=cache)
    encode(["text 1", "text 12"], encoder, cache=cache)
    assert len(list(cache.iterdir())) == 4, "other texts and other encoders have files of their own"


@pytest.mark.parametrize("error", [KeyboardInterrupt, MuteError("no memory")])
def test_an_interrupted_run_goes_on_where_it_was(counter, encoder, tmp_path, error):
    counter.fails_at, counter.error = 3, error
    with pytest.raises(error if isinstance(error, type) else MuteError):
        encode(TEXTS, encoder, batch_size=_BLOCK, cache=tmp_path)
    (parts,) = tmp_path.iterdir()
    assert sorted(file.name for file in parts.iterdir()) == ["000000.npy", "000001.npy"]
    seen = []
    found = encode(TEXTS, encoder, batch_size=_BLOCK, cache=tmp_path, progress=lambda *at: seen.append(at))
    np.testing.assert_array_equal(found, EXPECTED)
    assert counter.calls == 3 + 2, "two blocks were there"
    assert seen[0] == (2 * _BLOCK, N) and seen[-1] == (N, N) and seen == sorted(seen)
    assert [file.suffix for file in tmp_path.iterdir()] == [".npy"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_bytes(file.read_bytes()[:-5]),
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(b"\x93NUMPY\x01\x00\x05\x00{'de("),
        lambda file: np.save(file, np.zeros((3, 2), np.float32)),
        lambda file: np.save(file, np.load(file).astype(np.float64)),
        lambda file: np.save(file, np.load(file)[:, :1]),
        lambda file: np.save(file, np.array([{}] * N, object), allow_pickle=True),
    ],
    ids=["cut", "empty", "header", "rows", "dtype", "columns", "objects"],
)
def test_damaged_files_are_made_anew(counter, encoder, tmp_path, damage):
    counter.fails_at = 3
    with pytest.raises(KeyboardInterrupt):
        encode(TEXTS, encoder, batch_size=_BLOCK, cache=tmp_path)
    (parts,) = tmp_path.iterdir()
    damage(parts / "000001.npy")
    np.testing.assert_array_equal(encode(TEXTS, encoder, batch_size=_BLOCK, cache=tmp_path), EXPECTED)
    assert counter.calls == 3 + 3, "the first block was whole"
    (file,) = tmp_path.iterdir()
    damage(file)
    np.testing.assert_array_equal(encode(TEXTS, encoder, batch_size=_BLOCK, cache=tmp_path), EXPECTED)
    assert counter.calls == 6 + 4


def test_progress_and_small_batches(encoder):
    seen = []
    encode(TEXTS, encoder, batch_size=500, progress=lambda *at: seen.append(at))
    assert seen == [*((500 * i, N) for i in range(1, 7)), (N, N)]


def test_forgetting_leaves_what_others_put_there(encoder, tmp_path):
    cache = tmp_path / "cache"
    encode(TEXTS[:5], encoder, cache=cache)
    (cache / "mine.npy").write_bytes(b"mine")
    forget(cache)
    assert [file.name for file in cache.iterdir()] == ["mine.npy"]
    (cache / "mine.npy").unlink()
    forget(cache)
    assert not cache.exists()
    forget(cache)


def test_what_cannot_be_done(counter, encoder, tmp_path):
    with pytest.raises(MuteError, match="cannot be cached without a name"):
        encode(TEXTS, counter, cache=tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(MuteError, match="choose another cache"):
        encode(TEXTS, encoder, cache=tmp_path / "file")
    with pytest.raises(MuteError, match="text 0 "):
        encode([None], encoder, cache=tmp_path)
    with pytest.raises(MuteError, match="no texts were given"):
        encode([], counter)


def test_texts_that_look_alike_when_joined(tmp_path):
    lengths = load_encoder(lambda texts: [[len(text)] for text in texts], name="lengths")
    for texts in (["ab", "c"], ["a", "bc"], ["abc", ""]):
        assert encode(texts, lengths, cache=tmp_path).tolist() == [[len(text)] for text in texts]
