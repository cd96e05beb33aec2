"""Who takes part: what is usable here and serves the device that is asked for."""

from typing import Any, ClassVar

import pytest

from collage_evo.backends import select as module
from collage_evo.backends.base import Probe
from collage_evo.backends.select import require_device, select_backends
from collage_evo.errors import UnavailableError
from collage_evo.target import gpu


class Fake:
    devices: ClassVar[tuple[str, ...]] = ("cpu",)

    def __init__(self, name: str, devices: tuple[str, ...]) -> None:
        self.name, self.devices = name, devices

    def probe(self) -> Probe:
        return Probe(True, "1")


@pytest.fixture(autouse=True)
def _backends(monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[str, Any] = {name: Fake(name, devices) for name, devices in (("a", ("cpu",)), ("b", ("cpu", "cuda")))}
    monkeypatch.setattr(module, "get_backend", known.__getitem__)
    monkeypatch.setattr(module, "probe_all", lambda: [(name, known[name].probe()) for name in known])


def test_only_those_take_part_that_serve_the_device() -> None:
    assert [backend.name for backend in select_backends((), "cpu")] == ["a", "b"]
    assert [backend.name for backend in select_backends((), "cuda")] == ["b"]


def test_one_asked_for_that_does_not_serve_the_device_is_named() -> None:
    with pytest.raises(UnavailableError, match="'a' does not serve target cuda: it serves cpu"):
        select_backends(("b", "a"), "cuda")


def test_a_device_that_nobody_serves_is_named() -> None:
    with pytest.raises(UnavailableError, match="target tpu: no installed backend serves it"):
        select_backends((), "tpu")


class Driver:
    """CUDA's driver with ``count`` devices, one of them described."""

    def __init__(self, count: int) -> None:
        self._count = count

    def cuInit(self, flags: int) -> int:
        return 0

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = self._count
        return 0

    def cuDeviceGet(self, device: Any, index: int) -> int:
        return 0

    def cuDeviceGetName(self, name: Any, size: int, device: Any) -> int:
        name.value = b"NVIDIA H200"
        return 0

    def cuDeviceGetAttribute(self, value: Any, which: int, device: Any) -> int:
        value._obj.value = {75: 9, 76: 0}[which]
        return 0

    def cuDriverGetVersion(self, version: Any) -> int:
        version._obj.value = 12080
        return 0


def test_a_gpu_is_described_by_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu.describe_gpu.cache_clear()
    monkeypatch.setattr(gpu.ctypes, "CDLL", lambda name: Driver(1))
    try:
        assert gpu.describe_gpu() == "NVIDIA H200, compute capability 9.0, CUDA 12.8"
    finally:
        gpu.describe_gpu.cache_clear()


def test_a_driver_without_device_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu.describe_gpu.cache_clear()
    monkeypatch.setattr(gpu.ctypes, "CDLL", lambda name: Driver(0))
    with pytest.raises(UnavailableError, match="the NVIDIA driver finds no device"):
        require_device("cuda")
