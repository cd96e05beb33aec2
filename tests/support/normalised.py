"""Small models as text, and what normalising makes of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import numpy_helper

from collage_evo.graph.normalise.normalise import normalise
from collage_evo.graph.reference.reference import Reference
from tests.support.models import parse_graph


def written(text: str, shapes: Mapping[str, tuple[int, ...]], opset: int = 20) -> onnx.ModelProto:
    """The model of ``text``, with random weights for those of ``shapes`` that it reads."""
    rng = np.random.default_rng(0)
    made = parse_graph(text, opset)
    read = {name for node in made.graph.node for name in node.input}
    arrays = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items() if name in read}
    made.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    return made


def shapes_in(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """Of all that its operators make."""
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph
    known = [*inferred.value_info, *inferred.output]
    return {value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim) for value in known}


def assert_outputs_stay(before: onnx.ModelProto) -> None:
    """Normalised, it has the same outputs under the same names."""
    after, rng = normalise(before), np.random.default_rng(1)
    feeds = {
        value.name: rng.standard_normal([dim.dim_value for dim in value.type.tensor_type.shape.dim], np.float32)
        for value in before.graph.input
    }
    assert [value.name for value in after.graph.output] == [value.name for value in before.graph.output]
    for made, right in zip(Reference(after).run(feeds), Reference(before).run(feeds), strict=True):
        assert made.shape == right.shape
        np.testing.assert_allclose(made, right, rtol=1e-5, atol=1e-5)
