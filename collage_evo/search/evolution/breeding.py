"""Breeding of a generation's candidates from parents and the surrogate.

Many children are made and few are measured (Ansor, OSDI 2020). Each place in the batch has its own belief about the
weights, the most likely ones or a sample of the posterior (Thompson sampling), and goes to the placement that is
fastest under that belief: a child, a cover that the dynamic program finds on the surrogate, or the result of a short
climb from there. With bounds, for example on the error, it goes to the fastest within them under that belief; some
places have other bounds than the search, so that the whole front is found.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from deap import base

from collage_evo.genome.encoding import decode, encode, place
from collage_evo.genome.genome import Genome
from collage_evo.genome.selection import Individual, drawing_from, select_parents
from collage_evo.genome.settings import GaSettings
from collage_evo.genome.variation import crossover, mutate, mutation_weights, random_genome
from collage_evo.patterns.match import Placement
from collage_evo.search.evolution.acquisition import Acquisition, Term
from collage_evo.search.evolution.origin import Origin, Way
from collage_evo.search.evolution.state import Pending
from collage_evo.search.surrogate.covers import surrogate_covers
from collage_evo.search.surrogate.features import FeatureMap
from collage_evo.search.surrogate.model import Surrogate
from collage_evo.search.surrogate.regression import Vector
from collage_evo.search.surrogate.terms import TermMap, TermModel

CHILD_ATTEMPTS = 4
"""Children made at most, as a multiple of those needed, before a generation makes do with fewer."""
OTHER_BOUNDS = 0.25
"""Share of places in a batch that look for the fastest within other bounds than the search's. Chosen."""
PENALTY_SPREAD = 0.5
"""Standard deviation of the logarithm of the penalty factor at which covers are proposed. Chosen."""


@dataclass(frozen=True)
class Candidate:
    """A placement that was not measured yet."""

    genome: Genome
    placement: Placement
    kind: Origin
    features: Vector
    added: tuple[Vector, ...] = ()
    """One model for each objective in addition to latency."""


class Breeder:
    """Makes the candidates of one generation. ``seen`` are keys of placements not to be proposed again.

    ``terms`` are of the objectives in addition to latency, ``bounds`` the largest accepted values of these.
    """

    def __init__(
        self,
        features: FeatureMap,
        settings: GaSettings,
        seeds: Iterable[tuple[Origin, Genome]],
        seen: set[str],
        rng: random.Random,
        terms: Sequence[TermMap] = (),
        bounds: Sequence[float] = (),
    ) -> None:
        self.features = features
        self.terms = terms
        self.bounds = bounds
        self.space = features.space
        self.settings = settings
        self.seeds = seeds
        self.rng = rng
        self._seen = set(seen)
        weights = mutation_weights(settings, self.space)
        varied = {"space": self.space, "more": settings.more_mutations, "weights": weights}
        self.toolbox = base.Toolbox()
        self.toolbox.register("mate", crossover, space=self.space, rng=rng)
        self.toolbox.register("mutate", mutate, **varied, rng=rng)
        self.toolbox.register("select", select_parents, tournament=settings.tournament, bounds=bounds)

    def from_seeds(self, size: int) -> Iterator[Candidate]:
        """The first ``size`` seeds, each as soon as it is made, measured whatever their prediction."""
        for kind, genome in islice(self.seeds, size):
            if (candidate := self._take(genome, kind.as_seed)) is not None:
                yield candidate

    def again(self, pending: Iterable[Pending]) -> Iterator[Candidate]:
        """Earlier proposals that are not measured yet."""
        candidates = (self._take(genome, kind) for genome, kind in pending)
        yield from (candidate for candidate in candidates if candidate is not None)

    def batch(
        self, parents: list[Individual], surrogate: Surrogate, size: int, learned: Sequence[TermModel] = ()
    ) -> Iterator[Candidate]:
        """Up to ``size`` candidates, each as soon as it is chosen; fewer when variation leads to nothing new."""
        pool = self._children(parents, size * self.settings.screen_factor)
        for slot in range(size):
            chosen = self._pick(pool, parents, self._acquisition(parents, surrogate, learned, slot))
            if chosen is None:
                return
            pool = [candidate for candidate in pool if candidate is not chosen]
            yield chosen

    def _pick(self, pool: list[Candidate], parents: list[Individual], acquisition: Acquisition) -> Candidate | None:
        """The placement for one place of the batch; placements found on the way join ``pool``."""
        if pool and self.rng.random() < self.settings.random_share:
            return self.rng.choice(_hopeful(pool, acquisition, self.space.policy.random_within))
        pool += self._proposals(parents, acquisition)
        return self._climbed(pool, acquisition)

    def _acquisition(
        self, parents: list[Individual], surrogate: Surrogate, learned: Sequence[TermModel], slot: int
    ) -> Acquisition:
        """The acquisition of one place of the batch; the first place uses the most likely weights."""
        likeliest = slot == 0 or self.rng.random() >= self.settings.explore
        weights = surrogate.mean if likeliest else surrogate.sample(self._generator())
        if not learned:
            return Acquisition(weights)
        believed = [model.mean if likeliest else model.sample(self._generator()) for model in learned]
        bounds = self.bounds
        if slot and parents and self.rng.random() < OTHER_BOUNDS:
            bounds = [max(0.0, value) for value in self.rng.choice(parents).fitness.values[1:]]
        penalty = self.rng.lognormvariate(0, PENALTY_SPREAD)
        return Acquisition(weights, tuple(map(Term, learned, believed, bounds)), penalty)

    def _generator(self) -> np.random.Generator:
        return np.random.default_rng(self.rng.getrandbits(64))

    def _children(self, parents: list[Individual], count: int) -> list[Candidate]:
        children: list[Candidate] = []
        for _ in range(CHILD_ATTEMPTS * count):
            if len(children) >= count:
                break
            child = self._take(*self._child(parents))
            if child is not None:
                children.append(child)
        # Around a single region there may be nothing new to find: then start from anywhere.
        strangers = 0 if children else count
        random_genomes = (random_genome(self.space, self.rng) for _ in range(strangers))
        random_children = [self._take(genome, Origin(Way.RANDOM)) for genome in random_genomes]
        return [*children, *(candidate for candidate in random_children if candidate is not None)]

    def _child(self, parents: list[Individual]) -> tuple[Genome, Origin]:
        settings, rng = self.settings, self.rng
        if not parents:  # the first generation, or no fit placement so far
            seeds = tuple(self.seeds)
            if seeds and rng.random() < 0.75:
                return self.toolbox.mutate(rng.choice(seeds)[1]), Origin(Way.MUTATION)
            return random_genome(self.space, rng), Origin(Way.RANDOM)
        with drawing_from(rng):
            one, other = self.toolbox.select(parents, 2)
        if one.key == other.key or rng.random() >= settings.crossover_rate:
            return self.toolbox.mutate(one.genome), Origin(Way.MUTATION)
        child = self.toolbox.mate(one.genome, other.genome)
        if rng.random() < settings.mutation_rate:
            child = self.toolbox.mutate(child)
        return child, Origin(Way.CROSSOVER)

    def _proposals(self, parents: list[Individual], acquisition: Acquisition) -> list[Candidate]:
        """Covers that the dynamic program finds for ``acquisition``; drawn at random, because it takes its time."""
        if not parents or self.rng.random() >= self.settings.program_share:
            return []
        best = min(parents, key=lambda individual: acquisition.measured(individual.fitness.values))
        price = acquisition.multiplier([individual.fitness.values for individual in parents])
        covers = surrogate_covers(self.features, acquisition.weights, best.genome, price=price)
        origin = Origin(Way.SURROGATE_COVER)
        candidates = [self._take(encode(place(c.matches, self.space), self.space), origin) for c in covers]
        return [candidate for candidate in candidates if candidate is not None]

    def _climbed(self, pool: list[Candidate], acquisition: Acquisition) -> Candidate | None:
        """The best of ``pool`` for ``acquisition``, or a better one that a few mutations reach."""
        if not pool:
            return None
        best = min(pool, key=lambda candidate: acquisition.violation(candidate.features, candidate.added))
        reached = acquisition.violation(best.features, best.added)
        for _ in range(self.settings.climb):
            tried = self._take(self.toolbox.mutate(best.genome), Origin(Way.CLIMB))
            if tried is None:
                continue
            pool.append(tried)
            there = acquisition.violation(tried.features, tried.added)
            if there < reached:
                best, reached = tried, there
        return best

    def _take(self, genome: Genome, kind: Origin) -> Candidate | None:
        """A candidate, unless its placement is known or was proposed before."""
        placement = decode(genome, self.space)
        if placement.key in self._seen:
            return None
        self._seen.add(placement.key)
        added = tuple(term.vector(placement) for term in self.terms)
        return Candidate(encode(placement, self.space), placement, kind, self.features.vector(placement), added)


def _hopeful(pool: Sequence[Candidate], acquisition: Acquisition, within: float) -> list[Candidate]:
    """Those of ``pool`` with a believed latency of less than ``within`` times that of the fastest."""
    believed = [acquisition.violation(candidate.features, candidate.added)[-1] for candidate in pool]
    least = min(believed)  # a sample of the posterior may be negative
    bound = least + (within - 1) * abs(least)
    return [candidate for candidate, ms in zip(pool, believed, strict=True) if ms <= bound]
