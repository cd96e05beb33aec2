"""Evolutionary search: from a search space, an evaluator and seeds to a state for each generation.

Elites survive, no placement is measured twice, an unfit one is recorded but never a parent. DEAP supplies fitness,
selection and hall of fame; :mod:`collage_evo.search.evolution.breeding` makes the candidates.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from collage_evo.genome.encoding import decode
from collage_evo.genome.genome import Genome
from collage_evo.genome.outcome import Evaluator
from collage_evo.genome.selection import Individual, fitness_of, hall_of_fame, hypervolume, survivors
from collage_evo.genome.settings import Budget, GaSettings
from collage_evo.genome.space import SearchSpace
from collage_evo.patterns.match import Placement
from collage_evo.search.evolution.breeding import Breeder, Candidate
from collage_evo.search.evolution.origin import Origin
from collage_evo.search.evolution.state import Evaluated, Pending, SearchState, new_state
from collage_evo.search.surrogate.features import FeatureMap
from collage_evo.search.surrogate.model import Surrogate
from collage_evo.search.surrogate.regression import Vector
from collage_evo.search.surrogate.terms import TermMap, TermModel


class Evolution:
    """The search as a state machine: :meth:`step` returns the state one generation after the given one.

    A state contains all inputs of the next one, so a search can stop after any generation and continue later exactly
    as if it had not. ``clock`` returns seconds; only the budget and the record of time read it.
    """

    def __init__(
        self,
        space: SearchSpace,
        evaluator: Evaluator,
        settings: GaSettings,
        budget: Budget,
        clock: Callable[[], float],
        seeds: Iterable[tuple[Origin, Genome]] = (),
    ) -> None:
        self.space = space
        self.evaluator = evaluator
        self.settings = settings
        self.budget = budget
        self.clock = clock
        self.seeds = seeds if settings.seeded else ()
        self._features = FeatureMap(space)
        self._vectors: dict[Genome, Vector] = {}
        self._terms = cache(partial(TermMap, space))
        self._term_vector = cache(lambda term, genome: term.vector(decode(genome, space)))

    def run(
        self, state: SearchState | None = None, on_generation: Callable[[SearchState], None] | None = None
    ) -> SearchState:
        """Step until the budget is spent, the evaluator has no more time or there is no gain; report each state."""
        state = state or new_state(self.settings.seed)
        began = self.clock() - state.seconds
        while not self.stopped(state):
            before, state = state, self.step(state, began)
            if on_generation:
                on_generation(state)
            if state.evaluations == before.evaluations:
                break
        return state

    def stopped(self, state: SearchState) -> bool:
        """Whether the search is over: its budget is spent, there was no gain for long, or nothing new to measure."""
        spent = ((state.evaluations, self.budget.evaluations), (state.seconds, self.budget.seconds))
        without_gain = 0 < self.settings.patience <= state.stale
        return state.exhausted or without_gain or any(most is not None and used >= most for used, most in spent)

    def step(self, state: SearchState, began: float | None = None) -> SearchState:
        """One generation: make candidates, measure, select the survivors.

        ``began``: when, on the clock, an uninterrupted search would have begun. By default one that has spent the
        state's seconds by now; time between generations counts if it is given.
        """
        began = self.clock() - state.seconds if began is None else began
        until = math.inf if self.budget.seconds is None else began + self.budget.seconds
        rng = random.Random()
        rng.setstate(state.rng)
        parents = self._individuals(state, state.population)
        asked = self.clock()
        batch: list[Candidate] = []
        outcomes = self.evaluator.evaluate(_noted(self._batch(state, parents, rng), batch), until)
        evaluating = self.clock() - asked
        evaluated = dict(state.evaluated)
        for candidate, outcome in zip(batch, outcomes, strict=True):
            if outcome is None:
                continue
            self._vectors[candidate.genome] = candidate.features
            evaluated[candidate.placement.key] = Evaluated(
                candidate.genome,
                outcome,
                candidate.kind,
                state.generation,
                len(evaluated) + 1,
                candidate.features.predicted,
            )
        measured = replace(state, evaluated=evaluated)
        fresh = [key for key in list(evaluated)[len(state.evaluated) :] if evaluated[key].outcome.ok]
        pool = self._individuals(measured, [*dict.fromkeys((*state.population, *fresh))])
        population = tuple(one.key for one in survivors(pool, self.settings, rng, [*state.bounds.values()]))
        left = tuple(Pending(c.genome, c.kind) for c, outcome in zip(batch, outcomes, strict=True) if outcome is None)
        settled = replace(
            measured, population=population, seconds=self.clock() - began, exhausted=not batch, pending=left
        )
        return self._record(settled, state, fresh, rng, evaluating)

    def _batch(self, state: SearchState, parents: list[Individual], rng: random.Random) -> Iterator[Candidate]:
        """The seeds first; afterwards, and without seeds, the breeder's candidates from all measurements.

        One by one: the first ones are compiled and measured while the next are made. Unmeasured proposals of earlier
        generations come before all.
        """
        size = self.settings.offspring if state.generation else self.settings.population
        if self.budget.evaluations is not None:
            size = min(size, self.budget.evaluations - state.evaluations - len(state.pending))
        terms = [*map(self._terms, state.bounds)]
        bounds = [*state.bounds.values()]
        breeder = Breeder(self._features, self.settings, self.seeds, set(state.evaluated), rng, terms, bounds)
        yield from breeder.again(state.pending)
        if not state.generation and any(True for _ in self.seeds):
            yield from breeder.from_seeds(size)
            return
        if size < 1:
            return
        learned = [self._learned(state, term) for term in terms]
        yield from breeder.batch(parents, self._surrogate(state), size, learned)

    def _surrogate(self, state: SearchState) -> Surrogate:
        latency = state.latency_ms
        vectors = [self._vector(state.evaluated[key].genome) for key in latency]
        return Surrogate(self._features, vectors, list(latency.values()), state.contended)

    def _vector(self, genome: Genome) -> Vector:
        """The features of a measured placement, of this process or of one before it."""
        if genome not in self._vectors:
            self._vectors[genome] = self._features.vector(decode(genome, self.space))
        return self._vectors[genome]

    def _learned(self, state: SearchState, term: TermMap) -> TermModel:
        """Models of the objectives in addition to latency, fitted to measurements."""
        ran = (state.evaluated[key] for key in state.latency_ms)
        judged = [evaluated for evaluated in ran if not evaluated.outcome.rough]
        values = [value for one in judged for value in one.outcome.objectives([term.objective])]
        return TermModel(term, [self._term_vector(term, one.genome) for one in judged], values)

    def _individuals(self, state: SearchState, keys: Sequence[str]) -> list[Individual]:
        fitness = fitness_of(state.objectives)
        return [
            Individual(key, evaluated.genome, fitness(evaluated.outcome.objectives(state.objectives)))
            for key, evaluated in ((key, state.evaluated[key]) for key in keys)
        ]

    def _record(
        self, now: SearchState, before: SearchState, fresh: list[str], rng: random.Random, evaluating: float
    ) -> SearchState:
        """``now`` with its hall of fame, its record and the other inputs of the next generation."""
        hall = hall_of_fame(now.objectives, self.settings.hall_of_fame)
        hall.update(self._individuals(now, now.hall))
        hall.update(self._individuals(now, fresh))
        after = replace(now, hall=tuple(individual.key for individual in hall))
        if now.bounds and not now.reference:
            after = replace(after, reference=self._reference(after, fresh))
        best = after.best
        gained = after.best_ms < before.best_ms * (1 - self.settings.min_gain)
        changed = best is not None and (before.best is None or best.evaluation != before.best.evaluation)
        record: dict[str, Any] = {
            "generation": now.generation,
            "evaluations": now.evaluations,
            "seconds": now.seconds,
            "evaluating": evaluating,
            "unfit": sum(not evaluated.outcome.ok for evaluated in now.evaluated.values()),
        }
        if now.population:
            record["min"] = min(individual.fitness.values[0] for individual in self._individuals(now, now.population))
        if now.bounds:
            front = hypervolume(list(hall), after.reference)
            front_before = before.log[-1]["hypervolume"] if before.log else 0.0
            gained = gained or front > front_before * (1 + self.settings.min_gain)
            record |= {"hypervolume": front}
            if best is not None:
                record |= {"best": after.best_ms}
        return replace(
            after,
            rng=rng.getstate(),
            log=(*now.log, record),
            generation=now.generation + 1,
            stale=0 if gained else now.stale + 1,
            best_evaluation=best.evaluation if best is not None and changed else now.best_evaluation,
            best_seconds=now.seconds if changed else now.best_seconds,
        )


    def _reference(self, state: SearchState, fresh: Sequence[str]) -> tuple[float, ...]:
        """Twice the largest of each objective among ``fresh``; empty as long as no placement was fit."""
        measured = [individual.fitness.values for individual in self._individuals(state, fresh)]
        return tuple(2 * max(values) for values in zip(*measured, strict=True))


def _noted(candidates: Iterable[Candidate], into: list[Candidate]) -> Iterator[Placement]:
    """The placements of ``candidates``; records each candidate when it is pulled."""
    for candidate in candidates:
        into.append(candidate)
        yield candidate.placement
