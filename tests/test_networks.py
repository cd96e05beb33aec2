"""Networks that benchmarks measure: as large as in their papers, with activations in which an error would show."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from collage_evo.errors import InputError
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.normalise.normalise import normalise
from collage_evo.graph.reference.reference import reference_outputs
from tests.graph.helpers import difference

SMALL = {"densenet121": "", "nasnet_a": "size=64&cells=1", "dcgan": ""}


@pytest.fixture
def make(script: Any) -> Any:
    return lambda name: script("networks").make_network(f"network:{name}")


@pytest.mark.parametrize("name", SMALL)
def test_scores_are_not_flat_and_normalising_keeps_them(make: Any, name: str) -> None:
    model = make(f"{name}?{SMALL[name]}")
    plain = normalise(model)
    assert difference(model, plain) < 1e-5
    # DenseNet normalises after Concat, where there is no convolution to fold into, and so does NASNet at times.
    kinds = {node.op_type for node in plain.graph.node}
    assert ("BatchNormalization" in kinds) == (name in ("densenet121", "nasnet_a"))
    (scores,) = reference_outputs(model, random_inputs(model, 0), threads=2)
    assert 0.1 < np.std(scores) < 30


@pytest.mark.parametrize(
    ("source", "millions", "convolutions"),
    [("nasnet_a", 5.33, 356), ("resnet3d_50?frames=4&size=32", 47.07, 53), ("inception_v3?size=75", 23.87, 94)],
)
def test_a_network_is_as_large_as_in_its_paper(make: Any, source: str, millions: float, convolutions: int) -> None:
    model = make(source)
    weights = sum(math.prod(tensor.dims) for tensor in model.graph.initializer)
    assert weights / 1e6 == pytest.approx(millions, abs=0.01)
    assert sum(node.op_type == "Conv" for node in model.graph.node) == convolutions


def test_nasnet_halves_any_size_and_has_as_many_cells_as_asked_for(make: Any) -> None:
    shapes = {}
    for size, cells in ((33, 1), (64, 2)):
        model = make(f"nasnet_a?size={size}&cells={cells}&filters=96")
        types = {value.name: value.type.tensor_type.shape for value in model.graph.value_info}
        ends = [node.output[0] for node in model.graph.node if node.op_type == "Concat"]
        found = [tuple(dim.dim_value for dim in types[end].dim) for end in ends]
        shapes[size] = [shape for shape in found if shape[1] >= 24]
    assert shapes[33] == [(1, 24, 4, 4), (1, 32, 2, 2), (1, 48, 2, 2), (1, 64, 1, 1), (1, 96, 1, 1)]
    assert [shape[2] for shape in shapes[64]] == [8, 8, 4, 4, 4, 2, 2, 2]


@pytest.mark.parametrize("asked", ["nasnet_a?filters=100", "nasnet_a?size=31", "inception_v3?size=74"])
def test_a_network_says_which_sizes_there_are(make: Any, asked: str) -> None:
    with pytest.raises(InputError, match=asked.partition("?")[2]):
        make(asked)


def test_a_benchmark_names_a_network_as_its_model(
    script: Any, make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    networks = script("networks")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    file = networks.model_source("network:dcgan")
    assert onnx.load(file) == make("dcgan")
    assert networks.model_source("builtin:bert") == "builtin:bert"
