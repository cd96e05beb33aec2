"""Regions are compiled before anything is timed; one that cannot be is known by its reason, and asked for once."""

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from collage_evo.fitness.builders import LONG_BUILD_S, Builders
from collage_evo.fitness.cluster import DaskWorkers
from collage_evo.fitness.jobs import BuildJob, Compiled, PlacementJob
from collage_evo.fitness.pool import WorkerPool
from collage_evo.fitness.worker import processor_s
from collage_evo.fitness.worker_slot import PoolConfig
from collage_evo.genome.failure import Failure, Fault
from collage_evo.hardware.slots import usable_cores
from collage_evo.patterns.match import Region
from collage_evo.runtime.timing import TimingSettings
from tests.fitness.helpers import LONG_S, Answered, make_setting
from tests.support.faults import install_faulty
from tests.support.machine import setting_of

CONV, RELU = (BuildJob(Region(nodes, "onnxruntime")) for nodes in (1, 2))


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WorkerPool:
    for name, value in install_faulty(tmp_path / "plugin").items():
        monkeypatch.setenv(name, value)
    return WorkerPool(PoolConfig(make_setting(tmp_path), usable_cores()[:2], 2**30, 60.0))


def pieces(pool: WorkerPool) -> set[Path]:
    return {path for path in Path(pool.config.setting.cache).glob("*") if not path.name.startswith("building-")}


def test_what_was_compiled_ahead_is_what_is_timed(pool: WorkerPool) -> None:
    with Builders(pool) as builders:
        assert builders.build([CONV, RELU, CONV]) == {}
    built = pieces(pool)
    assert len(built) == 2
    try:
        (reply,) = pool.map([PlacementJob((CONV.region, RELU.region), TimingSettings(1, 3, 0.001, 5.0), 1e9)])
    finally:
        pool.close()
    assert reply.answer.times_ms
    assert pieces(pool) == built


def test_what_cannot_be_compiled_costs_one_attempt_and_nothing_else(pool: WorkerPool) -> None:
    crash, refused = (BuildJob(Region(1, "faulty", variant)) for variant in ("crash-building", "unbuildable"))
    with Builders(pool) as builders:
        failures = builders.build([crash, CONV, refused])
        assert failures == {
            crash: Failure(Fault.CRASH, "killed by SIGSEGV"),
            refused: Failure(Fault.BUILD, "faulty: cannot be built, on purpose"),
        }
        assert len(pieces(pool)) == 1
        assert not list(Path(pool.config.setting.cache).glob("building-*"))
        files = pool.config.setting.files
        onnx.save(onnx.ModelProto(), files.normalised)  # who compiles again fails for another reason
        builders.close()
        assert builders.build([refused, crash]) == failures


def answering(answer: Callable[[BuildJob], Compiled | Failure]) -> Builders:
    """Builders on two cores, whose processes answer by ``answer``."""
    return Builders(WorkerPool(Answered(setting_of(), (0, 1), 2**30, 60.0, answer)))


def test_a_failure_that_may_pass_is_tried_once_more_and_then_believed() -> None:
    answers: list[Compiled | Failure] = [Failure(Fault.HANG, "no answer within 60 s"), Compiled()]
    with answering(lambda job: answers.pop(0)) as builders:
        assert builders.build([CONV])[CONV].fault is Fault.HANG
        assert builders.build([CONV]) == {}
        assert builders.build([CONV]) == {}, "what is compiled is not asked for again"
        answers += [Failure(Fault.MEMORY, "killed"), Failure(Fault.MEMORY, "killed again")]
        assert builders.build([RELU])[RELU].message == "killed"
        assert builders.build([RELU])[RELU].message == "killed again"
        assert builders.build([RELU])[RELU].message == "killed again"
    assert not answers


def test_an_engine_that_keeps_a_processor_long_leaves_processes_to_others() -> None:
    """Not one that waits long, as any does on a busy machine."""
    later = [BuildJob(Region(1 << place, "slow")) for place in range(1, 4)]
    other, at_work, may_end = BuildJob(Region(1, "other")), threading.Semaphore(0), threading.Event()

    def call(job: BuildJob) -> Compiled:
        if job in later:
            at_work.release()
            assert may_end.wait(60.0)
        return Compiled(LONG_BUILD_S + 1.0 if job.region.backend == "slow" else 0.0)

    with answering(call) as builders:
        builders.build([BuildJob(Region(1, "slow"))])
        begun = [builders.begin(job) for job in later]
        assert at_work.acquire(timeout=LONG_S)
        assert builders.build([other]) == {}
        assert not any(future.done() for future in begun)
        may_end.set()


def test_after_a_while_nobody_waits_for_what_is_still_compiled() -> None:
    may_end = threading.Event()

    def call(job: BuildJob) -> Compiled:
        assert job == CONV or may_end.wait(60.0)
        return Compiled()

    with answering(call) as builders:
        builders.build([CONV])
        assert builders.build([CONV, RELU], seconds=0.01)[RELU].fault is Fault.CLOSED
        may_end.set()
        assert builders.build([CONV, RELU]) == {}


def test_what_a_compiler_in_a_process_of_its_own_takes_of_a_processor_counts() -> None:
    before_s = processor_s()
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.5: pass"], check=True)
    assert processor_s() - before_s > 0.4


def test_a_cluster_compiles_on_its_own(pool: WorkerPool) -> None:
    away = WorkerPool(pool.config, DaskWorkers("tcp://127.0.0.1:1"))
    with Builders(away) as builders:
        assert builders.build([CONV]) == {}
    assert not pieces(away)
