"""Sums have no order: however the numbers are grouped, they come out the same to the bit, and right."""

import math
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from mute.rows.exact_sums import ExactSum


def total(arrays: NDArray) -> ExactSum:
    out = ExactSum(arrays.shape[1:])
    for values in arrays:
        out.add(values)
    return out


def in_a_random_tree(arrays: NDArray, rng: np.random.Generator) -> ExactSum:
    """Cut at random, sum each part on its own, and merge pairs at random until one is left."""
    cuts = np.sort(rng.integers(0, len(arrays) + 1, size=rng.integers(0, 12)))
    sums = [total(part) for part in np.split(arrays[rng.permutation(len(arrays))], cuts)]
    while len(sums) > 1:
        i, j = rng.choice(len(sums), 2, replace=False)
        sums[i].merge(sums[j])
        sums.pop(j)
    if rng.random() < 0.5:
        outer = ExactSum(arrays.shape[1:])
        outer.merge(sums[0])
        return outer
    return sums[0]


def mixed(n: int, d: int, rng: np.random.Generator) -> NDArray:
    """Numbers of all sizes from 1e-20 to 1e15, of both signs, few enough of the largest to stay below 2**53."""
    return rng.choice([-1, 1], (n, d)) * 10.0 ** rng.uniform(-20, 15, (n, d)) / np.where(rng.random((n, d)) < 0.5, 1, n)


def trials() -> Iterator[NDArray]:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        yield mixed(int(rng.integers(1, 60)), 3, rng)
        yield rng.normal(size=(300, 2))
        yield np.round(rng.normal(size=(40, 5)) * 4) / 2  # halves, where rounding has ties
        yield np.concatenate([np.round(rng.normal(size=(40, 5))) / 2, rng.normal(size=(9, 5)) * 1e-17])


def test_neither_order_nor_grouping_matters() -> None:
    for i, arrays in enumerate(trials()):
        rng = np.random.default_rng(1000 + i)
        expected = total(arrays).value
        for _ in range(8):
            np.testing.assert_array_equal(in_a_random_tree(arrays, rng).value, expected)


def test_a_half_is_carried_one_way_only() -> None:
    # Between 0 + 1/2 and 1 - 1/2, what is left over is rounded differently.
    numbers = np.array([[0.5], [0.5], [0.5], [-1.0], [1.3 * 2.0**-54]])
    halves, rest = total(numbers[:2]), total(numbers[2:])
    merged = ExactSum((1,))
    for part in (halves, rest):
        merged.merge(part)
    assert merged.value == total(numbers).value


def test_the_value_is_right() -> None:
    for arrays in trials():
        exact = np.array([math.fsum(column) for column in arrays.T])
        # Each number loses at most 2**-73; the value rounds twice, the second time to its own precision.
        allowed = len(arrays) * 2.0**-73 + np.spacing(np.abs(exact)) + 2.0**-53
        assert (np.abs(total(arrays).value - exact) <= allowed).all()


def test_far_numbers_that_cancel() -> None:
    arrays = np.array([[1e15], [1.0], [1e-16], [-1e15], [-1.0]])
    np.testing.assert_allclose(total(arrays).value, 1e-16, rtol=1e-5)
    assert total(arrays[:, 0]).value.shape == ()


def test_what_is_lost_is_what_the_docs_say() -> None:
    assert total(np.full((1000, 1), 2.0**-74)).value == 0
    assert total(np.full((1000, 1), 2.0**-72)).value == 1000 * 2.0**-72


def test_many_numbers_stay_exact() -> None:
    arrays = np.full((100_000, 1), 0.5 - 2.0**-40)
    assert total(arrays).value == 100_000 * (0.5 - 2.0**-40)


def test_reading_the_value_changes_nothing() -> None:
    arrays = mixed(50, 4, np.random.default_rng(5))
    watched = ExactSum((4,))
    for values in arrays:
        watched.add(values)
        _ = watched.value
    np.testing.assert_array_equal(watched.value, total(arrays).value)


@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_a_sum_of_nothing(shape: tuple[int, ...]) -> None:
    nothing = ExactSum(shape)
    nothing.merge(ExactSum(shape))
    assert nothing._sum is None
    np.testing.assert_array_equal(nothing.value, np.zeros(shape))


def test_float32_is_widened_and_other_layouts_are_read_in_order() -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    out = ExactSum((3, 2))
    out.add(values.T)
    np.testing.assert_array_equal(out.value, values.T)
