"""BERT and MPNet encoders as ONNX graphs, written node by node from their weights: no torch is needed."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mute.errors import missing_extra
from mute.text.encoders.weights import KINDS, Architecture
from mute.typing import Array, Foreign, Setting

__all__ = ["build_graph"]

# As for exported erasers: the first opset with LayerNormalization.
_OPSET, _IR_VERSION = 17, 8

# Added to the scores of padded tokens; its exponential is zero in single precision.
_MASKED = -1e9

# Constants of more bytes are handed to the runtime beside the model.
_LARGE = 4096

# MPNet's own constant: distances beyond it share a bucket.
_MAX_DISTANCE = 128


def build_graph(
    arch: Architecture, weights: Mapping[str, NDArray[np.float32]], pooling: str, normalise: bool
) -> tuple[bytes, dict[str, NDArray[np.float32]]]:
    """Write the encoder as an ONNX model, and its large constants beside it, by name.

    The model takes ``ids`` (n, length), whole numbers, and ``mask`` (n, length), 1.0 for tokens and 0.0 for padding. It
    gives ``embeddings`` (n, width) and ``tokens`` (n, length, width), the last hidden states; those of padding mean
    nothing. Large constants inside the model would be in memory several times.

    All nodes are of the ONNX standard. The fused nodes of onnxruntime (attention, GELU with bias, LayerNorm with
    residual) are not faster: nearly all the time goes into the matrix products.
    """
    try:
        import onnx
    except ImportError:
        raise missing_extra("onnx", "text", "encoding texts") from None
    helper, kinds, info = onnx.helper, onnx.TensorProto, onnx.helper.make_tensor_value_info
    graph = _Graph(onnx, weights)
    states = graph.node("Identity", [_layers(graph, arch)], name="tokens")
    graph.node("Identity", [_pooled(graph, states, pooling, normalise)], name="embeddings")
    texts = ["texts", "length"]
    inputs = [info("ids", kinds.INT64, texts), info("mask", kinds.FLOAT, texts)]
    outputs = [
        info("embeddings", kinds.FLOAT, ["texts", arch.width]),
        info("tokens", kinds.FLOAT, [*texts, arch.width]),
    ]
    constants = [graph.declared(name) for name in graph.constants]
    model = helper.make_model(
        helper.make_graph(graph.nodes, arch.kind, inputs, outputs, constants),
        producer_name="mute",
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR_VERSION,
    )
    return model.SerializeToString(), {name: graph.constants[name] for name in graph.constants if graph.is_large(name)}


class _Graph:
    """Nodes and constants of a graph under construction; values are known by their names."""

    def __init__(self, onnx: Foreign, weights: Mapping[str, NDArray[np.float32]]) -> None:
        self.onnx, self.weights = onnx, weights
        self.nodes: list[Foreign] = []
        self.constants: dict[str, Array] = {}

    def node(self, kind: str, inputs: list[str], name: str = "", **more: Setting) -> str:
        name = name or f"{kind}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, inputs, [name], name, **more))
        return name

    def constant(self, name: str, values: ArrayLike) -> str:
        if name not in self.constants:
            self.constants[name] = np.asarray(values, order="C")
        return name

    def is_large(self, name: str) -> bool:
        return self.constants[name].nbytes > _LARGE

    def declared(self, name: str) -> Foreign:
        """A constant with its values; if it is large, with a note that they are elsewhere."""
        values = self.constants[name]
        if not self.is_large(name):
            return self.onnx.numpy_helper.from_array(values, name)
        kinds = self.onnx.TensorProto
        elsewhere = self.onnx.StringStringEntryProto(key="location", value="weights")
        outside = {"data_location": kinds.EXTERNAL, "external_data": [elsewhere]}
        return kinds(name=name, data_type=kinds.FLOAT, dims=values.shape, **outside)

    def number(self, value: float) -> str:
        return self.constant(f"number_{value}", np.float32(value))

    def whole(self, *values: int) -> str:
        return self.constant(f"whole_{values}", np.array(values, np.int64))

    def linear(self, x: str, name: str, scale: float = 1.0) -> str:
        weight = self.constant(f"{name}.weight", np.float32(scale) * self.weights[f"{name}.weight"].T)
        bias = self.constant(f"{name}.bias", np.float32(scale) * self.weights[f"{name}.bias"])
        return self.node("Add", [self.node("MatMul", [x, weight]), bias])

    def layer_norm(self, x: str, name: str, epsilon: float) -> str:
        parts = [self.constant(f"{name}.{part}", self.weights[f"{name}.{part}"]) for part in ("weight", "bias")]
        return self.node("LayerNormalization", [x, *parts], axis=-1, epsilon=epsilon)

    def gelu(self, x: str) -> str:
        bell = self.node("Erf", [self.node("Div", [x, self.number(math.sqrt(2.0))])])
        return self.node("Mul", [self.node("Mul", [x, self.node("Add", [bell, self.number(1.0)])]), self.number(0.5)])


def _layers(graph: _Graph, arch: Architecture) -> str:
    """The last hidden states, (n, length, width)."""
    query, key, value, output, norm = KINDS[arch.kind]
    x = graph.layer_norm(_embedded(graph, arch), "embeddings.LayerNorm", arch.epsilon)
    bias = _attention_bias(graph, arch)
    apart = graph.whole(0, 0, arch.heads, arch.width // arch.heads)
    for layer in range(arch.depth):
        at = f"encoder.layer.{layer}."
        # The scores are divided by the root of a head's size; with the queries' weights divided, that costs nothing.
        q = graph.linear(x, at + query, scale=math.sqrt(arch.heads / arch.width))
        k, v = (graph.linear(x, at + part) for part in (key, value))
        q, k, v = (
            graph.node("Transpose", [graph.node("Reshape", [part, apart])], perm=perm)
            for part, perm in ((q, [0, 2, 1, 3]), (k, [0, 2, 3, 1]), (v, [0, 2, 1, 3]))
        )
        attention = graph.node("Softmax", [graph.node("Add", [graph.node("MatMul", [q, k]), bias])], axis=-1)
        heads = graph.node("Transpose", [graph.node("MatMul", [attention, v])], perm=[0, 2, 1, 3])
        mixed = graph.linear(graph.node("Reshape", [heads, graph.whole(0, 0, arch.width)]), at + output)
        x = graph.layer_norm(graph.node("Add", [mixed, x]), at + norm, arch.epsilon)
        inner = graph.gelu(graph.linear(x, at + "intermediate.dense"))
        x = graph.node("Add", [graph.linear(inner, at + "output.dense"), x])
        x = graph.layer_norm(x, at + "output.LayerNorm", arch.epsilon)
    return x


def _length(graph: _Graph) -> str:
    return graph.node("Shape", ["ids"], start=1, end=2)


def _embedded(graph: _Graph, arch: Architecture) -> str:
    """Words, positions and (BERT) the first token type, added up."""
    words = graph.constant("words", graph.weights["embeddings.word_embeddings.weight"])
    places = graph.weights["embeddings.position_embeddings.weight"]
    x = graph.node("Gather", [words, "ids"])
    if arch.kind == "bert":
        table = graph.constant("places", places + graph.weights["embeddings.token_type_embeddings.weight"][0])
        return graph.node("Add", [x, graph.node("Slice", [table, graph.whole(0), _length(graph), graph.whole(0)])])
    # MPNet: padding has the position of the padding token, and the others are counted from the one after it.
    padding = graph.constant("padding", np.array(arch.padding, np.int64))
    padded = graph.node("Equal", ["ids", padding])
    real = graph.node("Cast", [graph.node("Not", [padded])], to=graph.onnx.TensorProto.INT64)
    counted = graph.node("Mul", [graph.node("CumSum", [real, graph.constant("axis", np.array(1, np.int64))]), real])
    at = graph.node("Add", [counted, padding])
    return graph.node("Add", [x, graph.node("Gather", [graph.constant("places", places), at])])


def _attention_bias(graph: _Graph, arch: Architecture) -> str:
    """What is added to the scores: nothing for tokens, `_MASKED` for padding, and MPNet's bias by distance."""
    padded = graph.node("Sub", [graph.number(1.0), "mask"])
    bias = graph.node("Mul", [padded, graph.number(_MASKED)])
    bias = graph.node("Unsqueeze", [bias, graph.whole(1, 2)])
    if arch.kind == "bert":
        return bias
    longest = arch.max_tokens
    buckets = _buckets(np.arange(1 - longest, longest), arch.buckets)
    table = graph.constant("distances", graph.weights["encoder.relative_attention_bias.weight"][buckets])
    zero, one = (graph.constant(f"step_{i}", np.array(i, np.int64)) for i in (0, 1))
    length = graph.node("Squeeze", [_length(graph)])
    places = graph.node("Range", [zero, length, one])
    columns, rows = (graph.node("Unsqueeze", [places, graph.whole(axis)]) for axis in (0, 1))
    index = graph.node("Add", [graph.node("Sub", [columns, rows]), graph.constant("middle", np.int64(longest - 1))])
    by_distance = graph.node("Transpose", [graph.node("Gather", [table, index])], perm=[2, 0, 1])
    return graph.node("Add", [by_distance, bias])


def _buckets(distance: NDArray[np.int64], n_buckets: int) -> NDArray[np.int64]:
    """The bucket of each distance (key minus query): near ones apart, far ones together, one half for each direction.

    In single precision, as when the weights were trained: at a border of two buckets, more digits choose the other one.
    """
    half = n_buckets // 2
    near = half // 2
    n = np.abs(distance)
    ratio = np.log(np.maximum(n, 1).astype(np.float32) / np.float32(near)) / np.float32(math.log(_MAX_DISTANCE / near))
    far = np.minimum(near + (ratio * np.float32(half - near)).astype(np.int64), half - 1)
    return np.where(n < near, n, far) + np.where(distance > 0, half, 0)


def _pooled(graph: _Graph, x: str, pooling: str, normalise: bool) -> str:
    if pooling == "cls":
        pooled = graph.node("Gather", [x, graph.constant("step_0", np.array(0, np.int64))], axis=1)
    else:
        mask = graph.node("Unsqueeze", ["mask", graph.whole(2)])
        total = graph.node("ReduceSum", [graph.node("Mul", [x, mask]), graph.whole(1)], keepdims=0)
        count = graph.node("ReduceSum", [mask, graph.whole(1)], keepdims=0)
        pooled = graph.node("Div", [total, graph.node("Max", [count, graph.number(1.0)])])
    if not normalise:
        return pooled
    length = graph.node("ReduceL2", [pooled], axes=[1], keepdims=1)
    return graph.node("Div", [pooled, graph.node("Max", [length, graph.number(1e-12)])])
