"""Pareto front of latency against error, of all placements that a search measured and the single backends.

Contestants of the final race have their time from there. Other times are scaled to the race by what ran in both
(:class:`Phases`), which is only approximate: every point shows whether it ``raced``, and every one that is within
the budget and seems faster than the answer has the reason why it is not the answer (``remark``). Float32 throughout
counts as equally exact: differences there are rounding, and would make a front of noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from types import MappingProxyType
from typing import Any

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
from collage_evo.report.words import SIMPLIFIED, Part, describe_parts, format_engine, format_ms, in_words

UNRACED = "it was timed only briefly; others promised more and were compared thoroughly"
"""Default reason why a point within the budget that seemed faster than the answer is not the answer."""
Allows = Callable[[Outcome, bool], bool]
"""Whether an outcome, float32 throughout or not, may be the answer."""
CHANGED = 1.3
"""The machine has changed if a thing takes so many times as long as before, or the reverse. Chosen: rounds of a race
on an idle machine differ by a few percent."""


@dataclass(frozen=True)
class Raced:
    """Outcome of the final race: the verdict, the key of each of its placements by name, and why others lost."""

    verdict: Verdict
    keys: Mapping[str, str] = field(default_factory=dict)
    fates: Mapping[str, str] = field(default_factory=dict)
    """By key: why a placement that seems faster than the answer is not."""


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
    baseline_scale: float = 1.0,
    search_scale: float = 1.0,
    further: Bounds = MappingProxyType({}),
) -> tuple[FrontPoint, ...]:
    """Every placement and single backend that ran, the smallest error first.

    Contestants of the final race have their time from there; earlier times are multiplied by the scale of single
    backends or of the search. Every point within ``limits`` and the ``further`` bounds that seems faster than the
    answer has a remark with the reason why it is not the answer.
    """
    allows = partial(_allows, limits, further)
    points = [*_singles(baselines, raced, allows, baseline_scale)]
    if tried is not None:
        files = {point.what for point in points}
        placements = _placements(tried, raced, allows, search_scale)
        points += [replace(one, what=one.what + SIMPLIFIED) if one.what in files else one for one in placements]
    answer = next((point for point in points if point.answer), None)
    if answer is not None:
        points = [_remarked(point, answer, raced) for point in points]
    return marked(points)


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


def _singles(
    baselines: Sequence[Baseline], raced: Raced, allows: Allows, scale: float
) -> Iterable[FrontPoint]:
    for baseline in baselines:
        if baseline.outcome.latency_ms is None:
            continue
        computes = arithmetic_of(baseline.backend, baseline.variant).value
        name = engine_name(baseline.backend, baseline.variant)
        how = f"{name} alone, {computes}"
        what = format_engine(baseline.backend, baseline.variant)
        point = FrontPoint(baseline.outcome.latency_ms * scale, None, "", how, (computes,), name, what=what)
        yield _measured(point, baseline.outcome, baseline.name, raced, allows)


def _placements(
    tried: Tried, raced: Raced, allows: Allows, scale: float
) -> Iterable[FrontPoint]:
    candidates = {key: name for name, key in raced.keys.items()}
    for key, one in tried.evaluated.items():
        if not one.outcome.ok or one.outcome.latency_ms is None:
            continue
        placement = decode(one.genome, tried.space)
        computes = arithmetics(placement, tried.space)
        how = f"{in_words(one.kind)}, {' and '.join(computes)}"
        what = describe_parts(parts_of(placement))
        point = FrontPoint(one.outcome.latency_ms * scale, None, key, how, computes, what=what)
        yield _measured(point, one.outcome, candidates.get(key, ""), raced, allows)


def _allows(limits: Limits, further: Bounds, outcome: Outcome, exact: bool) -> bool:
    return limits.allows(finite(outcome.error), exact) and outcome.keeps(further)


def _measured(point: FrontPoint, outcome: Outcome, candidate: str, raced: Raced, allows: Allows) -> FrontPoint:
    """``point`` with its error, and with the time of the final race if it took part as ``candidate``."""
    verdict = raced.verdict
    in_race = candidate in verdict.final.rounds
    others: dict[str, Any] = {objective.value: finite(value) for objective, value in outcome.others.items()}
    return replace(
        point,
        latency_ms=verdict.final.timing(candidate).median_ms if in_race else point.latency_ms,
        feasible=allows(outcome, point.exact),
        answer=candidate == verdict.answer,
        raced=in_race,
        **others,
    )


def _remarked(point: FrontPoint, answer: FrontPoint, raced: Raced) -> FrontPoint:
    if point.answer or not point.feasible or point.latency_ms >= answer.latency_ms:
        return point
    failed = raced.verdict.final.failed
    if point.single in raced.fates:
        fate = raced.fates[point.single]
    elif point.raced:
        rivals = "every baseline" if point.key else "the answer"
        fate = f"in the thorough comparison it was not faster for certain than {rivals}"
    elif point.single in failed:
        fate = f"it failed in the thorough comparison: {failed[point.single]}"
    else:
        fate = raced.fates.get(point.key, UNRACED)
    return replace(point, remark=fate)


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
        for baseline in measured:
            if baseline.outcome.latency_ms is not None and baseline.name in verdict.final.rounds:
                last = verdict.final.timing(baseline.name).median_ms
                name = format_engine(baseline.backend, baseline.variant)
                baselines.append(Twice(name, "at first", baseline.outcome.latency_ms, last))
        for name, key in raced.keys.items():
            evaluated = tried.evaluated.get(key) if tried else None
            if evaluated is not None and evaluated.outcome.latency_ms is not None and name in verdict.final.rounds:
                what = "the answer" if name == verdict.answer else "a placement"
                last = verdict.final.timing(name).median_ms
                search.append(Twice(what, "in the search", evaluated.outcome.latency_ms, last))
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
