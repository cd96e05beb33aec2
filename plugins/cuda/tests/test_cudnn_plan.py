"""A region's plan of cuDNN graphs computes what the region does, in every variant that is offered for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from collage_evo.backends.base import BuildFailure, Built, Target
from collage_evo.backends.enumerate import propose
from collage_evo.backends.variants import Arithmetic, Variant
from collage_evo.codec import from_json, to_json
from collage_evo.errors import InputError
from collage_evo.files import read_json
from collage_evo.graph.convert.extract import extract
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import members
from collage_evo.graph.ir.memory import MemoryPlan
from collage_evo.models.builder import Builder
from collage_evo.testing.cases import CASES
from collage_evo_cuda.cudnn import CudnnBackend
from collage_evo_cuda.cudnn.lower import lower
from collage_evo_cuda.cudnn.plan import Buffer, Operation, Plan, Step, View
from collage_evo_cuda.cudnn.run import PLAN, WEIGHTS, inner_room
from cudnn_plan import outputs_of

BACKEND = CudnnBackend()
TAKEN = (
    *("conv_1x1", "conv_odd_channels", "conv_7x7_stride", "conv_asymmetric_pads", "conv_dilated", "conv_same_upper"),
    *("conv_same_lower", "conv_grouped", "conv_depthwise_multiplier", "conv_1d", "conv_batch_two", "conv_transpose"),
    *("conv_transpose_output_padding", "gemm", "gemm_rows", "gemm_no_bias", "matmul_constant", "matmul_row"),
    *("matmul_two_inputs", "conv_3d_odd", "conv_3d_stride", "conv_3d_groups", "conv_3d_twice_itself"),
    *("conv_3d_inner_output", "residual_block_3d", "conv_add_relu", "residual_block", "residual_block_sum"),
)


def planned(model: onnx.ModelProto, variant: Variant, folder: Path) -> tuple[Plan, list[np.ndarray]]:
    """The plan as its file has it, and what it gives on random inputs after what it should give."""
    graph = build_graph(model)
    model = extract(graph, graph.all_nodes)  # as a search does it: tensors of regions have names of their own
    built = BACKEND.build(model, Target(), variant, folder)
    assert isinstance(built, Built), built
    assert set(built.files) == {PLAN, WEIGHTS}
    plan = read_json(folder / PLAN, Plan)
    rng = np.random.default_rng(3)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = [rng.uniform(-1, 1, value.shape).astype(np.float32) for value in session.get_inputs()]
    wanted = session.run(None, dict(zip([value.name for value in session.get_inputs()], feeds, strict=True)))
    with np.load(folder / WEIGHTS) as weights:
        made = outputs_of(plan, weights, feeds)
    for right, found in zip(wanted, made, strict=True):
        error, size = np.linalg.norm(found - right.reshape(-1)), np.linalg.norm(right)
        # Plans are computed in double precision: only what lies in memory between steps is rounded.
        assert error <= 8 * max(variant.arithmetic.roundoff, 2.0**-20) * size, (variant.name, error, size)
    return plan, made


def offered(model: onnx.ModelProto) -> tuple[Variant, ...]:
    graph = build_graph(model)
    verdict = BACKEND.supports(graph, graph.all_nodes)
    assert verdict, verdict.reason
    return BACKEND.variants_of(graph, graph.all_nodes)


@pytest.mark.parametrize("case", TAKEN)
def test_a_plan_computes_its_region(case: str, tmp_path: Path) -> None:
    variants = offered(CASES[case]())
    assert variants
    for variant in variants:
        planned(CASES[case](), variant, tmp_path)


def attention(keys: list[int], mask: tuple[int, ...] | None = (1, 1, 1, 6), head: int = 8) -> onnx.ModelProto:
    """As exporters write it; ``keys`` is how the keys are turned."""
    b = Builder("attention")
    q, k, v = (b.input(name, (2, 6, 3, head)) for name in "qkv")
    q, v = (b.op("Transpose", x, perm=[0, 2, 1, 3]) for x in (q, v))
    k = b.op("Transpose", k, perm=keys)
    scores = b.op("Div", b.op("MatMul", q, k), b.const(np.float32(2.5)))
    if mask:
        scores = b.op("Add", scores, b.input("mask", mask))
    mixed = b.op("MatMul", b.op("Softmax", scores, axis=-1), v)
    return b.model(b.op("Transpose", mixed, perm=[0, 2, 1, 3]))


@pytest.mark.parametrize("mask", [None, (1, 1, 1, 6), (6, 6), (2, 3, 6, 6)])
def test_attention_is_one_step_between_casts(mask: tuple[int, ...] | None, tmp_path: Path) -> None:
    model = attention([0, 2, 3, 1], mask)
    assert [variant.name for variant in offered(model)] == ["cuda-f16", "cuda-bf16"]
    for variant in offered(model):
        plan, _ = planned(model, variant, tmp_path)
        kinds = [operation.kind for step in plan.steps for operation in step.operations]
        assert kinds == ["identity", "identity", "identity", "sdpa", "identity"]


def test_attention_that_cudnn_cannot_read_is_refused_with_the_reason() -> None:
    for model, words in (
        (attention([0, 2, 3, 1], head=6), "heads of size 6"),
        (attention([0, 2, 3, 1], head=136), "heads of size 136"),
    ):
        graph = build_graph(model)
        assert words in BACKEND.supports(graph, graph.all_nodes).reason
    graph = build_graph(attention([0, 2, 3, 1]))
    turned = next(node.index for node in graph.nodes if node.attributes.get("perm") == [0, 2, 3, 1])
    assert "side by side" in BACKEND.supports(graph, graph.all_nodes & ~(1 << turned)).reason


def test_the_attention_pattern_finds_it_whole() -> None:
    graph = build_graph(attention([0, 2, 3, 1]))
    pattern = next(pattern for pattern in BACKEND.patterns() if pattern.name == "attention")
    found = set(pattern.find(graph, graph.all_nodes))
    assert graph.all_nodes in found


def test_attention_ends_the_regions_around_it() -> None:
    b = Builder("around")
    rng = np.random.default_rng(4)
    x = b.input("x", (2, 3, 4, 4))
    for _ in range(2):
        x = b.op("MatMul", x, b.const(rng.normal(0, 0.3, (4, 4)).astype(np.float32)))
        x = b.op("Relu", x)
    x = b.op("Transpose", x, perm=[0, 2, 1, 3])
    graph = build_graph(b.model(b.op("MatMul", x, b.const(rng.normal(0, 0.3, (4, 4)).astype(np.float32)))))
    found = propose(graph, BACKEND, graph.all_nodes).accepted
    assert max(nodes.bit_count() for nodes in found) == 4


def block(activation: str = "Relu", **attributes: object) -> onnx.ModelProto:
    """A bottleneck: 1x1, 3x3, 1x1 and a sum with what went in."""
    b = Builder("block")
    x = y = b.input("x", (1, 8, 5, 7))
    rng = np.random.default_rng(5)
    for out, into, size in ((4, 8, 1), (4, 4, 3), (8, 4, 1)):
        weight = b.const(rng.normal(0, 0.3, (out, into, size, size)).astype(np.float32))
        bias = b.const(rng.normal(0, 0.3, out).astype(np.float32))
        y = b.op("Conv", y, weight, bias, pads=[size // 2] * 4)
        if out == 4:
            y = b.op(activation, y, **attributes)
    return b.model(b.op(activation, b.op("Add", x, y), **attributes))


def test_sums_and_activations_are_in_the_step_of_their_convolution(tmp_path: Path) -> None:
    plan, _ = planned(block(), BACKEND.variant("cuda"), tmp_path)
    kinds = [[operation.kind for operation in step.operations] for step in plan.steps]
    assert kinds == [["conv_fprop", "add", "relu"]] * 2 + [["conv_fprop", "add", "add", "relu"]]


def test_what_is_convolved_and_added_again_is_two_tensors_of_the_step() -> None:
    (step,) = lower(build_graph(CASES["residual_block_sum"]()), Arithmetic.FLOAT32, False).plan.steps
    image, added = step.operations[0].inputs[0], step.operations[1].inputs[1]
    buffers = {view.name: view.buffer for view in step.tensors}
    assert image != added
    assert buffers[image] == buffers[added]


def test_channels_are_innermost_between_convolutions_alone(tmp_path: Path) -> None:
    for name in ("cuda-nhwc", "cuda-tf32-nhwc", "cuda-f16", "cuda-bf16"):
        plan, _ = planned(block(), BACKEND.variant(name), tmp_path)
        views = [view for step in plan.steps if step.heavy for view in step.tensors if view.buffer]
        inner = [view for view in views if view.shape == (1, 4, 5, 7)]
        border = [view for view in views if view.shape == (1, 8, 5, 7)]
        assert inner
        assert {view.strides[1] for view in inner} == {1}
        assert {view.strides[1] for view in border} == {35}


def test_what_reads_one_order_keeps_all_around_it_in_that_order(tmp_path: Path) -> None:
    """Softplus is not computed inside a convolution: in a step of its own it reads and writes one order."""
    plan, _ = planned(block("Softplus"), BACKEND.variant("cuda-nhwc"), tmp_path)
    kinds = [[operation.kind for operation in step.operations] for step in plan.steps]
    assert kinds == [["conv_fprop", "add"], ["softplus"]] * 2 + [["conv_fprop", "add", "add"], ["softplus"]]


@pytest.mark.parametrize(
    ("activation", "attributes"),
    [("LeakyRelu", {"alpha": 0.3}), ("Sigmoid", {}), ("Elu", {}), ("Tanh", {}), ("Abs", {}), ("Erf", {})],
)
def test_activations_are_what_onnx_says(activation: str, attributes: dict[str, float], tmp_path: Path) -> None:
    for variant in offered(block(activation, **attributes)):
        planned(block(activation, **attributes), variant, tmp_path)


def test_a_gelu_that_is_spelled_out_is_one_step(tmp_path: Path) -> None:
    b = Builder("gelu")
    weight = b.const(np.random.default_rng(1).normal(0, 0.3, (8, 12)).astype(np.float32))
    x = b.op("Add", b.op("MatMul", b.input("x", (2, 5, 8)), weight), b.const(np.arange(12, dtype=np.float32)))
    half, one, root = (b.const(np.float32(value)) for value in (0.5, 1.0, 2**0.5))
    y = b.op("Add", b.op("Erf", b.op("Div", x, root)), one)
    model = b.model(b.op("Mul", b.op("Mul", x, y), half))
    assert [variant.name for variant in offered(model)] == ["cuda", "cuda-tf32", "cuda-f16", "cuda-bf16"]
    for variant in offered(model):
        plan, _ = planned(model, variant, tmp_path)
        steps = [step for step in plan.steps if step.operations[0].kind != "identity"]
        assert [step.operations[0].kind for step in steps] == [
            "conv_fprop" if variant.name == "cuda" else "matmul",
            "div",
        ]
        assert len(steps[1].operations) == 5


def gated(gate: tuple[int, ...]) -> onnx.ModelProto:
    """A convolution, times a tensor that is spread over its result, then another convolution."""
    b = Builder("gated")
    rng = np.random.default_rng(2)
    weight = [b.const(rng.normal(0, 0.3, (6, 6, 1, 1)).astype(np.float32)) for _ in range(2)]
    y = b.op("Mul", b.op("Conv", b.input("x", (2, 6, 3, 4)), weight[0]), b.input("gate", gate))
    return b.model(b.op("Conv", y, weight[1]))


@pytest.mark.parametrize(
    "gate", [(2, 6, 1, 1), (1, 6, 1, 1), (2, 1, 3, 4), (1, 1, 3, 4), (6, 3, 4), (1,), (4,), (3, 1)], ids=str
)
def test_what_is_spread_over_a_tensor_fits_in_every_order(gate: tuple[int, ...], tmp_path: Path) -> None:
    for variant in offered(gated(gate)):
        planned(gated(gate), variant, tmp_path)


def test_axes_that_are_spread_in_turns_are_refused() -> None:
    graph = build_graph(gated((2, 1, 3, 1)))
    mul = next(node for node in graph.nodes if node.op_type == "Mul")
    assert "spread over too many axes" in BACKEND.supports_node(graph, mul).reason


def test_products_of_two_computed_matrices_are_rounded_and_offered_as_such() -> None:
    names = [variant.name for variant in offered(CASES["matmul_two_inputs"]())]
    assert names == ["cuda-tf32", "cuda-f16", "cuda-bf16"]


def test_a_batch_of_constant_matrices_is_refused() -> None:
    b = Builder("batch")
    model = b.model(b.op("MatMul", b.input("x", (2, 3, 4)), b.const(np.zeros((2, 4, 5), np.float32))))
    graph = build_graph(model)
    assert "more than one matrix" in BACKEND.supports_node(graph, graph.nodes[0]).reason


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("relu", "without a convolution or product"),
        ("max_pool", "no operation of cuDNN's that fits"),
        ("conv_computed_weight", "computed, not constant"),
        ("conv_transpose_grouped", "groups are not taken"),
        ("gemm_scaled", "scaled"),
        ("transpose_heads", "part of one attention only"),
    ],
)
def test_what_is_not_taken_has_a_reason(case: str, words: str) -> None:
    graph = build_graph(CASES[case]())
    reasons = [BACKEND.supports_node(graph, graph.nodes[index]).reason for index in members(graph.all_nodes)]
    assert words in " ".join([*reasons, BACKEND.supports(graph, graph.all_nodes).reason])


def test_weights_are_rounded_to_what_is_nearest_or_refused(tmp_path: Path) -> None:
    weight = np.random.default_rng(7).normal(0, 1, (8, 8)).astype(np.float32)
    for name, dtype in (("cuda-f16", "float16"), ("cuda-bf16", "bfloat16")):
        b = Builder("rounded")
        planned(b.model(b.op("MatMul", b.input("x", (4, 8)), b.const(weight))), BACKEND.variant(name), tmp_path)
        with np.load(tmp_path / WEIGHTS) as stored:
            (found,) = (stored[key].view(dtype) for key in stored.files)
        assert (found == weight.reshape(-1).astype(dtype)).all()
    b = Builder("large")
    model = b.model(b.op("MatMul", b.input("x", (4, 8)), b.const(weight * np.float32(1e6))))
    assert BACKEND.build(model, Target(), BACKEND.variant("cuda-f16"), tmp_path) == BuildFailure(
        "cudnn: a weight is too large for float16"
    )
    assert isinstance(BACKEND.build(model, Target(), BACKEND.variant("cuda-bf16"), tmp_path), Built)


def test_buffers_share_a_place_only_where_no_step_needs_both() -> None:
    sizes = {"a": 64, "b": 128, "c": 64, "d": 64}
    used = (("", "a"), ("a", "b"), ("b", "cd"), ("d", ""))
    room = inner_room(inner_plan(sizes, used))
    assert room.size == 4 * (128 + 64 + 64), "as much as the third step needs"
    for reads, makes in used:
        assert_apart(room, {name: 4 * sizes[name] for name in reads + makes})


def inner_plan(sizes: Mapping[str, int], used: Sequence[tuple[str, str]]) -> Plan:
    """Steps that read and make some of these buffers."""
    return Plan(
        "float32",
        (),
        (),
        tuple(Buffer(name, "inner", "float32", size) for name, size in sizes.items()),
        tuple(
            Step(
                tuple(Operation("any", tuple(reads), f"{name}'") for name in makes),
                (
                    *(View(n, (sizes[n],), (1,), "float32", n) for n in reads),
                    *(View(f"{n}'", (sizes[n],), (1,), "float32", n) for n in makes),
                ),
            )
            for reads, makes in used
        ),
    )


def assert_apart(room: MemoryPlan, sizes: Mapping[str, int]) -> None:
    places = sorted((room.offsets[name], room.offsets[name] + size) for name, size in sizes.items())
    assert all(end <= start for (_, end), (start, _) in pairwise(places))


def test_a_plan_survives_its_file_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    plan = lower(build_graph(block()), BACKEND.variant("cuda-f16").arithmetic, inside=True).plan
    assert from_json(to_json(plan), Plan) == plan
    for text in ("", "{}", to_json(plan).replace('"inputs": ["x"]', '"inputs": ["y"]', 1)):
        (tmp_path / PLAN).write_text(text)
        with pytest.raises(InputError, match="damaged"):
            read_json(tmp_path / PLAN, Plan)
