"""The timing routine under a clock that the test moves."""

import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from collage_evo.hardware.interference import TICKS_PER_S, Others
from collage_evo.runtime.timing import (
    JUDGED_S,
    LONG_RUNS,
    LONG_S,
    RACE_RUNS,
    Timing,
    TimingSettings,
    measure,
    measure_uncontended,
)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.calls = 0

    def __call__(self) -> float:
        return self.now

    def work(self, seconds: float) -> None:
        self.calls += 1
        self.now += seconds


def test_a_call_with_a_clock_of_its_own_is_timed_by_that() -> None:
    clock = Clock()

    def by_events() -> float:
        clock.work(0.5)
        return 0.25

    timing = measure(by_events, TimingSettings(1, 3, 0.001, 60.0), clock=clock)
    assert timing.times_ms == (0.25, 0.25, 0.25, 0.25), "as many as make up a millisecond"


def timed(seconds: float, settings: TimingSettings, **bounds: float) -> tuple[Timing, int]:
    """How a call of so many seconds is timed, and how often it was made."""
    clock = Clock()
    return measure(lambda: clock.work(seconds), settings, clock=clock, **bounds), clock.calls


@pytest.mark.parametrize(("max_seconds", "warm"), [(60.0, 20), (0.2, 10)])
def test_warm_up_lasts_as_long_as_asked_for_and_leaves_half_of_the_time(max_seconds: float, warm: int) -> None:
    timing, calls = timed(0.01, TimingSettings(1, 5, 0.0, max_seconds), warm_s=0.2)
    assert calls - timing.n == pytest.approx(warm, abs=1)


SHORT, LONG = TimingSettings(3, 10, 0.2, 5.0), TimingSettings(3, 10, 0.2, 60.0)


@pytest.mark.parametrize(
    ("seconds", "settings", "bounds", "runs", "calls"),
    [
        (0.01, TimingSettings(2, 5, 0.2, 5.0), {}, 20, 22),
        (4.0, SHORT, {}, 2, 2),
        (0.2, LONG, {"give_up_ms": 100}, 1, 4),
        (0.4, LONG, {"give_up_ms": 50}, 1, 2),
        (LONG_S, LONG, {"give_up_ms": 300}, 1, 1),
        (LONG_S, LONG, {"give_up_ms": 1000}, LONG_RUNS, 1 + LONG_RUNS),
        (0.2, TimingSettings(2, 10, 0.2, 60.0), {"behind_ms": 190}, RACE_RUNS, 2 + RACE_RUNS),
        (0.2, TimingSettings(2, 10, 0.2, 60.0), {"behind_ms": 210}, 10, 12),
    ],
    ids=[
        *("least runs and time", "time is bounded", "slow when warm: once", "far too slow: not warmed up"),
        *("too slow and long: one call", "long and not too slow: a few", "behind", "not behind"),
    ],
)
def test_how_often_a_call_is_timed(
    seconds: float, settings: TimingSettings, bounds: dict[str, float], runs: int, calls: int
) -> None:
    timing, made = timed(seconds, settings, **bounds)
    assert (timing.n, made) == (runs, calls)
    assert timing.median_ms == pytest.approx(1e3 * seconds)


def test_what_was_throttled_is_timed_again_and_the_best_counts() -> None:
    timings, slow = iter([Timing((3.0,)), Timing((2.0,)), Timing((1.0,))]), iter([True, False])
    best = measure_uncontended(lambda: next(timings), pause_s=0.0, throttled=lambda: next(slow))
    assert best == Timing((2.0,))
    assert measure_uncontended(lambda: Timing((3.0,)), pause_s=0.0, throttled=lambda: True).contended


def test_a_quick_call_is_timed_for_long_enough_to_see_who_had_the_cores() -> None:
    clock = Clock()
    timing = measure(lambda: clock.work(0.002), TimingSettings(3, 500, 1.0, 60.0), give_up_ms=1, clock=clock)
    assert clock.calls == timing.n + 3
    assert clock.now >= JUDGED_S
    assert timing.n < 100


@pytest.mark.parametrize("slow_runs", [[0, 1, 2], [5]], ids=["at the start", "among good ones"])
def test_a_few_slow_runs_are_forgiven(slow_runs: list[int]) -> None:
    clock = Clock()

    def call() -> None:
        clock.work(0.3 if clock.calls in slow_runs else 0.05)

    timing = measure(call, TimingSettings(3, 10, 0.2, 60.0), give_up_ms=100, clock=clock)
    assert (timing.n, timing.median_ms) == (10, pytest.approx(50))


def test_one_run_in_time_keeps_a_call_in_the_race() -> None:
    clock, times = Clock(), iter([0.2] * (2 + RACE_RUNS - 1) + [0.1] * 20)
    settings = TimingSettings(2, 10, 0.2, 60.0)
    assert measure(lambda: clock.work(next(times)), settings, clock=clock, behind_ms=190).n == 10


def test_what_comes_before_each_run_comes_before_the_timed_ones_only_and_is_not_timed() -> None:
    clock, order = Clock(), []

    def work(name: str, seconds: float) -> None:
        order.append(name)
        clock.work(seconds)

    settings = TimingSettings(2, 3, 0.001, 5.0)
    timing = measure(lambda: work("run", 0.001), settings, lambda: work("flush", 1.0), clock=clock)
    assert order == ["run", "run", *["flush", "run"] * 3]
    assert timing.median_ms == pytest.approx(1)


class Machine(Clock):
    """A machine of one core, of which others take the ``share``, by the test's clock; this process's part is real."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share, self.core = share, min(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {self.core})

    def others(self, helper_s: Callable[[], float] = lambda: 0.0) -> Others:
        stat: Any = self
        return Others(helper_s, stat, self)

    def read_text(self) -> str:
        """The system's counts of how long cores were busy."""
        own = resource.getrusage(resource.RUSAGE_SELF)
        spent = (own.ru_utime + own.ru_stime, self.share * self.now)
        user, stolen = (round(seconds * TICKS_PER_S) for seconds in spent)
        mine = f"cpu{self.core} {user} 0 0 77 88 0 0 {stolen} 0 0"
        return f"cpu 1 2 3\n{mine}\ncpu9999 {user} 99 0 0\nintr 5\n"

    def measure(self, call: Callable[[], object] = lambda: None, **limits: float) -> Timing:
        settings = TimingSettings(1, 20, 0.5, 5.0)
        return measure(lambda: (self.work(0.01), call()), settings, clock=self, others_of=self.others, **limits)


def test_what_others_take_of_the_cores_is_a_disturbance() -> None:
    machine = Machine(share=0.5)
    assert machine.measure().others == pytest.approx(0.5, abs=0.05)
    # Nor is a race lost, or hope given up, by what somebody else did.
    assert machine.measure(behind_ms=1e-6).contended
    assert machine.measure(give_up_ms=1e-6).contended
    assert not Machine(share=0.05).measure().contended


def test_a_process_that_takes_turns_with_this_one_is_no_disturbance() -> None:
    machine = Machine(share=0.5)
    others, besides = machine.others(), machine.others(lambda: 0.5 * machine.now)
    machine.work(1.0)
    assert others.share() == pytest.approx(0.5, abs=0.05)
    assert besides.share() == pytest.approx(0.0, abs=0.05)


def test_threads_of_the_same_process_are_no_disturbance() -> None:
    def spend() -> None:
        end = time.thread_time() + 0.005
        while time.thread_time() < end:
            pass

    def in_a_thread() -> None:
        thread = threading.Thread(target=spend)
        thread.start()
        thread.join()

    before = time.process_time()
    assert not Machine(share=0.0).measure(in_a_thread).contended
    assert time.process_time() - before > 0.2, "as much as would be one, were it another's"


def test_the_system_counts_who_else_is_on_the_core() -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
            settings = TimingSettings(1, 20, 0.2, 5.0)
            seen = any(measure(lambda: sum(range(10_000)), settings).contended for _ in range(60))
            other.kill()
        assert seen
    finally:
        os.sched_setaffinity(0, allowed)


def test_what_was_timed_while_the_cores_were_far_apart_is_timed_again() -> None:
    clock = Clock()
    answers = iter([True, False, True, True])
    time_once = partial(measure, lambda: clock.work(1.0), TimingSettings(0, 1, 0.0, 5.0))
    timing = measure_uncontended(time_once, near=lambda wait_s: next(answers), pause_s=0.0)
    assert clock.calls == 2
    assert not timing.contended
    timing = measure_uncontended(time_once, near=lambda wait_s: False, pause_s=0.0)
    assert clock.calls == 3, "waiting is in vain: another time would say no more"
    assert timing.contended


def test_what_takes_long_is_not_timed_again_however_disturbed_it_was() -> None:
    clock, calls = Clock(), []

    def contended() -> Timing:
        calls.append(clock.work(2.0))
        return Timing((2000.0,), others=0.5)

    for timeout_s, times in ((1.0, 1), (3.0, 2), (60.0, 3)):
        calls.clear()
        measure_uncontended(contended, pause_s=0.0, timeout_s=timeout_s, clock=clock)
        assert len(calls) == times
    calls.clear()
    measure_uncontended(contended, pause_s=0.5, timeout_s=2.4, clock=clock)
    assert len(calls) == 1, "after the pause that would be too late"
