"""Held-out test: judges the winner of the race on samples that had no part in the search."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from collage_evo.accuracy.invariance import Invariance, measure_invariance
from collage_evo.accuracy.judge import Judgement
from collage_evo.accuracy.limits import Limits
from collage_evo.accuracy.resolution import sampling_notes
from collage_evo.accuracy.samples import how_to_hold_out, read_samples
from collage_evo.answer.answer import Verdict
from collage_evo.answer.baselines import Baseline
from collage_evo.errors import DamagedFile
from collage_evo.fitness.jobs import Setting
from collage_evo.genome.failure import Failure
from collage_evo.graph.prepare import PreparedModel
from collage_evo.graph.reference.reference import Reference
from collage_evo.hardware.slots import usable_cores
from collage_evo.report.accuracy import describe_invariance
from collage_evo.report.result import InvarianceResult, finite
from collage_evo.report.sizes import LatencyBySize
from collage_evo.report.stage import Stage
from collage_evo.report.words import format_number
from collage_evo.run.budget import delivery_s, seconds_each
from collage_evo.run.context import RunContext
from collage_evo.run.deadline import in_time
from collage_evo.run.stages.compile import ROOM, CompiledCandidates
from collage_evo.run.stages.samples import SAMPLES, Sampled, held_out_samples, sizes_of
from collage_evo.run.stages.sizes import BySize, times_by_size
from collage_evo.runtime.manifest import computes_exactly
from collage_evo.runtime.signature import signature_of

CHANCES = 3
"""So many answers may exceed the budget. After that, only placements in float32 remain, and once those expected to
be safer; single libraries are few, and each has its turn."""
FIXED = "accuracy.batch_invariant had nothing to measure: no batch of independent rows, and no mask, has an open size"
"""Note on an answer of fixed shapes."""
UNSIZED = "The answer was not compared with the libraries by size"
"""Note on an answer for which there was no time for that, or where it failed."""
UNJUDGED = "Time was over before the answer was judged on held-out samples"
"""Note on such an answer."""
RISKY = 0.85
"""Share of the budget from which an error in the search is likely to exceed it on held-out samples. Seen: four of
seven winners from 0.89 on exceeded it, and each time the others raced again; none of fourteen below did."""
CHANCE = 0.25
"""Largest chance, by the relative error, that as many other samples exceed the budget. For a metric that counts, few
samples carry too little information for this. Chosen."""


@dataclass(frozen=True)
class Exclusion:
    """Why a winner is not the answer, and the error that it may have on other samples; None if that is unknown."""

    reason: str
    error: float | None = None


@dataclass(frozen=True)
class HeldOut:
    """Errors of the answer on samples that the search never saw; None if there are none.

    ``excluded``: by name in the race, why contestants that were faster are not the answer. ``invariance``: of the
    answer; None if its sizes are fixed. ``by_size``: of the answer; ``slow``: by name, at which size contestants are
    slower than a library, and therefore not the answer.
    """

    judged: Judgement | None
    sampled: Sampled
    excluded: Mapping[str, Exclusion] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    invariance: InvarianceResult | None = None
    by_size: LatencyBySize | None = None
    slow: Mapping[str, str] = field(default_factory=dict)

    def info(self, setting: Setting) -> Mapping[str, Any]:
        """The artifact's record of the budget that it was made for, and of its measured error."""
        error = self.judged.error if self.judged is not None and math.isfinite(self.judged.error) else None
        budget = finite(setting.limits.budget)
        return {"accuracy": {"metric": setting.metric, "over": setting.over, "budget": budget, "error": error}}


def hold_out(
    run: RunContext,
    model: PreparedModel,
    candidates: CompiledCandidates,
    baselines: Sequence[Baseline],
    race: Callable[[Mapping[str, Path], Sequence[Baseline]], Verdict],
) -> tuple[Verdict, HeldOut]:
    """Race ``candidates`` and ``baselines``, and judge the winner on the held-out samples and, if sizes are open, at
    several of them; if it exceeds the budget, or is slower than a library at a size, race the others.

    Candidates that are likely to exceed it are judged before: that takes less time than a race for nothing.

    Args:
        run: its setting has the budget.
        model: computes the expected outputs of the samples.
        candidates: more are compiled whenever some were excluded and those are left that are in float32 or leave half
            of the budget; once in a run with a deadline.
        baselines: all measured ones.
        race: gives the verdict on placements and baselines: :func:`collage_evo.run.stages.answer.decide`.
    """
    excluded, slow = dict[str, Exclusion](), dict[str, str]()
    placements, lost = candidates.artifacts, 0
    asked: Set[str] | None = None  # the placements that were excluded when safer ones were asked for
    delivering_s = delivery_s(seconds_each(run.seconds, baselines))
    if (sampled := run.store.get(SAMPLES)) is None:
        raise DamagedFile(f"{run.work} has no samples; start the run again with --overwrite")

    @functools.cache
    def held_out() -> Path | None:
        with run.stage(Stage.HELD_OUT):
            return in_time(partial(held_out_samples, run, model), delivering_s)

    @functools.cache
    def judge(artifact: Path, samples: Path) -> Judgement | Failure | None:
        with run.stage(Stage.HELD_OUT):
            return in_time(partial(run.machine.judge, artifact, samples), delivering_s)

    def leave_out(name: str, reason: str, what: str) -> None:
        candidates.excluded.add(name)
        run.reporter.log(f"{what}: {reason}")

    in_float32 = functools.cache(lambda samples: _in_float32(model, samples))
    required, budget = run.config.accuracy.batch_invariant, run.limits.budget
    # By a metric there may be a thousand samples, and nothing is known of how often such a candidate fails.
    least = RISKY * budget if run.config.time is None and not run.limits.by_metric else math.inf
    while True:
        for name, artifact in placements.items():
            risky = candidates.errors.get(name, 0.0) > least and not computes_exactly(artifact)
            samples = held_out() if risky else None
            judgement = judge(artifact, samples) if samples and samples.is_file() else None
            if isinstance(judgement, Failure):
                break  # the winner tells why
            if judgement and (exclusion := _exclusion(run.limits, judgement, sampled.shared)):
                excluded[name] = exclusion
                leave_out(name, exclusion.reason, "a candidate is left out before the comparison")
        placements = {name: path for name, path in placements.items() if name not in {*excluded, *slow}}
        lower = [name for name, artifact in placements.items() if not computes_exactly(artifact)]
        most = max((candidates.errors.get(name, 0.0) for name in lower), default=0.0)
        errors = {name: one.error for name, one in excluded.items() if one.error is not None}
        exceeding = errors.keys() & candidates.artifacts.keys()
        again = asked is None or (exceeding > asked and run.config.time is None and lost <= CHANCES)
        if excluded and again and most <= ROOM * budget:
            placements, asked = {**placements, **candidates.safer(errors)}, exceeding
            continue
        verdict = race(placements, [baseline for baseline in baselines if baseline.name not in {*excluded, *slow}])
        if (samples := held_out()) is None:
            return verdict, HeldOut(None, sampled, excluded, (UNJUDGED,), slow=slow)
        if not samples.is_file():
            return verdict, HeldOut(None, sampled)
        artifact = artifact_of(verdict, candidates, baselines)
        judgement = judge(artifact, samples)
        if judgement is None:
            return verdict, HeldOut(None, sampled, excluded, (UNJUDGED,), slow=slow)
        judged = None if isinstance(judgement, Failure) else judgement
        invariance = _defined(judged.invariance, partial(in_float32, samples)) if judged else None
        exclusion = _exclusion(run.limits, judgement, sampled.shared)
        if exclusion is None and required and invariance and not invariance.answer.holds(invariance.float32):
            exclusion = Exclusion(f"it is not batch invariant: {describe_invariance(invariance)}")
        # A winner in float32 throughout stays: nothing is more exact.
        if exclusion is None or computes_exactly(artifact):
            timed = partial(times_by_size, run, model, verdict, artifact, placements, baselines)
            sizes = in_time(partial(run.attempt, timed, "the answer is not compared by size"), delivering_s)
            known = sizes if isinstance(sizes, BySize) else BySize()
            if not known.slow:
                fixed = [FIXED] if required and judged and invariance is None else []
                notes = (*_notes(run, judgement, sampled), *fixed, *([] if known is sizes else [UNSIZED]))
                return verdict, HeldOut(judged, sampled, excluded, notes, invariance, known.table, slow)
            slow |= known.slow
            reason = known.slow[verdict.answer]
        else:
            excluded[verdict.answer], reason, lost = exclusion, exclusion.reason, lost + 1
        leave_out(verdict.answer, reason, "the fastest candidate is not the answer, the next one is compared")
        if lost >= CHANCES:
            placements = {name: path for name, path in placements.items() if computes_exactly(path)}


def _in_float32(model: PreparedModel, samples: Path) -> Invariance:
    """The invariance of the model itself, by ONNX Runtime without optimisations."""
    open_model = model.dynamic or model.original
    reference, inputs = Reference(open_model, len(usable_cores())), signature_of(open_model).inputs
    shapes = {one.name: [size if isinstance(size, int) else -1 for size in one.shape] for one in inputs}
    return measure_invariance(
        lambda feeds, names: list(map(reference.run_named(feeds).get, names)), read_samples(samples), shapes
    )


def _defined(answer: Invariance, in_float32: Callable[[], Invariance]) -> InvarianceResult | None:
    """What both have; None if nothing was measured."""
    if answer.largest is None:
        return None
    both = [one.defined_by(in_float32()) for one in (answer, in_float32())]
    return InvarianceResult(*both) if both[0].largest is not None else None


def artifact_of(verdict: Verdict, candidates: CompiledCandidates, baselines: Sequence[Baseline]) -> Path:
    """The artifact of the winner of a race."""
    return {**candidates.artifacts, **{one.name: one.artifact for one in baselines}}[verdict.answer]


def _exclusion(limits: Limits, judgement: Judgement | Failure, shared: bool) -> Exclusion | None:
    """Why an answer is excluded; None if it is within the budget, and is likely to be so on other samples."""
    if isinstance(judgement, Failure):
        return Exclusion(f"it could not be judged on {'the' if shared else 'held-out'} samples: {judgement}")
    budget, within = f"the budget {format_number(limits.budget)}", judgement.error <= limits.budget
    error = f"its {'' if shared else 'held-out '}error {format_number(judgement.error)}"
    if within and (limits.by_metric or judgement.chance_over(limits.budget) <= CHANCE):
        return None
    if not within or judgement.high is None:
        return Exclusion(f"{error} exceeds {budget}", judgement.error)
    high = format_number(judgement.high)
    return Exclusion(f"{error} may exceed {budget} on other samples: up to {high}", judgement.high)


def _notes(run: RunContext, judgement: Judgement | Failure, sampled: Sampled) -> tuple[str, ...]:
    """Notes on what the held-out samples tell of the answer."""
    if isinstance(judgement, Failure):
        return (f"The answer could not be judged on held-out samples: {judgement}",)

    def advice(needed: int) -> str:
        if judgement.samples < sampled.held_out:
            return "this model is too slow for so many"
        return how_to_hold_out(needed, sizes_of(run.config.accuracy), 0 if sampled.random else sampled.total)

    return sampling_notes(judgement, run.limits.budget, sampled.shared, advice)
