"""Timed copies between the host and the device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collage_evo.codec import from_json, to_json
from collage_evo.fitness.jobs import CopyJob, Job
from collage_evo.fitness.sandbox import Sandbox
from collage_evo.hardware.target import Target
from collage_evo_cuda.open import open_device
from collage_evo_cuda.runner import WARM_UP_S, time_copies
from stand_in import FakeCuda, read_trace
from tests.fitness.helpers import make_setting


@pytest.mark.parametrize("to_device", [True, False])
def test_a_measuring_process_times_copies_and_waits_for_those_that_come_back(
    fake_cuda: FakeCuda, tmp_path: Path, to_device: bool
) -> None:
    trace = tmp_path / "trace"
    job = CopyJob(1 << 12, to_device, 5)
    assert from_json(to_json(job, Job), Job) == job
    with fake_cuda.used(cuda_lazy=1, cuda_trace=trace):
        setting = replace(make_setting(tmp_path), target=Target.here("cuda", 1))
        with Sandbox(setting, (), 2**30) as sandbox:
            answer: Any = sandbox.call(job, 60.0)
    assert len(answer.times_ms) == job.runs
    assert all(ms >= 0 for ms in answer.times_ms)
    calls = [call.name for call in read_trace(trace.read_text()) if call.nbytes == job.nbytes or "Sync" in call.name]
    name = "cuMemcpyHtoDAsync" if to_device else "cuMemcpyDtoHAsync"
    copies = [index for index, call in enumerate(calls) if call == name]
    waits = {"cuEventSynchronize" if to_device else "cuStreamSynchronize"}
    assert len(copies) >= job.runs
    assert {calls[index + 1] for index in copies} == waits


@pytest.mark.parametrize("to_device", [True, False])
def test_copies_count_once_the_device_has_had_time_to_rise(fake_cuda: FakeCuda, to_device: bool) -> None:
    ticks = (tick / 100 for tick in range(1000))
    with fake_cuda.used():
        times = time_copies(open_device("cuda"), 64, to_device, 5, clock=lambda: next(ticks))
        copies = fake_cuda.counts()["cuMemcpyHtoDAsync" if to_device else "cuMemcpyDtoHAsync"]
    assert len(times) == 5
    assert copies - 5 >= WARM_UP_S * 100 - 1
