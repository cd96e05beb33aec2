"""Libraries that the answer replaces: each with its defaults on the user's own file, by the final race."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from collage_evo.answer.answer import ITSELF, Verdict
from collage_evo.answer.baselines import Baseline
from collage_evo.answer.sequential import Ratio
from collage_evo.backends.registry import get_backend
from collage_evo.report.result import LibraryResult, Speedup, finite
from collage_evo.run.context import RunContext


def as_they_come(baselines: Sequence[Baseline], device: str) -> tuple[Baseline, ...]:
    """Those of ``baselines`` that are a library as a user runs it who passes the file and sets only the number of
    threads.

    They exclude a library whose default precision took no part, such as bfloat16 where only float32 may answer.
    """
    usual = {name: get_backend(name).like_defaults(device) for name in {baseline.backend for baseline in baselines}}
    ran = (baseline for baseline in baselines if baseline.outcome.latency_ms is not None)
    return tuple(b for b in ran if (variant := usual[b.backend]) is not None and variant.name == b.variant)


def near_defaults(baselines: Sequence[Baseline], device: str, far: float) -> tuple[Baseline, ...]:
    """Those that take at most ``far`` times as long as the fastest: slower ones would take most of a race's time."""
    found = as_they_come(baselines, device)
    fastest = min((b.outcome.latency_ms or 0.0 for b in baselines if b.outcome.latency_ms is not None), default=0.0)
    return tuple(b for b in found if (b.outcome.latency_ms or 0.0) <= far * fastest)


def compare_defaults(
    run: RunContext, verdict: Verdict, defaults: Sequence[Baseline], broke: Collection[str] = ()
) -> tuple[LibraryResult, ...]:
    """Speed-up of the answer over each library of ``defaults``, from the race that it won.

    ``broke``: names of those that exceeded the budget after it.
    """
    final, level = verdict.final, run.config.policy.race_level
    known = {verdict.best_single: verdict.speedup, verdict.answer: ITSELF}

    def row(library: Baseline, ratio: Ratio) -> LibraryResult:
        keeps = library.keeps(run.limits.budget) and library.name not in broke
        speedup = Speedup(ratio.estimate, ratio.low, ratio.high, ratio.rounds, ratio is ITSELF, final.seconds, level)
        ms, error = final.timing(library.name).median_ms, finite(library.outcome.error)
        return LibraryResult(library.name, library.backend, library.variant, ms, error, speedup, keeps)

    raced = (library for library in defaults if library.name in final.rounds)
    return tuple(
        row(one, known.get(one.name) or final.ratio(one.name, verdict.answer, 1.0 - level)) for one in raced
    )
