"""The machine's pace: read beside what is timed, and taken out of what is compared."""

import math

import numpy as np
import pytest

from collage_evo.fitness.evaluate import outcome_of
from collage_evo.fitness.jobs import Answer
from collage_evo.runtime import pace
from collage_evo.runtime.pace import Pace, Yardstick
from collage_evo.runtime.timing import PACE_EVERY_S, RACE_RUNS, TimingSettings, measure
from tests.runtime.test_timing import Clock


def test_a_reading_is_the_least_of_several_tries_of_the_same_work(monkeypatch: pytest.MonkeyPatch) -> None:
    yardstick, clock, products = Yardstick(), Clock(), []
    took = iter([0.005, 0.003, 0.009, 0.004, 0.007])

    def product(*matrices: np.ndarray, out: np.ndarray) -> None:
        if len(products) % pace.REPEATS == 0:
            clock.now += next(took)
        products.append(out)

    monkeypatch.setattr(pace.time, "perf_counter", clock)
    monkeypatch.setattr(pace.np, "matmul", product)
    assert yardstick.read() == pytest.approx(3.0)
    assert len(products) == pace.TRIES * pace.REPEATS


def test_a_pace_is_its_median_reading_beside_what_is_usual() -> None:
    readings = iter([1.0, 1.2, 9.0])
    now = Pace(lambda: next(readings), usual_ms=0.8)
    assert (now.ms, now.slowness) == (None, 1.0)
    for _ in range(3):
        now.read()
    assert now.ms == 1.2
    assert math.isclose(now.slowness, 1.5)


def test_without_a_yardstick_or_a_usual_pace_nothing_is_slow() -> None:
    silent, alone = Pace(None, usual_ms=1.0), Pace(lambda: 2.0)
    for now in (silent, alone):
        now.read()
    assert (silent.ms, silent.slowness) == (None, 1.0)
    assert (alone.ms, alone.slowness) == (2.0, 1.0)


def test_the_yardstick_is_read_at_both_ends_and_in_between_and_is_not_timed() -> None:
    clock, readings = Clock(), []

    def yardstick() -> float:
        readings.append(clock.calls)
        clock.now += 0.5
        return 1.0

    settings = TimingSettings(2, 10, 0.1, 60.0)
    timing = measure(lambda: clock.work(0.01), settings, clock=clock, yardstick=yardstick)
    assert timing.n == 10
    assert timing.median_ms == pytest.approx(10)
    assert timing.pace_ms == 1.0
    every = round(PACE_EVERY_S / 0.01)
    assert readings == [2, 2 + every, 2 + 10]


def test_on_a_machine_that_is_slower_just_now_a_call_is_behind_later() -> None:
    settings = TimingSettings(2, 10, 0.2, 60.0)

    def runs(slowness: float) -> int:
        clock = Clock()
        return measure(
            lambda: clock.work(0.2 * slowness),
            settings,
            clock=clock,
            behind_ms=210,
            yardstick=lambda: slowness,
            usual_pace_ms=1.0,
        ).n

    assert [runs(0.8), runs(1.0), runs(1.3)] == [10, 10, 10]
    clock = Clock()
    assert measure(lambda: clock.work(0.2 * 1.3), settings, clock=clock, behind_ms=210).n == RACE_RUNS


def test_latencies_are_given_at_the_usual_pace() -> None:
    now = Answer((12.0, 12.0, 18.0), 1e-6, 1e-6, pace_ms=0.6)
    raw, usual = outcome_of(now), outcome_of(now, usual_pace_ms=0.5)
    assert (raw.latency_ms, raw.pace_ms) == (12.0, 0.6)
    assert usual.latency_ms == pytest.approx(10.0)
    assert usual.p90_ms == pytest.approx((raw.p90_ms or 0.0) / 1.2)
    assert outcome_of(Answer((12.0,)), usual_pace_ms=0.5).latency_ms == 12.0, "its pace is not known"
