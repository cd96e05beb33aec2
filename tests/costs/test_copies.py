"""What copies between host and device cost: measured by a process of its own, kept, fitted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from collage_evo.costs.copies import SIZES, fit_copies, measure_copies
from collage_evo.costs.database import CostDatabase
from collage_evo.errors import UnavailableError
from collage_evo.fitness.jobs import CopyJob, Measured
from collage_evo.genome.cost_model import Border, Copies
from collage_evo.genome.failure import Failure, Fault
from collage_evo.hardware.target import Target
from tests.support.machine import FakeMachine, setting_of

THERE, BACK = Border(0.01, 0.04), Border(0.03, 0.05)


def machine(failure: Failure | None = None) -> FakeMachine:
    """A machine whose device copies at known rates, or not at all."""

    def answer(job: CopyJob) -> Measured | Failure:
        ms = (THERE if job.there else BACK).ms(job.nbytes)
        return failure or Measured((ms, ms, 5 * ms), 0.0, 0.0)

    return FakeMachine(answer, setting_of(target=Target("cuda", accelerator="one")))


def measured(machine: FakeMachine, database: CostDatabase) -> Copies:
    with machine.regions() as regions:
        return measure_copies(regions, machine.setting.target, database)


def test_what_is_linear_is_found_again_and_measured_once_on_one_target(tmp_path: Path) -> None:
    own = CostDatabase(tmp_path / "own")
    first, again = machine(), machine()
    found = measured(first, own)
    for border, true in ((found.there, THERE), (found.back, BACK)):
        assert border.fixed_ms == pytest.approx(true.fixed_ms)
        assert border.ms_per_mb == pytest.approx(true.ms_per_mb)
    assert {(job.nbytes, job.there) for job in first.jobs} == {(size, way) for size in SIZES for way in (0, 1)}
    assert measured(again, own) == found
    assert not again.jobs
    again.setting = setting_of(target=replace(again.setting.target, accelerator="another"))
    assert measured(again, own) == found
    assert again.jobs == first.jobs


def test_a_device_that_does_not_copy_is_not_there(tmp_path: Path) -> None:
    database = CostDatabase(tmp_path / "costs")
    with pytest.raises(UnavailableError, match="target cuda: copies cannot be timed: crash: killed"):
        measured(machine(Failure(Fault.CRASH, "killed")), database)


def test_no_part_of_a_copys_cost_is_below_zero() -> None:
    falling = fit_copies({1 << 10: 0.5, 1 << 20: 0.4, 1 << 24: 0.3})
    assert falling.ms_per_mb == 0.0
    assert falling.fixed_ms > 0.0
