"""PyTorch's variants for CUDA, run where there is no GPU: on arrays that lie in the host's memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from collage_evo.backends.base import BuildFailure, Built, DeviceExecutable, Target
from collage_evo.backends.torch import cuda
from collage_evo.backends.torch.backend import TorchBackend
from collage_evo.backends.torch.fusions import FUSIONS, steps
from collage_evo.backends.torch.loaded import LoadedOnDevice
from collage_evo.backends.torch.switches import computing_in
from collage_evo.backends.variants import Arithmetic, Variant
from collage_evo.devices.device import DeviceArray
from collage_evo.devices.dlpack import CPU
from collage_evo.errors import UnavailableError
from collage_evo.graph.inputs import random_inputs
from collage_evo.graph.normalise import normalise
from collage_evo.graph.read import build_graph
from collage_evo.graph.reference import Reference, relative_error
from collage_evo.models.builder import Builder
from collage_evo.models.builtin import make_builtin
from collage_evo.testing.cases import CASES
from collage_evo.testing.conformance import ROUNDOFFS

torch = pytest.importorskip("torch")

FLOAT32, TF32, BF16, F16 = Arithmetic.FLOAT32, Arithmetic.TF32, Arithmetic.BFLOAT16, Arithmetic.FLOAT16
EAGER = [variant for variant in TorchBackend.variants if variant.name.startswith("cuda-eager")]


class OnHost(TorchBackend):
    """Compiles for the processor what is to be compiled for the GPU, and declines nothing."""

    def declines(self, variant: Variant) -> str:
        return ""

    def compiled_for(self, variant: Variant) -> str:
        return "cpu"


def on_device(array: np.ndarray) -> DeviceArray:
    """What a device gives whose memory is the host's."""
    return DeviceArray(array.ctypes.data, array.shape, str(array.dtype), (CPU, 0), 0, array)


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
    call = executable.bind([on_device(given[name]) for name in graph.inputs], [on_device(array) for array in made])
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


def test_what_is_compiled_ahead_of_time_runs_by_the_same_path(tmp_path: Path) -> None:
    model = CASES["conv_relu"]()
    made, wanted = runs(model, OnHost().variant("cuda-aoti-bf16"), tmp_path)
    assert BF16.roundoff / 8 < relative_error(made, wanted).relative < largest_error(BF16)


def test_a_mask_beyond_float16_stays_a_number(tmp_path: Path) -> None:
    net = Builder("masked")
    scores = net.op("MatMul", net.input("x", (3, 4)), net.const(np.eye(4, dtype=np.float32)))
    mask = np.array([0, np.finfo(np.float32).min, 0, np.finfo(np.float32).min], np.float32)
    model = net.model(net.op("Mul", net.op("Add", scores, net.const(mask)), net.const(np.zeros(1, np.float32))))
    made, _ = runs(model, OnHost().variant("cuda-eager-f16"), tmp_path)
    assert not made[0].any()


def fused(model: onnx.ModelProto) -> Counter[str]:
    """The functions of PyTorch that the steps of the whole model call, all else being one operator a step."""
    graph = build_graph(normalise(model))
    found = steps(graph, FUSIONS)
    calls = [step.run.args[0].__qualname__.split(".")[0] for step in found if len(step.run.args) == 1]
    inside = len(graph.nodes) - len(found)
    assert inside > 0 or not calls
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
        return [v.name for v in TorchBackend().variants_of(graph, graph.all_nodes) if v.device == "cuda"]

    assert names(CASES["relu"]()) == ["cuda-eager"]
    assert names(CASES["elementwise_chain"]()) == ["cuda-eager", "cuda-aoti"]
    assert len(names(CASES["conv_3x3"]())) == 8


def test_products_of_integers_stay_on_the_processor() -> None:
    net = Builder("integers")
    product = net.op("MatMul", *(net.input(name, (3, 3), TensorProto.INT64) for name in "xy"))
    graph = build_graph(net.model(product))
    assert {v.device for v in TorchBackend().variants_of(graph, graph.all_nodes)} == {"cpu"}


def switches() -> dict[str, Any]:
    """All that a variant's arithmetic decides, in both generations of PyTorch's switches."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    parts = {"matmul": matmul, "convolution": cudnn.conv, "recurrent": cudnn.rnn, "cudnn": cudnn}
    found = {name: part.fp32_precision for name, part in parts.items()}
    for name in ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction"):
        found[name] = getattr(matmul, name)
    found["benchmark"] = cudnn.benchmark
    for name, holder in (("older matmul", matmul), ("older cudnn", cudnn)):
        try:
            found[name] = holder.allow_tf32
        except RuntimeError:
            found[name] = "disagrees"
    return found


@pytest.fixture
def clean_switches() -> Iterator[None]:
    """PyTorch's own defaults, before and after."""

    def reset() -> None:
        torch.backends.fp32_precision = "none"
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = False, True

    reset()
    yield
    reset()


@pytest.mark.usefixtures("clean_switches")
@pytest.mark.parametrize("arithmetic", [FLOAT32, TF32, BF16, F16])
def test_tf32_is_on_in_calls_of_its_own_variants_alone(arithmetic: Arithmetic) -> None:
    seen: list[dict[str, Any]] = []

    def program(x: Any) -> tuple[Any]:
        seen.append(switches())
        return (x + 1,)

    x, y = np.zeros(3, np.float32), np.zeros(3, np.float32)
    before = switches()
    call = LoadedOnDevice(lambda place: program, arithmetic).bind([on_device(x)], [on_device(y)])
    call()
    assert switches() == before
    in_bind, in_call = seen
    assert in_bind == in_call | {"benchmark": True}
    tf32 = arithmetic is TF32
    assert {in_call[part] for part in ("matmul", "convolution", "recurrent", "cudnn")} == {"tf32" if tf32 else "ieee"}
    assert in_call["older matmul"] is in_call["older cudnn"] is tf32
    assert not any(value for name, value in in_call.items() if "reduced" in name or name == "benchmark")
    assert y.tolist() == [1, 1, 1]


@pytest.mark.usefixtures("clean_switches")
def test_switches_are_as_they_were_after_a_call_that_fails() -> None:
    def program(x: Any) -> tuple[Any]:
        if x.all():
            raise RuntimeError("not today")
        return (x,)

    x, y = np.zeros(3, np.float32), np.zeros(3, np.float32)
    before = switches()
    call = LoadedOnDevice(lambda place: program, TF32).bind([on_device(x)], [on_device(y)])
    x[...] = 1
    with pytest.raises(RuntimeError, match="not today"):
        call()
    assert switches() == before


@pytest.mark.usefixtures("clean_switches")
@pytest.mark.parametrize("precision", ["tf32", "ieee", "none"])
def test_switches_that_somebody_set_by_the_newer_names_alone_are_kept(precision: str) -> None:
    torch.backends.cuda.matmul.fp32_precision = precision
    torch.backends.cudnn.conv.fp32_precision = precision
    before = switches()
    with computing_in(FLOAT32):
        assert not switches()["older matmul"]
    assert switches() == before


@pytest.fixture
def build_of_torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """What is asked of PyTorch and of the GPU may be set, and is forgotten."""
    cuda._without_gpu.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    cuda._without_gpu.cache_clear()


def declined(name: str = "cuda-eager") -> str:
    backend = TorchBackend()
    return backend.declines(backend.variant(name))


def test_a_build_without_cuda_is_declined(build_of_torch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    build_of_torch.setattr(cuda, "built_for", lambda: "")
    assert declined() == "torch was built without CUDA: install a CUDA build"
    assert not declined("default")
    built = TorchBackend().build(CASES["conv_relu"](), Target(), TorchBackend().variant("cuda-aoti"), tmp_path)
    assert isinstance(built, BuildFailure)
    assert "built without CUDA" in built.reason


def test_what_torch_was_built_for_is_what_torch_says() -> None:
    assert cuda.built_for() == (torch.version.cuda or "")


def test_a_machine_without_a_gpu_is_declined(build_of_torch: pytest.MonkeyPatch) -> None:
    def gpu_capability() -> tuple[int, int]:
        raise UnavailableError("the NVIDIA driver finds no device")

    build_of_torch.setattr(cuda, "built_for", lambda: "13.0")
    build_of_torch.setattr(cuda, "gpu_capability", gpu_capability)
    assert declined() == "the NVIDIA driver finds no device"


def test_a_gpu_that_the_build_has_no_code_for_is_declined(build_of_torch: pytest.MonkeyPatch) -> None:
    build_of_torch.setattr(cuda, "built_for", lambda: "13.0")
    build_of_torch.setattr(cuda, "gpu_capability", lambda: (7, 0))
    build_of_torch.setattr(torch.cuda, "is_available", lambda: True)
    build_of_torch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_75", "sm_80", "sm_90a", "compute_120"])
    assert "no code for compute capability 7.0 (it has sm_75, sm_80, sm_90a, compute_120)" in declined()
    build_of_torch.setattr(torch.cuda, "is_available", lambda: False)
    cuda._without_gpu.cache_clear()
    assert "its driver may be too old" in declined()


@pytest.mark.parametrize(
    ("capability", "served"),
    [((7, 0), False), ((7, 5), True), ((8, 9), True), ((9, 0), False), ((12, 0), True), ((12, 1), True)],
)
def test_binaries_serve_their_generation_and_ptx_all_later_ones(capability: tuple[int, int], served: bool) -> None:
    architectures = ["sm_75", "sm_80", "sm_90a", "compute_120"]
    assert (cuda.without_code(architectures, capability, "13.0") == "") is served


def test_arithmetic_without_matrix_instructions_is_declined(build_of_torch: pytest.MonkeyPatch) -> None:
    build_of_torch.setattr(cuda, "_without_gpu", lambda: "")
    build_of_torch.setattr(cuda, "gpu_capability", lambda: (7, 5))
    names = [variant.name for variant in TorchBackend.variants if declined(variant.name)]
    assert names == ["cuda-eager-tf32", "cuda-eager-bf16", "cuda-aoti-tf32", "cuda-aoti-bf16"]
