"""What tests of graphs share."""

from __future__ import annotations

import onnx

from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.reference.distance import relative_error
from collage_evo.graph.reference.reference import reference_outputs


def difference(model: onnx.ModelProto, other: onnx.ModelProto, seed: int = 0) -> float:
    """The relative error of ``other`` against ``model`` on random inputs."""
    feeds = random_inputs(model, seed)
    return relative_error(reference_outputs(other, feeds), reference_outputs(model, feeds)).relative
