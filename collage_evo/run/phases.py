"""Common time scale of a run's phases: that of the final race, by what was timed in both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from collage_evo.answer.baselines import Baseline
from collage_evo.answer.candidates import Tried
from collage_evo.report.words import format_engine, format_ms
from collage_evo.run.front import Raced

CHANGED = 1.3
"""The machine has changed if a thing takes so many times as long as before, or the reverse. Chosen: rounds of a race
on an idle machine differ by a few percent."""


@dataclass(frozen=True)
class Twice:
    """A thing that was timed in an earlier phase and in the final race: its name, the earlier phase, and both times
    in ms."""

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
    """Contestants with earlier times: single backends in ``baselines``, and placements in ``search``."""

    baselines: Sequence[Twice] = ()
    search: Sequence[Twice] = ()

    @classmethod
    def of(cls, tried: Tried | None, measured: Sequence[Baseline], raced: Raced) -> Phases:
        """Computed from the times of ``measured``, and of the placements among ``tried`` that raced."""
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
        """Factor from times of single backends to the scale of the race."""
        return _scale(self.baselines)

    @property
    def of_search(self) -> float:
        """Factor from times of the search; if none of its placements raced, that of the single backends."""
        return _scale(self.search or self.baselines)

    @property
    def changed(self) -> str:
        """A note that the machine changed, if the first and the last time of one thing differ too much; else
        empty."""
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
