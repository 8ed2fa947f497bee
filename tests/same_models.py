"""Whether two fitted `MUtE` are the same to the bit."""

import numpy as np

from mute import MUtE


def assert_same(a: MUtE, b: MUtE, but: tuple[str, ...] = ("n_threads",)) -> None:
    """All that a file would hold: maps, router, reports, what they were fitted on; the settings in `but` may differ."""
    (arrays, state), (others, other) = a._to_artifact(), b._to_artifact()
    assert sorted(arrays) == sorted(others)
    for name, array in arrays.items():
        assert array.dtype == others[name].dtype, name
        np.testing.assert_array_equal(array, others[name], err_msg=name)
    for one in (state, other):
        one["parameters"] = {name: value for name, value in one["parameters"].items() if name not in but}
    assert state == other, [(k, state[k], other[k]) for k in state if state[k] != other[k]]
    np.testing.assert_array_equal(a.classes_, b.classes_)
