"""Search methods to compare with, on simulated targets.

Nobody pays twice for a placement: only new ones count as evaluations (Collage's own cache is never filled).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy

from deap import base, tools

from collage_evo.genome.cover.dynamic_program import cheapest_covers
from collage_evo.genome.encoding import decode, encode, place
from collage_evo.genome.genome import Genome
from collage_evo.genome.greedy import backend_placement
from collage_evo.genome.outcome import Objective, Outcome
from collage_evo.genome.selection import drawing_from, fitness_of
from collage_evo.genome.settings import Budget, GaSettings
from collage_evo.genome.space import SearchSpace
from collage_evo.genome.variation import mutate, random_genome
from collage_evo.graph.ir.graph import members
from collage_evo.patterns.match import Placement
from collage_evo.search.evolution.evolution import Evolution
from collage_evo.search.evolution.seeds import make_seeds
from tests.support.simulated_target import SimulatedEvaluator

MOST_PROPOSALS = 20
"""A method that proposes so many placements for each evaluation has nothing new left to say."""


class Counted:
    """A target that counts evaluations and notes the true latency of the best placement measured so far."""

    def __init__(self, target: SimulatedEvaluator, evaluations: int) -> None:
        self.target = target
        self.space = target.space
        self.evaluations = evaluations
        self.known: dict[str, float] = {}
        self.proposals = 0
        self.trace: list[float] = []
        self._best = math.inf

    @property
    def left(self) -> bool:
        return len(self.trace) < self.evaluations and self.proposals < MOST_PROPOSALS * self.evaluations

    def measure(self, placement: Placement) -> float:
        """Measured latency in ms; known placements cost nothing."""
        self.proposals += 1
        if placement.key not in self.known and len(self.trace) < self.evaluations:
            self.note(placement, self.target.outcome(placement).latency_ms or math.inf)
        return self.known.get(placement.key, math.inf)

    def note(self, placement: Placement, latency: float) -> None:
        """A placement was measured."""
        self.known[placement.key] = latency
        better = latency < self._best
        self._best = min(self._best, latency)
        self.trace.append(self.target.latency_ms(placement) if better else self.trace[-1])


def evolution(counted: Counted, seed: int) -> None:
    """This project's search, with its seeds."""

    class Noting:
        def evaluate(self, placements: Iterable[Placement], until: float = math.inf) -> list[Outcome]:
            wanted = tuple(placements)
            outcomes = counted.target.evaluate(wanted)
            for placement, outcome in zip(wanted, outcomes, strict=True):
                counted.note(placement, outcome.latency_ms or math.inf)
            return outcomes

    settings, seeds = GaSettings(patience=0, seed=seed), tuple(make_seeds(counted.space))
    Evolution(counted.space, Noting(), settings, Budget(counted.evaluations), lambda: 0.0, seeds).run()


def program(counted: Counted, seed: int) -> None:
    """The dynamic program's placement, measured once."""
    counted.measure(place(cheapest_covers(counted.space).covers[0].matches, counted.space))


def random_search(counted: Counted, seed: int) -> None:
    """Genomes drawn uniformly."""
    rng = random.Random(seed)
    while counted.left:
        counted.measure(decode(random_genome(counted.space, rng), counted.space))


def annealing(counted: Counted, seed: int, hot: float = 0.02, cold: float = 0.001) -> None:
    """Simulated annealing from the dynamic program's placement, with this project's mutations.

    The temperature falls geometrically from ``hot`` to ``cold``, both relative to the current latency.
    """
    rng, space = random.Random(seed), counted.space
    here = encode(place(cheapest_covers(space).covers[0].matches, space), space)
    now = counted.measure(decode(here, space))
    while counted.left:
        temperature = hot * (cold / hot) ** (len(counted.trace) / counted.evaluations)
        placement = decode(mutate(here, space, rng), space)
        latency = counted.measure(placement)
        if latency <= now or rng.random() < math.exp(-(latency / now - 1) / temperature):
            here, now = encode(placement, space), latency


def collage(counted: Counted, seed: int) -> None:
    """Collage's published genetic search: each piece of the op-level program stays or goes to one graph backend.

    Population 50, two-point crossover 0.5, mutation 0.2 with bit flip 0.05, tournament 5, no elitism. Given to
    it for free: the best single backend as its graph backend, and both extremes in its first population.
    """
    backends = sorted({backend for backend, _ in counted.space.engines})
    latency_ms = {name: counted.target.latency_ms(backend_placement(counted.space, name)) for name in backends}
    _published_ga(counted, seed, [min(backends, key=latency_ms.__getitem__)])


def collage_k(counted: Counted, seed: int) -> None:
    """The same with every backend as a graph backend."""
    _published_ga(counted, seed, sorted({backend for backend, _ in counted.space.engines}))


class _Bits(list[int]):
    def __init__(self, genes: Sequence[int]) -> None:
        super().__init__(genes)
        self.fitness = fitness_of((Objective.LATENCY,))()


def _published_ga(counted: Counted, seed: int, graph_backends: Sequence[str]) -> None:
    rng, space = random.Random(seed), counted.space
    express = _expression(space, graph_backends)
    count = len(cheapest_covers(space).covers[0].matches)
    states = len(graph_backends)

    def flip(genes: _Bits) -> None:
        for index in range(count):
            if rng.random() < 0.05:
                genes[index] = rng.choice([s for s in range(states + 1) if s != genes[index]])

    population = [_Bits([state] * count) for state in range(states + 1)]
    population += [_Bits([rng.randint(0, states) for _ in range(count)]) for _ in range(50 - states - 1)]
    toolbox = base.Toolbox()
    toolbox.register("select", tools.selTournament, tournsize=5)
    while True:
        for genes in population:
            if not genes.fitness.valid:
                if not counted.left:
                    return
                genes.fitness.values = (counted.measure(decode(express(genes), space)),)
        with drawing_from(rng):
            population = [deepcopy(genes) for genes in toolbox.select(population, len(population))]
            for one, other in zip(population[::2], population[1::2], strict=False):
                if random.random() < 0.5:
                    tools.cxTwoPoint(one, other)
                    del one.fitness.values, other.fitness.values
        for genes in population:
            if rng.random() < 0.2:
                flip(genes)
                del genes.fitness.values


def _expression(space: SearchSpace, graph_backends: Sequence[str]) -> Callable[[Sequence[int]], Genome]:
    """Genes to a genome: state 0 keeps the op-level piece, state s moves it to graph backend s - 1."""
    cover = cheapest_covers(space).covers[0].matches
    op_level = encode(place(cover, space), space)
    whole = [encode(backend_placement(space, backend), space).choices for backend in graph_backends]
    piece = {node: index for index, match in enumerate(cover) for node in members(space.matches[match].nodes)}

    def express(genes: Sequence[int]) -> Genome:
        choices = [
            whole[genes[piece[node]] - 1][node] if genes[piece[node]] else choice
            for node, choice in enumerate(op_level.choices)
        ]
        return Genome(tuple(choices), (1,) * len(space.edges))

    return express


METHODS: dict[str, Callable[[Counted, int], None]] = {
    "collage_evo": evolution,
    "Collage": collage,
    "Collage, k backends": collage_k,
    "annealing": annealing,
    "random": random_search,
    "DP alone": program,
}
