"""Each round loads everybody anew; bursts of neighbours make pairs; who fails is out, with the reason."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collage_evo.answer.race import MAX_REPEATS, RELOAD_S, Race, Serving, race
from collage_evo.fitness.jobs import Answer, Opened, OpenJob, ReloadJob, SampleBatches, SampleBatchesJob
from collage_evo.genome.failure import Failure, Fault
from collage_evo.hardware.target import CPU, Target
from tests.support.machine import FakeMachine, FakeProcess, setting_of

WRONG = Failure(Fault.WRONG_NUMBERS, "relative error 1")
CRASHED = Failure(Fault.CRASH, "killed by SIGSEGV")


class Contest(FakeMachine):
    """``dies``: the reload at which a name ends its process. ``wrong``: who fails its check."""

    def __init__(self, threads: int = 1, device: str = CPU) -> None:
        super().__init__(self._answer, setting_of(target=Target(device, threads)), memory_bytes=8000)
        self.reloads: dict[str, int] = {}
        self.dies: dict[str, int] = {}
        self.wrong: set[str] = set()
        self.ms, self.load_ms, self.reload_s = 1.0, 20.0, 0.0
        self.ends = 0
        """The number of repeats' request at which a process ends."""

    def asked(self, kind: type) -> list[tuple[FakeProcess, Any]]:
        """Jobs of a kind, with the process that was asked."""
        return [(process, job) for process, job in self.told if isinstance(job, kind)]

    def _answer(self, job: OpenJob | ReloadJob | SampleBatchesJob) -> Answer:
        if isinstance(job, OpenJob):
            return WRONG if job.artifact in self.wrong else Opened(0.0, 0.0, self.load_ms, 3000)
        if isinstance(job, SampleBatchesJob):
            self.ends -= 1
            if self.ends == 0:
                return CRASHED
        if isinstance(job, ReloadJob):
            time.sleep(self.reload_s)
            for name in job.artifacts:
                self.reloads[name] = self.reloads.get(name, 0) + 1
                if self.reloads[name] >= self.dies.get(name, 99):
                    return CRASHED
        return SampleBatches(tuple((self.ms * (1 + self.reloads.get(name, 0)),) for name in job.artifacts))


THREADS = pytest.mark.parametrize("threads", [1, 2], ids=["one process", "a process each"])


def candidates(names: str) -> Mapping[str, Path]:
    return {name: Path(name) for name in names}


def test_each_is_checked_in_a_process_of_its_own_and_then_all_are_loaded_in_one() -> None:
    machine = Contest()
    found = race(candidates("abc"), machine, 4)
    assert len({process for process, _ in machine.asked(OpenJob)}) == 3
    assert len({process for process, _ in machine.asked(ReloadJob) + machine.asked(SampleBatchesJob)}) == 1
    reloads = [job for _, job in machine.asked(ReloadJob)]
    assert all(sorted(job.artifacts) == ["a", "b", "c"] for job in reloads)
    assert len({job.artifacts for job in reloads}) > 1, "who is loaded first changes"
    assert len({job.seed for job in reloads}) == 4, "so does where in memory they lie"
    assert {name: len(rounds) for name, rounds in found.rounds.items()} == dict.fromkeys("abc", 4)
    assert found.rounds["a"][2] == ((4.0,),) * MAX_REPEATS, "the burst that warms up does not count"
    assert found.serving == dict.fromkeys("abc", Serving(20.0, 3000))
    assert not machine.running


def test_contestants_of_another_interpreter_share_a_process_of_it() -> None:
    machine = Contest()
    found = race(candidates("abcd"), machine, 3, pythons={"c": "/other", "d": "/other"})
    for process, job in machine.asked(OpenJob):
        assert process.python == ("/other" if job.artifact in "cd" else "")
    timed = machine.asked(ReloadJob) + machine.asked(SampleBatchesJob)
    assert len({process for process, _ in timed}) == 2
    for process, job in timed:
        assert set(job.artifacts) <= set("cd" if process.python else "ab")
    assert {name: len(rounds) for name, rounds in found.rounds.items()} == dict.fromkeys("abcd", 3)
    assert not machine.running


def test_on_several_threads_each_stays_in_a_process_of_its_own_and_is_loaded_anew_in_it() -> None:
    machine = Contest(2)
    race(candidates("ab"), machine, 3)
    own = {job.artifact: process for process, job in machine.asked(OpenJob)}
    for process, job in machine.asked(ReloadJob) + machine.asked(SampleBatchesJob):
        assert {own[name] for name in job.artifacts} == {process}
    assert machine.reloads == {"a": 3, "b": 3}
    assert not machine.running


@pytest.mark.parametrize(("names", "loads"), [("ab", 0), ("abc", 3)], ids=["memory for all", "memory for two"])
@THREADS
def test_contestants_that_load_for_long_stay_loaded_where_memory_allows_it(
    threads: int, names: str, loads: int
) -> None:
    machine = Contest(threads)
    machine.load_ms = 3000.0
    found = race(candidates(names), machine, 3)
    assert machine.reloads == dict.fromkeys(names, loads) if loads else not machine.reloads
    assert {name: len(rounds) for name, rounds in found.rounds.items()} == dict.fromkeys(names, 3)
    assert (found.shared > 0) == (not loads)
    assert not machine.running


@pytest.mark.parametrize(("device", "loads"), [(CPU, 1), ("cuda:0", 2)])
@THREADS
def test_contestants_that_were_long_loaded_anew_stay_loaded_from_then_on(
    threads: int, device: str, loads: int
) -> None:
    machine = Contest(threads, device)
    machine.reload_s = RELOAD_S + 0.1
    found = race(candidates("ab"), machine, 2)
    assert machine.reloads == dict.fromkeys("ab", loads)
    assert (found.shared > 0) == (loads == 1)
    assert {name: len(rounds) for name, rounds in found.rounds.items()} == dict.fromkeys("ab", 2)


def test_contestants_that_stayed_loaded_are_loaded_anew_once_their_process_ended() -> None:
    machine = Contest()
    machine.reload_s, machine.ends = RELOAD_S + 0.1, 2
    found = race(candidates("ab"), machine, 2)
    assert {name: len(rounds) for name, rounds in found.rounds.items()} == dict.fromkeys("ab", 2)
    assert machine.reloads == dict.fromkeys("ab", 2)
    assert not found.failed


def test_contestants_whose_common_process_ended_while_they_loaded_for_long_are_loaded_in_their_own() -> None:
    machine = Contest()
    machine.reload_s, machine.dies = RELOAD_S + 0.1, {"b": 1}
    found = race(candidates("abc"), machine, 2)
    assert set(found.failed) == {"b"}
    assert {name: len(rounds) for name, rounds in found.rounds.items()} == {"a": 2, "c": 2}


def test_contestants_on_a_device_are_loaded_anew_however_long_that_takes() -> None:
    machine = Contest(1, "cuda:0")
    machine.load_ms = 3000.0
    assert race(candidates("ab"), machine, 3).shared == 0.0
    assert machine.reloads == {"a": 3, "b": 3}


def test_what_rounds_share_widens_the_interval() -> None:
    rounds = {name: (((ms,), (ms,)),) * 3 for name, ms in {"slow": 10.1, "fast": 10.0}.items()}
    ratios = [Race(rounds, {}, shared=shared).ratio("slow", "fast", 0.05) for shared in (0.0, 1e-3)]
    assert ratios[0].estimate == ratios[1].estimate
    assert ratios[1].low < math.exp(-1.9 * 1e-3**0.5) * ratios[1].estimate < ratios[0].low


@THREADS
def test_laps_go_there_and_back_in_changing_order(threads: int) -> None:
    machine = Contest(threads)
    race(candidates("abc"), machine, 1)
    runs = [name for _, job in machine.asked(SampleBatchesJob) for name in job.artifacts]
    laps = [tuple(runs[i : i + 3]) for i in range(0, len(runs), 3)]
    assert len(laps) == MAX_REPEATS
    assert all(sorted(lap) == ["a", "b", "c"] for lap in laps)
    assert laps[1::2] == [lap[::-1] for lap in laps[::2]]
    assert len(set(laps[::2])) > 1


def test_a_large_model_has_few_laps_a_b_b_a() -> None:
    machine = Contest()
    machine.ms = 300.0
    race(candidates("ab"), machine, 1)
    runs = [name for _, job in machine.asked(SampleBatchesJob) for name in job.artifacts]
    assert "".join(runs) in ("abba", "baab")


@pytest.mark.parametrize(
    ("wrong", "dies", "failure"), [({"b"}, {}, WRONG), (set(), {"b": 2}, CRASHED)], ids=["check", "common process"]
)
def test_who_fails_is_out_and_the_others_go_on(
    wrong: set[str], dies: dict[str, int], failure: Failure
) -> None:
    """Where the common process dies each gets its own, which shows whose fault it is."""
    machine = Contest()
    machine.wrong, machine.dies = wrong, dies
    found = race(candidates("abc"), machine, 3)
    assert found.failed == {"b": failure}
    assert {name: len(rounds) for name, rounds in found.rounds.items()} == {"a": 3, "c": 3}
    assert not machine.running


def test_who_is_not_named_any_more_leaves_and_with_nobody_left_the_race_is_over() -> None:
    machine = Contest()
    goes_on = iter([("a", "b"), ("a", "b"), ()])
    seen: list[Race] = []

    def still(so_far: Race) -> Collection[str]:
        seen.append(so_far)
        return next(goes_on)

    found = race(candidates("abc"), machine, 9, still)
    assert {name: len(rounds) for name, rounds in found.rounds.items()} == {"a": 3, "b": 3, "c": 1}
    assert [so_far.length for so_far in seen] == [1, 2, 3]
    assert seen[-1] == found
    assert found.seconds >= seen[0].seconds > 0.0, "over which its rounds were spread"


def test_a_ratio_is_paired_by_lap_and_one_disturbed_lap_of_a_round_does_not_matter() -> None:
    slow = (((2.0, 2.2), (4.0,), (99.0,)), ((2.2,), (2.2,), (2.2,)))
    fast = (((1.0, 1.1), (2.0,), (2.0,)), ((1.0,), (1.0,), (9.0,)))
    assert np.exp(Race({"slow": slow, "fast": fast}, {}).logs("slow", "fast")) == pytest.approx((2.0, 2.2))
    assert np.exp(Race({"slow": slow[:1], "fast": fast}, {}).logs("slow", "fast")) == pytest.approx((2.0,))
