"""TensorRT as a backend, with a stand-in for the library: how it is asked, what is refused, how engines run."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

import fake_tensorrt
from collage_evo.backends.base import BuildFailure, Built, Target
from collage_evo.backends.variants import Arithmetic
from collage_evo.errors import CollageError, InputError
from collage_evo.graph.convert.read import build_graph
from collage_evo.graph.ir.graph import Tensor
from collage_evo.models.builder import Builder
from collage_evo.testing.cases import CASES
from collage_evo_cuda.cuda import Device
from collage_evo_cuda.device import DeviceExecutable
from collage_evo_cuda.tensorrt import TensorRtBackend
from collage_evo_cuda.tensorrt.half import in_half
from device_helpers import largest_error
from fake_tensorrt import BuilderFlag
from stand_in import FakeCuda

BACKEND = TensorRtBackend()


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> Iterator[fake_tensorrt.Record]:
    yield fake_tensorrt.install(monkeypatch)
    fake_tensorrt.forget()


def border(model: onnx.ModelProto) -> tuple[list[Tensor], list[Tensor]]:
    graph = build_graph(model)
    return [graph.tensors[name] for name in graph.inputs], [graph.tensors[name] for name in graph.outputs]


@pytest.mark.parametrize("variant", ["cuda", "cuda-tf32", "cuda-f16", "cuda-bf16"])
@pytest.mark.parametrize("case", ["conv_add_relu", "resize_nearest"])
def test_an_engine_runs_on_the_device_and_from_a_capture(
    variant: str, case: str, device: Device, record: fake_tensorrt.Record, tmp_path: Path
) -> None:
    model, chosen = CASES[case](), BACKEND.variant(variant)
    assert BACKEND.build(model, Target("cuda"), chosen, tmp_path) == Built(("model.engine",))
    inputs, outputs = border(model)
    loaded = BACKEND.load(tmp_path, Target("cuda"), chosen, inputs, outputs)
    assert isinstance(loaded, DeviceExecutable)
    assert loaded.capturable
    assert largest_error(device, loaded, model) < 8 * max(chosen.arithmetic.roundoff, 1e-6)


@pytest.mark.parametrize("variant", ["cuda", "cuda-tf32", "cuda-f16", "cuda-bf16"])
def test_tf32_is_off_unless_it_was_asked_for(variant: str, record: fake_tensorrt.Record, tmp_path: Path) -> None:
    BACKEND.build(CASES["conv_1x1"](), Target("cuda"), BACKEND.variant(variant), tmp_path)
    assert record.flags == [{BuilderFlag.TF32} if variant == "cuda-tf32" else set()]


@pytest.mark.parametrize(("version", "flags"), [(10, 1 << 1), (11, 0)])
def test_networks_have_the_types_of_their_model(
    version: int, flags: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    record = fake_tensorrt.install(monkeypatch, version)
    BACKEND.build(CASES["conv_1x1"](), Target("cuda"), BACKEND.variant("cuda-f16"), tmp_path)
    fake_tensorrt.forget()
    assert record.typed == [flags]
    assert {tensor.data_type for tensor in record.models[0].graph.initializer} == {TensorProto.FLOAT16}


def test_what_the_library_says_is_the_reason(record: fake_tensorrt.Record, tmp_path: Path) -> None:
    variant = BACKEND.variant("cuda")
    record.refuse = "In node 0: UNSUPPORTED_NODE"
    assert BACKEND.build(CASES["relu"](), Target("cuda"), variant, tmp_path) == BuildFailure(
        "tensorrt: In node 0: UNSUPPORTED_NODE"
    )
    record.refuse, record.fail = "", "Could not find any implementation"
    assert BACKEND.build(CASES["relu"](), Target("cuda"), variant, tmp_path) == BuildFailure(
        "tensorrt: Could not find any implementation"
    )
    record.silent = True
    assert BACKEND.build(CASES["relu"](), Target("cuda"), variant, tmp_path) == BuildFailure(
        "tensorrt: no engine could be built"
    )


def test_an_engine_that_is_none_or_another_is_refused(record: fake_tensorrt.Record, tmp_path: Path) -> None:
    model, variant = CASES["relu"](), BACKEND.variant("cuda")
    BACKEND.build(model, Target("cuda"), variant, tmp_path)
    inputs, outputs = border(model)
    with pytest.raises(InputError, match="build the region anew"):
        BACKEND.load(tmp_path, Target("cuda"), variant, [Tensor("x", "float32", (1, 1))], outputs)
    (tmp_path / "model.engine").write_bytes(b"\xff\xff")
    with pytest.raises(InputError, match="Serialization assertion failed"):
        BACKEND.load(tmp_path, Target("cuda"), variant, inputs, outputs)


def test_a_model_in_halves_keeps_its_border_and_its_integers() -> None:
    b = Builder("mixed")
    x = b.op("Reshape", b.input("x", (2, 6)), b.ints(3, 4))
    weight = b.const(np.full((4, 5), 0.1, np.float32), "weight")
    model = b.model(b.op("Cast", b.op("MatMul", x, weight), to=TensorProto.FLOAT))
    for arithmetic, kind in ((Arithmetic.FLOAT16, TensorProto.FLOAT16), (Arithmetic.BFLOAT16, TensorProto.BFLOAT16)):
        made = in_half(model, arithmetic)
        border_types = {value.type.tensor_type.elem_type for value in (*made.graph.input, *made.graph.output)}
        assert border_types == {TensorProto.FLOAT}
        types = {tensor.name: tensor.data_type for tensor in made.graph.initializer}
        assert types.pop("weight") == kind
        assert set(types.values()) == {TensorProto.INT64}
        assert [node.op_type for node in made.graph.node] == ["Cast", "Reshape", "MatMul", "Cast", "Cast"]
        assert [a.i for node in made.graph.node for a in node.attribute if a.name == "to"] == [kind, kind, 1]


def test_what_halves_cannot_hold_is_refused() -> None:
    b = Builder("large")
    model = b.model(b.op("Mul", b.input("x", (2,)), b.const(np.array([1e6, np.inf], np.float32))))
    with pytest.raises(CollageError, match="too large for float16"):
        in_half(model, Arithmetic.FLOAT16)
    assert numpy_helper.to_array(in_half(model, Arithmetic.BFLOAT16).graph.initializer[0]).astype(float)[0] > 9e5


def test_the_probe_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, fake_cuda: FakeCuda) -> None:
    assert "tensorrt is not installed" in BACKEND.probe().reason
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "9.3.0")
    assert "older than 10:" in BACKEND.probe().reason
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "10rc1")
    assert "a name without the library" in BACKEND.probe().reason
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    with fake_cuda.used(cuda_devices=0):
        assert "no CUDA device here" in BACKEND.probe().reason
    with fake_cuda.used(cuda_capability="7.0"):
        assert "needs compute capability 7.5" in BACKEND.probe().reason
    with fake_cuda.used():
        assert BACKEND.probe().available


def test_nodes_that_no_engine_takes_are_refused() -> None:
    graph = build_graph(CASES["relu"]())
    assert BACKEND.supports_node(graph, graph.nodes[0])
    b = Builder("double")
    graph = build_graph(b.model(b.op("Relu", b.input("x", (2,), TensorProto.DOUBLE))))
    assert "float64" in BACKEND.supports_node(graph, graph.nodes[0]).reason
