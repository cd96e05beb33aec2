"""The evolutionary search: takes a search space, an evaluator and seeds, gives states, one a generation.

Many children are made and screened by predicted cost, few are measured (Ansor, OSDI 2020); elites survive,
no placement is measured twice, an unfit one is remembered but never a parent. DEAP supplies fitness,
selection, hall of fame and statistics.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from deap import base, tools

from collage_evo.fitness.outcome import Evaluator
from collage_evo.genome.encoding import Genome, decode, encode
from collage_evo.genome.operators import crossover, mutate, random_genome
from collage_evo.genome.screening import Correction, features
from collage_evo.genome.settings import Budget, GaSettings
from collage_evo.genome.space import SearchSpace
from collage_evo.genome.state import Evaluated, SearchState, new_state
from collage_evo.patterns.match import Placement

ATTEMPTS = 4
"""Children made at most, as a multiple of those wanted, before a generation makes do with fewer."""


class LatencyFitness(base.Fitness):  # type: ignore[misc]
    """One objective, in ms: less is better."""

    weights = (-1.0,)


@dataclass(eq=False)
class Individual:
    """What DEAP selects among: a measured placement's key and genome."""

    key: str
    genome: Genome
    fitness: LatencyFitness


@dataclass(frozen=True)
class Candidate:
    """A placement that was not measured yet."""

    genome: Genome
    placement: Placement
    kind: str


@contextmanager
def drawing_from(rng: random.Random) -> Iterator[None]:
    """DEAP draws from the global generator: lend it the state of ``rng`` and put everything back after."""
    before = random.getstate()
    random.setstate(rng.getstate())
    try:
        yield
    finally:
        rng.setstate(random.getstate())
        random.setstate(before)


class Evolution:
    """The search as a state machine: :meth:`step` takes a state and gives the one a generation later.

    A state holds all that the next one depends on, so a search can stop after any generation and go on later
    exactly as if it had not. ``clock`` gives seconds; only the budget and the record of time read it.
    """

    def __init__(
        self,
        space: SearchSpace,
        evaluator: Evaluator,
        settings: GaSettings,
        budget: Budget,
        clock: Callable[[], float],
        seeds: Sequence[tuple[str, Genome]] = (),
    ) -> None:
        self.space = space
        self.evaluator = evaluator
        self.settings = settings
        self.budget = budget
        self.clock = clock
        self.seeds = tuple(seeds) if settings.seeded else ()
        self._features: dict[str, np.ndarray] = {}
        self.toolbox = base.Toolbox()
        self.toolbox.register("mate", crossover, space=space)
        self.toolbox.register("mutate", mutate, space=space, more=settings.more_mutations)
        self.toolbox.register("select", tools.selTournament, tournsize=settings.tournament)
        self.toolbox.register("best", tools.selBest)
        self.statistics = tools.Statistics(lambda individual: individual.fitness.values[0])
        for name, function in (("min", np.min), ("median", np.median), ("max", np.max)):
            self.statistics.register(name, function)

    def run(
        self, state: SearchState | None = None, on_generation: Callable[[SearchState], None] | None = None
    ) -> SearchState:
        """Step until the budget is spent or nothing is gained any more; report each state."""
        state = state or new_state(self.settings.seed)
        while not self.stopped(state):
            state = self.step(state)
            if on_generation:
                on_generation(state)
        return state

    def stopped(self, state: SearchState) -> str:
        """Why the search is over: ``evaluations``, ``seconds``, ``no gain``, ``exhausted``; or empty."""
        budget = self.budget
        if budget.evaluations is not None and state.evaluations >= budget.evaluations:
            return "evaluations"
        if budget.seconds is not None and state.seconds >= budget.seconds:
            return "seconds"
        if state.exhausted:
            return "exhausted"
        return "no gain" if 0 < self.settings.patience <= state.stale else ""

    def step(self, state: SearchState) -> SearchState:
        """One generation: make children, screen, measure, select who survives."""
        started = self.clock()
        rng = random.Random()
        rng.setstate(state.rng)
        population = self._individuals(state, state.population)
        size = self.settings.offspring if state.generation else self.settings.population
        if self.budget.evaluations is not None:
            size = min(size, self.budget.evaluations - state.evaluations)
        fixed, screened = self._children(state, population, size, rng)
        batch = fixed + self._screen(state, screened, size - len(fixed), rng)
        outcomes = self.evaluator.evaluate([candidate.placement for candidate in batch]) if batch else []
        evaluated = dict(state.evaluated)
        for candidate, outcome in zip(batch, outcomes, strict=True):
            evaluated[candidate.placement.key] = Evaluated(
                candidate.genome,
                outcome,
                candidate.kind,
                state.generation,
                len(evaluated) + 1,
                self.space.predict(candidate.placement),
            )
        measured = replace(state, evaluated=evaluated)
        fresh = [c.placement.key for c in batch if evaluated[c.placement.key].outcome.ok]
        survivors = self._survivors(population + self._individuals(measured, fresh), rng)
        spent = state.seconds + self.clock() - started
        return self._record(measured, survivors, fresh, rng, spent, exhausted=not batch)

    def _children(
        self, state: SearchState, parents: list[Individual], size: int, rng: random.Random
    ) -> tuple[list[Candidate], list[Candidate]]:
        """New candidates: seeds to be measured whatever is predicted, and others to be screened."""
        seen = set(state.evaluated)
        fixed: list[Candidate] = []
        if not state.generation:
            for kind, genome in self.seeds[:size]:
                self._take(genome, f"seed:{kind}", seen, fixed)
        wanted = (size - len(fixed)) * self.settings.screen_factor
        screened: list[Candidate] = []
        for _ in range(ATTEMPTS * wanted):
            if len(screened) >= wanted:
                break
            genome, kind = self._child(parents, rng)
            self._take(genome, kind, seen, screened)
        return fixed, screened

    def _take(self, genome: Genome, kind: str, seen: set[str], into: list[Candidate]) -> None:
        placement = decode(genome, self.space)
        if placement.key not in seen:
            seen.add(placement.key)
            into.append(Candidate(encode(placement, self.space), placement, kind))

    def _child(self, parents: list[Individual], rng: random.Random) -> tuple[Genome, str]:
        settings = self.settings
        if not parents:  # the first generation, or nothing measured so far was fit
            if self.seeds and rng.random() < 0.75:
                return self.toolbox.mutate(rng.choice(self.seeds)[1], rng=rng), "mutation"
            return random_genome(self.space, rng), "random"
        with drawing_from(rng):
            one, other = self.toolbox.select(parents, 2)
        if one.key == other.key or rng.random() >= settings.crossover_rate:
            return self.toolbox.mutate(one.genome, rng=rng), "mutation"
        child = self.toolbox.mate(one.genome, other.genome, rng=rng)
        if rng.random() < settings.mutation_rate:
            child = self.toolbox.mutate(child, rng=rng)
        return child, "crossover"

    def _screen(
        self, state: SearchState, candidates: list[Candidate], size: int, rng: random.Random
    ) -> list[Candidate]:
        """The candidates with the least predicted latency, and a share picked at random."""
        if len(candidates) <= size:
            return candidates
        known = [(key, found) for key, found in state.evaluated.items() if found.outcome.ok]
        rows = [self._row(key, decode(found.genome, self.space)) for key, found in known]
        measured = [found.outcome.latency_ms or 0.0 for _, found in known]
        correction = Correction(rows, measured, len(self.space.engines))
        lucky = sum(rng.random() < self.settings.random_share for _ in range(size))
        ranked = sorted(candidates, key=lambda c: correction.predict(features(c.placement, self.space)))
        picked = ranked[: size - lucky]
        return picked + rng.sample(ranked[size - lucky :], lucky)

    def _row(self, key: str, placement: Placement) -> np.ndarray:
        if key not in self._features:
            self._features[key] = features(placement, self.space)
        return self._features[key]

    def _individuals(self, state: SearchState, keys: Sequence[str]) -> list[Individual]:
        return [
            Individual(key, found.genome, LatencyFitness((found.outcome.latency_ms,)))
            for key, found in ((key, state.evaluated[key]) for key in keys)
        ]

    def _survivors(self, pool: list[Individual], rng: random.Random) -> list[Individual]:
        """The elite, then winners of tournaments among the rest, nobody twice."""
        if len(pool) <= self.settings.population:
            return pool
        chosen: list[Individual] = self.toolbox.best(pool, self.settings.elite)
        taken = {individual.key for individual in chosen}
        rest = [individual for individual in pool if individual.key not in taken]
        while len(chosen) < self.settings.population:
            with drawing_from(rng):
                winner = self.toolbox.select(rest, 1)[0]
            chosen.append(winner)
            rest.remove(winner)
        return chosen

    def _record(
        self,
        state: SearchState,
        survivors: list[Individual],
        fresh: list[str],
        rng: random.Random,
        seconds: float,
        exhausted: bool,
    ) -> SearchState:
        hall = tools.HallOfFame(self.settings.hall_of_fame, similar=lambda a, b: a.key == b.key)
        hall.update(self._individuals(state, state.hall))
        hall.update(self._individuals(state, fresh))
        before = state.best_ms
        after = replace(state, hall=tuple(individual.key for individual in hall))
        gained = after.best_ms < before * (1 - self.settings.min_gain)
        changed = after.hall[:1] != state.hall[:1]
        record: dict[str, Any] = {
            "generation": state.generation,
            "evaluations": state.evaluations,
            "seconds": seconds,
            "unfit": sum(not found.outcome.ok for found in state.evaluated.values()),
        }
        if survivors:
            record |= {name: float(value) for name, value in self.statistics.compile(survivors).items()}
        best = after.best
        return replace(
            after,
            rng=rng.getstate(),
            population=tuple(individual.key for individual in survivors),
            log=(*state.log, record),
            generation=state.generation + 1,
            seconds=seconds,
            stale=0 if gained else state.stale + 1,
            best_evaluation=best.evaluation if best and changed else state.best_evaluation,
            best_seconds=seconds if changed else state.best_seconds,
            exhausted=exhausted,
        )


def logbook(state: SearchState) -> Any:
    """The statistics of all generations as a DEAP ``Logbook``, for tables and plots."""
    book = tools.Logbook()
    for record in state.log:
        book.record(**record)
    return book
