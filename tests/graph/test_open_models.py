"""Models whose sizes coincide at all samples and differ elsewhere: an open graph gives the right numbers at any."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from collage_evo.errors import InputError
from collage_evo.graph.convert.extract import extract
from collage_evo.graph.ir.graph import Graph, NodeSet
from collage_evo.graph.load.load import ModelFile
from collage_evo.graph.prepare import prepare_model, searchable
from collage_evo.graph.reference.reference import Reference
from collage_evo.models.builder import Builder

SEEN = (5, 12, 7)
"""Lengths of the samples."""
OTHERS = ((1, 1), (1, 2), (1, 4), (1, 8), (1, 13), (1, 40), (1, 100), (2, 3), (3, 7), (4, 1))
"""Batch and length of inputs that no sample has."""
Make = Callable[["Net"], str]


class Net(Builder):
    """``x`` float [batch, length, 8]."""

    def __init__(self) -> None:
        super().__init__("net")
        self.rng = np.random.default_rng(3)
        self.x = self.input("x", ("batch", "length", 8))

    def weight(self, *shape: int) -> str:
        return self.const(self.rng.normal(0, 0.4, shape).astype(np.float32))

    def linear(self, x: str, out: int = 8) -> str:
        return self.op("MatMul", x, self.weight(8, out))

    def size(self, x: str, axis: int) -> str:
        """int64 [1]."""
        return self.op("Gather", self.op("Shape", x), self.ints(axis), axis=0)

    def length(self) -> str:
        return self.size(self.x, 1)

    def scalar(self, x: str) -> str:
        return self.op("Squeeze", x, self.ints(0))

    def cut(self, x: str, end: str, axis: int = 1, start: int = 0) -> str:
        return self.op("Slice", x, self.ints(start), end, self.ints(axis))

    def least(self, size: str, most: int) -> str:
        return self.op("Min", size, self.ints(most))


def first_few(net: Net, most: int = 4) -> str:
    """At most so many: as many at each sample's length, fewer at shorter ones."""
    return net.linear(net.cut(net.linear(net.x), net.ints(most)))


def up_to_positions(net: Net) -> str:
    """A limit that no sample reaches."""
    return net.linear(net.cut(net.linear(net.x), net.least(net.length(), 32)))


def shape_of_few(net: Net) -> str:
    """The size of what a limit left, as a value."""
    few = net.cut(net.linear(net.x), net.ints(4))
    return net.op("Div", net.linear(net.x), net.op("Cast", net.size(few, 1), to=TensorProto.FLOAT))


def least_size_as_value(net: Net) -> str:
    """The mean over at most four positions, by the number of these."""
    count = net.op("Cast", net.least(net.length(), 4), to=TensorProto.FLOAT)
    return net.op("Div", net.op("ReduceSum", net.linear(net.x), net.ints(1)), count)


def padded_to_multiple(net: Net) -> str:
    eight = net.ints(16)
    padded = net.op("Mul", net.op("Div", net.op("Add", net.length(), net.ints(15)), eight), eight)
    more = net.op("Sub", padded, net.length())
    pads = net.op("Concat", net.ints(0, 0, 0, 0), more, net.ints(0), axis=0)
    wide = net.linear(net.op("Pad", net.linear(net.x), pads))
    return net.linear(net.op("Reshape", wide, net.ints(0, -1, 16, 8)))


def ceiled(net: Net) -> str:
    """A share of the positions, rounded up."""
    size = net.op("Cast", net.length(), to=TensorProto.FLOAT)
    share = net.op("Ceil", net.op("Mul", size, net.const(np.float32(0.04))))
    return net.linear(net.cut(net.x, net.op("Cast", share, to=TensorProto.INT64)))


def positions(net: Net) -> str:
    """A table of positions, up to the length."""
    table = net.weight(1, 128, 8)
    return net.linear(net.op("Add", net.linear(net.x), net.cut(table, net.length())))


def positions_by_range(net: Net) -> str:
    ids = net.op("Range", net.const(np.int64(0)), net.scalar(net.length()), net.const(np.int64(1)))
    rows = net.op("Gather", net.weight(128, 8), ids, axis=0)
    return net.linear(net.op("Add", net.linear(net.x), rows))


def clamped_distances(net: Net) -> str:
    """Relative positions up to 20."""
    ids = net.op("Range", net.const(np.int64(0)), net.scalar(net.length()), net.const(np.int64(1)))
    apart = net.op("Sub", net.op("Unsqueeze", ids, net.ints(0)), net.op("Unsqueeze", ids, net.ints(1)))
    near = net.op("Add", net.op("Max", net.op("Min", apart, net.ints(20)), net.ints(-20)), net.ints(20))
    bias = net.op("Squeeze", net.op("Gather", net.weight(41, 1), near, axis=0), net.ints(2))
    return net.op("MatMul", bias, net.linear(net.x))


def causal(net: Net) -> str:
    ones = net.op("Concat", net.length(), net.length(), axis=0)
    full = net.op("ConstantOfShape", ones, value=helper.make_tensor("v", TensorProto.FLOAT, [1], [1.0]))
    lower = net.op("Cast", net.op("Trilu", full, upper=0), to=TensorProto.BOOL)
    scores = net.op("MatMul", net.linear(net.x), net.op("Transpose", net.x, perm=[0, 2, 1]))
    masked = net.op("Where", lower, scores, net.const(np.float32(-1e9)))
    return net.op("MatMul", net.op("Softmax", masked, axis=-1), net.linear(net.x))


def sliced_mask(net: Net) -> str:
    """The usual mask of GPT-2, cut from a square of 64."""
    mask = net.cut(net.cut(net.const(np.tril(np.ones((64, 64), bool))), net.length(), 0), net.length(), 1)
    scores = net.op("MatMul", net.linear(net.x), net.op("Transpose", net.x, perm=[0, 2, 1]))
    masked = net.op("Where", mask, scores, net.const(np.float32(-1e9)))
    return net.op("MatMul", net.op("Softmax", masked, axis=-1), net.linear(net.x))


def heads(net: Net) -> str:
    sizes = net.op("Concat", net.size(net.x, 0), net.length(), net.ints(2, 4), axis=0)
    query, key, value = (
        net.op("Transpose", net.op("Reshape", net.linear(net.x), sizes), perm=[0, 2, 1, 3]) for _ in range(3)
    )
    scores = net.op("MatMul", query, net.op("Transpose", key, perm=[0, 1, 3, 2]))
    mixed = net.op("Transpose", net.op("MatMul", net.op("Softmax", scores, axis=-1), value), perm=[0, 2, 1, 3])
    back = net.op("Concat", net.size(net.x, 0), net.length(), net.ints(8), axis=0)
    return net.linear(net.op("Reshape", mixed, back))


def flattened(net: Net) -> str:
    rows = net.op("Mul", net.size(net.x, 0), net.length())
    flat = net.op("Reshape", net.x, net.op("Concat", rows, net.ints(8), axis=0))
    return net.op("Reshape", net.linear(flat), net.op("Shape", net.x))


def expanded(net: Net) -> str:
    row = net.linear(net.op("ReduceMean", net.x, net.ints(1), keepdims=1))
    return net.op("Mul", net.op("Expand", row, net.op("Shape", net.x)), net.linear(net.x))


def tiled(net: Net) -> str:
    times = net.op("Concat", net.ints(1), net.length(), net.ints(1), axis=0)
    return net.op("Add", net.op("Tile", net.op("ReduceMax", net.x, net.ints(1)), times), net.linear(net.x))


def by_branch(net: Net, limit: int = 32) -> str:
    """Another computation from ``limit`` positions on, which no sample has."""
    hidden = net.linear(net.x)
    long = net.op("Greater", net.scalar(net.length()), net.const(np.int64(limit)))
    bodies = {}
    for name, operator in (("then_branch", "Relu"), ("else_branch", "Neg")):
        made = helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)
        bodies[name] = helper.make_graph([helper.make_node(operator, [hidden], [f"{name}_y"])], name, [], [made])
    return net.linear(net.op("If", long, **bodies))


def by_shorter_branch(net: Net) -> str:
    """A branch whose result has another length."""
    hidden = net.linear(net.x)
    long = net.op("Greater", net.scalar(net.length()), net.const(np.int64(32)))
    few = net.ints(0), net.ints(32), net.ints(1)
    nodes = {"then_branch": helper.make_node("Slice", [hidden, *few], ["cut"]),
             "else_branch": helper.make_node("Identity", [hidden], ["all"])}
    bodies = {
        name: helper.make_graph(
            [node], name, [], [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None)]
        )
        for name, node in nodes.items()
    }
    return net.linear(net.op("If", long, **bodies))


def chosen(net: Net) -> str:
    """Where in place of a branch: a scale from a size."""
    long = net.op("Greater", net.length(), net.ints(32))
    return net.op("Mul", net.linear(net.x), net.op("Where", long, net.weight(1), net.weight(1)))


def nonzero(net: Net) -> str:
    """As many rows as are positive."""
    sums = net.op("ReduceSum", net.x, net.ints(0, 2), keepdims=0)
    found = net.op("Squeeze", net.op("NonZero", net.op("Greater", sums, net.const(np.float32(0)))), net.ints(0))
    return net.linear(net.op("Gather", net.linear(net.x), found, axis=1))


def compressed(net: Net) -> str:
    keep = net.op("Greater", net.op("ReduceSum", net.x, net.ints(0, 2), keepdims=0), net.const(np.float32(0)))
    return net.linear(net.op("Compress", net.linear(net.x), keep, axis=1))


def best(net: Net) -> str:
    """The best four, or all if there are fewer."""
    scores = net.op("ReduceSum", net.linear(net.x), net.ints(2), keepdims=0)
    values, _ = net.ops("TopK", scores, net.least(net.length(), 4), outputs=2, axis=1)
    return net.op("MatMul", net.op("Unsqueeze", values, net.ints(2)), net.weight(1, 8))


def halves(net: Net) -> str:
    half = net.op("Div", net.length(), net.ints(2))
    sizes = net.op("Concat", half, net.op("Sub", net.length(), half), axis=0)
    front, back = net.ops("Split", net.linear(net.x), sizes, outputs=2, axis=1)
    return net.linear(net.op("Concat", net.linear(back), front, axis=1))


def resized(net: Net) -> str:
    """Twice as long, by sizes."""
    image = net.op("Unsqueeze", net.linear(net.x), net.ints(1))
    sizes = net.op(
        "Concat", net.size(net.x, 0), net.ints(1), net.op("Mul", net.length(), net.ints(2)), net.ints(8), axis=0
    )
    return net.linear(net.op("Resize", image, "", "", sizes, mode="linear"))


def resized_to_most(net: Net) -> str:
    image = net.op("Unsqueeze", net.linear(net.x), net.ints(1))
    sizes = net.op(
        "Concat", net.size(net.x, 0), net.ints(1), net.op("Max", net.length(), net.ints(16)), net.ints(8), axis=0
    )
    return net.linear(net.op("Resize", image, "", "", sizes, mode="nearest"))


def normalised(net: Net) -> str:
    rows = net.op("Transpose", net.linear(net.x), perm=[0, 2, 1])
    y = net.op("InstanceNormalization", rows, net.weight(8), net.weight(8))
    return net.linear(net.op("Transpose", y, perm=[0, 2, 1]))


def recurrent(net: Net) -> str:
    """A GRU whose sequences end at most at four."""
    steps = net.op("Transpose", net.linear(net.x), perm=[1, 0, 2])
    lengths = net.op("Expand", net.op("Cast", net.least(net.length(), 4), to=TensorProto.INT32), net.size(net.x, 0))
    y, _ = net.ops(
        "GRU", steps, net.weight(1, 12, 8), net.weight(1, 12, 4), "", lengths, outputs=2, hidden_size=4
    )
    return net.op("Transpose", net.op("Squeeze", y, net.ints(1)), perm=[1, 0, 2])


def summed(net: Net) -> str:
    """A Loop as often as there are positions."""
    body = helper.make_graph(
        [
            helper.make_node("Gather", ["hidden", "i"], ["row"], axis=1),
            helper.make_node("Add", ["before", "row"], ["after"]),
            helper.make_node("Identity", ["on"], ["on_out"]),
            helper.make_node("Identity", ["after"], ["state"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("before", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("on_out", TensorProto.BOOL, []),
            helper.make_tensor_value_info("after", TensorProto.FLOAT, None),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, None),
        ],
    )
    hidden = net.op("Identity", net.linear(net.x), output="hidden")
    start = net.op("ReduceMean", hidden, net.ints(1), keepdims=0)
    _, states = net.ops(
        "Loop", net.scalar(net.length()), net.const(np.array(True)), start, outputs=2, body=body
    )
    return net.linear(states)


def joined(net: Net) -> str:
    """A token before all others, and sizes of the sum."""
    token = net.op("Expand", net.weight(1, 1, 8), net.op("Concat", net.size(net.x, 0), net.ints(1, 8), axis=0))
    every = net.op("Concat", token, net.x, axis=1)
    count = net.op("Cast", net.size(every, 1), to=TensorProto.FLOAT)
    return net.op("Div", net.linear(every), net.op("Sqrt", count))


def strided(net: Net) -> str:
    """Pooled lengths that coincide: (length + 40) / 64 is 0 for all samples."""
    rows = net.op("Transpose", net.linear(net.x), perm=[0, 2, 1])
    pooled = net.op("MaxPool", rows, kernel_shape=[40], strides=[40], pads=[39, 39])
    share = net.op("Cast", net.size(pooled, 2), to=TensorProto.FLOAT)
    return net.op("Div", net.op("Transpose", pooled, perm=[0, 2, 1]), share)


def last(net: Net) -> str:
    """The last position by its number."""
    return net.linear(net.op("Gather", net.linear(net.x), net.op("Sub", net.length(), net.ints(1)), axis=1))


def window(net: Net) -> str:
    """The last four: from a start that is at least 0."""
    start = net.op("Max", net.op("Sub", net.length(), net.ints(4)), net.ints(0))
    return net.linear(net.op("Slice", net.linear(net.x), start, net.length(), net.ints(1)))


def scaled_by_logarithm(net: Net) -> str:
    """A scale that is 1 up to 32 positions, as that of long contexts."""
    size = net.op("Cast", net.length(), to=TensorProto.FLOAT)
    ratio = net.op("Div", net.op("Log", size), net.const(np.float32(np.log(32))))
    return net.op("Mul", net.linear(net.x), net.op("Max", ratio, net.const(np.float32(1))))


def batch_in_rows(net: Net) -> str:
    """Sizes that depend on batch times length, with one that is inferred."""
    rows = net.linear(net.op("Reshape", net.x, net.ints(-1, 8)))
    return net.op("Reshape", rows, net.op("Concat", net.size(net.x, 0), net.ints(-1, 8), axis=0))


def first_of_batch(net: Net) -> str:
    """At most two of a batch."""
    return net.linear(net.cut(net.linear(net.x), net.ints(2), 0))


def squeezed(net: Net) -> str:
    """A limit of one: Squeeze holds where there is one."""
    return net.linear(net.op("Squeeze", net.cut(net.linear(net.x), net.ints(1)), net.ints(1)))


def squeezed_by_size(net: Net) -> str:
    """Squeeze without axes: at a length of one there is an axis less."""
    return net.op("ReduceSum", net.op("Squeeze", net.op("ReduceSum", net.linear(net.x), net.ints(2))), net.ints(0))


def whole_output(net: Net) -> str:
    """Whole numbers of a size as the output."""
    few = net.op("Mul", net.least(net.length(), 4), net.ints(10))
    return net.op("Add", few, net.op("Mod", net.length(), net.ints(64)))


def even(net: Net) -> str:
    """Without the last position if their number is odd: pairs."""
    half = net.op("Div", net.length(), net.ints(2))
    pairs = net.cut(net.linear(net.x), net.op("Mul", half, net.ints(2)))
    sizes = net.op("Concat", net.size(net.x, 0), half, net.ints(16), axis=0)
    return net.op("MatMul", net.op("Reshape", pairs, sizes), net.weight(16, 8))


def nothing_left(net: Net) -> str:
    """What lies beyond 20 positions: nothing in any sample."""
    rest = net.op("Slice", net.linear(net.x), net.ints(20), net.ints(1 << 40), net.ints(1))
    return net.op("Add", net.op("ReduceSum", rest, net.ints(1)), net.linear(net.x))


def scanned(net: Net) -> str:
    """Running sums of at most four positions."""
    row = helper.make_tensor_value_info("row", TensorProto.FLOAT, None)
    before, after, out = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("before", "after", "out")
    )
    nodes = [helper.make_node("Add", ["before", "row"], ["after"]), helper.make_node("Identity", ["after"], ["out"])]
    body = helper.make_graph(nodes, "body", [before, row], [after, out])
    steps = net.op("Transpose", net.cut(net.linear(net.x), net.ints(4)), perm=[1, 0, 2])
    start = net.op("ReduceMean", net.x, net.ints(1), keepdims=0)
    last_state, _ = net.ops("Scan", start, steps, outputs=2, body=body, num_scan_inputs=1)
    return net.linear(last_state)


def image(net: Net) -> str:
    """Convolutions and pools over the length, resized back to it."""
    square = net.op("Unsqueeze", net.x, net.ints(1))
    deep = net.op("Relu", net.op("Conv", square, net.weight(4, 1, 3, 3), pads=[1] * 4, strides=[2, 2]))
    deep = net.op("Conv", deep, net.weight(4, 4, 3, 3), pads=[1] * 4, strides=[2, 2])
    sizes = net.op("Concat", net.size(net.x, 0), net.ints(4), net.length(), net.ints(8), axis=0)
    return net.op("Resize", deep, "", "", sizes, mode="linear", coordinate_transformation_mode="half_pixel")


def counted(net: Net) -> str:
    """A size in whole numbers: how many windows of 32 there are, and a table of these."""
    count = net.op("Add", net.op("Div", net.op("Sub", net.length(), net.ints(1)), net.ints(32)), net.ints(1))
    row = net.op("Gather", net.weight(8, 8), count, axis=0)
    return net.op("Add", net.linear(net.x), row)


def normalised_rows(net: Net) -> str:
    """Layer normalisation over what a limit left."""
    few = net.op("Transpose", net.cut(net.linear(net.x), net.ints(4)), perm=[0, 2, 1])
    apart = net.op("Sub", few, net.op("ReduceMean", few, net.ints(-1)))
    spread = net.op("ReduceMean", net.op("Mul", apart, apart), net.ints(-1))
    return net.op("Div", apart, net.op("Sqrt", net.op("Add", spread, net.const(np.float32(1e-5)))))


def with_nothing(net: Net) -> str:
    """Pads that are zero for all samples."""
    more = net.op("Max", net.op("Sub", net.length(), net.ints(32)), net.ints(0))
    return net.linear(net.op("Pad", net.x, net.op("Concat", net.ints(0, 0, 0, 0), more, net.ints(0), axis=0)))


def one_hot(net: Net) -> str:
    """As many classes as positions, at most four."""
    ids = net.op("ArgMax", net.cut(net.x, net.ints(4)), axis=1, keepdims=0)
    depth, values = net.scalar(net.least(net.length(), 4)), net.const(np.array([0, 1], np.float32))
    return net.op("ReduceSum", net.op("OneHot", ids, depth, values, axis=1), net.ints(2))


MODELS: Mapping[str, Make] = {
    make.__name__: make
    for make in (
        first_few, up_to_positions, shape_of_few, least_size_as_value, padded_to_multiple, ceiled, positions,
        positions_by_range, clamped_distances, causal, sliced_mask, heads, flattened, expanded, tiled, by_branch,
        by_shorter_branch, chosen, nonzero, compressed, best, halves, resized, resized_to_most, normalised, recurrent,
        summed, joined, strided, last, window, scaled_by_logarithm, batch_in_rows, first_of_batch, squeezed,
        squeezed_by_size, whole_output, even, nothing_left, scanned, image, counted, normalised_rows, with_nothing,
        one_hot,
    )
}


def feeds(batch: int, length: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(length).standard_normal((batch, length, 8)).astype(np.float32)}


class Pieces:
    """``graph`` cut into ``pieces``, as ONNX Runtime runs them."""

    def __init__(self, graph: Graph, pieces: Sequence[NodeSet]) -> None:
        options = ort.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 4, 1
        self._graph = graph
        self._loaded = [
            (graph.boundary(nodes), ort.InferenceSession(extract(graph, nodes).SerializeToString(), options))
            for nodes in pieces
        ]

    def run(self, given: Mapping[str, np.ndarray]) -> np.ndarray:
        """The first output; each tensor has the sizes that its memory would have."""
        values = dict(given)
        for (read, made), session in self._loaded:
            inputs = {value.name: values[name] for value, name in zip(session.get_inputs(), read, strict=True)}
            values |= dict(zip(made, session.run(None, inputs), strict=True))
            for name in made:
                sizes, real = self._graph.tensors[name].opened.shape, values[name].shape
                if max(sizes, default=-1) >= 0:  # one that is declared with no size has no memory of its own
                    assert len(real) == len(sizes), (name, sizes, real)
                    fits = all(size in (-1, found) for size, found in zip(sizes, real, strict=True))
                    assert fits, (name, sizes, real)
        return values[self._graph.outputs[0]]


@pytest.mark.parametrize("name", MODELS)
def test_other_shapes_give_the_right_numbers(name: str, tmp_path: Path) -> None:
    net = Net()
    model = net.model(net.op("Identity", MODELS[name](net), output="y"))
    onnx.save(model, tmp_path / "m.onnx")
    samples = [feeds(1, length) for length in SEEN]
    graph = searchable(prepare_model(ModelFile(str(tmp_path / "m.onnx")), {}, 1, 1, samples, is_open=True), 1).graph
    reference = Reference(model, 1)
    whole, single = Pieces(graph, [graph.all_nodes]), Pieces(graph, [1 << node.index for node in graph.nodes])
    ran = 0
    for shape in OTHERS:
        try:
            (expected,) = reference.run(feeds(*shape))
        except InputError:
            continue  # the model itself takes no such shape
        ran += 1
        for pieces in (whole, single):
            found = pieces.run(feeds(*shape))
            assert found.shape == expected.shape, shape
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5, err_msg=str(shape))
    assert ran >= 5


def test_sizes_of_one_name_may_differ(tmp_path: Path) -> None:
    b = Builder("names")
    x, y = (b.input(name, ("batch", "length", 8)) for name in "xy")
    model = b.model(b.op("ReduceSum", b.op("Expand", y, b.op("Shape", x)), b.ints(0, 1)))
    onnx.save(model, tmp_path / "m.onnx")
    samples = [{"x": feeds(1, length)["x"], "y": feeds(1, length)["x"]} for length in SEEN]
    graph = searchable(prepare_model(ModelFile(str(tmp_path / "m.onnx")), {}, 1, 1, samples, is_open=True), 1).graph
    given = {"x": feeds(3, 5)["x"], "y": feeds(1, 5)["x"]}
    (expected,) = Reference(model, 1).run(given)
    np.testing.assert_allclose(Pieces(graph, [graph.all_nodes]).run(given), expected, rtol=1e-4)
