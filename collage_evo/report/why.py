"""Reasons for the answer, in sentences for the page."""

from __future__ import annotations

import math

from collage_evo.report.front import PHASES, fastest_baselines
from collage_evo.report.result import FrontPoint, Result
from collage_evo.report.summary import describe_gain, format_level
from collage_evo.report.words import format_ms, format_name, format_number, format_ratio

Single = tuple[str, str, str, str, bool]
"""A library that ran the whole model: its name, ms, error, remark; whether it is the answer."""

IN_TURNS, AT_START, NOT_TIMED = "Timed in turns with the answer", PHASES["alone"], "Not timed"
SINGLES = (IN_TURNS, AT_START, NOT_TIMED)
"""Phases of a run that time libraries."""


def why(result: Result) -> list[str]:
    """How the answer was decided, what would have been faster, and which libraries could not run the model."""
    return [_decided(result), *_over(result), *_failed(result)]


def _decided(result: Result) -> str:
    """The comparison that the answer won, or why no mixture did."""
    speed, tried, best = result.speedup_over_best_single, result.candidate_speedup, format_name(result.best_single)
    if result.not_searched:
        return f"The model only runs whole, in one library: {result.not_searched}."
    if not speed.by_definition:
        return (
            f"It was timed in turns with the best libraries, {len(speed.rounds)} rounds over {speed.seconds:.0f} s, "
            f"and was {describe_gain(speed)} as fast as {best}, the best of them: the whole "
            f"{format_level(speed)} interval is above 1."
        )
    if tried.by_definition or not tried.rounds:
        return f"No mixture of libraries and precisions keeps the budget and was compared, so the answer is {best}."
    return (
        f"No mixture of libraries and precisions was faster for certain than {best}: the best one was "
        f"{describe_gain(tried)} as fast in {len(tried.rounds)} rounds over {tried.seconds:.0f} s, and the "
        f"{format_level(tried)} interval has to be above 1 as a whole."
    )


def _over(result: Result) -> list[str]:
    """Points that are faster than the answer and not allowed."""
    answer_ms = result.best.median_ms or math.inf
    over = [p for p in result.front if not p.feasible and p.error is not None and p.latency_ms < answer_ms]
    if not over:
        return []
    fastest = min(over, key=_latency)
    gain = format_ratio(answer_ms / fastest.latency_ms)
    return [
        f"{fastest.what or fastest.how} would be about {gain} times as fast ({format_ms(fastest.latency_ms)} ms), "
        f"but its error of {format_number(fastest.error)} is over the budget."
    ]


def _failed(result: Result) -> list[str]:
    """Libraries that could not run the whole model."""
    reasons = [f"{one.reason}." for one in result.baselines if one.reason and one.median_ms is None]
    return list(dict.fromkeys(reasons))


def _latency(point: FrontPoint) -> float:
    return point.latency_ms


def singles_in_words(result: Result) -> list[tuple[str, list[Single]]]:
    """Each library that ran the whole model, under the phase of the run that timed it; the answer is in the first.

    The fastest first. Times of two phases compare only approximately, since the machine's other load may change.
    """
    turns = {one.name: one.latency_ms for one in result.libraries if one.latency_ms is not None}
    raced = {point.single for point in result.front if point.single and point.raced} | turns.keys()
    errors = {point.single: point.error for point in result.front if point.single}
    shown = {point.single for point in fastest_baselines(result.front)}
    rows: dict[str, list[tuple[float, Single]]] = {phase: [] for phase in SINGLES}
    if result.answer == "placement":
        error = next((point.error for point in result.front if point.answer), None)
        rows[IN_TURNS] += [_single("The answer", result.best.median_ms, error, "", answer=True)]
    for one in result.baselines:
        if ":" in one.name:  # a mixture by a rule of thumb, no library
            continue
        ms = turns.get(one.name, one.median_ms)
        remark = "the best single library" if one.name == result.best_single else one.reason
        if not remark and shown and one.name not in shown:
            remark = "another way of the same library"
        answer = one.name == result.answer
        phase = NOT_TIMED if ms is None else IN_TURNS if answer or one.name in raced else AT_START
        remark = f"the answer, {remark}" if answer else remark
        rows[phase] += [_single(format_name(one.name), ms, errors.get(one.name), remark, answer)]
    return [(phase, [row for _, row in sorted(found)]) for phase, found in rows.items() if found]


def _single(name: str, ms: float | None, error: float | None, remark: str, answer: bool) -> tuple[float, Single]:
    """A row, and its sort key."""
    shown = "-" if ms is None else format_number(error)
    return math.inf if ms is None else ms, (name, format_ms(ms), shown, remark, answer)
