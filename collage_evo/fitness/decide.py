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
    def choosing_rounds(self) -> int:
        """Rounds of the race that chooses among the candidates."""
        return max(5, self.rounds // 3)


def decide(
    candidates: Mapping[str, Path],
    baselines: Sequence[Baseline],
    pool: MeasuringPool,
    settings: FinalSettings,
    on_round: Callable[[int], None],
) -> Verdict:
    """Choose the best candidate in one race, then measure it against the baselines in another.

    The second race keeps the figures honest: the winner of several noisy candidates looks faster than it is in
    the race that chose it.
    """
    rivals = contenders(baselines, settings.too_slow)
    choosing = race({**rivals, **candidates}, pool, settings.choosing_rounds, settings.turn, on_round)
    alive = [name for name in candidates if name in choosing.rounds]
    if not alive:
        why = "; ".join(f"{name}: {choosing.failed.get(name, 'did not run')}" for name in candidates)
        raise InputError(f"no candidate placement survived its check ({why}); run again with --debug")
    candidate = min(alive, key=lambda name: choosing.timing(name).median_ms)
    final = race({**rivals, candidate: candidates[candidate]}, pool, settings.rounds, settings.turn, on_round)
    singles = [name for name in rivals if name in final.rounds]
    if not singles:
        raise InputError(f"no baseline survived the final race: {dict(final.failed)}; run again with --debug")
    best = min(singles, key=lambda name: final.timing(name).median_ms)
    reached = final.ratio(best, candidate) if candidate in final.rounds else Ratio(0.0, 0.0, 0.0, ())
    if reached.low > 1.0:
        return Verdict(candidate, best, reached, candidate, reached, final)
    itself = Ratio(1.0, 1.0, 1.0, ())
    return Verdict(best, best, itself, candidate, reached, final)


def contenders(baselines: Sequence[Baseline], too_slow: float) -> dict[str, Path]:
    """The baselines worth a turn."""
    times = {b.name: b.outcome.latency_ms for b in baselines if b.outcome.latency_ms is not None}
    bound = too_slow * min(times.values())
    return {b.name: b.artifact for b in baselines if b.name in times and times[b.name] <= bound}
