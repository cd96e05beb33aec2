"""Settings of the evolutionary search: hyperparameters and budget."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from collage_evo.bounded import bounded, check_bounds
from collage_evo.errors import ConfigError


def _weight(mutation: str) -> Any:
    return bounded(1.0, 0, 100, f"Weight of a mutation among the others: {mutation}.")


@dataclass(frozen=True)
class GaSettings:
    """Hyperparameters of the evolutionary search; the weights are those of the mutations in ``variation.py``.

    Raises:
        ConfigError: a value is not in its range.
    """

    population: int = bounded(
        24, 2, 1000, "Individuals kept from one generation to the next. More: variety; slower gain."
    )
    offspring: int = bounded(
        8, 1, 1000, "Placements measured a generation. More: a cost model that learns less often."
    )
    crossover_rate: float = bounded(0.5, 0, 1, "Chance that a child has two parents.")
    mutation_rate: float = bounded(
        0.6, 0, 1, "Chance that a child of two parents is mutated too; one of one parent always is."
    )
    more_mutations: float = bounded(0.3, 0, 0.9, "Chance of each further mutation after the first.")
    change_engine: float = _weight("a region, or part of one, moves to another engine")
    change_variant: float = _weight("a region runs another variant of its backend")
    merge_neighbour: float = _weight("a region takes over a neighbouring one")
    split_region: float = _weight("a region falls into two")
    move_border: float = _weight("a node goes over to the region next to it")
    take_neighbours_choice: float = _weight("a match moves to the engine of a match next to it")
    resample_node: float = _weight("a node draws any of its matches")
    change_copies: float = _weight("a part of a region and its copies elsewhere move to one engine")
    tournament: int = bounded(3, 1, 50, "Individuals that compete to become a parent; 1 is no pressure at all.")
    elite: int = bounded(2, 1, 100, "Best individuals that always survive.")
    screen_factor: int = bounded(12, 1, 100, "Children generated for each one measured; the cost model picks.")
    random_share: float = bounded(0.2, 0, 1, "Share of measured children picked at random instead.")
    explore: float = bounded(
        0.5, 0, 1, "Share of measured children picked by a sample of what the cost model holds possible, instead of "
        "by what it holds most likely.",
    )  # fmt: skip
    program_share: float = bounded(
        0.5, 0, 1, "Chance that the dynamic program proposes a cover for a place in the batch."
    )
    climb: int = bounded(
        20, 0, 1000, "Mutations tried on the predicted latency from the best candidate for each place."
    )
    patience: int = bounded(
        20, 0, 10_000, "Generations without gain after which the search stops; 0 is never. More: time."
    )
    min_gain: float = bounded(1e-4, 0, 0.5, "Smallest relative improvement of the best that counts as gain.")
    hall_of_fame: int = bounded(10, 1, 1000, "Best placements kept for the final comparison.")
    seeded: bool = field(default=True, metadata={
        "description": "Start from the given seeds (DP, single backends, greedy); otherwise from random genomes."
    })  # fmt: skip
    seed: int = field(default=0, metadata={"description": "Of the random generator."})

    def __post_init__(self) -> None:
        check_bounds(self, "search.ga")
        if not any(getattr(self, name) for name in MUTATION_WEIGHTS):
            raise ConfigError(f"search.ga.{MUTATION_WEIGHTS[0]} and all other mutations are 0; give one a weight")
        if self.elite > self.population:
            raise ConfigError(
                f"search.ga.elite is {self.elite}, more than search.ga.population ({self.population}); lower it"
            )


MUTATION_WEIGHTS = (
    "change_engine", "change_variant", "merge_neighbour", "split_region", "move_border", "take_neighbours_choice",
    "resample_node", "change_copies",
)  # fmt: skip


@dataclass(frozen=True)
class Budget:
    """When to stop: after so many evaluations or so many seconds, whichever comes first; None is no limit."""

    evaluations: int | None = None
    seconds: float | None = None
