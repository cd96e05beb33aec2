"""What the answer replaces: each library as it comes, on the person's own file, timed in turns with the answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from collage_evo.backends.registry import get_backend
from collage_evo.fitness.final.answer import ITSELF, Verdict
from collage_evo.fitness.final.baselines import Baseline
from collage_evo.fitness.final.race import Race, race
from collage_evo.fitness.final.sequential import LOOKS, Ratio
from collage_evo.report.result import LibraryResult, Speedup, finite
from collage_evo.run.context import RunContext

ROUNDS, SECONDS = 8, 10.0
"""Of the turns that a library takes with the answer where the final race does not tell: it is mostly far behind."""
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
    rows, level = [], run.config.policy.race_level

    def row(library: Baseline, ms: float | None, ratio: Ratio, seconds: float) -> LibraryResult:
        keeps = library.keeps(run.limits.budget) and library.name not in broke
        speedup = Speedup(ratio.estimate, ratio.low, ratio.high, ratio.rounds, ratio is ITSELF, seconds, level)
        error = finite(library.outcome.error)
        return LibraryResult(library.name, library.backend, library.variant, ms, error, speedup, keeps)

    for library in libraries:
        name, found, over = library.name, final, verdict.answer
        if name != over and name not in raced:
            if turns is None or turns.length < 2 or not {name, ANSWER} <= turns.rounds.keys():
                continue
            found, over = turns, ANSWER
        known = {verdict.best_single: verdict.speedup, verdict.answer: ITSELF}
        ratio = known.get(name) or Ratio.of(found.logs(name, over), 1.0 - level)
        ms = found.timing(name).median_ms if name in found.rounds else None
        rows.append(row(library, ms, ratio, found.seconds))
    return tuple(rows)


def _turns(run: RunContext, artifacts: Mapping[str, Path]) -> Race:
    def still(so_far: Race) -> Collection[str]:
        run.reporter.advance()
        return () if so_far.over(SECONDS) else list(so_far.rounds)

    with run.stage("libraries as they come", ROUNDS):
        return race(artifacts, run.whole, ROUNDS, still)
