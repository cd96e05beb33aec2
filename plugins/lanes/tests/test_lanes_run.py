"""Lanes at work: each waits for what it needs, what fails in one ends all, threads sleep and end as they should."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from collage_evo_lanes import lane_threads as crew_module
from collage_evo_lanes import run as run_module
from collage_evo_lanes.lane_threads import LaneThreads, lane_threads_here
from collage_evo_lanes.run import LaneCall, Task


class Work:
    """Random tasks on lanes, each of which notes what was done when it began."""

    def __init__(self, seed: int, lanes: int = 3, count: int = 12) -> None:
        rng = np.random.default_rng(seed)
        self.done: list[int] = []
        self.missed: list[int] = []
        self.fails: dict[int, BaseException] = {}
        lane_of = [int(lane) for lane in rng.integers(lanes, size=count)]
        tasks = []
        for place, lane in enumerate(lane_of):
            waits = [other for other in range(place) if lane_of[other] != lane and rng.random() < 0.3]
            tasks.append(Task(lane, partial(self._do, place, waits), tuple(waits), f"task {place}"))
        self.call = LaneCall(lanes, tasks)

    def _do(self, place: int, waits: list[int]) -> None:
        if not set(waits) <= set(self.done):
            self.missed.append(place)
        if place in self.fails:
            raise self.fails[place]
        self.done.append(place)

    def run(self) -> None:
        self.done.clear()
        self.call()


@pytest.mark.parametrize("seed", range(8))
def test_every_task_is_done_once_a_run_and_after_those_that_it_waits_for(seed: int) -> None:
    work = Work(seed)
    for _ in range(100):
        work.run()
        assert sorted(work.done) == list(range(12))
    assert not work.missed


@pytest.mark.parametrize("seed", range(4))
def test_what_fails_in_a_lane_is_raised_once_all_have_stopped_and_the_next_run_is_whole(seed: int) -> None:
    work = Work(seed)
    for place in range(12):
        work.fails = {place: KeyError("on purpose")}
        with pytest.raises(RuntimeError, match=f"lanes: task {place}: KeyError: 'on purpose'") as error:
            work.run()
        assert isinstance(error.value.__cause__, KeyError)
        assert place not in work.done
        work.fails = {}
        work.run()
        assert sorted(work.done) == list(range(12))
    assert not work.missed


def test_several_may_fail_at_once_and_a_lack_of_memory_stays_one() -> None:
    work = Work(0)
    work.fails = dict.fromkeys(range(12), MemoryError("out of memory"))
    for _ in range(20):
        with pytest.raises(MemoryError, match=r"lanes: task \d+: MemoryError: out of memory"):
            work.run()
    work.fails = {}
    work.run()
    assert sorted(work.done) == list(range(12))


def idle() -> None:
    """Nothing to do."""


def lane_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("lane ")}


def pair(first: Callable[[], object] = idle, second: Callable[[], object] = idle) -> LaneCall:
    """A task in each of two lanes, and one in the first that waits for both."""
    return LaneCall(2, (Task(0, first, (), "first"), Task(1, second, (), "second"), Task(0, idle, (1,), "last")))


@pytest.fixture
def before() -> set[threading.Thread]:
    return lane_threads()


def assert_ended(threads: set[threading.Thread]) -> None:
    for thread in threads:
        thread.join(timeout=200.0)
        assert not thread.is_alive()


SWITCHES = ("voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:")
"""How often a thread has woken, in a file of /proc."""


def test_threads_sleep_between_runs(before: set[threading.Thread]) -> None:
    call = pair()
    call()
    (thread,) = lane_threads() - before
    status = Path(f"/proc/self/task/{thread.native_id}/status")

    def state() -> list[str]:
        return [line for line in status.read_text().splitlines() if line.startswith(("State:", *SWITCHES))]

    def sleeps() -> bool:
        before = state()
        time.sleep(0.2)
        return state() == before and "sleeping" in before[0]

    assert any(sleeps() for _ in range(20)), "the first times it may still be on its way to sleep"


def test_one_crew_serves_all_calls_of_a_thread_and_ends_with_the_last(before: set[threading.Thread]) -> None:
    calls = [pair() for _ in range(5)]
    for call in (*calls, *calls):
        call()
    (thread,) = lane_threads() - before
    del calls[1:], call
    calls[0]()
    assert lane_threads() - before == {thread}
    calls.clear()
    assert_ended({thread})


def test_where_not_all_threads_can_be_started_the_others_end(
    before: set[threading.Thread], monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(thread: threading.Thread, begin: Callable[[threading.Thread], None] = threading.Thread.start) -> None:
        if thread.name == "lane 2":
            raise RuntimeError("can't start new thread")
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(RuntimeError, match="can't start"):
        LaneThreads(3)
    assert_ended(lane_threads() - before)


def test_threads_end_with_the_thread_that_called(before: set[threading.Thread]) -> None:
    call = pair()
    caller = threading.Thread(target=call)
    caller.start()
    caller.join()
    assert_ended(lane_threads() - before)


def test_a_call_lets_go_of_its_work_when_it_is_dropped() -> None:
    class Held:
        def __call__(self) -> None:
            """Nothing to do."""

        def __del__(self) -> None:
            gone.set()

    gone = threading.Event()
    call = pair(idle, Held())
    call()
    del call
    assert gone.wait(60.0)


def test_several_threads_run_calls_of_their_own_at_the_same_time() -> None:
    works = [Work(seed) for seed in range(4)]

    def many(work: Work) -> None:
        for _ in range(200):
            work.run()
            assert sorted(work.done) == list(range(12))

    with ThreadPoolExecutor(4) as callers:
        assert list(callers.map(many, works)) == [None] * 4
    assert not any(work.missed for work in works)


def test_one_call_may_be_made_by_one_thread_after_the_other() -> None:
    work = Work(1)
    for _ in range(5):
        caller = threading.Thread(target=work.run)
        caller.start()
        caller.join()
        work.run()
        assert sorted(work.done) == list(range(12))


@pytest.fixture
def wakes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lanes that were given work."""
    found: list[int] = []
    give = LaneThreads.give
    monkeypatch.setattr(LaneThreads, "give", lambda crew, lane, job: (found.append(lane), give(crew, lane, job)))
    return found


def test_a_lane_is_woken_when_it_has_work_and_not_before(wakes: list[int]) -> None:
    seen: list[int] = []
    tasks = (Task(0, lambda: seen.append(len(wakes)), (), "first"), Task(1, idle, (0,), "second"))
    LaneCall(3, tasks)()
    assert (seen, wakes) == ([0], [1])


def test_lanes_stay_on_cores_of_their_own_where_the_process_has_such(monkeypatch: pytest.MonkeyPatch) -> None:
    core = min(os.sched_getaffinity(0))
    monkeypatch.setattr(crew_module, "own_cores", lambda lanes: (core,) * lanes)
    seen: list[set[int]] = []
    call = LaneCall(2, (Task(1, lambda: seen.append(os.sched_getaffinity(0)), (), "where"),))
    thread = threading.Thread(target=call)  # one without a crew
    thread.start()
    thread.join()
    assert seen == [{core}]
    assert os.sched_getaffinity(0) >= {core}


def test_an_interrupt_waits_for_the_lanes_and_leaves_all_usable() -> None:
    begun, ended = threading.Event(), threading.Event()

    def first() -> None:
        begun.wait()
        signal.raise_signal(signal.SIGINT)

    def second() -> None:
        begun.set()
        time.sleep(0.05)
        ended.set()

    call = pair(first, second)
    with pytest.raises(KeyboardInterrupt):
        call()
    assert ended.is_set()
    other = Work(2)
    other.run()
    assert sorted(other.done) == list(range(12))


@pytest.mark.parametrize("given", [False, True])
def test_an_interrupt_just_before_or_after_a_lane_is_woken_leaves_all_usable(
    given: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    give = LaneThreads.give

    def interrupted(crew: LaneThreads, lane: int, job: Callable[[], object]) -> None:
        if given:
            give(crew, lane, job)
        raise KeyboardInterrupt

    work = Work(4)
    for _ in range(50):
        with monkeypatch.context() as patch:
            patch.setattr(LaneThreads, "give", interrupted)
            with pytest.raises(KeyboardInterrupt):
                work.run()
        work.run()
        assert sorted(work.done) == list(range(12)), "and what was given up does not go on meanwhile"
    assert not work.missed


@pytest.mark.parametrize(
    ("module", "name"),
    [(run_module, "open_lock"), (run_module.time, "sleep")],
    ids=["before anything is done about the first", "while the lane does not stop"],
)
def test_a_second_interrupt_gives_up_a_lane_that_does_not_stop(
    module: object, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, begun = threading.Event(), threading.Event()

    def second() -> None:
        begun.set()
        release.wait()

    def first() -> None:
        begun.wait()
        signal.raise_signal(signal.SIGINT)

    def again(_: object) -> None:
        raise KeyboardInterrupt

    call = pair(first, second)
    with monkeypatch.context() as patch:
        patch.setattr(module, name, again)
        with pytest.raises(KeyboardInterrupt):
            call()
    with pytest.raises(RuntimeError, match="given up while a lane was at work"):
        call()
    runs_beside(release)


def runs_beside(release: threading.Event) -> None:
    """Another region of as many lanes runs while a lane of one that was given up waits for ``release``."""
    late = threading.Timer(100.0, release.set)  # so that who waits for that lane fails here, and does not hang
    late.start()
    other = Work(3, lanes=2)
    other.run()
    assert sorted(other.done) == list(range(12))
    assert not release.is_set()
    late.cancel()
    release.set()


SCRIPT = """
import os, sys, threading
from collage_evo_lanes.run import LaneCall, Task
hang = threading.Event()
def idle(): pass
call = LaneCall(2, (Task(1, idle, (), "a"), Task(0, idle, (0,), "b")))
call()
"""
FORK = """
child = os.fork()
call()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
os._exit(7)
"""
HANG = """
stuck = LaneCall(2, (Task(1, hang.wait, (), "a"),))
threading.Thread(target=stuck, daemon=True).start()
sys.exit(7)
"""


@pytest.mark.parametrize("end", ["sys.exit(7)", FORK, HANG])
def test_the_interpreter_ends_and_a_forked_one_has_lanes_of_its_own(end: str) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT + end], timeout=240, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (7, "")


def test_a_core_that_was_taken_away_stops_no_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew_module, "own_cores", lambda lanes: (4096,) * lanes)  # no such core
    done = threading.Event()
    crew = LaneThreads(2)
    crew.give(1, done.set)
    assert done.wait(60)


def test_lanes_of_another_number_are_another_crew() -> None:
    two, three = lane_threads_here(2), lane_threads_here(3)
    assert two is not three
    assert lane_threads_here(2) is two
