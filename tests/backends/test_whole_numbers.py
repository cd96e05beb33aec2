"""Whole numbers are exact wherever a library takes them, alone or in a piece, at the top or inside of a body."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from collage_evo.backends.registry import get_backend
from collage_evo.genome.failure import Failed
from collage_evo.graph.check.scopes import operators
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.reference.reference import reference_outputs
from collage_evo.runtime.session import Session
from tests.backends.pieces import TARGET, compiled

pytestmark = pytest.mark.skipif(not get_backend("openvino").probe().available, reason="OpenVINO is not installed")

EDGES = np.array([0, 1, -1, 2**24 - 1, 2**24, 2**24 + 1, -(2**24) - 1, 2**30, 2**31 - 1, -(2**31), 1751063842, -100])
"""Where float32, and where 32 bits, have no next number."""
LARGE = np.array([2**31, -(2**31) - 1, 2**40 + 1, -(2**53), 1751063842000, 2**33 + 5])
BODIES = {
    "add": "y = Add(x, z)",
    "sub": "y = Sub(x, z)",
    "mul": "y = Mul(x, z)",
    "div": "one = Constant<value_int = 7>() y = Div(x, one)",
    "mod": "one = Constant<value_int = 7>() y = Mod(x, one)",
    "max": "y = Max(x, z)",
    "min": "y = Min(x, z)",
    "neg": "y = Neg(x)",
    "abs": "y = Abs(x)",
    "equal": "e = Equal(x, z) y = Cast<to = 7>(e)",
    "less": "e = Less(x, z) y = Cast<to = 7>(e)",
    "greater or equal": "e = GreaterOrEqual(x, z) y = Cast<to = 7>(e)",
    "equal to a label": "c = Constant<value_int = -100>() e = Equal(x, c) y = Cast<to = 7>(e)",
    "equal to an id": "c = Constant<value_int = 1751063842>() e = Equal(x, c) y = Cast<to = 7>(e)",
    "clip": "a = Constant<value_int = -2147483000>() b = Constant<value_int = 2147483000>() y = Clip(x, a, b)",
    "clip to few": "a = Constant<value_int = -1000>() b = Constant<value_int = 1000>() y = Clip(x, a, b)",
    "sum": "axes = Constant<value_ints = [0]>() y = ReduceSum<keepdims = 1>(x, axes)",
    "largest": "y = ReduceMax<axes = [0], keepdims = 1>(x)",
    "mean": "y = ReduceMean<axes = [0], keepdims = 1>(x)",
    "pow": "two = Constant<value_int = 2>() y = Pow(x, two)",
    "relu": "f = Cast<to = 6>(x) r = Max(f, f) y = Cast<to = 7>(r)",
    "cumsum": "axis = Constant<value_int = 0>() y = CumSum(x, axis)",
    "by way of a float": "f = Cast<to = 1>(x) y = Cast<to = 7>(f)",
    "days of milliseconds": "d = Constant<value_int = 86400000>() y = Div(x, d)",
    "sum of products": "m = Mul(x, z) n = Neg(m) y = Add(n, x)",
    "concatenated": "y = Concat<axis = 0>(x, z)",
    "places of a comparison": "e = Less(x, z) y = NonZero(e)",
}


def model_of(body: str, size: int) -> onnx.ModelProto:
    text = f"g (int64[{size}] x, int64[{size}] z) => (y) {{ {body} }}"
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]> {text}')
    model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    return onnx.shape_inference.infer_shapes(model, data_prop=True)


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("numbers", [EDGES, np.concatenate((EDGES, LARGE))], ids=["32 bits", "64 bits"])
def test_openvino_alone_is_exact_or_declines(name: str, numbers: np.ndarray, tmp_path: Path) -> None:
    x, z = np.repeat(numbers, len(numbers)), np.tile(numbers, len(numbers))
    model = model_of(BODIES[name], len(x))
    try:
        program = compiled(model, "openvino", tmp_path)
    except Failed:
        return
    feeds = {"x": x, "z": z}
    read = {one for node in model.graph.node for one in node.input}
    limited = [one for one in feeds if one in read and np.abs(feeds[one] + 0.5).max() > 2**31]
    with Session([program], TARGET) as session:
        if limited:
            with pytest.raises(Exception, match="takes more than the 32 bits"):
                session.run(None, feeds)
            return
        np.testing.assert_array_equal(session.run(None, feeds)[0], reference_outputs(model, feeds)[0])


@pytest.mark.parametrize("name", ["add", "max", "neg", "equal to a label", "clip to few", "concatenated"])
def test_openvino_declines_no_more_than_it_has_to(name: str) -> None:
    backend, graph = get_backend("openvino"), build_graph(model_of(BODIES[name], 4))
    verdicts = [backend.supports_node(graph, node) for node in graph.nodes]
    declined = [verdict.reason for verdict in verdicts if not verdict]
    wide = name in ("add", "neg")  # of two numbers of 32 bits the sum has 33
    assert len(declined) == wide, declined


def test_ids_that_index_a_table_are_small_enough_for_any_operator() -> None:
    text = """g (int64[1, 4] ids) => (float[1, 4, 1] y, bool[1, 4] pad) <float[5, 1] w = {0, 1, 2, 3, 4}> {
        y = Gather(w, ids) one = Constant<value_int = 2>() half = Div(ids, one) pad = Equal(half, ids) }"""
    model = onnx.shape_inference.infer_shapes(
        onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]> {text}')
    )
    backend = get_backend("openvino")
    assert not [reason for graph, node in operators(model) if (reason := backend.known_wrong(graph, node))]
