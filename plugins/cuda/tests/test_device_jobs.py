"""Measuring processes on a device: what they time, what they refuse, and that they survive it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from collage_evo.backends import registry
from collage_evo.backends.registry import Origin
from collage_evo.fitness.exclusive import ExclusiveTiming
from collage_evo.fitness.jobs import (
    Answer,
    ArtifactJob,
    Asks,
    BuildJob,
    Compiled,
    CostJob,
    FallbackJob,
    Measured,
    Opened,
    OpenJob,
    PlacementJob,
    Profiled,
    ProfileJob,
    Setting,
    Timed,
    TimeJob,
    WholeJob,
    Written,
)
from collage_evo.fitness.sandbox import Sandbox
from collage_evo.fitness.worker import Worker
from collage_evo.fitness.worker_context import WorkerContext
from collage_evo.fitness.worker_slot import PoolConfig
from collage_evo.genome.failure import Failure, Fault
from collage_evo.hardware.private import machine_directory
from collage_evo.hardware.slots import acquire_slot
from collage_evo.hardware.target import Target
from collage_evo.patterns.match import Region
from collage_evo.runtime.timing import TimingSettings
from stand_in import FakeCuda, read_trace
from stand_in.backend import FakeGpuBackend
from tests.fitness.helpers import make_setting

HERE = str(Path(__file__).parent)
BRIEF = TimingSettings(1, 3, 0.001, 5.0)
TIMEOUT_S = 60.0


def device_setting(folder: Path) -> Setting:
    names = ("FakeGpuBackend", "FaultyGpuBackend")
    origins = tuple(Origin(HERE, "stand_in.backend", name) for name in names)
    return replace(make_setting(folder), target=Target.here("cuda", 1), registered=origins)


def cost(backend: str, variant: str = "default") -> CostJob:
    return CostJob(Region(1, backend, variant), BRIEF, 1e9, flush=True)


@pytest.fixture(scope="module")
def sandbox(fake_cuda: FakeCuda, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A measuring process on a device that runs what is enqueued only when somebody waits."""
    folder = tmp_path_factory.mktemp("device")
    used = fake_cuda.used(cuda_lazy=1, cuda_trace=folder / "trace")
    with used, Sandbox(device_setting(folder), (), 2**33) as sandbox:
        yield sandbox


def calls_of(sandbox: Sandbox, job: Asks[Answer]) -> tuple[Answer, list[str]]:
    """The answer to a job, and the calls of the driver meanwhile."""
    trace = Path(os.environ["FAKE_CUDA_TRACE"])
    before = len(read_trace(trace.read_text())) if trace.exists() else 0
    answer = sandbox.call(job, TIMEOUT_S)
    return answer, [call.name for call in read_trace(trace.read_text())[before:]]


def count_row(calls: list[str], *row: str) -> int:
    """How often ``calls`` have ``row``."""
    return sum(tuple(calls[start : start + len(row)]) == row for start in range(len(calls)))


def test_a_region_is_timed_by_events_around_replays_with_cold_weights_and_warm_inputs(sandbox: Sandbox) -> None:
    answer, calls = calls_of(sandbox, cost("fakegpu"))
    assert isinstance(answer, Measured)
    assert answer.relative_error < 1e-5
    once = ("cuMemsetD8Async", "cuMemcpyHtoDAsync", "cuEventRecord", "cuGraphLaunch", "cuEventRecord")
    assert count_row(calls, *once) > len(answer.times_ms), "and some more to warm up"


def test_a_region_of_the_host_is_timed_as_without_a_device(sandbox: Sandbox) -> None:
    answer, calls = calls_of(sandbox, cost("onnxruntime"))
    assert isinstance(answer, Measured)
    assert calls == []


def test_a_placement_on_both_is_timed_by_the_clock_with_its_copies(sandbox: Sandbox) -> None:
    regions = (Region(1, "fakegpu"), Region(2, "onnxruntime"))
    answer, calls = calls_of(sandbox, PlacementJob(regions, BRIEF, 1e9))
    assert isinstance(answer, Measured)
    assert answer.relative_error < 1e-5
    assert count_row(calls, "cuGraphLaunch", "cuStreamSynchronize", "cuStreamSynchronize") > len(answer.times_ms)
    assert "cuEventRecord" not in calls


@pytest.mark.parametrize(
    ("variant", "failure"),
    [
        ("greedy", "memory: out of memory on the GPU: "),
        ("hoards", "memory: RuntimeError: CUDA out of memory. Tried to allocate 1024.00 PiB"),
        ("overwrites", "overwritten input: x"),
    ],
)
def test_what_a_device_refuses_or_spoils_is_a_failure_and_the_next_job_is_done(
    sandbox: Sandbox, variant: str, failure: str
) -> None:
    answer = sandbox.call(cost("faultygpu", variant), TIMEOUT_S)
    assert isinstance(answer, Failure)
    assert str(answer).startswith(failure)
    assert answer.fault.passing == (answer.fault is Fault.MEMORY)
    assert isinstance(sandbox.call(cost("fakegpu"), TIMEOUT_S), Measured)


def test_a_baseline_is_timed_opened_raced_and_profiled(sandbox: Sandbox, tmp_path: Path) -> None:
    artifact = str(tmp_path / "whole.collage")
    assert isinstance(sandbox.call(WholeJob("fakegpu", "default", artifact, BRIEF), TIMEOUT_S), Measured)
    opened = sandbox.call(OpenJob(artifact), TIMEOUT_S)
    assert isinstance(opened, Opened)
    assert opened.notes == ()
    assert isinstance(sandbox.call(TimeJob(BRIEF), TIMEOUT_S), Timed)
    profiled = sandbox.call(ProfileJob(2), TIMEOUT_S)
    assert isinstance(profiled, Profiled)
    assert profiled.call_ms is not None


def test_why_nothing_is_captured_is_told_of_an_artifact(sandbox: Sandbox, tmp_path: Path) -> None:
    artifact = str(tmp_path / "noted.collage")
    regions = (Region(1, "faultygpu", "allocates"), Region(2, "fakegpu"))
    assert sandbox.call(ArtifactJob(regions, artifact, {}), TIMEOUT_S) == Written()
    opened = sandbox.call(OpenJob(artifact), TIMEOUT_S)
    assert isinstance(opened, Opened)
    (note,) = opened.notes
    assert note.startswith("faultygpu/allocates not captured: ")


def test_a_time_of_a_throttled_device_is_taken_again_and_marked(fake_cuda: FakeCuda, tmp_path: Path) -> None:
    thermal = 0x40
    with fake_cuda.used(nvml_reasons=thermal), Sandbox(device_setting(tmp_path), (), 2**33) as sandbox:
        answer = sandbox.call(cost("fakegpu"), TIMEOUT_S)
        assert isinstance(answer, Measured)
        assert answer.contended


def test_one_slot_and_one_lock_stand_for_the_device_however_many_cores_there_are(
    fake_cuda: FakeCuda, tmp_path: Path
) -> None:
    with fake_cuda.used():
        setting = device_setting(tmp_path)
    assert PoolConfig(setting, (0, 1, 2, 3), 2**30, 1.0).slots == ((0,),)
    one = acquire_slot(((901,),), besides=Target("cuda").locks)
    assert one is not None
    assert acquire_slot(((902,),), timeout_s=0.0, besides=Target("cuda").locks) is None
    host = acquire_slot(((902,),), timeout_s=0.0)
    assert host is not None, "who needs no device has its cores"
    host.release()
    one.release()
    again = acquire_slot(((902,),), timeout_s=0.0, besides=Target("cuda").locks)
    assert again is not None
    again.release()


def test_a_fall_back_of_the_host_serves_beside_a_device(fake_cuda: FakeCuda, tmp_path: Path) -> None:
    with fake_cuda.used():
        setting = device_setting(tmp_path)
        shutil.copy(setting.files.original, setting.files.dynamic)
        with Sandbox(setting, (), 2**33) as sandbox:
            answer = sandbox.call(FallbackJob("onnxruntime", "default", str(tmp_path / "any.collage"), 2), TIMEOUT_S)
    assert isinstance(answer, Measured)


@pytest.mark.parametrize("backend", ["fakegpu", "onnxruntime"])
def test_who_compiles_waits_for_who_times(
    fake_cuda: FakeCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    monkeypatch.setitem(registry._registered, FakeGpuBackend.name, FakeGpuBackend)
    monkeypatch.setattr(WorkerContext, "expect_any_backend", lambda self: None)
    waited: list[bool] = []
    with fake_cuda.used(), ExitStack() as other:
        timing = ExclusiveTiming(machine_directory())
        other.enter_context(timing.job())
        timing.acquire_exclusive()

        def end() -> None:
            waited.append(True)
            other.close()

        worker = Worker(WorkerContext(device_setting(tmp_path), (), end, lambda key: None))
        assert worker.handlers[BuildJob](BuildJob(Region(1, backend))) == Compiled()
    assert waited
