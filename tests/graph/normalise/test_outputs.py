"""Outputs that no node computes come from one that does, whoever else reads them."""

import numpy as np
import onnx
import onnxruntime as ort

from collage_evo.graph.normalise.outputs import computed_outputs
from tests.support.models import parse_graph


def test_a_constant_output_is_still_read_by_nodes_and_by_the_bodies_of_branches() -> None:
    body = "body () => (float[3] b) { b = Neg(c) }"
    model = parse_graph(f"""g (bool yes) => (float[3] y, float[3] c)
        <float[3] c = {{0, 1, 2}}, float[3] c_constant = {{7, 7, 7}}> {{
            branch = If(yes) <then_branch = {body}, else_branch = {body}>
            sum = Add(branch, c)
            y = Add(sum, c_constant)
        }}""")
    plain = computed_outputs(model)
    onnx.checker.check_model(plain)
    assert {output.name for output in plain.graph.output} <= {name for n in plain.graph.node for name in n.output}
    session = ort.InferenceSession(plain.SerializeToString(), providers=["CPUExecutionProvider"])
    y, c = session.run(None, {"yes": np.array(True)})
    np.testing.assert_array_equal(y, [7, 7, 7])
    np.testing.assert_array_equal(c, [0, 1, 2])
