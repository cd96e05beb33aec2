"""Each backend alone on the person's own model: gives an artifact and a latency, or the reason for none."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from collage_evo.backends.base import Backend
from collage_evo.errors import UnavailableError
from collage_evo.fitness.evaluate import outcome_of
from collage_evo.fitness.jobs import WholeJob
from collage_evo.fitness.outcome import Outcome
from collage_evo.fitness.pool import MeasuringPool
from collage_evo.fitness.sandbox import Sandbox
from collage_evo.runtime.timing import TimingSettings

GIVE_UP = 3.0
"""A baseline this many times as slow as the best before it is timed no further."""


@dataclass(frozen=True)
class Baseline:
    """One backend, in one variant, that runs the whole model."""

    name: str
    backend: str
    variant: str
    artifact: Path
    outcome: Outcome


def measure_baselines(
    backends: Sequence[Backend],
    directory: Path,
    pool: MeasuringPool,
    timing: TimingSettings,
    on_done: Callable[[Baseline], None],
) -> tuple[Baseline, ...]:
    """Measure every backend in each variant that the tolerance allows, alone in a process of its own.

    Those that run most models well come first. One that is ``GIVE_UP`` times as slow as the best before it has the
    latency of the few runs it made (one, where a run takes long), and a reason that says so.
    """
    found: list[Baseline] = []
    with pool.quiet() as cores:
        for backend in sorted(backends, key=lambda backend: not backend.runs_any_model):
            for variant in backend.variants_within(pool.setting.tolerance):
                name = backend.name if variant == "default" else f"{backend.name}/{variant}"
                artifact = directory / f"{name.replace('/', '-')}.collage"
                best_ms = min((b.outcome.latency_ms or math.inf for b in found), default=math.inf)
                with Sandbox(pool.setting, cores, pool.memory_bytes) as sandbox:
                    job = WholeJob(backend.name, variant, str(artifact), timing, GIVE_UP * best_ms)
                    outcome = outcome_of(sandbox.call(job, pool.timeout_s))
                found.append(Baseline(name, backend.name, variant, artifact, _remarked(outcome, best_ms, timing)))
                on_done(found[-1])
    return tuple(found)


def _remarked(outcome: Outcome, best_ms: float, timing: TimingSettings) -> Outcome:
    """With the reason why it was given up, if it was."""
    if outcome.latency_ms is None or outcome.latency_ms <= GIVE_UP * best_ms or outcome.n >= timing.min_runs:
        return outcome
    runs = "run" if outcome.n == 1 else "runs"
    behind = outcome.latency_ms / best_ms
    return replace(outcome, reason=f"given up after {outcome.n} {runs}, {behind:.1f} times as slow as the best")


def best_single(baselines: Sequence[Baseline]) -> Baseline:
    """The fastest baseline.

    Raises:
        UnavailableError: no backend runs the whole model; the message gives each one's reason.
    """
    runnable = [b for b in baselines if b.outcome.latency_ms is not None]
    if not runnable:
        why = "; ".join(f"{b.name}: {b.outcome.reason}" for b in baselines)
        raise UnavailableError(f"no backend alone runs this model ({why}): check the model with its exporter")
    return min(runnable, key=lambda b: b.outcome.latency_ms or 0.0)
