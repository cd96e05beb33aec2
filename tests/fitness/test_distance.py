"""Round trips between cores, and what is known of the shortest one."""

import os
from collections.abc import Iterator

import pytest

from collage_evo.hardware import core_distance
from collage_evo.hardware.core_distance import FAR, CoreDistance

CORES = tuple(sorted(os.sched_getaffinity(0)))[:2]
pytestmark = pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")


@pytest.fixture
def distance(tmp_path: os.PathLike[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[CoreDistance]:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    distance = CoreDistance(CORES)
    yield distance
    distance.close()


class Clock:
    """In place of the module ``time`` where the distance between cores is measured: only sleeping moves it."""

    def __init__(self, patch: pytest.MonkeyPatch, distance: CoreDistance) -> None:
        self.now, self.pauses = 1.0, list[float]()
        patch.setattr(core_distance, "time", self)
        patch.setattr(distance, "_begin", 0.0)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.pauses.append(seconds)


def test_a_round_trip_takes_time_and_leaves_the_caller_free(distance: CoreDistance) -> None:
    allowed = os.sched_getaffinity(0)
    assert any(10 < distance.measure() < 1e6 for _ in range(20)), "a core may be somebody else's for the first trips"
    assert os.sched_getaffinity(0) == allowed


def test_near_is_measured_against_the_shortest_trip(
    distance: CoreDistance, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert distance.near()
    trips = iter([100.0, 100.0 * FAR + 1, 100.0 * FAR + 1, 100.0 * FAR - 1])
    monkeypatch.setattr(distance, "_round_trip", lambda core: next(trips))
    assert distance.near()
    assert not distance.near()
    monkeypatch.setattr("collage_evo.hardware.core_distance.WAITING_SHARE", 1e9)
    assert distance.near(wait_s=600.0)


def test_cores_that_stay_far_apart_were_moved_for_good(
    distance: CoreDistance, monkeypatch: pytest.MonkeyPatch
) -> None:
    Clock(monkeypatch, distance)
    monkeypatch.setattr("collage_evo.hardware.core_distance.TIMEOUT_S", 0.3)
    monkeypatch.setattr("collage_evo.hardware.core_distance.WAITING_SHARE", 1e9)
    monkeypatch.setattr(distance, "_round_trip", lambda core: 100.0)
    assert distance.near()
    monkeypatch.setattr(distance, "_round_trip", lambda core: 1000.0)
    assert not distance.near(wait_s=0.2)
    assert not distance.near(wait_s=0.2)
    assert distance.near(wait_s=0.2)
    assert distance.near()


def test_only_a_share_of_the_time_is_spent_waiting(distance: CoreDistance, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, distance)
    trips = iter([100.0])
    monkeypatch.setattr(distance, "_round_trip", lambda core: next(trips, 1000.0))
    assert distance.near()
    for _ in range(200):
        clock.now += 1.0  # measuring
        assert not distance.near(wait_s=3.0)
    assert 0.2 * clock.now < sum(clock.pauses) < 0.3 * clock.now


def test_a_failed_trip_leaves_the_caller_free(distance: CoreDistance, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(core: int) -> float:
        raise BrokenPipeError

    allowed = os.sched_getaffinity(0)
    monkeypatch.setattr(distance, "_round_trip", fail)
    with pytest.raises(BrokenPipeError):
        distance.measure()
    assert os.sched_getaffinity(0) == allowed


def test_what_one_process_found_another_knows(distance: CoreDistance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CoreDistance, "_round_trip", lambda self, core: 10.0)
    distance.measure()
    monkeypatch.setattr(CoreDistance, "_round_trip", lambda self, core: 1000.0)
    other = CoreDistance(CORES)
    assert not other.near()
    other.close()
