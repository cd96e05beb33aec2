"""Clocks and why they are low, in words; a device that tells nothing."""

import os
import subprocess
import sys

import pytest

from collage_evo.errors import UnavailableError
from collage_evo_cuda import health
from collage_evo_cuda.cuda import Device
from collage_evo_cuda.device import Health
from collage_evo_cuda.health import Gauges
from collage_evo_cuda.open import open_device
from stand_in import FakeCuda, read_trace


@pytest.mark.parametrize(
    ("bits", "words"),
    [
        (0, ()),
        (0x1 | 0x2 | 0x100, ()),
        (0x1 | 0x4, ("power cap",)),
        (0x8 | 0x40, ("hardware slowdown", "thermal limit of the hardware")),
        (0x20 | 0x80, ("thermal limit of the driver", "power brake")),
    ],
)
def test_reasons_are_told_in_words_but_idle_and_set_clocks_are_none(
    fake_cuda: FakeCuda, bits: int, words: tuple[str, ...]
) -> None:
    with fake_cuda.used(nvml_mhz=1755, nvml_reasons=bits):
        assert open_device("cuda").health() == Health(1755, words)


def test_without_nvml_or_its_gpu_nothing_is_told(fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_cuda.used():
        assert Gauges("0000:01:00.0").read() == Health()
        assert Gauges("0000:65:00.0").read() == Health(1980)
        monkeypatch.setattr(health, "LIBRARY", "libnvidia-ml-of-nobody.so.1")
        health.load_nvml.cache_clear()
        assert open_device("cuda").health() == Health()


def test_a_device_of_another_kind_is_refused() -> None:
    with pytest.raises(UnavailableError, match="there is no device tpu: write cuda"):
        open_device("tpu")


def test_a_process_that_is_started_has_its_own_device(fake_cuda: FakeCuda, device: Device, tmp_path: str) -> None:
    code = "from collage_evo_cuda.open import open_device; open_device('cuda').arena(512); print('made')"
    environment = {**os.environ, **fake_cuda.environment, "FAKE_CUDA_TRACE": f"{tmp_path}/calls"}
    told = subprocess.run((sys.executable, "-c", code), env=environment, capture_output=True, text=True, check=True)
    assert told.stdout == "made\n"
    with open(f"{tmp_path}/calls") as file:
        calls = read_trace(file.read())
    assert [made.nbytes for made in calls if made.name == "cuMemAlloc"] == [512]
    assert fake_cuda.live_bytes == 0
