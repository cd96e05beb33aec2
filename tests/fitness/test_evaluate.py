"""What the search is told of a placement: its latency, or the reason why it has none."""

import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

import pytest

from collage_evo.errors import InputError, UnavailableError
from collage_evo.fitness.builders import Builders, CompileAhead, build_job
from collage_evo.fitness.evaluate import MeasuredEvaluator, ReferenceArtifact, TimingRule
from collage_evo.fitness.jobs import BuildJob, Compiled, Measured, PlacementJob, Reply
from collage_evo.fitness.worker_slot import LocalWorkers, PoolConfig
from collage_evo.genome.failure import Failure, Fault
from collage_evo.genome.outcome import Outcome
from collage_evo.hardware.target import Target
from collage_evo.patterns.match import Placement, Region
from tests.fitness.helpers import LONG_S, TIMING
from tests.support.machine import setting_of
from tests.support.typed import not_none

NO = Failure(Fault.BUILD, "no")

FAST, SLOW, SLOWER, UNBUILT = (Placement((Region(nodes, "any", "default"),)) for nodes in (1, 2, 4, 8))


class Pool:
    """Everything takes 10 ms for each node of its first region's number; keeps what it was asked."""

    workers = LocalWorkers()

    def __init__(self, slots: int = 1, in_turns: bool = False) -> None:
        # A core is left for what makes the placements.
        setting = setting_of(in_turns=in_turns, target=Target(threads=2))
        self.config = PoolConfig(setting, tuple(range(2 * slots + 1)), 2**30, 60.0)
        self.jobs: list[PlacementJob] = []
        self.measured = threading.Event()

    def map(
        self, jobs: Sequence[PlacementJob], over: Callable[[], bool] = lambda: False
    ) -> Iterator[Reply[Measured | Failure]]:
        for job in jobs:
            self.jobs.append(job)
            nodes = job.regions[0].nodes
            self.measured.set()
            yield Reply(Measured((10.0 * nodes,) * 3, 1e-6, 1e-6, contended=nodes > 1), "here")


class AtOnce:
    """Builders for whom all is done that they are asked for, but what ``late`` has waits for its event."""

    def __init__(self, late: dict[Placement, threading.Event] | None = None) -> None:
        self.late = {build_job(placement.regions[0]): event for placement, event in (late or {}).items()}

    def begin(self, job: BuildJob) -> Future[Compiled | Failure]:
        future: Future[Compiled | Failure] = Future()

        def end() -> None:
            if job in self.late:
                self.late[job].wait(LONG_S)
            future.set_result(NO if job == build_job(UNBUILT.regions[0]) else Compiled())

        if job in self.late:
            threading.Thread(target=end, daemon=True).start()
        else:
            end()
        return future


class Refusing(AtOnce):
    """Builders whose compilations fail as on a full disk; ``at_once``: nothing begins."""

    def __init__(self, at_once: bool = False) -> None:
        super().__init__()
        self.at_once = at_once

    def begin(self, job: BuildJob) -> Future[Compiled | Failure]:
        error = InputError("no space left on device")
        if self.at_once:
            raise error
        future: Future[Compiled | Failure] = Future()
        future.set_exception(error)
        return future


def evaluator(pool: Any, builders: Any = None, anchor: ReferenceArtifact | None = None) -> MeasuredEvaluator:
    return MeasuredEvaluator(pool, builders or AtOnce(), TimingRule(TIMING, 100.0, anchor))


def test_a_latency_is_as_measured_and_all_race_against_the_fastest_so_far() -> None:
    pool = Pool()
    measured = evaluator(pool)
    slow, fast = measured.evaluate([SLOW, FAST])
    assert slow == Outcome(20.0, 20.0, 20.0, 3, error=1e-6, worker="here", contended=True)
    assert fast == Outcome(10.0, 10.0, 10.0, 3, error=1e-6, worker="here")
    measured.evaluate([SLOWER])
    measured.race_against(Outcome(5.0))
    measured.evaluate([FAST])
    assert [job.best_ms for job in pool.jobs] == [math.inf, 20.0, 10.0, 5.0]
    assert measured.evaluate([FAST], until=-math.inf) == [None], "something was right: the time limit counts"


def test_what_cannot_be_built_is_not_measured_and_says_why() -> None:
    pool = Pool()
    unbuilt, measured = evaluator(pool).evaluate([UNBUILT, FAST])
    assert not_none(unbuilt).reason == "build: no"
    assert not_none(measured).ok
    assert len(pool.jobs) == 1


def test_all_are_timed_against_the_anchor_where_there_is_one() -> None:
    pool = Pool()
    evaluator(pool, anchor=ReferenceArtifact(Path("best.collage"), 7.0)).evaluate([FAST, SLOW])
    evaluator(pool).evaluate([FAST])
    assert [job.reference_run for job in pool.jobs] == ["best.collage", "best.collage", ""]
    assert [job.reference_run_ms for job in pool.jobs[:2]] == [7.0, 7.0]


def test_the_first_placements_are_measured_while_the_next_are_still_made() -> None:
    pool = Pool()

    def made() -> Iterator[Placement]:
        yield FAST
        assert pool.measured.wait(LONG_S), "the first one waits for the second"
        yield SLOW

    assert [outcome is not None and outcome.ok for outcome in evaluator(pool).evaluate(made())] == [True, True]


def test_as_many_as_there_are_slots_are_at_work_and_wait_for_no_other_to_end() -> None:
    both, ended = threading.Barrier(2, timeout=LONG_S), threading.Event()

    class Two(Pool):
        def map(
            self, jobs: Sequence[PlacementJob], over: Callable[[], bool] = lambda: False
        ) -> Iterator[Reply[Measured | Failure]]:
            (job,) = jobs
            if job.regions[0].nodes <= 2:
                both.wait()
            if job.regions[0].nodes == 1:
                assert ended.wait(LONG_S), "the first one's end is waited for"
            if job.regions[0].nodes == 5:
                ended.set()
            return super().map(jobs, over)

    many = [Placement((Region(nodes, "any", "default"),)) for nodes in range(1, 6)]
    outcomes = evaluator(Two(2)).evaluate(many)
    assert [outcome and outcome.latency_ms for outcome in outcomes] == [10.0, 20.0, 30.0, 40.0, 50.0]


def test_what_one_of_several_hands_raises_is_raised_while_another_is_at_work() -> None:
    raised = threading.Event()

    class Broken(Pool):
        def map(
            self, jobs: Sequence[PlacementJob], over: Callable[[], bool] = lambda: False
        ) -> Iterator[Reply[Measured | Failure]]:
            if not threading.current_thread().name.endswith("_0"):
                raise UnavailableError("no worker")
            assert raised.wait(LONG_S), "the first hand's end is waited for"
            return super().map(jobs, over)

    with pytest.raises(UnavailableError, match="no worker"):
        evaluator(Broken(2)).evaluate([FAST, SLOW, SLOWER])
    raised.set()


def test_what_is_compiled_first_is_measured_first_and_outcomes_keep_their_order() -> None:
    pool = Pool()
    outcomes = evaluator(pool, AtOnce({SLOW: pool.measured})).evaluate([SLOW, FAST])
    assert [outcome and outcome.latency_ms for outcome in outcomes] == [20.0, 10.0]
    assert [job.regions[0].nodes for job in pool.jobs] == [1, 2]


def test_of_what_still_compiles_once_all_are_taken_one_is_waited_for() -> None:
    soon, never = threading.Event(), threading.Event()
    measured = evaluator(Pool(), AtOnce({SLOW: soon, SLOWER: never}))
    measured.evaluate([FAST])
    threading.Timer(0.1, soon.set).start()  # long after all are taken
    assert [outcome is not None for outcome in measured.evaluate([SLOW, SLOWER])] == [True, False]
    never.set()


def test_a_wait_ends_where_another_hand_takes_what_it_waited_for() -> None:
    """On a machine at work, the waiting thread gets the interpreter long after its deadline."""
    built: Future[Compiled | Failure] = Future()
    found: list[int] = []

    class Later(AtOnce):
        def begin(self, job: BuildJob) -> Future[Compiled | Failure]:
            return built

    with CompileAhead(cast("Builders", Later()), [FAST], 1, look_s=0.5) as ahead:

        def take() -> None:
            found.append(len(ahead.ready(lambda: False, lambda: False)))

        waiting = threading.Thread(target=take, daemon=True)
        waiting.start()
        time.sleep(0.1)
        usual = sys.getswitchinterval()
        sys.setswitchinterval(LONG_S)  # no other thread runs until this one waits
        built.set_result(Compiled())
        take()
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline:
            pass
        sys.setswitchinterval(usual)
        waiting.join(LONG_S)
    assert sorted(found) == [0, 1]


@pytest.mark.parametrize("in_turns", [True, False])
def test_where_memory_lacks_nothing_is_compiled_while_a_placement_is_measured(in_turns: bool) -> None:
    at_work: list[str] = []
    together: list[tuple[str, ...]] = []

    def works(what: str) -> None:
        at_work.append(what)
        time.sleep(0.05)
        together.append(tuple(sorted(at_work)))
        at_work.remove(what)

    class Measuring(Pool):
        def map(self, jobs: Sequence[PlacementJob], over: Any = None) -> Iterator[Reply[Measured | Failure]]:
            works("measures")
            return super().map(jobs)

    class Compiling(AtOnce):
        def begin(self, job: BuildJob) -> Future[Compiled | Failure]:
            future: Future[Compiled | Failure] = Future()
            threading.Thread(target=lambda: (works("compiles"), future.set_result(Compiled()))).start()
            return future

    placements = [Placement((Region(1 << k, "any", "default"),)) for k in range(6)]
    outcomes = evaluator(Measuring(in_turns=in_turns), Compiling()).evaluate(placements)
    assert outcomes[0] is not None
    assert (max(map(len, together)) == 1) is in_turns


def test_a_compilation_keeps_its_turn_until_it_ends_whoever_left() -> None:
    turn, end = threading.Lock(), threading.Event()
    with CompileAhead(cast("Builders", AtOnce({SLOW: end})), [SLOW], 1, turn):
        while not turn.locked():
            time.sleep(0.001)
    assert turn.locked(), "the next generation would measure beside it"
    end.set()
    assert turn.acquire(timeout=LONG_S)


def test_what_making_a_placement_raises_is_raised() -> None:
    def made() -> Iterator[Placement]:
        yield FAST
        raise ValueError("no second one")

    with pytest.raises(ValueError, match="no second one"):
        evaluator(Pool()).evaluate(made())


@pytest.mark.parametrize("at_once", [False, True])
def test_what_the_system_refuses_is_raised_and_leaves_nobody_waiting_for_a_turn(at_once: bool) -> None:
    refusing = Refusing(at_once)
    with pytest.raises(InputError, match="no space left"):
        evaluator(Pool(in_turns=True), refusing).evaluate([FAST, SLOW])
    turn = threading.Lock()
    with (
        pytest.raises(InputError, match="no space left"),
        CompileAhead(cast("Builders", refusing), [FAST], 1, turn) as ahead,
    ):
        ahead.ready(lambda: False, lambda: False)
    assert not turn.locked()


def test_what_is_wrong_does_not_end_a_search_that_found_nothing_yet() -> None:
    wrong, right, late = evaluator(Pool()).evaluate([UNBUILT, FAST, SLOW], until=-math.inf)
    assert [one is not None and one.ok for one in (wrong, right, late)] == [False, True, False]
    assert late is None


def test_placements_that_there_is_no_time_for_have_no_outcome_and_the_first_always_has_one() -> None:
    pool = Pool()
    measured = evaluator(pool)
    measured.clock = lambda: float(len(pool.jobs))
    many = [Placement((Region(nodes, "any", "default"),)) for nodes in range(16, 40)]
    for until, count in ((0.0, 1), (3.0, 3), (math.inf, len(many))):
        pool.jobs.clear()
        outcomes = measured.evaluate(many, until)
        assert [outcome is not None for outcome in outcomes[:count]] == [True] * count
        assert not any(outcomes[count:])
