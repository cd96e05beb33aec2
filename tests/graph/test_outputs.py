"""Outputs that no node computes come from one that does, whoever else reads them."""

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from collage_evo.graph.outputs import computed_outputs


def test_a_constant_that_is_an_output_is_still_read_by_nodes_and_by_the_bodies_of_branches() -> None:
    value = np.arange(3, dtype=np.float32)
    taken = np.full(3, 7, np.float32)
    made = helper.make_tensor_value_info("b", TensorProto.FLOAT, [3])
    body = helper.make_graph([helper.make_node("Neg", ["c"], ["b"])], "body", [], [made])
    nodes = [
        helper.make_node("If", ["yes"], ["branch"], then_branch=body, else_branch=body),
        helper.make_node("Add", ["branch", "c"], ["sum"]),
        helper.make_node("Add", ["sum", "c_constant"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("yes", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in ("y", "c")],
        [numpy_helper.from_array(value, "c"), numpy_helper.from_array(taken, "c_constant")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    plain = computed_outputs(model)
    onnx.checker.check_model(plain)
    assert {output.name for output in plain.graph.output} <= {name for n in plain.graph.node for name in n.output}
    session = ort.InferenceSession(plain.SerializeToString(), providers=["CPUExecutionProvider"])
    y, c = session.run(None, {"yes": np.array(True)})
    np.testing.assert_array_equal(y, taken)
    np.testing.assert_array_equal(c, value)
