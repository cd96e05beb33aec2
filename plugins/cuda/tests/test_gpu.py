"""What the driver says of the GPU, and why there is none."""

from collections.abc import Callable
from functools import partial

import pytest

from collage_evo.backends.registry import get_backend
from collage_evo.backends.select import require_accelerator
from collage_evo.errors import UnavailableError
from collage_evo.hardware.target import Target
from collage_evo_cuda import driver
from collage_evo_cuda.gpu import describe_gpu, gpu_capability
from collage_evo_cuda.open import open_device
from stand_in import FakeCuda, forget_driver


def test_a_gpu_is_described_by_its_driver(fake_cuda: FakeCuda) -> None:
    with fake_cuda.used(cuda_capability="7.0"):
        assert describe_gpu() == "Fake GPU, compute capability 7.0, CUDA 13.0"
        assert gpu_capability() == (7, 0)


def test_without_a_driver_its_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "LIBRARY", "libcuda-of-nobody.so.1")
    forget_driver()
    with pytest.raises(UnavailableError, match=r"the NVIDIA driver's libcuda.so.1 is not installed"):
        gpu_capability()


@pytest.mark.parametrize(
    "ask", [gpu_capability, partial(require_accelerator, Target("cuda")), partial(open_device, "cuda")]
)
def test_a_driver_without_a_device_says_so(fake_cuda: FakeCuda, ask: Callable[[], object]) -> None:
    with fake_cuda.used(cuda_devices=0), pytest.raises(UnavailableError, match="the NVIDIA driver finds no device"):
        ask()


@pytest.mark.parametrize(
    ("name", "declined"),
    [("cudnn", {"cuda-tf32", "cuda-tf32-nhwc", "cuda-bf16"}), ("tensorrt", {"cuda-tf32", "cuda-bf16"})],
)
def test_what_a_gpu_cannot_compute_in_is_declined(fake_cuda: FakeCuda, name: str, declined: set[str]) -> None:
    backend = get_backend(name)
    for capability, expected in (("7.5", declined), ("9.0", set())):
        with fake_cuda.used(cuda_capability=capability):
            assert {variant.name for variant in backend.variants if backend.declines(variant)} == expected


def test_a_gpu_that_serves_one_process_alone_is_no_device_for_a_search(fake_cuda: FakeCuda) -> None:
    exclusive = 3
    with fake_cuda.used(cuda_compute_mode=exclusive), pytest.raises(UnavailableError, match="--compute-mode=DEFAULT"):
        require_accelerator(Target("cuda"))
    with fake_cuda.used():
        require_accelerator(Target("cuda"))
