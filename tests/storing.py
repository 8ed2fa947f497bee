"""Rows in memory, ready to be measured."""

import numpy as np
from numpy.typing import NDArray

from mute.rows.maps import Enter, Routes
from mute.rows.stores import MemoryStore


def store_of(x: NDArray, z: NDArray, n_threads: int = 1) -> MemoryStore:
    """Chunks of the rows as they are: not centred, each on the route of its class."""
    d, n_classes = x.shape[1], int(z.max()) + 1
    store = MemoryStore(x, z, n_threads)
    store.map(Enter(np.zeros(d, x.dtype), np.ones(d, x.dtype), n_classes, Routes()))
    return store
