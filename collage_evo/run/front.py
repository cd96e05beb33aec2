"""Pareto front of latency against error, of all placements that a search measured and the single backends.

Contestants of the final race have their time from there. Other times are scaled to the race by what ran in both
(:class:`Scales`), which is only approximate: every point shows whether it ``raced``, and every one that is within
the budget and seems faster than the answer has the reason why it is not the answer (``remark``). Float32 throughout
counts as equally exact: differences there are rounding, and would make a front of noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from types import MappingProxyType
from typing import Any, NamedTuple

from collage_evo.accuracy.limits import Limits
from collage_evo.answer.answer import Verdict
from collage_evo.answer.baselines import Baseline
from collage_evo.answer.candidates import Tried, arithmetics
from collage_evo.backends.select import arithmetic_of
from collage_evo.backends.variants import engine_name
from collage_evo.genome.encoding import decode
from collage_evo.genome.outcome import Bounds, Outcome
from collage_evo.patterns.match import Placement
from collage_evo.report.result import FrontPoint, finite
from collage_evo.report.words import (
    SIMPLIFIED,
    Part,
    describe_failure,
    describe_parts,
    format_engine,
    format_ratio,
    in_words,
)
from collage_evo.runtime.timing import Timing

UNRACED = "it was timed only briefly; others promised more and were compared thoroughly"
"""Default reason why a point within the budget that seemed faster than the answer is not the answer."""
CHANGED = 1.3
"""The machine has changed if a thing takes so many times as long as before, or the reverse. Chosen: rounds of a race
on an idle machine differ by a few percent."""


@dataclass(frozen=True)
class Raced:
    """Outcome of the final race: the verdict, and the key of each of its placements by name.

    ``excluded``: by name, why those that were faster are not the answer.
    """

    verdict: Verdict
    keys: Mapping[str, str] = field(default_factory=dict)
    excluded: Mapping[str, str] = field(default_factory=dict)

    def timing(self, name: str) -> Timing | None:
        """Times of a contestant in the race; None if it did not take part."""
        final = self.verdict.final
        return final.timing(name) if name in final.rounds else None

    def ms(self, name: str) -> float | None:
        """Median time of a contestant in the race; None if it did not take part."""
        return timing.median_ms if (timing := self.timing(name)) else None

    @property
    def fates(self) -> dict[str, str]:
        """Why each placement, by key, and each excluded single backend, by name, is not the answer."""
        fates, failed = {}, self.verdict.final.failed
        for name, key in self.keys.items():
            if name == self.verdict.candidate:
                fates[key] = "compared thoroughly, not faster than all libraries for certain"
            elif name in failed:
                fates[key] = f"it failed when it was checked: {describe_failure(failed[name])}"
            else:
                fates[key] = "it was not faster for certain in the thorough comparison"
        return fates | {self.keys.get(name, name): reason for name, reason in self.excluded.items()}


class Twice(NamedTuple):
    """A thing that was timed in an earlier phase and in the final race: its name and that phase, and both times in
    ms."""

    what: str
    when: str
    first_ms: float
    last_ms: float

    @property
    def ratio(self) -> float:
        """The last time over the first one."""
        return self.last_ms / self.first_ms


@dataclass(frozen=True)
class Scales:
    """Factors from earlier times to those of the final race: of single backends, and of the search's placements.

    ``changed``: a note that the machine changed, if the first and the last time of one thing differ too much.
    """

    baselines: float = 1.0
    search: float = 1.0
    changed: str = ""

    @classmethod
    def of(cls, tried: Tried | None, measured: Sequence[Baseline], raced: Raced) -> Scales:
        """Computed from the times of ``measured``, and of the placements among ``tried``, that raced.

        If no placement raced, the factor of the search is that of the single backends.
        """
        baselines = _twice(
            (format_engine(one.backend, one.variant), "at first", one.outcome.latency_ms, raced.ms(one.name))
            for one in measured
        )
        words, known = {raced.verdict.answer: "the answer"}, tried.evaluated if tried else {}
        search = _twice(
            (words.get(name, "a placement"), "in the search", known[key].outcome.latency_ms, raced.ms(name))
            for name, key in raced.keys.items()
            if key in known
        )
        of_baselines = median(one.ratio for one in baselines) if baselines else 1.0
        of_search = median(one.ratio for one in search) if search else of_baselines
        return cls(of_baselines, of_search, _changed([*search, *baselines]))


def _twice(times: Iterable[tuple[str, str, float | None, float | None]]) -> list[Twice]:
    """The things that have both times."""
    return [
        Twice(what, when, first, last)
        for what, when, first, last in times
        if first is not None and last is not None
    ]


def _changed(twice: Sequence[Twice]) -> str:
    """A note on the thing whose times differ most, if they differ too much; else empty."""
    worst = max(twice, key=lambda one: abs(math.log(one.ratio)), default=None)
    if worst is None or max(worst.ratio, 1 / worst.ratio) <= CHANGED:
        return ""
    return (
        f"the machine changed during the run: {worst.what} took {format_ratio(worst.ratio)} times as long in the "
        f"final comparison as {worst.when}"
    )


def parts_of(placement: Placement) -> tuple[Part, ...]:
    """Number of operators of a placement by engine."""
    return tuple(
        Part(
            region.backend,
            region.variant,
            region.nodes.bit_count(),
            {kind.value: nodes.bit_count() for kind, nodes in region.numerics},
        )
        for region in placement.regions
    )


def front_points(
    tried: Tried | None,
    baselines: Sequence[Baseline],
    raced: Raced,
    limits: Limits,
    scales: Scales = Scales(),
    further: Bounds = MappingProxyType({}),
) -> tuple[FrontPoint, ...]:
    """Every placement and single backend that ran, the smallest error first.

    Contestants of the final race have their time from there; earlier times are multiplied by ``scales``. Every point
    within ``limits`` and the ``further`` bounds that seems faster than the answer has a remark with the reason why it
    is not the answer.
    """

    def measured(point: FrontPoint, outcome: Outcome, name: str) -> FrontPoint:
        """``point`` with its error, and with the time of the final race if it took part as ``name``."""
        last = raced.timing(name)
        timed, scale = (last, 1.0) if last else (outcome, point.latency_ms / (outcome.latency_ms or 1.0))
        ends = {end: getattr(timed, end) for end in ("p10_ms", "p90_ms")}
        others: dict[str, Any] = {end: ms and ms * scale for end, ms in ends.items()}
        others |= {objective.value: finite(value) for objective, value in outcome.others.items()}
        return replace(
            point,
            latency_ms=last.median_ms if last else point.latency_ms,
            feasible=limits.allows(finite(outcome.error), point.exact) and outcome.keeps(further),
            answer=name == raced.verdict.answer,
            raced=bool(last),
            **others,
        )

    points = [measured(*row) for row in _of_baselines(baselines, scales.baselines)]
    if tried is not None:
        whole = {point.what for point in points}
        names = {key: name for name, key in raced.keys.items()}
        for point, outcome in _of_search(tried, scales.search):
            what = point.what + SIMPLIFIED if point.what in whole else point.what
            points.append(measured(replace(point, what=what), outcome, names.get(point.key, "")))
    answer_ms = next((point.latency_ms for point in points if point.answer), 0.0)
    return marked(
        replace(point, remark=_why_not(point, raced)) if point.feasible and point.latency_ms < answer_ms else point
        for point in points
    )


def _of_baselines(baselines: Sequence[Baseline], scale: float) -> Iterator[tuple[FrontPoint, Outcome, str]]:
    """A point of each single backend that ran, its outcome, and its name in the race."""
    for baseline in baselines:
        if baseline.outcome.latency_ms is not None:
            computes = arithmetic_of(baseline.backend, baseline.variant).value
            name = engine_name(baseline.backend, baseline.variant)
            what = format_engine(baseline.backend, baseline.variant)
            ms, how = baseline.outcome.latency_ms * scale, f"{name} alone, {computes}"
            yield FrontPoint(ms, None, "", how, (computes,), name, what=what), baseline.outcome, baseline.name


def _of_search(tried: Tried, scale: float) -> Iterator[tuple[FrontPoint, Outcome]]:
    """A point of each placement that ran, and its outcome."""
    for key, one in tried.evaluated.items():
        if one.outcome.ok and one.outcome.latency_ms is not None:
            placement = decode(one.genome, tried.space)
            computes, what = arithmetics(placement, tried.space), describe_parts(parts_of(placement))
            ms, how = one.outcome.latency_ms * scale, f"{in_words(one.kind)}, {' and '.join(computes)}"
            yield FrontPoint(ms, None, key, how, computes, what=what), one.outcome


def marked(points: Iterable[FrontPoint]) -> tuple[FrontPoint, ...]:
    """The points, the smallest error first, with those marked that no faster point beats in error."""
    points = tuple(points)
    least = min((p.error for p in points if p.exact and p.error is not None), default=0.0)

    def error(point: FrontPoint) -> float:
        if point.error is None:
            return math.inf
        # Errors of float32 count as equal: they are rounding, and no reason to prefer one placement to another.
        return least if point.exact else point.error

    ordered, best_ms = [], math.inf
    for point in sorted(points, key=lambda point: (error(point), point.latency_ms)):
        first = point.error is not None and point.latency_ms < best_ms
        best_ms = point.latency_ms if first else best_ms
        ordered.append(replace(point, pareto=first))
    return tuple(ordered)


def over_budget(point: FrontPoint) -> str:
    """Why a point may not be the answer; empty where it may."""
    if point.feasible:
        return ""
    return "exceeds the budget: error " + ("unknown" if point.error is None else f"{point.error:.1e}")


def _why_not(point: FrontPoint, raced: Raced) -> str:
    """Why a point that is within the budget and seems faster than the answer is not the answer."""
    failed = raced.verdict.final.failed
    if point.single in raced.excluded:
        return raced.excluded[point.single]
    if point.raced:
        rivals = "every baseline" if point.key else "the answer"
        return f"in the thorough comparison it was not faster for certain than {rivals}"
    if point.single in failed:
        return f"it failed in the thorough comparison: {failed[point.single]}"
    return raced.fates.get(point.key, UNRACED)
