"""From what the search found to the answer: compiled, raced, delivered and checked."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from collage_evo.backends.base import BuildFailure
from collage_evo.errors import InputError
from collage_evo.fitness.build.compiler import Compiler, PieceCache
from collage_evo.fitness.failure import Failure
from collage_evo.fitness.final import answer
from collage_evo.fitness.final.answer import FinalSettings, Verdict
from collage_evo.fitness.final.baselines import Baseline
from collage_evo.fitness.final.sequential import Stopping
from collage_evo.fitness.measure.jobs import OpenJob, ProfileJob
from collage_evo.fitness.measure.sandbox import Sandbox
from collage_evo.genome.space import SearchSpace
from collage_evo.patterns.match import Placement
from collage_evo.run.context import RunContext
from collage_evo.run.delivery import Delivery
from collage_evo.run.search import Found
from collage_evo.runtime.artifact import Profile, write_artifact
from collage_evo.runtime.timing import TimingSettings


@dataclass(frozen=True)
class Answer:
    """The delivered artifact, with each region's time in one run (ms) and its errors against the reference."""

    artifact: Path
    region_ms: tuple[float, ...]
    relative_error: float
    max_abs_error: float


def compile_candidates(run: RunContext, space: SearchSpace, found: Found) -> Mapping[str, Path]:
    """The placements likeliest the fastest as artifacts."""
    candidates: dict[str, Path] = {}
    with run.stage("compile"):
        for index, placement in enumerate(found.ranked[: run.config.final.finalists]):
            name = f"placement-{index}"
            artifact = write_placement(run, name, placement, space)
            if isinstance(artifact, BuildFailure):
                run.reporter.say(f"placement {placement.key} could not be built again: {artifact.reason}")
            else:
                candidates[name] = artifact
    if not candidates:
        raise InputError("no placement could be compiled; run again with --debug")
    return candidates


def write_placement(
    run: RunContext, name: str, placement: Placement, space: SearchSpace
) -> Path | BuildFailure:
    """Compile ``placement`` into an artifact in the work directory."""
    compiler = Compiler(run.target, PieceCache(Path(run.setting.cache), run.setting.cache_bytes))
    program = compiler.placement(space.graph, placement)
    if isinstance(program, BuildFailure):
        return program
    artifact = run.work / f"{name}.collage"
    borders = {"/".join(engine): asdict(border) for engine, border in space.cost.borders.items()}
    write_artifact(artifact, [Profile(program, {"key": placement.key, "borders": borders})], run.target)
    return artifact


def decide(run: RunContext, candidates: Mapping[str, Path], baselines: Sequence[Baseline]) -> Verdict:
    """Race the candidates, then the best of them against every baseline, each in a process of its own."""
    final = run.config.final
    turn = TimingSettings(1, 2, final.turn_seconds, max_seconds=30.0)
    settings = FinalSettings(Stopping(final.rounds), turn)
    with run.stage("final: taking turns"):
        return answer.decide(candidates, baselines, run.pool, settings, lambda note: run.reporter.advance(1, note))


def deliver(
    run: RunContext,
    verdict: Verdict,
    candidates: Mapping[str, Path],
    baselines: Sequence[Baseline],
    delivery: Delivery,
) -> Answer:
    """Put the answer into place as ``best.collage`` and verify it once more, in a fresh process."""
    artifacts = {**candidates, **{b.name: b.artifact for b in baselines}}
    with run.stage("verify"):
        best = delivery.put(artifacts[verdict.answer])
        for artifact in candidates.values():  # each as large as the model, and soon compiled again
            shutil.rmtree(artifact)
        with run.pool.undisturbed() as cores, Sandbox(run.setting, cores, run.pool.memory_bytes) as sandbox:
            checked = sandbox.call(OpenJob(str(best)), run.pool.timeout_s)
            profile = sandbox.call(ProfileJob(runs=10), run.pool.timeout_s)
    if isinstance(checked, Failure):
        raise InputError(f"{best} failed its check ({checked}); run again with --debug")
    region_ms = () if isinstance(profile, Failure) else profile.region_ms
    return Answer(best, region_ms, checked.relative_error, checked.max_abs_error)
