"""The last word: takes placements that looked best, gives the answer, re-measured against every baseline in turns."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from collage_evo.errors import InputError
from collage_evo.fitness.failure import Failure
from collage_evo.fitness.final.baselines import Baseline
from collage_evo.fitness.final.race import Race, Ratio, Track, race
from collage_evo.fitness.final.sequential import FIRST_LOOK, Stopping
from collage_evo.fitness.measure.pool import MeasuringPool
from collage_evo.runtime.timing import TimingSettings

HEAT = 4
"""Candidates that race together, each in memory; the faster half goes on, against the next ones."""
SINGLES_ROUNDS = 3
"""Rounds of a race among baselines alone."""
HEAT_TURNS = 2
LAST_TURNS = 4
"""Turns of a heat; of the one after which a single candidate is left."""
FAR = 1.2
"""A baseline this many times as slow as the candidate in each of the first rounds is beaten, unless it is the fastest
of all: on a noisy machine the test would ask for many rounds more, and each costs as much as one of the others."""
ITSELF = Ratio(1.0, 1.0, 1.0, ())


@dataclass(frozen=True)
class Verdict:
    """What won.

    ``answer`` names the artifact that is given out: a candidate that beat every backend alone, the whole interval
    of its speedup over each above 1; else the best single backend. ``speedup`` is over the best single backend;
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
    """When the final race is over, and how long each turn is timed."""

    stopping: Stopping
    turn: TimingSettings
    too_slow: float = 2.0
    """A baseline this many times slower than the best takes no turns: its first measurement is enough."""
    budget: float = 0.0
    """Largest error of the answer: a baseline in a lower precision that is further off is no rival."""


def decide(
    candidates: Mapping[str, Path],
    baselines: Sequence[Baseline],
    pool: MeasuringPool,
    settings: FinalSettings,
    on_step: Callable[[str], None],
) -> Verdict:
    """Choose the best candidate in heats, then measure it against the baselines in a race of its own.

    That race keeps the figures honest: the winner of several noisy candidates looks faster than it is in the heats
    that chose it. It is a test against each baseline, over as soon as it is decided; a baseline that is beaten takes
    no more turns. To be the answer, the candidate has to beat them all, so that no correction for their number is due
    (intersection-union test, Berger, Technometrics 24, 1982). Without candidates the baselines race each other.
    """
    rivals, stopping = contenders(baselines, settings.too_slow, settings.budget), settings.stopping
    if not candidates:
        return _among_singles(race(rivals, pool, SINGLES_ROUNDS, settings.turn))
    candidate = choose(candidates, pool, settings.turn, on_step)

    def still(so_far: Race) -> Sequence[str]:
        """Who takes another round: nobody once the candidate beat every baseline, or is given up against one."""
        if candidate not in so_far.rounds:
            return ()
        logs = _logs(so_far, rivals, candidate)
        running = [name for name in logs if len(so_far.rounds[name]) == len(so_far.rounds[candidate])]
        unbeaten = [name for name in running if not _beaten(name, logs, stopping)]
        if not unbeaten or any(stopping.given_up(logs[name]) for name in unbeaten):
            return ()
        on_step(f"{min(float(np.exp(np.median(logs[name]))) for name in unbeaten):.3f} times as fast")
        return [*unbeaten, candidate]

    entries = {**rivals, candidate: candidates[candidate]}
    final = race(entries, pool, stopping.rounds, settings.turn, still=still)
    singles = [name for name in rivals if name in final.rounds]
    if not singles:
        raise InputError(f"no baseline survived the final race: {_why(final.failed)}; run again with --debug")
    if candidate not in final.rounds:
        best = min(singles, key=lambda name: final.timing(name).median_ms)
        return Verdict(best, best, ITSELF, candidate, Ratio(0.0, 0.0, 0.0, ()), final)
    logs = _logs(final, singles, candidate)
    best = _fastest(logs)
    reached = Ratio.of(logs[best], stopping.significance)
    if all(_beaten(name, logs, stopping) for name in singles):
        return Verdict(candidate, best, reached, candidate, reached, final)
    return Verdict(best, best, ITSELF, candidate, reached, final)


def _among_singles(final: Race) -> Verdict:
    """The verdict where there is nothing but baselines."""
    if not final.rounds:
        raise InputError(f"no baseline survived the final race: {_why(final.failed)}; run again with --debug")
    best = min(final.rounds, key=lambda name: final.timing(name).median_ms)
    return Verdict(best, best, ITSELF, best, ITSELF, final)


def _logs(raced: Race, singles: Iterable[str], candidate: str) -> dict[str, list[float]]:
    """Logarithms of the candidate's speedup over each baseline that is still in the race, or left it beaten."""
    return {name: raced.logs(name, candidate) for name in singles if name in raced.rounds}


def _fastest(logs: Mapping[str, Sequence[float]]) -> str:
    """The baseline over which the speedup is smallest: compared in turns, whatever the machine did meanwhile."""
    return min(logs, key=lambda name: float(np.median(logs[name])))


def _beaten(name: str, logs: Mapping[str, Sequence[float]], stopping: Stopping) -> bool:
    """Whether the candidate beat baseline ``name``: by the test, or, if it is not the fastest one, by far."""
    far = name != _fastest(logs) and len(logs[name]) >= FIRST_LOOK and min(logs[name]) > np.log(FAR)
    return bool(far) or stopping.won(logs[name])


def choose(
    candidates: Mapping[str, Path], pool: MeasuringPool, turn: TimingSettings, on_step: Callable[[str], None]
) -> str:
    """The fastest candidate, by heats of a few, so that few are in memory at a time.

    Successive halving (Jamieson and Talwalkar, AISTATS 2016): the faster half of each heat goes on, and candidates
    that wait take the others' places.

    Raises:
        InputError: none survived its check.
    """
    waiting = list(candidates)
    with pool.undisturbed() as cores, Track(candidates, pool, cores, turn, random.Random(0)) as track:
        while waiting or len(track.ready) > 1:
            free = HEAT - len(track.ready)
            track.start(waiting[:free])
            waiting = waiting[free:]
            if len(track.ready) > 1:
                last = not waiting and len(track.ready) <= HEAT // 2
                order = _heat(track, LAST_TURNS if last else HEAT_TURNS)
                track.stop(order[1 if last else HEAT // 2 :])
            on_step(f"{len(waiting) + len(track.ready)} of {len(candidates)} placements left")
        if not track.ready:
            why = _why(track.failed)
            raise InputError(f"no candidate placement survived its check ({why}); run again with --debug")
        return track.ready[0]


def _why(failed: Mapping[str, Failure]) -> str:
    return "; ".join(f"{name}: {failure}" for name, failure in failed.items())


def _heat(track: Track, turns: int) -> list[str]:
    """Who survives ``turns`` turns, the fastest first."""
    taken = [track.turn() for _ in range(turns)]
    return sorted(track.ready, key=lambda name: np.median([np.median(turn[name]) for turn in taken]))


def contenders(baselines: Sequence[Baseline], too_slow: float, budget: float = 0.0) -> dict[str, Path]:
    """The baselines worth a turn, of those that keep ``budget``."""
    kept = [baseline for baseline in baselines if baseline.keeps(budget)]
    times = {b.name: b.outcome.latency_ms for b in kept if b.outcome.latency_ms is not None}
    bound = too_slow * min(times.values())
    return {b.name: b.artifact for b in kept if b.name in times and times[b.name] <= bound}
