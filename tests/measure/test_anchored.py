"""A placement is timed by bursts of it and of an anchor in turn; what is behind has few of them."""

import math
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from collage_evo.measure.reference_run import FIRST_PAIR, LEAST_PAIRS, NEAR_ERROR, NEAR_PAIRS, time_against, warm_up
from collage_evo.measure.timing import BATCH_RUNS, batch_of
from collage_evo.runtime.session import Session
from collage_evo.runtime.timing import TimingSettings, measure

SETTINGS = TimingSettings(warmup=2, min_runs=12, min_seconds=1.0, max_seconds=60.0)


class Machine:
    """Its clock moves by what runs, which takes longer and longer."""

    def __init__(self, drift: float) -> None:
        self.seconds, self.slower, self.drift = 0.0, 1.0, drift
        self.spread, self.random = 0.0, Random(0)
        self.runs: dict[str, int] = {}

    def clock(self) -> float:
        return self.seconds

    def loaded(self, name: str, ms: float) -> Session:
        def execute() -> None:
            self.slower *= self.drift
            self.seconds += self.slower * ms / 1e3 * math.exp(self.random.gauss(0.0, self.spread))
            self.runs[name] = self.runs.get(name, 0) + 1

        session: Any = SimpleNamespace(execute=execute)
        return session


@pytest.fixture
def machine() -> Callable[[float], Machine]:
    return Machine


def timed(machine: Machine, ms: float, **bounds: Any) -> tuple[float, ...]:
    loaded = machine.loaded("anchor", 5.0)
    anchor: Any = SimpleNamespace(
        used_s=0.0, sample_batch=lambda: batch_of(measure(loaded.execute, BATCH_RUNS, clock=machine.clock))
    )
    return time_against(anchor, 7.0, machine.loaded("tried", ms), SETTINGS, **bounds, clock=machine.clock).times_ms


def test_a_latency_is_a_multiple_of_the_anchors_however_the_machine_drifts(
    machine: Callable[[float], Machine],
) -> None:
    steady, drifting = timed(machine(1.0), 10.0), timed(machine(1.01), 10.0)
    assert steady == pytest.approx([14.0] * len(steady))
    assert len(steady) * 2 >= SETTINGS.min_runs
    assert sum(map(math.log, drifting)) / len(drifting) == pytest.approx(math.log(14.0), abs=0.02)


def test_what_is_behind_has_one_pair_of_bursts_or_few(machine: Callable[[float], Machine]) -> None:
    assert len(timed(machine(1.0), 10.0, best_ms=10.0)) == 1
    assert len(timed(machine(1.0), 10.0, give_up_ms=10.0)) == 1
    assert len(timed(machine(1.0), 10.0, give_up_ms=14.0 / (0.99 * FIRST_PAIR))) > 1
    assert len(timed(machine(1.0), 10.0, best_ms=13.0)) == LEAST_PAIRS
    assert len(timed(machine(1.0), 10.0, best_ms=14.1)) == NEAR_PAIRS


def test_what_spreads_is_timed_until_it_is_known(machine: Callable[[float], Machine]) -> None:
    def pairs(spread: float, **bounds: float) -> tuple[float, ...]:
        made = machine(1.0)
        made.spread = spread
        return timed(made, 10.0, **bounds)

    calm, wild, behind = pairs(0.005), pairs(0.1), pairs(0.1, best_ms=11.0)
    assert len(calm) < len(wild)
    assert np.median(wild) == pytest.approx(14.0, rel=5 * NEAR_ERROR)
    assert len(behind) < len(wild)


def test_what_takes_far_too_long_is_not_warmed_up(machine: Callable[[float], Machine]) -> None:
    clock = machine(1.0)
    for name, ms in (("slow", 400.0), ("quick", 10.0)):
        warm_up(clock.loaded(name, ms), 2, give_up_ms=10.0, clock=clock.clock)
    assert clock.runs == {"slow": 1, "quick": 2}
