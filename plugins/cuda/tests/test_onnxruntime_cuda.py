"""ONNX Runtime on a GPU: which providers it asks for, what it refuses, how it is bound. The library is a stand-in."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from collage_evo.backends import base
from collage_evo.backends.base import BuildFailure, Built, Target
from collage_evo.errors import InputError
from collage_evo.graph.ir.graph import Tensor
from collage_evo.models.builder import Builder
from collage_evo.testing.cases import CASES
from collage_evo_cuda import onnxruntime as cuda
from collage_evo_cuda.cuda import Device
from collage_evo_cuda.device import DeviceExecutable
from collage_evo_cuda.libraries.onnxruntime import OnnxRuntime
from stand_in import FakeCuda

BACKEND = OnnxRuntime()
BORDER = ([Tensor("x", "float32", (1, 8, 13, 11))], [Tensor("y", "float32", (1, 8, 13, 11))])


class Session:
    """What the library makes, with the options that it was given."""

    def __init__(self, path: str, options: Any, providers: Any, enable_fallback: int) -> None:
        self.path, self.options, self.providers, self.enable_fallback = path, options, providers, enable_fallback
        self.bound: list[tuple[Any, ...]] = []
        self.runs: list[dict[str, str]] = []

    def get_providers(self) -> list[str]:
        return [name for name, _ in self.providers]

    def get_inputs(self) -> list[Any]:
        return [SimpleNamespace(name="x", type="tensor(float)", shape=[1, 8, 13, 11])]

    def get_outputs(self) -> list[Any]:
        return [SimpleNamespace(name="y", type="tensor(float)", shape=[1, 8, 13, 11])]

    def io_binding(self) -> Session:
        return self

    def bind_input(self, *given: Any) -> None:
        self.bound.append(given)

    bind_output = bind_input

    def run_with_iobinding(self, binding: Session, run_options: Any) -> None:
        assert binding is self
        self.runs.append(run_options.entries)


class Options:
    def __init__(self) -> None:
        self.entries: dict[str, str] = {}

    def add_session_config_entry(self, key: str, value: str) -> None:
        self.entries[key] = value

    add_run_config_entry = add_session_config_entry


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """A library with the CUDA provider; ``made`` are the sessions."""
    made: list[Session] = []

    def session(*given: Any, **named: Any) -> Session:
        made.append(Session(*given, **named))
        return made[-1]

    module = SimpleNamespace(
        InferenceSession=session,
        SessionOptions=Options,
        RunOptions=Options,
        GraphOptimizationLevel=SimpleNamespace(ORT_ENABLE_ALL="all"),
        get_available_providers=lambda: [cuda.CUDA, "CPUExecutionProvider"],
        preload_dlls=lambda: None,
        made=made,
    )
    monkeypatch.setitem(sys.modules, "onnxruntime", module)
    cuda.available_providers.cache_clear()
    yield module
    cuda.available_providers.cache_clear()


@pytest.mark.parametrize(("variant", "tf32"), [("cuda", "0"), ("cuda-tf32", "1")])
def test_sessions_are_on_the_device_alone(
    variant: str, tf32: str, library: Any, device: Device, tmp_path: Path
) -> None:
    chosen = BACKEND.variant(variant)
    assert BACKEND.build(CASES["conv_1x1"](), Target("cuda"), chosen, tmp_path) == Built(("model.onnx",))
    BACKEND.load(tmp_path, Target("cuda"), chosen, *BORDER)
    for session, stream in zip(library.made, (None, str(device.stream)), strict=True):
        assert session.enable_fallback == 0
        assert session.options.entries["session.disable_cpu_ep_fallback"] == "1"
        assert [name for name, _ in session.providers] == [cuda.CUDA]
        assert {options.get("user_compute_stream") for _, options in session.providers} == {stream}
        assert dict(session.providers)[cuda.CUDA]["use_tf32"] == tf32
        assert all(isinstance(value, str) for _, options in session.providers for value in options.values())


def test_a_call_is_bound_to_the_arrays_and_does_not_wait(library: Any, device: Device, tmp_path: Path) -> None:
    BACKEND.build(CASES["conv_1x1"](), Target("cuda"), BACKEND.variant("cuda"), tmp_path)
    loaded = BACKEND.load(tmp_path, Target("cuda"), BACKEND.variant("cuda"), *BORDER)
    assert isinstance(loaded, DeviceExecutable)
    assert not loaded.capturable
    x, y = (device.arena(4576)(0, (1, 8, 13, 11), "float32") for _ in range(2))
    call = loaded.bind([x], [y])
    session = library.made[-1]
    assert session.bound == [(name, "cuda", 0, np.float32, a.shape, a.pointer) for name, a in (("x", x), ("y", y))]
    call()
    assert session.runs == [{"disable_synchronize_execution_providers": "1"}]


def test_a_provider_that_did_not_load_is_a_failed_build(
    library: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Session, "get_providers", lambda self: ["CPUExecutionProvider"])
    built = BACKEND.build(CASES["conv_1x1"](), Target("cuda"), BACKEND.variant("cuda"), tmp_path)
    assert isinstance(built, BuildFailure)
    assert "CUDAExecutionProvider could not be loaded" in built.reason


def test_open_shapes_have_no_arrays_on_the_device(library: Any, tmp_path: Path) -> None:
    b = Builder("open")
    model = b.model(b.op("Relu", b.input("x", ("n", 4))))
    built = BACKEND.build(model, Target("cuda"), BACKEND.variant("cuda"), tmp_path)
    assert built == BuildFailure("onnxruntime: x has no static shape, and so no array on the device")
    assert not library.made


def test_arrays_of_another_stream_are_refused(library: Any, device: Device) -> None:
    loaded = cuda.LoadedOnDevice(Session("", None, [], 0), device.stream + 1)
    array = device.arena(4)(0, (1,), "float32")
    with pytest.raises(InputError, match="another stream"):
        loaded.bind([array], [array])


def test_what_is_missing_is_said(library: Any, fake_cuda: FakeCuda) -> None:
    variant = BACKEND.variant
    with fake_cuda.used():
        assert not any(BACKEND.declines(one) for one in cuda.OnnxRuntimeCudaBackend.variants)
        library.get_available_providers = lambda: ["CPUExecutionProvider"]
        cuda.available_providers.cache_clear()
        assert "without CUDAExecutionProvider: pip install onnxruntime-gpu" in BACKEND.declines(variant("cuda"))
    with fake_cuda.used(cuda_capability="7.5"):
        assert "tf32 arithmetic needs compute capability 8.0" in BACKEND.declines(variant("cuda-tf32"))
    with fake_cuda.used(cuda_devices=0):
        assert "no CUDA device here" in BACKEND.declines(variant("cuda"))


def test_the_installed_library_has_no_gpu_and_the_cpu_goes_on_as_before(tmp_path: Path) -> None:
    assert BACKEND.declines(BACKEND.variant("cuda"))
    default = base.DEFAULT
    assert isinstance(BACKEND.build(CASES["conv_1x1"](), Target(), default, tmp_path), Built)
    assert BACKEND.devices == ("cpu", "cuda")
