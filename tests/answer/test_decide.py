"""What is given out: a candidate that beat every rival, else what was the answer, or the best single backend."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from collage_evo.answer.answer import RUNS, FinalSettings, Proof, Verdict, decide, racing_baselines
from collage_evo.answer.baselines import Baseline
from collage_evo.answer.race import Race
from collage_evo.answer.sequential import FEWEST, LOOKS, Stopping
from collage_evo.errors import InputError
from collage_evo.fitness.machine import Machine
from collage_evo.genome.failure import Failure, Fault
from collage_evo.genome.outcome import Outcome

MACHINE = cast(Machine, None)
WRONG = Failure(Fault.WRONG_NUMBERS, "relative error 1")


class Contest:
    """Stands in for ``race``: everybody takes its time, in ms, from lap to lap as noisy as ``noise``.

    Who has no time fails its check; a round takes the next of ``rounds_s``.
    """

    def __init__(self, times_ms: Mapping[str, float]) -> None:
        self.times_ms = dict(times_ms)
        self.noise: dict[str, float] = {}
        self.rounds_s = itertools.repeat(0.1)

    def race(
        self,
        artifacts: Mapping[str, Path],
        machine: Machine,
        rounds: int,
        still: Callable[[Race], Collection[str]],
        checked: Collection[str],
    ) -> Race:
        self.checked = set(checked)
        order = random.Random(1)
        failed = {name: WRONG for name in artifacts if name not in self.times_ms}
        names: Collection[str] = [name for name in artifacts if name not in failed]
        taken: dict[str, list[Any]] = {name: [] for name in names}
        so_far, now = Race({}, failed), 0.0
        for _ in range(rounds):
            now += next(self.rounds_s)
            for name in names:
                laps = (order.lognormvariate(0.0, self.noise.get(name, 0.002)) for _ in range(2))
                taken[name].append(tuple((self.times_ms[name] * lap,) for lap in laps))
            so_far = Race({name: tuple(rows) for name, rows in taken.items()}, failed, {}, now)
            names = still(so_far)
            if not names:
                break
        return so_far

    def decide(
        self,
        candidates: Sequence[str],
        baselines: Sequence[Baseline],
        incumbent: str = "",
        settings: FinalSettings = FinalSettings(),  # noqa: B008
        defaults: Sequence[Baseline] = (),
    ) -> Verdict:
        named = {name: Path(name) for name in candidates}
        return decide(named, baselines, MACHINE, settings, lambda note: None, incumbent, defaults, self.race)


def baseline(name: str, latency_ms: float = 2.5) -> Baseline:
    return Baseline(name, name, "default", Path(name), Outcome(latency_ms, n=1))


def lengths(verdict: Verdict) -> dict[str, int]:
    return {name: len(rounds) for name, rounds in verdict.final.rounds.items()}


BASELINES = (baseline("fast"), baseline("near", 2.6), baseline("far", 4.0))


@pytest.fixture
def machine() -> Contest:
    return Contest({"first": 2.3, "second": 2.2, "third": 2.8, "fast": 2.5, "near": 2.6})


def test_the_fastest_candidate_wins_once_that_is_certain_and_slower_ones_leave_before(machine: Contest) -> None:
    verdict = machine.decide(["first", "second", "third"], BASELINES)
    assert (verdict.answer, verdict.best_single, verdict.is_single) == ("second", "fast", False)
    assert verdict.speedup.low <= 2.5 / 2.2 <= verdict.speedup.high
    stayed, left = dict.fromkeys(("fast", "second", "first"), LOOKS[0]), dict.fromkeys(("near", "third"), FEWEST)
    assert lengths(verdict) == stayed | left


def test_a_candidate_that_is_not_faster_is_no_answer_and_is_reported(machine: Contest) -> None:
    verdict = machine.decide(["third"], BASELINES)
    assert (verdict.answer, verdict.is_single, verdict.speedup.estimate) == ("fast", True, 1.0)
    assert (verdict.candidate, verdict.candidate_speedup.estimate) == ("third", pytest.approx(2.5 / 2.8, rel=0.01))
    assert verdict.final.length == FEWEST, "there is nothing left to find out"


def noisy(noise: float, *names: str) -> dict[str, float]:
    return dict.fromkeys(names, noise)


@pytest.mark.parametrize(
    ("times", "noise", "candidates", "incumbent", "answer"),
    [
        ({"second": 2.0}, {"second": 1.5}, ["first", "second"], "", "first"),  # second leads, but not for certain
        ({"first": 2.2, "second": 2.25}, {}, ["first", "second"], "first", "first"),
        ({"first": 2.2, "second": 2.1}, {}, ["first", "second"], "first", "second"),
        ({"first": 2.8}, {"first": 0.01}, ["first", "third"], "first", "fast"),
        ({}, noisy(1.0, "first", "second", "fast", "near"), ["first", "second"], "first", "first"),
        ({}, noisy(0.2, "fast", "near"), [], "near", "near"),
        ({}, {}, [], "near", "fast"),
        ({}, {}, ["first"], "near", "first"),
    ],
)
def test_the_answer_before_stays_unless_another_is_proved_faster(
    machine: Contest,
    times: Mapping[str, float],
    noise: Mapping[str, float],
    candidates: Sequence[str],
    incumbent: str,
    answer: str,
) -> None:
    machine.times_ms |= times
    machine.noise |= noise
    verdict = machine.decide(candidates, BASELINES, incumbent)
    assert (verdict.answer, verdict.is_single) == (answer, answer not in candidates)


@pytest.mark.parametrize("candidates", [[], ["third"]])
def test_baselines_that_are_close_race_until_one_is_proved_faster(machine: Contest, candidates: list[str]) -> None:
    machine.times_ms["near"] = 2.45
    machine.noise = noisy(0.03, "fast", "near")
    verdict = machine.decide(candidates, BASELINES)
    assert (verdict.answer, verdict.best_single, verdict.is_single) == ("near", "near", True)
    assert FEWEST < verdict.final.length < LOOKS[-1]
    assert lengths(verdict).get("third", 0) < verdict.final.length


@pytest.mark.parametrize("candidates", [[], ["third"]])
@pytest.mark.parametrize(
    ("usual_ms", "noise", "incumbent", "answer"),
    [
        (2.5, 0.01, "", "onnxruntime"),
        (2.45, 0.01, "", "onnxruntime"),
        (2.7, 0.01, "", "fast"),
        (2.5, 0.002, "fast", "fast"),
    ],
)
def test_what_the_user_has_is_the_answer_unless_a_backend_is_proved_faster_or_was_the_answer(
    machine: Contest, usual_ms: float, noise: float, incumbent: str, answer: str, candidates: list[str]
) -> None:
    machine.times_ms["onnxruntime"] = usual_ms
    machine.noise = noisy(noise, "fast", "onnxruntime")
    verdict = machine.decide(candidates, (BASELINES[0], baseline("onnxruntime")), incumbent)
    assert (verdict.answer, verdict.best_single, verdict.is_single) == (answer, answer, True)


def test_the_usual_backend_races_until_another_is_proved_faster(machine: Contest) -> None:
    machine.times_ms["onnxruntime"] = 2.55
    machine.noise = noisy(0.02, "fast", "onnxruntime")
    verdict = machine.decide([], (BASELINES[0], baseline("onnxruntime")))
    assert verdict.answer == "fast"
    assert verdict.final.length > FEWEST


@pytest.mark.parametrize("noise", [0.02, 0.05, 0.1, 0.3])
@pytest.mark.parametrize("candidates", [[], ["third", "second"]])
def test_the_interval_of_a_result_agrees_with_the_answer(
    machine: Contest, noise: float, candidates: list[str]
) -> None:
    machine.times_ms |= {"onnxruntime": 2.7, "second": 2.9}
    machine.noise = noisy(noise, "fast", "onnxruntime")
    both = (BASELINES[0], baseline("onnxruntime"))
    verdict = machine.decide(candidates, both, settings=FinalSettings(seconds=0.5))
    shown = verdict.final.ratio("onnxruntime", "fast", 1.0 - Stopping().policy.race_level)
    assert (verdict.answer == "fast") == (shown.low > 1.0)


def test_a_candidate_has_to_beat_each_baseline_that_is_left(machine: Contest) -> None:
    machine.times_ms |= {"first": 2.3, "near": 2.5}
    machine.noise = {"near": 0.3}
    verdict = machine.decide(["first"], BASELINES)
    assert (verdict.is_single, verdict.rival) == (True, "near")
    assert lengths(verdict)["first"] == LOOKS[-1]
    assert verdict.final.ratio("fast", "first", Stopping().significance).low > 1.0
    assert verdict.candidate_speedup.low <= 1.0


@pytest.mark.parametrize(
    ("factor", "rounds_s", "seconds", "rounds"),
    [
        (1, [3.0], 1.0, [FEWEST]),
        (1, [3.0], 30.0, [10]),
        (1, [3.0], 75.0, [25]),
        (1, [10.0, 1.0], 30.0, range(20, 29)),  # a slow first round does not fix how many follow
        (1e3, [10.0], 20.0, range(5, 1 + int(RUNS * 3 / 10))),  # a slow model has the time of so many of its runs
    ],
)
def test_time_bounds_the_rounds_but_for_the_first_few(
    machine: Contest, factor: float, rounds_s: list[float], seconds: float, rounds: Collection[int]
) -> None:
    machine.times_ms = {name: factor * ms for name, ms in machine.times_ms.items()}
    machine.noise = noisy(0.2, "first", "fast")
    machine.rounds_s = itertools.chain(rounds_s, itertools.repeat(rounds_s[-1]))
    verdict = machine.decide(["first"], BASELINES[:1], settings=FinalSettings(seconds=seconds))
    assert verdict.final.length in rounds
    assert verdict.proof is Proof.UNDECIDED


def test_the_time_of_a_run_bounds_the_rounds_of_a_slow_model(machine: Contest) -> None:
    machine.times_ms, machine.rounds_s = (
        {name: 1e3 * ms for name, ms in machine.times_ms.items()},
        itertools.repeat(10.0),
    )
    verdict = machine.decide(["first"], BASELINES[:1], settings=FinalSettings(seconds=20.0, most_s=20.0))
    assert verdict.final.length == FEWEST


def test_contestants_that_fail_their_check_are_passed_over(machine: Contest) -> None:
    del machine.times_ms["second"]
    verdict = machine.decide(["first", "second"], BASELINES)
    assert (verdict.answer, verdict.final.failed) == ("first", {"second": WRONG})
    machine.times_ms = {"fast": 2.5}
    verdict = machine.decide(["first", "second"], BASELINES)
    assert (verdict.answer, verdict.is_single, verdict.candidate_speedup.rounds) == ("fast", True, ())
    for times in ({"first": 2.5}, {}):
        machine.times_ms = times
        with pytest.raises(InputError, match=r"no baseline .*fast: wrong numbers"):
            machine.decide(["first"], BASELINES)


def test_with_several_candidates_each_has_a_stricter_test(machine: Contest) -> None:
    for candidates in (["second"], ["second", "third"]):
        verdict = machine.decide(candidates, BASELINES)
        significance = Stopping(candidates=len(candidates)).significance
        assert verdict.speedup == verdict.final.ratio("fast", "second", significance)


def test_a_gain_of_3_percent_is_decided_well_before_the_last_round(machine: Contest) -> None:
    machine.times_ms["first"] = 2.5 / 1.03
    machine.noise = noisy(0.01, "first", "fast")
    verdict = machine.decide(["first"], BASELINES)
    assert verdict.answer == "first"
    assert verdict.final.length <= LOOKS[2]


def test_what_is_obvious_is_decided_in_the_fewest_rounds_also_beside_a_noisy_library(machine: Contest) -> None:
    """A network of 80 ms had three rounds of 1.62, 1.73 and 1.82, and the library was the answer."""
    machine.times_ms |= {"first": 1.4, "near": 3.4}
    machine.noise = noisy(0.03, "first", "fast") | {"near": 0.12}
    verdict = machine.decide(["first"], BASELINES, settings=FinalSettings(seconds=0.1))
    assert (verdict.answer, verdict.final.length) == ("first", FEWEST)
    assert verdict.speedup.low > 1.2


def test_libraries_with_their_defaults_race_also_where_they_may_not_be_the_answer(machine: Contest) -> None:
    machine.times_ms |= {"far": 4.0, "wrong": 1.0}
    verdict = machine.decide(["second"], BASELINES, defaults=[BASELINES[2], baseline("wrong", 1.0)])
    assert (verdict.answer, verdict.best_single) == ("second", "fast")
    assert lengths(verdict)["far"] == lengths(verdict)["wrong"] == FEWEST
    assert machine.checked >= {"fast", "far", "wrong"}, "they were when they were measured"
    assert "second" not in machine.checked


def test_a_baseline_races_unless_it_was_slower_by_more_than_a_few_percent() -> None:
    found = [baseline(name, ms) for name, ms in (("best", 10.0), ("near", 11.0), ("behind", 13.0), ("far", 16.0))]
    assert set(racing_baselines(found)) == {"best", "near"}
    assert set(racing_baselines(found, "far")) == {"best", "near", "far"}, "the answer before races in any case"
    contended = [replace(one, outcome=replace(one.outcome, contended=True)) for one in found]
    assert set(racing_baselines([found[0], *contended[2:]])) == {"best", "behind"}
    assert set(racing_baselines([contended[0], *found[2:]])) == {"best", "behind"}
    assert set(racing_baselines([*found, baseline("third", 10.5)])) == {"best", "third"}, "two at most"
