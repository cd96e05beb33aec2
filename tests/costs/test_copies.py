"""What copies between host and device cost: measured by a process of its own, kept, fitted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collage_evo.codec import from_json, to_json
from collage_evo.costs.copies import SIZES, fit_copies, measure_copies
from collage_evo.costs.database import CostDatabase
from collage_evo.devices.open import open_device
from collage_evo.errors import UnavailableError
from collage_evo.measure.jobs import CopyJob, Job, Measured
from collage_evo.measure.sandbox import Sandbox
from collage_evo.measure.timing import time_copies
from collage_evo.placement.cost_model import Border, Copies
from collage_evo.placement.failure import Failure, Fault
from collage_evo.runtime.timing import DEVICE_WARM_UP_S
from collage_evo.target.target import Target
from tests.measure.helpers import make_setting
from tests.support.cuda import FakeCuda, read_trace
from tests.support.machine import FakeMachine, setting_of

THERE, BACK = Border(0.01, 0.04), Border(0.03, 0.05)


def machine(failure: Failure | None = None) -> FakeMachine:
    """A machine whose device copies at known rates, or not at all."""

    def answer(job: CopyJob) -> Measured | Failure:
        ms = (THERE if job.to_device else BACK).ms(job.nbytes)
        return failure or Measured((ms, ms, 5 * ms), 0.0, 0.0)

    return FakeMachine(answer, setting_of(target=Target("cuda", accelerator="one")))


def measured(machine: FakeMachine, *databases: CostDatabase) -> Copies:
    with machine.regions() as regions:
        return measure_copies(regions, machine.setting.target, *databases)


def test_what_is_linear_is_found_again_and_measured_once_on_one_target(tmp_path: Path) -> None:
    own, other, shared = (CostDatabase(tmp_path / name) for name in ("own", "other", "shared"))
    first, again = machine(), machine()
    found = measured(first, own, shared)
    for border, true in ((found.to_device, THERE), (found.to_host, BACK)):
        assert border.fixed_ms == pytest.approx(true.fixed_ms)
        assert border.ms_per_mb == pytest.approx(true.ms_per_mb)
    assert {(job.nbytes, job.to_device) for job in first.jobs} == {(size, way) for size in SIZES for way in (0, 1)}
    assert measured(again, other, shared) == found
    assert not again.jobs
    again.setting = setting_of(target=replace(again.setting.target, accelerator="another"))
    assert measured(again, other, shared) == found
    assert again.jobs == first.jobs


def test_a_device_that_does_not_copy_is_not_there(tmp_path: Path) -> None:
    database = CostDatabase(tmp_path / "costs")
    with pytest.raises(UnavailableError, match="target cuda: copies cannot be timed: crash: killed"):
        measured(machine(Failure(Fault.CRASH, "killed")), database, database)


def test_no_part_of_a_copys_cost_is_below_zero() -> None:
    falling = fit_copies({1 << 10: 0.5, 1 << 20: 0.4, 1 << 24: 0.3})
    assert falling.ms_per_mb == 0.0
    assert falling.fixed_ms > 0.0


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
    assert copies - 5 >= DEVICE_WARM_UP_S * 100 - 1
