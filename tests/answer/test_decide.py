"""What is given out: a candidate that beat every rival, else what was the answer, or the best single backend."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from collage_evo.answer import answer as module
from collage_evo.answer.answer import RUNS, FinalSettings, Verdict, decide, racing_baselines
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

    Who has no time fails its check; a round takes ``round_s``.
    """

    def __init__(self, times_ms: Mapping[str, float]) -> None:
        self.times_ms = dict(times_ms)
        self.noise: dict[str, float] = {}
        self.round_s = 0.1
        self.now = 0.0

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
        so_far = Race({}, failed)
        for _ in range(rounds):
            self.now += self.round_s
            for name in names:
                laps = (order.lognormvariate(0.0, self.noise.get(name, 0.002)) for _ in range(2))
                taken[name].append(tuple((self.times_ms[name] * lap,) for lap in laps))
            so_far = Race({name: tuple(rows) for name, rows in taken.items()}, failed, {}, self.now)
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
        return decide(named, baselines, MACHINE, settings, lambda note: None, incumbent, defaults)


def baseline(name: str, latency_ms: float = 2.5) -> Baseline:
    return Baseline(name, name, "default", Path(name), Outcome(latency_ms, n=1))


def lengths(verdict: Verdict) -> dict[str, int]:
    return {name: len(rounds) for name, rounds in verdict.final.rounds.items()}


BASELINES = (baseline("fast"), baseline("near", 2.6), baseline("far", 4.0))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Contest:
    times = {"first": 2.3, "second": 2.2, "third": 2.8, "fast": 2.5, "near": 2.6}
    stand_in = Contest(times)
    monkeypatch.setattr(module, "race", stand_in.race)
    return stand_in


def test_the_fastest_candidate_wins_once_it_is_told_and_those_behind_leave_before(machine: Contest) -> None:
    verdict = machine.decide(["first", "second", "third"], BASELINES)
    assert (verdict.answer, verdict.best_single, verdict.is_single) == ("second", "fast", False)
    assert verdict.speedup.low <= 2.5 / 2.2 <= verdict.speedup.high
    stayed, left = dict.fromkeys(("fast", "second", "first"), LOOKS[0]), dict.fromkeys(("near", "third"), FEWEST)
    assert lengths(verdict) == stayed | left


def test_a_candidate_that_is_not_faster_is_no_answer_and_is_told(machine: Contest) -> None:
    verdict = machine.decide(["third"], BASELINES)
    assert (verdict.answer, verdict.is_single, verdict.speedup.estimate) == ("fast", True, 1.0)
    assert (verdict.candidate, verdict.candidate_speedup.estimate) == ("third", pytest.approx(2.5 / 2.8, rel=0.01))
    assert verdict.final.length == FEWEST, "there is nothing left to find out"


def test_a_gain_of_3_percent_is_decided_well_before_the_last_round(machine: Contest) -> None:
    machine.times_ms["first"] = 2.5 / 1.03
    machine.noise = dict.fromkeys(("first", "fast"), 0.01)
    verdict = machine.decide(["first"], BASELINES)
    assert verdict.answer == "first"
    assert verdict.final.length <= LOOKS[2]


def test_the_candidate_has_to_beat_each_baseline_that_is_left(machine: Contest) -> None:
    machine.times_ms |= {"first": 2.45, "near": 2.5}
    machine.noise = {"near": 0.3}
    verdict = machine.decide(["first"], BASELINES)
    assert lengths(verdict)["first"] == LOOKS[-1]
    assert verdict.is_single


def test_a_candidate_that_leads_but_is_not_proved_faster_leaves_the_answer_to_one_that_is(machine: Contest) -> None:
    machine.times_ms["second"] = 2.0
    machine.noise = {"second": 1.5}
    assert machine.decide(["first", "second"], BASELINES).answer == "first"


def test_without_candidates_baselines_that_are_close_race_until_one_is_told(machine: Contest) -> None:
    machine.times_ms["near"] = 2.45
    machine.noise = dict.fromkeys(("fast", "near"), 0.03)
    verdict = machine.decide([], BASELINES)
    assert (verdict.answer, verdict.best_single, verdict.is_single) == ("near", "near", True)
    assert FEWEST < verdict.final.length < LOOKS[-1]
    assert "far" not in verdict.final.rounds


def test_the_best_single_backend_is_told_after_all_candidates_have_left(machine: Contest) -> None:
    machine.times_ms["near"] = 2.45
    machine.noise = dict.fromkeys(("fast", "near"), 0.03)
    verdict = machine.decide(["third"], BASELINES)
    assert verdict.answer == "near"
    assert lengths(verdict)["third"] < verdict.final.length


def test_the_answer_before_stays_unless_it_is_beaten(machine: Contest) -> None:
    machine.times_ms |= {"first": 2.2, "second": 2.25}
    kept = machine.decide(["first", "second"], BASELINES, incumbent="first")
    assert (kept.answer, kept.is_single) == ("first", False)
    machine.times_ms["second"] = 2.1
    assert machine.decide(["first", "second"], BASELINES, incumbent="first").answer == "second"


def test_the_answer_before_stays_in_an_hour_in_which_nothing_can_be_proved(machine: Contest) -> None:
    machine.noise = dict.fromkeys(("first", "second", "fast", "near"), 1.0)
    assert machine.decide(["first", "second"], BASELINES).is_single
    restless = machine.decide(["first", "second"], BASELINES, incumbent="first")
    assert restless.answer == "first"
    assert restless.speedup.low < 1.0, "what this race says of it is said"


def test_an_answer_before_that_a_backend_alone_beats_is_replaced_by_it(machine: Contest) -> None:
    machine.times_ms["first"] = 2.8
    machine.noise["first"] = 0.01
    assert machine.decide(["first", "third"], BASELINES, incumbent="first").answer == "fast"


def test_a_backend_alone_that_was_the_answer_stays_unless_another_is_proved_faster(machine: Contest) -> None:
    machine.noise = dict.fromkeys(("fast", "near"), 0.2)
    assert machine.decide([], BASELINES, incumbent="near").answer == "near"
    machine.noise = {}
    assert machine.decide([], BASELINES, incumbent="near").answer == "fast"
    assert machine.decide(["first"], BASELINES, incumbent="near").answer == "first"


@pytest.mark.parametrize(("usual_ms", "answer"), [(2.5, "onnxruntime"), (2.45, "onnxruntime"), (2.7, "fast")])
def test_what_the_user_has_is_the_answer_unless_a_backend_is_proved_faster(
    machine: Contest, usual_ms: float, answer: str
) -> None:
    machine.times_ms["onnxruntime"] = usual_ms
    machine.noise = dict.fromkeys(("fast", "onnxruntime"), 0.01)
    both = (BASELINES[0], baseline("onnxruntime"))
    for candidates in ([], ["third"]):
        verdict = machine.decide(candidates, both)
        assert (verdict.answer, verdict.best_single, verdict.is_single) == (answer, answer, True)


@pytest.mark.parametrize("noise", [0.02, 0.05, 0.1, 0.3])
def test_the_interval_that_a_result_shows_agrees_with_the_answer(machine: Contest, noise: float) -> None:
    machine.times_ms["onnxruntime"] = 2.7
    machine.noise = dict.fromkeys(("fast", "onnxruntime"), noise)
    both = (BASELINES[0], baseline("onnxruntime"))
    for candidates in ([], ["third", "second"]):
        machine.times_ms["second"] = 2.9
        verdict = machine.decide(candidates, both, settings=FinalSettings(seconds=0.5))
        shown = verdict.final.ratio("onnxruntime", "fast", 1.0 - Stopping().policy.race_level)
        assert (verdict.answer == "fast") == (shown.low > 1.0)


def test_an_answer_before_stays_where_it_is_level_with_what_the_user_has(machine: Contest) -> None:
    machine.times_ms["onnxruntime"] = 2.5
    assert machine.decide([], (BASELINES[0], baseline("onnxruntime")), incumbent="fast").answer == "fast"


def test_the_usual_backend_races_until_another_is_proved_faster_or_as_good_as_level(machine: Contest) -> None:
    machine.times_ms["onnxruntime"] = 2.55
    machine.noise = dict.fromkeys(("fast", "onnxruntime"), 0.02)
    verdict = machine.decide([], (BASELINES[0], baseline("onnxruntime")))
    assert verdict.answer == "fast"
    assert verdict.final.length > FEWEST


def test_a_candidate_that_beats_the_best_baseline_only_is_told_with_the_one_that_it_does_not_beat(
    machine: Contest,
) -> None:
    machine.times_ms |= {"first": 2.3, "near": 2.5}
    machine.noise = {"near": 0.3}
    verdict = machine.decide(["first"], BASELINES)
    assert (verdict.is_single, verdict.rival) == (True, "near")
    assert verdict.final.ratio("fast", "first", Stopping().significance).low > 1.0
    assert verdict.candidate_speedup.low <= 1.0


def test_time_bounds_the_race_by_what_rounds_take_but_for_the_first_few(machine: Contest) -> None:
    machine.noise = dict.fromkeys(("first", "fast"), 0.2)
    machine.round_s = 3.0
    for seconds, rounds in ((1.0, FEWEST), (30.0, 10), (75.0, 25)):
        machine.now = 0.0
        settings = FinalSettings(seconds=seconds)
        assert machine.decide(["first"], BASELINES, settings=settings).final.length == rounds


def test_a_slow_first_round_does_not_fix_how_many_follow(
    machine: Contest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last look was at 23 of 30 s once, undecided, because the first round was the slowest."""
    machine.noise = dict.fromkeys(("first", "fast"), 0.2)
    machine.round_s = 10.0

    def faster_later(*asked: Any) -> Race:
        *others, still, checked = asked

        def told(so_far: Race) -> Collection[str]:
            machine.round_s = 1.0
            return cast(Collection[str], still(so_far))

        return machine.race(*others, told, checked)

    monkeypatch.setattr(module, "race", faster_later)
    verdict = machine.decide(["first"], BASELINES, settings=FinalSettings(seconds=30.0))
    assert verdict.final.length >= 20


def test_a_candidate_that_fails_its_check_is_passed_over(machine: Contest) -> None:
    del machine.times_ms["second"]
    verdict = machine.decide(["first", "second"], BASELINES)
    assert (verdict.answer, verdict.final.failed) == ("first", {"second": WRONG})


def test_without_a_candidate_left_the_best_baseline_is_the_answer(machine: Contest) -> None:
    machine.times_ms = {"fast": 2.5}
    verdict = machine.decide(["first", "second"], BASELINES)
    assert (verdict.answer, verdict.is_single, verdict.candidate_speedup.rounds) == ("fast", True, ())
    assert {"first", "second"} <= verdict.final.failed.keys()


def test_no_baseline_left_is_told_with_reasons(machine: Contest) -> None:
    machine.times_ms = {"first": 2.5}
    with pytest.raises(InputError, match=r"no baseline .*fast: wrong numbers"):
        machine.decide(["first"], BASELINES)
    machine.times_ms = {}
    with pytest.raises(InputError, match=r"no baseline .*fast: wrong numbers"):
        machine.decide(["first"], BASELINES)


def test_with_several_candidates_each_has_a_stricter_test(machine: Contest) -> None:
    alone = machine.decide(["second"], BASELINES)
    beside = machine.decide(["second", "third"], BASELINES)
    assert beside.speedup == beside.final.ratio("fast", "second", Stopping(candidates=2).significance)
    assert alone.speedup == alone.final.ratio("fast", "second", Stopping().significance)


def test_what_is_obvious_is_decided_in_the_fewest_rounds_also_beside_a_noisy_library(machine: Contest) -> None:
    """A network of 80 ms had three rounds of 1.62, 1.73 and 1.82, and the library was given out."""
    machine.times_ms |= {"first": 1.4, "near": 3.4}
    machine.noise = dict.fromkeys(("first", "fast"), 0.03) | {"near": 0.12}
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


def test_a_slow_model_races_for_so_many_of_its_runs(machine: Contest) -> None:
    machine.times_ms = {name: 1e3 * ms for name, ms in machine.times_ms.items()}
    machine.noise, machine.round_s = dict.fromkeys(("first", "fast"), 0.2), 10.0
    verdict = machine.decide(["first"], BASELINES[:1], settings=FinalSettings(seconds=20.0))
    assert 5 <= verdict.final.length <= RUNS * 3 / machine.round_s


def test_a_baseline_races_unless_it_was_slower_by_more_than_a_few_percent() -> None:
    found = [baseline(name, ms) for name, ms in (("best", 10.0), ("near", 11.0), ("behind", 13.0), ("far", 16.0))]
    assert set(racing_baselines(found)) == {"best", "near"}
    assert set(racing_baselines(found, "far")) == {"best", "near", "far"}, "the answer before races in any case"
    contended = [replace(one, outcome=replace(one.outcome, contended=True)) for one in found]
    assert set(racing_baselines([found[0], *contended[2:]])) == {"best", "behind"}
    assert set(racing_baselines([contended[0], *found[2:]])) == {"best", "behind"}
    assert set(racing_baselines([*found, baseline("third", 10.5)])) == {"best", "third"}, "two at most"
