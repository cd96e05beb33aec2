"""Built-in models: real sizes, static shapes, activations in which an error would show."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from collage_evo.graph.inputs import random_inputs
from collage_evo.graph.normalise import normalise
from collage_evo.graph.read import build_graph
from collage_evo.graph.reference import reference_outputs
from collage_evo.models.builtin import BUILTINS, make_builtin
from collage_evo.models.zoo import ZOO_FILES
from tests.graph.helpers import difference

WRITTEN = ["mobilenet_v2", "resnext50_32x4d?size=64", "resnet3d_18?frames=4&size=32", "dcgan"]
LARGE = {"vgg19", "alexnet", "zfnet512"}
"""Hundreds of megabytes of weights: the others stand for them."""


@pytest.mark.parametrize("name", [name for name in ZOO_FILES if name not in LARGE] + WRITTEN)
def test_scores_are_neither_flat_nor_saturated(name: str) -> None:
    model = make_builtin(f"builtin:{name}", seed=0)[1]
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


@pytest.mark.parametrize("name", ["resnet50", "inception_v2", "densenet121", *WRITTEN])
def test_normalising_keeps_the_outputs_and_folds_scales(name: str) -> None:
    model = make_builtin(f"builtin:{name}", seed=1)[1]
    plain = normalise(model)
    assert difference(model, plain) < 1e-5
    kinds = {node.op_type for node in plain.graph.node}
    assert not kinds & {"Mul", "Unsqueeze", "Sum", "Identity", "Dropout", "Constant"}
    # DenseNet normalises after Concat, where there is no convolution to fold into.
    assert ("BatchNormalization" in kinds) == (name == "densenet121")


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


def test_every_builtin_says_what_it_is() -> None:
    assert len(BUILTINS) == 14
    assert all(builtin.description for builtin in BUILTINS.values())
    assert BUILTINS["bert"].parameters["layers"] == 12
