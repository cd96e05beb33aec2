"""What libraries tell of their kernels: whose work each is, and what nodes cost by it."""

import math
from pathlib import Path
from typing import Any

import pytest

from collage_evo.backends.profiled import KernelTime, kernel_times, names_in, runs_within
from collage_evo.backends.registry import get_backend
from collage_evo.codec import from_json, to_json
from collage_evo.costs.profiles import (
    PROFILED_TOGETHER,
    ProfileRequest,
    convex_parts,
    node_ms,
    profile_regions,
    to_profile,
)
from collage_evo.fitness.jobs import Job, KernelsJob, KernelTimes
from collage_evo.fitness.kernels import kernels_of
from collage_evo.graph.convert.extract import extract
from collage_evo.graph.convert.read import build_graph
from collage_evo.models.builder import Builder
from collage_evo.patterns.match import Match, Region
from collage_evo.precision.quantise.rules import Range
from collage_evo.precision.quantise.write import quantised_region
from collage_evo.rewrites.write import write_rewrites
from collage_evo.runtime.timing import TimingSettings
from collage_evo.testing.cases.case import weight
from tests.fitness.helpers import answer_here, make_setting
from tests.precision.nets import net, ranges_of
from tests.support.machine import FakeMachine, FakeRegions
from tests.support.models import chain
from tests.support.numerics import INPUTS, in_int8
from tests.support.spaces import make_graph, products

GRAPH = build_graph(chain(3))
"""Convolutions, each with a Relu: nodes 0 to 5."""
WHOLE = Region(GRAPH.all_nodes, "openvino", "default")
QUICK = TimingSettings(1, 3, 0.0, 1.0)


def test_names_of_nodes_and_tensors_are_found_in_what_libraries_call_kernels() -> None:
    assert names_in("n3_Conv/WithoutBiases,Multiply_38242,n5_QuantizeLinear") == ("n3_Conv", "n5_QuantizeLinear")
    assert names_in("t12_nchwc") == ("t12",)
    assert names_in("i0_abcd_acdb_n0_Conv") == ("n0_Conv",)
    assert names_in("r0_12") == ("r0_12",)
    assert names_in("reorder_token_4") == names_in("Transpose_token_7") == ()


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        # what was fused into a kernel is its
        (("n0_Conv/WithoutBiases,n0_Conv,n1_Relu", "n2_Conv", "n3_Relu", "n4_Conv"), [0b11, 0b100, 0b1000, 0b10000]),
        # a heavy operator after which no kernel is called is in that of the next operator
        (("t1_nchwc", "t3_nchwc", "o0"), [0b11, 0b1100, 0b110000]),
        # a kernel of the library's own is no node's
        (("reorder_token_3", "n0_Conv", "n2_Conv", "n4_Conv"), [0, 0b1, 0b100, 0b10000]),
    ],
)
def test_the_nodes_of_a_kernel(labels: tuple[str, ...], found: list[int]) -> None:
    kernels = [KernelTime(label, 1.0) for label in labels]
    assert [nodes for nodes, _ in kernels_of(GRAPH, WHOLE, extract(GRAPH, WHOLE.nodes), kernels)] == found


@pytest.mark.parametrize(
    ("times_ms", "contended", "together"), [((8.0, 8.0, 9.0), False, 8.0), ((40.0,), True, 4.0)]
)
def test_all_nodes_together_take_what_the_region_takes_or_their_kernels_if_that_was_contended(
    times_ms: tuple[float, ...], contended: bool, together: float
) -> None:
    kernels = ((0x3, 2.0), (0xC, 1.0), (0x30, 1.0), (0, 4.0))
    answer = KernelTimes(kernels, times_ms, contended=contended)
    found = node_ms(GRAPH, ProfileRequest(("a", "default"), WHOLE), answer)["a", "default"]
    assert sum(found.values()) == pytest.approx(together)
    assert found[0] == pytest.approx(together / 2)
    assert found[1] == found[3] == found[5] == 0.0, "what is fused costs nothing"


def test_a_part_that_a_path_leaves_and_enters_again_is_cut_in_convex_ones() -> None:
    graph = make_graph([[], [0], [1], [0, 2], [3]])
    assert convex_parts(graph, graph.all_nodes) == [graph.all_nodes]
    parts = convex_parts(graph, 0b11101)
    assert sorted(parts) == [0b1, 0b11100]
    assert all(graph.is_convex(part) and graph.is_connected(part) for part in parts)


def test_each_engine_is_asked_for_all_that_its_backend_takes_with_its_quantisers_and_its_rewrites() -> None:
    everything, backends = GRAPH.all_nodes, {name: get_backend(name) for name in ("openvino", "ncnn")}
    matches = [Match(1 << node, "openvino") for node in range(6)] + [Match(1, "ncnn")]
    matches += [Match(1 << node, "openvino", "int8", base="default", edits=in_int8(1 << node)) for node in (0, 2)]
    sites = (("r", 0b11), ("r", 0b110), ("s", 0b1000), ("s", 0b110000))
    matches += [Match(at[1], "openvino", f"default~{at[0]}", base="default", edits=(at,)) for at in sites]
    asked = to_profile(GRAPH, matches, backends)
    assert [one.engine[1] for one in asked] == ["default", "int8", "default", "default"], "ncnn has no profiler"
    assert all(one.region.nodes == everything and one.region.variant == "default" for one in asked)
    assert asked[1].region.numerics == in_int8(0b101)
    assert [one.region.rewrites for one in asked[2:]] == [(sites[0], *sites[2:]), (sites[1],)]
    in_r, in_s = (("openvino", f"default~{name}") for name in "rs")
    assert asked[2].tells == {in_r: 0b11, in_s: 0b111000}


def test_a_part_on_a_device_is_what_the_backend_takes_there_in_variants_that_it_profiles() -> None:
    matches = [Match(1 << node, "torch", "eager") for node in range(6)]
    for variant in ("cuda-eager-f16", "cuda-aoti"):
        matches += [Match(1 << node, "torch", variant) for node in range(4)]
    asked = to_profile(GRAPH, matches, {"torch": get_backend("torch")})
    assert {one.engine[1]: one.region.nodes for one in asked} == {"eager": GRAPH.all_nodes, "cuda-eager-f16": 0b1111}


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        (("n0_Transpose", "n3_Softmax,n4_MatMul"), [0b11, 0b1110]),
        (("n0_Transpose", "n2_MatMul", "n3_Softmax,n4_MatMul"), [0b11, 0b11, 0b1100]),
    ],
    ids=["fused into the next", "by itself"],
)
def test_a_rewritten_sites_product_is_in_the_kernel_that_it_was_fused_into(
    labels: tuple[str, ...], found: list[int]
) -> None:
    b = Builder("heads")
    keys = b.op("Transpose", b.input("y", (1, 20, 2, 16)), perm=[0, 2, 3, 1])
    scores = b.op("MatMul", b.input("x", (1, 2, 24, 16)), keys)
    y = b.op("MatMul", b.op("Softmax", scores, axis=-1), b.input("z", (1, 2, 20, 16)))
    graph = build_graph(b.model(y))
    sites = (("turned-factors", 0b11),)
    region, model = Region(graph.all_nodes, "openvino", edits=sites), write_rewrites(graph, graph.all_nodes, sites)
    assert [proto.name for proto in model.graph.node][:3] == ["n0_Transpose", "n1_Transpose", "n2_MatMul"]
    kernels = kernels_of(graph, region, model, [KernelTime(name, 1.0) for name in labels])
    assert [nodes for nodes, _ in kernels] == found


def test_the_needed_regions_are_profiled_however_little_time_there_is() -> None:
    asked = [ProfileRequest(("a", str(index)), Region(1 << index, "a")) for index in range(PROFILED_TOGETHER + 3)]
    regions = FakeRegions(FakeMachine(lambda job: job))
    for over, count in ((True, 2), (False, PROFILED_TOGETHER + 3)):
        found = profile_regions(regions, QUICK, asked, 2, lambda over=over: over)
        assert [one for one, _ in found] == asked[:count]


def test_runs_end_with_the_time_and_each_kernel_has_the_lower_quartile_of_a_run() -> None:
    now = iter(range(1000))
    assert runs_within(1e9, lambda: None, lambda: 1e-3 * next(now)) == 25
    assert runs_within(0.5, lambda: None, lambda: float(next(now))) == 2, "they take long"
    assert runs_within(0.0, lambda: None) == 7
    (twice,) = kernel_times({"a": [1.0, 1.0, 9.0, 1.0]}, runs=2)
    assert twice == KernelTime("a", 2.0)


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_a_library_tells_what_its_kernels_take_while_the_whole_region_runs(backend: str, tmp_path: Path) -> None:
    job = KernelsJob(Region(0b11, backend), QUICK, 0.05)
    assert from_json(to_json(job, Job), Job) == job
    answer: Any = answer_here(make_setting(tmp_path), job)
    assert isinstance(answer, KernelTimes), answer
    assert len(answer.times_ms) >= 3
    named = dict(answer.kernels)
    assert any(nodes & 1 for nodes in named), "the convolution"
    # Less than half of a microsecond is nothing to a library that tells whole ones.
    assert all(math.isfinite(ms) and ms >= 0 for ms in named.values())


def test_a_quantiser_that_was_fused_before_its_reader_is_not_its_readers_work() -> None:
    graph = products([4, 8, 8])
    model = quantised_region(graph, 0b11, 0b11, dict.fromkeys(graph.tensors, Range(0.0, 1.0)), INPUTS)
    quantisers = [node for node in model.graph.node if node.op_type == "QuantizeLinear"]
    heavy = [node for node in model.graph.node if node.op_type == "MatMul"]
    between = next(node for node in quantisers if heavy[0].output[0] in node.input)
    region = Region(0b11, "openvino", "default", edits=in_int8(0b11))
    labels = (f"{heavy[0].name},{between.name}", between.name, heavy[1].name)
    found = kernels_of(graph, region, model, [KernelTime(label, 1.0) for label in labels])
    assert [nodes for nodes, _ in found] == [0b01, 0b10, 0b10]


def test_all_that_lays_out_a_convolution_is_its_work() -> None:
    def long_kernel(b: Builder) -> str:
        x = b.op("Tanh", b.input("x", (1, 2**12, 1, 12)))
        return b.op("Relu", b.op("Conv", x, b.const(weight(4, 2**12, 1, 9)), pads=(0, 4, 0, 4)))

    graph = net(long_kernel)
    model = quantised_region(graph, 0b111, 0b010, ranges_of(graph), INPUTS)
    names = {node.op_type: node.name for node in model.graph.node}
    region = Region(0b111, "openvino", "default", edits=in_int8(0b010))
    told = [KernelTime(names[kind], 1.0) for kind in ("QuantizeLinear", "Pad", "Reshape", "Conv")]
    assert [nodes for nodes, _ in kernels_of(graph, region, model, told)] == [0b010] * 4
    assert kernels_of(graph, region, model, [KernelTime(f"{names['Conv']},{names['Relu']}", 1.0)]) == [(0b110, 1.0)]


def test_the_kernel_of_a_product_whose_bias_was_corrected_and_of_the_sum_behind_it_is_the_products_too() -> None:
    def product_and_sum(b: Builder) -> str:
        return b.op("Add", b.op("MatMul", b.input("x", (4, 8)), b.const(weight(8, 8))), b.const(weight(8)))

    graph = net(product_and_sum)
    model = quantised_region(graph, 0b11, 0b01, ranges_of(graph), INPUTS)
    assert [node.op_type for node in model.graph.node][-3:] == ["MatMul", "Add", "Add"], "the first corrects the bias"
    label = f"{model.graph.node[-3].name}/DequantizationMultiply,{model.graph.node[-1].name}"
    region = Region(0b11, "openvino", "default", edits=in_int8(0b01))
    (quantiser,) = (node.name for node in model.graph.node if node.op_type == "QuantizeLinear")
    found = kernels_of(graph, region, model, [KernelTime(quantiser, 0.1), KernelTime(label, 1.0)])
    assert found == [(0b01, 0.1), (0b11, 1.0)]
