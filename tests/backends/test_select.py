"""Who takes part: what is usable here and serves the device that is asked for."""

from typing import Any, ClassVar

import pytest

from collage_evo.backends import select as module
from collage_evo.backends.base import Probe
from collage_evo.backends.select import require_device, select_backends
from collage_evo.errors import UnavailableError
from tests.support.cuda import FakeCuda


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


def test_a_driver_without_device_is_a_reason(fake_cuda: FakeCuda) -> None:
    with fake_cuda.used(cuda_devices=0), pytest.raises(UnavailableError, match="the NVIDIA driver finds no device"):
        require_device("cuda")
