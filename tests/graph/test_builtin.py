"""Built-in models: real sizes, static shapes, activations in which an error would show."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest

from collage_evo.errors import InputError
from collage_evo.graph.inputs import random_inputs
from collage_evo.graph.normalise import normalise
from collage_evo.graph.read import build_graph
from collage_evo.graph.reference import reference_outputs
from collage_evo.models.builtin import BUILTINS, make_builtin
from collage_evo.models.zoo import ZOO_FILES
from tests.graph.helpers import difference

WRITTEN = [
    "mobilenet_v2",
    "resnext50_32x4d?size=64",
    "resnet3d_18?frames=4&size=32",
    "resnet3d_50?frames=4&size=32",
    "nasnet_a?size=64&cells=1",
    "inception_v3?size=96",
    "dcgan",
]
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
    # DenseNet normalises after Concat, where there is no convolution to fold into, and so does NASNet at times.
    assert ("BatchNormalization" in kinds) == name.startswith(("densenet121", "nasnet_a"))


@pytest.mark.parametrize(
    ("source", "millions", "convolutions"),
    [("nasnet_a", 5.33, 356), ("resnet3d_50?frames=4&size=32", 47.07, 53), ("inception_v3?size=75", 23.87, 94)],
)
def test_a_network_is_as_large_as_in_its_paper(source: str, millions: float, convolutions: int) -> None:
    model = make_builtin(f"builtin:{source}", seed=0)[1]
    weights = sum(math.prod(tensor.dims) for tensor in model.graph.initializer)
    assert weights / 1e6 == pytest.approx(millions, abs=0.01)
    assert sum(node.op_type == "Conv" for node in model.graph.node) == convolutions


def test_nasnet_halves_any_size_and_has_as_many_cells_as_asked_for() -> None:
    shapes = {}
    for size, cells in ((33, 1), (64, 2)):
        model = make_builtin(f"builtin:nasnet_a?size={size}&cells={cells}&filters=96", seed=0)[1]
        types = {value.name: value.type.tensor_type.shape for value in model.graph.value_info}
        ends = [node.output[0] for node in model.graph.node if node.op_type == "Concat"]
        found = [tuple(dim.dim_value for dim in types[end].dim) for end in ends]
        shapes[size] = [shape for shape in found if shape[1] >= 24]
    assert shapes[33] == [(1, 24, 4, 4), (1, 32, 2, 2), (1, 48, 2, 2), (1, 64, 1, 1), (1, 96, 1, 1)]
    assert [shape[2] for shape in shapes[64]] == [8, 8, 4, 4, 4, 2, 2, 2]


@pytest.mark.parametrize("asked", ["nasnet_a?filters=100", "nasnet_a?size=31", "inception_v3?size=74"])
def test_a_network_says_which_sizes_there_are(asked: str) -> None:
    with pytest.raises(InputError, match=asked.partition("?")[2]):
        make_builtin(f"builtin:{asked}", seed=0)


def test_the_two_towers_share_nothing_until_their_end() -> None:
    model = make_builtin("builtin:two_tower?batch=8&layers=2&width=96", seed=0)[1]
    graph = build_graph(normalise(model))
    (meeting,) = [node for node in graph.nodes if node.op_type == "Mul"]
    user, item = (graph.producer[name] for name in meeting.inputs)
    assert min(graph.anc[user], graph.anc[item]) > 0
    assert not graph.anc[user] & graph.anc[item]


def test_a_recommender_has_as_many_layers_and_samples_as_asked_for() -> None:
    model = make_builtin("builtin:two_tower?batch=8&layers=2&width=96", seed=0)[1]
    feeds = random_inputs(model, 0)
    assert 1 < feeds["user_ids"].max() < 50_000
    (scores,) = reference_outputs(model, feeds)
    assert scores.shape == (8, 1)
    assert 1 < np.std(scores) < 30
    wide = [tensor.dims[0] for tensor in model.graph.initializer if tensor.name.endswith(".weight")]
    assert wide == [96, 96, 128] * 2
    assert difference(model, normalise(model)) < 1e-5


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
    assert len(BUILTINS) == 18
    assert all(builtin.description for builtin in BUILTINS.values())
    assert BUILTINS["bert"].parameters["layers"] == 12
