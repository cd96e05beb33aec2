"""What the evolutionary search can be told: hyperparameters and budget."""

from __future__ import annotations

from dataclasses import dataclass, fields

from collage_evo.errors import ConfigError


@dataclass(frozen=True)
class GaSettings:
    """Hyperparameters of the evolutionary search. ``RANGES`` holds what each may be.

    Attributes:
        population: individuals kept from one generation to the next (2 to 1000).
        offspring: placements measured a generation (1 to 1000).
        crossover_rate: chance that a child has two parents (0 to 1).
        mutation_rate: chance that a child of two parents is mutated too; one of one parent always is (0 to 1).
        more_mutations: chance of each further mutation after the first (0 to 0.9).
        tournament: individuals that compete to become a parent; 1 is no pressure at all (1 to 50).
        elite: best individuals that always survive (1 to 100).
        screen_factor: children generated for each one measured; the cost model picks (1 to 100).
        random_share: share of measured children picked at random instead (0 to 1).
        explore: share of measured children picked by a sample of what the cost model holds possible, instead of
            by what it holds most likely (0 to 1).
        program_share: chance that the dynamic program proposes a cover for a place in the batch (0 to 1).
        climb: mutations tried on the predicted latency from the best candidate for each place (0 to 1000).
        niche: survivors differ in at least this share of their choices while others are left (0 to 0.5).
        islands: populations that take turns and exchange their best now and then (1 to 16).
        patience: generations without gain after which the search stops; 0 means never (0 to 10000).
        min_gain: smallest relative improvement of the best that counts as gain (0 to 0.5).
        hall_of_fame: best placements kept for the final comparison (1 to 1000).
        seeded: start from the given seeds (DP, single backends, greedy); otherwise from random genomes.
        seed: of the random generator.
    """

    population: int = 24
    offspring: int = 8
    crossover_rate: float = 0.5
    mutation_rate: float = 0.6
    more_mutations: float = 0.3
    tournament: int = 3
    elite: int = 2
    screen_factor: int = 12
    random_share: float = 0.2
    explore: float = 0.5
    program_share: float = 0.5
    climb: int = 20
    niche: float = 0.0
    islands: int = 1
    patience: int = 20
    min_gain: float = 1e-4
    hall_of_fame: int = 10
    seeded: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name in RANGES:
                low, high = RANGES[field.name]
                value = getattr(self, field.name)
                if not low <= value <= high:
                    raise ConfigError(f"search.ga.{field.name} is {value}; it must be from {low:g} to {high:g}")
        if self.elite > self.population:
            raise ConfigError(
                f"search.ga.elite is {self.elite}, more than search.ga.population ({self.population}); lower it"
            )


RANGES: dict[str, tuple[float, float]] = {
    "population": (2, 1000),
    "offspring": (1, 1000),
    "crossover_rate": (0, 1),
    "mutation_rate": (0, 1),
    "more_mutations": (0, 0.9),
    "tournament": (1, 50),
    "elite": (1, 100),
    "screen_factor": (1, 100),
    "random_share": (0, 1),
    "explore": (0, 1),
    "program_share": (0, 1),
    "climb": (0, 1000),
    "niche": (0, 0.5),
    "islands": (1, 16),
    "patience": (0, 10_000),
    "min_gain": (0, 0.5),
    "hall_of_fame": (1, 1000),
}


@dataclass(frozen=True)
class Budget:
    """When to stop: after so many evaluations or so many seconds, whichever comes first; None is no limit."""

    evaluations: int | None = None
    seconds: float | None = None
