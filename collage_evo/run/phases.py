"""Times of a run's phases on one scale: that of the final race, by what was timed in both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from collage_evo.answer.baselines import Baseline
from collage_evo.report.words import format_engine, format_ms
from collage_evo.run.front import Raced, Tried

CHANGED = 1.3
"""The machine is not what it was if one thing takes so many times as long as before, or the reverse.
Chosen: rounds of a race on an idle machine differ by a few percent."""


@dataclass(frozen=True)
class Twice:
    """What was timed in an earlier phase and in the final race: what, when first, and both times in ms."""

    what: str
    when: str
    first_ms: float
    last_ms: float

    @property
    def ratio(self) -> float:
        """The last time over the first one."""
        return self.last_ms / self.first_ms


@dataclass(frozen=True)
class Phases:
    """What raced and had been timed before: backends ``alone``, and placements in the ``search``."""

    baselines: Sequence[Twice] = ()
    search: Sequence[Twice] = ()

    @classmethod
    def of(cls, tried: Tried | None, measured: Sequence[Baseline], raced: Raced) -> Phases:
        """By the times of ``baselines``, and of the placements among ``tried`` that raced."""
        verdict, baselines, search = raced.verdict, [], []
        for one in measured:
            if one.outcome.latency_ms is not None and one.name in verdict.final.rounds:
                last = verdict.final.timing(one.name).median_ms
                name = format_engine(one.backend, one.variant)
                baselines.append(Twice(name, "at first", one.outcome.latency_ms, last))
        for name, key in raced.keys.items():
            found = tried.evaluated.get(key) if tried else None
            if found is not None and found.outcome.latency_ms is not None and name in verdict.final.rounds:
                what = "the answer" if name == verdict.answer else "a placement"
                last = verdict.final.timing(name).median_ms
                search.append(Twice(what, "in the search", found.outcome.latency_ms, last))
        return cls(baselines, search)

    @property
    def of_baselines(self) -> float:
        """By what times of single backends are multiplied to be on the scale of the race."""
        return _scale(self.baselines)

    @property
    def of_search(self) -> float:
        """The same for times of the search; where none of its placements raced, that of the single backends."""
        return _scale(self.search or self.baselines)

    @property
    def changed(self) -> str:
        """That the machine changed, where the first and the last time of one thing are too far apart; else empty."""
        every = [*self.search, *self.baselines]
        worst = max(every, key=lambda one: abs(math.log(one.ratio)), default=None)
        if worst is None or max(worst.ratio, 1 / worst.ratio) <= CHANGED:
            return ""
        return (
            f"the machine changed during the run: {worst.what} took {format_ms(worst.first_ms)} ms {worst.when} and "
            f"{format_ms(worst.last_ms)} ms in the final comparison"
        )


def _scale(twice: Sequence[Twice]) -> float:
    return median(one.ratio for one in twice) if twice else 1.0
