"""A meter without a machine: what each match takes is said by the test."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from collage_evo.fitness.jobs import Measured
from collage_evo.genome.failure import Failure
from collage_evo.graph.ir.graph import Graph
from collage_evo.patterns.match import Match


class Meter:
    """In place of a ``CostMeter``: answers at once, and notes what it was asked."""

    def __init__(
        self,
        graph: Graph,
        took: Callable[[Match], float | Failure],
        before: Callable[[Match], bool] = lambda _: False,
    ) -> None:
        """``took``: a match's time in ms, or why there is none; ``before``: whether an earlier run measured it."""
        self.graph = graph
        self._took, self._before = took, before
        self.asked: list[Match] = []

    def key(self, match: Match) -> str:
        return f"{match.nodes:x} {match.backend} {match.variant} {match.rewrites}"

    def exact(self, match: Match) -> bool:
        return not match.numerics

    def recall(self, matches: Sequence[Match]) -> dict[str, Measured | Failure]:
        return {self.key(match): self._answer(match) for match in matches if self._before(match)}

    def measure(
        self,
        matches: Sequence[Match],
        give_up_ms: object,
        on_done: object,
        share: float = 1.0,
        on_answer: Callable[[str, Measured | Failure], None] = lambda key, answer: None,
    ) -> None:
        self.asked += matches
        for match in matches:
            on_answer(self.key(match), self._answer(match))

    def over(self, share: float = 1.0) -> bool:
        return False

    def _answer(self, match: Match) -> Measured | Failure:
        took = self._took(match)
        return took if isinstance(took, Failure) else Measured((took,), 0.0, 0.0)
