"""Maps of a chunk to another: rows enter the flow, are rotated, and pass through the marginals of a layer."""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from mute.rows.chunks import Chunk, RawChunk, find_rows
from mute.typing import Classifier

__all__ = ["ApplyMarginals", "Enter", "Rotate", "Routes", "fill"]


def _none() -> NDArray[np.int64]:
    return np.empty(0, np.int64)


def fill(memory: NDArray, values: NDArray) -> NDArray:
    """Copy values to the beginning of some memory; returns the copy."""
    out = np.ndarray(values.shape, memory.dtype, memory)
    out[:] = values
    return out


@dataclass(frozen=True, eq=False)
class Routes:
    """The class whose map moves each row.

    `router` predicts encoded classes; without a router, each row takes the map of its own class. `known` are the
    ascending numbers of rows whose `routes` are known, `held_out` those of the held-out rows.
    """

    router: Classifier = None
    known: NDArray[np.int64] = field(default_factory=_none)
    routes: NDArray[np.int64] = field(default_factory=_none)
    held_out: NDArray[np.int64] = field(default_factory=_none)
    held_out_classes: NDArray[np.int64] = field(default_factory=_none)

    def of(self, rows: NDArray[np.int64], x: NDArray, z: NDArray) -> NDArray[np.int64]:
        """The routes of rows with these numbers, ascending."""
        place, found = find_rows(self.known, rows)
        all_known = self.router is None or found.all()
        out = np.array(z, np.int64) if all_known else self.router.predict(x)
        out[found] = self.routes[place[found]]
        return out


@dataclass(frozen=True, eq=False)
class Enter:
    """Raw rows without the held-out ones: centred, scaled, grouped by class and route, and turned feature-major."""

    center: NDArray[np.floating]
    scale: NDArray[np.floating]
    n_classes: int
    routes: Routes

    def __call__(self, chunk: RawChunk, out: NDArray | None = None) -> Chunk:
        rows = chunk.start + np.arange(len(chunk.z))
        routed = self.routes.of(rows, chunk.x, chunk.z)
        kept = np.flatnonzero(~find_rows(self.routes.held_out, rows)[1])
        order = kept[np.lexsort((routed[kept], chunk.z[kept]))]
        z, routed = chunk.z[order].astype(np.int64), routed[order]
        turned = chunk.x[order].T
        block = fill(np.empty(turned.size, turned.dtype) if out is None else out, turned)
        block -= self.center[:, None]
        if (self.scale != 1).any():
            block /= self.scale[:, None]
        starts = np.flatnonzero(np.diff(z * self.n_classes + routed, prepend=-1))
        bounds = np.searchsorted(z, np.arange(self.n_classes + 1))
        return Chunk(rows[order], block, bounds, np.append(starts, len(order)), routed[starts])


@dataclass(frozen=True, eq=False)
class Rotate:
    """Rows multiplied by a rotation from the right."""

    rotation: NDArray[np.floating]

    def __call__(self, chunk: Chunk, out: NDArray | None = None) -> Chunk:
        target = None if out is None else np.ndarray(chunk.block.shape, out.dtype, out)
        return replace(chunk, block=np.matmul(self.rotation.T, chunk.block, out=target))


@dataclass(frozen=True, eq=False)
class ApplyMarginals:
    """The marginals of a layer; each row takes those of its route."""

    origin: NDArray[np.floating]
    step: NDArray[np.floating]
    values: NDArray[np.floating]

    def __call__(self, chunk: Chunk, out: NDArray | None = None) -> Chunk:
        from mute.rows import kernels

        block = chunk.block if out is None else fill(out, chunk.block)
        kernels.push(block, chunk.runs, chunk.routes, self.origin, self.step, self.values, None)
        return replace(chunk, block=block)
