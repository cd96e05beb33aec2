"""Contestants of the final race, and who remains after a winner was excluded on held-out samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from collage_evo.accuracy.limits import Limits
from collage_evo.answer.baselines import Baseline, feasible_baselines
from collage_evo.measure.judging import computes_exactly
from collage_evo.placement.outcome import Bounds

CHANCES = 3
"""So many answers may exceed the budget. After that, only placements in float32 remain, and once those expected to be
safer; single libraries are few, and each has its turn."""


@dataclass(frozen=True)
class Exclusion:
    """Why a winner is not the answer, and the error that it may have on other samples; None if that is unknown."""

    reason: str
    error: float | None = None


@dataclass(frozen=True)
class Contestants:
    """Artifacts of placements, by their names in the race, and single backends.

    ``last``: those in float32, which race if no other single backend is left.
    """

    placements: Mapping[str, Path]
    baselines: Sequence[Baseline]
    last: Sequence[Baseline] = ()

    @classmethod
    def of(
        cls, placements: Mapping[str, Path], baselines: Sequence[Baseline], limits: Limits, further: Bounds
    ) -> Contestants:
        """``placements``, and those of ``baselines`` that are within ``limits`` and the ``further`` bounds."""
        exact = [baseline for baseline in baselines if baseline.exact and baseline.keeps(limits.budget)]
        return cls(placements, feasible_baselines(baselines, limits, further), exact)

    def artifact(self, name: str) -> Path:
        """The artifact of one of them."""
        return {**self.placements, **{b.name: b.artifact for b in self.baselines}}[name]

    def without(self, excluded: Mapping[str, Exclusion]) -> Contestants:
        """Those that still race."""
        placements = {
            name: path
            for name, path in self.placements.items()
            if name not in excluded and (len(excluded) < CHANCES or computes_exactly(path))
        }
        return replace(
            self, placements=placements, baselines=[b for b in self.baselines if b.name not in excluded] or self.last
        )


def lineups(
    contestants: Contestants,
    excluded: Mapping[str, Exclusion],
    safer: Callable[[Mapping[str, float]], Mapping[str, Path]],
) -> Iterator[Contestants]:
    """The contestants of each race: all, and then those that remain while ``excluded`` grows.

    Once only placements in float32 remain, ``safer`` returns more, from the errors of the excluded ones by name.
    """
    yield contestants
    contestants = contestants.without(excluded)
    while not all(map(computes_exactly, contestants.placements.values())):
        yield contestants
        contestants = contestants.without(excluded)
    more = safer({name: one.error for name, one in excluded.items() if one.error is not None})
    contestants = replace(contestants, placements={**contestants.placements, **more})
    while True:
        yield contestants
        contestants = contestants.without(excluded)
