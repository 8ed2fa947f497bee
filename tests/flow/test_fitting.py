"""The fitter: the paper's algorithm step by step, against one written out by hand."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from laws import draw
from mute.flow.fitting import FlowFitter
from mute.flow.marginals import Quantile
from mute.flow.rotations import Rotation, make_rotation
from mute.rows.maps import Routes
from mute.rows.reductions import FirstScan
from mute.rows.stores import MemoryStore


def start(
    x: NDArray, z: NDArray, routes: Routes | None = None, layers: int = 4, rotation: Rotation | None = None
) -> FlowFitter:
    rows = MemoryStore(x, z, 1)
    return FlowFitter(
        rows,
        rows.reduce(FirstScan(x.shape[1], int(z.max()) + 1)),
        routes or Routes(),
        max_layers=layers,
        rotation=rotation or make_rotation("alternate"),
        marginal=Quantile(),
        rng=np.random.default_rng(0),
        n_threads=1,
    )


def make(x: NDArray, z: NDArray, routes: Routes | None = None, layers: int = 4, **settings: Any) -> FlowFitter:
    fitter = start(x, z, routes, layers, **settings)
    for _ in range(layers):
        fitter.add_layer()
    return fitter


def test_densities_follow_the_labels_and_movement_the_router() -> None:
    """Axes of class t mod K and marginals from true labels; rows move with the map of their route."""
    x, z = draw("skew", 600, 3, seed=0, n_classes=3)
    routed = np.where(np.random.default_rng(1).uniform(size=len(z)) < 0.15, (z + 1) % 3, z)
    flow = make(x, z, Routes(known=np.arange(len(z)), routes=routed)).flow()
    order = np.lexsort((routed, z))
    now = (x - x.mean(axis=0))[order]
    for t in range(4):
        k = t % 3
        turned = now @ flow.rotations[t]
        cov = np.cov(turned[z[order] == k], rowvar=False)
        np.testing.assert_allclose(cov, np.diag(np.diag(cov)), atol=1e-9)
        as_it_is = Rotation(lambda t, n_classes: (), lambda *_: np.eye(3))
        alone = make(turned, z[order], layers=1, rotation=as_it_is).flow()
        np.testing.assert_allclose(flow.origin[t], alone.origin[0] + alone.center, atol=1e-7)
        np.testing.assert_allclose(flow.step[t], alone.step[0], rtol=1e-6)
        np.testing.assert_allclose(flow.values[t], alone.values[0], atol=1e-6)
        entered = flow.layers(0, t + 1)
        now = entered.push(x[order], routed[order])
    np.testing.assert_allclose(flow.center, x.mean(axis=0))


def test_order_of_rows_does_not_matter() -> None:
    x, z = draw("gauss", 500, 3, seed=0)
    order = np.random.default_rng(0).permutation(len(x))
    one, other = make(x, z).flow(), make(x[order], z[order]).flow()
    # Sums in another order round differently; four layers of PCA multiply that by the inverse of the gaps between
    # eigenvalues.
    np.testing.assert_allclose(other.push(x, z), one.push(x, z), atol=1e-8)


def test_only_the_rows_asked_for() -> None:
    x, z = draw("gauss", 500, 3, seed=0)
    rows = np.flatnonzero(np.random.default_rng(0).uniform(size=len(x)) < 0.6)
    out = np.setdiff1d(np.arange(len(x)), rows)
    some, alone = make(x, z, Routes(held_out=out, held_out_classes=z[out])).flow(), make(x[rows], z[rows]).flow()
    for name in some.arrays():
        np.testing.assert_allclose(getattr(some, name), getattr(alone, name), atol=1e-9)


def test_single_layers_make_up_the_flow() -> None:
    x, z = draw("gauss", 500, 3, seed=0)
    fitter = make(x, z)
    now = x
    for t in range(fitter.n_layers):
        now = fitter.layer(t).push(now, z)
    np.testing.assert_array_equal(now, fitter.flow().push(x, z))


def test_a_flow_does_not_change_when_the_fitter_goes_on() -> None:
    x, z = draw("gauss", 500, 3, seed=0)
    fitter = start(x, z, layers=3)
    fitter.add_layer()
    flow = fitter.flow()
    before = flow.push(x, z)
    fitter.add_layer()
    fitter.add_layer()
    assert flow.n_layers == 1
    assert fitter.flow().n_layers == 3
    np.testing.assert_array_equal(flow.push(x, z), before)


def test_rows_given_are_not_changed() -> None:
    x, z = draw("gauss", 500, 3, seed=0)
    copy = x.copy()
    make(x, z)
    np.testing.assert_array_equal(x, copy)


@pytest.mark.parametrize(
    ("spreads", "scale"),
    [
        ([1.0, 5.0, 100.0], 1.0),
        ([0.0, 1.0, 2.0], 1.0),
        ([1e-6, 1.0, 1e6], [1e-6, 1.0, 1e6]),
        ([1e-5, 1e-4, 1e-4], 2.0**-13),
    ],
)
def test_columns_of_very_different_scale_are_brought_to_one(spreads: list[float], scale: Any) -> None:
    """And rows of another size than one are scaled by a power of two, the nearest to the median of the spreads."""
    x, z = draw("gauss", 500, 3, seed=0)
    x = x / x.std(axis=0) * spreads + 7
    flow = make(x, z).flow()
    np.testing.assert_allclose(flow.scale, np.broadcast_to(scale, 3), rtol=1e-6)


def test_support_is_the_range_in_the_first_layer() -> None:
    x, z = draw("gauss", 500, 3, seed=0)
    fitter = make(x, z)
    turned = (x - x.mean(axis=0)) @ fitter.flow().rotations[0]
    expected = [[f(turned[z == k], axis=0) for k in (0, 1)] for f in (np.min, np.max)]
    np.testing.assert_allclose(fitter.support, expected, atol=1e-9)
