"""PyTorch's variants for CUDA, run where there is no GPU: on arrays that lie in the host's memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from collage_evo.backends import registry
from collage_evo.backends.base import Built, Target
from collage_evo.backends.variants import Arithmetic, Variant
from collage_evo.fitness.kernels import kernels_of
from collage_evo.graph.convert.extract import extract
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Graph, NodeSet
from collage_evo.graph.ir.roofline import heavy_operators
from collage_evo.graph.load.inputs import random_inputs
from collage_evo.graph.normalise.normalise import normalise
from collage_evo.graph.reference.distance import relative_error
from collage_evo.graph.reference.reference import Reference, reference_outputs
from collage_evo.models.builder import Builder
from collage_evo.models.builtin import make_builtin
from collage_evo.patterns.match import Region
from collage_evo.runtime.session import Session
from collage_evo.testing.cases import CASES
from collage_evo.testing.conformance import ROUNDOFFS, Effort, check_backend
from collage_evo_cuda.device import DeviceExecutable
from collage_evo_cuda.libraries.torch import Torch
from collage_evo_cuda.open import open_device
from collage_evo_cuda.torch.fusions import FUSIONS, steps
from collage_evo_cuda.torch_cuda.backend import TorchCudaBackend
from device_helpers import CUDA, DEVICE, HOST, Engine, hosted, placed
from stand_in import FakeCuda, host_view
from stand_in.backend import FakeGpuBackend
from tests.support.models import tiny_convnet

torch = pytest.importorskip("torch")

FLOAT32, TF32, BF16, F16 = Arithmetic.FLOAT32, Arithmetic.TF32, Arithmetic.BFLOAT16, Arithmetic.FLOAT16
EAGER = [variant for variant in TorchCudaBackend.variants if variant.name.startswith("cuda-eager")]


class OnHost(TorchCudaBackend):
    """Compiles for the processor what is to be compiled for the GPU, and declines nothing."""

    name = "torch_on_host"

    def declines(self, variant: Variant) -> str:
        return ""

    def compiled_for(self) -> str:
        return "cpu"


class EagerOnHost(OnHost):
    variants = tuple(variant for variant in EAGER if variant.arithmetic in (FLOAT32, F16))

    def variants_of(self, graph: Graph, nodes: NodeSet) -> tuple[Variant, ...]:
        offered = super().variants_of(graph, nodes)
        return tuple(variant for variant in self.variants if variant in offered)


def loaded(model: onnx.ModelProto, variant: Variant, folder: Path) -> DeviceExecutable:
    backend, graph = OnHost(), build_graph(model)
    built = backend.build(model, Target(), variant, folder)
    assert isinstance(built, Built), built
    ins, outs = ([graph.tensors[name] for name in side] for side in (graph.inputs, graph.outputs))
    found = backend.load(folder, Target(), variant, ins, outs)
    assert isinstance(found, DeviceExecutable)
    return found


def runs(model: onnx.ModelProto, variant: Variant, folder: Path) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Outputs of the second run, after new inputs, and what the reference gives."""
    graph, executable = build_graph(model), loaded(model, variant, folder)
    given = {name: np.array(value) for name, value in random_inputs(graph, 0).items()}
    made = [np.zeros(graph.tensors[name].shape, graph.tensors[name].dtype) for name in graph.outputs]
    call = executable.bind([hosted(given[name]) for name in graph.inputs], [hosted(array) for array in made])
    assert not executable.capturable
    call()
    for name, value in random_inputs(graph, 1).items():
        given[name][...] = value
    call()
    return made, Reference(model).run(given)


def largest_error(arithmetic: Arithmetic) -> float:
    return max(1e-4, ROUNDOFFS * arithmetic.roundoff)


def bert_layer() -> onnx.ModelProto:
    return make_builtin("builtin:bert?layers=1&length=12&hidden=32&heads=4&vocabulary=50", 0)[1]


def dcgan() -> onnx.ModelProto:
    net = Builder("dcgan_block")
    rng = np.random.default_rng(0)
    x = net.input("z", (1, 24, 4, 4))
    for wide, out in ((24, 16), (16, 8)):
        weight = net.const((rng.standard_normal((wide, out, 4, 4)) / np.sqrt(wide * 4)).astype(np.float32))
        x = net.op("ConvTranspose", x, weight, kernel_shape=[4, 4], strides=[2, 2], pads=[1, 1, 1, 1])
        x = net.op("Relu", x)
    return net.model(net.op("Tanh", x))


REGIONS: dict[str, Callable[[], onnx.ModelProto]] = {
    **{name: CASES[name] for name in ("residual_block", "shuffle_unit", "inception", "conv_3d_groups")},
    **{name: CASES[name] for name in ("attention", "gelu_tower", "classifier", "cast_compare_where")},
    "clipped": CASES["bottleneck_clipped"],
    "bert_layer": bert_layer,
    "dcgan": dcgan,
}


@pytest.mark.parametrize("variant", EAGER, ids=lambda variant: variant.name)
@pytest.mark.parametrize("region", REGIONS)
def test_regions_are_as_exact_as_the_variant_says(region: str, variant: Variant, tmp_path: Path) -> None:
    model = normalise(REGIONS[region]())
    made, wanted = runs(model, variant, tmp_path)
    error = relative_error(made, wanted).relative
    assert error < largest_error(variant.arithmetic)
    if variant.arithmetic in (BF16, F16) and region == "residual_block":
        assert error > variant.arithmetic.roundoff / 8


@pytest.mark.parametrize("name", ["cuda-eager", "cuda-eager-f16"])
def test_a_profile_has_the_time_of_every_operator_or_of_what_it_is_fused_into(name: str, tmp_path: Path) -> None:
    model = normalise(CASES["inception"]())
    backend, graph = OnHost(), build_graph(model)
    variant = backend.variant(name)
    assert backend.profiles(variant)
    assert not backend.profiles(backend.variant("cuda-aoti"))
    extracted = extract(graph, graph.all_nodes)
    assert isinstance(backend.build(extracted, Target(), variant, tmp_path), Built)
    inputs = list(random_inputs(extracted, 0).values())
    times = backend.profile(tmp_path, Target(), variant, inputs, 0.0)
    region = Region(graph.all_nodes, backend.name, name)
    kernels = kernels_of(graph, region, extracted, times)
    assert not heavy_operators(graph, graph.all_nodes & ~reduce(or_, (nodes for nodes, _ in kernels)))
    assert all(nodes for nodes, _ in kernels)
    assert all(ms > 0.0 for _, ms in kernels)


def test_what_is_compiled_ahead_of_time_runs_by_the_same_path(tmp_path: Path) -> None:
    model = CASES["conv_relu"]()
    made, wanted = runs(model, OnHost().variant("cuda-aoti-bf16"), tmp_path)
    assert BF16.roundoff / 8 < relative_error(made, wanted).relative < largest_error(BF16)


@pytest.mark.parametrize(
    ("name", "last"), [("cuda-eager", False), ("cuda-eager-tf32", True), ("cuda-eager-f16", True)]
)
def test_filters_have_their_channels_last_for_matrix_instructions(name: str, last: bool, tmp_path: Path) -> None:
    assert isinstance(OnHost().build(CASES["residual_block"](), Target(), OnHost().variant(name), tmp_path), Built)
    weights = torch.export.load(str(tmp_path / "eager.pt2")).state_dict.values()
    filters = [weight for weight in weights if weight.ndim == 4]
    assert {tuple(weight.shape[2:]) for weight in filters} == {(1, 1), (3, 3)}
    # Order in memory as PyTorch reads it from strides.
    assert all((sorted(range(4), key=weight.stride)[0] == 1 and weight.stride(3) > 1) is last for weight in filters)


def test_a_mask_beyond_float16_stays_a_number(tmp_path: Path) -> None:
    net = Builder("masked")
    scores = net.op("MatMul", net.input("x", (3, 4)), net.const(np.eye(4, dtype=np.float32)))
    mask = np.array([0, np.finfo(np.float32).min, 0, np.finfo(np.float32).min], np.float32)
    model = net.model(net.op("Mul", net.op("Add", scores, net.const(mask)), net.const(np.zeros(1, np.float32))))
    made, _ = runs(model, OnHost().variant("cuda-eager-f16"), tmp_path)
    assert not made[0].any()


def test_every_promise_is_kept_on_arrays_of_a_device(fake_cuda: FakeCuda) -> None:
    effort = Effort(cases=False, examples=0, per_pattern=1)
    models = {name: CASES[name]() for name in ("residual_block", "attention")}
    with fake_cuda.used():
        report = check_backend(EagerOnHost(), models, effort)
    assert not report.failures
    assert report.count("instances", "passed") == report.count("reload", "passed") >= 4


MODEL = tiny_convnet()


def image(seed: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).standard_normal((1, 3, 16, 16)).astype(np.float32)}


@pytest.fixture
def registered(fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A driver without a GPU, and the backends that run on it."""
    for backend in (OnHost, FakeGpuBackend):
        monkeypatch.setitem(registry._registered, backend.name, backend)
    with fake_cuda.used():
        yield


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("others", [(), (HOST,), (DEVICE, HOST)], ids=["alone", "host", "device and host"])
def test_a_session_runs_pieces_of_it_beside_others(others: tuple[Engine, ...], tmp_path: Path) -> None:
    program = placed(MODEL, tmp_path, (OnHost.name, "cuda-eager"), *others)
    with Session([program], CUDA) as session:
        for seed in range(4):
            wanted = reference_outputs(MODEL, image(seed), 1)[0]
            assert session.run(None, image(seed))[0] == pytest.approx(wanted, rel=1e-4, abs=1e-5)
        device = open_device("cuda")
        given = device.arena(4 * 3 * 16 * 16)(0, (1, 3, 16, 16), "float32")
        device.copy_in(given, image(9)["x"])
        (made,) = session.run_on_device({"x": given}).values()
        assert host_view(made) == pytest.approx(reference_outputs(MODEL, image(9), 1)[0], rel=1e-4, abs=1e-5)


def fused(model: onnx.ModelProto) -> Counter[str]:
    """The functions of PyTorch that the steps of the whole model call, all else being one operator a step."""
    graph = build_graph(normalise(model))
    found = steps(graph, FUSIONS)
    calls = [step.run.args[0].__qualname__.split(".")[0] for step in found if len(step.run.args) == 1]
    return Counter(calls)


def test_attention_products_and_gelu_are_one_kernel_each() -> None:
    assert fused(bert_layer()) == {"_attention": 1, "_linear_kernel": 6, "_gelu_kernel": 1}


def two_layers(bias: Sequence[int], kept: bool = False, **gemm: Any) -> onnx.ModelProto:
    net = Builder("layers")
    x, weight = net.input("x", (3, 4)), net.const(np.ones((4, 5), np.float32))
    y = net.op("Gemm", x, weight, net.const(np.ones(bias, np.float32)), **gemm)
    z = net.op("Relu", y)
    return net.model(*((y, z) if kept else (z,)))


def test_a_gemm_takes_its_activation_along() -> None:
    assert fused(two_layers([5])) == {"_gemm_kernel": 1}


@pytest.mark.parametrize(
    "model", [two_layers([3, 5]), two_layers([1]), two_layers([5], kept=True), two_layers([5], alpha=0.5)]
)
def test_what_cublas_has_no_epilogue_for_stays_apart(model: onnx.ModelProto) -> None:
    assert not fused(model)


def softmax_of(scores: Callable[[Builder, str], str], axis: int = -1) -> onnx.ModelProto:
    net = Builder("attention")
    product = net.op("MatMul", net.input("q", (2, 3, 4)), net.input("k", (2, 4, 3)))
    weights = net.op("Softmax", scores(net, product), axis=axis)
    return net.model(net.op("MatMul", weights, net.input("v", (2, 3, 4))))


def test_attention_is_taken_as_one_only_where_it_is_attention(tmp_path: Path) -> None:
    def number(net: Builder) -> str:
        return net.const(np.array(2, np.float32))

    plain = softmax_of(lambda net, scores: net.op("Div", scores, number(net)))
    upside_down = softmax_of(lambda net, scores: net.op("Div", number(net), scores))
    columns = softmax_of(lambda net, scores: net.op("Mul", scores, number(net)), axis=1)
    spread = softmax_of(lambda net, scores: net.op("Add", scores, net.input("m", (2, 3, 3))))
    assert fused(plain) == fused(spread) == {"_attention": 1}
    assert not fused(upside_down)
    assert not fused(columns)
    for place, model in enumerate((plain, spread)):
        folder = tmp_path / str(place)
        folder.mkdir()
        made, wanted = runs(model, EAGER[0], folder)
        assert relative_error(made, wanted).relative < 1e-5


def test_lower_precisions_are_offered_where_something_heavy_is_multiplied() -> None:
    def names(model: onnx.ModelProto) -> list[str]:
        graph = build_graph(model)
        return [v.name for v in Torch().variants_of(graph, graph.all_nodes) if v.device == "cuda"]

    assert names(CASES["relu"]()) == ["cuda-eager"]
    assert names(CASES["elementwise_chain"]()) == ["cuda-eager", "cuda-aoti"]
    assert len(names(CASES["conv_3x3"]())) == 8


def test_products_of_integers_stay_on_the_processor() -> None:
    net = Builder("integers")
    product = net.op("MatMul", *(net.input(name, (3, 3), TensorProto.INT64) for name in "xy"))
    graph = build_graph(net.model(product))
    assert {v.device for v in Torch().variants_of(graph, graph.all_nodes)} == {"cpu"}
