"""A build of PyTorch that cannot compute on the GPU here is declined with the reason."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from collage_evo.backends.base import BuildFailure, Target
from collage_evo.testing.cases import CASES
from collage_evo_cuda.libraries.torch import Torch
from collage_evo_cuda.torch_cuda import requirements as cuda
from stand_in import FakeCuda

torch = pytest.importorskip("torch")

ARCHITECTURES = ["sm_75", "sm_80", "sm_90a", "compute_120"]


@pytest.fixture
def build_of_torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A build for CUDA, with code for some GPUs; what a test sets is forgotten."""
    cuda._without_gpu.cache_clear()
    monkeypatch.setattr(cuda, "built_for", lambda: "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ARCHITECTURES)
    yield monkeypatch
    monkeypatch.undo()
    cuda._without_gpu.cache_clear()


def declined(name: str = "cuda-eager") -> str:
    backend = Torch()
    return backend.declines(backend.variant(name))


def test_a_build_without_cuda_is_declined(build_of_torch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    build_of_torch.setattr(cuda, "built_for", lambda: "")
    assert declined() == "torch was built without CUDA: install a CUDA build"
    assert not declined("default")
    built = Torch().build(CASES["conv_relu"](), Target(), Torch().variant("cuda-aoti"), tmp_path)
    assert isinstance(built, BuildFailure)
    assert "built without CUDA" in built.reason


def test_what_torch_was_built_for_is_what_torch_says() -> None:
    assert cuda.built_for() == (torch.version.cuda or "")


@pytest.mark.usefixtures("build_of_torch")
def test_a_machine_without_a_gpu_is_declined(fake_cuda: FakeCuda) -> None:
    with fake_cuda.used(cuda_devices=0):
        assert declined() == "no CUDA device here: the NVIDIA driver finds no device"


@pytest.mark.parametrize(
    ("available", "reason"),
    [
        (True, "no code for compute capability 7.0 (it has sm_75, sm_80, sm_90a, compute_120)"),
        (False, "its driver may be too old"),
    ],
)
def test_a_gpu_that_the_build_does_not_serve_is_declined(
    build_of_torch: pytest.MonkeyPatch, fake_cuda: FakeCuda, available: bool, reason: str
) -> None:
    build_of_torch.setattr(torch.cuda, "is_available", lambda: available)
    with fake_cuda.used(cuda_capability="7.0"):
        assert reason in declined()


@pytest.mark.parametrize(
    ("capability", "served"),
    [((7, 0), False), ((7, 5), True), ((8, 9), True), ((9, 0), False), ((12, 0), True), ((12, 1), True)],
)
def test_binaries_serve_their_generation_and_ptx_all_later_ones(capability: tuple[int, int], served: bool) -> None:
    assert (cuda.without_code(ARCHITECTURES, capability, "13.0") == "") is served


@pytest.mark.usefixtures("build_of_torch")
def test_arithmetic_without_matrix_instructions_is_declined(fake_cuda: FakeCuda) -> None:
    with fake_cuda.used(cuda_capability="7.5"):
        names = [variant.name for variant in Torch.variants if declined(variant.name)]
    assert names == ["cuda-eager-tf32", "cuda-eager-bf16", "cuda-aoti-tf32", "cuda-aoti-bf16"]


def test_without_a_toolkit_nothing_is_compiled(build_of_torch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    build_of_torch.setattr(cuda, "unusable", lambda arithmetic: "")
    build_of_torch.setattr("torch.utils.cpp_extension.CUDA_HOME", None)
    built = Torch().build(CASES["conv_relu"](), Target(), Torch().variant("cuda-aoti"), tmp_path)
    assert isinstance(built, BuildFailure)
    assert "install a CUDA toolkit and set CUDA_HOME" in built.reason


def test_inductor_hears_of_the_toolkit_that_pytorch_found(build_of_torch: pytest.MonkeyPatch) -> None:
    build_of_torch.setenv("CUDA_HOME", "/somewhere")
    build_of_torch.delenv("CUDA_HOME")
    build_of_torch.setattr("torch.utils.cpp_extension.CUDA_HOME", "/opt/cuda")
    cuda.require_toolkit()
    assert os.environ["CUDA_HOME"] == "/opt/cuda"
