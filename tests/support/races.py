"""Simulated races: laps of the ratio of two contestants, by its true value and how noisy a machine is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from collage_evo.answer.race import MAX_REPEATS, expected_variance
from collage_evo.answer.sequential import FEWEST, Stopping

Laps = Sequence[np.ndarray]
"""Logarithms of the ratio of each pair of bursts, one array a round."""


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

    def race(self, speedup: float, rounds: int, rng: np.random.Generator, laps: int = MAX_REPEATS) -> Laps:
        """``speedup`` is the logarithm of the true ratio; slow models have few ``laps`` in a round, two at least."""
        noise = self.lap * rng.standard_normal((rounds, laps))
        noise[rng.random(noise.shape) < self.hit] *= self.hard
        noise += speedup + self.layout * rng.standard_normal((rounds, 1))
        stays, state = math.exp(-1.0 / self.memory), self.drift * rng.standard_normal()
        for index in range(rounds):
            noise[index] += state
            state = stays * state + self.drift * math.sqrt(1.0 - stays**2) * rng.standard_normal()
        return list(noise)


def logs_of(laps: Laps) -> list[float]:
    return [median(one.tolist()) for one in laps]


def wins(laps: Laps, stopping: Stopping) -> bool:
    return stopping.won(logs_of(laps), expected_variance(laps))


def race_over(laps: Laps, stopping: Stopping) -> Laps:
    """The rounds of a race of two until it is decided."""
    for n in range(FEWEST, len(laps)):
        so_far = laps[:n]
        lost = stopping.given_up(logs_of(so_far), expected_variance(so_far))
        if lost or (n in stopping.looks and wins(so_far, stopping)):
            return so_far
    return laps
