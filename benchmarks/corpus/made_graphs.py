"""Small graphs of what exporters write and static graphs lack: control flow, data-dependent shapes, odd types."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

from corpus.entry import Draw, below, filled, normal
from corpus.made import Made

Inputs = dict[str, Draw | np.ndarray]
HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
SIZE = 64

CONTROL = {
    "if-input": """agraph (bool c, float[1,64] x, float[64,64] w) => (float[1,64] y) {
        y = If (c) <then_branch = g1 () => (float[1,64] a) { h = MatMul(x, w) a = Relu(h) },
                    else_branch = g2 () => (float[1,64] b) { k = MatMul(x, w) b = Tanh(k) }> }""",
    "if-constant": """agraph (float[1,64] x, float[64,64] w) => (float[1,64] y) <bool c = {1}> {
        y = If (c) <then_branch = g1 () => (float[1,64] a) { h = MatMul(x, w) a = Relu(h) },
                    else_branch = g2 () => (float[2,64] b) { b = Concat<axis = 0>(x, x) }> }""",
    "if-ranks-differ": """agraph (float[1,1,N] x) => (y) <int64 one = {1}, int64[1] at = {1}> {
        s = Shape(x) d = Gather(s, one) c = Equal(d, one)
        y = If (c) <then_branch = g1 () => (a) { a = Squeeze(x, at) },
                    else_branch = g2 () => (b) { b = Identity(x) }> }""",
    "loop-count": """agraph (int64 n, float[1,64] x, float[64,64] w) => (float[1,64] y) <bool t = {1}> {
        y = Loop (n, t, x) <body = g (int64 i, bool c, float[1,64] v) => (bool k, float[1,64] u) {
            h = MatMul(v, w) u = Tanh(h) k = Identity(c) }> }""",
    "loop-until": """agraph (float[1,64] x, float[64,64] w) => (float[1,64] y, float[N,1,64] all)
        <bool t = {1}, float limit = {0.5}, int64 most = {20}> {
        y, all = Loop (most, t, x) <body = g (int64 i, bool c, float[1,64] v)
            => (bool k, float[1,64] u, float[1,64] o) {
            h = MatMul(v, w) u = Tanh(h) o = Identity(u) m = ReduceMax<keepdims = 0>(u) k = Greater(m, limit) }> }""",
    "scan": """agraph (float[1,64] h0, float[20,1,64] xs, float[64,64] w) => (float[1,64] h, float[20,1,64] ys) {
        h, ys = Scan (h0, xs) <num_scan_inputs = 1, body = g (float[1,64] s, float[1,64] x)
            => (float[1,64] u, float[1,64] o) { p = MatMul(s, w) q = Add(p, x) u = Tanh(q) o = Identity(u) }> }""",
    "sequence": """agraph (int64 n, float[1,64] x, float[64,64] w) => (float[L,64] y) <bool t = {1}> {
        e = SequenceEmpty<dtype = 1>()
        l, seq = Loop (n, t, x, e) <body = g (int64 i, bool c, float[1,64] v, seq(float[1,64]) q)
            => (bool k, float[1,64] u, seq(float[1,64]) r) {
            h = MatMul(v, w) u = Tanh(h) r = SequenceInsert(q, u) k = Identity(c) }>
        y = ConcatFromSequence<axis = 0>(seq) }""",
    "sequence-output": """agraph (float[6,64] x) => (seq(float[2,64]) y) <int64 two = {2}> {
        r = Relu(x) y = SplitToSequence<axis = 0>(r, two) }""",
}
DATA = {
    "nonzero": """agraph (float[1,64] x, float[64,64] w) => (float[N] y) <int64[1] flat = {-1}, float zero = {0}> {
        h = MatMul(x, w) r = Relu(h) f = Reshape(r, flat) m = Greater(f, zero) y = Compress(f, m) }""",
    "topk-computed": """agraph (float[4,64] x, float[64,64] w) => (float[4,K] v, int64[4,K] i)
        <int64[1] two = {2}, int64[1] at = {1}> {
        h = MatMul(x, w) s = Shape(h) d = Gather(s, at) k = Div(d, two) v, i = TopK(h, k) }""",
    "topk-input": """agraph (float[4,64] x, int64[1] k) => (float[4,K] v, int64[4,K] i) {
        h = Softmax(x) v, i = TopK(h, k) }""",
    "range": """agraph (float[1,L,64] x, float[64,64] w) => (float[1,L,64] y) <int64 one = {1}, int64 zero = {0}> {
        s = Shape(x) n = Gather(s, one) r = Range(zero, n, one) f = Cast<to = 1>(r) u = Unsqueeze(f, axis)
        h = MatMul(x, w) y = Add(h, u) axis = Constant<value_ints = [0, 2]>() }""",
    "where-reshape": """agraph (float[2,8,64] x, int64[3] s) => (float[A,B,C] y)
        <int64[3] own = {2, 64, 8}, int64 none = {0}> {
        p = Greater(s, none) t = Where(p, s, own) r = Relu(x) y = Reshape(r, t) }""",
    "expand-input": """agraph (float[1,64] x, int64[2] s) => (float[A,B] y) { r = Sigmoid(x) y = Expand(r, s) }""",
    "unique": """agraph (float[32] x) => (float[N] y) { r = Round(x) y = Unique<sorted = 1>(r) }""",
    "zero-rows": """agraph (float[1,P,64] past, float[1,4,64] x) => (float[1,T,64] y) {
        r = Relu(x) y = Concat<axis = 1>(past, r) }""",
    "ragged-pad": """agraph (float[1,8,L] x, int64[6] p) => (float[1,8,M] y) { t = Tanh(x) y = Pad(t, p) }""",
}
BORDERS = {
    "pass-through": """agraph (float[4,64] x, float[4,64] unused) => (float[4,64] x, float[4,64] y) {
        y = Relu(x) }""",
    "constant-output": """agraph (float[4,64] x) => (float[4,64] y, float[2] c) <float[2] k = {1, 2}> {
        y = Relu(x) c = Identity(k) }""",
    "scalar": """agraph (float x) => (float y) { e = Exp(x) y = Add(e, x) }""",
    "bool-int-outputs": """agraph (float[4,64] x) => (bool[4,64] m, int64[4,1] i, int32[4,64] z, uint8[4,64] b)
        <float t = {0}> {
        r = Relu(x) m = Greater(r, t) i = ArgMax<axis = 1>(r) z = Cast<to = 6>(r) b = Cast<to = 2>(r) }""",
    "int-inputs": """agraph (int8[4,64] a, uint16[4,64] b, int64[4,64] c) => (float[4,64] y) {
        p = Cast<to = 1>(a) q = Cast<to = 1>(b) r = Cast<to = 1>(c) s = Add(p, q) y = Mul(s, r) }""",
    "odd:names/of a.tensor": """agraph (float[4,64] x) => (float[4,64] y) { h = Relu(x) y = Exp(h) }""",
    "einsum": """agraph (float[2,8,32,64] q, float[2,8,32,64] k) => (float[2,8,32,32] y) {
        s = Einsum<equation = "bhid,bhjd->bhij">(q, k) y = Softmax(s) }""",
}
STRINGS = {
    "string-normalizer": """agraph (string[3] x) => (string[N] y) {
        y = StringNormalizer<case_change_action = "UPPER", locale = "C",
            stopwords = ["monday"], is_case_sensitive = 0>(x) }""",
    "label-encoder": """agraph (string[3] x) => (float[3] y) {
        l = ai.onnx.ml.LabelEncoder<keys_strings = ["a", "b", "monday"],
            values_floats = [1.0, 2.0, 3.0], default_float = 0.0>(x)
        y = Sqrt(l) }""",
    "tfidf": """agraph (string[3] x) => (float[3] y) {
        t = TfIdfVectorizer<mode = "TF", min_gram_length = 1, max_gram_length = 1, max_skip_count = 0,
            ngram_counts = [0], ngram_indexes = [0, 1, 2], pool_strings = ["a", "b", "monday"]>(x)
        y = Softmax(t) }""",
}


def models() -> Iterator[Made]:
    """Every graph of this module."""
    while_inputs: Inputs = {"w": normal(SIZE, SIZE), "c": filled(1), "n": filled(5), "xs": normal(20, 1, SIZE)}
    sizes: dict[str, Inputs] = {
        "if-ranks-differ": {"x": normal(1, 1, SIZE)},
        "topk-input": {"k": filled(3, 1)},
        "range": {"x": normal(1, 12, SIZE), **while_inputs},
        "where-reshape": {"s": np.array([2, 0, 8], np.int64)},
        "expand-input": {"s": np.array([3, SIZE], np.int64)},
        "zero-rows": {"past": normal(1, 0, SIZE)},
        "ragged-pad": {"x": normal(1, 8, 30), "p": np.array([0, 0, 1, 0, 0, 2], np.int64)},
        "int-inputs": {"a": below(100, 4, SIZE), "b": below(100, 4, SIZE), "c": below(100, 4, SIZE)},
    }
    for kind, texts in (("control", CONTROL), ("data", DATA), ("border", BORDERS)):
        for name, text in texts.items():
            inputs = sizes.get(name, while_inputs)
            yield Made(f"{kind}-{_safe(name)}", "onnx.parser", _parsed(text), inputs)
    words = np.array(["a", "monday", "z"], dtype=object)
    for name, text in STRINGS.items():
        head = '<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]>'
        yield Made(f"string-{name}", "onnx.parser", _parsed(text, head), {"x": words})
    yield from _typed()


def _safe(name: str) -> str:
    return name.replace(":", "-").replace("/", "-").replace(" ", "-")


def _parsed(text: str, head: str = HEAD) -> Callable[[Path], None]:
    def save(path: Path) -> None:
        model = parser.parse_model(head + text)
        if "odd" in path.name:
            _odd_names(model)
        onnx.save(model, path)

    return save


def _odd_names(model: onnx.ModelProto) -> None:
    """Names as converters write them, with colons, slashes and spaces."""
    names = {"x": "serving_default_x:0", "h": "block 1/relu", "y": "StatefulPartitionedCall:0"}
    for node in model.graph.node:
        node.name = f"model/{node.op_type} of:{node.output[0]}"
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    for value in (*model.graph.input, *model.graph.output):
        value.name = names[value.name]


def _typed() -> Iterator[Made]:
    """One network in every type that ONNX Runtime computes in, or stores weights in."""
    for name, kind in (("float64", TensorProto.DOUBLE), ("float16", TensorProto.FLOAT16)):
        yield Made(f"type-{name}", "onnx.helper", _mlp(kind, kind), {})
    for name, kind in (("bfloat16", TensorProto.BFLOAT16), ("float16", TensorProto.FLOAT16)):
        yield Made(f"type-{name}-weights", "onnx.helper", _mlp(TensorProto.FLOAT, kind), {})
    yield Made("type-bfloat16-borders", "onnx.helper", _bfloat16_borders, {"x": _bfloat16((4, SIZE))})
    yield Made("old-opset7-ir3", "onnx.helper", _mlp(TensorProto.FLOAT, TensorProto.FLOAT, 7, 3), {})
    yield Made("old-opset8-ir3", "onnx.helper", _mlp(TensorProto.FLOAT, TensorProto.FLOAT, 8, 3), {})


def _bfloat16(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(ml_dtypes.bfloat16)


def _mlp(border: int, stored: int, opset: int = 17, ir: int = 8) -> Callable[[Path], None]:
    """Three layers that compute in ``border``, with weights stored in ``stored`` and cast where that differs."""

    def save(path: Path) -> None:
        rng = np.random.default_rng(0)
        nodes, weights, value = [], [], "x"
        for layer in range(3):
            name = f"w{layer}"
            array = rng.standard_normal((SIZE, SIZE)) / np.sqrt(SIZE)
            weights.append(numpy_helper.from_array(array.astype(helper.tensor_dtype_to_np_dtype(stored)), name))
            if stored != border:
                nodes.append(helper.make_node("Cast", [name], [f"c{layer}"], to=border))
                name = f"c{layer}"
            nodes.append(helper.make_node("MatMul", [value, name], [f"m{layer}"]))
            value = "y" if layer == 2 else f"h{layer}"
            nodes.append(helper.make_node("Relu", [f"m{layer}"], [value]))
        inputs = [helper.make_tensor_value_info("x", border, [4, SIZE])]
        if ir < 4:  # then initializers stand among the inputs
            inputs += [helper.make_tensor_value_info(w.name, w.data_type, w.dims) for w in weights]
        graph = helper.make_graph(
            nodes, "mlp", inputs, [helper.make_tensor_value_info("y", border, [4, SIZE])], weights
        )
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir), path)

    return save


def _bfloat16_borders(path: Path) -> None:
    kind = TensorProto.BFLOAT16
    nodes = [
        helper.make_node("Cast", ["x"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Softmax", ["f"], ["s"]),
        helper.make_node("Cast", ["s"], ["y"], to=kind),
    ]
    inputs, outputs = ([helper.make_tensor_value_info(name, kind, [4, SIZE])] for name in "xy")
    graph = helper.make_graph(nodes, "bfloat16", inputs, outputs)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
