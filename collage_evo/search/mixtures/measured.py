"""Measured mixtures of precisions: their errors correct those that are predicted of the next ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from collage_evo.genome.cost_model import Engine
from collage_evo.genome.outcome import Outcome
from collage_evo.genome.space import SearchSpace
from collage_evo.patterns.match import Placement
from collage_evo.search.mixtures.correction import Correction, Erred
from collage_evo.search.mixtures.knapsack import predicted_error


@dataclass(frozen=True)
class Mixture:
    """A measured placement, the family that most of it is of, and its outcome."""

    placement: Placement
    family: Engine
    outcome: Outcome


def corrections_by(measured: Iterable[Mixture], space: SearchSpace, budget: float) -> dict[Engine, Correction]:
    """The correction of each family of which mixtures were measured, or erred too much to be timed."""
    erred: dict[Engine, list[Erred]] = {}
    for mixture in measured:
        error = mixture.outcome.error
        if error and (predicted := predicted_error(space, mixture.placement)):
            erred.setdefault(mixture.family, []).append(Erred(predicted, error))
    return {family: Correction.of(mixtures, budget) for family, mixtures in erred.items()}
