"""What the answer replaces: each library as it comes, on the person's own file, timed in turns with the answer."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from collage_evo.backends.registry import get_backend
from collage_evo.fitness.final.answer import ITSELF, Verdict
from collage_evo.fitness.final.baselines import Baseline
from collage_evo.fitness.final.race import Race, race
from collage_evo.fitness.final.sequential import FEWEST, LOOKS, RACE_LEVEL, Ratio
from collage_evo.report.result import LibraryResult, Speedup, finite
from collage_evo.run.context import RunContext

ROUNDS, SECONDS = 8, 10.0
"""Of the turns that a library takes with the answer where the final race does not tell: it is mostly far behind."""
SIGNIFICANCE = 1.0 - RACE_LEVEL
ANSWER = "the answer"


def as_they_come(baselines: Sequence[Baseline], device: str) -> tuple[Baseline, ...]:
    """Those of ``baselines`` that are a library which a person hands the file to and sets nothing but threads.

    A library whose own choice of precision took no part, as bfloat16 where only float32 may answer, is none of them.
    """
    usual = {name: get_backend(name).like_defaults(device) for name in {baseline.backend for baseline in baselines}}
    ran = (baseline for baseline in baselines if baseline.outcome.latency_ms is not None)
    return tuple(b for b in ran if (variant := usual[b.backend]) is not None and variant.name == b.variant)


def measure_libraries(
    run: RunContext, verdict: Verdict, artifact: Path, baselines: Sequence[Baseline], broke: Collection[str] = ()
) -> tuple[LibraryResult, ...]:
    """How many times as fast as each library as it comes the answer is, whose ``artifact`` is delivered.

    The final race tells that of its contenders. Who was too far behind to take part has a few rounds with the answer
    of its own, loaded anew in each as in the race. ``broke``: names of those that broke the budget after it.
    """
    libraries = as_they_come(baselines, run.target.device)
    final = verdict.final
    raced = {b.name for b in libraries if len(final.rounds.get(b.name, ())) >= LOOKS[0]} | {verdict.best_single}
    missing = {b.name: b.artifact for b in libraries if b.name not in raced and b.name != verdict.answer}
    turns = _turns(run, {ANSWER: artifact, **missing}) if missing else None
    rows = []

    def row(library: Baseline, ms: float | None, ratio: Ratio, seconds: float) -> LibraryResult:
        keeps = library.keeps(run.limits.budget) and library.name not in broke
        speedup = Speedup(ratio.estimate, ratio.low, ratio.high, ratio.rounds, ratio is ITSELF, seconds)
        error = finite(library.outcome.error)
        return LibraryResult(library.name, library.backend, library.variant, ms, error, speedup, keeps)

    for library in libraries:
        race_ms = final.timing(library.name).median_ms if library.name in final.rounds else None
        if library.name == verdict.answer:
            rows.append(row(library, race_ms, ITSELF, final.seconds))
        elif library.name == verdict.best_single:
            rows.append(row(library, race_ms, verdict.speedup, final.seconds))
        elif library.name in raced:
            ratio = Ratio.of(final.logs(library.name, verdict.answer), SIGNIFICANCE)
            rows.append(row(library, race_ms, ratio, final.seconds))
        elif turns is not None and turns.length > 1 and {library.name, ANSWER} <= turns.rounds.keys():
            ratio = Ratio.of(turns.logs(library.name, ANSWER), SIGNIFICANCE)
            rows.append(row(library, turns.timing(library.name).median_ms, ratio, turns.seconds))
    return tuple(rows)


def _turns(run: RunContext, artifacts: Mapping[str, Path]) -> Race:
    began = time.monotonic()

    def still(so_far: Race) -> Collection[str]:
        run.reporter.advance()
        spent = time.monotonic() - began
        over = so_far.length >= FEWEST and spent + spent / max(1, so_far.length) > SECONDS
        return () if over else list(so_far.rounds)

    with run.stage("libraries as they come", ROUNDS):
        return race(artifacts, run.whole, ROUNDS, still)
