"""What a call of a session takes beyond its pieces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import cycle
from typing import Any

import pytest

from collage_evo.fitness.timing import time_call_ms


class Paced:
    """A session, and the clock that its runs and executions move by what ``took`` says next."""

    def __init__(self, took: Iterator[float]) -> None:
        self._took, self.now, self.calls = took, 0.0, list[str]()

    def feed(self, feeds: Mapping[str, Any]) -> None:
        self.calls.append("feed")

    def run(self, names: None, feeds: Mapping[str, Any]) -> None:
        self.calls.append("run")
        self.now += next(self._took)

    def execute(self) -> None:
        self.calls.append("execute")
        self.now += next(self._took)


SCATTERED = (0.093, 0.080, 0.079, 0.085, 0.090, 0.081)


@pytest.mark.parametrize(
    ("took", "adds_ms", "pairs"),
    [
        ((0.007, 0.002), 5.0, 6),
        ((0.002, 0.002), 0.0, 13),
        ((0.001, 0.002), 0.0, 17),
        ((0.7, 0.6), None, 1),  # a model that takes long runs twice
        (SCATTERED, 0.0, 3),
    ],
)
def test_a_call_is_timed_in_turns_with_the_execution_alone(
    took: tuple[float, ...], adds_ms: float | None, pairs: int
) -> None:
    paced: Any = Paced(cycle(took))
    adds = time_call_ms(paced, {}, seconds=0.05, clock=lambda: paced.now)
    assert adds == (None if adds_ms is None else pytest.approx(adds_ms))
    assert paced.calls == ["feed", *["run", "execute"] * pairs]
