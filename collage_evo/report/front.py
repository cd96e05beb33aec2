"""Front of latency against error: the points of a result that matter, as rows of words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from collage_evo.multimap import firsts, multimap
from collage_evo.report.result import FrontPoint, Latency, Result
from collage_evo.report.words import format_ms

Row = tuple[str, str, str, str, bool]
"""Latency, error, kind of timing, description; whether it is the answer."""

PHASES = {
    "thoroughly": "Timed in the final comparison, in turns",
    "briefly": "Timed briefly, in the search, on the scale of the final comparison",
    "at first": "Timed at the start of the run, on the scale of the final comparison",
}
"""Phase of the timing, by the word for it in a row."""

MOST = 8
"""Placements in the table; each single backend is added."""


def has_front(result: Result) -> bool:
    """Whether there is a choice: something ran in a lower precision than float32."""
    return any(not point.exact for point in result.front)


def front_rows(points: Sequence[FrontPoint]) -> list[Row]:
    """The fastest at each error and the answer, then each other single backend."""
    chosen = shown(points)
    return [_row(point) for point in (*chosen, *(one for one in fastest_baselines(points) if one not in chosen))]


def fastest_baselines(points: Sequence[FrontPoint]) -> list[FrontPoint]:
    """Each single backend in each of its arithmetics: the fastest of its variants with that arithmetic, of those in
    the final comparison if there are any."""
    in_turn = sorted(points, key=lambda point: (not point.raced, point.latency_ms))
    singles = ((point.single.partition("/")[0], point.arithmetics, point) for point in in_turn if point.single)
    return list(firsts(((backend, arithmetics), point) for backend, arithmetics, point in singles).values())


def proved_front(points: Sequence[FrontPoint]) -> list[FrontPoint]:
    """The fastest at each error by the times of the final comparison, the smallest error first.

    No point within the budget in it is faster than the answer, which is in it: a point that seemed faster was not
    proved to be (its remark gives the reason), and is excluded. Float32 counts as no error, since differences there
    are rounding.
    """

    def error(point: FrontPoint) -> float:
        return -math.inf if point.exact or point.error is None else point.error

    raced = [point for point in points if point.raced]
    for answer in [point for point in raced if point.answer]:
        raced = [
            point
            for point in raced
            if point is answer
            or point.latency_ms > answer.latency_ms
            or (not point.feasible and error(point) > error(answer))
        ]
    front: list[FrontPoint] = []
    for point in sorted(raced, key=lambda point: (error(point), point.latency_ms)):
        if not front or point.latency_ms < front[-1].latency_ms:
            front.append(point)
    return front


def shown(points: Sequence[FrontPoint], most: int = MOST) -> tuple[FrontPoint, ...]:
    """At most ``most`` of the fastest at each error, both ends, the answer and its neighbour among them."""
    front = [point for point in points if point.pareto]
    wanted = [point for point in points if point.answer]
    wanted += [*front[:1], *front[-1:], *[point for point in front if point.feasible][-1:]]
    rest = [point for point in front if point not in wanted]
    room = most - len(set(wanted))
    step = len(rest) / room if len(rest) > room > 0 else 1.0
    wanted += [rest[int(index * step)] for index in range(min(room, len(rest)))]
    return tuple(point for point in points if point in wanted)


def describe_point(point: FrontPoint) -> str:
    """Description of a point, and its relation to the answer."""
    parts = [*(["the answer"] if point.answer else []), point.what or point.how]
    if not point.feasible and point.error is not None:
        parts.append("exceeds the budget")
    return "; ".join([*parts, *([point.remark] if point.remark else [])])


def spread_of(timed: Latency | FrontPoint) -> str:
    """The 10th and the 90th percentile of its runs, ms; empty if they were not recorded, or are of one run only."""
    if timed.p10_ms is None or timed.p10_ms == timed.p90_ms:
        return ""
    return f"{format_ms(timed.p10_ms)} to {format_ms(timed.p90_ms)}"


def timing_of(point: FrontPoint) -> str:
    """Kind of a point's timing, which is also the phase of the run: times of two phases compare only
    approximately."""
    return "thoroughly" if point.raced else "briefly" if point.key else "at first"


def points_by_phase(points: Sequence[FrontPoint]) -> list[tuple[str, list[FrontPoint]]]:
    """All points that have an error, the fastest first, under the phase of the run that timed them."""
    with_error = sorted((point for point in points if point.error is not None), key=lambda point: point.latency_ms)
    of_phase = multimap((PHASES[timing_of(point)], point) for point in with_error)
    return [(phase, of_phase[phase]) for phase in PHASES.values() if phase in of_phase]


def _row(point: FrontPoint) -> Row:
    return (format_ms(point.latency_ms), point.others, timing_of(point), describe_point(point), point.answer)
