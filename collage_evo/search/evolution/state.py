"""State of a search as a plain value, and its JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from types import MappingProxyType
from typing import NamedTuple

from collage_evo.genome.genome import Genome
from collage_evo.genome.outcome import Bounds, Objective, Outcome
from collage_evo.search.evolution.origin import OriginText

RngState = tuple[int, tuple[int, ...], float | None]
"""Type of the result of ``random.Random.getstate``."""


@dataclass(frozen=True)
class Evaluated:
    """A measured placement: its canonical genome, its outcome, its origin and number.

    ``predicted_ms`` is the additive model's prediction; ``evaluation`` counts from 1.
    """

    genome: Genome
    outcome: Outcome
    kind: OriginText
    generation: int
    evaluation: int
    predicted_ms: float


class Pending(NamedTuple):
    """A genome that was proposed, and its origin."""

    genome: Genome
    kind: OriginText


@dataclass(frozen=True)
class SearchState:
    """All inputs of the next generation.

    ``evaluated`` maps placement keys to measurements, in order; ``population`` (the elite first) and ``hall`` contain
    keys: the hall the best of all, fastest first; with several objectives those that no other dominates. Latency is
    always an objective; ``bounds`` has the others, and the largest value of each that the best may have.
    ``reference`` (a value for each objective) is the corner that hypervolume is measured from; if none is given, the
    first generation sets it to twice its largest values. ``best_seconds`` is the elapsed time at which the best was
    found, ``stale`` counts generations since, ``log`` has one record a generation. ``pending`` were
    proposed and are not measured yet: they come first in the next generation.
    """

    rng: RngState
    bounds: Bounds = field(default_factory=dict)
    reference: tuple[float, ...] = ()
    evaluated: Mapping[str, Evaluated] = field(default_factory=dict)
    population: tuple[str, ...] = ()
    hall: tuple[str, ...] = ()
    log: tuple[Mapping[str, float], ...] = ()
    generation: int = 0
    seconds: float = 0.0
    stale: int = 0
    best_evaluation: int = 0
    best_seconds: float = 0.0
    exhausted: bool = False
    pending: tuple[Pending, ...] = ()

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """The objectives of placements: latency first, which the cost model predicts."""
        return (Objective.LATENCY, *self.bounds)

    @property
    def evaluations(self) -> int:
        """Placements measured so far, unfit ones included."""
        return len(self.evaluated)

    @property
    def latency_ms(self) -> dict[str, float]:
        """Latency of every placement that ran, by key."""
        outcomes = ((key, evaluated.outcome) for key, evaluated in self.evaluated.items())
        return {key: o.latency_ms for key, o in outcomes if o.ok and o.latency_ms is not None}

    @property
    def contended(self) -> tuple[bool, ...]:
        """For each of :attr:`latency_ms`, whether it was contended."""
        return tuple(self.evaluated[key].outcome.contended for key in self.latency_ms)

    @property
    def best(self) -> Evaluated | None:
        """The fastest measured placement within the bounds, None while there is none."""
        return next((self.evaluated[key] for key in self.hall if self.keeps_bounds(key)), None)

    def keeps_bounds(self, key: str) -> bool:
        """Whether a placement that ran is within the bounds, as measured."""
        return self.evaluated[key].outcome.keeps(self.bounds)

    @property
    def best_ms(self) -> float:
        """Latency of :attr:`best`, ``inf`` while there is none."""
        best = self.best
        return float("inf") if best is None or best.outcome.latency_ms is None else best.outcome.latency_ms


def new_state(seed: int, bounds: Bounds = MappingProxyType({}), reference: tuple[float, ...] = ()) -> SearchState:
    """A search that has not begun, for latency within ``bounds``."""
    return SearchState(Random(seed).getstate(), {**bounds}, reference)
