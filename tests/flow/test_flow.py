"""The flow as an object: what it computes, against slow references, and what it must never do."""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from numpy.typing import NDArray

import mute.flow.flow
from mute.flow.flow import Flow

T, K, D, KNOTS = 4, 3, 5, 9


def make_flow(dtype: type = np.float64, knots: int = KNOTS) -> Flow:
    rng = np.random.default_rng(1)
    return Flow(
        center=rng.normal(size=D).astype(dtype),
        scale=rng.uniform(0.5, 2, size=D).astype(dtype),
        rotations=np.stack([np.linalg.qr(rng.normal(size=(D, D)))[0] for _ in range(T)]).astype(dtype),
        origin=rng.uniform(-3, -2, size=(T, K, D)).astype(dtype),
        step=rng.uniform(0.4, 0.8, size=(T, K, D)).astype(dtype),
        values=np.cumsum(rng.uniform(0.3, 0.9, size=(T, K, D, knots)), axis=-1).astype(dtype) - 3,
    )


@pytest.fixture(params=[np.float64, np.float32], ids=["f64", "f32"])
def flow(request: pytest.FixtureRequest) -> Flow:
    return make_flow(request.param)


@pytest.fixture
def rows(flow: Flow) -> tuple[NDArray, NDArray]:
    rng = np.random.default_rng(2)
    return rng.normal(size=(200, D)).astype(flow.dtype) * 3, rng.integers(K, size=200)


def reference(flow: Flow, x: NDArray, k: int) -> NDArray:
    """The definition, one number at a time."""
    out = (x.astype(np.float64) - flow.center) / flow.scale
    for t in range(flow.n_layers):
        out = out @ flow.rotations[t]
        for d in range(D):
            knots = flow.origin[t, k, d] + flow.step[t, k, d] * np.arange(flow.values.shape[-1], dtype=np.float64)
            values = flow.values[t, k, d].astype(np.float64)
            j = np.clip(np.searchsorted(knots, out[:, d], side="right") - 1, 0, len(knots) - 2)
            slope = (values[j + 1] - values[j]) / (knots[j + 1] - knots[j])
            out[:, d] = values[j] + slope * (out[:, d] - knots[j])
    return out


def eps(flow: Flow) -> float:
    # Slopes of up to 2 over four layers multiply rounding errors by less than 20; the rest is room for the sums.
    return 200 * float(np.finfo(flow.dtype).eps)


def test_push_is_its_definition(flow: Flow, rows: tuple[NDArray, NDArray]) -> None:
    x, _ = rows
    for k in range(K):
        np.testing.assert_allclose(flow.push(x, k), reference(flow, x, k), rtol=eps(flow), atol=10 * eps(flow))


@pytest.mark.parametrize("size", [1.0, 1e6])
def test_pull_undoes_push_on_the_whole_real_line(flow: Flow, rows: tuple[NDArray, NDArray], size: float) -> None:
    x, k = rows
    x = (x * size).astype(flow.dtype)
    back = flow.pull(flow.push(x, k), k)
    assert back.dtype == flow.dtype
    np.testing.assert_allclose(back, x, rtol=0, atol=eps(flow) * np.abs(x).max())
    np.testing.assert_allclose(flow.push(flow.pull(x, k), k), x, rtol=0, atol=eps(flow) * np.abs(x).max())


def test_each_row_takes_the_map_of_its_class(flow: Flow, rows: tuple[NDArray, NDArray]) -> None:
    x, k = rows
    mixed = flow.push(x, k)
    for label in range(K):
        np.testing.assert_array_equal(mixed[k == label], flow.push(x, label)[k == label])


def test_layers_compose(flow: Flow, rows: tuple[NDArray, NDArray]) -> None:
    x, k = rows
    halves = flow.layers(2, T).push(flow.layers(0, 2).push(x, k), k)
    np.testing.assert_array_equal(halves, flow.push(x, k))
    assert flow.layers(0, 2).n_layers == 2


def test_log_determinant_is_that_of_the_jacobian(rows: tuple[NDArray, NDArray]) -> None:
    flow = make_flow()
    x, k = rows[0][:50].astype(np.float64), rows[1][:50]
    q, logdet = flow.push_with_logdet(x, k)
    np.testing.assert_array_equal(q, flow.push(x, k))
    h = 1e-7  # the map is piecewise linear: differences are exact but for rounding, unless they straddle a knot
    jacobian = np.stack([(flow.push(x + h * e, k) - flow.push(x - h * e, k)) / (2 * h) for e in np.eye(D)], axis=2)
    error = np.abs(logdet - np.linalg.slogdet(jacobian)[1])
    assert np.median(error) < 1e-6
    assert (error < 1e-6).mean() > 0.9


@pytest.mark.parametrize("n_threads", [1, 2, 5])
@pytest.mark.parametrize("block", [16, 48, 1024])
def test_blocks_and_threads_change_nothing(
    flow: Flow, rows: tuple[NDArray, NDArray], monkeypatch: pytest.MonkeyPatch, n_threads: int, block: int
) -> None:
    x, k = rows
    whole, back = flow.push(x, k, n_threads=1), flow.pull(x, k, n_threads=1)
    monkeypatch.setattr(mute.flow.flow, "BLOCK_ROWS", block)
    np.testing.assert_array_equal(flow.push(x, k, n_threads=n_threads), whole)
    np.testing.assert_array_equal(flow.pull(x, k, n_threads=n_threads), back)


def test_order_of_rows_changes_nothing(flow: Flow, rows: tuple[NDArray, NDArray]) -> None:
    x, k = rows
    order = np.random.default_rng(0).permutation(len(x))
    np.testing.assert_array_equal(flow.push(x[order], k[order]), flow.push(x, k)[order])


@pytest.mark.parametrize("n_threads", [1, 2])
def test_no_rows(flow: Flow, n_threads: int) -> None:
    empty = np.empty((0, D), flow.dtype)
    assert flow.push(empty, 0, n_threads=n_threads).shape == (0, D)
    assert flow.pull(empty, 0, n_threads=n_threads).shape == (0, D)


def test_rows_stay_untouched_unless_asked(flow: Flow, rows: tuple[NDArray, NDArray]) -> None:
    x, k = rows
    copy = x.copy()
    q = flow.push(x, k)
    np.testing.assert_array_equal(x, copy)
    assert flow.push(x, k, out=x) is x
    np.testing.assert_array_equal(x, q)
    flow.pull(x, k, out=x)
    np.testing.assert_allclose(x, copy, atol=10 * eps(flow))


@pytest.mark.parametrize("layout", ["fortran", "strided", "read-only"])
def test_any_memory_layout(flow: Flow, rows: tuple[NDArray, NDArray], layout: str) -> None:
    x, k = rows
    match layout:
        case "fortran":
            other = np.asfortranarray(x)
        case "strided":
            other = np.repeat(x, 2, axis=1)[:, ::2]
        case _:
            other = x.copy()
            other.flags.writeable = False
    np.testing.assert_array_equal(flow.push(other, k), flow.push(x, k))


def test_flow_cannot_be_changed(flow: Flow) -> None:
    with pytest.raises(FrozenInstanceError):
        flow.center = np.zeros(D)  # type: ignore[misc]
    for name in Flow.arrays():
        with pytest.raises(ValueError, match="read-only"):
            getattr(flow, name)[...] = 0


def test_precision_follows_the_rows() -> None:
    x = np.random.default_rng(0).normal(size=(50, D))
    double, single = make_flow(np.float64), make_flow(np.float32)
    assert double.push(x.astype(np.float32), 0).dtype == np.float32
    assert single.push(x, 0).dtype == np.float64
    assert double.astype(np.float64) is double
    # Single-precision tables, and twenty-fold growth of their rounding.
    np.testing.assert_allclose(double.push(x.astype(np.float32), 1), double.push(x, 1), atol=2e-5)
    np.testing.assert_allclose(single.push(x, 1), double.push(x, 1), atol=2e-5)


def test_rotations_become_orthogonal_in_double_precision() -> None:
    v = make_flow(np.float32).astype(np.float64).rotations
    np.testing.assert_allclose(v.transpose(0, 2, 1) @ v, np.broadcast_to(np.eye(D), v.shape), atol=1e-12)


def test_rounding_keeps_the_map_strictly_increasing() -> None:
    flow = make_flow()
    values = flow.values.copy()
    values[..., 3:6] = values[..., 3:4] + np.array([0, 1e-12, 2e-12])  # one number in single precision
    close = Flow(**{n: getattr(flow, n) for n in Flow.arrays() if n != "values"}, values=values).astype(np.float32)
    assert (np.diff(close.values, axis=-1) > 0).all()


def test_repr() -> None:
    assert repr(make_flow()) == "Flow(n_layers=4, n_classes=3, n_features=5, knots=9, dtype=float64)"
