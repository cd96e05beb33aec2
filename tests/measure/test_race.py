"""Each round loads everybody anew; bursts of neighbours make pairs; who fails is out, with the reason."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from collage_evo.answer import race as module
from collage_evo.answer.race import MAX_REPEATS, Race, Serving, race
from collage_evo.measure.jobs import Answer, Opened, OpenJob, ReloadJob, SampleBatches, SampleBatchesJob
from collage_evo.measure.pool import WorkerPool
from collage_evo.placement.failure import Failure, Fault
from collage_evo.policy import DEFAULT_POLICY

WRONG = Failure(Fault.WRONG_NUMBERS, "relative error 1")
CRASHED = Failure(Fault.CRASH, "killed by SIGSEGV")


@contextlib.contextmanager
def uncontended() -> Iterator[tuple[int, ...]]:
    yield (0,)


def pool(threads: int, device: str = "cpu") -> WorkerPool:
    setting = SimpleNamespace(target=SimpleNamespace(threads=threads, device=device), policy=DEFAULT_POLICY)
    stand_in = SimpleNamespace(setting=setting, memory_bytes=8000, timeout_s=1.0, uncontended=uncontended)
    return cast(WorkerPool, stand_in)


ALONE, SEVERAL = pool(1), pool(2)


class Processes:
    """Stands in for ``Sandbox``: what each was told, in order.

    ``dies``: the reload at which a name ends its process. ``wrong``: who fails its check.
    """

    def __init__(self) -> None:
        self.told: list[tuple[int, OpenJob | ReloadJob | SampleBatchesJob]] = []
        self.reloads: dict[str, int] = {}
        self.dies: dict[str, int] = {}
        self.wrong: set[str] = set()
        self.ms, self.load_ms = 1.0, 20.0
        self.running: set[int] = set()
        self.made = 0

    def __call__(self, *_: Any) -> _Process:
        self.made += 1
        return _Process(self, self.made)

    def jobs(self, kind: type) -> list[tuple[int, Any]]:
        """Those of a kind, with the process that was asked."""
        return [(process, job) for process, job in self.told if isinstance(job, kind)]


class _Process:
    def __init__(self, all_of_them: Processes, number: int) -> None:
        self.all, self.number = all_of_them, number

    def start(self) -> None:
        self.all.running.add(self.number)

    def close(self) -> None:
        self.all.running.discard(self.number)

    def call(self, job: OpenJob | ReloadJob | SampleBatchesJob, timeout_s: float) -> Answer:
        everybody = self.all
        self.start()
        everybody.told.append((self.number, job))
        if isinstance(job, OpenJob):
            return WRONG if job.artifact in everybody.wrong else Opened(0.0, 0.0, everybody.load_ms, 3000)
        if isinstance(job, ReloadJob):
            for name in job.artifacts:
                everybody.reloads[name] = everybody.reloads.get(name, 0) + 1
                if everybody.reloads[name] >= everybody.dies.get(name, 99):
                    return CRASHED
        return SampleBatches(tuple((everybody.ms * (1 + everybody.reloads.get(name, 0)),) for name in job.artifacts))


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Processes:
    stand_in = Processes()
    monkeypatch.setattr(module, "Sandbox", stand_in)
    return stand_in


def candidates(names: str) -> Mapping[str, Path]:
    return {name: Path(name) for name in names}


def test_each_is_checked_in_a_process_of_its_own_and_then_all_are_loaded_in_one(processes: Processes) -> None:
    found = race(candidates("abc"), ALONE, 4)
    assert len({process for process, _ in processes.jobs(OpenJob)}) == 3
    assert len({process for process, _ in processes.jobs(ReloadJob) + processes.jobs(SampleBatchesJob)}) == 1
    reloads = [job for _, job in processes.jobs(ReloadJob)]
    assert all(sorted(job.artifacts) == ["a", "b", "c"] for job in reloads)
    assert len({job.artifacts for job in reloads}) > 1, "who is loaded first changes"
    assert len({job.seed for job in reloads}) == 4, "so does where in memory they lie"
    assert {name: len(rounds) for name, rounds in found.rounds.items()} == dict.fromkeys("abc", 4)
    assert found.rounds["a"][2] == ((4.0,),) * MAX_REPEATS, "the burst that warms up does not count"
    assert found.serving == dict.fromkeys("abc", Serving(20.0, 3000))
    assert not processes.running


def test_on_several_threads_each_stays_in_a_process_of_its_own_and_is_loaded_anew_in_it(processes: Processes) -> None:
    race(candidates("ab"), SEVERAL, 3)
    own = {job.artifact: process for process, job in processes.jobs(OpenJob)}
    for process, job in processes.jobs(ReloadJob) + processes.jobs(SampleBatchesJob):
        assert {own[name] for name in job.artifacts} == {process}
    assert processes.reloads == {"a": 3, "b": 3}
    assert not processes.running


@pytest.mark.parametrize(("names", "loads"), [("ab", 0), ("abc", 3)], ids=["memory for all", "memory for two"])
@pytest.mark.parametrize("where", [ALONE, SEVERAL], ids=["one process", "a process each"])
def test_contestants_that_load_for_long_stay_loaded_where_memory_allows_it(
    processes: Processes, where: WorkerPool, names: str, loads: int
) -> None:
    processes.load_ms = 3000.0
    found = race(candidates(names), where, 3)
    assert processes.reloads == dict.fromkeys(names, loads) if loads else not processes.reloads
    assert {name: len(rounds) for name, rounds in found.rounds.items()} == dict.fromkeys(names, 3)
    assert (found.shared > 0) == (not loads)
    assert not processes.running


def test_contestants_on_a_device_are_loaded_anew_however_long_that_takes(processes: Processes) -> None:
    processes.load_ms = 3000.0
    assert race(candidates("ab"), pool(1, "cuda:0"), 3).shared == 0.0
    assert processes.reloads == {"a": 3, "b": 3}


def test_what_rounds_share_widens_the_interval() -> None:
    rounds = {name: (((ms,), (ms,)),) * 3 for name, ms in {"slow": 10.1, "fast": 10.0}.items()}
    ratios = [Race(rounds, {}, shared=shared).ratio("slow", "fast", 0.05) for shared in (0.0, 1e-3)]
    assert ratios[0].estimate == ratios[1].estimate
    assert ratios[1].low < math.exp(-1.9 * 1e-3**0.5) * ratios[1].estimate < ratios[0].low


@pytest.mark.parametrize("where", [ALONE, SEVERAL], ids=["one process", "a process each"])
def test_laps_go_there_and_back_in_changing_order(processes: Processes, where: WorkerPool) -> None:
    race(candidates("abc"), where, 1)
    runs = [name for _, job in processes.jobs(SampleBatchesJob) for name in job.artifacts]
    laps = [tuple(runs[i : i + 3]) for i in range(0, len(runs), 3)]
    assert len(laps) == MAX_REPEATS
    assert all(sorted(lap) == ["a", "b", "c"] for lap in laps)
    assert laps[1::2] == [lap[::-1] for lap in laps[::2]]
    assert len(set(laps[::2])) > 1


def test_a_large_model_has_few_laps_a_b_b_a(processes: Processes) -> None:
    processes.ms = 300.0
    race(candidates("ab"), ALONE, 1)
    runs = [name for _, job in processes.jobs(SampleBatchesJob) for name in job.artifacts]
    assert "".join(runs) in ("abba", "baab")


def test_who_fails_its_check_is_out_and_the_others_go_on(processes: Processes) -> None:
    processes.wrong = {"b"}
    found = race(candidates("abc"), ALONE, 2)
    assert found.failed == {"b": WRONG}
    assert {name: len(rounds) for name, rounds in found.rounds.items()} == {"a": 2, "c": 2}


def test_where_the_one_process_dies_each_gets_its_own_which_tells_who_is_to_blame(processes: Processes) -> None:
    processes.dies = {"b": 2}
    found = race(candidates("abc"), ALONE, 3)
    assert found.failed == {"b": CRASHED}
    assert {name: len(rounds) for name, rounds in found.rounds.items()} == {"a": 3, "c": 3}
    assert not processes.running


def test_who_is_not_named_any_more_leaves_and_with_nobody_left_the_race_is_over(processes: Processes) -> None:
    goes_on = iter([("a", "b"), ("a", "b"), ()])
    seen: list[Race] = []

    def still(so_far: Race) -> Collection[str]:
        seen.append(so_far)
        return next(goes_on)

    found = race(candidates("abc"), ALONE, 9, still)
    assert {name: len(rounds) for name, rounds in found.rounds.items()} == {"a": 3, "b": 3, "c": 1}
    assert [so_far.length for so_far in seen] == [1, 2, 3]
    assert seen[-1] == found
    assert found.seconds >= seen[0].seconds > 0.0, "over which its rounds were spread"


def test_a_ratio_is_paired_by_lap_and_one_disturbed_lap_of_a_round_does_not_matter() -> None:
    slow = (((2.0, 2.2), (4.0,), (99.0,)), ((2.2,), (2.2,), (2.2,)))
    fast = (((1.0, 1.1), (2.0,), (2.0,)), ((1.0,), (1.0,), (9.0,)))
    assert np.exp(Race({"slow": slow, "fast": fast}, {}).logs("slow", "fast")) == pytest.approx((2.0, 2.2))
    assert np.exp(Race({"slow": slow[:1], "fast": fast}, {}).logs("slow", "fast")) == pytest.approx((2.0,))
