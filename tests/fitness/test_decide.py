"""What is given out: the best of the candidates' heats if it beats every baseline, else the best baseline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from collage_evo.errors import InputError
from collage_evo.fitness import decide as module
from collage_evo.fitness.baselines import Baseline
from collage_evo.fitness.decide import HEAT, FinalSettings, decide
from collage_evo.fitness.outcome import Outcome
from collage_evo.fitness.pool import MeasuringPool
from collage_evo.fitness.race import Race
from collage_evo.runtime.timing import TimingSettings

SETTINGS = FinalSettings(rounds=6, turn=TimingSettings(1, 2, 0.1, 1.0))
POOL = cast(MeasuringPool, None)


class Races:
    """Stands in for ``race``: everybody takes its time, in ms; who has none fails."""

    def __init__(self, times_ms: Mapping[str, float]) -> None:
        self.times_ms = times_ms
        self.held: list[tuple[str, ...]] = []

    def __call__(
        self,
        artifacts: Mapping[str, Path],
        pool: MeasuringPool,
        rounds: int,
        turn: TimingSettings,
        on_round: Callable[[int], None],
    ) -> Race:
        self.held.append(tuple(artifacts))
        for index in range(rounds):
            on_round(index + 1)
        ran = {name: ((self.times_ms[name],),) * rounds for name in artifacts if name in self.times_ms}
        return Race(ran, {name: "wrong numbers" for name in artifacts if name not in ran})


def baseline(name: str, latency_ms: float) -> Baseline:
    return Baseline(name, name, "default", Path(name), Outcome(latency_ms, n=1))


def candidates(count: int) -> dict[str, Path]:
    return {f"placement-{index}": Path(str(index)) for index in range(count)}


@pytest.fixture
def races(monkeypatch: pytest.MonkeyPatch) -> Races:
    times = {f"placement-{index}": 3.0 - 0.1 * index for index in range(9)} | {"fast": 2.5, "slow": 6.0}
    stand_in = Races(times)
    monkeypatch.setattr(module, "race", stand_in)
    return stand_in


def decided(count: int, on_round: Callable[[int], Any] = lambda _: None) -> module.Verdict:
    baselines = (baseline("fast", 2.5), baseline("slow", 6.0), baseline("slower", 9.0))
    return decide(candidates(count), baselines, POOL, SETTINGS, on_round)


@pytest.mark.parametrize("count", [1, 4, 5, 9])
def test_the_fastest_candidate_wins_through_heats_of_a_few(races: Races, count: int) -> None:
    rounds: list[int] = []
    verdict = decided(count, rounds.append)
    assert verdict.candidate == f"placement-{count - 1}"
    *choosing, final = races.held
    heats = choosing[:-1] or choosing
    assert sorted(name for heat in heats for name in heat) == sorted(candidates(count))
    assert max(map(len, heats)) <= HEAT
    assert set(final) == {"fast", "slow", verdict.candidate}, "a baseline far behind takes no turns"
    assert len(rounds) == SETTINGS.all_rounds(list(candidates(count)))


def test_the_answer_is_the_candidate_only_if_it_is_faster(races: Races) -> None:
    won, lost = decided(9), decided(3)
    assert (won.answer, won.is_single, won.speedup.median) == ("placement-8", False, pytest.approx(2.5 / 2.2))
    assert (lost.answer, lost.is_single, lost.speedup.median) == ("fast", True, 1.0)
    assert lost.candidate_speedup.median == pytest.approx(2.5 / 2.8)


def test_a_candidate_that_fails_its_check_is_passed_over(races: Races) -> None:
    races.times_ms = {name: ms for name, ms in races.times_ms.items() if name != "placement-8"}
    assert decided(9).candidate == "placement-7"


@pytest.mark.parametrize("count", [2, 9])
def test_no_candidate_left_is_told_with_reasons(races: Races, count: int) -> None:
    races.times_ms = {"fast": 2.5, "slow": 6.0}
    with pytest.raises(InputError, match=r"no candidate .*placement-1: wrong numbers"):
        decided(count)
