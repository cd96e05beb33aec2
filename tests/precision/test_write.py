"""A quantised region rounds what it should, where it should, and is equal for equal regions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from collage_evo.errors import InputError
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Graph, members
from collage_evo.graph.normalise.normalise import normalise
from collage_evo.graph.reference.distance import relative_error
from collage_evo.graph.reference.reference import reference_outputs
from collage_evo.hardware.processor import Processor, this_machine
from collage_evo.models.builder import Builder
from collage_evo.precision.quantise.form import Int8Form
from collage_evo.precision.quantise.marks import heavy_in_int8
from collage_evo.precision.quantise.rounded import usual_scales
from collage_evo.precision.quantise.rules import Range, Ranges, quantisable, weight_axis
from collage_evo.precision.quantise.write import quantisation_key, quantised_region, structure_key
from tests.precision import nets
from tests.precision.nets import net, random_inputs, ranges_of, rounded, rounded_weights
from tests.support.models import chain
from tests.support.numerics import BOTH, DYNAMIC, INPUTS

Net = Callable[[Builder], str]


def written(graph: Graph, form: Int8Form, everything: bool = False) -> onnx.ModelProto:
    chosen = quantisable(graph, graph.all_nodes, form, everything)
    model = quantised_region(graph, graph.all_nodes, chosen, without_means(ranges_of(graph)), form)
    onnx.checker.check_model(model, full_check=True)
    return model


def without_means(ranges: Ranges) -> Ranges:
    """So that no bias is corrected."""
    return {name: found._replace(means=()) for name, found in ranges.items()}


def run(graph: Graph, model: onnx.ModelProto, seed: int = 0) -> list[np.ndarray]:
    feeds = {f"i{place}": value for place, value in enumerate(random_inputs(graph, seed).values())}
    return reference_outputs(model, feeds)


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def simulated(graph: Graph) -> np.ndarray:
    """The output of the one heavy operator on inputs and weights that NumPy has rounded, its bias as it is."""
    ranges, node = ranges_of(graph), graph.nodes[0]
    model = onnx.ModelProto()
    model.CopyFrom(graph.model)
    for tensor in model.graph.initializer:
        axis = weight_axis(graph, node)
        if tensor.name == node.inputs[1] and axis is not None:
            weights = rounded_weights(numpy_helper.to_array(tensor), axis, usual_scales(graph, node))
            tensor.CopyFrom(numpy_helper.from_array(weights, tensor.name))
    feeds = {name: rounded(value, *ranges[name][:2]) for name, value in random_inputs(graph, 0).items()}
    return reference_outputs(model, feeds)[0]


ONE = [nets.conv, nets.conv_depthwise, nets.conv_transpose, nets.gemm, nets.matmul]


@pytest.mark.parametrize("make", ONE)
def test_inputs_and_weights_are_rounded(make: Net) -> None:
    graph = net(make)
    model = written(graph, INPUTS)
    assert operators(model).count("QuantizeLinear") == 1
    assert heavy_in_int8(model) == 1
    assert relative_error(run(graph, model)[0], simulated(graph)).relative < 1e-5


@pytest.mark.parametrize(("make", "read"), [(nets.gemm, 2), (nets.matmul, 2), (nets.conv, 3)])
def test_only_products_read_numbers_from_zero(make: Net, read: int) -> None:
    model = written(net(make), INPUTS)
    makers = {node.output[0]: node for node in model.graph.node}
    (heavy,) = (node for node in model.graph.node if node.op_type in ("Conv", "Gemm", "MatMul"))
    assert len(makers[heavy.input[0]].input) == read  # with or without a zero point
    (there,) = (node for node in model.graph.node if node.op_type == "QuantizeLinear")
    (zero,) = (tensor for tensor in model.graph.initializer if tensor.name == there.input[2])
    assert numpy_helper.to_array(zero) > 0


def along_a_row(
    channels: int, kernel: int, height: int = 1, pads: tuple[int, ...] = (), before: str = "Tanh"
) -> Graph:
    """A convolution of images of 12 columns, or of what has one axis where ``height`` is 0, and another reader."""
    b = Builder("row")
    rows, one = ((height,), (1,)) if height else ((), ())
    x = b.op(before, b.input("x", (1, channels, *rows, 12)))
    pads = pads or (*(0 for _ in one), kernel // 2, *(0 for _ in one), (kernel - 1) // 2)
    y = b.op("Conv", x, nets.weights(b, 4, channels, *one, kernel), pads=pads)
    pooled = b.op("MaxPool", x, kernel_shape=[*one, 3])
    return build_graph(normalise(b.model(b.op("Relu", y), pooled)))


ROWS = [along_a_row(2, 4), along_a_row(2, 3), along_a_row(2, 3, height=0), along_a_row(16, 3, height=3)]
LONG = [
    along_a_row(2**12, 9),
    along_a_row(2**12, 9, pads=(0, 0, 0, 0)),
    along_a_row(2**12, 9, pads=(0, 0, 0, 0), before="Relu"),
    along_a_row(2**12, 9, height=0),
    along_a_row(2**12, 9, height=0, pads=(0, 0)),
]


@pytest.mark.parametrize("graph", [*ROWS, *LONG])
def test_however_a_convolution_is_laid_out_the_numbers_are_the_same(graph: Graph) -> None:
    laid_out = written(graph, INPUTS)
    read = {name for node in laid_out.graph.node for name in node.input} | {one.name for one in laid_out.graph.output}
    assert all(read & {*node.output} for node in laid_out.graph.node), "nothing is written that nobody reads"
    plain = written(graph, replace(INPUTS, layout=None))
    assert len(laid_out.graph.node) > len(plain.graph.node)
    for found, right in zip(run(graph, laid_out), run(graph, plain), strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("graph", ROWS)
def test_zeros_around_an_image_are_added_to_integers(graph: Graph) -> None:
    model = written(graph, INPUTS)
    makers = {node.output[0]: node for node in model.graph.node}
    (convolution,) = (node for node in model.graph.node if node.op_type == "Conv")
    (padded,) = (node for node in model.graph.node if node.op_type == "Pad")
    assert makers[convolution.input[0]].input[0] == padded.output[0]
    assert makers[padded.input[0]].op_type == "QuantizeLinear"
    assert "Pad" not in operators(written(graph, BOTH)), "ONNX Runtime is as fast"


@pytest.mark.parametrize("graph", LONG)
def test_a_long_kernel_goes_along_a_column(graph: Graph) -> None:
    assert (4, 2**12, 9, 1) in (tuple(tensor.dims) for tensor in written(graph, INPUTS).graph.initializer)
    assert "Reshape" not in operators(written(graph, BOTH)), "ONNX Runtime is as fast"


@pytest.mark.parametrize(
    "graph",
    [
        along_a_row(2, 3, pads=(0, 0, 0, 0)),
        along_a_row(2, 3, before="Relu"),
        along_a_row(2, 3, height=3),
        along_a_row(2**12, 9, before="Relu"),
    ],
    ids=["none are added", "zero is the least number", "an image of few channels", "a long kernel that stays padded"],
)
def test_what_is_as_fast_as_it_is_stays_so(graph: Graph) -> None:
    assert not {"Pad", "Reshape"} & {*operators(written(graph, INPUTS))}


def test_two_convolutions_share_what_is_padded() -> None:
    b = Builder("shared")
    x = b.input("x", (1, 16, 6, 6))
    ends = [nets.convolution(b, x, 8, 16), nets.convolution(b, x, 4, 16)]
    assert operators(written(build_graph(normalise(b.model(*ends))), INPUTS)).count("Pad") == 1


def test_products_of_two_activations_stay_in_float32_where_sums_of_pairs_saturate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = net(nets.attention)
    for features, count in ((frozenset({"avx2"}), 0), (frozenset({"avx2", "avx_vnni"}), 1)):
        machine = Processor("x86_64", "some", features)
        monkeypatch.setattr("collage_evo.backends.openvino.int8.this_machine", lambda machine=machine: machine)
        assert quantisable(graph, graph.all_nodes, INPUTS).bit_count() == count
        assert quantisable(graph, graph.all_nodes, BOTH).bit_count() == 1, "ONNX Runtime's read uint8 on both sides"


@pytest.mark.skipif(this_machine().saturates_int8, reason="products of two activations stay in float32 here")
def test_products_of_two_activations_read_signed_numbers() -> None:
    graph = net(nets.attention)
    model = written(graph, INPUTS)
    read = [node.input[2] for node in model.graph.node if node.op_type == "QuantizeLinear"]
    zeros = [numpy_helper.to_array(tensor) for tensor in model.graph.initializer if tensor.name in read]
    assert [zero.dtype for zero in zeros] == [np.int8, np.int8]
    assert not any(zeros)
    right = reference_outputs(graph.model, random_inputs(graph, 0))
    assert 0 < relative_error(run(graph, model), right).relative < 0.03


@pytest.mark.parametrize("make", [nets.gemm, nets.matmul, nets.attention])
def test_products_give_float32_from_integers(make: Net) -> None:
    graph = net(make)
    model = written(graph, BOTH)
    assert operators(model)[-1] == "MatMulIntegerToFloat"
    assert relative_error(run(graph, model)[0], simulated(graph)).relative < 1e-5


@pytest.mark.parametrize("make", [nets.conv, nets.conv_depthwise, nets.conv_relu])
def test_a_convolution_between_quantisers_rounds_its_output_once(make: Net) -> None:
    graph = net(make)
    model = written(graph, BOTH)
    # Nothing between the convolution and the activation that is fused into it.
    tail = operators(model)[operators(model).index("Conv") :]
    assert tail == [node.op_type for node in graph.nodes] + ["QuantizeLinear", "DequantizeLinear"]
    scale = ranges_of(graph)[graph.outputs[0]]
    widened = (min(scale.low, 0.0), max(scale.high, 0.0))
    step = (widened[1] - widened[0]) / 255
    # The bias is rounded as well, to far less than a step; where that tips a rounding it is one step.
    assert np.abs(run(graph, model)[0] - rounded(simulated(graph), *widened)).max() < 1.01 * step


@pytest.mark.parametrize("make", [nets.gemm, nets.matmul])
def test_dynamic_ranges_are_those_of_each_run(make: Net) -> None:
    graph = net(make)
    model = quantised_region(graph, graph.all_nodes, quantisable(graph, graph.all_nodes, DYNAMIC), {}, DYNAMIC)
    assert operators(model) == ["DynamicQuantizeLinear", "MatMulIntegerToFloat"]
    for seed in (5, 6):
        right = reference_outputs(graph.model, random_inputs(graph, seed))
        assert 0 < relative_error(run(graph, model, seed), right).relative < 0.03


@pytest.mark.parametrize("make", [nets.conv_add_relu, nets.concat, nets.max_pool])
@pytest.mark.parametrize("form", [INPUTS, BOTH])
@pytest.mark.parametrize("everything", [False, True])
def test_blocks_stay_close_to_float32(make: Net, form: Int8Form, everything: bool) -> None:
    graph = net(make)
    chosen = quantisable(graph, graph.all_nodes, form, everything)
    light = [graph.nodes[i].op_type for i in members(chosen) if graph.nodes[i].op_type != "Conv"]
    expected = {nets.conv_add_relu: "Add", nets.concat: "Concat", nets.max_pool: "MaxPool"}[make]
    assert light == ([expected] if everything else [])
    right = reference_outputs(graph.model, random_inputs(graph, 0))
    assert 0 < relative_error(run(graph, written(graph, form, everything)), right).relative < 0.03


def test_a_tensor_is_quantised_once_for_all_its_readers() -> None:
    b = Builder("readers")
    x = b.input("x", (1, 16, 6, 6))
    graph = build_graph(b.model(b.op("Add", nets.convolution(b, x, 16, 16), nets.convolution(b, x, 16, 16))))
    assert operators(written(graph, INPUTS)).count("QuantizeLinear") == 1
    assert operators(written(graph, BOTH)).count("QuantizeLinear") == 3


def test_what_only_passes_values_on_keeps_their_scale() -> None:
    model = written(net(nets.max_pool), BOTH, everything=True)
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    quantisers = [node for node in model.graph.node if node.op_type == "QuantizeLinear"]
    scales = {node.output[0]: constants[node.input[1]] for node in quantisers}
    pooled = next(node for node in model.graph.node if node.op_type == "MaxPool")
    before = next(node.input[0] for node in model.graph.node if pooled.input[0] in node.output)
    assert scales[f"{pooled.output[0]}_q"] == scales[before]


def test_the_sum_begun_by_a_convolution_is_not_rounded_on_the_way() -> None:
    # One quantiser, of the input, which both the convolution and the addition read.
    assert operators(written(net(nets.conv_add_relu), INPUTS, everything=True)).count("QuantizeLinear") == 1


def test_borders_are_those_of_the_region_and_weights_are_small() -> None:
    model = written(net(nets.conv_relu), BOTH)
    assert [value.name for value in (*model.graph.input, *model.graph.output)] == ["i0", "o0"]
    kinds = {value.type.tensor_type.elem_type for value in (*model.graph.input, *model.graph.output)}
    assert kinds == {onnx.TensorProto.FLOAT}
    assert not [t for t in model.graph.initializer if t.data_type == onnx.TensorProto.FLOAT and len(t.dims) > 1]


def test_equal_regions_with_equal_scales_are_equal() -> None:
    two, three = build_graph(normalise(chain(2))), build_graph(normalise(chain(3)))
    ranges = dict.fromkeys((*two.tensors, *three.tensors), Range(-1.0, 1.0))
    made = [quantised_region(graph, 0b11, 0b01, ranges, BOTH).SerializeToString() for graph in (two, three)]
    assert made[0] == made[1]
    assert quantisation_key(two, 0b11, 1, ranges, BOTH) == quantisation_key(three, 0b11, 1, ranges, BOTH)


def test_keys_tell_positions_scales_and_quantisers_apart() -> None:
    graph = build_graph(normalise(chain(2)))
    ranges = dict.fromkeys(graph.tensors, Range(-1.0, 1.0))
    wider = dict.fromkeys(graph.tensors, Range(-2.0, 2.0))
    asked = [(0b0001, ranges, BOTH), (0b0101, ranges, BOTH), (0b0001, wider, BOTH), (0b0001, ranges, INPUTS)]
    assert len({quantisation_key(graph, 0b1111, *ask) for ask in asked}) == 4
    structures = [structure_key(graph, 0b1111, chosen, form) for chosen, _, form in asked]
    assert len(set(structures)) == 3
    assert structures[0] == structures[2]


def test_a_tensor_without_a_range_cannot_be_quantised() -> None:
    graph = net(nets.conv)
    assert quantisable(graph, graph.all_nodes, INPUTS, ranges={}) == 0
    with pytest.raises(InputError, match="no calibrated range"):
        quantised_region(graph, graph.all_nodes, 1, {}, INPUTS)


def test_an_old_operator_set_has_no_scales_by_channel() -> None:
    graph = net(nets.conv)
    graph.model.opset_import[0].version = 12
    assert quantisable(graph, graph.all_nodes, INPUTS) == 0


def test_light_operators_that_nothing_reads_in_int8_stay_as_they_are() -> None:
    b = Builder("softmax")
    x = b.input("x", (1, 16, 6, 6))
    graph = build_graph(b.model(b.op("Softmax", b.op("Add", nets.convolution(b, x, 16, 16), x))))
    assert quantisable(graph, graph.all_nodes, INPUTS, everything=True) == 0b001
