"""An eraser as a plain torch module."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

from mute.errors import MuteError
from mute.export.program import compare, program_of
from mute.flow.ops import TorchOps
from mute.rows.detect import require_torch
from mute.storage.files import check_target, write_atomically
from mute.typing import Array, Method, RowsLike, Value

if TYPE_CHECKING:
    from torch import fx, nn

__all__ = ["to_pt2", "to_torch"]


def to_torch(
    eraser: Method, *, counterfactual: bool = False, concept: str = "routed", dtype: str = "float32"
) -> fx.GraphModule:
    """A fitted eraser as a ``torch.nn.Module``, which can sit inside a network.

    The module is a ``torch.fx.GraphModule`` that does not need this package; `torch.save` and `torch.export` can store
    it. It is differentiable in the rows, has its arrays as buffers and moves with ``.to(device)``.

    Parameters
    ----------
    eraser, counterfactual, concept
        As in `to_onnx`.
    dtype : {"float32", "float64"}, default="float32"
        Precision of the arrays and the rows.

    Returns
    -------
    torch.nn.Module
        A function of rows (n, D) and then, if asked for, ``concept`` and ``target``: tensors of shape (n,) with the
        places of the labels in the module's ``classes``.

    See Also
    --------
    to_pt2 : The same as a file.
    to_onnx : The same without torch.

    Notes
    -----
    *Limits.* Those of `to_onnx`, but for the size.

    Examples
    --------
    >>> import numpy as np, torch
    >>> from mute.export import to_torch
    >>> from mute.rivals import LEACE
    >>> X, z = np.random.default_rng(0).normal(size=(100, 3)), np.arange(100) % 2
    >>> eraser = LEACE().fit(X, z)
    >>> module = to_torch(eraser, dtype="float64")
    >>> bool(np.allclose(module(torch.from_numpy(X)), eraser.transform(X)))
    True
    """
    torch = require_torch("export to torch")
    if dtype not in ("float32", "float64"):
        raise MuteError(f'dtype must be "float32" or "float64", not {dtype!r}')
    program = program_of(eraser, counterfactual, concept)
    root = torch.nn.Module()
    graph = torch.fx.Graph()
    tracer = torch.fx.proxy.GraphAppendingTracer(graph)
    inputs = [torch.fx.Proxy(graph.placeholder(name), tracer) for name in program.inputs]
    out = program.run(_Recorder(root, graph, tracer, dtype), *inputs)
    graph.output(out.node)
    graph.lint()
    module = torch.fx.GraphModule(root, graph, type(eraser).__name__)
    module.classes = program.classes
    return module


def to_pt2(
    eraser: Method, path: str | Path, *, counterfactual: bool = False, concept: str = "routed", check: RowsLike = None
) -> float | None:
    """Write a fitted eraser as a program of ``torch.export``, which ``torch.export.load`` reads without this package.

    Parameters and result are those of `to_onnx`.
    """
    torch = require_torch("export to torch")
    check_target(path)
    program = program_of(eraser, counterfactual, concept)
    module = to_torch(eraser, counterfactual=counterfactual, concept=concept)
    codes = [torch.zeros(4, dtype=torch.int64) for _ in program.inputs[1:]]
    example = (torch.zeros(4, program.n_features), *codes)
    rows = torch.export.Dim("rows")
    exported = torch.export.export(module, example, dynamic_shapes=tuple({0: rows} for _ in example))
    gap = None
    if check is not None:
        run = exported.module()
        gap = compare(eraser, program, lambda inputs: run(*map(torch.from_numpy, inputs.values())).numpy(), check)
    content = io.BytesIO()
    torch.export.save(exported, content, extra_files={"classes": json.dumps(program.classes, default=str)})
    with write_atomically(path) as file:
        file.write(content.getbuffer())
    return gap


class _Recorder(TorchOps):
    """Writes a graph in place of computing; constants become buffers of `root`."""

    def __init__(self, root: nn.Module, graph: fx.Graph, tracer: fx.Tracer, precision: str) -> None:
        super().__init__(precision)
        self.root, self.graph, self.tracer = root, graph, tracer
        self.known: dict[str, Value] = {}

    def array(self, name: str, values: Array) -> Value:
        if name not in self.known:
            self.root.register_buffer(name, super().array(name, values))
            proxy = self.torch.fx.Proxy(self.graph.get_attr(name), self.tracer)
            proxy.ndim = values.ndim
            self.known[name] = proxy
        return self.known[name]
