"""Worker slots measure for targets of their own machine only, and not once they are closed."""

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collage_evo.fitness.jobs import LeftOut, Measured
from collage_evo.fitness.pool import WorkerPool
from collage_evo.fitness.worker_slot import PoolConfig, WorkerSlot
from collage_evo.genome.failure import Failure, Fault
from collage_evo.hardware.private import SHARED
from collage_evo.hardware.target import Target
from tests.fitness.helpers import Answered, cost_job, make_setting


@pytest.fixture(autouse=True)
def own_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other test has this one's cores."""
    monkeypatch.setenv(SHARED, str(tmp_path))


def test_a_machine_of_another_kind_is_left_out_and_says_why(tmp_path: Path) -> None:
    here = Target()
    away = replace(here, machine=replace(here.machine, cpu="Z80"))
    config = PoolConfig(replace(make_setting(tmp_path), target=away), (0,), 2**30, 60.0)
    left = WorkerSlot(timeout_s=0.0).sandbox(config)
    assert isinstance(left, LeftOut)
    assert here.description in left.why
    assert away.description in left.why


@pytest.mark.parametrize("had", [Failure(Fault.CRASH, "exit code 0"), Measured((1.0,), 0.0, 0.0)])
def test_what_runs_or_waits_when_the_pool_is_closed_gets_an_answer_that_does_not_count(
    tmp_path: Path, had: Any
) -> None:
    asked: list[object] = []

    def call(job: object) -> Any:
        asked.append(job)
        pool.close()
        return had

    pool = WorkerPool(Answered(make_setting(tmp_path), (0,), 2**30, 60.0, call))
    replies = list(pool.map([cost_job(3), cost_job(4)]))
    assert [reply.answer.fault for reply in replies if isinstance(reply.answer, Failure)] == [Fault.CLOSED] * 2
    assert len(asked) == 1, "no other slot is opened"


def test_one_job_is_done_in_the_thread_that_asks(tmp_path: Path) -> None:
    threads: list[threading.Thread] = []

    def call(job: object) -> Measured:
        threads.append(threading.current_thread())
        return Measured((1.0,), 0.0, 0.0)

    pool = WorkerPool(Answered(make_setting(tmp_path), (0, 1), 2**30, 60.0, call))
    assert len(pool.config.slots) == 2
    list(pool.map([cost_job(3)]))
    pool.close()
    assert threads == [threading.current_thread()]


def test_who_waits_for_cores_when_the_pool_is_closed_waits_no_longer(tmp_path: Path) -> None:
    config = Answered(make_setting(tmp_path), (0,), 2**30, 60.0, lambda job: Measured((1.0,), 0.0, 0.0))
    holder, waiting = WorkerPool(config), WorkerPool(config)
    assert not isinstance(next(holder.map([cost_job(3)])).answer, Failure)
    threading.Timer(0.3, waiting.close).start()
    (reply,) = waiting.map([cost_job(3)])
    assert isinstance(reply.answer, Failure)
    assert reply.answer.fault is Fault.CLOSED
    holder.close()
