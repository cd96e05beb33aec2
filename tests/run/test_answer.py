"""Answer's stages: how long the kernels of an answer are traced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collage_evo.errors import InputError
from collage_evo.fitness.jobs import Traced
from collage_evo.genome.failure import Failure, Fault
from collage_evo.run.stages.answer import MOST_TRACED, Answer, traced
from tests.support.machine import FakeMachine
from tests.support.runs import fake_run

KERNELS = ((0, ("conv",), 3.0),)


def answer_of(*region_ms: float) -> Answer:
    return Answer(Path("best.collage"), region_ms, 0.0, 0.0)


@pytest.mark.parametrize(("region_ms", "runs"), [((1.0, 2.0), MOST_TRACED), ((150.0, 150.0), 3), ((4000.0,), 1)])
def test_a_slow_answer_is_traced_in_few_runs(region_ms: tuple[float, ...], runs: int, tmp_path: Path) -> None:
    machine = FakeMachine(lambda job: Traced(KERNELS))
    assert traced(fake_run(tmp_path, machine), answer_of(*region_ms)).kernels == KERNELS
    assert [job.runs for job in machine.jobs] == [runs]


def test_an_answer_whose_regions_have_no_times_is_not_traced_and_a_failure_says_so(tmp_path: Path) -> None:
    def fail(job: Any) -> Failure:
        return Failure(Fault.CRASH, "signal 9")

    run = fake_run(tmp_path, FakeMachine(fail))
    assert traced(run, answer_of()).kernels == ()
    with pytest.raises(InputError, match="a run with the libraries' profilers failed"):
        traced(run, answer_of(1.0))
