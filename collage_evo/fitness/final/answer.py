"""The last word: takes placements that looked best, gives the answer, re-measured against every baseline in turns."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
PAIR = 2
"""Candidates that are loaded before the time is looked at."""
CHOOSING = 0.4
"""Share of the time after which no further candidate is loaded, and the heat at hand is the last."""
FEWEST_ROUNDS = 3
"""Rounds that a candidate has whatever time they take, if fewer do not decide. With two, Student's interval is so
wide that on a restless machine a placement 2.3 times as fast was not proved to be faster (ResNeXt-50, Xeon)."""
SINGLES_ROUNDS = 5
"""Most rounds of a race among baselines alone. Chosen: after two a restless machine once named the wrong one of
two that were 15 % apart."""
HEAT_TURNS = 2
LAST_TURNS = 4
"""Turns of a heat; of the one after which a single candidate is left."""
FAR = 1.2
"""A baseline this many times as slow as the candidate in each of the first rounds is beaten, unless it is the fastest
of all: on a noisy machine the test would ask for many rounds more, and each costs as much as one of the others. Once
the candidate has left, so does a baseline this many times as slow as the fastest one."""
VERY_FAR = 1.5
"""One this many times as slow is beaten after a single round."""
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
    too_slow: float = 1.5
    """A baseline this many times slower than the best takes no turns: its first measurement is enough."""
    too_slow_disturbed: float = 2.0
    """The same where others disturbed either's."""
    seconds: float = math.inf
    """For all of it: fewer candidates are loaded, and fewer rounds run, than there would be time for."""


def decide(
    candidates: Mapping[str, Path],
    baselines: Sequence[Baseline],
    pool: MeasuringPool,
    settings: FinalSettings,
    on_step: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
) -> Verdict:
    """Choose the best candidate in heats, then measure it against the baselines in a race of its own.

    That race keeps the figures honest: the winner of several noisy candidates looks faster than it is in the heats
    that chose it. It is a test against each baseline, over as soon as it is decided; a baseline that is beaten takes
    no more turns. To be the answer, the candidate has to beat them all, so that no correction for their number is due
    (intersection-union test, Berger, Technometrics 24, 1982).

    Where loading and running take long, the candidates that look best are loaded, as many as there is time for, and
    after the first round it is set how many rounds there will be. How the candidate did is no part of that, so that
    the test stays as honest as it was; it is less sharp: a candidate that is not proved faster is not the answer.
    Baselines that are close to each other then go on without it, for one of them is the answer; so they do where the
    candidate fails or there is none.
    """
    began = clock()
    rivals, stopping = contenders(baselines, settings), settings.stopping
    candidate, entries = "", rivals
    if candidates:
        chosen_by = began + CHOOSING * settings.seconds
        candidate = choose(candidates, pool, settings.turn, on_step, lambda: clock() >= chosen_by)
        entries = {**rivals, candidate: candidates[candidate]}
    racing = clock()

    def still(so_far: Race) -> Sequence[str]:
        """Who takes another round: nobody once the candidate beat all; once it is out, baselines that are close."""
        nonlocal stopping
        run = max(map(len, so_far.rounds.values()), default=0)
        if run == 1:
            now = clock()
            fewest = min(stopping.rounds, FEWEST_ROUNDS if candidate in so_far.rounds else FIRST_LOOK)
            affordable = _affordable(stopping.rounds, now - racing, now - began, settings)
            stopping = replace(stopping, rounds=max(fewest, affordable))
        if len(so_far.rounds.get(candidate, ())) < run:  # it failed, was given up, or there is none
            return _level(so_far, [name for name in rivals if name in so_far.rounds], stopping)
        logs = _logs(so_far, rivals, candidate)
        running = [name for name in logs if len(so_far.rounds[name]) == run]
        unbeaten = [name for name in running if not _beaten(name, logs, stopping)]
        if not unbeaten:
            return ()
        if run == stopping.rounds or any(stopping.given_up(logs[name]) for name in unbeaten):
            return _level(so_far, unbeaten, stopping)
        on_step(f"{min(float(np.exp(np.median(logs[name]))) for name in unbeaten):.3f} times as fast")
        return [*unbeaten, candidate]

    final = race(entries, pool, stopping.rounds, settings.turn, still=still)
    return _verdict(final, [name for name in rivals if name in final.rounds], candidate, stopping)


def _verdict(final: Race, singles: Sequence[str], candidate: str, stopping: Stopping) -> Verdict:
    """Between ``candidate``, if there is one, and those of the baselines that survived the race."""
    if not singles:
        raise InputError(f"no baseline survived the final race: {_why(final.failed)}; run again with --debug")
    paces = _paces(final, singles)
    logs = _logs(final, singles, candidate) if candidate in final.rounds else {}
    # Who left earlier was far behind, or the candidate was proved to be faster: that may be the fastest of all.
    stood = [name for name in singles if len(paces[name]) == max(map(len, paces.values()))]
    stood += [name for name in logs if name not in stood and stopping.won(logs[name])]
    best = min(stood, key=lambda name: float(np.median(paces[name])))
    if not candidate:
        return Verdict(best, best, ITSELF, best, ITSELF, final)
    if not logs:
        return Verdict(best, best, ITSELF, candidate, Ratio(0.0, 0.0, 0.0, ()), final)
    reached = Ratio.of(logs[best], stopping.significance)
    if all(_beaten(name, logs, stopping) for name in singles):
        return Verdict(candidate, best, reached, candidate, reached, final)
    return Verdict(best, best, ITSELF, candidate, reached, final)


def _affordable(most: int, round_s: float, spent_s: float, settings: FinalSettings) -> int:
    """How many rounds there is time for, the first included, which took ``round_s``."""
    left = (settings.seconds - spent_s) / max(round_s, 1e-9)
    return 1 + int(max(0.0, min(left, most - 1)))


def _logs(raced: Race, singles: Iterable[str], candidate: str) -> dict[str, list[float]]:
    """Logarithms of the candidate's speedup over each baseline that is still in the race, or left it beaten."""
    return {name: raced.logs(name, candidate) for name in singles if name in raced.rounds}


def _paces(raced: Race, singles: Sequence[str]) -> dict[str, list[float]]:
    """Logarithms of how many times as fast as each of ``singles`` one of those is that ran most rounds."""
    one = max(singles, key=lambda name: len(raced.rounds[name]))
    return {name: raced.logs(name, one) for name in singles}


def _level(so_far: Race, singles: Sequence[str], stopping: Stopping) -> Sequence[str]:
    """Without a candidate: those of ``singles`` that ran all rounds and may still be the fastest."""
    paces = _paces(so_far, singles)
    rounds = max(map(len, paces.values()))
    enough = FAR if rounds >= FIRST_LOOK else VERY_FAR
    behind = float(np.median(paces[_fastest(paces)])) + np.log(enough)
    level = [name for name in singles if len(paces[name]) == rounds and np.median(paces[name]) < behind]
    decided = rounds >= FIRST_LOOK and len(level) < 2
    return () if decided or rounds >= min(SINGLES_ROUNDS, stopping.rounds) else level


def _fastest(logs: Mapping[str, Sequence[float]]) -> str:
    """The baseline over which the speedup is smallest: compared in turns, whatever the machine did meanwhile.

    Of those that ran all rounds: the others left the race beaten.
    """
    rounds = max(map(len, logs.values()))
    return min((name for name in logs if len(logs[name]) == rounds), key=lambda name: float(np.median(logs[name])))


def _beaten(name: str, logs: Mapping[str, Sequence[float]], stopping: Stopping) -> bool:
    """Whether the candidate beat baseline ``name``: by the test, or, if it is not the fastest one, by far."""
    if len(logs[name]) < max(map(len, logs.values())):
        return True  # which is why it ran no more rounds
    enough = FAR if len(logs[name]) >= FIRST_LOOK else VERY_FAR
    far = name != _fastest(logs) and min(logs[name]) > np.log(enough)
    return bool(far) or stopping.won(logs[name])


def choose(
    candidates: Mapping[str, Path],
    pool: MeasuringPool,
    turn: TimingSettings,
    on_step: Callable[[str], None],
    over: Callable[[], bool] = lambda: False,
) -> str:
    """The fastest candidate, by heats of a few, so that few are in memory at a time.

    Successive halving (Jamieson and Talwalkar, AISTATS 2016): the faster half of each heat goes on, and candidates
    that wait take the others' places. Once time is ``over`` those that wait get none, and one heat decides.

    Raises:
        InputError: none survived its check.
    """
    waiting = list(candidates)
    with pool.undisturbed() as cores, Track(candidates, pool, cores, turn, random.Random(0)) as track:
        while waiting or len(track.ready) > 1:
            late = False
            while waiting and len(track.ready) < HEAT and not late:
                free = min(PAIR, HEAT - len(track.ready))
                track.start(waiting[:free])
                waiting = waiting[free:]
                late = bool(track.ready) and over()
            if late and waiting:
                on_step(f"time for the best {len(candidates) - len(waiting)} of {len(candidates)} placements")
                waiting = []
            if len(track.ready) > 1:
                last = late or (not waiting and len(track.ready) <= HEAT // 2)
                order = _heat(track, LAST_TURNS if last and not late else HEAT_TURNS)
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


def contenders(baselines: Sequence[Baseline], settings: FinalSettings) -> dict[str, Path]:
    """The baselines worth a turn."""
    runnable = [b for b in baselines if b.outcome.latency_ms is not None]
    best = min(runnable, key=_latency_ms)

    def worth(one: Baseline) -> bool:
        disturbed = best.outcome.disturbed or one.outcome.disturbed
        bound = settings.too_slow_disturbed if disturbed else settings.too_slow
        return _latency_ms(one) <= bound * _latency_ms(best)

    return {b.name: b.artifact for b in runnable if worth(b)}


def _latency_ms(baseline: Baseline) -> float:
    return math.inf if baseline.outcome.latency_ms is None else baseline.outcome.latency_ms
