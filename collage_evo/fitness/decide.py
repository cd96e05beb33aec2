"""The last word: takes placements that looked best, gives the answer, re-measured against every baseline in turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from collage_evo.errors import InputError
from collage_evo.fitness.baselines import Baseline
from collage_evo.fitness.pool import MeasuringPool
from collage_evo.fitness.race import Race, Ratio, race
from collage_evo.runtime.timing import TimingSettings

HEAT = 4
"""Candidates that race together; the faster half goes on."""


@dataclass(frozen=True)
class Verdict:
    """What won.

    ``answer`` names the artifact that is given out: a candidate that beat the best single backend, the whole
    interval of its speedup above 1; else the best single backend. ``speedup`` is over the best single backend;
    where the answer is that backend itself it is 1 by definition and ``candidate_speedup`` tells what the best
    candidate reached.
    """

    answer: str
    best_single: str
    speedup: Ratio
    candidate: str
    candidate_speedup: Ratio
    final: Race

    @property
    def is_single(self) -> bool:
        return self.answer == self.best_single


@dataclass(frozen=True)
class FinalSettings:
    """How many rounds, and how long each turn is timed."""

    rounds: int
    turn: TimingSettings
    too_slow: float = 3.0
    """A baseline this many times slower than the best takes no turns: its first measurement is enough."""

    @property
    def heat_rounds(self) -> int:
        """Rounds of each race that chooses among the candidates."""
        return max(5, self.rounds // 3)

    def all_rounds(self, candidates: Sequence[str]) -> int:
        """Rounds of all races that decide among them."""
        heats = _heats(candidates) if candidates else []
        return self.rounds + self.heat_rounds * (len(heats) + (len(heats) > 1))


def decide(
    candidates: Mapping[str, Path],
    baselines: Sequence[Baseline],
    pool: MeasuringPool,
    settings: FinalSettings,
    on_round: Callable[[int], None],
) -> Verdict:
    """Choose the best candidate in races of their own, then measure it against the baselines in another.

    The last race keeps the figures honest: the winner of several noisy candidates looks faster than it is in
    the race that chose it. Without candidates the baselines race each other.
    """
    candidate = choose(candidates, pool, settings, on_round) if candidates else ""
    rivals = contenders(baselines, settings.too_slow)
    chosen = {candidate: candidates[candidate]} if candidates else {}
    final = race({**rivals, **chosen}, pool, settings.rounds, settings.turn, on_round)
    singles = [name for name in rivals if name in final.rounds]
    if not singles:
        raise InputError(f"no baseline survived the final race: {dict(final.failed)}; run again with --debug")
    best = min(singles, key=lambda name: final.timing(name).median_ms)
    itself = Ratio(1.0, 1.0, 1.0, ())
    if not candidates:
        return Verdict(best, best, itself, best, itself, final)
    reached = final.ratio(best, candidate) if candidate in final.rounds else Ratio(0.0, 0.0, 0.0, ())
    if reached.low > 1.0:
        return Verdict(candidate, best, reached, candidate, reached, final)
    return Verdict(best, best, itself, candidate, reached, final)


def choose(
    candidates: Mapping[str, Path], pool: MeasuringPool, settings: FinalSettings, on_round: Callable[[int], None]
) -> str:
    """The fastest candidate: heats of a few, so that few are in memory at a time, and a race of the better halves.

    Raises:
        InputError: none survived its check.
    """
    failed: dict[str, str] = {}

    def by_time(names: Sequence[str]) -> list[str]:
        heat = race({n: candidates[n] for n in names}, pool, settings.heat_rounds, settings.turn, on_round)
        failed.update(heat.failed)
        return sorted(heat.rounds, key=lambda name: heat.timing(name).median_ms)

    heats = [by_time(names) for names in _heats(list(candidates))]
    fastest = heats[0] if len(heats) == 1 else by_time([name for heat in heats for name in heat[: HEAT // 2]])
    if not fastest:
        why = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
        raise InputError(f"no candidate placement survived its check ({why}); run again with --debug")
    return fastest[0]


def _heats(names: Sequence[str]) -> list[Sequence[str]]:
    """Dealt out evenly, at most :data:`HEAT` in one."""
    count = -(-len(names) // HEAT)
    return [names[start::count] for start in range(count)]


def contenders(baselines: Sequence[Baseline], too_slow: float) -> dict[str, Path]:
    """The baselines worth a turn."""
    times = {b.name: b.outcome.latency_ms for b in baselines if b.outcome.latency_ms is not None}
    bound = too_slow * min(times.values())
    return {b.name: b.artifact for b in baselines if b.name in times and times[b.name] <= bound}
