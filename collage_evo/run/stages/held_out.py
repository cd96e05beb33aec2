"""Held-out test: judges the winner of the race on samples that had no part in the search."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collage_evo.accuracy.judge import Judgement
from collage_evo.accuracy.resolution import sampling_notes
from collage_evo.answer.answer import Verdict
from collage_evo.answer.baselines import Baseline
from collage_evo.errors import InputError
from collage_evo.graph.prepare import PreparedModel
from collage_evo.measure.jobs import JudgeJob, Setting
from collage_evo.measure.judging import computes_exactly
from collage_evo.measure.sandbox import Sandbox
from collage_evo.placement.failure import Failure
from collage_evo.report.result import finite
from collage_evo.report.words import format_number
from collage_evo.run.context import RunContext
from collage_evo.run.stages.samples import SAMPLES, Sampled, held_out_samples

CHANCES = 3
"""So many answers may exceed the budget. After that, only placements in float32 remain, and once those expected to be
safer; single libraries are few, and each has its turn."""
CHANCE = 0.25
"""Largest chance, by the relative error, that as many other samples exceed the budget. For a metric that counts, few
samples carry too little information for this. Chosen."""
JUDGE_TIMEOUT_S = 600.0
"""Time limit of a metric in seconds: the user's may be slow over hundreds of samples, resampled many times for its
interval."""


@dataclass(frozen=True)
class HeldOut:
    """Errors of the answer on samples that the search never saw; None if there are none.

    ``broke``: by name in the race, contestants that were faster but exceeded the budget there, and by how much.
    """

    judged: Judgement | None
    sampled: Sampled
    broke: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def info(self, setting: Setting) -> Mapping[str, Any]:
        """The artifact's record of the budget that it was made for, and of its measured error."""
        error = self.judged.error if self.judged is not None and math.isfinite(self.judged.error) else None
        budget = finite(setting.limits.budget)
        return {"accuracy": {"metric": setting.metric, "over": setting.over, "budget": budget, "error": error}}


def hold_out(
    run: RunContext,
    model: PreparedModel,
    verdict: Verdict,
    candidates: Mapping[str, Path],
    baselines: Sequence[Baseline],
    last: Sequence[Baseline],
    safer: Callable[[Mapping[str, float]], Mapping[str, Path]],
    decide: Callable[[Mapping[str, Path], Sequence[Baseline]], Verdict],
) -> tuple[Verdict, HeldOut]:
    """Judge the winner on the held-out samples; if it exceeds the budget, race the others for the next answer.

    If all other placements that raced are excluded, safer ones take part, once.

    Args:
        run: its setting has the budget.
        model: computes the expected outputs of the samples.
        verdict: of the race.
        candidates: artifacts of the placements that raced.
        baselines: those that raced.
        last: those in float32, which race if no other is left.
        safer: returns more placements, from the errors of those by these names.
        decide: races candidates and baselines.
    """
    with run.stage("held-out samples"):
        samples, sampled = held_out_samples(run, model), run.store.get(SAMPLES, Sampled)
    if sampled is None:
        raise InputError(f"{run.work} has no samples; start the run again with --overwrite")
    if not samples.is_file():
        return verdict, HeldOut(None, sampled)
    aside = "the samples" if sampled.shared else "held-out samples"
    broke, seen, asked = dict[str, str](), dict[str, float](), False
    while True:
        artifact = {**candidates, **{b.name: b.artifact for b in baselines}}[verdict.answer]
        found, exact = judged(run, artifact, samples), computes_exactly(artifact)
        # A winner in float32 throughout stays: nothing is more exact.
        if exact or (isinstance(found, Judgement) and _keeps(run, found)):
            break
        if isinstance(found, Failure):
            why = f"could not be judged on {aside}: {found}"
        elif found.error > run.limits.budget or found.high is None:
            why = f"broke the budget: error {format_number(found.error)} on {aside}"
            seen[verdict.answer] = found.error
        else:
            most = f"up to {format_number(found.high)} on others"
            why = f"may break the budget: error {format_number(found.error)} on {aside}, {most}"
            seen[verdict.answer] = found.high
        broke[verdict.answer] = f"it {why}"
        run.reporter.log(f"what was the fastest {why}; the next one is compared")
        candidates = {name: path for name, path in candidates.items() if _remains(name, path, broke)}
        if not asked and all(map(computes_exactly, candidates.values())):
            asked, candidates = True, {**candidates, **safer(seen)}
        baselines = [b for b in baselines if b.name not in broke] or last
        verdict = decide(candidates, baselines)
    notes = [f"What was faster is not the answer: {reason}" for reason in broke.values()]
    if isinstance(found, Failure):
        notes.append(f"The answer could not be judged on held-out samples: {found}")
        return verdict, HeldOut(None, sampled, broke, tuple(notes))
    notes += sampling_notes(found, run.limits.budget, sampled.shared)
    return verdict, HeldOut(found, sampled, broke, tuple(notes))


def _keeps(run: RunContext, found: Judgement) -> bool:
    """Whether the judged answer is within the budget, and is likely to be so on other samples."""
    within = found.error <= run.limits.budget
    return within and (run.limits.by_metric or found.chance_over(run.limits.budget) <= CHANCE)


def _remains(name: str, artifact: Path, broke: Mapping[str, str]) -> bool:
    """Whether a placement still races."""
    return name not in broke and (len(broke) < CHANCES or computes_exactly(artifact))


def judged(run: RunContext, artifact: Path, samples: Path) -> Judgement | Failure:
    """Judge in a fresh process, which a user's metric may end."""
    with run.pool.uncontended() as cores, Sandbox(run.setting, cores, run.pool.memory_bytes) as sandbox:
        job = JudgeJob(str(artifact), str(samples))
        return sandbox.call(job, max(run.pool.timeout_s, JUDGE_TIMEOUT_S))
