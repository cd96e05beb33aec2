"""Contestants take turns in processes that are started anew now and then; who fails is out, with the reason."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from collage_evo.fitness import race as module
from collage_evo.fitness.jobs import Answer, OpenJob, TimeJob
from collage_evo.fitness.pool import MeasuringPool
from collage_evo.fitness.race import ROUNDS_A_LOAD, Serving, race
from collage_evo.runtime.timing import TimingSettings

TURN = TimingSettings(1, 2, 0.1, 1.0)


@contextlib.contextmanager
def quiet() -> Iterator[tuple[int, ...]]:
    yield (0,)


POOL = cast(MeasuringPool, SimpleNamespace(setting=None, memory_bytes=0, timeout_s=1.0, quiet=quiet))


class Processes:
    """Stands in for ``Sandbox``: what each was told, in order; ``dies`` maps a name to the load that ends it."""

    def __init__(self) -> None:
        self.log: list[tuple[str, str]] = []
        self.loads: dict[str, int] = {}
        self.dies: dict[str, int] = {}
        self.load_ms = [0.0, 30.0, 10.0, 20.0]

    def __call__(self, *_: Any) -> _Process:
        return _Process(self)


class _Process(contextlib.AbstractContextManager["_Process"]):
    def __init__(self, told: Processes) -> None:
        self.told = told
        self.name = ""
        self.turns = 0

    def __exit__(self, *_: object) -> None:
        self.told.log.append(("ends", self.name))

    def call(self, job: OpenJob | TimeJob, timeout_s: float) -> Answer:
        told = self.told
        if isinstance(job, OpenJob):
            self.name = job.artifact
            told.loads[self.name] = told.loads.get(self.name, 0) + 1
            told.log.append(("opens", self.name))
            return Answer(load_ms=told.load_ms[told.loads[self.name]], peak_bytes=told.loads[self.name] * 1000)
        self.turns += 1
        told.log.append(("runs", self.name))
        if told.dies.get(self.name) == told.loads[self.name] and self.turns == 3:
            return Answer(reason="crashed")
        return Answer(times_ms=(99.0 if self.turns == 1 else float(told.loads[self.name]),))


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Processes:
    stand_in = Processes()
    monkeypatch.setattr(module, "Sandbox", stand_in)
    monkeypatch.setattr(module, "REST_S", 0.0)
    return stand_in


def test_processes_are_started_anew_and_their_first_turns_do_not_count(processes: Processes) -> None:
    heard: list[int] = []
    found = race({"a": Path("a"), "b": Path("b")}, POOL, ROUNDS_A_LOAD + 2, TURN, heard.append)
    assert found.rounds == {name: ((1.0,),) * ROUNDS_A_LOAD + ((2.0,),) * 2 for name in ("a", "b")}
    assert heard == [index + 1 for index in range(ROUNDS_A_LOAD + 2)]
    assert not found.failed
    started = [what for what in processes.log if what[0] != "runs"]
    assert sorted(started[:4]) == sorted(started[4:]), "all of them end before any starts anew"
    timed = "".join(name for what, name in processes.log if what == "runs")
    turns = [timed[start : start + 2] for start in range(0, 2 + 2 * ROUNDS_A_LOAD, 2)]
    assert sorted(turns[0]) == ["a", "b"], "warmed up"
    assert set(turns[1:]) == {"ab", "ba"}, "each has its turn in every round, in changing order"


def test_who_fails_is_out_and_the_others_go_on(processes: Processes) -> None:
    processes.dies["b"] = 2
    found = race({"a": Path("a"), "b": Path("b"), "c": Path("c")}, POOL, 3 * ROUNDS_A_LOAD, TURN)
    assert found.failed == {"b": "crashed"}
    assert {name: len(rounds) for name, rounds in found.rounds.items()} == dict.fromkeys("ac", 3 * ROUNDS_A_LOAD)
    assert processes.loads == {"a": 3, "b": 2, "c": 3}


def test_what_serving_takes_is_the_usual_load_and_the_most_memory(processes: Processes) -> None:
    processes.dies["b"] = 2
    found = race({"a": Path("a"), "b": Path("b")}, POOL, 3 * ROUNDS_A_LOAD, TURN)
    assert found.serving == {"a": Serving(load_ms=20.0, peak_bytes=3000)}
