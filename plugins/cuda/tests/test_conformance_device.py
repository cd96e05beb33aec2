"""The suite on backends of a device: on the device's arrays where it is, left out with the reason where it is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import onnx
import pytest

from collage_evo.backends.base import Backend, Probe
from collage_evo.backends.variants import Variant
from collage_evo.testing.conformance import Effort, check_backend
from collage_evo.testing.finding import CHECKS, Report
from stand_in import FakeCuda
from stand_in.backend import FakeGpuBackend, FaultyGpuBackend
from tests.support.models import tiny_convnet
from tests.testing.test_conformance import COUNTING, QUICK, model

pytestmark = pytest.mark.slow


def check(backend: Backend, models: Mapping[str, onnx.ModelProto], effort: Effort = QUICK) -> Report:
    return check_backend(backend, models, effort)


def test_a_backend_of_the_device_keeps_every_promise(fake_cuda: FakeCuda) -> None:
    with fake_cuda.used(cuda_lazy=1):
        report = check(FakeGpuBackend(), {"mine": model(), "convolutions": tiny_convnet()}, COUNTING)
    assert [finding for finding in report.failures if finding.check != "patterns"] == []
    of_the_host = {"together", "rebound", "indices", "open"}
    assert {check for check in CHECKS if not report.count(check, "passed")} == of_the_host


class Allocates(FaultyGpuBackend):
    variants: ClassVar[tuple[Variant, ...]] = (Variant("allocates", device="cuda"),)


class Overwrites(FaultyGpuBackend):
    variants: ClassVar[tuple[Variant, ...]] = (Variant("overwrites", device="cuda"),)


class Elsewhere(FaultyGpuBackend):
    variants: ClassVar[tuple[Variant, ...]] = (Variant("elsewhere", device="cuda"),)


@pytest.mark.parametrize(
    ("backend", "check_name", "words"),
    [
        (Allocates, "capture", "says that it can be captured: "),
        (Overwrites, "inputs", "changed an input"),
        (Elsewhere, "capture", "a replay: relative error"),
    ],
)
def test_what_breaks_a_promise_on_the_device_is_found(
    fake_cuda: FakeCuda, backend: type[Backend], check_name: str, words: str
) -> None:
    with fake_cuda.used():
        report = check(backend(), {"mine": model()})
    found = [finding for finding in report.failures if finding.check != "patterns"]
    assert {finding.check for finding in found} == {check_name}
    assert words in found[0].reason


class Both(FakeGpuBackend):
    """One variant of each device; the library is there, the device is not."""

    variants: ClassVar[tuple[Variant, ...]] = (Variant("host"), Variant("device", device="cuda"))

    def probe(self) -> Probe:
        return self._honest.probe()


class OnlyDevice(Both):
    variants: ClassVar[tuple[Variant, ...]] = (Variant("device", device="cuda"),)


@pytest.mark.parametrize("backend", [Both, OnlyDevice])
def test_where_the_device_is_not_its_variants_are_left_out_with_the_reason(
    fake_cuda: FakeCuda, backend: type[Backend]
) -> None:
    with fake_cuda.used(cuda_devices=0):
        report = check(backend(), {"mine": model()})
    left_out = [finding for finding in report.findings if finding.case == "variant device"]
    assert [(finding.status, finding.reason) for finding in left_out] == [
        ("declined", "the NVIDIA driver finds no device")
    ]
    assert [finding for finding in report.failures if finding.check != "patterns"] == []
    assert bool(report.count("numerics", "passed")) == (backend is Both)
    assert (report.count("patterns", "failed") == 0) == (backend is OnlyDevice)
