"""Built-in models: real sizes, static shapes, activations in which an error would show."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.normalise.normalise import normalise
from collage_evo.graph.reference.reference import reference_outputs
from collage_evo.models.builtin import BUILTINS, make_builtin, parameters_of
from tests.graph.helpers import difference

IMAGES = ["resnet50", "squeezenet", "mobilenet_v2", "resnet3d_18?frames=4&size=32"]


@pytest.mark.parametrize("name", IMAGES)
def test_scores_are_neither_flat_nor_saturated_and_normalising_keeps_them(name: str) -> None:
    model = make_builtin(f"builtin:{name}", seed=0)[1]
    plain = normalise(model)
    assert difference(model, plain) < 1e-5
    kinds = {node.op_type for node in plain.graph.node}
    assert not kinds & {"BatchNormalization", "Mul", "Unsqueeze", "Sum", "Identity", "Dropout", "Constant"}
    softmax = next((node for node in model.graph.node if node.op_type == "Softmax"), None)
    if softmax is not None:
        model.graph.output.append(onnx.ValueInfoProto(name=softmax.input[0]))
    outputs = reference_outputs(model, random_inputs(model, 0), threads=2)
    assert 0.1 < np.std(outputs[-1]) < 30
    if softmax is not None:
        assert outputs[0].max() < 0.9


def test_the_original_keeps_batch_normalisation_apart() -> None:
    model = make_builtin("builtin:resnet50", seed=0)[1]
    kinds = [node.op_type for node in model.graph.node]
    assert kinds.count("BatchNormalization") == 53
    assert "ConstantOfShape" not in kinds
    assert model.opset_import[0].version == 18
    assert [value.name for value in model.graph.input] == ["gpu_0/data_0"]


def test_bert_has_one_layer_structure_throughout() -> None:
    source = "builtin:bert?layers=2&length=16&hidden=48&heads=4&vocabulary=99"
    model = make_builtin(source, seed=0)[1]
    feeds = random_inputs(model, 0)
    assert feeds["input_ids"].max() < 99
    assert feeds["input_ids"].max() > 1
    assert set(np.unique(feeds["attention_mask"])) == {0, 1}
    hidden, pooled = reference_outputs(model, feeds)
    assert hidden.shape == (1, 16, 48)
    assert pooled.shape == (1, 48)
    assert difference(model, normalise(model)) < 1e-5
    assert sum(node.op_type == "Erf" for node in build_graph(normalise(model)).nodes) == 2


def test_parameters_have_their_defaults() -> None:
    assert len(BUILTINS) == 5
    assert parameters_of("bert")["layers"] == 12
    assert not parameters_of("resnet50")
