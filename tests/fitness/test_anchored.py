"""A placement is timed by bursts of it and of an anchor in turn; what is behind has few of them."""

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from collage_evo.fitness.measure import anchored, bursts
from collage_evo.fitness.measure.anchored import Anchor, time_against
from collage_evo.fitness.measure.stopwatch import Alone
from collage_evo.runtime.timing import TimingSettings, measure

SETTINGS = TimingSettings(warmup=2, min_runs=12, min_seconds=0.05, max_seconds=60.0)


class Machine:
    """Its clock moves by what runs, which takes longer and longer."""

    def __init__(self, drift: float) -> None:
        self.seconds, self.slower, self.drift = 0.0, 1.0, drift
        self.runs: dict[str, int] = {}

    def clock(self) -> float:
        return self.seconds

    def loaded(self, name: str, ms: float) -> Alone:
        def execute() -> None:
            self.slower *= self.drift
            self.seconds += self.slower * ms / 1e3
            self.runs[name] = self.runs.get(name, 0) + 1

        session: Any = SimpleNamespace(execute=execute, device=None)
        return Alone(session)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], Machine]:
    def make(drift: float) -> Machine:
        made = Machine(drift)

        def burst(at_work: Alone) -> bursts.Burst:
            times = measure(at_work.session.execute, bursts.BURST, clock=made.clock).times_ms
            return times[len(times) // 3 :]

        monkeypatch.setattr(anchored, "burst", burst)
        return made

    return make


def timed(machine: Machine, ms: float, **bounds: float) -> tuple[float, ...]:
    loaded = machine.loaded("anchor", 5.0)
    anchor = Anchor(lambda: anchored.burst(loaded), 7.0)
    return time_against(anchor, machine.loaded("tried", ms), SETTINGS, **bounds, clock=machine.clock).times_ms


def test_a_latency_is_a_multiple_of_the_anchors_however_the_machine_drifts(
    machine: Callable[[float], Machine],
) -> None:
    steady, drifting = timed(machine(1.0), 10.0), timed(machine(1.01), 10.0)
    assert steady == pytest.approx([14.0] * len(steady))
    assert len(steady) * 2 >= SETTINGS.min_runs
    assert sum(map(math.log, drifting)) / len(drifting) == pytest.approx(math.log(14.0), abs=0.02)


def test_what_is_behind_has_one_pair_of_bursts_or_few(machine: Callable[[float], Machine]) -> None:
    assert len(timed(machine(1.0), 10.0, behind_ms=10.0)) == 1
    assert len(timed(machine(1.0), 10.0, give_up_ms=10.0)) == 1
    assert len(timed(machine(1.0), 10.0, behind_ms=13.0)) == 2
    assert len(timed(machine(1.0), 10.0, behind_ms=14.1)) > 2


def test_what_takes_far_too_long_is_not_warmed_up(machine: Callable[[float], Machine]) -> None:
    slow = machine(1.0)
    assert len(timed(slow, 400.0, give_up_ms=10.0)) == 1
    assert slow.runs["tried"] == 2
