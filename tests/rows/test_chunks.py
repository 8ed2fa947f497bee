"""What is done to single chunks and learned from all of them."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from mute.estimators.base import digest_of_rows
from mute.rows.chunks import CHUNK_ROWS, RawChunk, belongs_to_sample
from mute.rows.maps import Enter, Routes
from mute.rows.reductions import ClassSample, ColumnMoments, FirstScan
from mute.rows.sampling import Samples, sample_ranks
from mute.rows.stores import MemoryStore

RNG = np.random.default_rng(0)
N, D, K = 3 * CHUNK_ROWS + 777, 3, 3
X = RNG.normal(size=(N, D))
# The last class is missing from the chunks in the middle.
Z = np.where((np.arange(N) // CHUNK_ROWS) % 3 == 0, RNG.integers(0, 3, N), RNG.integers(0, 2, N))
NONE = np.empty(0, np.int64)


def scanned(x: NDArray = X, z: NDArray = Z, **settings: bool) -> tuple[MemoryStore, FirstScan]:
    rows = MemoryStore(x, z, 2)
    return rows, rows.reduce(FirstScan(x.shape[1], int(z.max()) + 1, **settings))


def test_a_look_at_all_rows() -> None:
    _, scan = scanned(digest=True)
    np.testing.assert_array_equal(scan.low, X.min(axis=0))
    np.testing.assert_array_equal(scan.high, X.max(axis=0))
    assert scan.class_counts().shape == (4, K)
    np.testing.assert_array_equal(scan.class_counts().sum(axis=0), np.bincount(Z))
    assert scan.sha256 == digest_of_rows(X)


def test_the_hash_of_the_labels_sees_their_order_and_not_their_kind() -> None:
    _, scan = scanned(digest=True)
    swapped = Z.copy()
    i, j = np.flatnonzero(Z == 0)[0], np.flatnonzero(Z == 1)[0]
    swapped[[i, j]] = swapped[[j, i]]
    assert scanned(z=swapped, digest=True)[1].sha256_of_labels != scan.sha256_of_labels
    assert scanned(z=Z.astype(np.uint8), digest=True)[1].sha256_of_labels == scan.sha256_of_labels


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("share", [0.0, 1e-3, 0.1, 0.5, 0.999])
def test_shares(share: float, seed: int) -> None:
    n = 200_000
    taken = belongs_to_sample(np.arange(n), share, seed * 429_496_729).sum()
    # Five standard errors of a share drawn at random.
    assert abs(taken - n * share) <= 5 * np.sqrt(n * share * (1 - share))


def test_a_draw_asks_for_nothing_but_number_and_seed() -> None:
    rows = np.random.default_rng(0).permutation(10_000)
    np.testing.assert_array_equal(belongs_to_sample(rows, 0.3, 7), belongs_to_sample(np.arange(10_000), 0.3, 7)[rows])
    both = belongs_to_sample(rows, 0.3, 7) & belongs_to_sample(rows, 0.3, 8)
    assert abs(both.mean() - 0.09) < 0.015
    assert belongs_to_sample(rows, 1.0, 0).all() and belongs_to_sample(rows, 7.5, 0).all()
    assert belongs_to_sample(rows, 0.3, 2**31 - 2).any()


def test_sample_takes_rows_of_one_class_in_their_order() -> None:
    rows = MemoryStore(X, Z, 2)
    rows.map(Enter(np.zeros(D), np.ones(D), K, Routes()))
    for k in range(K):
        number = np.flatnonzero(np.equal(Z, k))
        np.testing.assert_array_equal(
            rows.reduce(ClassSample(k, 0.2, 3)).rows(), X[number[belongs_to_sample(number, 0.2, 3)]]
        )


@pytest.mark.parametrize("seed", range(5))
def test_rows_are_fetched_by_their_places(seed: int) -> None:
    rows, scan = scanned()
    counts, rng = np.bincount(Z), np.random.default_rng(seed)
    held = sample_ranks(counts, np.array([5, 0, 40]), rng)
    learned = sample_ranks(counts, np.minimum(counts - [5, 0, 40], 300), rng, held)
    rest = sample_ranks(counts, counts - [5, 0, 40], rng, held)
    some = Samples.fetch(rows, scan, held, learned)
    assert (np.diff(some.number) > 0).all()
    np.testing.assert_array_equal(some.x, X[some.number])
    np.testing.assert_array_equal(some.z, Z[some.number])
    for k in range(K):
        of_class = np.flatnonzero(np.equal(Z, k))
        np.testing.assert_array_equal(some.number[some.z == k], of_class[some.rank[some.z == k]])
        assert not set(held[k]) & set(learned[k])
        assert sorted([*held[k], *rest[k]]) == list(range(counts[k]))
        for ranks in (held, learned):
            mine = some.among(ranks)
            np.testing.assert_array_equal(some.number[mine][some.z[mine] == k], of_class[ranks[k]])


def test_no_row_and_all_rows() -> None:
    rows, scan = scanned()
    nothing = Samples.fetch(rows, scan, [NONE] * K)
    assert nothing.x.shape == (0, D) and nothing.x.dtype == X.dtype and len(nothing.among([NONE] * K)) == 0
    everything = Samples.fetch(rows, scan, [np.arange(n) for n in np.bincount(Z)])
    np.testing.assert_array_equal(everything.x, X)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_columns(dtype: type) -> None:
    far = np.stack(
        [X[:, 0], X[:, 0] + 1e6, 1e-12 * X[:, 0], np.full(N, 7.25), 1e12 + 1e3 * X[:, 1], np.zeros(N)], axis=1
    ).astype(dtype)
    rows, scan = scanned(far)
    held = np.sort(RNG.choice(N, 500, replace=False))
    columns = rows.reduce(ColumnMoments(scan.low, scan.high, held))
    kept = np.delete(far, held, axis=0).astype(np.float64)
    assert columns.n == N - 500
    mean = np.array([math.fsum(column) for column in kept.T]) / len(kept)  # numpy's own rounds as it goes
    # The range is the yardstick of every column.
    allowed = 1e-15 * np.ptp(far, axis=0) + np.spacing(np.abs(mean))
    assert (np.abs(columns.center - mean) <= allowed).all()
    np.testing.assert_allclose(columns.spread, kept.std(axis=0), rtol=1e-9, atol=1e-25)
    assert columns.spread[3] == columns.spread[5] == 0
    assert columns.center[3] == 7.25


@pytest.mark.parametrize("size", [1e-320, 1e-300, 1e150])
def test_columns_of_any_size(size: float) -> None:
    x = np.where(Z[:, None] == 0, 0.0, size) * np.ones(2)
    rows, scan = scanned(x)
    columns = rows.reduce(ColumnMoments(scan.low, scan.high, NONE))
    np.testing.assert_allclose(columns.center, size * (Z != 0).mean(), rtol=1e-3)
    assert np.isfinite(columns.spread).all()


class Always:
    """A router that sends every row to one class and counts how often it is asked."""

    def __init__(self, k: int) -> None:
        self.k, self.asked = k, 0

    def predict(self, x: NDArray) -> NDArray[np.int64]:
        self.asked += 1
        return np.full(len(x), self.k)


def test_routes() -> None:
    z, rows = np.array([0, 1, 1, 0]), np.array([10, 11, 12, 13])
    np.testing.assert_array_equal(Routes().of(rows, X[:4], z), z)
    router = Always(2)
    known = Routes(router, np.array([3, 11, 13, 99]), np.array([0, 0, 1, 1]))
    np.testing.assert_array_equal(known.of(rows, X[:4], z), [2, 0, 2, 1])
    np.testing.assert_array_equal(known.of(rows[[1, 3]], X[:2], z[:2]), [0, 1])
    assert router.asked == 1, "who knows all the routes asks nobody"
    assert known.of(NONE, X[:0], z[:0]).shape == (0,)
    np.testing.assert_array_equal(z, [0, 1, 1, 0])


def test_routes_beyond_the_known_ones() -> None:
    known = Routes(Always(1), np.array([5]), np.array([0]))
    np.testing.assert_array_equal(known.of(np.array([4, 5, 6]), X[:3], np.zeros(3, int)), [1, 0, 1])


def test_enter() -> None:
    start = 2 * CHUNK_ROWS
    x, z = X[start : start + CHUNK_ROWS], Z[start : start + CHUNK_ROWS].copy()
    z[:100] = 2
    numbers = start + np.arange(len(z))
    held = np.concatenate([[0, 7], numbers[[3, 50, 2047]]])
    known = numbers[::2]
    routes_of_known = RNG.integers(0, K, len(known))
    way = Routes(Always(1), known, routes_of_known, held, np.zeros(len(held), int))
    center, scale = np.array([1.0, 2.0, 3.0]), np.array([1.0, 0.5, 4.0])
    before = x.copy()
    chunk = Enter(center, scale, K, way)(RawChunk(start, x, z))

    np.testing.assert_array_equal(x, before)
    assert sorted(chunk.rows) == sorted(set(numbers) - set(held))
    here = chunk.rows - start
    np.testing.assert_array_equal(chunk.block, ((x[here] - center) / scale).T)
    assert (np.diff(z[here]) >= 0).all()
    np.testing.assert_array_equal(np.diff(chunk.bounds), np.bincount(z[here], minlength=K))
    route = np.ones(len(z), int)
    route[::2] = routes_of_known
    assert chunk.runs[0] == 0 and chunk.runs[-1] == len(here)
    for begin, end, k in zip(chunk.runs[:-1], chunk.runs[1:], chunk.routes, strict=True):
        assert (route[here[begin:end]] == k).all() and end > begin
        assert len(set(z[here[begin:end]])) == 1
    for k in range(K):
        assert (np.diff(route[here[chunk.bounds[k] : chunk.bounds[k + 1]]]) >= 0).all()


def test_enter_into_given_memory() -> None:
    raw = RawChunk(0, X[:100], Z[:100])
    enter = Enter(np.zeros(D), np.ones(D), K, Routes(held_out=np.array([4, 5]), held_out_classes=Z[4:6]))
    room = np.full((D, 100), np.nan)
    chunk = enter(raw, room)
    np.testing.assert_array_equal(chunk.block, enter(raw).block)
    assert np.shares_memory(chunk.block, room)


def test_a_chunk_of_which_all_rows_are_held_out() -> None:
    enter = Enter(np.zeros(D), np.ones(D), K, Routes(held_out=np.arange(10), held_out_classes=Z[:10]))
    chunk = enter(RawChunk(0, X[:10], Z[:10]))
    assert chunk.block.shape == (D, 0) and len(chunk.routes) == 0
    np.testing.assert_array_equal(chunk.bounds, 0)
