"""Cells: the nearest centre, whatever the batch, the threads and the precision."""

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from mute import MuteError
from mute.adversaries.cells import Cells, learn_cells, rows_for_cells


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(3000, 37)).astype(np.float32)


@pytest.fixture(scope="module")
def cells(rows: np.ndarray) -> Cells:
    return learn_cells(rows, 20)


def test_a_row_is_in_the_cell_of_its_nearest_centre(cells: Cells, rows: np.ndarray) -> None:
    far = ((rows[:, None].astype(float) - cells.centres) ** 2).sum(axis=2)
    assert len(cells) == 20 and (cells.of(rows) == far.argmin(axis=1)).all()
    assert (np.bincount(cells.of(rows), minlength=20) > 0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_same_answer_for_any_batch_threads_and_precision(cells: Cells, rows: np.ndarray, dtype: type) -> None:
    # Rows between two centres, where a last bit decides.
    between = ((cells.centres[:-1] + cells.centres[1:]) / 2).astype(dtype)
    Q = np.concatenate([rows.astype(dtype), between])
    whole = cells.of(Q)
    for size in (1, 7, 256, 1000):
        parts = [cells.of(Q[i : i + size]) for i in range(0, len(Q), size)]
        assert (np.concatenate(parts) == whole).all(), size
    for n_threads in (1, 2, 5):
        assert (cells.of(Q, n_threads) == whole).all()
    assert (cells.of(np.asfortranarray(Q)) == whole).all()
    assert (cells.of(Q.astype(np.float64)) == whole).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_published_centre_stays_in_its_cell(rows: np.ndarray, dtype: type) -> None:
    """Also far from zero, where squared distances are small differences of large numbers."""
    cells = learn_cells((rows[:, :5] + 1e4).astype(dtype), 50)
    assert cells.centres.dtype == dtype
    assert (cells.of(cells.centres) == np.arange(len(cells))).all()


def test_a_seed_decides_the_cells_and_threads_do_not(rows: np.ndarray) -> None:
    many = np.tile(rows, (8, 1)) + np.random.default_rng(1).normal(size=(24_000, 37)).astype(np.float32)
    assert len(many) > rows_for_cells(8)
    found = []
    for n_threads in (1, 2):
        with threadpool_limits(n_threads):
            found.append(learn_cells(many, 8, random_state=3).centres)
    assert (found[0] == found[1]).all()
    other = learn_cells(many, 8, random_state=4).centres
    assert not np.array_equal(found[0], other)


def test_few_values_make_few_cells() -> None:
    Q = np.repeat([[0.0, 1.0], [2.0, 3.0]], 30, axis=0)
    cells = learn_cells(Q, 5)
    assert sorted(cells.centres.tolist()) == [[0.0, 1.0], [2.0, 3.0]]


def test_what_cannot_be_done_is_said(cells: Cells) -> None:
    with pytest.raises(MuteError, match=r"3 row\(s\) cannot make 5 cells; give more rows"):
        learn_cells(np.zeros((3, 2)), 5)
    with pytest.raises(MuteError, match=r"rows of 37 columns, not of shape \(4, 36\)"):
        cells.of(np.zeros((4, 36)))
