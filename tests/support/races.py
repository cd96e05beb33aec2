"""Races without a clock: takes a speedup and how noisy a machine is, gives the rounds' ratios as a race would."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from collage_evo.fitness.final.race import MOST_LAPS
from collage_evo.fitness.final.sequential import FEWEST, Stopping


@dataclass(frozen=True)
class Noise:
    """Standard deviations of a ratio's logarithm: by where models lie in memory, and from lap to lap.

    Of all laps the share ``hit`` is ``hard`` times as noisy: something else ran meanwhile. ``drift`` is how far the
    ratio itself wanders with the state of the machine, forgotten over ``memory`` rounds.
    """

    layout: float
    lap: float
    hit: float = 0.1
    hard: float = 8.0
    drift: float = 0.0
    memory: float = 10.0

    def rounds(self, speedup: float, rounds: int, rng: np.random.Generator) -> list[float]:
        """Logarithms of the ratios of a race, one a round; ``speedup`` is the logarithm of the true one."""
        laps = self.lap * rng.standard_normal((rounds, MOST_LAPS))
        laps[rng.random(laps.shape) < self.hit] *= self.hard
        told = speedup + self.layout * rng.standard_normal(rounds) + np.median(laps, axis=1)
        kept, state = math.exp(-1.0 / self.memory), self.drift * rng.standard_normal()
        for index in range(rounds):
            told[index] += state
            state = kept * state + self.drift * math.sqrt(1.0 - kept**2) * rng.standard_normal()
        return [float(one) for one in told]


def race_over(logs: Sequence[float], stopping: Stopping) -> Sequence[float]:
    """The rounds of a race of two until it is decided."""
    for n in range(FEWEST, len(logs)):
        if (n in stopping.looks and stopping.won(logs[:n])) or stopping.given_up(logs[:n]):
            return logs[:n]
    return logs
