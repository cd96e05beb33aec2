"""A station measures for targets of its own machine only."""

from dataclasses import replace
from pathlib import Path

from collage_evo.fitness.measure.answers import LeftOut
from collage_evo.fitness.measure.station import Equipment, Station
from collage_evo.target.target import Target
from tests.fitness.helpers import cost_job, make_setting


def test_a_machine_of_another_kind_is_left_out_and_says_why(tmp_path: Path) -> None:
    here = Target()
    away = replace(here, machine=replace(here.machine, cpu="Z80"))
    equipment = Equipment(replace(make_setting(tmp_path), target=away), (0,), 2**30, 60.0)
    left = Station(patience_s=0.0).measure(cost_job(3), equipment, None)
    assert isinstance(left, LeftOut)
    assert here.description in left.why
    assert away.description in left.why
