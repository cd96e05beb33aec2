"""Sessions that fill a machine: what the machine takes for a run, and that all are at work while it is measured."""

from __future__ import annotations

import heapq
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collage_evo.graph.load.inputs import random_inputs
from collage_evo.hardware.slots import usable_cores
from collage_evo.runtime.crowd import PORTIONS, Crowd, Tally
from collage_evo.runtime.session import Session
from collage_evo.runtime.timing import LONG_S, RACE_RUNS, TimedInputs, TimingSettings
from tests.runtime.helpers import TARGET, alternating
from tests.support.models import chain

HERE = usable_cores()
TWO = ((HERE[0],), (HERE[-1],))
"""Two cores, or one twice on a machine with a single one."""
FEW = TimingSettings(warmup=1, min_runs=3, min_seconds=0.0, max_seconds=60.0)


def simulated(
    run_s: Sequence[Callable[[int], float]], settings: TimingSettings, **bounds: float
) -> tuple[Tally, list[int]]:
    """A tally of sessions whose k-th run takes ``run_s[session](k)``, and how many runs each began."""
    now = 0.0
    tally = Tally(len(run_s), settings, clock=lambda: now, **bounds)
    begun = [1] * len(run_s)
    ends = [(first(0), session) for session, first in enumerate(run_s)]
    heapq.heapify(ends)
    while ends:
        now, session = heapq.heappop(ends)
        if tally.ended(session):
            heapq.heappush(ends, (now + run_s[session](begun[session]), session))
            begun[session] += 1
    return tally, begun


def every(seconds: float) -> Callable[[int], float]:
    return lambda run: seconds


def test_the_machine_takes_for_a_run_what_a_session_takes_over_their_number() -> None:
    for sessions in (1, 2, 5):
        tally, _ = simulated([every(0.010)] * sessions, TimingSettings(2, 20, 0.0, 60.0))
        assert tally.times_ms == pytest.approx([10.0 / sessions] * 20)


def test_sessions_of_different_speed_are_counted_by_what_they_end() -> None:
    tally, _ = simulated([every(0.010), every(0.020)], TimingSettings(2, 5, 10.0, 60.0))
    assert np.mean(tally.times_ms) == pytest.approx(1 / (1 / 10 + 1 / 20), rel=0.01)


def test_nothing_counts_before_everybody_is_warm_or_after_anybody_stops() -> None:
    late = every(0.010), lambda run: 1.0 if run == 0 else 0.010
    tally, begun = simulated(late, FEW)
    assert tally.times_ms == pytest.approx([5.0] * len(tally.times_ms)), "not the second in which one waited"
    assert begun[0] == pytest.approx(100 + begun[1], abs=2)
    assert not tally.ended(0)
    assert tally.times_ms == pytest.approx([5.0] * len(tally.times_ms)), "what ends afterwards is none of it"


def test_each_session_makes_the_runs_and_spends_the_time_that_the_settings_ask_for() -> None:
    _, begun = simulated([every(0.010), every(0.040)], TimingSettings(2, 10, 0.0, 60.0))
    assert begun[1] >= 12
    tally, _ = simulated([every(0.010)] * 2, TimingSettings(1, 1, 0.5, 60.0))
    assert tally.times_ms == pytest.approx([5.0] * PORTIONS)
    _, begun = simulated([every(0.010)] * 2, TimingSettings(1, 10**9, 0.5, max_seconds=2.0))
    assert begun[0] == pytest.approx(200, abs=2)


def test_who_is_too_slow_or_lost_the_race_is_timed_no_further() -> None:
    slow = TimingSettings(10, 100, 0.0, 1e6)
    tally, begun = simulated([every(LONG_S)] * 2, slow, give_up_ms=LONG_S * 1e3 / 4)
    assert begun[0] < 6, "nor warmed up to the end"
    assert tally.times_ms == pytest.approx([LONG_S * 1e3 / 2] * len(tally.times_ms))
    _, begun = simulated([every(0.1)] * 2, slow, behind_ms=49.0)
    assert begun[0] == pytest.approx(10 + RACE_RUNS, abs=2)
    _, begun = simulated([every(0.1)] * 2, slow, behind_ms=51.0, give_up_ms=51.0)
    assert begun[0] >= 110


class Together:
    """Stands in for a session: a run ends only while the other one is in a run too, until somebody stops."""

    barrier = threading.Barrier(2)

    def __init__(self) -> None:
        self.loaded_on, self.ran_on = os.sched_getaffinity(0), set[frozenset[int]]()
        self.thread, self.runs, self.met, self.fails_at, self.closed = threading.get_ident(), 0, 0, 0, False

    def run(self, names: None, feeds: Mapping[str, Any]) -> list[Any]:
        assert threading.get_ident() == self.thread
        return []

    def execute(self) -> None:
        assert threading.get_ident() == self.thread
        self.ran_on.add(frozenset(os.sched_getaffinity(0)))
        self.runs += 1
        if self.runs == self.fails_at:
            self.barrier.abort()
            raise RuntimeError("on purpose")
        with suppress(threading.BrokenBarrierError):
            self.barrier.wait(timeout=200.0)
            self.met += 1

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def crowd(monkeypatch: pytest.MonkeyPatch) -> Iterator[Crowd]:
    """Two stand-ins; whoever begins no more runs keeps nobody waiting."""
    ended = Tally.ended

    def told(tally: Tally, session: int) -> bool:
        going = ended(tally, session)
        if not going:
            Together.barrier.abort()
        return going

    monkeypatch.setattr(Tally, "ended", told)
    Together.barrier.reset()
    stand_in: Any = Together
    with Crowd(stand_in, TWO) as crowd:
        yield crowd


def members(crowd: Crowd) -> list[Together]:
    found: Any = crowd.sessions
    return list(found)


def fixed_runs(runs: int) -> TimingSettings:
    """So many of each, by number alone."""
    return TimingSettings(0, runs, 0.0, 60.0)


def test_all_sessions_are_at_work_at_once_each_in_its_thread_on_its_cores(crowd: Crowd) -> None:
    crowd.feed(TimedInputs(({},)))
    assert crowd.measure(fixed_runs(5)).n >= 5
    for one, cores in zip(members(crowd), TWO, strict=True):
        assert one.met >= 5
        assert one.loaded_on == set(HERE), "libraries look when they are loaded"
        assert one.ran_on == {frozenset(cores)}
    assert members(crowd)[0].thread != members(crowd)[1].thread


def test_an_error_of_one_session_stops_all_and_is_raised(crowd: Crowd) -> None:
    first, second = members(crowd)
    second.fails_at = 3
    with pytest.raises(RuntimeError, match="on purpose"):
        crowd.measure(fixed_runs(10**9))
    before = first.runs
    assert crowd.measure(fixed_runs(2)).n >= 2, "it can be used again"
    assert first.runs > before
    crowd.close()
    assert first.closed
    assert second.closed


def test_sessions_that_cannot_all_be_loaded_are_closed() -> None:
    loaded: list[Together] = []

    def load() -> Any:
        if loaded:
            raise MemoryError("no room for another")
        loaded.append(Together())
        return loaded[0]

    with pytest.raises(MemoryError, match="no room"):
        Crowd(load, TWO)
    assert loaded[0].closed


@pytest.mark.parametrize("backends", [("onnxruntime",), ("openvino", "ncnn")])
def test_sessions_of_real_backends_are_right_while_others_are_at_work(
    tmp_path: Path, backends: tuple[str, ...]
) -> None:
    model = chain(2)
    program = alternating(model, tmp_path, backends)
    feeds = random_inputs(model, seed=1)
    with ExitStack() as stack:
        expected = stack.enter_context(Session([program], TARGET)).run(None, feeds)
        crowd = stack.enter_context(Crowd(lambda: Session([program], TARGET), TWO))
        crowd.feed(TimedInputs((feeds,)))
        assert crowd.measure(FEW).n >= FEW.min_runs
        for session in crowd.sessions:
            np.testing.assert_array_equal(session.read(program.outputs[0]), expected[0])
