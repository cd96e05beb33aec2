"""Races without a clock: takes a speedup and how noisy a machine is, gives the rounds' ratios as a race would."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from collage_evo.fitness.final.race import TURNS
from collage_evo.fitness.final.sequential import FIRST_LOOK, Stopping


@dataclass(frozen=True)
class Noise:
    """Standard deviations of a ratio's logarithm: by where processes lie in memory, and from turn to turn.

    Of all turns the share ``hit`` is ``hard`` times as noisy: something else ran meanwhile.
    """

    process: float
    turn: float
    hit: float = 0.1
    hard: float = 8.0

    def rounds(self, speedup: float, rounds: int, rng: np.random.Generator) -> list[float]:
        """Logarithms of the ratios of a race, one a round; ``speedup`` is the logarithm of the true one."""
        turns = self.turn * rng.standard_normal((rounds, TURNS))
        turns[rng.random(turns.shape) < self.hit] *= self.hard
        told = speedup + self.process * rng.standard_normal(rounds) + np.median(turns, axis=1)
        return [float(one) for one in told]


def race_over(logs: Sequence[float], stopping: Stopping) -> Sequence[float]:
    """The rounds of a race until it is decided."""
    looks = range(FIRST_LOOK, len(logs))
    return next((x for n in looks if stopping.won(x := logs[:n]) or stopping.given_up(x)), logs)
