"""A flow as a torch module, for any device and inside any network."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from mute.errors import MuteError
from mute.flow.flow import Flow
from mute.flow.ops import check_kind, full_precision
from mute.rows.threads import for_each
from mute.typing import Json, Setting

__all__ = ["FlowModule"]

# Numbers in a block. On the CPU, temporaries then stay in its caches. On other devices each call is expensive, so
# blocks are as large as memory allows.
_BLOCK_CPU, _BLOCK_ELSEWHERE = 1 << 18, 1 << 26
_FEWEST_ROWS = 512

# Cells of the guide for each knot. With fewer cells more rows are bisected; with more the guide leaves the caches.
_GUIDE_CELLS = 2


class FlowModule(nn.Module):
    r"""A `Flow` as a module: `push`, `pull` and `counterfactual` of tensors, differentiable in the rows.

    Its buffers are the arrays of the flow, so ``.to(device)`` moves the module and ``state_dict`` stores it. The module
    computes in float32 or float64. Rows in half precision give results in half precision, but ``.half()`` does not
    change the buffers.

    Parameters
    ----------
    flow : Flow
    dtype : {"float32", "float64"}, optional
        The flow's own when None.
    device : torch.device or str, optional

    Notes
    -----
    *Limits.* The maps are straight between knots, so second derivatives are zero. A row with NaN or infinity gives NaN.
    ``.double()`` keeps the rounding of a float32 flow; ``flow.to_torch(dtype="float64")`` removes it.

    Examples
    --------
    >>> import numpy as np, torch
    >>> flow = Flow(center=np.zeros(2), scale=np.ones(2), rotations=np.eye(2)[None], origin=np.zeros((1, 1, 2)),
    ...             step=np.ones((1, 1, 2)), values=np.array([[[[0.0, 1.0, 3.0], [0.0, 2.0, 3.0]]]]))
    >>> module = FlowModule(flow)
    >>> q = module.push(torch.tensor([[1.5, 0.5], [-4.0, 9.0]]), 0)
    >>> q
    tensor([[ 2.,  1.],
            [-4., 10.]])
    >>> module.pull(q, 0)
    tensor([[ 1.5000,  0.5000],
            [-4.0000,  9.0000]])
    """

    center: Tensor
    scale: Tensor
    rotations: Tensor
    origin: Tensor
    step: Tensor
    values: Tensor

    def __init__(self, flow: Flow, *, dtype: str | None = None, device: torch.device | str | None = None) -> None:
        super().__init__()
        dtype = flow.dtype.name if dtype is None else str(dtype).removeprefix("torch.")
        if dtype not in ("float32", "float64"):
            raise MuteError(f'dtype must be "float32" or "float64", not {dtype!r}')
        place = torch.device("cpu" if device is None else device)
        if place.type == "mps" and dtype == "float64":
            raise MuteError('a device of type "mps" has no float64; use dtype="float32"')
        flow = flow.astype(dtype)
        with torch.inference_mode(False):
            for name in flow.arrays():
                # A copy, because arrays from a file are read-only.
                self.register_buffer(name, torch.from_numpy(np.array(getattr(flow, name))).to(place))
        self._forget()

    def push(self, x: Tensor, k: int | Tensor) -> Tensor:
        """Map states (..., D) of class `k` to the shared law; `k` is one encoded class, or a tensor of them (...)."""
        return self._run(x, k, self._push_block)

    forward = push

    def pull(self, q: Tensor, k: int | Tensor) -> Tensor:
        """Undo `push` for class `k`."""
        return self._run(q, k, self._pull_block)

    def counterfactual(self, x: Tensor, source: int | Tensor, target: int | Tensor) -> Tensor:
        """Counterfactuals of states of class `source` under class `target`."""
        return self.pull(self.push(x, source), target)

    def extra_repr(self) -> str:
        layers, classes, d, knots = self.values.shape
        return f"n_layers={layers}, n_classes={classes}, n_features={d}, knots={knots}"

    def _run(self, x: Tensor, k: int | Tensor, work: Callable[[Tensor, int], Tensor]) -> Tensor:
        d = self.values.shape[2]
        check_kind(x, "x")
        if x.ndim == 0 or x.shape[-1] != d:
            raise MuteError(f"x has shape {tuple(x.shape)}; its last axis must have {d} numbers")
        if x.numel() == 0:
            return x.clone()
        rows = x.reshape(-1, d).to(self.values.dtype)

        def finite_only(part: Tensor, c: int) -> Tensor:
            finite = torch.isfinite(part.detach()).all(dim=1, keepdim=True)
            return torch.where(finite.T, work(torch.where(finite, part, 0), c), torch.nan)

        with full_precision(x.device.type):
            return self._by_class(rows, k, x.shape[:-1], finite_only).reshape(x.shape).to(x.dtype)

    def _by_class(self, x: Tensor, k: int | Tensor, shape: torch.Size, work: Callable[[Tensor, int], Tensor]) -> Tensor:
        most = _BLOCK_CPU if x.device.type == "cpu" else _BLOCK_ELSEWHERE
        size = max(most // x.shape[1], _FEWEST_ROWS)
        if not isinstance(k, Tensor) or k.ndim == 0:
            k = int(k)
            self._check_codes(k, k)
            blocks = x.split(size)
            return _run_parts(lambda i: work(blocks[i], k), len(blocks))
        if k.shape != shape or k.dtype.is_floating_point:
            raise MuteError(f"k must have one whole number for each state, shape {tuple(shape)}, not {tuple(k.shape)}")
        labels, counts = torch.unique(k, return_counts=True)
        classes = labels.tolist()
        self._check_codes(classes[0], classes[-1])
        if len(classes) == 1:
            return self._by_class(x, classes[0], shape, work)
        # Rows are grouped by class, so that each part needs one table.
        order = torch.argsort(k.reshape(-1), stable=True)
        groups = zip(order.split(counts.tolist()), classes, strict=True)
        parts = [(rows, c) for mine, c in groups for rows in mine.split(size)]
        return _run_parts(lambda i: work(x[parts[i][0]], parts[i][1]), len(parts))[torch.argsort(order)]

    def _check_codes(self, least: int, most: int) -> None:
        if least < 0 or most >= self.values.shape[1]:
            raise MuteError(f"k must be from 0 to {self.values.shape[1] - 1}, not {least if least < 0 else most}")

    def _push_block(self, x: Tensor, k: int) -> Tensor:
        last = self.values.shape[3] - 2
        y = (x.T - self.center[:, None]) / self.scale[:, None]
        for t in range(len(self.values)):
            rate, rise = self._lines(t, k)
            place = (self.rotations[t].T @ y - self.origin[t, k, :, None]) * rate
            j = place.detach().clamp(0, last).to(torch.int64)
            y = torch.addcmul(self.values[t, k].gather(1, j), place - j, rise.gather(1, j))
        return y

    def _pull_block(self, q: Tensor, k: int) -> Tensor:
        y = q.T.contiguous()
        for t in reversed(range(len(self.values))):
            place = self._place(t, k, y)
            y = self.rotations[t] @ torch.addcmul(self.origin[t, k, :, None], place, self.step[t, k, :, None])
        return y * self.scale[:, None] + self.center[:, None]

    def _place(self, t: int, k: int, y: Tensor) -> Tensor:
        """Place on the grid where each marginal has the value y, (D, n)."""
        values, rises, sought = self.values[t, k], self._lines(t, k)[1], y.detach()
        j = self._guess(t, k, sought)
        within = (y - values.gather(1, j)) / rises.gather(1, j)
        outside = within.detach()
        row, column = torch.nonzero(outside != outside.clamp(0, 1), as_tuple=True)
        if len(row):  # tails, which do lie outside their segment, and cells with many knots
            found = _bisect(values, row, sought[row, column])
            if not torch.equal(found, j[row, column]):
                j[row, column] = found
                within = (y - values.gather(1, j)) / rises.gather(1, j)
        return within + j

    def _guess(self, t: int, k: int, y: Tensor) -> Tensor:
        """The segment that contains y, for most y: the guide's segment or the next one."""
        values, guide = self.values[t, k], self._guide(t, k)
        cell = ((y - values[:, :1]) * _cell_rate(values)).clamp_(0, guide.shape[1] - 1).to(torch.int64)
        j = guide.gather(1, cell).to(torch.int64)
        return (j + (values[:, 1:].gather(1, j) <= y)).clamp_(max=values.shape[1] - 2)

    def _lines(self, t: int, k: int) -> tuple[Tensor, Tensor]:
        """Knots per unit of each marginal, (D, 1), and the rises from knot to knot, (D, M - 1)."""
        if (t, k) not in self._known_lines:
            with torch.inference_mode(False), torch.no_grad():
                self._known_lines[t, k] = (1 / self.step[t, k, :, None], self.values[t, k].diff())
        return self._known_lines[t, k]

    def _guide(self, t: int, k: int) -> Tensor:
        """The segment in which each cell of a uniform grid over the values begins, (D, cells)."""
        if (t, k) not in self._known_guides:
            values = self.values[t, k]
            cells = torch.arange(_GUIDE_CELLS * values.shape[1], device=values.device)
            edges = values[:, :1] + cells / _cell_rate(values)
            starts = (torch.searchsorted(values, edges, right=True) - 1).clamp_(0, values.shape[1] - 2)
            self._known_guides[t, k] = starts.to(torch.int16 if values.shape[1] < 2**15 else torch.int32)
        return self._known_guides[t, k]

    def _forget(self) -> None:
        """Drop tables that were computed from earlier buffers."""
        self._known_lines: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        self._known_guides: dict[tuple[int, int], Tensor] = {}

    def _load_from_state_dict(self, *given: Setting, **more: Setting) -> None:
        super()._load_from_state_dict(*given, **more)
        self._forget()

    def __getstate__(self) -> Json:
        return self.__dict__ | {"_known_lines": {}, "_known_guides": {}}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> FlowModule:
        def keep_precision(buffer: Tensor) -> Tensor:
            out = fn(buffer)
            return buffer.to(out.device) if out.dtype.itemsize < 4 else out

        super()._apply(keep_precision, recurse)
        self._forget()
        return self


def _cell_rate(values: Tensor) -> Tensor:
    """Cells of the guide per unit of the values, (D, 1)."""
    return _GUIDE_CELLS * values.shape[1] / (values[:, -1:] - values[:, :1])


def _bisect(values: Tensor, row: Tensor, y: Tensor) -> Tensor:
    """The segment of ``values[row]`` that contains y, for `row` and `y` of shape (m,)."""
    last, j = values.shape[1] - 2, torch.zeros_like(row)
    for bit in reversed(range(last.bit_length())):
        ahead = (j + (1 << bit)).clamp_(max=last)
        j = torch.where(values[row, ahead] <= y, ahead, j)
    return j


def _run_parts(work: Callable[[int], Tensor], n: int) -> Tensor:
    """Run `work` on each of `n` parts, and concatenate the results (D, m) as rows.

    On the CPU, parts run in parallel with one thread each. Torch's own threads would synchronise after every operation,
    which takes longer than the operations on a busy machine.
    """
    out = [torch.empty(0)] * n
    total, inference, gradients = torch.get_num_threads(), torch.is_inference_mode_enabled(), torch.is_grad_enabled()
    side_by_side = n > 1 and total > 1

    def run(place: slice) -> None:
        if side_by_side:
            torch.set_num_threads(1)
        # Torch's modes are local to a thread.
        with torch.inference_mode(inference), torch.set_grad_enabled(gradients):
            out[place.start] = work(place.start)

    try:
        for_each(run, [slice(i, i + 1) for i in range(n)], total)
    finally:
        if side_by_side:
            torch.set_num_threads(total)
    return torch.cat([part.T for part in out])
