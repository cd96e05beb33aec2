"""Answer stages: the final race, and its winner delivered, checked and timed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from collage_evo.answer import answer as final_answer
from collage_evo.answer.answer import FinalSettings, Verdict
from collage_evo.answer.baselines import Baseline, feasible_baselines
from collage_evo.answer.delivery import ANSWER, Delivery
from collage_evo.answer.sequential import Stopping
from collage_evo.errors import InputError
from collage_evo.genome.failure import Failure
from collage_evo.report.result import Speeds
from collage_evo.report.stage import Stage
from collage_evo.run.context import RunContext
from collage_evo.run.deadline import seconds_left
from collage_evo.run.objectives import further_bounds
from collage_evo.runtime.artifact import read_artifact
from collage_evo.runtime.timing import LONG_S

ROUNDS_SHARE = 0.5
"""Share of the time until a run's deadline that the rounds of a race may take: loading before and judging after them
take the rest. Chosen."""
TRACED_MS, MOST_TRACED = 1e3, 10
"""About the time of the runs with profilers, and most of them. Chosen: the means of a few tell where time goes."""
LONGEST_TRACED_MS = 5e3
"""A longer run has none: loading and three runs would take a quarter of a minute more. Chosen."""


@dataclass(frozen=True)
class Answer:
    """The delivered artifact, with each region's time in one run (ms) and its errors against the reference.

    ``notes``: parts that run worse than they could, and why. ``call_ms``: what ``session.run`` adds to the regions;
    None if it could not be measured. ``kernels``: as :class:`Traced` has them; empty if it was not traced.
    """

    artifact: Path
    region_ms: tuple[float, ...]
    relative_error: float
    max_abs_error: float
    notes: tuple[str, ...] = ()
    call_ms: float | None = None
    kernels: tuple[tuple[int, tuple[str, ...], float], ...] = ()


def decide(
    run: RunContext,
    placements: Mapping[str, Path],
    baselines: Sequence[Baseline],
    seconds: float,
    incumbent: str = "",
    defaults: Sequence[Baseline] = (),
) -> Verdict:
    """Race the artifacts of ``placements``, those of ``baselines`` that are within the limits, and the libraries with
    their ``defaults``, for about so many ``seconds``.

    ``incumbent`` is the one of them that was the answer before.
    """
    most_s = ROUNDS_SHARE * seconds_left()
    settings = FinalSettings(Stopping(run.config.final.rounds, policy=run.config.policy), seconds, most_s)
    feasible = feasible_baselines(baselines, run.limits, further_bounds(run))
    with run.stage(Stage.FINAL):
        note = run.reporter.advance
        verdict = final_answer.decide(
            placements, feasible, run.machine, settings, lambda done: note(1, done), incumbent, defaults
        )
    for failure in (verdict.final.failed[name] for name in placements if name in verdict.final.failed):
        run.tell("one of the best placements failed its check and is left out", str(failure))
    return verdict


def answer_speeds(run: RunContext, verdict: Verdict, answer: Answer) -> Speeds | None:
    """Latencies of the answer in a single session and on the full machine; equal if one session fills the machine."""
    if run.target.accelerated:
        return None
    raced_ms = verdict.final.timing(verdict.answer).median_ms
    other_ms, reason = _other_speed(run, answer, raced_ms)
    by_throughput = run.config.search.objective == "throughput"
    machine_ms, latency_ms = (raced_ms, other_ms) if by_throughput else (other_ms, raced_ms)
    return Speeds(run.machine.most_sessions, latency_ms, machine_ms, 1e3 / machine_ms if machine_ms else None, reason)


def _other_speed(run: RunContext, answer: Answer, raced_ms: float) -> tuple[float | None, str]:
    """The time of the answer by the objective that was not searched for, measured once, or why there is none."""
    asked, machine = run.config.final.speeds, run.machine
    if machine.most_sessions <= 1:
        return raced_ms, ""
    if run.open_shapes:
        return None, "inputs of several sizes are timed in one session only"
    if asked == "searched":
        return None, "final.speeds leaves it out"
    if asked is None and raced_ms >= LONG_S * 1e3:
        return None, "a run takes long: final.speeds=both times it"
    with run.stage(Stage.OTHER_SPEED):
        sessions = 1 if machine.sessions > 1 else machine.most_sessions
        timing = machine.time(answer.artifact, run.config.fitness.timing.settings(), sessions)
    return (None, str(timing)) if isinstance(timing, Failure) else (timing.median_ms, "")


def traced(run: RunContext, answer: Answer) -> Answer:
    """``answer`` with the times of its kernels, as far as its libraries tell them.

    Raises:
        InputError: a run with the libraries' profilers failed.
    """
    if run.target.accelerated or not 0.0 < sum(answer.region_ms) < LONGEST_TRACED_MS:
        return answer
    runs = min(max(1, int(TRACED_MS / sum(answer.region_ms))), MOST_TRACED)
    found = run.machine.trace(answer.artifact, runs)
    if isinstance(found, Failure):
        raise InputError(f"a run with the libraries' profilers failed ({found})")
    return replace(answer, kernels=found.kernels)


def deliver(run: RunContext, name: str, artifact: Path, delivery: Delivery, info: Mapping[str, Any]) -> Answer:
    """Publish ``artifact``, by its ``name`` in the race, as ``best.collage``, verified once more, in a fresh process.

    ``info`` is added to the artifact's information.

    Raises:
        InputError: it failed its check; the answer so far stays.
    """
    answers: list[Answer] = []

    def check(written: Path) -> None:
        opened, profile = run.machine.check(written)
        if isinstance(opened, Failure):
            raise InputError(f"the answer failed its check ({opened})")
        region_ms, call_ms = ((), None) if isinstance(profile, Failure) else (profile.region_ms, profile.call_ms)
        errors = (opened.relative_error, opened.max_abs_error)
        answers.append(Answer(delivery.best, region_ms, *errors, opened.notes, call_ms))

    with run.stage(Stage.VERIFY):
        key = read_artifact(artifact).profiles[0].info.get("key", name)
        delivery.put(artifact, info={**info, ANSWER: key}, check=check)
    return answers[0]
