"""What a person may try next, by what the run itself measured, in sentences."""

from __future__ import annotations

import math
from pathlib import Path

from collage_evo.report.going_on import goes_on
from collage_evo.report.places import COMMAND, command, home_of
from collage_evo.report.result import FrontPoint, Result
from collage_evo.report.words import told_engine, told_ms, told_ratio

WORTH = 1.05
"""A point over the budget is worth a word where it is so many times as fast as the answer."""
LATE = 0.7
"""A search found its best after this share of its time: more time may find a better one."""
UNSURE = 1.1
"""An interval whose ends are so many times apart tells little."""
INT8 = "int8"


def advice(result: Result, directory: Path) -> list[str]:
    """Sentences, the likeliest to help first; none where a mixture won and nothing stands in the way of more."""
    home = home_of(directory)
    found = [_larger_budget(result, home)]
    if result.answer != "placement":
        found = [
            _budget_broken(result),
            _library_faster(result),
            _library_over_budget(result, home),
            _quieter(result),
            _data(result),
            *found,
            _more_time(result, home),
            _more_threads(result),
        ]
    elif result.accuracy.random:
        found.insert(0, "give your own inputs with --data: the error above is on random ones")
    return [one for one in found if one and (COMMAND not in one or goes_on(home))]


def _budget_broken(result: Result) -> str:
    """Where not even float32 keeps it, or nothing else does."""
    answer = next((point for point in result.front if point.answer), None)
    if answer is None or answer.feasible:
        return ""
    return "no library keeps this budget on this model, not even in float32: choose a larger one (--budget)"


def _library_faster(result: Result) -> str:
    """A library that keeps the budget and was slower when it was timed alone than it is now."""
    faster = [one for one in result.libraries if one.keeps and one.speedup.high < 1.0]
    if not faster:
        return ""
    named = told_engine(faster[0].backend, faster[0].variant)
    return f"{named} is faster now than when it was first timed: run again with --overwrite when the machine is quiet"


def _library_over_budget(result: Result, home: Path) -> str:
    """A library that is faster as it comes, and breaks the budget."""
    faster = [one for one in result.libraries if not one.keeps and one.error and one.speedup.high < 1.0]
    if not faster or result.accuracy.metric:
        return ""
    fastest = min(faster, key=lambda one: one.speedup.estimate)
    return _would_allow(fastest.error or 0.0, told_engine(fastest.backend, fastest.variant), home)


def _quieter(result: Result) -> str:
    """Where times of the answer itself are far apart, nothing can be told from them."""
    best, tried = result.best, result.candidate_speedup
    if not best.p10_ms or not best.p90_ms or not tried.rounds:
        return ""
    if tried.high / max(tried.low, 1e-9) < UNSURE or best.p90_ms / best.p10_ms < 2 * UNSURE:
        return ""
    return (
        f"times of the same model were {told_ms(best.p10_ms)} to {told_ms(best.p90_ms)} ms, so something else used "
        "the machine: run again when it is quiet"
    )


def _data(result: Result) -> str:
    """int8 needs ranges, which come from data."""
    lower = [point for point in result.front if not point.exact]
    if result.accuracy.budget == "exact" or not result.accuracy.random or not lower:
        return ""
    if any(INT8 in point.arithmetics for point in result.front):
        return ""
    return "give inputs of your own (--data): int8 takes part then, which is mostly the fastest"


def _larger_budget(result: Result, home: Path) -> str:
    """What was measured over the budget and is faster than the answer."""
    alone = result.answer != "placement"
    if result.accuracy.budget == "exact":
        return "allow a small error (--budget 0.02): bfloat16 and int8 take part then" if alone else ""
    answer_ms = result.best.median_ms or math.inf
    over = [point for point in result.front if not point.feasible and point.error is not None and point.pareto]
    faster = [point for point in over if point.latency_ms * WORTH < answer_ms]
    if not faster or result.accuracy.metric:
        return ""
    nearest = min(faster, key=_error)
    gain = told_ratio(answer_ms / nearest.latency_ms)
    return _would_allow(_error(nearest), f"about {gain} times this speed", home)


def _would_allow(error: float, what: str, home: Path) -> str:
    budget = f"{_rounded_up(error):g}"
    return f"an error of {budget} would allow {what}: {command('pick', home, f'--budget {budget}')}"


def _more_time(result: Result, home: Path) -> str:
    search, tried = result.search, result.candidate_speedup
    if search is None:
        return ""
    late = search.time_to_best_seconds > LATE * search.wall_seconds
    close = bool(tried.rounds) and tried.high > 1.0 and tried.estimate > 1.0
    if not late and not close:
        return ""
    why = "the search found its best near its end" if late else "the best mixture may be faster, but not for certain"
    seconds = 3 * max(20, round(search.wall_seconds))
    return f"{why}: {command('resume', home, f'-s search.seconds={seconds}')}"


def _more_threads(result: Result) -> str:
    threads, cores = int(result.target["threads"]), int(result.environment.get("cores", 1))
    allowed = int(result.target.get("allowed_threads", threads))  # not in older results
    if result.objective == "throughput" or result.target["device"] != "cpu" or allowed >= cores:
        return ""
    return f"it runs on {threads} of {cores} cores: -s target.threads={cores} makes one run faster"


def _error(point: FrontPoint) -> float:
    return math.inf if point.error is None else point.error


def _rounded_up(error: float) -> float:
    """The next number of two digits."""
    power = 10.0 ** (math.floor(math.log10(error)) - 1)
    return float(f"{math.ceil(error * 1.05 / power) * power:.2g}")
