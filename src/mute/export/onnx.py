"""An eraser as an ONNX graph, written node by node: no torch is needed."""

from __future__ import annotations

import json
import logging
import re
import tempfile
from collections.abc import Callable, Sequence
from functools import partialmethod
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mute.errors import MuteError, missing_extra
from mute.export.program import compare, program_of
from mute.storage.files import check_target, write_atomically
from mute.typing import Array, Foreign, Method, RowsLike, Setting

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

__all__ = ["to_onnx"]

# The first version with LayerNormalization, and a file version that every runtime of the last years reads.
_OPSET, _IR_VERSION = 17, 8


def to_onnx(
    eraser: Method,
    path: str | Path,
    *,
    counterfactual: bool = False,
    concept: str = "routed",
    quantize: bool = False,
    check: RowsLike = None,
) -> float | None:
    """Write a fitted eraser as an ONNX model, in single precision, for any number of rows.

    The model takes ``X``, of shape (n, D), and gives ``erased`` (or ``counterfactual``) of the same shape. Its metadata
    contains the labels as JSON, under ``classes``.

    Parameters
    ----------
    eraser : fitted eraser
        `MUtE`, a surrogate, or any method whose map is affine (for each class).
    path : str or path
        Where to write it, whole or not at all.
    counterfactual : bool, default=False
        Move the rows to another class in place of erasing them: the model then takes ``target``, of shape (n,), the
        place of each row's label in ``classes``.
    concept : {"routed", "given"}, default="routed"
        Where the class of a row comes from, for methods that depend on it: from their router, which becomes part of the
        model, or from a further input ``concept`` like ``target``.
    quantize : bool, default=False
        Put the network of an `MLPSurrogate` into whole numbers of 8 bits, several times as fast on processors that
        multiply them. Its matrices stay as they are, so that only the small part which the network adds gets coarser.
        The largest number of a batch sets the step, so that answers depend a little on the batch.
    check : array-like of shape (n, D), optional
        Rows on which the model, run by onnxruntime, is compared with the eraser. Nothing is written if the root mean
        square of the difference is above 1e-3 of that of the answers (1e-2 if quantized).

    Returns
    -------
    float or None
        The largest difference on the rows of `check`.

    See Also
    --------
    to_torch : The same as a torch module.

    Notes
    -----
    *Limits.* Erasers whose map is neither affine nor a flow (such as `FaRM`) must be copied by `MLPSurrogate` first. A
    model of more than 2 GB cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from mute.export import to_onnx
    >>> from mute.rivals import LEACE
    >>> X, z = np.random.default_rng(0).normal(size=(100, 3)), np.arange(100) % 2
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     to_onnx(LEACE().fit(X, z), f"{folder}/leace.onnx", check=X) < 1e-5
    True
    """
    onnx = _import("onnx", "export to ONNX")
    helper = onnx.helper
    check_target(path)
    program = program_of(eraser, counterfactual, concept)
    if quantize and not any(name.startswith("layer") for name in getattr(eraser, "weights_", {})):
        raise MuteError(f"only an MLPSurrogate has a network to quantize, {type(eraser).__name__} (as fitted) has none")
    ops = _OnnxOps(onnx)
    inputs = [_Value(ops, name, integer=name != "X") for name in program.inputs]
    name = "counterfactual" if counterfactual else "erased"
    ops.node("Identity", program.run(ops, *inputs), name=name)
    rows = helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, ["rows", program.n_features])
    codes = helper.make_tensor_type_proto(onnx.TensorProto.INT64, ["rows"])
    given = [helper.make_value_info(v.name, codes if v.integer else rows) for v in inputs]
    constants = list(ops.constants.values())
    graph = helper.make_graph(ops.nodes, type(eraser).__name__, given, [helper.make_value_info(name, rows)], constants)
    opset = [helper.make_opsetid("", _OPSET)]
    model = helper.make_model(graph, producer_name="mute", opset_imports=opset, ir_version=_IR_VERSION)
    helper.set_model_props(model, {"classes": json.dumps(program.classes, default=str)})
    size = model.ByteSize()
    if size > 2e9:  # a protobuf message cannot be larger than 2 GiB
        raise MuteError(
            f"the model has {size / 1e9:.1f} GB, and an ONNX file takes at most 2; export a surrogate of it"
        )
    model = _quantized(model) if quantize else model
    onnx.checker.check_model(model, full_check=True)
    content = model.SerializeToString()
    gap = None if check is None else compare(eraser, program, _runner(content), check, 1e-2 if quantize else 1e-3)
    with write_atomically(path) as file:
        file.write(content)
    return gap


def _import(module: str, purpose: str) -> Foreign:
    try:
        return import_module(module)
    except ImportError:
        raise missing_extra(module.partition(".")[0], "onnx", purpose) from None


def _quantized(model: ModelProto) -> ModelProto:
    """The model with the layers of its network in 8 bits."""
    quantization = _import("onnxruntime.quantization", "quantizing an ONNX model")
    layers = [node.name for node in model.graph.node if any(re.fullmatch(r"layer\d+_weight", i) for i in node.input)]
    level = logging.root.level
    logging.root.setLevel(logging.ERROR)  # it advises to optimise the graph first, which runtimes do on their own
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            # In 7 of the 8 bits: processors without instructions of their own for this add products up in 16, which
            # 8 would overflow, and the file would give other answers there.
            quantization.quantize_dynamic(
                model, path, nodes_to_quantize=layers, per_channel=True, reduce_range=True,
                weight_type=quantization.QuantType.QInt8,
            )  # fmt: skip
            return _import("onnx", "export to ONNX").load(path)
    finally:
        logging.root.setLevel(level)


def _runner(content: bytes) -> Callable[[dict[str, Array]], Array]:
    """The model as a function of its inputs by name, run by onnxruntime."""
    onnxruntime = _import("onnxruntime", "checking an ONNX model")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # warnings about the machine are not ours to print
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(None, inputs)[0]


class _Value:
    """A value of the graph under construction, which Python's operators act on."""

    def __init__(self, ops: _OnnxOps, name: str, integer: bool) -> None:
        self.ops, self.name, self.integer = ops, name, integer

    def _with(self, kind: str, other: _Value | float) -> _Value:
        return self.ops.node(kind, self, self.ops.value(other, self.integer))

    __add__ = partialmethod(_with, "Add")
    __sub__ = partialmethod(_with, "Sub")
    __mul__ = __rmul__ = partialmethod(_with, "Mul")
    __truediv__ = partialmethod(_with, "Div")
    __le__ = partialmethod(_with, "LessOrEqual")
    __eq__ = partialmethod(_with, "Equal")  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


class _OnnxOps:
    """The arithmetic of `mute.flow.ops.NumpyOps`, recorded as the nodes of a graph."""

    def __init__(self, onnx: Foreign) -> None:
        self.onnx = onnx
        self.precision = np.dtype(np.float32)
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, TensorProto] = {}

    def node(self, kind: str, *inputs: _Value, name: str = "", integer: bool | None = None, **more: Setting) -> _Value:
        name = name or f"{kind}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, [v.name for v in inputs], [name], name, **more))
        return _Value(self, name, inputs[0].integer if integer is None else integer)

    def value(self, given: _Value | float, integer: bool) -> _Value:
        """A value as it is; a number as a constant of the same kind as what it meets."""
        if isinstance(given, _Value):
            return given
        return self.array(f"{'i' if integer else 'f'}_{given}", np.array(given, np.int64 if integer else np.float32))

    def array(self, name: str, values: Array) -> _Value:
        integer = values.dtype.kind != "f"
        if name not in self.constants:
            dtype = np.int64 if integer else np.float32
            self.constants[name] = self.onnx.numpy_helper.from_array(np.ascontiguousarray(values, dtype), name)
        return _Value(self, name, integer)

    tanh = partialmethod(node, "Tanh")
    exp = partialmethod(node, "Exp")
    relu = partialmethod(node, "Relu")
    layer_norm = partialmethod(node, "LayerNormalization", axis=1, epsilon=1e-5)
    norm = partialmethod(node, "ReduceL2", axes=[1], keepdims=1)
    take = partialmethod(node, "Gather", axis=0)
    columns = partialmethod(node, "Gather", axis=1)
    transpose = partialmethod(node, "Transpose", perm=[1, 0])
    argmax = partialmethod(node, "ArgMax", integer=True, axis=1, keepdims=0)

    def linear(self, x: _Value, weight: _Value, bias: _Value | None = None) -> _Value:
        product = self.node("MatMul", x, weight)
        return product if bias is None else product + bias

    def clip(self, x: _Value, low: float, high: float) -> _Value:
        return self.node("Clip", x, self.value(low, False), self.value(high, False))

    def least(self, i: _Value, limit: int) -> _Value:
        return self.node("Min", i, self.value(limit, True))

    def integer(self, x: _Value) -> _Value:
        return self.node("Cast", x, integer=True, to=self.onnx.TensorProto.INT64)

    def real(self, i: _Value) -> _Value:
        return self.node("Cast", i, integer=False, to=self.onnx.TensorProto.FLOAT)

    def column(self, k: _Value) -> _Value:
        return self.node("Unsqueeze", k, self.array("axis_1", np.array([1])))

    def split(self, x: _Value, at: int) -> tuple[_Value, _Value]:
        end, axis = self.array("end", np.array([np.iinfo(np.int64).max])), self.array("axis_1", np.array([1]))
        zero, middle = self.array("at_0", np.array([0])), self.array(f"at_{at}", np.array([at]))
        return self.node("Slice", x, zero, middle, axis), self.node("Slice", x, middle, end, axis)

    def concat(self, parts: Sequence[_Value]) -> _Value:
        return self.node("Concat", *parts, axis=1)

    def where(self, condition: _Value, yes: _Value, no: _Value) -> _Value:
        return self.node("Where", condition, yes, no, integer=yes.integer)

    def by_class(self, work: Callable[[_Value, int], _Value], x: _Value, k: _Value, n_classes: int) -> _Value:
        out = work(x, 0)
        for c in range(1, n_classes):
            out = self.where(self.column(k == c), work(x, c), out)
        return out
