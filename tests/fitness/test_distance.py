"""Round trips between cores, and what is known of the shortest one."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from collage_evo.hardware.core_distance import FAR, CoreDistance, Echo
from collage_evo.hardware.private import SHARED

CORES = tuple(sorted(os.sched_getaffinity(0)))[:2]
pytestmark = pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")


@pytest.fixture(autouse=True)
def own_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shortest trip so far is of this test's own machine."""
    monkeypatch.setenv(SHARED, str(tmp_path))


class Machine:
    """A clock that only sleeping moves, and a round trip of ``ns``."""

    def __init__(self, ns: float = 100.0) -> None:
        self.ns, self.now, self.pauses = ns, 0.0, list[float]()
        self.distance = self.between(lambda core: self.ns)

    def between(self, round_trip: Callable[[int], float]) -> CoreDistance:
        return CoreDistance(CORES, round_trip, lambda: self.now, self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.pauses.append(seconds)


def test_a_round_trip_takes_time_and_leaves_the_caller_free() -> None:
    allowed = os.sched_getaffinity(0)
    echo = Echo()
    with echo.process:
        distance = CoreDistance(CORES, echo.round_trip)
        assert any(10 < distance.measure() < 1e6 for _ in range(20)), "a core may be somebody else's at first"
        assert distance.near(wait_s=1.0) or not distance.near()
    assert os.sched_getaffinity(0) == allowed
    with pytest.raises(ValueError, match="closed file"):
        distance.measure()
    assert os.sched_getaffinity(0) == allowed


def test_near_is_measured_against_the_shortest_trip_which_other_processes_know() -> None:
    machine = Machine()
    assert machine.distance.near()
    trips = iter([100.0 * FAR + 1, 100.0 * FAR + 1, 100.0 * FAR - 1])
    other = machine.between(lambda core: next(trips))
    assert not other.near()
    machine.now += 1e4
    assert other.near(wait_s=600.0)
    assert len(machine.pauses) == 1


def test_cores_that_stay_far_apart_were_moved_for_good() -> None:
    machine = Machine()
    assert machine.distance.near()
    machine.ns, machine.now = 1000.0, 1e4
    assert [machine.distance.near(wait_s=50.0) for _ in range(4)] == [False, False, False, True]
    assert machine.distance.near()


def test_only_a_share_of_the_time_is_spent_waiting() -> None:
    machine = Machine()
    assert machine.distance.near()
    machine.ns = 1000.0
    for _ in range(200):
        machine.now += 1.0  # measuring
        assert not machine.distance.near(wait_s=1.0)
    assert 0.2 * machine.now < sum(machine.pauses) < 0.3 * machine.now
