"""ONNX Runtime's second layout is a choice where it may win, and only there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from collage_evo.backends.base import Built, Target
from collage_evo.backends.onnxruntime.backend import OnnxRuntimeBackend
from collage_evo.backends.variants import DEFAULT
from collage_evo.fitness.compile.compiler import unbuilt
from collage_evo.genome.failure import Fault
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.weights import HEAVY_BYTES
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.reference.distance import relative_error
from collage_evo.graph.reference.reference import Reference, reference_outputs
from collage_evo.models.builder import Builder
from collage_evo.testing.cases import CASES


@pytest.mark.parametrize(
    ("case", "variants"),
    [
        ("conv_1x1", ("default", "nchw")),
        ("conv_add_relu", ("default", "nchw")),
        ("conv_depthwise", ("default",)),
        ("conv_3d", ("default",)),
        ("residual_block", ("default",)),
        ("max_pool_behind_conv", ("default",)),
        ("relu", ("default",)),
    ],
)
def test_a_lone_convolution_has_a_choice_of_layout(case: str, variants: tuple[str, ...]) -> None:
    graph = build_graph(CASES[case]())
    offered = OnnxRuntimeBackend().variants_of(graph, graph.all_nodes)
    on_cpu = [variant for variant in offered if variant.device == "cpu"]
    assert [variant.name for variant in on_cpu if variant.int8_form is None] == list(variants)


def test_the_layouts_are_kept_apart(tmp_path: Path) -> None:
    backend, model = OnnxRuntimeBackend(), CASES["conv_1x1"]()
    built = [backend.build(model, Target(), variant, tmp_path) for variant in backend.variants[:2]]
    assert all(isinstance(piece, Built) for piece in built)
    assert built[0] != built[1]


@pytest.mark.parametrize("rows", [16, 2**14])
def test_a_heavy_model_is_not_loaded_only_to_see_that_it_loads(rows: int, tmp_path: Path) -> None:
    net = Builder("unknown")
    model = net.model(net.op("NoSuchOperator", net.input("x", (1, 4)), net.const(np.zeros((rows, 1024), np.float32))))
    built = OnnxRuntimeBackend().build(model, Target(), DEFAULT, tmp_path)
    assert isinstance(built, Built) == (rows * 1024 * 4 >= HEAVY_BYTES)


def in_blocks() -> onnx.ModelProto:
    """A product by weights of 4 bits, with a scale for each 32 of a sum."""
    rng, block = np.random.default_rng(0), 32
    weights = helper.make_tensor("w", TensorProto.INT4, [128, 16], rng.integers(-8, 8, 128 * 16).tolist())
    scales = numpy_helper.from_array(rng.random((128 // block, 16), np.float32), "s")
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["f"], axis=0, block_size=block),
        helper.make_node("MatMul", ["x", "f"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, k]) for n, k in (("x", 128), ("y", 16)))
    graph = helper.make_graph(nodes, "blocks", [x], [y], [weights, scales])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize(("variant", "rounds"), [("default", False), ("rounded-blocks", True)])
def test_activations_before_weights_in_blocks_are_rounded_in_a_variant_of_its_own(
    variant: str, rounds: bool, tmp_path: Path
) -> None:
    backend, model = OnnxRuntimeBackend(), in_blocks()
    assert isinstance(backend.build(model, Target(), backend.variant(variant), tmp_path), Built)
    session = backend.open_session(tmp_path / "model.onnx", Target(), backend.variant(variant))
    feeds = random_inputs(model, 0)
    expected = reference_outputs(model, feeds)
    assert (relative_error(session.run(None, feeds), expected).relative > 1e-4) == rounds
    assert relative_error(Reference(model, optimised=True).run(feeds), expected).relative < 1e-6


def patches(products: int) -> onnx.ModelProto:
    net, rng = Builder("patches"), np.random.default_rng(0)
    x = net.op("Conv", net.input("x", (1, 3, 8, 8)), net.const(rng.random((4, 3, 2, 2), np.float32)), strides=[2, 2])
    for _ in range(products):
        x = net.op("MatMul", x, net.const(rng.random((4, 4), np.float32)))
    return net.model(x)


@pytest.mark.parametrize(
    ("variant", "model", "taken"),
    [
        ("rounded-blocks", CASES["gemm_rows"](), False),
        ("nchw", CASES["gemm_rows"](), False),
        ("nchw", patches(products=10), True),
        ("nchw", patches(products=11), False),
    ],
    ids=["no blocks", "no convolution", "few products", "many products"],
)
def test_a_variant_that_changes_nothing_is_needless(
    variant: str, model: onnx.ModelProto, taken: bool, tmp_path: Path
) -> None:
    backend = OnnxRuntimeBackend()
    built = backend.build(model, Target(), backend.variant(variant), tmp_path)
    assert isinstance(built, Built) == taken
    assert taken or unbuilt(built).fault is Fault.NEEDLESS
