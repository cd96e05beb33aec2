"""A station measures for targets of its own machine only."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collage_evo.measure import worker_slot
from collage_evo.measure.jobs import LeftOut, Reply
from collage_evo.measure.worker_slot import PoolConfig, WorkerPool, WorkerSlot
from collage_evo.placement.failure import Failure, Fault
from collage_evo.target.target import Target
from tests.measure.helpers import cost_job, make_setting


def test_a_machine_of_another_kind_is_left_out_and_says_why(tmp_path: Path) -> None:
    here = Target()
    away = replace(here, machine=replace(here.machine, cpu="Z80"))
    config = PoolConfig(replace(make_setting(tmp_path), target=away), (0,), 2**30, 60.0)
    left = WorkerSlot(timeout_s=0.0).measure(cost_job(3), config, None)
    assert isinstance(left, LeftOut)
    assert here.description in left.why
    assert away.description in left.why


@pytest.mark.parametrize("had", [LeftOut("here", "no slot is free"), Reply(Failure(Fault.CRASH, "exit code 0"))])
def test_who_still_waits_when_the_crew_is_closed_gets_what_does_not_count_and_asks_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, had: Any
) -> None:
    class Closed(WorkerSlot):
        def measure(self, *_: Any) -> Any:
            crew.close()
            return had

    monkeypatch.setattr(worker_slot, "WorkerSlot", Closed)
    crew = WorkerPool()
    reply = crew.measure(PoolConfig(make_setting(tmp_path), (0,), 2**30, 60.0), cost_job(3))
    assert isinstance(reply, Reply)
    assert isinstance(reply.answer, Failure)
    assert reply.answer.fault is Fault.CLOSED
