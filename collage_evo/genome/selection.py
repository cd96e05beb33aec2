"""Selection: parents of the next generation and the hall of fame, among measured individuals."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import numpy as np
from deap import base, tools
from deap.benchmarks.tools import hypervolume as deap_hypervolume

from collage_evo.genome.genome import Genome
from collage_evo.genome.outcome import Objective
from collage_evo.genome.settings import GaSettings

Standing = tuple[float, ...]
"""Violation of the bound of each objective but latency, then latency in ms: less is better."""


def violation(values: Sequence[float], bounds: Sequence[float]) -> Standing:
    """Violation for latency and the other objectives' values, with a bound on each of these.

    Placements within the bounds come before those that exceed one (Deb, 2000); among the former the fastest is best.
    """
    ms, *others = values
    return (*(max(0.0, value - bound) for value, bound in zip(others, bounds, strict=True)), ms)


@cache
def fitness_of(objectives: tuple[Objective, ...]) -> type[base.Fitness]:
    """DEAP's fitness of these objectives: its values in their order, less of each is better."""
    return type("Fitness", (base.Fitness,), {"weights": (-1.0,) * len(objectives)})


@dataclass(eq=False)
class Individual:
    """What DEAP selects among: a measured placement's key and genome."""

    key: str
    genome: Genome
    fitness: base.Fitness


@contextmanager
def drawing_from(rng: random.Random) -> Iterator[None]:
    """Lend DEAP's global random generator the state of ``rng``, and restore it afterwards."""
    before = random.getstate()
    random.setstate(rng.getstate())
    try:
        yield
    finally:
        rng.setstate(random.getstate())
        random.setstate(before)


def survivors(
    pool: Sequence[Individual], settings: GaSettings, rng: random.Random, bounds: Sequence[float] = ()
) -> list[Individual]:
    """Distinct survivors, by elite and tournaments.

    With several objectives by NSGA-II (Deb et al., 2002), whose own elite is the front; the fastest of it within
    ``bounds`` come first, and stay if the front has no room for them.
    """
    if bounds:
        return _front_and_elite(pool, settings, bounds)
    if len(pool) <= settings.population:
        return list(pool)
    return _elite_and_winners(pool, settings, rng)


def select_parents(
    pool: Sequence[Individual], count: int, tournament: int, bounds: Sequence[float] = ()
) -> list[Individual]:
    """Winners of tournaments: the fastest; with several objectives those within ``bounds`` win over all others."""
    tournaments = (tools.selRandom(pool, tournament) for _ in range(count))
    return [min(drawn, key=lambda one: violation(one.fitness.values, bounds)) for drawn in tournaments]


def hall_of_fame(objectives: Sequence[Objective], size: int) -> tools.HallOfFame:
    """The ``size`` best by one objective; by several all that no other dominates, best by the first in front."""
    if len(objectives) > 1:
        return tools.ParetoFront(similar=_same)
    return tools.HallOfFame(size, similar=_same)


def _front_and_elite(pool: Sequence[Individual], settings: GaSettings, bounds: Sequence[float]) -> list[Individual]:
    within_bounds = [individual for individual in pool if not any(violation(individual.fitness.values, bounds)[:-1])]
    elite = sorted(within_bounds, key=lambda individual: individual.fitness.values)[: settings.elite]
    elite_keys = {individual.key for individual in elite}
    rest = [individual for individual in pool if individual.key not in elite_keys]
    return elite + list(tools.selNSGA2(rest, min(len(rest), settings.population - len(elite))))


def hypervolume(front: Sequence[Individual], reference: Sequence[float]) -> float:
    """Share of the box from zero to ``reference`` that ``front`` dominates."""
    corner = math.prod(reference)
    return float(deap_hypervolume(front, np.array(reference)) / corner) if front and corner else 0.0


def _same(one: Individual, other: Individual) -> bool:
    return one.key == other.key


def _elite_and_winners(
    pool: Sequence[Individual], settings: GaSettings, rng: random.Random
) -> list[Individual]:
    """The elite, then winners of tournaments among the rest."""
    chosen: list[Individual] = tools.selBest(pool, settings.elite)
    chosen_keys = {individual.key for individual in chosen}
    rest = [individual for individual in pool if individual.key not in chosen_keys]
    while rest and len(chosen) < settings.population:
        with drawing_from(rng):
            winner = tools.selTournament(rest, 1, settings.tournament)[0]
        rest.remove(winner)
        chosen.append(winner)
    return chosen
