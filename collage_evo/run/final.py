"""Last row of a plan: what was found, compared with the single backends, and the answer delivered with its result."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from collage_evo.answer.answer import ITSELF, Proof, Verdict
from collage_evo.answer.baselines import Baseline, best_single, near_defaults
from collage_evo.answer.delivery import MODEL, OBJECTIVE, Delivery
from collage_evo.answer.race import Race
from collage_evo.answer.sequential import Ratio
from collage_evo.answer.so_far import read_so_far
from collage_evo.errors import DamagedFile, InputError
from collage_evo.genome.failure import Failure
from collage_evo.graph.prepare import PreparedModel
from collage_evo.report.finished import RESULT, write_result
from collage_evo.report.html import REPORT, write_html
from collage_evo.report.result import Result
from collage_evo.run.budget import DELIVERY_S, REPORT_S
from collage_evo.run.context import RunContext
from collage_evo.run.deadline import PartIsOver, in_time
from collage_evo.run.publisher import Publisher
from collage_evo.run.records import Seconds
from collage_evo.run.result import run_result
from collage_evo.run.search import Found, Searched, found_so_far
from collage_evo.run.stages.answer import Answer, answer_speeds, decide, deliver
from collage_evo.run.stages.baselines import Baselines
from collage_evo.run.stages.compile import CompiledCandidates
from collage_evo.run.stages.evolve import fingerprint_of
from collage_evo.run.stages.held_out import HeldOut, artifact_of, hold_out
from collage_evo.run.stages.mixtures import with_mixtures_for_budget
from collage_evo.run.stages.samples import SAMPLES
from collage_evo.search.evolution import checkpoint

UNJUDGED = "Time was over before the answer was judged on held-out samples"
"""Note on such an answer."""


def compared(
    run: RunContext,
    model: PreparedModel,
    single: Baselines,
    found: Found,
    so_far: Publisher,
    delivery: Delivery,
    seconds: Seconds,
) -> Result:
    """The winner of the race among placements of ``found`` within the limits of ``run``, and the result next to it.

    An answer that already lies at ``delivery`` takes part in the race, and stays unless it is beaten. If no placement
    is within the limits, the best single backend is the answer. If the run's time is over first, it is the answer
    ``so_far``, without a comparison.

    Raises:
        InputError: no placement could be compiled again, no baseline survived the race, or the answer is wrong.
    """
    compiled = CompiledCandidates(run, found, partial(with_mixtures, run, model, single))
    compiled.compile(best_single(single, run.limits.budget).outcome, delivery.answered)
    return _delivered(run, model, single, compiled, so_far, delivery, seconds)


def compared_so_far(
    run: RunContext,
    model: PreparedModel,
    single: Baselines,
    found: Found,
    so_far: Publisher,
    delivery: Delivery,
    seconds: Seconds,
) -> Result:
    """The same, where no other placement races than the answer so far."""
    compiled = CompiledCandidates(run, found, partial(with_mixtures, run, model, single))
    compiled.keep(so_far.placed, delivery.best)
    return _delivered(run, model, single, compiled, so_far, delivery, seconds)


def with_mixtures(
    run: RunContext, model: PreparedModel, single: Baselines, searched: Searched, budget: float
) -> Searched:
    """``searched``, and mixtures for ``budget``, measured now and saved in the checkpoint.

    Args:
        run: this one, within the limits of the answer.
        model: the user's own.
        single: the single backends.
        searched: earlier measurements.
        budget: the largest error of mixtures on samples of the search.
    """
    space, baseline_ms = searched.costs.space, searched.baseline_ms
    record = with_mixtures_for_budget(run, space, searched.record, single, budget, baseline_ms)
    if record is not searched.record:
        fingerprint = fingerprint_of(run, space, model)
        saved = checkpoint.load(run.directory, fingerprint)
        checkpoint.save(run.directory, replace(saved, evaluated=record.evaluated), fingerprint)
    return replace(searched, record=record)


def _delivered(
    run: RunContext,
    model: PreparedModel,
    single: Baselines,
    compiled: CompiledCandidates,
    so_far: Publisher,
    delivery: Delivery,
    seconds: float,
) -> Result:
    found, speeds = compiled.searched, None
    defaults = near_defaults(single, run.target, run.config.policy.single_give_up)
    decided = in_time(lambda: _decided(run, model, single, compiled, delivery, defaults, seconds), REPORT_S)
    if decided:
        verdict, held_out, answer = decided
        found = compiled.searched
        measured = in_time(
            lambda: run.attempt(lambda: answer_speeds(run, verdict, answer), "the other speed is left out"), REPORT_S
        )
        speeds = None if isinstance(measured, Failure) else measured
    else:
        run.reporter.log("time was over before the final comparison ended: the answer so far stays")
        found, defaults = found_so_far(found, so_far.placed), ()
        verdict, held_out, answer = not_compared(run, single, found, delivery)
    compiled.remove()
    result = run_result(
        run=run,
        model=model,
        found=found,
        baselines=single,
        defaults=defaults,
        verdict=verdict,
        held_out=held_out,
        answer=answer,
        speeds=speeds,
    )
    write_result(delivery.directory / RESULT, result)
    run.attempt(lambda: write_html(delivery.directory / REPORT, result), "there is no report.html")
    return result


def _decided(
    run: RunContext,
    model: PreparedModel,
    single: Baselines,
    compiled: CompiledCandidates,
    delivery: Delivery,
    defaults: Sequence[Baseline],
    seconds: float,
) -> tuple[Verdict, HeldOut, Answer]:
    """The verdict of the race, the winner's errors on held-out samples, if there is time for these, and the winner
    delivered."""
    keys = compiled.searched.keys
    incumbent = next((name for name, key in keys.items() if key == delivery.answered), delivery.answered)
    verdicts: list[Verdict] = []

    def race(placements: Mapping[str, Path], baselines: Sequence[Baseline]) -> Verdict:
        verdicts.clear()  # the winner before exceeds the budget
        verdicts.append(decide(run, placements, baselines, seconds, incumbent, defaults))
        return verdicts[-1]

    judged = in_time(lambda: hold_out(run, model, compiled, single, race), DELIVERY_S)
    if judged is None and not verdicts:
        raise PartIsOver
    verdict, held_out = judged or (verdicts[-1], _unjudged(run))
    made_of = {"name": model.name, "sha256": model.digest}
    details = {**held_out.info(run.setting), MODEL: made_of, OBJECTIVE: run.config.search.objective}
    artifact = artifact_of(verdict, compiled, single)
    return verdict, held_out, deliver(run, verdict.answer, artifact, delivery, details)


def _unjudged(run: RunContext) -> HeldOut:
    if (sampled := run.store.get(SAMPLES)) is None:
        raise DamagedFile(f"{run.work} has no samples; start the run again with --overwrite")
    return HeldOut(None, sampled, notes=(UNJUDGED,))


def not_compared(
    run: RunContext, single: Sequence[Baseline], found: Found, delivery: Delivery
) -> tuple[Verdict, HeldOut, Answer]:
    """The answer so far, for which there was no time to be compared or judged on held-out samples.

    Nothing is known of how far its speed-up is from the ratio of the earlier times: that has no rounds.
    """
    known, best = read_so_far(delivery.best), best_single(single, run.limits.budget)
    if known is None:
        raise InputError(f"{delivery.best} has an answer of another run: start this one again with --overwrite")
    same = (one for one in single if one.keeps(run.limits.budget) and one.outcome.latency_ms == known.latency_ms)
    best = best if found.keys else next(same, best)
    name = next(iter(found.keys), best.name)
    times_ms = {best.name: best.outcome.latency_ms or 0.0, name: known.latency_ms}
    ratio = Ratio(times_ms[best.name] / known.latency_ms, 0.0, sys.float_info.max, ())
    final = Race({name: (((ms,),),) for name, ms in times_ms.items()}, {})
    verdict = Verdict(name, best.name, ratio if found.keys else ITSELF, name, ratio, final, proof=Proof.NONE)
    error = math.nan if known.error is None else known.error
    return verdict, _unjudged(run), Answer(delivery.best, (), error, math.nan)
