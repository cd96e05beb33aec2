"""What is given out: the best of the candidates' heats if it beats every baseline, else the best baseline."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from collage_evo.errors import InputError
from collage_evo.fitness.failure import Failure, Fault
from collage_evo.fitness.final import answer as module
from collage_evo.fitness.final import race as racing
from collage_evo.fitness.final.answer import (
    FEWEST_ROUNDS,
    HEAT,
    SINGLES_ROUNDS,
    FinalSettings,
    contenders,
    decide,
)
from collage_evo.fitness.final.baselines import Baseline
from collage_evo.fitness.final.sequential import FIRST_LOOK, Stopping
from collage_evo.fitness.measure.answers import Answer, Opened, Timed
from collage_evo.fitness.measure.jobs import OpenJob, TimeJob
from collage_evo.fitness.measure.pool import MeasuringPool
from collage_evo.fitness.outcome import Outcome
from collage_evo.runtime.timing import TimingSettings

ROUNDS = 8
SETTINGS = FinalSettings(Stopping(ROUNDS), TimingSettings(1, 2, 0.1, 1.0))


@contextlib.contextmanager
def undisturbed() -> Iterator[tuple[int, ...]]:
    yield (0,)


POOL = cast(MeasuringPool, SimpleNamespace(setting=None, memory_bytes=0, timeout_s=1.0, undisturbed=undisturbed))


class Machine:
    """Stands in for ``Sandbox``: everybody takes its time, in ms, or what :attr:`load` gives for one of its loads.

    Who has no time fails its check.
    """

    def __init__(self, times_ms: Mapping[str, float]) -> None:
        self.times_ms = dict(times_ms)
        self.load: dict[str, list[float]] = {}
        self.loads: dict[str, int] = {}
        self.open: set[str] = set()
        self.most_open = 0
        self.load_s = 0.0
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    def __call__(self, *_: Any) -> _Process:
        return _Process(self)


class _Process:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.name = ""
        self.ms = 0.0

    def start(self) -> None:
        pass

    def close(self) -> None:
        self.machine.open.discard(self.name)

    def call(self, job: OpenJob | TimeJob, timeout_s: float) -> Answer:
        machine = self.machine
        if isinstance(job, TimeJob):
            return Timed((self.ms,) * 3)
        self.name = job.artifact
        machine.now += machine.load_s
        machine.loads[self.name] = machine.loads.get(self.name, 0) + 1
        machine.open.add(self.name)
        machine.most_open = max(machine.most_open, len(machine.open))
        if self.name not in machine.times_ms:
            return Failure(Fault.WRONG_NUMBERS, "relative error 1")
        by_load = machine.load.get(self.name, [])
        self.ms = by_load[machine.loads[self.name] % len(by_load)] if by_load else machine.times_ms[self.name]
        return Opened(0.0, 0.0, 1.0, 1)


def baseline(name: str, latency_ms: float) -> Baseline:
    return Baseline(name, name, "default", Path(name), Outcome(latency_ms, n=1))


def candidates(count: int) -> dict[str, Path]:
    return {f"placement-{index}": Path(f"placement-{index}") for index in range(count)}


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    times = {f"placement-{index}": 3.0 - 0.1 * index for index in range(9)} | {"fast": 2.5, "slow": 3.5}
    stand_in = Machine(times)
    monkeypatch.setattr(racing, "Sandbox", stand_in)
    monkeypatch.setattr(racing, "REST_S", 0.0)
    return stand_in


BASELINES = (baseline("fast", 2.5), baseline("slow", 3.5), baseline("slower", 9.0))


def decided(count: int) -> module.Verdict:
    return decide(candidates(count), BASELINES, POOL, SETTINGS, lambda note: None)


def decided_within(machine: Machine, seconds: float, notes: list[str]) -> module.Verdict:
    machine.now, machine.loads = 0.0, {}
    settings = replace(SETTINGS, seconds=seconds)
    return decide(candidates(9), BASELINES, POOL, settings, notes.append, machine.clock)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 9])
def test_the_fastest_candidate_wins_through_heats_of_a_few(machine: Machine, count: int) -> None:
    verdict = decided(count)
    assert verdict.candidate == f"placement-{count - 1}"
    assert machine.most_open <= HEAT
    final = len(verdict.final.rounds[verdict.candidate])
    loads = {name: machine.loads[name] - final * (name == verdict.candidate) for name in candidates(count)}
    assert set(loads.values()) == {1}, "each starts once for all its heats"
    assert set(verdict.final.rounds) == {"fast", "slow", verdict.candidate}, "one far behind takes no turns"
    assert not machine.open


def test_the_answer_is_the_candidate_only_if_it_is_faster(machine: Machine) -> None:
    won, lost = decided(9), decided(3)
    assert (won.answer, won.is_single, won.speedup.median) == ("placement-8", False, pytest.approx(2.5 / 2.2))
    assert (lost.answer, lost.is_single, lost.speedup.median) == ("fast", True, 1.0)
    assert lost.candidate_speedup.median == pytest.approx(2.5 / 2.8)


def test_the_race_is_over_once_it_is_decided(machine: Machine) -> None:
    assert [len(decided(count).final.rounds["fast"]) for count in (9, 3)] == [2, 2]
    machine.load["fast"] = [2.1, 2.35]  # now faster than the candidate's 2.2 ms, now slower
    machine.loads.clear()
    open_race = decided(9)
    assert len(open_race.final.rounds["fast"]) > 2
    assert open_race.is_single


def test_baselines_that_are_close_go_on_without_a_candidate_that_is_given_up(machine: Machine) -> None:
    machine.times_ms |= {"near": 2.4}
    machine.load["near"] = [2.4, 2.6, 2.6, 2.4, 2.4]  # its second load is of the first round
    baselines = (baseline("fast", 2.5), baseline("near", 2.4), baseline("slow", 3.5))
    lost = decide(candidates(1), baselines, POOL, SETTINGS, lambda note: None)
    rounds = {name: len(found) for name, found in lost.final.rounds.items()}
    assert (rounds["fast"], rounds["near"]) == (SINGLES_ROUNDS, SINGLES_ROUNDS)
    assert max(rounds["slow"], rounds[lost.candidate]) <= FIRST_LOOK
    assert (lost.answer, lost.is_single) == ("near", True)


@pytest.mark.parametrize("count", [0, 1])
def test_baselines_that_are_close_race_on_where_there_is_no_candidate_or_it_fails(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(module, "choose", lambda *_: "placement-0")
    del machine.times_ms["placement-0"]
    machine.times_ms |= {"near": 2.4}
    machine.load["near"] = [2.4, 2.6, 2.6, 2.4, 2.4]  # its second load is of the first round
    baselines = (baseline("fast", 2.5), baseline("near", 2.4), baseline("slow", 3.5))
    verdict = decide(candidates(count), baselines, POOL, SETTINGS, lambda note: None)
    rounds = {name: len(found) for name, found in verdict.final.rounds.items()}
    assert rounds == {"fast": SINGLES_ROUNDS, "near": SINGLES_ROUNDS, "slow": FIRST_LOOK}
    assert (verdict.answer, verdict.is_single) == ("near", True)


def test_baselines_alone_keep_to_the_time_there_is(machine: Machine) -> None:
    machine.load_s = 10.0
    settings = replace(SETTINGS, seconds=30.0)
    baselines = (baseline("fast", 2.5), baseline("near", 2.4))
    machine.times_ms |= {"near": 2.4}
    verdict = decide({}, baselines, POOL, settings, lambda note: None, machine.clock)
    assert {len(found) for found in verdict.final.rounds.values()} == {FIRST_LOOK}


def test_the_best_of_baselines_alone_is_told_by_turns_however_the_machines_speed_changes(machine: Machine) -> None:
    """Medians over all rounds would name the other."""
    machine.times_ms |= {"near": 2.5}
    machine.load |= {"fast": [5.0, 1.0, 2.0, 3.0, 4.0], "near": [5.1, 0.99, 1.98, 3.1, 3.96]}
    verdict = decide({}, (baseline("fast", 2.5), baseline("near", 2.5)), POOL, SETTINGS, lambda note: None)
    assert verdict.answer == "near"


def test_a_baseline_that_is_beaten_takes_no_more_turns_and_the_candidate_must_beat_them_all(machine: Machine) -> None:
    machine.times_ms["placement-0"] = 2.45
    machine.load["fast"] = [2.44, 2.49, 2.46]
    verdict = decided(1)
    assert len(verdict.final.rounds["slow"]) == 2
    assert len(verdict.final.rounds["fast"]) > 2
    assert (verdict.answer, verdict.best_single) == ("fast", "fast")


def test_a_baseline_far_behind_leaves_after_two_rounds_however_noisy_it_is(machine: Machine) -> None:
    machine.times_ms["placement-0"] = 2.45
    machine.load |= {"fast": [2.44, 2.49, 2.46], "slow": [3.0, 3.6]}
    verdict = decided(1)
    assert len(verdict.final.rounds["slow"]) == 2
    assert len(verdict.final.rounds["fast"]) > 2


def test_a_baseline_very_far_behind_leaves_after_one_round_unless_it_is_the_fastest(machine: Machine) -> None:
    machine.times_ms |= {"placement-0": 1.0, "fast": 2.0, "slow": 4.0}
    verdict = decided(1)
    assert len(verdict.final.rounds["slow"]) == 1
    assert len(verdict.final.rounds["fast"]) == 2


def test_where_loading_takes_long_there_are_fewer_candidates_and_rounds(machine: Machine) -> None:
    machine.load_s = 1.0
    machine.load |= {"fast": [2.5, 3.1, 2.5, 2.4], "slow": [3.5]}
    notes: list[str] = []
    short = decided_within(machine, 10.0, notes)
    assert short.candidate == "placement-3", "the fastest of those that were loaded"
    assert "time for the best 4 of 9 placements" in notes
    assert len(short.final.rounds["fast"]) == FEWEST_ROUNDS
    assert short.is_single, "in so few rounds it is not proved to be faster"
    ample = decided_within(machine, 60.0, notes)
    assert ample.candidate == "placement-8"
    assert FEWEST_ROUNDS < len(ample.final.rounds["fast"]) <= ROUNDS


def test_a_candidate_twice_as_fast_is_the_answer_however_restless_the_machine_and_short_the_time(
    machine: Machine,
) -> None:
    machine.load_s = 10.0
    machine.load |= {"fast": [4.8, 5.6, 7.0, 6.0], "slow": [9.0]}
    verdict = decided_within(machine, 1.0, [])
    assert len(verdict.final.rounds["fast"]) == FEWEST_ROUNDS
    assert verdict.answer.startswith("placement")


def test_a_baseline_takes_turns_unless_it_was_much_slower_undisturbed() -> None:
    found = [baseline(name, ms) for name, ms in (("best", 10.0), ("near", 14.0), ("behind", 16.0), ("far", 21.0))]
    assert set(contenders(found, SETTINGS)) == {"best", "near"}
    disturbed = [replace(one, outcome=replace(one.outcome, disturbed=True)) for one in found]
    assert set(contenders([*found[:2], *disturbed[2:]], SETTINGS)) == {"best", "near", "behind"}
    assert set(contenders([disturbed[0], *found[1:]], SETTINGS)) == {"best", "near", "behind"}


def test_the_fastest_baseline_is_beaten_by_the_test_alone(machine: Machine) -> None:
    machine.times_ms["placement-0"] = 1.5
    machine.load |= {"fast": [1.9, 4.0, 1.9], "slow": [5.0]}
    verdict = decided(1)
    assert len(verdict.final.rounds["fast"]) > 2
    assert verdict.is_single == (verdict.candidate_speedup.low <= 1.0)


def test_a_noisy_baseline_is_no_answer_where_a_steady_one_that_left_beaten_is_faster(machine: Machine) -> None:
    machine.times_ms["placement-0"] = 2.4
    machine.load |= {"fast": [2.49, 2.5, 2.51], "slow": [2.9, 2.2, 2.9]}
    verdict = decided(1)
    rounds = {name: len(found) for name, found in verdict.final.rounds.items()}
    assert rounds == {"fast": 3, "slow": ROUNDS, "placement-0": ROUNDS}
    assert (verdict.answer, verdict.is_single) == ("fast", True)


def test_a_candidate_that_fails_its_check_is_passed_over(machine: Machine) -> None:
    del machine.times_ms["placement-8"]
    assert decided(9).candidate == "placement-7"


def test_a_candidate_that_fails_in_the_final_ends_it(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "choose", lambda *_: "placement-0")
    del machine.times_ms["placement-0"]
    verdict = decided(1)
    assert verdict.is_single
    assert len(verdict.final.rounds["fast"]) == FIRST_LOOK


@pytest.mark.parametrize("count", [2, 9])
def test_no_candidate_left_is_told_with_reasons(machine: Machine, count: int) -> None:
    machine.times_ms = {"fast": 2.5, "slow": 6.0}
    with pytest.raises(InputError, match=r"no candidate .*placement-1: wrong numbers"):
        decided(count)


def test_a_baseline_that_left_beaten_stays_so_when_another_slows_down(machine: Machine) -> None:
    """Two baselines of about the same speed: the slower of the first round leaves, far behind as both are."""
    machine.times_ms |= {"placement-0": 0.5, "slow": 2.55}
    machine.load["fast"] = [2.7, 2.5, 2.8]
    verdict = decided(1)
    assert len(verdict.final.rounds["slow"]) == 1
    assert (verdict.answer, verdict.best_single) == ("placement-0", "fast")
    assert verdict.speedup.low > 3.0
