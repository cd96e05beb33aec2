"""Who survives: takes measured individuals, gives parents of the next generation and the hall of fame."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from deap import base, tools

from collage_evo.genome.genome import Genome
from collage_evo.genome.search.settings import GaSettings


class LatencyFitness(base.Fitness):  # type: ignore[misc]  # DEAP has no types
    """One objective, in ms: less is better."""

    weights = (-1.0,)


@dataclass(eq=False)
class Individual:
    """What DEAP selects among: a measured placement's key and genome."""

    key: str
    genome: Genome
    fitness: LatencyFitness


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


def survivors(pool: Sequence[Individual], settings: GaSettings, rng: random.Random) -> list[Individual]:
    """The elite, then winners of tournaments among the rest, nobody twice.

    Close relatives of better ones make room while others are left (clearing; Petrowski, 1996): those that differ
    from a survivor in less than the share ``settings.niche`` of their choices.
    """
    if len(pool) <= settings.population:
        return list(pool)
    chosen: list[Individual] = tools.selBest(pool, settings.elite)
    taken = {individual.key for individual in chosen}
    rest = [individual for individual in pool if individual.key not in taken]
    cleared: list[Individual] = []
    while rest and len(chosen) < settings.population:
        with drawing_from(rng):
            winner = tools.selTournament(rest, 1, settings.tournament)[0]
        rest.remove(winner)
        close = any(distance(winner.genome, other.genome) < settings.niche for other in chosen)
        (cleared if close else chosen).append(winner)
    return chosen + cleared[: settings.population - len(chosen)]


def distance(one: Genome, other: Genome) -> float:
    """Share of nodes that choose differently, 0 to 1."""
    return sum(a != b for a, b in zip(one.choices, other.choices, strict=True)) / len(one.choices)
