"""The final decision: races the best placements against every baseline and returns the answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

import numpy as np

from collage_evo.answer.baselines import USUAL, Baseline
from collage_evo.answer.race import Race, race
from collage_evo.answer.sequential import FEWEST, Ratio, Stopping
from collage_evo.errors import InputError
from collage_evo.fitness.machine import Machine
from collage_evo.genome.failure import Failure
from collage_evo.genome.outcome import Outcome
from collage_evo.policy import DEFAULT_POLICY, Policy
from collage_evo.pruning import OUT_OF_CONTENDED_RACE

ITSELF = Ratio(1.0, 1.0, 1.0, ())
RUNS = 40
"""Timed runs of the slowest remaining contestant that the race has time for at least."""
MOST_BASELINES = 2
"""Baselines in the race in addition to the libraries with their defaults: each makes rounds longer, and so fewer."""


class Proof(StrEnum):
    """State of the final comparison of an answer."""

    DECIDED = "decided"
    UNDECIDED = "undecided"
    NONE = "not compared"


@dataclass(frozen=True)
class Verdict:
    """Result of the final race.

    ``answer`` names the published artifact: a candidate that beat every single backend, the whole interval of its
    speed-up over each above 1; else the answer before, or a single backend: the usual one unless another is proved
    faster. ``speedup`` is over the best single backend; if the answer is that backend itself it is 1 by definition
    and ``candidate_speedup`` is the best candidate's over ``rival``, the backend that it is least sure to beat.
    """

    answer: str
    best_single: str
    speedup: Ratio
    candidate: str
    candidate_speedup: Ratio
    final: Race
    rival: str = ""
    proof: Proof = Proof.DECIDED

    @property
    def is_single(self) -> bool:
        return self.answer == self.best_single


@dataclass(frozen=True)
class FinalSettings:
    """Stopping rules of the final race."""

    stopping: Stopping = field(default_factory=Stopping)
    seconds: float = math.inf
    """Time limit from the first round: no round begins that would end later, once each contestant has the fewest. A
    slow model gets the time of ``RUNS`` runs."""
    most_s: float = math.inf
    """The same for a slow model, too."""


@dataclass(frozen=True)
class Standing:
    """Contestants that may still be the answer, by the rounds so far.

    A candidate has to beat all of its rivals: the baselines that may be the best, and ``incumbent``, the answer
    before, which is one of either. That needs no correction for their number (intersection-union test, Berger,
    Technometrics 24, 1982); the number of candidates is in ``stopping``. ``shown`` run the fewest rounds, for
    comparison, and are never the answer. ``usual``: the baseline that the user has already, which is the answer
    unless another contestant beats it.
    """

    race: Race
    baselines: tuple[str, ...]
    candidates: tuple[str, ...]
    incumbent: str
    stopping: Stopping
    shown: tuple[str, ...] = ()
    usual: str = ""

    @property
    def singles(self) -> list[str]:
        """The baselines that ran all rounds, the fastest first."""
        return self._fastest_first(self.baselines)

    @property
    def best(self) -> str:
        """The best single backend: the fastest so far, or the one that was the answer until another beats it."""
        fastest = self.singles[0]
        stays = self.incumbent in self.singles and not self._beats(fastest, self.incumbent)
        return self.incumbent if stays else fastest

    @property
    def running(self) -> list[str]:
        """The candidates that ran all rounds, the fastest first."""
        return self._fastest_first(self.candidates)

    def rivals(self, candidate: str) -> list[str]:
        """Contestants that ``candidate`` has to beat: the best baseline, those that may still be the best, and the
        incumbent.

        A baseline that is slow by its own rounds is excluded, so that its noise delays no decision.
        """
        best = self.best
        near = [name for name in self.singles if name != best and not self._given_up(name, [best])]
        held = self.incumbent in self.running and candidate != self.incumbent
        return [best, *near, *([self.incumbent] if held else [])]

    def won(self, candidate: str) -> bool:
        """Whether ``candidate`` is faster than all its rivals."""
        return all(self._beats(candidate, rival) for rival in self.rivals(candidate))

    def stays(self) -> Sequence[str]:
        """Contestants of the next round: none once the fastest candidate won, or the best single backend is known
        without one.

        A baseline leaves that is unlikely to be faster than the best one, a candidate that is unlikely to be faster
        than some rival. An incumbent stays as long as a contestant may beat it.
        """
        if not self.singles:
            return ()
        best = self.best
        likely = [name for name in self.running if not self._given_up(name, self.rivals(name))]
        if self.race.length in self.stopping.looks and likely and self.won(likely[0]):
            return ()
        others = (name for name in self.singles if name != best)
        near = [name for name in others if not self._given_up(name, [best]) or self._may_lose(name, best)]
        held = [name for name in self.running if name == self.incumbent and name not in likely]
        shown = [name for name in self.shown if name in self.race.rounds and self.race.length < FEWEST]
        return [best, *near, *likely, *held, *shown] if likely or near or shown else ()

    def verdict(self) -> Verdict:
        """The result after the last round: the best baseline if all candidates failed.

        Raises:
            InputError: no baseline is left.
        """
        final = self.race
        if not self.singles:
            raise InputError(f"no baseline survived the final race: {_why(final.failed)}")
        tried = [name for name in self.candidates if name in final.rounds]
        best = self.best
        if not tried:
            single = self._answer_without(best)
            return Verdict(single, single, ITSELF, single, ITSELF, final)
        speedups = {name: final.ratio(best, name, self.stopping.significance) for name in tried}
        winners = [name for name in self.running if name != self.incumbent and self.won(name)]
        if not winners and self.incumbent in tried:
            winners = [] if self._beats(best, self.incumbent) else [self.incumbent]
        if winners:
            reached = speedups[winners[0]]
            return Verdict(winners[0], best, reached, winners[0], reached, final)
        candidate, single = max(tried, key=lambda name: speedups[name].estimate), self._answer_without(best)
        rivals = [name for name in self.rivals(candidate) if name in self.baselines]
        over = {name: final.ratio(name, candidate, self.stopping.significance) for name in rivals}
        rival = min(over, key=lambda name: over[name].low)
        return Verdict(single, single, ITSELF, candidate, over[rival], final, rival)

    def _answer_without(self, best: str) -> str:
        """The answer if no candidate won: the usual baseline, unless ``best`` is faster or was the answer before."""
        runs = self.usual in self.baselines and self.usual in self.race.rounds
        return self.usual if runs and best != self.incumbent and not self._beats_usual(best) else best

    def _may_lose(self, name: str, best: str) -> bool:
        """Whether ``name`` is the usual baseline, and more rounds may prove ``best`` faster."""
        return name == self.usual and not self._beats_usual(best) and not self._given_up(best, [name])

    def _beats_usual(self, best: str) -> bool:
        """Whether ``best`` is faster than the usual baseline, by the interval that a result shows of that ratio."""
        return self.race.ratio(self.usual, best, 1.0 - self.stopping.policy.race_level).low > 1.0

    def _beats(self, name: str, rival: str) -> bool:
        race = self.race
        return self.stopping.won(race.logs(rival, name), race.expected(rival, name), race.shared)

    def _given_up(self, name: str, rivals: Sequence[str]) -> bool:
        give_up, race = self.stopping.given_up, self.race
        return any(give_up(race.logs(rival, name), race.expected(rival, name), race.shared) for rival in rivals)

    def _fastest_first(self, names: Sequence[str]) -> list[str]:
        rounds = self.race.rounds
        all_rounds = [name for name in names if name in rounds and len(rounds[name]) == self.race.length]
        return sorted(all_rounds, key=lambda name: float(np.mean(self.race.logs(name, all_rounds[0]))))


def decide(
    candidates: Mapping[str, Path],
    baselines: Sequence[Baseline],
    machine: Machine,
    settings: FinalSettings,
    on_step: Callable[[str], None],
    incumbent: str = "",
    defaults: Sequence[Baseline] = (),
    run_race: Callable[..., Race] = race,
) -> Verdict:
    """Race ``candidates`` and ``baselines`` until the fastest is known, or time is over.

    The time limit depends on the length of rounds, never on results, so that few rounds are as honest as many; they
    are less sharp: a candidate that is not proved faster is not the answer. The search's measurements are no evidence
    here: a placement races because its times there were the least of many, so that they are too short.

    Args:
        incumbent: the one of them that was the answer before: it stays the answer unless it is beaten.
        defaults: libraries with their defaults, which all race, so that the ratios to them come from this race too;
            those that are none of ``baselines`` may not be the answer.
        run_race: as :func:`race`.
    """
    rivals = racing_baselines(baselines, incumbent, settings.stopping.policy)
    allowed = {baseline.name for baseline in baselines}
    rivals |= {library.name: library.artifact for library in defaults if library.name in allowed}
    shown = {library.name: library.artifact for library in defaults if library.name not in allowed}
    stopping = replace(settings.stopping, candidates=max(1, len(candidates)))

    def standing(so_far: Race) -> Standing:
        return Standing(so_far, tuple(rivals), tuple(candidates), incumbent, stopping, tuple(shown), USUAL)

    def still(so_far: Race) -> Sequence[str]:
        stays = standing(so_far).stays()
        slowest_ms = max((so_far.timing(name).median_ms for name in stays), default=0.0)
        if so_far.over(min(settings.most_s, max(settings.seconds, RUNS * 1e-3 * slowest_ms))):
            return ()
        on_step(f"{len(stays)} of {len(rivals) + len(candidates)} left after {so_far.length} rounds")
        return stays

    contestants = {**rivals, **shown, **candidates}
    last = standing(run_race(contestants, machine, stopping.rounds, still, {*rivals, *shown}))
    verdict = last.verdict()
    decided = verdict.answer in candidates or not last.stays()
    return verdict if decided else replace(verdict, proof=Proof.UNDECIDED)


def racing_baselines(
    baselines: Sequence[Baseline], incumbent: str = "", policy: Policy = DEFAULT_POLICY
) -> dict[str, Path]:
    """The fastest ``MOST_BASELINES`` that may be the best, and the answer before.

    One that was a little slower may be the best: it was timed in another minute, and under contention the times are
    less reliable still.
    """
    runnable = [b for b in baselines if b.outcome.latency_ms is not None]
    best = min(runnable, key=_latency_ms).outcome
    near = [b for b in runnable if b.name == incumbent or may_win(b.outcome, best, policy)]
    near.sort(key=_latency_ms)
    return {b.name: b.artifact for k, b in enumerate(near) if k < MOST_BASELINES or b.name == incumbent}


def may_win(one: Outcome, best: Outcome, policy: Policy) -> bool:
    """Whether the latency of ``one`` is near enough to that of the ``best`` single backend to race against it."""
    if one.latency_ms is None or best.latency_ms is None:
        return False
    disturbed = one.contended or best.contended
    bound = max(OUT_OF_CONTENDED_RACE.number, policy.race_near) if disturbed else policy.race_near
    return one.latency_ms <= bound * best.latency_ms


def _why(failed: Mapping[str, Failure]) -> str:
    return "; ".join(f"{name}: {failure}" for name, failure in failed.items())


def _latency_ms(baseline: Baseline) -> float:
    return math.inf if baseline.outcome.latency_ms is None else baseline.outcome.latency_ms
