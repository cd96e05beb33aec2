"""Contestants take turns in processes that are started anew each round; who fails is out, with the reason."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from collage_evo.fitness.failure import Failure, Fault
from collage_evo.fitness.final import race as module
from collage_evo.fitness.final.race import ATTEMPTS, TURNS, Race, Serving, race
from collage_evo.fitness.measure.answers import Answer, Opened, Timed
from collage_evo.fitness.measure.jobs import OpenJob, TimeJob
from collage_evo.fitness.measure.pool import MeasuringPool
from collage_evo.runtime.timing import TimingSettings

WRONG = Failure(Fault.WRONG_NUMBERS, "relative error 1")
CRASHED = Failure(Fault.CRASH, "killed by SIGSEGV")

TURN = TimingSettings(1, 2, 0.1, 1.0)


@contextlib.contextmanager
def undisturbed() -> Iterator[tuple[int, ...]]:
    yield (0,)


POOL = cast(MeasuringPool, SimpleNamespace(setting=None, memory_bytes=0, timeout_s=1.0, undisturbed=undisturbed))


class Processes:
    """Stands in for ``Sandbox``: what each was told, in order; ``dies`` maps a name to the load that ends it."""

    def __init__(self) -> None:
        self.log: list[tuple[str, str]] = []
        self.loads: dict[str, int] = {}
        self.dies: dict[str, int] = {}
        self.running = 0
        self.load_ms = [0.0, 30.0, 10.0, 20.0]
        self.attempts: list[int] = []

    def __call__(self, *_: Any) -> _Process:
        return _Process(self)


class _Process:
    def __init__(self, told: Processes) -> None:
        self.told = told
        self.name = ""
        self.turns = 0

    def start(self) -> None:
        self.told.running += 1
        self.told.log.append(("starts", ""))

    def close(self) -> None:
        self.told.running -= 1
        self.told.log.append(("ends", self.name))

    def call(self, job: OpenJob | TimeJob, timeout_s: float) -> Answer:
        told = self.told
        if isinstance(job, OpenJob):
            self.name = job.artifact
            told.loads[self.name] = told.loads.get(self.name, 0) + 1
            told.log.append(("opens", self.name))
            if told.dies.get(self.name) == -told.loads[self.name]:
                return WRONG
            return Opened(0.0, 0.0, told.load_ms[told.loads[self.name] % 4], told.loads[self.name] * 1000)
        self.turns += 1
        told.log.append(("runs", self.name))
        told.attempts.append(job.attempts)
        if told.dies.get(self.name) == told.loads[self.name] and self.turns == 3:
            return CRASHED
        return Timed((99.0 if self.turns == 1 else float(told.loads[self.name]),))


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Processes:
    stand_in = Processes()
    monkeypatch.setattr(module, "Sandbox", stand_in)
    monkeypatch.setattr(module, "REST_S", 0.0)
    return stand_in


def test_each_round_has_new_processes_whose_first_turns_do_not_count(processes: Processes) -> None:
    heard: list[int] = []
    found = race({"a": Path("a"), "b": Path("b")}, POOL, 2, TURN, heard.append)
    assert found.rounds == {name: (((1.0,),) * TURNS, ((2.0,),) * TURNS) for name in ("a", "b")}
    assert heard == [1, 2]
    assert not found.failed
    assert processes.attempts == 2 * ([1] * 2 + [ATTEMPTS] * 2 * TURNS), "what does not count is not taken again"
    assert processes.running == 0


def test_they_run_one_after_the_other_in_changing_order_once_all_have_started(processes: Processes) -> None:
    race({name: Path(name) for name in "abc"}, POOL, 4, TURN)
    log = processes.log
    assert [what for what, _ in log[:9]] == ["starts"] * 3 + ["opens", "runs"] * 3
    runs = [name for what, name in log if what == "runs"]
    turns = [runs[i : i + 3] for i in range(0, len(runs), 3)]
    assert all(sorted(turn) == ["a", "b", "c"] for turn in turns)
    assert len({tuple(turn) for turn in turns}) > 2
    opened = [name for what, name in log if what == "opens"]
    assert len({tuple(opened[i : i + 3]) for i in range(0, len(opened), 3)}) > 1


def test_who_fails_is_out_and_the_others_go_on(processes: Processes) -> None:
    processes.dies = {"b": 2, "d": -1}
    found = race({name: Path(name) for name in "abcd"}, POOL, 3, TURN)
    assert found.failed == {"b": CRASHED, "d": WRONG}
    assert {name: len(rounds) for name, rounds in found.rounds.items()} == dict.fromkeys("ac", 3)
    assert processes.loads == {"a": 3, "b": 2, "c": 3, "d": 1}
    assert processes.running == 0


def test_who_is_not_named_any_more_leaves_and_with_nobody_left_the_race_is_over(processes: Processes) -> None:
    goes_on = iter([("a", "b"), ("a", "b"), ()])
    seen: list[Race] = []

    def still(so_far: Race) -> Collection[str]:
        seen.append(so_far)
        return next(goes_on)

    found = race({name: Path(name) for name in "abc"}, POOL, 9, TURN, still=still)
    assert {name: len(rounds) for name, rounds in found.rounds.items()} == {"a": 3, "b": 3, "c": 1}
    assert [len(so_far.rounds["a"]) for so_far in seen] == [1, 2, 3]
    assert seen[-1] == found


def test_what_serving_takes_is_the_usual_load_and_the_most_memory(processes: Processes) -> None:
    processes.dies["b"] = 2
    found = race({"a": Path("a"), "b": Path("b")}, POOL, 3, TURN)
    assert found.serving == {"a": Serving(load_ms=20.0, peak_bytes=3000)}


def test_what_any_load_noted_is_told_once() -> None:
    loads = [Serving(1.0, 1, ("p not captured",)), Serving(1.0, 1, ("p not captured", "q not captured"))]
    assert Serving.of(loads).notes == ("p not captured", "q not captured")


def test_a_ratio_is_paired_by_turn_and_one_disturbed_turn_of_a_round_does_not_matter() -> None:
    slow = (((2.0, 2.2), (4.0,), (99.0,)), ((2.2,), (2.2,), (2.2,)))
    fast = (((1.0, 1.1), (2.0,), (2.0,)), ((1.0,), (1.0,), (9.0,)))
    ratio = Race({"slow": slow, "fast": fast}, {}).ratio("slow", "fast")
    assert ratio.rounds == pytest.approx((2.0, 2.2))
    assert ratio.median == pytest.approx((2.0 * 2.2) ** 0.5)
    assert ratio.low < ratio.median < ratio.high
    shorter = Race({"slow": slow[:1], "fast": fast}, {}).ratio("slow", "fast")
    assert (shorter.median, shorter.low, shorter.high) == (pytest.approx(2.0), 0.0, np.inf)
