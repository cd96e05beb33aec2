"""Advice at the end of a run: what the user may try next, from the measurements of the run."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from collage_evo.answer.answer import Proof
from collage_evo.backends.variants import Arithmetic, serves
from collage_evo.policy import Policy
from collage_evo.report.finished import goes_on
from collage_evo.report.places import COMMAND, command, home_of
from collage_evo.report.result import Accuracy, Result
from collage_evo.report.words import format_engine, format_ms, format_ratio, known_backend

WORTH = 1.05
"""A point that exceeds the budget is worth a sentence if it is so many times as fast as the answer."""
LATE = 0.7
"""If a search found its best after this share of its time, more time may find a better one."""
UNSURE = 1.1
"""An interval whose ends are so many times apart carries little information."""
SHORT_MS = Policy().threads_short_ms
"""A run that takes less time (ms) gains nothing from more threads."""
USUAL_BUDGET = 0.02
ROUNDING = 1e-4
"""A smaller error is of float32, and tells nothing of how errors of a lower precision grow on other samples."""
UNSEEN = 1.5
"""Error on held-out samples over that on samples of the search, at most, where no answer shows it. Chosen."""

Rule = Callable[[Result, Path], str]
"""A piece of advice on a result and its run directory: a sentence, empty if its condition does not hold.

The docstring of a rule is its condition, as docs/reference/report.md has it.
"""


def budget_too_small(result: Result, home: Path) -> str:
    """No library meets the budget, not even in float32"""
    answer = result.point
    if answer is None or answer.feasible or any(point.feasible and point.single for point in result.front):
        return ""
    return "no library meets this budget on this model, not even in float32: choose a larger one (--budget)"


def library_over_budget(result: Result, home: Path) -> str:
    """A library with its defaults is faster than the one that won, and exceeds a budget of relative error"""
    faster = [one for one in result.libraries if not one.keeps and _finite(one.error) and one.speedup.high < 1.0]
    if result.placed or not faster or result.accuracy.metric or result.accuracy.budget == "exact":
        return ""
    fastest = min(faster, key=lambda one: one.speedup.estimate)
    point = next((point for point in result.front if point.single == fastest.name), None)
    bound = held_out_bound(result.accuracy, fastest.error or 0.0, point.held_out if point else None)
    return _may_allow(bound, format_engine(fastest.backend, fastest.variant), home)


def noisy_times(result: Result, home: Path) -> str:
    """No placement won, and times of the answer vary so much that the comparison could not decide"""
    best, tried = result.best, result.candidate_speedup
    if result.placed or not best.p10_ms or not best.p90_ms or not tried.rounds:
        return ""
    if tried.high / max(tried.low, 1e-9) < UNSURE or best.p90_ms / best.p10_ms < 2 * UNSURE:
        return ""
    return (
        f"times of the same model were {format_ms(best.p10_ms)} to {format_ms(best.p90_ms)} ms, so something else "
        "may have used the machine: run again when it is quiet"
    )


def data_for_int8(result: Result, home: Path) -> str:
    """Inputs were random, a library has int8 on the CPU, the budget allows it, and no measured placement uses it"""
    largest = result.accuracy.largest
    if result.accuracy.budget == "exact" or largest is None or largest < Arithmetic.INT8.roundoff:
        return ""
    if not result.accuracy.random or result.made_for.accelerated or result.not_searched:
        return ""
    if any(Arithmetic.INT8 in point.arithmetics for point in result.front):
        return ""
    if Arithmetic.INT8 not in _lower_precisions(result):
        return ""
    return "give inputs of your own (--data): int8 takes part then, which is mostly the fastest"


def own_inputs(result: Result, home: Path) -> str:
    """Inputs were random, the answer computes in a lower precision, and the advice on int8 was not given"""
    answer = result.point
    if not result.accuracy.random or answer is None or answer.exact or data_for_int8(result, home):
        return ""
    return "give inputs of your own (--data): the error above is on random ones"


def small_error(result: Result, home: Path) -> str:
    """The budget is `exact`, no placement won, and a library has a lower precision on this device"""
    answer = result.point
    if result.accuracy.budget != "exact" or result.placed or (answer is not None and not answer.exact):
        return ""
    if not _lower_precisions(result):
        return ""
    data = " with data of your own (--data)" if result.accuracy.random and not result.made_for.accelerated else ""
    return f"allow a small error (--budget {USUAL_BUDGET}){data}: lower precisions take part then"


def larger_budget(result: Result, home: Path) -> str:
    """Something that was measured is at least 1.05 times as fast, and exceeds a budget of relative error"""
    if result.accuracy.budget == "exact" or result.accuracy.metric:
        return ""
    over = [point for point in result.front if not point.feasible and _finite(point.error) and point.pareto]
    over += [point for point in result.front if point.held_out is not None]
    faster = [point for point in over if point.latency_ms * WORTH < result.best_ms]
    if not faster:
        return ""
    bounds = {held_out_bound(result.accuracy, point.error or 0.0, point.held_out): point for point in faster}
    nearest = min(bounds)
    gain = format_ratio(result.best_ms / bounds[nearest].latency_ms)
    return _may_allow(nearest, f"about {gain} times this speed", home)


def more_time(result: Result, home: Path) -> str:
    """No placement won, but the best may be faster than every library, and is probably so or was found late"""
    search, tried = result.search, result.candidate_speedup
    if result.placed or search is None or search.skipped or not tried.rounds or tried.high <= 1.0:
        return ""
    late = search.time_to_best_seconds > LATE * search.wall_seconds
    if not late and tried.estimate <= 1.0:
        return ""
    why = "the search found its best near its end" if late else "the best placement may be faster, not for certain"
    seconds = 3 * max(20, round(search.wall_seconds))
    return f"{why}: {command('resume', home, f'-s search.seconds={seconds}')}"


def not_compared(result: Result, home: Path) -> str:
    """Time was over before the final comparison"""
    if result.proof is not Proof.NONE:
        return ""
    return f"finish the run, which compares its answer: {command('resume', home)}"


def search_skipped(result: Result, home: Path) -> str:
    """The run skipped its search, because a first placement sufficed or its time was too short"""
    if result.search is None or not result.search.skipped:
        return ""
    return f"search for a faster placement, which the run skipped: {command('resume', home)}"


def more_threads(result: Result, home: Path) -> str:
    """No placement won, the search was for latency on the CPU, a run takes 1 ms or more, and cores are left over"""
    threads, cores = int(result.target["threads"]), int(result.environment.get("cores", 1))
    allowed = int(result.target["allowed_threads"])
    if result.placed or result.objective == "throughput" or result.made_for.accelerated:
        return ""
    if allowed >= cores or result.best_ms < SHORT_MS:
        return ""
    return f"it runs on {threads} of {cores} cores: --threads {cores} may make one run faster"


ADVICE: tuple[Rule, ...] = (
    budget_too_small,
    library_over_budget,
    noisy_times,
    data_for_int8,
    own_inputs,
    small_error,
    larger_budget,
    more_time,
    not_compared,
    search_skipped,
    more_threads,
)
"""Rules in order: the likeliest to help first."""


def advice(result: Result, directory: Path) -> list[str]:
    """Sentences, the likeliest to help first; only those whose command the run in ``directory`` accepts."""
    home, given = home_of(directory), dict[str, str]()
    for sentence in filter(None, (rule(result, home) for rule in ADVICE)):
        _, has_command, arguments = sentence.partition(COMMAND)
        if not has_command or goes_on(home):
            given.setdefault(arguments if has_command else sentence, sentence)  # two may lead to one command
    return list(given.values())


def _lower_precisions(result: Result) -> set[Arithmetic]:
    """Precisions that the run's libraries can compute in on its target, apart from float32."""
    backends = filter(None, map(known_backend, result.environment.get("backends", {})))
    variants = (variant for backend in backends for variant in backend.variants)
    return {one.arithmetic for one in variants if not one.exact and serves(one, result.made_for)}


def held_out_bound(accuracy: Accuracy, error: float, known: float | None = None) -> float:
    """The error on held-out samples, or its upper end, of what has ``error`` on those of the search.

    Where it was not judged on them, it is larger by as much as the answer's is.
    """
    if known is not None:
        return known
    high = accuracy.interval[1] if accuracy.interval else accuracy.error_held_out
    if high is None:
        return error
    if not accuracy.error_search or accuracy.error_search < ROUNDING:
        return UNSEEN * error
    return error * max(1.0, high / accuracy.error_search)


def _may_allow(error: float, what: str, home: Path) -> str:
    budget = f"{_rounded_up(error):g}"
    return f"an error of {budget} may allow {what}: {command('pick', home, f'--budget {budget}')}"


def _finite(error: float | None) -> bool:
    return error is not None and 0.0 < error < math.inf


def _rounded_up(error: float) -> float:
    """The next number of two digits."""
    power = 10.0 ** (math.floor(math.log10(error)) - 1)
    return float(f"{math.ceil(error * 1.05 / power) * power:.2g}")
