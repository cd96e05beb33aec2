"""How fast the machine is just now: gives the time of a fixed piece of work, to set beside the times of others.

Processor clocks, and neighbours on the same host, make all programs a few percent faster or slower for seconds to
minutes. Two times that were taken minutes apart are compared by what the same work took beside each.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

MATRICES, SIZE, REPEATS, TRIES = 8, 64, 8, 5
"""Matrix products as the yardstick: vector units at work, data in the second-level cache, and each product too small
for a library to call its threads."""


class Yardstick:
    """A fixed piece of work, about 0.3 ms, on the caller's core."""

    def __init__(self) -> None:
        self._factors = np.random.default_rng(0).random((MATRICES, SIZE, SIZE), dtype=np.float32)
        self._products = np.empty_like(self._factors)
        self.read()

    def read(self) -> float:
        """How long it takes now, in ms; the least of a few tries, as any may be interrupted."""
        return min(self._work() for _ in range(TRIES))

    def _work(self) -> float:
        start = time.perf_counter()
        for _ in range(REPEATS):
            np.matmul(self._factors, self._factors, out=self._products)
        return (time.perf_counter() - start) * 1e3


class Pace:
    """The machine's pace during one measurement: readings of a yardstick, if there is one, beside what is usual.

    ``ms`` is the median reading, None without any; ``slowness`` is how many times as long as usual all takes, 1
    where either is unknown.
    """

    def __init__(self, yardstick: Callable[[], float] | None, usual_ms: float | None = None) -> None:
        self._yardstick = yardstick
        self._usual_ms = usual_ms
        self._readings: list[float] = []
        self.ms: float | None = None
        self.slowness = 1.0

    def read(self) -> None:
        """Read the yardstick once more."""
        if self._yardstick is None:
            return
        self._readings.append(self._yardstick())
        self.ms = statistics.median(self._readings)
        if self._usual_ms is not None:
            self.slowness = self.ms / self._usual_ms
